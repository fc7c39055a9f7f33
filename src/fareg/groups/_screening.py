"""Which few features tell where coverage is low: cross-fitted cell means, with a permutation test.

A network that sees every sensitive feature spreads a weak signal over all of them. Before it is
trained, each subset of up to three features is scored by how well the means of its joint cells,
computed on other folds and shrunk towards the overall mean, predict the target on held-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from fareg._frames import Levels
from fareg._validation import FloatArray, IntArray

N_FOLDS = 10
N_REPEATS = 3
PRIOR_ROWS = 8.0  # a cell mean counts as much as this many rows at the overall mean
PARSIMONY = 0.75  # a smaller subset wins if it loses by less than this many standard errors
MANY_ROWS = 4_000  # beyond, one round of folds is precise enough
MAX_ROWS = 20_000
MAX_FEATURES = 40  # beyond, only the best single features enter pairs
MAX_FEATURES_TRIPLES = 10  # beyond, only the best pairs are extended
N_EXTENDED = 10


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

    Parameters
    ----------
    columns : DataFrame of shape (n, n_features)
        Sensitive features in canonical form.
    target : ndarray of shape (n,)
        Strangeness of each row, for example the rank of its score.
    n_permutations : int
        Number of shuffles of ``target`` behind the p-value, which is
        ``(1 + #{null >= observed}) / (1 + n_permutations)`` for the best gain over all subsets:
        exact for any search, if the target is independent of the features.
    random_state : int

    Returns
    -------
    Screening
    """
    rng = np.random.default_rng(random_state)
    if len(target) > MAX_ROWS:
        rows = rng.choice(len(target), MAX_ROWS, replace=False)
        columns, target = columns.iloc[rows], target[rows]
    codes = [Levels.learn(column).codes(column) for _, column in columns.items()]
    shuffles = [rng.permutation(target) for _ in range(n_permutations)]
    targets = np.column_stack([target, *shuffles]) - target.mean()
    n_repeats = N_REPEATS if len(target) <= MANY_ROWS else 1
    folds = [rng.permutation(len(target)) % N_FOLDS for _ in range(n_repeats)]
    variance = float(np.mean(targets[:, 0] ** 2)) or 1.0

    observed: dict[tuple[int, ...], FloatArray] = {}
    largest = np.full(n_permutations, -np.inf)

    def score(subset: tuple[int, ...]) -> float:
        if subset not in observed:
            gain = np.mean([cross_fitted_gain(_joint(codes, subset), targets, f) for f in folds], 0)
            observed[subset] = gain[:, 0]
            np.maximum(largest, gain[:, 1:].mean(0), out=largest)
        return float(observed[subset].mean())

    for subset in _subsets(len(codes), score):
        score(subset)
    best = max(observed, key=score)
    p_value = (1 + int((largest >= score(best)).sum())) / (1 + n_permutations)
    names = [str(name) for name in columns.columns]
    return Screening(
        selected=tuple(names[j] for j in _smallest_close_to(best, observed)),
        gains={tuple(names[j] for j in s): float(g.mean() / variance) for s, g in observed.items()},
        p_value=p_value,
    )


def cross_fitted_gain(cells: IntArray, targets: FloatArray, folds: IntArray) -> FloatArray:
    """Return how much each row's squared error falls when its cell's mean predicts it.

    ``targets`` is centred, of shape (n, n_targets); a row's cell mean comes from the other folds.
    """
    n, n_cells = len(cells), int(cells.max()) + 1
    key = cells * N_FOLDS + folds
    adder = sparse.csr_matrix((np.ones(n), (key, np.arange(n))), (n_cells * N_FOLDS, n))
    sums = np.asarray(adder @ targets).reshape(n_cells, N_FOLDS, -1)
    counts = np.bincount(key, minlength=n_cells * N_FOLDS).reshape(n_cells, N_FOLDS, 1)
    other_sums = sums.sum(axis=1, keepdims=True) - sums
    other_counts = counts.sum(axis=1, keepdims=True) - counts
    prediction = (other_sums / (other_counts + PRIOR_ROWS)).reshape(n_cells * N_FOLDS, -1)[key]
    gain: FloatArray = targets**2 - (targets - prediction) ** 2
    return gain


def _joint(codes: list[IntArray], subset: tuple[int, ...]) -> IntArray:
    cells = codes[subset[0]]
    for j in subset[1:]:
        cells = np.unique(cells * (codes[j].max() + 2) + codes[j] + 1, return_inverse=True)[1]
    return cells.astype(np.int64)


def _subsets(n_features: int, score: Any) -> Any:
    """Yield all subsets of one, two and three features, or the most promising of many."""
    singles = [(j,) for j in range(n_features)]
    yield from singles
    kept = sorted(sorted(range(n_features), key=lambda j: -score((j,)))[:MAX_FEATURES])
    pairs = list(combinations(kept, 2))
    yield from pairs
    if len(kept) <= MAX_FEATURES_TRIPLES:
        yield from combinations(kept, 3)
        return
    best_pairs = sorted(pairs, key=lambda pair: -score(pair))[:N_EXTENDED]
    yield from sorted({tuple(sorted({*p, j})) for p in best_pairs for j in kept if j not in p})


def _smallest_close_to(
    best: tuple[int, ...], observed: dict[tuple[int, ...], FloatArray]
) -> tuple[int, ...]:
    """Return the smallest subset that loses to the best by a fraction of a standard error."""

    def is_close(subset: tuple[int, ...]) -> bool:
        loss = observed[best] - observed[subset]
        return bool(loss.mean() <= PARSIMONY * loss.std() / np.sqrt(len(loss)))

    close = [s for s in observed if len(s) <= len(best) and is_close(s)]
    return min(close, key=lambda s: (len(s), -observed[s].mean()))
