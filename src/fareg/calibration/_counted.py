"""Levels whose thresholds were counted where the rows lie: see ``_counting`` for the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fareg._validation import FloatArray, IntArray, InvalidInputError
from fareg.calibration._counting import IntervalSearch
from fareg.calibration._levels import RisingThresholds, Runs
from fareg.calibration._rows import Rows, require


@dataclass(frozen=True, eq=False)
class CountedLevels(RisingThresholds):
    """Levels calibrated by counting scores where they lie; the scores themselves are not kept."""

    leveler: Any  # has ``levels(rows)`` and ``n_levels``
    quantiles: FloatArray  # (n_labels, n_levels, n_levels) Q(A_ab) of every run of levels
    counts: IntArray  # (n_labels, n_levels) calibration rows of each level
    covered: IntArray  # (n_labels, n_levels) of these, the rows that split conformal sets cover
    labels: IntArray | None  # (n_labels,) those calibrated on their own; None for all together
    alpha: float

    @classmethod
    def of(cls, leveler: Any, search: IntervalSearch, *, label_conditional: bool) -> Self:
        """Take what a finished search has found."""
        labels = np.arange(search.n_problems) if label_conditional else None
        found = (search.quantiles, search.counts, search.covered)
        return cls(leveler, *found, labels, search.alpha)

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        """How many labels are calibrated on their own; 1 if all are calibrated together."""
        return len(self.counts)

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""
        return int(self.counts.sum())

    @property
    def runs(self) -> Sequence[Runs]:
        """The stored quantiles and counts."""
        return [_Stored(*pair) for pair in zip(self.quantiles, self.counts, strict=True)]

    def pvalues(self, rows: Rows) -> FloatArray:
        """Refuse, because a p-value compares with all calibration scores."""
        raise InvalidInputError(
            f"p-values need the calibration scores, and this model keeps only counts of "
            f"{self.n_rows} of them; conformalize a table in memory for p-values"
        )

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        """Refuse parts that contradict each other; ``rows`` are asked for their levels."""
        require(self.alpha == alpha, "alpha")
        self.check_levels(rows)
        shape = (1 if n_labels is None else n_labels, self.leveler.n_levels)
        if self.labels is None or n_labels is None:
            require(self.labels is None and n_labels is None, "labels")
        else:
            require(np.array_equal(self.labels, np.arange(n_labels)), "labels")
        for name in ("counts", "covered"):
            some = getattr(self, name)
            require(some.shape == shape and some.dtype == np.int64, name)
        require(((self.covered >= 0) & (self.covered <= self.counts)).all(), "covered")
        require(self.quantiles.shape == (*shape, shape[1]), "quantiles")
        require(self.quantiles.dtype == np.float64, "quantiles")
        require(not np.isnan(self.quantiles).any(), "quantiles")


@dataclass(frozen=True, eq=False)
class _Stored:
    """Quantiles of runs that were found elsewhere."""

    quantiles: FloatArray
    counts: IntArray

    def interval_quantiles(self, alpha: float) -> FloatArray:
        """Return ``Q(A_ab)`` of shape (n_levels, n_levels), infinite where b < a."""
        return self.quantiles
