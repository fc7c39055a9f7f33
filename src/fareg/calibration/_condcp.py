"""Quantile regression on a basis of groups: CondCP of Gibbs, Cherian & Candès (2025)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import qr, solve_triangular

from fareg._levels import LevelCoding, cell_numbers, distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError
from fareg.calibration._calibration import Calibration, rows_by_label
from fareg.calibration._cells import check_coding
from fareg.calibration._people import one_of_each_cluster
from fareg.calibration._rows import Rows, require

TOLERANCE = 1e-9  # on dual variables, which lie in [-alpha, 1 - alpha]
LEFT = 1e-7  # how far "just below" a dual value is; coverage is exact up to this amount
MAX_PIVOTS = 10_000  # far more steps than any problem takes: a guard against endless loops


@dataclass(frozen=True)
class Vertex:
    """A vertex of quantile regression: the points it passes through, and who lies above it."""

    basis: IntArray  # (rank,) calibration points on the fit
    # (n,) whether a point lies above the fit: its dual variable is 1 - alpha then, else -alpha
    upper: BoolArray


@dataclass(frozen=True)
class QuantileProgram:
    """Quantile regression of calibration scores on a basis, ready for one more point.

    With a test point of basis row phi and score S, the dual program is

        maximise  sum_i eta_i S_i + eta S   over  -alpha <= eta_i, eta <= 1 - alpha
        such that sum_i eta_i Phi_i + eta phi = 0,

    and the optimal eta rises with S. Let ``V(e)`` be its value with ``eta = e`` held fixed and S
    left out: concave and piecewise linear. Then ``eta < u`` if and only if ``S < -V'(u-)``, the
    slope from the left, and slopes are fits: ``-V'(e) = phi @ beta`` for the beta that is optimal
    at e. So the threshold for all scores is one fit with e just below u. Neither S nor a search
    over it is needed, and ties between S and the threshold go into the set.
    """

    rows: FloatArray  # (n, rank) basis rows of the calibration points, independent columns
    scores: FloatArray  # (n,)
    alpha: float
    scale: FloatArray  # (n_columns,) what the columns of the whole basis are divided by
    columns: IntArray  # (rank,) the independent columns of the whole basis
    dependent: IntArray  # (n_dependent,) the other columns
    combination: FloatArray  # (rank, n_dependent) weights of the independent columns in the others
    ceiling: float  # stands for infinite scores; a threshold there is infinite
    start: Vertex | None  # the fit without a test point; None without calibration points

    @classmethod
    def prepare(cls, rows: FloatArray, scores: FloatArray, alpha: float) -> QuantileProgram:
        """Drop dependent columns of ``rows`` (n, n_columns) and fit the calibration points."""
        finite = scores[np.isfinite(scores)]
        ceiling = float(finite.max() + np.ptp(finite) + 1) if len(finite) else 1.0
        scores = np.clip(scores, -ceiling, ceiling)
        # pivoted QR: rows[:, pivots] = Q R, so dependent columns are inv(R11) R12 of the others
        scale = np.abs(rows).max(axis=0, initial=0.0)
        scale[scale == 0] = 1.0
        rows = rows / scale
        R, pivots = _pivoted(rows)
        diagonal = np.abs(np.diag(R))
        rank = int(np.sum(diagonal > 1e-10 * diagonal.max(initial=0.0)))
        columns, dependent = pivots[:rank], pivots[rank:]
        # older versions of scipy refuse systems without equations
        combination = solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank else R[:0]
        rows = rows[:, columns]
        start = None
        if rank:
            basis = _pivoted(rows.T)[1][:rank]
            fit = rows @ np.linalg.solve(rows[basis], scores[basis])
            start = _descend(rows, scores, alpha, np.zeros(rank), Vertex(basis, scores > fit))
        return cls(rows, scores, alpha, scale, columns, dependent, combination, ceiling, start)

    def thresholds(self, row: FloatArray, levels: FloatArray) -> FloatArray:
        """Return the thresholds of one basis row for dual levels u, of shape (n_levels,).

        A row outside the span of the calibration rows has no fit: its thresholds are infinite.
        """
        scaled = row / self.scale
        row, rest = scaled[self.columns], scaled[self.dependent]
        inside = np.allclose(row @ self.combination, rest, rtol=0, atol=1e-8) and row.any()
        vertex = self.start if inside else None
        thresholds = np.full(len(levels), np.inf)
        for position in np.argsort(levels):
            if vertex is None:
                break
            e = levels[position] - LEFT
            moved = _descend(self.rows, self.scores, self.alpha, row * e, vertex)
            if moved is None:  # eta cannot reach u, whatever the score is
                thresholds[position] = np.inf if e > 0 else -np.inf
                continue
            vertex = moved  # the next search starts at this vertex
            w = np.linalg.solve(self.rows[vertex.basis].T, row)
            whole = np.rint(w)
            # Whole weights lose their rounding error, so a threshold equals a score exactly.
            w = np.where(np.abs(w - whole) < TOLERANCE, whole, w)
            fit = float(w @ self.scores[vertex.basis])
            thresholds[position] = fit if fit < self.ceiling else np.inf
        return thresholds


def _pivoted(matrix: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return R and the order of columns of a QR decomposition, most independent columns first."""
    if matrix.size == 0:
        return np.zeros((0, matrix.shape[1])), np.arange(matrix.shape[1])
    R, order = qr(matrix, mode="r", pivoting=True)
    return R.astype(np.float64), order.astype(np.int64)


