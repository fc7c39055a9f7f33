"""Tables of any library as canonical columns, and the columns that an argument selects.

A canonical table is a pandas frame whose columns are float64 with NaN, ``datetime64[us]`` with NaT,
or object: text with None. So a value has one form, whichever library and dtype held it. Public
functions make a table canonical once; private ones that take ``columns`` expect canonical ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import UTC, date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from fareg._validation import FloatArray, InvalidInputError, check_same_length
from fareg._words import quoted, repeated, shown

PANDAS = pd.DataFrame | pd.Series
KINDS = ("number", "text", "date")
DATES = "datetime64[us]"
FLAGS = {"True": 1.0, "False": 0.0}
DIGITS = 4  # significant digits of a bound, unless more are needed to separate the values
SAME_WORD = 0.75  # share of matching letters at which a name is taken for a typing error
SIMILAR = 0.5  # and at which it is suggested

SensitiveFeatures = Any  # names, positions, a function of X, a frame next to X, or None for all


def canonical(X: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Copy any table into a pandas frame whose columns are float64, datetime64[us] or object.

    Numbers and durations become float64; everything else except dates becomes text with None. A
    column that mixes numbers and text becomes text, although some of its rows alone may become
    numbers; :func:`as_text` and :func:`as_numbers` give both the same form. ``names`` replace the
    column names of X.

    >>> canonical([[1.0, "u"], [None, 2]])["x1"].tolist()
    ['u', '2']
    """
    X = X if is_frame(X) else np.asarray(X)
    pairs = zip(names or column_names(X), series_of(X), strict=True)
    arrays = {name: canonical_column(column) for name, column in pairs}
    # Without the dtype, pandas would turn object arrays of text into "str".
    texts = {name: pd.Series(a, dtype=object) for name, a in arrays.items() if a.dtype == object}
    return pd.DataFrame(arrays | texts, index=pd.RangeIndex(len(X)), copy=False)


def canonical_column(column: pd.Series) -> Any:
    """Return one column as an array of its canonical type."""
    is_kind = pd.api.types
    if is_kind.is_numeric_dtype(column.dtype) and not is_kind.is_bool_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan, copy=True)
    if isinstance(column.dtype, np.dtype | pd.DatetimeTZDtype) and column.dtype.kind == "M":
        return column.to_numpy(DATES, copy=True)  # in UTC, if it has a time zone
    try:
        codes, distinct = pd.factorize(column)  # each distinct value is converted once
    except TypeError:  # the value has no hash
        raise InvalidInputError(
            f"a cell must hold one value, got a list, dict or array in column {column.name}; give "
            "one column per item"
        ) from None
    objects = np.asarray(distinct, dtype=object)
    if len(objects) and all(type(value) is str for value in objects):
        return np.array([*objects, None], dtype=object)[codes]
    if is_kind.infer_dtype(objects) in ("date", "datetime", "datetime64"):
        return np.append(_dates(objects), np.datetime64("NaT"))[codes]
    plain = [_plain(value) for value in objects]
    if all(isinstance(value, float) for value in plain):
        return np.array([*plain, np.nan])[codes]
    return np.array([*map(_text, plain), None], dtype=object)[codes]


def _dates(objects: Any) -> Any:
    """Return dates and times of Python, pandas or numpy as numpy times in UTC."""
    naive = [
        moment.astimezone(UTC).replace(tzinfo=None) if getattr(moment, "tzinfo", None) else moment
        for moment in objects
    ]
    return np.array(naive, dtype=DATES)


def _plain(value: Any) -> float | str:
    """Return a number, date or duration as float, everything else as text."""
    if isinstance(value, date | np.datetime64):
        return float(_seconds(_dates([value]))[0])
    if isinstance(value, timedelta | np.timedelta64):
        return float(pd.Timedelta(value).total_seconds())
    if isinstance(value, Real | Decimal) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # a whole number that no float can hold
            return -np.inf if str(value).startswith("-") else np.inf
    return str(value)


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else str(float(value) + 0.0).removesuffix(".0")


def _seconds(dates: Any) -> FloatArray:
    return np.asarray((dates - np.datetime64(0, "us")) / np.timedelta64(1, "s"), dtype=np.float64)


def kind_of(column: pd.Series) -> str:
    """Return the kind of a canonical column, one of ``KINDS``."""
    return {"O": "text", "M": "date"}.get(column.dtype.kind, "number")


def spelled_numbers(texts: Iterable[Any]) -> FloatArray:
    """Return the number or flag that each text spells, NaN if it spells neither."""
    numbers = []
    for text in texts:
        try:
            numbers.append(float(FLAGS.get(text, text)))
        except ValueError:
            numbers.append(np.nan)
    return np.array(numbers, dtype=np.float64)


def as_numbers(column: pd.Series) -> pd.Series:
    """Return a canonical column as float64: "1" and "True" become 1.0, other text NaN.

    A date becomes seconds since 1970.
    """
    if column.dtype == np.float64:
        return column
    if column.dtype.kind == "M":
        numbers = _seconds(column.to_numpy())
    else:
        codes, texts = pd.factorize(column)
        numbers = np.append(spelled_numbers(texts), np.nan)[codes]
    return pd.Series(numbers, column.index, np.float64, column.name)


