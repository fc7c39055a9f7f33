"""Compare methods on published tables: from settings to one tidy file and a page.

The text around the tables of the page is in ``page.md.jinja``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import TemplateError
from rich.console import Console

from fareg._engines import check_engine
from fareg._files import check_output, check_outputs, kept_if_stopped
from fareg._validation import FloatArray, InvalidInputError, check_choice, check_count
from fareg.experiments._bench import Store, make_folder, write_file
from fareg.experiments._figures import draw_image
from fareg.experiments._measures import MIN_CELL
from fareg.experiments._methods import METHODS, Method, class_of, find_methods
from fareg.experiments._problems import (
    FIT_SHARE,
    LABELS,
    MODELS,
    Settings,
    Table,
    TableProblem,
    files_of,
    find_table,
    read_people,
    read_settings,
)
from fareg.experiments._reports import as_csv, in_digits, markdown_table, template_environment
from fareg.experiments._runs import MethodCell, collect, run_cells
from fareg.scores import get_score

RESULTS = "results.csv"
SETTING = ["table", "labels", "model", "score", "n", "seed"]
SPLIT = METHODS["split"].name
PEERS = ("MAPIE split", "crepes", "crepes (Mondrian)")  # of benchmarks/peers.py
N_RESAMPLES = 2000
NEXT_TO_NOTHING = 0.01  # a table with a smaller gain hardly gains
ENOUGH = 0.5  # share of the settings in which a method must have been run
PAIRED = {"coverage": "Coverage", "mean_size": "Size", "worst_cells": "Worst cells"}
KEYS = [*SETTING, "method"]


@dataclass(frozen=True)
class Benchmark:
    """The results of a run."""

    folder: Path
    results: pd.DataFrame  # a row per table, labels, model, score, size, seed and method
    files: list[Path]  # the tidy file, the page and its figures
    too_small: list[str]  # a sentence for each table and size that it is too small for

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "rows": len(self.results),
            "failures": int((self.results["error"] != "").sum()),
            "files": [str(path) for path in self.files],
            "too_small": self.too_small,
        }


def benchmark(
    settings: str | Path,
    *,
    out: str | Path = "benchmark",
    jobs: int | None = None,
    engine: str = "local",
    console: Console | None = None,
) -> Benchmark:
    """Compare methods on tables and write one tidy file, a page and its figures.

    Finished work is stored at once: a stopped run continues where it stopped, and one with more
    methods or sizes computes only these.

    Parameters
    ----------
    settings : path
        TOML file with these optional keys: ``methods`` (names of fareg's methods, by default all
        but ``paper``, the published FaReG; or ``module:Class``, or ``file.py:Class`` relative to
        the TOML file, for a class with the constructor ``Class(estimator, *, confidence_level,
        conformity_score, sensitive_features, random_state)`` and the methods ``fit(X, y)`` and
        ``predict_set(X)``, which may have a ``title``, its name, and ``scores``, those that it
        knows),
        ``models`` (hgb, logistic, network), ``scores``, ``labels`` (natural; noise in a random
        group, which the oracle knows), ``sizes``, ``repeats``, ``test_rows``, and the paths
        ``data`` and ``page``. A section ``[tables.NAME]`` for each table has ``published`` (its
        source), ``path``, ``target`` and ``sensitive``, and may have ``title``, ``drop``,
        ``clusters``, ``missing``, ``at_least`` and ``edges``. Your conclusions, in
        ``conclusions.md`` next to it, become part of the page; they may take numbers from the
        results, such as ``{{ natural.Split.coverage }}``.
    out : path, default="benchmark"
        Folder for results.
    jobs, engine, console
        As in :func:`reproduce`.
    """
    path, plan = Path(settings), read_settings(settings)
    page = path.parent / plan.page if plan.page else Path(out) / "page.md"
    methods = _check(plan, path.parent)
    tables = [find_table(table, path.parent / plan.data) for table in plan.tables]
    check_engine(engine, jobs)  # before anything is written
    data = [file for table in tables for file in files_of(table.path)]
    notes = [path, *path.parent.glob("*.md")]
    check_outputs({Path(out), page, page.with_suffix("")}, inputs=[*notes, *data])
    cells = _cells(plan, tables, methods)
    if plan.page:  # an unwritable page is refused now, not after hours
        make_folder(page.parent)
        check_output(page)
    store = Store.open(out)
    with kept_if_stopped():
        run_cells(cells, store, jobs=jobs, engine=engine, console=console)
        results = collect([(cell, _names(cell)) for cell in cells], store)
        results = results.sort_values(KEYS, kind="stable", ignore_index=True)
        results = results[[*KEYS, *results.columns.drop(KEYS)]].assign(version=version("fareg"))
        text = results.to_csv(index=False, float_format="%.5g")
        folders = (store.folder, page.with_suffix(""))
        tidy = [write_file(folder / RESULTS, text) for folder in folders]
        files = [*tidy, *write_page(results, plan.tables, path.parent, page, plan.sizes)]
        return Benchmark(store.folder, results, files, too_small(results, plan.sizes))


def _check(plan: Settings, folder: Path) -> list[Method]:
    """Check the settings, and return the methods; ``folder`` holds the files of some."""
    for key, names in {"models": MODELS, "labels": LABELS}.items():
        for name in getattr(plan, key):
            check_choice(key, name, names)
    for name in plan.scores:
        get_score(name)
    for n in plan.sizes:
        check_count("sizes", n, minimum=100)
    check_count("repeats", plan.repeats)
    check_count("test_rows", plan.test_rows, minimum=MIN_CELL)
    return find_methods(plan.methods, folder)


def _cells(plan: Settings, tables: list[Table], methods: list[Method]) -> list[MethodCell]:
    """Return every method with every score on every problem, without impossible combinations."""
    cells: dict[MethodCell, None] = {}  # without duplicates: two sizes may exceed a table
    for table in tables:
        n_rows = len(read_people(table).y)
        most = int(FIT_SHARE * n_rows)  # a small table keeps enough rows for testing
        if most < 100:
            raise InvalidInputError(
                f"{table.name} needs 170 rows with a label, got {n_rows}; omit it"
            )
        for seed, size, model, labels, score, method in product(
            range(plan.repeats), plan.sizes, plan.models, plan.labels, plan.scores, methods
        ):
            n = min(size, most)
            problem = TableProblem(table, labels, model, n, seed, min(plan.test_rows, n_rows - n))
            # some methods know few scores, and an oracle needs a known group
            knows = score in getattr(class_of(method), "scores", (score,))
            if knows and (method.kind != "oracle" or labels == "noise"):
                cells[MethodCell(problem, method, score)] = None
    if not cells:
        raise InvalidInputError(
            "nothing can be compared; name at least one model, score, kind of labels and size, and "
            "a method that works with them"
        )
    return list(cells)


def _names(cell: MethodCell) -> dict[str, Any]:
    problem = cell.problem
    model, n, seed = problem.model, problem.n, problem.seed
    values = (problem.table.name, problem.labels, model, cell.score, n, seed, cell.method.name)
    return dict(zip(KEYS, values, strict=True))


# --- the page -----------------------------------------------------------------------------------


def write_page(
    results: pd.DataFrame,
    tables: Sequence[Table],
    notes: Path,
    page: Path,
    sizes: Sequence[int] = (),
) -> list[Path]:
    """Write the page, and its figures and tables to a folder of the same name next to it."""
    folder = page.with_suffix("")
    text = page_text(results, tables, notes, folder.name, sizes)
    files: dict[Path, str | bytes] = {page: text}
    files[folder / "tables.csv"] = as_csv(table_by_table(results))
    for labels, rows in _parts(results).items():
        files[folder / f"{labels}.svg"] = draw_image(gains_figure(rows), "svg")
    return [write_file(path, content) for path, content in files.items()]


def too_small(results: pd.DataFrame, sizes: Sequence[int]) -> list[str]:
    """Return a sentence for each table that is too small for a size."""
    most = results.groupby("table", sort=False)["n"].max()
    return [
        f"{table} is too small for N = {size}: N = {n} is used instead."
        for table, n in most.items()
        for size in sizes
        if size > n
    ]


def page_text(
    results: pd.DataFrame,
    tables: Sequence[Table],
    notes: Path,
    folder: str,
    sizes: Sequence[int] = (),
) -> str:
    """Return the page as Markdown; it links the files in ``folder``.

    ``notes`` is a folder that may hold ``conclusions.md``, people's conclusions, and ``shell.md``,
    further measurements; they become parts of the page. Both are templates, which take their
    numbers from ``natural`` and ``noise``: means over tables, by method and measure.
    """
    environment, parts, texts = template_environment(), _parts(results), {}
    facts = {labels: _facts(rows) for labels, rows in parts.items()}
    for name in ("conclusions", "shell"):
        note = notes / f"{name}.md"
        text = note.read_text(encoding="utf-8").strip() if note.is_file() else ""
        try:
            texts[name] = environment.from_string(text).render(facts)
        except TemplateError as error:
            message = f"{note} is not a template that can be filled: {error}"
            raise InvalidInputError(message) from error
    return environment.get_template("page.md.jinja").render(
        spelled={name: sorted(results[name].unique()) for name in SETTING},
        versions=sorted(set(results.get("version", ()))),
        folder=folder,
        parts=[
            {
                "labels": labels,
                "n_settings": len(rows.drop_duplicates(SETTING)),
                "n_tables": rows["table"].nunique(),
                "overview": markdown_table(_overview(rows)),
            }
            for labels, rows in parts.items()
        ],
        too_small=too_small(results, sizes),
        peers=_peers(results),
        failures=_failures(results),
        tables=tables,
        **texts,
    )


def _parts(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    parts = {labels: compared(results, labels) for labels in LABELS}
    return {labels: rows for labels, rows in parts.items() if len(rows)}


def compared(results: pd.DataFrame, labels: str) -> pd.DataFrame:
    """Return the rows of one kind of labels that can be compared, with paired measures.

    Methods that were run in less than half of the settings are left out. Of the others, only
    settings in which every method was run count, so that averages are over the same tables, models
    and seeds. A method that failed in a setting is left out there. Other packages lack some scores
    and are left out altogether.

    ``gain`` is the coverage of the worst cells minus that of split sets of the same mean size,
    ``group_gain`` the same for the group with noise, ``size_ratio`` the mean size relative to split
    sets at the same confidence.
    """
    rows = results[(results["labels"] == labels) & ~results["method"].isin(PEERS)]
    runs = rows.groupby("method").size()
    rows = rows[rows["method"].map(runs) >= ENOUGH * runs.max()]
    present = rows.groupby(SETTING)["method"].transform("nunique")
    rows = rows[(present == rows["method"].nunique()) & (rows["error"] == "")]
    split = rows[rows["method"] == SPLIT]
    if split.empty:  # nothing to pair with
        return split
    sizes = split.set_index(SETTING)["mean_size"].rename("of_split")
    rows = rows.join(sizes, on=SETTING, how="inner")
    return rows.assign(
        size_ratio=rows["mean_size"] / rows["of_split"],
        gain=rows["worst_cells"] - rows["matched_worst_cells"],
        group_gain=rows["group_coverage"] - rows["matched_group_coverage"],
        seconds=rows["fit_seconds"] + rows["predict_seconds"],
    )


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


def table_by_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return means per kind of labels, table and method; the error of the gain is over seeds."""
    keys = ["labels", "table", "method"]
    found = [pd.DataFrame(columns=keys)]
    for rows in _parts(results).values():
        shown = ["coverage", "mean_size", "size_ratio", "worst_cells", "gain"]
        shown += ["group_coverage", "group_gain"]
        means = rows.groupby(keys)[shown].mean()
        seeds = rows.groupby([*keys, "seed"])["gain"].mean()  # the runs of a seed count once
        means["gain_error"] = seeds.groupby(keys).sem()
        if "n_named" in rows:  # only some methods name groups
            named = (rows["n_named"] > 0).where(rows["n_named"].notna())
            means["share_named"] = named.groupby([rows[key] for key in keys]).mean()
        found.append(means.reset_index())
    return pd.concat(found, ignore_index=True)


