"""Prediction sets for tables of any size, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import InvalidInputError, check_count
from fareg.persistence import describe, load
from fareg.workflow._tables import read_batches, table_writer

SEPARATOR = "|"


def answer_table(clf: Any, X: Any) -> pd.DataFrame:
    """Return what a classifier says about rows, one row each.

    Parameters
    ----------
    clf : fitted classifier of this package
    X : frame or array of shape (n_samples, n_features)

    Returns
    -------
    DataFrame
        ``set`` (labels joined by ``|``), ``size``, ``top`` (the estimator's label); for FaReG also
        ``group`` ("group" or "rest") and ``membership``; for PLCP ``group``, the region.

    Examples
    --------
    >>> from fareg import SplitConformalClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(2000, random_state=0)
    >>> clf = SplitConformalClassifier(random_state=0).fit(data.X[:1990], data.y[:1990])
    >>> list(answer_table(clf, data.X[1990:]))
    ['set', 'size', 'top']
    """
    sets = clf.predict_set(X)
    table = pd.DataFrame(
        {
            "set": joined(sets, clf.classes_),
            "size": sets.sum(axis=1).astype(np.int64),
            "top": [str(label) for label in clf.predict(X)],
        }
    )
    if hasattr(clf, "predict_group"):
        membership = clf.predict_group(X)
        names = np.array(["rest", "group"]) if len(clf.cuts_) else np.array(["everyone"])
        table["group"] = names[np.searchsorted(clf.cuts_, membership, side="left")]
        table["membership"] = membership
    elif hasattr(clf, "predict_region"):
        table["group"] = [f"region {region}" for region in clf.predict_region(X)]
    return table


def joined(sets: Any, classes: Any) -> list[str]:
    """Return each set as text: its labels, joined by ``|`` (one inside a label becomes ``\\|``)."""
    labels = [str(label).replace(SEPARATOR, "\\" + SEPARATOR) for label in classes]
    distinct, which = np.unique(sets, axis=0, return_inverse=True)
    texts = [SEPARATOR.join(labels[j] for j in np.flatnonzero(row)) for row in distinct]
    return [texts[k] for k in np.ravel(which)]


def predict_file(
    model: str | os.PathLike[str],
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    batch_size: int = 50_000,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the sets of every row of a table to a file, whole or not at all.

    Parameters
    ----------
    model : path of a model file
    data, out : paths of CSV or Parquet files
    batch_size : int, default=50000
        Rows that are in memory at a time.
    progress : function, default=None
        Called with the number of rows of each finished batch.

    Returns
    -------
    dict
        ``rows``, ``mean_size`` and ``sizes`` (how many sets have each size).
    """
    check_count("batch_size", batch_size)
    clf = load(model)
    kinds = model_columns(describe(model), str(model))
    counts = np.zeros(len(clf.classes_) + 1, dtype=np.int64)
    with table_writer(out) as append:
        for frame in read_batches(data, kinds, batch_size):
            table = answer_table(clf, frame)
            append(table)
            counts += np.bincount(table["size"], minlength=len(counts))
            if progress is not None:
                progress(len(frame))
        rows = int(counts.sum())
        if rows == 0:
            raise InvalidInputError(f"{data} has no rows; check that it is the right file")
    sizes = {str(size): int(count) for size, count in enumerate(counts) if count}
    return {
        "rows": rows,
        "mean_size": float(counts @ np.arange(len(counts)) / rows),
        "sizes": sizes,
    }


def model_columns(told: dict[str, Any], path: str) -> dict[str, str | None]:
    """Return the columns that a model needs, with their kinds as far as they are known."""
    kinds = told["metadata"].get("columns")
    if isinstance(kinds, dict):
        return dict(kinds)
    if told["columns"] is None:
        raise InvalidInputError(
            f"{path} was fitted on an array without column names; load it in Python instead"
        )
    return dict.fromkeys(told["columns"])
