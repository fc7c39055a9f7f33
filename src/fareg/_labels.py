"""Labels and columns: the label of each column of prediction sets or probabilities.

It comes from ``classes`` if given, else from the column names of a frame, else from the sorted
labels of y if there are as many of them as columns. In any other case ``classes`` is required.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import product, takewhile
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import check_same_order, column_names, is_frame
from fareg._validation import BoolArray, IntArray, InvalidInputError, check_same_length, warn
from fareg._words import fraction, percent, shown

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", re.ASCII)
SUSPICIOUS_ROWS = 30  # so many calibration rows rarely share one label by chance


def label_codes(y: Any, classes: Any) -> IntArray:
    """Return the column of each label, -1 for a label that is not a class.

    Labels are compared as in Python: 1, 1.0 and True are equal, a text equals no number.

    >>> label_codes([1.0, 3, 2, "2"], [1, 2])
    array([ 0, -1,  1, -1])
    """
    given, known = _values(y), _values(classes)
    if given.dtype != known.dtype:  # only as objects, 1 equals 1.0
        given, known = given.astype(object), known.astype(object)
    codes = pd.Index(known, dtype=known.dtype).get_indexer(pd.Index(given, dtype=given.dtype))
    return np.asarray(codes, dtype=np.int64)


def calibration_codes(y: Any, classes: Any, *, alpha: float) -> IntArray:
    """Return the columns of calibration labels, checked by :func:`check_known`."""
    codes, labels = label_codes(y, classes), _values(y)
    if (unknown := codes < 0).any():
        check_known(int(unknown.sum()), len(codes), labels[unknown], classes, alpha=alpha)
    if len(codes) >= SUSPICIOUS_ROWS and len(classes) > 1 and (codes == codes[0]).all():
        warn(
            f"all {len(codes)} calibration rows have the label {labels[0]}: the promise holds for "
            "rows like these; calibrate on rows with all labels that you expect"
        )
    return codes


def check_known(n_unknown: int, n: int, labels: Any, classes: Any, *, alpha: float) -> None:
    """Warn of calibration rows whose ``labels`` the estimator never saw; refuse if all rows are."""
    if n_unknown == 0:
        return
    if n_unknown == n:
        kinds = [type(np.asarray(given).tolist()[0]).__name__ for given in (classes, labels)]
        fix = "train it on rows with these labels"
        if str(labels[0]) in map(str, classes):  # for example "2" instead of 2
            fix = f"these are of type {kinds[0]}: convert y from {kinds[1]}"
        raise InvalidInputError(
            f"y holds no label that the estimator knows, got {labels[0]}; its classes are "
            f"{shown(classes)}; {fix}"
        )
    warn(
        f"{n_unknown} of {n} calibration rows ({percent(n_unknown / n)}) have labels that the "
        f"estimator never saw ({shown(sorted_labels(labels))}), which no set can contain: to keep "
        f"the promised {fraction(1 - alpha)}, at most {fraction(alpha)} of every group may have "
        "such labels; train the estimator on these labels too"
    )


@dataclass(frozen=True, eq=False)
class SetTable:
    """Prediction sets with the label of each column, and the true labels."""

    sets: BoolArray  # (n_samples, n_classes)
    classes: tuple[Any, ...]
    codes: IntArray  # (n_samples,) column of the true label, -1 for a label without a column
    notes: tuple[str, ...]  # remarks on how the sets were read

    @classmethod
    def from_labels(cls, sets: BoolArray, classes: list[Any], labels: Any, *notes: str) -> SetTable:
        """Find the true labels among the classes, and note those that are not."""
        codes = label_codes(labels, classes)
        if n_unknown := int((codes < 0).sum()):
            notes += (
                f"{n_unknown} of {len(codes)} labels are not among the classes "
                f"({shown(sorted_labels(labels[codes < 0]))}): no set can contain them, so they "
                "count as not covered",
            )
        return cls(sets, tuple(classes), codes, notes)

    @property
    def size(self) -> IntArray:
        return self.sets.sum(axis=1).astype(np.int64)

    @property
    def covered(self) -> BoolArray:
        """Whether each set contains the true label; a label without a column is not covered."""
        hit: BoolArray = self.sets[np.arange(len(self.codes)), self.codes]
        return hit & (self.codes >= 0)


def read_set_table(sets: Any, y: Any, classes: Any = None) -> SetTable:
    """Read prediction sets from a table of True and False with one column per class."""
    labels = check_labels(y)
    marks = check_marks(sets)
    check_same_length(y=labels, sets=marks)
    check_same_order(y=y, sets=sets)
    columns = column_classes(labels, marks.shape[1], names=frame_names(sets), classes=classes)
    return SetTable.from_labels(marks, columns.classes, labels, *columns.notes)


def check_labels(y: Any) -> Any:
    """Return true labels as an array of shape (n_samples,); refuse missing labels."""
    labels = _values(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or len(labels) == 0:
        raise InvalidInputError(
            f"y must be one-dimensional and not empty, got shape {labels.shape}; one label per row"
        )
    return refuse_missing(labels)


def refuse_missing(labels: Any) -> Any:
    """Return labels unchanged, or refuse them if one is missing."""
    if missing := int(pd.isna(labels).sum()):
        raise InvalidInputError(
            f"y must not have missing labels (NaN or None), got {missing} of {len(labels)}; "
            "drop those rows"
        )
    return labels


def check_marks(sets: Any) -> BoolArray:
    """Return prediction sets as a bool array of shape (n_samples, n_classes)."""
    try:
        table = np.asarray(sets)
    except ValueError:  # the rows have several lengths
        table = np.empty(0, dtype=object)
    is_marked = all(isinstance(mark, bool | np.bool_) for mark in table.flat) and table.ndim > 1
    if table.dtype.kind in "OUST" and not is_marked:
        raise InvalidInputError(
            "sets must be a table of True and False with a column per class, got labels; mark "
            "them: [[label in row for label in classes] for row in sets]"
        )
    if table.ndim == 3 and table.shape[2] == 1:
        table = table[:, :, 0]
    if table.ndim != 2 or table.size == 0:
        fix = "one confidence level at a time: sets[:, :, 0]" if table.ndim == 3 else "a table"
        raise InvalidInputError(
            "sets must be a table of shape (n_samples, n_classes) that is not empty, "
            f"got shape {table.shape}; pass {fix}"
        )
    marks = table.astype(bool)
    if table.dtype.kind not in "biufO" or not (table == marks).all():
        raise InvalidInputError(
            "sets must hold only True and False: whether each class is in the set; pass "
            "probabilities to a conformal classifier first"
        )
    return marks


@dataclass(frozen=True)
class ColumnClasses:
    """The label of each column, and the prefix and suffix that its name has around the label."""

    classes: list[Any]
    prefix: str = ""
    suffix: str = ""
    notes: tuple[str, ...] = ()


def column_classes(
    y: Any,
    n_columns: int,
    *,
    names: list[Any] | None = None,
    classes: Any = None,
    table: str = "sets",
) -> ColumnClasses:
    """Find the label of each of the ``n_columns`` columns of a table.

    ``names`` are the column names, None for a table without names. Errors call the table ``table``.

    >>> column_classes(["low", "high"], 3, names=["in_low", "in_mid", "in_high"]).classes
    ['low', 'mid', 'high']
    """
    labels = sorted_labels(y)
    if classes is not None:
        given = check_classes(classes, n_columns, table)
        found, n_found = _as_labels(names or [], given)
        if n_found not in (0, len(given)):
            raise InvalidInputError(
                f"{table} has columns {shown(names or [])} but classes are {shown(given)}; rename "
                "the columns, or leave classes None"
            )
        # if the columns are not named after the classes, they are in the order of the classes
        return ColumnClasses(_as_labels(found if n_found else given, labels)[0])
    if names is not None:
        return _named_columns(names, labels, table)
    has_order = len({isinstance(label, str) for label in labels}) == 1  # not numbers and texts
    if len(labels) == n_columns and has_order:
        return ColumnClasses(labels)
    raise InvalidInputError(
        f"{table} has {n_columns} columns without names but y holds {len(labels)} labels "
        f"({shown(labels)}); pass classes, the label of each column"
    )


def check_classes(classes: Any, n_columns: int | None = None, table: str = "sets") -> list[Any]:
    """Return the label of each column as a list of distinct labels."""
    known = classes if isinstance(classes, list) else np.asarray(classes).tolist()
    if not isinstance(known, list) or not known or not pd.Index(known, dtype=object).is_unique:
        raise InvalidInputError(f"classes must be a list of distinct labels, got {classes!r}")
    if n_columns is not None and len(known) != n_columns:
        raise InvalidInputError(
            f"classes must name each of the {n_columns} columns of {table}, got {len(known)} labels"
        )
    return known


def plain_text(label: Any) -> str | Decimal:
    """Return a label in a form in which 1, 1.0, "1" and " 01" are equal.

    >>> plain_text("1e3") == plain_text(1000.0), plain_text(True) == plain_text("true ")
    (True, True)
    """
    text = str(label).strip()
    if NUMBER.fullmatch(text):
        return Decimal(text)
    return text.lower() if text.lower() in ("true", "false") else text


def set_text(labels: Iterable[str]) -> str:
    """Write a set of labels as text, a JSON list."""
    return json.dumps(list(labels), ensure_ascii=False)


def frame_names(sets: Any) -> list[Any] | None:
    """Return the column names of a frame, None for an array or default names."""
    if not is_frame(sets):
        return None
    if isinstance(sets, pd.DataFrame):
        return None if isinstance(sets.columns, pd.RangeIndex) else list(sets.columns)
    names: list[Any] = list(column_names(sets))
    default = [f"column_{j}" for j in range(len(names))]  # the names that polars gives
    return None if names == default else names


def _named_columns(names: list[Any], labels: list[Any], table: str) -> ColumnClasses:
    """Read names as labels: unchanged, as text, or without a shared prefix and suffix."""
    if not pd.Index(names, dtype=object).is_unique:
        raise InvalidInputError(f"columns of {table} must have distinct names, got {shown(names)}")
    classes, n_found = _as_labels(names, labels)
    if n_found:
        return ColumnClasses(classes)
    texts = list(map(str, names))
    readings: dict[int, list[ColumnClasses]] = {0: []}  # by the number of labels found
    n_prefix = range(shared_length(texts) + 1)
    n_suffix = range(shared_length([text[::-1] for text in texts]) + 1)
    for begin, end in product(n_prefix, n_suffix):
        inner = [text[begin : len(text) - end] for text in texts]
        classes, n_found = _as_labels(inner, labels) if all(inner) else ([], 0)
        note = f"columns {shown(names)} of the {table} are read as labels {shown(classes)}"
        cut = texts[0][:begin], texts[0][len(texts[0]) - end :]
        readings.setdefault(n_found, []).append(ColumnClasses(classes, *cut, (note,)))
    most = max(readings)
    if most and len(readings[most]) == 1:
        return readings[most][0]
    raise InvalidInputError(
        f"{table} has columns {shown(names)}, but none is a label of y ({shown(labels)}); "
        "name its columns after the labels, or pass classes, the label of each column"
    )


def shared_length(names: list[str]) -> int:
    """Return the length of the prefix that all names share."""
    shared = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return len(list(shared))


def _as_labels(names: list[Any], labels: list[Any]) -> tuple[list[Any], int]:
    """Return names in the type of the labels, and how many of them are labels.

    If no name equals a label, their texts are compared: "1" is the label 1 if y holds numbers.
    """
    n_equal = int((label_codes(labels, names) >= 0).sum())
    known, texts = {plain_text(label): label for label in labels}, list(map(plain_text, names))
    n_similar = len(set(texts) & set(known)) if len(set(texts)) == len(texts) else 0
    if n_equal or not n_similar:
        return names, max(n_equal, n_similar)
    return [known.get(text, name) for text, name in zip(texts, names, strict=True)], n_similar


def sorted_labels(labels: Any) -> list[Any]:
    """Return the sorted distinct labels; labels that cannot be compared are sorted as text."""
    distinct = pd.unique(pd.Series(_values(labels))).tolist()
    try:
        return sorted(distinct)
    except TypeError:
        return sorted(distinct, key=str)


def _values(labels: Any) -> Any:
    """Return labels as an array; a list keeps the type of each of its labels."""
    if isinstance(labels, list | tuple) and not any(map(np.ndim, labels[:1])):
        return pd.Series(list(labels), dtype=object).infer_objects().to_numpy()
    return np.asarray(labels)