def _facts(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    measures = {
        "coverage": by_table(rows, "coverage").mean(),
        "worst": by_table(rows, "worst_cells").mean(),
        "group": by_table(rows, "group_coverage").mean(),
        "larger": _size_ratios(rows) - 1,
        "gain": by_table(rows, "gain").mean(),
        "group_gain": by_table(rows, "group_gain").mean(),
    }
    known = rows["group_gain"].notna().any()
    gains = by_table(rows, "group_gain" if known else "gain")
    return {
        method: {name: f"{100 * means[method]:.1f}" for name, means in measures.items()}
        | spread(gains[method])
        for method in rows["method"].unique()
    }


def spread(gains: pd.Series) -> dict[str, str]:
    """Return the two tables that gain most, their share in percent, and those that hardly gain.

    >>> spread(pd.Series({"a": 0.3, "b": 0.002, "c": 0.05, "d": 0.05}))
    {'most': 'a and c', 'share': '87', 'little': 'b'}
    """
    most = gains.sort_values(ascending=False, kind="stable")[:2]
    little = gains.index[gains < NEXT_TO_NOTHING]
    return {
        "most": " and ".join(map(str, most.index)),
        "share": f"{100 * most.sum() / gains.sum():.0f}" if gains.sum() > 0 else "0",
        "little": ", ".join(map(str, little)) or "none",
    }


def _size_ratios(rows: pd.DataFrame) -> pd.Series:
    """Return geometric means over tables of sizes relative to split sets."""
    with np.errstate(divide="ignore"):  # sets of a method may all be empty
        return np.exp(np.log(by_table(rows, "size_ratio")).mean())


def _overview(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per method: averages over tables, gains with intervals."""
    gain = by_table(rows, "gain")

    def mean(name: str, digits: int = 3) -> list[str]:
        return in_digits(by_table(rows, name).mean(), digits)

    shown = pd.DataFrame({"Method": list(gain), "Coverage": mean("coverage")})
    if rows["group_coverage"].notna().any():
        shown["Group with noise"] = mean("group_coverage")
        shown["Its gain"] = in_digits(by_table(rows, "group_gain").mean(), 3, "+")
    shown["Size"] = in_digits(_size_ratios(rows))
    shown["Worst cells"] = mean("worst_cells")
    ends = [in_digits(with_interval(gain[name]), 3, "+") for name in gain]
    shown["Gain at equal size"] = [
        f"{mean} ({low}, {high})" if low else mean for mean, low, high in ends
    ]
    shown["Seconds"] = mean("seconds", 2)
    return shown


def _peers(results: pd.DataFrame) -> str:
    done = results[results["error"] == ""].set_index(SETTING)
    split, found = done[done["method"] == SPLIT], []
    for name in PEERS:
        peer = done[done["method"] == name]
        shared = peer.index.intersection(split.index)
        if len(shared):
            differences = peer.loc[shared, list(PAIRED)] - split.loc[shared, list(PAIRED)]
            means = dict(zip(PAIRED.values(), in_digits(differences.mean(), 4, "+"), strict=True))
            found.append({"Predictor": name, "Settings": len(shared), **means})
    return markdown_table(pd.DataFrame(found)) if found else ""


def _failures(results: pd.DataFrame) -> list[str]:
    failed = results[results["error"] != ""].groupby(["method", "error"])["table"]
    return [
        f"{method}, {len(tables)} times ({', '.join(tables.unique())}): {error}"
        for (method, error), tables in failed
    ]


def gains_figure(rows: pd.DataFrame) -> Any:
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
    return figure
