"""What all calibrations share: the scores that calibration rows leave behind, and full sets."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fareg._validation import BoolArray, FaregError, FloatArray, IntArray, require, warn
from fareg.calibration._batch import Batch, Labelled
from fareg.pvalues import CalibrationScores

Answer = Callable[[Any, Batch], FloatArray]
MAX_LABELS = 10**5  # that are calibrated by themselves
MAX_CATEGORIES = 10**7  # cells times such labels
MAX_WEIGHT = 10**6  # sums of many of them are exact


@dataclass(frozen=True, eq=False)
class Sample:
    """The scores of the true labels of calibration rows, and what each row counts.

    They come from checked rows, or from a file that someone may have edited.
    """

    score: FloatArray  # (n,)
    # (n,) columns of the true labels, to calibrate each label by itself; -1 takes part in none.
    # None calibrates all labels together.
    labels: IntArray | None
    n_labels: int  # how many labels are calibrated by themselves; 1 if all together
    sizes: IntArray | None  # (n,) rows of the person behind each row; None if every row counts once
    weights: IntArray | None = None  # (n,) what each row weighs, if the population has changed
    new: int = 1  # what a row to come weighs

    def __post_init__(self) -> None:
        require(self.score.dtype == np.float64 and not np.isnan(self.score).any(), "score")
        most = 1 if self.labels is None else MAX_LABELS
        require(type(self.n_labels) is int and 1 <= self.n_labels <= most, "n_labels")
        self.check_codes(self.problems, -1, self.n_labels, "labels")
        if self.sizes is not None:
            self.check_codes(self.sizes, 1, len(self) + 1, "sizes")
        if self.weights is not None:
            self.check_codes(self.weights, 0, MAX_WEIGHT + 1, "weights")
        require(type(self.new) is int and 1 <= self.new <= MAX_WEIGHT, "new")

    @classmethod
    def of(cls, rows: Labelled, *, label_conditional: bool) -> Self:
        """Take the scores of rows with labels."""
        labels, n_labels = (rows.y, rows.n_classes) if label_conditional else (None, 1)
        new = 1 if rows.weights is None else max(1, round(float(rows.weights.mean())))
        return cls(rows.score, labels, n_labels, rows.sizes, rows.weights, new)

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
        inside = (self.problems >= 0) & (cells >= 0)
        categories = np.where(inside, cells * self.n_labels + self.problems, -1)
        n_categories = n_cells * self.n_labels
        return CalibrationScores.sort(self.score, categories, n_categories, *self.counting())

    def counting(self, rows: Any = slice(None)) -> tuple[Any, Any, int]:
        """Return what makes rows count more or less: sizes, weights, and the weight of new rows."""
        sizes, weights = (
            None if part is None else part[rows] for part in (self.sizes, self.weights)
        )
        return sizes, weights, self.new

    def categories(self, cells: IntArray) -> IntArray:
        """Return the categories of other rows, shape (n, n_labels); negative for no cell."""
        first = cells[:, None] * self.n_labels
        return np.where(first >= 0, first + np.arange(self.n_labels), -1)

    def split_thresholds(self, alpha: float) -> FloatArray:
        """Return the thresholds of split conformal sets with the same rows, shape (n_labels,)."""
        return self.sorted_by(np.zeros(len(self), dtype=np.int64), 1).quantiles(alpha)[:-1]

    def check_codes(self, codes: IntArray, lowest: int, end: int, name: str) -> None:
        """Refuse what is not one whole number per row, from ``lowest`` to below ``end``."""
        require(codes.dtype == np.int64 and codes.shape == (len(self),), name)
        require(((codes >= lowest) & (codes < end)).all(), name)


class Calibration:
    """What every calibration has beside its ``thresholds(batch)``."""

    sample: Sample
    alpha: float

    has_pvalues = True  # whether there is ``pvalues(batch)``

    def full_sets(self) -> Iterator[tuple[str, int]]:
        """Yield who gets which label in any case, if that is known by now."""
        return iter(())

    def check(self, batch: Batch, n_labels: int | None, alpha: float) -> None:
        """Refuse parts that contradict each other or these numbers, or that cannot answer.

        ``n_labels`` is None if labels are not calibrated by themselves.
        """
        require(self.alpha == alpha, "alpha")
        require(self.sample.n_labels == (n_labels or 1), "n_labels")
        require((self.sample.labels is None) == (n_labels is None), "labels")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                thresholds = self.thresholds(batch)
            except FaregError as error:
                raise ValueError(str(error)) from error
        require(thresholds.shape == (len(batch), n_labels or 1), "thresholds")
        require(not np.isnan(thresholds).any(), "thresholds")

    def thresholds(self, batch: Batch) -> FloatArray:
        """Return the largest scores that get into the sets, shape (n_samples, n_labels)."""
        raise NotImplementedError


def weight_by_weight(answer: Answer) -> Answer:
    """Decorate answers to rows that all weigh as much as ``sample.new``: others get theirs too."""

    @functools.wraps(answer)
    def weighted(self: Any, batch: Batch) -> FloatArray:
        if batch.weights is None:
            return answer(self, batch)
        found = np.empty(batch.scores.shape)
        weights = np.broadcast_to(batch.weights, found.shape)
        plain = replace(batch, weights=None)
        for weight in np.unique(weights).tolist():
            here = weights == weight
            rows = here.any(axis=1)
            own = answer(self.again(replace(self.sample, new=weight)), plain.take(rows))
            found[rows] = np.where(here[rows], own, found[rows])
        return found

    return weighted


def warn_of_full_sets(calibration: Any, classes: Any, alpha: float) -> None:
    """Warn if some people get full sets; labels that the estimator never saw may be the cause.

    Where more of these labels are among all rows than alpha allows, a warning has been given.
    """
    sample, full = calibration.sample, list(calibration.full_sets())
    if not full or np.isinf(sample.score).mean() > alpha:
        return
    who, label = full[0]
    of_label = "" if sample.labels is None else f" with label {classes[label]}"
    unit = "calibration points" if sample.sizes is None else "clusters of calibration rows"
    unknown = ", or too many with labels that the estimator never saw,"
    warn(
        f"fewer than {math.ceil(1 / alpha) - 1} {unit}"
        f"{unknown if np.isinf(sample.score).any() else ''} for {who}{of_label}"
        f"{f' and {len(full) - 1} more' if len(full) > 1 else ''}: every such label is kept in the "
        "set; give more rows or coarser groups"
    )


def warn_of_full_rows(full: BoolArray, where: str, fix: str = "coarser groups") -> None:
    """Warn of rows that have full sets, if there are any."""
    if full.any():
        warn(
            f"{int(full.sum())} of {len(full)} rows {where}: every label that lacks calibration "
            f"points is kept in the set; give more rows or {fix}"
        )
