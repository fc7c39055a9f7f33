"""Prediction sets for tables of any size, in constant memory, on one machine or on many."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet

from fareg._columns import canonical
from fareg._drift import Drift, added, count_strange, judge, unjudged
from fareg._engines import run_tasks
from fareg._files import (
    KEPT,
    AnyPath,
    check_output,
    check_outputs,
    digest_of,
    note_written,
    writing,
)
from fareg._validation import IntArray, InvalidInputError, check_count, warn
from fareg._words import rows
from fareg.persistence import ModelFile
from fareg.workflow._table import (
    Progress,
    Table,
    check_safe_csv,
    n_rows,
    notes_of,
    quiet,
    table_writer,
)

BATCH_ROWS = 50_000  # in memory at a time, in each process
ANSWERS = ("set", "size", "top", "probability", "level", "group")
SOURCE = "fareg_source_sha256"  # the note in a part of which rows it answers
MARK = ".fareg-unfinished"  # a file in an unfinished folder; it holds the name of the finished one


def predict_file(
    model: AnyPath,
    data: AnyPath,
    out: AnyPath,
    *,
    keep: Sequence[str] = (),
    ids: str | None = None,
    batch_size: int | None = None,
    engine: str = "local",
    jobs: int | None = None,
    trusted: Sequence[str] | None = None,
    sha256: str | None = None,
    action: bool = False,
    safe_csv: bool = False,
    accept_drift: bool = False,
    confidence_level: float | None = None,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Write the sets of every row of a table to a file, or of a folder to a folder.

    A file appears whole or not at all. Each part of a folder is read, answered and written where it
    runs; only its count of set sizes comes back. The folder ``out`` appears when all parts are
    there, and the same call after a run that was killed goes on with the parts that are missing, or
    that hold other rows by now. Whatever the engine, the number of processes and the workers that
    died, the files are the same to the byte.

    Parameters
    ----------
    model : path of a model file
    data : path of a CSV or Parquet file, or of a folder of Parquet files
        ``name=value`` in the name of a subfolder is a column. Workers on other machines must see
        the paths as this one does.
    out : path of a file, or of a folder that does not exist yet
    keep : list of str, default=()
        Columns of ``data`` to copy next to the sets, such as an id.
    ids : str, default=None
        Column that says whose row it is, for the random number of the row; None for the one that
        the model was fitted with, if it is here. With ids, a set does not depend on other rows, so
        it is that of ``predict_set`` in Python. Without ids, equal rows are numbered within a
        batch.
    batch_size : int, default=None
        Rows that are in memory at a time, in each process; None for 50,000.
    engine, jobs
        Where the parts of a folder are answered, as in :func:`fareg._engines.run_tasks`.
    trusted : list of str, default=None
        Types that the stored estimator may hold besides those that ``fareg.load`` knows.
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
    confidence_level : float, default=None
        Coverage to promise in place of that of the fit; see :meth:`predict_set`.
    progress : function, optional
        Called with how many rows are answered, after each batch or part.

    Returns
    -------
    dict
        ``rows``, ``mean_size``, ``sizes`` (how many sets have each size) and ``drift``: per column
        the share of rows that are ``unseen`` and ``empty``. For a folder, the number of ``files``.
    """
    source = Path(data)
    check_outputs([out], inputs=[model, data])
    _check_kept(keep, action)
    size = check_count("batch_size", BATCH_ROWS if batch_size is None else batch_size)
    if source.is_dir():
        check_safe_csv(None, safe_csv)
        target = _new_folder(out)
    else:
        check_engine_of(data, engine, jobs)
        check_safe_csv(check_output(out), safe_csv)
    file = ModelFile.open(model, trusted=trusted, sha256=sha256)
    with Table(source.resolve() if source.is_dir() else source) as table:
        ids = id_column(ids, file, table)
        asked = _Asked(file, tuple(keep), ids, size, action, confidence_level)
        if source.is_dir():
            told = _answer_folder(asked, table, target, engine, jobs, progress, accept_drift)
            return {**told.to_dict(), "files": len(table.parts)}
        told = _write(asked, table, out, progress, accept_drift=accept_drift, safe_csv=safe_csv)
        return told.to_dict()


