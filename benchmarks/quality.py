"""How well FaReG finds and repairs a group: the paper's XNOR data and groups of other shapes.

    python benchmarks/quality.py xnor --rows 2000 --seeds 20
    python benchmarks/quality.py all --seeds 10 --out quality.csv

``quality.csv`` holds what was measured: means over ``seeds`` repetitions.

Every row is the mean over seeds on 5,000 test rows. Defaults were chosen on seeds from 1000 on;
reported seeds start at 0.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from group_shapes import HELD_OUT, TUNING, make_shape
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fareg import (
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    FaregWarning,
    PLCPClassifier,
    SplitConformalClassifier,
)
from fareg._encoding import gradient_boosting, one_hot_encoder, ordinal_encoder
from fareg.datasets import Dataset, make_synthetic
from fareg.metrics import is_covered

N_TEST = 5_000
ORACLE = "true group"
PAPER_DATA = ("xnor", "eight", "none")


def without_oracle(X: pd.DataFrame) -> pd.DataFrame:
    return X.drop(columns=ORACLE)


def base_model(name: str, seed: int):
    """Return the paper's network with its 500 epochs, or another model for the other shapes."""
    network = MLPClassifier(
        (256, 256, 128, 64),
        learning_rate_init=1e-4,
        batch_size=250,
        max_iter=500,
        n_iter_no_change=500,
        random_state=seed,
    )
    models = {
        "minority": RandomForestClassifier(min_samples_leaf=5, random_state=seed),
        "jobs": LogisticRegression(max_iter=1000),
    }
    if name in PAPER_DATA:
        model = make_pipeline(ordinal_encoder(), network)
    elif name in models:
        model = make_pipeline(one_hot_encoder(), models[name])
    else:
        model = gradient_boosting(seed)
    return make_pipeline(FunctionTransformer(without_oracle), model)


def draw(name: str, n_rows: int, seed: int) -> Dataset:
    if name in PAPER_DATA:
        return make_synthetic(n_rows, bias=name, random_state=seed)
    return make_shape(name, n_rows, seed)


def run_seed(name: str, n_rows: int, seed: int, with_paper: bool) -> list[dict]:
    """Train one base model and measure every method on it."""
    data = draw(name, n_rows + N_TEST, seed)
    X = data.X.assign(**{ORACLE: np.where(data.group, "in", "out")})
    order = np.random.default_rng(seed).permutation(len(X))
    train, cal, test = np.split(order, [n_rows // 2, n_rows])
    start = time.perf_counter()
    model = FrozenEstimator(base_model(name, seed).fit(X.iloc[train], data.y[train]))
    base_seconds = time.perf_counter() - start
    group = data.group[test]
    rows, sets = [], {}

    def measure(method: str, prediction: np.ndarray, seconds: float, **more: object) -> None:
        covered = is_covered(data.y[test], prediction, classes=model.classes_)
        rows.append(
            {
                "data": name,
                "N": n_rows,
                "seed": seed,
                "method": method,
                "group": covered[group].mean() if group.any() else np.nan,
                "outside": covered[~group].mean(),
                "average": covered.mean(),
                "size": prediction.sum(axis=1).mean(),
                "seconds": seconds,
                "base seconds": base_seconds,
                **more,
            }
        )

    def conformal(method: str, clf, **more: object):
        start = time.perf_counter()
        clf.conformalize(X.iloc[cal], data.y[cal])
        seconds = time.perf_counter() - start
        sets[method] = clf.predict_set(X.iloc[test])
        return clf, seconds

    common = {"random_state": seed}
    sensitive = {**common, "sensitive_features": list(data.sensitive)}
    split, seconds = conformal("marginal", SplitConformalClassifier(model, **common))
    measure("marginal", sets["marginal"], seconds)
    _, seconds = conformal(
        "oracle partition",
        ExhaustiveConformalClassifier(model, sensitive_features=[ORACLE], **common),
    )
    measure("oracle partition", sets["oracle partition"], seconds)
    union = sets["marginal"] | (sets["oracle partition"] & group[:, None])
    measure("oracle union", union, seconds)
    clf, seconds = conformal("FaReG", FaReGClassifier(model, **sensitive))
    features = clf.explain().features
    found = clf.learner_.found_
    measure("FaReG", sets["FaReG"], seconds, found=found, named=", ".join(features))
    measure("size-matched marginal", match_size(split, X.iloc[test], sets["FaReG"]), 0.0)
    if with_paper:
        _, seconds = conformal("FaReG paper", FaReGClassifier.paper(model, **sensitive))
        measure("FaReG paper", sets["FaReG paper"], seconds)
        matched = match_size(split, X.iloc[test], sets["FaReG paper"])
        measure("size-matched marginal (paper)", matched, 0.0)
    _, seconds = conformal("PLCP", PLCPClassifier(model, **sensitive))
    measure("PLCP", sets["PLCP"], seconds)
    return rows


def match_size(split: SplitConformalClassifier, X: pd.DataFrame, target: np.ndarray) -> np.ndarray:
    """Return the marginal sets whose average size on these rows is that of ``target``."""
    p = split.predict_p(X)
    level = np.quantile(p, 1 - target.mean(), method="lower")
    return p > level


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    numbers = ["group", "outside", "average", "size", "seconds", "base seconds"]
    table = rows.groupby(["data", "N", "method"], sort=False)[numbers].mean()
    table.insert(4, "size se", rows.groupby(["data", "N", "method"], sort=False)["size"].sem())
    return table.reset_index()


def show(table: pd.DataFrame) -> None:
    for (name, n_rows), part in table.groupby(["data", "N"], sort=False):
        view = Table(title=f"{name}, N = {n_rows}")
        for column in ("method", "group", "outside", "average", "size", "size se", "seconds"):
            view.add_column(column, justify="left" if column == "method" else "right")
        for _, row in part.iterrows():
            cells = [f"{row[c]:.3f}" for c in ("group", "outside", "average", "size", "size se")]
            view.add_row(row["method"], *cells, f"{row['seconds']:.2f}")
        Console().print(view)


def main(
    names: list[str],
    rows: int = 2000,
    seeds: int = 20,
    first_seed: int = 0,
    paper: bool = True,
    out: Annotated[Path | None, typer.Option(help="CSV of the raw rows")] = None,
) -> None:
    """Measure on the named data: xnor, eight, none, a shape, or all."""
    warnings.simplefilter("ignore", FaregWarning)
    warnings.simplefilter("ignore", ConvergenceWarning)  # the epochs are the paper's
    if names == ["all"]:
        names = [*PAPER_DATA, *TUNING, *HELD_OUT]
    results = []
    for name in names:
        for seed in range(first_seed, first_seed + seeds):
            results += run_seed(name, rows, seed, paper and name in PAPER_DATA)
        show(summarise(pd.DataFrame(results).query("data == @name")))
    frame = pd.DataFrame(results)
    fareg = frame[frame["method"] == "FaReG"]
    shares = fareg.groupby("data", sort=False).agg(found=("found", "mean"))
    named = fareg.groupby(["data", "named"], sort=False).size()
    Console().print(shares.to_string(), named.to_string(), sep="\n\n")
    if out is not None:
        summarise(frame).to_csv(out, index=False, float_format="%.4f")


if __name__ == "__main__":
    typer.run(main)
