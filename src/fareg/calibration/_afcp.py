"""Calibration for the feature that looks worst for a test row: AFCP of Zhou & Sesia (2024).

Of N calibration points and a new one, a point is miscovered if its score exceeds their k-th
smallest, ``k = ceil((N + 1)(1 - alpha))``. With sorted calibration scores c and the new score t,
that value is ``c[k]`` if ``t >= c[k]`` and ``max(t, c[k-1])`` otherwise. So calibration points are
miscovered above ``c[k]`` or above ``c[k-1]``, and the new point if ``t > c[k]``. There are only
three cases, t below, at or above ``c[k]``, and all are computed once, in advance.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pandas as pd
from scipy import stats

from fareg._levels import LevelCoding
from fareg._rows import cell_numbers, distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray, require
from fareg.calibration._batch import (
    MAX_CATEGORIES,
    Batch,
    Calibration,
    Labelled,
    Sample,
    warn_of_full_rows,
)
from fareg.pvalues import CalibrationScores, conformal_rank

SIGNIFICANCE = 0.1  # of the one-sided t-test in the published rule


@dataclass(frozen=True, eq=False)
class SelectedLevels(Calibration):
    """Calibrated categories of the features that are selected for each row."""

    coding: LevelCoding  # sensitive features as category codes
    sample: Sample
    levels: IntArray  # (n, n_features) category codes of the calibration rows
    n_select: int | None  # how many features are selected; None for the published rule
    alpha: float
    boundary: FloatArray = field(init=False, repr=False)  # (n_labels,) c[k], or infinite
    # (3, n_labels, n_categories) rank of the worst category of a feature, by case, label and the
    # category of the row
    worst: IntArray = field(init=False, repr=False)
    # (n_ranks,) whether the t-test finds the miscoverage of a category of this rank above alpha
    significant: BoolArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sample, levels = self.sample, self.levels
        shape = (len(sample), len(self.coding.levels))
        require(levels.shape == shape and levels.dtype == np.int64, "levels")
        require(((levels >= 0) & (levels < self.coding.n_categories)).all(), "levels")
        require((sample.row_labels >= 0).all(), "labels")
        first = self._first_columns
        require(first[-1] * sample.n_labels <= MAX_CATEGORIES, "levels")
        previous, boundary = _boundaries(sample, self.alpha)
        columns = sample.row_labels[:, None] * first[-1] + first[:-1] + levels

        def count(rows: BoolArray) -> IntArray:
            counts = np.bincount(columns[rows].ravel(), minlength=sample.n_labels * first[-1])
            return counts.reshape(sample.n_labels, first[-1])

        n = count(np.ones(len(sample), dtype=bool))
        low, high = (count(sample.score > c[sample.row_labels]) for c in (previous, boundary))
        miscovered = np.stack([low, high, high])
        new_miscovered = np.array([0, 0, 1])[
            :, None, None
        ]  # the new point itself is miscovered above c[k]
        # rate and size of a category without and with the new point; the rate of no rows is -1
        without = np.where(n > 0, miscovered / np.maximum(n, 1), -1.0)
        rates = np.stack([without, (miscovered + new_miscovered) / (n + 1)])
        sizes = np.broadcast_to(np.stack([n, n + 1])[:, None], rates.shape)
        # the larger rate is worse; of equal rates, the one of more rows
        pairs = np.column_stack([rates.ravel(), sizes.ravel()])
        pairs, ranks = np.unique(pairs, axis=0, return_inverse=True)
        without_new, with_new = ranks.reshape(rates.shape)
        blocks = (without_new[..., start:end] for start, end in itertools.pairwise(first))
        worst = np.maximum(with_new, np.concatenate(list(map(_max_of_others, blocks)), axis=2))
        significant = _exceeds(pairs[:, 0], pairs[:, 1], self.alpha)
        vars(self).update(boundary=boundary, worst=worst, significant=significant)

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
        if label_conditional:  # unknown labels calibrate nothing
            rows = rows.take(np.flatnonzero(rows.y >= 0))
        sample = Sample.from_rows(rows, label_conditional=label_conditional)
        return cls(coding, sample, coding.codes(rows.people), n_select, alpha)

    def thresholds(self, batch: Batch) -> FloatArray:
        thresholds = np.full((len(batch), self.sample.n_labels), -np.inf)
        for rows, table, categories in self._selections(batch):
            selected = table.quantiles(self.alpha)[categories]
            thresholds[rows] = np.maximum(thresholds[rows], selected)
        return thresholds

    def pvalues(self, batch: Batch) -> FloatArray:
        p = np.zeros_like(batch.scores)
        for rows, table, categories in self._selections(batch):
            p[rows] = np.maximum(p[rows], table.pvalues(batch.scores[rows], categories))
        return p

    def selected(self, batch: Batch) -> IntArray:
        """Return the features selected with each placeholder label, sorted, -1 for none.

        The shape is (n_samples, n_classes, n_select or 1).
        """
        codes = self.coding.codes(batch.people)
        # an unseen category is the last of its feature
        columns = self._first_columns[:-1] + np.where(codes >= 0, codes, self.coding.n_categories)
        case = (batch.scores >= self.boundary).astype(np.int64) + (batch.scores > self.boundary)
        label = np.arange(batch.scores.shape[1]) % len(self.boundary)
        ranks = self.worst[case[:, :, None], label[:, None], columns[:, None, :]]
        if self.n_select is None:
            best = ranks.argmax(axis=2)[..., None]
            passed = self.significant[np.take_along_axis(ranks, best, axis=2)]
            return np.where(passed, best, -1)
        # a stable sort takes the first of equally bad features
        return np.sort(np.argsort(-ranks, axis=2, kind="stable")[..., : self.n_select], axis=2)

    @property
    def _first_columns(self) -> IntArray:
        """The first column of each feature's categories, "unseen" last, and their total number."""
        return np.cumsum([0, *(n + 1 for n in self.coding.n_categories)])

    def _selections(self, batch: Batch) -> Iterator[tuple[BoolArray, CalibrationScores, IntArray]]:
        """Yield a mask of rows, the scores that calibrate them, and the rows' categories.

        The first mask has all rows. Each further one belongs to a selection of features and has
        the rows for which some placeholder label led to that selection.
        """
        codes, selected = self.coding.codes(batch.people), self.selected(batch)
        everyone, full = np.ones(len(batch), dtype=bool), np.zeros(len(batch), dtype=bool)
        yield everyone, *self._calibrate_cells((), codes)
        first, which = distinct_rows(pd.DataFrame(selected.reshape(-1, selected.shape[2])))
        which = which.reshape(selected.shape[:2])
        for number, features in enumerate(selected.reshape(-1, selected.shape[2])[first].tolist()):
            if features[0] >= 0:  # otherwise nothing was selected
                rows = (which == number).any(axis=1)
                table, categories = self._calibrate_cells(tuple(features), codes[rows])
                full[rows] |= np.isinf(table.quantiles(self.alpha)[categories]).any(axis=1)
                yield rows, table, categories
        warn_of_full_rows(full, "fall into a selected cell with too few calibration points")

    def _calibrate_cells(
        self, features: tuple[int, ...], codes: IntArray
    ) -> tuple[CalibrationScores, IntArray]:
        """Calibrate the joint cells of some features; return categories of the rows ``codes``."""
        if not features:
            zeros = np.zeros(max(len(codes), len(self.levels)), dtype=np.int64)
            table = self.sample.sorted_by(zeros[: len(self.levels)], 1)
            return table, self.sample.categories(zeros[: len(codes)])
        known = np.unique(self.levels[:, features], axis=0)
        cells = cell_numbers(known, self.levels[:, features])
        new_cells = cell_numbers(known, codes[:, features])
        return self.sample.sorted_by(cells, len(known)), self.sample.categories(new_cells)


