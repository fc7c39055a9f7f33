"""The rows and base model of one problem, which all methods share, and the store of results."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import code_encoder, one_hot_encoder
from fareg._files import replacing
from fareg._validation import FaregError, FloatArray, IntArray, InvalidInputError
from fareg.classifiers import out_of_fold_proba
from fareg.workflow import MODELS

CONFIDENCE = 0.9  # the coverage that every set promises
DRAW, NOISE, TRAIN, FIT, MEASURE = range(5)  # purposes of random numbers
N_FOLDS = 5
FORMAT = 4  # raise it when rows or their meaning change: older results are not reused then
MANIFEST = "fareg-results.json"
UNHASHED = {"unhashed": True}  # marks a field of a configuration that does not change the result


# --- finished work on disk ----------------------------------------------------------------------


def content_hash(*configurations: Any) -> str:
    """Return a name for configurations; it changes whenever one of their values does.

    >>> content_hash((1, "a")) == content_hash([1, "a"]) != content_hash((2, "a"))
    True
    """

    def plain(value: Any) -> Any:
        if is_dataclass(value):
            kept = [item.name for item in fields(value) if not item.metadata.get("unhashed")]
            return [type(value).__name__, {name: plain(getattr(value, name)) for name in kept}]
        return [plain(item) for item in value] if isinstance(value, tuple | list) else value

    text = json.dumps([FORMAT, *map(plain, configurations)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def fingerprint(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def generator(name: str, seed: int, n: int, purpose: int) -> np.random.Generator:
    """Return a generator for one name, seed, size and purpose; no two share random numbers."""
    kind = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return np.random.default_rng([seed, n, kind, purpose])


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FaregError(f"cannot write to {folder} ({reason}); choose another folder") from error


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file, whole or not at all; make its folder, and return its path."""
    make_folder(path.parent)
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


