"""AFCP against its definition, which loops over rows, labels and points.

The definition is timed on a few rows and extrapolated to all, as rows are independent.
"""

from __future__ import annotations

import numpy as np
from measure import N_LABELS, Ready, Row, in_turn

from fareg import AFCPClassifier
from fareg.datasets import make_synthetic

ALPHA = 0.1


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
            matching = s[(A[:, selection] == B[i, selection]).all(axis=1)]
            for y in range(T.shape[1]):
                sets[i, y] |= (1 + np.sum(matching >= T[i, y])) / (len(matching) + 1) > ALPHA
    return sets


def against_the_definition(n_select: int, n: int = 1000, m: int = 500, n_rows: int = 5) -> Row:
    data = make_synthetic(n + m, random_state=0)
    X_cal, y_cal, X = data.X[:n], data.y[:n], data.X[n:]
    clf = AFCPClassifier(
        Ready(), sensitive_features=list(data.sensitive), n_select=n_select, random_state=0
    ).conformalize(X_cal, y_cal)
    rows, scores = clf.labelled_rows(X_cal, y_cal), clf.conformity_scores(X)
    new = clf.labelled_rows(X, data.y[n:])
    s, (A, B) = rows.score, (clf.calibration_.coding.codes(t.people) for t in (rows, new))
    (fast, mine), (slow, theirs) = in_turn(
        lambda: clf.conformalize(X_cal, y_cal).predict_set(X),
        lambda: definition(s, A, scores[:n_rows], B[:n_rows], n_select),
    )
    equal = (theirs == mine[:n_rows]).all(axis=1).mean()
    return Row(
        f"AFCP{n_select}, {n:,} calibration rows, {m} rows, {N_LABELS} labels",
        fast,
        "brute force",
        slow * m / n_rows,
        note=f"{equal:.0%} of the sets equal; brute force extrapolated from {n_rows} rows",
    )


def measure() -> dict:
    return {"rows": [against_the_definition(n_select) for n_select in (1, 2)]}
