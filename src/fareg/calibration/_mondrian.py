"""Calibration within cells: the rows of a cell are calibrated on the cell's own rows.

If the cells are fixed before calibration, ``P(Y in C(X) | X in cell) >= 1 - alpha`` for every cell
(Vovk et al. 2003). One cell for everyone is split conformal prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from fareg._levels import LevelCoding, Levels, cell_numbers
from fareg._validation import FloatArray, IntArray, require, warn
from fareg.calibration._batch import Batch, Labelled
from fareg.calibration._sample import Calibration, FullSet, Sample
from fareg.pvalues import CalibrationScores

UNSEEN, ABSENT = -1, -2  # cells of rows that calibration never saw, and that no promise is about


class Groups(Protocol):
    """Divides rows into cells.

    Groups that come back from a file also have ``check(rows)``, which refuses parts that contradict
    each other or the answers to ``rows``.
    """

    @property
    def n_cells(self) -> int:
        """Number of cells."""

    def cells(self, rows: Batch | Labelled) -> IntArray:
        """Return the cell of each row, ``UNSEEN`` or ``ABSENT``."""

    def describe(self, cell: int) -> str:
        """Name a cell in words."""


@dataclass(frozen=True)
class Everyone:
    """One cell: all rows."""

    n_cells = 1

    def cells(self, rows: Batch | Labelled) -> IntArray:
        return np.zeros(len(rows), dtype=np.int64)

    def describe(self, cell: int) -> str:
        return "all rows"


@dataclass(frozen=True, eq=False)
class FeatureLevels:
    """The levels of one sensitive feature."""

    levels: Levels

    @property
    def n_cells(self) -> int:
        return len(self.levels.values)

    def cells(self, rows: Batch | Labelled) -> IntArray:
        return self.levels.codes(rows.people[self.levels.name])

    def describe(self, cell: int) -> str:
        return self.levels.label(cell)

    def check(self, rows: Batch) -> None:
        check_coding(LevelCoding((self.levels,)), rows)


@dataclass(frozen=True, eq=False)
class JointLevels:
    """The combinations of levels of all sensitive features that calibration saw."""

    coding: LevelCoding
    combinations: IntArray  # (n_cells, n_features)

    @classmethod
    def of(cls, coding: LevelCoding, rows: Labelled) -> Self:
        """List the combinations that these rows have."""
        return cls(coding, np.unique(coding.codes(rows.people), axis=0))

    @property
    def n_cells(self) -> int:
        return len(self.combinations)

    def cells(self, rows: Batch | Labelled) -> IntArray:
        return cell_numbers(self.combinations, self.coding.codes(rows.people))

    def describe(self, cell: int) -> str:
        return self.coding.describe(range(len(self.coding.levels)), self.combinations[cell])

    def check(self, rows: Batch) -> None:
        require(self.combinations.shape[1:] == (len(self.coding.levels),), "combinations")
        known = np.unique(self.combinations, axis=0)
        require(np.array_equal(self.combinations, known), "combinations")
        check_coding(self.coding, rows)


def check_coding(coding: LevelCoding, rows: Batch) -> None:
    """Refuse levels that contradict each other."""
    for levels in coding.levels:
        require(isinstance(levels.name, str), "levels")
        if levels.edges is not None:
            n_bins = len(levels.values) - (None in levels.values)
            require((np.diff(levels.edges) > 0).all(), "edges")
            require(n_bins == len(levels.edges) + 1, "edges")
    names = [levels.name for levels in coding.levels]
    require((coding.codes(rows.people[names]) < coding.n_levels).all(), "levels")


@dataclass(frozen=True, eq=False)
class Mondrian(Calibration):
    """Calibrated cells.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> score, u = np.array([0.1, 0.4, 0.2, 0.3]), np.full(4, 0.5)
    >>> people = pd.DataFrame({"sex": ["f", "m", "f", "m"]})
    >>> y = np.zeros(4, dtype=np.int64)
    >>> rows = Labelled(people, score, y, 2, u, np.zeros(4))
    >>> split = Mondrian.fit(Everyone(), rows, 0.4, label_conditional=False)
    >>> split.thresholds(Batch(people, np.ones((4, 2)) / 2, np.zeros((4, 2)), u)).tolist()
    [[0.3], [0.3], [0.3], [0.3]]
    """

    groups: Any
    sample: Sample
    cells: IntArray  # (n,) of the calibration rows
    alpha: float
    table: CalibrationScores = field(init=False, repr=False)  # the scores, sorted cell by cell
    # (n_cells, n_labels) thresholds; a cell with too few rows has an infinite one
    quantiles: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.sample.check_codes(self.cells, ABSENT, self.groups.n_cells, "cells")
        table = self.sample.sorted_by(self.cells, self.groups.n_cells)
        quantiles = table.quantiles(self.alpha)[:-1].reshape(-1, self.sample.n_labels)
        vars(self).update(table=table, quantiles=quantiles)

    @classmethod
    def fit(cls, groups: Groups, rows: Labelled, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate the cells of groups that were fixed before these rows were seen."""
        sample = Sample.of(rows, label_conditional=label_conditional)
        return cls(groups, sample, groups.cells(rows), alpha)

    def places(self, rows: Labelled) -> IntArray:
        """Return the cell of each row."""
        return self.groups.cells(rows)

    def again(self, sample: Sample, places: IntArray) -> Mondrian:
        """Return the same cells with the thresholds of other calibration rows."""
        return Mondrian(self.groups, sample, places, self.alpha)

    def of_rows(self) -> FloatArray:
        """Return the threshold of each calibration row for its true label, shape (n,)."""
        labels = self.sample.problems
        own = self._with_ends()[self.cells, labels]
        return np.where((labels < 0) & (self.cells != ABSENT), np.inf, own)

    def thresholds(self, batch: Batch) -> FloatArray:
        """Return thresholds of shape (n_samples, n_labels); -inf for rows in no cell."""
        return self._with_ends()[self._cells_of(batch)]

    def _with_ends(self) -> FloatArray:
        """Return the thresholds with two more rows, which the cells ABSENT and UNSEEN point to."""
        ends = np.repeat([[-np.inf], [np.inf]], self.sample.n_labels, axis=1)
        return np.vstack([self.quantiles, ends])

    def pvalues(self, batch: Batch) -> FloatArray:
        """Return p-values of shape (n_samples, n_classes); 0 for rows in no cell."""
        cells = self._cells_of(batch)
        p = self.table.pvalues(batch.scores, self.sample.categories(cells))
        return np.where(cells[:, None] == ABSENT, 0.0, p)

    def _cells_of(self, batch: Batch) -> IntArray:
        """Return the cell of each row; warn of values that calibration never saw."""
        cells = self.groups.cells(batch)
        unseen = cells == UNSEEN
        if unseen.any():
            warn(
                f"{int(unseen.sum())} of {len(cells)} rows have a value or combination of "
                "sensitive features that calibration never saw: they get the full set, the only "
                "valid answer without data"
            )
        return cells

    def full_sets(self) -> Iterator[FullSet]:
        """Yield where sets are full because too few rows calibrate."""
        people = self.table.people.reshape(self.quantiles.shape)
        for cell, label in np.argwhere(np.isinf(self.quantiles)).tolist():
            who = self.groups.describe(cell)
            yield self.sample.full_set(who, label, float(people[cell, label]), self.alpha)

    def _check_parts(self, batch: Batch) -> None:
        if hasattr(self.groups, "check"):
            self.groups.check(batch)