def _descend(
    rows: FloatArray, scores: FloatArray, alpha: float, target: FloatArray, vertex: Vertex
) -> Vertex | None:
    """Minimise ``sum_i pinball(S_i - rows_i @ beta) - target @ beta``; None if it has no minimum.

    The simplex method of Barrodale & Roberts (1973): leave a point whose dual variable is out of
    bounds, walk along the edge as long as the loss falls, past other points if need be, and stop at
    the next one. ``target`` is ``e * phi``, the pull of a test point.
    """
    basis, upper = vertex.basis.copy(), vertex.upper.copy()
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
            return Vertex(basis, upper)
        # After a step of length zero (tied scores), a random choice keeps the search from cycling.
        leaving = int(rng.choice(out) if stalled else out[excess[out].argmax()])
        goes_up = eta_basis[leaving] > 0
        direction = inverse[:, leaving] * (-1 if goes_up else 1)
        speed = rows @ direction
        residual = scores - rows @ (inverse @ scores[basis])
        speed[basis] = 0.0
        # The fit meets points above it where it moves up, points below it where it moves down.
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


@dataclass(frozen=True, eq=False)
class GroupBasis:
    """Indicators of groups: the levels of every feature, and of every pair if asked for."""

    coding: LevelCoding
    blocks: tuple[tuple[tuple[int, ...], IntArray], ...]  # features, their level combinations

    @classmethod
    def learn(cls, coding: LevelCoding, columns: pd.DataFrame, *, pairs: bool) -> GroupBasis:
        """List the groups that occur in canonical columns."""
        codes = coding.codes(columns)
        features: list[tuple[int, ...]] = [(k,) for k in range(codes.shape[1])]
        if pairs:
            features += list(itertools.combinations(range(codes.shape[1]), 2))
        blocks = tuple((chosen, np.unique(codes[:, chosen], axis=0)) for chosen in features)
        return cls(coding, blocks)

    def matrix(self, rows: Rows) -> FloatArray:
        """Return basis rows of shape (n_samples, n_basis)."""
        codes = self.coding.codes(rows.columns)
        # The constant is dependent on the calibration rows, where levels sum to one; a row with a
        # level never seen breaks that sum and falls out of the span.
        columns = [np.ones((len(codes), 1))]
        for features, groups in self.blocks:
            own = cell_numbers(groups, codes[:, features])
            columns.append((own[:, None] == np.arange(len(groups))).astype(np.float64))
        return np.hstack(columns)

    def check(self, rows: Rows) -> None:
        """Refuse groups of features that are not there."""
        n_features = len(self.coding.levels)
        for features, groups in self.blocks:
            require(all(0 <= feature < n_features for feature in features), "blocks")
            require(groups.shape[1:] == (len(features),), "blocks")
            require(np.array_equal(groups, np.unique(groups, axis=0)), "blocks")
        check_coding(self.coding, rows)


@dataclass(frozen=True, eq=False)
class MappedBasis:
    """A basis of the user's own: a function of X that returns numbers."""

    feature_map: Callable[[Any], Any]

    def matrix(self, rows: Rows) -> FloatArray:
        """Return basis rows of shape (n_samples, n_basis)."""
        basis = np.asarray(self.feature_map(rows.X), dtype=np.float64)
        if basis.ndim != 2 or len(basis) != len(rows) or not np.isfinite(basis).all():
            raise InvalidInputError(
                f"feature_map must return finite numbers of shape ({len(rows)}, n_basis), "
                f"got shape {basis.shape}"
            )
        return basis


@dataclass(frozen=True, eq=False)
class ConditionalCalibration(Calibration):
    """Quantile regression of the calibration scores on a basis, or one per label."""

    basis: Any  # GroupBasis or MappedBasis
    matrix: FloatArray  # (n, n_basis) basis rows of the calibration rows
    scores: FloatArray
    labels: IntArray | None
    n_labels: int
    randomized: bool
    alpha: float

    has_pvalues = False

    @classmethod
    def of(
        cls, basis: Any, rows: Rows, alpha: float, *, randomized: bool, label_conditional: bool
    ) -> ConditionalCalibration:
        """Calibrate on rows with labels, one of each cluster."""
        rows = one_of_each_cluster(rows)
        problems = rows.problems(label_conditional)
        return cls(basis, basis.matrix(rows), rows.own_scores, *problems, randomized, alpha)

    @cached_property
    def programs(self) -> list[QuantileProgram]:
        """The prepared regressions: one, or one per label."""
        return [
            QuantileProgram.prepare(self.matrix[rows], self.scores[rows], self.alpha)
            for rows in rows_by_label(self.labels, self.n_labels)
        ]

    def thresholds(self, rows: Rows) -> FloatArray:
        basis = self.basis.matrix(rows)
        first, group = distinct_rows(pd.DataFrame(basis))
        levels = np.full(len(group), 1 - self.alpha)
        if self.randomized:  # uniform on (-alpha, 1 - alpha), by other numbers than the scores use
            levels = rows.more_uniforms(1) - self.alpha
        thresholds = np.empty((len(group), len(self.programs)))
        order = np.argsort(group, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(group, minlength=len(first)))[:-1])
        for row, own in zip(basis[first], members, strict=True):
            distinct, which = np.unique(levels[own], return_inverse=True)
            for problem, program in enumerate(self.programs):
                thresholds[own, problem] = program.thresholds(row, distinct)[which]
        where = "lie in groups that calibration never saw or saw with too few points"
        self.warn_of_full_rows(np.any(thresholds == np.inf, axis=1), where, "a coarser basis")
        return thresholds

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        self.check_scores("scores", n_labels, alpha)
        require(self.matrix.dtype == np.float64 and np.isfinite(self.matrix).all(), "matrix")
        require(self.matrix.shape[:1] == self.scores.shape, "matrix")
        if isinstance(self.basis, GroupBasis):
            self.basis.check(rows)
        require(self.matrix.shape[1:] == self.basis.matrix(rows).shape[1:], "matrix")
