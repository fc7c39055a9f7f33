"""Rows whose scores have many ties, and things that tell a row's level, cell or shift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fareg.calibration import Rows
from fareg.scores import lac

N_LABELS = 3


@dataclass(frozen=True)
class LastColumn:
    """Reads the level of a row from the last column of its table."""

    n_levels: int

    def levels(self, rows):
        return np.asarray(rows.X)[:, -1].astype(np.int64)


@pytest.fixture
def leveler():
    """Make an object that reads levels from the last column."""
    return LastColumn


@pytest.fixture
def make_rows():
    """Draw rows: three probabilities in tenths, then a level; some labels are unknown."""

    def make(seed, n, n_levels, unknown=0.05):
        rng = np.random.default_rng(seed)
        proba = rng.multinomial(10, rng.dirichlet(np.ones(N_LABELS), size=n)) / 10
        codes = rng.integers(0, N_LABELS, size=n)
        codes[rng.random(n) < unknown] = -1
        X = np.column_stack([proba, rng.integers(0, n_levels, size=n)])
        return Rows(X, lambda X: np.asarray(X)[:, :N_LABELS], lac, None, 0, codes)

    return make
