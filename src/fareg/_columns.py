"""Tables of any library as canonical columns.

Whoever is called with a table codes it once, with :func:`code_table`, and hands the result on:
the functions of this room that take a table take a :class:`CodedTable` as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from fareg._validation import FloatArray, IntArray, InvalidInputError, refuse_sparse
from fareg._words import repeated

PANDAS = pd.DataFrame | pd.Series
KINDS = ("number", "text", "date")
HELD = {"boolean": "flag", "date": "date", "datetime": "date", "datetime64": "date"}
DIGITS = 4  # significant digits of a bound, unless it takes more to part the values


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """A column in canonical form: float64 with NaN, or text with None for missing values.

    Where the values were texts or objects, each distinct one is converted once, and ``codes`` says
    which of ``values`` each row has: the last of them, with the code -1, is the missing one.
    """

    codes: IntArray | None  # (n,); None if ``values`` has one per row
    values: Any
    held: str | None = None  # "flag" or "date", if the numbers stand for one

    def __len__(self) -> int:
        return len(self.values if self.codes is None else self.codes)

    @property
    def is_text(self) -> bool:
        """Whether the values are texts."""
        return bool(self.values.dtype == object)

    @property
    def kind(self) -> str:
        """What the column holds, one of ``KINDS``."""
        return "text" if self.is_text else "date" if self.held == "date" else "number"

    def rows(self) -> Any:
        """Return the value of each row."""
        return self.values if self.codes is None else self.values[self.codes]

    def numbers(self) -> FloatArray:
        """Return the number of each row, NaN for missing values and text that spells none."""
        if not self.is_text:
            return np.asarray(self.rows(), dtype=np.float64)
        return np.append(spelled_numbers(self.values[:-1]), np.nan)[self.codes]

    def texts(self) -> tuple[list[str], IntArray]:
        """Return the distinct values as texts, and how many rows have each."""
        if self.codes is None:
            codes, values = pd.factorize(self.values)
        else:
            codes, values = self.codes, self.values[:-1]
        counts = np.bincount(codes[codes >= 0], minlength=len(values))
        return [_text(value) for value in values], counts

    def take(self, rows: Any) -> CodedColumn:
        """Return some of the rows."""
        if self.codes is None:
            return CodedColumn(None, self.values[rows], self.held)
        return CodedColumn(self.codes[rows], self.values, self.held)


@dataclass(frozen=True, eq=False)
class CodedTable:
    """A table whose columns were coded, once for everything that reads them."""

    source: Any  # the table as it came
    columns: dict[str, CodedColumn]

    def __len__(self) -> int:
        return len(self.source)

    def canonical(self) -> pd.DataFrame:
        """Return the columns as a pandas frame; see :func:`canonical`."""
        columns = {
            # The dtype is named, because pandas would turn bare object arrays of text into "str".
            # Values without codes may be those of the table itself, so they are copied.
            name: pd.Series(column.rows(), dtype=column.values.dtype, copy=column.codes is None)
            for name, column in self.columns.items()
        }
        kinds = {name: column.held for name, column in self.columns.items() if column.held}
        return note_held(pd.DataFrame(columns), kinds)

    def take(self, rows: Any) -> CodedTable:
        """Return some of the rows, by their numbers, a mask or a slice."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return CodedTable(take_rows(self.source, rows), columns)

    def select(self, positions: list[int]) -> CodedTable:
        """Return some of the columns, in this order."""
        columns = list(self.columns.items())
        source = columns_at(self.source, positions)
        return CodedTable(source, dict(columns[position] for position in positions))

    def kinds(self) -> dict[str, str]:
        """Return what each column holds, one of ``KINDS``.

        >>> born = pd.to_datetime(["1980-01-31"] * 2)
        >>> code_table(pd.DataFrame({"age": [40, 50], "born": born})).kinds()
        {'age': 'number', 'born': 'date'}
        """
        return {name: column.kind for name, column in self.columns.items()}


def code_table(X: Any, names: Sequence[str] | None = None) -> CodedTable:
    """Code every column of a table; one that is coded already stays as it is.

    ``names`` are those of the columns, if X has others.

    >>> code_table([[1.0, "u"], [None, "v"]]).columns["x1"].texts()
    (['u', 'v'], array([1, 1]))
    """
    if isinstance(X, CodedTable):
        return X
    X = X if is_frame(X) else np.asarray(X)
    columns = [column for _, column in coded_columns(X)]
    return CodedTable(X, dict(zip(names or column_names(X), columns, strict=True)))


