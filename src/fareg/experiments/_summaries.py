"""From rows to tables: means with standard errors, next to what the paper prints, as Markdown."""

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
    "per_label": "Gain per label",  # in group coverage, per label that sets grow by
    "seconds": "Seconds",  # of one core, fit and predict together, without the base model
}
PRINTED_METRICS = ("group_coverage", "wsc_plus", "coverage", "size")
DECIDING = ("group_coverage", "coverage", "wsc_plus", "size", "gain")  # what tables show
PANELS = {name: METRIC_NAMES[name] for name in PRINTED_METRICS}
DIGITS = {"size": 2, "per_label": 2, "seconds": 2}
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


def with_paper(summary: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return a summary with a column ``metric_paper`` for each metric that the paper prints.

    Where n or setting of a printed number is missing it holds for all of ours. Numbers of slabs
    stand next to those on the two features that make the group.
    """
    summary = summary.copy()
    for said in printed()[printed()["target"] == target].to_dict("records"):
        same = summary["method"] == said["method"]
        for name in ("n", "setting"):
            if name in summary and pd.notna(said[name]):
                same &= summary[name] == said[name]
        if "features" in summary:
            same &= summary["features"] == summary["features"].min()
        summary.loc[same, f"{said['metric']}_paper"] = said["paper"]
    return summary


def markdown_table(table: pd.DataFrame) -> str:
    """Return a table of text as Markdown.

    >>> print(markdown_table(pd.DataFrame({"Method": ["Split"], "Size": ["1.20"]})))
    | Method | Size |
    |---|---|
    | Split | 1.20 |
    """
    rows = [list(map(str, table.columns)), *table.astype(str).to_numpy().tolist()]
    head, *body = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([head, "|" + "---|" * table.shape[1], *body])


def readable(
    summary: pd.DataFrame, labels: dict[str, str], metrics: Iterable[str] = DECIDING
) -> pd.DataFrame:
    """Return metrics as text: named columns, ``mean±standard error (paper)``.

    ``labels`` names the columns that say what a row is.
    """
    shown = pd.DataFrame({title: summary[name] for name, title in labels.items()})
    for name in metrics:
        if name in summary:
            shown[METRIC_NAMES[name]] = with_errors(summary, name)
    return shown


def digits_of(metric: str) -> int:
    """Return with how many digits after the point a metric is shown."""
    return DIGITS.get(metric, 3)


def with_errors(summary: pd.DataFrame, name: str, digits: int | None = None) -> list[str]:
    """Return a column of a summary as text: mean, standard error, what the paper prints."""
    digits = digits_of(name) if digits is None else digits
    missing = [float("nan")] * len(summary)
    pairs = zip(summary[name], summary.get(f"{name}_se", missing), strict=True)
    texts = [with_error(value, error, digits) for value, error in pairs]
    paper = in_digits(summary.get(f"{name}_paper", missing), digits)
    return [
        f"{ours} ({theirs})" if theirs else ours for ours, theirs in zip(texts, paper, strict=True)
    ]


def with_error(value: float, error: float, digits: int = 3) -> str:
    """Return ``0.904±0.005``; without a standard error only the value.

    >>> with_error(0.90412, 0.0049), with_error(2.7, float("nan"), 2)
    ('0.904±0.005', '2.70')
    """
    text = in_digits([value], digits)[0]
    return text if not text or pd.isna(error) else f"{text}±{error:.{digits}f}"


def in_digits(values: Iterable[Any], digits: int = 3, sign: str = "") -> list[str]:
    """Return numbers as text, empty for a missing one."""
    return ["" if pd.isna(value) else f"{value:{sign}.{digits}f}" for value in values]


def as_csv(table: pd.DataFrame) -> str:
    """Return a table with six digits after the point."""
    return table.to_csv(index=False, float_format="%.6f")
