"""What all calibrations share: the scores that calibration rows leave behind, and full sets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fareg._validation import BoolArray, FloatArray, IntArray, require, warn
from fareg._words import fraction
from fareg.calibration._batch import Batch, Labelled
from fareg.pvalues import CalibrationScores

MAX_LABELS = 10**5  # that are calibrated by themselves
MAX_CATEGORIES = 10**7  # cells times such labels


@dataclass(frozen=True, eq=False)
class Sample:
    """The scores of the true labels of calibration rows, and what each row counts."""

    score: FloatArray  # (n,)
    # (n,) columns of the true labels, to calibrate each label by itself; -1 takes part in none.
    # None calibrates all labels together.
    labels: IntArray | None
    n_labels: int  # how many labels are calibrated by themselves; 1 if all together
    sizes: IntArray | None  # (n,) rows of the person behind each row; None if every row counts once

    def __post_init__(self) -> None:
        """Refuse scores and labels that contradict each other, before anything is sorted by them.

        A sample comes from checked rows, or from a file that someone may have edited.
        """
        require(self.score.dtype == np.float64 and self.score.ndim == 1, "score")
        require(not np.isnan(self.score).any(), "score")
        most = 1 if self.labels is None else MAX_LABELS
        require(type(self.n_labels) is int and 1 <= self.n_labels <= most, "n_labels")
        if self.labels is not None:
            self.check_codes(self.labels, -1, self.n_labels, "labels")
        if self.sizes is not None:
            self.check_codes(self.sizes, 1, len(self) + 1, "sizes")

    @classmethod
    def of(cls, rows: Labelled, *, label_conditional: bool) -> Self:
        """Take the scores of rows with labels."""
        if label_conditional:
            return cls(rows.score, rows.y, rows.n_classes, rows.sizes)
        return cls(rows.score, None, 1, rows.sizes)

    def __len__(self) -> int:
        return len(self.score)

    @property
    def n_people(self) -> int:
        """Number of people who calibrate: of clusters, or of rows if there are none."""
        return len(self) if self.sizes is None else round(float((1 / self.sizes).sum()))

    @property
    def problems(self) -> IntArray:
        """The label that each row calibrates, or zero if all are calibrated together: (n,)."""
        return np.zeros(len(self), dtype=np.int64) if self.labels is None else self.labels

    def sorted_by(self, cells: IntArray, n_cells: int) -> CalibrationScores:
        """Sort the scores by category: a cell, or a label in one; negative cells do not count."""
        require(n_cells * self.n_labels <= MAX_CATEGORIES, "n_cells")
        labels = self.problems
        inside = (labels >= 0) & (cells >= 0)
        categories = np.where(inside, cells * self.n_labels + labels, -1)
        return CalibrationScores.sort(self.score, categories, n_cells * self.n_labels, self.sizes)

    def categories(self, cells: IntArray) -> IntArray:
        """Return the categories of other rows, shape (n, n_labels); negative for no cell."""
        first = cells[:, None] * self.n_labels
        return np.where(first >= 0, first + np.arange(self.n_labels), -1)

    def split_thresholds(self, alpha: float) -> FloatArray:
        """Return the thresholds of split conformal sets with the same rows, shape (n_labels,)."""
        return self.sorted_by(np.zeros(len(self), dtype=np.int64), 1).quantiles(alpha)[:-1]

    def full_set(self, who: str, label: int, n: float, alpha: float) -> FullSet:
        """Say that the set of one label, for some people of whom n calibrate, is full."""
        unit = "calibration points" if self.sizes is None else "clusters of calibration rows"
        enough = 1 / (n + 1) <= alpha
        return FullSet(who, None if self.labels is None else label, enough, unit)

    def warn_of_full_rows(self, full: BoolArray, where: str, fix: str) -> None:
        """Warn of rows that have full sets, if there are any, and name the possible causes."""
        if full.any():
            cause = " or too many labels that the estimator never saw"
            warn(
                f"{int(full.sum())} of {len(full)} rows {where}"
                f"{cause if np.isinf(self.score).any() else ''}: every label that lacks points is "
                f"kept in the set; give more rows or {fix}"
            )

    def check(self, n_labels: int | None) -> None:
        """Refuse another number of labels; None if labels are not calibrated by themselves."""
        require(self.n_labels == (n_labels or 1), "n_labels")
        require((self.labels is None) == (n_labels is None), "labels")

    def check_codes(self, codes: Any, lowest: int, end: int, name: str) -> None:
        """Refuse what is not one whole number per row, from ``lowest`` to below ``end``."""
        require(codes.dtype == np.int64 and codes.shape == self.score.shape, name)
        require(((codes >= lowest) & (codes < end)).all(), name)


@dataclass(frozen=True)
class FullSet:
    """Where sets are full, and why."""

    who: str  # the rows with full sets, in words
    label: int | None  # the column of the label that is in all of them; None for every label
    has_points: bool  # whether points are enough; if so, too many of their labels are unknown
    unit: str  # what is counted: "calibration points", or "clusters of calibration rows"


def warn_of_full_sets(
    full: Iterable[FullSet], classes: Any, alpha: float, share_unknown: float
) -> None:
    """Warn of full sets, once for each of the two possible causes.

    ``share_unknown`` is the share of all calibration labels that the estimator never saw.
    """
    few, foreign, unit = [], [], ""
    for place in full:
        unit = place.unit
        label = "" if place.label is None else f" with label {classes[place.label]}"
        if place.has_points:
            foreign.append(place.who)
        else:
            few.append(f"{place.who}{label}")
    if few:
        n_needed = math.ceil(1 / alpha) - 1  # smallest n with conformal_rank(n) <= n
        warn(
            f"fewer than {n_needed} {unit} for {_first(few)}: every such label is "
            "kept in the set; give more rows or coarser groups"
        )
    # if the share exceeds alpha, a warning about all rows has been given already
    if foreign and share_unknown <= alpha:
        warn(
            f"too many calibration labels for {_first(foreign)} were never seen by the estimator, "
            f"the promise allows a share of {fraction(alpha)}: sets there are full and still miss "
            "these labels"
        )


def _first(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


class Calibration:
    """What every calibration has beside its ``thresholds(batch)``."""

    sample: Sample
    alpha: float

    has_pvalues = True  # whether there is ``pvalues(batch)``

    def full_sets(self) -> Iterator[FullSet]:
        """Yield where sets are full because too few rows calibrate, if that is known by now."""
        return iter(())

    def check(self, batch: Batch, n_labels: int | None, alpha: float) -> None:
        """Refuse parts that contradict each other, the answers to ``batch``, or these numbers."""
        require(self.alpha == alpha, "alpha")
        self.sample.check(n_labels)
        self._check_parts(batch)

    def _check_parts(self, batch: Batch) -> None:
        """Refuse parts, other than the sample, that contradict each other or it."""