def _boundaries(sample: Sample, alpha: float) -> FloatArray:
    """Return c[k-1] and c[k] of each label; -inf and inf if there is no such score."""
    pairs = []
    for label in range(sample.n_labels):
        scores = sample.score[sample.row_labels == label]
        k = conformal_rank(len(scores), alpha)
        pairs.append(np.concatenate([[-np.inf], np.sort(scores), [np.inf]])[k - 1 : k + 1])
    return np.array(pairs).T


def _max_of_others(ranks: IntArray) -> IntArray:
    """Return for each column the largest value in the other columns, -1 if it is the only one."""
    padded = np.pad(ranks, [(0, 0)] * (ranks.ndim - 1) + [(1, 0)], constant_values=-1)
    second, first = np.split(np.sort(padded)[..., -2:], 2, axis=-1)
    return np.where(ranks == first, second, first)


def _exceeds(rates: FloatArray, sizes: FloatArray, alpha: float) -> BoolArray:
    """Test ``rate > alpha`` by a one-sided t-test on ``sizes`` zeros and ones with that mean."""
    above = (rates > alpha) & (sizes >= 2)  # a single point has no variance, so it is no evidence
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (rates - alpha) / np.sqrt(rates * (1 - rates) / (sizes - 1))
    p = stats.t.sf(np.where(above, t, 0.0), np.maximum(sizes - 1, 1))
    return above & (p < SIGNIFICANCE)
