"""Calibration within cells: the threshold of a cell comes from its own calibration rows.

If the cells are fixed before calibration, ``P(Y in C(X) | X in cell) >= 1 - alpha`` for every cell
(Vovk et al. 2003). One cell for everyone is split conformal prediction.

Groups divide rows into ``n_cells`` cells: ``cells(rows)`` returns the cell of each row, a number
from 0, ``UNSEEN`` or ``ABSENT``, and ``describe(cell)`` returns its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Self

import numpy as np

from fareg._levels import LevelCoding, Levels
from fareg._rows import cell_numbers
from fareg._validation import FloatArray, IntArray, require
from fareg.calibration._batch import (
    Batch,
    Calibration,
    Labelled,
    Sample,
    per_weight,
    warn_of_full_rows,
)
from fareg.pvalues import CalibrationScores

UNSEEN, ABSENT = -1, -2  # a cell without calibration rows; a row outside the group, no promise
NEVER_SEEN = "have a value or combination of sensitive features that calibration never saw"


@dataclass(frozen=True)
class Everyone:
    """All rows in one cell."""

    n_cells = 1

    def cells(self, rows: Batch | Labelled) -> IntArray:
        return np.zeros(len(rows), dtype=np.int64)

    def describe(self, cell: int) -> str:
        return "all rows"


@dataclass(frozen=True, eq=False)
class FeatureLevels:
    """One cell for each category of a sensitive feature."""

    levels: Levels

    @property
    def n_cells(self) -> int:
        return len(self.levels.values)

    def cells(self, rows: Batch | Labelled) -> IntArray:
        return self.levels.codes(rows.people[self.levels.name])

    def describe(self, cell: int) -> str:
        return self.levels.label(cell)


@dataclass(frozen=True, eq=False)
class Members:
    """One cell for the rows of a rule; other rows are absent."""

    rule: Any  # with ``rule.inside(people)``, a mask, and ``rule.text``
    n_cells = 1

    def cells(self, rows: Batch | Labelled) -> IntArray:
        return np.where(rows.by_people(self.rule.inside), 0, ABSENT)

    def describe(self, cell: int) -> Any:
        return self.rule.text


@dataclass(frozen=True, eq=False)
class JointLevels:
    """One cell for each combination of categories that the calibration rows have."""

    coding: LevelCoding
    combinations: IntArray  # (n_cells, n_features)

    @classmethod
    def learn(cls, coding: LevelCoding, rows: Labelled) -> Self:
        """List the combinations in the calibration rows."""
        return cls(coding, np.unique(coding.codes(rows.people), axis=0))

    @property
    def n_cells(self) -> int:
        return len(self.combinations)

    def cells(self, rows: Batch | Labelled) -> IntArray:
        return cell_numbers(self.combinations, self.coding.codes(rows.people))

    def describe(self, cell: int) -> str:
        return self.coding.describe(range(len(self.coding.levels)), self.combinations[cell])


@dataclass(frozen=True, eq=False)
class Mondrian(Calibration):
    """Calibrated cells."""

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
    def fit(cls, groups: Any, rows: Labelled, alpha: float, *, label_conditional: bool) -> Self:
        """Calibrate the cells of groups that were fixed before these rows were seen."""
        sample = Sample.from_rows(rows, label_conditional=label_conditional)
        return cls(groups, sample, groups.cells(rows), alpha)

    def places(self, rows: Labelled) -> Any:
        """Return the cell of each row."""
        return self.groups.cells(rows)

    def with_sample(self, sample: Sample, places: IntArray | None = None) -> Mondrian:
        """Return the same cells with other calibration rows or weights."""
        cells = self.cells if places is None else places
        return Mondrian(self.groups, sample, cells, self.alpha)

    def row_thresholds(self) -> FloatArray:
        """Return the threshold of each calibration row for its true label, shape (n,)."""
        return self.thresholds_at(self.cells, self.sample.row_labels)

    def thresholds_at(self, cells: IntArray, labels: IntArray) -> FloatArray:
        """Return the threshold of rows in these cells for one label each, shape (n,)."""
        thresholds = self._cell_thresholds(cells)[np.arange(len(cells)), labels]
        return np.where((labels < 0) & (cells != ABSENT), np.inf, thresholds)

    @per_weight
    def thresholds(self, batch: Batch) -> FloatArray:
        """Return thresholds of shape (n_samples, n_labels); -inf for absent rows."""
        cells = self.groups.cells(batch)
        if UNSEEN in cells:
            warn_of_full_rows(cells == UNSEEN, NEVER_SEEN)
        return self._cell_thresholds(cells)

    @per_weight
    def pvalues(self, batch: Batch) -> FloatArray:
        """Return p-values of shape (n_samples, n_classes); 0 for absent rows."""
        cells = self.groups.cells(batch)
        warn_of_full_rows(cells == UNSEEN, NEVER_SEEN)
        p = self.table.pvalues(batch.scores, self.sample.categories(cells))
        return np.where(cells[:, None] == ABSENT, 0.0, p)

    def full_sets(self) -> Iterator[tuple[str, int]]:
        for cell, label in np.argwhere(np.isinf(self.quantiles)).tolist():
            yield self.groups.describe(cell), label

    def _cell_thresholds(self, cells: IntArray) -> FloatArray:
        # ABSENT and UNSEEN index the last two rows
        ends = np.repeat([[-np.inf], [np.inf]], self.sample.n_labels, axis=1)
        return np.vstack([self.quantiles, ends])[cells]


@dataclass(frozen=True, eq=False)
class Union:
    """The union of sets, which grow with the threshold, so the union has the largest one.

    Its p-value is the largest p-value, and it keeps the promise of every part.
    """

    parts: tuple[Any, ...]  # calibrations of the same rows

    @property
    def has_pvalues(self) -> bool:
        return all(part.has_pvalues for part in self.parts)

    @property
    def sample(self) -> Any:
        return self.parts[0].sample

    def places(self, rows: Labelled) -> IntArray:
        """Return the cell or level of each row in every part, shape (n, n_parts)."""
        return np.column_stack([part.places(rows) for part in self.parts])

    def with_sample(self, sample: Sample, places: IntArray) -> Union:
        """Return the same parts with other calibration rows."""
        pairs = zip(self.parts, np.ascontiguousarray(places.T), strict=True)
        return Union(tuple(part.with_sample(sample, column) for part, column in pairs))

    def row_thresholds(self) -> FloatArray:
        return reduce(np.maximum, (part.row_thresholds() for part in self.parts))

    def thresholds(self, batch: Batch) -> FloatArray:
        return reduce(np.maximum, (part.thresholds(batch) for part in self.parts))

    def pvalues(self, batch: Batch) -> FloatArray:
        return reduce(np.maximum, (part.pvalues(batch) for part in self.parts))

    def full_sets(self) -> Iterator[tuple[str, int]]:
        for part in self.parts:
            yield from part.full_sets()

    def check(self, batch: Batch, n_labels: int | None, alpha: float) -> None:
        require(isinstance(self.parts, tuple) and len(self.parts) > 0, "parts")
        for part in self.parts:
            require(np.array_equal(part.sample.score, self.sample.score), "score")
            part.check(batch, n_labels, alpha)
