"""Tables of any library as canonical columns: what a column holds, and which ones are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from fareg._validation import FloatArray, IntArray, InvalidInputError, refuse_sparse
from fareg._words import repeated, shown

SensitiveFeatures = Any  # names, positions, a function of X, a frame beside X, or None for all

PANDAS = pd.DataFrame | pd.Series
KINDS = ("number", "text", "date")
HELD = {"boolean": "flag", "date": "date", "datetime": "date", "datetime64": "date"}
DIGITS = 4  # significant digits of a bound, unless it takes more to part the values


class _Held(dict[str, str]):
    """What columns held before they became numbers: "flag" or "date", by name."""

    def __deepcopy__(self, memo: Any) -> _Held:
        return self  # pandas copies attrs with every column, and this never changes


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
    _check_unique(column_names(table))
    return table


def _dense(X: Any) -> Any:
    """Return what is no frame as an array, if it is one of real numbers or objects."""
    refuse_sparse("X", X)
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InvalidInputError(
            f"X must be a table with rows of one length, got a {type(X).__name__} that is none; "
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
    # Pandas comes first, because narwhals refuses duplicate names with an error of its own.
    if isinstance(X, pd.DataFrame):
        return [str(name) for name in X.columns]
    if is_frame(X):
        return [str(name) for name in nw.from_native(X, eager_only=True).columns]
    return [f"x{j}" for j in range(np.shape(X)[1])]


def _check_unique(names: list[str]) -> None:
    twice = repeated(names)
    if twice:
        raise InvalidInputError(
            f"column names must be unique, got {', '.join(twice)} twice; rename one"
        )


def canonical(X: Any, names: list[str] | None = None) -> pd.DataFrame:
    """Copy any table into a pandas frame whose columns are float64 or object (text or None).

    Numbers, booleans, dates and durations become float64 with NaN for missing values; everything
    else becomes text with None. So a value has one form, whichever library and dtype held it. A
    column of objects that mixes numbers and text becomes text; :func:`as_text` and
    :func:`as_numbers` give its rows the same form whichever rows came with them.

    ``names`` are those of the columns, if X has others. The frame notes which columns held booleans
    and dates, for :func:`held` and :func:`in_words`.
    """
    columns, kinds = {}, {}
    noted = X.attrs.get("held", {}) if isinstance(X, pd.DataFrame) else {}
    for name, column in zip(names or column_names(X), series_of(X), strict=True):
        codes, values = coded_column(column)
        # The dtype is named, because pandas would turn bare object arrays of text into "str".
        columns[name] = pd.Series(values if codes is None else values[codes], dtype=values.dtype)
        kind = held_by(column) or noted.get(name)  # a canonical frame keeps its notes
        if kind is not None:
            kinds[name] = kind
    return note_held(pd.DataFrame(columns), kinds)


def series_of(X: Any) -> list[Any]:
    """Return the columns of a frame as narwhals series, those of an array as arrays."""
    _check_unique(column_names(X))
    if is_frame(X):
        return list(nw.from_native(X, eager_only=True).iter_columns())
    array = np.asarray(X)
    return [array[:, j] for j in range(array.shape[1])]


def held_by(column: Any) -> str | None:
    """Return what a column of any table holds: "flag", "date", or None for anything else."""
    if isinstance(column, nw.Series):
        if column.dtype in (nw.Date, nw.Datetime):
            return "date"
        if column.dtype == nw.Boolean:
            return "flag"
        if column.dtype not in (nw.Object, nw.Categorical):
            return None
        column = np.asarray(column.to_pandas(), dtype=object)
    return HELD.get(pd.api.types.infer_dtype(column, skipna=True))


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


def column_kinds(X: Any) -> dict[str, str]:
    """Return what each column of a frame holds, one of ``KINDS``.

    >>> column_kinds(pd.DataFrame({"age": [40, 50], "born": pd.to_datetime(["1980-01-31"] * 2)}))
    {'age': 'number', 'born': 'date'}
    """
    frame = nw.from_native(X, eager_only=True)
    return {str(series.name): _kind(series) for series in frame.iter_columns()}


def _kind(series: nw.Series[Any]) -> str:
    if series.dtype in (nw.Date, nw.Datetime):
        return "date"
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        return "number"
    if series.dtype == nw.String and series.null_count() < len(series):
        return "text"
    if coded_column(series)[1].dtype == object:
        return "text"
    return "date" if held_by(series) == "date" else "number"  # dates of Python are objects


def as_text(column: pd.Series) -> pd.Series:
    """Return a column as text: 1.0 becomes "1", missing values None."""
    column = _canonical_column(column)
    if column.dtype == object:
        return column
    codes, distinct = pd.factorize(column)
    values = np.array([*map(_text, distinct), None], dtype=object)
    return pd.Series(values[codes], index=column.index, name=column.name, dtype=object)


def as_numbers(column: pd.Series) -> pd.Series:
    """Return a column as float64: "1" becomes 1.0, other text and missing values NaN."""
    column = _canonical_column(column)
    if column.dtype != object:
        return column
    codes, distinct = pd.factorize(column)
    values = np.append(spelled_numbers(map(_plain, distinct)), np.nan)
    return pd.Series(values[codes], index=column.index, name=column.name)


def _canonical_column(column: pd.Series) -> pd.Series:
    """Return a column as it is if it holds objects or float64, else in canonical form."""
    if column.dtype in (object, np.float64):
        return column
    codes, values = coded_column(nw.from_native(column, series_only=True))
    values = values if codes is None else values[codes]
    return pd.Series(values, column.index, values.dtype, column.name)


def coded_column(column: Any) -> tuple[IntArray | None, Any]:
    """Return a code per row and the canonical value of each code, or None and all values.

    The last value stands for missing ones, whose code is -1.
    """
    if not isinstance(column, nw.Series):
        if column.dtype.kind in "biuf":
            return None, column.astype(np.float64)
        if column.dtype.kind in "mM":
            return None, _seconds(pd.Series(column))
        return _distinct(pd.Series(column, dtype=object))
    dtype, native = column.dtype, column.to_native()
    if dtype.is_numeric() or dtype == nw.Boolean:
        if isinstance(native, pd.Series):
            return None, native.to_numpy(dtype=np.float64, na_value=np.nan)
        return None, column.cast(nw.Float64).to_numpy()
    values = pd.Series(column.to_pandas())
    if dtype in (nw.Date, nw.Datetime, nw.Duration):
        return None, _seconds(values)
    return _distinct(values)


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


def _distinct(column: pd.Series) -> tuple[IntArray, Any]:
    try:
        codes, distinct = pd.factorize(column)  # each distinct value is converted once
    except TypeError as error:  # the value has no hash
        where = "" if column.name is None else f" in column {column.name}"
        raise InvalidInputError(
            f"a cell must hold one value, got a list, dict or array{where}; give one column per "
            "item"
        ) from error
    plain = [_plain(value) for value in np.asarray(distinct, dtype=object)]
    if all(isinstance(value, float) for value in plain):
        return codes, np.array([*plain, np.nan])
    return codes, np.array([*map(_text, plain), None], dtype=object)


def _plain(value: Any) -> float | str:
    """Return a number, boolean, date or duration as float, everything else as text."""
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
    """Return the given rows of a frame or array, in its own type; a mask marks them, too."""
    if is_frame(X):
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            # narwhals would take a mask for a choice of columns
            rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return nw.from_native(X, eager_only=True)[rows].to_native()
    return np.asarray(X)[rows]


def select_columns(
    X: Any,
    selection: SensitiveFeatures,
    name: str = "sensitive_features",
    *,
    hidden: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the selected columns in canonical form.

    ``selection`` holds names, positions (negative ones count from the end), or is a frame beside
    X or a function of X that returns columns; None means all but the ``hidden`` ones, columns of
    probabilities that nothing may select. Errors call the selection ``name``.
    """
    if callable(selection) or is_frame(selection):
        chosen: Any = selection if is_frame(selection) else selection(X)
        if not is_frame(chosen):
            chosen = np.atleast_1d(np.asarray(chosen))
            chosen = chosen[:, None] if chosen.ndim == 1 else chosen
        if len(chosen) != len(X):
            raise InvalidInputError(
                f"{name} must have one row per row of X, got {len(chosen)} for {len(X)}"
            )
        columns = canonical(chosen)
        _check_hidden(column_names(columns), hidden, name)
        return columns
    names = column_names(X)
    if selection is None:
        if not hidden:
            return canonical(X)
        selection = [p for p, own in enumerate(names) if own not in hidden]
        if not selection:
            raise InvalidInputError(
                "X holds only probabilities, which define no groups; add columns that tell who the "
                "rows are about, or use SplitConformalClassifier"
            )
    positions = selected_positions(X, selection, name)
    _check_hidden([names[p] for p in positions], hidden, name)
    return canonical(_columns_at(X, positions), [names[p] for p in positions])


