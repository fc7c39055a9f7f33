"""Small things that many tests share."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

# The same cases on every machine; HYPOTHESIS_PROFILE=default looks for new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


class ProbabilityReader(ClassifierMixin, BaseEstimator):
    """A classifier that reads its class probabilities from the first columns of the table."""

    def __init__(self, classes=(0, 1, 2)):
        self.classes = classes

    def fit(self, X, y=None):
        self.classes_ = np.asarray(self.classes)
        return self

    def predict_proba(self, X):
        return np.asarray(X)[:, : len(self.classes_)].astype(np.float64)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.fixture(scope="session")
def reader():
    """Make a frozen :class:`ProbabilityReader` for the given classes."""

    def make(classes=(0, 1, 2)):
        return FrozenEstimator(ProbabilityReader(classes).fit(None))

    return make


@pytest.fixture(scope="session")
def patients():
    """Return a mixed table with missing values, and text labels that depend on it."""
    rng = np.random.default_rng(0)
    n = 900
    X = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.05, np.nan, rng.integers(18, 90, n)),
            "color": rng.choice(
                np.array(["Red", "Blue", None], dtype=object), n, p=[0.5, 0.4, 0.1]
            ),
            "gender": pd.Categorical(rng.choice(["Female", "Male"], n)),
            "smoker": rng.random(n) < 0.3,
            "dose": rng.normal(size=n),
        }
    )
    noise = rng.normal(size=n)
    y = np.array(["high", "low", "mid"])[np.digitize(X["dose"] + noise, [-0.7, 0.7])]
    return X, y
