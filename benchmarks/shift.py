"""Coverage of another population, before and after weights, on real people: writes shift.csv.

    python benchmarks/shift.py PUMS_FOLDER ADULT.parquet OULAD.parquet

Of the old population, 2,900 rows train, 2,900 fix the number of levels and 2,900 calibrate. The
weights are learned from 2,900 new rows without labels, and up to 10,000 more measure coverage. If
new rows are drawn from the old population with known weights, these are compared with the learned
ones.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from measure import VERSION
from sklearn.frozen import FrozenEstimator

from fareg import FaReGClassifier, FaregError, FaregWarning, SplitConformalClassifier, accept_drift
from fareg.datasets import inject_label_noise
from fareg.shift import CovariateShift, KnownWeights, LabelShift
from fareg.workflow import MODELS
from fareg.workflow._models import reading

N, N_TEST, N_SEEDS = 2900, 10_000, 5
PEOPLE = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"]
CODES = ["COW", "MAR", "OCCP", "POBP", "RELP", "SEX", "RAC1P"]
LATER = (10, 15, 35, 44)  # Delaware, Hawaii, New Mexico, Rhode Island


def tilted(X, y, weights, rng):
    """Return old rows with their weights, and new rows drawn with these weights."""
    order, X = rng.permutation(len(X)), X.assign(weight=weights)
    old, others = order[: 3 * N], order[3 * N :]
    new = others[rng.random(len(others)) < weights[others] / weights.max()]
    return X.iloc[old], y[old], X.iloc[new], y[new]


def between(X, y, is_new, rng):
    """Return rows of the one population and of the other."""
    old, new = (rng.permutation(np.flatnonzero(side)) for side in (~is_new, is_new))
    return X.iloc[old[: 3 * N]], y[old[: 3 * N]], X.iloc[new], y[new]


def problems(pums, adult, oulad):
    """Yield the name, table and labels of each problem, and how its rows are drawn."""
    parts = [pd.read_csv(p, low_memory=False) for p in sorted(Path(pums).rglob("psam_p*.csv"))]
    table = pd.concat(parts, ignore_index=True)
    table = table[(table["AGEP"] > 16) & (table["PINCP"] > 100) & (table["WKHP"] > 0)]
    X = table[PEOPLE].reset_index(drop=True)
    X[CODES] = X[CODES].astype(str)
    y = pd.qcut(table["PINCP"], 4, labels=False).to_numpy()
    group = ((X["SEX"] == "2") & (X["AGEP"] < 35)).to_numpy()
    noisy = np.asarray(inject_label_noise(y, group, random_state=0))
    yield "PUMS: ten states to four", X, y, between, table["ST"].isin(LATER).to_numpy()
    yield "PUMS: four times as many from 50 on", X, y, tilted, np.where(X["AGEP"] >= 50, 4.0, 1.0)
    name = "PUMS: four times as many of a group with noisy labels"
    yield name, X, noisy, tilted, np.where(group, 4.0, 1.0)
    table = pd.read_parquet(oulad)
    table = table[table["code_presentation"].isin(["2013J", "2014J"])].reset_index(drop=True)
    X = table.drop(columns=["final_result", "code_presentation", "id_student"])
    is_new = (table["code_presentation"] == "2014J").to_numpy()
    yield "OULAD: a year later", X, table["final_result"].to_numpy(), between, is_new
    table = pd.read_parquet(adult)
    X, y = table.drop(columns=["income", "fnlwgt"]), table["income"].to_numpy()
    yield "Adult: by survey weight", X, y, tilted, table["fnlwgt"].to_numpy(dtype=float)
    yield "Adult: four times as many high incomes", X, y, tilted, np.where(y == ">50K", 4.0, 1.0)


def measured(name, X, y, draw, by, seed):
    """Yield the results of each method with each kind of weights."""
    features, rng = list(X), np.random.default_rng(seed)
    X, y, X_new, y_new = draw(X, y, by, rng)
    X, X_new = X.reset_index(drop=True), X_new.reset_index(drop=True)
    model = reading(MODELS["hgb"](seed), features)
    levels = FaReGClassifier(model, sensitive_features=features, random_state=seed)
    levels = levels.fit(X[: 2 * N], y[: 2 * N])
    split = SplitConformalClassifier(FrozenEstimator(levels.estimator_), random_state=seed)
    cal, y_cal, teach = X[2 * N :].reset_index(drop=True), y[2 * N :], X_new[:N]
    test, y_test = X_new[N : N + N_TEST].reset_index(drop=True), y_new[N : N + N_TEST]
    worst = levels.predict_group(test) > 0.8
    column = np.searchsorted(levels.classes_, y_test)
    shifts = {"none": None, "learned": CovariateShift(features)}
    if "incomes" in name:
        shifts["by label"] = LabelShift()
    elif "weight" in X:
        shifts["known"] = KnownWeights("weight")
    for way, shift in shifts.items():
        try:
            if way == "learned":
                shift.fit(cal, teach)
            if way == "by label":
                proba = (levels.predict_proba(rows) for rows in (cal, teach))
                shift.fit(y_cal, *proba, classes=levels.classes_)
            for method in ("split", "levels"):
                make = split.conformalize if method == "split" else levels.recalibrated
                clf = make(cal, y_cal, shift=shift)
                sets = clf.predict_set(test)
                covered = sets[np.arange(len(column)), column]
                yield {
                    "problem": name,
                    "method": method,
                    "weights": way,
                    "seed": seed,
                    "effective_rows": clf.shift_.effective_rows if clf.shift_ else len(cal),
                    "coverage": covered.mean(),
                    "worst_off_fifth": covered[worst].mean(),
                    "size": sets.sum(axis=1).mean(),
                    "version": VERSION,
                }
        except FaregError as error:
            print(name, way, error, flush=True)


def main(pums, adult, oulad) -> None:
    warnings.simplefilter("ignore", FaregWarning)
    rows = []
    with accept_drift():
        for name, *problem in problems(pums, adult, oulad):
            for seed in range(N_SEEDS):
                rows += measured(name, *problem, seed)
            found = pd.DataFrame(rows)
            keys, values = ["problem", "weights", "method"], list(found.columns[4:-1])
            one = found[found["problem"] == name].groupby(keys)
            means = one[values].mean().round(3)
            print(means.assign(error=one["coverage"].sem().round(4)), flush=True)
            found.round(5).to_csv(Path(__file__).with_name("shift.csv"), index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
