"""A fingerprint of the rows that a model has seen, so that nobody tests it on them by mistake."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy

from fareg._columns import canonical
from fareg._rows import row_hashes
from fareg._validation import BoolArray, require

SALT_BYTES = 16
MAX_REPEATED = 0.1  # largest share of rows that equal another row


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Sorted 64-bit hashes of rows with their labels, eight bytes each.

    The hash is keyed by a random salt and cannot be turned back into a row. But anyone who has the
    file and a row can check whether the model has seen it; that is its purpose. A row counts as
    seen if it equals a seen row in the columns that the model reads and in the label. If more than
    1% of the rows equal another one, as with rounded probabilities, the further columns of the
    table are compared too, if there are any. If more than a tenth still do, nothing is remembered,
    because new rows would count as seen.

    Examples
    --------
    >>> import pandas as pd
    >>> from fareg.persistence import SeenRows
    >>> X = pd.DataFrame({"age": [40, 50], "sex": ["f", "m"]})
    >>> seen = SeenRows.of(X, ["a", "b"])
    >>> seen.contains(X.assign(age=[40.0, 51.0]), ["a", "b"]).tolist()
    [True, False]
    >>> SeenRows.of(X.iloc[[0, 0, 1]], ["a", "a", "b"]) is None
    True
    """

    salt: bytes
    hashes: Any  # uint64, sorted
    names: tuple[str, ...] = ()  # columns that the model does not read

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        names: Sequence[str] = (),
        further: Any = None,
        *,
        rows: Any = slice(None),
    ) -> SeenRows | None:
        """Remember the rows of a table with their labels; None if too many equal another one.

        ``further`` are the ``row_hashes`` of ``names``, columns that the model does not read.
        ``rows`` selects rows, so that the table need not be copied.
        """
        salt = secrets.token_bytes(SALT_BYTES)
        limit = MAX_REPEATED / 10 if names else MAX_REPEATED
        attempts: list[tuple[Any, Any, float]] = [((), None, limit)]
        attempts += [(tuple(names), further, MAX_REPEATED)] if names else []
        for columns, column_hashes, limit in attempts:
            digests = _digests(X, y, salt, column_hashes)[rows]
            hashes, counts = np.unique(digests, return_counts=True)
            if counts[counts > 1].sum() <= limit * counts.sum():
                return cls(salt, hashes, columns)
        return None

    def contains(self, X: Any, y: Any, beside: Any = None) -> BoolArray:
        """Return which rows equal a seen one; ``beside`` is a frame with the further columns.

        Without these columns, no row counts as seen.
        """
        if not self.knows(() if beside is None else beside):
            return np.zeros(len(X), dtype=bool)
        return np.isin(self._hashed(X, y, beside), self.hashes)

    def with_rows(self, X: Any, y: Any, beside: pd.DataFrame) -> SeenRows | None:
        """Remember more rows; None if they lack columns that are compared."""
        if not self.knows(beside):
            return None
        hashes = np.union1d(self.hashes, self._hashed(X, y, beside))
        return SeenRows(self.salt, hashes, self.names)

    def knows(self, columns: Any) -> bool:
        """Return whether rows with these further columns can be compared."""
        return set(self.names) <= set(columns)

    def _hashed(self, X: Any, y: Any, beside: Any) -> Any:
        further = row_hashes(canonical(beside[list(self.names)]), 0) if self.names else None
        return _digests(X, y, self.salt, further)

    @staticmethod
    def left_out(n: int, n_all: int) -> str:
        """Return a sentence about rows that are left out."""
        return (
            f"{n} of {n_all} rows equal rows that were used to train or calibrate this model, and "
            "are left out"
        )

    def to_bytes(self) -> bytes:
        """Return the fingerprint as an entry of a model file."""
        texts = {"salt": self.salt, "names": json.dumps(self.names).encode()}
        arrays = {name: np.frombuffer(text, np.uint8) for name, text in texts.items()}
        return safetensors.numpy.save({**arrays, "hashes": self.hashes})

    @classmethod
    def from_bytes(cls, content: bytes) -> SeenRows:
        """Read and check what :meth:`to_bytes` wrote."""
        arrays = safetensors.numpy.load(content)
        salt, text, hashes = (arrays[name] for name in ("salt", "names", "hashes"))
        names = json.loads(text.tobytes())
        is_salt = salt.dtype == np.uint8 and salt.shape == (SALT_BYTES,)
        are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
        are_hashes = hashes.dtype == np.uint64 and hashes.ndim == 1
        in_order = are_hashes and bool((hashes[1:] > hashes[:-1]).all())
        require(is_salt and are_names and in_order, "the fingerprint of its rows")
        return cls(salt.tobytes(), hashes, tuple(names))


def _digests(X: Any, y: Any, salt: bytes, further: Any = None) -> Any:
    """Return one 64-bit hash per row, the same for a number of any type."""
    # Labels are compared as text: 1, 1.0 and "1" are one label, and True is "True".
    labels = np.array([str(label) for label in y], dtype=object).reshape(-1, 1)
    parts = [row_hashes(canonical(X), 0), row_hashes(canonical(labels), 0)]
    parts += [] if further is None else [further]
    words, width = np.column_stack(parts).tobytes(), 8 * len(parts)
    hashes = [
        hashlib.blake2b(words[start : start + width], digest_size=8, key=salt).digest()
        for start in range(0, len(words), width)
    ]
    return np.frombuffer(b"".join(hashes), np.uint64)
