"""Rows: the random number of each row, and which rows are equal.

A randomised score needs a number in [0, 1) per row. It is a hash of a key, drawn once per fit, and
of everything that distinguishes the row: its values, the person's id if known, its role, its label
if it is a learning or calibration row, and the number of equal rows before it in the same call. So
equal people are not lucky or unlucky together, and every run gives the same answers, whatever the
order of the calibration rows. ``docs/guarantees.md`` proves that promises hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import as_numbers, spelled_numbers
from fareg._validation import FloatArray, IntArray, InvalidInputError, check_count

CHUNK = 1 << 17  # numbers of a table that are worked on at a time
FIRST_ROWS = 1000  # rows that show whether rows repeat
ROLES = {"calibration": 1, "learning": 2, "prediction": 3}  # numbers of roles are independent


def row_hashes(
    columns: pd.DataFrame, key: int, numbers: Any = None, ids: Any = None, labels: Any = None
) -> Any:
    """Return a hash of 64 bits (uint64) per row, of its values and ``key`` alone.

    The values are those of the canonical columns, of further ``numbers``, of ``ids`` (texts) and of
    ``labels`` (whole numbers).
    """
    state = _mix(np.full(len(columns), np.uint64(key & (2**64 - 1)), dtype=np.uint64))
    hashes = [_hashes(column) for _, column in columns.items()]
    hashes += [] if numbers is None else [_bits(column) for column in np.asarray(numbers, float).T]
    for position, column_hashes in enumerate(hashes):
        state = _mix(state ^ (column_hashes + np.uint64(position)))
    state = state if ids is None else _mix(state ^ _text_hashes(ids))
    return state if labels is None else _mix(state ^ _mix(labels.astype(np.uint64)))


def equal_before(hashes: Any) -> IntArray:
    """Return for each hash how many equal ones precede it."""
    before = np.zeros(len(hashes), dtype=np.int64)
    if len(hashes) < 2:
        return before
    repeated = np.flatnonzero(pd.Series(hashes).duplicated(keep=False))  # few, in most tables
    if len(repeated):
        before[repeated] = pd.Series(repeated).groupby(hashes[repeated]).cumcount()
    return before


def numbered_hashes(hashes: Any, role: str, before: IntArray | None = None) -> Any:
    """Return 64 random bits per row, different for equal rows of a call and for each role.

    ``before`` is the number of equal rows before each; None counts them among ``hashes``.
    """
    before = equal_before(hashes) if before is None else before
    salt = _mix(np.array([ROLES[role] << 56], dtype=np.uint64) + before.astype(np.uint64))
    return _mix(hashes ^ salt)


def uniforms_of(bits: Any) -> Any:
    """Return one number in [0, 1) per row."""
    return (bits >> np.uint64(11)) * 2.0**-53


def row_draws(uniforms: FloatArray, n_draws: int) -> list[FloatArray]:
    """Return ``n_draws`` independent versions of the numbers of :func:`uniforms_of`."""
    state = (uniforms * 2.0**53).astype(np.uint64)
    offsets = _mix(np.arange(1, n_draws + 1, dtype=np.uint64))
    return [uniforms_of(_mix(state + offset)) for offset in offsets]


def _hashes(column: pd.Series) -> Any:
    """Hash a canonical column to 64 bits; a number and the text that spells it are equal."""
    if column.dtype != object:
        return _bits(as_numbers(column).to_numpy())
    codes, texts = pd.factorize(column)
    numbers = np.append(spelled_numbers(texts), np.nan)
    is_text = np.append(np.isnan(numbers[:-1]), False)
    return np.where(is_text, np.append(_text_hashes(texts), np.uint64(0)), _bits(numbers))[codes]


def _text_hashes(texts: Any) -> Any:
    # Half of a surrogate pair cannot be encoded in UTF-8, so its escape sequence is hashed instead.
    plain = [text.encode("utf-8", "backslashreplace").decode("utf-8") for text in texts]
    return pd.util.hash_array(np.array([*plain, None], dtype=object)[:-1], categorize=False)


def _bits(values: FloatArray) -> Any:
    values = values + 0.0  # -0.0 and 0.0 are one value
    values[np.isnan(values)] = np.nan  # so are all kinds of NaN
    return values.view(np.uint64)


def _mix(state: Any) -> Any:
    """Scramble 64-bit words: the finaliser of splitmix64 (Steele, Lea & Flood 2014)."""
    mixed = state >> np.uint64(30)
    mixed ^= state
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    mixed += np.uint64(0x9E3779B97F4A7C15)
    return mixed


def check_seed(name: str, random_state: Any) -> None:
    """Refuse a ``random_state`` that is not None, a whole number or a random generator."""
    kinds = np.random.Generator | np.random.RandomState | int | np.integer
    if random_state is not None and not isinstance(random_state, kinds):
        raise InvalidInputError(
            f"{name} must be None, a whole number or a random generator, got {random_state!r}"
        )


def check_numpy_seed(name: str, random_state: Any) -> None:
    """Refuse a seed that numpy and scikit-learn refuse: theirs have at most 32 bits."""
    check_seed(name, random_state)
    if isinstance(random_state, int | np.integer):
        check_count(name, int(random_state), minimum=0, maximum=2**32 - 1)


def hash_key(random_state: Any) -> int:
    """Return a 64-bit key for ``random_state`` (None, int, RandomState or Generator)."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.Generator | np.random.RandomState):
        return int.from_bytes(random_state.bytes(8), "little")
    check_seed("random_state", random_state)
    digest = hashlib.blake2b(str(int(random_state)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def in_chunks(answer: Callable[..., Any], table: Any, *columns: Any) -> Any:
    """Return ``answer(table, *columns)`` for some rows at a time, so that they stay in the cache.

    The answer to a row must not depend on others. A column may be None.
    """
    step = max(1, CHUNK // table.shape[1])
    places = [slice(first, first + step) for first in range(0, max(1, len(table)), step)]
    parts = [answer(table[i], *(c if c is None else c[i] for c in columns)) for i in places]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def distinct_rows(columns: pd.DataFrame) -> tuple[IntArray, IntArray]:
    """Return the first position of each distinct row, and which distinct row each row equals."""
    which: IntArray = np.zeros(len(columns), dtype=np.int64)
    for _, column in columns.items():
        codes, distinct = pd.factorize(column)
        which, known = pd.factorize(which * (len(distinct) + 1) + codes + 1)
        if len(known) == len(columns):  # all rows differ already
            break
    # Codes are numbered by first occurrence, so a row is new where their maximum rises.
    is_first = np.diff(np.maximum.accumulate(which), prepend=-1) > 0
    return np.flatnonzero(is_first), which


def repeated_rows(columns: pd.DataFrame) -> tuple[IntArray, IntArray] | None:
    """Return the distinct rows, or None if rows are few or most of the first rows differ."""
    first_rows = columns.iloc[:FIRST_ROWS]
    if len(columns) <= FIRST_ROWS or 2 * len(distinct_rows(first_rows)[0]) > FIRST_ROWS:
        return None
    return distinct_rows(columns)


def joint_codes(codes: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    """Return one number per row for its combination of categories, equal for equal combinations.

    ``codes`` holds the category codes of each feature, -1 for an unseen value, and ``sizes`` their
    number of categories. The result for a row does not depend on other rows.
    """
    # If 64 bits are too few for all combinations, Python's unbounded integers are used.
    fits = prod(size + 1 for size in sizes) <= np.iinfo(np.int64).max
    joint = np.zeros(len(codes[0]), dtype=np.int64 if fits else object)
    for code, size in zip(codes, sizes, strict=True):
        joint = joint * (size + 1) + code + 1
    return joint


def cell_numbers(combinations: IntArray, codes: IntArray) -> IntArray:
    """Return the number of each row's combination of category codes, -1 if it is unknown."""
    known = pd.MultiIndex.from_arrays(list(combinations.T))
    return known.get_indexer(pd.MultiIndex.from_arrays(list(codes.T))).astype(np.int64)
