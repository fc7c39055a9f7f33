"""Columns as categories: distinct values, or bins of a number; and a check of ordered levels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import as_numbers, as_text, in_words, kind_of, shortest_between
from fareg._validation import IntArray, InvalidInputError, check_count

MAX_DISCRETE = 20  # a numeric column with more distinct values is cut into quartiles
N_BINS = 4
MAX_LEVELS = 10**6  # a larger number is an identifier and not a level


@dataclass(frozen=True)
class Levels:
    """The categories of one column: distinct values, or bins of a number with many values."""

    name: str
    values: tuple[Any, ...]  # values, or numbers of bins; None is missing, a date is in seconds
    edges: tuple[float, ...] | None = None  # bin j holds edges[j-1] < x <= edges[j]
    is_date: bool = False

    @classmethod
    def learn(cls, column: pd.Series, reference: pd.Series | None = None) -> Levels:
        """Find the categories of a canonical column.

        A numeric column with more than 20 distinct values is cut at its quartiles, or at those of
        ``reference`` if given: edges from other rows do not depend on ``column``.
        """
        name, has_dates = str(column.name), kind_of(column) == "date"
        missing: tuple[Any, ...] = (None,) if column.isna().any() else ()
        if column.dtype == object:
            return cls(name, (*sorted(column.dropna().unique().tolist()), *missing))
        numbers = as_numbers(column if reference is None else reference).dropna().to_numpy()
        if len(np.unique(numbers)) <= MAX_DISCRETE:
            distinct = np.unique(as_numbers(column).dropna()).tolist()
            return cls(name, (*distinct, *missing), is_date=has_dates)
        inner, edges = np.arange(1, N_BINS) / N_BINS, list[float]()
        for edge in np.unique(np.quantile(numbers, inner, method="inverted_cdf")).tolist():
            # a number with few digits that separates the values as the edge does
            above = float(numbers[numbers > edge].min(initial=np.inf))
            middle = edge + (above - edge) / 2
            edges.append(edge if has_dates else shortest_between(edge, above, edge, middle))
        return cls(name, (*range(len(edges) + 1), *missing), tuple(edges), has_dates)

    def codes(self, column: pd.Series) -> IntArray:
        """Return the category code of each row, -1 for an unseen value."""
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
        """Describe one category in words: ``Color=Red``, ``Age in (18, 40]``, ``Urban=True``."""
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


@dataclass(frozen=True)
class LevelCoding:
    """Sensitive features as category codes."""

    levels: tuple[Levels, ...]

    @classmethod
    def learn(cls, columns: pd.DataFrame, reference: pd.DataFrame | None = None) -> LevelCoding:
        """Find the categories of canonical columns, with quartiles of ``reference`` if given."""
        edges_from: Any = {} if reference is None else reference
        return cls(tuple(Levels.learn(columns[name], edges_from.get(name)) for name in columns))

    @property
    def n_categories(self) -> tuple[int, ...]:
        """Number of categories of each feature."""
        return tuple(len(levels.values) for levels in self.levels)

    def codes(self, columns: pd.DataFrame) -> IntArray:
        """Return category codes of shape (n_samples, n_features), -1 for an unseen value."""
        pairs = zip(self.levels, columns.items(), strict=True)
        return np.column_stack([levels.codes(column) for levels, (_, column) in pairs])

    def describe(self, features: Iterable[int], codes: Iterable[int]) -> str:
        """Describe one category each of some features: ``Color=Red and Gender=Male``."""
        pairs = zip(features, codes, strict=True)
        return " and ".join(self.levels[feature].label(int(code)) for feature, code in pairs)


def frequent(codes: IntArray, most: int) -> IntArray:
    """Return the ``most`` most frequent category codes, sorted."""
    counts = np.bincount(codes[codes >= 0])
    top = np.argsort(-counts, kind="stable")[:most]
    return np.sort(top[counts[top] > 0])


def check_levels(levels: Any, n_levels: int | None = None) -> tuple[IntArray, int]:
    """Return levels of disadvantage as whole numbers from 0, and the number of levels."""
    values = np.asarray(levels)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"levels must be one whole number per row, got {values.dtype} of shape {values.shape}"
        )
    most = check_count("n_levels", MAX_LEVELS if n_levels is None else n_levels, maximum=MAX_LEVELS)
    wrong = ~((values >= 0) & (values < most) & (values == np.floor(values)))
    if wrong.any():
        raise InvalidInputError(
            f"levels must be whole numbers from 0 to {most - 1}, got {values[wrong][0]}; number "
            "them from the least to the most disadvantaged"
        )
    codes = values.astype(np.int64)
    return codes, int(codes.max(initial=-1)) + 1 if n_levels is None else n_levels
