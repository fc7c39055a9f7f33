"""Sets that are calibrated label by label, on a table with a rare label that matters.

    python benchmarks/by_label.py DIRECTORY

Readmission of patients with diabetes (UCI), three splits by patient: 70% of the rows to fit, the
others to test. Split conformal sets, calibrated for all labels together and label by label, and
those of FaReG, which learns an order of people for every label. Writes ``by_label.csv``: coverage
by true label and by the number of earlier hospital stays. Every patient counts once, as promised.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import typer
from measure import VERSION
from sklearn.model_selection import GroupShuffleSplit

from fareg import FaReGClassifier, FaregWarning, SplitConformalClassifier
from fareg.metrics import is_covered

SENSITIVE = ["admission_source_id", "number_inpatient"]
STAYS = {"no stay": (0, 0), "1 to 3 stays": (1, 3), "4 stays or more": (4, 1000)}
DROP = ["readmitted", "encounter_id", "patient_nbr"]


def main(folder: Path, splits: int = 3) -> None:
    """Measure every split and write the rows."""
    warnings.simplefilter("ignore", FaregWarning)
    table = pd.read_parquet(folder / "diabetes130.parquet")
    X, y, patient = table.drop(columns=DROP), table["readmitted"], table["patient_nbr"]
    found = []
    parts = GroupShuffleSplit(splits, train_size=0.7, random_state=0).split(X, y, patient)
    for seed, (fit, test) in enumerate(parts):
        truth, stays, who = y.iloc[test], X["number_inpatient"].iloc[test], patient.iloc[test]
        weights = 1 / who.map(who.value_counts())
        groups = {f"label {label}": truth == label for label in sorted(y.unique())}
        groups |= {name: stays.between(*ends) for name, ends in STAYS.items()}
        groups["everyone"] = truth.notna()
        by_label = {"label_conditional": True, "random_state": seed}
        for method, clf in {
            "split": SplitConformalClassifier(random_state=seed),
            "split by label": SplitConformalClassifier(**by_label),
            "FaReG by label": FaReGClassifier(sensitive_features=SENSITIVE, **by_label),
        }.items():
            clf.fit(X.iloc[fit], y.iloc[fit], clusters=patient.iloc[fit])
            sets = clf.predict_set(X.iloc[test])
            rows = pd.DataFrame({"size": sets.sum(axis=1)}, index=truth.index)
            rows["covered"] = is_covered(truth, sets, classes=clf.classes_)
            for group, inside in groups.items():
                group_rows = rows[inside.to_numpy()]
                mean = partial(np.average, weights=weights[group_rows.index])
                means = {"coverage": mean(group_rows["covered"]), "size": mean(group_rows["size"])}
                facts = {"split": seed, "method": method, "group": group, "rows": len(group_rows)}
                found.append({**facts, **means, "version": VERSION})
            print(seed, method, flush=True)
    path = Path(__file__).with_name("by_label.csv")
    pd.DataFrame(found).to_csv(path, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    typer.run(main)
