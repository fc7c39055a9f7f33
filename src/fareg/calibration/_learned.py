"""Thresholds learned from the features: regions (PLCP) and a quantile of the scores (RCP)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import softmax
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import FillEmpty, one_hot_encoder, ordinal_encoder
from fareg._rows import distinct_rows
from fareg._threads import few_threads
from fareg._validation import FloatArray, IntArray
from fareg.calibration._batch import Batch, Calibration, Labelled, Sample
from fareg.calibration._mondrian import Everyone, Mondrian

HIDDEN_UNITS = {"linear": 0, "network": 16}
PENALTY = 1e-4  # on squared weights; ranks have unit spread
STEPS = 100  # steps of L-BFGS between two updates of the quantiles
LEAF_POINTS = 5  # scores above its quantile that every leaf should have
N_ROUNDS = 60
N_LEAVES = 8

# --- regions: PLCP of Kiyani, Pappas & Hassani (2024) ---


@dataclass(frozen=True)
class Regions:
    """Soft regions: softmax of a linear map, or of a network with one hidden layer of tanh."""

    # The last row of both is the bias. A linear map has no hidden units.
    hidden: FloatArray  # (n_inputs + 1, n_hidden)
    output: FloatArray  # (n_hidden + 1, n_regions), or (n_inputs + 1, n_regions) if linear

    @classmethod
    def unpack(cls, theta: FloatArray, n_inputs: int, n_hidden: int, n_regions: int) -> Regions:
        """Read both matrices from one vector."""
        cut = (n_inputs + 1) * n_hidden
        return cls(theta[:cut].reshape(n_inputs + 1, n_hidden), theta[cut:].reshape(-1, n_regions))

    def activations(self, Z: FloatArray) -> FloatArray:
        """Return what the output layer reads, of shape (n_samples, n_inputs or n_hidden)."""
        if self.hidden.shape[1] == 0:
            return Z
        return np.tanh(Z @ self.hidden[:-1] + self.hidden[-1])

    def proba(self, Z: FloatArray) -> FloatArray:
        """Return the memberships h of encoded rows, of shape (n_samples, n_regions)."""
        return softmax(self.activations(Z) @ self.output[:-1] + self.output[-1], axis=1)


def pinball(scores: FloatArray, quantiles: FloatArray, alpha: float) -> FloatArray:
    """Return the loss of every score for every (1 - alpha)-quantile, shape (n, n_regions)."""
    excess = scores[:, None] - quantiles
    return np.maximum((1 - alpha) * excess, -alpha * excess)


def region_quantiles(scores: FloatArray, h: FloatArray, alpha: float) -> FloatArray:
    """Return the (1 - alpha)-quantile of the scores under the weights of each region."""
    order = np.argsort(scores, kind="stable")
    mass = np.cumsum(h[order], axis=0)
    # The smallest score with enough mass. Without the tolerance, rounding could choose the tenth of
    # ten equal weights as the 0.9-quantile instead of the ninth.
    reached = mass >= (1 - alpha) * mass[-1] * (1 - 1e-12)
    return scores[order][reached.argmax(axis=0)]


def _loss(
    theta: FloatArray, Z: FloatArray, losses: FloatArray, n_hidden: int
) -> tuple[float, FloatArray]:
    """Return ``sum_j sum_i h_i(x_j) losses[j, i]`` with a penalty, and its gradient."""
    regions = Regions.unpack(theta, Z.shape[1], n_hidden, losses.shape[1])
    A, h = regions.activations(Z), regions.proba(Z)
    value = (h * losses).sum(axis=1, keepdims=True)
    d_logits = h * (losses - value)
    d_output = np.vstack([A.T @ d_logits, d_logits.sum(axis=0)])
    d_hidden = np.zeros_like(regions.hidden)
    if n_hidden:
        d_inner = (d_logits @ regions.output[:-1].T) * (1 - A**2)
        d_hidden = np.vstack([Z.T @ d_inner, d_inner.sum(axis=0)])
    gradient = np.concatenate([d_hidden.ravel(), d_output.ravel()]) + 2 * PENALTY * theta
    return float(value.sum() + PENALTY * theta @ theta), gradient


@dataclass(frozen=True)
class RegionSearch:
    """Parameters of the search for regions."""

    n_regions: int
    model: str  # a key of HIDDEN_UNITS
    max_iter: int  # rounds, each of which updates the regions and then the quantiles
    n_restarts: int


def learn_regions(
    Z: FloatArray,
    which: IntArray,
    scores: FloatArray,
    alpha: float,
    search: RegionSearch,
    rng: np.random.Generator,
) -> tuple[Regions, float, int]:
    """Minimise the pinball loss over regions and quantiles in turns; keep the best restart.

    Returns the regions, their loss, and the number of rounds. ``Z`` holds each distinct row of the
    encoded features once, because the loss of equal rows depends only on their sums; ``which`` is
    the row of each score in Z.
    """
    spread = float(scores.std()) or 1.0
    # sorted once here, so that later sorts take a single pass
    order = np.argsort(scores, kind="stable")
    which, v = which[order], scores[order] / spread
    n_regions, n_hidden = search.n_regions, HIDDEN_UNITS[search.model]
    n_output = (n_hidden or Z.shape[1]) + 1
    size = (Z.shape[1] + 1) * n_hidden + n_output * n_regions
    found = []
    for _ in range(search.n_restarts):
        # The first quantiles differ, around 1 - alpha, so that regions can differ.
        strata = (np.arange(n_regions) + rng.random(n_regions)) / n_regions
        q = np.quantile(v, np.maximum(1 - 3 * alpha * (1 - strata), 0))
        theta, losses = rng.normal(size=size), list[float]()
        while len(losses) < search.max_iter:
            columns = pinball(v, q, alpha).T
            summed = np.column_stack([np.bincount(which, column, len(Z)) for column in columns])
            args = (Z, summed / len(v), n_hidden)
            theta = minimize(
                _loss, theta, args, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}
            ).x
            regions = Regions.unpack(theta, Z.shape[1], n_hidden, n_regions)
            h = regions.proba(Z)[which]
            q = region_quantiles(v, h, alpha)
            losses.append(float((h * pinball(v, q, alpha)).sum(axis=1).mean()))
            if len(losses) > 1 and losses[-1] > losses[-2] - 1e-5:
                break
        found.append((regions, losses[-1] * spread, len(losses)))
    return min(found, key=lambda result: result[1])


@dataclass(frozen=True, eq=False)
class RegionCells:
    """The learned regions as cells: a row belongs to its most probable region."""

    encoder: Any  # fitted scikit-learn transformer of the sensitive features
    regions: Regions
    kept: IntArray  # the regions that are used

    @property
    def n_cells(self) -> int:
        return len(self.kept)

    def memberships(self, people: pd.DataFrame) -> FloatArray:
        """Return h of each row, shape (n_samples, n_regions), computed once per distinct row."""
        Z, which = encoded_rows(self.encoder, people)
        return self.regions.proba(Z)[which]

    def cells(self, rows: Batch | Labelled) -> IntArray:
        return self.memberships(rows.people)[:, self.kept].argmax(axis=1).astype(np.int64)

    def describe(self, cell: int) -> str:
        return f"region {self.kept[cell]}"


def encoded_rows(encoder: Any, columns: pd.DataFrame) -> tuple[FloatArray, IntArray]:
    """Return the distinct rows as numbers, and which distinct row each row equals."""
    first, which = distinct_rows(columns)
    return np.asarray(encoder.transform(columns.iloc[first]), np.float64), which


def learn_region_cells(
    rows: Labelled, alpha: float, search: RegionSearch, rng: np.random.Generator
) -> tuple[RegionCells, int]:
    """Learn regions from the ranks of scores, and drop those with too few learning rows.

    A single row gives one region. The second result is the number of rounds.
    """
    encoder = one_hot_encoder().fit(rows.people)
    Z, which = encoded_rows(encoder, rows.people)
    if len(rows) < 2 or not np.isfinite(rows.score).any():
        zeros = np.zeros((Z.shape[1] + 1, 1))
        return RegionCells(encoder, Regions(zeros[:, :0], zeros), np.arange(1)), 1
    ranks = rankdata(rows.score) / len(rows)
    regions, _, n_iter = learn_regions(Z, which, ranks, alpha, search, rng)
    counts = np.bincount(regions.proba(Z)[which].argmax(axis=1), minlength=search.n_regions)
    kept = np.flatnonzero(counts >= min(math.ceil(1 / alpha) - 1, counts.max()))
    return RegionCells(encoder, regions, kept), n_iter


# --- scores rectified by a learned quantile: RCP of Plassier et al. (2025) ---


@dataclass(frozen=True, eq=False)
class LearnedQuantile:
    """A quantile of the scores as a function of the sensitive features."""

    model: Pipeline | None  # ``model.predict(columns)`` returns tau; None if tau is zero

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

    Boosted trees minimise the pinball loss. Without a finite score the quantile is zero.
    """
    finite = rows.score[np.isfinite(rows.score)]
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
    # a quantile does not depend on the distance of larger scores, so infinite ones may be cut
    with few_threads(rows.people):
        return LearnedQuantile(model.fit(rows.people, rows.score.clip(finite.min(), finite.max())))


