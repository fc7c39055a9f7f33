"""The page of a benchmark, written from its tidy file: tables, figures and how they are made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg.experiments._figures import draw_image
from fareg.experiments._store import write_file
from fareg.experiments._tables import markdown_table, with_error
from fareg.experiments.arena import _summary as summary
from fareg.experiments.arena._tables import Table

CONCLUSIONS, SHELL = "conclusions.md", "shell.md"
TITLES = {"natural": "Labels as they are", "noise": "Label noise in a random group"}
LEADS = {
    "natural": "Nobody knows who is worse off; the worst cells are looked for on test rows.",
    "noise": (
        "Seven in ten labels of a random group are drawn from everyone's labels. The group is a "
        "union of cells of up to two sensitive features with at most 30% of the rows, or the "
        "smallest cell if every one has more. The oracle knows the group and calibrates it on its "
        "own."
    ),
}
NOTHING = (
    "There is nothing to compare: figures are beside those of split sets, which did not succeed in "
    "any setting of all methods. Run the benchmark with the method split, too."
)
GAIN = "Gain at equal size"
MEASURED = """\
## How it is measured

Every method is fitted on the same rows: half of N train the base model, half calibrate, others
test; people with several rows are on one side only. Methods that learn from training rows see
out-of-fold probabilities of five more trainings. The base model of a table, size and seed is
trained once and shared by all methods and scores. The level is 90%.

- **Worst cells.** Cells are the levels of each sensitive feature (numbers with many values cut at
  quartiles) and of every two of them, with at least 60 test rows; where there is none, this
  figure and what follows from it are missing. A random half A of the test rows
  chooses the three cells with the lowest shrunken coverage, `(k_A + 20 * 0.9) / (n_A + 20)` for
  `k_A` of `n_A` rows covered; the other half B measures them, `sum k_B / sum n_B`. The figure is
  the mean over 40 random halvings. No row both chooses and measures: if coverage were equal
  everywhere, the figure would be the average coverage, however many cells there are.
- **Gain at equal size.** Coverage of the worst cells less that of split sets with the one threshold
  for everyone at which the mean size is that of the method. Larger sets cover more people in every
  cell; only what is left after this comparison is due to the method.
- **Size** is relative to split sets at 90%, a geometric mean over tables.
- **ERT under** is the under part of the excess risk of the target coverage on the sensitive
  features (L1, cross-fitted boosting): a lower bound of the mean of `max(0.9 - p(x), 0)`; it may
  be negative by chance.
- **WSC+ held out**: the worst slab of mass 0.2 of a quadratic form, found on half of the test rows
  by an optimised search and measured on the other half.
- **Seconds** are processor time of fit and predict, without the trainings of the base model, which
  the next column tells.
- **Intervals** are 95% bootstrap intervals of a mean over tables, tables drawn with replacement.
  **Ranks** order the methods by the gain at equal size within each table, 1 is best; they are
  averaged over tables. Standard errors of one table are over seeds.
