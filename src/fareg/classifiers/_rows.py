"""The rows of a call: checked once, each column read once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from fareg._columns import (
    as_numbers,
    as_text,
    canonical,
    check_columns,
    check_same_order,
    check_table,
    column_names,
    in_order,
    is_frame,
    take_rows,
)
from fareg._labels import column_classes, frame_names, label_codes, refuse_missing
from fareg._validation import IntArray, InvalidInputError, check_same_length, warn
from fareg._words import first_line, percent, shown

BLOCK = 1 << 22  # probabilities that are scored at a time: 32 megabytes
ZERO_DECIMALS = re.compile(r"(?<=\d)\.0+$")  # of a whole number that was stored as a float
MANY_REPEATED = 0.1  # warn if a larger share of the rows equal an earlier one
FALSE_ALARM = 1e-6  # the largest chance of a false warning of swapped columns


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one call after checks."""

    X: Any  # the table as the caller passed it, for the estimator
    table: pd.DataFrame  # its columns in canonical form
    sensitive: pd.DataFrame | None = None  # sensitive features in a frame of their own
    ids: Any = None  # (n,) the person of each row, as text
    proba: Any = None  # (n, n_classes) class probabilities, if the caller passed them
    y: Any = None  # (n,) labels
    clusters: IntArray | None = None  # (n,) number of the cluster
    codes: IntArray | None = None  # (n,) column of each label, -1 if the estimator never saw it

    def __len__(self) -> int:
        return len(self.table)

    @property
    def tables(self) -> list[pd.DataFrame]:
        """The separate frame of sensitive features, if there is one, and X."""
        return [self.table] if self.sensitive is None else [self.sensitive, self.table]

    def take(self, rows: Any) -> Rows:
        """Return some of the rows, by their numbers or a slice."""
        parts: dict[str, Any] = {"X": take_rows(self.X, rows)}
        for name, part in vars(self).items():
            if isinstance(part, pd.DataFrame) and name != "X":
                parts[name] = part.iloc[rows].reset_index(drop=True)
            elif part is not None and name != "X":
                parts[name] = part[rows]
        return replace(self, **parts)

    def blocks(self, n_classes: int) -> Iterator[tuple[slice, Rows]]:
        """Yield parts whose scores fit into memory, each with its slice of the rows."""
        size = max(1, BLOCK // n_classes)
        for start in range(0, len(self), size):
            block = slice(start, start + size)
            yield block, self if len(self) <= size else self.take(block)


def read_rows(
    clf: Any,
    X: Any,
    proba: Any = None,
    sensitive_features: Any = None,
    ids: Any = None,
    *,
    reset: bool = False,
    labels: Any = None,
) -> Rows:
    """Check the rows of a call; ``reset`` is for those of ``fit``.

    Later calls must have the columns of ``fit``, and their values are converted to its kinds.
    ``labels`` names the columns of ``proba``.
    """
    X = check_table(X)
    if not reset and is_frame(X):
        X = in_order(X, getattr(clf, "feature_names_in_", None))
    try:
        validate_data(clf, X, reset=reset, skip_check_array=True)
    except TypeError:  # only some names are strings
        raise InvalidInputError(
            f"column names must be of one type, got {shown(map(repr, X.columns))}; make them texts "
            "with X.rename(columns=str)"
        ) from None
    except ValueError as error:
        check_names(clf, X, "clf")
        reason = first_line(error).rstrip(".")
        raise InvalidInputError(f"{reason}; pass the columns that fit had") from None
    if len(X) == 0:
        raise InvalidInputError("X must have at least one row, got 0 sample(s)")
    kinds = {} if reset else clf.column_kinds_ or {}
    if not reset and not kinds and is_frame(X):
        X = np.asarray(X)  # fit had an array, so columns are known by position
    elif kinds and column_names(X) != list(kinds):  # an array has no names, so go by position
        is_named = isinstance(X, pd.DataFrame)
        X = X.set_axis(list(kinds), axis=1) if is_named else pd.DataFrame(X, columns=list(kinds))
    table = canonical(X)
    for name, kind in kinds.items():
        if (kind == "text") != (table[name].dtype == object):
            table[name] = as_text(table[name]) if kind == "text" else _to_numbers(table[name], kind)
    sensitive = None
    if sensitive_features is not None:
        sensitive = _read_sensitive(clf, sensitive_features, X, reset=reset)
    ids = None if ids is None else read_ids("ids", ids, X)
    proba = None if proba is None else read_proba(proba, X, clf.classes_, labels)
    return Rows(X, table, sensitive, ids, proba)


def _to_numbers(column: pd.Series, kind: str) -> pd.Series:
    """Return texts as numbers; warn if some cannot be converted, refuse them if none can."""
    numbers, n = as_numbers(column), int(column.notna().sum())
    lost = column[column.notna() & numbers.isna()]
    if len(lost):
        problem = (
            f"column {column.name} held {kind}s in fit, got {len(lost)} texts in {n} values such "
            f"as {lost.iloc[0][:30]!r}"
        )
        if len(lost) == n:
            raise InvalidInputError(f"{problem}; convert it")
        warn(f"{problem}, which count as missing; convert it")
    return numbers


def check_names(model: Any, X: Any, name: str) -> None:
    """Refuse a frame with fewer or more columns than a model was fitted on."""
    names = [str(column) for column in getattr(model, "feature_names_in_", ())]
    given = column_names(X) if is_frame(X) and names else names
    check_columns(names, given, "X")
    if extra := [column for column in given if column not in names]:
        raise InvalidInputError(
            f"X must have the {len(names)} columns of fit, got {len(given)}; leave out "
            f"{shown(extra)} with X[list({name}.feature_names_in_)]"
        ) from None


def _read_sensitive(clf: Any, frame: Any, X: Any, *, reset: bool) -> pd.DataFrame:
    """Return a separate frame of sensitive features: without ``reset``, the columns of fit."""
    frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
    if not is_frame(frame):
        raise InvalidInputError(
            f"sensitive_features must be a frame, got {type(frame).__name__}; to use columns of X, "
            "name them in the constructor"
        )
    _check_same_rows("sensitive_features", frame, X)
    table = canonical(frame)
    if reset:
        return table
    if clf.sensitive_kinds_ is None:
        raise InvalidInputError(
            "this classifier was calibrated without a frame of sensitive_features; leave it out"
        )
    check_columns(list(clf.sensitive_kinds_), column_names(table), "sensitive_features")
    return table[list(clf.sensitive_kinds_)]


def labelled(rows: Rows, y: Any, clusters: Any) -> Rows:
    """Return the rows with their labels and the numbers of their clusters."""
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None")
    try:
        # scikit-learn reads nullable numbers of pandas as floats, which merges large labels
        labels = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else y, warn=True)
        _check_same_rows("y", y, rows.X, labels)
        labels = _of_one_type(refuse_missing(labels), "y must hold labels")
        check_classification_targets(labels)
    except (TypeError, ValueError) as error:  # bytes as labels raise a TypeError
        raise InvalidInputError(str(error)) from None
    if clusters is not None:
        clusters = read_ids("clusters", clusters, rows.X)
    return replace(rows, y=labels, clusters=clusters)


