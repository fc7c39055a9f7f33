"""The story in one screen: fine on average, a group is left behind, levels repair it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator

from fareg._encoding import gradient_boosting
from fareg._files import check_output
from fareg._hashing import check_numpy_seed
from fareg._threads import few_threads
from fareg._validation import BoolArray
from fareg.classifiers import (
    FaReGClassifier,
    RectifiedConformalClassifier,
    SplitConformalClassifier,
)
from fareg.datasets import Dataset, make_synthetic
from fareg.experiments._figures import draw_image
from fareg.experiments._problems import out_of_fold
from fareg.experiments._references import SplitScores, size_matched_threshold
from fareg.experiments._store import make_folder, write_file
from fareg.metrics import is_covered

N_TRAIN, N_CALIBRATION, N_TEST = 1_500, 1_500, 5_000
FIGURES = ("demo.png", "demo-levels.png")
SPLIT, LEVELS = "Split conformal", "FaReG: levels"
METHODS: dict[str, Any] = {
    SPLIT: SplitConformalClassifier,
    "FaReG as published": FaReGClassifier.paper,
    "RCP": RectifiedConformalClassifier,
    LEVELS: FaReGClassifier,
}


@dataclass(frozen=True)
class Demo:
    """What the demo measured."""

    table: pd.DataFrame  # its columns are method, group, outside, average, size and seconds
    rules: tuple[str, ...]  # the named groups in words
    base_seconds: float
    clf: FaReGClassifier = field(repr=False)
    test: Dataset = field(repr=False)


def run_demo(random_state: int = 0) -> Demo:
    """Compare methods on the paper's XNOR data, beside what knowing the group would give."""
    check_numpy_seed("seed", random_state)
    data = make_synthetic(N_TRAIN + N_CALIBRATION + N_TEST, random_state=random_state)
    train = data.take(slice(0, N_TRAIN))
    cal = data.take(slice(N_TRAIN, N_TRAIN + N_CALIBRATION))
    test = data.take(slice(N_TRAIN + N_CALIBRATION, None))
    start = time.perf_counter()
    with few_threads(train.X):
        model = FrozenEstimator(gradient_boosting(random_state).fit(train.X, train.y))
    base_seconds = time.perf_counter() - start

    rows, fitted, sets = [], {}, {}
    for name, method in METHODS.items():
        start = time.perf_counter()
        clf = method(model, sensitive_features=list(data.sensitive), random_state=random_state)
        apart: dict[str, Any] = {}
        if name == LEVELS:
            proba = out_of_fold(train, model.classes_, random_state)
            apart = {"X_learn": train.X, "y_learn": train.y, "proba_learn": proba}
        sets[name] = clf.conformalize(cal.X, cal.y, **apart).predict_set(test.X)
        fitted[name] = clf
        rows.append(_row(name, sets[name], test, time.perf_counter() - start))
    levels = fitted[LEVELS]
    split = SplitScores.of(fitted[SPLIT], cal.X, cal.y, test.X)
    threshold = size_matched_threshold(split.scores, sets[LEVELS].sum(axis=1).mean())
    rows.insert(1, _row("Split, size-matched", split.scores <= threshold, test, 0.0))
    known = split.oracle_sets(np.asarray(cal.group), np.asarray(test.group))
    rows.append(_row("Oracle: group known", known, test, 0.0))
    return Demo(
        pd.DataFrame(rows),
        tuple(group.rule.text for group in levels.named_groups_),
        base_seconds,
        levels,
        test,
    )


def _row(name: str, sets: BoolArray, test: Dataset, seconds: float) -> dict[str, Any]:
    covered = is_covered(test.y, sets, classes=range(sets.shape[1]))
    group = np.asarray(test.group)
    return {
        "method": name,
        "group": covered[group].mean(),
        "outside": covered[~group].mean(),
        "average": covered.mean(),
        "size": sets.sum(axis=1).mean(),
        "seconds": seconds,
    }


def make_room(folder: Path) -> None:
    """Make a folder for the figures, unless it is there; refuse one that cannot take them."""
    make_folder(folder)
    for name in FIGURES:
        check_output(folder / name)


def save_figures(demo: Demo, folder: Path) -> list[Path]:
    """Draw coverage of the group and set size of every method, and the levels by themselves."""
    figures = (_methods_figure(demo), demo.clf.plot_levels(demo.test.X, demo.test.y))
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
    left.text(
        0.9, len(table) - 0.35, "asked for: 90%", ha="center", fontsize=9, backgroundcolor="w"
    )
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
