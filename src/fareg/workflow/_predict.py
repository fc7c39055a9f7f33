"""Prediction sets for tables of any size, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical, check_columns
from fareg._drift import Drift, added, count_strange, judge, unjudged
from fareg._files import AnyPath, check_output, check_outputs
from fareg._validation import IntArray, InvalidInputError, check_count, warn
from fareg.persistence import ModelFile
from fareg.workflow._tables import check_safe_csv, read_batches, table_columns, table_writer

ANSWERS = ("set", "size", "top", "probability", "level", "group")


def predict_file(
    model: AnyPath,
    data: AnyPath,
    out: AnyPath,
    *,
    keep: Sequence[str] = (),
    ids: str | None = None,
    batch_size: int = 50_000,
    trusted: Sequence[str] | None = None,
    sha256: str | None = None,
    action: bool = False,
    safe_csv: bool = False,
    accept_drift: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the sets of every row of a table to a file, whole or not at all.

    Parameters
    ----------
    model : path of a model file
    data, out : paths of CSV or Parquet files
    keep : list of str, default=()
        Columns of ``data`` to copy beside the sets, such as an id.
    ids : str, default=None
        Column that tells whose row it is, for the random number of the row; None for the one that
        the model was fitted with, if it is here. With ids, a set does not depend on other rows, so
        it is that of ``predict_set`` in Python. Without ids, equal rows are numbered within a
        batch.
    batch_size : int, default=50000
        Rows that are in memory at a time.
    trusted : list of str, default=None
        Types that the stored estimator may hold beside those that ``fareg.load`` knows.
    sha256 : str, default=None
        The SHA-256 that the model file must have.
    action : bool, default=False
        Whether a column says "decide" of rows whose set holds one label, and "refer" of all others.
    safe_csv : bool, default=False
        Whether an apostrophe stands before each text of a CSV file that a spreadsheet might run as
        a formula. Such texts do not read back as they were; sets, numbers and all others do.
    accept_drift : bool, default=False
        Whether to warn instead of refusing a table in which half of a column is empty, or holds
        texts that fit never had or numbers outside of those in fit.
    progress : function, default=None
        Called with the number of rows of each finished batch.

    Returns
    -------
    dict
        ``rows``, ``mean_size``, ``sizes`` (how many sets have each size) and ``drift``: per column
        the share of rows that are ``unseen`` and ``empty``.
    """
    check_count("batch_size", batch_size)
    check_output(out)
    check_outputs([out], inputs=[model, data])
    check_safe_csv(out, safe_csv)
    check_kept(keep, action=action)
    file = ModelFile.open(model, trusted=trusted, sha256=sha256)
    kinds = model_columns(file)
    ids = id_column(ids, file, data)
    batches = read_batches(data, kinds, batch_size, keep=with_ids(keep, ids))
    told = write_answers(
        file,
        batches,
        out,
        keep=keep,
        ids=ids,
        action=action,
        source=data,
        accept_drift=accept_drift,
        progress=progress,
        safe_csv=safe_csv,
    )
    return told.to_dict()


@dataclass(frozen=True, eq=False)
class Answered:
    """How many sets of each size the rows of a table have, and how strange its columns are."""

    sizes: IntArray
    drift: Drift = field(default_factory=dict)

    def __add__(self, other: Answered) -> Answered:
        return Answered(self.sizes + other.sizes, added(self.drift, other.drift))

    def check(self, clf: Any, source: Any, *, accept_drift: bool) -> None:
        """Refuse a source without rows, or with columns that are not like those of fit."""
        check_any(int(self.sizes.sum()), source)
        judge(clf.seen_values_, self.drift, accept=accept_drift)

    def to_dict(self) -> dict[str, Any]:
        """Return what :func:`predict_file` returns."""
        rows = int(self.sizes.sum())
        return {
            "rows": rows,
            "mean_size": float(self.sizes @ np.arange(len(self.sizes)) / rows),
            "sizes": {str(size): int(count) for size, count in enumerate(self.sizes) if count},
            "drift": {name: strange.shares() for name, strange in self.drift.items()},
        }


