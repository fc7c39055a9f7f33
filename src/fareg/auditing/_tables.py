"""Coverage and sizes side by side: of levels, pairs, true labels, named groups and findings.

Every table of an audit or a comparison has the columns of :func:`measured`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fareg._labels import label_codes, sorted_labels
from fareg._levels import LevelCoding
from fareg._rows import joint_codes
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.auditing._rate import Audited, Promise
from fareg.auditing._verdict import MIN_HEADLINE_ROWS
from fareg.metrics import clopper_pearson, tally
from fareg.report import MIN_SHOWN_ROWS

MAX_ENTRIES = 2_000_000  # rows times sets of features that are counted at a time
MAX_PAIRED = 40  # if there are more features, those with the worst levels are paired
N_WORST = 5  # levels of columns that nobody asked for
MAX_LISTED = 60  # levels of columns that were asked for
NORMAL = 1.96  # half of a 95% interval, in standard errors
COUNTED = ("n", "share", "coverage", "low", "high")
SIZED = (
    "mean_size", "size_low", "size_high", "singletons", "singletons_low", "singletons_high",
    "empty", "referred", "top_label_right", "top_label_low", "top_label_high",
)  # fmt: skip


def measured(groups: IntArray, n_groups: int, people: Audited) -> pd.DataFrame:
    """Count the rows of groups, how many are covered and how large their sets are.

    Columns: n, share, coverage, low, high (Clopper-Pearson), mean_size with an approximate
    interval, the shares of singletons (sets of one label), of empty sets, and of rows referred to a
    person (all sets but singletons), how often the top label is right (NaN if it is not known),
    p_value, that coverage is below the level, n_clusters, and hits and effective, as how many
    independent rows they count. Every cluster counts once.
    """
    table = tally(groups, n_groups, people.covered, people.clusters)
    table["low"], table["high"] = clopper_pearson(table["hits"], table["effective"])
    mass, held, squares = (
        np.bincount(groups, people.weights * own, n_groups)
        for own in (1.0, people.size.astype(np.float64), people.size.astype(np.float64) ** 2)
    )
    mean, mean_square = (_divided(own, mass) for own in (held, squares))
    effective = np.maximum(table["effective"].to_numpy(), 1.0)
    error = NORMAL * np.sqrt(np.maximum(mean_square - mean**2, 0) / effective)
    table["mean_size"], table["size_low"] = mean, np.maximum(mean - error, 0)
    table["size_high"] = mean + error
    shares = {"singletons": people.size == 1, "empty": people.size == 0}
    shares["top_label"] = people.is_top_right
    for name, own in shares.items():
        if own is None:
            table[["top_label_right", "top_label_low", "top_label_high"]] = np.nan
            continue
        counted = tally(groups, n_groups, own, people.clusters)
        table[name if name != "top_label" else "top_label_right"] = counted["coverage"]
        if name != "empty":
            ends = clopper_pearson(counted["hits"], counted["effective"])
            table[f"{name}_low"], table[f"{name}_high"] = ends
    table["referred"] = 1 - table["singletons"]
    return table


def _divided(total: Any, mass: Any) -> FloatArray:
    return np.divide(total, mass, out=np.full(len(mass), np.nan), where=mass > 0)


def shown(table: pd.DataFrame, people: Audited, *, first: str) -> pd.DataFrame:
    """Return the columns that readers need; the first is the name of each row."""
    more = [] if people.clusters is None else ["n_clusters"]
    return table[[first, *COUNTED, *SIZED, "p_value", *more]].reset_index(drop=True)


def level_tables(people: Audited, confidence_level: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return every level and every pair of levels that occurs, in words, worst first."""
    coding = LevelCoding.learn(people.columns)
    codes = coding.codes(people.columns)
    features: Sequence[int] = range(codes.shape[1])
    singles = _cells([(j,) for j in features], codes, coding, people, confidence_level)
    if len(features) > MAX_PAIRED:
        worst = singles.groupby(singles["features"].str[0])["p_value"].min().nsmallest(MAX_PAIRED)
        features = sorted(worst.index)
    pairs = _cells(combinations(features, 2), codes, coding, people, confidence_level)
    return singles, pairs


