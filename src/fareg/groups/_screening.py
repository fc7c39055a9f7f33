"""Which few features tell where coverage is low: cross-fitted cell means, with a permutation test.

A network that sees every sensitive feature spreads a weak signal over all of them. Before it is
trained, each subset of up to three features is scored by how well the means of its joint cells,
computed on other folds and shrunk towards the overall mean, predict the target on held-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from fareg._levels import Levels, crossed
from fareg._validation import FloatArray, IntArray
from fareg.groups._subsets import Subset, tried_subsets

N_FOLDS = 10
N_REPEATS = 3
PRIOR_ROWS = 8.0  # means are shrunk as if so many rows had the overall mean
PARSIMONY = 0.75  # a smaller subset wins if it loses by less than this many standard errors
MANY_ROWS = 4_000  # with more rows, one round of folds is precise enough
MAX_ROWS = 20_000
N_EXTENDED = 10  # pairs that triples are made of if there are many features
MAX_EMPTY_CELLS = 256  # joint cells are numbered without gaps if there would be more
FEW_TARGETS = 10  # up to so many targets are summed one by one
MAX_SUMS = 2_000_000  # numbers held at once while gains are computed
# Gains that differ by less, relative to the target's square, are equal but for rounding.
TIE = 1e-12


@dataclass(frozen=True)
class Screening:
    """Selected columns, how much each subset explains, and whether that could be chance."""

    selected: tuple[str, ...]
    gains: dict[tuple[str, ...], float]  # share of the target's variance predicted on other folds
    p_value: float


def screen_features(
    columns: pd.DataFrame, target: FloatArray, *, n_permutations: int, random_state: int
) -> Screening:
    """Select the features whose joint cells predict ``target`` on held-out rows.

    ``target`` is the strangeness of each row, for example the rank of its score. The p-value is
    ``(1 + #{null >= observed}) / (1 + n_permutations)``, where ``observed`` is the best gain over
    all subsets and ``null`` that of a shuffled target. Each shuffle gets the whole search, the
    choice of promising pairs and triples included, so the p-value is exact for any number of
    features if the target is independent of them.
    """
    rng = np.random.default_rng(random_state)
    if len(target) > MAX_ROWS:
        rows = rng.choice(len(target), MAX_ROWS, replace=False)
        columns, target = columns.iloc[rows], target[rows]
    cells = _Cells([Levels.learn(column).codes(column) for _, column in columns.items()])
    shuffles = [rng.permutation(target) for _ in range(n_permutations)]
    targets = np.column_stack([target, *shuffles]) - target.mean()
    n_repeats = N_REPEATS if len(target) <= MANY_ROWS else 1
    folds = np.stack([rng.permutation(len(target)) % N_FOLDS for _ in range(n_repeats)])
    variance = float(np.mean(targets[:, 0] ** 2)) or 1.0

    gains, largest = _search(cells, targets, folds)
    rounding = TIE * float(np.abs(targets[:, 0]).max()) ** 2
    as_large = int((largest[1:] >= largest[0] - rounding).sum())
    names = [str(name) for name in columns.columns]
    selected = _smallest_close_to(gains, cells, targets[:, 0], folds)
    return Screening(
        selected=tuple(names[j] for j in selected),
        gains={tuple(names[j] for j in s): gain / variance for s, gain in gains.items()},
        p_value=(1 + as_large) / (1 + n_permutations),
    )


class _Cells:
    """The joint cells of subsets of features, numbered from 0."""

    def __init__(self, codes: list[IntArray]) -> None:
        self.codes = [code - code.min(initial=0) for code in codes]
        self.sizes = [int(code.max(initial=0)) + 1 for code in self.codes]
        self._pairs: dict[Subset, tuple[Any, int]] = {}

    def of(self, subset: Subset) -> tuple[IntArray, int]:
        """Return the cell of each row and the number of cells."""
        if len(subset) == 1:
            return self.codes[subset[0]], self.sizes[subset[0]]
        if subset not in self._pairs:
            last = subset[-1]
            joint = crossed(
                *self.of(subset[:-1]), self.codes[last], self.sizes[last], max_cells=MAX_EMPTY_CELLS
            )
            if len(subset) > 2:
                return joint
            # triples are built on pairs, of which there may be 780: short numbers take a quarter
            cells, n_cells = joint
            self._pairs[subset] = cells.astype(np.min_scalar_type(n_cells)), n_cells
        cells, n_cells = self._pairs[subset]
        return cells.astype(np.int64), n_cells


def _search(
    cells: _Cells, targets: FloatArray, folds: IntArray
) -> tuple[dict[Subset, float], FloatArray]:
    """Run one search per column of ``targets``, each led by that column alone.

    Returns what the search of the first column tried, with the mean gains, and the largest mean
    gain that each search met, shape (n_targets,).
    """
    n_features, n_targets = len(cells.codes), targets.shape[1]
    largest = np.full(n_targets, -np.inf)
    first: dict[Subset, float] = {}

    def score(subset: Subset, searches: IntArray) -> FloatArray:
        return mean_gains(*cells.of(subset), targets[:, searches], folds)

    tried = tried_subsets(n_features, n_targets, score, n_extended=N_EXTENDED)
    for subset, searches, gains in tried:
        largest[searches] = np.maximum(largest[searches], gains)
        if searches[0] == 0:
            first[subset] = float(gains[0])
    return first, largest


def mean_gains(cells: IntArray, n_cells: int, targets: FloatArray, folds: IntArray) -> FloatArray:
    """Return the mean of :func:`cross_fitted_gain` over rows and rounds of folds, per target.

    With S and N the sum and number of the rows of one cell in one fold, and P their prediction,
    these rows gain ``sum(t^2 - (t - P)^2) = P (2 S - N P)`` together, so no row is visited twice.
    ``folds`` has shape (n_rounds, n).
    """
    n_rounds, n = folds.shape
    shape = (n_rounds, n_cells, N_FOLDS)
    n_keys = n_rounds * n_cells * N_FOLDS
    keys = (folds + N_FOLDS * (cells + n_cells * np.arange(n_rounds)[:, None])).T.ravel()
    N = np.bincount(keys, minlength=n_keys).reshape(*shape, 1).astype(np.float64)
    weight = 1 / (N.sum(axis=2, keepdims=True) - N + PRIOR_ROWS)
    at_once = max(1, MAX_SUMS // n_keys)
    parts = []
    for start in range(0, targets.shape[1], at_once):
        S = _sums(keys, n_keys, targets[:, start : start + at_once]).reshape(*shape, -1)
        P = (S.sum(axis=2, keepdims=True) - S) * weight
        parts.append((P * (2 * S - N * P)).sum(axis=(0, 1, 2)))
    return np.asarray(np.concatenate(parts) / (n_rounds * max(1, n)))


def _sums(keys: IntArray, n_keys: int, targets: FloatArray) -> FloatArray:
    """Sum each target over the rows of each key, shape (n_keys, n_targets).

    A row has several keys, one after the other.
    """
    n, n_targets = targets.shape
    per_row = len(keys) // max(1, n)
    if n_targets <= FEW_TARGETS:  # a sparse matrix takes longer to build than these sums
        columns = (np.repeat(t, per_row) for t in targets.T)
        return np.column_stack([np.bincount(keys, t, minlength=n_keys) for t in columns])
    adder = sparse.csc_matrix((np.ones(len(keys)), keys, per_row * np.arange(n + 1)), (n_keys, n))
    return np.asarray(adder @ targets)


def cross_fitted_gain(cells: IntArray, target: FloatArray, folds: IntArray) -> FloatArray:
    """Return how much each row's squared error falls when its cell's mean predicts it.

    ``target`` is centred, of shape (n,); a row's cell mean comes from the other folds.
    """
    key = cells * N_FOLDS + folds
    total, n = (
        np.bincount(cells, values)[cells] - np.bincount(key, values)[key]
        for values in (target, np.ones(len(target)))
    )
    return np.asarray(target**2 - (target - total / (n + PRIOR_ROWS)) ** 2)


def _smallest_close_to(
    gains: dict[Subset, float], cells: _Cells, target: FloatArray, folds: IntArray
) -> Subset:
    """Return the smallest subset that loses to the best by a fraction of a standard error."""
    best = max(gains, key=lambda s: gains[s])

    def by_row(subset: Subset) -> Any:
        here = cells.of(subset)[0]
        return np.mean([cross_fitted_gain(here, target, fold) for fold in folds], axis=0)

    of_best = by_row(best)
    smaller = [subset for subset in gains if len(subset) < len(best)]
    for subset in sorted(smaller, key=lambda s: (len(s), -gains[s])):
        loss = of_best - by_row(subset)
        if loss.mean() <= PARSIMONY * loss.std() / np.sqrt(len(loss)):
            return subset
    return best
