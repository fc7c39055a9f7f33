"""The page of a benchmark, written from its tidy file: paired differences, averages, ranks.

What is said around the tables stands in ``page.md.jinja``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fareg._validation import FloatArray
from fareg.experiments._figures import draw_image
from fareg.experiments._methods import METHODS
from fareg.experiments._peers import PEERS
from fareg.experiments._store import write_file
from fareg.experiments._summaries import in_digits, markdown_table, with_error
from fareg.experiments._tables import LABELS, Table

SETTING = ["table", "labels", "model", "score", "n", "seed"]
SPLIT, MATCHED, ORACLE, LEVELS = (
    METHODS[name].name for name in ("split", "matched", "oracle", "levels")
)
N_RESAMPLES = 2000
ENOUGH = 0.5  # share of the settings in which a method must have been run
PAIRED = {"coverage": "Coverage", "mean_size": "Size", "worst_cells": "Worst cells"}
GAIN = "Gain at equal size"


def write_page(
    results: pd.DataFrame, tables: Sequence[Table], notes: Path, page: Path
) -> list[Path]:
    """Write the page; figures and the tidy file lie in a folder of the same name beside it.

    ``notes`` is a folder that may hold ``conclusions.md``, what people conclude from the figures,
    and ``shell.md``, further measurements; they become parts of the page.
    """
    folder = page.with_suffix("")
    parts, written = [], []
    for labels in LABELS:
        rows = compared(results, labels)
        if len(rows):
            written.append(_figure(rows, folder / f"{labels}.svg"))
            parts.append({"labels": labels, **_part(rows, tables)})
    said = {}
    for name in ("conclusions", "shell"):
        note = notes / f"{name}.md"
        said[name] = note.read_text(encoding="utf-8").strip() if note.is_file() else ""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
    )
    text = environment.get_template("page.md.jinja").render(
        spelled={name: sorted(results[name].unique()) for name in SETTING},
        n_rows=len(results),
        folder=folder.name,
        parts=parts,
        peers=_peers(results),
        failures=_failures(results),
        tables=tables,
        **said,
    )
    return [write_file(page, text), *written]


def compared(results: pd.DataFrame, labels: str) -> pd.DataFrame:
    """Return the rows of one kind of labels that can be compared, with what is paired.

    Methods that were run in less than half of the settings are left out. Of the others, only
    settings in which every method was run count, so that averages are over the same tables, models
    and seeds. A method that failed in a setting is left out there. Other packages lack some scores
    and are left out altogether.

    ``gain`` is the coverage of the worst cells less that of split sets of the same mean size,
    ``size_ratio`` the mean size relative to split sets at the confidence level.
    """
    peers = [peer.title for peer in PEERS.values()]
    own = results[(results["labels"] == labels) & ~results["method"].isin(peers)]
    runs = own.groupby("method").size()
    own = own[own["method"].map(runs) >= ENOUGH * runs.max()]
    present = own.groupby(SETTING)["method"].transform("nunique")
    own = own[(present == own["method"].nunique()) & (own["error"] == "")]
    split = own[own["method"] == SPLIT]
    if split.empty:  # no measure is paired, and failures have none
        return split
    sizes = split[[*SETTING, "mean_size"]].rename(columns={"mean_size": "of_split"})
    own = own.merge(sizes, on=SETTING)
    own["size_ratio"] = own["mean_size"] / own["of_split"]
    own["gain"] = own["worst_cells"] - own["matched_worst_cells"]
    own["seconds"] = own["fit_seconds"] + own["predict_seconds"]
    return own


def by_table(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the mean of a measure per table (rows) and method (columns)."""
    means = rows.groupby(["table", "method"])[value].mean().unstack("method")
    known = [method.name for method in METHODS.values()]
    return means[sorted(means, key=lambda name: (known.index(name) if name in known else 99, name))]


