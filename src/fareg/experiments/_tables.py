"""Tables: means with standard errors over the repetitions, beside what the paper prints."""

from __future__ import annotations

import pandas as pd

METRIC_NAMES = {
    "group_coverage": "Group Coverage",
    "rest_coverage": "Coverage outside",
    "wsc": "WSC",
    "wsc_plus": "WSC+",
    "wsc_plus_held_out": "WSC+ held out",
    "wsc_plus_null_median": "WSC+ null",
    "ert": "ERT",
    "coverage": "Average Coverage",
    "size": "Average Size",
    "seconds": "Seconds",  # of one core, conformalize and predict_set together
}
DIGITS = {"size": 2, "seconds": 2}


def summarise(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return mean and standard error of every number, in the order in which settings appear.

    ``rows`` has one row per repetition, with the columns ``by``, which make a setting, and
    ``seed``. The result has ``by``, ``repeats``, then ``name`` and ``name_se`` for each number;
    with one repetition, the standard error is missing.
    """
    numbers = [
        name
        for name in rows.columns
        if name not in [*by, "seed"] and pd.api.types.is_numeric_dtype(rows[name])
    ]
    grouped = rows.groupby(by, sort=False, dropna=False)
    columns: dict[str, pd.Series] = {"repeats": grouped["seed"].nunique()}
    for name in numbers:
        columns[name] = grouped[name].mean()
        columns[f"{name}_se"] = grouped[name].sem()
    return pd.DataFrame(columns).reset_index()


def beside_paper(summary: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return each printed number with ours, its standard error and the difference (ours - paper).

    ``paper`` has the columns n, method, setting, metric and paper; where n or setting is missing
    it holds for all of ours.
    """
    found = []
    for printed in paper.to_dict("records"):
        same = summary["method"] == printed["method"]
        metric = str(printed["metric"])
        for name in ("n", "setting"):
            value = printed[name]
            if name in summary and pd.notna(value):
                same &= summary[name] == value
        for _, ours in summary[same].iterrows():
            found.append(
                {
                    **{name: ours[name] for name in LABELS if name in summary},
                    "metric": METRIC_NAMES.get(metric, metric),
                    "paper": printed["paper"],
                    "ours": ours[metric],
                    "standard_error": ours[f"{metric}_se"],
                    "difference": ours[metric] - printed["paper"],
                    "repeats": ours["repeats"],
                }
            )
    return pd.DataFrame(found)


LABELS = ("features", "n", "method", "setting")


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
            shown[title] = with_errors(summary, name, DIGITS.get(name, 3))
    return shown


def with_errors(summary: pd.DataFrame, name: str, digits: int = 3) -> list[str]:
    """Return a column of a summary as text, each mean with its standard error."""
    pairs = zip(summary[name], summary[f"{name}_se"], strict=True)
    return [with_error(value, error, digits) for value, error in pairs]


def with_error(value: float, error: float, digits: int = 3) -> str:
    """Return ``0.904 ± 0.005``; without a standard error only the value.

    >>> with_error(0.90412, 0.0049), with_error(2.7, float("nan"), 2)
    ('0.904 ± 0.005', '2.70')
    """
    if pd.isna(value):
        return ""
    text = f"{value:.{digits}f}"
    return text if pd.isna(error) else f"{text} ± {error:.{digits}f}"


def readable_comparison(comparison: pd.DataFrame) -> pd.DataFrame:
    """Return the table beside the paper as text."""
    shown = comparison[[name for name in LABELS if name in comparison]].copy()
    shown["metric"] = comparison["metric"]
    shown["paper"] = [f"{value:.3f}" for value in comparison["paper"]]
    pairs = zip(comparison["ours"], comparison["standard_error"], strict=True)
    shown["ours"] = [with_error(value, error) for value, error in pairs]
    shown["difference"] = [f"{value:+.3f}" for value in comparison["difference"]]
    return shown


def as_csv(table: pd.DataFrame) -> str:
    """Return a table with six digits after the point."""
    return table.to_csv(index=False, float_format="%.6f")
