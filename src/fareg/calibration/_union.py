"""Several calibrations at once: a label is in the set if any of them keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from fareg._validation import FloatArray
from fareg.calibration._calibration import FullSet
from fareg.calibration._cells import CellCalibration, Everyone
from fareg.calibration._rows import Rows, require


@dataclass(frozen=True, eq=False)
class UnionCalibration:
    """The union of the sets of several calibrations on the same scores.

    Sets of one score are nested in the threshold, so the union is the set of the largest threshold,
    and its p-value the largest p-value. Each part's promise holds for the union too.
    """

    parts: tuple[Any, ...]

    @property
    def has_pvalues(self) -> bool:
        """Whether every part has p-values."""
        return all(part.has_pvalues for part in self.parts)

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""
        return max(part.n_rows for part in self.parts)

    def thresholds(self, rows: Rows) -> FloatArray:
        """Return the largest thresholds."""
        return reduce(np.maximum, (part.thresholds(rows) for part in self.parts))

    def pvalues(self, rows: Rows) -> FloatArray:
        """Return the largest p-values."""
        return reduce(np.maximum, (part.pvalues(rows) for part in self.parts))

    def full_sets(self) -> Iterator[FullSet]:
        """Yield where the sets of any part are full."""
        for part in self.parts:
            yield from part.full_sets()

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        """Check every part."""
        require(len(self.parts) > 0, "parts")
        for part in self.parts:
            part.check(rows, n_labels, alpha)


def split_calibration(calibration: Any) -> CellCalibration | None:
    """Return split conformal calibration on the scores that a calibration keeps.

    None if it keeps none: residuals and learned quantiles do not tell the scores.
    """
    scores = getattr(calibration, "scores", None)
    if scores is None:
        return None
    everyone = np.zeros((1, len(scores)), dtype=np.int64)
    labels, n_labels, alpha = calibration.labels, calibration.n_labels, calibration.alpha
    return CellCalibration(Everyone(), scores, everyone, labels, n_labels, alpha)


@dataclass(frozen=True, eq=False)
class ReselectedCalibration:
    """A calibration that reads other sensitive features than the classifier around it."""

    part: Any
    selection: Any

    @property
    def has_pvalues(self) -> bool:
        """Whether the part has p-values."""
        return bool(self.part.has_pvalues)

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""
        return int(self.part.n_rows)

    def thresholds(self, rows: Rows) -> FloatArray:
        """Return the thresholds of the part."""
        return self.part.thresholds(rows.selecting(self.selection))

    def pvalues(self, rows: Rows) -> FloatArray:
        """Return the p-values of the part."""
        return self.part.pvalues(rows.selecting(self.selection))

    def full_sets(self) -> Iterator[FullSet]:
        """Yield where the sets of the part are full."""
        yield from self.part.full_sets()

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        """Check the part."""
        self.part.check(rows.selecting(self.selection), n_labels, alpha)
