"""What a rule is worth: how much better two means, inside and outside, describe coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, FloatArray
from fareg.groups._conditions import AskedRows

MIN_SHARE, MAX_SHARE = 0.02, 0.55  # of the rows: a group that is named is a minority


class CoveredRows(AskedRows):
    """Canonical columns, and how well each of their rows is covered, shape (n,) in [0, 1]."""

    def __init__(self, columns: pd.DataFrame, covered: FloatArray) -> None:
        super().__init__(columns)
        self.covered = covered

    def gain(self, inside: BoolArray) -> float:
        """Return how much better two means describe coverage than one, in units of its variance."""
        return float(self.gains(inside.sum(), self.covered[inside].sum()))

    def gains(self, n: Any, total: Any) -> Any:
        """Return the gain of groups of ``n`` rows that are covered ``total`` in sum."""
        n_all, variance = len(self.covered), float(self.covered.var())
        share = n / n_all
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = (self.covered.sum() - total) / (n_all - n) - total / n
            gain = n_all * share * (1 - share) * gap * np.abs(gap) / variance
        is_minority = (share >= MIN_SHARE) & (share <= MAX_SHARE)
        return np.where(is_minority & (variance > 0), gain, -np.inf)
