"""One way to read pandas, polars and arrays: canonical columns, levels, row hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from fareg._validation import FloatArray, IntArray, InvalidInputError

SensitiveFeatures = Sequence[str] | Sequence[int] | str | int | Callable[[Any], Any] | None

MAX_DISCRETE = 20  # a numeric column with more distinct values is cut into quartiles
N_BINS = 4
KINDS = ("number", "text", "date")
HELD = {"boolean": "flag", "date": "date", "datetime": "date", "datetime64": "date"}


class _Held(dict[str, str]):
    """What columns held before they became numbers: "flag" or "date", by name."""

    def __deepcopy__(self, memo: Any) -> _Held:
        return self  # pandas copies its notes with every column it hands out


def is_frame(X: Any) -> bool:
    """Tell a data frame (pandas, polars, ...) from an array."""
    return bool(nw.dependencies.is_into_dataframe(X))


def column_names(X: Any) -> list[str]:
    """Return the column names of a frame, ``x0, x1, ...`` for an array."""
    if isinstance(X, pd.DataFrame):  # first: narwhals refuses duplicates in words of its own
        return [str(name) for name in X.columns]
    if is_frame(X):
        return [str(name) for name in nw.from_native(X, eager_only=True).columns]
    return [f"x{j}" for j in range(np.shape(X)[1])]


def _check_unique(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(f"column names must be unique, got {', '.join(twice)} twice")


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
    for name, column in zip(names or column_names(X), _columns(X), strict=True):
        codes, values = _coded(column)
        # a Series of its own dtype: pandas would turn bare object arrays of text into "str"
        columns[name] = pd.Series(values if codes is None else values[codes], dtype=values.dtype)
        kind = _held(column)
        if kind is not None:
            kinds[name] = kind
    return note_held(pd.DataFrame(columns), kinds)


def _columns(X: Any) -> list[Any]:
    """Return the columns of a frame as narwhals series, those of an array as arrays."""
    _check_unique(column_names(X))
    if is_frame(X):
        return list(nw.from_native(X, eager_only=True).iter_columns())
    array = np.asarray(X)
    return [array[:, j] for j in range(array.shape[1])]


def _held(column: Any) -> str | None:
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


def in_words(value: float, kind: str | None) -> str:
    """Write a number as what it was: True for a flag, a day (and time, if any) for a date.

    Examples
    --------
    >>> in_words(1.0, "flag"), in_words(1484265600.0, "date"), in_words(1484308800.0, "date")
    ('True', '2017-01-13', '2017-01-13 12:00:00')
    """
    if kind == "flag":
        return str(bool(value))
    if kind == "date":
        day, time = str(np.datetime64(round(value), "s")).split("T")
        return day if time == "00:00:00" else f"{day} {time}"
    return f"{value:g}"


def column_kinds(X: Any) -> dict[str, str]:
    """Return what each column of a frame holds, one of ``KINDS``.

    Examples
    --------
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
    return "text" if _coded(series)[1].dtype == object else "number"


def as_text(column: pd.Series) -> pd.Series:
    """Return a canonical column as text: 1.0 becomes "1", missing values None."""
    if column.dtype == object:
        return column
    codes, distinct = pd.factorize(column)
    values = np.array([*map(_text, distinct), None], dtype=object)
    return pd.Series(values[codes], index=column.index, name=column.name, dtype=object)


def as_numbers(column: pd.Series) -> pd.Series:
    """Return a canonical column as float64: "1" becomes 1.0, other text and missing values NaN."""
    if column.dtype != object:
        return column
    codes, distinct = pd.factorize(column)
    values = np.append(_parsed(distinct), np.nan)
    return pd.Series(values[codes], index=column.index, name=column.name)


def _coded(column: Any) -> tuple[IntArray | None, Any]:
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
        times = pd.to_datetime(times, utc=True).dt.as_unit("us") - epoch
    # nanoseconds since 1970 are too many for a float: microseconds round alike in every unit
    return times.dt.as_unit("us").dt.total_seconds().to_numpy(np.float64)


