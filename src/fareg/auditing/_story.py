"""What levels did, on rows that they never saw: who is at the top, what changed, what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, IntArray
from fareg.auditing._result import records
from fareg.metrics import clopper_pearson, coverage_by_level

MOMENTS = ("before", "after")


@dataclass(frozen=True, eq=False)
class RowLevels:
    """Levels of disadvantage of test rows, and where thresholds begin to be raised."""

    levels: IntArray  # (n_samples,) 0 for the least disadvantaged
    n_levels: int
    # the first whose threshold is above that of split conformal sets; 0 if everyone shares one
    first_raised: int


def level_story(
    told: RowLevels,
    covered: Mapping[str, BoolArray],
    sizes: Mapping[str, IntArray],
    named: Sequence[str],
) -> dict[str, Any]:
    """Return the facts of a report about levels of disadvantage, in plain types.

    ``covered`` and ``sizes`` tell which test rows are covered ``before`` and ``after``, and how
    many labels their sets hold; ``named`` are the groups that the classifier names, in words.

    The facts are ``n_levels``; ``named``; ``rows``, one per level; ``top``, the levels from
    ``first`` to ``last`` together; and ``others``, the rest, None if everyone shares one threshold.
    All have n, share, before and after with ``_low`` and ``_high``, size_before and size_after.
    """
    n_levels, first = told.n_levels, told.first_raised
    top = told.levels >= first
    return {
        "n_levels": n_levels,
        "named": list(named),
        "rows": _by_level(told.levels, n_levels, covered, sizes),
        "top": {"first": first, "last": n_levels - 1, **_together(top, covered, sizes)},
        "others": _together(~top, covered, sizes) if first > 0 else None,
    }


def _by_level(
    levels: IntArray, n_levels: int, covered: Mapping[str, BoolArray], sizes: Mapping[str, IntArray]
) -> list[dict[str, Any]]:
    tables = {m: coverage_by_level(levels, covered[m], n_levels=n_levels) for m in MOMENTS}
    table = tables["before"][["level", "n", "share"]].copy()
    for moment, own in tables.items():
        for column, ending in (("coverage", ""), ("low", "_low"), ("high", "_high")):
            table[moment + ending] = own[column]
    for moment in MOMENTS:
        mean = pd.Series(sizes[moment]).groupby(levels).mean()
        table[f"size_{moment}"] = mean.reindex(range(n_levels)).to_numpy()
    return records(table)


def _together(
    inside: BoolArray, covered: Mapping[str, BoolArray], sizes: Mapping[str, IntArray]
) -> dict[str, Any]:
    """Return the numbers of some rows, taken together."""
    n = int(inside.sum())
    facts: dict[str, Any] = {"n": n, "share": n / len(inside)}
    for moment in MOMENTS:
        hits = np.array([covered[moment][inside].sum()])
        low, high = clopper_pearson(hits, np.array([n]), 0.95)
        facts |= {
            moment: float(hits[0] / n) if n else None,
            f"{moment}_low": float(low[0]),
            f"{moment}_high": float(high[0]),
            f"size_{moment}": float(sizes[moment][inside].mean()) if n else None,
        }
    return facts
