"""Calibrations made of others: the union of several, and one that reads other features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from fareg._validation import FloatArray
from fareg.calibration._calibration import FullSet
from fareg.calibration._rows import Rows, require


class _MadeOfParts:
    """Base of calibrations that hand their questions on to others."""

    parts: tuple[Any, ...]

    def _read(self, rows: Rows) -> Rows:
        """Return rows as the parts read them."""
        return rows

    @property
    def has_pvalues(self) -> bool:
        return all(part.has_pvalues for part in self.parts)

    @property
    def n_rows(self) -> int:
        return max(int(part.n_rows) for part in self.parts)

    @property
    def n_people(self) -> int:
        return max(int(part.n_people) for part in self.parts)

    def thresholds(self, rows: Rows) -> FloatArray:
        return reduce(np.maximum, (part.thresholds(self._read(rows)) for part in self.parts))

    def pvalues(self, rows: Rows) -> FloatArray:
        return reduce(np.maximum, (part.pvalues(self._read(rows)) for part in self.parts))

    def full_sets(self) -> Iterator[FullSet]:
        for part in self.parts:
            yield from part.full_sets()

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        require(len(self.parts) > 0, "parts")
        for part in self.parts:
            part.check(self._read(rows), n_labels, alpha)


@dataclass(frozen=True, eq=False)
class UnionCalibration(_MadeOfParts):
    """The union of the sets of several calibrations on the same scores.

    Sets of one score are nested in the threshold, so the union is the set of the largest threshold,
    and its p-value the largest p-value. Each part's promise holds for the union too.
    """

    parts: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class ReselectedCalibration(_MadeOfParts):
    """A calibration that reads other sensitive features than the classifier around it."""

    part: Any
    selection: Any

    @property
    def parts(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The only part."""
        return (self.part,)

    def _read(self, rows: Rows) -> Rows:
        return rows.selecting(self.selection)
