"""A fingerprint of the rows that a model has seen, so that nobody tests it on them unaware."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy

from fareg._columns import column_names
from fareg._hashing import row_hashes
from fareg._validation import BoolArray, InvalidInputError

SALT_BYTES = 16


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Sorted 64-bit hashes of rows with their labels, eight bytes each.

    The hash is keyed by a random salt and cannot be turned back into a row. Whoever has both the
    file and a row can ask whether it is one of them; that is what it is for. Rows count by value,
    so a new row that equals a seen one is taken for it.

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

    @classmethod
    def of(cls, X: Any, y: Any) -> SeenRows:
        """Remember the rows of a table with their labels."""
        salt = secrets.token_bytes(SALT_BYTES)
        return cls(salt, np.unique(_digests(X, y, salt)))

    def contains(self, X: Any, y: Any) -> BoolArray:
        """Tell which rows were remembered."""
        asked = _digests(X, y, self.salt)
        places = np.searchsorted(self.hashes, asked)
        found: BoolArray = np.append(self.hashes, np.uint64(0))[places] == asked
        return found & (places < len(self.hashes))

    def to_bytes(self) -> bytes:
        """Return the fingerprint as an entry of a model file."""
        arrays = {"salt": np.frombuffer(self.salt, np.uint8), "hashes": self.hashes}
        return safetensors.numpy.save(arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> SeenRows:
        """Read what :meth:`to_bytes` wrote, after checks that it is a fingerprint."""
        arrays: Mapping[str, Any] = safetensors.numpy.load(content)
        salt, hashes = arrays["salt"], arrays["hashes"]
        is_salt = salt.dtype == np.uint8 and salt.shape == (SALT_BYTES,)
        is_table = hashes.dtype == np.uint64 and hashes.ndim == 1
        if not (is_salt and is_table and (hashes[1:] > hashes[:-1]).all()):
            raise ValueError("the fingerprint of its rows is none")
        return cls(salt.tobytes(), hashes)


def check_seen(seen: Any, n_features: int, path: str | os.PathLike[str]) -> tuple[Any, Any]:
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


def _digests(X: Any, y: Any, salt: bytes) -> Any:
    """Return one 64-bit hash per row, alike for a number whichever type held it."""
    # labels as text: 1, 1.0 and "1" are one label, and True is "True"
    labels = np.array([[str(label)] for label in y], dtype=object).reshape(-1, 1)
    pairs = np.column_stack([row_hashes(X, 0), row_hashes(labels, 0)]).tobytes()
    hashes = [
        hashlib.blake2b(pairs[start : start + 16], digest_size=8, key=salt).digest()
        for start in range(0, len(pairs), 16)
    ]
    return np.frombuffer(b"".join(hashes), np.uint64)
