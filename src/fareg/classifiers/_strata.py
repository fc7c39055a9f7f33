"""Who shares a threshold, described on the rows that calibrate: the table ``groups_``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg import _words as words
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.calibration import (
    CellCalibration,
    CountedLevels,
    LevelCalibration,
    RisingThresholds,
    Rows,
    require,
)
from fareg.classifiers._learning import covered_by_split
from fareg.classifiers._naming import NamedGroup, evidence_of
from fareg.classifiers._views import GroupDraws, membership
from fareg.groups import Rule, cells_of

GROUP_COLUMNS = {
    "group": "O",
    "named": "b",
    "rule": "O",
    "fidelity": "f",
    "share": "f",
    "n_calibration": "i",
    "coverage": "f",
    "low": "f",
    "high": "f",
    "p_value": "f",
    "threshold": "f",
    "stability": "f",
}  # columns of groups_, with the kind of their values


class GroupTable(pd.DataFrame):
    """A table of groups that is written for people when it is shown; parts of it are frames."""

    def in_words(self) -> pd.DataFrame:
        """Return the columns that fit on a screen as text, with the words for each group last."""
        told = self.astype(object).where(self.notna(), None)
        names = told["rule"].where(self["named"], told["group"])
        return pd.DataFrame(
            {
                "share": told["share"].map(words.percent),
                "rows": told["n_calibration"].map(words.count),
                "coverage": told["coverage"].map(words.percent),
                "95% interval": list(map(words.interval, told["low"], told["high"])),
                "p-value": [words.probability(p) for p in told["p_value"]],
                "threshold": self["threshold"].map("{:.4g}".format),
                "group": names.str.ljust(names.str.len().max()),
            }
        )

    def __repr__(self) -> str:
        return self.in_words().to_string(index=False, justify="left")

    def _repr_html_(self) -> str:
        return str(self.in_words().to_html(index=False, justify="left"))


@dataclass(frozen=True)
class Stratum:
    """A run of levels, or a cell of a group, whose rows share a threshold."""

    first: int
    last: int
    name: str
    threshold: float  # of the strictest label


def strata_of(calibration: RisingThresholds | CellCalibration) -> list[Stratum]:
    """Return who shares a threshold, the worst off first."""
    if isinstance(calibration, CellCalibration):
        group = len(calibration.views.cuts)
        names = ["rest", "group"] if group else ["everyone"]
        return [
            Stratum(cell, cell, names[cell], _cell_threshold(calibration, cell))
            for cell in range(group, -1, -1)
        ]
    n_levels = calibration.leveler.n_levels
    return [
        Stratum(
            first,
            last,
            _level_words(first, last, n_levels),
            float(calibration.level_thresholds[first].max()),
        )
        for first, last in calibration.pooled_levels()[::-1]
    ]


def _cell_threshold(calibration: CellCalibration, cell: int) -> float:
    """Return the largest threshold over the labels of a cell; of draws, the average of these."""
    views = calibration.views
    if isinstance(views, GroupDraws):
        draws = [thresholds[:-1].max() for thresholds in calibration.quantiles]
        in_group = len(views.cuts) > 0 and cell == len(views.cuts)
        return float(np.mean(draws[1:]) if in_group else draws[0])
    return float(calibration.quantiles[0][:-1].reshape(-1, calibration.n_labels)[cell].max())


def _level_words(first: int, last: int, n_levels: int) -> str:
    if (first, last) == (0, n_levels - 1):
        return "everyone"
    return f"level {first}" if first == last else f"levels {first} to {last}"


def describe_groups(
    named: tuple[NamedGroup, ...],
    calibration: LevelCalibration | CellCalibration,
    rows: Rows,
    *,
    honest: bool,
) -> pd.DataFrame:
    """Return the named groups, then the strata that are not among them, the worst off first.

    Rows that chose a group cannot test it: there are no p-values of levels, whose runs these rows
    pooled, nor of others unless ``honest``.
    """
    steps, strata = steps_of(calibration, rows), strata_of(calibration)
    covered, n_steps = covered_by_split(rows, calibration.alpha), strata[0].last + 1
    hits, counts = (np.bincount(own, minlength=n_steps) for own in (steps[covered], steps))
    masks = [group.rule.inside(rows.columns) for group in named]
    thresholds = _thresholds(strata)[steps]
    described = [_of_named(*pair, thresholds) for pair in zip(named, masks, strict=True)]
    for stratum in strata:
        inside = (steps >= stratum.first) & (steps <= stratum.last)
        if not any(np.array_equal(inside, mask) for mask in masks):
            fixed = honest and isinstance(calibration, CellCalibration)
            described.append(_of_stratum(stratum, hits, counts, is_fixed=fixed))
    return _table(described)


def describe_counted(
    named: tuple[NamedGroup, ...], calibration: CountedLevels, reference: pd.DataFrame
) -> pd.DataFrame:
    """Return the table of groups of a calibration that was counted on rows elsewhere.

    Named groups keep the evidence that named them; ``reference`` are the rows that tell their
    typical threshold. Everything about levels is of the counted rows.
    """
    strata = strata_of(calibration)
    thresholds = _thresholds(strata)[steps_of(calibration, _unscored(reference))]
    hits, counts = calibration.covered.sum(axis=0), calibration.counts.sum(axis=0)
    described = [_of_named(group, group.rule.inside(reference), thresholds) for group in named]
    return _table(described + [_of_stratum(stratum, hits, counts) for stratum in strata])


def with_thresholds(
    groups: pd.DataFrame,
    named: tuple[NamedGroup, ...],
    calibration: CellCalibration,
    reference: pd.DataFrame,
) -> pd.DataFrame:
    """Return a table of groups with the thresholds of another calibration of the same rows.

    ``reference`` are the rows that tell the typical threshold of a named group.
    """
    strata = strata_of(calibration)
    thresholds = _thresholds(strata)[steps_of(calibration, _unscored(reference))]
    told = [_of_named(group, group.rule.inside(reference), thresholds) for group in named]
    own = {stratum.name: stratum.threshold for stratum in strata}
    listed = [group["threshold"] for group in told] + [
        own[n] for n in groups["group"][len(named) :]
    ]
    return groups.assign(threshold=listed)


def _unscored(columns: pd.DataFrame) -> Rows:
    """Return rows that tell their levels and cells, and nothing else."""
    return Rows(columns, ask=lambda X: None, score=lambda proba, u: None, selection=None, key=0)


def steps_of(calibration: RisingThresholds | CellCalibration, rows: Rows) -> IntArray:
    """Return the level of each row, or 1 for rows of the group and 0 for the rest."""
    if not isinstance(calibration, CellCalibration):
        return calibration.leveler.levels(rows)
    views = calibration.views
    return cells_of(membership(views.learner, rows), views.cuts)


def _thresholds(strata: list[Stratum]) -> FloatArray:
    """Return the threshold of each level or cell, in rising order."""
    rising = strata[::-1]
    return np.repeat([s.threshold for s in rising], [s.last - s.first + 1 for s in rising])


def _table(described: list[dict[str, Any]]) -> pd.DataFrame:
    kinds = {"named": bool, "n_calibration": np.int64, "fidelity": float, "stability": float}
    return pd.DataFrame(described, columns=list(GROUP_COLUMNS)).astype(kinds)


def _of_named(group: NamedGroup, inside: BoolArray, thresholds: Any) -> dict[str, Any]:
    return {
        **vars(group),
        "group": "named",
        "named": True,
        "rule": group.rule.text,
        "fidelity": float(group.rule.fidelity),
        "threshold": float(np.median(thresholds[inside])),
    }


def _of_stratum(
    stratum: Stratum, hits: IntArray, counts: IntArray, *, is_fixed: bool = False
) -> dict[str, Any]:
    """Describe a stratum by the covered rows and the rows of every level or cell.

    There is a p-value only if these rows did not choose the stratum, and if others lie outside.
    """
    own = slice(stratum.first, stratum.last + 1)
    inside, everyone = ((int(hits[s].sum()), int(counts[s].sum())) for s in (own, slice(None)))
    evidence = evidence_of(inside, everyone)
    comparable = is_fixed and inside[1] < everyone[1]
    return {
        **evidence,
        "group": stratum.name,
        "named": False,
        "rule": "",
        "share": inside[1] / max(1, everyone[1]),
        "p_value": evidence["p_value"] if comparable else float("nan"),
        "threshold": stratum.threshold,
    }


def check_groups(groups: Any, named: Any, calibration: Any, features: set[Any]) -> None:
    """Refuse a table of groups, or named groups, that do not fit each other and the calibration."""
    require(isinstance(groups, pd.DataFrame) and list(groups) == list(GROUP_COLUMNS), "groups_")
    for name, kind in GROUP_COLUMNS.items():
        is_kind = groups[name].dtype.kind == kind
        is_text = all(isinstance(value, str) for value in groups[name])
        require(is_text if kind == "O" else is_kind, f"groups_.{name}")
    require(isinstance(named, tuple), "named_groups_")
    n_strata = len(strata_of(calibration))
    require(len(named) <= len(groups) <= len(named) + n_strata, "groups_")
    for group in named:
        require(isinstance(group, NamedGroup) and isinstance(group.rule, Rule), "named_groups_")
        require(set(group.rule.features) <= features, "named_groups_")
