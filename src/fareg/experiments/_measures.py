"""The measures on the test rows of a problem, the same for every method."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from fareg._columns import canonical
from fareg._encoding import ordinal_encoder
from fareg._levels import LevelCoding
from fareg._rows import joint_codes
from fareg._validation import BoolArray, FloatArray
from fareg.experiments._bench import CONFIDENCE, MEASURE, Bench
from fareg.metrics import (
    excess_risk,
    excess_risk_parts,
    is_covered,
    on_one_scale,
    worst_slab_coverage,
)

ERT_ROUNDS = 20  # boosting rounds: few, for a few hundred rows and features
MIN_CELL = 60  # cells with fewer rows are ignored
N_WORST = 3  # worst cells that are pooled
N_HALVES = 40  # random halvings of the test rows
PRIOR_ROWS = 20  # a cell's coverage is shrunk towards 0.9 with the weight of this many rows
TABLE_SLAB: dict[str, Any] = {"delta": 0.2, "kind": "quadratic", "search": "optimised"}


@dataclass(frozen=True)
class MetricSettings:
    """Settings of the conditional coverage on the test rows' sensitive features."""

    delta: float = 0.5
    n_directions: int = 1000
    n_permutations: int = 20


def covered_rows(sets: Any, bench: Bench) -> BoolArray:
    return is_covered(bench.y[bench.test], sets, classes=range(bench.n_classes))


def paper_measures(sets: Any, bench: Bench, settings: MetricSettings) -> dict[str, float]:
    """Return the paper's measures, and others that separate luck from unfairness."""
    covered, seed = covered_rows(sets, bench), bench.seed(MEASURE)
    group = bench.group[bench.test]
    codes = bench.once("codes", lambda: ordinal_encoder().fit_transform(_sensitive(bench)))
    search: dict[str, Any] = {
        "delta": settings.delta,
        "n_directions": settings.n_directions,
        "random_state": seed,
        "kind": "quadratic",
    }
    curve = worst_slab_coverage(codes, covered, n_permutations=settings.n_permutations, **search)
    held_out = worst_slab_coverage(codes, covered, test_size=0.5, **search)
    booster = HistGradientBoostingClassifier(max_iter=ERT_ROUNDS, random_state=seed)
    inside, outside = covered[group], covered[~group]
    ends = ("low", "median", "high")
    return {
        "group_coverage": float(inside.mean()) if len(inside) else np.nan,
        "rest_coverage": float(outside.mean()) if len(outside) else np.nan,
        "coverage": float(covered.mean()),
        "size": float(sets.sum(axis=1).mean()),
        "wsc_plus": curve.value,
        "wsc_plus_held_out": np.nan if held_out.test_value is None else held_out.test_value,
        **{f"wsc_plus_null_{end}": getattr(curve.null, end, np.nan) for end in ends},
        "ert": excess_risk(
            codes, covered, confidence_level=CONFIDENCE, estimator=booster, random_state=seed
        ),
    }


def table_measures(sets: BoolArray, bench: Bench) -> dict[str, float]:
    """Return the measures of a benchmark on tables."""
    covered = covered_rows(sets, bench)

    def slow() -> dict[str, float]:
        seed, people = bench.seed(MEASURE), _sensitive(bench)
        risk = excess_risk_parts(people, covered, confidence_level=CONFIDENCE, random_state=seed)
        numbers = bench.once("numbers", lambda: on_one_scale(people))
        search = {**TABLE_SLAB, "test_size": 0.5, "n_directions": 100, "random_state": seed}
        slab = worst_slab_coverage(numbers, covered, **search)
        held_out = np.nan if slab.test_value is None else slab.test_value
        return {"ert_under": risk.under, "ert": risk.total, "wsc_plus_held_out": held_out}

    return {
        "coverage": float(covered.mean()),
        "mean_size": float(sets.sum(axis=1).mean()),
        "empty": float((~sets.any(axis=1)).mean()),
        **fairness(covered, bench),
        **bench.once(covered.tobytes(), slow),
    }


def fairness(covered: BoolArray, bench: Bench) -> dict[str, float]:
    """Return the coverage of the worst cells, and of the group with noise."""
    membership = bench.once("cells", lambda: _cell_membership(bench))
    rng = np.random.default_rng(bench.seed(MEASURE))
    inside = None if bench.group is None else covered[bench.group[bench.test]]
    return {
        "worst_cells": worst_cells(membership, covered, rng),
        "group_coverage": np.nan if inside is None else float(inside.mean()),
    }


def _sensitive(bench: Bench) -> Any:
    return bench.X[bench.sensitive].iloc[bench.test]


def _cell_membership(bench: Bench) -> FloatArray:
    """Return 1 where a test row is in a cell: a category of a feature, or a pair of categories."""
    columns = canonical(_sensitive(bench))
    coding = LevelCoding.learn(columns)
    codes, sizes = coding.codes(columns), coding.n_categories
    found = []
    for features in (*combinations(range(len(sizes)), 1), *combinations(range(len(sizes)), 2)):
        joint = joint_codes([codes[:, f] for f in features], [sizes[f] for f in features])
        found += [joint == cell for cell in np.unique(joint)]
    large = [cell for cell in found if cell.sum() >= MIN_CELL]
    return np.array(large, dtype=float).reshape(len(large), len(columns)).T


def worst_cells(cells: FloatArray, covered: Any, rng: np.random.Generator) -> float:
    """Estimate the coverage of the worst cells, without selection bias.

    A random half A of the rows chooses the three cells with the lowest shrunken coverage
    ``(k_A + 20 * 0.9) / (n_A + 20)``; the other half B measures them, ``sum k_B / sum n_B``. The
    result is the mean over 40 halvings; if coverage is equal everywhere, it is the average
    coverage. ``cells`` of shape (n_samples, n_cells) is 1 where a row is in a cell; without cells
    the result is NaN.

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