def with_interval(values: pd.Series) -> tuple[float, float, float]:
    """Return the mean over tables and its 95% bootstrap interval, tables drawn with replacement.

    >>> mean, low, high = with_interval(pd.Series([0.0, 1.0, 2.0, 3.0]))
    >>> mean, bool(0 < low < 1 < high < 3)
    (1.5, True)
    """
    present: FloatArray = values.dropna().to_numpy(np.float64)
    if len(present) < 2:
        return (float(present.mean()) if len(present) else np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    means = rng.choice(present, (N_RESAMPLES, len(present))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(present.mean()), float(low), float(high)


def _part(rows: pd.DataFrame, tables: Sequence[Table]) -> dict[str, Any]:
    titles = {table.name: table.title for table in tables}
    return {
        "n_settings": len(rows.drop_duplicates(SETTING)),
        "n_tables": rows["table"].nunique(),
        "overview": markdown_table(_overview(rows)),
        "gains": markdown_table(_gains(rows, titles)),
        "levels": markdown_table(_levels(rows, titles)),
    }


def _overview(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per method: averages over tables, gains and ranks with intervals."""
    gain = by_table(rows, "gain")
    # The oracle takes no part in the ranks, nor do split sets of another method's size.
    entered = gain.drop(columns=[ORACLE, MATCHED], errors="ignore")
    ranks = entered.rank(axis=1, ascending=False).reindex(columns=gain.columns)
    with np.errstate(divide="ignore"):  # sets of a method may all be empty
        ratio = np.exp(np.log(by_table(rows, "size_ratio")).mean())

    def mean(name: str, digits: int = 3) -> list[str]:
        return in_digits(by_table(rows, name).mean(), digits)

    shown = pd.DataFrame({"Method": list(gain), "Coverage": mean("coverage")})
    if rows["group_coverage"].notna().any():
        shown["Group with noise"] = mean("group_coverage")
    shown["Size"] = in_digits(ratio)
    shown["Worst cells"] = mean("worst_cells")
    shown[GAIN] = _intervals(gain, 3, "+")
    shown["Rank"] = _intervals(ranks, 1)
    shown["ERT under"] = mean("ert_under", 4)
    shown["WSC+ held out"] = mean("wsc_plus_held_out")
    shown["Seconds"] = mean("seconds", 2)
    shown["Trainings (s)"] = mean("training_seconds", 1)
    return shown


def _gains(rows: pd.DataFrame, titles: dict[str, str]) -> pd.DataFrame:
    means = by_table(rows, "gain")
    # Runs of one seed are averaged before the error over seeds.
    seeds = rows.groupby(["table", "method", "seed"])["gain"].mean()
    errors = seeds.groupby(["table", "method"]).sem().unstack("method")
    shown = pd.DataFrame({"Table": [titles.get(name, name) for name in means.index]})
    for method in means.columns.drop([SPLIT, MATCHED], errors="ignore"):
        pairs = zip(100 * means[method], 100 * errors[method], strict=True)
        shown[method] = [_points(mean, error) for mean, error in pairs]
    return shown


def _points(mean: float, error: float) -> str:
    text = with_error(mean, error, 1)
    clear = abs(mean) > max(2 * (0.0 if pd.isna(error) else error), 0.5)
    return f"**{text}**" if text and clear else text


def _levels(rows: pd.DataFrame, titles: dict[str, str]) -> pd.DataFrame:
    """Return split sets beside levels, table by table."""
    worst, ratio = by_table(rows, "worst_cells"), by_table(rows, "size_ratio")
    shown = pd.DataFrame({"Table": [titles.get(name, name) for name in worst.index]})
    shown["Split: coverage"] = in_digits(by_table(rows, "coverage")[SPLIT])
    shown["size"] = in_digits(by_table(rows, "mean_size")[SPLIT], 2)
    shown["worst cells"] = in_digits(worst[SPLIT])
    if LEVELS in worst:
        shown["Levels: worst cells"] = in_digits(worst[LEVELS])
        shown["size relative to split"] = in_digits(ratio[LEVELS], 2)
        named = rows[rows["method"] == LEVELS].groupby("table")["n_named"]
        shares = named.apply(lambda count: f"{(count > 0).sum()} of {len(count)}")
        shown["runs with a named group"] = shares.reindex(worst.index, fill_value="").to_numpy()
    return shown


def _peers(results: pd.DataFrame) -> str:
    """Return how the predictors of other packages differ from split sets, in equal settings."""
    done = results[results["error"] == ""].set_index(SETTING)
    split, found = done[done["method"] == SPLIT], []
    for name in (peer.title for peer in PEERS.values()):
        own = done[done["method"] == name]
        shared = own.index.intersection(split.index)
        if len(shared):
            differences = own.loc[shared, list(PAIRED)] - split.loc[shared, list(PAIRED)]
            means = dict(zip(PAIRED.values(), in_digits(differences.mean(), 4, "+"), strict=True))
            found.append({"Predictor": name, "Settings": len(shared), **means})
    return markdown_table(pd.DataFrame(found)) if found else ""


def _failures(results: pd.DataFrame) -> list[str]:
    failed = results[results["error"] != ""].groupby(["method", "error"])["table"]
    return [
        f"{method}, {len(own)} times ({', '.join(own.unique())}): {error}"
        for (method, error), own in failed
    ]


def _intervals(table: pd.DataFrame, digits: int, sign: str = "") -> list[str]:
    """Return the mean of each column with its interval, as text."""
    shown = []
    for values in (table[name] for name in table):
        mean, low, high = in_digits(with_interval(values), digits, sign)
        shown.append(f"{mean} ({low} to {high})" if low else mean)
    return shown


def _figure(rows: pd.DataFrame, path: Path) -> Path:
    """Draw the gain of each method: a grey dot per table, the mean with its interval in colour."""
    from matplotlib.figure import Figure

    gain = by_table(rows, "gain").drop(columns=[SPLIT], errors="ignore")
    figure = Figure(figsize=(7.5, 0.36 * gain.shape[1] + 1.1), layout="constrained")
    ax: Any = figure.subplots()
    places = np.arange(gain.shape[1])[::-1]
    for place, (_, values) in zip(places, gain.items(), strict=True):
        ax.scatter(100 * values, np.full(len(values), place), s=14, color="#9a9a9a", zorder=2)
        mean, low, high = with_interval(values)
        ax.plot([100 * low, 100 * high], [place, place], color="#0072b2", linewidth=2.5, zorder=3)
        ax.scatter([100 * mean], [place], s=34, color="#0072b2", zorder=4)
    ax.axvline(0.0, color="black", linewidth=0.8, zorder=1)
    ax.set_yticks(places, list(gain.columns))
    ax.set_xlabel("coverage of the worst cells, points above split sets of the same size")
    ax.grid(axis="x", alpha=0.25)
    return write_file(path, draw_image(figure, "svg"))
