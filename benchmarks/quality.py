"""How well the worst off are covered, and at what size, through a whole ``fit``.

    python benchmarks/quality.py tuning,held-out --rows 2000 --seeds 1
    python benchmarks/quality.py tuning,held-out --rows 2000 --seeds 5 --few
    python benchmarks/quality.py later --rows 2000 --seeds 5
    python benchmarks/quality.py random --rows 2000 --seeds 1 --few
    python benchmarks/quality.py tuning,held-out,later --rows 2000 --seeds 5 --few --base boosting
    python benchmarks/quality.py rare --rows 20000 --seeds 5 --few
    python benchmarks/quality.py noise --rows 2000 --seeds 5 --test-rows 20000
    python benchmarks/quality.py summary

Every method is fitted on the same N rows: half of them train the base model, the others calibrate.
The oracle knows the true degree of hardship of every row and calibrates each degree by itself. A
finished case is added to ``quality.csv`` at once and is not measured again; ``--few`` measures
split, levels and the oracle only. The base model is a small forest, or with ``--base boosting`` the
default of the package. ``docs/quality.md`` tells what the figures say. Seeds below 20 and from 1000
on were used while the learner was built.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import joblib
import numpy as np
import pandas as pd
import typer
from degrees import HELD_OUT, LATER, NOISE, RANDOM, RARE, TUNING, Graded, draw
from random_groups import random_union
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline

from fareg import (
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    FaregWarning,
    PLCPClassifier,
    RectifiedConformalClassifier,
    SplitConformalClassifier,
)
from fareg._encoding import gradient_boosting, one_hot_encoder
from fareg._validation import Count
from fareg.calibration import Batch, Labelled, Mondrian
from fareg.classifiers import ConformalClassifier, Training
from fareg.metrics import coverage_by_level, is_covered

RESULTS = Path(__file__).with_name("quality.csv")
SHAPES = {
    "tuning": TUNING,
    "held-out": HELD_OUT,
    "later": LATER,
    "rare": RARE,
    "noise": NOISE,
    "random": RANDOM,
}
SMOOTH = (  # regions of numbers alone
    *("corner", "stripe", "slope", "disc", "ring", "tilt"),
    *("checkerboard", "steps of age", "tails", "wedge", "forties"),
)
TENTH = (  # groups of about a tenth
    *("minority", "two groups", "tenth", "box", "three groups", "minority in noise"),
    *(f"random groups: {n}" for n in range(1, 5)),
)
COLUMNS = (
    *("base", "shape", "held_out", "N", "seed", "method"),
    *("worst", "average", "size", "seconds", "n_levels", "level_off"),
)
LEVELS, ORACLE = "FaReG (levels)", "oracle partition"
NOISE_METHODS = ("split", LEVELS)
FEW = (*NOISE_METHODS, ORACLE)
METHODS = (*FEW, "PLCP", "CondCP", "RCP", "k-means cells")
FIRST_SEED = 20


@dataclass(frozen=True, eq=False)
class ClusterCells:
    """Groups for calibration by cells: the clusters of a fitted k-means."""

    model: Any
    n_cells: int

    def cells(self, rows: Batch | Labelled) -> np.ndarray:
        return self.model.predict(rows.people).astype(np.int64)

    def describe(self, cell: int) -> str:
        return f"cluster {cell}"


@dataclass(eq=False, repr=False)
class KMeansCells(ConformalClassifier):
    """Cells are clusters of the training rows, each calibrated by itself."""

    n_clusters: Count = 8

    def _calibrate(self, rows: Labelled, training: Training | None) -> Mondrian:
        means = KMeans(self.n_clusters, n_init=3, random_state=self.key_ % 2**32)
        model = make_pipeline(one_hot_encoder(), means).fit(training.people)
        groups = ClusterCells(model, self.n_clusters)
        return Mondrian.fit(groups, rows, self.alpha_, label_conditional=False)


class Remembered(ClassifierMixin, BaseEstimator):
    """A classifier that is trained once per table, however many methods ask for it.

    ``saved`` adds up the seconds that were not spent again, so that every method can be charged
    for all of its trainings.
    """

    known: ClassVar[dict[str, tuple[Any, float]]] = {}
    saved = 0.0

    def __init__(self, model: Any):
        self.model = model

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Remembered:
        key = joblib.hash((X, y))
        if key in self.known:
            Remembered.saved += self.known[key][1]
        else:
            start = time.process_time()
            fitted = clone(self.model).fit(X, y)
            self.known[key] = fitted, time.process_time() - start
        self.fitted_ = self.known[key][0]
        self.classes_ = self.fitted_.classes_
        return self

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        return self.fitted_.predict_proba(X)


def small_forest(seed: int) -> Any:
    """Return a model that is trained quickly, as it is trained six times per table and methods."""
    forest = RandomForestClassifier(40, min_samples_leaf=5, random_state=seed)
    return make_pipeline(one_hot_encoder(), forest)


BASES = {"forest": small_forest, "boosting": gradient_boosting}


def methods(data: Graded, model: Any, seed: int) -> dict[str, Any]:
    """Return the methods that are fitted, by the name of their row."""
    common = {"estimator": Remembered(model), "random_state": seed}
    own = {**common, "sensitive_features": list(data.sensitive)}
    return {
        "split": SplitConformalClassifier(**common),
        "PLCP": PLCPClassifier(**own),
        "CondCP": CondCPClassifier(**own),
        "RCP": RectifiedConformalClassifier(**own),
        "k-means cells": KMeansCells(**own),
        LEVELS: FaReGClassifier(**own),
        ORACLE: ExhaustiveConformalClassifier(
            **common, sensitive_features=lambda X: data.degree(X)[:, None]
        ),
    }


def measure_case(
    name: str, n_rows: int, seed: int, n_test: int, wanted: set[str], base: str = "forest"
) -> Iterator[dict[str, Any]]:
    """Fit the wanted methods on one table, and measure their sets of new rows."""
    data = draw(name, n_rows + n_test, seed)
    X, y, test, truth = data.X[:n_rows], data.y[:n_rows], data.X[n_rows:], data.y[n_rows:]
    degree = data.degree(test)
    worst = degree == degree.max()
    held_out = name in {**HELD_OUT, **LATER, **RARE, **RANDOM}
    case = {"base": base, "shape": name, "held_out": held_out, "N": n_rows, "seed": seed}
    Remembered.known.clear()

    def row(method: str, sets: np.ndarray, seconds: float, clf: Any = None) -> dict[str, Any]:
        covered = is_covered(truth, sets, classes=split.classes_)
        by_level = coverage_by_level(
            np.zeros(n_test, int) if clf is None else clf.predict_level(test), covered
        )
        return {
            **case,
            "method": method,
            "worst": covered[worst].mean(),
            "average": covered.mean(),
            "size": sets.sum(axis=1).mean(),
            "seconds": seconds,
            "n_levels": len(by_level),
            "level_off": (by_level["coverage"] - split.confidence_level).abs().max(),
        }

    for method, clf in methods(data, BASES[base](seed), seed).items():
        if method not in wanted | {"split"}:
            continue
        Remembered.saved = 0.0
        start = time.process_time()
        sets = clf.fit(X, y).predict_set(test)
        seconds = time.process_time() - start + Remembered.saved
        if method == "split":
            split = clf
        if method in wanted:
            yield row(method, sets, seconds, clf if method == LEVELS else None)
        if method == LEVELS:
            scores = split.conformity_scores(test)
            threshold = np.quantile(scores, sets.mean(), method="lower")
            yield row("split of the size of levels", scores <= threshold, 0.0)


def by_method(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means over shapes, per number of rows and method, of tables with all methods."""
    known = rows[~rows["shape"].isin(NOISE) & (rows["base"] == "forest")]
    case = ["shape", "N", "seed"]
    n_methods = known.groupby(case)["method"].transform("nunique")
    known = known[n_methods == n_methods.groupby(known["N"]).transform("max")]
    oracle = known[known["method"] == ORACLE].set_index(case)[["worst", "size"]]
    known = known.join(oracle.add_suffix("_oracle"), on=case)
    known["short of oracle"] = known["worst_oracle"] - known["worst"]
    known["size to oracle"] = known["size"] / known["size_oracle"]
    per_shape = known.groupby(["N", "shape", "method"], sort=False).mean(numeric_only=True)
    table = per_shape.groupby(["N", "method"], sort=False)[
        ["worst", "average", "size", "short of oracle", "size to oracle", "seconds"]
    ].mean()
    lowest = per_shape["worst"].groupby(["N", "method"], sort=False).min()
    return table.assign(**{"lowest worst": lowest}).reset_index()


