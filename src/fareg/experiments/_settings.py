"""What an experiment is: frozen configurations, and the hash that names their results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 4  # raise it when rows or their meaning change: no older result is reused then
CONFIDENCE = 0.9  # the coverage that every set promises
UNHASHED = {"unhashed": True}  # marks a field that does not change the result
Parameters = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class BaseModel:
    """The classifier under the sets: the paper's network, or a model of the command line by name.

    Training of the network stops after ``max_epochs``, or when the log loss on the rows that stop
    it has not fallen for ``patience`` epochs; the weights of the best epoch are kept. A share
    ``validation`` of the training rows stops it, or the calibration rows do, as in the authors'
    code: these are then no longer exchangeable with test rows.
    """

    kind: str = "network"
    hidden: tuple[int, ...] = (256, 256, 128, 64)
    learning_rate: float = 1e-4
    max_epochs: int = 500
    batch_size: int = 250
    patience: int = 100
    validation: float = 0.2
    stopped_on: str = "training"  # or "calibration"
    numbers: str = "codes"  # one raw number per column, as published; or "standard", scaled ones


@dataclass(frozen=True)
class Method:
    """A row of a comparison: its name, its kind (see ``_methods``) and its parameters.

    The name does not enter the hash: what two targets call differently is computed once. Nor does
    the place of a Python file: such a kind ends with a hash of the file's content.
    """

    name: str = field(metadata=UNHASHED)
    kind: str
    parameters: Parameters = ()
    file: str = field(default="", metadata=UNHASHED)

    def __getitem__(self, name: str) -> Any:
        return dict(self.parameters)[name]

    def with_parameters(self, **more: Any) -> Method:
        """Return the same method with some parameters changed."""
        return replace(self, parameters=tuple({**dict(self.parameters), **more}.items()))


def generator(name: str, seed: int, n: int, purpose: int) -> np.random.Generator:
    """Return random numbers that no other name, seed, size or purpose has."""
    kind = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return np.random.default_rng([seed, n, kind, purpose])


def content_hash(*configurations: Any) -> str:
    """Return a name for configurations that changes whenever one of their values does.

    >>> content_hash(BaseModel()) == content_hash(BaseModel(batch_size=250))
    True
    >>> content_hash(BaseModel()) == content_hash(BaseModel(batch_size=251))
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
