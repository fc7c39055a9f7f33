"""The rows of one call, and the sample of scores that remains of calibration rows.

Rows are made once and never change. Only the score of its true label matters for a calibration row,
so a table that is too large for the scores of all labels is reduced block by block.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from fareg._rows import in_chunks, row_draws
from fareg._validation import BoolArray, FaregError, FloatArray, IntArray, require, warn
from fareg._words import group_name
from fareg.pvalues import CalibrationScores

ARRAYS = ("score", "y", "u", "surprise", "clusters", "weights")  # the columns of labelled rows
DRAW, PICK = 1, 2  # purposes of further random numbers: randomised methods, one row per cluster
MAX_LABELS = 10**5  # labels that are calibrated separately
MAX_CATEGORIES = 10**7  # cells times such labels
MAX_WEIGHT, NEW_WEIGHT = 10**6, 2**48  # of calibration rows, of new rows: sums are exact

Answer = Callable[[Any, "Batch"], FloatArray]


def further_uniforms(u: FloatArray, purpose: int) -> FloatArray:
    """Return a new number in [0, 1) per row, independent of ``u`` and of other purposes."""
    return row_draws(u, purpose)[-1]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that need prediction sets."""

    people: pd.DataFrame  # (n, n_sensitive) sensitive columns in canonical form
    proba: FloatArray  # (n, n_classes)
    scores: FloatArray  # (n, n_classes) conformity score of every label
    u: Any  # (n,) the random number of each row; None if nothing depends on it
    # (n, 1), or (n, n_classes) if weights depend on labels: how much more frequent such rows are in
    # the new population than among the calibration rows; None if the population is the same
    weights: IntArray | None = None
    # the first position of each distinct row of people, and which distinct row each row equals;
    # None if hardly any are equal
    repeated: tuple[IntArray, IntArray] | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def by_people(self, answer: Callable[[pd.DataFrame], Any]) -> Any:
        """Return ``answer(people)``, computed once for equal people."""
        if self.repeated is None:
            return answer(self.people)
        first, which = self.repeated
        return answer(self.people.iloc[first].reset_index(drop=True))[which]

    def labelled(self, y: IntArray, clusters: IntArray | None = None) -> Labelled:
        """Return the rows with their labels; ``y`` is the column of each label, -1 if unknown."""
        rows, known, weights = np.arange(len(y)), y >= 0, self.weights
        squares = in_chunks(lambda p: (p**2).sum(axis=1), self.proba)
        surprise = np.where(known, squares - self.proba[rows, y], 1.0)
        score = np.where(known, self.scores[rows, y], np.inf)
        if weights is not None:
            weights = np.broadcast_to(weights, self.scores.shape)[rows, y]
        n_classes = self.scores.shape[1]
        return Labelled(self.people, score, y, n_classes, self.u, surprise, clusters, weights)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Learning or calibration rows, whose true label is known."""

    people: pd.DataFrame  # (n, n_sensitive) sensitive columns in canonical form
    score: FloatArray  # (n,) score of the true label; infinite if the model does not know the label
    y: IntArray  # (n,) column of the true label, -1 if the model does not know it
    n_classes: int
    u: Any  # (n,) the random number of each row; None if nothing depends on it
    # (n,) sum_k p_k^2 - p_y, how much less probability the true label got than the model expected;
    # 1 if the model does not know the label
    surprise: FloatArray
    clusters: IntArray | None = None  # (n,) the person of each row, from 0
    weights: IntArray | None = None  # (n,) as in a batch

    def __len__(self) -> int:
        return len(self.score)

    @property
    def n_people(self) -> int:
        """Number of clusters, or of rows if there are none."""
        return len(self) if self.clusters is None else len(np.unique(self.clusters))

    def by_people(self, answer: Callable[[pd.DataFrame], Any]) -> Any:
        """Return ``answer(people)``."""
        return answer(self.people)

    def take(self, rows: IntArray) -> Labelled:
        """Return some of the rows."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        taken = {name: array[rows] for name, array in arrays.items() if array is not None}
        return replace(self, people=self.people.iloc[rows].reset_index(drop=True), **taken)

    @classmethod
    def joined(cls, parts: Sequence[Labelled]) -> Labelled:
        """Join parts of one table."""
        present = [name for name in ARRAYS if getattr(parts[0], name) is not None]
        arrays: Any = {name: np.concatenate([getattr(p, name) for p in parts]) for name in present}
        people = pd.concat([part.people for part in parts], ignore_index=True)
        return replace(parts[0], people=people, **arrays)

    def independent_rows(self) -> IntArray:
        """Return the positions of one row per cluster, drawn at random; of all without clusters."""
        if self.clusters is None:
            return np.arange(len(self))
        # Each row of a person is equally likely to have the smallest random number, and the draw
        # does not depend on the order of the rows.
        order = np.lexsort((further_uniforms(self.u, PICK), self.clusters))
        first = np.unique(self.clusters[order], return_index=True)[1]
        return np.sort(order[first])

    def one_of_each_cluster(self) -> Labelled:
        """Return one row per cluster, drawn at random; all rows without clusters."""
        return self if self.clusters is None else self.take(self.independent_rows())


