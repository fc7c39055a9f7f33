"""What a target leaves in the results folder: CSV and Markdown tables, SVG and PNG figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg.datasets import PAPER_STATES
from fareg.experiments._figures import draw_bars, draw_cdf, draw_moves, draw_panels, save_figure
from fareg.experiments._paper_problems import DATA
from fareg.experiments._settings import BaseModel
from fareg.experiments._store import write_file
from fareg.experiments._summaries import (
    PANELS,
    as_csv,
    beside_paper,
    gain_per_size,
    in_digits,
    markdown_table,
    readable,
    readable_comparison,
    summarise,
    with_errors,
)
from fareg.experiments._targets import Target
from fareg.paper import PublishedFaReGClassifier

SELECTIONS = ("first", "second", "both")
SLAB_NAMES = {"linear": "WSC", "quadratic": "WSC+"}
SLAB_VALUES = {"value": "", "held_out": ", held out"}
FEATURES: dict[Any, str] = {10: "all ten features", 3: "the first three", 2: "the first two"}
VARIANTS = ("base", "codes", "data")  # a comparison has a table for each value of these
SHOWN = ("delta", "beta", "n_draws", "epochs", "batch_size", "learning_rate", "hidden_sizes")

# A summary, the parts of a page and the figures of a target.
Report = tuple[pd.DataFrame, list[str], dict[str, Any]]


def write_report(target: Target, rows: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the tables and figures of a target and return their paths."""
    if "fit_seconds" in rows:
        rows = rows.assign(seconds=rows["fit_seconds"] + rows["predict_seconds"])
    summary, parts, figures = REPORTS[target.report](target, rows)
    place = folder / target.name
    written = [path for name, own in figures.items() for path in save_figure(own, place / name)]
    written.append(write_file(place / "summary.csv", as_csv(summary)))
    text = [f"# {target.title}", *parts]
    compared = beside_paper(summary, target.name)
    if len(compared):
        written.append(write_file(place / "paper.csv", as_csv(compared)))
        text += ["## Beside the paper", markdown_table(readable_comparison(compared))]
    if "fit_seconds" in rows:
        text += ["## Settings", markdown_table(settings_table())]
    return [*written, write_file(place / "report.md", "\n\n".join(text) + "\n")]


def settings_table() -> pd.DataFrame:
    """Return the hyperparameters of FaReG (paper), and those of the base network."""
    said: dict[str, dict[str, Any]] = {}
    for data in ("synthetic", "nursery"):
        own = PublishedFaReGClassifier.published(data=data).get_params(deep=False)
        said[f"FaReG (paper), {data}"] = {name: own[name] for name in SHOWN if name in own}
    base = BaseModel()
    said["Base network"] = {
        item.name: getattr(base, item.name) for item in fields(base) if item.name != "kind"
    }
    pairs = [(name, ", ".join(f"{k} {v}" for k, v in own.items())) for name, own in said.items()]
    return pd.DataFrame(pairs, columns=["Model", "Hyperparameters"])


def _repeats(summary: pd.DataFrame) -> str:
    few, many = summary["repeats"].min(), summary["repeats"].max()
    count = f"{many}" if few == many else f"{few} to {many}"
    return f"Mean ± standard error over {count} repetition{'s' if many > 1 else ''}."


def _tables(summary: pd.DataFrame, by: str, titles: str) -> Iterable[str]:
    """Yield a heading and a table for each value of a column."""
    for value, own in summary.groupby(by, sort=False):
        yield f"## {titles.format(value)}"
        yield markdown_table(readable(own, {"method": "Method"}))