"""


def write_page(
    results: pd.DataFrame, tables: Sequence[Table], notes: Path, page: Path
) -> list[Path]:
    """Write the page; figures and the tidy file lie in a folder of the same name beside it.

    ``notes`` is a folder that may hold ``conclusions.md``, what people conclude from the figures,
    and ``shell.md``, further measurements; they become parts of the page.
    """
    folder = page.with_suffix("")
    parts = ["# Real tables", _introduction(results, folder.name)]
    written = []
    for name in (CONCLUSIONS, *TITLES, SHELL):
        if name in TITLES:
            rows = summary.compared(results, name)
            if len(rows):
                written.append(_figure(rows, folder / f"{name}.svg"))
                parts += _section(rows, name, tables, folder.name)
        elif (notes / name).is_file():
            parts.append((notes / name).read_text(encoding="utf-8").strip())
    if not written:
        parts.append(NOTHING)
    parts += [_peers(results), _failures(results), MEASURED.strip(), _sources(tables)]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return [write_file(page, text), *written]


def _introduction(results: pd.DataFrame, folder: str) -> str:
    def spell(name: str) -> str:
        return ", ".join(str(value) for value in sorted(results[name].unique()))

    return (
        f"`fareg benchmark` on {results['table'].nunique()} prediction tasks from published "
        f"tables: base models {spell('model')}; scores {spell('score')}; N = {spell('n')} rows "
        f"that train and calibrate; up to {results['seed'].nunique()} seeds; {len(results)} rows "
        f"in [results.csv]({folder}/results.csv). The command wrote this page from that file; the "
        "conclusions are ours."
    )


def _section(rows: pd.DataFrame, labels: str, tables: Sequence[Table], folder: str) -> list[str]:
    settings = rows.drop_duplicates(list(summary.SETTING))
    counted = (
        f"{LEADS[labels]} {len(settings)} settings on {rows['table'].nunique()} tasks, in which "
        "every method was run; means over tasks."
    )
    titles = {table.name: table.title for table in tables}
    parts = [
        f"## {TITLES[labels]}",
        counted,
        markdown_table(_overview(rows)),
        f"![Gain at equal size, by method and table]({folder}/{labels}.svg)",
        f"### {GAIN}, by table",
        "Difference in coverage of the worst cells to split sets of the same mean size, in points "
        "(0.01), ± standard error over seeds; bold beyond two standard errors and half a point.",
        markdown_table(_gains(rows, titles)),
        "### What split sets leave, and what levels do about it",
        markdown_table(_levels(rows, titles)),
    ]
    runs = _by_run(rows)
    if runs.shape[1] > 2:
        parts += [f"### {GAIN}, by base model, score and N, in points", markdown_table(runs)]
    return parts


def _overview(rows: pd.DataFrame) -> pd.DataFrame:
    found = summary.overview(rows)
    shown = pd.DataFrame({"Method": found.index})
    shown["Coverage"] = _digits(found["coverage"])
    if found["group_coverage"].notna().any():
        shown["Group with noise"] = _digits(found["group_coverage"])
    shown["Size"] = _digits(found["size_ratio"])
    shown["Worst cells"] = _digits(found["worst_cells"])
    shown[GAIN] = _intervals(found, "gain", 3, "+")
    shown["Rank"] = _intervals(found, "rank", 1)
    shown["ERT under"] = _digits(found["ert_under"], 4)
    shown["WSC+ held out"] = _digits(found["wsc_plus_held_out"])
    shown["Seconds"] = _digits(found["seconds"], 2)
    shown["Trainings (s)"] = _digits(found["training_seconds"], 1)
    return shown


def _gains(rows: pd.DataFrame, titles: dict[str, str]) -> pd.DataFrame:
    means, errors = summary.by_table(rows, "gain"), summary.error_by_table(rows, "gain")
    methods = [name for name in means if name not in (summary.SPLIT_NAME, summary.MATCHED_NAME)]
    shown = pd.DataFrame({"Table": [titles.get(name, name) for name in means.index]})
    for method in methods:
        pairs = zip(100 * means[method], 100 * errors[method], strict=True)
        shown[method] = [_points(mean, error) for mean, error in pairs]
    return shown


def _points(mean: float, error: float) -> str:
    text = with_error(mean, error, 1)
    clear = abs(mean) > max(2 * (0.0 if pd.isna(error) else error), 0.5)
    return f"**{text}**" if text and clear else text


def _levels(rows: pd.DataFrame, titles: dict[str, str]) -> pd.DataFrame:
    """Return split sets beside levels, table by table."""
    worst, ratio = summary.by_table(rows, "worst_cells"), summary.by_table(rows, "size_ratio")
    size, coverage = summary.by_table(rows, "mean_size"), summary.by_table(rows, "coverage")
    shown = pd.DataFrame({"Table": [titles.get(name, name) for name in worst.index]})
    shown["Split: coverage"] = _digits(coverage[summary.SPLIT_NAME])
    shown["size"] = _digits(size[summary.SPLIT_NAME], 2)
    shown["worst cells"] = _digits(worst[summary.SPLIT_NAME])
    levels = "FaReG (levels)"
    if levels in worst:
        shown["Levels: worst cells"] = _digits(worst[levels])
        shown["size relative to split"] = _digits(ratio[levels], 2)
        named = rows[rows["method"] == levels].groupby("table")["n_named"]
        shares = named.apply(lambda count: f"{(count > 0).sum()} of {len(count)}")
        shown["runs with a named group"] = shares.reindex(worst.index, fill_value="").to_numpy()
    return shown


def _by_run(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean gain of each method by base model and score, and by N."""
    groups = {f"{model}, {score}": own for (model, score), own in rows.groupby(["model", "score"])}
    sizes = {f"N = {n}": own for n, own in rows.groupby("n") if own["table"].nunique() > 1}
    groups |= sizes if len(sizes) > 1 else {}
    shown = pd.DataFrame({"Method": list(summary.by_table(rows, "gain"))})
    for name, own in groups.items():
        means = own.groupby("method")["gain"].mean()
        shown[name] = _digits(100 * means.reindex(shown["Method"]), 1, "+")
    return shown


