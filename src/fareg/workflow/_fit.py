"""A model is trained, calibrated and tested beside plain split conformal sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from fareg._validation import FloatArray
from fareg.auditing import Comparison, records
from fareg.classifiers import FaReGClassifier, out_of_fold_proba, split_rows, trained
from fareg.workflow._formats import quiet
from fareg.workflow._target import check_training_labels, warn_of_leak

TEST_SIZE = 0.2
N_FOLDS = 5  # for out-of-fold probabilities of the training rows
CALIBRATION_SIZE = 0.4  # the training part is as large


@dataclass(frozen=True, eq=False)
class Trial:
    """A fitted classifier, and its comparison with split conformal sets on test rows."""

    clf: FaReGClassifier
    n_train: int  # rows that trained the estimator, or only taught if it was given fitted
    comparison: Comparison
    X: pd.DataFrame  # the test rows
    was_fitted: bool = False  # whether the estimator was given fitted

    @property
    def n_test(self) -> int:
        """Number of test rows."""
        return len(self.X)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain types."""
        told = self.comparison
        left = told.left.to_dict()
        first = "learn" if self.was_fitted else "train"
        n_rows = {first: self.n_train, "calibrate": self.clf.n_calibration_, "test": self.n_test}
        return {
            "verdict": told.verdict,
            "about": {**told.about, "accuracy": told.accuracy},
            "fareg_version": left["fareg_version"],
            "rows": n_rows,
            "confidence_level": told.confidence_level,
            "accuracy": told.accuracy,
            "before": told.before,
            "after": told.after,
            "empty": told.empty,
            "groups": records(told.groups),
            "by_label": told.by_label,
            "left": {name: left[name] for name in ("verdict", "overall", "groups")},
        }


def fit_and_test(
    clf: FaReGClassifier,
    X: pd.DataFrame,
    y: Any,
    *,
    was_fitted: bool = False,
    clusters: Any = None,
    weights: Any = None,
    measures: bool = True,
    progress: Callable[[str], None] = quiet,
    about: dict[str, Any] | None = None,
) -> Trial:
    """Split the rows in three: train, calibrate FaReG and split conformal sets, test both.

    The estimator of ``clf`` is trained and replaced by the trained one. If it was given fitted, the
    first part of the rows only teaches who is disadvantaged.
    """
    seed = clf.random_state
    rest, test = split_rows(len(y), TEST_SIZE, clusters, seed)
    test = np.sort(test)  # in the order of the table, as an audit of these rows reads them
    left = None if clusters is None else clusters[rest]
    parts = split_rows(len(rest), CALIBRATION_SIZE / (1 - TEST_SIZE), left, seed)
    train, calibrate = (rest[part] for part in parts)
    # A part is copied from the table when it is needed, and only that long.
    X_train, y_train = X.iloc[train], y[train]
    clusters_learn = None if clusters is None else clusters[train]
    proba_learn = None
    if not was_fitted:
        check_training_labels(y_train, y)
        weights_learn = None if weights is None else weights[train]
        clf.estimator, proba_learn = _train(
            clf.estimator, X_train, y_train, clusters_learn, weights_learn, progress, seed
        )
    progress("learning who is disadvantaged, and calibrating")
    clf.conformalize(
        X.iloc[calibrate],
        y[calibrate],
        X_learn=X_train,
        y_learn=y_train,
        proba_learn=proba_learn,
        clusters_learn=clusters_learn,
    )
    del X_train
    progress("testing, and looking for groups that are left behind")
    X_test, y_test = X.iloc[test], y[test]
    comparison = clf.report(
        X_test,
        y_test,
        clusters=None if clusters is None else clusters[test],
        measures=measures,
        about=about,
    )
    warn_of_leak(X_test, y_test, comparison.accuracy)
    return Trial(clf, len(y_train), comparison, X_test, was_fitted)


def _train(
    estimator: Any,
    X: pd.DataFrame,
    y: Any,
    clusters: Any,
    weights: Any,
    progress: Callable[[str], None],
    seed: int,
) -> tuple[FrozenEstimator, FloatArray]:
    """Return the trained estimator, and its probabilities of the same rows out of fold."""
    progress("training the model")
    fitted = trained(clone(estimator), X, y, weights)
    proba = out_of_fold_proba(
        estimator,
        X,
        y,
        fitted.classes_,
        cv=N_FOLDS,
        clusters=clusters,
        seed=seed,
        weights=weights,
        progress=lambda fold: progress(f"training again without fold {fold} of {N_FOLDS}"),
    )
    return FrozenEstimator(fitted), proba
