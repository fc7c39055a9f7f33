"""Worst-slab coverage at several masses, against what chance alone would give."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from fareg.auditing._rate import Audited
from fareg.metrics import on_one_scale, worst_slab_curve

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
    people: Audited, *, n_directions: int, n_permutations: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Return WSC and WSC+ at masses 0.1 to 0.5: in-sample, held-out, and the permutation band.

    The search is optimised, and every permutation repeats it.
    """
    people = people.sample(MAX_ROWS, rng)
    search = partial(
        worst_slab_curve,
        on_one_scale(people.columns),
        people.covered,
        deltas=DELTAS,
        n_directions=n_directions,
        search="optimised",
        random_state=rng,
    )
    curve = []
    for kind, measure in KINDS.items():
        all_rows = search(kind=kind, n_permutations=n_permutations)
        halves = search(kind=kind, test_size=0.5)
        for delta, found, other in zip(DELTAS, all_rows, halves, strict=True):
            null = found.null
            held_out = (other.test_value, other.test_mass, other.test_low, other.test_high)
            band = (null.low, null.median, null.high, null.p_value) if null else (np.nan,) * 4
            curve.append((measure, delta, found.value, *held_out, *band))
    return pd.DataFrame(curve, columns=list(COLUMNS))
