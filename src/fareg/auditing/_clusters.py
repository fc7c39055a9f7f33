"""Clusters of rows that depend on each other, and a warning of copies that nobody declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import (
    SensitiveFeatures,
    as_numbers,
    canonical,
    column_names,
    is_frame,
    selected_positions,
    series_of,
)
from fareg._rows import distinct_rows
from fareg._validation import (
    BoolArray,
    FaregError,
    IntArray,
    InvalidInputError,
    check_same_length,
    warn,
)
from fareg._words import count, rows

MANY_REPEATS = 0.1  # share of rows equal to an earlier one from which on repeats are suspicious
NEARLY_UNIQUE = 0.9  # a column that tells this share of the distinct rows apart is like an id
MIN_DISTINCT = 50  # a column with fewer distinct values may well repeat them by chance


def read_clusters(
    X: Any, clusters: Any, selection: SensitiveFeatures = None
) -> tuple[IntArray | None, SensitiveFeatures]:
    """Return the number of each row's cluster, and the sensitive features without the ids.

    ``clusters`` is the name or position of a column of X, an array of ids, or None. The sensitive
    features are the given ``selection``; None becomes all columns but that of the ids.
    """
    if clusters is None:
        return None, selection
    if np.isscalar(clusters):
        names = column_names(X)
        (position,) = selected_positions(names, clusters, "clusters")
        if len(names) == 1:
            raise InvalidInputError("X must have a column besides the clusters, got none")
        clusters = np.asarray(series_of(X)[position])
        if selection is None:
            selection = [p for p in range(len(names)) if p != position]
        by_name = not (callable(selection) or is_frame(selection))
        if by_name and position in selected_positions(names, selection):
            raise InvalidInputError(
                f"sensitive_features must not hold the clusters, got {names[position]}; drop it"
            )
    ids = np.asarray(clusters)
    if ids.ndim != 1:
        raise InvalidInputError(f"clusters must be one id per row, got shape {ids.shape}")
    check_same_length(X=X, clusters=ids)
    codes = pd.factorize(ids)[0].astype(np.int64)
    if (codes < 0).any():
        raise InvalidInputError(
            f"clusters must not be missing, got {int((codes < 0).sum())} missing ids of "
            f"{len(codes)}; give a row that belongs to no other an id of its own"
        )
    return codes, selection


def one_row_of_each(clusters: Any, n: int, rng: np.random.Generator) -> BoolArray:
    """Draw one row from each cluster; without clusters, take all ``n`` rows.

    >>> int(one_row_of_each(np.array([7, 7, 7]), 3, np.random.default_rng(0)).sum())
    1
    """
    chosen = np.ones(n, dtype=bool)
    if clusters is not None:
        order = rng.permutation(n)
        chosen[:] = False
        chosen[order[np.unique(clusters[order], return_index=True)[1]]] = True
    return chosen


def warn_of_repeats(X: Any, y: Any) -> tuple[str, ...]:
    """Warn, and note, if many rows are copies of others, which independent rows would hardly be.

    Rows of few categories repeat by nature. So a warning needs two signs: a tenth of the rows equal
    an earlier one in all columns and in the label, and yet the numbers of one column tell nine
    tenths of the distinct rows apart, labels included, as measurements do. Whole numbers that fill
    their range, such as ages, are categories here. Copies in other tables go unnoticed.
    """
    try:
        columns = canonical(X)
    except FaregError:  # a column that cannot be read; the audit may not need it
        return ()
    label = pd.Series(pd.factorize(np.asarray(y).ravel())[0], name="")
    first, which = distinct_rows(pd.concat([columns, label], axis=1))
    n_repeats = len(which) - len(first)
    if n_repeats < MANY_REPEATS * len(which):
        return ()
    needed = max(MIN_DISTINCT, NEARLY_UNIQUE * len(first))
    if any(_is_scattered(column, needed) for _, column in columns.iloc[first].items()):
        note = (
            f"{count(n_repeats)} of {rows(len(which))} equal an earlier row in every column and in "
            "the label, so they are not independent and findings may be chance; drop the copies, "
            "or pass clusters, an id per row that copies share"
        )
        warn(note)
        return (note,)
    return ()


def _is_scattered(column: pd.Series, needed: float) -> bool:
    """Tell whether ``needed`` numbers or more do not just fill a range of integers."""
    if column.dtype == object:
        return False
    numbers = as_numbers(column)
    values = numbers[np.isfinite(numbers)].unique()
    if len(values) < needed:
        return False
    return bool((values % 1 != 0).any() or np.ptp(values) > 2 * len(values))
