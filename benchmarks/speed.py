"""Seconds of FaReG beside its base model, and how they grow: one run, one process.

python benchmarks/speed.py
"""

from __future__ import annotations

import resource
import time
import warnings

import numpy as np
import pandas as pd
from quality import base_model
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fareg import FaReGClassifier, SplitConformalClassifier
from fareg.datasets import make_synthetic

SENSITIVE = ["Color", "Gender", "Age Group", "Region"]
FEATURES = [f"Feature {j}" for j in range(1, 7)]


def seconds(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def beside_the_base_model(n_rows: int = 2000) -> dict[str, float]:
    """Time the paper's network, then FaReG on its calibration rows; torch is loaded before."""
    data = make_synthetic(n_rows, random_state=0)
    X = data.X.assign(**{"true group": "unknown"})
    train, cal = slice(0, n_rows // 2), slice(n_rows // 2, n_rows)
    model = base_model("xnor", 0)
    base = seconds(model.fit, X[train], data.y[train])
    frozen = FrozenEstimator(model)

    def fit(**parameters) -> float:
        clf = FaReGClassifier(
            frozen, sensitive_features=SENSITIVE, significance=None, random_state=0, **parameters
        )
        return seconds(clf.conformalize, X[cal], data.y[cal])

    fit(max_iter=1)
    ours = min(fit() for _ in range(3))
    return {"base network": base, "FaReG": ours, "ratio": base / ours}


def growth(sizes=(1_000, 10_000, 100_000, 1_000_000)) -> pd.DataFrame:
    """Time conformalize on n rows and predict_set on n rows, with a fast base model."""
    data = make_synthetic(max(sizes), random_state=1)
    model = make_pipeline(FunctionTransformer(numbers_only), LogisticRegression(max_iter=200))
    frozen = FrozenEstimator(model.fit(data.X[:2000], data.y[:2000]))
    rows = []
    for n in sizes:
        X, y = data.X[:n], data.y[:n]
        row = {"rows": n, "predict_proba": seconds(frozen.predict_proba, X)}
        methods = {
            "split": SplitConformalClassifier(frozen, random_state=0),
            "FaReG": FaReGClassifier(frozen, sensitive_features=SENSITIVE, random_state=0),
        }
        for name, clf in methods.items():
            row[f"{name} fit"] = seconds(clf.conformalize, X, y)
            row[f"{name} predict"] = seconds(clf.predict_set, X)
        row["peak MiB"] = peak_mib()
        rows.append(row)
    return pd.DataFrame(rows)


def numbers_only(X: pd.DataFrame) -> pd.DataFrame:
    return X[FEATURES]


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    console = Console()
    times = beside_the_base_model()
    console.print(
        f"N = 2000: base network {times['base network']:.2f} s, FaReG {times['FaReG']:.2f} s, "
        f"{times['ratio']:.1f} times less"
    )
    table = growth()
    view = Table(*table.columns)
    for _, row in table.iterrows():
        view.add_row(*(f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in row))
    console.print(view)
    for name in table.columns[1:-1]:
        slope = np.polyfit(np.log(table["rows"][1:]), np.log(table[name][1:]), 1)[0]
        console.print(f"{name}: time grows as n^{slope:.2f}")


if __name__ == "__main__":
    main()
