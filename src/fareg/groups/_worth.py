"""What a rule is worth: how much better two means, inside and outside, describe coverage."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, FloatArray
from fareg.groups._conditions import Condition

MIN_SHARE, MAX_SHARE = 0.02, 0.55  # of the rows: a group that is named is a minority

Alternatives = tuple[tuple[Condition, ...], ...]
Told = Callable[[tuple[Condition, ...]], BoolArray]  # which rows fulfil all conditions


def rows_of(columns: pd.DataFrame) -> Told:
    """Return a function that tells which rows fulfil conditions; it asks each condition once."""

    @cache
    def holds(condition: Condition) -> BoolArray:
        return condition.holds(columns[condition.feature])

    everyone = np.ones(len(columns), dtype=bool)
    return lambda conditions: np.logical_and.reduce([everyone, *map(holds, conditions)])


def gain_of(inside: BoolArray, covered: FloatArray) -> float:
    """Return how much better two means describe ``covered`` than one, in units of its variance."""
    return float(gains_of(inside.sum(), covered[inside].sum(), covered))


def gains_of(n: Any, total: Any, covered: FloatArray) -> Any:
    """Return the gain of groups of ``n`` rows that are covered ``total`` in sum."""
    share, variance = n / len(covered), float(covered.var())
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = (covered.sum() - total) / (len(covered) - n) - total / n
        gain = len(covered) * share * (1 - share) * gap * np.abs(gap) / variance
    return np.where((share >= MIN_SHARE) & (share <= MAX_SHARE) & (variance > 0), gain, -np.inf)
