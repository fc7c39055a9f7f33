"""What audits find: planted groups in published tables, fair sets, and repeated audits.

    python benchmarks/auditing.py --folder DIRECTORY --part known --cases 10
    python benchmarks/auditing.py --folder DIRECTORY --part held-out --cases 10

A small forest and split conformal sets (LAC, APS) make the sets of new rows of each table. In the
rows of a random conjunction of one to three conditions, which holds 5% to 25% of the rows, true
labels are removed from some sets until 60% to 85% are covered. Half of these cases also have a
larger, milder failure. Fair sets cover every row with the same probability. Constants of the
search were chosen on the tables and seeds of ``known``. Results are added to ``auditing.csv``.
"""

from __future__ import annotations

import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from fareg import FaregWarning, SplitConformalClassifier, audit
from fareg._encoding import ordinal_encoder
from fareg.metrics import is_covered

RESULTS = Path(__file__).with_name("auditing.csv")
FIELDS = (
    "part", "table", "score", "case", "kind", "n", "group_rows", "covered", "conditions", "planted",
    "findings", "first", "overlap", "place", "again", "again_overlap", "seconds",
)  # fmt: skip
TABLES = {  # target, columns for groups, audited rows
    "adult": (
        "income",
        ["age", "sex", "race", "marital-status", "occupation", "hours-per-week", "education-num"],
        4000,
    ),
    "nhanes": (
        "HealthGen",
        ["Gender", "Age", "Race1", "Education", "MaritalStatus", "Poverty", "BMI", "HomeOwn"],
        3000,
    ),
    "diabetes130": (
        "readmitted",
        ["race", "gender", "age", "number_inpatient", "time_in_hospital", "insulin"],
        6000,
    ),
    "oulad": (
        "final_result",
        ["gender", "region", "highest_education", "imd_band", "age_band", "disability",
         "studied_credits"],
        3000,
    ),
    "compas": (
        "two_year_recid",
        ["sex", "age", "race", "priors_count", "c_charge_degree", "juv_fel_count"],
        3000,
    ),
}  # fmt: skip
PARTS = {"known": (("adult", "nhanes", "diabetes130"), 0), "held-out": (tuple(TABLES), 10_000)}
KINDS = ("planted", "behind another", "fair")


def sets_of(path: Path, score: str, seed: int) -> tuple[pd.DataFrame, Any, Any, Any]:
    """Return the columns, labels, sets and classes of rows that neither trained nor calibrated."""
    target, columns, n = TABLES[path.stem]
    table = pd.read_parquet(path).dropna(subset=[target]).sample(frac=1, random_state=seed)
    table = table.head(n + 4000).reset_index(drop=True)
    y = table[target].astype(str).to_numpy()
    X = table[columns]
    forest = RandomForestClassifier(40, min_samples_leaf=5, random_state=seed)
    model = make_pipeline(ordinal_encoder(), forest).fit(X[n + 1500 :], y[n + 1500 :])
    clf = SplitConformalClassifier(
        FrozenEstimator(model), conformity_score=score, random_state=seed
    )
    clf.conformalize(X[n : n + 1500], y[n : n + 1500])
    return X[:n], y[:n], clf.predict_set(X[:n]), clf.classes_


def some_group(
    X: pd.DataFrame, rng: np.random.Generator, share: tuple[float, float], most: int
) -> tuple[Any, list[str]]:
    """Draw a conjunction with a share of the rows in this range, and its words."""
    while True:
        inside, words = np.ones(len(X), dtype=bool), []
        for name in rng.choice(X.columns, rng.integers(1, most + 1), replace=False):
            column = X[name]
            if column.dtype.kind in "if" and column.nunique() > 10:
                cut = float(column.quantile(rng.uniform(0.2, 0.8)))
                is_above = rng.random() < 0.5
                inside &= np.asarray(column > cut if is_above else column <= cut)
                words.append(f"{name} {'>' if is_above else '<='} {cut:.4g}")
            else:
                levels = column.dropna().value_counts(normalize=True)
                category = rng.choice(levels.index[levels > 0.03].to_numpy())
                inside &= np.asarray(column == category)
                words.append(f"{name} = {category}")
        if share[0] <= inside.mean() <= share[1] and inside.sum() >= 200:
            return inside, words


