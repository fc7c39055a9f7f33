"""Quantile regression on a basis of groups: CondCP of Gibbs, Cherian & Candès (2025)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.linalg import qr

from fareg._levels import LevelCoding
from fareg._rows import cell_numbers, distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray, require
from fareg.calibration._batch import (
    DRAW,
    Batch,
    Calibration,
    Labelled,
    Sample,
    further_uniforms,
    warn_of_full_rows,
)

TOLERANCE = 1e-9  # on dual variables, which lie in [-alpha, 1 - alpha]
LEFT = 1e-7  # the distance of "just below" a dual value; coverage is exact up to this amount
MAX_PIVOTS = 10_000  # far more steps than any regression takes: a guard against endless loops


# A vertex of quantile regression: (rank,) the points it passes through, and (n,) whether each point
# lies above it. The dual variable of a point above is 1 - alpha, that of a point below -alpha.
Vertex = tuple[IntArray, BoolArray]


class QuantileProgram:
    """Quantile regression of calibration scores on a basis, prepared for one more point.

    With a test point of basis row phi and score S, the dual program is

        maximise  sum_i eta_i S_i + eta S   over  -alpha <= eta_i, eta <= 1 - alpha
        such that sum_i eta_i Phi_i + eta phi = 0,

    and the optimal eta rises with S. Let ``V(e)`` be its value for fixed ``eta = e`` and without
    the term of S: concave and piecewise linear. Then ``eta < u`` if and only if ``S < -V'(u-)``,
    the slope from the left, and slopes are fits: ``-V'(e) = phi @ beta`` for the beta that is
    optimal at e. So one fit with e just below u gives the threshold for all scores, without a
    search over S, and a score equal to the threshold enters the set.
    """

    def __init__(self, rows: FloatArray, scores: FloatArray, alpha: float) -> None:
        """Drop dependent columns of ``rows`` (n, n_columns) and fit the calibration points."""
        finite = scores[np.isfinite(scores)]
        # replaces infinite scores; a threshold at the ceiling is infinite
        self.ceiling = float(finite.max() + np.ptp(finite) + 1) if len(finite) else 1.0
        self.scores, self.alpha = np.clip(scores, -self.ceiling, self.ceiling), alpha
        self.scale = np.abs(rows).max(axis=0, initial=0.0)
        self.scale[self.scale == 0] = 1.0
        scaled = rows / self.scale
        R, pivots = _pivoted(scaled)
        diagonal = np.abs(np.diag(R))
        rank = int(np.sum(diagonal > 1e-10 * diagonal.max(initial=0.0)))
        self.columns = pivots[:rank]  # independent
        self.rows = scaled[:, self.columns]
        basis = _pivoted(self.rows.T)[1][:rank]
        self.spanning = scaled[basis]  # (rank, n_columns)
        self.start: Vertex | None = None  # the fit without a test point, if there is one
        if rank:
            fit = self.rows @ np.linalg.solve(self.rows[basis], self.scores[basis])
            self.start = self._descend(np.zeros(rank), (basis, self.scores > fit))

    def thresholds(self, row: FloatArray, duals: FloatArray) -> FloatArray:
        """Return the thresholds of one basis row for dual values u, of shape (n_duals,).

        A row outside the span of the calibration rows has no fit: its thresholds are infinite.
        """
        scaled = row / self.scale
        row = scaled[self.columns]
        nearest = np.linalg.solve(self.spanning[:, self.columns].T, row) @ self.spanning
        inside = np.allclose(nearest, scaled, rtol=0, atol=1e-8) and row.any()
        vertex = self.start if inside else None
        thresholds = np.full(len(duals), np.inf)
        for position in np.argsort(duals):
            if vertex is None:
                break
            e = duals[position] - LEFT
            moved = self._descend(row * e, vertex)
            if moved is None:  # no score makes eta reach u
                thresholds[position] = np.inf if e > 0 else -np.inf
                continue
            vertex = moved  # the next search starts at this vertex
            w = np.linalg.solve(self.rows[vertex[0]].T, row)
            whole = np.rint(w)
            # Whole weights lose their rounding error, so a threshold can equal a score exactly.
            w = np.where(np.abs(w - whole) < TOLERANCE, whole, w)
            fit = float(w @ self.scores[vertex[0]])
            thresholds[position] = fit if fit < self.ceiling else np.inf
        return thresholds

    def _descend(self, target: FloatArray, vertex: Vertex) -> Vertex | None:
        """Minimise ``sum_i pinball(S_i - rows_i @ beta) - target @ beta``; None without a minimum.

        The simplex method of Barrodale & Roberts (1973): leave a point whose dual variable is out
        of bounds, follow the edge past other points while the loss falls, and stop at the point
        where it would rise. ``target`` is ``e * phi``, the term of a test point.
        """
        rows, scores, alpha = self.rows, self.scores, self.alpha
        basis, upper = vertex[0].copy(), vertex[1].copy()
        rng = np.random.default_rng(0)
        stalled = False
        for _ in range(MAX_PIVOTS):
            eta = np.where(upper, 1 - alpha, -alpha)
            eta[basis] = 0.0
            inverse = np.linalg.inv(rows[basis])
            eta_basis = -(target + eta @ rows) @ inverse
            excess = np.maximum(eta_basis - (1 - alpha), -alpha - eta_basis)
            out = np.flatnonzero(excess > TOLERANCE)
            if len(out) == 0:
                return basis, upper
            # After a step of length zero (tied scores), a random choice prevents cycling.
            leaving = int(rng.choice(out) if stalled else out[excess[out].argmax()])
            goes_up = eta_basis[leaving] > 0
            direction = inverse[:, leaving] * (-1 if goes_up else 1)
            speed = rows @ direction
            residual = scores - rows @ (inverse @ scores[basis])
            speed[basis] = 0.0
            # A fit that moves up meets points above it, a fit that moves down points below it.
            ahead = np.flatnonzero(np.where(upper, speed > TOLERANCE, speed < -TOLERANCE))
            steps = np.maximum(residual[ahead] / speed[ahead], 0.0)
            order = np.argsort(steps, kind="stable")
            slope = np.cumsum(np.abs(speed[ahead[order]])) - excess[leaving]
            stop = int(np.searchsorted(slope, -TOLERANCE))
            if stop == len(order):
                return None
            passed, entering = ahead[order[:stop]], ahead[order[stop]]
            upper[passed] = ~upper[passed]
            upper[basis[leaving]] = goes_up
            basis[leaving] = entering
            stalled = bool(steps[order[stop]] <= TOLERANCE)
        return None  # pragma: no cover


def _pivoted(matrix: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return R and the order of columns of a QR decomposition, most independent columns first."""
    if matrix.size == 0:
        return np.zeros((0, matrix.shape[1])), np.arange(matrix.shape[1])
    R, order = qr(matrix, mode="r", pivoting=True)
    return R.astype(np.float64), order.astype(np.int64)


