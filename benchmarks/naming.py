"""How often a group is named: on fair tables of ten kinds, on clear groups, on published tables,
and in published tables with labels redrawn for some people, by fits and by audits.

    python benchmarks/naming.py fair --seeds 6
    python benchmarks/naming.py clear --seeds 5
    python benchmarks/naming.py published --seeds 3 --folder DIRECTORY
    python benchmarks/naming.py planted --seeds 3 --folder DIRECTORY
    python benchmarks/naming.py audited --seeds 5 --folder DIRECTORY

Every run is a whole ``fit`` with a small forest; each is added to ``naming.csv`` at once and is not
measured again. Constants of naming were not chosen on these seeds.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from degrees import draw
from measure import VERSION
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from fareg import FaReGClassifier, FaregWarning, SplitConformalClassifier, audit
from fareg._columns import select_columns
from fareg._encoding import ordinal_encoder
from fareg.datasets import make_synthetic
from fareg.metrics import is_covered

RESULTS = Path(__file__).with_name("naming.csv")
COLUMNS = (
    *("part", "table", "seed", "named", "groups"),
    *("true_coverage", "levels", "agreement", "version"),
)
N = 2000
CLEAR = ("xnor", "band by gender", "minority", "parity", "jobs")
Columns = Callable[[np.random.Generator, int], dict[str, Any]]


def _mixed(count: int) -> Columns:
    return lambda rng, n: {
        f"c{j}": rng.choice(list("abc"), n) if j % 2 else rng.normal(size=n) for j in range(count)
    }


def _holes(rng: np.random.Generator, n: int) -> dict[str, Any]:
    return {f"h{j}": np.where(rng.random(n) < 0.5, np.nan, rng.normal(size=n)) for j in range(4)}


def _copies(rng: np.random.Generator, n: int) -> dict[str, Any]:
    x = rng.normal(size=n)
    return {f"x{j}": x + 0.1 * rng.normal(size=n) for j in range(5)}


def _levels(*counts: int) -> Columns:
    return lambda rng, n: {f"l{k}": [f"v{i}" for i in rng.integers(0, k, n)] for k in counts}


FAIR: dict[str, Columns] = {
    "three columns": _mixed(3),
    "ten columns": _mixed(10),
    "thirty columns": _mixed(30),
    "few levels": _levels(2, 3, 4, 5),
    "forty levels": _levels(2, 40),
    "500 levels": _levels(3, 500),
    "heavy tails": lambda rng, n: {f"t{j}": rng.standard_t(1, n) for j in range(4)},
    "missing values": _holes,
    "copies of a column": _copies,
    "people with five rows": _mixed(4),
}


def fair_table(kind: str, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray, Any]:
    """Draw rows that are all equally hard, with uninformative columns; return ids as well."""
    X = make_synthetic(N, random_state=rng).X.filter(like="Feature")
    signal, hard = X["Feature 1"].to_numpy(), X["Feature 2"].to_numpy() < 0.4
    y = np.where(hard, 3 * (signal >= 0.5) + rng.integers(0, 3, N), (6 * signal).astype(int))
    people = pd.DataFrame(FAIR[kind](rng, N))
    ids = None
    if kind == "people with five rows":  # a person's rows differ in the first feature only
        ids = np.repeat(np.arange(N // 5), 5)
        first = ids * 5
        people, y = people.iloc[first].reset_index(drop=True), y[first]
        X = X.iloc[first].reset_index(drop=True)
        X["Feature 1"] += rng.normal(0, 1e-3, N)
    return pd.concat([X, people], axis=1), y, (list(people), ids)


def fitted(
    X: pd.DataFrame, y: np.ndarray, sensitive: list[str], seed: int, **parameters: Any
) -> Any:
    """Fit levels around a small forest."""
    forest = RandomForestClassifier(40, min_samples_leaf=5, random_state=seed)
    clf = FaReGClassifier(
        make_pipeline(ordinal_encoder(), forest),
        sensitive_features=sensitive,
        conformity_score=parameters.pop("conformity_score", "aps"),
        random_state=seed,
    )
    return clf.fit(X, y, **parameters)


def run_fair(kind: str, seed: int) -> dict[str, Any]:
    """Return what is named where all rows are equally hard."""
    X, y, (sensitive, ids) = fair_table(kind, np.random.default_rng([seed, 11]))
    return named_in_words(fitted(X, y, sensitive, seed, clusters=ids))


def run_clear(shape: str, seed: int) -> dict[str, Any]:
    """Return what is named where a group is hard, and how well split sets cover that group."""
    data = draw(shape, N + 5000, seed)
    clf = fitted(data.X[:N], data.y[:N], list(data.sensitive), seed)
    new, truth = data.X[N:], data.y[N:]
    return compared(clf, new, truth, data.degree(new) > 0, list(data.sensitive))


def compared(
    clf: Any, X: pd.DataFrame, y: np.ndarray, group: np.ndarray, sensitive: list[str]
) -> dict[str, Any]:
    """Return what is named, the true group's coverage by split sets and levels, and the overlap."""
    threshold = clf.calibration_.sample.split_thresholds(clf.alpha_)
    split = is_covered(y, clf.conformity_scores(X) <= threshold, classes=clf.classes_)
    levels = is_covered(y, clf.predict_set(X), classes=clf.classes_)
    named = _rows_of(clf, select_columns(X, sensitive))
    return {
        **named_in_words(clf),
        "true_coverage": round(float(split[group].mean()), 4),
        "levels": round(float(levels[group].mean()), 4),
        "agreement": round(_overlap(named, group), 3),
    }


