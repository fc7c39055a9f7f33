"""Rows whose scores have many ties, and things that read a row's level, cell or shift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fareg._validation import require
from fareg.calibration import ABSENT, UNSEEN, Batch, LevelThresholds, Sample
from fareg.scores import lac

N_LABELS = 3


@dataclass(frozen=True)
class LevelColumn:
    """Reads the level of a row from the column "level"."""

    n_levels: int

    def levels(self, people):
        return people["level"].to_numpy().astype(np.int64)

    def check(self, people):
        require(list(people) == ["level"], "level")


@dataclass(frozen=True)
class LevelsByLabel:
    """Every label has another order: the level itself, the reverse of it, and its upper half."""

    n: int

    @property
    def n_levels(self):
        return (self.n, self.n, 2)

    def levels(self, people):
        level = LevelColumn(self.n).levels(people)
        return np.column_stack([level, self.n - 1 - level, (level >= self.n // 2).astype(np.int64)])

    def check(self, people):
        LevelColumn(self.n).check(people)


@dataclass(frozen=True)
class LevelCells:
    """The cell of a row is its level; levels from ``n_cells`` on are unseen."""

    n_cells = 4

    def cells(self, rows):
        level = LevelColumn(0).levels(rows.people)
        return np.where(level < self.n_cells, level, UNSEEN)

    def describe(self, cell):
        return f"level {cell}"


@dataclass(frozen=True)
class ParityCells:
    """The cell of a row is the parity of its level; a row with u from a half on is in none."""

    n_cells = 2

    def cells(self, rows):
        level = LevelColumn(0).levels(rows.people)
        return np.where(rows.u < 0.5, level % 2, ABSENT)

    def describe(self, cell):
        return f"parity {cell}"


def make_batch(seed, n, n_levels):
    """Draw rows: three probabilities in tenths, and a level."""
    rng = np.random.default_rng([seed, 0])
    proba = rng.multinomial(10, rng.dirichlet(np.ones(N_LABELS), size=n)) / 10
    people = pd.DataFrame({"level": rng.integers(0, n_levels, size=n).astype(np.float64)})
    u = rng.random(n)
    return Batch(people, proba, lac(proba, u), u)


def make_rows(seed, n, n_levels, unknown=0.05, n_clusters=None):
    """Draw such rows with labels, some of them unknown, and with clusters if wanted."""
    rng = np.random.default_rng([seed, 1])
    y = rng.integers(0, N_LABELS, size=n)
    y[rng.random(n) < unknown] = -1
    clusters = None if n_clusters is None else rng.integers(0, n_clusters, size=n)
    return make_batch(seed, n, n_levels).labelled(y, clusters)


def level_calibration(scores, levels, n_levels, alpha):
    """Calibrate levels on scores of rows that have no labels."""
    sample = Sample(np.asarray(scores, dtype=np.float64), None, 1, None)
    return LevelThresholds(LevelColumn(n_levels), sample, np.asarray(levels, np.int64), alpha)


def level_thresholds(scores, levels, n_levels, *, alpha):
    """Return the threshold of every level, shape (n_levels,)."""
    return level_calibration(scores, levels, n_levels, alpha).theta[0]


def level_pvalues(scores, levels, tested, test_levels, n_levels):
    """Return the p-values of tested scores, shape (n_test, n_labels)."""
    tested, people = np.asarray(tested), pd.DataFrame({"level": np.asarray(test_levels)})
    batch = Batch(people, tested, tested, np.zeros(len(tested)))
    return level_calibration(scores, levels, n_levels, 0.5).pvalues(batch)
