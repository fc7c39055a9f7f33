"""Files that appear whole or not at all."""

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
KEPT = "what was finished is kept, and the same command continues from there"
_WRITTEN: ContextVar[list[Path] | None] = ContextVar("written", default=None)


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; move it there at the end, remove it on any error.

    An existing file stays as it was until the new one is complete and on the disk. A link stays
    too: the file that it points to is replaced. A process that is killed leaves at most its
    temporary file, ``.<name>.<8 hex digits>.tmp``: nothing reads it, and it may be deleted.
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
        with suppress(OSError):  # a read-only disk says so even of a file that is not there
            temporary.unlink()


@contextmanager
def noting_files(written: list[Path]) -> Iterator[None]:
    """Append to a list every file that this thread finishes in the block."""
    token = _WRITTEN.set(written)
    try:
        yield
    finally:
        _WRITTEN.reset(token)


def note_written(path: AnyPath) -> None:
    """Note that a file or a folder is finished, if somebody wants to know."""
    if (written := _WRITTEN.get()) is not None:
        written.append(Path(path))


@contextmanager
def kept_if_stopped() -> Iterator[None]:
    """Note on whatever ends the block too early that finished work stays, and is used again."""
    try:
        yield
    except BaseException as error:
        error.add_note(KEPT)
        raise


def write_text(path: AnyPath, text: str) -> None:
    """Write a text file, at once or not at all."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def writing(target: AnyPath) -> Iterator[None]:
    """Turn what the disk says while ``target`` is written into an :class:`InvalidInputError`."""
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
    """Refuse outputs that would harm an input, or one another.

    Whatever reads and writes files calls this once, before its work, with all of them; None stands
    for a file that was not asked for. A file is the same under another name too, by a link. What is
    written to a folder of data would be read as data the next time.
    """
    read = [path for path in inputs if path is not None]
    written: list[AnyPath] = []
    for output in (path for path in outputs if path is not None):
        known = [*((path, "read") for path in read), *((path, "written") for path in written)]
        wrong = [
            f"it is the same as {p}, which is {how} too" for p, how in known if _is_same(output, p)
        ]
        wrong += [f"it lies in {path}, which is read" for path in read if _lies_in(output, path)]
        wrong += [f"{path}, which is read, lies in it" for path in read if _lies_in(path, output)]
        if wrong:
            raise InvalidInputError(f"cannot write {output}: {wrong[0]}; choose another name")
        written.append(output)


def _lies_in(path: AnyPath, folder: AnyPath) -> bool:
    """Tell whether a path leads into a folder, whatever both are called."""
    above = Path(os.path.realpath(path)).parents if os.path.isdir(folder) else ()
    return any(_is_same(place, folder) for place in above)


def _is_same(path: AnyPath, other: AnyPath) -> bool:
    """Tell whether two paths lead to the same file or folder, which need not exist."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


def check_output(path: AnyPath, *, endings: Sequence[str] = ()) -> Path:
    """Return ``path`` if a file could be written there: its folder exists, and it is new or a file.

    Its name must have one of the ``endings``, if any are given.
    """
    target, real = Path(path), Path(os.path.realpath(path))  # where a link leads to
    with writing(target):
        folder = real.parent if target.is_symlink() else target.parent
        wrong = ""
        if target.is_dir():
            wrong = "it is a folder; name a file in it"
        elif not folder.is_dir():
            wrong = f"there is no folder {folder}; create it first"
        # Pipes and devices would be replaced, and a link that points to itself leads to no file.
        elif real.is_symlink() or (real.exists() and not real.is_file()):
            wrong = "it exists and is not a regular file; choose another name"
        elif endings and target.suffix.lower() not in endings:
            got = target.suffix or "no ending"
            wrong = f"the file must end in {either(endings)}, got {got}; choose such a name"
    if wrong:
        raise InvalidInputError(f"cannot write {target}: {wrong}")
    return target


def check_readable(path: AnyPath) -> Path:
    """Return ``path`` if it is a file that can be opened."""
    source = Path(path)
    faults = {
        "it is a folder; name a file": source.is_dir(),
        "there is no such file; check the path": not source.exists(),
        "it is not a regular file": not source.is_file(),
        "permission denied": not os.access(source, os.R_OK),
    }
    for wrong in [wrong for wrong, is_so in faults.items() if is_so]:
        raise InvalidInputError(f"cannot read {source}: {wrong}")
    return source


def digest_of(path: AnyPath) -> str:
    """Return the SHA-256 of what is in a file."""
    with open(check_readable(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
