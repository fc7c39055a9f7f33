"""Tables beside X: class probabilities of anyone's model, and who the rows are about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from fareg._columns import check_same_order, column_kinds, column_names, in_order, is_frame
from fareg._labels import column_classes, frame_names, label_codes
from fareg._validation import InvalidInputError, check_same_length, warn
from fareg._words import percent, shown
from fareg.calibration import GivenProba, Rows

CHECKED_ROWS = 10_000  # enough to see that columns are swapped
SURELY = 1e-6  # the chance that a warning of swapped columns is a false alarm


def proba_classes(proba: Any, y: Any, classes: Any) -> Any:
    """Return the label of each column: from ``classes``, a frame's names, or the sorted y."""
    n_columns = _checked(proba).shape[1]
    found = column_classes(y, n_columns, names=frame_names(proba), classes=classes, table="proba")
    return np.asarray(found.classes)


def given_proba(proba: Any, X: Any, classes: Any, labels: Any = None) -> GivenProba:
    """Return probabilities beside X with their columns in the order of ``classes``.

    ``labels`` tells the label of each column. If it is None, the names of a frame tell it, and
    the columns of an array are in the order of ``classes``. An array in a file stays there.
    """
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


def warn_of_swapped(rows: Rows, classes: Any) -> None:
    """Warn if the most probable label would be right far more often with two columns exchanged."""
    rows = rows.take(slice(0, min(len(rows), CHECKED_ROWS)))
    top, labels = (codes[rows.labels >= 0] for codes in (rows.top[0], rows.labels))
    wrong = pd.DataFrame({"a": np.minimum(top, labels), "b": np.maximum(top, labels)})
    wrong = wrong[top != labels].value_counts().reset_index()
    right = np.bincount(labels[top == labels], minlength=rows.n_classes)
    # an exchange of a and b makes these rows right, and those that are right wrong
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
