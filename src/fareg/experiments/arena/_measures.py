"""What is measured on the test rows of a contest, the same for every method."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical
from fareg._levels import LevelCoding, joint_codes
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.experiments._config import CONFIDENCE
from fareg.metrics import excess_risk_parts, is_covered, on_one_scale, worst_slab_coverage

MIN_CELL = 60  # cells with fewer rows are not looked at
N_WORST = 3  # how many of the worst cells are pooled
N_HALVES = 40  # random halvings of the test rows
PRIOR_ROWS = 20  # a cell's coverage is shrunk towards the level with the weight of so many rows
SLAB = 0.2  # mass of the worst slab
N_DIRECTIONS = 100


@dataclass(frozen=True, eq=False)
class TestRows:
    """Test rows of a contest, and what measuring needs of their sensitive features."""

    __test__ = False  # pytest would take it for a test case by its name

    X: pd.DataFrame
    y: IntArray
    sensitive: tuple[str, ...]
    group: Any  # (n,) who got noise; None if nobody did
    seed: int
    known: dict[bytes, dict[str, float]] = field(default_factory=dict)

    @cached_property
    def columns(self) -> pd.DataFrame:
        """The sensitive features in canonical form."""
        return canonical(self.X[list(self.sensitive)])

    @cached_property
    def cells(self) -> FloatArray:
        """Which row is in which cell, 0 or 1: cells are levels of a feature, or of two features."""
        coding = LevelCoding.learn(self.columns)
        codes, sizes = coding.codes(self.columns), coding.n_levels
        found = []
        for features in (*combinations(range(len(sizes)), 1), *combinations(range(len(sizes)), 2)):
            joint = joint_codes([codes[:, f] for f in features], [sizes[f] for f in features])
            found += [joint == cell for cell in np.unique(joint)]
        large = [cell for cell in found if cell.sum() >= MIN_CELL]
        return np.array(large, dtype=float).reshape(len(large), len(self.y)).T

    @cached_property
    def numbers(self) -> FloatArray:
        """The sensitive features as numbers of unit spread."""
        return on_one_scale(self.columns)


def measure(sets: BoolArray, test: TestRows) -> dict[str, float]:
    """Return every measure of prediction sets."""
    covered = is_covered(test.y, sets, classes=range(sets.shape[1]))
    known = test.known.get(covered.tobytes())
    if known is None:
        known = test.known[covered.tobytes()] = _from_coverage(covered, test)
    return {
        "coverage": float(covered.mean()),
        "mean_size": float(sets.sum(axis=1).mean()),
        "empty": float((~sets.any(axis=1)).mean()),
        **fairness(covered, test),
        **known,
    }


def _from_coverage(covered: BoolArray, test: TestRows) -> dict[str, float]:
    """Return the measures that take time; :func:`measure` remembers them for each coverage."""
    risk = excess_risk_parts(
        test.columns, covered, confidence_level=CONFIDENCE, random_state=test.seed
    )
    slab = worst_slab_coverage(
        test.numbers,
        covered,
        delta=SLAB,
        kind="quadratic",
        search="optimised",
        test_size=0.5,
        n_directions=N_DIRECTIONS,
        random_state=test.seed,
    )
    return {
        "ert_under": risk.under,
        "ert": risk.total,
        "wsc_plus_held_out": np.nan if slab.test_value is None else slab.test_value,
    }


def fairness(covered: BoolArray, test: TestRows) -> dict[str, float]:
    """Return the coverage of the worst cells, and of who got noise."""
    group = test.group
    return {
        "worst_cells": worst_cells(test.cells, covered, np.random.default_rng(test.seed)),
        "group_coverage": np.nan if group is None else float(covered[group].mean()),
    }


def worst_cells(cells: FloatArray, covered: Any, rng: np.random.Generator) -> float:
    """Estimate the coverage of the worst cells without the luck of having been chosen.

    A random half A of the rows chooses the three cells with the lowest shrunken coverage
    ``(k_A + 20 * level) / (n_A + 20)``; the other half B measures them, ``sum k_B / sum n_B``. The
    answer is the mean over 40 halvings. No row both chooses and measures, so the answer is not
    biased low as the smallest of many noisy numbers is: with equal coverage everywhere it is the
    average coverage. ``cells`` of shape (n_samples, n_cells) is 1 where a row is in a cell; without
    a cell the answer is NaN.

    >>> rng = np.random.default_rng(0)
    >>> cells = np.repeat(np.eye(20), 100, axis=0)
    >>> covered = rng.random(2000) < 0.9
    >>> lowest = (cells.T @ covered / 100).min()
    >>> print(f"{lowest:.2f} {worst_cells(cells, covered, rng):.2f}")
    0.84 0.89
    """
    if cells.shape[1] == 0:
        return np.nan
    halves = np.zeros((len(covered), N_HALVES))
    halves[: len(covered) // 2] = 1.0
    halves = rng.permuted(halves, axis=0)
    hit = np.asarray(covered, dtype=np.float64)
    n = cells.sum(axis=0)[:, None]
    k = (cells.T @ hit)[:, None]
    n_choose, k_choose = cells.T @ halves, cells.T @ (halves * hit[:, None])
    shrunken = (k_choose + PRIOR_ROWS * CONFIDENCE) / (n_choose + PRIOR_ROWS)
    worst = np.argsort(shrunken, axis=0, kind="stable")[:N_WORST]
    left_k = np.take_along_axis(k - k_choose, worst, axis=0).sum(axis=0)
    left_n = np.take_along_axis(n - n_choose, worst, axis=0).sum(axis=0)
    return float(np.mean(left_k / left_n))
