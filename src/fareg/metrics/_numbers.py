"""Tables as numbers, for searches that need directions in a space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fareg._columns import as_numbers, canonical, check_table
from fareg._encoding import LARGEST
from fareg._levels import Levels
from fareg._validation import FloatArray, InvalidInputError


@dataclass(frozen=True)
class NumericCode:
    """How each column becomes a number: by the median of a number, or the levels of a text.

    Numbers stay as they are, with the median for missing values. Text becomes the position of the
    value among the sorted values of its column; missing has a position of its own after them, and
    a value not seen when the code was learned gets -1.
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
                numbers = as_numbers(column)
                columns.append(float(numbers.median()) if numbers.notna().any() else 0.0)
        return cls(tuple(columns))

    def transform(self, X: Any) -> FloatArray:
        """Return the table as a float array of shape (n_samples, n_features).

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
                numbers[:, j] = as_numbers(column).fillna(code)
        if not (np.abs(numbers) <= LARGEST).all():  # cut_huge leaves LARGEST itself
            raise InvalidInputError(
                f"X must hold finite numbers below {LARGEST:g}; remove or clip infinite values"
            )
        return numbers + 0.0  # -0.0 and 0.0 are one value


def on_one_scale(X: Any) -> FloatArray:
    """Return a table as numbers of unit spread: units of measurement choose no direction.

    Text becomes the position of its value among the sorted values of its column, and a missing
    number the median.

    Parameters
    ----------
    X : frame or array-like of shape (n_samples, n_features)

    Returns
    -------
    numbers : ndarray of shape (n_samples, n_features)

    Examples
    --------
    >>> on_one_scale([["b", 1.0], ["a", None], ["b", 7.0], ["a", 1.0]]).round(2).tolist()
    [[1.0, -0.58], [-1.0, -0.58], [1.0, 1.73], [-1.0, -0.58]]
    """
    numbers = NumericCode.learn(X).transform(X)
    spread = numbers.std(axis=0)
    scaled: FloatArray = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled
