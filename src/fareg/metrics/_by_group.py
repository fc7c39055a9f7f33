"""Coverage of groups: categories of a table, true labels, and levels of disadvantage.

People with several rows count once: a row of someone with m rows weighs 1/m.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    check_flag,
    check_fraction,
    check_same_length,
)


def check_covered(covered: Any) -> BoolArray:
    """Return the coverage indicator as a non-empty one-dimensional bool array."""
    values = np.asarray(covered)
    if values.ndim != 1 or len(values) == 0:
        raise InvalidInputError(
            f"covered must be one-dimensional and not empty, got shape {values.shape}"
        )
    if not np.isin(values, (0, 1)).all():
        raise InvalidInputError(
            "covered must hold only 0 and 1 (False and True): is each label in its set?"
        )
    return np.asarray(values, dtype=bool)


def clopper_pearson(k: Any, n: Any, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return the exact confidence interval for the probability of a binomial count.

    ``P(low <= p <= high) >= level``, whatever ``p`` and ``n`` are (Clopper & Pearson 1934).

    Parameters
    ----------
    k, n : numbers or arrays
        Successes and trials; 0 trials give the interval [0, 1].
    level : float, default=0.95
        Confidence of the interval.

    Returns
    -------
    low, high : ndarray of the common shape of ``k`` and ``n``

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
    # quantiles of the beta distribution need positive parameters; the ends are known
    low = np.where(k == 0, 0.0, beta.ppf(tail, np.where(k == 0, 1, k), n - k + 1))
    high = np.where(k == n, 1.0, beta.ppf(1 - tail, k + 1, np.where(k == n, 1, n - k)))
    return low, high


def cluster_numbers(clusters: Any, covered: BoolArray) -> IntArray | None:
    """Return ids of people as numbers from 0, None without ids."""
    if clusters is None:
        return None
    check_same_length(covered=covered, clusters=clusters)
    return np.unique(np.asarray(clusters), return_inverse=True)[1]


def tally(
    groups: IntArray, n_groups: int, covered: BoolArray, clusters: IntArray | None
) -> pd.DataFrame:
    """Count the rows of each group, and how many of them are covered.

    Parameters
    ----------
    groups : int array of shape (n_samples,)
        The number of each row's group, from 0.
    n_groups : int
    covered : bool array of shape (n_samples,)
    clusters : int array of shape (n_samples,) or None
        The number of each row's cluster; a row of a cluster with m rows counts 1/m.

    Returns
    -------
    DataFrame
        A row per group: n (rows), n_clusters (clusters with rows in the group, or n), share (of
        everyone), coverage, effective (how many independent rows the group is worth, see
        :func:`coverage_by_group`) and hits (how many of these are covered).

    Examples
    --------
    >>> tally(np.array([0, 0, 1]), 2, np.array([True, False, True]), np.array([0, 1, 1]))
       n  n_clusters  share  coverage  effective  hits
    0  2           2   0.75  0.666667        1.8   1.2
    1  1           1   0.25  1.000000        1.0   1.0
    """
    n = np.bincount(groups, minlength=n_groups)
    people, total, mass, worth = n, max(1, len(groups)), n, np.ones(n_groups)
    weights: Any = 1.0
    if clusters is not None:
        sizes = np.bincount(clusters, minlength=1)
        total, weights = max(1, int((sizes > 0).sum())), 1 / sizes[clusters]
        pairs, pair_of = np.unique(groups * len(sizes) + clusters, return_inverse=True)
        group_of, pair_mass = pairs // len(sizes), np.bincount(pair_of, weights)
        people = np.bincount(group_of, minlength=n_groups)
        mass = np.bincount(groups, weights, n_groups)
        squares = np.bincount(group_of, pair_mass**2, n_groups)
        worth = np.divide(mass, squares, out=worth, where=n > 0)
    hits = np.minimum(np.bincount(groups, weights * covered, n_groups), mass)
    coverage = np.divide(hits, mass, out=np.full(n_groups, np.nan), where=n > 0)
    columns = {"n": n, "n_clusters": people, "share": mass / total, "coverage": coverage}
    return pd.DataFrame({**columns, "effective": mass * worth, "hits": hits * worth})


def with_intervals(counted: pd.DataFrame, clusters: Any, level: float) -> pd.DataFrame:
    """Return the columns that tables show of groups counted by :func:`tally`.

    These are n, share, coverage, its Clopper-Pearson interval from low to high, each with the
    confidence ``level`` on its own, and with clusters n_clusters.

    Examples
    --------
    >>> counted = tally(np.array([0, 0]), 1, np.array([True, False]), None)
    >>> with_intervals(counted, None, 0.95).round(3)
       n  share  coverage    low   high
    0  2    1.0       0.5  0.013  0.987
    """
    table = counted[["n", "share", "coverage"]].reset_index(drop=True)
    table["low"], table["high"] = clopper_pearson(counted["hits"], counted["effective"], level)
    if clusters is not None:
        table["n_clusters"] = counted["n_clusters"].to_numpy()
    return table


def coverage_by_group(
    X: Any,
    covered: Any,
    *,
    features: SensitiveFeatures = None,
    pairs: bool = False,
    y: Any = None,
    clusters: Any = None,
    interval_level: float = 0.95,
) -> pd.DataFrame:
    """Report the coverage of each category of each feature, with exact intervals.

    Parameters
    ----------
    X : frame or array of shape (n_samples, n_features)
        The table that defines the groups. Numbers with many values are cut at their quartiles;
        missing values are a category of their own.
    covered : array of shape (n_samples,)
        Whether each label is in its set.
    features : names, positions or callable, optional
        The columns to report; None for all.
    pairs : bool, default=False
        Also report every pair of categories that occurs.
    y : array of shape (n_samples,), optional
        True labels; each adds a row named ``label=...``, after all others. Sets that are right on
        average may miss most rows of a rare label.
    clusters : array of shape (n_samples,), optional
        Ids of people with several rows, who count once each: a row of someone with m rows counts
        1/m in ``share`` and ``coverage``, and intervals count people (see Notes).
    interval_level : float, default=0.95
        Confidence of each Clopper-Pearson interval on its own.

    Returns
    -------
    DataFrame
        Columns group, n, share, coverage, low, high; with clusters also n_clusters, the number
        with rows in the group. A group without rows has coverage NaN and interval [0, 1].

    Notes
    -----
    If people have the weights ``W_i`` in a group, its interval counts ``sum(W_i)^2 / sum(W_i^2)``
    people (Kish 1965): all of them, if nobody has rows outside. That is exact if either all or none
    of a person's rows are covered, and cautious otherwise.

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
    groups = list(_categories(select_columns(check_table(X), features), pairs=pairs))
    if y is not None:
        labels, codes = _distinct_labels(y, covered)
        groups += [(f"label={label}", codes == code) for code, label in enumerate(labels)]
    ids = cluster_numbers(clusters, covered)
    counted = [_inside(mask, covered, ids) for _, mask in groups]
    table = with_intervals(pd.concat(counted), ids, interval_level)
    table.insert(0, "group", [name for name, _ in groups])
    return table


