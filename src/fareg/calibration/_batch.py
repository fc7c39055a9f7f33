"""The rows of one call, as calibrations see them: rows that ask for sets, rows with known labels.

Both are made once, at the edge, and never change. Of a row that calibrates only the score of its
true label matters, so a table that is too large for all of its scores is reduced block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fareg._hashing import row_draws
from fareg._validation import FloatArray, IntArray

ARRAYS = ("score", "y", "u", "surprise", "clusters", "weights")  # the columns of labelled rows
DRAW, PICK = 1, 2  # what further random numbers of a row are for: randomised methods, clusters


def further_uniforms(u: FloatArray, purpose: int) -> FloatArray:
    """Return another number in [0, 1) per row, independent of ``u`` and of other purposes."""
    return row_draws(u, purpose)[-1]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that ask for prediction sets."""

    people: pd.DataFrame  # (n, n_sensitive) sensitive columns in canonical form
    proba: FloatArray  # (n, n_classes)
    scores: FloatArray  # (n, n_classes) conformity score of every label
    u: FloatArray  # (n,) the random number of each row
    # (n, 1), or (n, n_classes) if labels weigh: how much more frequent such rows are where sets are
    # used than where they were calibrated; None if the population is the same
    weights: IntArray | None = None

    def __len__(self) -> int:
        return len(self.u)

    def take(self, rows: Any) -> Batch:
        """Return some of the rows, given by a mask."""
        arrays = (self.proba, self.scores, self.u, self.weights)
        own = (None if array is None else array[rows] for array in arrays)
        return Batch(self.people[rows].reset_index(drop=True), *own)  # type: ignore[arg-type]

    def labelled(self, y: IntArray, clusters: IntArray | None = None) -> Labelled:
        """Keep what rows with known labels teach; ``y`` holds the column of each, -1 if unknown."""
        rows, known = np.arange(len(y)), y >= 0
        p_true = self.proba[rows, y]
        surprise = np.where(known, (self.proba**2).sum(axis=1) - p_true, 1.0)
        score = np.where(known, self.scores[rows, y], np.inf)
        n_classes = self.scores.shape[1]
        weights = None
        if self.weights is not None:
            weights = np.broadcast_to(self.weights, self.scores.shape)[rows, y]
        return Labelled(self.people, score, y, n_classes, self.u, surprise, clusters, weights)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows whose true label is known: they teach or calibrate."""

    people: pd.DataFrame  # (n, n_sensitive) sensitive columns in canonical form
    score: FloatArray  # (n,) score of the true label; infinite if the model does not know the label
    y: IntArray  # (n,) column of the true label, -1 if the model does not know it
    n_classes: int
    u: FloatArray  # (n,) the random number of each row
    # (n,) sum_k p_k^2 - p_y, how much less probability the true label got than the model expects of
    # itself; 1 if the model does not know the label
    surprise: FloatArray
    clusters: IntArray | None = None  # (n,) whose rows they are, from 0
    weights: IntArray | None = None  # (n,) as those of a batch

    def __len__(self) -> int:
        return len(self.u)

    @property
    def n_people(self) -> int:
        """Number of clusters, or of rows if there are none."""
        return len(self) if self.clusters is None else len(np.unique(self.clusters))

    @property
    def sizes(self) -> IntArray | None:
        """Number of rows in the cluster of each row; None without clusters."""
        if self.clusters is None:
            return None
        return np.bincount(self.clusters)[self.clusters].astype(np.int64)

    @property
    def _arrays(self) -> list[str]:
        """The columns that there are, beside people."""
        return [name for name in ARRAYS if getattr(self, name) is not None]

    def take(self, rows: IntArray) -> Labelled:
        """Return some of the rows."""
        arrays = {name: getattr(self, name)[rows] for name in self._arrays}
        return replace(self, people=self.people.iloc[rows].reset_index(drop=True), **arrays)

    @classmethod
    def joined(cls, parts: Sequence[Labelled]) -> Labelled:
        """Put parts of one table together again."""
        first = parts[0]
        if len(parts) == 1:
            return first
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in first._arrays
        }
        people = pd.concat([part.people for part in parts], ignore_index=True)
        return replace(first, people=people, **arrays)

    def independent_rows(self) -> IntArray:
        """Return the numbers of rows of which no two belong together: one at random per cluster.

        Each row of a person is as likely as any other to have the smallest random number, and the
        draw does not depend on the order of the rows.
        """
        if self.clusters is None:
            return np.arange(len(self))
        order = np.lexsort((further_uniforms(self.u, PICK), self.clusters))
        first = np.unique(self.clusters[order], return_index=True)[1]
        return np.sort(order[first])

    def one_of_each_cluster(self) -> Labelled:
        """Return one row of each cluster, drawn at random; all rows without clusters."""
        return self if self.clusters is None else self.take(self.independent_rows())
