"""Prediction sets for a folder of Parquet files, on one machine or on many."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet

from fareg._engines import run_tasks
from fareg._files import AnyPath, check_output, check_readable, writing
from fareg._validation import IntArray, InvalidInputError, check_count
from fareg.persistence import load
from fareg.workflow._parquet import count_rows, folder_parts
from fareg.workflow._predict import (
    check_any,
    check_kept,
    count_sizes,
    model_columns,
    summary_of,
    write_answers,
)
from fareg.workflow._tables import read_batches


def predict_folder(
    model: AnyPath,
    data: AnyPath,
    out: AnyPath,
    *,
    keep: Sequence[str] = (),
    batch_size: int = 50_000,
    engine: str = "local",
    jobs: int | None = None,
    scheduler: str | None = None,
    trusted: Sequence[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the sets of every row of a partitioned Parquet folder to a folder of the same parts.

    Each part is read, answered and written where it runs; only its count of set sizes comes back.
    ``out`` appears when all parts are there, and the same call after a run that was killed goes on
    with the parts that are missing. Whatever the engine, the number of processes and the workers
    that died, the files are the same to the byte.

    Parameters
    ----------
    model, keep, trusted
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
    check_kept(keep)
    target, root = Path(out).absolute(), Path(data).resolve()
    if target.exists():
        raise InvalidInputError(f"cannot write {out}: it exists; remove it, or name a new folder")
    check_output(target)
    kept = tuple(keep)
    answer = PartAnswer.of(model, root, batch_size=batch_size, trusted=trusted, keep=kept, out="")
    parts = folder_parts(root)
    stamps = [(part, (root / part).stat().st_mtime_ns) for part in parts]
    plan = repr((answer.digest, batch_size, list(keep), stamps)).encode()
    # a later call with the same plan continues in this folder
    unfinished = target.with_name(f".{target.name}.{hashlib.sha256(plan).hexdigest()[:16]}.partial")
    answer = replace(answer, out=str(unfinished))
    counts = count_sizes([], len(answer.model_and_columns()[0].classes_))
    finished = run_tasks(answer, parts, engine=engine, jobs=jobs, scheduler=scheduler)
    with _kept_if_used(unfinished), writing(target):
        for folder in {(unfinished / part).parent for part in parts}:
            folder.mkdir(parents=True, exist_ok=True)
        for found in finished:
            counts += found
            if progress is not None:
                progress(int(found.sum()))
        check_any(counts, data)
        for leftover in unfinished.rglob(".*.tmp"):  # left by workers that were killed
            leftover.unlink()
        os.replace(unfinished, target)
    # left by other plans
    for other in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        shutil.rmtree(other, ignore_errors=True)
    return {**summary_of(counts), "files": len(parts)}


@contextmanager
def _kept_if_used(folder: Path) -> Iterator[None]:
    """Leave a folder behind after an error only if there is a finished part in it."""
    try:
        yield
    finally:
        if not any(path.is_file() and path.name[0] != "." for path in folder.rglob("*")):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class PartTask:
    """What a process needs to work on parts of a folder with a model; a call does one part."""

    model: str
    digest: str
    root: str
    batch_size: int
    trusted: tuple[str, ...]

    @classmethod
    def of(
        cls,
        model: AnyPath,
        root: Path,
        *,
        batch_size: int,
        trusted: Sequence[str] | None,
        **own: Any,
    ) -> Self:
        """Return the task of a model file and of the folder in which the parts are."""
        return cls(
            model=str(Path(model).resolve()),
            digest=file_digest(model),
            root=str(root),
            batch_size=check_count("batch_size", batch_size),
            trusted=tuple(trusted or ()),
            **own,
        )

    def model_and_columns(self) -> tuple[Any, dict[str, str]]:
        """Return the classifier and the kinds of its columns, loaded once per process."""
        return loaded_model(self.model, self.digest, self.trusted)


@dataclass(frozen=True, kw_only=True)
class PartAnswer(PartTask):
    """Writes the answers to a part, and returns its counts of set sizes."""

    out: str
    keep: tuple[str, ...]

    def __call__(self, part: str) -> IntArray:
        clf, kinds = self.model_and_columns()
        source, target = Path(self.root, part), Path(self.out, part)
        n_classes = len(clf.classes_)
        if target.exists():  # written by a run that was stopped
            sizes = pyarrow.parquet.read_table(target, columns=["size"])["size"]
            return count_sizes(sizes.to_numpy(), n_classes)
        if count_rows(source) == 0:
            return count_sizes([], n_classes)
        batches = read_batches(source, kinds, self.batch_size, keep=self.keep, root=Path(self.root))
        return write_answers(clf, batches, target, source=source)


@lru_cache(maxsize=1)
def loaded_model(model: str, digest: str, trusted: tuple[str, ...]) -> tuple[Any, dict[str, str]]:
    """Return the classifier and the kinds of its columns, loaded once per process."""
    if file_digest(model) != digest:
        raise InvalidInputError(f"{model} is not the file that it was; do not change it in mid-run")
    clf = load(model, trusted=trusted)
    return clf, model_columns(clf, model)


def file_digest(path: AnyPath) -> str:
    """Return what tells a file from one with other content."""
    with open(check_readable(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
