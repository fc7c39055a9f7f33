"""What a table file must be like to be read: its format, its columns, and errors in a sentence."""

from __future__ import annotations

import csv
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import ArrowException

from fareg._files import AnyPath
from fareg._validation import InvalidInputError
from fareg._words import CSV, PARQUET, TABLE, first_line, repeated, shown

Progress = Callable[[str], None]  # it is told each stage of the work when that begins


def quiet(stage: str) -> None:
    """Show no progress."""


def is_parquet(path: AnyPath) -> bool:
    """Tell Parquet from CSV by the name of the file; a folder is one of Parquet files."""
    name = Path(path).name.lower()
    if name.endswith(PARQUET) or Path(path).is_dir():
        return True
    if name.endswith(CSV):
        return False
    raise InvalidInputError(f"{path} must end in {TABLE}, so that its format is known")


def is_packed(path: AnyPath) -> bool:
    """Tell whether a CSV file is packed by gzip, by its name."""
    return Path(path).name.lower().endswith(".gz")


def check_unique(names: list[str], source: Any) -> None:
    """Refuse a table with two columns of one name."""
    twice = repeated(names)
    if twice:
        raise InvalidInputError(f"{source} has column {shown(twice)} twice; rename one of them")


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """Turn what readers say about damaged files into one sentence."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidInputError(_not_utf8(source, error)) from error
    except (InvalidInputError, MemoryError):
        raise
    except (ValueError, csv.Error, ArrowException, OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise MemoryError from error
        if "out of memory" in str(error):  # as pandas says it
            raise MemoryError from error
        told = _not_parquet if is_parquet(source) else _not_csv
        raise InvalidInputError(told(source, first_line(error).rstrip("."))) from error


def _not_parquet(source: Path, reason: str) -> str:
    return (
        f"{source} cannot be read as Parquet, it is damaged or in another format ({reason}); write "
        "it again, or let its name tell its format"
    )


def _not_csv(source: Path, reason: str) -> str:
    return f"{source} cannot be read as CSV ({reason}); save it again as CSV in UTF-8"


def _not_utf8(source: Path, error: UnicodeDecodeError) -> str:
    where = f"byte 0x{error.object[error.start]:02x}"
    if not is_packed(source):
        with open(source, "rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as first:
                    where = f"byte 0x{line[first.start]:02x} in line {number}"
                    break
    return (
        f"{source} is not UTF-8 ({where}); save it as UTF-8, "
        f"for example: iconv -f latin1 -t utf-8 {source.name} > converted.csv"
    )
