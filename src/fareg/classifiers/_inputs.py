"""Tables and labels as they come in, what lies beside them, and what is noted in fit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from fareg._columns import (
    KINDS,
    CodedTable,
    Texts,
    check_same_order,
    check_table,
    code_table,
    column_names,
    in_order,
    is_frame,
)
from fareg._labels import column_classes, frame_names, label_codes, refuse_missing
from fareg._selection import check_columns
from fareg._validation import IntArray, InvalidInputError, check_same_length, require, warn
from fareg._words import first_line, percent, shown

WHOLE = re.compile(r"(?<=\d)\.0+$")  # what a whole number has more if it is stored as a float
PROBES = (None, 0.0, "a")  # one row each: missing, a number, a text
MANY_REPEATED = 0.1  # share of rows that equal an earlier one from which there is a warning
SURELY = 1e-6  # the chance that a warning of swapped columns is a false alarm


@dataclass(frozen=True, eq=False)
class Given:
    """The rows of one call after checks, coded once, and what lies beside them."""

    table: CodedTable
    y: Any = None  # (n,) labels
    beside: CodedTable | None = None  # the sensitive features, if X does not hold them
    clusters: Any = None  # (n,) ids of people or places with several rows
    ids: Any = None  # (n,) texts that say whose row it is
    proba: Any = None  # (n, n_classes) class probabilities, if the estimator is not asked

    def __len__(self) -> int:
        return len(self.table)

    @property
    def X(self) -> Any:
        """The table as it came, for the estimator."""
        return self.table.source

    def take(self, rows: Any) -> Given:
        """Return some of the rows."""
        y, clusters, ids, proba = (
            None if part is None else part[rows]
            for part in (self.y, self.clusters, self.ids, self.proba)
        )
        beside = None if self.beside is None else self.beside.take(rows)
        return Given(self.table.take(rows), y, beside, clusters, ids, proba)

    def labelled(self, y: Any, clusters: Any) -> Given:
        """Return the rows with labels, and the ids of people with several rows, after checks."""
        y = checked_labels(self.X, y)
        return replace(self, y=y, clusters=checked_clusters(self.X, clusters))


def validated_table(clf: Any, X: Any, *, reset: bool) -> Any:
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
        told = first_line(error).rstrip(".")
        raise InvalidInputError(f"{told}; pass the columns that fit had") from error
    if len(X) == 0:
        raise InvalidInputError("X must have at least one row, got 0 sample(s)")
    if reset:
        return X
    kinds = getattr(clf, "column_kinds_", None) or {}
    if not kinds and is_frame(X):
        X = np.asarray(X)  # fit had an array, so what it learned knows columns by position
    names = list(kinds)
    # without names to compare, columns are taken by position
    if names and column_names(X) != names:
        named = isinstance(X, pd.DataFrame)
        X = X.set_axis(names, axis=1) if named else pd.DataFrame(X, columns=names)
    return X


def check_numbers(table: CodedTable, kinds: dict[str, str] | None) -> None:
    """Refuse texts where fit had numbers or dates, or warn that they are read as missing."""
    for name, column in table.columns.items() if kinds else ():
        kind = (kinds or {})[name]
        if kind == "text" or not isinstance(column, Texts):
            continue
        texts, counts = column.values[:-1], column.counts()
        is_lost = np.isnan(column.numbers()[:-1])
        n, n_lost = int(counts.sum()), int(counts[is_lost].sum())
        if n_lost:
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


def checked_labels(X: Any, y: Any) -> Any:
    """Return the labels of X in one type, after checks that they are labels."""
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None")
    check_same_order(X=X, y=y)
    try:
        # scikit-learn reads nullable numbers of pandas as floats, which merges large labels
        y = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else y, warn=True)
        check_same_length(X=X, y=y)
        y = _one_type(refuse_missing(y), "y must hold labels")
        check_classification_targets(y)
    except (TypeError, ValueError) as error:  # labels that are bytes are a TypeError
        raise InvalidInputError(str(error)) from error
    return y


def checked_clusters(X: Any, clusters: Any) -> Any:
    """Return the ids of people or places with several rows as an array, None without ids."""
    if clusters is None:
        return None
    return _one_type(_one_per_row("clusters", X, clusters), "clusters must hold ids")


def checked_ids(X: Any, ids: Any) -> Any:
    """Return who each row is about as texts, in which 7, 7.0 and "7" are one person."""
    if ids is None:
        return None
    number, persons = pd.factorize(_one_per_row("ids", X, ids))
    texts = [WHOLE.sub("", str(person).strip()) for person in persons]
    return np.array([*texts, None], dtype=object)[number]


def _one_per_row(name: str, X: Any, given: Any) -> Any:
    """Return the ids of rows as an array, after checks that there is one for each row."""
    check_same_order(**{"X": X, name: given})
    ids = np.asarray(given)
    if ids.ndim != 1:
        raise InvalidInputError(f"{name} must be one id per row, got shape {ids.shape}")
    check_same_length(**{"X": X, name: ids})
    if (n_missing := int(pd.isna(ids).sum())) > 0:
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


def proba_classes(proba: Any, y: Any, classes: Any) -> Any:
    """Return the label of each column: from ``classes``, a frame's names, or the sorted y."""
    n_columns = _checked(proba).shape[1]
    found = column_classes(y, n_columns, names=frame_names(proba), classes=classes, table="proba")
    return np.asarray(found.classes)


