"""CondCP beside MAPIE's conditional classifier: time per row, and whose thresholds are right.

Run ``python benchmarks/condcp.py``; MAPIE needs cvxpy for it: ``pip install "mapie[conditional]"``.
Both get the same scores (one minus the probability of the label) and the same basis: every level of
four sensitive features. Who is right is settled by linear programs with the test point in them: its
dual variable must be below 1 - alpha under the threshold, and at it above. A basis of numbers is in
general position, and there the two must agree.
"""

from __future__ import annotations

import contextlib
import time

import numpy as np
from scipy.optimize import linprog
from sklearn.base import BaseEstimator, ClassifierMixin

from fareg.classifiers import CondCPClassifier
from fareg.datasets import make_synthetic

N_LABELS = 6
N_LEVELS = (2, 2, 4, 5)


class Ready(ClassifierMixin, BaseEstimator):
    """Probabilities that look like a model's: this measures CondCP, not a classifier."""

    def __init__(self):
        self.classes_ = np.arange(N_LABELS)
        self.is_fitted_ = True

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        p = np.exp(-np.abs(6 * np.asarray(X)[:, [0]] - 0.5 - self.classes_))
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


def numbers(n, seed=0):
    """Feature 1 and the sensitive features as level numbers, and labels."""
    data = make_synthetic(n, random_state=seed)
    codes = [np.unique(data.X[name], return_inverse=True)[1] for name in data.sensitive]
    return np.column_stack([data.X["Feature 1"], *codes]).astype(float), data.y


def basis(X):
    blocks = [X[:, [1 + k]] == np.arange(size) for k, size in enumerate(N_LEVELS)]
    return np.hstack(blocks).astype(float)


def ours(X_cal, y_cal, X, **params):
    clf = CondCPClassifier(
        Ready(), conformity_score="lac", sensitive_features=[1, 2, 3, 4], random_state=0, **params
    )
    start = time.perf_counter()
    clf.conformalize(X_cal, y_cal)
    middle = time.perf_counter()
    thresholds = clf._thresholds(X)[:, 0]
    return thresholds, middle - start, time.perf_counter() - middle


def mapie(X_cal, y_cal, X, feature_map=basis):
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalClassifier

    clf = ConditionalSplitConformalClassifier(feature_map, Ready(), conformity_score="lac")
    start = time.perf_counter()
    clf.conformalize(X_cal, y_cal)
    middle = time.perf_counter()
    thresholds = np.full(len(X), np.nan)
    for i, row in enumerate(X):
        with contextlib.suppress(np.linalg.LinAlgError):  # its pivots can meet a singular basis
            thresholds[i] = clf._predict_conditional_cutoff(0.9, row[None, :])
    return thresholds, middle - start, time.perf_counter() - middle


def is_right(Phi, S, phi, threshold, step=1e-6):
    """Does the dual variable of a test point reach 0.9 at the threshold, and not before?"""

    def dual_variable(s):
        rows, scores = np.vstack([Phi, phi]), np.append(S, s)
        zeros = np.zeros(len(phi))
        return linprog(-scores, A_eq=rows.T, b_eq=zeros, bounds=(-0.1, 0.9)).x[-1]

    under, over = dual_variable(threshold - step), dual_variable(threshold + step)
    return bool(under < 0.9 - 1e-6 <= over)


def beside_mapie(n=1000, n_rows=(500, 5000), n_compared=500, n_checked=20):
    X, y = numbers(n + max(n_rows))
    X_cal, y_cal = X[:n], y[:n]
    theirs, setup, seconds = mapie(X_cal, y_cal, X[n : n + n_compared])
    per_row = seconds / n_compared
    answered = np.flatnonzero(~np.isnan(theirs))
    print(
        f"MAPIE: conformalize {setup:.2f} s, {1e3 * per_row:.2f} ms per row; "
        f"{len(answered)} of {n_compared} rows answered, the others end in a singular matrix"
    )
    for m in n_rows:
        thresholds, setup, seconds = ours(X_cal, y_cal, X[n : n + m])
        print(
            f"fareg, {m} rows: conformalize {setup:.2f} s, {1e3 * seconds / m:.3f} ms per row, "
            f"{per_row * m / seconds:.0f} times faster"
        )
    S = 1 - Ready().predict_proba(X_cal)[np.arange(n), y_cal]
    for name, values in (("fareg", thresholds), ("MAPIE", theirs)):
        checked = answered[:n_checked]
        right = [is_right(basis(X_cal), S, basis(X[[n + i]])[0], values[i]) for i in checked]
        print(f"{name}: {sum(right)} of {n_checked} thresholds are those of the linear program")
    for m in n_rows:
        _, _, seconds = ours(X_cal, y_cal, X[n : n + m], randomized=True)
        print(f"fareg, randomized, {m} rows: {1e3 * seconds / m:.3f} ms per row")


def in_general_position(n=1000, m=200, seed=0):
    X, y = numbers(n + m)
    X[:, 1:] = np.random.default_rng(seed).normal(size=X[:, 1:].shape)

    def with_constant(X):
        return np.column_stack([np.ones(len(X)), X[:, 1:]])

    theirs, _, slow = mapie(X[:n], y[:n], X[n:], with_constant)
    mine, _, fast = ours(X[:n], y[:n], X[n:], feature_map=with_constant)
    print(
        f"a basis of numbers, all rows distinct: {np.mean(np.abs(theirs - mine) < 1e-9):.1%} of "
        f"{m} thresholds equal, {slow / fast:.1f} times faster"
    )


def at_size(n=100_000, m=100_000):
    X, y = numbers(n + m)
    _, setup, seconds = ours(X[:n], y[:n], X[n:])
    print(f"{n:,} calibration rows {setup:.2f} s, {m:,} rows {seconds:.2f} s")


if __name__ == "__main__":
    beside_mapie()
    in_general_position()
    at_size()