def _report_sizes(target: Target, rows: pd.DataFrame) -> Report:
    summary = summarise(rows, ["n", "method"])
    first, second = DATA["xnor" if target.name == "synthetic" else target.name].target_features
    titles = [first, second, f"{first} & {second}"]
    gains = gain_per_size(summary, ["n"]).apply(lambda column: in_digits(column, 2))
    parts = [
        _repeats(summary),
        *_tables(summary, "n", "N = {}"),
        "## Gain in group coverage per label that sets grow by, beside marginal sets",
        markdown_table(gains.add_prefix("N = ").reset_index(names="Method")),
        "## Selected features",
        markdown_table(_selection_table(summary, ["n"], titles)),
    ]
    panels = {"seconds": "Time Cost (s)"}
    panels |= {f"selects_{w}": f"Selects {t}" for w, t in zip(SELECTIONS, titles, strict=True)}
    # Oracles and size-matched sets take no time of their own.
    working = summary[~summary["method"].str.contains("Oracle|Marginal at")]
    return (
        summary,
        parts,
        {
            "panels": draw_panels(summary, PANELS, "n", x_label="N", log_x=True),
            "time-and-selection": draw_panels(working, panels, "n", x_label="N", log_x=True),
        },
    )


def _selection_table(summary: pd.DataFrame, by: list[str], titles: list[str]) -> pd.DataFrame:
    own = summary[summary["selects_both"].notna()]
    table = own[[*by, "method"]].rename(columns={"n": "N", "data": "Data", "method": "Method"})
    for which, title in zip(SELECTIONS, titles, strict=True):
        table[f"{title[0].upper()}{title[1:]}"] = with_errors(own, f"selects_{which}", 2)
    for which, title in zip(SELECTIONS, titles, strict=True):
        table[f"{title[0].upper()}{title[1:]}, by ratio"] = with_errors(own, f"ratio_{which}", 2)
    return table


def _report_selection(target: Target, rows: pd.DataFrame) -> Report:
    summary = summarise(rows, ["data", "n", "method"])
    titles = ["Color", "Gender", "Both"]
    lead = (
        f"{_repeats(summary)} Selected by the change of reconstruction as a share of the feature's "
        "range, and as a ratio to its value. A feature that is selected without any group says "
        "nothing."
    )
    parts = [lead, markdown_table(_selection_table(summary, ["data", "n"], titles))]
    panels = {f"selects_{which}": title for which, title in zip(SELECTIONS, titles, strict=True)}
    paper = summary[summary["method"].str.contains("paper")]
    ratio = paper.assign(method=paper["method"] + ", by ratio")
    for which in SELECTIONS:
        for end in ("", "_se"):
            ratio[f"selects_{which}{end}"] = paper[f"ratio_{which}{end}"]
    drawn = pd.concat([summary, ratio])
    drawn = drawn.assign(method=drawn["method"] + ", " + drawn["data"])
    figure = draw_panels(drawn, panels, "n", x_label="N", log_x=True)
    return summary, parts, {"selection": figure}


def _report_comparison(target: Target, rows: pd.DataFrame) -> Report:
    variants = [name for name in VARIANTS if name in rows]
    summary = summarise(rows, [*variants, "n", "method"])
    about = f"N = {summary['n'].iloc[0]}. {_repeats(summary)}"
    if "states" in rows:
        about += f" People of {rows['states'].iloc[0]}; the paper's: {', '.join(PAPER_STATES)}."
    if not variants:
        parts = [about, markdown_table(readable(summary, {"method": "Method"}))]
        return summary, parts, {"comparison": draw_bars(summary, PANELS)}
    parts = [about, *_tables(summary, variants[0], variants[0].capitalize() + ": {}")]
    own = summary.groupby(variants[0], sort=False)
    figures = {f"comparison-{k}": draw_bars(part, PANELS) for k, (_, part) in enumerate(own, 1)}
    return summary, parts, figures


def _report_sweep(target: Target, rows: pd.DataFrame) -> Report:
    summary = summarise(rows, ["n", "method", "setting"])
    symbol = {"draws": "T", "delta-draws": "delta"}.get(target.name, target.name)
    labels = {"method": "Method"} if summary["method"].nunique() > 1 else {}
    parts = [
        f"FaReG (paper), N = {summary['n'].iloc[0]}. {_repeats(summary)}",
        markdown_table(readable(summary, {**labels, "setting": symbol})),
    ]
    log_x = target.name in ("beta", "draws")
    figure = draw_panels(summary, PANELS, "setting", x_label=symbol, log_x=log_x)
    return summary, parts, {"panels": figure}