def as_text(column: pd.Series) -> pd.Series:
    """Return a canonical column as text: 1.0 becomes "1", missing values None."""
    if column.dtype == object:
        return column
    codes, distinct = pd.factorize(as_numbers(column))
    texts = np.array([*map(_text, distinct), None], dtype=object)
    return pd.Series(texts[codes], column.index, object, column.name)


def in_words(value: float, kind: str | None = None) -> str:
    """Write a number in full, or a "date" as its day, with the time unless it is midnight.

    >>> in_words(1484265600.0, "date"), in_words(1484308800.0, "date"), in_words(36061000100.0)
    ('2017-01-13', '2017-01-13 12:00:00', '36061000100')
    """
    if kind == "date" and np.isfinite(value):
        day, time = str(np.datetime64(round(value * 1e6), "us")).split("T")
        return day if time == "00:00:00.000000" else f"{day} {time.removesuffix('.000000')}"
    if value == 0 or 1e-4 <= abs(value) < 1e16:
        return str(np.format_float_positional(value + 0.0, trim="-"))
    return repr(float(value))


def shortest_between(below: float, above: float, *near: float) -> float:
    """Return a bound ``below <= t < above`` with as few digits as possible, but at least four.

    The bound is one of the numbers ``near``, rounded; if no rounded one fits, it is ``below``.

    >>> shortest_between(-5 / 3, -1.65, -5 / 3, -1.6583), shortest_between(38123, 38124, 38123)
    (-1.658, 38123.0)
    """
    rounded = (float(f"{t:.{digits}g}") for digits in range(DIGITS, 18) for t in near)
    return next((t for t in rounded if below <= t < above), below)


# --- tables as they come ---


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame (pandas, polars, ...) and not an array."""
    return not isinstance(X, np.ndarray) and bool(nw.dependencies.is_into_dataframe(X))


def check_table(X: Any) -> Any:
    """Return ``X`` if it is a frame or a two-dimensional array with at least one column.

    scikit-learn's checks look for some words of the errors, such as "Reshape your data".
    """
    table = X
    if not is_frame(X):
        if hasattr(X, "toarray"):
            check_same_length(X=X)  # refuses a sparse matrix
        try:
            table = np.asarray(X)
        except ValueError:
            raise InvalidInputError(
                f"X must be a table with rows of one length, got a {type(X).__name__}; "
                "fill the missing values with NaN"
            ) from None
        if table.dtype.kind == "c":
            raise InvalidInputError(
                f"X must hold real numbers, got {table.dtype} (Complex data not supported); pass "
                "real and imaginary parts as columns"
            )
    if len(table.shape) != 2:
        got = f"shape {table.shape}" if table.shape else type(X).__name__
        raise InvalidInputError(
            f"X must be a table of shape (n_samples, n_features), got {got}; Reshape your data "
            "with np.reshape(X, (-1, 1)) if it is one column"
        )
    if table.shape[1] == 0:
        raise InvalidInputError(
            f"X must have at least one column, got 0 feature(s) (shape={tuple(table.shape)}) while "
            "a minimum of 1 is required; keep the columns that describe the rows"
        )
    column_names(table)
    return table


def check_same_order(**tables: Any) -> None:
    """Refuse a table that has the index of the first in another order: rows match by position."""
    (name, first), *others = tables.items()
    for other, table in others:
        if not (isinstance(first, PANDAS) and isinstance(table, PANDAS)):
            continue
        if not first.index.equals(table.index) and set(first.index) == set(table.index):
            raise InvalidInputError(
                f"{other} must have its rows in the order of {name}, got the index of {name} in "
                f"another order; pass {other}.loc[{name}.index], or drop the index if the rows "
                "already match"
            )


def column_names(X: Any) -> list[str]:
    """Return the column names of a frame, ``x0, x1, ...`` for an array; refuse duplicates."""
    if not is_frame(X):
        return [f"x{j}" for j in range(np.shape(X)[1])]
    # Pandas comes first, because narwhals refuses duplicate names with another error.
    frame = X if isinstance(X, pd.DataFrame) else nw.from_native(X, eager_only=True)
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise InvalidInputError(
            f"column names must be unique, got {', '.join(repeated(names))} twice; rename one"
        )
    return names


def series_of(X: Any) -> list[pd.Series]:
    """Return the columns of a table as pandas series."""
    if not isinstance(X, pd.DataFrame):
        if is_frame(X):
            X = nw.from_native(X, eager_only=True).to_pandas()
        else:
            X = pd.DataFrame(np.asarray(X), copy=False)
    return [column for _, column in X.items()]


def take_rows(X: Any, rows: Any) -> Any:
    """Return rows of a table, given by position, mask or slice, as a table of the same type."""
    if not is_frame(X):
        return np.asarray(X)[rows]
    if not isinstance(rows, slice) and np.asarray(rows).dtype == bool:
        rows = np.flatnonzero(rows)  # narwhals would select columns by a mask
    return nw.from_native(X, eager_only=True)[rows].to_native()


def columns_at(X: Any, positions: Sequence[int]) -> Any:
    """Return some columns of a table, as a table of the same type."""
    if isinstance(X, pd.DataFrame):
        return X.iloc[:, list(positions)]
    if is_frame(X):
        return nw.from_native(X, eager_only=True)[:, list(positions)].to_native()
    return np.asarray(X)[:, positions]


def in_order(X: Any, names: Any) -> Any:
    """Return a frame with its columns in the order of ``names``, if it has exactly these."""
    found = column_names(X)
    if names is None or found == list(names) or sorted(found) != sorted(map(str, names)):
        return X
    return columns_at(X, [found.index(str(name)) for name in names])


# --- selected columns ---


def select_columns(
    X: Any,
    selection: SensitiveFeatures,
    name: str = "sensitive_features",
    *,
    hidden: Sequence[str] = (),
    columns: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return the selected columns in canonical form.

    ``selection`` is a list of names or positions (negative ones count from the end), a frame with
    the rows of X, a function of X that returns columns, or None for all columns except the
    ``hidden`` ones. These hold probabilities and cannot be selected. Errors call the selection
    ``name``. Pass the canonical ``columns`` of X if they are known.
    """
    if callable(selection) or is_frame(selection):
        chosen: Any = selection(X) if callable(selection) else selection
        if not is_frame(chosen):
            chosen = np.atleast_1d(np.asarray(chosen))
            chosen = chosen[:, None] if chosen.ndim == 1 else chosen
        if len(chosen) != len(X):
            raise InvalidInputError(
                f"{name} must have one row per row of X, got {len(chosen)} for {len(X)}"
            )
        found = canonical(chosen)
    else:
        known = column_names(X if columns is None else columns)
        positions = [p for p, column in enumerate(known) if column not in hidden]
        if selection is not None:
            positions = selected_positions(known, selection, name)
        elif hidden and not positions:
            raise InvalidInputError(
                "X holds only probabilities, which define no groups; add columns that describe the "
                "people, or use SplitConformalClassifier"
            )
        names = [known[p] for p in positions]
        found = canonical(columns_at(X, positions), names) if columns is None else columns[names]
    if taken := [str(column) for column in found if column in hidden]:
        raise InvalidInputError(
            f"{name} must not hold columns of probabilities, got {', '.join(taken)}; leave them out"
        )
    return found


