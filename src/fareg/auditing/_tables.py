"""Tables of coverage and sizes: of categories, pairs, true labels, named groups and findings.

Every table of an audit or a comparison has the columns of :func:`measured`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from fareg._labels import label_codes, sorted_labels
from fareg._levels import LevelCoding, frequent
from fareg._rows import joint_codes
from fareg._validation import BoolArray, IntArray
from fareg._words import json_types
from fareg.auditing._rate import Audited, Promise
from fareg.auditing._search import Finding
from fareg.metrics import clopper_pearson, on_one_scale, tally, worst_slab_curve
from fareg.pvalues import holm
from fareg.report import MIN_SHOWN_ROWS

MIN_HEADLINE_ROWS = 100  # a group or label with fewer independent rows never makes a headline
MAX_ENTRIES = 2_000_000  # rows times sets of features that are counted at a time
MAX_PAIRED = 40  # if there are more features, those with the worst categories are paired
N_WORST = 5  # categories that are shown of columns that nobody listed
MAX_LISTED = 60  # categories that are shown of listed columns
NORMAL = 1.96  # half of a 95% interval, in standard errors
MAX_PICTURED = (12, 5)  # most categories down and across; few across, because a phone is narrow
MIN_NEW = 0.5  # share of a further group's rows that must be in no group before it
WORSE = 0.05  # allowed chance of calling any group made worse that is not
DELTAS = (0.1, 0.2, 0.3, 0.5)  # masses of slabs
MAX_SLAB_ROWS = 10_000  # more rows are sampled: the search is linear in them
# fmt: off
COLUMNS = (
    "n", "share", "coverage", "low", "high", "mean_size", "size_low", "size_high", "singletons",
    "singletons_low", "singletons_high", "empty", "referred", "top_label_right", "top_label_low",
    "top_label_high", "p_value",
)
ENDINGS = {  # endings of the columns of each moment, and their names in a table of one
    "": "coverage", "_low": "low", "_high": "high", "_size": "mean_size",
    "_singletons": "singletons", "_empty": "empty",
}
SLABS = (
    "measure", "delta", "value", "held_out", "held_out_mass", "held_out_low", "held_out_high",
    "null_low", "null_median", "null_high", "p_value",
)
# fmt: on


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table in plain JSON types; NaN becomes None."""
    return json_types(table.to_dict("records"))


def measured(groups: IntArray, n_groups: int, people: Audited) -> pd.DataFrame:
    """Measure groups: their rows, coverage and set sizes.

    Columns: n, share, coverage, low, high (Clopper-Pearson), mean_size with an approximate
    interval, the shares of singletons (sets of one label), of empty sets and of rows referred to a
    person (sets of several labels or none), how often the top label is right (NaN if unknown),
    n_clusters, effective (how many independent rows the group is worth) and hits (how many of these
    are covered). A row of a cluster with m rows counts 1/m.
    """
    table = tally(groups, n_groups, people.covered, people.clusters)
    table["low"], table["high"] = clopper_pearson(table["hits"], table["effective"])
    size = people.size.astype(np.float64)
    mass, sum_size, sum_square = (
        np.bincount(groups, people.weights * values, n_groups) for values in (1.0, size, size**2)
    )
    mean, mean_square = (
        np.divide(total, mass, out=np.full(n_groups, np.nan), where=mass > 0)
        for total in (sum_size, sum_square)
    )
    effective = np.maximum(table["effective"].to_numpy(), 1.0)
    error = NORMAL * np.sqrt(np.maximum(mean_square - mean**2, 0) / effective)
    table["mean_size"], table["size_low"] = mean, np.maximum(mean - error, 0)
    table["size_high"] = mean + error
    shares = {"singletons": people.size == 1, "empty": people.size == 0}
    shares["top_label"] = people.is_top_right
    for name, values in shares.items():
        columns = [f"{name}_right" if name == "top_label" else name, f"{name}_low", f"{name}_high"]
        table[columns] = np.nan
        if values is not None:
            counted = tally(groups, n_groups, values, people.clusters)
            ends = clopper_pearson(counted["hits"], counted["effective"])
            table[columns] = np.column_stack([counted["coverage"], *ends])
    table = table.drop(columns=["empty_low", "empty_high"])
    return table.assign(referred=1 - table["singletons"])


def _tested(table: pd.DataFrame, people: Audited, confidence_level: float, by: str) -> pd.DataFrame:
    """Add p-values to a table of groups and sort it by a column; the first column names them."""
    table["p_value"] = Promise(confidence_level).at_most(table["hits"], table["effective"])
    clusters = [] if people.clusters is None else ["n_clusters"]
    table = table.sort_values(by, kind="stable", ignore_index=True)
    return table[[*table.columns[:1], *COLUMNS, *clusters]]