def given_proba(proba: Any, X: Any, classes: Any, labels: Any = None) -> Any:
    """Return probabilities beside X with columns in the order of ``classes``; None without any.

    ``labels`` names the label of each column. If it is None, the names of a frame do, and the
    columns of an array are in the order of ``classes``. An array in a file stays there.
    """
    if proba is None:
        return None
    table = _checked(proba)
    check_same_length(X=X, proba=table)
    check_same_order(X=X, proba=proba)
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


def _checked(proba: Any) -> Any:
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
    wrong = pd.DataFrame({"a": np.minimum(top, y), "b": np.maximum(top, y)})
    wrong = wrong[top != y].value_counts().reset_index()
    right = np.bincount(y[top == y], minlength=len(classes))
    # an exchange of a and b makes these wrong rows right, and makes the right rows of both wrong
    wrong["right"] = right[wrong["a"]] + right[wrong["b"]]
    if wrong.empty:
        return
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


def sensitive_beside(
    table: Any, X: Any, kinds: dict[str, str] | None, *, reset: bool = False
) -> CodedTable | None:
    """Return the frame of sensitive features beside X with the columns that it had in fit.

    ``kinds`` is what these held; with ``reset``, this is the frame of fit.
    """
    if table is None:
        return None
    frame = table.to_frame() if isinstance(table, pd.Series) else table
    if not is_frame(frame):
        raise InvalidInputError(
            f"sensitive_features beside X must be a frame, got {type(table).__name__}; names of "
            "columns of X belong into the constructor"
        )
    check_same_length(X=X, sensitive_features=frame)
    check_same_order(X=X, sensitive_features=frame)
    coded = code_table(frame)
    if reset:
        return coded
    if kinds is None:
        raise InvalidInputError(
            "this classifier was calibrated without sensitive_features beside X; leave them out"
        )
    names = list(coded.columns)
    missing = [name for name in kinds if name not in names]
    if missing:
        raise InvalidInputError(
            f"sensitive_features must have the columns {shown(kinds)}, got {shown(names)}; "
            f"add {shown(missing)}"
        )
    return coded.select([names.index(name) for name in kinds])


def check_column_kinds(clf: Any) -> None:
    """Refuse stored kinds of columns that do not fit the fitted columns."""
    for name in ("column_kinds_", "sensitive_kinds_"):
        known = getattr(clf, name, None)
        require(known is None or isinstance(known, dict), name)
        require(all(kind in KINDS for kind in (known or {}).values()), name)
    excluded = getattr(clf, "excluded_", [])
    require(isinstance(excluded, list), "excluded_")
    require(all(type(p) is int and 0 <= p < clf.n_features_in_ for p in excluded), "excluded_")
    kinds = getattr(clf, "column_kinds_", None)
    if kinds is not None:
        names = list(getattr(clf, "feature_names_in_", kinds))
        require(list(kinds) == names and len(names) == clf.n_features_in_, "column_kinds_")


def probe_rows(clf: Any) -> Given:
    """Return rows of which nothing is known, in the form that the classifier was fitted on."""
    names = getattr(clf, "feature_names_in_", None)
    if names is not None:
        require(isinstance(names, np.ndarray), "feature_names_in_")
        require(names.shape == (clf.n_features_in_,), "feature_names_in_")
    X = _probes(range(clf.n_features_in_) if names is None else names)
    kinds = getattr(clf, "sensitive_kinds_", None)
    beside = None if kinds is None else code_table(_probes(kinds))
    return Given(code_table(X.to_numpy() if names is None else X), beside=beside)


def _probes(names: Iterable[Any]) -> pd.DataFrame:
    return pd.DataFrame(dict.fromkeys(names, np.array(PROBES, dtype=object)), dtype=object)