def lowered(covered: Any, inside: Any, wanted: float, rng: np.random.Generator) -> Any:
    """Return which rows lose their label, so that this share of the rows inside is covered."""
    chance = max(0.0, 1 - wanted / max(covered[inside].mean(), 1e-9))
    return covered & inside & (rng.random(len(covered)) < chance)


def draw(path: Path, score: str, case: int, kind: str) -> tuple[Any, ...]:
    """Return one case: columns, labels, sets, classes, the planted rows and their words."""
    rng = np.random.default_rng([case, KINDS.index(kind), 30])
    X, y, sets, classes = sets_of(path, score, case % 5)
    covered = is_covered(y, sets, classes=classes)
    codes = pd.Index(classes).get_indexer(y)
    sets = sets.copy()
    if kind == "fair":  # every row is covered with the same probability
        sets[np.arange(len(y)), codes] = rng.random(len(y)) < 0.9
        return X, y, sets, classes, np.zeros(len(y), dtype=bool), []
    lost = np.zeros(len(y), dtype=bool)
    if kind == "behind another":
        other, _ = some_group(X, rng, (0.3, 0.45), 1)
        lost |= lowered(covered, other, 0.85, rng)
    inside, words = some_group(X, rng, (0.05, 0.25), 3)
    lost |= lowered(covered & ~lost, inside, rng.choice([0.6, 0.65, 0.7, 0.75, 0.8, 0.85]), rng)
    sets[np.flatnonzero(lost), codes[lost]] = False
    return X, y, sets, classes, inside, words


def overlap(first: Any, second: Any) -> float:
    """Return the share of the rows in either set that are in both."""
    return float((first & second).sum() / max(1, (first | second).sum()))


def run(path: Path, score: str, case: int, kind: str) -> dict[str, Any]:
    """Return what two audits with different seeds find in one case."""
    X, y, sets, classes, inside, words = draw(path, score, case, kind)
    covered = is_covered(y, sets, classes=classes)
    start = time.perf_counter()
    first, second = (
        audit(X, y, sets, classes=classes, measures=False, random_state=seed).findings
        for seed in (case, case + 1)
    )
    seconds = (time.perf_counter() - start) / 2
    overlaps = [overlap(found.mask, inside) for found in first]
    return {
        "kind": kind,
        "n": len(X),
        "group_rows": int(inside.sum()),
        "covered": round(float(covered[inside].mean()), 4) if inside.any() else "",
        "conditions": len(words),
        "planted": " and ".join(words),
        "findings": len(first),
        "first": str(first[0].rule) if first else "",
        "overlap": round(max(overlaps, default=0.0), 3),
        "place": int(np.argmax(overlaps)) if overlaps else "",
        "again": str(second[0].rule) if second else "",
        "again_overlap": round(overlap(first[0].mask, second[0].mask), 3)
        if first and second
        else float(len(first) == len(second)),
        "seconds": round(seconds, 2),
    }


def main(folder: Path, part: str = "known", cases: int = 5, only: str = "") -> None:
    """Measure one part and add new rows to the results."""
    warnings.simplefilter("ignore", FaregWarning)
    tables, offset = PARTS[part]
    keys = ["part", "table", "score", "case", "kind"]
    done = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=keys)
    finished = set(done[keys].itertuples(index=False, name=None))
    for case in range(offset, offset + cases):
        for table in only.split(",") if only else tables:
            for score in ("lac", "aps"):
                for kind in KINDS:
                    if (part, table, score, case, kind) in finished:
                        continue
                    row = run(folder / f"{table}.parquet", score, case, kind)
                    row = {"part": part, "table": table, "score": score, "case": case, **row}
                    is_new = not RESULTS.exists()
                    with RESULTS.open("a", newline="") as file:
                        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                        if is_new:
                            writer.writeheader()
                        writer.writerow(row)
                    print(*(row[key] for key in FIELDS), sep=" | ", flush=True)


if __name__ == "__main__":
    typer.run(main)