def write_answers(
    model: ModelFile,
    batches: Iterable[tuple[pd.DataFrame, pd.DataFrame]],
    out: AnyPath,
    *,
    keep: Sequence[str],
    ids: str | None,
    source: Any,
    action: bool = False,
    accept_drift: bool | None = None,
    progress: Callable[[int], None] | None = None,
    notes: Mapping[str, str] | None = None,
    safe_csv: bool = False,
) -> Answered:
    """Write what is kept of rows and the answers to them, and count the sets of each size.

    A Parquet file holds the ``notes`` too. If ``accept_drift`` is None, it is for others to judge
    the columns, of this table and of further ones.
    """
    clf = model.classifier
    n_classes = len(clf.classes_)
    told = Answered(count_sizes([], n_classes))
    with table_writer(out, notes, safe_csv=safe_csv) as append, unjudged():
        for X, kept in batches:
            with rows_after(int(told.sizes.sum()), source):
                own = None if ids is None else ids_in(kept, ids)
                table = ask(model, "predict_table", X, ids=own, action=action)
                table = table.reset_index(drop=True)
            kept = kept.drop(columns=[name for name in kept if name not in keep])
            append(pd.concat([kept, table], axis=1))
            told += Answered(
                count_sizes(table["size"], n_classes), count_strange(clf.seen_values_, canonical(X))
            )
            if progress is not None:
                progress(len(X))
        if accept_drift is not None:
            told.check(clf, source, accept_drift=accept_drift)
    return told


@contextmanager
def rows_after(n_before: int, source: Any) -> Iterator[None]:
    """Tell in errors, which count the rows of one batch, how many rows came before it."""
    try:
        yield
    except InvalidInputError as error:
        where = f"after the first {n_before} rows of {source}: " if n_before else ""
        raise InvalidInputError(f"{where}{error}") from error


def ask(model: ModelFile, method: str, table: pd.DataFrame, **named: Any) -> Any:
    """Call a method of a classifier with a table of the columns that it needs.

    Sensitive features that lay beside the table when it was calibrated are handed over apart.
    """
    call = getattr(model.classifier, method)
    if not model.beside:
        return call(table, **named)
    own = table[list(model.classifier.column_kinds_)]
    return call(own, sensitive_features=table[list(model.beside)], **named)


def id_column(asked: str | None, model: ModelFile, data: AnyPath) -> str | None:
    """Return the column that tells whose row it is: as asked, or that of the fit if it is here."""
    own = model.fit_notes.get("ids") if asked is None else asked
    if own is None:
        return None  # the table is not opened for that
    names = table_columns(data)
    if asked is not None:
        check_columns([asked], names, str(data))
    if own not in names:
        warn(
            f"the model was fitted with ids in the column {own}, which {data} lacks: equal rows "
            "are numbered in their order instead"
        )
    return own if own in names else None


def with_ids(keep: Sequence[str], ids: str | None) -> list[str]:
    """Return the columns to read as they are: those to keep, and the ids."""
    return list(keep) if ids is None or ids in keep else [*keep, ids]


def ids_in(kept: pd.DataFrame, ids: str) -> Any:
    """Return the ids of rows; an empty text in a CSV file is a missing one."""
    if ids not in kept:
        raise InvalidInputError(f"the column of ids must be in the files, got the folders {ids}=")
    return kept[ids].astype(object).where(kept[ids].notna() & (kept[ids] != ""), None).to_numpy()


def model_columns(model: ModelFile) -> dict[str, str]:
    """Return the columns that a model needs, with what they hold."""
    if model.columns is None:
        raise InvalidInputError(
            f"{model.path} was fitted on an array without column names; load it in Python instead"
        )
    return model.columns


def label_kinds(clf: Any, target: str) -> dict[str, str]:
    """Tell that a target holds numbers if a loaded model knows its labels as numbers: 01 is 1."""
    return {target: "number" if np.asarray(clf.classes_).dtype.kind in "biuf" else "text"}


def check_kept(keep: Sequence[str], *, action: bool = False) -> None:
    """Refuse to keep columns that would have the name of an answer, or to keep one twice."""
    if isinstance(keep, str):
        raise InvalidInputError(
            f"keep must be a list of column names, got {keep!r}; use [{keep!r}]"
        )
    taken = [name for name in keep if name in ANSWERS or (action and name == "action")]
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