def coded_columns(X: Any) -> Iterator[tuple[str, CodedColumn]]:
    """Yield the names and the columns of a table, each coded when it is its turn."""
    if isinstance(X, CodedTable):
        yield from X.columns.items()
        return
    # a canonical frame keeps its notes
    noted = X.attrs.get("held", {}) if isinstance(X, pd.DataFrame) else {}
    for name, series in zip(column_names(X), series_of(X), strict=True):
        column = _coded(series)
        yield name, replace(column, held=noted[name]) if name in noted else column


def canonical(X: Any) -> pd.DataFrame:
    """Copy any table into a pandas frame whose columns are float64 or object (text or None).

    Numbers, booleans, dates and durations become float64 with NaN for missing values; everything
    else becomes text with None. So a value has one form, whichever library and dtype held it. A
    column of objects that mixes numbers and text becomes text; :func:`as_text` and
    :func:`as_numbers` give its rows the same form whichever rows came with them.

    The frame notes which columns held booleans and dates, for :func:`held` and :func:`in_words`.
    """
    return code_table(X).canonical()


def is_frame(X: Any) -> bool:
    """Tell whether X is a data frame (pandas, polars, ...) and not an array."""
    return not isinstance(X, np.ndarray) and bool(nw.dependencies.is_into_dataframe(X))


def check_table(X: Any) -> Any:
    """Return ``X`` if it is a frame or a two-dimensional array, neither of them without columns.

    Some words, such as "Reshape your data", are those that scikit-learn's checks look for.
    """
    table = X if is_frame(X) else _dense(X)
    if len(table.shape) != 2:
        got = f"shape {table.shape}" if table.shape else type(X).__name__
        fix = "pass a frame or an array with a row per sample"
        if len(table.shape) == 1:
            fix = "Reshape your data with np.reshape(X, (-1, 1)) if it is one column"
        raise InvalidInputError(
            f"X must be a table of shape (n_samples, n_features), got {got}; {fix}"
        )
    if table.shape[1] == 0:
        raise InvalidInputError(
            f"X must have at least one column, got 0 feature(s) (shape={tuple(table.shape)}) while "
            "a minimum of 1 is required; keep the columns that tell about the rows"
        )
    check_unique(column_names(table))
    return table


def _dense(X: Any) -> Any:
    """Return what is not a frame as an array, if it is one of real numbers or objects."""
    refuse_sparse("X", X)
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InvalidInputError(
            f"X must be a table with rows of one length, got a {type(X).__name__}; "
            "fill what is missing with NaN"
        ) from error
    if array.dtype.kind == "c":
        raise InvalidInputError(
            f"X must hold real numbers, got {array.dtype} (Complex data not supported); pass real "
            "and imaginary parts as columns"
        )
    return array


def check_same_order(**tables: Any) -> None:
    """Refuse a table with the row names of the first one in another order; rows go by position."""
    (name, first), *others = tables.items()
    for other, table in others:
        if not (isinstance(first, PANDAS) and isinstance(table, PANDAS)):
            continue
        if not first.index.equals(table.index) and set(first.index) == set(table.index):
            raise InvalidInputError(
                f"{other} must have its rows in the order of {name}, got the index of {name} in "
                f"another order; pass {other}.loc[{name}.index], or drop the index if rows belong "
                "together as they stand"
            )


def column_names(X: Any) -> list[str]:
    """Return the column names of a frame, ``x0, x1, ...`` for an array."""
    if isinstance(X, CodedTable):
        return list(X.columns)
    # Pandas comes first, because narwhals refuses duplicate names with another error.
    if isinstance(X, pd.DataFrame):
        return [str(name) for name in X.columns]
    if is_frame(X):
        return [str(name) for name in nw.from_native(X, eager_only=True).columns]
    return [f"x{j}" for j in range(np.shape(X)[1])]


def check_unique(names: list[str]) -> None:
    """Refuse a name that stands twice."""
    twice = repeated(names)
    if twice:
        raise InvalidInputError(
            f"column names must be unique, got {', '.join(twice)} twice; rename one"
        )


