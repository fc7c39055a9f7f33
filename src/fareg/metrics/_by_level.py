"""Coverage of the levels of disadvantage, and of everyone from a level upwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import (
    IntArray,
    InvalidInputError,
    check_count,
    check_covered,
    check_same_length,
)
from fareg.metrics._by_group import counted_columns

MAX_LEVELS = 10**6  # a larger number is an identifier that was taken for a level


def coverage_by_level(
    levels: Any, covered: Any, *, n_levels: int | None = None, interval_level: float = 0.95
) -> pd.DataFrame:
    """Report the coverage of each level of disadvantage and of each upper set, with intervals.

    The upper set of level m holds all rows with ``level >= m``: everyone for m = 0, the worst off
    for the last. It is the group that a promise of the form
    ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` speaks of.

    Parameters
    ----------
    levels : int array of shape (n_samples,)
        Level of each row, 0, 1, ...; the largest is the most disadvantaged.
    covered : array of shape (n_samples,)
        Whether each label is in its set.
    n_levels : int, optional
        Number of levels; None for one more than the largest that occurs.
    interval_level : float, default=0.95
        Confidence of each Clopper-Pearson interval, taken alone.

    Returns
    -------
    DataFrame
        A row per level, lowest first. Columns level; n, share, coverage, low, high of the level;
        and the same with the prefix ``upper_`` of the rows at or above it. A group without rows
        has coverage NaN and interval [0, 1].

    Examples
    --------
    >>> table = coverage_by_level([0, 0, 1, 1, 2], [1, 1, 1, 0, 0])
    >>> table[["level", "n", "coverage", "upper_n", "upper_coverage"]]
       level  n  coverage  upper_n  upper_coverage
    0      0  2       1.0        5        0.600000
    1      1  2       0.5        3        0.333333
    2      2  1       0.0        1        0.000000
    """
    covered = check_covered(covered)
    check_same_length(levels=levels, covered=covered)
    codes, n_levels = _check_levels(levels, n_levels)
    n = np.bincount(codes, minlength=n_levels)
    k = np.bincount(codes[covered], minlength=n_levels)
    upper_n, upper_k = np.cumsum(n[::-1])[::-1], np.cumsum(k[::-1])[::-1]
    n_samples = len(covered)
    upper = counted_columns(upper_n, upper_k, n_samples, interval_level)
    return pd.DataFrame(
        {
            "level": np.arange(n_levels),
            **counted_columns(n, k, n_samples, interval_level),
            **{f"upper_{name}": values for name, values in upper.items()},
        }
    )


def _check_levels(levels: Any, n_levels: int | None) -> tuple[IntArray, int]:
    """Return levels as whole numbers from 0, and their number."""
    values = np.asarray(levels)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"levels must be one whole number per row, got {values.dtype} of shape {values.shape}"
        )
    wrong = ~((values >= 0) & (values < MAX_LEVELS) & (values == np.floor(values)))
    if wrong.any():
        raise InvalidInputError(
            f"levels must be whole numbers from 0 to {MAX_LEVELS - 1}, got {values[wrong][0]}; "
            "number them from the least to the most disadvantaged"
        )
    codes = values.astype(np.int64)
    largest = int(codes.max())
    if n_levels is None:
        return codes, largest + 1
    if check_count("n_levels", n_levels, maximum=MAX_LEVELS) <= largest:
        raise InvalidInputError(
            f"n_levels must be above the largest level, got {n_levels} for level {largest}"
        )
    return codes, n_levels
