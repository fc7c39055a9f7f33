"""From a problem to arrays: data drawn and split, a base model trained once and remembered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

from fareg._encoding import gradient_boosting, ordinal_encoder
from fareg._validation import BoolArray, FaregError, FloatArray, IntArray
from fareg.classifiers import out_of_fold_proba
from fareg.datasets import (
    Dataset,
    inject_label_noise,
    load_acs_income,
    make_metric_benchmark,
    make_nursery_experiment,
    make_synthetic,
)
from fareg.experiments._config import BaseConfig, DataConfig, Problem, content_hash
from fareg.experiments._network import train_network
from fareg.experiments._store import Store

DRAW, TRAIN, CONFORMALIZE, MEASURE = range(4)  # what random numbers are drawn for
N_FOLDS = 5


@dataclass(frozen=True)
class DataKind:
    """How to draw rows, how many classes there are, and the two features that make the group."""

    draw: Callable[[DataConfig, int, np.random.Generator], Dataset]
    n_classes: int
    target_features: tuple[str, str]
    published: str = "synthetic"  # the published setting whose hyperparameters FaReG (paper) takes


def _synthetic(bias: str) -> Callable[[DataConfig, int, np.random.Generator], Dataset]:
    return lambda config, n, rng: make_synthetic(n, bias=bias, random_state=rng)


def _nursery(config: DataConfig, n: int, rng: np.random.Generator) -> Dataset:
    return _sample(make_nursery_experiment(random_state=rng), n, rng)


def _acs(config: DataConfig, n: int, rng: np.random.Generator) -> Dataset:
    drawn = _sample(_people(config.path, config.states), n, rng)
    y = inject_label_noise(drawn.y, np.asarray(drawn.group), n_classes=4, random_state=rng)
    return replace(drawn, y=y)


@lru_cache(maxsize=1)
def _people(path: str, states: tuple[str, ...]) -> Dataset:
    """Return everyone in the files, with income brackets of all of them and without noise."""
    return load_acs_income(path, states=states, n_samples=None, label_noise=False, random_state=0)


def _sample(data: Dataset, n: int, rng: np.random.Generator) -> Dataset:
    if n > len(data):
        raise FaregError(f"{data.name} has {len(data)} rows, {n} are needed; use smaller sizes")
    return data.take(rng.permutation(len(data))[:n])


DATA: dict[str, DataKind] = {
    "xnor": DataKind(_synthetic("xnor"), 6, ("Color", "Gender")),
    "eight": DataKind(_synthetic("eight"), 6, ("Gender", "Age Group")),
    "metric": DataKind(lambda _, n, rng: make_metric_benchmark(n, rng), 6, ("x0", "x1")),
    "nursery": DataKind(_nursery, 4, ("parents", "finance"), "nursery"),
    "acs": DataKind(_acs, 4, ("AGE", "SEX"), "nursery"),
}


class StoredProbabilities(ClassifierMixin, BaseEstimator):
    """A trained model reduced to what it said about the rows of one problem, by row number."""

    def __init__(self, proba: Any = None) -> None:
        self.proba = proba

    def fit(self, X: Any, y: Any) -> StoredProbabilities:
        """Do nothing: the model was trained before it was stored."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def classes_(self) -> IntArray:
        return np.arange(self.proba.shape[1])

    def predict_proba(self, X: pd.DataFrame) -> FloatArray:
        """Return the stored probabilities of rows, found by the index of the frame."""
        return self.proba[X.index.to_numpy()]


@dataclass(frozen=True)
class Rows:
    """Calibration or test rows of a problem."""

    X: pd.DataFrame
    y: IntArray
    group: BoolArray


@dataclass(frozen=True)
class Bench:
    """All that the cells of one problem share."""

    problem: Problem
    train: Dataset
    calibration: Rows
    test: Rows
    sensitive: list[str]
    codes: FloatArray  # (n_test, n_sensitive) the test rows' sensitive features as level numbers
    estimator: FrozenEstimator
    training_seconds: float
    store: Store
    fits: dict[Any, Any]  # fitted classifiers that several cells use

    @property
    def seed(self) -> int:
        """The random state of every conformal method: all see the same randomised scores."""
        return int(self.problem.rng(CONFORMALIZE).integers(2**31))

    def learning_rows(self) -> dict[str, Any]:
        """Return the training rows with out-of-fold probabilities, as ``fit`` learns from them."""
        if self.problem.base.kind != "boosting":
            raise FaregError(
                f"out-of-fold rows are made with gradient boosting, got {self.problem.base.kind}"
            )

        def said() -> pd.DataFrame:
            seed = int(self.problem.rng(TRAIN).integers(2**31))
            proba = out_of_fold(self.train, self.estimator.classes_, seed)
            return pd.DataFrame(proba).rename(columns=str)

        proba = self.store.once(content_hash("out of fold", self.problem), said).to_numpy()
        return {"X_learn": self.train.X, "y_learn": self.train.y, "proba_learn": proba}


def prepare(problem: Problem, store: Store) -> Bench:
    """Draw the data of a problem and train its base model, or remember what it said."""
    kind = DATA[problem.data.kind]
    data = kind.draw(problem.data, problem.n + problem.n_test, problem.rng(DRAW))
    n_train = problem.n // 2
    train, rest = data.take(slice(n_train)), data.take(slice(n_train, None))
    key = content_hash("base model", problem)
    said = store.once(key, lambda: _train(problem, train, rest, kind.n_classes))
    proba = said.drop(columns="training_seconds").to_numpy()
    group = np.zeros(len(rest), dtype=bool) if rest.group is None else rest.group
    n_calibration = problem.n - n_train
    cut = [slice(0, n_calibration), slice(n_calibration, None)]
    calibration, test = (Rows(rest.X.iloc[rows], rest.y[rows], group[rows]) for rows in cut)
    return Bench(
        problem=problem,
        train=train,
        calibration=calibration,
        test=test,
        sensitive=list(rest.sensitive),
        codes=ordinal_encoder().fit_transform(test.X[list(rest.sensitive)]),
        estimator=FrozenEstimator(StoredProbabilities(proba)),
        training_seconds=float(said["training_seconds"].iloc[0]),
        store=store,
        fits={},
    )


def _train(problem: Problem, train: Dataset, rest: Dataset, n_classes: int) -> pd.DataFrame:
    """Return the class probabilities of the rows that did not train, and the seconds it took."""
    seed = int(problem.rng(TRAIN).integers(2**31))
    calibration = rest.take(slice(problem.n - len(train)))
    start = time.process_time()
    model = train_base_model(problem.base, train, calibration, seed)
    seconds = time.process_time() - start
    return said_by(model, rest.X, n_classes).assign(training_seconds=seconds)


def out_of_fold(train: Dataset, classes: Any, seed: int) -> FloatArray:
    """Return the probabilities of each row by gradient boosting that was trained without it."""
    folds: dict[str, Any] = {"cv": N_FOLDS, "clusters": None, "seed": seed}
    return out_of_fold_proba(gradient_boosting(seed), train.X, train.y, classes, **folds)


def said_by(model: Any, X: pd.DataFrame, n_classes: int) -> pd.DataFrame:
    """Return a column of probabilities per class; one that training did not see has zeros."""
    proba = np.zeros((len(X), n_classes))
    proba[:, model.classes_] = model.predict_proba(X)
    return pd.DataFrame(proba, columns=[f"p{k}" for k in range(n_classes)])


def train_base_model(config: BaseConfig, train: Dataset, calibration: Dataset, seed: int) -> Any:
    """Return the trained base classifier; it sees calibration rows only if they stop it."""
    if config.kind == "boosting":
        return gradient_boosting(seed).fit(train.X, train.y)
    stop = (calibration.X, calibration.y) if config.stopped_on == "calibration" else None
    return train_network(config, train.X, train.y, seed, stop=stop)
