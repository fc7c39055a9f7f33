"""What an experiment is: frozen configurations, and the hash that names their results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 3  # raise it when rows or their meaning change: no older result is reused then
CONFIDENCE = 0.9  # the coverage that every set promises
Parameters = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class DataConfig:
    """Which data: a key of ``DATA``; data from files are named by a fingerprint of their content.

    The path does not enter the hash: files may move. The fingerprint tells the states.
    """

    kind: str
    fingerprint: str = ""
    path: str = field(default="", metadata={"unhashed": True})
    states: tuple[str, ...] = field(default=(), metadata={"unhashed": True})


@dataclass(frozen=True)
class BaseConfig:
    """The classifier under the sets: the paper's network ("mlp") or gradient boosting.

    Training stops after ``max_epochs``, or when the log loss on the rows that stop it has not
    fallen for ``patience`` epochs; the weights of the best epoch are kept. A share ``validation``
    of the training rows stops it, or the calibration rows do, as in the authors' code: these are
    then no longer exchangeable with test rows.
    """

    kind: str = "mlp"
    hidden: tuple[int, ...] = (256, 256, 128, 64)
    learning_rate: float = 1e-4
    max_epochs: int = 500
    batch_size: int = 250
    patience: int = 100
    validation: float = 0.2
    stopped_on: str = "training"  # or "calibration"
    numbers: str = "codes"  # one raw number per column, as published; or "standard", scaled ones


@dataclass(frozen=True)
class MetricConfig:
    """How conditional coverage is measured on the test rows' sensitive features."""

    delta: float = 0.5
    n_directions: int = 1000
    n_permutations: int = 20


@dataclass(frozen=True)
class Problem:
    """One data set drawn with one seed: ``n / 2`` rows train, ``n / 2`` calibrate, others test."""

    data: DataConfig
    n: int
    seed: int
    base: BaseConfig = BaseConfig()
    n_test: int = 500

    @property
    def training_cost(self) -> float:
        """Roughly the seconds that training the base model takes."""
        return 1 + self.n / 200 if self.base.kind == "mlp" else 3.0

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of one purpose; no two purposes or problems share numbers."""
        return generator(self.data.kind, self.seed, self.n, purpose)


def generator(name: str, seed: int, n: int, purpose: int) -> np.random.Generator:
    """Return random numbers that no other name, seed, size or purpose has."""
    kind = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return np.random.default_rng([seed, n, kind, purpose])


@dataclass(frozen=True)
class Method:
    """A row of a comparison: its name, its kind (see ``apply_method``) and parameters.

    The name does not enter the hash: what two targets call differently is computed once.
    """

    name: str = field(metadata={"unhashed": True})
    kind: str
    parameters: Parameters = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.parameters)[name]


def content_hash(*configurations: Any) -> str:
    """Return a name for configurations that changes whenever one of their values does.

    >>> content_hash(BaseConfig()) == content_hash(BaseConfig(batch_size=250))
    True
    >>> content_hash(BaseConfig()) == content_hash(BaseConfig(batch_size=251))
    False
    """
    text = json.dumps([FORMAT, *map(_plain, configurations)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def fingerprint(files: Sequence[Path]) -> str:
    """Return a hash of the content of files."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        kept = [item.name for item in fields(value) if not item.metadata.get("unhashed")]
        return [type(value).__name__, {name: _plain(getattr(value, name)) for name in kept}]
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
