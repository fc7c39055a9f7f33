"""One or two of a hundred people are worse off: the distance to the oracle, and its causes.

    python benchmarks/rare.py --rows 20000 --seeds 4

Half of the rows train the base model and the learner, the others calibrate. The default is compared
with its levels alone, and with levels of people in their true order: what these lack is due to the
edges and the pooling of levels. Rows are added to ``rare.csv``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from degrees import RARE, draw
from measure import VERSION
from quality import BASES, Remembered
from sklearn.base import BaseEstimator, RegressorMixin

from fareg import (
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    FaregWarning,
    SplitConformalClassifier,
)
from fareg.metrics import is_covered

RESULTS = Path(__file__).with_name("rare.csv")
COLUMNS = ("shape", "N", "seed", "method", "share", "worst", "average", "size", "version")
N_TEST = 40_000


class TrueOrder(RegressorMixin, BaseEstimator):
    """A learner that knows how hard each row is."""

    def __init__(self, shape: str = ""):
        self.shape = shape

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> TrueOrder:
        self.hardness_ = RARE[self.shape][0]
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return np.asarray(self.hardness_(X), dtype=float)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags


def measure(name: str, n_rows: int, seed: int) -> Iterator[dict[str, Any]]:
    """Fit every method on one table, and measure its sets of new rows."""
    data = draw(name, n_rows + N_TEST, seed)
    X, y, new, truth = data.X[:n_rows], data.y[:n_rows], data.X[n_rows:], data.y[n_rows:]
    worst = data.degree(new) == 1
    Remembered.known.clear()
    common = {"estimator": Remembered(BASES["forest"](seed)), "random_state": seed}
    options = {**common, "sensitive_features": list(data.sensitive)}
    methods = {
        "split": SplitConformalClassifier(**common),
        "default": FaReGClassifier(**options),
        "levels": FaReGClassifier(**options, protect="nothing"),
        "true order": FaReGClassifier(**options, protect="nothing", learner=TrueOrder(name)),
        "oracle": ExhaustiveConformalClassifier(
            **common, sensitive_features=lambda X: data.degree(X)[:, None]
        ),
    }
    for method, clf in methods.items():
        sets = clf.fit(X, y).predict_set(new)
        covered = is_covered(truth, sets, classes=clf.classes_)
        figures = (worst.mean(), covered[worst].mean(), covered.mean(), sets.sum(axis=1).mean())
        rounded = (round(float(figure), 5) for figure in figures)
        row = (name, n_rows, seed, method, *rounded, VERSION)
        yield dict(zip(COLUMNS, row, strict=True))


def main(rows: int = 20_000, seeds: int = 4, first: int = 700) -> None:
    """Measure the tables."""
    warnings.simplefilter("ignore", FaregWarning)
    for seed in range(first, first + seeds):
        for name in RARE:
            found = pd.DataFrame(measure(name, rows, seed))
            found.to_csv(RESULTS, mode="a", header=not RESULTS.exists(), index=False)
            print(found.round(3).to_string(index=False), flush=True)


if __name__ == "__main__":
    typer.run(main)
