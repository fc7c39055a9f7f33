"""Predictors of other packages as rows of a benchmark, on the same split and base model."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import clone

from fareg._columns import canonical
from fareg._levels import LevelCoding
from fareg._rows import hash_key, joint_codes
from fareg._validation import BoolArray, IntArray, InvalidInputError
from fareg._words import first_line
from fareg.classifiers import split_rows


@dataclass(eq=False)
class Peer:
    """A predictor of another package: one half trains its estimator, the other calibrates it.

    The constructor takes what every method of a benchmark takes; a subclass says in
    ``_calibrate`` and ``predict_set`` how the package is called.
    """

    title: ClassVar[str]
    module: ClassVar[str]  # where the package has the predictor
    scores: ClassVar[tuple[str, ...]]

    estimator: Any
    confidence_level: float = 0.9
    conformity_score: str = "lac"
    sensitive_features: Any = None
    random_state: Any = None

    @classmethod
    def package(cls) -> Any:
        """Return the module of the other package."""
        try:
            return import_module(cls.module)
        except ImportError as error:
            raise InvalidInputError(
                f"{cls.module} cannot be imported ({first_line(error)}); install it with "
                "pip install 'fareg[bench]'"
            ) from error

    def fit(self, X: pd.DataFrame, y: IntArray, *, clusters: Any = None) -> Self:
        """Train the estimator and calibrate the predictor, on the rows that fareg would take."""
        train, rest = split_rows(len(y), 0.5, clusters, hash_key(self.random_state) % 2**32)
        self.fitted_ = clone(self.estimator).fit(X.iloc[train], y[train])
        self._calibrate(X.iloc[rest], y[rest])
        return self

    def predict_set(self, X: pd.DataFrame) -> BoolArray:
        """Return prediction sets, shape (n_samples, n_classes)."""
        raise NotImplementedError

    def _calibrate(self, X: pd.DataFrame, y: IntArray) -> None:
        raise NotImplementedError


class MapieSplit(Peer):
    """MAPIE's SplitConformalClassifier."""

    title, module, scores = "MAPIE split", "mapie.classification", ("lac", "aps", "raps")

    def _calibrate(self, X: pd.DataFrame, y: IntArray) -> None:
        split = self.package().SplitConformalClassifier
        seed = hash_key(self.random_state) % 2**32
        predictor = split(
            self.fitted_, self.confidence_level, self.conformity_score, random_state=seed
        )
        self.predictor_ = predictor.conformalize(X, y)

    def predict_set(self, X: pd.DataFrame) -> BoolArray:
        """Return prediction sets, shape (n_samples, n_classes)."""
        # "randomized" is the published form of aps and raps; lac ignores it.
        answer = self.predictor_.predict_set(X, {"include_last_label": "randomized"})
        return np.asarray(answer[1][:, :, 0], dtype=bool)


class CrepesSplit(Peer):
    """crepes' ConformalClassifier with the score "hinge", which is lac."""

    title, module, scores = "crepes", "crepes", ("lac",)

    def _calibrate(self, X: pd.DataFrame, y: IntArray) -> None:
        own = 1 - self.fitted_.predict_proba(X)[np.arange(len(y)), y]
        predictor = self.package().ConformalClassifier()
        self.predictor_ = predictor.fit(own, bins=self._bins(X, learn=True))

    def predict_set(self, X: pd.DataFrame) -> BoolArray:
        """Return prediction sets, shape (n_samples, n_classes)."""
        options = {"confidence": self.confidence_level, "smoothing": False}
        scores, bins = 1 - self.fitted_.predict_proba(X), self._bins(X, learn=False)
        return np.asarray(self.predictor_.predict_set(scores, bins=bins, **options), dtype=bool)

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


PEERS: dict[str, type[Peer]] = {
    "mapie": MapieSplit,
    "crepes": CrepesSplit,
    "crepes-mondrian": CrepesMondrian,
}