def named_in_words(clf: Any) -> dict[str, Any]:
    """Return the named groups in words."""
    groups = [group.rule.text for group in clf.named_groups_]
    return {"named": len(groups), "groups": "; ".join(groups)}


def _rows_of(clf: Any, columns: pd.DataFrame) -> np.ndarray:
    inside = [group.rule.inside(columns) for group in clf.named_groups_]
    return np.any(inside, axis=0) if inside else np.zeros(len(columns), dtype=bool)


def _overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Return the share of the rows in either set that are in both; two empty sets agree."""
    either = int((first | second).sum())
    return float((first & second).sum() / either) if either else 1.0


PUBLISHED = {  # target, sensitive columns, columns left out
    "german_credit": ("Credit_risk", ["Gender", "Age"], []),
    "nhanes": ("HealthGen", ["Gender", "Race1", "Age", "Education"], ["ID"]),
    "oulad": ("final_result", ["gender", "disability", "age_band", "imd_band"], ["id_student"]),
    "adult": ("income", ["age", "sex", "race", "marital-status"], ["fnlwgt"]),
    "diabetes130": ("readmitted", ["race", "gender", "age"], ["encounter_id", "patient_nbr"]),
}


def run_published(path: Path, score: str, seeds: int) -> list[dict[str, Any]]:
    """Return what three splits of the same 4,000 rows name, and the overlap of these groups."""
    target, sensitive, left_out = PUBLISHED[path.stem]
    table = pd.read_parquet(path).dropna(subset=[target])
    table = table.sample(min(4000, len(table)), random_state=0).reset_index(drop=True)
    X = table.drop(columns=[target, *left_out])
    X = X.loc[:, X.isna().mean() < 0.6]
    y = table[target].astype(str).to_numpy()
    fits = [fitted(X, y, sensitive, seed, conformity_score=score) for seed in range(seeds)]
    masks = [_rows_of(clf, select_columns(X, sensitive)) for clf in fits]
    agreement = float(np.mean([_overlap(a, b) for a, b in combinations(masks, 2)]))
    return [{**named_in_words(clf), "agreement": round(agreement, 3)} for clf in fits]


MANUAL = ["Craft-repair", "Farming-fishing", "Machine-op-inspct", "Transport-moving"]
PLANTED_AMONG = [*PUBLISHED["adult"][1], "occupation"]
PLANTED: dict[str, Callable[[pd.DataFrame], Any]] = {
    "women over 50": lambda X: (X["sex"] == "Female") & (X["age"] > 50),
    "black people": lambda X: X["race"] == "Black",
    "unmarried manual workers": lambda X: (
        X["occupation"].isin(MANUAL) & (X["marital-status"] == "Never-married")
    ),
    "women over 50, black men": lambda X: (
        (X["sex"] == "Female") & (X["age"] > 50) | (X["sex"] == "Male") & (X["race"] == "Black")
    ),
}


def planted(path: Path, group: str, seed: int) -> tuple[Any, pd.DataFrame, np.ndarray, np.ndarray]:
    """Return a model, new rows, their labels, redrawn for six in ten rows of a group, and
    which rows are in the group.

    The model is trained on the original labels of 8,000 rows.
    """
    rng = np.random.default_rng([seed, 12])
    table = pd.read_parquet(path).sample(frac=1, random_state=seed).reset_index(drop=True)
    X, y = table.drop(columns=["income", "fnlwgt"]), table["income"].astype(str).to_numpy()
    forest = RandomForestClassifier(40, min_samples_leaf=5, random_state=seed)
    model = make_pipeline(ordinal_encoder(), forest).fit(X[:8000], y[:8000])
    inside = np.asarray(PLANTED[group](X))
    moved = inside & (rng.random(len(y)) < 0.6)
    y = np.where(moved, rng.choice(np.unique(y), len(y)), y)
    return FrozenEstimator(model), X[8000:].reset_index(drop=True), y[8000:], inside[8000:]


def run_planted(path: Path, group: str, seed: int) -> dict[str, Any]:
    """Return what a model names after calibration on 8,000 rows."""
    model, X, y, inside = planted(path, group, seed)
    clf = FaReGClassifier(model, sensitive_features=PLANTED_AMONG, random_state=seed)
    clf.conformalize(X[:8000], y[:8000])
    return compared(clf, X[8000:], y[8000:], inside[8000:], PLANTED_AMONG)


def run_audited(path: Path, group: str, seed: int) -> dict[str, Any]:
    """Return the first finding of an audit of split sets of 6,000 rows, and its overlap."""
    model, X, y, inside = planted(path, group, seed)
    clf = SplitConformalClassifier(model, random_state=seed).conformalize(X[:4000], y[:4000])
    X, y, inside = X[4000:10_000], y[4000:10_000], inside[4000:10_000]
    sets = clf.predict_set(X)
    found = audit(
        X,
        y,
        sets,
        classes=clf.classes_,
        sensitive_features=PLANTED_AMONG,
        measures=False,
        random_state=seed,
    ).findings
    covered = is_covered(y, sets, classes=clf.classes_)
    return {
        "named": len(found),
        "groups": found[0].rule.text if found else "",
        "true_coverage": round(float(covered[inside].mean()), 4),
        "agreement": round(_overlap(found[0].mask, inside), 3) if found else 0.0,
    }


def main(part: str, seeds: int = 3, folder: Path | None = None, only: str = "") -> None:
    """Measure one part and add new rows to the results."""
    warnings.simplefilter("ignore", FaregWarning)
    done = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=COLUMNS)
    done = done[done["version"].astype(str) == VERSION]
    finished = set(done[["part", "table", "seed"]].itertuples(index=False, name=None))

    def add(table: str, seed: int, row: dict[str, Any]) -> None:
        is_new = not RESULTS.exists()
        with RESULTS.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow({"part": part, "table": table, "seed": seed, **row, "version": VERSION})
        print(part, table, seed, row, flush=True)

    if part == "published":
        assert folder is not None
        for name in only.split(",") if only else PUBLISHED:
            for score in ("aps", "lac"):
                if (part, f"{name}, {score}", 0) not in finished:
                    rows = run_published(folder / f"{name}.parquet", score, seeds)
                    for seed, row in enumerate(rows):
                        add(f"{name}, {score}", seed, row)
        return
    adult = (folder or Path()) / "adult.parquet"
    run, tables = {
        "fair": (run_fair, tuple(FAIR)),
        "clear": (run_clear, CLEAR),
        "planted": (partial(run_planted, adult), tuple(PLANTED)),
        "audited": (partial(run_audited, adult), tuple(PLANTED)),
    }[part]
    for seed in range(seeds):
        for table in only.split(",") if only else tables:
            if (part, table, seed) not in finished:
                add(table, seed, run(table, seed))


if __name__ == "__main__":
    typer.run(main)