def read_ids(name: str, given: Any, X: Any) -> Any:
    """Return "clusters" as numbers, "ids" as texts; 7, 7.0 and "7" are the same id."""
    ids = np.asarray(given)
    if ids.ndim != 1:
        is_name = isinstance(given, str)
        got = f"{given!r}; pass X[{given!r}]" if is_name else f"shape {ids.shape}; pass a column"
        raise InvalidInputError(f"{name} must be one id per row, got {got}")
    _check_same_rows(name, given, X, ids)
    if n_missing := int(pd.isna(ids).sum()):
        raise InvalidInputError(
            f"{name} must not be missing, got {n_missing} missing ids of {len(ids)}; give each "
            "such row an id of its own"
        )
    if name == "clusters":
        return np.unique(_of_one_type(ids, "clusters must hold ids"), return_inverse=True)[1]
    codes, distinct = pd.factorize(ids)
    texts = [ZERO_DECIMALS.sub("", str(value).strip()) for value in distinct]
    return np.array(texts, dtype=object)[codes]


def _of_one_type(values: Any, rule: str) -> Any:
    """Return values in their common dtype: objects that are all int become int."""
    if values.dtype != object:
        return values
    if pd.api.types.infer_dtype(values, skipna=False) in ("mixed", "mixed-integer"):
        types = sorted({type(value).__name__ for value in values})
        raise InvalidInputError(f"{rule} of one type, got {', '.join(types)}; convert them to text")
    return pd.Series(values).infer_objects().to_numpy()


