"""The union of the sets of several calibrations on the same scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from fareg._validation import FloatArray, IntArray, require
from fareg.calibration._batch import Batch, Labelled
from fareg.calibration._sample import Sample


@dataclass(frozen=True, eq=False)
class Union:
    """Sets of one score are nested in the threshold, so the largest threshold gives the union.

    Its p-value is the largest p-value, and the promise of every part holds for the union too.
    """

    parts: tuple[Any, ...]

    @property
    def has_pvalues(self) -> bool:
        """Whether all parts have p-values."""
        return all(part.has_pvalues for part in self.parts)

    @property
    def sample(self) -> Sample:
        """The rows that calibrated, which are the same for all parts."""
        sample: Sample = self.parts[0].sample
        return sample

    def places(self, rows: Labelled) -> IntArray:
        """Return where each row belongs in every part, shape (n, n_parts)."""
        return np.column_stack([part.places(rows) for part in self.parts])

    def again(self, sample: Sample, places: IntArray) -> Union:
        """Return the same parts with the thresholds of other calibration rows."""
        pairs = zip(self.parts, np.ascontiguousarray(places.T), strict=True)
        return Union(tuple(part.again(sample, own) for part, own in pairs))

    def of_rows(self) -> FloatArray:
        """Return the threshold of each calibration row for its true label, shape (n,)."""
        return reduce(np.maximum, (part.of_rows() for part in self.parts))

    def thresholds(self, batch: Batch) -> FloatArray:
        """Return the largest threshold over the parts."""
        return reduce(np.maximum, (part.thresholds(batch) for part in self.parts))

    def pvalues(self, batch: Batch) -> FloatArray:
        """Return the largest p-value over the parts."""
        return reduce(np.maximum, (part.pvalues(batch) for part in self.parts))

    def full_sets(self) -> Iterator[tuple[str, int]]:
        """Yield who gets which label in any case."""
        for part in self.parts:
            yield from part.full_sets()

    def check(self, batch: Batch, n_labels: int | None, alpha: float) -> None:
        """Refuse parts that contradict each other."""
        require(isinstance(self.parts, tuple) and len(self.parts) > 0, "parts")
        for part in self.parts:
            require(np.array_equal(part.sample.score, self.sample.score), "score")
            part.check(batch, n_labels, alpha)
