"""CSV files: opened once, every line checked, read whole or some lines at a time."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from fareg._validation import InvalidInputError
from fareg.workflow._formats import check_unique, is_packed

SEPARATORS = (",", ";", "\t")  # of columns in a CSV file
ENCODING = "utf-8-sig"  # UTF-8, perhaps with a byte order mark
RUN_BY_SPREADSHEETS = tuple("=+-@\t\r\n")  # a cell that begins so may be run as a formula
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
LONGEST = 2**31 - 1  # characters of a value; Python's csv refuses more than 131,072 by itself


@dataclass(frozen=True)
class CsvFile:
    """An open CSV file; whatever is read of it comes from this one opening."""

    source: Path
    file: Any  # text, from its beginning on
    separator: str
    names: list[str]  # of the columns
    n_values: int  # in the first row; more than names if its lines end in separators

    def check(self) -> CsvFile:
        """Refuse a file with a line that lacks values or has too many."""
        for _ in self._lines():
            pass
        return self

    def frame(self, columns: Sequence[str] | None = None, **options: Any) -> pd.DataFrame:
        """Return all rows of some columns or of all, read by pandas with these ``options``."""
        wanted = self.names if columns is None else list(columns)
        self.file.seek(0)
        frame = pd.read_csv(
            self.file,
            sep=self.separator,
            index_col=False,  # lines may end in one more separator; no column is an index then
            usecols=wanted,
            low_memory=False,
            **options,
        )
        return frame[wanted]

    def written(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return columns as text that is not interpreted: 007 and NA stand as they were written."""
        return self.frame(columns, dtype="str", keep_default_na=False)

    def batches(self, n_rows: int) -> Iterator[CsvFile]:
        """Yield files in memory that hold so many rows each, after a check of their lines."""
        lines = self._lines()
        header = next(lines)
        while some := "".join(islice(lines, n_rows)):
            yield replace(self, file=io.StringIO(header + some))

    def _lines(self) -> Iterator[str]:
        """Yield the header and each row as it is written; a value in quotes may hold line breaks.

        Lines that hold nothing but blanks are left out, as pandas does.
        """
        blanks, n_names = " \t\r\n".replace(self.separator, ""), len(self.names)
        self.file.seek(0)
        number = 1
        for line in self.file:
            if '"' in line:
                lines, values = self._quoted(line, number)
                text, n = "".join(lines), len(values)
            else:
                lines, text, n = [line], line, line.count(self.separator) + 1
            if text.strip(blanks):
                if n != n_names:
                    self._check_length(text, number)
                yield text
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

    def _check_length(self, text: str, number: int) -> None:
        """Refuse a row without a value for each column; it may end in separators as the first."""
        values = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.separator))
        n, n_names = len(values), len(self.names)
        if n_names < n <= self.n_values and not any(values[n_names:]):
            return
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


@contextmanager
def opened_csv(source: Path) -> Iterator[CsvFile]:
    """Open a CSV file whose first line names the columns.

    Of comma, semicolon and tab, the sign which cuts the first line into most names separates them.
    """
    limit = csv.field_size_limit(LONGEST)
    try:
        with opened_text(source, "rt", ENCODING, packed=is_packed(source)) as file:
            heads = {sign: _head(file, sign) for sign in SEPARATORS}
            separator = max(heads, key=lambda sign: len(heads[sign][0]))
            names, first = heads[separator]
            _check_names(names, first, source)
            # A column without a name is called what pandas calls it.
            names = [name or f"Unnamed: {position}" for position, name in enumerate(names)]
            yield CsvFile(source, file, separator, names, len(first))
    finally:
        csv.field_size_limit(limit)


def opened_text(path: Path, mode: str, encoding: str, *, packed: bool) -> Any:
    """Open a text file, packed by gzip or not."""
    opened: Any = gzip.open if packed else open
    return opened(path, mode, encoding=encoding, newline="")


def _head(file: Any, separator: str) -> tuple[list[str], list[str]]:
    """Return the values in the first line of a file, and those in the next one with any."""
    file.seek(0)
    lines = csv.reader(file, delimiter=separator)
    return next(lines, []), next(filter(None, lines), [])


def _check_names(names: list[str], first: list[str], source: Path) -> None:
    """Refuse a header without names, with too few or with one twice."""
    if not any(names):
        raise InvalidInputError(f"{source} is empty: its first line must name the columns")
    if any(first[len(names) :]):
        raise InvalidInputError(
            f"{source} names {len(names)} columns in its first line, but the next line has "
            f"{len(first)} values; name every column"
        )
    check_unique([name for name in names if name], source)


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
