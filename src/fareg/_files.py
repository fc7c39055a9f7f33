"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fareg._validation import InvalidInputError

AnyPath = str | os.PathLike[str]


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; move it there at the end, remove it on any error.

    An existing file stays as it was until the new one is complete and on the disk. A folder that
    does not exist, a full disk or a missing permission is an :class:`InvalidInputError`. A process
    that is killed leaves at most its temporary file, ``.<name>.<8 hex digits>.tmp``: nothing reads
    it, and it may be deleted.
    """
    target = check_output(path)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        with writing(target):
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:
        with suppress(OSError):  # a read-only disk says so even of a file that is not there
            temporary.unlink()


def write_text(path: AnyPath, text: str) -> None:
    """Write a text file, at once or not at all."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn what the disk says while ``target`` is written into an :class:`InvalidInputError`."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(f"cannot write {target}: {_reason(error)}") from error


def check_output(path: AnyPath, *, apart_from: Iterable[AnyPath | None] = ()) -> Path:
    """Return ``path`` if a file could be written there: its folder exists, itself is no folder.

    ``apart_from`` are files of the same job that it must not replace.
    """
    target = Path(path)
    if target.is_dir():
        raise InvalidInputError(f"cannot write {target}: it is a folder; name a file in it")
    if not target.parent.is_dir():
        raise InvalidInputError(
            f"cannot write {target}: there is no folder {target.parent}; create it first"
        )
    if any(other is not None and Path(other).resolve() == target.resolve() for other in apart_from):
        raise InvalidInputError(
            f"cannot write {target}: this command reads or writes another file of that name; "
            "choose a new one"
        )
    return target


def check_readable(path: AnyPath) -> Path:
    """Return ``path`` if it is a file that can be opened."""
    source = Path(path)
    if source.is_dir():
        raise InvalidInputError(f"cannot read {source}: it is a folder; name a file")
    if not source.exists():
        raise InvalidInputError(f"cannot read {source}: there is no such file; check the path")
    if not source.is_file():
        raise InvalidInputError(f"cannot read {source}: it is not a regular file")
    if not os.access(source, os.R_OK):
        raise InvalidInputError(f"cannot read {source}: permission denied")
    return source


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space or choose another folder"
    return (error.strerror or str(error)).lower()