@dataclass(frozen=True, eq=False)
class Sample:
    """The scores of the true labels of calibration rows, and the weight of each row.

    They come from checked rows, or from a file that someone may have edited.
    """

    score: FloatArray  # (n,)
    # (n,) columns of the true labels, to calibrate each label separately; -1 calibrates none. None
    # to calibrate all labels together
    labels: IntArray | None
    n_labels: int  # how many labels are calibrated separately; 1 if all together
    sizes: IntArray | None  # (n,) rows of the same person; None if each row counts once
    weights: IntArray | None = None  # (n,) weight of each row, if the population has changed
    new: int = 1  # weight of a new row

    def __post_init__(self) -> None:
        require(self.score.dtype == np.float64 and not np.isnan(self.score).any(), "score")
        most = 1 if self.labels is None else MAX_LABELS
        require(type(self.n_labels) is int and 1 <= self.n_labels <= most, "n_labels")
        require(type(self.new) is int and 1 <= self.new <= NEW_WEIGHT, "new")
        self.check_codes(self.labels, -1, self.n_labels, "labels")
        self.check_codes(self.sizes, 1, len(self) + 1, "sizes")
        self.check_codes(self.weights, 0, MAX_WEIGHT + 1, "weights")

    @classmethod
    def from_rows(cls, rows: Labelled, *, label_conditional: bool) -> Self:
        """Take the scores of rows with labels."""
        labels, n_labels = (rows.y, rows.n_classes) if label_conditional else (None, 1)
        clusters = rows.clusters
        sizes = None if clusters is None else np.bincount(clusters)[clusters].astype(np.int64)
        new = 1 if rows.weights is None else max(1, round(float(rows.weights.mean())))
        return cls(rows.score, labels, n_labels, sizes, rows.weights, new)

    def __len__(self) -> int:
        return len(self.score)

    @property
    def n_people(self) -> int:
        """Number of clusters, or of rows if there are none."""
        return len(self) if self.sizes is None else round(float((1 / self.sizes).sum()))

    @property
    def row_labels(self) -> IntArray:
        """The label that each row calibrates, zero if all are calibrated together, shape (n,)."""
        return np.zeros(len(self), dtype=np.int64) if self.labels is None else self.labels

    def sorted(self, categories: IntArray, n: int, rows: Any = slice(None)) -> CalibrationScores:
        """Sort the scores of some rows, given by a mask, by category, of which there are ``n``."""
        sizes, weights = (x if x is None else x[rows] for x in (self.sizes, self.weights))
        scores, categories = self.score[rows], categories[rows]
        return CalibrationScores.sort(scores, categories, n, sizes, weights, self.new)

    def sorted_by(self, cells: IntArray, n_cells: int) -> CalibrationScores:
        """Sort the scores by cell, or by label in each cell; negative cells do not count."""
        n_categories, labels = n_cells * self.n_labels, self.row_labels
        require(n_categories <= MAX_CATEGORIES, "n_cells")
        inside = (labels >= 0) & (cells >= 0)
        rows: Any = slice(None) if inside.all() else inside
        return self.sorted(cells * self.n_labels + labels, n_categories, rows)

    def categories(self, cells: IntArray) -> IntArray:
        """Return the categories of rows in these cells, (n, n_labels); negative without a cell."""
        first = cells[:, None] * self.n_labels
        return np.where(first >= 0, first + np.arange(self.n_labels), -1)

    def split_thresholds(self, alpha: float) -> FloatArray:
        """Return the thresholds of split conformal sets of the same rows, shape (n_labels,)."""
        return self.sorted_by(np.zeros(len(self), dtype=np.int64), 1).quantiles(alpha)[:-1]

    def check_codes(self, codes: IntArray | None, lowest: int, end: int, name: str) -> None:
        """Refuse codes unless they are one whole number per row, from ``lowest`` to ``end - 1``."""
        if codes is not None:
            require(codes.dtype == np.int64 and codes.shape == (len(self),), name)
            require(((codes >= lowest) & (codes < end)).all(), name)


