"""Who was helped and who was made worse: the same groups under two kinds of sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from fareg._levels import LevelCoding
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.auditing._rate import Promise
from fareg.metrics import tally, with_intervals
from fareg.pvalues import holm
from fareg.report import MIN_HEADLINE_ROWS, MIN_SHOWN_ROWS

N_WORST = 5  # levels of columns that nobody asked for, and findings
N_OF_COLUMN = 2  # levels of a column that was asked for
MAX_LISTED = 12  # levels of such columns, in all
MIN_NEW = 0.5  # share of a further group's rows that no group before it holds
INTERVAL = 0.95
SIGNIFICANCE = 0.05  # the chance that any group is said to be made worse and is not


@dataclass(frozen=True, eq=False)
class _Group:
    name: str
    mask: BoolArray  # the rows that its words mean
    counted: BoolArray  # those of them that may be counted
    column: str = ""  # of a level
    named: bool = False
    verified: bool = False


def groups_before_and_after(
    named: Sequence[Any],
    found: Sequence[tuple[str, BoolArray]],
    columns: pd.DataFrame,
    covered: Mapping[str, BoolArray],
    *,
    promise: Promise,
    clusters: IntArray | None = None,
    verifying: BoolArray | None = None,
    listed: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the named groups, those that an audit verified, and levels of the features.

    ``named`` holds the rules of the groups that a classifier named, ``found`` the words and the
    rows of those that the audit of the sets after verified; these are counted on the rows
    ``verifying``, which did not choose them. ``columns`` are the sensitive features in canonical
    form, and ``covered`` tells which rows are covered ``before`` and ``after``. Listed are the
    levels that were made worse, and those that the sets before cover least: two of each column in
    ``listed``, and the worst of the other columns. Small ones come only where there are too few
    others, and groups of the same rows are listed once.

    The columns of the answer are group, named, verified, n, share, before and after (both
    also with ``_low`` and ``_high``), p_value, exact, that coverage before is below the confidence
    level, least_coverage, made_worse and few (whether there are too few rows to tell). A group was
    made worse if its coverage fell, and lies below the level, both beyond chance. Of numbered
    ``clusters`` each counts once, and n_clusters tells how many have rows in the group.
    """
    everyone = np.ones(len(columns), dtype=bool)
    groups = [_Group(rule.text, rule.inside(columns), everyone, named=True) for rule in named]
    half = everyone if verifying is None else verifying
    new = _mostly_new([mask for _, mask in found])[:N_WORST]
    groups += [_Group(*found[i], half, verified=True) for i in new]
    groups = _distinct([*groups, *_levels(columns)])
    table = _counted(groups, covered, clusters, promise)
    table["column"] = [group.column for group in groups]
    return table.loc[_shown(table, listed)].drop(columns="column").reset_index(drop=True)


def _levels(columns: pd.DataFrame) -> Iterator[_Group]:
    """Yield the levels of each column that have enough rows to be picked out."""
    coding = LevelCoding.learn(columns)
    codes = coding.codes(columns)
    everyone = np.ones(len(columns), dtype=bool)
    for j, column in enumerate(columns):
        for code in np.flatnonzero(np.bincount(codes[:, j]) >= MIN_SHOWN_ROWS).tolist():
            yield _Group(coding.describe([j], [code]), codes[:, j] == code, everyone, str(column))


def _distinct(groups: list[_Group]) -> list[_Group]:
    """Leave out findings and levels that mean the rows of a group before them."""
    seen: set[Any] = set()
    kept = []
    for group in groups:
        rows = group.mask.tobytes()
        if group.named or not {group.name, rows} & seen:
            kept.append(group)
        seen |= {group.name, rows}
    return kept


def _mostly_new(masks: Sequence[BoolArray]) -> list[int]:
    """Return which groups have most of their rows in none before, so that none is told twice."""
    new: list[int] = []
    for i, mask in enumerate(masks):
        told = np.logical_or.reduce([masks[j] for j in new]) if new else np.zeros_like(mask)
        if (mask & ~told).sum() >= MIN_NEW * mask.sum():
            new.append(i)
    return new


