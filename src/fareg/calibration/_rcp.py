"""Scores rectified by a learned quantile: RCP of Plassier et al. (2025)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import FillEmpty, ordinal_encoder
from fareg._rows import distinct_rows
from fareg._threads import few_threads
from fareg._validation import FloatArray
from fareg.calibration._batch import Batch, Calibration, Labelled, Sample
from fareg.calibration._mondrian import Everyone, Mondrian

LEAF_POINTS = 5  # scores above its quantile that a leaf has about, at least
N_ROUNDS = 60
N_LEAVES = 8


@dataclass(frozen=True, eq=False)
class LearnedQuantile:
    """A quantile of the scores as a function of the sensitive features."""

    model: Pipeline | None  # ``model.predict(columns)`` returns tau; None for zero everywhere

    def predict(self, people: pd.DataFrame) -> FloatArray:
        """Return tau of each row, shape (n_samples,), computed once per distinct row."""
        if self.model is None:
            return np.zeros(len(people))
        first, which = distinct_rows(people)
        distinct = people.iloc[first]
        with few_threads(distinct):
            tau: FloatArray = self.model.predict(distinct)
        return tau[which]


def learn_quantile(rows: Labelled, alpha: float, *, seed: int) -> LearnedQuantile:
    """Learn the ``1 - alpha`` quantile of the scores given the sensitive features.

    Boosted trees on the canonical columns minimise the pinball loss. Without rows, or without a
    finite score among them, it is zero.
    """
    scores = rows.score
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return LearnedQuantile(None)
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
    with few_threads(rows.people):
        return LearnedQuantile(model.fit(rows.people, scores.clip(finite.min(), finite.max())))


@dataclass(frozen=True, eq=False)
class Rectified(Calibration):
    """Calibrate ``V(x, y) - tau(x)``, where ``tau`` was learned on other rows.

    ``P(Y in C(X)) >= 1 - alpha``, whatever tau is; the better it tells the quantile of the scores
    at x, the more evenly coverage is spread.
    """

    tau: Any  # ``tau.predict(people)``, shape (n,)
    sample: Sample  # the residuals of the calibration rows
    alpha: float
    split: Mondrian = field(init=False, repr=False)  # of the residuals, for everyone together

    def __post_init__(self) -> None:
        one_cell = np.zeros(len(self.sample), dtype=np.int64)
        vars(self).update(split=Mondrian(Everyone(), self.sample, one_cell, self.alpha))

    @classmethod
    def fit(cls, tau: Any, rows: Labelled, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate on rows with labels."""
        residuals = replace(rows, score=rows.score - tau.predict(rows.people))
        return cls(tau, Sample.of(residuals, label_conditional=label_conditional), alpha)

    @property
    def quantiles(self) -> FloatArray:
        """Quantiles of the residuals, shape (n_labels,)."""
        return self.split.quantiles[0]

    def thresholds(self, batch: Batch) -> FloatArray:
        """Return thresholds of shape (n_samples, n_labels)."""
        tau = self.tau.predict(batch.people)[:, None]
        kept = batch.scores - tau <= self.quantiles
        # A score whose residual equals the quantile may lie above the rounded sum of both. Rounded
        # differences keep the order of scores, so some threshold divides these scores as they do.
        inside = np.where(kept, batch.scores, -np.inf)
        outside = np.where(kept, np.inf, batch.scores)
        if self.sample.labels is None:
            inside, outside = inside.max(1, keepdims=True), outside.min(1, keepdims=True)
        below_outside = np.nextafter(outside, -np.inf, where=outside < np.inf, out=outside)
        return np.minimum(np.maximum(tau + self.quantiles, inside), below_outside)

    def pvalues(self, batch: Batch) -> FloatArray:
        """Return p-values of shape (n_samples, n_classes)."""
        residuals = batch.scores - self.tau.predict(batch.people)[:, None]
        return self.split.pvalues(replace(batch, scores=residuals))

    def full_sets(self) -> Iterator[tuple[str, int]]:
        """Yield who gets which label because too few rows calibrate."""
        return self.split.full_sets()