def with_random_joined(rows: pd.DataFrame) -> pd.DataFrame:
    """Let random tables of the same number of groups count as seeds of one shape."""
    number = rows["shape"].where(rows["shape"].isin(RANDOM)).str.removeprefix("random ")
    tables = {text: int(text) for text in number.dropna().unique()}
    shapes = {text: f"random groups: {random_union(k)[1]}" for text, k in tables.items()}
    return rows.assign(
        shape=number.map(shapes).fillna(rows["shape"]), seed=number.map(tables).fillna(rows["seed"])
    )


def by_shape(rows: pd.DataFrame) -> pd.DataFrame:
    """Return levels beside the oracle, per number of rows and shape, and whether goals are met."""
    keys = ["base", "N", "held_out", "shape"]
    known = with_random_joined(rows[~rows["shape"].isin(NOISE)])
    mean = known.groupby([*keys, "method"])[["worst", "size"]].mean().unstack("method")
    table = pd.DataFrame({"seeds": known.groupby(keys)["seed"].nunique()})
    for method in FEW:
        table[method] = mean["worst", method]
    table["short"] = table[ORACLE] - table[LEVELS]
    by_seed = known.pivot_table("worst", [*keys, "seed"], "method")
    table["error"] = (by_seed[ORACLE] - by_seed[LEVELS]).groupby(keys).sem()  # of short, over seeds
    table["larger"] = mean["size", LEVELS] / mean["size", ORACLE] - 1
    table = table.reset_index()
    large, smooth = table["N"] >= 8000, table["shape"].isin(SMOOTH)
    small = smooth | table["shape"].isin(TENTH)
    goal = np.select([large & smooth, large, small], [0.02, 0.01, 0.04], 0.02)
    goal_size = np.select([large & smooth, large, smooth], [0.04, 0.03, 0.10], 0.04)
    table["coverage goal"], table["met"] = goal, table["short"] <= goal
    table["size goal"], table["size met"] = goal_size, table["larger"] <= goal_size
    return table


