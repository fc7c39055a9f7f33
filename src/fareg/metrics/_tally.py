"""Rows of groups and how many are covered; of people with several rows, each counts once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta

from fareg._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    InvalidInputError,
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
    k : number or array
        Numbers of successes.
    n : number or array
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
    low = np.where(k == 0, 0.0, beta.ppf(tail, np.where(k == 0, 1, k), n - k + 1))
    high = np.where(k == n, 1.0, beta.ppf(1 - tail, k + 1, np.where(k == n, 1, n - k)))
    return low, high


def cluster_numbers(clusters: Any, covered: BoolArray) -> IntArray | None:
    """Return ids of people as numbers from 0; None if there are none."""
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
        The number of each row's cluster. Each cluster counts once: a row weighs 1/m if its cluster
        has m rows, in whichever groups.

    Returns
    -------
    DataFrame
        A row per group: n, rows; n_clusters, those with rows in the group (n without clusters);
        share, of everyone; coverage; effective, as how many independent rows the group counts, and
        hits, how many of these are covered. If clusters have the weights ``W_i`` in a group,
        ``sum(W_i)^2 / sum(W_i^2)`` of them count (Kish 1965).

    Examples
    --------
    >>> tally(np.array([0, 0, 1]), 2, np.array([True, False, True]), np.array([0, 1, 1]))
       n  n_clusters  share  coverage  effective  hits
    0  2           2   0.75  0.666667        1.8   1.2
    1  1           1   0.25  1.000000        1.0   1.0
    """
    n = np.bincount(groups, minlength=n_groups)
    if clusters is None:
        people, total, weights, mass = n, max(1, len(groups)), np.ones(len(groups)), n
        each = np.ones(n_groups)
    else:
        sizes = np.bincount(clusters, minlength=1)
        total, weights = max(1, int((sizes > 0).sum())), 1 / sizes[clusters]
        pairs, which = np.unique(groups * len(sizes) + clusters, return_inverse=True)
        group_of, own = pairs // len(sizes), np.bincount(which, weights)  # of each cluster in each
        people = np.bincount(group_of, minlength=n_groups)
        mass = np.bincount(groups, weights, n_groups)
        squares = np.bincount(group_of, own**2, n_groups)
        each = np.divide(mass, squares, out=np.ones(n_groups), where=n > 0)
    hits = np.minimum(np.bincount(groups, weights * covered, n_groups), mass)
    coverage = np.divide(hits, mass, out=np.full(n_groups, np.nan), where=n > 0)
    told = {"n": n, "n_clusters": people, "share": mass / total, "coverage": coverage}
    return pd.DataFrame({**told, "effective": mass * each, "hits": hits * each})


def with_intervals(counted: pd.DataFrame, clusters: Any, level: float) -> pd.DataFrame:
    """Return what tables show of groups: n, share, coverage and its interval.

    Parameters
    ----------
    counted : DataFrame
        What :func:`tally` returned.
    clusters : array or None
        If there are clusters, their number n_clusters is said too.
    level : float
        Confidence of each Clopper-Pearson interval, taken alone.

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
