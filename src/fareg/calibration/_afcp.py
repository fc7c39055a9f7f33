"""Calibration for the feature that looks worst for a test row: AFCP of Zhou & Sesia (2024)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pandas as pd
from scipy import stats

from fareg._levels import LevelCoding, cell_numbers, distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray, require
from fareg.calibration._batch import Batch, Labelled
from fareg.calibration._mondrian import check_coding
from fareg.calibration._sample import MAX_CATEGORIES, Calibration, Sample
from fareg.pvalues import CalibrationScores, conformal_rank

SIGNIFICANCE = 0.1  # of the one-sided t-test in the published rule

# Where the new score t lies beside the boundary b, the k-th smallest calibration score: below, at,
# above. That alone decides which points of the augmented set are miscovered.
N_POSITIONS = 3


@dataclass(frozen=True)
class WorstLevels:
    """The worst level of every feature, for every way in which one new point can change it.

    A point of the augmented set is miscovered if its p-value among all N + 1 points is at most
    alpha, that is, if its score exceeds the k-th smallest, ``k = ceil((N + 1)(1 - alpha))``. With
    sorted calibration scores c and a new score t, that value is ``c[k]`` if ``t >= c[k]`` and
    ``max(t, c[k-1])`` otherwise. So calibration points are miscovered above ``c[k]`` or above
    ``c[k-1]``, the new point if ``t > c[k]``: three cases, whatever t is.
    """

    boundary: FloatArray  # (n_problems,) c[k] of the problem, infinite when k > N
    first: IntArray  # (n_features,) where the levels of a feature begin, "unseen" is its last
    worst: IntArray  # (n_positions * n_problems, n_levels) rank of the worst level, by own level
    significant: BoolArray  # (n_ranks,) whether the t-test finds such a level's rate above alpha

    @classmethod
    def of(
        cls, sample: Sample, levels: IntArray, n_levels: tuple[int, ...], alpha: float
    ) -> WorstLevels:
        """Count miscovered points per level; every label may be a problem of its own."""
        scores, problems, n_problems = sample.score, sample.problems, sample.n_labels
        first = np.concatenate([[0], np.cumsum(np.asarray(n_levels) + 1)])
        before, boundary = _boundaries(scores, problems, n_problems, alpha)
        cells = problems[:, None] * first[-1] + first[:-1] + levels

        def per_level(chosen: BoolArray) -> IntArray:
            counts = np.bincount(cells[chosen].ravel(), minlength=n_problems * first[-1])
            return counts.reshape(n_problems, first[-1])

        n = per_level(np.ones(len(scores), dtype=bool))
        low, high = per_level(scores > before[problems]), per_level(scores > boundary[problems])
        miscovered = np.stack([low, high, high])
        joins = np.array([0, 0, 1])[:, None, None]  # the new point itself is miscovered above b
        # a level's (rate, size) without the new point and with it; the rate of no rows is -1
        rates = np.stack([np.where(n > 0, miscovered / np.maximum(n, 1), -1.0)] * 2)
        rates[1] = (miscovered + joins) / (n + 1)
        sizes = np.broadcast_to(np.stack([n, n + 1])[:, None], rates.shape)
        # worse is the larger rate; of equal rates, the one with more evidence
        pairs, ranks = np.unique(
            np.column_stack([rates.ravel(), sizes.ravel()]), axis=0, return_inverse=True
        )
        without, own = ranks.reshape(2, N_POSITIONS * n_problems, first[-1])
        blocks = (without[:, start:end] for start, end in itertools.pairwise(first))
        others = np.hstack([_max_of_others(block) for block in blocks])
        significant = _exceeds(pairs[:, 0], pairs[:, 1], alpha)
        return cls(boundary, first[:-1], np.maximum(own, others), significant)

    def select(
        self, scores: FloatArray, levels: IntArray, n_levels: tuple[int, ...], n_select: int | None
    ) -> IntArray:
        """Return the features selected with each placeholder label.

        ``scores`` has shape (n_samples, n_classes), ``levels`` (n_samples, n_features) with -1 for
        a level never seen. ``n_select`` features are selected; None selects the worst one if its
        t-test is significant, else none. The answer has shape (n_samples, n_classes, n_select or
        1): feature numbers in rising order, -1 for none.
        """
        columns = self.first + np.where(levels >= 0, levels, n_levels)
        n_problems = len(self.boundary)
        position = (scores >= self.boundary).astype(np.int64) + (scores > self.boundary)
        if n_problems == 1:  # all labels share one problem, so a row has three cases
            cases = np.arange(N_POSITIONS)[None, :]
        else:
            cases = position * n_problems + np.arange(n_problems)
        ranks = self.worst[cases[:, :, None], columns[:, None, :]]
        if n_select is None:
            best = ranks.argmax(axis=2)[..., None]
            passed = self.significant[np.take_along_axis(ranks, best, axis=2)]
            selected = np.where(passed, best, -1)
        else:  # a stable sort takes the first of equally bad features
            order = np.argsort(-ranks, axis=2, kind="stable")[..., :n_select]
            selected = np.sort(order, axis=2)
        if n_problems == 1:
            selected = np.take_along_axis(selected, position[..., None], axis=1)
        return selected


def _boundaries(
    scores: FloatArray, problems: IntArray, n_problems: int, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the (k-1)-th and the k-th smallest score of each problem.

    They are -inf and inf where there is no such score.
    """
    table = CalibrationScores.sort(scores, problems, n_problems)
    k = conformal_rank(table.counts, alpha)
    rising = np.append(table.pooled[table.keys % (len(scores) + 1)], 0.0)  # problem by problem
    before = np.where(k >= 2, rising[np.maximum(table.starts[:-1] + k - 2, 0)], -np.inf)
    return before, table.quantiles(alpha)[:-1]


def _max_of_others(ranks: IntArray) -> IntArray:
    """Return for each column the largest value in the other columns, -1 if there are none."""
    rising = np.sort(np.pad(ranks, ((0, 0), (1, 0)), constant_values=-1), axis=1)
    return np.where(ranks == rising[:, -1:], rising[:, -2:-1], rising[:, -1:])


def _exceeds(rates: FloatArray, sizes: FloatArray, alpha: float) -> BoolArray:
    """Test ``rate > alpha`` by a one-sided t-test on ``sizes`` zeros and ones with that mean."""
    above = (rates > alpha) & (sizes >= 2)  # a single point has no variance, so it is no evidence
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (rates - alpha) / np.sqrt(rates * (1 - rates) / (sizes - 1))
    p = stats.t.sf(np.where(above, t, 0.0), np.maximum(sizes - 1, 1))
    return above & (p < SIGNIFICANCE)


@dataclass(frozen=True, eq=False)
class SelectedLevels(Calibration):
    """Calibrated levels of the features that are selected for each row, within labels if wanted."""

    coding: LevelCoding  # sensitive features as level numbers
    sample: Sample
    levels: IntArray  # (n, n_features) of the calibration rows
    n_select: int | None  # how many features are selected; None for the published rule
    alpha: float
    worst: WorstLevels = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape = (len(self.sample), len(self.coding.levels))
        require(self.levels.shape == shape and self.levels.dtype == np.int64, "levels")
        require(((self.levels >= 0) & (self.levels < self.coding.n_levels)).all(), "levels")
        require((self.sample.problems >= 0).all(), "labels")
        n_cells = sum(self.coding.n_levels) + len(self.coding.levels)
        require(n_cells * self.sample.n_labels <= MAX_CATEGORIES, "levels")
        worst = WorstLevels.of(self.sample, self.levels, self.coding.n_levels, self.alpha)
        vars(self).update(worst=worst)

    @classmethod
    def fit(
        cls,
        coding: LevelCoding,
        rows: Labelled,
        alpha: float,
        *,
        n_select: int | None,
        label_conditional: bool,
    ) -> Self:
        """Calibrate on rows with labels, one of each cluster."""
        rows = rows.one_of_each_cluster()
        if label_conditional:  # an unknown label has no problem of its own
            rows = rows.take(np.flatnonzero(rows.y >= 0))
        sample = Sample.of(rows, label_conditional=label_conditional)
        return cls(coding, sample, coding.codes(rows.people), n_select, alpha)

    def thresholds(self, batch: Batch) -> FloatArray:
        """Return thresholds of shape (n_samples, n_labels)."""
        thresholds = np.full((len(batch), self.sample.n_labels), -np.inf)
        for members, table, categories in self._views(batch):
            own = table.quantiles(self.alpha)[categories]
            thresholds[members] = np.maximum(thresholds[members], own)
        return thresholds

    def pvalues(self, batch: Batch) -> FloatArray:
        """Return p-values of shape (n_samples, n_classes)."""
        p = np.zeros_like(batch.scores)
        for members, table, categories in self._views(batch):
            own = table.pvalues(batch.scores[members], categories)
            p[members] = np.maximum(p[members], own)
        return p

    def selected(self, batch: Batch) -> IntArray:
        """Return the features selected with each placeholder label, see ``WorstLevels.select``."""
        levels = self.coding.codes(batch.people)
        return self.worst.select(batch.scores, levels, self.coding.n_levels, self.n_select)

    def _check_parts(self, batch: Batch) -> None:
        check_coding(self.coding, batch)

    def _views(self, batch: Batch) -> Iterator[tuple[BoolArray, CalibrationScores, IntArray]]:
        """Yield which rows a view holds, the scores that calibrate them, and their categories.

        The first view holds all rows. Each further one belongs to a selection of features and holds
        the rows for which some placeholder label led to that selection.
        """
        levels, selected = self.coding.codes(batch.people), self.selected(batch)
        everyone = np.ones(len(levels), dtype=bool)
        yield everyone, *self._calibration_of((), levels)
        full = np.zeros(len(levels), dtype=bool)
        for features, members in _distinct_selections(selected):
            table, categories = self._calibration_of(features, levels[members])
            full[members] |= np.isinf(table.quantiles(self.alpha)[categories]).any(axis=1)
            yield members, table, categories
        where = "fall into a selected cell with too few calibration points"
        self.sample.warn_of_full_rows(full, where, "coarser groups")

    def _calibration_of(
        self, features: tuple[int, ...], levels: IntArray
    ) -> tuple[CalibrationScores, IntArray]:
        """Calibrate the joint cells of some features; return categories of the rows ``levels``."""
        cells = np.zeros(len(self.sample), dtype=np.int64)
        own, n_cells = np.zeros(len(levels), dtype=np.int64), 1
        if features:
            seen = self.levels[:, features]
            known = pd.DataFrame(seen).drop_duplicates().to_numpy()
            cells, own = cell_numbers(known, seen), cell_numbers(known, levels[:, features])
            n_cells = len(known)
        return self.sample.sorted_by(cells, n_cells), self.sample.categories(own)


def _distinct_selections(selected: IntArray) -> Iterator[tuple[tuple[int, ...], BoolArray]]:
    """Yield each selection of features that occurs, and the rows where some label led to it."""
    selections = selected.reshape(-1, selected.shape[2])
    first, which = distinct_rows(pd.DataFrame(selections))
    which = which.reshape(selected.shape[:2])
    for number, selection in enumerate(selections[first]):
        if selection[0] >= 0:  # otherwise nothing was selected
            yield tuple(int(feature) for feature in selection), (which == number).any(axis=1)