def _columns_at(X: Any, positions: list[int]) -> Any:
    """Return some columns of a table, in its own type."""
    if isinstance(X, pd.DataFrame):
        return X.iloc[:, positions]
    if is_frame(X):
        return nw.from_native(X, eager_only=True)[:, positions].to_native()
    return np.asarray(X)[:, positions]


def _check_hidden(names: list[str], hidden: Sequence[str], name: str) -> None:
    taken = [own for own in names if own in hidden]
    if taken:
        raise InvalidInputError(
            f"{name} must not hold columns of probabilities, got {', '.join(taken)}; leave them out"
        )


def selected_positions(X: Any, selection: Any, name: str = "sensitive_features") -> list[int]:
    """Return the positions of the columns that names or positions select; X must have them."""
    if not np.isscalar(selection) and not np.iterable(selection):
        check_selection(name, selection)  # it says what a selection may be
    wanted = [selection] if np.isscalar(selection) else list(selection)
    if not wanted:
        raise InvalidInputError(f"{name} must name at least one column, got none")
    names = column_names(X)
    _check_unique(names)
    positions = [_position(item, names, name) for item in wanted]
    twice = repeated([names[p] for p in positions])
    if twice:
        raise InvalidInputError(f"{name} names {', '.join(twice)} twice; once is enough")
    return positions


