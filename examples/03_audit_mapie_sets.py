"""Audit prediction sets that another library made.

MAPIE promises 90% coverage on average, and keeps it. The audit asks who pays for the average.
It proposes groups on random halves of the rows, verifies them on the other halves and writes a
report.

Run: ``python 03_audit_mapie_sets.py [folder]``
"""

import sys
import tempfile
from pathlib import Path

from mapie.classification import SplitConformalClassifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fareg import audit
from fareg.datasets import make_synthetic

data = make_synthetic(7000, random_state=1)  # Red women and Blue men are hard to diagnose
X_train, y_train = data.X[:1000], data.y[:1000]
X_cal, y_cal = data.X[1000:2000], data.y[1000:2000]
X_test, y_test = data.X[2000:], data.y[2000:]

text = make_column_selector(dtype_exclude="number")
encoder = make_column_transformer((OneHotEncoder(), text), remainder="passthrough")
model = make_pipeline(encoder, RandomForestClassifier(min_samples_leaf=5, random_state=0))
model.fit(X_train, y_train)

mapie = SplitConformalClassifier(
    model, confidence_level=0.9, conformity_score="lac", prefit=True, random_state=0
)
_, sets = mapie.conformalize(X_cal, y_cal).predict_set(X_test)  # shape (n_samples, n_classes, 1)

result = audit(
    X_test,
    y_test,
    sets,
    classes=model.classes_,
    sensitive_features=data.sensitive,
    confidence_level=0.9,
    random_state=0,
)
print(result.verdict)
for finding in result.findings:
    rate = finding.rate
    print(f"- {finding.rule}: {rate.share:.1%} covered, tested on {rate.n} rows on average")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
result.to_html(folder / "audit.html")
result.to_json(folder / "audit.json")
print(f"\nReport: {folder / 'audit.html'}")
