"""MAPIE's and crepes' predictors for ``fareg benchmark``: ``methods = ["../peers.py:MapieSplit"]``.

They need the extra ``bench``: ``pip install 'fareg[bench]'``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from crepes import ConformalClassifier
from mapie.classification import SplitConformalClassifier
from sklearn.base import clone

from fareg._columns import canonical
from fareg._levels import LevelCoding
from fareg._rows import hash_key, joint_codes
from fareg.classifiers import split_rows


@dataclass(eq=False)
class Peer:
    """A predictor of another package; half of the rows train its estimator, half calibrate."""

    estimator: Any
    confidence_level: float
    conformity_score: str
    sensitive_features: Any
    random_state: Any

    def fit(self, X: pd.DataFrame, y: np.ndarray, *, clusters: Any = None) -> Any:
        """Train the estimator and calibrate the predictor, on the same rows as fareg."""
        self.seed_ = hash_key(self.random_state) % 2**32
        train, calibration = split_rows(len(y), 0.5, clusters, self.seed_)
        self.fitted_ = clone(self.estimator).fit(X.iloc[train], y[train])
        self._calibrate(X.iloc[calibration], y[calibration])
        return self

    def _calibrate(self, X: pd.DataFrame, y: np.ndarray) -> None:
        raise NotImplementedError


class MapieSplit(Peer):
    """MAPIE's SplitConformalClassifier."""

    title, scores = "MAPIE split", ("lac", "aps", "raps")

    def _calibrate(self, X: pd.DataFrame, y: np.ndarray) -> None:
        options = (self.fitted_, self.confidence_level, self.conformity_score)
        split = SplitConformalClassifier(*options, random_state=self.seed_)
        self.predictor_ = split.conformalize(X, y)

    def predict_set(self, X: pd.DataFrame) -> np.ndarray:
        # "randomized" is the published form of aps and raps; lac ignores it.
        answer = self.predictor_.predict_set(X, {"include_last_label": "randomized"})
        return np.asarray(answer[1][:, :, 0], dtype=bool)


class CrepesSplit(Peer):
    """crepes' ConformalClassifier with the score "hinge", which is lac."""

    title, scores = "crepes", ("lac",)

    def _calibrate(self, X: pd.DataFrame, y: np.ndarray) -> None:
        scores = 1 - self.fitted_.predict_proba(X)[np.arange(len(y)), y]
        self.coding_ = LevelCoding.learn(canonical(X[list(self.sensitive_features)]))
        self.predictor_ = ConformalClassifier().fit(scores, bins=self._bins(X))

    def predict_set(self, X: pd.DataFrame) -> np.ndarray:
        options = {"confidence": self.confidence_level, "smoothing": False}
        scores = 1 - self.fitted_.predict_proba(X)
        return np.asarray(self.predictor_.predict_set(scores, bins=self._bins(X), **options), bool)

    def _bins(self, X: pd.DataFrame) -> np.ndarray | None:
        return None


class CrepesMondrian(CrepesSplit):
    """crepes' Mondrian classifier; its bins are the joint cells of the sensitive features."""

    title = "crepes (Mondrian)"

    def _bins(self, X: pd.DataFrame) -> np.ndarray | None:
        codes = self.coding_.codes(canonical(X[list(self.sensitive_features)]))
        return joint_codes(list(codes.T), self.coding_.n_categories)
