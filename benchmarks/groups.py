"""The first picture: coverage and labels per set by group, before and after.

    python benchmarks/groups.py

The paper's synthetic patients, 4,000 rows to fit and 5,000 to test, ten seeds, all defaults; split
conformal sets and those of FaReG, by colour and gender, whose combination decides which rows are
hard to predict. Writes ``groups.csv``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from measure import VERSION

from fareg import FaReGClassifier, SplitConformalClassifier
from fareg.datasets import make_synthetic
from fareg.metrics import is_covered

N_FIT, N_TEST, SEEDS = 4000, 5000, range(10)
FEATURES = ["Color", "Gender"]


def main() -> None:
    """Measure every seed and write the rows."""
    found = []
    for seed in SEEDS:
        data = make_synthetic(N_FIT + N_TEST, random_state=seed)
        fit, test = slice(0, N_FIT), slice(N_FIT, None)
        fareg = FaReGClassifier(sensitive_features=list(data.sensitive), random_state=seed)
        for method, clf in (
            ("split", SplitConformalClassifier(random_state=seed)),
            ("FaReG", fareg),
        ):
            sets = clf.fit(data.X[fit], data.y[fit]).predict_set(data.X[test])
            covered = is_covered(data.y[test], sets, classes=clf.classes_)
            rows = data.X[test][FEATURES].assign(coverage=covered, size=sets.sum(axis=1), rows=1)
            means = rows.groupby(FEATURES).agg({"coverage": "mean", "size": "mean", "rows": "sum"})
            found.append(means.reset_index().assign(method=method, seed=seed, version=VERSION))
    rows = pd.concat(found, ignore_index=True)
    path = Path(__file__).with_name("groups.csv")
    rows.to_csv(path, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    main()
