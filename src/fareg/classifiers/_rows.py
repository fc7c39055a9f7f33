"""The rows of a call: checked once, each column read once, with what lies beside the table."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from fareg._columns import (
    CodedTable,
    Texts,
    check_columns,
    check_same_order,
    check_table,
    code_table,
    column_names,
    in_order,
    is_frame,
)
from fareg._labels import column_classes, frame_names, label_codes, refuse_missing
from fareg._validation import IntArray, InvalidInputError, check_same_length, warn
from fareg._words import first_line, percent, shown

WHOLE = re.compile(r"(?<=\d)\.0+$")  # what a whole number has more if it is stored as a float
MANY_REPEATED = 0.1  # share of rows that equal an earlier one from which there is a warning
SURELY = 1e-6  # the chance that a warning of swapped columns is a false alarm


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one call after checks."""

    table: CodedTable
    beside: CodedTable | None = None  # the sensitive features, if X does not hold them
    ids: Any = None  # (n,) texts that say whose row it is
    proba: Any = None  # (n, n_classes) class probabilities, if the estimator is not asked
    y: Any = None  # (n,) labels
    clusters: IntArray | None = None  # (n,) number of the person or place with several rows
    codes: IntArray | None = None  # (n,) columns of the labels, -1 if the estimator knows none

    def __len__(self) -> int:
        return len(self.table)

    @property
    def X(self) -> Any:
        """The table as it came, for the estimator."""
        return self.table.source

    @property
    def tables(self) -> list[CodedTable]:
        """The sensitive features beside X, if there are any, and X."""
        return [table for table in (self.beside, self.table) if table is not None]

    def take(self, rows: Any) -> Rows:
        """Return some of the rows."""
        arrays = (self.ids, self.proba, self.y, self.clusters, self.codes)
        beside = None if self.beside is None else self.beside.take(rows)
        own = (None if array is None else array[rows] for array in arrays)
        return Rows(self.table.take(rows), beside, *own)


def labelled(rows: Rows, y: Any, clusters: Any) -> Rows:
    """Return the rows with their labels, and the people or places with several rows."""
    clusters = None if clusters is None else read_clusters(clusters, rows.X)
    return replace(rows, y=read_labels(y, rows.X), clusters=clusters)


def read_table(clf: Any, X: Any, *, reset: bool = False) -> CodedTable:
    """Return X if the classifier can read it; without ``reset``, its columns must be as in fit."""
    X = check_table(X)
    if not reset and is_frame(X):
        X = in_order(X, getattr(clf, "feature_names_in_", None))
    try:
        validate_data(clf, X, reset=reset, skip_check_array=True)
    except TypeError as error:  # some names are texts and some are not
        raise InvalidInputError(
            f"column names must be of one type, got {shown(map(repr, X.columns))}; make them texts "
            "with X.rename(columns=str)"
        ) from error
    except ValueError as error:
        check_names(clf, X, "clf")
        reason = first_line(error).rstrip(".")
        raise InvalidInputError(f"{reason}; pass the columns that fit had") from error
    if len(X) == 0:
        raise InvalidInputError("X must have at least one row, got 0 sample(s)")
    if reset:
        return code_table(X)
    names = list(clf.column_kinds_ or ())
    if not names and is_frame(X):
        X = np.asarray(X)  # fit had an array, so what it learned knows columns by position
    if names and column_names(X) != names:  # without names to compare, position counts
        is_named = isinstance(X, pd.DataFrame)
        X = X.set_axis(names, axis=1) if is_named else pd.DataFrame(X, columns=names)
    table = code_table(X)
    for name in names:
        if clf.column_kinds_[name] != "text" and isinstance(table.columns[name], Texts):
            _refuse_texts(table.columns[name], name, clf.column_kinds_[name])
    return table


