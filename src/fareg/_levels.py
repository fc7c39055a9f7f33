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
    Texts,
    as_numbers,
    as_text,
    code_table,
    in_words,
    is_date,
    shortest_between,
    spelled_numbers,
)
from fareg._validation import FloatArray, IntArray, InvalidInputError, check_count
from fareg._words import shown

MAX_DISCRETE = 20  # a numeric column with more distinct values is cut into quartiles
N_BINS = 4
MAX_LEVELS = 10**6  # a larger number is an identifier that was taken for a level

MANY_MISSING = 20  # rows without a value that are no chance
N_LOOKED_AT = 500  # texts that show whether a column holds numbers
NEARLY_ALL = 0.95  # share of the texts of a column that must look like numbers
# Numbers may have signs between thousands, a decimal comma, a currency or a percent sign.
WRITTEN_NUMBER = re.compile(r"[-+]?[$€£¥]?[-+]?(\d{1,3}([,.'\s]\d{3})+|\d+)([.,]\d+)?\s?[%$€£¥]?")


@dataclass(frozen=True)
class Levels:
    """How one column falls into levels: distinct values, or bins of a number with many values."""

    name: str
    values: tuple[Any, ...]  # level values; None stands for missing, a date is in seconds
    edges: tuple[float, ...] | None = None  # bin j holds edges[j-1] < x <= edges[j]
    is_date: bool = False

    @classmethod
    def learn(cls, column: pd.Series, reference: pd.Series | None = None) -> Levels:
        """Find the levels of a canonical column.

        A numeric column with more than 20 distinct values is cut into quartiles, those of
        ``reference`` if given: edges from other rows keep the levels independent of ``column``.
        """
        name, has_dates = str(column.name), is_date(column)
        missing: tuple[Any, ...] = (None,) if column.isna().any() else ()
        if column.dtype == object:
            return cls(name, (*sorted(column.dropna().unique().tolist()), *missing))
        numbers = as_numbers(column if reference is None else reference).dropna().to_numpy()
        if len(np.unique(numbers)) <= MAX_DISCRETE:
            distinct = np.unique(as_numbers(column).dropna()).tolist()
            return cls(name, (*distinct, *missing), is_date=has_dates)
        inner = np.arange(1, N_BINS) / N_BINS
        edges = np.unique(np.quantile(numbers, inner, method="inverted_cdf")).tolist()
        if not has_dates:
            edges = [_short_edge(edge, numbers) for edge in edges]
        return cls(name, (*range(len(edges) + 1), *missing), tuple(edges), has_dates)

    def codes(self, column: pd.Series) -> IntArray:
        """Return the level number of each row, -1 for a value without a level."""
        present = np.asarray(column.notna())
        codes = np.full(len(column), -1, dtype=np.int64)
        if None in self.values:
            codes[~present] = self.values.index(None)
        if self.edges is not None:
            numbers = np.asarray(as_numbers(column))
            present = ~np.isnan(numbers)
            codes[present] = np.searchsorted(np.asarray(self.edges), numbers[present], side="left")
        else:
            known = pd.Index([value for value in self.values if value is not None], dtype=object)
            column = as_text(column) if known.inferred_type == "string" else as_numbers(column)
            codes[present] = known.get_indexer(pd.Index(column[present], dtype=object))
        return codes

    def label(self, code: int) -> str:
        """Describe one level in words: ``Color=Red``, ``Age in (18, 40]``, ``Urban=True``."""
        value = self.values[code] if code >= 0 else "unseen"
        if value is None:
            return f"{self.name} missing"
        kind = "date" if self.is_date else None
        if self.edges is None:
            return f"{self.name}={in_words(value, kind) if isinstance(value, float) else value}"
        edges = [in_words(edge, kind) for edge in self.edges]
        if code == 0:
            return f"{self.name} <= {edges[0]}"
        if code == len(edges):
            return f"{self.name} > {edges[-1]}"
        return f"{self.name} in ({edges[code - 1]}, {edges[code]}]"


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
    most = check_count("n_levels", MAX_LEVELS if n_levels is None else n_levels, maximum=MAX_LEVELS)
    wrong = ~((values >= 0) & (values < most) & (values == np.floor(values)))
    if wrong.any():
        raise InvalidInputError(
            f"{name} must be whole numbers from 0 to {most - 1}, got {values[wrong][0]}; number "
            "them from the least to the most disadvantaged"
        )
    codes = values.astype(np.int64)
    return codes, int(codes.max(initial=-1)) + 1 if n_levels is None else n_levels


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


def doubtful_columns(*tables: Any) -> list[str]:
    """Return sentences about columns from which nothing is learned as they are.

    One is about columns of text that are written numbers: each distinct text is a level of its own.
    Nearly all texts must look like numbers, and more than one in ten must not be a plain number, so
    that codes such as ``0815`` are left in peace. The other is about columns without any value; in
    fewer than ``MANY_MISSING`` rows they may be empty by chance. A table may be None.

    >>> table = pd.DataFrame({"pay": ["77,516", "516", "1,090"], "zip": ["0815", "0816", "0817"]})
    >>> print(*doubtful_columns(table))  # doctest: +ELLIPSIS
    pay: numbers written as text, such as 77,516, each of which is taken as a category; ...
    >>> print(*doubtful_columns(pd.DataFrame({"age": [31.0] * 20, "pay": [None] * 20})))
    pay: no value in 20 rows, so nothing can be learned from it; fill it in or leave it out
    """
    written: dict[str, str] = {}
    empty: dict[str, int] = {}
    for table in (code_table(table) for table in tables if table is not None):
        for name, column in table.columns.items():
            is_text = isinstance(column, Texts)
            if (column.codes < 0 if is_text else pd.isna(column)).all():
                empty |= {name: len(table)} if len(table) >= MANY_MISSING else {}
                continue
            texts = [text.strip() for text in column.values[:-1][:N_LOOKED_AT]] if is_text else []
            numbers = [text for text in texts if WRITTEN_NUMBER.fullmatch(text)]
            marked = [text for text in numbers if np.isnan(spelled_numbers([text])[0])]
            if len(numbers) >= NEARLY_ALL * len(texts) and len(marked) > len(texts) / 10:
                written[name] = marked[0]
    sentences = []
    if written:
        sentences.append(
            f"{shown(written)}: numbers written as text, such as {next(iter(written.values()))}, "
            "each of which is taken as a category; turn them into plain numbers first, unless they "
            "are codes"
        )
    if empty:
        it = "it" if len(empty) == 1 else "them"
        sentences.append(
            f"{shown(empty)}: no value in {max(empty.values()):,} rows, so nothing can be learned "
            f"from {it}; fill {it} in or leave {it} out"
        )
    return sentences
