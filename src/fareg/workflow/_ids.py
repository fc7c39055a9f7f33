"""Columns that tell whose row it is: they teach a model nothing about new people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import FaregWarning
from fareg._words import count, quoted, rows

MIN_VALUES = 20
MAX_ROWS_PER_VALUE = 10  # on average; what repeats more often is a category
NEARLY_ALL = 0.9  # share of different texts from which hardly any repeats
MIN_SHARED = 0.99  # share of rows with one id that agree about a person
MAX_BY_CHANCE = 0.9  # share of rows of neighbouring values that agree; more would say nothing
MIN_DISAGREEING = 20  # pairs that would differ by chance, so that chance explains no agreement
MAX_PAIRS = 20_000  # more pairs of rows say no more
ID_WORD = re.compile(r"(?<![a-z])(ids?|uid|uuid|guid|nbr|ssn|mrn)(?![a-z])")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # where words meet in patientId
DATE = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b.*", re.DOTALL)


def is_id(column: pd.Series) -> bool:
    """Tell whether a column of text or whole numbers differs in every row.

    >>> is_id(pd.Series([7, 8, 9])), is_id(pd.Series([7, 8, 8])), is_id(pd.Series([0.1, 0.2]))
    (True, False, False)
    """
    numbers = pd.api.types.is_integer_dtype(column.dtype)
    return bool((numbers or _is_text(column)) and column.is_unique)


class LooksLikeIdWarning(FaregWarning):
    """A column that looks like an id trains a model."""


def id_note(frame: pd.DataFrame, names: Sequence[str]) -> str | None:
    """Return a note about those of the columns that look like ids, None if none does.

    Such a column holds text or whole numbers that are not all different, each in ten rows or fewer
    on average, and one of these is true: its name says so (``patient_nbr``, ``id``); it holds texts
    that hardly repeat; or rows that share a value agree about something else, as rows of one
    person agree about the birth year, while rows of neighbouring values do not. Amounts, ages and
    times repeat without such an agreement, or agree with their neighbours too. Dates are no ids.
    """
    found = {name: why for name in names if (why := _why_id(frame, name)) is not None}
    if not found:
        return None
    told = "; ".join(f"{quoted(name)} ({why})" for name, why in found.items())
    return (
        f"what looks like an id is used like any other column: {told}; if rows that share one "
        "belong together, name it as clusters, else leave it out"
    )


def _why_id(frame: pd.DataFrame, name: str) -> str | None:
    column = frame[name].dropna()
    is_text = _is_text(column)
    if column.empty or not (is_text or _is_whole(column)):
        return None
    n_values = column.nunique()
    if n_values < MIN_VALUES or len(column) > MAX_ROWS_PER_VALUE * n_values:
        return None
    if is_text and DATE.fullmatch(str(column.iloc[0])):
        return None
    why = f"{count(n_values)} different values in {rows(len(column))}"
    if ID_WORD.search(CAMEL.sub("_", name).lower()):
        return why
    shared = _shared_column(frame, name)
    if shared is not None:
        return f"{why}, and rows that share one agree about {quoted(shared)}"
    return why if is_text and n_values > NEARLY_ALL * len(column) else None


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.is_string_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype)


def _is_whole(column: pd.Series) -> bool:
    return column.dtype.kind in "iu" or (column.dtype.kind == "f" and bool((column % 1 == 0).all()))


def _shared_column(frame: pd.DataFrame, name: str) -> str | None:
    """Return a column about which rows with the same id agree, and rows of neighbouring ids do not.

    Rows that agree about everything are copies and do not count. A column with nearly as many
    values as the ids may be the same number in another unit.
    """
    codes = _codes(frame[name])
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    same = np.diff(codes[order]) == 0
    rng = np.random.default_rng(0)  # which pairs are looked at is a matter of time, not of chance
    equal, neighbours = (_some(np.flatnonzero(kind), rng) for kind in (same, ~same))
    others = {str(n): _codes(column) for n, column in frame.items() if n != name}
    differs = np.zeros(len(equal), dtype=bool)
    for own in others.values():
        differs |= own[order[equal]] != own[order[equal + 1]]
    for other, own in others.items():
        if own.max(initial=0) > codes.max(initial=0) / 2:
            continue
        shared, n_pairs = _agreement(own, order, equal[differs])
        by_chance, _ = _agreement(own, order, neighbours)
        enough = n_pairs * (1 - by_chance) >= MIN_DISAGREEING
        if enough and by_chance <= MAX_BY_CHANCE and shared >= MIN_SHARED:
            return other
    return None


def _codes(column: pd.Series) -> Any:
    """Return the rank of each value among the different ones, -1 where it is missing."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        is_mixed = column.dtype == object and not _is_text(column)  # it may hold lists
        return pd.factorize(column.map(str) if is_mixed else column, sort=True)[0]
    ranks = np.argsort(np.argsort(column.cat.categories.to_numpy()))
    return np.append(ranks, -1)[column.cat.codes]


def _some(pairs: Any, rng: np.random.Generator) -> Any:
    return pairs if len(pairs) <= MAX_PAIRS else rng.choice(pairs, MAX_PAIRS, replace=False)


def _agreement(codes: Any, order: Any, pairs: Any) -> tuple[float, int]:
    """Return the share of pairs of rows, one behind the other in order, that agree, and how many.

    Pairs with a missing value do not count.
    """
    first, second = codes[order[pairs]], codes[order[pairs + 1]]
    known = (first >= 0) & (second >= 0)
    agree = (first == second)[known]
    return (float(agree.mean()) if len(agree) else 0.0), len(agree)
