"""Files of rows: CSV, with a check of every line, and Parquet, one file or a folder."""

from __future__ import annotations

import csv
import errno
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow
from pyarrow import dataset, parquet, types

from fareg._columns import check_columns
from fareg._validation import InvalidInputError
from fareg._words import CSV, PARQUET, TABLE, first_line, repeated, shown

SEPARATORS = (",", ";", "\t")  # of columns in a CSV file
LONGEST = 2**31 - 1  # characters of a value; Python's csv refuses more than 131,072 by default
CHUNK = 1 << 11  # rows of a CSV file that are Python strings at a time
TEXT = pyarrow.large_string()
NO_MEMORY = ("out of memory", "Failed to launch worker thread")  # messages of pandas and Arrow


class CsvFile:
    """A CSV file whose first line names the columns; it is opened once.

    The separator is the one of comma, semicolon and tab that cuts the first line into most names.
    Python's csv reads the file: pyarrow's readers do not say which line is too short, and read on
    after a quotation mark that is not closed.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.file = opened_text(source, "rt", "utf-8-sig")  # there may be a byte order mark
        self._limit = csv.field_size_limit(LONGEST)
        try:
            heads = {sign: self._head(sign) for sign in SEPARATORS}
            self.separator = max(heads, key=lambda sign: len(heads[sign][0]))
            names, first = heads[self.separator]
            if not any(names):
                raise InvalidInputError(f"{source} is empty: its first line must name the columns")
            if any(first[len(names) :]):
                raise InvalidInputError(
                    f"{source} names {len(names)} columns in its first line, but the next line has "
                    f"{len(first)} values; name every column"
                )
            # A column without a name gets the name that pandas gives it.
            self.names = [name or f"Unnamed: {position}" for position, name in enumerate(names)]
            self.n_values = len(first)  # more than names if lines end in separators
            check_unique(self.names, source)
        except BaseException:
            self.close()
            raise
        self.texts = self.names  # columns that are stored as text

    def close(self) -> None:
        """Close the file."""
        csv.field_size_limit(self._limit)
        self.file.close()

    def _head(self, separator: str) -> tuple[list[str], list[str]]:
        """Return the values of the first line, and those of the next line that is not empty."""
        self.file.seek(0)
        lines = csv.reader(self.file, delimiter=separator)
        return next(lines, []), next(filter(None, lines), [])

    def count(self) -> int:
        """Count the rows and check their lines."""
        with reading(self.source):
            return sum(1 for _ in self._rows())

    def tables(self, columns: list[str], size: int, rows: Any = None) -> Iterator[Any]:
        """Yield Arrow tables of at most ``size`` rows, or of those with the numbers ``rows``."""
        places, start = [self.names.index(name) for name in columns], 0
        with reading(self.source):
            lines = self._rows()
            while chunk := list(islice(lines, min(size, CHUNK))):
                low, high = start, start + len(chunk)
                start = high
                if rows is not None:
                    wanted = rows[slice(*np.searchsorted(rows, [low, high]))] - low
                    chunk = [chunk[row] for row in wanted]
                values = list(zip(*chunk, strict=True)) or [()] * len(self.names)
                texts = [pyarrow.array(values[place], TEXT) for place in places]
                yield pyarrow.table(texts, names=columns)

    def _rows(self) -> Iterator[list[str]]:
        """Yield the values of each row; a value in quotation marks may hold line breaks.

        Blank lines are skipped, and so are empty values after the last column.
        """
        last, at_end = "", False

        def lines() -> Iterator[str]:
            nonlocal last, at_end
            for line in self.file:
                last = line
                yield line
            at_end = True

        self.file.seek(0)
        reader, n, number = csv.reader(lines(), delimiter=self.separator), len(self.names), 0
        for values in reader:
            number, before = reader.line_num, number
            if at_end:  # only an open quotation mark lets csv ask for another line
                raise InvalidInputError(
                    f"{self.source} has a quotation mark in line {before + 1} that is not closed; "
                    "close or remove it, or write the file again if its end is missing"
                )
            if not before or not values or (len(values) == 1 and values[0].isspace()):
                continue
            if n < len(values) <= self.n_values and not any(values[n:]):
                values = values[:n]
            if len(values) != n:
                raise InvalidInputError(self._wrong_length(len(values), before + 1, last))
            yield values

    def _wrong_length(self, n: int, number: int, last: str) -> str:
        """Return an error for a line with too few or too many values."""
        if n > len(self.names):
            fix = "repair that line, or put values that hold a separator in quotation marks"
        elif last.endswith(("\n", "\r")):
            fix = "repair that line: an empty value needs its separator too"
        else:
            fix = "the file ends there and may be cut off, so write it again"
        values, n_names = f"{n} value{'s' * (n != 1)}", len(self.names)
        return f"{self.source} has {values} in line {number}, but {n_names} columns; {fix}"


class ParquetFiles:
    """Parquet files; a folder ``name=value`` between the root and a file is a column of text."""

    def __init__(self, parts: list[Path], root: Path | None) -> None:
        folders = [] if root is None else [part.relative_to(root).parent.parts for part in parts]
        steps = (step for folder in folders for step in folder if "=" in step)
        self.texts = list(dict.fromkeys(unquote(step.partition("=")[0]) for step in steps))
        # With pre_buffer, Arrow would keep everything it has buffered in memory.
        options = dataset.ParquetFragmentScanOptions(pre_buffer=False)
        with reading(parts[0]):
            files = dataset.dataset(
                list(map(str, parts)),
                format=dataset.ParquetFileFormat(default_fragment_scan_options=options),
                partitioning=dataset.HivePartitioning(
                    pyarrow.schema([(n, TEXT) for n in self.texts])
                ),
                partition_base_dir=None if root is None else str(root),
            )
        self.fragments = list(files.get_fragments())
        self.names = list(dict.fromkeys([*self._schema(self.fragments[0]).names, *self.texts]))

    def close(self) -> None:
        """Do nothing: Arrow opens a file only while it reads it."""

    def count(self) -> int:
        """Count the rows, as the files' metadata say."""
        return sum(map(self._count, self.fragments))

    def tables(self, columns: list[str], size: int, rows: Any = None) -> Iterator[Any]:
        """Yield Arrow tables of at most ``size`` rows, or of those with the numbers ``rows``."""
        first = 0
        for fragment in self.fragments:
            schema, n = self._schema(fragment), 0 if rows is None else self._count(fragment)
            check_columns(columns, schema.names, fragment.path)
            with reading(Path(fragment.path)):
                if rows is None:
                    yield from self._in_turn(fragment, columns, size)
                    continue
                low, high = np.searchsorted(rows, [first, first + n])
                if low < high:
                    fields = {name: dataset.field(name) for name in columns}
                    scan = fragment.scanner(schema=schema, columns=fields)
                    yield scan.take(pyarrow.array(rows[low:high] - first))
                first += n

    def _in_turn(self, fragment: Any, columns: list[str], size: int) -> Iterator[Any]:
        """Yield a part in tables of at most ``size`` rows; a scanner would decode row groups."""
        folders = dataset.get_partition_keys(fragment.partition_expression)
        with parquet.ParquetFile(fragment.path) as file:
            stored = [name for name in columns if name not in folders]
            for group in range(file.num_row_groups):  # all at once, Arrow would keep what it read
                for batch in file.iter_batches(size, row_groups=[group], columns=stored):
                    table = pyarrow.Table.from_batches([batch])
                    for name in folders.keys() & set(columns):
                        value = pyarrow.scalar(folders[name], TEXT)
                        table = table.append_column(name, pyarrow.repeat(value, len(batch)))
                    yield table.select(columns)

    def _count(self, fragment: Any) -> int:
        with reading(Path(fragment.path)):
            return int(fragment.count_rows())

    def _schema(self, fragment: Any) -> Any:
        """Return the columns of a part, without an index that pandas stored in it."""
        with reading(Path(fragment.path)):
            stored = fragment.physical_schema
        index = (stored.pandas_metadata or {}).get("index_columns", [])
        fields = [field for field in stored if field.name not in index]
        check_unique([field.name for field in fields], fragment.path)
        from_folders = list(dataset.get_partition_keys(fragment.partition_expression))
        if twice := [field.name for field in fields if field.name in from_folders]:
            raise InvalidInputError(
                f"column {twice[0]} stands both in {fragment.path} and in the name of its folder; "
                "rename the folder, or leave the column out of the files"
            )
        return pyarrow.schema([*fields, *((name, TEXT) for name in from_folders)])