def without_signal(rows: pd.DataFrame) -> pd.DataFrame:
    """Return per table of noise the size relative to split, and how far coverage is off."""
    noise = rows[rows["shape"].isin(NOISE)].set_index(["shape", "N", "seed"])
    split, levels = (noise[noise["method"] == m] for m in ("split", LEVELS))
    table = pd.DataFrame(
        {
            "size to split": levels["size"] / split["size"],
            "levels": levels["n_levels"],
            "level off": levels["level_off"],
            "split off": split["level_off"],
        }
    )
    kinds = {"size to split": ["mean", "max"], "levels": ["max"]}
    kinds |= {"level off": ["mean", "max"], "split off": ["mean", "max"]}
    found = table.groupby(["shape", "N"]).agg(kinds)
    found.columns = [" ".join(pair) for pair in found.columns]
    return found.reset_index()


def markdown(table: pd.DataFrame) -> str:
    """Return a table for the page."""
    table = table.replace({True: "yes", False: "no"})
    rows = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    cells = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def main(
    which: str,
    rows: int = 2000,
    seeds: int = 5,
    test_rows: int = 8000,
    few: bool = False,
    base: str = "forest",
) -> None:
    """Measure sets of shapes or named ones, or show the summary."""
    warnings.simplefilter("ignore", FaregWarning)
    done = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=COLUMNS)
    if which == "summary":
        parts = (by_method(done), by_shape(done), without_signal(done))
        print("\n\n".join(markdown(part) for part in parts))
        return
    case = ["base", "shape", "N", "seed", "method"]
    finished = set(done[case].itertuples(index=False, name=None))
    names = [name for part in which.split(",") for name in SHAPES.get(part, [part])]
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):  # all shapes before any is repeated
        for name in names:
            asked = NOISE_METHODS if name in NOISE else FEW if few else METHODS
            wanted = {m for m in asked if (base, name, rows, seed, m) not in finished}
            if not wanted:
                continue
            found = list(measure_case(name, rows, seed, test_rows, wanted, base))
            print(pd.DataFrame(found).round(3).to_string(index=False), flush=True)
            is_new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                if is_new:
                    writer.writeheader()
                for row in found:
                    rounded = {
                        k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()
                    }
                    writer.writerow(rounded)


if __name__ == "__main__":
    typer.run(main)
