"""Levels on a table unlike the shapes of ``quality.py``, with five ways to be hard.

    python benchmarks/mechanisms.py --rows 2000 --seeds 3

Eight sensitive columns (ages, fifty states, wages, missing degrees, ...) and four numbers that
determine the label. In a group, labels are drawn at random, or are noisier than elsewhere, or
follow another rule; there are two to ten labels, three scores and two base models. Nothing was
chosen on these tables: they were written once the learner was finished. A finished case is added
to ``mechanisms.csv`` at once and is not measured again.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from measure import VERSION
from quality import FEW
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fareg import (
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    FaregWarning,
    SplitConformalClassifier,
)
from fareg._encoding import one_hot_encoder
from fareg.metrics import is_covered

RESULTS = Path(__file__).with_name("mechanisms.csv")
COLUMNS = (
    *("mechanism", "group", "N", "seed", "method"),
    *("worst", "average", "size", "named", "version"),
)
SENSITIVE = ["age", "sex", "race", "state", "degree", "wage", "disabled", "children"]
SIGNAL = ["x0", "x1", "x2", "x3"]
STRENGTH = 2.2  # of the numbers that determine the label
N_TEST = 6000
LOGISTIC = make_pipeline(one_hot_encoder(), LogisticRegression(max_iter=300))


@dataclass(frozen=True)
class Mechanism:
    """How rows are hard, and which methods are fitted."""

    way: str  # "noise", "temper" or "shift"
    n_classes: int
    score: str
    model: Any = None  # gradient boosting

    @property
    def name(self) -> str:
        model = "boosting" if self.model is None else "logistic"
        return f"{self.way}, {self.n_classes} labels, {self.score}, {model}"

    def labels(self, X: pd.DataFrame, hardship: Any, rng: np.random.Generator) -> np.ndarray:
        """Draw a label per row; a row is hard with the probability of its hardship."""
        rules = np.random.default_rng(7).normal(size=(2, len(SIGNAL), self.n_classes))
        usual, other = X[SIGNAL].to_numpy() @ (STRENGTH * rules)
        hard = rng.random(len(X)) < np.asarray(hardship, dtype=float)
        if self.way == "shift":
            usual = np.where(hard[:, None], other, usual)
        if self.way == "temper":
            usual = usual * np.where(hard, 0.15, 1.0)[:, None]
        y = (usual + rng.gumbel(size=usual.shape)).argmax(axis=1)
        if self.way == "noise":
            is_random = hard & (rng.random(len(X)) < 0.7)
            y = np.where(is_random, rng.integers(0, self.n_classes, len(X)), y)
        return np.array([f"label {k}" for k in y])


MECHANISMS = (
    Mechanism("noise", 5, "aps"),
    Mechanism("temper", 3, "aps", LOGISTIC),
    Mechanism("shift", 4, "lac"),
    Mechanism("noise", 2, "lac"),
    Mechanism("temper", 10, "raps"),
)
EVERY_FOURTH = [f"S{i:02d}" for i in range(0, 50, 4)]
DEGREES = {"none": 1.0, "school": 0.75, "bachelor": 0.4, "master": 0.2, "doctor": 0.0}
GROUPS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "women over 60": lambda X: (X["age"] > 60) & (X["sex"] == "f"),
    "black or disabled": lambda X: (X["race"] == "B") | X["disabled"],
    "men of 13 states": lambda X: X["state"].isin(EVERY_FOURTH) & (X["sex"] == "m"),
    "no degree, or unknown": lambda X: X["degree"].isna() | (X["degree"] == "none"),
    "poor parents": lambda X: (X["wage"] < 18_000) & (X["children"] >= 2),
    "age and wage": lambda X: (X["age"] - 55) / 40 + (np.log(X["wage"]) - 10) / 0.8 > 1.1,
    "sex xor race": lambda X: (X["sex"] == "f") ^ (X["race"] != "W"),
    "35 to 48": lambda X: X["age"].between(35, 48),
    "three at once": lambda X: (
        (X["race"] == "A") & (X["sex"] == "m")
        | (X["age"] < 24)
        | (X["degree"] == "doctor") & (X["children"] > 1)
    ),
    "degrees of schooling": lambda X: X["degree"].map(DEGREES).fillna(0.5),
    "nobody": lambda X: np.zeros(len(X)),
}


def people(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw people."""
    degree = np.where(rng.random(n) < 0.1, None, rng.choice(list(DEGREES), n))
    return pd.DataFrame(
        {
            "age": rng.integers(16, 95, n),
            "sex": rng.choice(["f", "m"], n),
            "race": rng.choice(list("WBAIO"), n, p=[0.6, 0.15, 0.1, 0.05, 0.1]),
            "state": rng.choice([f"S{i:02d}" for i in range(50)], n),
            "degree": degree,
            "wage": np.exp(rng.normal(10, 0.8, n)).round(),
            "disabled": rng.random(n) < 0.12,
            "children": rng.poisson(1.2, n),
            **{name: rng.normal(size=n) for name in SIGNAL},
        }
    )


def measure(mechanism: Mechanism, group: str, n_rows: int, seed: int) -> list[dict[str, Any]]:
    """Fit split, levels and the oracle on one table; the worst off have the largest hardship."""
    rng = np.random.default_rng([seed, MECHANISMS.index(mechanism), list(GROUPS).index(group)])
    X = people(n_rows + N_TEST, rng)
    hardship = np.asarray(GROUPS[group](X), dtype=float)
    y, test = mechanism.labels(X, hardship, rng), X[n_rows:]
    worst = hardship[n_rows:] == hardship.max()
    common = {"conformity_score": mechanism.score, "random_state": seed}
    true_degree = {"sensitive_features": lambda X: np.asarray(GROUPS[group](X), float)[:, None]}
    rows = []
    for method, cls, options in zip(
        FEW,
        (SplitConformalClassifier, FaReGClassifier, ExhaustiveConformalClassifier),
        ({}, {"sensitive_features": SENSITIVE}, true_degree),
        strict=True,
    ):
        clf = cls(mechanism.model, **common, **options).fit(X[:n_rows], y[:n_rows])
        sets = clf.predict_set(test)
        covered = is_covered(y[n_rows:], sets, classes=clf.classes_)
        found = getattr(clf, "named_groups_", ())
        rows.append(
            {
                "mechanism": mechanism.name,
                "group": group,
                "N": n_rows,
                "seed": seed,
                "method": method,
                "worst": round(float(covered[worst].mean()), 4),
                "average": round(float(covered.mean()), 4),
                "size": round(float(sets.sum(axis=1).mean()), 4),
                "named": "; ".join(named.rule.text for named in found),
                "version": VERSION,
            }
        )
    return rows


def main(rows: int = 2000, seeds: int = 3) -> None:
    """Measure the cases that this version lacks."""
    warnings.simplefilter("ignore", FaregWarning)
    done = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=COLUMNS)
    done = done[done["version"].astype(str) == VERSION]
    finished = set(done[["mechanism", "group", "N", "seed"]].itertuples(index=False, name=None))
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not RESULTS.stat().st_size:
            writer.writeheader()
        for seed in range(seeds):
            for mechanism in MECHANISMS:
                for group in GROUPS:
                    if (mechanism.name, group, rows, seed) not in finished:
                        writer.writerows(measure(mechanism, group, rows, seed))
                        file.flush()


if __name__ == "__main__":
    typer.run(main)
