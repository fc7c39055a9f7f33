"""How well disadvantage is learned, through a whole fit: how well the worst off are covered.

    python benchmarks/disadvantage.py tuning --rows 2000 --seeds 4
    python benchmarks/disadvantage.py held-out --rows 2000 --seeds 4
    python benchmarks/disadvantage.py noise --rows 2000 --seeds 8

Half of the rows train the base model. Its out-of-fold scores on them teach the disadvantage, whose
quantiles are the levels; the other half calibrates. Beside it stand split conformal prediction,
split sets of the same size, and an oracle that calibrates every true degree of hardness by itself.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from degrees import HELD_OUT, NOISE, TUNING, draw
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline

from fareg._columns import canonical
from fareg._encoding import gradient_boosting, one_hot_encoder
from fareg.calibration import level_thresholds
from fareg.groups import MEMBERS, GroupLearner
from fareg.pvalues import conformal_quantile
from fareg.scores import aps

ALPHA = 0.1
N_TEST = 5_000


@dataclass(frozen=True)
class Case:
    """What a whole fit knows when it comes to learning a disadvantage."""

    learn: pd.DataFrame
    covered: np.ndarray
    calibration: pd.DataFrame
    scores: np.ndarray
    calibration_degree: np.ndarray
    test: pd.DataFrame
    test_scores: np.ndarray
    test_labels: np.ndarray
    test_degree: np.ndarray
    n_degrees: int


def make_case(name: str, n_rows: int, seed: int, base: str) -> Case:
    """Train the base model and score all rows."""
    data = draw(name, n_rows + N_TEST, seed)
    train, cal, test = np.split(np.arange(len(data.y)), [n_rows // 2, n_rows])
    forest = RandomForestClassifier(min_samples_leaf=5, random_state=seed)
    model = {
        "boosting": gradient_boosting(seed),
        "forest": make_pipeline(one_hot_encoder(), forest),
    }[base]
    rng = np.random.default_rng(seed)
    proba = np.zeros((len(train), int(data.y.max()) + 1))
    for rest, fold in KFold(5, shuffle=True, random_state=seed).split(train):
        fitted = clone(model).fit(data.X.iloc[train[rest]], data.y[train[rest]])
        proba[np.ix_(fold, fitted.classes_)] = fitted.predict_proba(data.X.iloc[train[fold]])
    own = aps(proba, rng.random(len(train)))[np.arange(len(train)), data.y[train]]
    rank = rankdata(own) / (len(own) + 1)
    model.fit(data.X.iloc[train], data.y[train])
    columns = canonical(data.X[list(data.sensitive)])

    def scored(rows: np.ndarray) -> np.ndarray:
        return aps(model.predict_proba(data.X.iloc[rows]), rng.random(len(rows)))

    return Case(
        learn=columns.iloc[train],
        covered=np.clip((1 - rank) / min(1, 5 * ALPHA), 0, 1),
        calibration=columns.iloc[cal],
        scores=scored(cal)[np.arange(len(cal)), data.y[cal]],
        calibration_degree=data.degree[cal],
        test=columns.iloc[test],
        test_scores=scored(test),
        test_labels=data.y[test],
        test_degree=data.degree[test],
        n_degrees=int(data.degree.max()) + 1,
    )


def cached_case(name: str, n_rows: int, seed: int, base: str, cache: Path | None) -> Case:
    if cache is None:
        return make_case(name, n_rows, seed, base)
    path = cache / f"{name}-{n_rows}-{seed}-{base}.pickle"
    if not path.exists():
        path.write_bytes(pickle.dumps(make_case(name, n_rows, seed, base)))
    return pickle.loads(path.read_bytes())


def measure(case: Case, sets: np.ndarray) -> dict[str, float]:
    covered = sets[np.arange(len(sets)), case.test_labels]
    worst = case.test_degree == case.n_degrees - 1
    return {"worst": covered[worst].mean(), "average": covered.mean(), "size": sets.sum(1).mean()}


def leveled_sets(case: Case, learner: GroupLearner, n_levels: int) -> np.ndarray:
    edges = np.quantile(learner.out_of_fold_, np.arange(1, n_levels) / n_levels)
    edges = np.unique(edges)
    cal = np.searchsorted(edges, learner.disadvantage(case.calibration), side="right")
    test = np.searchsorted(edges, learner.disadvantage(case.test), side="right")
    theta = level_thresholds(case.scores, cal, len(edges) + 1, alpha=ALPHA)
    return case.test_scores <= theta[test][:, None]


def run_case(case: Case, learner: GroupLearner, max_levels: int = 20) -> list[dict]:
    rows = []
    split = case.test_scores <= conformal_quantile(case.scores, confidence_level=1 - ALPHA)
    rows.append({"method": "split", **measure(case, split)})
    own = [
        conformal_quantile(case.scores[case.calibration_degree == d], confidence_level=1 - ALPHA)
        for d in range(case.n_degrees)
    ]
    oracle = case.test_scores <= np.array(own)[case.test_degree][:, None]
    rows.append({"method": "oracle", **measure(case, oracle)})
    start = time.perf_counter()
    learner.fit(case.learn, case.covered)
    seconds = time.perf_counter() - start
    n_levels = learner.signal_.n_levels(len(case.scores), max_levels)
    sets = leveled_sets(case, learner, n_levels)
    truth = case.test_degree
    rows.append(
        {
            "method": "levels",
            **measure(case, sets),
            "seconds": seconds,
            "n_levels": n_levels,
            "gain": learner.signal_.gain,
            "p_value": learner.signal_.p_value,
            "order": rank_agreement(learner.disadvantage(case.test), truth),
        }
    )
    matched = np.quantile(case.test_scores, sets.mean())
    rows.append({"method": "size-matched split", **measure(case, case.test_scores <= matched)})
    return rows


def rank_agreement(b: np.ndarray, degree: np.ndarray) -> float:
    """Return how often the worst off of a random pair of degrees has the larger disadvantage."""
    worst = degree == degree.max()
    if worst.all() or not worst.any():
        return np.nan
    ranks = rankdata(b)
    n, m = worst.sum(), (~worst).sum()
    return float((ranks[worst].sum() - n * (n + 1) / 2) / (n * m))


def main(
    which: str,
    rows: int = 2000,
    seeds: int = 4,
    first_seed: int = 1000,
    base: str = "boosting,forest",
    members: str = ",".join(MEMBERS),
    cache: Annotated[Path | None, typer.Option(help="folder for trained cases")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV of the raw rows")] = None,
) -> None:
    """Measure on the shapes for tuning, on those held out, on noise, or on named ones."""
    sets = {"tuning": TUNING, "held-out": HELD_OUT, "noise": NOISE}
    names = list(sets.get(which, which.split(",")))
    results = []
    for name in names:
        for seed in range(first_seed, first_seed + seeds):
            bases = base.split(",")
            kind = bases[seed % len(bases)]
            case = cached_case(name, rows, seed, kind, cache)
            learner = GroupLearner(
                members=tuple(members.split(",")), numbers="piecewise", random_state=seed
            )
            for row in run_case(case, learner):
                results.append({"data": name, "N": rows, "seed": seed, "base": kind, **row})
        show(pd.DataFrame(results).query("data == @name"))
    if out is not None:
        pd.DataFrame(results).to_csv(out, index=False, float_format="%.4f")


def show(rows: pd.DataFrame) -> None:
    mean = rows.groupby("method", sort=False).mean(numeric_only=True)
    pick = mean.loc["levels"]
    print(f"{rows['data'].iloc[0]:<18}", end="")
    for method in ("split", "size-matched split", "levels", "oracle"):
        print(f" {mean.loc[method, 'worst']:.3f} {mean.loc[method, 'size']:.3f} |", end="")
    print(
        f" gap {pick['worst'] - mean.loc['oracle', 'worst']:+.3f} "
        f"size {pick['size'] / mean.loc['oracle', 'size'] - 1:+.1%} "
        f"order {pick['order']:.3f} gain {pick['gain']:.3f} J {pick['n_levels']:.1f} "
        f"{pick['seconds']:.2f} s",
        flush=True,
    )


if __name__ == "__main__":
    typer.run(main)