def level_tables(people: Audited, confidence_level: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return every category and every pair of categories that occurs, strongest evidence first."""
    coding = LevelCoding.learn(people.columns)
    codes = coding.codes(people.columns)
    features: Sequence[int] = range(codes.shape[1])
    singles = _cells([(j,) for j in features], codes, coding, people)
    if len(features) > MAX_PAIRED:
        p = Promise(confidence_level).at_most(singles["hits"], singles["effective"])
        worst = pd.Series(p).groupby(singles["features"].str[0]).min().nsmallest(MAX_PAIRED)
        features = sorted(worst.index)
    pairs = _cells(combinations(features, 2), codes, coding, people)
    tested = partial(_tested, people=people, confidence_level=confidence_level, by="p_value")
    return tested(singles), tested(pairs)


def _cells(subsets: Any, codes: IntArray, coding: LevelCoding, people: Audited) -> pd.DataFrame:
    """Measure every combination of categories that occurs in some sets of features."""
    subsets, n = list(subsets), max(1, len(people))
    step, tables = max(1, MAX_ENTRIES // n), []
    for start in range(0, max(1, len(subsets)), step):
        chunk, cells, names, features, n_cells = subsets[start : start + step], [], [], [], 0
        for subset in chunk:
            sizes = [int(codes[:, j].max(initial=0)) + 1 for j in subset]
            joint = joint_codes([codes[:, j] for j in subset], sizes)
            _, first, cell = np.unique(joint, return_index=True, return_inverse=True)
            cells.append(cell + n_cells)
            n_cells += len(first)
            names += [coding.describe(subset, codes[row, subset]) for row in first]
            features += [subset] * len(first)
        copies = np.tile(np.arange(len(people)), len(chunk))
        table = measured(np.concatenate([*cells, codes[:0, :1].ravel()]), n_cells, people[copies])
        table["share"] *= len(chunk)  # each row was counted once per set of features
        table.insert(0, "group", names)
        tables.append(table.assign(features=features))
    return pd.concat(tables, ignore_index=True)


def label_table(y: Any, people: Audited, confidence_level: float) -> pd.DataFrame:
    """Measure the rows of every true label, worst coverage first."""
    labels = sorted_labels(y)
    table = measured(label_codes(y, labels), len(labels), people)
    table.insert(0, "label", [str(label) for label in labels])
    return _tested(table, people, confidence_level, by="coverage")


@dataclass(frozen=True, eq=False)
class _Group:
    """A group that becomes a row of a table."""

    name: str
    mask: BoolArray
    kind: str  # everyone, named, protected, finding, unequal, level (of a column) or label
    column: str = ""  # of a category
    finding: Finding | None = None


def _groups(
    columns: pd.DataFrame,
    named: Sequence[Any],
    found: Sequence[Finding],
    unequal: Sequence[Finding],
    listed: Sequence[str] | None,
    protected: Sequence[Any] = (),
) -> list[_Group]:
    """Return everyone, named groups, findings and categories, without duplicates.

    A finding, category or unequal group goes if an earlier group has the same name or rows. So
    categories of the ``listed`` columns come first; named and protected groups always stay.
    """
    groups = [_Group("everyone", np.ones(len(columns), dtype=bool), "everyone")]
    groups += [_Group(rule.text, rule.inside(columns), "named") for rule in named]
    groups += [_Group(finding.rule.text, finding.mask, "finding", "", finding) for finding in found]
    groups += [_Group(finding.rule.text, finding.mask, "unequal") for finding in unequal]
    unnamed = [rule for rule in protected if rule not in named]
    groups += [_Group(rule.text, rule.inside(columns), "protected") for rule in unnamed]
    coding = LevelCoding.learn(columns)
    codes = coding.codes(columns)
    names = list(map(str, columns))
    for j in sorted(range(len(names)), key=lambda j: names[j] not in (listed or names)):
        for code in np.flatnonzero(np.bincount(codes[:, j]) >= MIN_SHOWN_ROWS).tolist():
            name = coding.describe([j], [code])
            groups.append(_Group(name, codes[:, j] == code, "level", names[j]))
    seen: set[Any] = set()
    kept = []
    for group in groups:
        marks = {group.name, group.mask.tobytes()}
        if group.kind in ("everyone", "named", "protected") or not marks & seen:
            kept.append(group)
        seen |= marks
    return kept


def _group_table(groups: Sequence[_Group], people: Audited) -> pd.DataFrame:
    """Measure groups that may overlap: group, kind, column, few, and what :func:`measured` returns.

    A finding is counted on the rows that played no part in proposing it, averaged over halves.
    """
    rows = []
    for group in groups:
        row = measured(group.mask.astype(np.int64), 2, people).iloc[[1]]
        finding = group.finding
        if finding is not None and finding.counted.any():
            rate = finding.rate
            rate = people.averaged_rate(finding.counted, rate.n, rate.independent)
            n = rate.independent
            row = row.assign(**rate.to_dict() | {"n_clusters": n, "hits": rate.share * n})
            row["effective"] = float(n)
        elif group.kind == "everyone":
            rate = people.rate()
            row = row.assign(low=rate.low, high=rate.high)
        rows.append(row)
    table = pd.concat(rows, ignore_index=True)
    for place, name in enumerate(("name", "kind", "column")):
        table.insert(place, name if place else "group", [getattr(g, name) for g in groups])
    # a finding was tested, so its interval is shown even on few rows
    table["few"] = (table["n_clusters"] < MIN_HEADLINE_ROWS) & (table["kind"] != "finding")
    return table if people.clusters is not None else table.drop(columns="n_clusters")


def _shown_rows(table: pd.DataFrame, key: str, listed: Sequence[str] | None) -> pd.DataFrame:
    """Return the rows to show; of columns that nobody listed, only the worst categories."""
    kind, n_worst = table["kind"], N_WORST if listed is None else 0
    is_listed = (kind == "level") & table["column"].isin(list(listed or ()))
    unlisted = (kind == "level") & ~is_listed
    is_worse = unlisted & table.get("made_worse", pd.Series(False, table.index))
    others = table[unlisted & ~is_worse].sort_values(["few", key], kind="stable")
    first = kind.isin(["everyone", "named", "protected"])
    parts = [table[first], table[is_listed].head(MAX_LISTED), table[is_worse], others.head(n_worst)]
    parts += [table[kind == name] for name in ("finding", "unequal", "label")]
    return pd.concat(parts, ignore_index=True)


def first_table(
    people: Audited,
    named: Sequence[Any],
    found: Sequence[Finding],
    unequal: Sequence[Finding],
    by_label: pd.DataFrame,
    listed: Sequence[str] | None,
) -> pd.DataFrame:
    """Return everyone, named groups, categories of the features, findings and true labels."""
    below = [group for group in found if group.is_finding]
    table = _group_table(_groups(people.columns, named, below, unequal, listed), people)
    labels = by_label.rename(columns={"label": "group"}).assign(kind="label", column="")
    labels["few"] = labels["n_clusters" if "n_clusters" in labels else "n"] < MIN_HEADLINE_ROWS
    table = _shown_rows(pd.concat([table, labels], ignore_index=True), "coverage", listed)
    return table.drop(columns=["p_value", "hits", "effective"])


def side_by_side(before: pd.DataFrame, after: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Join two tables of the same groups: some shared columns, then numbers before and after."""
    both = (("before", before), ("after", after))
    numbers = {f"{m}{ending}": table[name] for m, table in both for ending, name in ENDINGS.items()}
    return after[[name for name in names if name in after]].assign(**numbers)


def group_changes(
    people: Mapping[str, Audited],
    named: Sequence[Any],
    found: Sequence[Finding],
    promise: Promise,
    listed: Sequence[str] | None = None,
    protected: Sequence[Any] = (),
) -> pd.DataFrame:
    """Return :attr:`Comparison.groups`; ``found`` are findings of the audit of the sets after."""
    groups = _groups(people["after"].columns, named, found, (), listed, protected)
    before, after = (_group_table(groups, people[moment]) for moment in ("before", "after"))
    names = ["group", "kind", "column", "n", "share", "few", "n_clusters"]
    table = side_by_side(before, after, names)
    table["named"], table["verified"] = table["kind"] == "named", table["kind"] == "finding"
    table["protected"] = table["group"].isin([rule.text for rule in protected])
    exact = Promise(promise.confidence_level)
    table["p_value"] = exact.at_most(before["hits"], before["effective"])
    promises = [promise.of_share(share) for share in table["share"]]
    table["least_coverage"] = [of_group.least_coverage for of_group in promises]
    p_worse = np.array([_sign_test(group, people) for group in groups])
    for i in np.flatnonzero(p_worse <= WORSE):  # the second test is slower
        k, n = (round(after[name][i]) for name in ("hits", "effective"))
        p_worse[i] = max(p_worse[i], float(promises[i].at_most(k, n)))
    # of groups with mostly the same rows one is named, and everyone is never named
    rejected = (holm(p_worse) <= WORSE) & (table["kind"] != "everyone").to_numpy()
    named_rows = np.zeros(len(people["after"]), dtype=bool)
    is_worse = np.zeros(len(groups), dtype=bool)
    for i in sorted(np.flatnonzero(rejected), key=lambda i: p_worse[i]):
        mask = groups[i].mask
        is_worse[i] = (mask & ~named_rows).sum() >= MIN_NEW * mask.sum()
        named_rows |= mask & is_worse[i]
    return _shown_rows(table.assign(made_worse=is_worse), "before", listed)


def _sign_test(group: _Group, people: Mapping[str, Audited]) -> float:
    """Return the p-value of the sign test that a group loses no more covered rows than it gains.

    With clusters, it compares how many lost more rows than they gained with how many gained more.
    """
    if group.kind == "everyone":
        return 1.0
    before, after = people["before"], people["after"]
    change: Any = after.covered[group.mask].astype(np.int64) - before.covered[group.mask]
    if after.clusters is not None:
        change = np.bincount(after.clusters[group.mask], change)
    lost = int((change < 0).sum())
    return float(binom.sf(lost - 1, lost + int((change > 0).sum()), 0.5))


def levels_before_and_after(
    levels: IntArray, n_levels: int, people: Mapping[str, Audited]
) -> pd.DataFrame:
    """Return a row per level of disadvantage: its rows, and coverage and sizes before and after."""
    before, after = (measured(levels, n_levels, people[moment]) for moment in ("before", "after"))
    return side_by_side(before, after.assign(level=np.arange(n_levels)), ["level", "n", "share"])


def group_picture(
    people: Audited, mask: BoolArray, features: Sequence[str]
) -> dict[str, Any] | None:
    """Return a grid of cells over the categories of the one or two features that a rule names.

    ``inside`` is the share of a cell that lies in the group.
    """
    shown = [name for name in features if name in people.columns][:2]
    if not shown:
        return None
    coding = LevelCoding.learn(people.columns[shown])
    codes = coding.codes(people.columns[shown])
    # the feature with more categories goes down the page, the other one across
    order = sorted(range(len(shown)), key=lambda j: -coding.n_categories[j])
    axes = [frequent(codes[:, j], most) for j, most in zip(order, MAX_PICTURED, strict=False)]
    axis_of = dict(zip(order, axes, strict=True))
    labels = [[coding.levels[j].label(int(code)) for code in axis] for j, axis in axis_of.items()]
    places = [pd.Index(axis).get_indexer(pd.Index(codes[:, j])) for j, axis in axis_of.items()]
    row, column = places if len(places) == 2 else (places[0], np.zeros_like(places[0]))
    n_columns = len(axes[1]) if len(axes) == 2 else 1
    n_cells = len(axes[0]) * n_columns  # one more holds the rows of hidden categories
    cell = np.where((row >= 0) & (column >= 0), row * n_columns + column, n_cells)
    cells = measured(cell, n_cells + 1, people)
    cells["row"], cells["column"] = np.divmod(cells.index, n_columns)
    cells["inside"] = tally(cell, n_cells + 1, mask, people.clusters)["coverage"]
    fields = ["row", "column", "n", "coverage", "low", "high", "inside"]
    return {
        "features": shown,
        "row_labels": labels[0],
        "column_labels": labels[1] if len(labels) == 2 else [""],
        "hidden_levels": sum(coding.n_categories) - sum(map(len, axes)),
        "cells": records(cells.iloc[:n_cells].query("n > 0")[fields]),
    }


def slab_curve(
    people: Audited, *, n_directions: int, n_permutations: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Return WSC and WSC+ at masses 0.1 to 0.5: in-sample, held out, and the permutation band."""
    people = people.sample(MAX_SLAB_ROWS, rng)
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
    for kind, measure in {"linear": "WSC", "quadratic": "WSC+"}.items():
        all_rows = search(kind=kind, n_permutations=n_permutations)
        halves = search(kind=kind, test_size=0.5)
        for delta, slab, half in zip(DELTAS, all_rows, halves, strict=True):
            null = slab.null
            held_out = (half.test_value, half.test_mass, half.test_low, half.test_high)
            band = (null.low, null.median, null.high, null.p_value) if null else (np.nan,) * 4
            curve.append((measure, delta, slab.value, *held_out, *band))
    return pd.DataFrame(curve, columns=list(SLABS))