@dataclass(frozen=True)
class _Asked:
    """What is asked of the rows of a table."""

    model: ModelFile
    keep: tuple[str, ...]
    ids: str | None
    size: int  # rows at a time
    action: bool = False
    confidence_level: float | None = None

    def batches(self, table: Table) -> Iterator[tuple[pd.DataFrame, Any, pd.DataFrame]]:
        """Yield some rows at a time, their ids, and their columns that are kept."""
        keep = list(self.keep)
        read = keep if self.ids is None or self.ids in keep else [*keep, self.ids]
        for X, kept in table.batches(model_columns(self.model), self.size, keep=read):
            own = None if self.ids is None else ids_in(kept, self.ids)
            yield X, own, kept[[name for name in kept if name in keep]]


@dataclass(frozen=True, eq=False)
class Answered:
    """How many sets of each size the rows of a table have, and how strange its columns are."""

    sizes: IntArray
    drift: Drift = field(default_factory=dict)

    @classmethod
    def of(cls, model: ModelFile, sizes: Any, *tables: Any) -> Answered:
        """Count the sets of each size, and the strange rows of tables."""
        clf = model.classifier
        counts = np.bincount(sizes, minlength=len(clf.classes_) + 1).astype(np.int64)
        return cls(
            counts, count_strange(clf.seen_values_, *map(canonical, tables)) if tables else {}
        )

    def __add__(self, other: Answered) -> Answered:
        return Answered(self.sizes + other.sizes, added(self.drift, other.drift))

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.sizes.sum())

    def check(self, model: ModelFile, source: Any, *, accept_drift: bool) -> None:
        """Refuse a source without rows, or with columns that are not like those of fit."""
        check_any(self.n, source)
        judge(model.classifier.seen_values_, self.drift, accept=accept_drift)

    def to_dict(self) -> dict[str, Any]:
        """Return what :func:`predict_file` returns."""
        return {
            "rows": self.n,
            "mean_size": float(self.sizes @ np.arange(len(self.sizes)) / self.n),
            "sizes": {str(size): int(count) for size, count in enumerate(self.sizes) if count},
            "drift": {name: strange.shares() for name, strange in self.drift.items()},
        }


def _write(
    asked: _Asked,
    table: Table,
    out: AnyPath,
    progress: Progress = quiet,
    *,
    accept_drift: bool | None = None,
    notes: dict[str, str] | None = None,
    safe_csv: bool = False,
) -> Answered:
    """Write what is kept of rows and the answers to them, and count the sets of each size.

    A Parquet file holds the ``notes`` too. If ``accept_drift`` is None, it is for others to judge
    the columns, of this table and of further ones.
    """
    told = Answered.of(asked.model, np.empty(0, np.int64))
    with table_writer(out, notes, safe_csv=safe_csv) as append, unjudged():
        for X, ids, kept in asked.batches(table):
            with _rows_after(told.n, table.source):
                more = {"action": asked.action, "confidence_level": asked.confidence_level}
                answers = ask(asked.model, "predict_table", X, ids=ids, **more)
                answers = answers.reset_index(drop=True)
            append(pd.concat([kept, answers], axis=1))
            told += Answered.of(asked.model, answers["size"], X)
            progress(rows(told.n))
        if accept_drift is not None:
            told.check(asked.model, table.source, accept_drift=accept_drift)
    return told


@contextmanager
def _rows_after(n_before: int, source: Any) -> Iterator[None]:
    """Tell in errors, which count the rows of one batch, how many rows came before it."""
    try:
        yield
    except InvalidInputError as error:
        where = f"after the first {n_before} rows of {source}: " if n_before else ""
        raise InvalidInputError(f"{where}{error}") from error


def _answer_folder(
    asked: _Asked,
    table: Table,
    target: Path,
    engine: str,
    jobs: int | None,
    progress: Progress,
    accept_drift: bool,
) -> Answered:
    """Answer the parts of a folder where they are, and count the sets of each size."""
    root = table.source
    parts = [part.relative_to(root).as_posix() for part in table.parts]
    asks = (asked.ids, asked.action, asked.confidence_level)
    plan = (asked.model.sha256, asked.size, list(asked.keep), *asks, parts)
    told = Answered.of(asked.model, np.empty(0, np.int64))
    with _filling(target, repr(plan).encode()) as unfinished:
        answer = partial(_answer_part, asked=asked, root=root, out=unfinished)
        finished = run_tasks(answer, parts, engine=engine, jobs=jobs)
        for folder in {(unfinished / part).parent for part in parts}:
            folder.mkdir(parents=True, exist_ok=True)
        for found in finished:
            told += found
            progress(rows(told.n))
        table.check_unchanged()
        told.check(asked.model, root, accept_drift=accept_drift)
    return told