def _cells(
    subsets: Any, codes: IntArray, coding: LevelCoding, people: Audited, confidence_level: float
) -> pd.DataFrame:
    """Measure every cell of some sets of features that occurs, many sets at a time."""
    subsets, n = list(subsets), max(1, len(people))
    step = max(1, MAX_ENTRIES // n)
    nobody = measured(np.zeros(len(people), dtype=np.int64), 1, people).iloc[:0]
    tables = [nobody.assign(group="", features="")]
    for start in range(0, len(subsets), step):
        chunk, cells, names, features, n_cells = subsets[start : start + step], [], [], [], 0
        for subset in chunk:
            sizes = [int(codes[:, j].max(initial=0)) + 1 for j in subset]
            joint = joint_codes([codes[:, j] for j in subset], sizes)
            _, first, cell = np.unique(joint, return_index=True, return_inverse=True)
            cells.append(cell + n_cells)
            n_cells += len(first)
            names += [coding.describe(subset, codes[row, subset]) for row in first]
            features += [subset] * len(first)
        table = measured(np.concatenate(cells), n_cells, people[np.tile(np.arange(n), len(chunk))])
        table["share"] *= len(chunk)  # everyone was counted so often
        tables.append(table.assign(group=names, features=features))
    found = _tested(pd.concat(tables, ignore_index=True), confidence_level)
    return found.sort_values("p_value", kind="stable", ignore_index=True)


def _tested(table: pd.DataFrame, confidence_level: float) -> pd.DataFrame:
    table["p_value"] = Promise(confidence_level).at_most(table["hits"], table["effective"])
    return table


def label_table(y: Any, people: Audited, confidence_level: float) -> pd.DataFrame:
    """Return the rows of every true label, worst coverage first."""
    labels = sorted_labels(y)
    table = _tested(measured(label_codes(y, labels), len(labels), people), confidence_level)
    table.insert(0, "label", [str(label) for label in labels])
    table = table.sort_values("coverage", kind="stable", ignore_index=True)
    return shown(table, people, first="label")


@dataclass(frozen=True, eq=False)
class Group:
    """Rows that a table describes, and what they are."""

    name: str
    mask: BoolArray
    kind: str  # everyone, named, finding, unequal, level, label, or disadvantage
    column: str = ""  # of a level
    # of a finding: in how many halves each row was counted, and how many rows a half has of it
    weights: FloatArray | None = None
    n: int = 0
    n_independent: int = 0


def first_groups(
    columns: pd.DataFrame,
    named: Sequence[Any],
    found: Sequence[Any],
    listed: Sequence[str] | None,
    unequal: Sequence[Any] = (),
) -> list[Group]:
    """Return the groups of the first table: named ones, findings, and levels of the features.

    ``listed`` are the columns that somebody asked for, all of whose levels with enough rows are
    told; None if nobody did. Groups that mean the same rows come once.
    """
    groups = [Group("everyone", np.ones(len(columns), dtype=bool), "everyone")]
    groups += [Group(rule.text, rule.inside(columns), "named") for rule in named]
    groups += [
        Group(own.rule.text, own.mask, "finding", "", own.counted, own.rate.n, own.rate.independent)
        for own in found
    ]
    groups += [Group(own.rule.text, own.mask, "unequal") for own in unequal]
    return _distinct([*groups, *_levels(columns, listed)])


def _levels(columns: pd.DataFrame, listed: Sequence[str] | None) -> Iterator[Group]:
    coding = LevelCoding.learn(columns)
    codes = coding.codes(columns)
    order = list(columns)
    if listed is not None:  # those that were asked for come first, and stay if others mean the same
        order.sort(key=lambda name: str(name) not in listed)
    for column in order:
        j = list(columns).index(column)
        for code in np.flatnonzero(np.bincount(codes[:, j]) >= MIN_SHOWN_ROWS).tolist():
            mask = codes[:, j] == code
            yield Group(coding.describe([j], [code]), mask, "level", str(column))


def _distinct(groups: list[Group]) -> list[Group]:
    """Leave out groups that mean the rows of a group before them."""
    seen: set[Any] = set()
    kept = []
    for group in groups:
        rows = group.mask.tobytes()
        if group.kind in ("everyone", "named") or not {group.name, rows} & seen:
            kept.append(group)
        seen |= {group.name, rows}
    return kept


def group_table(groups: Sequence[Group], people: Audited) -> pd.DataFrame:
    """Measure groups that may overlap: group, kind, column, few, and what :func:`measured` returns.

    A finding is counted on the rows that played no part in proposing it, averaged over halves.
    """
    rows = []
    for group in groups:
        own = measured(group.mask.astype(np.int64), 2, people).iloc[[1]]
        if group.weights is not None and group.weights.any():
            rate = people.averaged_rate(group.weights, group.n, group.n_independent)
            n = rate.independent
            own = own.assign(**rate.told() | {"n_clusters": n, "hits": rate.share * n})
            own["effective"] = float(n)
        elif group.kind == "everyone":
            rate = people.rate()
            own = own.assign(low=rate.low, high=rate.high)
        rows.append(own)
    nobody = measured(np.zeros(len(people), dtype=np.int64), 1, people).iloc[:0]
    table = pd.concat(rows, ignore_index=True) if rows else nobody
    for place, name in enumerate(("name", "kind", "column")):
        table.insert(place, name if place else "group", [getattr(g, name) for g in groups])
    table["few"] = table["n_clusters"] < MIN_HEADLINE_ROWS
    return table


def chosen_levels(table: pd.DataFrame, key: str, listed: Sequence[str] | None) -> pd.DataFrame:
    """Return the rows of a table that are shown: all that are not levels, then levels.

    Of columns that were asked for these are all levels in the order of the columns; of others, the
    worst few with enough rows.
    """
    is_level = table["kind"] == "level"
    is_asked = is_level & table["column"].isin(list(listed or ()))
    worse = is_level & table.get("made_worse", pd.Series(False, table.index)) & ~is_asked
    others = table[is_level & ~is_asked & ~worse].sort_values(["few", key], kind="stable")
    before = table[table["kind"].isin(["everyone", "named"])]
    after = [table[table["kind"] == kind] for kind in ("finding", "unequal", "label")]
    n_worst = N_WORST if listed is None else 0
    parts = [before, table[is_asked].head(MAX_LISTED), table[worse], others.head(n_worst), *after]
    return pd.concat(parts, ignore_index=True)
