"""Coverage and set size by group in fairlearn's MetricFrame, before and after calibration."""

from fairlearn.metrics import MetricFrame, count

import fareg
from fareg.datasets import make_synthetic
from fareg.metrics import set_metrics

data = make_synthetic(6000, random_state=0)
X_train, y_train = data.X[:4000], data.y[:4000]
X_test, y_test = data.X[4000:], data.y[4000:]
who = X_test[["Color", "Gender"]]


def by_group(clf):
    """Return coverage and size of a classifier's sets for each colour and gender."""
    return MetricFrame(
        metrics={"rows": count, **set_metrics(clf.classes_)},
        y_true=y_test,
        y_pred=clf.predict_set(X_test),  # sets instead of labels: one column per class
        sensitive_features=who,
    )


split = fareg.SplitConformalClassifier(random_state=0).fit(X_train, y_train)
before = by_group(split)
print("Split conformal sets\n", before.by_group, sep="")

# an audit says which gaps are more than chance, on rows that did not propose them
found = fareg.audit(
    who, y_test, split.predict_set(X_test), classes=split.classes_, measures=False, random_state=0
)
print("\nAudit:", found.verdict)

equal = fareg.ExhaustiveConformalClassifier(sensitive_features=list(who), random_state=0)
after = by_group(equal.fit(X_train, y_train))
print("\nEvery combination calibrated on its own\n", after.by_group, sep="")
gaps = [frame.difference()["coverage"] for frame in (before, after)]
print(f"\nLargest gap in coverage: {gaps[0]:.3f} before, {gaps[1]:.3f} after")
assert gaps[1] < gaps[0]
