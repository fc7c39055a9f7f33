"""Tables and labels as they come in, what lies beside them, and what is noted in fit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from fareg._columns import (
    KINDS,
    check_same_order,
    check_table,
    coded_column,
    column_kinds,
    column_names,
    in_order,
    is_frame,
    series_of,
    spelled_numbers,
    take_rows,
)
from fareg._labels import column_classes, frame_names, label_codes, refuse_missing
from fareg._names import check_columns
from fareg._validation import InvalidInputError, check_same_length, warn
from fareg._words import first_line, percent, shown
from fareg.calibration import GivenProba, Rows, require
from fareg.scores import is_randomised

WHOLE = re.compile(r"(?<=\d)\.0+$")  # what a whole number has more if it is stored as a float
PROBES = (None, 0.0, "a")  # one row each: missing, a number, a text
CHECKED_ROWS = 10_000  # rows that are enough to see that columns are swapped
MANY_REPEATED = 0.1  # share of rows that equal an earlier one from which there is a warning
SURELY = 1e-6  # the chance that a warning of swapped columns is a false alarm


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows with labels after checks, and what lies beside them."""

    X: Any
    y: Any
    about: Any = None  # frame of the sensitive features, if X does not hold them
    clusters: Any = None  # (n_samples,) ids of people or places with several rows
    ids: Any = None  # (n_samples,) texts that tell whose row it is

    @property
    def beside(self) -> dict[str, Any]:
        """What lies beside the table, by the names that :class:`Rows` has for it."""
        return {"about": self.about, "clusters": self.clusters, "ids": self.ids}

    def take(self, rows: Any) -> Labelled:
        """Return some of the rows."""
        beside = {
            name: None if part is None else take_rows(part, rows)
            for name, part in self.beside.items()
        }
        return Labelled(take_rows(self.X, rows), self.y[rows], **beside)


def validated_table(clf: Any, X: Any, *, reset: bool) -> Any:
    """Return X if the classifier can read it; without ``reset``, its columns must be as in fit."""
    X = check_table(X)
    if not reset:
        X = in_order_of(clf, X)
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
    if kinds:
        _check_numbers(X, kinds)
    return X


def _check_numbers(X: Any, kinds: dict[str, str]) -> None:
    """Refuse or tell of texts where fit had numbers or dates, which are read as missing."""
    for series in series_of(X):
        kind = kinds[str(series.name)]
        if kind == "text" or series.dtype.is_numeric() or series.dtype.is_temporal():
            continue
        codes, values = coded_column(series)
        if codes is None or values.dtype != object:
            continue
        is_lost = np.isnan(spelled_numbers(values[:-1]))
        n, n_lost = np.sum(codes >= 0), np.isin(codes, np.flatnonzero(is_lost)).sum()
        if n_lost:
            told = (
                f"column {series.name} held {kind}s in fit, got {n_lost} texts in {n} values such "
                f"as {str(values[:-1][is_lost][0])[:30]!r}"
            )
            if n_lost == n:
                raise InvalidInputError(f"{told}; convert it")
            warn(f"{told}, which count as missing; convert it")


def in_order_of(model: Any, X: Any) -> Any:
    """Return a frame with its columns in the order in which a model knows them, if it does."""
    return in_order(X, getattr(model, "feature_names_in_", None)) if is_frame(X) else X


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


def check_two_classes(y: Any) -> None:
    """Refuse labels of which there is only one."""
    if len(pd.unique(y)) < 2:
        raise InvalidInputError(
            f"y must hold at least two classes, got one class: {y[0]}; nothing to predict"
        )


def proba_classes(proba: Any, y: Any, classes: Any) -> Any:
    """Return the label of each column: from ``classes``, a frame's names, or the sorted y."""
    n_columns = _checked(proba).shape[1]
    found = column_classes(y, n_columns, names=frame_names(proba), classes=classes, table="proba")
    return np.asarray(found.classes)