def _refuse_texts(column: Texts, name: str, kind: str) -> None:
    """Refuse texts where fit had numbers or dates; if only some are no numbers, warn."""
    texts, counts = column.values[:-1], column.counts()
    is_lost = np.isnan(column.numbers()[:-1])
    if not is_lost.any():
        return
    n, n_lost = int(counts.sum()), int(counts[is_lost].sum())
    found = (
        f"column {name} held {kind}s in fit, got {n_lost} texts in {n} values such "
        f"as {texts[int(is_lost.argmax())][:30]!r}"
    )
    if n_lost == n:
        raise InvalidInputError(f"{found}; convert it")
    warn(f"{found}, which count as missing; convert it")


def check_names(model: Any, X: Any, name: str) -> None:
    """Refuse a frame that lacks columns which a model was fitted on, or has more."""
    names = [str(column) for column in getattr(model, "feature_names_in_", ())]
    own = column_names(X) if is_frame(X) and names else names
    check_columns(names, own, "X")
    extra = [column for column in own if column not in names]
    if extra:
        raise InvalidInputError(
            f"X must have the {len(names)} columns of fit, got {len(own)}; leave out "
            f"{shown(extra)} with X[list({name}.feature_names_in_)]"
        )


def read_beside(clf: Any, frame: Any, X: Any, *, reset: bool = False) -> CodedTable:
    """Return the sensitive features beside X: without ``reset``, the columns of fit."""
    frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
    if not is_frame(frame):
        raise InvalidInputError(
            f"sensitive_features beside X must be a frame, got {type(frame).__name__}; names of "
            "columns of X belong into the constructor"
        )
    _check_beside("sensitive_features", frame, X)
    table = code_table(frame)
    if reset:
        return table
    kinds = clf.sensitive_kinds_
    if kinds is None:
        raise InvalidInputError(
            "this classifier was calibrated without sensitive_features beside X; leave them out"
        )
    names = list(table.columns)
    check_columns(list(kinds), names, "sensitive_features")
    return table.select([names.index(name) for name in kinds])


def read_labels(y: Any, X: Any) -> Any:
    """Return the labels of X in one type, after checks that they are labels."""
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None")
    try:
        # scikit-learn reads nullable numbers of pandas as floats, which merges large labels
        labels = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else y, warn=True)
        _check_beside("y", y, X, labels)
        labels = _one_type(refuse_missing(labels), "y must hold labels")
        check_classification_targets(labels)
    except (TypeError, ValueError) as error:  # labels that are bytes are a TypeError
        raise InvalidInputError(str(error)) from error
    return labels


def read_clusters(clusters: Any, X: Any) -> Any:
    """Return the number of the person or place behind each row."""
    ids = _one_type(_read_ids("clusters", clusters, X), "clusters must hold ids")
    return np.unique(ids, return_inverse=True)[1]


def read_ids(ids: Any, X: Any) -> Any:
    """Return who each row is about as texts, in which 7, 7.0 and "7" are one person."""
    number, persons = pd.factorize(_read_ids("ids", ids, X))
    return np.array([WHOLE.sub("", str(one).strip()) for one in persons], dtype=object)[number]


def _read_ids(name: str, given: Any, X: Any) -> Any:
    ids = np.asarray(given)
    if ids.ndim != 1:
        raise InvalidInputError(f"{name} must be one id per row, got shape {ids.shape}")
    _check_beside(name, given, X, ids)
    if n_missing := int(pd.isna(ids).sum()):
        raise InvalidInputError(
            f"{name} must not be missing, got {n_missing} missing ids of {len(ids)}; give each "
            "such row an id of its own"
        )
    return ids


def _one_type(values: Any, rule: str) -> Any:
    """Return values in the dtype that they have in common: objects that are all int become int."""
    if values.dtype != object:
        return values
    if pd.api.types.infer_dtype(values, skipna=False) in ("mixed", "mixed-integer"):
        types = sorted({type(value).__name__ for value in values})
        raise InvalidInputError(f"{rule} of one type, got {', '.join(types)}; convert them to text")
    return pd.Series(values).infer_objects().to_numpy()


