"""Prediction sets for tables of any size, in constant memory, on one machine or on many."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet

from fareg._columns import canonical
from fareg._drift import Drift, added, count_strange, ignore_drift, judge
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
from fareg._validation import InvalidInputError, check_count
from fareg._words import rows
from fareg.persistence import ModelFile
from fareg.workflow._asking import (
    ask,
    check_any,
    check_engine_of,
    id_column,
    ids_in,
    model_columns,
)
from fareg.workflow._table import Progress, Table, check_safe_csv, quiet, table_writer

BATCH_ROWS = 50_000  # in memory at a time, in each process
ANSWERS = ("set", "size", "top", "probability", "level", "group")
SOURCE = b"fareg_source_sha256"  # the note in a part of which rows it answers
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
    runs. The folder ``out`` appears when all parts are there, and the same call after a run that
    was killed goes on with the parts that are missing, or hold other rows by now. Whatever the
    engine, the number of processes and the workers that died, the files are the same to the byte.

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
        the model was fitted with, if it is here. With ids, a set is that of ``predict_set`` in
        Python; without, equal rows are numbered within a batch.
    batch_size : int, default=None
        Rows that are in memory at a time, in each process; None for 50,000.
    engine, jobs
        Where the parts of a folder are answered, as in :func:`fareg._engines.run_tasks`.
    trusted, sha256
        Types that the stored estimator may hold besides those that ``fareg.load`` knows, and the
        SHA-256 that the model file must have.
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
        source, target = source.resolve(), _new_folder(out)
        check_safe_csv(None, safe_csv)
    else:
        check_engine_of(data, engine, jobs)
        check_safe_csv(check_output(out), safe_csv)
    file = ModelFile.open(model, trusted=trusted, sha256=sha256)
    with Table(source) as table:
        options = {"action": action, "confidence_level": confidence_level}
        asked = _Asked(file, tuple(keep), id_column(ids, file, table), size, options)

        def check(told: Answered) -> None:
            check_any(told.n, source)
            judge(file.classifier.seen_values_, told.drift, accept=accept_drift)

        if source.is_dir():
            told = _answer_folder(asked, table, target, engine, jobs, progress, check)
        else:
            told = _write(asked, table, out, progress, check=check, safe_csv=safe_csv)
    return {
        "rows": told.n,
        "mean_size": sum(size * n for size, n in told.sizes.items()) / told.n,
        "sizes": {str(size): n for size, n in sorted(told.sizes.items())},
        "drift": {name: strange.shares() for name, strange in told.drift.items()},
        **({"files": len(table.parts)} if source.is_dir() else {}),
    }


@dataclass(frozen=True)
class _Asked:
    """What is asked of the rows of a table."""

    model: ModelFile
    keep: tuple[str, ...]
    ids: str | None
    size: int  # rows at a time
    options: dict[str, Any]  # of ``predict_table``

    def batches(self, table: Table) -> Iterator[tuple[pd.DataFrame, Any, pd.DataFrame]]:
        """Yield some rows at a time, their ids, and their columns that are kept."""
        read = dict.fromkeys([*self.keep, *filter(None, [self.ids])])
        for X, kept in table.batches(model_columns(self.model), self.size, keep=list(read)):
            ids = None if self.ids is None else ids_in(kept, self.ids)
            yield X, ids, kept[[name for name in kept if name in self.keep]]

    def drift(self, X: pd.DataFrame) -> Drift:
        """Count the rows that are not like those of fit, by column."""
        return count_strange(self.model.classifier.seen_values_, canonical(X))


@dataclass(frozen=True)
class Answered:
    """How many sets of each size the rows of a table have, and how strange its columns are."""

    sizes: Counter[int] = field(default_factory=Counter)
    drift: Drift = field(default_factory=dict)

    def __add__(self, other: Answered) -> Answered:
        return Answered(self.sizes + other.sizes, added(self.drift, other.drift))

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.sizes.total()


def _write(
    asked: _Asked,
    table: Table,
    out: AnyPath,
    progress: Progress = quiet,
    *,
    check: Callable[[Answered], None] = lambda told: None,
    notes: dict[bytes, str] | None = None,
    safe_csv: bool = False,
) -> Answered:
    """Write what is kept of rows and the answers to them, and count the sets of each size."""
    told = Answered()
    with table_writer(out, notes, safe_csv=safe_csv) as append, ignore_drift():
        for X, ids, kept in asked.batches(table):
            try:
                answers = ask(asked.model, "predict_table", X, ids=ids, **asked.options)
            except InvalidInputError as error:  # it counts the rows of this batch
                where = f"after the first {told.n} rows of {table.source}: " if told.n else ""
                raise InvalidInputError(f"{where}{error}") from error
            append(pd.concat([kept, answers.reset_index(drop=True)], axis=1))
            told += Answered(Counter(answers["size"].tolist()), asked.drift(X))
            progress(rows(told.n))
        check(told)
    return told


def _answer_folder(
    asked: _Asked,
    table: Table,
    target: Path,
    engine: str,
    jobs: int | None,
    progress: Progress,
    check: Callable[[Answered], None],
) -> Answered:
    """Answer the parts of a folder where they are, and count the sets of each size."""
    root, told = table.source, Answered()
    parts = [part.relative_to(root).as_posix() for part in table.parts]
    plan = repr((asked.model.sha256, asked.size, asked.keep, asked.ids, asked.options, parts))
    with _filling(target, plan.encode()) as unfinished:
        answer = partial(_answer_part, asked=asked, root=root, out=unfinished)
        finished = run_tasks(answer, parts, engine=engine, jobs=jobs)
        for folder in {(unfinished / part).parent for part in parts}:
            folder.mkdir(parents=True, exist_ok=True)
        for found in finished:
            told += found
            progress(rows(told.n))
        table.check_unchanged()
        check(told)
    return told


def _answer_part(part: str, asked: _Asked, root: Path, out: Path) -> Answered:
    """Write the answers to a part of a folder, and count the sets of each size."""
    source, target = root / part, out / part
    with Table(source, root=root) as table:
        digest = digest_of(source)
        if target.exists():  # written by a run that was stopped
            found = pyarrow.parquet.read_table(target, columns=["size"])
            if (found.schema.metadata or {}).get(SOURCE) == digest.encode():
                drift = (asked.drift(X) for X, _, _ in asked.batches(table))
                return Answered(Counter(found["size"].to_pylist()), reduce(added, drift, {}))
            target.unlink()  # the part held other rows then
        return _write(asked, table, target, notes={SOURCE: digest}) if table.count() else Answered()


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
