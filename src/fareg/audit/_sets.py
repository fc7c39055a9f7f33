"""Prediction sets as other libraries give them, read into one bool array."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._frames import is_frame
from fareg._validation import BoolArray, IntArray, InvalidInputError, check_same_length, warn

SHOWN = 8  # labels that an error names


@dataclass(frozen=True, eq=False)
class SetTable:
    """Prediction sets with the label of each column, and which true labels they hold."""

    sets: BoolArray  # (n_samples, n_classes)
    classes: tuple[Any, ...]
    covered: BoolArray  # (n_samples,)
    notes: tuple[str, ...]

    @property
    def size(self) -> IntArray:
        """Number of labels in each set, shape (n_samples,)."""
        return self.sets.sum(axis=1).astype(np.int64)


def read_sets(sets: Any, y: Any, classes: Any = None) -> SetTable:
    """Read prediction sets in any of the forms that :func:`fareg.audit` accepts."""
    labels = _labels(y)
    if classes is not None:
        classes = _check_classes(classes)
    given = _rows_of_labels(sets, labels)
    if given is None:
        table = _indicators(sets)
        classes = _classes_of_columns(labels, table.shape[1]) if classes is None else classes
        if len(classes) != table.shape[1]:
            raise InvalidInputError(
                f"classes must name each of the {table.shape[1]} columns of sets, "
                f"got {len(classes)} labels"
            )
        check_same_length(y=labels, sets=table)
    else:
        check_same_length(y=labels, sets=given)
        flat = _flat(given)
        classes = _all_labels(labels, flat) if classes is None else classes
        table = _marked(given, flat, classes)
    codes = _positions(labels, classes)
    known = codes >= 0
    covered = np.zeros(len(labels), dtype=bool)
    covered[known] = table[known, codes[known]]
    return SetTable(table, tuple(classes), covered, _notes(labels, known))


def _labels(y: Any) -> Any:
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) == 0:
        raise InvalidInputError(
            f"y must be one-dimensional and not empty, got shape {labels.shape}; one label per row"
        )
    missing = int(pd.isna(labels).sum())
    if missing:
        raise InvalidInputError(
            f"y must not have missing labels (NaN or None), got {missing} of {len(labels)}; "
            "drop those rows"
        )
    return labels


def _check_classes(classes: Any) -> list[Any]:
    known = np.asarray(classes).tolist() if not isinstance(classes, list) else classes
    if not isinstance(known, list) or not known or not pd.Index(known, dtype=object).is_unique:
        raise InvalidInputError(f"classes must be a list of distinct labels, got {classes!r}")
    return known


def _rows_of_labels(sets: Any, labels: Any) -> list[Any] | None:
    """Return one collection of labels per row, or None if ``sets`` marks labels by True."""
    if is_frame(sets):
        return None
    if hasattr(sets, "to_list"):  # a column of pandas or polars
        sets = sets.to_list()
    if isinstance(sets, np.ndarray):
        if sets.ndim > 1 and (sets.dtype.kind in "biuf" or _all_bool(sets.ravel())):
            return None
        if sets.ndim == 2 or (sets.ndim == 1 and sets.dtype == object):
            return list(sets)
        return None
    if not isinstance(sets, list | tuple):
        return None
    rows = list(sets)
    for row, item in enumerate(rows):
        if isinstance(item, str) or not isinstance(item, Iterable):
            raise InvalidInputError(
                f"sets must hold one list of labels per row, got {item!r} in row {row}; "
                "split texts into labels, and write an empty list for an empty set"
            )
    if rows and np.ndim(rows[0]) > 1:
        return None
    marks = len({len(list(item)) for item in rows}) == 1 and all(map(_all_bool, rows))
    # lists of True and False mark the classes, unless True and False are the labels
    return None if marks and len(rows) and not _all_bool(labels) else rows


def _all_bool(values: Any) -> bool:
    listed = list(values)
    return bool(listed) and all(isinstance(value, bool | np.bool_) for value in listed)


def _indicators(sets: Any) -> BoolArray:
    table = np.asarray(sets)
    if table.ndim == 3 and table.shape[2] > 1:
        raise InvalidInputError(
            f"sets holds {table.shape[2]} confidence levels, got shape {table.shape}; "
            "audit one at a time: sets[:, :, 0]"
        )
    if table.ndim == 3:
        table = table[:, :, 0]
    if table.ndim != 2 or table.size == 0:
        raise InvalidInputError(
            "sets must be a table of shape (n_samples, n_classes) or one list of labels per row, "
            f"got shape {table.shape}"
        )
    if table.dtype == object and _all_bool(table.ravel()):
        table = table.astype(bool)
    if table.dtype.kind not in "biuf" or not np.isin(table, (0, 1)).all():
        raise InvalidInputError(
            "sets must hold only True and False (is the class in the set?); "
            "pass lists of labels as lists, not as an array of numbers"
        )
    marks: BoolArray = table.astype(bool)
    return marks


def _classes_of_columns(labels: Any, n_classes: int) -> list[Any]:
    """Return the labels in sorted order if there are as many as columns, else column numbers."""
    distinct = _sorted(pd.unique(labels).tolist())
    if len(distinct) == n_classes:
        return distinct
    numbers = list(range(n_classes))
    if set(distinct) <= set(numbers):
        return numbers
    shown = ", ".join(map(str, distinct[:SHOWN])) + (", ..." if len(distinct) > SHOWN else "")
    raise InvalidInputError(
        f"sets has {n_classes} columns but y holds {len(distinct)} labels ({shown}); "
        "pass classes, the label of each column"
    )


def _flat(rows: list[Any]) -> pd.Index:
    return pd.Index([label for row in rows for label in row], dtype=object)


def _all_labels(labels: Any, flat: pd.Index) -> list[Any]:
    ours = pd.unique(labels).tolist()
    theirs = [getattr(label, "item", lambda label=label: label)() for label in flat.unique()]
    if theirs and not set(ours) & set(theirs):
        raise InvalidInputError(
            f"y and sets must use the same labels, got {ours[0]!r} in y and {theirs[0]!r} in "
            "sets; convert one of them"
        )
    return _sorted(list(dict.fromkeys([*ours, *theirs])))


def _sorted(labels: list[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=str)


def _marked(rows: list[Any], flat: pd.Index, classes: list[Any]) -> BoolArray:
    codes = _positions(flat, classes)
    lengths = [len(list(row)) for row in rows]
    owner = np.repeat(np.arange(len(rows)), lengths)
    if (codes < 0).any():
        first = int(np.flatnonzero(codes < 0)[0])
        shown = ", ".join(map(str, classes[:SHOWN])) + (", ..." if len(classes) > SHOWN else "")
        raise InvalidInputError(
            f"sets holds {flat[first]!r} in row {owner[first]}, which is none of the classes "
            f"({shown}); add it to classes, or leave classes None"
        )
    table = np.zeros((len(rows), len(classes)), dtype=bool)
    table[owner, codes] = True
    return table


def _positions(labels: Any, classes: list[Any]) -> IntArray:
    index = pd.Index(classes, dtype=object)
    return np.asarray(index.get_indexer(pd.Index(labels, dtype=object)), dtype=np.int64)


def _notes(labels: Any, known: BoolArray) -> tuple[str, ...]:
    if known.all():
        return ()
    strange = _sorted(pd.unique(labels[~known]).tolist())
    shown = ", ".join(map(str, strange[:SHOWN])) + (", ..." if len(strange) > SHOWN else "")
    note = (
        f"{int((~known).sum())} of {len(known)} labels are none of the classes ({shown}): "
        "no set can hold these, they count as not covered"
    )
    warn(note)
    return (note,)
