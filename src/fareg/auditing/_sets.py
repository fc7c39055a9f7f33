"""Prediction sets as other libraries give them, read into one bool array."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import is_frame
from fareg._labels import (
    SetTable,
    check_classes,
    check_labels,
    label_codes,
    read_set_table,
    sorted_labels,
)
from fareg._validation import BoolArray, InvalidInputError, check_same_length, warn
from fareg._words import shown


def read_sets(sets: Any, y: Any, classes: Any = None) -> SetTable:
    """Read prediction sets in any of the forms that :func:`fareg.audit` accepts."""
    labels = check_labels(y)
    given = _rows_of_labels(sets, labels)
    if given is None:
        table = read_set_table(sets, labels, classes)
    else:
        check_same_length(y=labels, sets=given)
        flat = pd.Index([label for row in given for label in row], dtype=object)
        known = _all_labels(labels, flat) if classes is None else check_classes(classes)
        table = SetTable.of(_marked(given, flat, known), known, labels)
    if (table.codes < 0).all():
        raise InvalidInputError(
            f"y and classes must use the same labels, got {labels[0]!r} in y and "
            f"{shown(table.classes)} in classes; convert one of them"
        )
    for note in table.notes:
        warn(note)
    return table


def _rows_of_labels(sets: Any, labels: Any) -> list[Any] | None:
    """Return one collection of labels per row, or None if ``sets`` marks labels by True."""
    if is_frame(sets):
        return None
    if hasattr(sets, "to_list"):  # a column of pandas or polars
        sets = sets.to_list()
    if isinstance(sets, np.ndarray):
        if sets.ndim > 1 and (sets.dtype.kind in "biuf" or _all_bool(sets.ravel())):
            return None
        if sets.ndim == 2:
            return list(sets)
        sets = list(sets) if sets.ndim == 1 and sets.dtype == object else None
    if not isinstance(sets, list | tuple):
        return None
    rows = list(sets)
    for row, item in enumerate(rows):
        if isinstance(item, str) or not isinstance(item, Collection):
            raise InvalidInputError(
                f"sets must hold one list of labels per row, got {item!r} in row {row}; "
                "read texts into lists, those of predict_table with json.loads, and write an empty "
                "list for an empty set"
            )
    if rows and np.ndim(rows[0]) > 1:
        return None
    marks = len(set(map(len, rows))) == 1 and all(map(_all_bool, rows))
    if not marks:
        return rows
    if not _all_bool(labels) or any(len(set(item)) < len(item) for item in rows):
        return None  # lists of True and False mark the classes; a list of labels repeats none
    if len(rows[0]) == 1:
        return rows
    raise InvalidInputError(
        "sets holds lists of True and False, which may be labels or marks of the classes False and "
        "True; pass marks as an array"
    )


def _all_bool(values: Any) -> bool:
    listed = list(values)
    return bool(listed) and all(isinstance(value, bool | np.bool_) for value in listed)


def _all_labels(labels: Any, flat: pd.Index) -> list[Any]:
    ours = pd.unique(labels).tolist()
    theirs = [getattr(label, "item", lambda label=label: label)() for label in flat.unique()]
    if theirs and not set(ours) & set(theirs):
        raise InvalidInputError(
            f"y and sets must use the same labels, got {ours[0]!r} in y and {theirs[0]!r} in "
            "sets; convert one of them"
        )
    return sorted_labels(list(dict.fromkeys([*ours, *theirs])))


def _marked(rows: list[Any], flat: pd.Index, classes: list[Any]) -> BoolArray:
    codes = label_codes(flat, classes)
    owner = np.repeat(np.arange(len(rows)), list(map(len, rows)))
    if (codes < 0).any():
        first = int(np.flatnonzero(codes < 0)[0])
        raise InvalidInputError(
            f"sets holds {flat[first]!r} in row {owner[first]}, which is none of the classes "
            f"({shown(classes)}); add it to classes, or leave classes None"
        )
    table = np.zeros((len(rows), len(classes)), dtype=bool)
    table[owner, codes] = True
    return table
