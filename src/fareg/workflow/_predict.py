"""Prediction sets for tables of any size, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from fareg._files import AnyPath, check_output, check_outputs
from fareg._validation import IntArray, InvalidInputError, check_count
from fareg.classifiers import SplitConformalClassifier
from fareg.persistence import describe, load
from fareg.workflow._notes import fit_notes
from fareg.workflow._tables import check_safe_csv, read_batches, table_writer

ANSWERS = ("set", "size", "top", "probability", "level", "group")


def predict_file(
    model: AnyPath,
    data: AnyPath,
    out: AnyPath,
    *,
    keep: Sequence[str] = (),
    batch_size: int = 50_000,
    trusted: Sequence[str] | None = None,
    safe_csv: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the sets of every row of a table to a file, whole or not at all.

    Parameters
    ----------
    model : path of a model file
    data, out : paths of CSV or Parquet files
    keep : list of str, default=()
        Columns of ``data`` to copy beside the sets, such as an id.
    batch_size : int, default=50000
        Rows that are in memory at a time.
    trusted : list of str, default=None
        Types that the stored estimator may hold beside those that ``fareg.load`` trusts.
    safe_csv : bool, default=False
        Whether an apostrophe stands before each text of a CSV file that a spreadsheet might run as
        a formula. Such texts do not read back as they were; sets, numbers and all others do.
    progress : function, default=None
        Called with the number of rows of each finished batch.

    Returns
    -------
    dict
        ``rows``, ``mean_size`` and ``sizes`` (how many sets have each size).
    """
    check_count("batch_size", batch_size)
    check_output(out)
    check_outputs([out], inputs=[model, data])
    check_safe_csv(out, safe_csv)
    check_kept(keep)
    clf = load(model, trusted=trusted)
    kinds = model_columns(clf, model)
    batches = read_batches(data, kinds, batch_size, keep=keep)
    return summary_of(
        write_answers(clf, batches, out, source=data, progress=progress, safe_csv=safe_csv)
    )


def write_answers(
    clf: Any,
    batches: Iterable[tuple[pd.DataFrame, pd.DataFrame]],
    out: AnyPath,
    *,
    source: Any,
    progress: Callable[[int], None] | None = None,
    notes: Mapping[str, str] | None = None,
    safe_csv: bool = False,
) -> IntArray:
    """Write what is kept of rows and the answers to them, and count the sets of each size.

    A Parquet file holds the ``notes`` too.
    """
    n_classes = len(clf.classes_)
    counts = count_sizes([], n_classes)
    with table_writer(out, notes, safe_csv=safe_csv) as append:
        for X, kept in batches:
            with rows_after(int(counts.sum()), source):
                table = ask(clf.predict_table, clf, X).reset_index(drop=True)
            append(pd.concat([kept, table], axis=1))
            counts += count_sizes(table["size"], n_classes)
            if progress is not None:
                progress(len(X))
        check_any(int(counts.sum()), source)
    return counts


@contextmanager
def rows_after(n_before: int, source: Any) -> Iterator[None]:
    """Tell in errors, which count the rows of one batch, how many rows came before it."""
    try:
        yield
    except InvalidInputError as error:
        where = f"after the first {n_before} rows of {source}: " if n_before else ""
        raise InvalidInputError(f"{where}{error}") from error


def ask(method: Callable[..., Any], clf: Any, table: pd.DataFrame) -> Any:
    """Call a method of a classifier with a table of the columns that it needs.

    Sensitive features that lay beside the table when it was calibrated are handed over apart.
    """
    beside = _beside(clf)
    if not beside:
        return method(table)
    return method(table[list(clf.column_kinds_)], sensitive_features=table[list(beside)])


def _beside(clf: Any) -> dict[str, str]:
    """Return the sensitive features beside the table that the sets of a classifier depend on."""
    kinds = getattr(clf, "sensitive_kinds_", None)
    return {} if kinds is None or isinstance(clf, SplitConformalClassifier) else kinds


def model_columns(clf: Any, model: AnyPath) -> dict[str, str]:
    """Return the columns that a loaded model needs, with what they hold."""
    # A file of ``fareg fit`` tells what the columns held in all rows, not in some of them.
    kinds = fit_notes(describe(model)).get("columns", clf.column_kinds_)
    if kinds is None:
        raise InvalidInputError(
            f"{model} was fitted on an array without column names; load it in Python instead"
        )
    return {**kinds, **_beside(clf)}


def label_kinds(clf: Any, target: str) -> dict[str, str]:
    """Tell that a target holds numbers if a loaded model knows its labels as numbers: 01 is 1."""
    return {target: "number" if np.asarray(clf.classes_).dtype.kind in "biuf" else "text"}


def check_kept(keep: Sequence[str]) -> None:
    """Refuse to keep columns that would have the name of an answer, or to keep one twice."""
    if isinstance(keep, str):
        raise InvalidInputError(
            f"keep must be a list of column names, got {keep!r}; use [{keep!r}]"
        )
    taken = [name for name in keep if name in ANSWERS]
    if taken:
        raise InvalidInputError(
            f"cannot keep column {taken[0]}: the answers have a column of that name; rename it"
        )
    if len(set(keep)) < len(keep):
        raise InvalidInputError(f"each column to keep must be named once, got {', '.join(keep)}")


def count_sizes(sizes: Any, n_classes: int) -> IntArray:
    """Return how many sets have each size from 0 to ``n_classes``."""
    return np.bincount(sizes, minlength=n_classes + 1).astype(np.int64)


def check_any(n_rows: int, source: Any) -> None:
    """Refuse a source without rows."""
    if not n_rows:
        raise InvalidInputError(f"{source} has no rows; check that it is the right path")


def summary_of(counts: IntArray) -> dict[str, Any]:
    """Return what :func:`predict_file` returns, from how many sets have each size."""
    rows = int(counts.sum())
    return {
        "rows": rows,
        "mean_size": float(counts @ np.arange(len(counts)) / rows),
        "sizes": {str(size): int(count) for size, count in enumerate(counts) if count},
    }
