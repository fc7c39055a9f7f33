"""Tables that must stay as they are while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fareg._files import AnyPath
from fareg._validation import InvalidInputError
from fareg.workflow._parquet import folder_parts


@dataclass(frozen=True)
class Stamp:
    """What a file, or each file of a folder, was when its reading began."""

    source: Path
    files: dict[str, tuple[int, int, int]]  # inode, size and time of change, by path

    @classmethod
    def of(cls, source: AnyPath) -> Stamp:
        """Note what a file or folder is now; one that is not there is for its reader to refuse."""
        path = Path(source)
        parts = folder_parts(path) if path.is_dir() else [""]
        files = [(part, path / part) for part in parts]
        stats = [(part, file.stat()) for part, file in files if file.exists()]
        return cls(path, {part: (s.st_ino, s.st_size, s.st_mtime_ns) for part, s in stats})

    def check(self) -> None:
        """Refuse a file or folder that was changed or replaced since."""
        if Stamp.of(self.source) != self:
            raise InvalidInputError(
                f"{self.source} changed while it was read, so nothing is written; run the command "
                "again when no other program writes to it"
            )


@contextmanager
def unchanged(source: AnyPath) -> Iterator[None]:
    """Refuse a file that changes meanwhile, also if it cannot be read because of that."""
    stamp = Stamp.of(source)
    try:
        yield
    except InvalidInputError:
        stamp.check()
        raise
    stamp.check()
