"""Disadvantage as cell means: which few features tell the target, and the mean in each cell.

Every subset of up to three features is scored by how well the shrunk means of its joint cells
predict the target on rows that did not make them. The subset of a fold is chosen without the rows
of that fold, so its predictions there are honest although the features were searched for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._levels import Levels, joint_codes
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.groups._folds import N_FOLDS, Folds, some_rows
from fareg.groups._subsets import Subset, tried_subsets

PRIOR_ROWS = 8.0  # means are shrunk as if so many rows had the overall mean
N_EXTENDED = 5  # pairs that triples are made of if there are many features
MAX_CELLS = 5_000  # a subset with more cells than this is not tried: its means would be noise
MAX_ROWS = 20_000  # rows that the search looks at; the means use all rows

N_SUBSETS = 2  # chosen one after the other, because two groups may differ in their features
LEAST_GAIN = 10.0  # gain that a second subset needs, in variances of the target, to rule out noise

Table = tuple[Subset, IntArray, FloatArray]
Tables = tuple[tuple[Table, ...], ...]


@dataclass(frozen=True)
class CellMeans:
    """Shrunk means of joint cells: of one subset of features, and of another for what it leaves.

    ``tables`` holds for each fold its subsets. Each has the positions of its features in
    ``levels``, the joint codes that were seen, in order, and their means.
    """

    levels: tuple[Levels, ...]
    mean: float
    tables: Tables

    def predict(self, columns: pd.DataFrame) -> FloatArray:
        """Return the average over folds, shape (n,); a cell never seen adds nothing."""
        needed = {j for tables in self.tables for subset, _, _ in tables for j in subset}
        codes = {j: self.levels[j].codes(columns[self.levels[j].name]) for j in needed}
        sizes = {j: len(self.levels[j].values) for j in needed}
        return self.mean + _average(self.tables, codes, sizes, len(columns))

    def features(self) -> tuple[tuple[str, ...], ...]:
        """Return for each fold the names of the features that make its cells."""
        return tuple(
            tuple(dict.fromkeys(self.levels[j].name for subset, _, _ in tables for j in subset))
            for tables in self.tables
        )


def learn_cells(
    columns: pd.DataFrame, target: FloatArray, folds: Folds
) -> tuple[FloatArray, CellMeans]:
    """Return out-of-fold predictions of shape (n,) and the fitted cell means."""
    levels, codes, sizes = _read(columns)
    rest, tables = _learn(codes, sizes, target, folds)
    return target - folds.own(rest), CellMeans(levels, float(target.mean()), tables)


def cells_of_parts(
    columns: pd.DataFrame, target: FloatArray, parts: BoolArray, rng: np.random.Generator
) -> FloatArray:
    """Learn from each part of the rows; return the predictions of all rows, as ``parts``."""
    _, codes, sizes = _read(columns)
    answers = np.empty(parts.shape)
    for answer, part in zip(answers, parts, strict=True):
        folds = Folds.draw(int(part.sum()), None, rng)
        _, tables = _learn([code[part] for code in codes], sizes, target[part], folds)
        answer[:] = target[part].mean() + _average(tables, codes, sizes, len(target))
    return answers


def _read(columns: pd.DataFrame) -> tuple[tuple[Levels, ...], list[IntArray], list[int]]:
    """Return the levels of each feature, the level number of each row and how many there are."""
    levels = tuple(Levels.learn(column) for _, column in columns.items())
    codes = [level.codes(columns[level.name]) for level in levels]
    return levels, codes, [len(level.values) for level in levels]


def _learn(
    codes: list[IntArray], sizes: list[int], target: FloatArray, folds: Folds
) -> tuple[FloatArray, Tables]:
    """Return what each fold's model leaves unexplained, of shape (N_FOLDS, n), and its subsets."""
    rest = np.tile(target - target.mean(), (N_FOLDS, 1))
    tables: list[list[Table]] = [[] for _ in range(N_FOLDS)]
    least = np.full(N_FOLDS, -np.inf)
    few = some_rows(len(target), MAX_ROWS)
    for number in range(N_SUBSETS):
        targets = rest[: 1 if number == 0 else N_FOLDS, few]
        found = best_subsets([c[few] for c in codes], sizes, targets, folds.fold[few])
        for k, (subset, gain) in enumerate(found):
            if gain <= least[k]:
                continue
            trains = folds.fold != k
            key = joint_codes([codes[j] for j in subset], [sizes[j] for j in subset])
            seen, cell = np.unique(key, return_inverse=True)
            sums = np.bincount(cell[trains], rest[k, trains], len(seen))
            means = sums / (np.bincount(cell[trains], minlength=len(seen)) + PRIOR_ROWS)
            tables[k].append((subset, seen, means))
            rest[k] -= means[cell]
        least = np.full(N_FOLDS, LEAST_GAIN * target.var())
    return rest, tuple(tuple(parts) for parts in tables)


def _average(tables: Tables, codes: Any, sizes: Any, n: int) -> FloatArray:
    """Return the average over folds of what the cells of each row add to the mean."""
    total = np.zeros(n)
    for subset, keys, means in (table for own in tables for table in own):
        key = joint_codes([codes[j] for j in subset], [sizes[j] for j in subset])
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        total += np.where(keys[at] == key, means[at], 0.0)
    return total / len(tables)


def best_subsets(
    codes: list[IntArray], sizes: list[int], targets: FloatArray, fold: IntArray
) -> list[tuple[Subset, float]]:
    """Return for each fold the subset that predicts best among the other folds, and its gain.

    ``targets``, of shape (N_FOLDS, n), holds for each fold what is to be predicted, centred; of
    shape (1, n) if that is the same for all.
    """

    def score(subset: Subset, folds: IntArray) -> FloatArray:
        key = joint_codes([codes[j] for j in subset], [sizes[j] for j in subset])
        return _nested_gain(key, targets, fold)[folds]

    best: list[tuple[Subset, float]] = [((0,), -np.inf)] * N_FOLDS
    for subset, folds, gains in tried_subsets(len(codes), N_FOLDS, score, n_extended=N_EXTENDED):
        for k, gain in zip(folds, gains, strict=True):
            if gain > best[k][1]:
                best[k] = subset, float(gain)
    return best


def _nested_gain(key: IntArray, targets: FloatArray, fold: IntArray) -> FloatArray:
    """Return, for each fold left out, how much cell means lower the squared error on the others.

    A row of fold j is predicted by the mean of its cell over the rows that are neither in fold j
    nor in the fold left out. Sums and counts per cell and fold are all that this needs.
    """
    if key.max() >= MAX_CELLS:  # many joint levels, of which few may occur
        distinct, key = np.unique(key, return_inverse=True)
        if len(distinct) > MAX_CELLS:
            return np.full(N_FOLDS, -np.inf)
    at, n_cells = key * N_FOLDS + fold, int(key.max()) + 1
    others = 1.0 - np.eye(N_FOLDS)[:, None, :]  # (fold left out, 1, fold)
    n = others * np.bincount(at, minlength=n_cells * N_FOLDS).reshape(n_cells, N_FOLDS)
    sums = [np.bincount(at, target, n_cells * N_FOLDS) for target in targets]
    s = others * np.reshape(sums, (len(targets), n_cells, N_FOLDS))
    mean = (s.sum(2, keepdims=True) - s) / (n.sum(2, keepdims=True) - n + PRIOR_ROWS)
    return np.asarray((2 * mean * s - mean**2 * n).sum(axis=(1, 2)))
