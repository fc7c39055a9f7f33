"""What a target leaves in the results folder: CSV and Markdown tables, SVG and PNG figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from fareg.datasets import PAPER_STATES
from fareg.experiments._figures import draw_bars, draw_cdf, draw_panels, save_figure
from fareg.experiments._problems import DATA
from fareg.experiments._published import METRICS, published
from fareg.experiments._store import write_file
from fareg.experiments._tables import (
    as_csv,
    beside_paper,
    markdown_table,
    readable,
    readable_comparison,
    summarise,
    with_errors,
)
from fareg.experiments._targets import Target

SELECTIONS = ("selects_first", "selects_second", "selects_both")
SLAB_NAMES = {"linear": "WSC", "quadratic": "WSC+"}
SLAB_VALUES = {"value": "", "held_out": ", held out"}
FEATURES: dict[Any, str] = {10: "all ten features", 3: "the first three", 2: "the first two"}


def write_report(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the tables and figures of a target and return their paths."""
    if "conformalize_seconds" in rows:
        rows = rows.assign(seconds=rows["conformalize_seconds"] + rows["predict_seconds"])
    return REPORTS[target.report](target, rows, folder / target.name)


def _finish(target: Target, folder: Path, summary: pd.DataFrame, parts: list[str]) -> list[Path]:
    """Write the summary, the numbers beside the paper's, and both as one Markdown page."""
    written = [write_file(folder / "summary.csv", as_csv(summary))]
    text = [f"# {target.title}", *parts]
    compared = beside_paper(summary, published(target.name))
    if len(compared):
        written.append(write_file(folder / "paper.csv", as_csv(compared)))
        text += ["## Beside the paper", markdown_table(readable_comparison(compared))]
    written.append(write_file(folder / "report.md", "\n\n".join(text) + "\n"))
    return written


def _repeats(summary: pd.DataFrame) -> str:
    few, many = summary["repeats"].min(), summary["repeats"].max()
    count = f"{many}" if few == many else f"{few} to {many}"
    return f"Mean ± standard error over {count} repetition{'s' if many > 1 else ''}."


def _report_sizes(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    summary = summarise(rows, ["n", "method"])
    parts = [_repeats(summary)]
    for n, own in summary.groupby("n", sort=True):
        parts += [f"## N = {n}", markdown_table(readable(own, {"method": "Method"}))]
    written = save_figure(
        draw_panels(summary, METRICS, "n", x_label="N", log_x=True), folder / "panels"
    )
    kind = {"synthetic": "xnor"}.get(target.name, target.name)
    first, second = DATA[kind].target_features
    titles = [f"Selects {first}", f"Selects {second}", f"Selects {first} & {second}"]
    panels = {"seconds": "Time Cost (s)", **dict(zip(SELECTIONS, titles, strict=True))}
    # Oracles and size-matched sets take no time of their own.
    working = summary[~summary["method"].str.contains("Oracle|Marginal at")]
    figure = draw_panels(working, panels, "n", x_label="N", log_x=True)
    written += save_figure(figure, folder / "time-and-selection")
    parts += ["## Selected features", markdown_table(_selection_table(summary, titles))]
    return written + _finish(target, folder, summary, parts)


def _selection_table(summary: pd.DataFrame, titles: list[str]) -> pd.DataFrame:
    own = summary[summary["selects_both"].notna()]
    table = own[["n", "method"]].rename(columns={"n": "N", "method": "Method"})
    for name, title in zip(SELECTIONS, titles, strict=True):
        table[title] = with_errors(own, name, 2)
    return table


def _report_comparison(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    summary = summarise(rows, ["n", "method"])
    about = f"N = {summary['n'].iloc[0]}. {_repeats(summary)}"
    if "states" in rows:
        about += f" People of {rows['states'].iloc[0]}; the paper's: {', '.join(PAPER_STATES)}."
    parts = [about, markdown_table(readable(summary, {"method": "Method"}))]
    written = save_figure(draw_bars(summary, METRICS), folder / "comparison")
    return written + _finish(target, folder, summary, parts)


def _report_sweep(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    summary = summarise(rows, ["n", "method", "setting"])
    symbol = {"draws": "T"}.get(target.name, target.name)
    parts = [
        f"FaReG (paper), N = {summary['n'].iloc[0]}. {_repeats(summary)}",
        markdown_table(readable(summary, {"setting": symbol})),
    ]
    log_x = target.name in ("beta", "draws")
    figure = draw_panels(summary, METRICS, "setting", x_label=symbol, log_x=log_x)
    written = save_figure(figure, folder / "panels")
    return written + _finish(target, folder, summary, parts)


def _report_slabs(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    way = rows["search"].map({"random": "", "optimised": " optimised"})
    rows = rows.assign(method=rows["kind"].map(SLAB_NAMES) + way, setting=rows["delta"])
    by = ["features", "n", "method", "setting"]
    summary = summarise(rows[[*by, "seed", *SLAB_VALUES]], by)
    deviation = rows.groupby(by, sort=False)["value"].std().reset_index(name="value_sd")
    summary = summary.merge(deviation, on=by)
    parts = [_repeats(summary)]
    for count, own in summary.groupby("features", sort=False):
        tables = [_slab_table(own, value, words) for value, words in SLAB_VALUES.items()]
        parts += [f"## On {FEATURES[count]}", markdown_table(pd.concat(tables))]
    return _finish(target, folder, summary, parts)


def _slab_table(summary: pd.DataFrame, value: str, words: str) -> pd.DataFrame:
    """Return a row per metric and a column per delta; ``words`` say which value it is."""
    shown = summary.assign(text=with_errors(summary, value))
    wide = shown.pivot(index="method", columns="setting", values="text").reset_index()
    wide.columns = pd.Index(["Metric", *(f"delta = {d:g}" for d in wide.columns[1:])])
    return wide.assign(Metric=wide["Metric"] + words)


def _report_cdf(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    own = rows[(rows["delta"] == rows["delta"].max()) & (rows["search"] == "random")]
    own = own.assign(metric=own["kind"].map(SLAB_NAMES))
    values: dict[str, dict[str, object]] = {}
    for _, row in own.iterrows():
        panel = f"{FEATURES[row['features']]}, delta = {row['delta']:g}"
        values.setdefault(panel, {})[row["metric"]] = row["values"]
    quantiles = (
        own.explode("values")
        .astype({"values": float})
        .groupby(["features", "metric"], sort=False)["values"]
        .describe(percentiles=[0.05, 0.25, 0.5, 0.75])
        .drop(columns=["count", "std"])
        .reset_index()
    )
    written = save_figure(draw_cdf(values), folder / "cdf")
    lead = "Worst coverage of a direction, over the directions of one run."
    parts = [lead, markdown_table(quantiles.round(3))]
    return written + _finish(target, folder, quantiles, parts)


def _report_pictures(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    written = []
    for method, own in rows.groupby("method", sort=False):
        name = "paper" if "paper" in str(method) else "default"
        for suffix in ("svg", "png"):
            image = own[suffix].iloc[0]
            if image:
                written.append(write_file(folder / f"{name}.{suffix}", image))
    table = rows[["n", "method", "Color", "Gender", "membership"]]
    lead = "Mean membership of the test rows in the learned group."
    return written + _finish(target, folder, table, [lead, markdown_table(table.round(3))])


REPORTS: dict[str, Callable[[Target, pd.DataFrame, Path], list[Path]]] = {
    "sizes": _report_sizes,
    "comparison": _report_comparison,
    "sweep": _report_sweep,
    "slabs": _report_slabs,
    "cdf": _report_cdf,
    "pictures": _report_pictures,
}
