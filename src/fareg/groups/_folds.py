"""Which rows are held out together while a disadvantage is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, IntArray

N_FOLDS = 5


def some_rows(n: int, most: int) -> IntArray:
    """Return all of n rows, or ``most`` of them drawn at random, the same in every call.

    Tables come sorted, so their first rows would not do.
    """
    rows = np.arange(n)
    return (
        rows if n <= most else np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    )


@dataclass(frozen=True)
class Folds:
    """A fold for each row; rows of one cluster are always in one fold."""

    fold: IntArray  # (n,) in 0, ..., N_FOLDS - 1
    cluster: IntArray  # (n,) numbered from 0; every row is its own if none were given

    @classmethod
    def draw(cls, n: int, clusters: Any, rng: np.random.Generator) -> Folds:
        """Divide the clusters at random into folds of nearly equal numbers of clusters."""
        cluster = np.arange(n) if clusters is None else pd.factorize(np.asarray(clusters))[0]
        # factorize marks a missing id with -1: such rows stay together as one cluster
        cluster = np.where(cluster < 0, cluster.max(initial=-1) + 1, cluster).astype(np.int64)
        n_clusters = int(cluster.max(initial=-1)) + 1
        return cls((rng.permutation(n_clusters) % N_FOLDS)[cluster], cluster)

    def take(self, rows: BoolArray) -> Folds:
        """Return the folds of some rows only."""
        return Folds(self.fold[rows], pd.factorize(self.cluster[rows])[0].astype(np.int64))

    def trains(self) -> BoolArray:
        """Return which rows train the model of each fold, shape (N_FOLDS, n)."""
        return np.asarray(self.fold != np.arange(N_FOLDS)[:, None])

    def own(self, by_fold: Any) -> Any:
        """Pick from (N_FOLDS, n) predictions those of the models that did not see the row."""
        return by_fold[self.fold, np.arange(len(self.fold))]

    @property
    def is_complete(self) -> bool:
        """Whether every fold has rows: it takes as many clusters."""
        return len(np.unique(self.fold)) == N_FOLDS

    def part(self, share: float, rng: np.random.Generator) -> BoolArray:
        """Draw a random share of the clusters, one of each fold at least; return its rows."""
        n_clusters = int(self.cluster.max(initial=-1)) + 1
        rank = rng.permutation(n_clusters)[self.cluster]
        first = np.full(N_FOLDS, n_clusters)
        np.minimum.at(first, self.fold, rank)
        return np.asarray((rank < np.ceil(share * n_clusters)) | (rank == first[self.fold]))
