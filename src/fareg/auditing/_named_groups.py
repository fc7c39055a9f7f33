"""The groups that a classifier names, on rows that it never saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray
from fareg.auditing._cells import undercoverage_pvalue
from fareg.auditing._counts import Promise
from fareg.metrics import coverage_by_group
from fareg.report import MIN_SHOWN_ROWS

N_WORST = 5


@dataclass(frozen=True, eq=False)
class ReportedGroup:
    """A group that a classifier names, and the test rows that its words mean."""

    rule: str  # the words
    features: tuple[str, ...]  # that the words name
    fidelity: float  # share of learning rows on which the words agree with what was learned
    inside: BoolArray  # (n_samples,) the rows that fit the words


def reported_groups(named: Sequence[Any], columns: pd.DataFrame) -> list[ReportedGroup]:
    """Return the groups that a classifier names, with their rows; there may be none.

    ``named`` holds objects with a ``rule``; ``columns`` are the sensitive features of the rows in
    canonical form.
    """
    return [
        ReportedGroup(
            group.rule.text,
            group.rule.features,
            float(group.rule.fidelity),
            group.rule.inside(columns),
        )
        for group in named
    ]


def groups_before_and_after(
    named: list[ReportedGroup],
    X: Any,
    covered: dict[str, BoolArray],
    *,
    features: Any,
    promise: Promise,
) -> pd.DataFrame:
    """Return the named groups, and the levels that the sets before cover least.

    ``covered`` tells which rows are covered ``before`` and ``after``; ``features`` are the columns
    whose levels are listed, None for all. The columns of the answer are group, named, fidelity, n,
    share, before and after (both also with ``_low`` and ``_high``), and p_value, exact, that
    coverage before is below the confidence level.
    """
    masks = {group.rule: group.inside for group in named}
    tables = {
        moment: coverage_by_group(X, hit, features=features, masks=masks)
        for moment, hit in covered.items()
    }
    table = tables["before"][["group", "n", "share"]].copy()
    n_levels = len(table) - len(masks)  # named groups come last
    table.insert(1, "named", np.arange(len(table)) >= n_levels)
    table.insert(2, "fidelity", [1.0] * n_levels + [group.fidelity for group in named])
    for moment, own in tables.items():
        for column, name in (("coverage", ""), ("low", "_low"), ("high", "_high")):
            table[moment + name] = own[column]
    hits = (table["n"] * table["before"].fillna(0)).round().astype(np.int64)
    table["p_value"] = undercoverage_pvalue(hits, table["n"], promise.confidence_level)
    table["least_coverage"] = [promise.of_share(share).least_coverage for share in table["share"]]
    # a named group may be a level too, and is then listed once
    levels = table[~table["named"] & ~table["group"].isin(list(masks))]
    large = levels[levels["n"] >= MIN_SHOWN_ROWS]
    return pd.concat([table[table["named"]], large.nsmallest(N_WORST, "before")], ignore_index=True)