def _answer_part(part: str, asked: _Asked, root: Path, out: Path) -> Answered:
    """Write the answers to a part of a folder, and count the sets of each size."""
    source, target, nothing = root / part, out / part, np.empty(0, np.int64)
    with Table(source, root=root) as table:
        read = {SOURCE: digest_of(source)}
        if target.exists():  # written by a run that was stopped
            if notes_of(target).items() >= read.items():
                sizes = pyarrow.parquet.read_table(target, columns=["size"])["size"].to_numpy()
                told = Answered.of(asked.model, sizes)
                for X, _, _ in asked.batches(table):
                    told += Answered.of(asked.model, nothing, X)
                return told
            target.unlink(missing_ok=True)  # the part held other rows then
        if n_rows(source) == 0:
            return Answered.of(asked.model, nothing)
        return _write(asked, table, target, notes=read)


def _new_folder(out: AnyPath) -> Path:
    """Return the path of a folder that does not exist yet."""
    target = Path(out).absolute()
    if os.path.lexists(target):  # a link that leads nowhere is there too
        raise InvalidInputError(f"cannot write {out}: it exists; remove it, or name a new folder")
    return check_output(target)


@contextmanager
def _filling(target: Path, plan: bytes) -> Iterator[Path]:
    """Yield a folder next to ``target`` to be filled; move it there at the end.

    After an error it stays if there is a finished part in it, and a call with the same plan goes on
    there. A finished call removes what calls with other plans left of the same target.
    """
    unfinished = target.with_name(f".{target.name}.{hashlib.sha256(plan).hexdigest()[:16]}.partial")
    mark = unfinished / MARK
    try:
        with writing(target):
            unfinished.mkdir(exist_ok=True)
            mark.write_bytes(os.fsencode(target.name))
            yield unfinished
            for leftover in (mark, *unfinished.rglob(".*.tmp")):  # of workers that were killed
                leftover.unlink()
            os.replace(unfinished, target)
    except BaseException as error:
        if any(path.is_file() and path.name[0] != "." for path in unfinished.rglob("*")):
            error.add_note(KEPT)
        else:
            shutil.rmtree(unfinished, ignore_errors=True)
        raise
    note_written(target)
    # any other folder is somebody else's
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.partial")
    ours = os.fsencode(target.name)
    for folder in [own for own in target.parent.iterdir() if name.fullmatch(own.name)]:
        if (folder / MARK).is_file() and (folder / MARK).read_bytes() == ours:
            shutil.rmtree(folder, ignore_errors=True)


def ask(model: ModelFile, method: str, table: pd.DataFrame, **named: Any) -> Any:
    """Call a method of a classifier with a table of the columns that it needs.

    Sensitive features that lay next to the table when it was calibrated are handed over apart.
    """
    clf, beside = model.classifier, model.beside
    if not beside:
        return getattr(clf, method)(table, **named)
    own = table[list(clf.column_kinds_)]
    return getattr(clf, method)(own, sensitive_features=table[list(beside)], **named)


def id_column(asked: str | None, model: ModelFile, table: Table) -> str | None:
    """Return the column that says whose row it is: as asked, or that of the fit if it is here."""
    if asked is not None:
        table.check_columns([asked])
        return asked
    own = model.fit_notes.get("ids")
    if own is not None and own not in table.names:
        warn(
            f"the model was fitted with ids in the column {own}, which {table.source} lacks: equal "
            "rows are numbered in their order instead"
        )
        return None
    return own


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
    return {target: "number" if np.asarray(clf.classes_).dtype.kind in "iuf" else "text"}


def check_engine_of(data: AnyPath, engine: str, jobs: int | None) -> None:
    """Refuse to divide a single file among processes."""
    if engine != "local" or jobs not in (None, 1):
        raise InvalidInputError(
            f"engines and processes are for a folder of Parquet files, {data} is none; leave them "
            "out, or split the file"
        )


def check_any(n_rows: int, source: Any) -> None:
    """Refuse a source without rows."""
    if not n_rows:
        raise InvalidInputError(f"{source} has no rows; check that it is the right path")


def _check_kept(keep: Sequence[str], action: bool) -> None:
    """Refuse to keep columns that would have the name of an answer, or to keep one twice."""
    if isinstance(keep, str):
        raise InvalidInputError(
            f"keep must be a list of column names, got {keep!r}; use [{keep!r}]"
        )
    if taken := [name for name in keep if name in ANSWERS or (action and name == "action")]:
        raise InvalidInputError(
            f"cannot keep column {taken[0]}: the answers have a column of that name; rename it"
        )
    if len(set(keep)) < len(keep):
        raise InvalidInputError(f"each column to keep must be named once, got {', '.join(keep)}")