def _counted(
    groups: list[_Group],
    covered: Mapping[str, BoolArray],
    clusters: IntArray | None,
    promise: Promise,
) -> pd.DataFrame:
    masks = [group.mask & group.counted for group in groups]
    kinds = ("name", "named", "verified")
    table = pd.DataFrame({kind: [getattr(g, kind) for g in groups] for kind in kinds})
    table = table.rename(columns={"name": "group"})
    counts = {
        moment: _joined([_inside(g, hit, clusters) for g in groups])
        for moment, hit in covered.items()
    }
    for moment, own in counts.items():
        told = with_intervals(own, clusters, INTERVAL)
        shared = [name for name in ("n", "n_clusters", "share") if name in told]
        table[shared] = told[shared]
        table[[moment, f"{moment}_low", f"{moment}_high"]] = told[["coverage", "low", "high"]]
    before, after = counts["before"], counts["after"]
    level = Promise(promise.confidence_level)
    table["p_value"] = level.at_most(before["hits"], before["effective"])
    promises = [promise.of_share(share) for share in table["share"]]
    table["least_coverage"] = [own.least_coverage for own in promises]
    changed = [_lost_and_gained(mask, covered, clusters) for mask in masks]
    p_worse = _fell(*np.array(changed, dtype=np.int64).reshape(-1, 2).T)
    for i in np.flatnonzero(p_worse <= SIGNIFICANCE):  # the other test is slower
        k, n = (round(after[name][i]) for name in ("hits", "effective"))
        p_worse[i] = max(p_worse[i], float(promises[i].at_most(k, n)))
    worse = np.flatnonzero(holm(p_worse) <= SIGNIFICANCE)
    worse = worse[np.argsort(p_worse[worse], kind="stable")]
    apart = worse[_mostly_new([masks[i] for i in worse])]
    table["made_worse"] = np.isin(np.arange(len(table)), apart)
    table["few"] = before["n_clusters"] < MIN_HEADLINE_ROWS
    return table


def _inside(group: _Group, covered: BoolArray, clusters: IntArray | None) -> pd.DataFrame:
    """Count the rows of a group that may be counted."""
    rows = group.counted
    own = None if clusters is None else clusters[rows]
    return tally(group.mask[rows].astype(np.int64), 2, covered[rows], own).iloc[1:]


def _joined(counted: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the groups of several tallies, of which there may be none."""
    nothing = np.empty(0, dtype=np.int64)
    return pd.concat(counted or [tally(nothing, 0, nothing > 0, None)], ignore_index=True)


def _lost_and_gained(
    mask: BoolArray, covered: Mapping[str, BoolArray], clusters: IntArray | None
) -> tuple[int, int]:
    """Return how many rows of a group lost their cover, and how many gained it.

    Of clusters, it is how many lost more rows than they gained, and the other way round.
    """
    change = covered["after"][mask].astype(np.int64) - covered["before"][mask]
    if clusters is not None:
        change = np.bincount(clusters[mask], change)
    return int((change < 0).sum()), int((change > 0).sum())


def _fell(lost: Any, gained: Any) -> FloatArray:
    """Return the sign test: as many rows lose their cover by chance, if as many gain it.

    >>> _fell([0, 8], [0, 2]).round(3)
    array([1.   , 0.055])
    """
    lost, both = np.asarray(lost), np.asarray(lost) + np.asarray(gained)
    return np.asarray(binom.sf(lost - 1, both, 0.5), dtype=np.float64)


def _shown(table: pd.DataFrame, listed: Sequence[str]) -> list[int]:
    """Return which groups are listed: all that are not levels, then levels, the worst first."""
    is_level = table["column"] != ""
    worse = table.index[is_level & table["made_worse"]]
    levels = table[is_level & ~table["made_worse"]].sort_values(["few", "before"], kind="stable")
    is_asked = levels["column"].isin(list(listed))
    asked = levels[is_asked].groupby("column", sort=False).head(N_OF_COLUMN).head(MAX_LISTED)
    chosen = pd.concat([asked, levels[~is_asked].head(N_WORST)])
    ordered = chosen.sort_values("before", kind="stable").index
    return [*table.index[~is_level], *worse, *ordered]
