"""What a rule asks of one feature: some levels of a text, an interval of a number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import and_, or_
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import (
    as_numbers,
    as_text,
    coded_column,
    held,
    in_words,
    series_of,
    shortest_between,
    spelled_numbers,
)
from fareg._levels import MAX_DISCRETE
from fareg._validation import BoolArray, FloatArray, IntArray

MISSING = "missing"
DAY = 86_400  # seconds


@dataclass(frozen=True)
class Condition:
    """One condition of a rule. Its words and its rows follow from the same numbers.

    A missing value fulfils it if ``missing`` says so; an infinite number counts as missing. A level
    that was never seen fulfils "is not" and "not in", and no other condition.
    """

    feature: str  # the column it speaks of
    missing: bool = False  # whether a row without a value fulfils it
    levels: tuple[str, ...] | None = None  # of a text: the levels that are listed
    is_excluding: bool = False  # whether the listed levels are those left out
    low: float = -np.inf
    high: float = np.inf  # of a number: low < value <= high
    kind: str | None = None  # "flag" or "date": how to write the numbers

    def holds(self, column: pd.Series) -> BoolArray:
        """Tell which rows of a canonical column fulfil the condition."""
        if self.levels is not None:
            column = as_text(column)
            absent = np.asarray(column.isna())
            fulfilled = np.asarray(column.isin(self.levels)) != self.is_excluding
        else:
            numbers = np.asarray(as_numbers(column), dtype=np.float64)
            absent = ~np.isfinite(numbers)
            fulfilled = (self.low < numbers) & (numbers <= self.high)
        return np.where(absent, self.missing, fulfilled).astype(bool)

    def of_levels(self, levels: Iterable[Any], column: pd.Series) -> Condition:
        """Return the shortest condition that holds for these values of a column and no others."""
        missing = self.missing and bool(column.isna().any())
        if column.dtype == object:
            return Part(missing, frozenset(map(str, levels))).condition(column)
        values = distinct_numbers(column)
        chosen = np.flatnonzero(np.isin(values, np.asarray(list(levels), dtype=np.float64)))
        first, last = int(chosen[0]), int(chosen[-1])
        if len(chosen) <= last - first:  # there are others between them
            texts = frozenset(as_text(pd.Series(values[chosen])))
            return Part(missing, texts).condition(as_text(column))
        low = first - 1 if first else -np.inf
        high = last if last < len(values) - 1 else np.inf
        return Part(missing, low=low, high=high).condition(column)

    def single(self) -> bool:
        """Tell whether one number alone fulfils the condition."""
        return self.levels is None and self.low == _just_below(self.high)

    def in_words(self) -> str:
        """Return the condition as text: ``Color=Red``, ``18 < Age <= 40``."""
        if self.levels is not None:
            return self._levels_in_words(self.levels)
        if self.low >= self.high:
            return f"{self.feature} {MISSING}"
        if np.isinf(self.low) and np.isinf(self.high):
            return f"{self.feature} not {MISSING}"
        interval = self._interval_in_words()
        return f"({interval} or {MISSING})" if self.missing else interval

    def _levels_in_words(self, levels: tuple[str, ...]) -> str:
        name = self.feature
        listed = [f'"{level}"' if level == MISSING else level for level in levels]
        if self.missing != self.is_excluding:
            if not listed:
                return f"{name} not {MISSING}" if self.is_excluding else f"{name} {MISSING}"
            listed.append(MISSING)
        if len(listed) == 1:
            return f"{name} is not {listed[0]}" if self.is_excluding else f"{name}={listed[0]}"
        order = dict(zip(listed, spelled_numbers(listed), strict=True))
        listed.sort(key=lambda text: (np.nan_to_num(order[text], nan=np.inf), text))
        return f"{name} {'not in' if self.is_excluding else 'in'} {{{', '.join(listed)}}}"

    def _interval_in_words(self) -> str:
        name, low, high = self.feature, self.low, self.high
        if self.single():
            return f"{name}={in_words(high, self.kind)}"
        if self.kind == "date":
            start, end = (
                in_words(float(np.nextafter(t, np.inf)), "date") if np.isfinite(t) else None
                for t in (low, high)
            )
            if start is None:
                return f"{name} before {end}"
            return f"{name} from {start} " + ("on" if end is None else f"to before {end}")
        if np.isfinite(low) and np.isfinite(high):
            return f"{in_words(low)} < {name} <= {in_words(high)}"
        return f"{name} > {in_words(low)}" if np.isfinite(low) else f"{name} <= {in_words(high)}"


# a row is meant if it fulfils all conditions of any alternative
Alternatives = tuple[tuple[Condition, ...], ...]


class AskedRows:
    """Rows of a pandas frame that many conditions are asked of.

    Every condition is asked once, of the distinct values of a text instead of all its rows.
    """

    def __init__(self, columns: pd.DataFrame) -> None:
        self.columns = columns
        self._distinct, self._holds = cache(self._read), cache(self._ask)

    def fulfilling(self, conditions: tuple[Condition, ...]) -> BoolArray:
        """Tell which rows fulfil all conditions."""
        everyone = np.ones(len(self.columns), dtype=bool)
        return reduce(and_, map(self._holds, conditions), everyone)

    def inside(self, alternatives: Alternatives) -> BoolArray:
        """Tell which rows fulfil all conditions of any alternative."""
        nobody = np.zeros(len(self.columns), dtype=bool)
        return reduce(or_, map(self.fulfilling, alternatives), nobody)

    def _ask(self, condition: Condition) -> BoolArray:
        codes, values = self._distinct(condition.feature)
        holds = condition.holds(values)
        return holds if codes is None else holds[codes]

    def _read(self, name: str) -> tuple[IntArray | None, pd.Series]:
        """Return the distinct values of a text and which each row has; of a number, all values."""
        codes, values = coded_column(series_of(self.columns[[name]])[0])
        return codes, pd.Series(values, dtype=values.dtype)


def without(parts: tuple[Any, ...], i: int) -> tuple[Any, ...]:
    """Return alternatives, or conditions, without number i."""
    return (*parts[:i], *parts[i + 1 :])


def exchanged(parts: tuple[Any, ...], i: int, part: Any) -> tuple[Any, ...]:
    """Return alternatives, or conditions, with another one as number i."""
    return (*parts[:i], part, *parts[i + 1 :])


@dataclass(frozen=True)
class Part:
    """The part of one column's values that a path through the tree lets pass.

    ``low`` and ``high`` bound the rank of a number among the column's distinct values.
    """

    missing: bool
    levels: frozenset[str] | None = None
    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def whole(cls, column: pd.Series) -> Part:
        """Return the part that lets every value of a canonical column pass."""
        if column.dtype != object:
            return cls(missing=not np.isfinite(column).all())
        levels = frozenset(str(value) for value in column.dropna().unique())
        return cls(missing=bool(column.isna().any()), levels=levels)

    def split_missing(self) -> tuple[Part, Part]:
        """Return the part of a text with a value and the part without one."""
        return replace(self, missing=False), Part(self.missing, frozenset())

    def split_level(self, level: str) -> tuple[Part, Part]:
        """Return the part with other levels and the part with this level."""
        assert self.levels is not None
        others = replace(self, levels=self.levels - {level})
        return others, Part(False, self.levels & {level})

    def split_number(self, threshold: float, is_missing_low: bool) -> tuple[Part, Part]:
        """Return the lower and the higher part; an infinite threshold parts missing values."""
        return (
            replace(self, high=min(self.high, threshold), missing=self.missing and is_missing_low),
            replace(
                self, low=max(self.low, threshold), missing=self.missing and not is_missing_low
            ),
        )

    def merged(self, other: Part) -> Part | None:
        """Return the union of two parts of a column if it is one part."""
        missing = self.missing or other.missing
        if self.levels is not None and other.levels is not None:
            return Part(missing, self.levels | other.levels)
        first, second = sorted((self, other), key=lambda part: (part.low, part.high))
        if second.low >= second.high:  # holds missing values only
            return replace(first, missing=missing)
        if first.high >= second.low:
            return replace(first, high=max(first.high, second.high), missing=missing)
        return None

    def condition(self, column: pd.Series) -> Condition:
        """Return the shortest condition that parts this column's values alike."""
        name, whole = str(column.name), Part.whole(column)
        if self.levels is None or whole.levels is None:
            low, high = spoken_interval(self.low, self.high, column)
            return Condition(name, self.missing, low=low, high=high, kind=held(column))
        left_out = whole.levels - self.levels
        misses_missing = whole.missing and not self.missing
        if len(self.levels) + self.missing <= max(1, len(left_out) + misses_missing):
            return Condition(name, self.missing, tuple(sorted(self.levels)))
        return Condition(name, not misses_missing, tuple(sorted(left_out)), is_excluding=True)


def distinct_numbers(column: pd.Series) -> FloatArray:
    """Return the finite values of a canonical column in order."""
    return np.unique(np.asarray(column[np.isfinite(column)], dtype=np.float64))


def spoken_interval(low: float, high: float, column: pd.Series) -> tuple[float, float]:
    """Return bounds that can be said in full, and part the column's values as these ranks do."""
    if low >= high:
        return low, high
    values = distinct_numbers(column)
    low, high = (_spoken(t, values, held(column)) if np.isfinite(t) else t for t in (low, high))
    inside = values[(low < values) & (values <= high)]
    if len(inside) == 1 and len(values) <= MAX_DISCRETE and (values % 1 == 0).all():
        return _just_below(inside[0]), float(inside[0])
    return low, high


def _spoken(rank: float, values: FloatArray, kind: str | None) -> float:
    """Return a bound between the values of two ranks, with as few digits as will do."""
    below, above = float(values[int(rank)]), float(values[int(rank) + 1])
    middle = below + (above - below) / 2
    if kind == "date":  # "before midnight", or else before the next value
        return _just_below(min((middle // DAY + 1) * DAY, above))
    return shortest_between(below, above, middle)


def _just_below(value: float) -> float:
    return float(np.nextafter(value, -np.inf))
