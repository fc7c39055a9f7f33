"""Calibration within cells: the rows of a cell are calibrated on the cell's own points.

A *view* divides rows into cells; a calibration has one view or several, and its set is the union
over the views. With views fixed before calibration, ``P(Y in C(X) | X in cell) >= 1 - alpha`` for
every cell of every view (Vovk et al. 2003).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from fareg._levels import LevelCoding, cell_numbers
from fareg._validation import FloatArray, IntArray, warn
from fareg.calibration._calibration import Calibration, FullSet
from fareg.calibration._people import cluster_sizes
from fareg.calibration._rows import Rows, require
from fareg.pvalues import CalibrationScores

ABSENT = -2  # the cell of a row that a view says nothing about


class Views(Protocol):
    """Divides rows into cells, in one way or in several.

    Views that come back from a file also have ``check(rows)``, which refuses parts that contradict
    each other or the answers to ``rows``.
    """

    @property
    def n_cells(self) -> tuple[int, ...]:
        """Number of cells of each view."""

    def cells(self, rows: Rows) -> IntArray:
        """Return cells of shape (n_views, n_samples), -1 for one never seen, or ``ABSENT``."""

    def describe(self, view: int, cell: int) -> str:
        """Name a cell in words."""


@dataclass(frozen=True)
class Everyone:
    """One view with one cell: all rows."""

    n_cells = (1,)

    def cells(self, rows: Rows) -> IntArray:
        return np.zeros((1, len(rows)), dtype=np.int64)

    def describe(self, view: int, cell: int) -> str:
        return "all rows"


@dataclass(frozen=True, eq=False)
class EveryFeature:
    """A view per sensitive feature; its cells are the feature's levels."""

    coding: LevelCoding

    @property
    def n_cells(self) -> tuple[int, ...]:
        return self.coding.n_levels

    def cells(self, rows: Rows) -> IntArray:
        codes = self.coding.codes(rows.columns)
        _warn_of_unseen(np.any(codes < 0, axis=1), "a level of a sensitive feature")
        return codes.T

    def describe(self, view: int, cell: int) -> str:
        return self.coding.levels[view].label(cell)

    def check(self, rows: Rows) -> None:
        check_coding(self.coding, rows)


@dataclass(frozen=True, eq=False)
class JointLevels:
    """One view; its cells are the combinations of levels that calibration saw."""

    coding: LevelCoding
    combinations: IntArray  # (n_cells, n_features)

    @property
    def n_cells(self) -> tuple[int, ...]:
        return (len(self.combinations),)

    def cells(self, rows: Rows) -> IntArray:
        cells = cell_numbers(self.combinations, self.coding.codes(rows.columns))
        _warn_of_unseen(cells < 0, "a combination of sensitive features")
        return cells[None]

    def describe(self, view: int, cell: int) -> str:
        features = range(len(self.coding.levels))
        return self.coding.describe(features, self.combinations[cell])

    def check(self, rows: Rows) -> None:
        require(self.combinations.shape[1:] == (len(self.coding.levels),), "combinations")
        known = np.unique(self.combinations, axis=0)
        require(np.array_equal(self.combinations, known), "combinations")
        check_coding(self.coding, rows)


def check_coding(coding: LevelCoding, rows: Rows) -> None:
    """Refuse levels that contradict each other."""
    for levels in coding.levels:
        require(isinstance(levels.name, str), "levels")
        if levels.edges is not None:
            n_bins = len(levels.values) - (None in levels.values)
            require((np.diff(levels.edges) > 0).all(), "edges")
            require(n_bins == len(levels.edges) + 1, "edges")
    require((coding.codes(rows.columns) < coding.n_levels).all(), "levels")


def _warn_of_unseen(unseen: Any, what: str) -> None:
    if unseen.any():
        warn(
            f"{int(unseen.sum())} of {len(unseen)} rows have {what} that calibration never "
            "saw: they get the full set, the only valid answer without data"
        )


@dataclass(frozen=True, eq=False)
class CellCalibration(Calibration):
    """Calibrated cells: what cannot be derived, and the thresholds that follow from it."""

    views: Any  # how rows fall into cells
    scores: FloatArray
    cells: IntArray  # (n_views, n)
    labels: IntArray | None
    n_labels: int
    alpha: float
    sizes: IntArray | None = None

    @classmethod
    def of(cls, views: Any, rows: Rows, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate the cells of views that were fixed before these rows were seen."""
        problems, sizes = rows.problems(label_conditional), cluster_sizes(rows.clusters)
        return cls(views, rows.own_scores, views.cells(rows), *problems, alpha, sizes)

    @cached_property
    def quantiles(self) -> list[FloatArray]:
        """Thresholds per view and category; the last entry is for categories never seen."""
        return [view.quantiles(self.alpha) for view in self._sorted]

    def thresholds(self, rows: Rows) -> FloatArray:
        largest = np.full((len(rows), self.n_labels), -np.inf)
        for quantiles, cells in zip(self.quantiles, self.views.cells(rows), strict=True):
            seen, unseen = quantiles[:-1].reshape(-1, self.n_labels), quantiles[-1]
            absent = np.full(self.n_labels, -np.inf)
            # The last two rows answer the cells ABSENT, which is -2, and -1, never seen.
            table = np.vstack([seen, absent, np.full(self.n_labels, unseen)])
            np.maximum(largest, table[cells], out=largest)
        return largest

    def pvalues(self, rows: Rows) -> FloatArray:
        p = np.zeros_like(rows.scores)
        for view, cells in zip(self._sorted, self.views.cells(rows), strict=True):
            of_view = view.pvalues(rows.scores, self.categories(cells))
            np.maximum(p, of_view, out=p, where=cells[:, None] != ABSENT)
        return p

    def full_sets(self) -> Iterator[FullSet]:
        for view, (table, quantiles) in enumerate(zip(self._sorted, self.quantiles, strict=True)):
            for category in np.flatnonzero(np.isinf(quantiles[:-1])):
                cell, label = divmod(int(category), self.n_labels)
                who = self.views.describe(view, cell)
                yield self.full_set(who, label, float(table.people[category]))

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        self.check_scores("scores", n_labels, alpha)
        n, n_cells = len(self.scores), self.views.n_cells
        require(self.cells.dtype == np.int64 and self.cells.shape == (len(n_cells), n), "cells")
        for cells, count in zip(self.cells, n_cells, strict=True):
            require(((cells >= ABSENT) & (cells < count)).all(), "cells")
        if hasattr(self.views, "check"):
            self.views.check(rows)

    @cached_property
    def _sorted(self) -> list[CalibrationScores]:
        """Scores sorted by category, one table per view."""
        views = zip(self.cells, self.views.n_cells, strict=True)
        return [self.sort_cells(cells, n_cells) for cells, n_cells in views]
