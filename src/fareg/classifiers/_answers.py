"""Prediction sets as people read them: lists of labels, and a table with one line per row."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from fareg._columns import is_frame
from fareg._levels import distinct_rows
from fareg._validation import BoolArray, FloatArray

SEPARATOR = "|"


def labels_of_sets(sets: BoolArray, proba: FloatArray, classes: Any) -> list[Any]:
    """Return the labels in each set, the most probable first."""
    order = np.argsort(-proba, axis=1, kind="stable")
    return [classes[columns[own[columns]]] for columns, own in zip(order, sets, strict=True)]


def joined(sets: BoolArray, classes: Any) -> Any:
    """Return each set as text: its labels, joined by ``|`` (one inside a label becomes ``\\|``)."""
    labels = [str(label).replace(SEPARATOR, "\\" + SEPARATOR) for label in classes]
    first, which = distinct_rows(pd.DataFrame(sets))
    texts = [SEPARATOR.join(labels[j] for j in np.flatnonzero(row)) for row in sets[first]]
    return np.array(texts, dtype=object)[which]


def frame_like(X: Any, table: pd.DataFrame) -> Any:
    """Return a table as a frame of the library that made X, with its index if it has one."""
    if isinstance(X, pd.DataFrame):
        return table.set_axis(X.index, axis=0)
    if not is_frame(X):
        return table
    columns = {str(name): column.tolist() for name, column in table.items()}
    return nw.from_dict(columns, backend=nw.get_native_namespace(X).__name__).to_native()


def table_of_answers(sets: BoolArray, top: tuple[Any, Any], classes: Any) -> pd.DataFrame:
    """Return ``set``, ``size``, ``top`` (the most probable label) and its ``probability``."""
    labels = np.array([str(label) for label in classes], dtype=object)
    return pd.DataFrame(
        {
            "set": joined(sets, classes),
            "size": sets.sum(axis=1).astype(np.int64),
            "top": labels[top[0]],
            "probability": top[1],
        }
    )
