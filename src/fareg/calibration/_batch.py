"""The rows of one call, as calibrations see them, and what calibration rows leave behind.

Rows are made once, at the edge, and never change. Of a row that calibrates only the score of its
true label matters, so a table that is too large for all of its scores is reduced block by block.
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

from fareg._rows import row_draws
from fareg._validation import BoolArray, FaregError, FloatArray, IntArray, require, warn
from fareg._words import group_name
from fareg.pvalues import CalibrationScores

ARRAYS = ("score", "y", "u", "surprise", "clusters", "weights")  # the columns of labelled rows
DRAW, PICK = 1, 2  # what further random numbers of a row are for: randomised methods, clusters
MAX_LABELS = 10**5  # that are calibrated by themselves
MAX_CATEGORIES = 10**7  # cells times such labels
MAX_WEIGHT, NEW_WEIGHT = 10**6, 2**48  # of a calibration row, of a row to come: sums are exact

Answer = Callable[[Any, "Batch"], FloatArray]


def further_uniforms(u: FloatArray, purpose: int) -> FloatArray:
    """Return another number in [0, 1) per row, independent of ``u`` and of other purposes."""
    return row_draws(u, purpose)[-1]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that ask for prediction sets."""

    people: pd.DataFrame  # (n, n_sensitive) sensitive columns in canonical form
    proba: FloatArray  # (n, n_classes)
    scores: FloatArray  # (n, n_classes) conformity score of every label
    u: Any  # (n,) the random number of each row; None if nothing depends on it
    # (n, 1), or (n, n_classes) if labels weigh: how much more frequent such rows are where sets are
    # used than where they were calibrated; None if the population is the same
    weights: IntArray | None = None
    # the first position of each distinct row of people, and which of them each row equals; None if
    # hardly any are equal
    repeated: tuple[IntArray, IntArray] | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def by_people(self, answer: Callable[[pd.DataFrame], Any]) -> Any:
        """Return ``answer(people)``, worked out once for equal people."""
        if self.repeated is None:
            return answer(self.people)
        first, which = self.repeated
        return answer(self.people.iloc[first].reset_index(drop=True))[which]

    def labelled(self, y: IntArray, clusters: IntArray | None = None) -> Labelled:
        """Keep what rows with known labels teach; ``y`` holds the column of each, -1 if unknown."""
        rows, known, weights = np.arange(len(y)), y >= 0, self.weights
        surprise = np.where(known, (self.proba**2).sum(axis=1) - self.proba[rows, y], 1.0)
        score = np.where(known, self.scores[rows, y], np.inf)
        if weights is not None:
            weights = np.broadcast_to(weights, self.scores.shape)[rows, y]
        n_classes = self.scores.shape[1]
        return Labelled(self.people, score, y, n_classes, self.u, surprise, clusters, weights)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows whose true label is known: they teach or calibrate."""

    people: pd.DataFrame  # (n, n_sensitive) sensitive columns in canonical form
    score: FloatArray  # (n,) score of the true label; infinite if the model does not know the label
    y: IntArray  # (n,) column of the true label, -1 if the model does not know it
    n_classes: int
    u: Any  # (n,) the random number of each row; None if nothing depends on it
    # (n,) sum_k p_k^2 - p_y, how much less probability the true label got than the model expects of
    # itself; 1 if the model does not know the label
    surprise: FloatArray
    clusters: IntArray | None = None  # (n,) whose rows they are, from 0
    weights: IntArray | None = None  # (n,) as those of a batch

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
        own = {name: array[rows] for name, array in arrays.items() if array is not None}
        return replace(self, people=self.people.iloc[rows].reset_index(drop=True), **own)

    @classmethod
    def joined(cls, parts: Sequence[Labelled]) -> Labelled:
        """Put parts of one table together again."""
        present = [name for name in ARRAYS if getattr(parts[0], name) is not None]
        own: Any = {name: np.concatenate([getattr(p, name) for p in parts]) for name in present}
        people = pd.concat([part.people for part in parts], ignore_index=True)
        return replace(parts[0], people=people, **own)

    def independent_rows(self) -> IntArray:
        """Return the numbers of rows of which no two belong together: one at random per cluster."""
        if self.clusters is None:
            return np.arange(len(self))
        # Each row of a person is as likely as any other to have the smallest random number, and
        # the draw does not depend on the order of the rows.
        order = np.lexsort((further_uniforms(self.u, PICK), self.clusters))
        first = np.unique(self.clusters[order], return_index=True)[1]
        return np.sort(order[first])

    def one_of_each_cluster(self) -> Labelled:
        """Return one row of each cluster, drawn at random; all rows without clusters."""
        return self if self.clusters is None else self.take(self.independent_rows())


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
        require(type(self.new) is int and 1 <= self.new <= NEW_WEIGHT, "new")
        self.check_codes(self.labels, -1, self.n_labels, "labels")
        self.check_codes(self.sizes, 1, len(self) + 1, "sizes")
        self.check_codes(self.weights, 0, MAX_WEIGHT + 1, "weights")

    @classmethod
    def from_rows(cls, rows: Labelled, *, label_conditional: bool) -> Self:
        """Take the scores of rows with labels."""
        labels, n_labels = (rows.y, rows.n_classes) if label_conditional else (None, 1)
        of = rows.clusters
        sizes = None if of is None else np.bincount(of)[of].astype(np.int64)
        new = 1 if rows.weights is None else max(1, round(float(rows.weights.mean())))
        return cls(rows.score, labels, n_labels, sizes, rows.weights, new)

    def __len__(self) -> int:
        return len(self.score)

    @property
    def n_people(self) -> int:
        """Number of people who calibrate: of clusters, or of rows if there are none."""
        return len(self) if self.sizes is None else round(float((1 / self.sizes).sum()))

    @property
    def row_labels(self) -> IntArray:
        """The label that each row calibrates, or zero if all are calibrated together: (n,)."""
        return np.zeros(len(self), dtype=np.int64) if self.labels is None else self.labels

    def sorted(self, cells: IntArray, n_cells: int, rows: Any = slice(None)) -> CalibrationScores:
        """Sort the scores of some rows, given by a mask, by their cell."""
        sizes = None if self.sizes is None else self.sizes[rows]
        weights = None if self.weights is None else self.weights[rows]
        own = self.score[rows], cells[rows], n_cells
        return CalibrationScores.sort(*own, sizes, weights, self.new)

    def sorted_by(self, cells: IntArray, n_cells: int) -> CalibrationScores:
        """Sort the scores by category: a cell, or a label in one; negative cells do not count."""
        n_categories, problems = n_cells * self.n_labels, self.row_labels
        require(n_categories <= MAX_CATEGORIES, "n_cells")
        inside = (problems >= 0) & (cells >= 0)
        return self.sorted(np.where(inside, cells * self.n_labels + problems, -1), n_categories)

    def categories(self, cells: IntArray) -> IntArray:
        """Return the categories of other rows, shape (n, n_labels); negative for no cell."""
        first = cells[:, None] * self.n_labels
        return np.where(first >= 0, first + np.arange(self.n_labels), -1)

    def split_thresholds(self, alpha: float) -> FloatArray:
        """Return the thresholds of split conformal sets with the same rows, shape (n_labels,)."""
        return self.sorted_by(np.zeros(len(self), dtype=np.int64), 1).quantiles(alpha)[:-1]

    def check_codes(self, codes: IntArray | None, lowest: int, end: int, name: str) -> None:
        """Refuse what is not one whole number per row, from ``lowest`` to below ``end``."""
        if codes is not None:
            require(codes.dtype == np.int64 and codes.shape == (len(self),), name)
            require(((codes >= lowest) & (codes < end)).all(), name)


class Calibration:
    """What every calibration has next to its ``thresholds(batch)``."""

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
        for weight in np.unique(weights).tolist():
            here = weights == weight
            rows = np.flatnonzero(here.any(axis=1))
            some = batch.people.iloc[rows].reset_index(drop=True)
            u = None if batch.u is None else batch.u[rows]
            own = Batch(some, batch.proba[rows], batch.scores[rows], u)
            answers = answer(self.with_sample(replace(self.sample, new=weight)), own)
            found[rows] = np.where(here[rows], answers, found[rows])
        return found

    return weighted


def warn_of_full_sets(calibration: Any, classes: Any, alpha: float) -> None:
    """Warn if some people get full sets; labels that the estimator never saw may be the cause."""
    sample, full = calibration.sample, list(calibration.full_sets())
    unknown = np.isinf(sample.score).mean()
    if not full or unknown > alpha:  # of so many unknown labels, a warning has been given
        return
    group, label = full[0]
    others = f" and {len(full) - 1} more" if len(full) > 1 else ""
    of_label = "" if sample.labels is None else f" with label {classes[label]}"
    unit = "calibration points" if sample.sizes is None else "clusters of calibration rows"
    warn(
        f"fewer than {math.ceil(1 / alpha) - 1} {unit}"
        f"{', or too many with labels that the estimator never saw,' if unknown else ''} for "
        f"{group_name(group)}{of_label}{others}: every such label is kept in the set; give more "
        "rows or coarser groups"
    )


def warn_of_full_rows(full: BoolArray, where: str, fix: str = "coarser groups") -> None:
    """Warn of rows that have full sets, if there are any."""
    if full.any():
        warn(
            f"{int(full.sum())} of {len(full)} rows {where}: every label that lacks calibration "
            f"points is kept in the set; give more rows or {fix}"
        )
