"""How fast AFCP is beside its definition, and at size.

Run ``python benchmarks/afcp.py``. The definition loops over rows, labels and points; it is timed on
a few rows and extrapolated to all, rows being independent of each other.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from fareg.classifiers import AFCPClassifier
from fareg.datasets import make_synthetic

ALPHA = 0.1
N_LABELS = 6


class Ready(ClassifierMixin, BaseEstimator):
    """Probabilities that look like a model's: this measures AFCP, not a classifier."""

    classes_ = np.arange(N_LABELS)

    def predict_proba(self, X):
        distance = np.abs(6 * X["Feature 1"].to_numpy()[:, None] - 0.5 - self.classes_)
        p = np.exp(-distance)
        return p / p.sum(axis=1, keepdims=True)

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True


def definition(s, A, T, B, n_select):
    """Sets of rows with scores T (m, n_labels) and levels B (m, n_features), from the definition.

    ``s`` of shape (n,) and ``A`` of shape (n, n_features) are the calibration rows.
    """
    sets = np.zeros(T.shape, dtype=bool)
    for i in range(len(T)):
        selections = [()]
        for y in range(T.shape[1]):
            scores, levels = np.append(s, T[i, y]), np.vstack([A, B[i]])
            others = (np.delete(scores, j) for j in range(len(scores)))  # leave one out
            p = [(1 + np.sum(o >= v)) / len(scores) for o, v in zip(others, scores, strict=True)]
            miscovered = np.asarray(p) <= ALPHA
            worst = [
                max(
                    (miscovered[column == v].mean(), np.sum(column == v)) for v in np.unique(column)
                )
                for column in levels.T
            ]
            order = sorted(range(len(worst)), key=lambda k: (-worst[k][0], -worst[k][1], k))
            selections.append(tuple(order[:n_select]))
        for selection in set(selections):
            own = s[(A[:, selection] == B[i, selection]).all(axis=1)]
            for y in range(T.shape[1]):
                sets[i, y] |= (1 + np.sum(own >= T[i, y])) / (len(own) + 1) > ALPHA
    return sets


def prepared(n, m, n_select, seed=0):
    data = make_synthetic(n + m, random_state=seed)
    clf = AFCPClassifier(
        Ready(), sensitive_features=list(data.sensitive), n_select=n_select, random_state=seed
    )
    return clf, data.X[:n], data.y[:n], data.X[n:]


def beside_the_definition(n=1000, m=500, n_rows=5):
    for n_select in (1, 2):
        clf, X_cal, y_cal, X = prepared(n, m, n_select)
        clf.conformalize(X_cal, y_cal)
        clf.predict_set(X)  # warm up
        start = time.perf_counter()
        fast_sets = clf.conformalize(X_cal, y_cal).predict_set(X)
        fast = time.perf_counter() - start
        scores = clf._scores(X)
        s = clf._scores(X_cal)[np.arange(n), y_cal]
        A, B = clf._level_codes(X_cal), clf._level_codes(X)
        start = time.perf_counter()
        sets = definition(s, A, scores[:n_rows], B[:n_rows], n_select)
        slow = (time.perf_counter() - start) / n_rows * m
        assert (sets == fast_sets[:n_rows]).all()
        start = time.perf_counter()
        clf._thresholds_at(X, scores)
        core = time.perf_counter() - start
        print(
            f"AFCP{n_select}: {m} rows, {n} calibration rows, {N_LABELS} labels: by the definition "
            f"{slow:.0f} s (extrapolated from {n_rows} rows, same sets); conformalize and "
            f"predict_set {fast:.4f} s, {slow / fast:,.0f} times faster; of that, thresholds from "
            f"scores, which is all the definition does, {core:.4f} s, {slow / core:,.0f} times"
        )


def at_size(n=100_000, m=100_000):
    for n_select in (None, 1, 2):
        clf, X_cal, y_cal, X = prepared(n, m, n_select)
        start = time.perf_counter()
        clf.conformalize(X_cal, y_cal)
        middle = time.perf_counter()
        clf.predict_set(X)
        end = time.perf_counter()
        print(
            f"n_select={n_select}: conformalize {n:,} rows {middle - start:.2f} s, "
            f"predict_set {m:,} rows {end - middle:.2f} s"
        )


if __name__ == "__main__":
    beside_the_definition()
    at_size()