class Store:
    """A results folder: rows by the hash of their configuration."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """Make the folder, or check that this version of fareg wrote it."""
        store, ours = cls(folder), {"fareg": version("fareg"), "format": FORMAT}
        manifest = store.folder / MANIFEST
        try:
            found = json.loads(manifest.read_text(encoding="utf-8"))
        except FileNotFoundError:
            found = ours
        except (OSError, ValueError) as error:
            raise FaregError(f"cannot read {manifest} ({error}); choose another folder") from error
        if found != ours:
            raise FaregError(
                f"{store.folder} holds results of another version, {json.dumps(found)}, and this "
                f"is {json.dumps(ours)}; choose another folder"
            )
        # Write it even if it exists: an unwritable folder is refused now, not after hours.
        write_file(manifest, json.dumps(ours) + "\n")
        return store

    def path(self, key: str) -> Path:
        return self.folder / "cells" / f"v{FORMAT}" / key[:2] / f"{key}.parquet"

    def get(self, key: str) -> pd.DataFrame | None:
        """Return the rows of a key, None if they are missing or damaged."""
        try:
            return pq.read_table(self.path(key)).to_pandas()
        except (OSError, pa.ArrowInvalid):
            return None

    def once(self, key: str, compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        rows = self.get(key)
        return self.put(key, compute()) if rows is None else rows

    def put(self, key: str, rows: pd.DataFrame) -> pd.DataFrame:
        write_file(self.path(key), rows.to_parquet(index=False))
        return rows


# --- base models and benches --------------------------------------------------------------------


@dataclass(frozen=True)
class BaseModel:
    """The classifier under the sets: the paper's network, or a model of the command line by name.

    Training of the network stops after ``max_epochs``, or when the log loss on the stopping rows
    has not fallen for ``patience`` epochs; the weights of the best epoch are kept. The stopping
    rows are a share ``validation`` of the training rows, or the calibration rows, as in the
    authors' code: these are then no longer exchangeable with test rows.
    """

    kind: str = "network"
    hidden: tuple[int, ...] = (256, 256, 128, 64)
    learning_rate: float = 1e-4
    max_epochs: int = 500
    batch_size: int = 250
    patience: int = 100
    validation: float = 0.2
    stopped_on: str = "training"  # or "calibration"
    numbers: str = "codes"  # one raw number per column, as published; or "standard", scaled numbers


def train_network(
    config: BaseModel, X: pd.DataFrame, y: IntArray, seed: int, *, stop: Any = None
) -> Pipeline:
    """Return the network after the epoch whose log loss on the stopping rows is lowest.

    ``stop`` holds the stopping rows and their labels; None for a share of the training rows.
    Stopping rows of a class without training rows do not count.
    """
    if stop is None:
        rows = np.random.default_rng(seed).permutation(len(y))
        n_stop = max(1, round(config.validation * len(y)))
        stop = X.iloc[rows[:n_stop]], y[rows[:n_stop]]
        X, y = X.iloc[rows[n_stop:]], y[rows[n_stop:]]
    encoder = (code_encoder() if config.numbers == "codes" else one_hot_encoder()).fit(X)
    known = np.isin(stop[1], y)
    y_stop = stop[1][known]
    x, x_stop = (encoder.transform(some).astype(np.float32) for some in (X, stop[0][known]))
    classes, size = np.unique(y), min(config.batch_size, len(y))
    network = MLPClassifier(
        config.hidden,
        learning_rate_init=config.learning_rate,
        batch_size=size,
        # With a seed instead of a generator, every epoch would shuffle the same way.
        random_state=np.random.RandomState(seed),
    )
    network.partial_fit(x[:size], y[:size], classes=classes)  # one step creates the layers
    # The authors' network starts like torch's Linear, uniform on +-1/sqrt(n_in). From the default
    # start of scikit-learn, the same training overfits sooner and its sets are larger.
    rng = np.random.default_rng(seed)
    for weights, intercepts in zip(network.coefs_, network.intercepts_, strict=True):
        bound = len(weights) ** -0.5
        weights[:] = rng.uniform(-bound, bound, weights.shape)
        intercepts[:] = rng.uniform(-bound, bound, intercepts.shape)
    lowest, best, waited = np.inf, network, 0
    for _ in range(config.max_epochs):
        network.partial_fit(x, y)
        loss = log_loss(y_stop, network.predict_proba(x_stop), labels=classes)
        waited += 1
        if loss < lowest:
            lowest, best, waited = loss, deepcopy(network), 0
        if waited == config.patience:
            break
    return make_pipeline(encoder, best)


@dataclass(frozen=True, eq=False)
class Bench:
    """What the cells of one problem share; labels are numbers from 0.

    The index of ``X`` numbers the rows. Either the base model is trained on ``train`` and methods
    calibrate on ``calibration``, or, if ``train`` is None, methods are fitted on all rows except
    the test rows and divide them themselves.
    """

    problem: Any
    X: pd.DataFrame
    y: IntArray
    n_classes: int
    sensitive: list[str]
    test: IntArray
    calibration: IntArray
    store: Store
    train: IntArray | None = None
    group: Any = None  # (n,) which rows are harder to classify; None if unknown
    clusters: Any = None
    shared: dict[Any, Any] = field(default_factory=dict)  # results that several cells use
    # seconds of trainings, and of calls of the base model, which no method is charged
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "base": 0.0})

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # clones of the base model share its results

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        if key not in self.shared:
            self.shared[key] = compute()
        return self.shared[key]

    def seed(self, purpose: int = FIT) -> int:
        """Return the seed of one purpose, by default the seed of all methods."""
        return int(self.problem.rng(purpose).integers(2**31))

    @cached_property
    def estimator(self) -> Any:
        """The base model, already trained if there are ``train`` rows."""
        model = RememberedModel(self)
        if self.train is None:
            return model
        return FrozenEstimator(model.fit(self.X.iloc[self.train], self.y[self.train]))

    def fit(self, model: Any, *, learn_out_of_fold: bool = False) -> Any:
        options: dict[str, Any] = {}
        if self.train is None:
            rows = np.setdiff1d(np.arange(len(self.y)), self.test)
            if self.clusters is not None:
                options["clusters"] = self.clusters[rows]
            return model.fit(self.X.iloc[rows], self.y[rows], **options)
        if learn_out_of_fold:  # from the training rows, as in ``fit``
            X, y = self.X.iloc[self.train], self.y[self.train]
            folds: dict[str, Any] = {"cv": N_FOLDS, "clusters": None, "seed": self.seed(TRAIN)}
            proba = out_of_fold_proba(RememberedModel(self), X, y, range(self.n_classes), **folds)
            options = {"X_learn": X, "y_learn": y, "proba_learn": proba}
        rows = self.calibration
        return model.conformalize(self.X.iloc[rows], self.y[rows], **options)

    def row_numbers(self, X: Any) -> IntArray:
        """Return the numbers of the rows of X; refuse a frame that a method has changed."""
        is_frame = isinstance(X, pd.DataFrame)
        if (
            not is_frame
            or not X.index.isin(self.X.index).all()
            or not X.equals(self.X.loc[X.index])
        ):
            raise InvalidInputError(
                "a method must pass rows of the frame that it got, with their index, to the "
                f"estimator, got {'other values' if is_frame else type(X).__name__}; models are "
                "remembered by rows and labels"
            )
        return X.index.to_numpy(np.int64)

    def trained_proba(self, rows: IntArray, y: IntArray) -> FloatArray:
        """Return the probabilities of all rows, of the base model trained on some rows."""
        other_labels = b"" if np.array_equal(y, self.y[rows]) else y.tobytes()
        key = content_hash(
            "training", self.problem, hashlib.sha256(rows.tobytes() + other_labels).hexdigest()
        )

        def look_up() -> FloatArray:
            stored = self.store.once(key, lambda: _train(self, rows, y))
            self.seconds["training"] += float(stored.pop("seconds").iloc[0])
            proba = stored.to_numpy(np.float64)
            return proba / proba.sum(axis=1, keepdims=True)  # stored in single precision

        return self.once(key, look_up)


def _train(bench: Bench, rows: IntArray, y: IntArray) -> pd.DataFrame:
    base, X, seed = bench.problem.base, bench.X.iloc[rows], bench.seed(TRAIN)
    start = time.process_time()
    if base.kind == "network":
        on_calibration = base.stopped_on == "calibration"
        stopping = bench.X.iloc[bench.calibration], bench.y[bench.calibration]
        model = train_network(base, X, y, seed, stop=stopping if on_calibration else None)
    else:
        model = MODELS[base.kind](seed).fit(X, y)
    seconds = time.process_time() - start
    proba = np.zeros((len(bench.X), bench.n_classes), np.float32)
    proba[:, model.classes_] = model.predict_proba(bench.X)  # zeros for an unseen class
    names = [f"p{k}" for k in range(bench.n_classes)]
    return pd.DataFrame(proba, columns=names).assign(seconds=seconds)


class RememberedModel(ClassifierMixin, BaseEstimator):
    """The base model of a problem: each training is done once, and its result stored on disk."""

    def __init__(self, bench: Any = None) -> None:
        self.bench = bench

    def fit(self, X: pd.DataFrame, y: IntArray) -> Self:
        with self._timed():
            rows = self.bench.row_numbers(X)
            self.proba_ = self.bench.trained_proba(rows, np.asarray(y, dtype=np.int64))
        self.classes_ = np.arange(self.bench.n_classes)
        return self

    def predict_proba(self, X: pd.DataFrame) -> FloatArray:
        with self._timed():
            return self.proba_[self.bench.row_numbers(X)]

    def predict(self, X: pd.DataFrame) -> IntArray:
        return self.predict_proba(X).argmax(axis=1)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.process_time()
        yield
        self.bench.seconds["base"] += time.process_time() - start
