"""One table in, a calibrated classifier out, with its test on rows that it never saw."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from fareg._files import check_output
from fareg._validation import (
    InvalidInputError,
    check_choice,
    check_confidence_level,
)
from fareg.auditing import Comparison, records
from fareg.classifiers import (
    FaReGClassifier,
    out_of_fold_proba,
    split_rows,
    trained,
)
from fareg.persistence import save
from fareg.workflow._models import MODELS
from fareg.workflow._tables import check_columns, check_copy, column_kinds, copy_rows, read_table
from fareg.workflow._target import check_target, check_training_labels, warn_of_leak

TEST_SIZE = 0.2
N_FOLDS = 5  # of out-of-fold learning
CALIBRATION_SIZE = 0.4  # as large as the training part


def quiet(stage: str) -> None:
    """Show no progress."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A fitted classifier, and its comparison with split conformal sets on test rows.

    Attributes
    ----------
    clf : FaReGClassifier
    n_train : int
        Rows that trained the estimator.
    comparison : Comparison
    X : DataFrame
        The test rows.
    """

    clf: FaReGClassifier
    n_train: int
    comparison: Comparison
    X: pd.DataFrame

    @property
    def n_test(self) -> int:
        """Number of test rows."""
        return len(self.X)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain types."""
        told = self.comparison
        left = told.left.to_dict()
        n_rows = {"train": self.n_train, "calibrate": self.clf.n_calibration_, "test": self.n_test}
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
            "left": {"verdict": left["verdict"], "groups": left["groups"]},
        }

    def report(self) -> dict[str, Any]:
        """Return the summary of a report: what was repaired, and an audit of what is left."""
        return self.comparison.to_dict()


def fit_file(
    data: str | os.PathLike[str],
    *,
    target: str,
    out: str | os.PathLike[str],
    sensitive: Sequence[str] | None = None,
    estimator: str = "hgb",
    confidence_level: float = 0.9,
    label_conditional: bool = False,
    allow_empty: bool = True,
    clusters: str | None = None,
    measures: bool = False,
    progress: Callable[[str], None] = quiet,
    seed: int = 0,
    test_out: str | os.PathLike[str] | None = None,
) -> Trial:
    """Train, calibrate and test on a table; write the classifier to ``out``.

    Parameters
    ----------
    data : path of a CSV or Parquet file
    target : str
        Column of labels.
    out : path of the model file
    sensitive : list of str, default=None
        Columns that may define a group; None: all but the target.
    estimator : {"hgb", "forest", "logistic", "mlp"}, default="hgb"
    confidence_level : float, default=0.9
    label_conditional : bool, default=False
        Whether to promise the level for every label.
    allow_empty : bool, default=True
        Whether a set may be empty; if not, the most probable label joins it.
    clusters : str, default=None
        Column of ids of people or places with several rows: they stay in one part of the split and
        in one fold, and neither train the model nor define a group.
    measures : bool, default=False
        Whether the audit of what is left computes worst slabs and excess risk too, for a report.
    progress : function, optional
        Called with the name of each stage when it begins.
    seed : int, default=0
    test_out : path, default=None
        File for the test rows as they stand in ``data``, in the same format: rows that the model
        has not seen, for an audit.

    Returns
    -------
    Trial
    """
    check_output(out, apart_from=[data])
    if test_out is not None:
        check_copy(data, test_out, apart_from=[out])
    check_confidence_level(confidence_level)
    check_choice("estimator", estimator, MODELS)
    frame = read_table(data, labels=[target])
    names = [str(name) for name in frame.columns]
    ids = [] if clusters is None else [clusters]
    check_columns([target, *(sensitive or ()), *ids], names, str(data))
    if target in ids or set(ids) & set(sensitive or ()):
        raise InvalidInputError(f"the clusters {clusters} cannot be the target or sensitive")
    if target in (sensitive or ()):
        raise InvalidInputError(f"the target {target} cannot be a sensitive feature")
    X, y = frame.drop(columns=[target, *ids]), check_target(frame[target])
    if X.shape[1] == 0:
        raise InvalidInputError(f"{data} has no column but the target {target}; nothing to learn")
    kinds = column_kinds(X)
    trial = fit_and_test(
        X,
        y,
        sensitive=None if sensitive is None else list(sensitive),
        estimator=MODELS[estimator](seed),
        confidence_level=confidence_level,
        label_conditional=label_conditional,
        allow_empty=allow_empty,
        clusters=None if clusters is None else pd.factorize(frame[clusters])[0],
        measures=measures,
        progress=progress,
        seed=seed,
        about={"file": Path(data).name, "target": target, "base_model": estimator},
    )
    notes: dict[str, Any] = {
        "target": target,
        "columns": kinds,
        "data": Path(data).name,
        "estimator": estimator,
    }
    notes |= {"date": trial.comparison.about["date"], "seed": seed}
    kept = ("verdict", "rows", "accuracy", "after")
    numbers = {name: value for name, value in trial.to_dict().items() if name in kept}
    if test_out is not None:
        copy_rows(data, trial.X.index, test_out)
    seen = frame.drop(index=trial.X.index)
    save(trial.clf, out, metadata={**notes, **numbers}, seen=(seen[list(X)], seen[target]))
    return trial


def fit_and_test(
    X: pd.DataFrame,
    y: Any,
    *,
    sensitive: list[str] | None,
    estimator: Any,
    confidence_level: float,
    seed: int,
    label_conditional: bool = False,
    allow_empty: bool = True,
    clusters: Any = None,
    measures: bool = True,
    progress: Callable[[str], None] = quiet,
    about: dict[str, Any] | None = None,
) -> Trial:
    """Split the rows in three: train, calibrate FaReG and split conformal sets, test both."""
    rest, test = split_rows(len(y), TEST_SIZE, clusters, seed)
    left = None if clusters is None else clusters[rest]
    parts = split_rows(len(rest), CALIBRATION_SIZE / (1 - TEST_SIZE), left, seed)
    train, calibrate = (rest[part] for part in parts)
    (X_train, y_train), (X_cal, y_cal), (X_test, y_test) = (
        (X.iloc[rows], y[rows]) for rows in (train, calibrate, test)
    )
    check_training_labels(y_train, y)
    progress("training the model")
    fitted = trained(clone(estimator), X_train, y_train)
    model = FrozenEstimator(fitted)
    clusters_learn = None if clusters is None else clusters[train]
    proba_learn = out_of_fold_proba(
        estimator,
        X_train,
        y_train,
        fitted.classes_,
        cv=N_FOLDS,
        clusters=clusters_learn,
        seed=seed,
        progress=lambda fold: progress(f"training again without fold {fold} of {N_FOLDS}"),
    )
    progress("learning who is disadvantaged, and calibrating")
    clf = FaReGClassifier(
        model,
        sensitive_features=sensitive,
        confidence_level=confidence_level,
        label_conditional=label_conditional,
        allow_empty=allow_empty,
        random_state=seed,
    ).conformalize(
        X_cal,
        y_cal,
        X_learn=X_train,
        y_learn=y_train,
        proba_learn=proba_learn,
        clusters_learn=clusters_learn,
    )
    progress("testing, and looking for groups that are left behind")
    comparison = clf.report(
        X_test,
        y_test,
        clusters=None if clusters is None else clusters[test],
        measures=measures,
        about=about,
    )
    warn_of_leak(X_test, y_test, comparison.accuracy)
    return Trial(clf, len(y_train), comparison, X_test)