def _check_beside(name: str, given: Any, X: Any, values: Any = None) -> None:
    """Refuse what has other rows than X, or the same in another order."""
    check_same_length(**{"X": X, name: given if values is None else values})
    check_same_order(**{"X": X, name: given})


def proba_classes(proba: Any, y: Any, classes: Any) -> list[Any]:
    """Return the label of each column: from ``classes``, a frame's names, or the sorted y."""
    n_columns = _as_numbers(proba).shape[1]
    names = frame_names(proba)
    return column_classes(y, n_columns, names=names, classes=classes, table="proba").classes


def read_proba(proba: Any, X: Any, classes: Any, labels: Any = None) -> Any:
    """Return probabilities beside X with columns in the order of ``classes``.

    ``labels`` names the label of each column. If it is None, the names of a frame do, and the
    columns of an array are in the order of ``classes``. An array in a file stays there.
    """
    table = _as_numbers(proba)
    _check_beside("proba", proba, X, table)
    if table.shape[1] != len(classes):
        raise InvalidInputError(
            f"proba must have a column for each of the {len(classes)} classes ({shown(classes)}), "
            f"got {table.shape[1]}"
        )
    names = frame_names(proba)
    labels = list(classes) if labels is None and names is None else labels
    found = column_classes(classes, len(classes), names=names, classes=labels, table="proba")
    order = label_codes(classes, found.classes)
    if (order < 0).any():
        raise InvalidInputError(
            f"the columns of proba are {shown(found.classes)}, but the classes are "
            f"{shown(classes)}; name each class once"
        )
    return table if (np.diff(order) == 1).all() else table[:, order]


def _as_numbers(proba: Any) -> Any:
    """Return probabilities as a table of numbers, without reading them."""
    table = np.asarray(proba)
    if table.ndim != 2:
        raise InvalidInputError(
            f"proba must have a column for each class, got shape {table.shape}; with two classes "
            "and the probability p of the second, pass np.column_stack([1 - p, p])"
        )
    if table.dtype.kind not in "fiu":
        raise InvalidInputError(f"proba must hold numbers, got {table.dtype}")
    return table


def warn_of_repeated(n_repeated: int, n_rows: int) -> None:
    """Warn if many calibration rows equal an earlier one, as rows to come will."""
    if n_repeated > MANY_REPEATED * n_rows:
        warn(
            f"{percent(n_repeated / n_rows)} of {n_rows} calibration rows equal an earlier one, "
            "label included: people to come whose rows are equal share a random number if they are "
            "asked one at a time, and are covered together or not at all; give every person an id "
            "of their own"
        )


def warn_of_swapped(top: IntArray, y: IntArray, classes: Any) -> None:
    """Warn if the most probable label would be right far more often with two columns exchanged.

    ``top`` and ``y`` are the columns of the most probable and of the true label of each row.
    """
    top, y = top[y >= 0], y[y >= 0]
    wrong = pd.DataFrame({"a": np.minimum(top, y), "b": np.maximum(top, y)})[top != y]
    if wrong.empty:
        return
    wrong = wrong.value_counts().reset_index()
    right = np.bincount(y[top == y], minlength=len(classes))
    # an exchange of a and b makes these wrong rows right, and makes the right rows of both wrong
    wrong["right"] = right[wrong["a"]] + right[wrong["b"]]
    a, b, gained, lost = wrong.loc[(wrong["count"] - wrong["right"]).idxmax()]
    n_pairs = len(classes) * (len(classes) - 1) / 2
    chance = binomtest(lost, lost + gained, 0.5, alternative="less").pvalue * n_pairs
    if chance < SURELY:
        now, then = (percent((right.sum() + more) / len(y)) for more in (0, gained - lost))
        warn(
            f"the most probable label is right for {now} of {len(y)} rows, and for {then} if "
            f"the columns of {classes[a]} and {classes[b]} were exchanged: check that no columns "
            "of probabilities are swapped"
        )