def coverage_by_label(
    y: Any, covered: Any, *, clusters: Any = None, interval_level: float = 0.95
) -> pd.DataFrame:
    """Report the coverage of the rows of each true label, with exact intervals.

    Parameters
    ----------
    y : array of shape (n_samples,)
        True labels.
    covered, clusters, interval_level
        As in :func:`coverage_by_group`.

    Returns
    -------
    DataFrame
        Columns label, n, share, coverage, low, high, with clusters also n_clusters; worst first.

    Examples
    --------
    >>> coverage_by_label(["no", "no", "yes"], [1, 1, 0])[["label", "n", "coverage"]]
      label  n  coverage
    0   yes  1       0.0
    1    no  2       1.0
    """
    covered = check_covered(covered)
    labels, codes = _distinct_labels(y, covered)
    ids = cluster_numbers(clusters, covered)
    table = with_intervals(tally(codes, len(labels), covered, ids), ids, interval_level)
    table.insert(0, "label", pd.Series(labels, dtype=object))
    return table.sort_values("coverage", kind="stable", ignore_index=True)


def coverage_by_level(
    levels: Any,
    covered: Any,
    *,
    n_levels: int | None = None,
    clusters: Any = None,
    interval_level: float = 0.95,
) -> pd.DataFrame:
    """Report the coverage of each level of disadvantage and of each upper set, with intervals.

    The upper set of level m holds all rows with ``level >= m``, for which FaReG promises
    ``P(Y in C(X) | level(X) >= m) >= 1 - alpha``: everyone for m = 0, at last only the worst off.

    Parameters
    ----------
    levels : int array of shape (n_samples,)
        Level of each row, 0, 1, ...; the largest is the most disadvantaged.
    n_levels : int, optional
        Number of levels; None for one more than the largest that occurs.
    covered, clusters, interval_level
        As in :func:`coverage_by_group`.

    Returns
    -------
    DataFrame
        A row per level, lowest first. Columns level, n, share, coverage, low, high, with clusters
        also n_clusters; and the same with the prefix ``upper_`` for the rows at or above the level.
        A group without rows has coverage NaN and interval [0, 1].

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
    ids = cluster_numbers(clusters, covered)
    table = with_intervals(tally(codes, n_levels, covered, ids), ids, interval_level)
    table.insert(0, "level", np.arange(n_levels))
    above = pd.concat([_inside(codes >= m, covered, ids) for m in range(n_levels)])
    upper = with_intervals(above, ids, interval_level).add_prefix("upper_")
    return pd.concat([table, upper], axis=1)


def _inside(mask: BoolArray, covered: BoolArray, clusters: IntArray | None) -> pd.DataFrame:
    """Count the rows of a mask."""
    return tally(mask.astype(np.int64), 2, covered, clusters).iloc[1:]


def _distinct_labels(y: Any, covered: BoolArray) -> tuple[list[Any], IntArray]:
    """Return the sorted distinct labels, and the position of each row's label among them."""
    y = check_labels(y)
    check_same_length(covered=covered, y=y)
    labels = sorted_labels(y)
    return labels, label_codes(y, labels)


def _categories(table: pd.DataFrame, *, pairs: bool) -> Iterator[tuple[str, BoolArray]]:
    """Yield name and rows of each category, then of each pair of categories if wanted."""
    coding = LevelCoding.learn(table)
    codes = coding.codes(table)
    for feature, n in enumerate(coding.n_categories):
        for code in range(n):
            yield coding.describe([feature], [code]), codes[:, feature] == code
    for pair in combinations(range(len(coding.levels)), 2) if pairs else ():
        for cell in np.unique(codes[:, pair], axis=0):
            yield coding.describe(pair, cell), (codes[:, pair] == cell).all(axis=1)
