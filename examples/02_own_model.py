"""Calibrate a model that is already trained, save the result and predict elsewhere."""

import tempfile
from pathlib import Path

from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fareg
from fareg.datasets import load_nursery
from fareg.metrics import coverage_score

data = load_nursery()
X_train, X_rest, y_train, y_rest = train_test_split(data.X, data.y, test_size=0.6, random_state=0)
X_cal, X_new, y_cal, y_new = train_test_split(X_rest, y_rest, test_size=0.5, random_state=0)

# your own model: anything with predict_proba
encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), list(X_train)))
model = make_pipeline(encode, RandomForestClassifier(50, random_state=0)).fit(X_train, y_train)

# frozen: fareg calibrates it and never trains it again
clf = fareg.FaReGClassifier(FrozenEstimator(model), confidence_level=0.95, random_state=0)
clf.conformalize(X_cal, y_cal)

path = Path(tempfile.mkdtemp()) / "nursery.fareg"
fareg.save(clf, path)  # JSON and arrays in one file: no pickle
loaded = fareg.load(path)

sets = loaded.predict_set(X_new)
assert (sets == clf.predict_set(X_new)).all()
for row in range(3):
    labels = ", ".join(map(str, loaded.classes_[sets[row]]))
    print(f"row {row}: {{{labels}}}, truly {y_new[row]}")
print(f"coverage {coverage_score(y_new, sets, classes=loaded.classes_):.3f}, asked for 0.95")

# thresholds and coverage against the level of disadvantage
loaded.plot_levels(X_new, y_new).savefig("levels.png")
