"""FaReG against the training of its base model: learning alone, and everything it does."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any
from unittest import mock

import numpy as np
from measure import Row, seconds
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from stages import Stages

from fareg import FaReGClassifier, FaregWarning
from fareg._encoding import gradient_boosting, one_hot_encoder, ordinal_encoder
from fareg.classifiers import _fareg
from fareg.datasets import make_synthetic
from fareg.paper import NetworkLearner

N_NEW = 5_000
REPEATS = 3


def compare(base: str, methods: dict[str, Any], model: Any, n: int) -> list[Row]:
    """Train the base model on n rows, then time methods on n others and N_NEW new ones."""
    data = make_synthetic(2 * n + N_NEW, random_state=0)
    X, y = data.X, data.y
    training = min(seconds(lambda: model.fit(X[:n], y[:n]))[0] for _ in range(REPEATS))
    rows = []
    for name, method in methods.items():
        clf = method(FrozenEstimator(model), sensitive_features=list(data.sensitive))
        clf.set_params(random_state=0)
        clf.conformalize(X[n : n + 100], y[n : n + 100])  # loads libraries
        runs = [timed(clf, X[n:], y[n:], n) for _ in range(REPEATS)]
        learning, everything = np.min(runs, axis=0).tolist()
        size = f"{n:,} rows train, {n:,} calibrate"
        note = f"{size}; scores, learning, words, calibration, sets of {N_NEW:,} new rows"
        rows += [
            Row(f"{name} learns who is worse off", learning, base, training, note=size),
            Row(f"{name}, everything", everything, base, training, note=note),
        ]
    return rows


def timed(clf: Any, X: Any, y: Any, n: int) -> tuple[float, float]:
    """Return the seconds of learning disadvantage, and of everything."""
    stages = Stages()
    with contextlib.ExitStack() as stack:
        for home, name in ((_fareg, "learn_disadvantage"), (NetworkLearner, "fit")):
            function = stages.timed("learning", getattr(home, name))
            stack.enter_context(mock.patch.object(home, name, function))
        elapsed, _ = seconds(lambda: clf.conformalize(X[:n], y[:n]).predict_set(X[n:]))
    return stages.seconds["learning"], elapsed


def measure() -> dict:
    """Compare with the paper's network, with the default boosting, and with a linear model."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # the epochs are the paper's
    warnings.simplefilter("ignore", FaregWarning)  # warming up takes few rows
    default, paper = {"FaReG": FaReGClassifier}, {"FaReG.paper()": FaReGClassifier.paper}
    network = MLPClassifier(
        (256, 256, 128, 64),
        learning_rate_init=1e-4,
        batch_size=250,
        max_iter=500,
        n_iter_no_change=500,
        random_state=0,
    )
    published = make_pipeline(ordinal_encoder(), network)
    linear = make_pipeline(one_hot_encoder(), LogisticRegression(max_iter=200))
    return {
        "rows": [
            *compare("the paper's network", {**default, **paper}, published, 1_000),
            *compare("gradient boosting", default, gradient_boosting(0), 10_000),
            *compare("logistic regression", default, linear, 10_000),
        ]
    }
