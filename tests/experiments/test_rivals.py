"""Other authors' methods in ``benchmarks/rivals.py`` cover about what they promise."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fareg.datasets import make_synthetic

SOURCE = Path(__file__).parents[2] / "benchmarks" / "rivals.py"
NAMES = ("ConformalTree", "BatchGCP", "ClusteredLabels")
SENSITIVE = ["Color", "Gender", "Age Group"]


@pytest.fixture(scope="module")
def rivals():
    return runpy.run_path(str(SOURCE))


def drawn(n, seed):
    """Rows of the paper's table; people of one color have noisy labels."""
    data = make_synthetic(n, random_state=seed)
    rng = np.random.default_rng(seed)
    hit = (data.X["Color"] == "Red").to_numpy() & (rng.random(n) < 0.5)
    return data.X, np.where(hit, rng.permutation(data.y), data.y)


@pytest.mark.parametrize("name", NAMES)
def test_about_as_many_are_covered_as_promised(rivals, name):
    X, y = drawn(2000, 99)
    numbers = FunctionTransformer(lambda X: X.filter(like="Feature"))
    model = FrozenEstimator(make_pipeline(numbers, LogisticRegression()).fit(X, y))
    covered, of_red = [], []
    for seed in range(10):
        X, y = drawn(3000, seed)
        options = {"conformity_score": "lac", "sensitive_features": SENSITIVE, "random_state": seed}
        clf = rivals[name](model, **options).conformalize(X[:1000], y[:1000])
        sets = clf.predict_set(X[1000:])
        hit = sets[np.arange(2000), np.searchsorted(clf.classes_, y[1000:])]
        covered.append(hit.mean())
        of_red.append(hit[(X["Color"] == "Red")[1000:]].mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.015)
    if name != "ClusteredLabels":  # it knows labels, no people
        assert np.mean(of_red) > 0.88


def test_labels_are_gathered_by_their_scores(rivals):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 300)
    proba = rng.dirichlet(np.ones(30), len(y)) * 0.5
    proba[np.arange(len(y)), y] += np.where(y < 15, 0.5 * rng.random(len(y)), 0.5)
    proba /= proba.sum(axis=1, keepdims=True)
    half = rng.permutation(len(y)) < len(y) // 2
    X, classes = np.zeros((len(y), 1)), np.arange(30)
    clf = rivals["ClusteredLabels"](conformity_score="lac", random_state=0)
    clf.conformalize(X[half], y[half], proba=proba[half], classes=classes)
    thresholds = clf.calibration_.thresholds(range(1))[0]
    assert 2 < len(np.unique(thresholds)) < 30
    assert thresholds[:15].min() > thresholds[15:].max() + 0.1
    hit = clf.predict_set(X[~half], proba=proba[~half])[np.arange((~half).sum()), y[~half]]
    for labels in (y[~half] < 15, y[~half] >= 15):
        assert hit[labels].mean() == pytest.approx(0.9, abs=0.03)
