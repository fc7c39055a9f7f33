"""Read the input of an audit: sets in the forms of other libraries, clusters, repeated rows."""

from __future__ import annotations

from collections.abc import Collection
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
from fareg._labels import (
    SetTable,
    check_classes,
    check_labels,
    label_codes,
    read_set_table,
    sorted_labels,
)
from fareg._rows import distinct_rows
from fareg._validation import FaregError, IntArray, InvalidInputError, check_same_length, warn
from fareg._words import count, rows, shown

MANY_REPEATS = 0.1  # repeats are suspicious if this share of the rows equals an earlier one
NEARLY_UNIQUE = 0.9  # a column with different values in this share of distinct rows is like an id
MIN_DISTINCT = 50  # a column with fewer distinct values may well repeat them by chance


def read_sets(sets: Any, y: Any, classes: Any = None) -> SetTable:
    """Read prediction sets in any of the forms that :func:`fareg.audit` accepts."""
    labels = check_labels(y)
    lists = _lists_of_labels(sets, labels)
    if lists is None:
        table = read_set_table(sets, labels, classes)
    else:
        check_same_length(y=labels, sets=lists)
        flat = pd.Index([label for row in lists for label in row], dtype=object)
        known = _all_labels(labels, flat) if classes is None else check_classes(classes)
        codes = label_codes(flat, known)
        row = np.repeat(np.arange(len(lists)), [*map(len, lists)])
        for i in np.flatnonzero(codes < 0)[:1]:
            raise InvalidInputError(
                f"sets holds {flat[i]!r} in row {row[i]}, which is not one of the classes "
                f"({shown(known)}); add it to classes, or leave classes None"
            )
        marks = np.zeros((len(lists), len(known)), dtype=bool)
        marks[row, codes] = True
        table = SetTable.from_labels(marks, known, labels)
    if (table.codes < 0).all():
        raise InvalidInputError(
            f"y and classes must use the same labels, got {labels[0]!r} in y and "
            f"{shown(table.classes)} in classes; convert one of them"
        )
    for note in table.notes:
        warn(note)
    return table


def _lists_of_labels(sets: Any, labels: Any) -> list[Any] | None:
    """Return one collection of labels per row, or None if ``sets`` marks labels by True."""
    if is_frame(sets):
        return None
    if hasattr(sets, "to_list"):  # a column of pandas or polars
        sets = sets.to_list()
    if isinstance(sets, np.ndarray):
        if sets.ndim == 2 and sets.dtype.kind not in "biuf" and not _all_bool(sets.ravel()):
            return list(sets)
        sets = list(sets) if sets.ndim == 1 and sets.dtype == object else None
    if not isinstance(sets, list | tuple):
        return None
    lists = list(sets)
    for row, item in enumerate(lists):
        if isinstance(item, str) or not isinstance(item, Collection):
            raise InvalidInputError(
                f"sets must hold one list of labels per row, got {item!r} in row {row}; "
                "read texts into lists (json.loads for those of predict_table), and write an empty "
                "list for an empty set"
            )
    if lists and np.ndim(lists[0]) > 1:
        return None
    if len(set(map(len, lists))) != 1 or not all(map(_all_bool, lists)):
        return lists
    if not _all_bool(labels) or any(len(set(item)) < len(item) for item in lists):
        return None  # True and False mark the classes here: lists of labels have no repeats
    if len(lists[0]) == 1:
        return lists
    raise InvalidInputError(
        "sets holds lists of True and False, which may be labels or marks of the classes False and "
        "True; pass marks as an array"
    )


def _all_bool(values: Any) -> bool:
    return len(values) > 0 and all(isinstance(value, bool | np.bool_) for value in values)


def _all_labels(labels: Any, flat: pd.Index) -> list[Any]:
    in_y = pd.unique(labels).tolist()
    in_sets = [getattr(label, "item", lambda label=label: label)() for label in flat.unique()]
    if in_sets and not set(in_y) & set(in_sets):
        raise InvalidInputError(
            f"y and sets must use the same labels, got {in_y[0]!r} in y and {in_sets[0]!r} in "
            "sets; convert one of them"
        )
    return sorted_labels(list(dict.fromkeys([*in_y, *in_sets])))


def read_clusters(
    X: Any, clusters: Any, selection: SensitiveFeatures = None
) -> tuple[IntArray | None, SensitiveFeatures]:
    """Return the number of each row's cluster, and the sensitive features without the ids.

    ``clusters`` is the name or position of a column of X, an array of ids, or None. If
    ``selection`` is None, the sensitive features are all columns except that of the ids.
    """
    if clusters is None:
        return None, selection
    if np.isscalar(clusters):
        names = column_names(X)
        (position,) = selected_positions(names, clusters, "clusters")
        if len(names) == 1:
            raise InvalidInputError("X must have another column next to the clusters, got none")
        clusters = np.asarray(series_of(X)[position])
        if selection is None:
            selection = [p for p in range(len(names)) if p != position]
        by_name = not (callable(selection) or is_frame(selection))
        if by_name and position in selected_positions(names, selection):
            raise InvalidInputError(
                f"sensitive_features must not include the clusters, got {names[position]}; drop it"
            )
    ids = np.asarray(clusters)
    if ids.ndim != 1:
        raise InvalidInputError(f"clusters must be one id per row, got shape {ids.shape}")
    check_same_length(X=X, clusters=ids)
    codes = pd.factorize(ids)[0].astype(np.int64)
    if (codes < 0).any():
        raise InvalidInputError(
            f"clusters must not be missing, got {int((codes < 0).sum())} missing ids of "
            f"{len(codes)}; give every row that stands alone an id of its own"
        )
    return codes, selection


def warn_of_repeats(X: Any, y: Any) -> tuple[str, ...]:
    """Warn if many rows are copies of others, and return the warning as a note.

    Tables of categories repeat rows by nature. So a warning needs two signs: at least a tenth of
    the rows equal an earlier one in all columns and in the label, and yet one numeric column has a
    distinct value for nine tenths of the distinct rows, as measurements do. Whole numbers that fill
    their range, such as ages, are categories here. Copies in other tables go unnoticed.
    """
    try:
        columns = canonical(X)
    except FaregError:  # a column that cannot be read; the audit may not need it
        return ()
    label = pd.Series(pd.factorize(np.asarray(y).ravel())[0], name="")
    first, row_of = distinct_rows(pd.concat([columns, label], axis=1))
    n_repeats = len(row_of) - len(first)
    if n_repeats < MANY_REPEATS * len(row_of):
        return ()
    needed = max(MIN_DISTINCT, NEARLY_UNIQUE * len(first))
    if not any(_is_scattered(column, needed) for _, column in columns.iloc[first].items()):
        return ()
    note = (
        f"{count(n_repeats)} of {rows(len(row_of))} equal an earlier row in every column and in "
        "the label, so the rows are not independent and findings may be due to chance; drop the "
        "copies, or pass clusters, an id per row that copies share"
    )
    warn(note)
    return (note,)


def _is_scattered(column: pd.Series, needed: float) -> bool:
    """Return whether a column has ``needed`` distinct numbers, not just a range of integers."""
    if column.dtype == object:
        return False
    numbers = as_numbers(column)
    values = numbers[np.isfinite(numbers)].unique()
    return len(values) >= needed and bool(
        (values % 1 != 0).any() or np.ptp(values) > 2 * len(values)
    )
