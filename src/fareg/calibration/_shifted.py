"""Scores rectified by a learned quantile: RCP of Plassier et al. (2025)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import FillEmpty, ordinal_encoder
from fareg._levels import distinct_rows
from fareg._threads import few_threads
from fareg._validation import FloatArray, IntArray
from fareg.calibration._calibration import Calibration, FullSet
from fareg.calibration._people import cluster_sizes
from fareg.calibration._rows import Rows, require
from fareg.pvalues import CalibrationScores

LEAF_POINTS = 5  # scores above its quantile that a leaf has about, at least
N_ROUNDS = 60
N_LEAVES = 8


@dataclass(frozen=True, eq=False)
class LearnedShift:
    """A quantile of the scores as a function of the sensitive features."""

    model: Pipeline | None  # ``model.predict(columns)`` returns tau; None for zero everywhere

    def shift(self, rows: Rows) -> FloatArray:
        """Return tau of each row, shape (n_samples,), computed once per distinct row."""
        if self.model is None:
            return np.zeros(len(rows))
        first, which = distinct_rows(rows.columns)
        distinct = rows.columns.iloc[first]
        with few_threads(distinct):
            told: FloatArray = self.model.predict(distinct)
        return told[which]


def learn_shift(rows: Rows, alpha: float, *, seed: int) -> LearnedShift:
    """Learn the ``1 - alpha`` quantile of the scores given the sensitive features.

    Boosted trees on the canonical columns minimise the pinball loss. Without rows, or without a
    finite score among them, the shift is zero.
    """
    scores = rows.own_scores if len(rows) else np.empty(0)  # estimators refuse empty tables
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return LearnedShift(None)
    boosting = HistGradientBoostingRegressor(
        loss="quantile",
        quantile=1 - alpha,
        max_iter=N_ROUNDS,
        max_leaf_nodes=N_LEAVES,
        min_samples_leaf=int(np.ceil(LEAF_POINTS / alpha)),
        early_stopping=False,
        random_state=seed,
    )
    model = make_pipeline(ordinal_encoder(), FillEmpty(), boosting)
    # a quantile does not depend on how far the scores above it are, so infinite ones may be cut
    with few_threads(rows.columns):
        return LearnedShift(model.fit(rows.columns, scores.clip(finite.min(), finite.max())))


@dataclass(frozen=True, eq=False)
class ShiftedCalibration(Calibration):
    """Calibrate ``V(x, y) - tau(x)``, where ``tau`` was learned on other rows.

    ``P(Y in C(X)) >= 1 - alpha``, whatever tau is; the better it tells the quantile of the scores
    at x, the more evenly coverage is spread.
    """

    shift: Any  # ``shift.shift(rows)`` returns tau of each row
    residuals: FloatArray  # (n,) V - tau of the calibration rows
    labels: IntArray | None
    n_labels: int
    alpha: float
    sizes: IntArray | None = None

    @classmethod
    def of(cls, shift: Any, rows: Rows, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate on rows with labels."""
        problems, sizes = rows.problems(label_conditional), cluster_sizes(rows.clusters)
        return cls(shift, rows.own_scores - shift.shift(rows), *problems, alpha, sizes)

    @property
    def n_rows(self) -> int:
        return len(self.residuals)

    def thresholds(self, rows: Rows) -> FloatArray:
        return np.concatenate([self._thresholds(part) for _, part in rows.blocks()])

    def _thresholds(self, rows: Rows) -> FloatArray:
        shift, quantiles = self.shift.shift(rows)[:, None], self._sorted.quantiles(self.alpha)[:-1]
        kept = rows.scores - shift <= quantiles
        # A score whose residual equals the quantile may lie above the rounded sum of both. Rounded
        # differences keep the order of scores, so some threshold divides these scores as they do.
        inside = np.where(kept, rows.scores, -np.inf)
        outside = np.where(kept, np.inf, rows.scores)
        if self.labels is None:
            inside, outside = inside.max(1, keepdims=True), outside.min(1, keepdims=True)
        below_outside = np.nextafter(outside, -np.inf, where=outside < np.inf, out=outside)
        return np.minimum(np.maximum(shift + quantiles, inside), below_outside)

    def pvalues(self, rows: Rows) -> FloatArray:
        residuals = rows.scores - self.shift.shift(rows)[:, None]
        return self._sorted.pvalues(residuals, np.arange(self.n_labels))

    def full_sets(self) -> Iterator[FullSet]:
        for label in np.flatnonzero(np.isinf(self._sorted.quantiles(self.alpha)[:-1])):
            yield self.full_set("all rows", int(label), float(self._sorted.people[label]))

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        self.check_scores("residuals", n_labels, alpha)
        asked = self.shift.shift(rows)
        require(asked.shape == (len(rows),) and np.isfinite(asked).all(), "shift")

    @cached_property
    def _sorted(self) -> CalibrationScores:
        return CalibrationScores.sort(self.residuals, self.label_numbers, self.n_labels, self.sizes)
