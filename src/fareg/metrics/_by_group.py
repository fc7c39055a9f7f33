"""Coverage of groups: those that a table names, true labels, and levels of disadvantage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta

from fareg._columns import SensitiveFeatures, check_table, select_columns
from fareg._labels import check_labels, label_codes, sorted_labels
from fareg._levels import LevelCoding, check_levels
from fareg._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    InvalidInputError,
    check_covered,
    check_flag,
    check_fraction,
    check_same_length,
)


def clopper_pearson(k: Any, n: Any, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return the exact confidence interval for the probability of a binomial count.

    ``P(low <= p <= high) >= level``, whatever ``p`` and ``n`` are (Clopper & Pearson 1934).

    Parameters
    ----------
    k : int or array of int
        Numbers of successes.
    n : int or array of int
        Numbers of trials; 0 trials give the interval [0, 1].
    level : float, default=0.95
        Confidence of the interval.

    Returns
    -------
    low, high : ndarray
        Bounds, in the common shape of ``k`` and ``n``.

    Examples
    --------
    >>> low, high = clopper_pearson(9, 10)
    >>> print(f"{low:.3f} {high:.3f}")
    0.555 0.997
    """
    tail = (1 - check_fraction("level", level)) / 2
    k, n = np.broadcast_arrays(np.asarray(k), np.asarray(n))
    if not ((k >= 0) & (k <= n)).all():
        raise InvalidInputError("k must lie between 0 and n: successes cannot outnumber trials")
    # the quantiles of beta are defined for positive parameters only; the edges are known
    low = np.where(k == 0, 0.0, beta.ppf(tail, np.maximum(k, 1), n - k + 1))
    high = np.where(k == n, 1.0, beta.ppf(1 - tail, k + 1, np.maximum(n - k, 1)))
    return low, high


def coverage_by_group(
    X: Any,
    covered: Any,
    *,
    features: SensitiveFeatures = None,
    pairs: bool = False,
    masks: Mapping[str, Any] | None = None,
    y: Any = None,
    interval_level: float = 0.95,
) -> pd.DataFrame:
    """Report the coverage of each level of each feature, with exact intervals.

    Parameters
    ----------
    X : frame or array of shape (n_samples, n_features)
        The table that names the groups. Numbers with many values are cut at their quartiles;
        missing values are a level of their own.
    covered : array of shape (n_samples,)
        Whether each label is in its set.
    features : names, positions or callable, optional
        The columns to report; None for all.
    pairs : bool, default=False
        Also report the levels of every two features together, as far as they occur.
    masks : mapping of str to bool array of shape (n_samples,), optional
        Further groups, by name.
    y : array of shape (n_samples,), optional
        True labels; each adds a row named ``label=...``, after all others. Sets that are right on
        average may miss most rows of a rare label.
    interval_level : float, default=0.95
        Confidence of each Clopper-Pearson interval, taken alone.

    Returns
    -------
    DataFrame
        Columns group, n, share, coverage, low, high. A group without rows has coverage NaN and
        interval [0, 1].

    Examples
    --------
    >>> X = [["a"], ["a"], ["b"], ["b"]]
    >>> coverage_by_group(X, [1, 1, 1, 0])[["group", "n", "coverage"]]
      group  n  coverage
    0  x0=a  2       1.0
    1  x0=b  2       0.5
    >>> coverage_by_group(X, [1, 1, 1, 0], y=["no", "yes", "no", "yes"])["group"].tolist()
    ['x0=a', 'x0=b', 'label=no', 'label=yes']
    """
    covered = check_covered(covered)
    check_same_length(X=X, covered=covered)
    check_flag("pairs", pairs)
    if masks is not None and not isinstance(masks, Mapping):
        raise InvalidInputError(
            f"masks must be a dict of names and bool arrays, got {type(masks).__name__}"
        )
    table = select_columns(check_table(X), features)
    groups = [*_groups(table, pairs=pairs), *_masks(masks or {}, len(covered))]
    if y is not None:
        labels, codes = _distinct_labels(y, covered)
        groups += [(f"label={label}", codes == code) for code, label in enumerate(labels)]
    n = np.array([mask.sum() for _, mask in groups])
    k = np.array([(mask & covered).sum() for _, mask in groups])
    names = [name for name, _ in groups]
    return pd.DataFrame({"group": names, **counted_columns(n, k, len(covered), interval_level)})


def coverage_by_label(y: Any, covered: Any, *, interval_level: float = 0.95) -> pd.DataFrame:
    """Report the coverage of the rows of each true label, with exact intervals.

    Parameters
    ----------
    y : array of shape (n_samples,)
        True labels.
    covered : array of shape (n_samples,)
        Whether each label is in its set.
    interval_level : float, default=0.95
        Confidence of each Clopper-Pearson interval, taken alone.

    Returns
    -------
    DataFrame
        Columns label, n, share, coverage, low, high; worst coverage first.

    Examples
    --------
    >>> coverage_by_label(["no", "no", "yes"], [1, 1, 0])[["label", "n", "coverage"]]
      label  n  coverage
    0   yes  1       0.0
    1    no  2       1.0
    """
    covered = check_covered(covered)
    labels, codes = _distinct_labels(y, covered)
    n = np.bincount(codes, minlength=len(labels))
    k = np.bincount(codes, weights=covered, minlength=len(labels)).astype(np.int64)
    counted = counted_columns(n, k, len(covered), interval_level)
    table = pd.DataFrame({"label": pd.Series(labels, dtype=object), **counted})
    return table.sort_values("coverage", kind="stable", ignore_index=True)


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
    codes, n_levels = check_levels(levels, n_levels)
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


def counted_columns(
    n: IntArray, k: IntArray, n_samples: int, interval_level: float
) -> dict[str, FloatArray | IntArray]:
    """Return rows, share, coverage and its interval of groups of ``n`` rows, ``k`` covered."""
    low, high = clopper_pearson(k, n, interval_level)
    coverage = np.divide(k, n, out=np.full(len(n), np.nan), where=n > 0)
    return {"n": n, "share": n / n_samples, "coverage": coverage, "low": low, "high": high}


def _distinct_labels(y: Any, covered: BoolArray) -> tuple[list[Any], IntArray]:
    """Return the sorted distinct labels, and the position of each row's label among them."""
    given = check_labels(y)
    check_same_length(covered=covered, y=given)
    labels = sorted_labels(given)
    return labels, label_codes(given, labels)


def _groups(table: pd.DataFrame, *, pairs: bool) -> Iterator[tuple[str, BoolArray]]:
    """Name the levels of each column, then of each pair of columns, and mark their rows."""
    coding = LevelCoding.learn(table)
    codes = coding.codes(table)
    for feature, n_levels in enumerate(coding.n_levels):
        for code in range(n_levels):
            yield coding.describe([feature], [code]), codes[:, feature] == code
    for both in combinations(range(len(coding.levels)), 2) if pairs else ():
        for cell in np.unique(codes[:, both], axis=0):
            yield coding.describe(both, cell), (codes[:, both] == cell).all(axis=1)


def _masks(masks: Mapping[str, Any], n_samples: int) -> Iterator[tuple[str, BoolArray]]:
    for name, given in masks.items():
        mask = np.asarray(given)
        if mask.shape != (n_samples,) or mask.dtype != bool:
            raise InvalidInputError(
                f"mask {name!r} must be a bool array of shape ({n_samples},), "
                f"got {mask.dtype} of shape {mask.shape}"
            )
        yield name, mask
