"""Predictors of other packages as rows of a benchmark, on the same split and base model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from fareg._columns import canonical
from fareg._hashing import hash_key
from fareg._levels import LevelCoding, joint_codes
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError
from fareg.classifiers import split_rows


class GivenProbabilities(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose features are the class probabilities."""

    def __init__(self, n_classes: int = 2) -> None:
        self.n_classes = n_classes

    def fit(self, X: Any, y: Any) -> Self:
        """Do nothing."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def classes_(self) -> IntArray:
        return np.arange(self.n_classes)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the features."""
        return np.asarray(X)

    def predict(self, X: Any) -> IntArray:
        """Return the most probable classes."""
        return np.asarray(X).argmax(axis=1)


@dataclass(eq=False)
class Peer:
    """A predictor of another package: the estimator is trained on one half, it gets the other.

    The constructor takes what every method of a benchmark takes; a subclass says in
    ``_calibrate`` and ``_predict`` how the package is called.
    """

    title: ClassVar[str]
    scores: ClassVar[tuple[str, ...]]

    estimator: Any
    confidence_level: float = 0.9
    conformity_score: str = "lac"
    sensitive_features: Any = None
    random_state: Any = None

    def fit(self, X: pd.DataFrame, y: IntArray, *, clusters: Any = None) -> Self:
        """Train the estimator and calibrate the predictor, on the rows that fareg would take."""
        train, rest = split_rows(len(y), 0.5, clusters, hash_key(self.random_state) % 2**32)
        self.fitted_ = clone(self.estimator).fit(X.iloc[train], y[train])
        proba = self.fitted_.predict_proba(X.iloc[rest])
        self.model_ = GivenProbabilities(proba.shape[1])
        self._calibrate(X.iloc[rest], proba, y[rest])
        return self

    def predict_set(self, X: pd.DataFrame) -> BoolArray:
        """Return prediction sets, shape (n_samples, n_classes)."""
        return self._predict(X, self.fitted_.predict_proba(X))

    def _calibrate(self, X: pd.DataFrame, proba: FloatArray, y: IntArray) -> None:
        raise NotImplementedError

    def _predict(self, X: pd.DataFrame, proba: FloatArray) -> BoolArray:
        raise NotImplementedError


class MapieSplit(Peer):
    """MAPIE's SplitConformalClassifier."""

    title, scores = "MAPIE split", ("lac", "aps", "raps")

    def _calibrate(self, X: pd.DataFrame, proba: FloatArray, y: IntArray) -> None:
        try:
            from mapie.classification import SplitConformalClassifier
        except ImportError as error:
            raise _missing("mapie") from error
        seed = hash_key(self.random_state) % 2**32
        predictor = SplitConformalClassifier(
            self.model_, self.confidence_level, self.conformity_score, random_state=seed
        )
        self.predictor_ = predictor.conformalize(proba, y)

    def _predict(self, X: pd.DataFrame, proba: FloatArray) -> BoolArray:
        # "randomized" is the published form of aps and raps; lac ignores it
        answer = self.predictor_.predict_set(proba, {"include_last_label": "randomized"})
        return np.asarray(answer[1][:, :, 0], dtype=bool)


class CrepesSplit(Peer):
    """crepes' ConformalClassifier with the score "hinge", which is lac."""

    title, scores = "crepes", ("lac",)

    def _calibrate(self, X: pd.DataFrame, proba: FloatArray, y: IntArray) -> None:
        try:
            from crepes import ConformalClassifier
        except ImportError as error:
            raise _missing("crepes") from error
        own = 1 - proba[np.arange(len(y)), y]
        self.predictor_ = ConformalClassifier().fit(own, bins=self._bins(X, learn=True))

    def _predict(self, X: pd.DataFrame, proba: FloatArray) -> BoolArray:
        options = {"confidence": self.confidence_level, "smoothing": False}
        bins = self._bins(X, learn=False)
        return np.asarray(self.predictor_.predict_set(1 - proba, bins=bins, **options), dtype=bool)

    def _bins(self, X: pd.DataFrame, *, learn: bool) -> IntArray | None:
        return None


class CrepesMondrian(CrepesSplit):
    """crepes' Mondrian classifier; its bins are the joint cells of the sensitive features."""

    title = "crepes (Mondrian)"

    def _bins(self, X: pd.DataFrame, *, learn: bool) -> IntArray | None:
        columns = canonical(X[list(self.sensitive_features)])
        if learn:
            self.coding_ = LevelCoding.learn(columns)
        return joint_codes(list(self.coding_.codes(columns).T), self.coding_.n_levels)


def _missing(package: str) -> InvalidInputError:
    return InvalidInputError(
        f"{package} is not installed; install it with pip install 'fareg[bench]'"
    )


PEERS: dict[str, type[Peer]] = {
    "mapie": MapieSplit,
    "crepes": CrepesSplit,
    "crepes-mondrian": CrepesMondrian,
}
