"""Coverage and size of prediction sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, IntArray, InvalidInputError, check_same_length


def is_covered(y: Any, sets: Any, *, classes: Any = None) -> BoolArray:
    """Tell for each row whether its label is in its prediction set.

    Parameters
    ----------
    y : array of shape (n_samples,)
        True labels.
    sets : bool array of shape (n_samples, n_classes) or (n_samples, n_classes, 1)
        Prediction sets, one column per class.
    classes : array of shape (n_classes,), optional
        The label of each column. None: labels are column numbers 0, ..., n_classes - 1.

    Returns
    -------
    ndarray of shape (n_samples,)
        A label that is none of the classes is not covered.

    Examples
    --------
    >>> is_covered(["cat", "dog"], [[True, False], [True, False]], classes=["cat", "dog"])
    array([ True, False])
    """
    sets = _check_sets(sets)
    y = np.asarray(y)
    if y.ndim != 1:
        raise InvalidInputError(
            f"y must be one-dimensional, got shape {y.shape}; one label per row"
        )
    check_same_length(y=y, sets=sets)
    codes = _codes(y, sets.shape[1], classes)
    known = codes >= 0
    covered = np.zeros(len(y), dtype=bool)
    covered[known] = sets[known, codes[known]]
    return covered


def coverage_score(y: Any, sets: Any, *, classes: Any = None) -> float:
    """Return the share of labels that are in their prediction sets.

    Parameters
    ----------
    y : array of shape (n_samples,)
        True labels.
    sets : bool array of shape (n_samples, n_classes) or (n_samples, n_classes, 1)
        Prediction sets, one column per class.
    classes : array of shape (n_classes,), optional
        The label of each column. None: labels are column numbers.

    Returns
    -------
    float

    Examples
    --------
    >>> coverage_score([0, 1], [[True, False], [True, False]])
    0.5
    """
    return float(is_covered(y, sets, classes=classes).mean())


def mean_set_size(sets: Any) -> float:
    """Return the mean number of labels in a prediction set.

    Parameters
    ----------
    sets : bool array of shape (n_samples, n_classes) or (n_samples, n_classes, 1)
        Prediction sets, one column per class.

    Returns
    -------
    float

    Examples
    --------
    >>> mean_set_size([[True, True, False], [True, False, False]])
    1.5
    """
    return float(_check_sets(sets).sum(axis=1).mean())


def _check_sets(sets: Any) -> BoolArray:
    """Return prediction sets as a bool array of shape (n_samples, n_classes)."""
    sets = np.asarray(sets)
    if sets.ndim == 3 and sets.shape[2] == 1:
        sets = sets[:, :, 0]
    if sets.ndim != 2 or sets.size == 0:
        hint = "; pass one confidence level at a time" if sets.ndim == 3 else ""
        raise InvalidInputError(
            f"sets must have shape (n_samples, n_classes) and not be empty, got {sets.shape}{hint}"
        )
    if sets.dtype.kind not in "biuf" or not np.isin(sets, (0, 1)).all():
        raise InvalidInputError("sets must hold only True and False: is the class in the set?")
    return np.asarray(sets, dtype=bool)


def _codes(y: Any, n_classes: int, classes: Any) -> IntArray:
    """Return the column of each label, -1 for a label without one."""
    if classes is None:
        if y.dtype.kind not in "biuf":
            raise InvalidInputError(
                f"y must hold column numbers 0..{n_classes - 1} if classes is None, got "
                f"{y[0]!r}; pass classes, the label of each column"
            )
        known = np.isin(y, np.arange(n_classes))
        return np.where(known, y, -1).astype(np.int64)
    labels = pd.Index(np.asarray(classes))
    if len(labels) != n_classes or not labels.is_unique:
        raise InvalidInputError(
            f"classes must hold one distinct label per column of sets, got {labels.nunique()} "
            f"distinct of {len(labels)} for {n_classes} columns"
        )
    return np.asarray(labels.get_indexer(pd.Index(y)), dtype=np.int64)