def selected_positions(
    names: Iterable[Any], selection: Any, name: str = "sensitive_features"
) -> list[int]:
    """Return the positions of the selected columns; ``names`` are the column names of X."""
    names = list(names)
    is_one = np.isscalar(selection) or not np.iterable(selection)
    positions = []
    for item in [selection] if is_one else selection:
        # True and False are refused: a mask of columns is not a list of positions.
        is_position = isinstance(item, int | np.integer) and not isinstance(item, bool)
        if isinstance(item, str) and item in names:
            positions.append(names.index(item))
        elif is_position and -len(names) <= item < len(names):
            positions.append(int(item) % len(names))
        else:
            raise InvalidInputError(
                f"{name} names {item!r}, which is not a column of X; columns: {shown(names)}"
            )
    if not positions:
        raise InvalidInputError(f"{name} must name at least one column, got none")
    if len(set(positions)) < len(positions):
        twice = ", ".join(repeated([names[p] for p in positions]))
        raise InvalidInputError(f"{name} names {twice} twice; once is enough")
    return positions


def check_selection(name: str, selection: Any) -> None:
    """Refuse a table as a constructor parameter, and whatever cannot name columns."""
    if selection is None or callable(selection) or isinstance(selection, str):
        return
    got = repr(selection)
    if is_frame(selection):
        got = f"a table; pass it with the rows: fit(X, y, {name}=table)"
    else:
        items = list(selection) if np.iterable(selection) else [selection]
        if all(isinstance(item, str | int | np.integer) for item in items):
            return
    raise InvalidInputError(
        f"{name} must be column names, positions, a function of X or None, got {got}"
    )


def check_columns(wanted: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse column names that a table does not have, and suggest similar ones.

    Other wanted columns are never suggested.
    """
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    others = [name for name in names if name not in wanted]
    near = nearest(missing[0], others, 3, SIMILAR)
    hint = f"{'nearest' if near else 'its'} columns: {shown(map(quoted, near or others))}"
    if nearest(missing[0], near[:1]):
        hint = f"did you mean {quoted(near[0])}?"
    if not others:
        hint = f"add what is missing to {shown(names)}"
    word = "column" if len(missing) == 1 else "columns"
    sentence = f"{where} has no {word} {shown(map(quoted, missing))}; {hint}"
    raise InvalidInputError(sentence) from None


def nearest(word: str, names: Iterable[str], most: int = 1, cutoff: float = SAME_WORD) -> list[str]:
    """Return the names that are most like a word, without regard to case, the nearest first."""
    known = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(word.casefold(), known, most, cutoff)
    return [known[name] for name in near]
