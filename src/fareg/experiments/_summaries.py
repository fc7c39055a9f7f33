"""From rows to tables: means with standard errors, beside what the paper prints, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

METRIC_NAMES = {
    "group_coverage": "Group Coverage",
    "rest_coverage": "Coverage outside",
    "wsc_plus": "WSC+",
    "wsc_plus_null_median": "WSC+ null",
    "ert": "ERT",
    "coverage": "Average Coverage",
    "size": "Average Size",
    "gain": "Gain at equal size",  # in group coverage, over the marginal set of the same mean size
    "seconds": "Seconds",  # of one core, fit and predict together, without the base model
}
PRINTED_METRICS = ("group_coverage", "wsc_plus", "coverage", "size")
PANELS = {name: METRIC_NAMES[name] for name in PRINTED_METRICS}
DIGITS = {"size": 2, "seconds": 2}
LABELS = ("features", "data", "codes", "base", "states", "n", "method", "setting")


def summarise(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return mean and standard error of every number, in the order in which settings appear.

    ``rows`` has one row per repetition, with the columns ``by``, which make a setting, and
    ``seed``. The result has ``by``, ``repeats``, then ``name`` and ``name_se`` for each number;
    with one repetition, the standard error is missing.
    """
    numbers = rows.drop(columns=[*by, "seed"]).select_dtypes("number").columns
    grouped = rows.groupby(by, sort=False, dropna=False)
    columns: dict[str, pd.Series] = {"repeats": grouped["seed"].nunique()}
    for name in numbers:
        columns[name] = grouped[name].mean()
        columns[f"{name}_se"] = grouped[name].sem()
    return pd.DataFrame(columns).reset_index()


@cache
def printed() -> pd.DataFrame:
    """Return the numbers that the paper prints: target, n, method, setting, metric, paper."""
    return pd.read_csv(Path(__file__).with_name("printed.csv"))


def beside_paper(summary: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return each printed number with ours, its standard error and the difference (ours - paper).

    Where n or setting of a printed number is missing it holds for all of ours. Numbers of slabs
    stand beside those on the two features that make the group.
    """
    if "features" in summary:
        summary = summary[summary["features"] == summary["features"].min()]
    found = []
    for said in printed()[printed()["target"] == target].to_dict("records"):
        same = summary["method"] == said["method"]
        for name in ("n", "setting"):
            if name in summary and pd.notna(said[name]):
                same &= summary[name] == said[name]
        metric = str(said["metric"])
        for _, ours in summary[same].iterrows():
            labels = {name: ours[name] for name in LABELS if name in summary and name != "states"}
            values = {"ours": ours[metric], "standard_error": ours[f"{metric}_se"]}
            found.append({**labels, "metric": metric, "paper": said["paper"], **values})
    return pd.DataFrame(found)


def readable_comparison(comparison: pd.DataFrame) -> pd.DataFrame:
    """Return a table beside the paper as text."""
    shown = comparison[[name for name in LABELS if name in comparison]].copy()
    shown["metric"] = [METRIC_NAMES.get(name, "") for name in comparison["metric"]]
    digits = [digits_of(name) for name in comparison["metric"]]

    def texts(*columns: pd.Series, form: Any) -> list[str]:
        return [form(*values) for values in zip(*columns, digits, strict=True)]

    ours, paper = comparison["ours"], comparison["paper"]
    shown["paper"] = texts(paper, form=lambda value, k: f"{value:.{k}f}")
    shown["ours"] = texts(ours, comparison["standard_error"], form=with_error)
    shown["difference"] = texts(ours - paper, form=lambda value, k: f"{value:+.{k}f}")
    return shown


def gain_per_size(summary: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the gain in group coverage per label that sets grow by, beside marginal sets.

    One row per method, one column per value of the last name in ``by``; missing where sets do not
    grow.
    """
    marginal = summary[summary["method"] == "Marginal"].set_index(by)[["group_coverage", "size"]]
    beyond = summary.set_index([*by, "method"])[["group_coverage", "size"]] - marginal
    grown = beyond[beyond["size"] > 1e-3]
    ratio = (grown["group_coverage"] / grown["size"]).rename("gain").reset_index()
    wide = ratio.pivot(index="method", columns=by[-1], values="gain")
    return wide.reindex([name for name in summary["method"].unique() if name in wide.index])


def markdown_table(table: pd.DataFrame) -> str:
    """Return a table of text as Markdown."""
    lines = [list(map(str, table.columns)), ["---"] * table.shape[1]]
    lines += table.astype(str).to_numpy().tolist()
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def readable(summary: pd.DataFrame, labels: dict[str, str]) -> pd.DataFrame:
    """Return a summary as text: named columns, ``mean ± standard error``.

    ``labels`` names the columns that say what a row is.
    """
    shown = pd.DataFrame({title: summary[name] for name, title in labels.items()})
    for name, title in METRIC_NAMES.items():
        if name in summary:
            shown[title] = with_errors(summary, name)
    return shown


def digits_of(metric: str) -> int:
    """Return how many digits after the point a metric is told with."""
    return DIGITS.get(metric, 3)


def with_errors(summary: pd.DataFrame, name: str, digits: int | None = None) -> list[str]:
    """Return a column of a summary as text, each mean with its standard error."""
    digits = digits_of(name) if digits is None else digits
    pairs = zip(summary[name], summary[f"{name}_se"], strict=True)
    return [with_error(value, error, digits) for value, error in pairs]


def with_error(value: float, error: float, digits: int = 3) -> str:
    """Return ``0.904 ± 0.005``; without a standard error only the value.

    >>> with_error(0.90412, 0.0049), with_error(2.7, float("nan"), 2)
    ('0.904 ± 0.005', '2.70')
    """
    text = in_digits([value], digits)[0]
    return text if not text or pd.isna(error) else f"{text} ± {error:.{digits}f}"


def in_digits(values: Iterable[Any], digits: int = 3, sign: str = "") -> list[str]:
    """Return numbers as text, empty for a missing one."""
    return ["" if pd.isna(value) else f"{value:{sign}.{digits}f}" for value in values]


def as_csv(table: pd.DataFrame) -> str:
    """Return a table with six digits after the point."""
    return table.to_csv(index=False, float_format="%.6f")
