"""Tables and labels as they come in, and what is noted about them in fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from fareg._columns import KINDS, check_same_order, column_names, in_order, is_frame, take_rows
from fareg._labels import refuse_missing
from fareg._validation import InvalidInputError, check_same_length
from fareg._words import shown
from fareg.calibration import require

PROBES = (None, 0.0, "a")  # one row each: missing, a number, a text


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows with labels after checks, and what lies beside them."""

    X: Any
    y: Any
    about: Any = None  # frame of the sensitive features, if X does not hold them
    clusters: Any = None  # (n_samples,) ids of people or places with several rows

    def take(self, rows: Any) -> Labelled:
        """Return some of the rows."""
        beside = (
            None if part is None else take_rows(part, rows) for part in (self.about, self.clusters)
        )
        return Labelled(take_rows(self.X, rows), self.y[rows], *beside)


def validated_table(clf: Any, X: Any, *, reset: bool) -> Any:
    """Return X if the classifier can read it; without ``reset``, its columns must be as in fit."""
    try:
        if not is_frame(X):
            X = check_array(X, dtype=None, ensure_all_finite=False, estimator=clf)
        elif not reset:
            X = in_order(X, getattr(clf, "feature_names_in_", None))
        validate_data(clf, X, reset=reset, skip_check_array=True)
    except (ValueError, TypeError) as error:
        fix = "" if reset else _what_to_leave_out(clf, X)
        raise InvalidInputError(f"{str(error).rstrip()}{fix}") from error
    if len(X) == 0:
        raise InvalidInputError("X must have at least one row, got 0 sample(s)")
    if reset:
        return X
    names = list(getattr(clf, "column_kinds_", None) or ())
    # without names to compare, columns are taken by position
    if names and column_names(X) != names:
        named = isinstance(X, pd.DataFrame)
        X = X.set_axis(names, axis=1) if named else pd.DataFrame(X, columns=names)
    return X


def _what_to_leave_out(clf: Any, X: Any) -> str:
    """Return the end of a sentence that tells how a frame with more columns than fit had is cut."""
    names = [str(name) for name in getattr(clf, "feature_names_in_", ())]
    own = column_names(X) if is_frame(X) and names else []
    extra = [name for name in own if name not in names]
    if not extra or not set(names) <= set(own):
        return ""
    return f"; leave out {shown(extra)} with X[list(clf.feature_names_in_)]"


def checked_labels(X: Any, y: Any) -> Any:
    """Return the labels of X in one type, after checks that they are labels."""
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None")
    check_same_order(X=X, y=y)
    try:
        y = column_or_1d(y, warn=True)
        check_same_length(X=X, y=y)
        y = _one_type(refuse_missing(y))
        check_classification_targets(y)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    return y


def checked_clusters(X: Any, clusters: Any) -> Any:
    """Return the ids of people or places with several rows as an array, None without ids."""
    if clusters is None:
        return None
    check_same_order(X=X, clusters=clusters)
    clusters = np.asarray(clusters)
    check_same_length(X=X, clusters=clusters)
    return clusters


def _one_type(y: Any) -> Any:
    """Return labels in the dtype of their values: objects that are all int are int labels."""
    if y.dtype != object:
        return y
    if pd.api.types.infer_dtype(y, skipna=False) in ("mixed", "mixed-integer"):
        types = sorted({type(label).__name__ for label in y})
        raise InvalidInputError(
            f"y must hold labels of one type, got {', '.join(types)}; convert them to text"
        )
    return pd.Series(y).infer_objects().to_numpy()


def check_two_classes(y: Any) -> None:
    """Refuse labels of which there is only one."""
    if len(pd.unique(y)) < 2:
        raise InvalidInputError(
            f"y must hold at least two classes, got one class: {y[0]}; nothing to predict"
        )


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
