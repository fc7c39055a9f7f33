"""Fixtures that many tests share."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

import fareg

# The same cases on every machine; HYPOTHESIS_PROFILE=default looks for new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


# Files and folders whose tests ``make quick`` leaves out: they start processes, train many models,
# draw thousands of cases or wait. Slow tests in other files carry a mark.
SLOW = (
    "auditing/test_audit.py",
    "auditing/test_counts.py",
    "classifiers/test_afcp.py",
    "classifiers/test_all_or_nothing.py",
    "classifiers/test_beside.py",
    "classifiers/test_cards.py",
    "classifiers/test_fareg.py",
    "classifiers/test_frames_in_classifiers.py",
    "classifiers/test_parameters.py",
    "classifiers/test_probabilities.py",
    "classifiers/test_rare_classes.py",
    "classifiers/test_rectified.py",
    "classifiers/test_report.py",
    "classifiers/test_sklearn_checks.py",
    "classifiers/test_wild_parameters.py",
    "cli",
    "experiments",
    "ground/test_start.py",
    "groups/test_disadvantage.py",
    "paper/test_draws.py",
    "paper/test_network_learner.py",
    "paper/test_published.py",
    "persistence/test_attacks.py",
    "persistence/test_edited_files.py",
    "persistence/test_seen.py",
    "report/test_browser.py",
    "report/test_fit_report.py",
    "statistical",
    "test_docs.py",
    "test_examples.py",
    "workflow/test_acceptance.py",
    "workflow/test_bad_input.py",
    "workflow/test_changed_tables.py",
    "workflow/test_faults.py",
    "workflow/test_fit_and_audit.py",
    "workflow/test_given_models.py",
    "workflow/test_ids_in_files.py",
    "workflow/test_predict_folder.py",
)


def pytest_collection_modifyitems(items):
    """Mark the tests of slow files."""
    here = Path(__file__).parent
    slow = [here / name for name in SLOW]
    for item in items:
        if any(item.path.is_relative_to(place) for place in slow):
            item.add_marker(pytest.mark.slow)


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


@pytest.fixture
def small_searches(monkeypatch):
    """Shorten the searches of audits, for tests that only need them to finish."""
    monkeypatch.setattr("fareg.metrics._excess_risk.N_ROUNDS", 3)
    short = functools.partial(fareg.audit, n_directions=5, n_permutations=2)
    monkeypatch.setattr("fareg.workflow._audit.audit", short)


@pytest.fixture(scope="session")
def reader():
    """Make a frozen :class:`ProbabilityReader` for the given classes."""

    def make(classes=(0, 1, 2)):
        return FrozenEstimator(ProbabilityReader(classes).fit(None))

    return make


@pytest.fixture(scope="session")
def patients():
    """Return a table of mixed types with missing values, and text labels that depend on it."""
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
