"""Levels of columns, and the joint cells that the levels of several columns make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import (
    CodedTable,
    as_numbers,
    as_text,
    code_table,
    held,
    in_words,
    shortest_between,
    spelled_numbers,
    take_rows,
)
from fareg._validation import FloatArray, IntArray, InvalidInputError, check_count
from fareg._words import shown

MAX_DISCRETE = 20  # a numeric column with more distinct values is cut into quartiles
N_BINS = 4
MAX_LEVELS = 10**6  # a larger number is an identifier that was taken for a level

MANY_MISSING = 20  # rows without a value that are no chance
N_LOOKED_AT = 500  # rows that show whether texts are numbers
NEARLY_ALL = 0.95  # share of the texts of a column that must look like numbers
# Numbers may have signs between thousands, a decimal comma, a currency or a percent sign.
WRITTEN_NUMBER = re.compile(r"[-+]?[$€£¥]?[-+]?(\d{1,3}([,.'\s]\d{3})+|\d+)([.,]\d+)?\s?[%$€£¥]?")


@dataclass(frozen=True)
class Levels:
    """How one column falls into levels: distinct values, or bins of a number with many values."""

    name: str
    values: tuple[Any, ...]  # level values; None stands for missing
    edges: tuple[float, ...] | None = None  # bin j holds edges[j-1] < x <= edges[j]
    kind: str | None = None  # "flag" or "date": how to write the numbers

    @classmethod
    def learn(cls, column: pd.Series, reference: pd.Series | None = None) -> Levels:
        """Find the levels of a canonical column.

        A numeric column with more than 20 distinct values is cut into quartiles, those of
        ``reference`` if given: edges from other rows keep the levels independent of ``column``.
        """
        kind = held(column)
        missing: tuple[Any, ...] = (None,) if column.isna().any() else ()
        present = (column if reference is None else as_numbers(reference)).dropna()
        if column.dtype == object or present.nunique() <= MAX_DISCRETE:
            distinct = sorted(column.dropna().unique().tolist())
            return cls(str(column.name), (*distinct, *missing), kind=kind)
        numbers, inner = np.asarray(present, np.float64), np.arange(1, N_BINS) / N_BINS
        edges = np.unique(np.quantile(numbers, inner, method="inverted_cdf")).tolist()
        if kind is None:
            edges = [_short_edge(edge, numbers) for edge in edges]
        return cls(str(column.name), (*range(len(edges) + 1), *missing), tuple(edges), kind)

    def codes(self, column: pd.Series) -> IntArray:
        """Return the level number of each row, -1 for a value without a level."""
        missing = np.asarray(column.isna())
        codes = np.full(len(column), -1, dtype=np.int64)
        if self.edges is not None:
            numbers = np.asarray(as_numbers(column))
            present = ~np.isnan(numbers)
            codes[present] = np.searchsorted(np.asarray(self.edges), numbers[present], side="left")
        else:
            known = pd.Index([value for value in self.values if value is not None], dtype=object)
            column = as_text(column) if known.inferred_type == "string" else as_numbers(column)
            codes[~missing] = known.get_indexer(pd.Index(column[~missing], dtype=object))
        if None in self.values:
            codes[missing] = self.values.index(None)
        return codes

    def label(self, code: int) -> str:
        """Describe one level in words: ``Color=Red``, ``Age in (18, 40]``, ``Urban=True``."""
        value = self.values[code] if code >= 0 else "unseen"
        if value is None:
            return f"{self.name} missing"
        if self.edges is None:
            text = in_words(value, self.kind) if isinstance(value, float) else str(value)
            return f"{self.name}={text}"
        low = in_words(self.edges[code - 1], self.kind) if code > 0 else None
        high = in_words(self.edges[code], self.kind) if code < len(self.edges) else None
        if low is None:
            return f"{self.name} <= {high}"
        return f"{self.name} > {low}" if high is None else f"{self.name} in ({low}, {high}]"


def _short_edge(edge: float, numbers: FloatArray) -> float:
    """Return a number with few digits that divides the others where ``edge``, one of them, does."""
    above = float(numbers[numbers > edge].min(initial=np.inf))
    return shortest_between(edge, above, edge, edge + (above - edge) / 2)


@dataclass(frozen=True)
class LevelCoding:
    """Sensitive features as level numbers."""

    levels: tuple[Levels, ...]

    @classmethod
    def learn(cls, columns: pd.DataFrame, reference: pd.DataFrame | None = None) -> LevelCoding:
        """Find the levels of canonical columns.

        Numbers with many values are cut at quartiles: those of ``reference``, if given.
        """
        others: Any = {} if reference is None else reference
        return cls(tuple(Levels.learn(columns[name], others.get(name)) for name in columns))

    @property
    def n_levels(self) -> tuple[int, ...]:
        """Number of levels of each feature."""
        return tuple(len(levels.values) for levels in self.levels)

    def codes(self, columns: pd.DataFrame) -> IntArray:
        """Return level numbers of shape (n_samples, n_features), -1 for a value never seen."""
        pairs = zip(self.levels, columns.items(), strict=True)
        return np.column_stack([levels.codes(column) for levels, (_, column) in pairs])

    def describe(self, features: Iterable[int], codes: Iterable[int]) -> str:
        """Name the given levels of some features in words: ``Color=Red and Gender=Male``."""
        pairs = zip(features, codes, strict=True)
        return " and ".join(self.levels[feature].label(int(code)) for feature, code in pairs)


def frequent(codes: IntArray, most: int) -> IntArray:
    """Return the level numbers that occur most often, in order.

    >>> frequent(np.array([3, 0, 3, 1, 1, -1]), 2).tolist()
    [1, 3]
    """
    counts = np.bincount(codes[codes >= 0])
    top = np.argsort(-counts, kind="stable")[:most]
    return np.sort(top[counts[top] > 0])


def check_levels(
    levels: Any, n_levels: int | None = None, *, name: str = "levels"
) -> tuple[IntArray, int]:
    """Return ordered levels as whole numbers from 0, and their number.

    If ``n_levels`` is None, their number is one more than the largest that occurs.
    """
    values = np.asarray(levels)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"{name} must be one whole number per row, got {values.dtype} of shape {values.shape}"
        )
    wrong = ~((values >= 0) & (values < MAX_LEVELS) & (values == np.floor(values)))
    if wrong.any():
        raise InvalidInputError(
            f"{name} must be whole numbers from 0 to {MAX_LEVELS - 1}, got {values[wrong][0]}; "
            "number them from the least to the most disadvantaged"
        )
    codes = values.astype(np.int64)
    largest = int(codes.max(initial=-1))
    if n_levels is None:
        return codes, largest + 1
    if check_count("n_levels", n_levels, maximum=MAX_LEVELS) <= largest:
        raise InvalidInputError(
            f"n_levels must be above the largest level, got {n_levels} for level {largest}"
        )
    return codes, n_levels


def joint_codes(codes: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    """Return one number per row for its combination of levels, equal for equal combinations.

    ``codes`` holds the level numbers of each feature and ``sizes`` how many levels it has. The
    number -1, for a value never seen, counts as a level of its own. The number of a combination
    depends on its levels and ``sizes`` alone, so a table made of some rows is right for others.

    >>> joint_codes([np.array([0, 1, -1]), np.array([1, 1, 0])], [2, 2]).tolist()
    [5, 8, 1]
    """
    # Where 64 bits are too few for all combinations, the numbers are Python's, which have no end.
    fits = prod(size + 1 for size in sizes) <= np.iinfo(np.int64).max
    joint = np.zeros(len(codes[0]), dtype=np.int64 if fits else object)
    for code, size in zip(codes, sizes, strict=True):
        joint = joint * (size + 1) + code + 1
    return joint


def cell_numbers(combinations: IntArray, codes: IntArray) -> IntArray:
    """Return which of the known combinations each row of level numbers is, -1 for none.

    >>> cell_numbers(np.array([[0, 0], [0, 1]]), np.array([[0, 1], [1, 1]])).tolist()
    [1, -1]
    """
    known = pd.MultiIndex.from_arrays(list(combinations.T))
    return known.get_indexer(pd.MultiIndex.from_arrays(list(codes.T))).astype(np.int64)


def distinct_rows(columns: pd.DataFrame) -> tuple[IntArray, IntArray]:
    """Return where each distinct row of canonical columns comes first, and which one each row is.

    >>> first, which = distinct_rows(pd.DataFrame({"a": [1.0, 2.0, 1.0], "b": ["u", "v", "u"]}))
    >>> first.tolist(), which.tolist()
    ([0, 1], [0, 1, 0])
    """
    which: IntArray = np.zeros(len(columns), dtype=np.int64)
    for _, column in columns.items():
        codes, distinct = pd.factorize(column)
        which, known = pd.factorize(which * (len(distinct) + 1) + codes + 1)
        if len(known) == len(columns):  # all rows differ already
            break
    # Codes count up from 0, so a row is the first of its kind where their maximum rises.
    is_first = np.diff(np.maximum.accumulate(which), prepend=-1) > 0
    return np.flatnonzero(is_first), which


def numbers_as_text(*tables: Any) -> str | None:
    """Return a sentence about columns of text that are written numbers, None if there are none.

    Each distinct text of such a column is a level of its own. Some rows are looked at, spread over
    the table. Nearly all texts must look like numbers, and more than one in ten must not be a plain
    number, so that codes such as ``0815`` are left in peace. A table may be None.

    >>> table = pd.DataFrame({"pay": ["77,516", "516", "1,090"], "zip": ["0815", "0816", "0817"]})
    >>> print(numbers_as_text(table))  # doctest: +ELLIPSIS
    pay: numbers written as text, such as 77,516, each of which is taken as a category; ...
    """
    found: dict[str, str] = {}
    for table in (table for table in tables if table is not None):
        spread = slice(None, None, max(1, len(table) // N_LOOKED_AT))
        for name, column in code_table(take_rows(table, spread)).columns.items():
            texts = [text.strip() for text in column.rows() if text] if column.is_text else []
            written = [text for text in texts if WRITTEN_NUMBER.fullmatch(text)]
            marked = [text for text in written if np.isnan(spelled_numbers([text])[0])]
            if len(written) >= NEARLY_ALL * len(texts) and len(marked) > len(texts) / 10:
                found[name] = marked[0]
    if not found:
        return None
    return (
        f"{shown(found)}: numbers written as text, such as {next(iter(found.values()))}, each of "
        "which is taken as a category; turn them into plain numbers first, unless they are codes"
    )


def empty_columns(*tables: Any) -> str | None:
    """Return a sentence about columns without any value, None if there are none.

    In a table of fewer than ``MANY_MISSING`` rows they may be empty by chance. A table may be None.

    >>> print(empty_columns(pd.DataFrame({"age": [31.0] * 20, "pay": [None] * 20})))
    pay: no value in 20 rows, so nothing can be learned from it; fill it in or leave it out
    """
    found: list[str] = []
    given = [table for table in tables if table is not None]
    for table in given:
        head = code_table(take_rows(table, slice(N_LOOKED_AT)))
        if len(table) >= MANY_MISSING and _empty_names(head):  # few tables are read as a whole
            found += _empty_names(code_table(table))
    if not found:
        return None
    n_rows = max(map(len, given))
    it = "it" if len(found) == 1 else "them"
    return (
        f"{shown(found)}: no value in {n_rows:,} rows, so nothing can be learned from {it}; "
        f"fill {it} in or leave {it} out"
    )


def _empty_names(table: CodedTable) -> list[str]:
    return [name for name, column in table.columns.items() if pd.isna(column.rows()).all()]
