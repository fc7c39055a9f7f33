"""Worst-slab coverage at several masses, against what chance alone would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._encoding import NumericCode
from fareg._validation import BoolArray
from fareg.metrics import WorstSlab, worst_slab_curve

DELTAS = (0.1, 0.2, 0.3, 0.5)
KINDS = {"linear": "WSC", "quadratic": "WSC+"}
MAX_ROWS = 10_000  # more rows are sampled: the search is linear in them
# fmt: off
COLUMNS = (
    "measure", "delta", "value", "held_out", "held_out_mass", "held_out_low", "held_out_high",
    "null_low", "null_median", "null_high", "p_value",
)
# fmt: on


def slab_curve(
    columns: pd.DataFrame,
    covered: BoolArray,
    *,
    n_directions: int,
    n_permutations: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return WSC and WSC+ at masses 0.1 to 0.5: in-sample, held-out, and the permutation band.

    The search is optimised, and every permutation repeats it.
    """
    if len(covered) < 2:
        return no_slabs()
    if len(covered) > MAX_ROWS:
        rows = rng.choice(len(covered), MAX_ROWS, replace=False)
        columns, covered = columns.iloc[rows], covered[rows]
    search: dict[str, Any] = {
        "deltas": DELTAS,
        "n_directions": n_directions,
        "search": "optimised",
        "random_state": rng,
    }
    numbers = NumericCode.learn(columns).on_one_scale(columns)
    curve = []
    for kind, measure in KINDS.items():
        search["kind"] = kind
        all_rows = worst_slab_curve(numbers, covered, n_permutations=n_permutations, **search)
        halves = worst_slab_curve(numbers, covered, test_size=0.5, **search)
        curve += [(measure, *row) for row in map(_row, DELTAS, all_rows, halves)]
    return pd.DataFrame(curve, columns=list(COLUMNS))


def no_slabs() -> pd.DataFrame:
    """Return the table of a search that was not made."""
    return pd.DataFrame(columns=list(COLUMNS))


def _row(delta: float, found: WorstSlab, other: WorstSlab) -> tuple[Any, ...]:
    null = found.null
    band = (null.low, null.median, null.high, null.p_value) if null else (np.nan,) * 4
    interval = (other.test_low, other.test_high)
    return (delta, found.value, other.test_value, other.test_mass, *interval, *band)
