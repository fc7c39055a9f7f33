"""How well the worst off are covered, and at what size, through a whole ``fit``.

    python benchmarks/quality.py tuning,held-out --rows 2000 --seeds 1
    python benchmarks/quality.py tuning,held-out --rows 2000 --seeds 5 --few
    python benchmarks/quality.py later --rows 2000 --seeds 5
    python benchmarks/quality.py random --rows 2000 --seeds 1 --few
    python benchmarks/quality.py tuning,held-out,later --rows 2000 --seeds 5 --few --base boosting
    python benchmarks/quality.py rare --rows 20000 --seeds 5 --few
    python benchmarks/quality.py noise --rows 2000 --seeds 5 --test-rows 20000

Every method is fitted on the same N rows: half of them train the base model, the others calibrate.
The oracle knows the true degree of hardship of every row and calibrates each degree separately. A
finished case is added to ``quality.csv`` at once and not measured again with the same version;
``--few`` measures only split, levels and the oracle. The base model is a small forest, or with
``--base boosting`` the default of the package. Seeds below 20 and from 1000 on were used while the
learner was built. ``docs/results.md`` shows what decides.
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
from measure import VERSION
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
COLUMNS = (
    *("base", "shape", "held_out", "N", "seed", "method"),
    *("worst", "average", "size", "seconds", "n_levels", "level_off", "version"),
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
    """Clusters of the training rows as cells, each calibrated separately."""

    n_clusters: Count = 8

    def _calibrate(self, rows: Labelled, training: Training | None) -> Mondrian:
        means = KMeans(self.n_clusters, n_init=3, random_state=self.key_ % 2**32)
        model = make_pipeline(one_hot_encoder(), means).fit(training.people)
        groups = ClusterCells(model, self.n_clusters)
        return Mondrian.fit(groups, rows, self.alpha_, label_conditional=False)


class Remembered(ClassifierMixin, BaseEstimator):
    """A classifier that is trained once per table and shared by all methods.

    ``saved`` sums the seconds of trainings that were not repeated, so that every method is charged
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
    """Return a model that trains quickly, because it is trained six times per table and method."""
    forest = RandomForestClassifier(40, min_samples_leaf=5, random_state=seed)
    return make_pipeline(one_hot_encoder(), forest)


BASES = {"forest": small_forest, "boosting": gradient_boosting}


def methods(data: Graded, model: Any, seed: int) -> dict[str, Any]:
    """Return the methods by the names of their rows."""
    common = {"estimator": Remembered(model), "random_state": seed}
    options = {**common, "sensitive_features": list(data.sensitive)}
    return {
        "split": SplitConformalClassifier(**common),
        "PLCP": PLCPClassifier(**options),
        "CondCP": CondCPClassifier(**options),
        "RCP": RectifiedConformalClassifier(**options),
        "k-means cells": KMeansCells(**options),
        LEVELS: FaReGClassifier(**options),
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


def main(
    which: str,
    rows: int = 2000,
    seeds: int = 5,
    test_rows: int = 8000,
    few: bool = False,
    base: str = "forest",
) -> None:
    """Measure sets of shapes, or named ones."""
    warnings.simplefilter("ignore", FaregWarning)
    done = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=COLUMNS)
    case = ["base", "shape", "N", "seed", "method"]
    done = done[done["version"].astype(str) == VERSION]
    finished = set(done[case].itertuples(index=False, name=None))
    names = [name for part in which.split(",") for name in SHAPES.get(part, [part])]
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):  # all shapes before any is repeated
        for name in names:
            methods_wanted = NOISE_METHODS if name in NOISE else FEW if few else METHODS
            wanted = {m for m in methods_wanted if (base, name, rows, seed, m) not in finished}
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
                    writer.writerow({**rounded, "version": VERSION})


if __name__ == "__main__":
    typer.run(main)
