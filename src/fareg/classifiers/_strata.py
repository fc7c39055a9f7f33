"""Who shares a threshold, described on the rows that calibrate: the table ``groups_``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact

from fareg._validation import BoolArray
from fareg.calibration import Rows, require
from fareg.classifiers._naming import NamedGroup
from fareg.metrics import clopper_pearson
from fareg.pvalues import CalibrationScores

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


@dataclass(frozen=True, eq=False)
class Stratum:
    """Rows that share a threshold.

    Attributes
    ----------
    name : str
    inside : bool ndarray of shape (n,)
    threshold : float
        Of the strictest label.
    n_choices : int
        Among how many strata calibration may have chosen this one.
    """

    name: str
    inside: BoolArray
    threshold: float
    n_choices: int


def covered_by_split(rows: Rows, alpha: float) -> BoolArray:
    """Tell which labelled rows the split conformal sets of these very rows cover."""
    scores = rows.own_scores
    covered: BoolArray = scores <= CalibrationScores.sort(scores).quantiles(alpha)[0]
    return covered


def describe_groups(
    named: tuple[NamedGroup, ...], strata: list[Stratum], rows: Rows, alpha: float, *, honest: bool
) -> pd.DataFrame:
    """Return the named groups, then the strata that are not among them, the worst off first.

    p-values of strata are NaN unless ``honest``: rows that chose a group cannot test it.
    """
    covered = covered_by_split(rows, alpha)
    thresholds = np.full(len(covered), np.nan)
    for stratum in strata:
        thresholds[stratum.inside] = stratum.threshold
    described = [_of_named(group, rows, thresholds) for group in named]
    masks = [group.rule.inside(rows.columns) for group in named]
    described += [
        _of_stratum(stratum, covered, honest=honest)
        for stratum in strata
        if not any(np.array_equal(stratum.inside, mask) for mask in masks)
    ]
    return pd.DataFrame(described, columns=list(GROUP_COLUMNS)).astype(
        {"named": bool, "n_calibration": np.int64}
    )


def _of_named(group: NamedGroup, rows: Rows, thresholds: Any) -> dict[str, Any]:
    inside = group.rule.inside(rows.columns)
    return {
        "group": "named",
        "named": True,
        "rule": group.rule.text,
        "fidelity": float(group.rule.fidelity),
        "share": group.share,
        "n_calibration": group.n_calibration,
        "coverage": group.coverage,
        "low": group.low,
        "high": group.high,
        "p_value": group.p_value,
        "threshold": float(np.median(thresholds[inside])),
        "stability": group.stability,
    }


def _of_stratum(stratum: Stratum, covered: BoolArray, *, honest: bool) -> dict[str, Any]:
    hit, n = int(covered[stratum.inside].sum()), int(stratum.inside.sum())
    low, high = clopper_pearson(hit, n)
    p_value = float("nan")
    if honest:
        rest = int(covered.sum()) - hit
        table = np.array([[hit, n - hit], [rest, len(covered) - n - rest]])
        p_value = min(1.0, stratum.n_choices * fisher_exact(table, alternative="less").pvalue)
    return {
        "group": stratum.name,
        "named": False,
        "rule": "",
        "fidelity": float("nan"),
        "share": n / max(1, len(covered)),
        "n_calibration": n,
        "coverage": hit / n if n else float("nan"),
        "low": float(low),
        "high": float(high),
        "p_value": float(p_value),
        "threshold": stratum.threshold,
        "stability": float("nan"),
    }


def check_groups(groups: Any) -> None:
    """Refuse a table of groups that is none."""
    require(isinstance(groups, pd.DataFrame) and list(groups) == list(GROUP_COLUMNS), "groups_")
    for name, kind in GROUP_COLUMNS.items():
        is_kind = groups[name].dtype.kind == kind
        is_text = all(isinstance(value, str) for value in groups[name])
        require(is_text if kind == "O" else is_kind, f"groups_.{name}")