def given_proba(proba: Any, X: Any, classes: Any, labels: Any = None) -> GivenProba | None:
    """Return probabilities beside X with columns in the order of ``classes``; None without any.

    ``labels`` tells the label of each column. If it is None, the names of a frame tell it, and
    the columns of an array are in the order of ``classes``. An array in a file stays there.
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
    told = column_classes(classes, len(classes), names=names, classes=labels, table="proba").classes
    order = label_codes(classes, told)
    if (order < 0).any():
        raise InvalidInputError(
            f"the columns of proba are {shown(told)}, but the classes are {shown(classes)}; "
            "name each class once"
        )
    return GivenProba(table if (np.diff(order) == 1).all() else table[:, order])


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


def count_repeated(rows: Rows) -> int:
    """Return how many rows equal an earlier one with its label and id; 0 without a random score."""
    return int(pd.Series(rows.hashes).duplicated().sum()) if is_randomised(rows.score) else 0


def warn_of_repeated(n_repeated: int, n_rows: int) -> None:
    """Warn if many calibration rows equal an earlier one, as rows to come will."""
    if n_repeated > MANY_REPEATED * n_rows:
        warn(
            f"{percent(n_repeated / n_rows)} of {n_rows} calibration rows equal an earlier one, "
            "label included: people to come whose rows are equal share a random number if they are "
            "asked one at a time, and are covered together or not at all; give every person an id "
            "of their own"
        )


def warn_of_swapped(rows: Rows, classes: Any) -> None:
    """Warn if the most probable label would be right far more often with two columns exchanged."""
    rows = rows.take(slice(0, min(len(rows), CHECKED_ROWS)))
    top, labels = (codes[rows.labels >= 0] for codes in (rows.top[0], rows.labels))
    wrong = pd.DataFrame({"a": np.minimum(top, labels), "b": np.maximum(top, labels)})
    wrong = wrong[top != labels].value_counts().reset_index()
    right = np.bincount(labels[top == labels], minlength=rows.n_classes)
    # an exchange of a and b makes these wrong rows right, and makes the right rows of both wrong
    wrong["right"] = right[wrong["a"]] + right[wrong["b"]]
    if wrong.empty:
        return
    a, b, gained, lost = wrong.loc[(wrong["count"] - wrong["right"]).idxmax()]
    n_pairs = rows.n_classes * (rows.n_classes - 1) / 2
    chance = binomtest(lost, lost + gained, 0.5, alternative="less").pvalue * n_pairs
    if chance < SURELY:
        now, then = (percent((right.sum() + more) / len(labels)) for more in (0, gained - lost))
        warn(
            f"the most probable label is right for {now} of {len(labels)} rows, and for {then} if "
            f"the columns of {classes[a]} and {classes[b]} were exchanged: check that no columns "
            "of probabilities are swapped"
        )


def beside_kinds(table: Any) -> dict[str, str] | None:
    """Return what each column of a frame of sensitive features holds; None if there is none."""
    return None if table is None else column_kinds(_as_frame(table))


def sensitive_beside(table: Any, X: Any, kinds: dict[str, str] | None) -> Any:
    """Return the frame of sensitive features beside X with the columns that it had in fit."""
    if table is None:
        return None
    frame = _as_frame(table)
    check_same_length(X=X, sensitive_features=frame)
    check_same_order(X=X, sensitive_features=frame)
    if kinds is None:
        raise InvalidInputError(
            "this classifier was calibrated without sensitive_features beside X; leave them out"
        )
    names = column_names(frame)
    missing = [name for name in kinds if name not in names]
    if missing:
        raise InvalidInputError(
            f"sensitive_features must have the columns {shown(kinds)}, got {shown(names)}; "
            f"add {shown(missing)}"
        )
    extra = [name for name in names if name not in kinds]
    return in_order(frame.drop(columns=extra) if isinstance(frame, pd.DataFrame) else frame, kinds)


def _as_frame(table: Any) -> Any:
    if isinstance(table, pd.Series):
        table = table.to_frame()
    if not is_frame(table):
        raise InvalidInputError(
            f"sensitive_features beside X must be a frame, got {type(table).__name__}; names of "
            "columns of X belong into the constructor"
        )
    return table


def no_sensitive(kinds: dict[str, str]) -> Any:
    """Return a selection that refuses every table, because the sensitive features are missing."""

    def ask(X: Any) -> Any:
        raise InvalidInputError(
            f"this classifier was calibrated with sensitive features beside X ({shown(kinds)}); "
            "pass them again: sensitive_features=frame"
        )

    return ask


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
    if kinds is None:
        return
    names = getattr(clf, "feature_names_in_", list(kinds))
    require(list(kinds) == list(names), "column_kinds_")
    require(len(kinds) == clf.n_features_in_, "column_kinds_")


def probe_rows(clf: Any) -> Any:
    """Return rows of which nothing is known, in the form that the classifier was fitted on."""
    names = getattr(clf, "feature_names_in_", None)
    if names is None:
        return probes(range(clf.n_features_in_)).to_numpy()
    require(isinstance(names, np.ndarray), "feature_names_in_")
    require(names.shape == (clf.n_features_in_,), "feature_names_in_")
    return probes(names)


def probes(names: Iterable[Any]) -> pd.DataFrame:
    """Return rows of which nothing is known, with these columns."""
    values = np.array(PROBES, dtype=object)
    return pd.DataFrame(dict.fromkeys(names, values), dtype=object)