@dataclass(frozen=True, eq=False)
class Rectified(Calibration):
    """Calibrate ``V(x, y) - tau(x)``, where ``tau`` was learned on other rows.

    ``P(Y in C(X)) >= 1 - alpha`` for any tau; the better it predicts the quantile of the scores at
    x, the more even is the coverage.
    """

    tau: Any  # ``tau.predict(people)``, shape (n,)
    sample: Sample  # the residuals of the calibration rows
    alpha: float
    split: Mondrian = field(init=False, repr=False)  # of the residuals, with one cell

    def __post_init__(self) -> None:
        one_cell = np.zeros(len(self.sample), dtype=np.int64)
        vars(self).update(split=Mondrian(Everyone(), self.sample, one_cell, self.alpha))

    @classmethod
    def fit(cls, tau: Any, rows: Labelled, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate on rows with labels."""
        residuals = replace(rows, score=rows.score - tau.predict(rows.people))
        return cls(tau, Sample.from_rows(residuals, label_conditional=label_conditional), alpha)

    @property
    def quantiles(self) -> FloatArray:
        """Quantiles of the residuals, shape (n_labels,)."""
        return self.split.quantiles[0]

    def thresholds(self, batch: Batch) -> FloatArray:
        tau = self.tau.predict(batch.people)[:, None]
        is_inside = batch.scores - tau <= self.quantiles
        # A score whose residual equals the quantile may exceed the rounded sum of tau and quantile.
        # Rounded differences keep the order of scores, so some threshold separates them correctly.
        inside = np.where(is_inside, batch.scores, -np.inf)
        outside = np.where(is_inside, np.inf, batch.scores)
        if self.sample.labels is None:
            inside, outside = inside.max(1, keepdims=True), outside.min(1, keepdims=True)
        below_outside = np.nextafter(outside, -np.inf, where=outside < np.inf, out=outside)
        return np.minimum(np.maximum(tau + self.quantiles, inside), below_outside)

    def pvalues(self, batch: Batch) -> FloatArray:
        residuals = batch.scores - self.tau.predict(batch.people)[:, None]
        return self.split.pvalues(replace(batch, scores=residuals))

    def full_sets(self) -> Iterator[tuple[str, int]]:
        return self.split.full_sets()
