"""CSV files: every line checked, its values as the texts that they are; cells that run nowhere."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow

from fareg._validation import InvalidInputError
from fareg._words import repeated, shown

SEPARATORS = (",", ";", "\t")  # of columns in a CSV file
ENCODING = "utf-8-sig"  # UTF-8, perhaps with a byte order mark
RUN_BY_SPREADSHEETS = tuple("=+-@\t\r\n")  # a cell that begins so may be run as a formula
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
LONGEST = 2**31 - 1  # characters of a value; Python's csv refuses more than 131,072 by itself


def opened_text(path: Path, mode: str, encoding: str = "utf-8", *, like: Any = None) -> Any:
    """Open a text file, packed by gzip if its name, or another ``like`` it, says so."""
    is_packed = Path(like or path).name.lower().endswith(".gz")
    opened: Any = gzip.open if is_packed else open
    return opened(path, mode, encoding=encoding, newline="")


class CsvFile:
    """A CSV file whose first line names the columns; what is read of it comes from one opening.

    Of comma, semicolon and tab, the sign which cuts the first line into most names separates them.
    """

    n_rows = None  # it does not say how many there are

    def __init__(self, source: Path) -> None:
        self.source = source
        with ExitStack() as stack:
            limit = csv.field_size_limit(LONGEST)
            stack.callback(csv.field_size_limit, limit)
            self.file = stack.enter_context(opened_text(source, "rt", ENCODING))
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
            # A column without a name is called what pandas calls it.
            self.names = [name or f"Unnamed: {position}" for position, name in enumerate(names)]
            self.n_values = len(first)  # more than names if lines end in separators
            check_unique(self.names, source)
            self.close = stack.pop_all().close

    def _head(self, separator: str) -> tuple[list[str], list[str]]:
        """Return the values in the first line of a file, and those in the next one with any."""
        self.file.seek(0)
        lines = csv.reader(self.file, delimiter=separator)
        return next(lines, []), next(filter(None, lines), [])

    def count(self) -> int:
        """Count the rows, after a check of their lines."""
        return sum(1 for _ in self._lines())

    def batches(self, columns: list[str], size: int, rows: Any) -> Iterator[tuple[int, Any]]:
        """Yield the texts of some columns, so many rows at a time, and where these start."""
        from pyarrow import csv as arrow_csv

        lines, wanted, start = self._lines(), columns or self.names[:1], 0
        while some := "".join(islice(lines, size)):
            batch = arrow_csv.read_csv(
                io.BytesIO(some.encode()),
                read_options=arrow_csv.ReadOptions(
                    column_names=self.names,
                    block_size=min(4 * len(some) + 64, LONGEST),
                    use_threads=False,
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.separator, newlines_in_values=True, ignore_empty_lines=False
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict.fromkeys(wanted, pyarrow.large_string()),
                    strings_can_be_null=False,
                ),
            )
            yield start, batch
            start += len(batch)

    def _lines(self) -> Iterator[str]:
        """Yield each row as it is written; a value in quotes may hold line breaks.

        Lines that hold nothing but blanks are left out, as pandas does, and separators at the end
        of a line that has too many.
        """
        blanks, n_names = " \t\r\n".replace(self.separator, ""), len(self.names)
        self.file.seek(0)
        number, is_header = 1, True
        for line in self.file:
            if '"' in line:
                lines, values = self._quoted(line, number)
                text, n = "".join(lines), len(values)
            else:
                lines, text, n = [line], line, line.count(self.separator) + 1
            if text.strip(blanks):
                if is_header:
                    is_header = False
                else:
                    yield text if n == n_names else self._repaired(text, number)
            number += len(lines)

    def _quoted(self, line: str, number: int) -> tuple[list[str], list[str]]:
        """Return the lines of a row that begins with this one, and its values."""
        lines = [line]

        def further() -> Iterator[str]:
            yield line
            for one in self.file:
                lines.append(one)
                yield one
            raise InvalidInputError(  # only a value that is still open asks for another line
                f"{self.source} has a quotation mark in line {number} that is not closed; close or "
                "remove it, or write the file again if its end is missing"
            )

        return lines, next(csv.reader(further(), delimiter=self.separator))

    def _repaired(self, text: str, number: int) -> str:
        """Return a row without separators at its end; refuse one that lacks values or has more."""
        values = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.separator))
        n, n_names = len(values), len(self.names)
        if n_names < n <= self.n_values and not any(values[n_names:]):
            row = io.StringIO()
            csv.writer(row, delimiter=self.separator).writerow(values[:n_names])
            return row.getvalue()
        if n == n_names:
            return text
        if n > n_names:
            fix = "repair that line, or put values that hold a separator in quotation marks"
        elif text.endswith(("\n", "\r")):
            fix = "repair that line: an empty value needs its separator too"
        else:
            fix = "the file ends there and may be cut off, so write it again"
        given = "1 value" if n == 1 else f"{n} values"
        raise InvalidInputError(
            f"{self.source} has {given} in line {number}, but {n_names} columns; {fix}"
        )


def check_unique(names: list[str], source: Any) -> None:
    """Refuse a table with two columns of one name."""
    if twice := repeated(names):
        raise InvalidInputError(f"{source} has column {shown(twice)} twice; rename one of them")


def safe_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table that no spreadsheet runs: an apostrophe stands before texts like formulas.

    Names of columns are such texts too; numbers stay as they are.

    >>> safe_cells(pd.DataFrame({"who": ["=1+1", "-3", "a"], "n": [-1, 0, 1]}))["who"].tolist()
    ["'=1+1", '-3', 'a']
    """
    kinds = pd.api.types
    safe = {
        str(name): column
        if kinds.is_numeric_dtype(column.dtype) or kinds.is_datetime64_any_dtype(column.dtype)
        else column.astype(object).map(_safe_cell)
        for name, column in frame.items()
    }
    return pd.DataFrame(safe, index=frame.index).rename(columns=_safe_cell)


def _safe_cell(value: Any) -> Any:
    runs = isinstance(value, str) and value.startswith(RUN_BY_SPREADSHEETS)
    return f"'{value}" if runs and not NUMBER.fullmatch(value) else value