class Calibration:
    """Base of the calibrations that have a sample."""

    sample: Sample
    alpha: float

    has_pvalues = True  # whether there is ``pvalues(batch)``

    def full_sets(self) -> Iterator[tuple[str, int]]:
        """Yield each group and label whose threshold is infinite, if that is already known."""
        return iter(())

    def check(self, batch: Batch, n_labels: int | None, alpha: float) -> None:
        """Refuse parts that contradict each other or the arguments, or that raise errors.

        ``n_labels`` is None if labels are not calibrated separately.
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
        """Return the largest score that enters each set, shape (n_samples, n_labels)."""
        raise NotImplementedError


def per_weight(method: Answer) -> Answer:
    """Decorate a method for rows that weigh ``sample.new``: call it for each weight of a batch."""

    @functools.wraps(method)
    def weighted(self: Any, batch: Batch) -> FloatArray:
        if batch.weights is None:
            return method(self, batch)
        result = np.empty(batch.scores.shape)
        weights = np.broadcast_to(batch.weights, result.shape)
        for weight in np.unique(weights).tolist():
            has_weight = weights == weight
            rows = np.flatnonzero(has_weight.any(axis=1))
            people = batch.people.iloc[rows].reset_index(drop=True)
            u = None if batch.u is None else batch.u[rows]
            part = Batch(people, batch.proba[rows], batch.scores[rows], u)
            answers = method(self.with_sample(replace(self.sample, new=weight)), part)
            result[rows] = np.where(has_weight[rows], answers, result[rows])
        return result

    return weighted


def warn_of_full_sets(calibration: Any, classes: Any, alpha: float) -> None:
    """Warn if some groups get full sets; labels that the estimator never saw may be the cause."""
    sample, full = calibration.sample, list(calibration.full_sets())
    unknown = np.isinf(sample.score).mean()
    if not full or unknown > alpha:  # another warning names so many unknown labels
        return
    group, label = full[0]
    others = f" and {len(full) - 1} more" if len(full) > 1 else ""
    of_label = "" if sample.labels is None else f" with label {classes[label]}"
    unit = "calibration points" if sample.sizes is None else "clusters of calibration rows"
    result = f"these rows get {'full sets' if sample.labels is None else 'this label in any case'}"
    warn(
        f"fewer than {math.ceil(1 / alpha) - 1} {unit}"
        f"{', or too many with labels that the estimator never saw,' if unknown else ''} for "
        f"{group_name(group)}{of_label}{others}: {result}; use more rows or a larger group"
    )


def warn_of_full_rows(full: BoolArray, reason: str, fix: str = "larger groups") -> None:
    """Warn of rows that have full sets, if there are any."""
    if full.any():
        warn(
            f"{int(full.sum())} of {len(full)} rows {reason}: every label that lacks calibration "
            f"points is kept in the set; use more rows or {fix}"
        )
