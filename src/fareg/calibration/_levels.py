"""Thresholds that rise with disadvantage: isotonic regression of the conformal quantile.

Rows fall into ordered levels 0, 1, ..., J - 1, fixed before calibration. Let ``A_ab`` be the
calibration scores whose level lies in a..b and ``Q(A)`` the conformal quantile of ``A``. Then

    theta_j = max_{a <= j} min_{b >= j} Q(A_ab),     set: {y : V(x, y) <= theta_level(x)}.

For exchangeable rows, ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` for every m; the proof is in
docs/guarantees.md. The same holds for a row of a new person if rows are weighted by person.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from fareg._levels import check_levels
from fareg._validation import FloatArray, IntArray, InvalidInputError, check_same_length
from fareg.calibration._calibration import Calibration, FullSet, rows_by_label
from fareg.calibration._people import cluster_sizes
from fareg.calibration._rows import Rows, require
from fareg.pvalues import CalibrationScores, conformal_rank

CHUNK = 1 << 20  # scores whose p-values are computed at once


def sorted_levels(scores: Any, levels: Any, n_levels: int) -> CalibrationScores:
    """Return checked calibration scores, sorted level by level."""
    levels, _ = check_levels(levels, n_levels)
    check_same_length(scores=np.atleast_1d(scores), levels=levels)
    return CalibrationScores.sort(scores, levels, n_levels)


def _up_to(calibration: CalibrationScores, places: Any, side: Any) -> IntArray:
    """Return what rows of lower levels weigh whose scores stand before places among all scores.

    The answer for the levels below 0, 1, ..., n_levels comes first in the shape. With the side
    "right", scores at a place are before it too.
    """
    keys = calibration.keys % (len(calibration.pooled) + 1)
    own = np.split(keys, calibration.starts[1:-1])
    before, starts = calibration.before, calibration.starts
    weights = [
        before[start + np.searchsorted(some, places, side)] - before[start]
        for start, some in zip(starts[:-1], own, strict=True)
    ]
    return np.cumsum([np.zeros_like(weights[0]), *weights], axis=0)


def interval_quantiles(calibration: CalibrationScores, alpha: float) -> FloatArray:
    """Return ``Q(A_ab)`` of shape (n_levels, n_levels), infinite where b < a."""
    pooled, n_levels = calibration.pooled, len(calibration.counts)
    a, b = np.indices((n_levels, n_levels))
    total = calibration.before[calibration.starts]
    n = total[b + 1] - total[a]  # zero or less where b < a
    k = conformal_rank(np.maximum(n, 0), alpha, calibration.new)
    # Bisection for all intervals at once: the first position up to which k rows are inside.
    low, high = np.zeros_like(n), np.full_like(n, len(pooled))
    while (low < high).any():
        middle = (low + high) // 2
        below = _up_to(calibration, middle, "right")
        enough = below[b + 1, a, b] - below[a, a, b] >= k
        high, low = np.where(enough, middle, high), np.where(enough, low, middle + 1)
    found = np.append(pooled, np.inf)[np.minimum(low, len(pooled))]
    return np.where((a <= b) & (k <= n), found, np.inf)


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
    return _isotonic(interval_quantiles(sorted_levels(scores, levels, n_levels), alpha))


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
    calibration = sorted_levels(scores, levels, n_levels)
    tested = np.asarray(test_scores, dtype=np.float64)
    if tested.ndim != 2 or np.isnan(tested).any():
        raise InvalidInputError(
            "test_scores must be of shape (n_test, n_labels) without NaN, got shape "
            f"{tested.shape} and {int(np.isnan(tested).sum())} NaN"
        )
    test_levels, _ = check_levels(test_levels, n_levels, name="test_levels")
    check_same_length(test_scores=tested, test_levels=test_levels)
    return _pvalues(calibration, tested, test_levels)


def _pvalues(calibration: CalibrationScores, scores: FloatArray, levels: IntArray) -> FloatArray:
    p = np.empty_like(scores)
    for level in np.unique(levels):
        rows = np.flatnonzero(levels == level)
        size = max(1, CHUNK // scores.shape[1])
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            p[part] = _pvalues_at(calibration, scores[part], int(level))
    return p


def _pvalues_at(calibration: CalibrationScores, scores: FloatArray, level: int) -> FloatArray:
    """Return p-values of scores that all belong to one level."""
    first = np.searchsorted(calibration.pooled, scores)  # the first position with a score >= s
    total, new = calibration.before[calibration.starts], calibration.new
    below = _up_to(calibration, first, "left")
    largest = np.zeros(scores.shape)
    for a in range(level + 1):
        smallest = np.ones(scores.shape)
        for b in range(level, len(total) - 1):
            n = total[b + 1] - total[a]
            at_least = n - (below[b + 1] - below[a])
            np.minimum(smallest, (new + at_least) / (n + new), out=smallest)
        np.maximum(largest, smallest, out=largest)
    return largest


class RisingThresholds(Calibration):
    """Base of calibrated levels: what follows from the quantile of every run of levels."""

    leveler: Any
    quantiles: FloatArray  # (n_labels, n_levels, n_levels) Q(A_ab), infinite where b < a
    people: Any  # (n_labels, n_levels) number of people in each level, by their calibration rows
    labels: IntArray | None  # None if all labels are calibrated together

    @cached_property
    def level_thresholds(self) -> FloatArray:
        """Thresholds of shape (n_levels, n_labels).

        There is one order for all labels, and in some label it may be the wrong one. Where every
        label has its own thresholds, none is below that of its split conformal sets: the union of
        both sets keeps both promises, and nobody gets a smaller set.
        """
        rising = np.column_stack([_isotonic(own) for own in self.quantiles])
        return rising if self.labels is None else np.maximum(rising, self.split_thresholds)

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
        return self.level_thresholds[self.leveler.levels(rows)]

    def full_sets(self) -> Iterator[FullSet]:
        for level, label in np.argwhere(np.isinf(self.level_thresholds)):
            n = float(self.people[label, level:].sum())
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
    sizes: IntArray | None = None

    @classmethod
    def of(cls, leveler: Any, rows: Rows, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate on rows with labels."""
        problems, sizes = rows.problems(label_conditional), cluster_sizes(rows.clusters)
        return cls(leveler, rows.own_scores, leveler.levels(rows), *problems, alpha, sizes)

    def pvalues(self, rows: Rows) -> FloatArray:
        levels = self.leveler.levels(rows)
        parts = np.split(rows.scores, len(self._sorted), axis=1)  # a column per label, or all
        pairs = zip(self._sorted, parts, strict=True)
        rising = np.hstack([_pvalues(own, scores, levels) for own, scores in pairs])
        if self.labels is None:
            return rising
        everyone = [
            CalibrationScores.sort(own.pooled).pvalues(scores)
            for own, scores in zip(self._sorted, parts, strict=True)
        ]
        return np.maximum(rising, np.hstack(everyone))  # those of the union of both sets

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        self.check_scores("scores", n_labels, alpha)
        self.check_levels(rows)
        is_fit = self.levels.dtype == np.int64 and self.levels.shape == self.scores.shape
        require(is_fit, "levels")
        require(((self.levels >= 0) & (self.levels < self.leveler.n_levels)).all(), "levels")

    @cached_property
    def quantiles(self) -> FloatArray:  # type: ignore[override]
        """``Q(A_ab)`` of every run of levels, shape (n_labels, n_levels, n_levels)."""
        return np.stack([interval_quantiles(own, self.alpha) for own in self._sorted])

    @cached_property
    def people(self) -> FloatArray:
        """Number of people in each level, shape (n_labels, n_levels)."""
        return np.stack([own.people for own in self._sorted])

    @cached_property
    def _sorted(self) -> list[CalibrationScores]:
        n_levels, sizes = self.leveler.n_levels, self.sizes
        return [
            CalibrationScores.sort(
                self.scores[own], self.levels[own], n_levels, None if sizes is None else sizes[own]
            )
            for own in rows_by_label(self.labels, self.n_labels)
        ]
