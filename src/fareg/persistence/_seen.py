"""A fingerprint of the rows that a model has seen, so that nobody tests it on them unaware."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy

from fareg._columns import column_names
from fareg._files import AnyPath
from fareg._hashing import row_hashes
from fareg._validation import BoolArray, InvalidInputError

SALT_BYTES = 16


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Sorted 64-bit hashes of rows with their labels, eight bytes each.

    The hash is keyed by a random salt and cannot be turned back into a row. Whoever has both the
    file and a row can ask whether it is one of them; that is what it is for. Rows count by value,
    so a new row that equals a seen one is taken for it. Rounded probabilities repeat among people,
    so columns that a model does not read may tell rows apart too, wherever a table has them.

    Examples
    --------
    >>> import pandas as pd
    >>> from fareg.persistence import SeenRows
    >>> X = pd.DataFrame({"age": [40, 50], "sex": ["f", "m"]})
    >>> seen = SeenRows.of(X, ["a", "b"])
    >>> seen.contains(X.assign(age=[40.0, 51.0]), ["a", "b"]).tolist()
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
        whole = np.unique(_digests(X, y, salt, further)[rows]) if names else None
        return cls(salt, np.unique(_digests(X, y, salt)[rows]), tuple(names), whole)

    def contains(self, X: Any, y: Any, beside: Any = None) -> BoolArray:
        """Tell which rows were remembered; ``beside`` is a frame that may have further columns."""
        found = _among(self.hashes, _digests(X, y, self.salt))
        if self.names and beside is not None and set(self.names) <= set(beside.columns):
            further = row_hashes(beside[list(self.names)], 0)
            found &= _among(self.whole, _digests(X, y, self.salt, further))
        return found

    @staticmethod
    def left_out(n: int, n_all: int) -> str:
        """Return the sentence that tells how many rows were remembered and are left out."""
        return f"{n} of {n_all} rows were used to train or calibrate this model and are left out"

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
        arrays: Mapping[str, Any] = safetensors.numpy.load(content)
        salt, hashes = arrays["salt"], arrays["hashes"]
        is_salt = salt.dtype == np.uint8 and salt.shape == (SALT_BYTES,)
        names = json.loads(arrays["names"].tobytes()) if "names" in arrays else []
        are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
        whole = arrays["whole"] if names else None
        tables = [hashes] if whole is None else [hashes, whole]
        if not (is_salt and are_names and all(map(_is_sorted, tables))):
            raise ValueError("the fingerprint of its rows is none")
        return cls(salt.tobytes(), hashes, tuple(names), whole)


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
    """Tell whether an array holds distinct hashes in order."""
    is_table = hashes.dtype == np.uint64 and hashes.ndim == 1
    return is_table and bool((hashes[1:] > hashes[:-1]).all())


def _among(hashes: Any, asked: Any) -> BoolArray:
    """Tell which of the hashes asked for are among sorted ones."""
    places = np.searchsorted(hashes, asked)
    found: BoolArray = np.append(hashes, np.uint64(0))[places] == asked
    return found & (places < len(hashes))


def _digests(X: Any, y: Any, salt: bytes, further: Any = None) -> Any:
    """Return one 64-bit hash per row, alike for a number whichever type held it."""
    # labels as text: 1, 1.0 and "1" are one label, and True is "True"
    labels = np.array([str(label) for label in y], dtype=object).reshape(-1, 1)
    parts = [row_hashes(X, 0), row_hashes(labels, 0), *([] if further is None else [further])]
    words, width = np.column_stack(parts).tobytes(), 8 * len(parts)
    hashes = [
        hashlib.blake2b(words[start : start + width], digest_size=8, key=salt).digest()
        for start in range(0, len(words), width)
    ]
    return np.frombuffer(b"".join(hashes), np.uint64)