def _peers(results: pd.DataFrame) -> str:
    found = summary.beside_split(results)
    if found.empty:
        return ""
    shown = pd.DataFrame({"Predictor": found["method"], "Settings": found["settings"]})
    titles = {"coverage": "Coverage", "mean_size": "Size", "worst_cells": "Worst cells"}
    for name, title in titles.items():
        shown[title] = _digits(found[name], 4, "+")
    lead = "Mean differences from split sets of fareg, on the same split, base model and score."
    return "\n\n".join(["## Other packages", lead, markdown_table(shown)])


def _failures(results: pd.DataFrame) -> str:
    failed = results[results["error"] != ""]
    if failed.empty:
        return ""
    lines = ["## Failures", ""]
    for (method, error), own in failed.groupby(["method", "error"])["table"]:
        lines.append(f"- {method}, {len(own)} times ({', '.join(own.unique())}): {error}")
    return "\n".join(lines)


def _sources(tables: Sequence[Table]) -> str:
    lines = ["## The tables", "", "The tables are not part of the package.", ""]
    for table in tables:
        sensitive = ", ".join(table.sensitive)
        lines.append(f"- {table.title}, sensitive: {sensitive} ({table.published})")
    return "\n".join(lines)


def _digits(values: pd.Series, digits: int = 3, sign: str = "") -> list[str]:
    return ["" if pd.isna(value) else f"{value:{sign}.{digits}f}" for value in values]


def _intervals(found: pd.DataFrame, name: str, digits: int, sign: str = "") -> list[str]:
    shown = []
    for value, low, high in found[[name, f"{name}_low", f"{name}_high"]].to_numpy():
        numbers = [f"{number:{sign}.{digits}f}" for number in (value, low, high)]
        text = numbers[0] if np.isnan(low) else f"{numbers[0]} ({numbers[1]} to {numbers[2]})"
        shown.append("" if np.isnan(value) else text)
    return shown


def _figure(rows: pd.DataFrame, path: Path) -> Path:
    """Draw the gain of each method: a grey dot per table, the mean with its interval in colour."""
    from matplotlib.figure import Figure

    gain = summary.by_table(rows, "gain").drop(columns=[summary.SPLIT_NAME], errors="ignore")
    figure = Figure(figsize=(7.5, 0.36 * gain.shape[1] + 1.1), layout="constrained")
    ax: Any = figure.subplots()
    places = np.arange(gain.shape[1])[::-1]
    for place, (_, values) in zip(places, gain.items(), strict=True):
        ax.scatter(100 * values, np.full(len(values), place), s=14, color="#9a9a9a", zorder=2)
        mean, low, high = summary.with_interval(values)
        ax.plot([100 * low, 100 * high], [place, place], color="#0072b2", linewidth=2.5, zorder=3)
        ax.scatter([100 * mean], [place], s=34, color="#0072b2", zorder=4)
    ax.axvline(0.0, color="black", linewidth=0.8, zorder=1)
    ax.set_yticks(places, list(gain.columns))
    ax.set_xlabel("coverage of the worst cells, points above split sets of the same size")
    ax.grid(axis="x", alpha=0.25)
    return write_file(path, draw_image(figure, "svg"))
