"""Rows that teach and what they teach: out-of-fold probabilities, and how well rows are covered."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold

from fareg._columns import take_rows
from fareg._labels import label_codes
from fareg._validation import FloatArray, IntArray, InvalidInputError
from fareg.pvalues import CalibrationScores


def out_of_fold_proba(
    estimator: Any, X: Any, y: Any, classes: Any, *, cv: int, clusters: Any, seed: int
) -> FloatArray:
    """Return the probabilities of each row by an estimator that was trained without its fold.

    Folds are drawn at random; rows of one cluster stay in one fold. A class that a fold's training
    rows lack gets probability zero there.

    Parameters
    ----------
    estimator : unfitted classifier
    X : frame or array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
    classes : array of shape (n_classes,)
        The order of the columns.
    cv : int
        Number of folds, each of which costs one training.
    clusters : array of shape (n_samples,) or None
    seed : int

    Returns
    -------
    proba : ndarray of shape (n_samples, n_classes)
    """
    n_units = len(y) if clusters is None else len(np.unique(clusters))
    kind: Any = KFold if clusters is None else GroupKFold
    folds = kind(n_splits=min(cv, n_units), shuffle=True, random_state=seed)
    proba = np.zeros((len(y), len(classes)))
    for train, test in folds.split(np.zeros(len(y)), groups=clusters):
        known = np.unique(y[train])
        if len(known) == 1:
            proba[np.ix_(test, label_codes(known, classes))] = 1.0
            continue
        try:
            fitted = clone(estimator).fit(take_rows(X, train), y[train])
            answer = fitted.predict_proba(take_rows(X, test))
        except ValueError as error:
            raise InvalidInputError(
                f"the estimator could not be trained on a fold of {len(train)} rows: {error}"
            ) from error
        proba[np.ix_(test, label_codes(fitted.classes_, classes))] = answer
    return proba


def score_target(margin: FloatArray, categories: IntArray | None, alpha: float) -> FloatArray:
    """Return the share of levels t in [1 - 5 alpha, 1] at which each row is covered.

    A row is covered at level t if the rank of its margin, in (0, 1), is at most t. Ranks are taken
    within categories, if given.
    """
    rank = np.empty(len(margin))
    for category in [None] if categories is None else np.unique(categories):
        rows = np.full(len(margin), True) if category is None else categories == category
        rank[rows] = rankdata(margin[rows]) / (rows.sum() + 1)
    return np.clip((1 - rank) / min(1.0, 5 * alpha), 0.0, 1.0)


def coverage_target(scores: FloatArray, categories: IntArray | None, alpha: float) -> FloatArray:
    """Return 1 for rows that the split conformal sets of these rows cover, 0 for the others."""
    own = np.zeros(len(scores), dtype=np.int64) if categories is None else categories
    table = CalibrationScores.sort(scores, own, int(own.max(initial=0)) + 1)
    return (scores <= table.quantiles(alpha)[own]).astype(np.float64)