def series_of(X: Any) -> list[Any]:
    """Return the columns of a table: series of pandas or narwhals, arrays of an array."""
    check_unique(column_names(X))
    if isinstance(X, pd.DataFrame):
        return [column for _, column in X.items()]
    if is_frame(X):
        return list(nw.from_native(X, eager_only=True).iter_columns())
    return list(np.asarray(X).T)


class _Held(dict[str, str]):
    """What columns held before they became numbers: "flag" or "date", by name."""

    def __deepcopy__(self, memo: Any) -> _Held:
        return self  # pandas copies attrs with every column, and this never changes


def note_held(columns: pd.DataFrame, kinds: dict[str, str]) -> pd.DataFrame:
    """Note on canonical columns which of them held a "flag" or a "date"; return them."""
    columns.attrs["held"] = _Held(kinds)
    return columns


def held(column: pd.Series) -> str | None:
    """Return what a canonical column held before: "flag", "date", or None for anything else."""
    kind: str | None = column.attrs.get("held", {}).get(column.name)
    return kind


def in_words(value: float, kind: str | None = None) -> str:
    """Write a number in full as what it was: True for a flag, a day (and time, if any) for a date.

    >>> in_words(1.0, "flag"), in_words(1484265600.0, "date"), in_words(1484308800.0, "date")
    ('True', '2017-01-13', '2017-01-13 12:00:00')
    >>> in_words(36061000100.0), in_words(-5 / 3)
    ('36061000100', '-1.6666666666666667')
    """
    if kind == "flag":
        return str(bool(value))
    if kind == "date":
        day, time = str(np.datetime64(round(value * 1e6), "us")).split("T")
        return day if time == "00:00:00.000000" else f"{day} {time.removesuffix('.000000')}"
    if value == 0 or 1e-4 <= abs(value) < 1e16:
        return str(np.format_float_positional(value + 0.0, trim="-"))
    return repr(float(value))


def shortest_between(below: float, above: float, *near: float) -> float:
    """Return a bound ``below <= t < above`` with as few digits as will do, beginning with four.

    It is one of the numbers ``near`` with so many digits, or else ``below``.

    >>> shortest_between(-5 / 3, -1.65, -5 / 3, -1.6583), shortest_between(38123, 38124, 38123)
    (-1.658, 38123.0)
    """
    rounded = (float(f"{t:.{digits}g}") for digits in range(DIGITS, 18) for t in near)
    return next((t for t in rounded if below <= t < above), below)


def as_text(column: pd.Series) -> pd.Series:
    """Return a column as text: 1.0 becomes "1", missing values None."""
    if column.dtype == object:
        return column
    codes, distinct = pd.factorize(_coded(column).rows())
    values = np.array([*map(_text, distinct), None], dtype=object)
    return pd.Series(values[codes], column.index, object, column.name)


def as_numbers(column: pd.Series) -> pd.Series:
    """Return a column as float64: "1" becomes 1.0, other text and missing values NaN."""
    if column.dtype == np.float64:
        return column
    return pd.Series(_coded(column).numbers(), column.index, np.float64, column.name)


def coded_column(column: Any) -> tuple[IntArray | None, Any]:
    """Return a code per row of a column and the value of each code, or None and all values.

    The last value stands for missing ones, whose code is -1.
    """
    coded = _coded(column)
    return coded.codes, coded.values


def _coded(column: Any) -> CodedColumn:
    """Code a series of narwhals or pandas, or an array of one dimension."""
    if isinstance(column, pd.Series):
        if column.dtype == object:
            return _coded_objects(column)
        # dtypes of numpy need no detour, which costs more than the column if rows are few
        is_numpy = isinstance(column.dtype, np.dtype)
        column = column.to_numpy() if is_numpy else nw.from_native(column, series_only=True)
    if isinstance(column, np.ndarray):
        kind = column.dtype.kind
        if kind in "biuf":
            return CodedColumn(None, column.astype(np.float64), "flag" if kind == "b" else None)
        if kind in "mM":
            return CodedColumn(None, _seconds(pd.Series(column)), "date" if kind == "M" else None)
        return _coded_objects(pd.Series(column, dtype=object))
    dtype, native = column.dtype, column.to_native()
    if dtype.is_numeric() or dtype == nw.Boolean:
        held = "flag" if dtype == nw.Boolean else None
        if isinstance(native, pd.Series):
            return CodedColumn(None, native.to_numpy(dtype=np.float64, na_value=np.nan), held)
        return CodedColumn(None, column.cast(nw.Float64).to_numpy(), held)
    values = pd.Series(column.to_pandas())
    if dtype in (nw.Date, nw.Datetime, nw.Duration):
        return CodedColumn(None, _seconds(values), None if dtype == nw.Duration else "date")
    return _coded_objects(values)


