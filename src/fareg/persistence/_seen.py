"""A fingerprint of the rows that a model has seen, so that nobody tests it on them unaware."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy

from fareg._columns import column_names
from fareg._files import AnyPath
from fareg._rows import holds_used, row_hashes
from fareg._validation import BoolArray, IntArray, InvalidInputError, require

SALT_BYTES = 16


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Sorted 64-bit hashes of rows with their labels, eight bytes each.

    The hash is keyed by a random salt and cannot be turned back into a row. Whoever has both the
    file and a row can ask whether it is one of them; that is what it is for. Rows are known by
    value, and the hash of a value stands as often as rows had it. Rounded probabilities repeat
    among people, so columns that a model does not read may tell rows apart too, wherever a table
    has them. Where a table has few values, new rows equal seen ones by chance:
    :meth:`used_among` allows for that.

    Examples
    --------
    >>> import pandas as pd
    >>> from fareg.persistence import SeenRows
    >>> X = pd.DataFrame({"age": [40, 50], "sex": ["f", "m"]})
    >>> seen = SeenRows.of(X, ["a", "b"])
    >>> seen.contains(X.assign(age=[40.0, 51.0]), ["a", "b"]).tolist()
    [True, False]
    >>> seen.used_among(X, ["a", "c"]).tolist()
    [True, False]
    """

    salt: bytes
    hashes: Any  # uint64, sorted
    names: tuple[str, ...] = ()  # further columns
    whole: Any = None  # uint64, sorted: hashes of the rows with these columns, if there are any

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        names: Sequence[str] = (),
        further: Any = None,
        *,
        rows: Any = slice(None),
    ) -> SeenRows:
        """Remember the rows of a table with their labels, and ``row_hashes`` of further columns.

        ``rows`` says which of them, so that the table need not be copied.
        """
        salt = secrets.token_bytes(SALT_BYTES)
        whole = np.sort(_digests(X, y, salt, further)[rows]) if names else None
        return cls(salt, np.sort(_digests(X, y, salt)[rows]), tuple(names), whole)

    @cached_property
    def values(self) -> tuple[Any, IntArray]:
        """The distinct hashes without further columns, and how many rows have each."""
        return np.unique(self.hashes, return_counts=True)

    def contains(self, X: Any, y: Any, beside: Any = None) -> BoolArray:
        """Tell which rows equal a seen one; ``beside`` is a frame that may have further columns."""
        hashes, (values, _) = self._asked(X, y, beside)
        return _places(values, hashes) >= 0

    def places(self, X: Any, y: Any) -> IntArray:
        """Return for each row where its hash stands among the distinct ones, -1 for nowhere."""
        return _places(self.values[0], _digests(X, y, self.salt))

    def used_among(self, X: Any, y: Any, beside: Any = None) -> BoolArray:
        """Tell which rows to leave out: each seen row once, or none if the table is a new one.

        Whether it is new, ``holds_used`` decides.
        """
        hashes, (values, used) = self._asked(X, y, beside)
        places = _places(values, hashes)
        given = np.bincount(places[places >= 0], minlength=len(used))
        holds = holds_used(used, given, len(hashes))
        return first_of_each(places, used if holds else np.zeros_like(used))

    def with_rows(self, X: Any, y: Any, beside: pd.DataFrame) -> SeenRows:
        """Remember further rows too; rows that are known already are not counted again."""
        new = ~self.used_among(X, y, beside)
        further = self._further(beside)
        hashes = np.sort(np.append(self.hashes, _digests(X, y, self.salt)[new]))
        if further is None:
            return SeenRows(self.salt, hashes)
        whole = np.sort(np.append(self.whole, _digests(X, y, self.salt, further)[new]))
        return SeenRows(self.salt, hashes, self.names, whole)

    def _asked(self, X: Any, y: Any, beside: Any) -> tuple[Any, tuple[Any, IntArray]]:
        """Return the hashes of rows, and the values of all columns that both tables have."""
        further = None if beside is None else self._further(beside)
        if further is None:
            return _digests(X, y, self.salt), self.values
        return _digests(X, y, self.salt, further), np.unique(self.whole, return_counts=True)

    def _further(self, beside: pd.DataFrame) -> Any:
        """Return hashes of the further columns, None if there are none or some are missing."""
        if not self.names or not set(self.names) <= set(beside.columns):
            return None
        return row_hashes(beside[list(self.names)], 0)

    @staticmethod
    def left_out(n: int, n_all: int) -> str:
        """Return the sentence that tells how many rows are left out, and why."""
        return (
            f"{n} of {n_all} rows equal rows that were used to train or calibrate this model, more "
            "than chance explains, and are left out"
        )

    def to_bytes(self) -> bytes:
        """Return the fingerprint as an entry of a model file."""
        arrays = {"salt": np.frombuffer(self.salt, np.uint8), "hashes": self.hashes}
        if self.names:
            text = json.dumps(self.names).encode()
            arrays |= {"names": np.frombuffer(text, np.uint8), "whole": self.whole}
        return safetensors.numpy.save(arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> SeenRows:
        """Read what :meth:`to_bytes` wrote, after checks that it is a fingerprint."""
        arrays = safetensors.numpy.load(content)
        salt, hashes = arrays["salt"], arrays["hashes"]
        is_salt = salt.dtype == np.uint8 and salt.shape == (SALT_BYTES,)
        names = json.loads(arrays["names"].tobytes()) if "names" in arrays else []
        are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
        whole = arrays["whole"] if names else None
        in_order = _is_sorted(hashes) and (whole is None or _is_sorted(whole))
        require(is_salt and are_names and in_order, "the fingerprint of its rows")
        return cls(salt.tobytes(), hashes, tuple(names), whole)


def first_of_each(places: IntArray, quota: IntArray) -> BoolArray:
    """Mark the first ``quota[p]`` rows at each place ``p``; -1 is no place.

    Examples
    --------
    >>> first_of_each(np.array([0, -1, 0, 1, 0]), np.array([2, 0])).tolist()
    [True, False, True, False, False]
    """
    ranks = pd.Series(places).groupby(places).cumcount().to_numpy()
    marked: BoolArray = (places >= 0) & (ranks < np.append(quota, 0)[places])
    return marked


def check_seen(seen: Any, n_features: int, path: AnyPath) -> tuple[Any, Any]:
    """Return the pair of rows and labels that a model has seen, after checks."""
    if not isinstance(seen, tuple) or len(seen) != 2:
        raise InvalidInputError(f"seen must be a pair (X, y), got {type(seen).__name__}")
    X, y = seen
    if len(column_names(X)) != n_features or len(X) != len(y):
        raise InvalidInputError(
            f"seen must hold the {n_features} columns of the model and a label per row, got "
            f"{len(column_names(X))} columns, {len(X)} rows and {len(y)} labels for {path}"
        )
    return X, y


def _is_sorted(hashes: Any) -> bool:
    """Tell whether an array holds hashes in order."""
    is_table = hashes.dtype == np.uint64 and hashes.ndim == 1
    return is_table and bool((hashes[1:] >= hashes[:-1]).all())


def _places(values: Any, asked: Any) -> IntArray:
    """Return where each hash stands among sorted distinct ones, -1 for nowhere."""
    places = np.searchsorted(values, asked)
    found = np.append(values, np.uint64(0))[places] == asked
    return np.where(found & (places < len(values)), places, -1)


def _digests(X: Any, y: Any, salt: bytes, further: Any = None) -> Any:
    """Return one 64-bit hash per row, alike for a number whichever type held it."""
    # Labels are compared as text, so 1, 1.0 and "1" are one label, and True is "True".
    labels = np.array([str(label) for label in y], dtype=object).reshape(-1, 1)
    parts = [row_hashes(X, 0), row_hashes(labels, 0), *([] if further is None else [further])]
    words, width = np.column_stack(parts).tobytes(), 8 * len(parts)
    hashes = [
        hashlib.blake2b(words[start : start + width], digest_size=8, key=salt).digest()
        for start in range(0, len(words), width)
    ]
    return np.frombuffer(b"".join(hashes), np.uint64)
