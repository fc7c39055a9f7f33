"""Thresholds that rise with disadvantage: isotonic regression of the conformal quantile.

Rows fall into ordered levels 0, 1, ..., J - 1, fixed before calibration. Let ``A_ab`` be the
calibration scores whose level lies in a..b and ``Q(A)`` the conformal quantile of ``A``. Then

    theta_j = max_{a <= j} min_{b >= j} Q(A_ab),     set: {y : V(x, y) <= theta_level(x)}.

For exchangeable rows, ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` for every m; the proof is in
docs/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from fareg._levels import check_levels
from fareg._validation import FloatArray, IntArray, InvalidInputError, check_same_length
from fareg.calibration._calibration import Calibration, FullSet
from fareg.calibration._rows import Rows, require
from fareg.pvalues import conformal_rank

CHUNK = 1 << 20  # scores whose p-values are computed at once


@dataclass(frozen=True, eq=False)
class _SortedLevels:
    """Calibration scores in rising order, and where the rows of each level stand in that order."""

    pooled: FloatArray  # (n,) all scores, sorted
    places: tuple[IntArray, ...]  # per level the sorted positions of its rows in ``pooled``

    @classmethod
    def of(cls, scores: FloatArray, levels: IntArray, n_levels: int) -> _SortedLevels:
        order = np.argsort(scores)
        sorted_levels = levels[order]
        # a stable sort keeps the positions of each level in rising order
        places = np.argsort(sorted_levels, kind="stable")
        starts = np.searchsorted(sorted_levels[places], np.arange(n_levels + 1))
        parts = tuple(places[starts[j] : starts[j + 1]] for j in range(n_levels))
        return cls(scores[order], parts)

    @property
    def counts(self) -> IntArray:
        """Number of calibration rows per level."""
        return np.array([len(places) for places in self.places], dtype=np.int64)

    def interval_quantiles(self, alpha: float) -> FloatArray:
        """Return ``Q(A_ab)`` of shape (n_levels, n_levels), infinite where b < a."""
        total = np.concatenate([[0], np.cumsum(self.counts)])
        n = total[None, 1:] - total[:-1, None]  # of levels a to b, zero or less where b < a
        k = conformal_rank(np.maximum(n, 0), alpha)
        # Bisection for all intervals at once: the first position up to which k rows are inside.
        low, high = np.zeros_like(n), np.full_like(n, len(self.pooled))
        while (low < high).any():
            middle = (low + high) // 2
            below = np.stack([np.searchsorted(p, middle, side="right") for p in self.places])
            enough = _diagonal_sums(below) >= k
            high, low = np.where(enough, middle, high), np.where(enough, low, middle + 1)
        padded = np.append(self.pooled, np.inf)
        rises = np.triu(np.ones(n.shape, dtype=bool))
        return np.where(rises & (k <= n), padded[np.minimum(low, len(self.pooled))], np.inf)


def _diagonal_sums(counts: IntArray) -> IntArray:
    """Return ``sum_{a <= i <= b} counts[i, a, b]`` for counts of shape (J, J, J)."""
    n_levels = len(counts)
    total = np.concatenate([np.zeros_like(counts[:1]), np.cumsum(counts, axis=0)])
    a, b = np.indices((n_levels, n_levels))
    return total[b + 1, a, b] - total[a, a, b]


def _checked(scores: Any, levels: Any, n_levels: int) -> tuple[FloatArray, IntArray]:
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or np.isnan(scores).any():
        raise InvalidInputError(
            f"scores must be one-dimensional without NaN, got shape {scores.shape} and "
            f"{int(np.isnan(scores).sum())} NaN"
        )
    levels, _ = check_levels(levels, n_levels)
    check_same_length(scores=scores, levels=levels)
    return scores, levels


def level_thresholds(scores: Any, levels: Any, n_levels: int, *, alpha: float) -> FloatArray:
    """Return one threshold per level: ``max_{a <= j} min_{b >= j} Q(A_ab)``.

    For exchangeable rows with levels fixed before calibration,
    ``P(S <= theta_level | level >= m) >= 1 - alpha`` for every m.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Calibration scores.
    levels : array-like of int of shape (n,)
        Level of each calibration row, from 0 (least disadvantaged) to ``n_levels - 1``.
    n_levels : int
    alpha : float
        Miscoverage in (0, 1).

    Returns
    -------
    thresholds : ndarray of shape (n_levels,)
        They never fall with the level. A level above which there are too few rows has an infinite
        threshold: the full set.

    Examples
    --------
    >>> level_thresholds([0.1, 0.2, 0.3, 0.4, 0.8, 0.9], [0, 0, 0, 1, 1, 1], 2, alpha=0.4)
    array([0.3, 0.9])
    >>> level_thresholds([0.1, 0.2, 0.3, 0.4, 0.8, 0.9], [1, 1, 1, 0, 0, 0], 2, alpha=0.4)
    array([0.8, 0.8])
    """
    scores, levels = _checked(scores, levels, n_levels)
    return _isotonic(_SortedLevels.of(scores, levels, n_levels).interval_quantiles(alpha))


def _isotonic(quantiles: FloatArray) -> FloatArray:
    """Return ``max_{a <= j} min_{b >= j} quantiles[a, b]`` for every j."""
    lowest = np.minimum.accumulate(quantiles[:, ::-1], axis=1)[:, ::-1]  # min over b >= j
    lowest[np.tril_indices(len(lowest), -1)] = -np.inf  # only a <= j
    return lowest.max(axis=0)


def level_pvalues(
    scores: Any, levels: Any, test_scores: Any, test_levels: Any, n_levels: int
) -> FloatArray:
    """Return ``p(s) = max_{a <= j} min_{b >= j} p_ab(s)`` for each test score s of level j.

    ``p_ab(s) = (1 + #{A_ab >= s}) / (|A_ab| + 1)``, and ``p > alpha`` if and only if s is at most
    the threshold of :func:`level_thresholds`.

    Parameters
    ----------
    scores, levels : array-like of shape (n,)
        Calibration scores and their levels.
    test_scores : array-like of shape (n_test, n_labels)
    test_levels : array-like of int of shape (n_test,)
    n_levels : int

    Returns
    -------
    p : ndarray of shape (n_test, n_labels)

    Examples
    --------
    >>> level_pvalues([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], [[0.25], [0.25]], [0, 1], 2)
    array([[0.33333333],
           [1.        ]])
    """
    scores, levels = _checked(scores, levels, n_levels)
    tested = np.asarray(test_scores, dtype=np.float64)
    if tested.ndim != 2 or np.isnan(tested).any():
        raise InvalidInputError(
            "test_scores must be of shape (n_test, n_labels) without NaN, got shape "
            f"{tested.shape} and {int(np.isnan(tested).sum())} NaN"
        )
    test_levels, _ = check_levels(test_levels, n_levels, name="test_levels")
    check_same_length(test_scores=tested, test_levels=test_levels)
    return _pvalues(_SortedLevels.of(scores, levels, n_levels), tested, test_levels)


def _pvalues(calibration: _SortedLevels, scores: FloatArray, levels: IntArray) -> FloatArray:
    p = np.empty_like(scores)
    for level in np.unique(levels):
        rows = np.flatnonzero(levels == level)
        size = max(1, CHUNK // scores.shape[1])
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            p[part] = _pvalues_at(calibration, scores[part], int(level))
    return p


def _pvalues_at(calibration: _SortedLevels, scores: FloatArray, level: int) -> FloatArray:
    """Return p-values of scores that all belong to one level."""
    places = np.searchsorted(calibration.pooled, scores)  # the first position with a score >= s
    n_total, above_total = [0], [np.zeros(scores.shape, dtype=np.int64)]
    for own in calibration.places:
        n_total.append(n_total[-1] + len(own))
        above_total.append(above_total[-1] + len(own) - np.searchsorted(own, places))
    largest = np.zeros(scores.shape)
    for a in range(level + 1):
        smallest = np.ones(scores.shape)
        for b in range(level, len(calibration.places)):
            at_least = above_total[b + 1] - above_total[a]
            np.minimum(smallest, (1 + at_least) / (n_total[b + 1] - n_total[a] + 1), out=smallest)
        np.maximum(largest, smallest, out=largest)
    return largest


class RisingThresholds(Calibration):
    """Base of calibrated levels: what follows from the quantile of every run of levels."""

    leveler: Any
    quantiles: FloatArray  # (n_labels, n_levels, n_levels) Q(A_ab), infinite where b < a
    counts: IntArray  # (n_labels, n_levels) calibration rows of each level

    @cached_property
    def level_thresholds(self) -> FloatArray:
        """Thresholds of shape (n_levels, n_labels)."""
        return np.column_stack([_isotonic(own) for own in self.quantiles])

    @property
    def split_thresholds(self) -> FloatArray:
        """Thresholds of split conformal sets with the same rows, of shape (n_labels,)."""
        return self.quantiles[:, 0, -1]

    def first_raised(self) -> int:
        """Return the level from which on thresholds exceed those of split conformal sets.

        If none does, the first of the levels that share the highest thresholds.
        """
        raised = np.flatnonzero((self.level_thresholds > self.split_thresholds).any(axis=1))
        return int(raised[0]) if len(raised) else self.pooled_levels()[-1][0]

    def pooled_levels(self) -> list[tuple[int, int]]:
        """Return the first and last level of each run of levels that share their thresholds."""
        theta = self.level_thresholds
        starts = [0, *(1 + np.flatnonzero((theta[1:] != theta[:-1]).any(axis=1)))]
        ends = [*(start - 1 for start in starts[1:]), len(theta) - 1]
        return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]

    def thresholds(self, rows: Rows) -> FloatArray:
        """Return thresholds of shape (n_samples, 1), or (n_samples, n_classes) per label."""
        return self.level_thresholds[self.leveler.levels(rows)]

    def full_sets(self) -> Iterator[FullSet]:
        """Yield the levels whose threshold is infinite."""
        for level, label in np.argwhere(np.isinf(self.level_thresholds)):
            n = int(self.counts[label, level:].sum())
            yield self.full_set(f"disadvantage level {level}", int(label), n)

    def check_levels(self, rows: Rows) -> None:
        """Refuse levels that are none; ``rows`` are asked for theirs."""
        n_levels = self.leveler.n_levels
        require(type(n_levels) is int and n_levels >= 1, "n_levels")
        if hasattr(self.leveler, "check"):
            self.leveler.check(rows)
        asked = self.leveler.levels(rows)
        require(((asked >= 0) & (asked < n_levels)).all(), "levels")


@dataclass(frozen=True, eq=False)
class LevelCalibration(RisingThresholds):
    """Calibrated levels: what cannot be derived, and the thresholds that follow from it."""

    leveler: Any  # has ``levels(rows)`` and ``n_levels``, fixed before calibration
    scores: FloatArray
    levels: IntArray  # (n,)
    labels: IntArray | None
    n_labels: int
    alpha: float

    @classmethod
    def of(cls, leveler: Any, rows: Rows, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate on rows with labels."""
        problems = rows.problems(label_conditional)
        return cls(leveler, rows.own_scores, leveler.levels(rows), *problems, alpha)

    def pvalues(self, rows: Rows) -> FloatArray:
        """Return p-values of shape (n_samples, n_classes)."""
        levels = self.leveler.levels(rows)
        if self.labels is None:
            return _pvalues(self._sorted[0], rows.scores, levels)
        columns = [
            _pvalues(own, rows.scores[:, [label]], levels) for label, own in enumerate(self._sorted)
        ]
        return np.hstack(columns)

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        """Refuse parts that contradict each other; ``rows`` are asked for their levels."""
        self.check_scores("scores", n_labels, alpha)
        self.check_levels(rows)
        require(self.levels.dtype == np.int64, "levels")
        require(self.levels.shape == self.scores.shape, "levels")
        require(((self.levels >= 0) & (self.levels < self.leveler.n_levels)).all(), "levels")

    @cached_property
    def quantiles(self) -> FloatArray:  # type: ignore[override]
        """``Q(A_ab)`` of every run of levels, shape (n_labels, n_levels, n_levels)."""
        return np.stack([own.interval_quantiles(self.alpha) for own in self._sorted])

    @cached_property
    def counts(self) -> IntArray:  # type: ignore[override]
        """Calibration rows of each level, shape (n_labels, n_levels)."""
        return np.stack([own.counts for own in self._sorted])

    @cached_property
    def _sorted(self) -> tuple[_SortedLevels, ...]:
        n_levels = self.leveler.n_levels
        return tuple(
            _SortedLevels.of(self.scores[rows], self.levels[rows], n_levels)
            for rows in self.rows_by_label()
        )