def _seconds(times: pd.Series) -> Any:
    """Return durations in seconds, or dates in seconds since 1970."""
    if times.dtype.kind != "m":
        epoch = pd.Timestamp(0, unit="s", tz="UTC")
        try:
            times = pd.to_datetime(times, utc=True).dt.as_unit("us") - epoch
        except pd.errors.OutOfBoundsDatetime as error:  # raised by pandas 2 for dates of Python
            raise InvalidInputError(
                f"dates must lie in the years 1678 to 2261 ({error}); take later and earlier ones "
                "for missing, or install pandas 3"
            ) from error
    # A float cannot hold nanoseconds since 1970 exactly. Microseconds round alike in every unit.
    return times.dt.as_unit("us").dt.total_seconds().to_numpy(np.float64)


def _coded_objects(column: pd.Series) -> CodedColumn:
    try:
        codes, distinct = pd.factorize(column)  # each distinct value is converted once
    except TypeError as error:  # the value has no hash
        where = "" if column.name is None else f" in column {column.name}"
        raise InvalidInputError(
            f"a cell must hold one value, got a list, dict or array{where}; give one column per "
            "item"
        ) from error
    objects = np.asarray(distinct, dtype=object)
    plain = [_plain(value) for value in objects]
    if all(isinstance(value, float) for value in plain):
        held = HELD.get(pd.api.types.infer_dtype(objects))
        return CodedColumn(codes, np.array([*plain, np.nan]), held)
    return CodedColumn(codes, np.array([*map(_text, plain), None], dtype=object))


def _plain(value: Any) -> float | str:
    """Return a number, boolean, date or duration as float, everything else as text."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, date | timedelta | np.datetime64 | np.timedelta64):
        return float(_seconds(pd.Series([value]))[0])
    if isinstance(value, Real | Decimal | np.bool_):
        try:
            return float(value)
        except OverflowError:  # a whole number beyond 1e308
            return -np.inf if str(value).startswith("-") else np.inf
    return str(value)


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else str(float(value) + 0.0).removesuffix(".0")


def spelled_numbers(texts: Iterable[float | str]) -> FloatArray:
    """Return the number that each text spells, NaN where it spells none."""

    def number(text: float | str) -> float:
        try:
            return float(text)
        except ValueError:
            return np.nan

    return np.array([number(text) for text in texts], dtype=np.float64)


def take_rows(X: Any, rows: Any) -> Any:
    """Return the given rows of a table, as a table of its type; a mask may mark them."""
    if isinstance(X, CodedTable):
        return X.take(rows)
    if is_frame(X):
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            # narwhals would take a mask for a choice of columns
            rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return nw.from_native(X, eager_only=True)[rows].to_native()
    return np.asarray(X)[rows]


def columns_at(X: Any, positions: list[int]) -> Any:
    """Return some columns of a table, as a table of its type."""
    if isinstance(X, CodedTable):
        return X.select(positions)
    if isinstance(X, pd.DataFrame):
        return X.iloc[:, positions]
    if is_frame(X):
        return nw.from_native(X, eager_only=True)[:, positions].to_native()
    return np.asarray(X)[:, positions]


def without_columns(X: Any, positions: Sequence[int]) -> Any:
    """Return a table without the columns at these positions, as a table of its type."""
    if not positions:
        return X
    return columns_at(X, [p for p in range(len(column_names(X))) if p not in set(positions)])


def in_order(X: Any, names: Any) -> Any:
    """Return a frame with its columns in the order of ``names``, if it has just these columns."""
    found = column_names(X)
    if names is None or found == list(names) or sorted(found) != sorted(map(str, names)):
        return X
    return columns_at(X, [found.index(str(name)) for name in names])
