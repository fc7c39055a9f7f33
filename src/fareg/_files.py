"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fareg._endings import either
from fareg._validation import InvalidInputError

AnyPath = str | os.PathLike[str]


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; move it there at the end, remove it on any error.

    An existing file stays as it was until the new one is complete and on the disk. A link stays
    too: the file that it points to is replaced. A folder that does not exist, something else than
    a file, a full disk or a missing permission is an :class:`InvalidInputError`. A process
    that is killed leaves at most its temporary file, ``.<name>.<8 hex digits>.tmp``: nothing reads
    it, and it may be deleted.
    """
    target = Path(os.path.realpath(check_output(path)))
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        with writing(path):
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
def writing(target: AnyPath) -> Iterator[None]:
    """Turn what the disk says while ``target`` is written into an :class:`InvalidInputError`."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(f"cannot write {target}: {_reason(error)}") from error


def check_output(
    path: AnyPath, *, apart_from: Iterable[AnyPath | None] = (), endings: Sequence[str] = ()
) -> Path:
    """Return ``path`` if a file could be written there: its folder exists, and it is new or a file.

    ``apart_from`` are files of the same job that it must not replace; its name must have one of the
    ``endings``, if any are given.
    """
    target = Path(path)
    with writing(target):
        _check_place(target)
    others = {os.path.realpath(other) for other in apart_from if other is not None}
    if os.path.realpath(target) in others:
        raise InvalidInputError(
            f"cannot write {target}: this command reads or writes another file of that name; "
            "choose a new one"
        )
    if endings and target.suffix.lower() not in endings:
        raise InvalidInputError(
            f"cannot write {target}: the file must end in {either(endings)}, got "
            f"{target.suffix or 'no ending'}; choose such a name"
        )
    return target


def _check_place(target: Path) -> None:
    """Refuse a path without a folder, or at which something else than a file stands."""
    if target.is_dir():
        raise InvalidInputError(f"cannot write {target}: it is a folder; name a file in it")
    real = Path(os.path.realpath(target))  # a link stands for the file that it points to
    folder = real.parent if target.is_symlink() else target.parent
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(
            f"cannot write {target}: {folder} is not a folder; choose another place"
        )
    if not folder.is_dir():
        raise InvalidInputError(
            f"cannot write {target}: there is no folder {folder}; create it first"
        )
    # Pipes and devices would be replaced, and a link that points to itself leads to no file.
    if real.is_symlink() or (real.exists() and not real.is_file()):
        raise InvalidInputError(
            f"cannot write {target}: it exists and is not a regular file; choose another name"
        )


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
    return f"{(error.strerror or str(error)).lower()}; choose another place"