def _distinct(column: pd.Series) -> tuple[IntArray, Any]:
    try:
        codes, distinct = pd.factorize(column)  # values repeat: convert each distinct one once
    except TypeError as error:  # no hash
        raise InvalidInputError(
            "a cell must hold one value, got a list, dict or array; give one column per item"
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


def _parsed(texts: Iterable[str]) -> FloatArray:
    """Return the number that each text spells, NaN where it spells none."""

    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return np.nan

    return np.array([number(text) for text in texts], dtype=np.float64)


def take_rows(X: Any, rows: Any) -> Any:
    """Return the given rows of a frame or array, in its own type."""
    if is_frame(X):
        return nw.from_native(X, eager_only=True)[np.asarray(rows)].to_native()
    return np.asarray(X)[rows]


def distinct_rows(columns: pd.DataFrame) -> tuple[IntArray, IntArray]:
    """Return where each distinct row of canonical columns comes first, and which one each row is.

    Examples
    --------
    >>> first, which = distinct_rows(pd.DataFrame({"a": [1.0, 2.0, 1.0], "b": ["u", "v", "u"]}))
    >>> first.tolist(), which.tolist()
    ([0, 1], [0, 1, 0])
    """
    which: IntArray = np.zeros(len(columns), dtype=np.int64)
    for _, column in columns.items():
        codes, distinct = pd.factorize(column)
        which, known = pd.factorize(which * (len(distinct) + 1) + codes + 1)
        if len(known) == len(columns):  # nothing left to tell apart
            break
    is_first = np.diff(np.maximum.accumulate(which), prepend=-1) > 0  # codes count up from 0
    return np.flatnonzero(is_first), which


def select_columns(X: Any, selection: SensitiveFeatures) -> pd.DataFrame:
    """Return the selected columns in canonical form.

    ``selection`` holds names, positions (negative ones count from the end), or is a function of X
    that returns columns; None means all.
    """
    if callable(selection):
        chosen = selection(X)
        chosen = chosen if is_frame(chosen) else np.atleast_1d(np.asarray(chosen))
        if not is_frame(chosen) and chosen.ndim == 1:
            chosen = chosen[:, None]
        if len(chosen) != len(X):
            raise InvalidInputError(
                f"sensitive_features must return one row per row of X, "
                f"got {len(chosen)} for {len(X)}"
            )
        return canonical(chosen)
    if selection is None:
        return canonical(X)
    wanted = [selection] if np.isscalar(selection) else list(selection)  # type: ignore[arg-type]
    if not wanted:
        raise InvalidInputError("sensitive_features must name at least one column, got none")
    names = column_names(X)
    _check_unique(names)
    positions = [_position(item, names) for item in wanted]
    if len(set(positions)) < len(positions):
        twice = sorted({names[p] for p in positions if positions.count(p) > 1})
        raise InvalidInputError(
            f"sensitive_features names {', '.join(twice)} twice; once is enough"
        )
    if is_frame(X):
        frame = nw.from_native(X, eager_only=True)
        return canonical(frame[:, positions].to_native())
    return canonical(np.asarray(X)[:, positions], [names[p] for p in positions])


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


def in_order(X: Any, names: Any) -> Any:
    """Return a frame with its columns in the order of ``names``, if it has just these columns."""
    own = column_names(X)
    if names is None or own == list(names) or sorted(own) != sorted(map(str, names)):
        return X
    if isinstance(X, pd.DataFrame):
        return X.iloc[:, [own.index(str(name)) for name in names]]
    return nw.from_native(X, eager_only=True).select(*names).to_native()


def _position(item: Any, names: list[str]) -> int:
    if isinstance(item, str) and item in names:
        return names.index(item)
    is_position = isinstance(item, int | np.integer) and not isinstance(item, bool)  # no masks
    if is_position and -len(names) <= item < len(names):
        return int(item) % len(names)
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise InvalidInputError(f"sensitive feature {item!r} is not a column of X; columns: {shown}")


@dataclass(frozen=True)
class Levels:
    """How one column falls into levels: distinct values, or bins of a number with many values."""

    name: str
    values: tuple[Any, ...]  # level values; None stands for missing
    edges: tuple[float, ...] | None = None  # bin j holds edges[j-1] < x <= edges[j]
    kind: str | None = None  # "flag" or "date": how to write the numbers

    @classmethod
    def learn(cls, column: pd.Series, reference: pd.Series | None = None) -> Levels:
        """Find the levels of a canonical column.

        A numeric column with more than 20 distinct values is cut into quartiles, those of
        ``reference`` if given: edges from other rows keep the levels independent of ``column``.
        """
        missing: tuple[Any, ...] = (None,) if column.isna().any() else ()
        present = (column if reference is None else as_numbers(reference)).dropna()
        if column.dtype == object or present.nunique() <= MAX_DISCRETE:
            distinct = np.sort(np.asarray(column.dropna().unique()))
            return cls(str(column.name), (*distinct.tolist(), *missing), kind=held(column))
        inner = np.arange(1, N_BINS) / N_BINS
        edges = np.unique(
            np.quantile(np.asarray(present, np.float64), inner, method="inverted_cdf")
        )
        values = (*range(len(edges) + 1), *missing)
        return cls(str(column.name), values, tuple(edges.tolist()), held(column))

    def codes(self, column: pd.Series) -> IntArray:
        """Return the level number of each row, -1 for a value that is none of the levels."""
        missing = np.asarray(column.isna())
        codes = np.full(len(column), -1, dtype=np.int64)
        if self.edges is not None:
            numbers = np.asarray(as_numbers(column))
            present = ~np.isnan(numbers)
            codes[present] = np.searchsorted(np.asarray(self.edges), numbers[present], side="left")
        else:
            known = pd.Index([value for value in self.values if value is not None], dtype=object)
            column = as_text(column) if known.inferred_type == "string" else as_numbers(column)
            codes[~missing] = known.get_indexer(pd.Index(column[~missing], dtype=object))
        if None in self.values:
            codes[missing] = self.values.index(None)
        return codes

    def label(self, code: int) -> str:
        """Describe one level in words: ``Color=Red``, ``Age in (18, 40]``, ``Urban=True``."""
        value = self.values[code] if code >= 0 else "unseen"
        if value is None:
            return f"{self.name} missing"
        if self.edges is None:
            shown = in_words(value, self.kind) if isinstance(value, float) else str(value)
            return f"{self.name}={shown}"
        low = in_words(self.edges[code - 1], self.kind) if code > 0 else None
        high = in_words(self.edges[code], self.kind) if code < len(self.edges) else None
        if low is None:
            return f"{self.name} <= {high}"
        return f"{self.name} > {low}" if high is None else f"{self.name} in ({low}, {high}]"


def row_uniforms(X: Any, key: int) -> FloatArray:
    """Return one number in [0, 1) per row that depends on the row's values and ``key`` alone.

    Randomised scores draw their ``u`` from here, so a row's answer depends neither on its position
    nor on the rows beside it. Given ``key``, a score built on it is a fixed function of (x, y), and
    conformal guarantees hold as for any other score.
    """
    return _uniforms(row_hashes(X, key))


def row_hashes(X: Any, key: int) -> Any:
    """Return 64 bits (uint64) per row that depend on the row's values and ``key`` alone."""
    state = _mix(np.full(len(X), np.uint64(key & (2**64 - 1)), dtype=np.uint64))
    for position, column in enumerate(_columns(X)):
        codes, values = _coded(column)
        hashes = _hashes(values) + np.uint64(position)
        state = _mix(state ^ (hashes if codes is None else hashes[codes]))
    return state


def row_draws(X: Any, key: int, n_draws: int) -> list[FloatArray]:
    """Return ``n_draws`` independent versions of :func:`row_uniforms`, hashing the rows once."""
    state = (row_uniforms(X, key) * 2.0**53).astype(np.uint64)
    offsets = _mix(np.arange(1, n_draws + 1, dtype=np.uint64))
    return [_uniforms(_mix(state + offset)) for offset in offsets]


def _uniforms(state: Any) -> FloatArray:
    uniforms: FloatArray = (state >> np.uint64(11)) * 2.0**-53
    return uniforms


def _hashes(values: Any) -> Any:
    """Hash canonical values to 64 bits, a number alike whether it is float64 or text."""
    if values.dtype != object:
        return _bits(values)
    # half a surrogate pair has no UTF-8: it is hashed as its escape
    plain = [text.encode("utf-8", "backslashreplace").decode("utf-8") for text in values[:-1]]
    texts = np.array([*plain, None], dtype=object)[:-1]
    numbers = _parsed(texts)
    hashes = np.where(
        np.isnan(numbers), pd.util.hash_array(texts, categorize=False), _bits(numbers)
    )
    return np.append(hashes, _bits(np.array([np.nan])))


def _bits(values: FloatArray) -> Any:
    values = values + 0.0  # -0.0 and 0.0 are one value
    values[np.isnan(values)] = np.nan  # and so are all NaN
    return values.view(np.uint64)


def _mix(state: Any) -> Any:
    """Scramble 64-bit words: the finaliser of splitmix64 (Steele, Lea & Flood 2014)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15)


def check_seed(name: str, random_state: Any) -> None:
    """Refuse what cannot seed anything."""
    kinds = np.random.Generator | np.random.RandomState | int | np.integer
    if random_state is not None and not isinstance(random_state, kinds):
        raise InvalidInputError(
            f"{name} must be None, a whole number or a random generator, got {random_state!r}"
        )


def hash_key(random_state: Any) -> int:
    """Turn ``random_state`` (None, int, RandomState or Generator) into a 64-bit key."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.Generator | np.random.RandomState):
        return int.from_bytes(random_state.bytes(8), "little")
    check_seed("random_state", random_state)
    digest = hashlib.blake2b(str(int(random_state)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