@dataclass(frozen=True, eq=False)
class GroupBasis:
    """Indicators of groups: the categories of every feature and, optionally, of every pair."""

    coding: LevelCoding
    blocks: tuple[tuple[tuple[int, ...], IntArray], ...]  # features, combinations of categories

    @classmethod
    def learn(cls, coding: LevelCoding, people: pd.DataFrame, pairs: bool) -> GroupBasis:
        """List the groups that occur in canonical columns."""
        codes = coding.codes(people)
        sizes, numbers = (1, 2) if pairs else (1,), range(codes.shape[1])
        subsets = [subset for size in sizes for subset in itertools.combinations(numbers, size)]
        return cls(coding, tuple((j, np.unique(codes[:, j], axis=0)) for j in subsets))

    def matrix(self, people: pd.DataFrame) -> FloatArray:
        """Return basis rows of shape (n_samples, n_basis)."""
        codes = self.coding.codes(people)
        # In calibration rows, the indicators of a feature sum to the constant. In a row with an
        # unseen category they do not, so it lies outside the span.
        columns = [np.ones((len(codes), 1))]
        for features, groups in self.blocks:
            cells = cell_numbers(groups, codes[:, features])
            columns.append((cells[:, None] == np.arange(len(groups))).astype(np.float64))
        return np.hstack(columns)


@dataclass(frozen=True, eq=False)
class MappedBasis:
    """A basis from the user: the columns that a function of X returned."""

    def matrix(self, people: pd.DataFrame) -> FloatArray:
        return people.to_numpy(np.float64)


@dataclass(frozen=True, eq=False)
class ConditionalQuantiles(Calibration):
    """Quantile regression of the calibration scores on a basis, for all labels or for each."""

    basis: Any  # GroupBasis or MappedBasis
    matrix: FloatArray  # (n, n_basis) basis rows of the calibration rows
    sample: Sample
    randomized: bool
    alpha: float
    # the prepared regressions: one, or one per label
    programs: tuple[QuantileProgram, ...] = field(init=False, repr=False)

    has_pvalues = False

    def __post_init__(self) -> None:
        sample = self.sample
        require(self.matrix.ndim == 2 and len(self.matrix) == len(sample), "matrix")
        require(self.matrix.dtype == np.float64 and np.isfinite(self.matrix).all(), "matrix")
        masks = (sample.row_labels == label for label in range(sample.n_labels))
        programs = tuple(
            QuantileProgram(self.matrix[rows], sample.score[rows], self.alpha) for rows in masks
        )
        vars(self).update(programs=programs)

    @classmethod
    def fit(
        cls, basis: Any, rows: Labelled, alpha: float, *, randomized: bool, label_conditional: bool
    ) -> Self:
        """Calibrate on rows with labels, one of each cluster."""
        rows = rows.one_of_each_cluster()
        sample = Sample.from_rows(rows, label_conditional=label_conditional)
        return cls(basis, basis.matrix(rows.people), sample, randomized, alpha)

    def thresholds(self, batch: Batch) -> FloatArray:
        basis = self.basis.matrix(batch.people)
        first, group = distinct_rows(pd.DataFrame(basis))  # rows of the same groups share a fit
        duals = np.full(len(group), 1 - self.alpha)
        if self.randomized:  # uniform on (-alpha, 1 - alpha), independent of the scores
            duals = further_uniforms(batch.u, DRAW) - self.alpha
        thresholds = np.empty((len(group), len(self.programs)))
        order = np.argsort(group, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(group, minlength=len(first)))[:-1])
        for row, rows in zip(basis[first], members, strict=True):
            distinct, which = np.unique(duals[rows], return_inverse=True)
            for label, program in enumerate(self.programs):
                thresholds[rows, label] = program.thresholds(row, distinct)[which]
        reason = "lie in groups without calibration points or with too few"
        warn_of_full_rows(np.any(thresholds == np.inf, axis=1), reason, "a coarser basis")
        return thresholds