def _check_same_rows(name: str, given: Any, X: Any, values: Any = None) -> None:
    """Refuse an argument whose rows differ from those of X, or come in another order."""
    check_same_length(**{"X": X, name: given if values is None else values})
    check_same_order(**{"X": X, name: given})


def read_proba(proba: Any, X: Any, classes: Any, labels: Any = None) -> Any:
    """Return the probabilities that a caller passed, with columns in the order of ``classes``.

    ``labels`` gives the label of each column. If it is None, a frame's names do, and the columns of
    an array are in the order of ``classes``. An array in a file stays there.
    """
    table = _as_array(proba)
    _check_same_rows("proba", proba, X, table)
    if table.shape[1] != len(classes):
        raise InvalidInputError(
            f"proba must have a column for each of the {len(classes)} classes ({shown(classes)}), "
            f"got {table.shape[1]}"
        )
    labels = list(classes) if labels is None and frame_names(proba) is None else labels
    columns = proba_classes(proba, classes, labels)
    order = label_codes(classes, columns)
    if (order < 0).any():
        raise InvalidInputError(
            f"the columns of proba are {shown(columns)}, but the classes are "
            f"{shown(classes)}; name each class once"
        )
    return table if (np.diff(order) == 1).all() else table[:, order]


def proba_classes(proba: Any, y: Any, classes: Any) -> list[Any]:
    """Return the label of each column: from ``classes``, a frame's names, or the sorted y."""
    n_columns, names = _as_array(proba).shape[1], frame_names(proba)
    return column_classes(y, n_columns, names=names, classes=classes, table="proba").classes


def _as_array(proba: Any) -> Any:
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


def warn_of_repeated(before: IntArray) -> None:
    """Warn if many calibration rows equal an earlier one; ``before`` counts those before each."""
    share = float((before > 0).mean())
    if share > MANY_REPEATED:
        warn(
            f"{percent(share)} of {len(before)} calibration rows equal an earlier one, "
            "label included: equal new rows that are predicted one at a time share a random number "
            "and are covered together or not at all; give every person an id of their own"
        )


def warn_of_swapped(top: IntArray, y: IntArray, classes: Any) -> None:
    """Warn if exchanging two columns would make the most probable label right far more often.

    ``top`` and ``y`` are the columns of each row's most probable and true label.
    """
    n = len(classes)
    table = np.zeros((n, n), dtype=np.int64)
    np.add.at(table, (top[y >= 0], y[y >= 0]), 1)
    # exchanging a and b makes rows right that confuse them, and wrong those that were right
    gained, right = np.triu(table + table.T, 1), np.diag(table)
    lost = right[:, None] + right
    a, b = np.unravel_index((gained - lost).argmax(), table.shape) if n > 1 else (0, 0)
    gain, loss, n_pairs = int(gained[a, b]), int(lost[a, b]), n * (n - 1) / 2
    if a < b and binomtest(loss, loss + gain, alternative="less").pvalue * n_pairs < FALSE_ALARM:
        now, then = (percent((right.sum() + k) / table.sum()) for k in (0, gain - loss))
        warn(
            f"the most probable label is right for {now} of {table.sum()} rows, and for {then} if "
            f"the columns of {classes[a]} and {classes[b]} were exchanged: check that no columns "
            "of probabilities are swapped"
        )
