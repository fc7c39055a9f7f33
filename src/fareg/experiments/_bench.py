"""The rows of one problem and one base model, which all methods and scores share."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

from fareg._validation import FloatArray, IntArray, InvalidInputError
from fareg.classifiers import out_of_fold_proba
from fareg.experiments._network import train_network
from fareg.experiments._settings import content_hash
from fareg.experiments._store import Store
from fareg.workflow import MODELS

DRAW, NOISE, TRAIN, FIT, MEASURE = range(5)  # what random numbers are drawn for
N_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Bench:
    """All that the cells of one problem share; labels are numbers from 0.

    Rows are known by their numbers, which are the index of ``X``. Either the base model is trained
    on ``train`` and methods calibrate on ``calibration``, or, if these are None, methods are fitted
    on all rows but those of the test and divide them themselves.
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
    group: Any = None  # (n,) who is harder to classify; None if nobody knows
    clusters: Any = None
    fits: dict[Any, Any] = field(default_factory=dict)  # what several cells use

    @property
    def seed(self) -> int:
        """The random state of every method: the same split, and the same randomised scores."""
        return int(self.problem.rng(FIT).integers(2**31))

    @cached_property
    def trainings(self) -> Trainings:
        """The base model's trainings."""
        return Trainings(self)

    @cached_property
    def estimator(self) -> Any:
        """The base model: trained already if the bench says on which rows."""
        model = RememberedModel(self.trainings)
        if self.train is None:
            return model
        return FrozenEstimator(model.fit(self.X.iloc[self.train], self.y[self.train]))

    @cached_property
    def ready_seconds(self) -> float:
        """The seconds that training took before any method was fitted."""
        self.trainings.charged = 0.0
        if self.train is not None:
            self.trainings.answers(self.train, self.y[self.train])
        return self.trainings.charged

    def fit(self, model: Any, *, learn_out_of_fold: bool = False) -> Any:
        """Fit a method, or calibrate it if its base model is trained already."""
        if self.train is None:
            rows = np.setdiff1d(np.arange(len(self.y)), self.test)
            apart = {} if self.clusters is None else {"clusters": self.clusters[rows]}
            return model.fit(self.X.iloc[rows], self.y[rows], **apart)
        apart = self._learning_rows(self.train) if learn_out_of_fold else {}
        rows = self.calibration
        return model.conformalize(self.X.iloc[rows], self.y[rows], **apart)

    def _learning_rows(self, rows: IntArray) -> dict[str, Any]:
        """Return the training rows with out-of-fold probabilities, as ``fit`` learns from them."""
        X, y = self.X.iloc[rows], self.y[rows]
        folds: dict[str, Any] = {"cv": N_FOLDS, "clusters": None, "seed": self.trainings.seed}
        model, classes = RememberedModel(self.trainings), np.arange(self.n_classes)
        proba = out_of_fold_proba(model, X, y, classes, **folds)
        return {"X_learn": X, "y_learn": y, "proba_learn": proba}


class Trainings:
    """Every training of the base model is done once and remembered, also on disk.

    What a model says is kept for all rows of the problem, by row number; a training is known by its
    rows, and by its labels if they are others than those of the problem. ``charged`` adds up the
    seconds of the trainings that were asked for, done now or remembered; ``spent`` the seconds that
    asking took, which no method is charged with.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench, self.seed = bench, int(bench.problem.rng(TRAIN).integers(2**31))
        self.charged, self.spent = 0.0, 0.0
        self.known: dict[str, tuple[FloatArray, float]] = {}

    def __deepcopy__(self, memo: Any) -> Self:
        """Clones of an estimator share what is remembered."""
        return self

    def ask(self, X: Any, y: IntArray | None = None) -> Any:
        """Return the numbers of rows, or, with labels, what a model trained on them says."""
        start = time.process_time()
        rows = self._numbers_of(X)
        found = rows if y is None else self.answers(rows, np.asarray(y, dtype=np.int64))
        self.spent += time.process_time() - start
        return found

    def answers(self, rows: IntArray, y: IntArray) -> FloatArray:
        """Return the class probabilities of all rows, by a model trained on ``rows``."""
        others = b"" if np.array_equal(y, self.bench.y[rows]) else y.tobytes()
        digest = hashlib.sha256(rows.tobytes() + others).hexdigest()
        if digest not in self.known:
            key = content_hash("training", self.bench.problem, digest)
            said = self.bench.store.once(key, lambda: self._train(rows, y))
            proba = said.drop(columns="seconds").to_numpy(np.float64)
            proba = proba / proba.sum(axis=1, keepdims=True)  # stored in single precision
            self.known[digest] = proba, float(said["seconds"].iloc[0])
        proba, seconds = self.known[digest]
        self.charged += seconds
        return proba

    def _numbers_of(self, X: Any) -> IntArray:
        """Return the numbers of rows; a frame that a method has changed is refused."""
        if not isinstance(X, pd.DataFrame):
            raise InvalidInputError(
                f"a method must hand its rows to the estimator as the frame that it got, with its "
                f"index, got {type(X).__name__}"
            )
        known = self.bench.X
        if not X.index.isin(known.index).all() or not X.equals(known.loc[X.index]):
            raise InvalidInputError(
                "a method must hand its rows to the estimator as it got them, got other values, "
                "columns or index; models of a benchmark are remembered by rows and labels"
            )
        return X.index.to_numpy(np.int64)

    def _train(self, rows: IntArray, y: IntArray) -> pd.DataFrame:
        bench, base = self.bench, self.bench.problem.base
        X = bench.X.iloc[rows]
        start = time.process_time()
        if base.kind == "network":
            stop = bench.calibration if base.stopped_on == "calibration" else None
            last = None if stop is None else (bench.X.iloc[stop], bench.y[stop])
            model = train_network(base, X, y, self.seed, stop=last)
        else:
            model = MODELS[base.kind](self.seed).fit(X, y)
        seconds = time.process_time() - start
        proba = np.zeros((len(bench.X), bench.n_classes), np.float32)
        proba[:, model.classes_] = model.predict_proba(bench.X)  # an unseen class has zeros
        names = [f"p{k}" for k in range(bench.n_classes)]
        return pd.DataFrame(proba, columns=names).assign(seconds=seconds)


class RememberedModel(ClassifierMixin, BaseEstimator):
    """The base model of a problem: its trainings are looked up by their rows and labels."""

    def __init__(self, trainings: Any = None) -> None:
        self.trainings = trainings

    def fit(self, X: pd.DataFrame, y: IntArray) -> Self:
        """Remember, or train."""
        self.proba_ = self.trainings.ask(X, y)
        self.classes_ = np.arange(self.proba_.shape[1])
        return self

    def predict_proba(self, X: pd.DataFrame) -> FloatArray:
        """Return the class probabilities of rows, found by the index of the frame."""
        return self.proba_[self.trainings.ask(X)]

    def predict(self, X: pd.DataFrame) -> IntArray:
        """Return the most probable classes."""
        return self.predict_proba(X).argmax(axis=1)