def _report_slabs(target: Target, rows: pd.DataFrame) -> Report:
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
    return summary, parts, {}


def _slab_table(summary: pd.DataFrame, value: str, words: str) -> pd.DataFrame:
    """Return a row per metric and a column per delta; ``words`` say which value it is."""
    shown = summary.assign(text=with_errors(summary, value))
    wide = shown.pivot(index="method", columns="setting", values="text").reset_index()
    wide.columns = pd.Index(["Metric", *(f"delta = {d:g}" for d in wide.columns[1:])])
    return wide.assign(Metric=wide["Metric"] + words)


def _report_cdf(target: Target, rows: pd.DataFrame) -> Report:
    own = rows[(rows["delta"] == rows["delta"].max()) & (rows["search"] == "random")]
    own = own.assign(method=own["kind"].map(SLAB_NAMES))
    values: dict[str, dict[str, object]] = {}
    for _, row in own.iterrows():
        panel = f"{FEATURES[row['features']]}, delta = {row['delta']:g}"
        values.setdefault(panel, {})[row["method"]] = row["values"]
    each = own.explode("values").astype({"values": float}).groupby(["features", "method"])["values"]
    quantiles = each.describe(percentiles=[0.05, 0.25, 0.5, 0.75]).drop(columns=["count", "std"])
    quantiles = quantiles.reset_index()
    lead = "Worst coverage of a direction, over the directions of one run."
    return quantiles, [lead, markdown_table(quantiles.round(3))], {"cdf": draw_cdf(values)}


def _report_pictures(target: Target, rows: pd.DataFrame) -> Report:
    summary = rows[["n", "seed", "step", "inside", "membership"]]
    pairs = zip(summary["inside"], summary["membership"], strict=True)
    cells = [f"{inside:.2f} ({membership:.2f})" for inside, membership in pairs]
    wide = summary.assign(cell=cells).pivot(index="seed", columns="step", values="cell")
    lead = (
        f"N = {rows['n'].iloc[0]}. Share of reconstructed rows in the true group, and mean "
        "membership in brackets, by the step along the latent."
    )
    table = wide.add_prefix("+").reset_index(names="Seed")
    return summary, [lead, markdown_table(table)], {"reconstructions": draw_moves(rows)}


def _report_time(target: Target, rows: pd.DataFrame) -> Report:
    summary = summarise(rows, ["method", "n"])
    fits = []
    for method, own in summary.groupby("method", sort=False):
        n, seconds = own["n"].to_numpy(float), own["seconds"].to_numpy(float)
        slope, fixed = np.polyfit(n, seconds, 1)
        left = ((seconds - slope * n - fixed) ** 2).sum() / ((seconds - seconds.mean()) ** 2).sum()
        exponent = np.polyfit(np.log(n), np.log(seconds), 1)[0]
        times = dict(zip(own["n"].map("N = {}".format), in_digits(seconds), strict=True))
        fit = (1000 * slope, fixed, 1 - left, exponent)
        names = ("Seconds per 1,000 rows", "Fixed seconds", "R2 of the line", "Exponent")
        fits.append({"Method": method, **times, **dict(zip(names, in_digits(fit), strict=True))})
    parts = [_repeats(summary), markdown_table(pd.DataFrame(fits))]
    panels = {"seconds": "Time Cost (s)"}
    return summary, parts, {"time": draw_panels(summary, panels, "n", x_label="N", log_x=True)}


REPORTS: dict[str, Callable[[Target, pd.DataFrame], Report]] = {
    "sizes": _report_sizes,
    "selection": _report_selection,
    "comparison": _report_comparison,
    "sweep": _report_sweep,
    "slabs": _report_slabs,
    "cdf": _report_cdf,
    "pictures": _report_pictures,
    "time": _report_time,
}
