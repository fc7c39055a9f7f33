"""Chance and rows: random numbers that depend on a row's values alone, one row of each cluster."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import coded_column, series_of, spelled_numbers
from fareg._validation import BoolArray, FloatArray, InvalidInputError, check_count


def row_uniforms(X: Any, key: int, beside: Any = None) -> FloatArray:
    """Return one number in [0, 1) per row that depends on the row's values and ``key`` alone.

    The values are those of X and of a table ``beside`` it, as if both were one table.

    Randomised scores draw their ``u`` from here, so a row's answer depends neither on its position
    nor on the rows beside it. Given ``key``, a score built on it is a fixed function of (x, y), and
    conformal guarantees hold as for any other score.
    """
    return _uniforms(row_hashes(X, key, beside))


def row_hashes(X: Any, key: int, beside: Any = None) -> Any:
    """Return 64 bits (uint64) per row that depend on the row's values and ``key`` alone."""
    state = _mix(np.full(len(X), np.uint64(key & (2**64 - 1)), dtype=np.uint64))
    columns = [*series_of(X), *(() if beside is None else series_of(beside))]
    for position, column in enumerate(columns):
        codes, values = coded_column(column)
        hashes = _hashes(values) + np.uint64(position)
        state = _mix(state ^ (hashes if codes is None else hashes[codes]))
    return state


def row_draws(uniforms: FloatArray, n_draws: int) -> list[FloatArray]:
    """Return ``n_draws`` independent versions of what :func:`row_uniforms` returned."""
    state = (uniforms * 2.0**53).astype(np.uint64)
    offsets = _mix(np.arange(1, n_draws + 1, dtype=np.uint64))
    return [_uniforms(_mix(state + offset)) for offset in offsets]


def _uniforms(state: Any) -> FloatArray:
    uniforms: FloatArray = (state >> np.uint64(11)) * 2.0**-53
    return uniforms


def _hashes(values: Any) -> Any:
    """Hash canonical values to 64 bits, a number alike whether it is float64 or text."""
    if values.dtype != object:
        return _bits(values)
    # Half of a surrogate pair cannot be encoded in UTF-8, so its escape sequence is hashed instead.
    plain = [text.encode("utf-8", "backslashreplace").decode("utf-8") for text in values[:-1]]
    texts = np.array([*plain, None], dtype=object)[:-1]
    numbers = spelled_numbers(texts)
    hashes = np.where(
        np.isnan(numbers), pd.util.hash_array(texts, categorize=False), _bits(numbers)
    )
    return np.append(hashes, _bits(np.array([np.nan])))


def _bits(values: FloatArray) -> Any:
    values = values + 0.0  # -0.0 and 0.0 are one value
    values[np.isnan(values)] = np.nan  # all NaN are one value too
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


def check_numpy_seed(name: str, random_state: Any) -> None:
    """Refuse what cannot seed numpy and scikit-learn directly: whole numbers have 32 bits there."""
    check_seed(name, random_state)
    if isinstance(random_state, int | np.integer):
        check_count(name, int(random_state), minimum=0, maximum=2**32 - 1)


def hash_key(random_state: Any) -> int:
    """Turn ``random_state`` (None, int, RandomState or Generator) into a 64-bit key."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.Generator | np.random.RandomState):
        return int.from_bytes(random_state.bytes(8), "little")
    check_seed("random_state", random_state)
    digest = hashlib.blake2b(str(int(random_state)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def one_row_of_each(clusters: Any, n: int, rng: np.random.Generator) -> BoolArray:
    """Draw one row from each cluster; without clusters, take all ``n`` rows.

    >>> int(one_row_of_each(np.array([7, 7, 7]), 3, np.random.default_rng(0)).sum())
    1
    """
    chosen = np.ones(n, dtype=bool)
    if clusters is not None:
        order = rng.permutation(n)
        chosen[:] = False
        chosen[order[np.unique(clusters[order], return_index=True)[1]]] = True
    return chosen
