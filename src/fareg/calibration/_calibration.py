"""What calibrations have in common: scores of labelled rows, for everyone or label by label."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fareg._validation import BoolArray, FloatArray, IntArray, warn
from fareg._words import fraction
from fareg.calibration._rows import Rows, require
from fareg.pvalues import CalibrationScores


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


def rows_by_label(labels: IntArray | None, n_labels: int) -> list[Any]:
    """Return what selects the rows of each problem: those of a label, or all rows."""
    if labels is None:
        return [slice(None)]
    return [labels == label for label in range(n_labels)]


class Calibration:
    """Base of the calibrations of labelled rows; most keep the scores of these rows."""

    scores: FloatArray  # (n,) calibration scores of the true labels
    # (n,) columns of the true labels, to calibrate each label on its own; -1 takes part in none.
    # None calibrates all labels together.
    labels: IntArray | None
    n_labels: int  # how many labels are calibrated on their own; 1 if all together
    alpha: float  # the miscoverage that is allowed
    # (n,) calibration rows of the person that each row is about; None if every row counts once
    sizes: IntArray | None = None

    has_pvalues = True

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""
        return len(self.scores)

    @property
    def n_people(self) -> int:
        """Number of people who calibrate: of clusters, or of rows if there are none."""
        return self.n_rows if self.sizes is None else round(float((1 / self.sizes).sum()))

    @property
    def split_thresholds(self) -> FloatArray:
        """Thresholds of split conformal sets with the same rows, of shape (n_labels,)."""
        everyone = np.zeros(self.n_rows, dtype=np.int64)
        return self.sort_cells(everyone, 1).quantiles(self.alpha)[:-1]

    @abstractmethod
    def thresholds(self, rows: Rows) -> FloatArray:
        """Return thresholds of shape (n_samples, 1), or (n_samples, n_classes) per label."""

    @abstractmethod
    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        """Refuse parts that contradict each other, the answers to ``rows``, or these numbers.

        ``n_labels`` is the number of classes, None if labels are not told apart.
        """

    def pvalues(self, rows: Rows) -> FloatArray:
        """Return p-values of shape (n_samples, n_classes), if ``has_pvalues``."""
        raise NotImplementedError

    def full_sets(self) -> Iterator[FullSet]:
        """Yield where sets are full, as far as that does not depend on the rows to come."""
        return iter(())

    def full_set(self, who: str, label: int, n: float) -> FullSet:
        """Say that the set of one label, in a place with so many people, is full."""
        enough = 1 / (n + 1) <= self.alpha
        unit = "calibration points" if self.sizes is None else "clusters of calibration rows"
        return FullSet(who, None if self.labels is None else label, enough, unit)

    def warn_of_full_rows(self, full: BoolArray, where: str, fix: str) -> None:
        """Warn of rows that have full sets, if there are any, and name the possible causes."""
        if full.any():
            unseen = np.isinf(self.scores).any()
            cause = " or too many labels that the estimator never saw" if unseen else ""
            warn(
                f"{int(full.sum())} of {len(full)} rows {where}{cause}: every label that lacks "
                f"points is kept in the set; give more rows or {fix}"
            )

    @property
    def label_numbers(self) -> IntArray:
        """The problem that each row belongs to: its label's number, or zero for everyone."""
        return np.zeros(self.n_rows, dtype=np.int64) if self.labels is None else self.labels

    def sort_cells(self, cells: IntArray, n_cells: int) -> CalibrationScores:
        """Sort the scores by their category: a cell, or a label in a cell."""
        labels = self.label_numbers
        categories = np.where((labels >= 0) & (cells >= 0), cells * self.n_labels + labels, -1)
        return CalibrationScores.sort(self.scores, categories, n_cells * self.n_labels, self.sizes)

    def categories(self, cells: IntArray) -> IntArray:
        """Return the categories of other rows, of shape (n_samples, n_labels); -1 for no cell."""
        first = cells[:, None] * self.n_labels
        return np.where(first >= 0, first + np.arange(self.n_labels), -1)

    def check_scores(self, name: str, n_labels: int | None, alpha: float) -> None:
        """Check alpha, labels and scores; ``name`` is the field that holds the scores."""
        scores, labels = getattr(self, name), self.labels
        require(self.alpha == alpha, "alpha")
        require(scores.dtype == np.float64 and scores.ndim == 1, name)
        require(not np.isnan(scores).any(), name)
        if labels is None or n_labels is None:
            require(labels is None and n_labels is None and self.n_labels == 1, "labels")
        else:
            require(self.n_labels == n_labels, "labels")
            require(labels.shape == scores.shape and labels.dtype == np.int64, "labels")
            require(((labels >= -1) & (labels < n_labels)).all(), "labels")
        if self.sizes is not None:
            require(self.sizes.shape == scores.shape and self.sizes.dtype == np.int64, "sizes")
            require(((self.sizes >= 1) & (self.sizes <= len(scores))).all(), "sizes")
