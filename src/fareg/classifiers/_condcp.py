"""Conditional conformal prediction: valid on every group of a basis at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import qr, solve_triangular

from fareg._frames import distinct_rows, row_uniforms
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError, warn
from fareg.classifiers._base import ConformalClassifier
from fareg.classifiers._equalized import LevelCoding

TOLERANCE = 1e-9  # on dual variables, which lie in [-alpha, 1 - alpha]
LEFT = 1e-7  # stands for "just below" a dual value; alpha is met up to this factor
MAX_PIVOTS = 10_000  # far above what a problem takes; a guard, not a setting


@dataclass(frozen=True)
class Vertex:
    """A vertex of quantile regression: the points it passes through, and who lies above it."""

    basis: IntArray  # (rank,) calibration points on the fit
    upper: BoolArray  # (n,) dual variable at 1 - alpha, the point above the fit; else at -alpha


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
    dependent: IntArray  # the other columns ...
    combination: FloatArray  # (rank, n_dependent) ... as combinations of the independent ones
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
        combination = solve_triangular(R[:rank, :rank], R[:rank, rank:])
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
            if moved is None:  # eta never gets as far as u
                thresholds[position] = np.inf if e > 0 else -np.inf
                continue
            vertex = moved  # next time, start here
            w = np.linalg.solve(self.rows[vertex.basis].T, row)
            whole = np.rint(w)
            w = np.where(np.abs(w - whole) < TOLERANCE, whole, w)  # a score comes out as it went in
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
        # after a step of length zero (tied scores) a random choice cannot cycle
        leaving = int(rng.choice(out) if stalled else out[excess[out].argmax()])
        goes_up = eta_basis[leaving] > 0
        direction = inverse[:, leaving] * (-1 if goes_up else 1)
        speed = rows @ direction
        residual = scores - rows @ (inverse @ scores[basis])
        speed[basis] = 0.0
        # points that the fit will meet: from above those it moves up to, from below the others
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


class CondCPClassifier(LevelCoding, ConformalClassifier):
    """Coverage on every group of a basis at once, overlapping groups included.

    ``P(Y in C(X) | X in G) >= 1 - alpha`` for every group G in the basis, by default every level of
    every sensitive feature; exactly ``1 - alpha`` with ``randomized`` and scores without ties
    (Gibbs, Cherian & Candès 2025).

    The threshold is a quantile regression of the scores on the basis, fitted to the calibration
    points and the test point itself. It depends on the row through its basis row only, so rows of
    the same groups share one fit.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, sensitive_features, calibration_size, \
