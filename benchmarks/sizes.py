"""Coverage gap against size gap: the price of equal coverage, by method, on published tables.

    python benchmarks/sizes.py DIRECTORY --seeds 2

Gaps are between the categories of the sensitive columns with 100 test rows or more: the highest
minus the lowest coverage, and the largest mean size over the smallest. Results go to ``sizes.csv``,
the picture to ``docs/sizes.svg``.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline

import fareg
from auditing import TABLES
from fareg._encoding import ordinal_encoder
from fareg.metrics import coverage_by_group, is_covered

HERE = Path(__file__).parent
SENSITIVE = {
    "adult": ["sex", "race", "marital-status"],
    "nhanes": ["Gender", "Race1", "Education"],
    "diabetes130": ["race", "gender", "age"],
}
METHODS: dict[str, Any] = {
    "split": lambda **o: fareg.SplitConformalClassifier(**o),
    "label-conditional": lambda **o: fareg.SplitConformalClassifier(label_conditional=True, **o),
    "levels (FaReG)": lambda sensitive, **o: fareg.FaReGClassifier(
        sensitive_features=sensitive, **o
    ),
    "Partial": lambda sensitive, **o: fareg.PartialConformalClassifier(
        sensitive_features=sensitive, **o
    ),
}
MIN_ROWS = 100


def run(path: Path, method: str, seed: int) -> dict[str, Any]:
    """Return both gaps on 4,000 new rows."""
    target, columns, _ = TABLES[path.stem]
    sensitive = SENSITIVE[path.stem]
    table = pd.read_parquet(path).dropna(subset=[target]).sample(frac=1, random_state=seed)
    table = table.head(8000).reset_index(drop=True)
    X, y = table[list(dict.fromkeys([*columns, *sensitive]))], table[target].astype(str).to_numpy()
    forest = RandomForestClassifier(40, min_samples_leaf=5, random_state=seed)
    options = {"estimator": make_pipeline(ordinal_encoder(), forest), "random_state": seed}
    named = {"sensitive": sensitive} if method in ("levels (FaReG)", "Partial") else {}
    n = len(X) // 2
    clf = METHODS[method](**named, **options).fit(X[:n], y[:n])
    new = X[n:].reset_index(drop=True)
    sets = clf.predict_set(new)
    by_group = coverage_by_group(new[sensitive], is_covered(y[n:], sets, classes=clf.classes_))
    size = sets.sum(axis=1)
    sizes = [
        size[new[name] == category].mean()
        for name in sensitive
        for category, rows in new[name].value_counts().items()
        if rows >= MIN_ROWS
    ]
    coverage = by_group.loc[by_group["n"] >= MIN_ROWS, "coverage"]
    return {
        "table": path.stem,
        "method": method,
        "seed": seed,
        "coverage_gap": round(float(coverage.max() - coverage.min()), 4),
        "size_gap": round(float(max(sizes) / min(sizes)), 4),
        "mean_size": round(float(size.mean()), 3),
    }


def draw(results: pd.DataFrame) -> Figure:
    """Draw a panel per table: coverage gap on the left axis, size gap below."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    panels = figure.subplots(1, results["table"].nunique(), sharey=True)
    for ax, (name, part) in zip(np.ravel(panels), results.groupby("table"), strict=True):
        for marker, (method, rows) in zip("osD^", part.groupby("method", sort=False), strict=False):
            # a ring for split sets stays visible under other marks
            look = {"s": 150, "facecolors": "none", "edgecolors": "black"} if marker == "o" else {}
            x, y = rows["size_gap"], 100 * rows["coverage_gap"]
            ax.scatter(x, y, marker=marker, label=method, **look)
        ax.set(title=name, xlabel="largest mean size / smallest")
        ax.grid(alpha=0.3)
    np.ravel(panels)[0].set_ylabel("coverage gap, percentage points")
    np.ravel(panels)[-1].legend(fontsize=8)
    return figure


def main(folder: Path, seeds: int = 2, redraw: bool = False) -> None:
    """Measure and draw, or only draw stored results."""
    if redraw:
        results = pd.read_csv(HERE / "sizes.csv")
        draw(results).savefig(HERE.parent / "docs" / "sizes.svg", metadata={"Date": None})
        return
    warnings.simplefilter("ignore", fareg.FaregWarning)
    rows = [
        run(folder / f"{table}.parquet", method, seed)
        for table in SENSITIVE
        for method in METHODS
        for seed in range(seeds)
    ]
    results = pd.DataFrame(rows)
    results.to_csv(HERE / "sizes.csv", index=False, lineterminator="\n")
    draw(results).savefig(HERE.parent / "docs" / "sizes.svg", metadata={"Date": None})


if __name__ == "__main__":
    typer.run(main)
