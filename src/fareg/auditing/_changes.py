"""Who was helped and who was made worse: the same groups under two kinds of sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.auditing._rate import Audited, Promise
from fareg.auditing._tables import Group, chosen_levels, first_groups, group_table
from fareg.pvalues import holm

MIN_NEW = 0.5  # share of a further group's rows that no group before it holds
SIGNIFICANCE = 0.05  # the chance that any group is said to be made worse and is not
BOTH = {  # columns of each moment, and what they are called in a table of one
    "": "coverage", "_low": "low", "_high": "high", "_size": "mean_size",
    "_singletons": "singletons", "_empty": "empty",
}  # fmt: skip


def groups_before_and_after(
    named: Sequence[Any],
    found: Sequence[Any],
    people: Mapping[str, Audited],
    *,
    promise: Promise,
    listed: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return everyone, the named groups, levels of the features, and what an audit found.

    ``named`` holds the rules of the groups that a classifier named, ``found`` the findings of the
    audit of the sets after, which are counted on rows that did not choose them. ``people`` holds
    the rows under the sets ``before`` and ``after``; ``listed`` are the columns that somebody asked
    for. The columns are group, kind, column, n, share, few (whether there are too few rows to
    tell), before and after (both also with ``_low``, ``_high``, ``_size``, ``_singletons`` and
    ``_empty``), p_value, exact, that coverage before is below the confidence level, least_coverage,
    and made_worse: coverage fell, and lies below the level, both beyond chance. Of clusters each
    counts once, and n_clusters says how many have rows in the group.
    """
    before, after = people["before"], people["after"]
    groups = first_groups(after.columns, named, found, listed)
    counts = {moment: group_table(groups, own) for moment, own in people.items()}
    table = counts["after"][["group", "kind", "column", "n", "share", "few"]].copy()
    if after.clusters is not None:
        table["n_clusters"] = counts["after"]["n_clusters"]
    for moment, own in counts.items():
        for ending, name in BOTH.items():
            table[f"{moment}{ending}"] = own[name]
    table["named"], table["verified"] = table["kind"] == "named", table["kind"] == "finding"
    level = Promise(promise.confidence_level)
    earlier, later = counts["before"], counts["after"]
    table["p_value"] = level.at_most(earlier["hits"], earlier["effective"])
    promises = [promise.of_share(share) for share in table["share"]]
    table["least_coverage"] = [own.least_coverage for own in promises]
    changed = [_lost_and_gained(group.mask, before, after) for group in groups]
    p_worse = _fell(*np.array(changed, dtype=np.int64).reshape(-1, 2).T)
    for i in np.flatnonzero(p_worse <= SIGNIFICANCE):  # the other test is slower
        k, n = (round(later[name][i]) for name in ("hits", "effective"))
        p_worse[i] = max(p_worse[i], float(promises[i].at_most(k, n)))
    table["made_worse"] = _worse(groups, p_worse)
    return chosen_levels(table, "before", listed)


def _worse(groups: Sequence[Group], p_worse: FloatArray) -> BoolArray:
    """Tell which groups were made worse, those of mostly the same people once; never everyone."""
    named = np.array([group.kind != "everyone" for group in groups])
    p_worse = np.where(named, p_worse, 1.0)
    worse = np.flatnonzero((holm(p_worse) <= SIGNIFICANCE) & named)
    told, chosen = np.zeros(len(groups[0].mask), dtype=bool), np.zeros(len(groups), dtype=bool)
    for i in worse[np.argsort(p_worse[worse], kind="stable")]:
        mask = groups[i].mask
        chosen[i] = (mask & ~told).sum() >= MIN_NEW * mask.sum()
        told |= mask & chosen[i]
    return chosen


def _lost_and_gained(mask: BoolArray, before: Audited, after: Audited) -> tuple[int, int]:
    """Return how many rows of a group lost their cover, and how many gained it.

    Of clusters, it is how many lost more rows than they gained, and the other way round.
    """
    change: IntArray = after.covered[mask].astype(np.int64) - before.covered[mask]
    if after.clusters is not None:
        change = np.bincount(after.clusters[mask], change).astype(np.int64)
    return int((change < 0).sum()), int((change > 0).sum())


def _fell(lost: Any, gained: Any) -> FloatArray:
    """Return the sign test: as many rows lose their cover by chance, if as many gain it.

    >>> _fell([0, 8], [0, 2]).round(3)
    array([1.   , 0.055])
    """
    lost, both = np.asarray(lost), np.asarray(lost) + np.asarray(gained)
    return np.asarray(binom.sf(lost - 1, both, 0.5), dtype=np.float64)
