"""Find who plain conformal sets under-cover, and give every degree of disadvantage its promise.

The synthetic patients are harder to diagnose if their colour and gender match in a certain way.
The classifier does not know this: it gets four sensitive features and finds the combination.
"""

from sklearn.frozen import FrozenEstimator

from fareg import FaReGClassifier, SplitConformalClassifier
from fareg.datasets import make_synthetic
from fareg.metrics import coverage_score, mean_set_size

data = make_synthetic(6000, random_state=0)
X, y, sensitive = data.X, data.y, list(data.sensitive)
train, test = slice(0, 5000), slice(5000, None)

clf = FaReGClassifier(sensitive_features=sensitive, confidence_level=0.9, random_state=0)
clf.fit(X[train], y[train])  # splits, trains gradient boosting, learns levels, calibrates

# the same estimator with one threshold for everyone, on rows that neither was trained on
other = make_synthetic(2500, random_state=1)
plain = SplitConformalClassifier(FrozenEstimator(clf.estimator_), random_state=0)
plain.conformalize(other.X, other.y)

print(clf.groups_[["group", "rule", "share", "coverage"]].to_string(index=False))
for name, method in (("split conformal", plain), ("FaReG", clf)):
    sets = method.predict_set(X[test])
    hard = data.group[test]
    print(
        f"{name:16} coverage {coverage_score(y[test], sets):.3f}, "
        f"in the group {coverage_score(y[test][hard], sets[hard]):.3f}, "
        f"{mean_set_size(sets):.2f} labels per set"
    )

# thresholds and coverage against the level of disadvantage
clf.plot_levels(X[test], y[test]).savefig("levels.png")
