"""Coverage and size of prediction sets."""

from __future__ import annotations

from typing import Any

from fareg._labels import check_marks, read_set_table
from fareg._validation import BoolArray, warn


def is_covered(y: Any, sets: Any, *, classes: Any = None) -> BoolArray:
    """Tell for each row whether its label is in its prediction set.

    Parameters
    ----------
    y : array of shape (n_samples,)
        True labels.
    sets : bool array of shape (n_samples, n_classes) or (n_samples, n_classes, 1)
        Prediction sets, one column per class. The names of a frame are the classes.
    classes : array of shape (n_classes,), optional
        The label of each column. None: the names of a frame, or the sorted labels of ``y`` if there
        are as many of them as columns.

    Returns
    -------
    ndarray of shape (n_samples,)
        A label that is none of the classes is not covered; a warning tells.

    Examples
    --------
    >>> is_covered(["cat", "dog"], [[True, False], [True, False]], classes=["cat", "dog"])
    array([ True, False])
    """
    table = read_set_table(sets, y, classes)
    for note in table.notes:
        warn(note)
    return table.covered


def coverage_score(y: Any, sets: Any, *, classes: Any = None) -> float:
    """Return the share of labels that are in their prediction sets.

    Parameters
    ----------
    y, sets, classes
        As in :func:`is_covered`.

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

    Examples
    --------
    >>> mean_set_size([[True, True, False], [True, False, False]])
    1.5
    """
    return float(check_marks(sets).sum(axis=1).mean())
