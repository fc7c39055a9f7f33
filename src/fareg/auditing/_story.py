"""What changed between two kinds of sets, level by level, on rows that neither has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, IntArray
from fareg.auditing._result import records
from fareg.metrics import coverage_by_level

MOST = 0.8  # a named group is said to lie in the levels that hold this share of its rows


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
    named: Mapping[str, BoolArray],
    clusters: IntArray | None = None,
) -> dict[str, Any]:
    """Return the facts of a report about levels of disadvantage, in plain types.

    ``covered`` and ``sizes`` tell which test rows are covered ``before`` and ``after``, and how
    many labels their sets hold; ``named`` are the groups that the classifier names, in words, and
    which test rows these mean.

    The facts are ``n_levels``; ``named``, the words; ``lie``, where each of these groups lies;
    ``rows``, one per level; ``top``, the levels from
    ``first`` to ``last`` together; and ``others``, the rest, None if everyone shares one threshold.
    All have n, share, before and after with ``_low`` and ``_high``, size_before and size_after. Of
    numbered ``clusters`` each counts once.
    """
    n_levels, first = told.n_levels, told.first_raised
    is_top = (told.levels >= first).astype(np.int64)
    together = levels_before_and_after(is_top, 2, covered, sizes, clusters)
    together = together.drop(columns="level")
    others, top = records(together)
    return {
        "n_levels": n_levels,
        "named": list(named),
        "lie": [{"group": words, **_where(told.levels, own)} for words, own in named.items()],
        "rows": records(levels_before_and_after(told.levels, n_levels, covered, sizes, clusters)),
        "top": {**top, "first": first, "last": n_levels - 1},
        "others": others if first > 0 else None,
    }


def _where(levels: IntArray, own: BoolArray) -> dict[str, Any]:
    """Return the fewest adjacent levels that hold most rows of a group.

    Among as few, they are those with most of its n rows, and of these the lowest. They hold a share
    of the group, which makes up some share of them. A group without rows lies nowhere.
    """
    n = int(own.sum())
    if n == 0:
        return {"n": 0, "first": None, "last": None, "share": None, "makes_up": None}
    up_to = np.concatenate([[0], np.bincount(levels[own]).cumsum()])  # rows below each level
    for width in range(1, len(up_to)):
        held = up_to[width:] - up_to[:-width]
        if held.max() >= MOST * n:
            break
    first, most = int(held.argmax()), int(held.max())
    last = first + width - 1
    everyone = int(((levels >= first) & (levels <= last)).sum())
    return {"n": n, "first": first, "last": last, "share": most / n, "makes_up": most / everyone}


def levels_before_and_after(
    levels: IntArray,
    n_levels: int,
    covered: Mapping[str, BoolArray],
    sizes: Mapping[str, IntArray] | None = None,
    clusters: IntArray | None = None,
) -> pd.DataFrame:
    """Return a row per level: n, share, coverage before and after, each with its 95% interval.

    ``covered`` tells which rows are covered ``before`` and ``after``. With ``sizes``, the numbers
    of labels in their sets, mean sizes are told too. Of numbered ``clusters`` each counts once.
    """
    table = pd.DataFrame()
    for moment, hit in covered.items():
        own = coverage_by_level(levels, hit, n_levels=n_levels, clusters=clusters)
        table[["level", "n", "share"]] = own[["level", "n", "share"]]
        table[[moment, f"{moment}_low", f"{moment}_high"]] = own[["coverage", "low", "high"]]
    weights = np.ones(len(levels)) if clusters is None else 1 / np.bincount(clusters)[clusters]
    mass = np.bincount(levels, weights, n_levels)
    for moment, size in (sizes or {}).items():
        held = np.bincount(levels, weights * size, n_levels)
        mean = np.divide(held, mass, out=np.full(n_levels, np.nan), where=mass > 0)
        table[f"size_{moment}"] = mean
    return table
