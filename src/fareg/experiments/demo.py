"""The story in one minute: sets look fine on average, a group is left behind, FaReG repairs it."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator

from fareg._encoding import gradient_boosting
from fareg._threads import few_threads
from fareg._validation import BoolArray, FaregWarning
from fareg.classifiers import (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    PartialConformalClassifier,
    PLCPClassifier,
    RectifiedConformalClassifier,
    SplitConformalClassifier,
)
from fareg.datasets import Dataset, make_synthetic
from fareg.experiments._references import oracle_sets, own_scores, size_matched_threshold
from fareg.metrics import is_covered

N_TRAIN, N_CALIBRATION, N_TEST = 1_500, 1_500, 5_000
METHODS: dict[str, Any] = {
    "Marginal (split conformal)": SplitConformalClassifier,
    "Partial": PartialConformalClassifier,
    "Exhaustive": ExhaustiveConformalClassifier,
    "AFCP": AFCPClassifier,
    "CondCP": CondCPClassifier,
    "PLCP": PLCPClassifier,
    "RCP": RectifiedConformalClassifier,
    "FaReG as published": FaReGClassifier.paper,
    "FaReG": FaReGClassifier,
}
ORACLES = {"Oracle: true group, united": "union", "Oracle: true partition": "partition"}


@dataclass(frozen=True)
class Demo:
    """What the demo measured: a table of methods, the group in words, and the seconds it took."""

    table: pd.DataFrame  # method, group, outside, average, size, seconds
    rule: str
    fidelity: float
    base_seconds: float


def run_demo(random_state: int = 0) -> Demo:
    """Compare all methods on the paper's XNOR data, beside what knowing the group would give."""
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FaregWarning)  # Exhaustive has tiny cells
            sets[name] = clf.conformalize(cal.X, cal.y).predict_set(test.X)
        fitted[name] = clf
        rows.append(_row(name, sets[name], test, time.perf_counter() - start))
    marginal = fitted["Marginal (split conformal)"]
    scores = marginal.conformity_scores(test.X)
    threshold = size_matched_threshold(scores, sets["FaReG"].sum(axis=1).mean())
    rows.insert(1, _row("Marginal, size-matched to FaReG", scores <= threshold, test, 0.0))
    for name, construction in ORACLES.items():
        known = oracle_sets(
            own_scores(marginal, cal.X, cal.y),
            np.asarray(cal.group),
            scores,
            np.asarray(test.group),
            confidence_level=marginal.confidence_level,
            construction=construction,
        )
        rows.append(_row(name, known, test, 0.0))
    group = fitted["FaReG"].groups_.iloc[0]
    return Demo(pd.DataFrame(rows), group["rule"], float(group["fidelity"]), base_seconds)


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


def save_figure(demo: Demo, path: Path) -> None:
    """Draw coverage of the group and set size of every method."""
    from matplotlib.figure import Figure

    table = demo.table.iloc[::-1]
    y = np.arange(len(table))
    figure = Figure(figsize=(9.5, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    left.hlines(y, table["group"], table["outside"], color="#999999", lw=2, zorder=1)
    left.scatter(table["group"], y, color="#d55e00", marker="o", s=55, label="in the unnamed group")
    left.scatter(table["outside"], y, color="#0072b2", marker="s", s=45, label="everyone else")
    left.axvline(0.9, color="black", lw=1, ls="--")
    left.text(
        0.9, len(table) - 0.35, "asked for: 90%", ha="center", fontsize=9, backgroundcolor="w"
    )
    left.set_yticks(y, table["method"])
    left.set_xlabel("coverage")
    left.legend(loc="lower left", frameon=False, fontsize=9)
    bars = right.barh(
        y, table["size"], color=["#009e73" if m == "FaReG" else "#bbbbbb" for m in table["method"]]
    )
    right.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
    right.set_xlabel("average set size (smaller is better)")
    right.set_xlim(0, table["size"].max() * 1.18)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Who is left out of 90% coverage, and what repairing it costs", fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
