"""Worst-slab coverage at several masses, against what chance alone would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, FloatArray
from fareg.metrics import worst_slab_coverage
from fareg.metrics._encoding import NumericCode

DELTAS = (0.1, 0.2, 0.3, 0.5)
KINDS = {"linear": "WSC", "quadratic": "WSC+"}
MAX_ROWS = 10_000  # more rows are sampled: the search is linear in them
COLUMNS = (
    "measure",
    "delta",
    "value",
    "held_out",
    "held_out_mass",
    "null_low",
    "null_median",
    "null_high",
    "p_value",
)


def slab_curve(
    columns: pd.DataFrame,
    covered: BoolArray,
    *,
    n_directions: int,
    n_permutations: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return WSC and WSC+ at masses 0.1 to 0.5: in-sample, held-out, and the permutation band."""
    if len(covered) < 2:
        return no_slabs()
    if len(covered) > MAX_ROWS:
        rows = rng.choice(len(covered), MAX_ROWS, replace=False)
        columns, covered = columns.iloc[rows], covered[rows]
    numbers = _on_one_scale(columns)
    curve = [
        _slab(numbers, covered, kind, delta, n_directions, n_permutations, rng)
        for kind in KINDS
        for delta in DELTAS
    ]
    return pd.DataFrame(curve, columns=list(COLUMNS))


def no_slabs() -> pd.DataFrame:
    """Return the table of a search that was not made."""
    return pd.DataFrame(columns=list(COLUMNS))


def _slab(
    numbers: FloatArray,
    covered: BoolArray,
    kind: str,
    delta: float,
    n_directions: int,
    n_permutations: int,
    rng: np.random.Generator,
) -> tuple[Any, ...]:
    found = worst_slab_coverage(
        numbers,
        covered,
        kind=kind,
        delta=delta,
        n_directions=n_directions,
        n_permutations=n_permutations,
        random_state=rng,
    )
    other = worst_slab_coverage(
        numbers,
        covered,
        kind=kind,
        delta=delta,
        n_directions=n_directions,
        test_size=0.5,
        random_state=rng,
    )
    null = found.null
    band = (null.low, null.median, null.high, null.p_value) if null else (np.nan,) * 4
    return (KINDS[kind], delta, found.value, other.test_value, other.test_mass, *band)


def _on_one_scale(columns: pd.DataFrame) -> FloatArray:
    """Return the table as numbers of unit spread: units of measurement choose no direction."""
    numbers = NumericCode.learn(columns).transform(columns)
    spread = numbers.std(axis=0)
    scaled: FloatArray = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled
