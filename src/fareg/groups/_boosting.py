"""Disadvantage by boosted trees on all features, one model per fold, kept as plain arrays.

A category enters the trees of a fold as the shrunk mean of the target over the rows that train
them, so that one cut can part any set of categories. Rows of rare levels are told means of other
rows: a level of three rows would tell each of them its own target, and trees would read nothing
else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

from fareg._columns import as_numbers
from fareg._encoding import LARGEST, cut_huge
from fareg._levels import Levels
from fareg._validation import BoolArray, FloatArray, IntArray

N_ROUNDS = 20
N_LEAVES = 6
LEAF_ROWS = 15
LEARNING_RATE = 0.12
SHARE = 0.7  # share of the training rows that each tree is grown on
MAX_TREE_ROWS = 5_000
MAX_FEATURES = 20  # features that a split chooses from, drawn at random if there are more
PRIOR_ROWS = 8.0  # means are shrunk as if so many rows had the overall mean
MANY_ROWS = 50  # in a mean of so many rows, the target of a single one hardly shows
N_PARTS = 5  # random parts of the rows that train, for means of other rows
MISSING = -2 * LARGEST  # a missing number lies below all others
CHUNK = 16_384  # rows that go down the trees together: they fit into the cache


@dataclass(frozen=True)
class BoostedTrees:
    """Trees as arrays over all nodes; ``x <= threshold`` goes left, a leaf leads to itself."""

    levels: tuple[Levels, ...]  # of the text columns, which come before the numbers
    numbers: tuple[str, ...]
    mean: float
    worth: FloatArray  # (n_folds, n_codes) shrunk mean of each level of each text column
    roots: IntArray  # (n_folds, n_rounds)
    depths: IntArray  # (n_folds, n_rounds)
    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    value: FloatArray

    def predict(self, columns: pd.DataFrame) -> FloatArray:
        """Return the average over folds, shape (n,)."""
        codes, numbers = _read(columns, self.levels, self.numbers)
        starts = range(0, len(columns), CHUNK)
        parts = [self._predict(codes[i : i + CHUNK], numbers[i : i + CHUNK]) for i in starts]
        return np.concatenate(parts) if parts else np.empty(0)

    def _predict(self, codes: IntArray, numbers: FloatArray) -> FloatArray:
        total = np.zeros(len(codes))
        for worth, roots, depths in zip(self.worth, self.roots, self.depths, strict=True):
            x = np.concatenate([worth[codes], numbers], axis=1).astype(np.float32)
            flat, first = x.ravel(), np.arange(len(x)) * x.shape[1]
            for root, depth in zip(roots, depths, strict=True):
                node = np.full(len(x), root)
                # a bound on the depth, even for trees of an edited file
                for _ in range(min(depth, N_LEAVES - 1)):
                    down = flat[first + self.feature[node]] <= self.threshold[node]
                    node = np.where(down, self.left[node], self.right[node])
                total += self.value[node]
        return self.mean + total / len(self.worth)


def learn_boosting(
    columns: pd.DataFrame, target: FloatArray, trains: BoolArray, rng: np.random.Generator
) -> tuple[FloatArray, BoostedTrees]:
    """Boost once per row of ``trains``, of shape (n_folds, n), on the rows that it marks.

    Returns the predictions of every fold, of shape (n_folds, n), and the trees.
    """
    text = [name for name, column in columns.items() if column.dtype == object]
    levels = tuple(Levels.learn(columns[name]) for name in text)
    names = tuple(str(name) for name in columns.columns if name not in text)
    codes, numbers = _read(columns, levels, names)
    n_codes = sum(len(level.values) + 1 for level in levels)
    mean = float(target.mean())
    by_fold = np.empty(trains.shape)
    worths, grown = [], []
    for k, rows in enumerate(trains):
        worth, own = level_means(codes[rows], target[rows], n_codes, rng)
        told = worth[codes]
        told[rows] = own
        x = np.concatenate([told, numbers], axis=1).astype(np.float32)
        boosted, trees = _boost(x, target - mean, np.flatnonzero(rows), rng)
        by_fold[k] = mean + boosted
        worths.append(worth)
        grown += trees
    return by_fold, _joined(levels, names, mean, np.array(worths), grown)


def _boost(
    x: Any, target: FloatArray, trains: IntArray, rng: np.random.Generator
) -> tuple[FloatArray, list[Any]]:
    """Fit each tree to what the trees before it left over; return the sum for all rows of x."""
    total = np.zeros(len(x))
    trees = []
    n_grow = min(int(np.ceil(SHARE * len(trains))), MAX_TREE_ROWS)
    tree = DecisionTreeRegressor(
        max_leaf_nodes=N_LEAVES,
        min_samples_leaf=LEAF_ROWS,
        max_features=min(MAX_FEATURES, x.shape[1]),
        random_state=np.random.RandomState(int(rng.integers(2**31))),
    )
    # checking the same rows again for every small tree would take longer than growing it
    with config_context(skip_parameter_validation=True):
        for _ in range(N_ROUNDS):
            grow = trains[rng.permutation(len(trains))[:n_grow]]
            tree.fit(x[grow], target[grow] - total[grow], check_input=False)
            total += LEARNING_RATE * tree.tree_.predict(x)[:, 0]
            trees.append(tree.tree_)
    return total, trees


def _read(
    columns: pd.DataFrame, levels: tuple[Levels, ...], numbers: tuple[str, ...]
) -> tuple[IntArray, FloatArray]:
    """Return where the level of each text column stands in ``worth``, and the numbers."""
    codes = np.empty((len(columns), len(levels)), dtype=np.int64)
    start = 0
    for j, level in enumerate(levels):
        code = level.codes(columns[level.name])
        codes[:, j] = start + np.where(code < 0, len(level.values), code)
        start += len(level.values) + 1
    x = np.empty((len(columns), len(numbers)))
    for j, name in enumerate(numbers):
        x[:, j] = cut_huge(as_numbers(columns[name])).fillna(MISSING)
    return codes, x


def level_means(
    codes: IntArray, target: FloatArray, n_codes: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return the shrunk mean of the target of each level, and what each row is told.

    ``codes`` of shape (n, n_columns) are levels, numbered over all columns. The mean of n rows of a
    level is shrunk as if ``PRIOR_ROWS`` further rows had the overall mean. A row is told the
    mean of its level, shape (n, n_columns). If the level has fewer than ``MANY_ROWS`` rows, only
    those count that are not in the row's own of ``N_PARTS`` random parts, so that it is not told
    its own target.
    """
    part = rng.permutation(len(codes)) % N_PARTS
    places = (part[:, None] * n_codes + codes).ravel()
    shape = (N_PARTS, n_codes)
    n = np.bincount(places, minlength=N_PARTS * n_codes).reshape(shape)
    total = np.bincount(places, np.repeat(target, codes.shape[1]), n.size).reshape(shape)
    n_level, total_level = n.sum(axis=0), total.sum(axis=0)
    means: FloatArray = (total_level + PRIOR_ROWS * target.mean()) / (n_level + PRIOR_ROWS)
    others = part != np.arange(N_PARTS)[:, None]
    mean_others = (others @ target / np.maximum(1, others.sum(axis=1)))[:, None]
    of_others = (total_level - total + PRIOR_ROWS * mean_others) / (n_level - n + PRIOR_ROWS)
    told = np.where(n_level >= MANY_ROWS, means, of_others)
    return means, told[part[:, None], codes]


def _joined(
    levels: tuple[Levels, ...],
    numbers: tuple[str, ...],
    mean: float,
    worth: FloatArray,
    grown: list[Any],
) -> BoostedTrees:
    """Put the nodes of all trees into one table."""
    sizes = [tree.node_count for tree in grown]
    starts = np.cumsum([0, *sizes])[:-1]

    def whole(name: str) -> Any:
        return np.concatenate([getattr(tree, name) for tree in grown])

    is_leaf, node, start = whole("feature") < 0, np.arange(sum(sizes)), np.repeat(starts, sizes)
    return BoostedTrees(
        levels=levels,
        numbers=numbers,
        mean=mean,
        worth=worth,
        roots=starts.reshape(len(worth), -1),
        depths=np.array([tree.max_depth for tree in grown]).reshape(len(worth), -1),
        feature=np.maximum(whole("feature"), 0),
        threshold=whole("threshold"),
        left=np.where(is_leaf, node, whole("children_left") + start),
        right=np.where(is_leaf, node, whole("children_right") + start),
        value=LEARNING_RATE * whole("value")[:, 0, 0],
    )
