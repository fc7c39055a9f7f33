"""Labels and columns: which column of a table belongs to which label, in one place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import IntArray, InvalidInputError, warn

SHOWN = 8  # labels that a sentence names


def label_codes(y: Any, classes: Any) -> IntArray:
    """Return the column of each label, -1 for a label that is none of the classes.

    Labels are compared as Python compares them: 1, 1.0 and ``np.int64(1)`` are one label, and so
    are True and 1. Text is equal whatever its width or type. Text never equals a number.

    Parameters
    ----------
    y : array of shape (n_samples,)
    classes : array of shape (n_classes,)
        The label of each column.

    Returns
    -------
    ndarray of int64, shape (n_samples,)

    Examples
    --------
    >>> label_codes([1.0, 3, 2, "2"], [1, 2])
    array([ 0, -1,  1, -1])
    """
    given, known = _values(y), _values(classes)
    if given.dtype != known.dtype:  # as objects 1 equals 1.0; one dtype needs no objects
        given, known = given.astype(object), known.astype(object)
    codes = pd.Index(known, dtype=known.dtype).get_indexer(pd.Index(given, dtype=given.dtype))
    return np.asarray(codes, dtype=np.int64)


def calibration_codes(
    y: Any, classes: Any, *, alpha: float, label_conditional: bool = False
) -> IntArray:
    """Return the columns of calibration labels; warn of labels that the estimator never saw.

    No set can contain such a label, so coverage can be ``1 - alpha`` only while the share of such
    labels is at most ``alpha``.
    """
    codes = label_codes(y, classes)
    unknown = codes < 0
    labels = _values(y)
    if unknown.all():
        raise InvalidInputError(
            f"y holds no label that the estimator knows, got {labels[0]}; "
            f"its classes are {shown(classes)}"
        )
    if unknown.any():
        share = float(unknown.mean())
        if label_conditional:
            effect = "the promise is kept for each label that it saw, not for these"
        elif share <= alpha:
            effect = (
                f"sets of the other rows grow, and the promised {1 - alpha:.3g} holds while the "
                f"share of such labels is at most {alpha:.3g}"
            )
        else:
            effect = (
                f"the promised {1 - alpha:.3g} needs a share of at most {alpha:.3g}, here even full "
                f"sets cover only {1 - share:.1%}; train the estimator on rows with these labels"
            )
        warn(
            f"{int(unknown.sum())} of {len(codes)} calibration rows ({share:.1%}) have labels that "
            f"the estimator never saw ({shown(sorted_labels(labels[unknown]))}), which no set can "
            f"contain: {effect}"
        )
    return codes


def sorted_labels(labels: Any) -> list[Any]:
    """Return the distinct labels in order; labels that cannot be compared are sorted as text."""
    distinct = pd.unique(pd.Series(_values(labels))).tolist()
    try:
        return sorted(distinct)
    except TypeError:
        return sorted(distinct, key=str)


def shown(labels: Iterable[Any]) -> str:
    """Return the first few labels, separated by commas."""
    texts = [str(label) for label in labels]
    return ", ".join(texts[:SHOWN]) + (", ..." if len(texts) > SHOWN else "")


def _values(labels: Any) -> Any:
    """Return labels as an array; a list keeps the type of each of its labels."""
    if isinstance(labels, list | tuple):
        return pd.Series(list(labels), dtype=object).infer_objects().to_numpy()
    return np.asarray(labels)
