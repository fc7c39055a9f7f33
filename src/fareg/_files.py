"""Files are written completely or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from fareg._validation import InvalidInputError
from fareg._words import either

AnyPath = str | os.PathLike[str]
KEPT = "finished work is kept, and the same command continues from there"
_WRITTEN: ContextVar[list[Path] | None] = ContextVar("written", default=None)


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; move it there at the end, remove it on any error.

    An existing file stays unchanged until the new one is complete and on the disk. A link stays a
    link: the file that it points to is replaced. A killed process leaves at most its temporary
    file, ``.<name>.<8 hex digits>.tmp``: nothing reads it, and you may delete it.
    """
    target = Path(os.path.realpath(check_output(path)))
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        with writing(path):
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
            note_written(path)
    finally:
        with suppress(OSError):  # a read-only disk raises even if the file does not exist
            temporary.unlink()


@contextmanager
def noting_files(written: list[Path]) -> Iterator[None]:
    """Append every file that this thread finishes in the block to a list."""
    token = _WRITTEN.set(written)
    try:
        yield
    finally:
        _WRITTEN.reset(token)


def note_written(path: AnyPath) -> None:
    """Add a finished file or folder to the list of :func:`noting_files`, if there is one."""
    if (written := _WRITTEN.get()) is not None:
        written.append(Path(path))


@contextmanager
def kept_if_stopped() -> Iterator[None]:
    """Add to any exception that ends the block the note that finished work is kept."""
    try:
        yield
    except BaseException as error:
        error.add_note(KEPT)
        raise


def write_text(path: AnyPath, text: str) -> None:
    """Write a text file completely or not at all."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def writing(target: AnyPath) -> Iterator[None]:
    """Turn an error of the disk while ``target`` is written into an :class:`InvalidInputError`."""
    try:
        yield
    except OSError as error:
        reason = f"{(error.strerror or str(error)).lower()}; choose another place"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "the disk is full; free some space or choose another folder"
        raise InvalidInputError(f"cannot write {target}: {reason}") from error


def check_outputs(
    outputs: Iterable[AnyPath | None], *, inputs: Iterable[AnyPath | None] = ()
) -> None:
    """Refuse outputs that would overwrite an input or each other, or lie in a folder of data.

    Call this once with all files, before any work; None stands for a file that is not written. Two
    names may lead to the same file by a link. A file in a folder of data would be read as data the
    next time.
    """
    read = [path for path in inputs if path is not None]
    written: list[AnyPath] = []
    for output in (path for path in outputs if path is not None):
        uses = [*((path, "read") for path in read), *((path, "written") for path in written)]
        faults = [
            f"it is the same as {p}, which is {use} too" for p, use in uses if _is_same(output, p)
        ]
        faults += [f"it lies in {path}, which is read" for path in read if _lies_in(output, path)]
        faults += [f"{path}, which is read, lies in it" for path in read if _lies_in(path, output)]
        if faults:
            raise InvalidInputError(f"cannot write {output}: {faults[0]}; choose another name")
        written.append(output)


def _lies_in(path: AnyPath, folder: AnyPath) -> bool:
    """Return whether a path leads into a folder, even through links."""
    above = Path(os.path.realpath(path)).parents if os.path.isdir(folder) else ()
    return any(_is_same(place, folder) for place in above)


def _is_same(path: AnyPath, other: AnyPath) -> bool:
    """Return whether two paths lead to the same file or folder, which need not exist."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


def check_output(path: AnyPath, *, endings: Sequence[str] = ()) -> Path:
    """Return ``path`` if its folder exists, and the path is new or a regular file.

    Its name must have one of the ``endings``, if any are given.
    """
    target, real = Path(path), Path(os.path.realpath(path))  # where a link leads to
    with writing(target):
        folder = real.parent if target.is_symlink() else target.parent
        fault = ""
        if target.is_dir():
            fault = "it is a folder; name a file in it"
        elif not folder.is_dir():
            fault = f"there is no folder {folder}; create it first"
        # Pipes and devices would be replaced, and a link that points to itself leads to no file.
        elif real.is_symlink() or (real.exists() and not real.is_file()):
            fault = "it exists and is not a regular file; choose another name"
        elif endings and target.suffix.lower() not in endings:
            got = target.suffix or "no ending"
            fault = f"the file must end in {either(endings)}, got {got}; choose such a name"
    if fault:
        raise InvalidInputError(f"cannot write {target}: {fault}")
    return target


def check_readable(path: AnyPath) -> Path:
    """Return ``path`` if it is a readable file."""
    source = Path(path)
    faults = {
        "it is a folder; name a file": source.is_dir(),
        "there is no such file; check the path": not source.exists(),
        "it is not a regular file": not source.is_file(),
        "permission denied": not os.access(source, os.R_OK),
    }
    if fault := next((fault for fault, is_true in faults.items() if is_true), ""):
        raise InvalidInputError(f"cannot read {source}: {fault}")
    return source


def digest_of(path: AnyPath) -> str:
    """Return the SHA-256 of the content of a file."""
    with open(check_readable(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
