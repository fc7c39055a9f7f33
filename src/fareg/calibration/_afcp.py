"""Calibration for the feature that looks worst for a test row: AFCP of Zhou & Sesia (2024).

A point of the calibration rows and a new one, N + 1 together, is miscovered if its score exceeds
their k-th smallest, ``k = ceil((N + 1)(1 - alpha))``. With sorted calibration scores c and a new
score t, that value is ``c[k]`` if ``t >= c[k]`` and ``max(t, c[k-1])`` otherwise. So calibration
points are miscovered above ``c[k]`` or above ``c[k-1]``, and the new point if ``t > c[k]``. So t
leads to one of three cases: it lies below, at or above ``c[k]``. All are known before a row asks.
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
    """Calibrated levels of the features that are selected for each row, within labels if wanted."""

    coding: LevelCoding  # sensitive features as level numbers
    sample: Sample
    levels: IntArray  # (n, n_features) of the calibration rows
    n_select: int | None  # how many features are selected; None for the published rule
    alpha: float
    boundary: FloatArray = field(init=False, repr=False)  # (n_problems,) c[k], or infinite
    # (3, n_problems, n_levels) rank of the worst level of a feature, by case, label and own level
    worst: IntArray = field(init=False, repr=False)
    # (n_ranks,) whether the t-test finds the rate of such a level above alpha
    significant: BoolArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sample, levels = self.sample, self.levels
        shape = (len(sample), len(self.coding.levels))
        require(levels.shape == shape and levels.dtype == np.int64, "levels")
        require(((levels >= 0) & (levels < self.coding.n_levels)).all(), "levels")
        require((sample.row_labels >= 0).all(), "labels")
        first = self._first_levels
        require(first[-1] * sample.n_labels <= MAX_CATEGORIES, "levels")
        before, boundary = _boundaries(sample, self.alpha)
        cells = sample.row_labels[:, None] * first[-1] + first[:-1] + levels

        def per_level(chosen: BoolArray) -> IntArray:
            counts = np.bincount(cells[chosen].ravel(), minlength=sample.n_labels * first[-1])
            return counts.reshape(sample.n_labels, first[-1])

        n = per_level(np.ones(len(sample), dtype=bool))
        low, high = (per_level(sample.score > c[sample.row_labels]) for c in (before, boundary))
        miscovered = np.stack([low, high, high])
        joins = np.array([0, 0, 1])[:, None, None]  # the new point itself is miscovered above c[k]
        # a level's rate and size without the new point and with it; the rate of no rows is -1
        without = np.where(n > 0, miscovered / np.maximum(n, 1), -1.0)
        rates = np.stack([without, (miscovered + joins) / (n + 1)])
        sizes = np.broadcast_to(np.stack([n, n + 1])[:, None], rates.shape)
        # worse is the larger rate; of equal rates, the one with more evidence
        pairs = np.column_stack([rates.ravel(), sizes.ravel()])
        pairs, ranks = np.unique(pairs, axis=0, return_inverse=True)
        others, own = ranks.reshape(rates.shape)
        blocks = (others[..., start:end] for start, end in itertools.pairwise(first))
        worst = np.maximum(own, np.concatenate([_max_of_others(block) for block in blocks], axis=2))
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
        if label_conditional:  # an unknown label has no problem of its own
            rows = rows.take(np.flatnonzero(rows.y >= 0))
        sample = Sample.from_rows(rows, label_conditional=label_conditional)
        return cls(coding, sample, coding.codes(rows.people), n_select, alpha)

    def thresholds(self, batch: Batch) -> FloatArray:
        thresholds = np.full((len(batch), self.sample.n_labels), -np.inf)
        for members, table, categories in self._views(batch):
            own = table.quantiles(self.alpha)[categories]
            thresholds[members] = np.maximum(thresholds[members], own)
        return thresholds

    def pvalues(self, batch: Batch) -> FloatArray:
        p = np.zeros_like(batch.scores)
        for members, table, categories in self._views(batch):
            own = table.pvalues(batch.scores[members], categories)
            p[members] = np.maximum(p[members], own)
        return p

    def selected(self, batch: Batch) -> IntArray:
        """Return the features selected with each placeholder label, in rising order, -1 for none.

        The shape is (n_samples, n_classes, n_select or 1).
        """
        levels = self.coding.codes(batch.people)
        # a level that was never seen is the last of its feature
        columns = self._first_levels[:-1] + np.where(levels >= 0, levels, self.coding.n_levels)
        case = (batch.scores >= self.boundary).astype(np.int64) + (batch.scores > self.boundary)
        problem = np.arange(batch.scores.shape[1]) % len(self.boundary)
        ranks = self.worst[case[:, :, None], problem[:, None], columns[:, None, :]]
        if self.n_select is None:
            best = ranks.argmax(axis=2)[..., None]
            passed = self.significant[np.take_along_axis(ranks, best, axis=2)]
            return np.where(passed, best, -1)
        # a stable sort takes the first of equally bad features
        return np.sort(np.argsort(-ranks, axis=2, kind="stable")[..., : self.n_select], axis=2)

    @property
    def _first_levels(self) -> IntArray:
        """Where the levels of each feature begin, "unseen" is its last, and where they end."""
        return np.cumsum([0, *(n + 1 for n in self.coding.n_levels)])

    def _views(self, batch: Batch) -> Iterator[tuple[BoolArray, CalibrationScores, IntArray]]:
        """Yield which rows a view holds, the scores that calibrate them, and their categories.

        The first view holds all rows. Each further one belongs to a selection of features and holds
        the rows for which some placeholder label led to that selection.
        """
        levels, selected = self.coding.codes(batch.people), self.selected(batch)
        everyone, full = np.ones(len(batch), dtype=bool), np.zeros(len(batch), dtype=bool)
        yield everyone, *self._calibration_of((), levels)
        first, which = distinct_rows(pd.DataFrame(selected.reshape(-1, selected.shape[2])))
        which = which.reshape(selected.shape[:2])
        for number, features in enumerate(selected.reshape(-1, selected.shape[2])[first].tolist()):
            if features[0] >= 0:  # otherwise nothing was selected
                members = (which == number).any(axis=1)
                table, categories = self._calibration_of(tuple(features), levels[members])
                full[members] |= np.isinf(table.quantiles(self.alpha)[categories]).any(axis=1)
                yield members, table, categories
        warn_of_full_rows(full, "fall into a selected cell with too few calibration points")

    def _calibration_of(
        self, features: tuple[int, ...], levels: IntArray
    ) -> tuple[CalibrationScores, IntArray]:
        """Calibrate the joint cells of some features; return categories of the rows ``levels``."""
        if not features:
            zeros = np.zeros(max(len(levels), len(self.levels)), dtype=np.int64)
            table = self.sample.sorted_by(zeros[: len(self.levels)], 1)
            return table, self.sample.categories(zeros[: len(levels)])
        known = np.unique(self.levels[:, features], axis=0)
        cells = cell_numbers(known, self.levels[:, features])
        own = cell_numbers(known, levels[:, features])
        return self.sample.sorted_by(cells, len(known)), self.sample.categories(own)


def _boundaries(sample: Sample, alpha: float) -> FloatArray:
    """Return c[k-1] and c[k] of each problem; -inf and inf where there is no such score."""
    found = []
    for label in range(sample.n_labels):
        scores = sample.score[sample.row_labels == label]
        k = conformal_rank(len(scores), alpha)
        found.append(np.concatenate([[-np.inf], np.sort(scores), [np.inf]])[k - 1 : k + 1])
    return np.array(found).T


def _max_of_others(ranks: IntArray) -> IntArray:
    """Return for each column the largest value in the other columns, -1 if there are none."""
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
