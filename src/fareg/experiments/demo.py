"""The method on one screen: sets that are fine on average leave out a group, and levels fix it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._files import check_output
from fareg._rows import check_numpy_seed
from fareg._threads import few_threads
from fareg.classifiers import FaReGClassifier
from fareg.experiments._bench import BaseModel, Bench, Store, make_folder, write_file
from fareg.experiments._figures import draw_image
from fareg.experiments._measures import covered_rows
from fareg.experiments._methods import MARGINAL, ORACLE, OUT_OF_FOLD, Method, fitted, sets_of
from fareg.experiments._problems import PaperProblem

N_FIT, N_TEST = 3_000, 5_000
FIGURES = ("demo.png", "demo-levels.png")
SPLIT, LEVELS = "Split conformal", "FaReG: levels"
METHODS = {
    SPLIT: MARGINAL,
    "Split, size-matched": Method("matched", "matched", (("like", OUT_OF_FOLD),)),
    "FaReG as published": Method("paper", "paper"),
    "RCP": Method("RCP", "rcp"),
    LEVELS: OUT_OF_FOLD,
    "Oracle: group known": ORACLE,
}


@dataclass(frozen=True)
class Demo:
    """What the demo measured."""

    table: pd.DataFrame  # columns: method, group, outside, average, size and seconds
    rules: tuple[str, ...]  # the named groups in words
    base_seconds: float
    clf: FaReGClassifier = field(repr=False)
    bench: Bench = field(repr=False)


def run_demo(random_state: int = 0) -> Demo:
    """Compare methods on the paper's XNOR data, and with an oracle that knows the group."""
    check_numpy_seed("seed", random_state)
    problem = PaperProblem("xnor", N_FIT, random_state, BaseModel("hgb"), N_TEST)
    with tempfile.TemporaryDirectory() as folder:
        bench = problem.prepare(Store(folder))
        with few_threads(bench.X):
            fitted(MARGINAL, bench, "aps")
            base_seconds = bench.seconds["training"]
            rows = [_row(name, bench, *sets_of(m, bench, "aps")) for name, m in METHODS.items()]
        levels, _ = fitted(OUT_OF_FOLD, bench, "aps")
    rules = tuple(group.rule.text for group in levels.named_groups_)
    return Demo(pd.DataFrame(rows), rules, base_seconds, levels, bench)


def _row(name: str, bench: Bench, sets: Any, facts: dict[str, float]) -> dict[str, Any]:
    covered, group = covered_rows(sets, bench), bench.group[bench.test]
    return {
        "method": name,
        "group": covered[group].mean(),
        "outside": covered[~group].mean(),
        "average": covered.mean(),
        "size": sets.sum(axis=1).mean(),
        "seconds": facts.get("fit_seconds", 0.0) + facts.get("predict_seconds", 0.0),
    }


def prepare_folder(folder: Path) -> None:
    """Make the folder for the figures; refuse one that cannot be written."""
    make_folder(folder)
    for name in FIGURES:
        check_output(folder / name)


def save_figures(demo: Demo, folder: Path) -> list[Path]:
    """Draw group coverage and set size of every method, and the levels in a second figure."""
    test = demo.bench.test
    levels = demo.clf.plot_levels(demo.bench.X.iloc[test], demo.bench.y[test])
    figures = (_methods_figure(demo), levels)
    return [
        write_file(folder / name, draw_image(figure, "png"))
        for name, figure in zip(FIGURES, figures, strict=True)
    ]


def _methods_figure(demo: Demo) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    table = demo.table.iloc[::-1]
    y = np.arange(len(table))
    figure = Figure(figsize=(9.5, 3.8), layout=ConstrainedLayoutEngine(wspace=0.06))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    left.hlines(y, table["group"], table["outside"], color="#999999", lw=2, zorder=1)
    left.scatter(table["group"], y, color="#d55e00", marker="o", s=55, label="in the group")
    left.scatter(table["outside"], y, color="#0072b2", marker="s", s=45, label="everyone else")
    left.axvline(0.9, color="black", lw=1, ls="--")
    left.text(0.9, len(table) - 0.35, "promised: 90%", ha="center", fontsize=9, backgroundcolor="w")
    left.set_yticks(y, table["method"])
    left.set_xlabel("coverage")
    left.legend(loc="lower left", frameon=False, fontsize=9)
    bars = right.barh(
        y, table["size"], color=["#009e73" if m == LEVELS else "#bbbbbb" for m in table["method"]]
    )
    right.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
    right.set_xlabel("average set size (smaller is better)")
    right.set_xlim(0, table["size"].max() * 1.18)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Who is left out of 90% coverage, and what repairing it costs", fontsize=12)
    return figure
