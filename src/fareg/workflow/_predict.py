"""Prediction sets for tables of any size, in constant memory, on one or many machines."""

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
from fareg._drift import Drift, add_drift, count_strange, ignore_drift, judge_drift
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
from fareg.workflow._stored import (
    call_model,
    check_any,
    check_engine_of,
    id_column,
    ids_in,
    model_columns,
)
from fareg.workflow._table import Progress, Table, check_safe_csv, quiet, table_writer

BATCH_ROWS = 50_000  # in memory at a time, in each process
ANSWERS = ("set", "size", "top", "probability", "level", "group")
SOURCE = b"fareg_source_sha256"  # metadata of a written part: the digest of its input
MARK = ".fareg-unfinished"  # file in an unfinished folder, which holds the name of the finished one


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
    """Write the set of every row of a table to a file, or of a folder to a folder.

    A file appears whole or not at all. Each part of a folder is read, predicted and written by one
    process. The folder ``out`` appears once all its parts are there. After a killed run, the same
    call continues with the parts that are missing or whose input has changed. The files are the
    same to the byte, whatever the engine, the number of processes and the workers that died.

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
        the model was fitted with, if the table has it. With ids, a set is that of ``predict_set``
        in Python; without, equal rows are numbered within a batch.
    batch_size : int, default=None
        Rows in memory at a time, in each process; None for 50,000.
    engine, jobs
        Where the parts of a folder are predicted, as in :func:`fareg._engines.run_tasks`.
    trusted, sha256
        Types that the stored estimator may hold besides those that ``fareg.load`` knows, and the
        SHA-256 that the model file must have.
    action : bool, default=False
        Whether to write a column that says "decide" if a set holds one label, and else "refer".
    safe_csv : bool, default=False
        Whether to put an apostrophe before each text of a CSV file that a spreadsheet might run as
        a formula. Such texts do not read back unchanged; sets, numbers and other texts do.
    accept_drift : bool, default=False
        Whether to warn instead of refusing a table in which half of a column is empty, or holds
        texts that fit did not see or numbers outside the range of those in fit.
    confidence_level : float, default=None
        Coverage to promise instead of that of the fit; see :meth:`predict_set`.
    progress : function, optional
        Called with the number of rows done, after each batch or part.

    Returns
    -------
    dict
        ``rows``, ``mean_size``, ``sizes`` (the number of sets of each size) and ``drift``: per
        column the share of ``unseen`` and ``empty`` rows; and the number of ``files`` of a folder.
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
        request = _Request(file, tuple(keep), id_column(ids, file, table), size, options)

        def check(totals: Totals) -> None:
            check_any(totals.n, source)
            judge_drift(file.classifier.seen_values_, totals.drift, accept=accept_drift)

        if source.is_dir():
            totals = _predict_folder(request, table, target, engine, jobs, progress, check)
        else:
            totals = _write(request, table, out, progress, check=check, safe_csv=safe_csv)
    return {
        "rows": totals.n,
        "mean_size": sum(size * n for size, n in totals.sizes.items()) / totals.n,
        "sizes": {str(size): n for size, n in sorted(totals.sizes.items())},
        "drift": {name: strange.shares() for name, strange in totals.drift.items()},
        **({"files": len(table.parts)} if source.is_dir() else {}),
    }


@dataclass(frozen=True)
class _Request:
    """What to predict for the rows of a table."""

    model: ModelFile
    keep: tuple[str, ...]
    ids: str | None
    size: int  # rows per batch
    options: dict[str, Any]  # of ``predict_table``

    def batches(self, table: Table) -> Iterator[tuple[pd.DataFrame, Any, pd.DataFrame]]:
        """Yield batches of rows, with their ids and the columns to keep."""
        read = dict.fromkeys([*self.keep, *filter(None, [self.ids])])
        for X, kept in table.batches(model_columns(self.model), self.size, keep=list(read)):
            ids = None if self.ids is None else ids_in(kept, self.ids)
            yield X, ids, kept[[name for name in kept if name in self.keep]]

    def drift(self, X: pd.DataFrame) -> Drift:
        """Count the rows unlike those in fit, by column."""
        return count_strange(self.model.classifier.seen_values_, canonical(X))


@dataclass(frozen=True)
class Totals:
    """The number of sets of each size, and of rows unlike those in fit."""

    sizes: Counter[int] = field(default_factory=Counter)
    drift: Drift = field(default_factory=dict)

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.sizes + other.sizes, add_drift(self.drift, other.drift))

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.sizes.total()


def _write(
    request: _Request,
    table: Table,
    out: AnyPath,
    progress: Progress = quiet,
    *,
    check: Callable[[Totals], None] = lambda totals: None,
    notes: dict[bytes, str] | None = None,
    safe_csv: bool = False,
) -> Totals:
    """Write the kept columns and the answers for every row, and return the totals."""
    totals = Totals()
    with table_writer(out, notes, safe_csv=safe_csv) as append, ignore_drift():
        for X, ids, kept in request.batches(table):
            try:
                answers = call_model(request.model, "predict_table", X, ids=ids, **request.options)
            except InvalidInputError as error:  # it counts the rows of this batch
                where = f"after the first {totals.n} rows of {table.source}: " if totals.n else ""
                raise InvalidInputError(f"{where}{error}") from error
            append(pd.concat([kept, answers.reset_index(drop=True)], axis=1))
            totals += Totals(Counter(answers["size"].tolist()), request.drift(X))
            progress(rows(totals.n))
        check(totals)
    return totals


def _predict_folder(
    request: _Request,
    table: Table,
    target: Path,
    engine: str,
    jobs: int | None,
    progress: Progress,
    check: Callable[[Totals], None],
) -> Totals:
    """Write the answers for the parts of a folder in parallel, and return the totals."""
    root, totals = table.source, Totals()
    parts = [part.relative_to(root).as_posix() for part in table.parts]
    settings = (request.size, request.keep, request.ids, request.options)
    plan = repr((request.model.sha256, *settings, parts))
    with _filling(target, plan.encode()) as unfinished:
        predict = partial(_predict_part, request=request, root=root, out=unfinished)
        finished = run_tasks(predict, parts, engine=engine, jobs=jobs)
        for folder in {(unfinished / part).parent for part in parts}:
            folder.mkdir(parents=True, exist_ok=True)
        for part_totals in finished:
            totals += part_totals
            progress(rows(totals.n))
        table.check_unchanged()
        check(totals)
    return totals


def _predict_part(part: str, request: _Request, root: Path, out: Path) -> Totals:
    """Write the answers for one part of a folder, and return its totals."""
    source, target = root / part, out / part
    with Table(source, root=root) as table:
        digest = digest_of(source)
        if target.exists():  # written by a run that was stopped
            written = pyarrow.parquet.read_table(target, columns=["size"])
            if (written.schema.metadata or {}).get(SOURCE) == digest.encode():
                drift = (request.drift(X) for X, _, _ in request.batches(table))
                return Totals(Counter(written["size"].to_pylist()), reduce(add_drift, drift, {}))
            target.unlink()  # the part held other rows then
        return _write(request, table, target, notes={SOURCE: digest}) if table.count() else Totals()


def _new_folder(out: AnyPath) -> Path:
    """Return the path of a folder that does not exist yet."""
    target = Path(out).absolute()
    if os.path.lexists(target):  # also true of a broken link
        raise InvalidInputError(f"cannot write {out}: it exists; remove it, or name a new folder")
    return check_output(target)


@contextmanager
def _filling(target: Path, plan: bytes) -> Iterator[Path]:
    """Yield a folder next to ``target`` to fill; rename it to ``target`` at the end.

    After an error it stays if it holds a finished part, and a call with the same plan continues
    there. A finished call removes the leftovers of other plans for the same target.
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
    # only folders with our name and our mark are ours to remove
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.partial")
    for folder in [path for path in target.parent.iterdir() if name.fullmatch(path.name)]:
        if (folder / MARK).is_file() and (folder / MARK).read_bytes() == os.fsencode(target.name):
            shutil.rmtree(folder, ignore_errors=True)


def _check_kept(keep: Sequence[str], action: bool) -> None:
    """Refuse to keep a column twice, or one named like a column of the answers."""
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