def check_selection(name: str, selection: Any) -> None:
    """Refuse what can select no columns of any table."""
    if selection is None or callable(selection):
        return
    items = [selection] if np.isscalar(selection) else selection
    try:
        items = list(items)
    except TypeError:
        items = [None]
    if not all(
        isinstance(item, str | int | np.integer) and not isinstance(item, bool) for item in items
    ):
        raise InvalidInputError(
            f"{name} must be column names, positions, a function of X or None, got {selection!r}"
        )
    if not items:
        raise InvalidInputError(f"{name} must name at least one column, got none")


def without_columns(X: Any, positions: Sequence[int]) -> Any:
    """Return a table without the columns at these positions, in its own type."""
    if not positions:
        return X
    return _columns_at(X, [p for p in range(len(column_names(X))) if p not in set(positions)])


def in_order(X: Any, names: Any) -> Any:
    """Return a frame with its columns in the order of ``names``, if it has just these columns."""
    own = column_names(X)
    if names is None or own == list(names) or sorted(own) != sorted(map(str, names)):
        return X
    return _columns_at(X, [own.index(str(name)) for name in names])


def _position(item: Any, names: list[str], name: str) -> int:
    if isinstance(item, str) and item in names:
        return names.index(item)
    # True and False are refused, because a mask of columns is no list of positions.
    is_position = isinstance(item, int | np.integer) and not isinstance(item, bool)
    if is_position and -len(names) <= item < len(names):
        return int(item) % len(names)
    raise InvalidInputError(
        f"{name} names {item!r}, which is no column of X; columns: {shown(names)}"
    )
