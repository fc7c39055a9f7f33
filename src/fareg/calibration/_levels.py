"""Thresholds that rise with disadvantage: isotonic regression of the conformal quantile.

Rows fall into ordered levels 0, 1, ..., J - 1, fixed before calibration. Let ``A_ab`` be the
calibration scores whose level lies in a..b and ``Q(A)`` the conformal quantile of ``A``. Then

    theta_j = max_{a <= j} min_{b >= j} Q(A_ab),     set: {y : V(x, y) <= theta_level(x)}.

For exchangeable rows, ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` for every m; docs/guarantees.md
has the proof. The same holds for a row of a new person if each person counts once, and within each
label, with a different order for every label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Self

import numpy as np

from fareg._validation import FloatArray, IntArray, require
from fareg.calibration._batch import Batch, Calibration, Labelled, Sample, per_weight
from fareg.pvalues import CalibrationScores, conformal_rank

MOST_LEVELS = 128  # all intervals of levels are compared: n (n + 1) / 2 for n levels


def _weights_before(calibration: CalibrationScores, positions: Any, side: Any) -> IntArray:
    """Return total weights of the rows of lower levels before positions among all sorted scores.

    The first axis is for the levels below 0, 1, ..., n_levels. With the side "right", rows at a
    position count too.
    """
    ranks = calibration.keys % (len(calibration.pooled) + 1)
    ranks_by_level = np.split(ranks, calibration.starts[1:-1])
    before, starts = calibration.before, calibration.starts
    weights = [
        before[start + np.searchsorted(level_ranks, positions, side)] - before[start]
        for start, level_ranks in zip(starts[:-1], ranks_by_level, strict=True)
    ]
    return np.cumsum([np.zeros_like(weights[0]), *weights], axis=0)


def interval_quantiles(calibration: CalibrationScores, alpha: float) -> FloatArray:
    """Return ``Q(A_ab)`` of shape (n_levels, n_levels), infinite where b < a."""
    pooled, n_levels = calibration.pooled, len(calibration.starts) - 1
    a, b = np.indices((n_levels, n_levels))
    total = calibration.before[calibration.starts]
    n = total[b + 1] - total[a]  # zero or less where b < a
    k = conformal_rank(np.maximum(n, 0), alpha, calibration.new)
    # Bisection for all intervals at once: the first position up to which the interval has k rows.
    low, high = np.zeros_like(n), np.full_like(n, len(pooled))
    while (low < high).any():
        middle = (low + high) // 2
        below = _weights_before(calibration, middle, "right")
        enough = below[b + 1, a, b] - below[a, a, b] >= k
        high, low = np.where(enough, middle, high), np.where(enough, low, middle + 1)
    found = np.append(pooled, np.inf)[np.minimum(low, len(pooled))]
    return np.where((a <= b) & (k <= n), found, np.inf)


def _isotonic(quantiles: FloatArray) -> FloatArray:
    """Return ``max_{a <= j} min_{b >= j} quantiles[a, b]`` for every j."""
    lowest = np.minimum.accumulate(quantiles[:, ::-1], axis=1)[:, ::-1]  # min over b >= j
    lowest[np.tril_indices(len(lowest), -1)] = -np.inf  # only a <= j
    return lowest.max(axis=0)


def _pvalues(calibration: CalibrationScores, scores: FloatArray, levels: IntArray) -> FloatArray:
    """Return p-values of scores of shape (n, n_labels), for one level per row.

    ``p(s) = max_{a <= j} min_{b >= j} p_ab(s)`` with
    ``p_ab(s) = (1 + #{A_ab >= s}) / (|A_ab| + 1)``, so
    ``p > alpha`` if and only if s is at most the threshold.
    """
    p = np.empty_like(scores)
    positions = np.searchsorted(calibration.pooled, scores)  # the first one with a score >= s
    total, new = calibration.before[calibration.starts][:, None], calibration.new
    for level in np.unique(levels).tolist():
        rows = levels == level
        distinct, which = np.unique(positions[rows], return_inverse=True)
        at_least = total - _weights_before(calibration, distinct, "left")  # in all lower levels
        above, n_above = new + at_least[level + 1 :], new + total[level + 1 :]
        p_ab = ((above - at_least[a]) / (n_above - total[a]) for a in range(level + 1))
        largest: FloatArray = reduce(np.maximum, (p_b.min(axis=0) for p_b in p_ab))
        p[rows] = largest[which].reshape(-1, p.shape[1])
    return p


@dataclass(frozen=True, eq=False)
class LevelThresholds(Calibration):
    """Calibrated levels of disadvantage.

    ``levels`` has ``n_levels``, and ``levels(people)``, which returns the level of each row. If
    every label has its own order, ``n_levels`` is a tuple, and the levels of each row for every
    label have shape (n, n_labels).
    """

    levels: Any
    sample: Sample
    row_levels: IntArray  # (n,) the level of each calibration row, in the order of its label
    alpha: float
    # per label, or once for all labels: the scores, and the threshold of each level
    tables: tuple[CalibrationScores, ...] = field(init=False, repr=False)
    theta: tuple[FloatArray, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sample = self.sample
        n_levels = np.broadcast_to(self.levels.n_levels, sample.n_labels)
        require(n_levels.min() >= 1 and n_levels.max() <= MOST_LEVELS, "n_levels")
        sample.check_codes(self.row_levels, -1, int(n_levels.max()), "levels")
        tables = tuple(
            sample.sorted(self.row_levels, n, (sample.row_labels == label) & (self.row_levels >= 0))
            for label, n in enumerate(n_levels.tolist())
        )
        theta = tuple(_isotonic(interval_quantiles(table, self.alpha)) for table in tables)
        vars(self).update(tables=tables, theta=theta)

    @classmethod
    def fit(cls, levels: Any, rows: Labelled, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate levels that were fixed before these rows were seen."""
        sample = Sample.from_rows(rows, label_conditional=label_conditional)
        return cls(levels, sample, _row_levels(levels, rows), alpha)

    def places(self, rows: Labelled) -> IntArray:
        """Return the level of each row, in the order of its label."""
        return _row_levels(self.levels, rows)

    def with_sample(self, sample: Sample, places: IntArray | None = None) -> LevelThresholds:
        """Return the same levels with other calibration rows or weights."""
        row_levels = self.row_levels if places is None else places
        return LevelThresholds(self.levels, sample, row_levels, self.alpha)

    @per_weight
    def thresholds(self, batch: Batch) -> FloatArray:
        levels = self._levels_by_label(batch)
        return np.column_stack([theta[levels[:, k]] for k, theta in enumerate(self.theta)])

    @per_weight
    def pvalues(self, batch: Batch) -> FloatArray:
        """Return p-values of shape (n_samples, n_classes)."""
        levels = self._levels_by_label(batch)
        columns = np.split(batch.scores, len(self.tables), axis=1)  # per label, or all together
        pairs = enumerate(zip(self.tables, columns, strict=True))
        return np.hstack([_pvalues(table, scores, levels[:, k]) for k, (table, scores) in pairs])

    def row_thresholds(self) -> FloatArray:
        """Return the threshold of each calibration row for its true label, shape (n,)."""
        return self.thresholds_at(self.row_levels, self.sample.row_labels)

    def thresholds_at(self, levels: IntArray, labels: IntArray) -> FloatArray:
        """Return the threshold of rows in these levels for one label each, shape (n,)."""
        thresholds = np.full(len(levels), np.inf)
        for label, theta in enumerate(self.theta):
            rows = (labels == label) & (levels >= 0)
            thresholds[rows] = theta[levels[rows]]
        return thresholds

    def first_raised(self) -> int:
        """Return the first level with a threshold above that of split conformal sets.

        If there is none, return the first level with the highest threshold.
        """
        split = self.sample.split_thresholds(self.alpha)
        raised = [theta > s for theta, s in zip(self.theta, split, strict=True)]
        if not np.concatenate(raised).any():
            raised = [theta == theta.max() for theta in self.theta]
        return min(int(is_raised.argmax()) for is_raised in raised if is_raised.any())

    def pooled_levels(self, label: int = 0) -> list[tuple[int, int]]:
        """Return the first and last level of each run of levels that share a threshold."""
        theta = self.theta[label]
        starts = [0, *(1 + np.flatnonzero(theta[1:] != theta[:-1])).tolist()]
        return list(zip(starts, [start - 1 for start in [*starts[1:], len(theta)]], strict=True))

    def full_sets(self) -> Iterator[tuple[str, int]]:
        for label, theta in enumerate(self.theta):
            for level in np.flatnonzero(np.isinf(theta)).tolist():
                yield f"disadvantage level {level}", label

    def check(self, batch: Batch, n_labels: int | None, alpha: float) -> None:
        self.levels.check(batch.people)
        require((self._levels_by_label(batch) >= 0).all(), "levels")
        super().check(batch, n_labels, alpha)

    def _levels_by_label(self, batch: Batch) -> IntArray:
        """Return the level of each row for every label, or for all together: (n, n_labels)."""
        levels = batch.by_people(self.levels.levels)
        return levels[:, None].repeat(len(self.theta), axis=1) if levels.ndim == 1 else levels


def _row_levels(levels: Any, rows: Labelled) -> IntArray:
    """Return the level of each row in the order of its label, -1 for an unknown label."""
    row_levels: IntArray = levels.levels(rows.people)
    if row_levels.ndim == 1:
        return row_levels
    return np.where(rows.y >= 0, row_levels[np.arange(len(rows)), rows.y], -1)
