"""Which few features say who is worse off: those whose joint cells predict the target.

Every subset of up to three features is scored by how well the shrunk means of its joint cells
predict the target of rows that did not make them. Effects that exist only together, such as those
of an exclusive or, are found as easily as the others. The search is run once without each fold, so
that a model of the chosen features can be honest about the rows of that fold, and once with all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import combinations

import numpy as np

from fareg._rows import joint_codes
from fareg._validation import BoolArray, FloatArray, IntArray

N_FOLDS = 5
MAX_DISCRETE = 20  # a number with more values is cut into quarters
QUARTERS = np.array([0.0, 0.25, 0.5, 0.75])  # ranks where quarters begin; missing ones are below
PRIOR_ROWS = 8.0  # means are shrunk as if so many more rows had the overall mean
MAX_PAIRED = 40  # only so many of the best single features enter pairs
MAX_TRIPLED = 10  # if there are more features, only the best pairs are extended to triples
N_EXTENDED = 5  # pairs that are extended
MAX_CELLS = 5_000  # a subset with more cells is not tried: their means would be noise
MAX_ROWS = 20_000  # rows that the search looks at
N_SUBSETS = 2  # chosen one after the other, because two groups may differ in their features
LEAST_GAIN = 20.0  # gain that a second subset needs, in variances of the target, to rule out noise

Subset = tuple[int, ...]
# Row s marks the folds that search s may read: all but fold s, and in the last search all of them.
READS = np.vstack([1.0 - np.eye(N_FOLDS), np.ones(N_FOLDS)])


def choose_features(
    matrix: FloatArray, is_category: BoolArray, target: FloatArray, fold: IntArray
) -> list[Subset]:
    """Return the columns of the features that matter, most important first, for six searches.

    Parameters
    ----------
    matrix : array of shape (n, n_features)
        Codes of categories and ranks of numbers, -1 if missing.
    is_category : bool array of shape (n_features,)
    target : array of shape (n,)
    fold : array of shape (n,)
        The fold of each row, from 0 to 4.

    Returns
    -------
    list of tuples of int
        The features chosen without fold 0, ..., without fold 4, and with all rows. They are empty
        if every feature has too many categories to compare.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes = rng.integers(0, 2, (500, 3)).astype(float)
    >>> target = (codes[:, 0] == codes[:, 2]) + rng.random(500)
    >>> sorted(choose_features(codes, np.ones(3, dtype=bool), target, np.arange(500) % 5)[-1])
    [0, 2]
    """
    rows = some_rows(len(target), MAX_ROWS)
    target, fold = target[rows], fold[rows]
    pairs = zip(matrix[rows].T, is_category, strict=True)
    codes = [_coded(column, by_category) for column, by_category in pairs]
    sizes = [int(code.max()) + 1 for code in codes]

    def cells(subset: Subset) -> IntArray:
        return joint_codes([codes[j] for j in subset], [sizes[j] for j in subset])

    reads = READS[:, fold]
    n_rows = np.maximum(1, reads.sum(axis=1))
    left: FloatArray = target - (reads @ target / n_rows)[:, None]
    variances = (reads * left**2).sum(axis=1) / n_rows
    chosen: list[dict[int, None]] = [{} for _ in READS]
    for least in (np.full(len(READS), -np.inf), LEAST_GAIN * variances):
        gains = cache(partial(_gains_of_cells, cells, left, fold))
        best = [best_subset(len(codes), gains, s) for s in range(len(READS))]
        # All gains are known before what they explain is taken away.
        for s in [s for s, subset in enumerate(best) if gains(subset)[s] > least[s]]:
            chosen[s].update(dict.fromkeys(best[s]))
            left[s] -= _shrunk_means(cells(best[s]), left[s], reads[s])
    return list(map(tuple, chosen))


def _coded(column: FloatArray, by_category: bool) -> IntArray:
    """Return the level of each row from 0: a category, one of few numbers, or a quarter of many."""
    distinct, codes = np.unique(column, return_inverse=True)
    if by_category or len(distinct) <= MAX_DISCRETE:
        return codes
    return np.searchsorted(QUARTERS, column).astype(np.int64)


def some_rows(n: int, most: int) -> IntArray:
    """Return all of n rows, or ``most`` of them drawn at random, the same in every call.

    Tables come sorted, so their first rows would not do.
    """
    rows = np.arange(n)
    if n <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def best_subset(n_features: int, gains: Callable[[Subset], FloatArray], search: int) -> Subset:
    """Return the subset of the largest gain in one search, its best feature first.

    A search is led by its gains alone: which pairs and triples it tries does not depend on others.
    """

    def gain(subset: Subset) -> float:
        return -float(gains(subset)[search])  # negative, because sorting is stable upwards

    singles = sorted(((j,) for j in range(n_features)), key=gain)
    paired = sorted(j for (j,) in singles[:MAX_PAIRED])
    pairs = sorted(combinations(paired, 2), key=gain)
    triples: list[Subset] = list(combinations(paired, 3))
    if n_features > MAX_TRIPLED:
        extended = {tuple(sorted({*p, j})) for p in pairs[:N_EXTENDED] for j in paired}
        triples = sorted(triple for triple in extended if len(triple) == 3)
    best = min([*singles, *pairs, *triples], key=gain)
    return tuple(sorted(best, key=lambda j: gain((j,))))


def _gains_of_cells(
    cells: Callable[[Subset], IntArray], targets: FloatArray, fold: IntArray, subset: Subset
) -> FloatArray:
    return nested_gains(cells(tuple(sorted(subset))), targets, fold)


def nested_gains(key: IntArray, targets: FloatArray, fold: IntArray) -> FloatArray:
    """Return, for each search, how much cell means lower the squared error on the rows it reads.

    ``key`` of shape (n,) numbers the cell of each row, and ``targets`` of shape (n_searches, n) are
    centred. A row of fold j is predicted by the mean of its cell over the rows that the search
    reads, without fold j. Sums and counts per cell and fold are all that this needs.
    """
    if key.max() >= MAX_CELLS:  # many joint cells, of which few may occur
        distinct, key = np.unique(key, return_inverse=True)
        if len(distinct) > MAX_CELLS:
            return np.full(len(READS), -np.inf)
    at, n_cells = key * N_FOLDS + fold, int(key.max()) + 1
    reads = READS[:, None, :]  # (search, 1, fold)
    n = reads * np.bincount(at, minlength=n_cells * N_FOLDS).reshape(n_cells, N_FOLDS)
    sums = [np.bincount(at, target, n_cells * N_FOLDS) for target in targets]
    s = reads * np.reshape(sums, (len(targets), n_cells, N_FOLDS))
    mean = (s.sum(2, keepdims=True) - s) / (n.sum(2, keepdims=True) - n + PRIOR_ROWS)
    return np.asarray((2 * mean * s - mean**2 * n).sum(axis=(1, 2)))


def _shrunk_means(key: IntArray, target: FloatArray, reads: FloatArray) -> FloatArray:
    """Return for each row the mean of its cell over the rows that count, shrunk towards zero."""
    cell = np.unique(key, return_inverse=True)[1]
    means = np.bincount(cell, reads * target) / (np.bincount(cell, reads) + PRIOR_ROWS)
    return np.asarray(means[cell])
