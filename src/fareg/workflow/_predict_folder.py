"""Prediction sets for a folder of Parquet files, on one machine or on many."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet

from fareg._columns import canonical
from fareg._drift import count_strange
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
from fareg.persistence import ModelFile
from fareg.workflow._parquet import count_rows, folder_parts
from fareg.workflow._predict import (
    Answered,
    check_kept,
    count_sizes,
    id_column,
    model_columns,
    with_ids,
    write_answers,
)
from fareg.workflow._stamps import Stamp
from fareg.workflow._tables import notes_of, read_batches

SOURCE = "fareg_source_sha256"  # the note in a part of which rows it answers
MARK = ".fareg-unfinished"  # a file in an unfinished folder; it holds the name of the finished one


def predict_folder(
    model: AnyPath,
    data: AnyPath,
    out: AnyPath,
    *,
    keep: Sequence[str] = (),
    ids: str | None = None,
    batch_size: int = 50_000,
    engine: str = "local",
    jobs: int | None = None,
    scheduler: str | None = None,
    trusted: Sequence[str] | None = None,
    sha256: str | None = None,
    accept_drift: bool = False,
    action: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the sets of every row of a partitioned Parquet folder to a folder of the same parts.

    Each part is read, answered and written where it runs; only its count of set sizes comes back.
    ``out`` appears when all parts are there, and the same call after a run that was killed goes on
    with the parts that are missing, or that hold other rows by now. Whatever the engine, the number
    of processes and the workers that died, the files are the same to the byte.

    Parameters
    ----------
    model, keep, ids, trusted, sha256, accept_drift, action
        As in :func:`predict_file`.
    data : path of a folder
        It holds Parquet files, also in subfolders; ``name=value`` in the name of a subfolder is a
        column. Workers on other machines must see the paths as this one does.
    out : path of a folder that does not exist yet
    batch_size : int, default=50000
        Rows that are in memory at a time, in each process.
    engine, jobs, scheduler
        As in :func:`fareg._engines.run_tasks`.
    progress : function, default=None
        Called with the number of rows of each finished part.

    Returns
    -------
    dict
        That of :func:`predict_file`, and the number of ``files``.
    """
    check_kept(keep, action=action)
    check_count("batch_size", batch_size)
    check_outputs([out], inputs=[model, data])
    target, root = Path(out).absolute(), Path(data).resolve()
    if os.path.lexists(target):  # a link that leads nowhere is there too
        raise InvalidInputError(f"cannot write {out}: it exists; remove it, or name a new folder")
    check_output(target)
    stamp, parts = Stamp.of(root), folder_parts(root)
    file = ModelFile.open(model, trusted=trusted, sha256=sha256)
    ids = id_column(ids, file, root)
    plan = repr((file.sha256, batch_size, list(keep), ids, action, parts)).encode()
    clf = file.classifier
    model_columns(file)
    told = Answered(count_sizes([], len(clf.classes_)))
    with _filling(target, plan) as unfinished:
        common: dict[str, Any] = {"keep": keep, "ids": ids, "batch_size": batch_size}
        common["action"] = action
        answer = partial(_answer_part, model=file, root=root, out=unfinished, **common)
        finished = run_tasks(answer, parts, engine=engine, jobs=jobs, scheduler=scheduler)
        for folder in {(unfinished / part).parent for part in parts}:
            folder.mkdir(parents=True, exist_ok=True)
        for found in finished:
            told += found
            if progress is not None:
                progress(int(found.sizes.sum()))
        stamp.check()
        told.check(clf, data, accept_drift=accept_drift)
    return {**told.to_dict(), "files": len(parts)}


@contextmanager
def _filling(target: Path, plan: bytes) -> Iterator[Path]:
    """Yield a folder beside ``target`` to be filled; move it there at the end.

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
    for other in _unfinished(target):
        shutil.rmtree(other, ignore_errors=True)


def _unfinished(target: Path) -> list[Path]:
    """Return the folders that calls for this target left; any other folder is somebody else's."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.partial")
    marks = [folder / MARK for folder in target.parent.iterdir() if name.fullmatch(folder.name)]
    ours = os.fsencode(target.name)
    return [mark.parent for mark in marks if mark.is_file() and mark.read_bytes() == ours]


def _answer_part(
    part: str,
    model: ModelFile,
    root: Path,
    out: Path,
    keep: Sequence[str],
    ids: str | None,
    batch_size: int,
    action: bool,
) -> Answered:
    """Write the answers to a part of a folder, and count the sets of each size."""
    clf, kinds = model.classifier, model_columns(model)
    source, target, n_classes = root / part, out / part, len(clf.classes_)
    stamp, read = Stamp.of(source), {SOURCE: digest_of(source)}

    def batches() -> Iterator[Any]:
        yield from read_batches(source, kinds, batch_size, keep=with_ids(keep, ids), root=root)
        stamp.check()  # the answers are noted as those to the digest

    if target.exists():  # written by a run that was stopped
        if notes_of(target).items() >= read.items():
            sizes = pyarrow.parquet.read_table(target, columns=["size"])["size"]
            told = Answered(count_sizes(sizes.to_numpy(), n_classes))
            for X, _ in batches():
                told += Answered(
                    count_sizes([], n_classes), count_strange(clf.seen_values_, canonical(X))
                )
            return told
        target.unlink(missing_ok=True)  # the part held other rows then
    if count_rows(source) == 0:
        return Answered(count_sizes([], n_classes))
    more: dict[str, Any] = {"keep": keep, "ids": ids, "source": source, "action": action}
    return write_answers(model, batches(), target, notes=read, **more)