random_state
        As in :class:`PartialConformalClassifier`.
    label_conditional : bool, default=False
        A problem per label: ``P(Y in C(X) | X in G, Y = y) >= 1 - alpha``.
    pairs : bool, default=False
        Add the joint levels of every pair of sensitive features to the basis.
    feature_map : callable, default=None
        A basis of your own: a function of X that returns numbers of shape (n_samples, n_basis). The
        guarantee then is ``E[f(X) (1{Y in C(X)} - (1 - alpha))] >= 0`` for every non-negative
        combination f of its columns. A constant column gives marginal coverage.
    randomized : bool, default=False
        Cut at a random dual level, a function of the row's values and ``random_state``, so that
        coverage is exact instead of at least ``1 - alpha``; sets get smaller, now and then empty.

    Attributes
    ----------
    levels_ : list of Levels
        One per sensitive feature; not there with ``feature_map``.

    Notes
    -----
    Dependent columns of the basis change nothing and are dropped. A row outside the span of the
    calibration rows, for example with a level never seen, gets the full set, and so does a row in
    groups with too few points for the confidence level; one warning tells.

    Labels that the estimator never saw can break the promise of a group, even if they are few in
    it, when they are many in another group that overlaps it: the fit counts them as covered there,
    and no set can contain them. Partial and exhaustive calibration do not have this weakness.

    References
    ----------
    Gibbs, Cherian & Candès (2025), "Conformal prediction with conditional guarantees".

    Examples
    --------
    >>> from fareg import CondCPClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = CondCPClassifier(sensitive_features=["Color", "Gender"], pairs=True, random_state=0)
    >>> sets = clf.fit(data.X[:2500], data.y[:2500]).predict_set(data.X[2500:])
    >>> sets.shape
    (500, 6)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        confidence_level: float = 0.9,
        conformity_score: Any = "aps",
        sensitive_features: Any = None,
        label_conditional: bool = False,
        calibration_size: float = 0.5,
        random_state: Any = None,
        pairs: bool = False,
        feature_map: Callable[[Any], Any] | None = None,
        randomized: bool = False,
    ) -> None:
        super().__init__(
            estimator,
            confidence_level=confidence_level,
            conformity_score=conformity_score,
            sensitive_features=sensitive_features,
            label_conditional=label_conditional,
            calibration_size=calibration_size,
            random_state=random_state,
        )
        self.pairs = pairs
        self.feature_map = feature_map
        self.randomized = randomized

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.feature_map is not None and not callable(self.feature_map):
            raise InvalidInputError(
                f"feature_map must be a function of X or None, got {self.feature_map!r}"
            )

    def _calibrate(self, X: Any, scores: FloatArray, codes: IntArray, X_train: Any) -> None:
        if self.feature_map is None:
            self._learn_levels(X, X_train)
            self._learn_blocks(self._level_codes(X))
        basis = self._basis(X)
        problems = [np.ones(len(codes), dtype=bool)]
        if self.label_conditional:
            problems = [codes == label for label in range(len(self.classes_))]
        self.programs_ = [
            QuantileProgram.prepare(basis[own], scores[own], self.alpha_) for own in problems
        ]

    def _thresholds(self, X: Any) -> FloatArray:
        basis = self._basis(X)
        first, group = distinct_rows(pd.DataFrame(basis))
        rows = basis[first]
        levels = np.full(len(group), 1 - self.alpha_)
        if self.randomized:  # uniform on (-alpha, 1 - alpha); another key than the scores'
            levels = row_uniforms(X, self.key_ + 1) - self.alpha_
        thresholds = np.empty((len(group), len(self.programs_)))
        order = np.argsort(group, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(group, minlength=len(rows)))[:-1])
        for row, own in zip(rows, members, strict=True):
            distinct, which = np.unique(levels[own], return_inverse=True)
            for problem, program in enumerate(self.programs_):
                thresholds[own, problem] = program.thresholds(row, distinct)[which]
        self._warn_of_full_sets(np.any(thresholds == np.inf, axis=1))
        return thresholds

    def _warn_of_full_sets(self, full: BoolArray) -> None:
        if full.any():
            unseen = any((p.scores >= p.ceiling).any() for p in self.programs_)
            cause = ", or with too many labels that the estimator never saw" if unseen else ""
            warn(
                f"{int(full.sum())} of {len(full)} rows lie in groups that calibration never saw "
                f"or saw too rarely{cause}: every label that lacks points is kept in the set; give "
                "more rows or a coarser basis"
            )

    def _learn_blocks(self, codes: IntArray) -> None:
        """List the groups: (features, level numbers of shape (n_groups, n_features)) per block."""
        features: list[tuple[int, ...]] = [(k,) for k in range(codes.shape[1])]
        if self.pairs:
            features += list(itertools.combinations(range(codes.shape[1]), 2))
        self.blocks_ = [(chosen, np.unique(codes[:, chosen], axis=0)) for chosen in features]

    def _basis(self, X: Any) -> FloatArray:
        """Return basis rows of shape (n_samples, n_basis)."""
        if self.feature_map is not None:
            basis = np.asarray(self.feature_map(X), dtype=np.float64)
            if basis.ndim != 2 or len(basis) != len(X) or not np.isfinite(basis).all():
                raise InvalidInputError(
                    f"feature_map must return finite numbers of shape ({len(X)}, n_basis), "
                    f"got shape {basis.shape}"
                )
            return basis
        codes = self._level_codes(X)
        # the constant is dependent on the calibration rows, where levels sum to one, but a row
        # with a level never seen breaks that sum and falls out of the span
        columns = [np.ones((len(codes), 1))]
        for features, groups in self.blocks_:
            known = pd.MultiIndex.from_arrays(list(groups.T))
            own = known.get_indexer(pd.MultiIndex.from_arrays(list(codes[:, features].T)))
            columns.append((own[:, None] == np.arange(len(groups))).astype(np.float64))
        return np.hstack(columns)