def sized(tables: Iterator[Any], size: int) -> Iterator[Any]:
    """Yield Arrow tables of ``size`` rows, and a last one of fewer."""
    held: list[Any] = []
    for table in tables:
        held.append(table)
        while sum(map(len, held)) >= size:
            whole = joined(held)
            held = [whole[size:]]
            yield whole[:size]
    if sum(map(len, held)):
        yield joined(held)


def joined(tables: list[Any]) -> Any:
    """Return Arrow tables as one; a column may be dictionary-coded in some of them only."""

    def plain(table: Any) -> Any:
        for place, field in enumerate(table.schema):
            if types.is_dictionary(field.type):
                column = table[field.name].cast(field.type.value_type)
                table = table.set_column(place, field.name, column)
        return table

    return pyarrow.concat_tables(map(plain, tables), promote_options="permissive")


def check_unique(names: list[str], source: Any) -> None:
    """Refuse a table with two columns of one name."""
    if twice := repeated(names):
        raise InvalidInputError(f"{source} has column {shown(twice)} twice; rename one of them")


def opened_text(path: Path, mode: str, encoding: str = "utf-8", *, like: Any = None) -> Any:
    """Open a text file, with gzip if its name, or that of ``like`` if given, ends in .gz."""
    is_packed = Path(like or path).name.lower().endswith(".gz")
    opened: Any = gzip.open if is_packed else open
    return opened(path, mode, encoding=encoding, newline="")


def is_parquet(path: Any) -> bool:
    """Return whether a path means Parquet, by its ending, or CSV; folders hold Parquet files."""
    name = Path(path).name.lower()
    if name.endswith(PARQUET) or Path(path).is_dir():
        return True
    if name.endswith(CSV):
        return False
    raise InvalidInputError(f"{path} must end in {TABLE}; write the table in one of these formats")


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """Turn readers' errors about damaged files into one sentence."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{source} is not UTF-8 (byte 0x{error.object[error.start]:02x}); save it as UTF-8, "
            f"for example: iconv -f latin1 -t utf-8 {source.name} > converted.csv"
        ) from error
    except (InvalidInputError, MemoryError):
        raise
    except (ValueError, csv.Error, pyarrow.ArrowException, OSError, EOFError) as error:
        is_memory = any(words in str(error) for words in NO_MEMORY)
        if is_memory or getattr(error, "errno", None) == errno.ENOMEM:
            raise MemoryError from error
        reason = first_line(error).rstrip(".")
        raise InvalidInputError(
            f"{source} cannot be read as Parquet: it is damaged or in another format ({reason}); "
            "write it again, or name it after its format"
            if is_parquet(source)
            else f"{source} cannot be read as CSV ({reason}); save it again as CSV in UTF-8"
        ) from error
