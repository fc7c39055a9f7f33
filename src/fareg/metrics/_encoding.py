"""A table as numbers: the view of X that slabs cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fareg._columns import canonical, is_frame
from fareg._levels import Levels
from fareg._validation import FloatArray, InvalidInputError

LARGEST = 1e150  # squares must stay finite


def check_table(X: Any) -> Any:
    """Return ``X`` if it is a frame or a two-dimensional array, neither of them without columns."""
    table = X if is_frame(X) else np.asarray(X)
    if len(table.shape) != 2:
        raise InvalidInputError(
            f"X must be a table of shape (n_samples, n_features), got shape {table.shape}; "
            "reshape a single feature with X.reshape(-1, 1)"
        )
    if table.shape[1] == 0:
        raise InvalidInputError("X must have at least one column, got none")
    return table


@dataclass(frozen=True)
class NumericCode:
    """How each column becomes a number.

    Numbers stay as they are, with the median for missing values. Text becomes the position of the
    value among the sorted values of its column; missing has a position of its own after them, and
    a value not seen when the code was learned gets -1.

    Attributes
    ----------
    columns : tuple of float or Levels
        Per column the median of a number, or the levels of a text.
    """

    columns: tuple[float | Levels, ...]

    @classmethod
    def learn(cls, X: Any) -> NumericCode:
        """Learn medians and levels from a table."""
        columns: list[float | Levels] = []
        for _, column in canonical(check_table(X)).items():
            if column.dtype == object:
                columns.append(Levels.learn(column))
            else:
                columns.append(float(column.median()) if column.notna().any() else 0.0)
        return cls(tuple(columns))

    def transform(self, X: Any) -> FloatArray:
        """Return the table as a float array of shape (n_samples, n_features).

        Examples
        --------
        >>> X = [["b", 1.0], ["a", None], [None, 3.0]]
        >>> NumericCode.learn(X).transform(X).tolist()
        [[1.0, 1.0], [0.0, 2.0], [2.0, 3.0]]
        """
        table = canonical(check_table(X))
        if table.shape[1] != len(self.columns):
            raise InvalidInputError(
                f"X must have the {len(self.columns)} columns of the search, got {table.shape[1]}"
            )
        numbers = np.empty(table.shape, dtype=np.float64)
        for j, ((name, column), code) in enumerate(zip(table.items(), self.columns, strict=True)):
            if isinstance(code, Levels):
                numbers[:, j] = code.codes(column)
            elif column.dtype == object:
                raise InvalidInputError(
                    f"column {name!r} must hold numbers as in the search, got text"
                )
            else:
                numbers[:, j] = column.fillna(code)
        if not (np.abs(numbers) < LARGEST).all():
            raise InvalidInputError(
                f"X must hold finite numbers below {LARGEST:g}; remove or clip infinite values"
            )
        return numbers + 0.0  # -0.0 and 0.0 are one value
