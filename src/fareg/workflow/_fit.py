"""One table in, a calibrated classifier out, tested beside plain split conformal sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from fareg._columns import canonical, check_columns
from fareg._files import AnyPath, check_output, check_outputs
from fareg._rows import check_numpy_seed, row_hashes
from fareg._validation import FloatArray, IntArray, check_choice, check_confidence_level
from fareg._words import HTML, MARKDOWN
from fareg.auditing import Comparison, records
from fareg.classifiers import FaReGClassifier, out_of_fold_proba, split_rows, trained
from fareg.groups import Rule
from fareg.persistence import SeenRows, save
from fareg.scores import SCORES
from fareg.workflow._base_model import BaseModel, ModelSource, Probabilities, base_model
from fareg.workflow._formats import Progress, is_parquet, quiet
from fareg.workflow._parquet import Sampling
from fareg.workflow._roles import AskedRoles
from fareg.workflow._stamps import Stamp
from fareg.workflow._tables import (
    check_safe_csv,
    column_kinds,
    copy_rows,
    read_table,
    table_columns,
)
from fareg.workflow._target import (
    check_clusters,
    check_target,
    check_training_labels,
    check_weights,
    labelled_rows,
    warn_of_leak,
)

TEST_SIZE = 0.2
N_FOLDS = 5  # for out-of-fold probabilities of the training rows
CALIBRATION_SIZE = 0.4  # the training part is as large


@dataclass(frozen=True, eq=False)
class Trial:
    """A fitted classifier, and its comparison with split conformal sets on test rows."""

    clf: FaReGClassifier
    n_train: int  # rows that trained the estimator, or only the groups if it was given fitted
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
            "opening": told.opening,
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


def fit_file(
    data: AnyPath,
    *,
    target: str,
    out: AnyPath,
    sensitive: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    not_features: Sequence[str] = (),
    drop: Sequence[str] = (),
    clusters: str | None = None,
    ids: str | None = None,
    weights: str | None = None,
    drop_missing_target: bool = False,
    estimator: str | None = None,
    model: AnyPath | None = None,
    probabilities: Probabilities | None = None,
    trusted: Sequence[str] | None = None,
    confidence_level: float = 0.9,
    conformity_score: str = "aps",
    label_conditional: bool = False,
    allow_empty: bool = True,
    progress: Progress = quiet,
    seed: int = 0,
    protect: Sequence[str] = (),
    report: AnyPath | None = None,
    tables: AnyPath | None = None,
    card: AnyPath | None = None,
    test_out: AnyPath | None = None,
    safe_csv: bool = False,
    sampling: Sampling | None = None,
    settings: Mapping[str, str] | None = None,
) -> Trial:
    """Train a model on a table, or take a fitted one; calibrate, test, and write it to ``out``.

    Parameters
    ----------
    data : path of a CSV or Parquet file, or of a folder of Parquet files
    target : str
        Column of labels.
    out : path of the model file
    sensitive : list of str, default=None
        Columns that may define a group; None for all that have no other role.
    features : list of str, default=None
        Columns that the model reads; None for all that have no other role. A column of text or
        whole numbers that differs in every row is taken as an id and left out, unless it is named;
        one that looks like an id with several rows each is told in a warning.
    not_features : list of str, default=()
        Columns that may define a group and that the model does not read.
    drop : list of str, default=()
        Columns to ignore.
    clusters : str, default=None
        Column of ids of people or places with several rows: they stay in one part of the split and
        in one fold, and neither train the model nor define a group.
    ids : str, default=None
        Column that tells whose row it is, for the random number of the row; it may be the column of
        clusters. It neither trains the model nor defines a group.
    weights : str, default=None
        Column of training weights. Calibration and test count every row once.
    drop_missing_target : bool, default=False
        Whether rows without a label are left out, with a warning; if not, they are refused.
    estimator : str, default=None
        A model to train: "hgb" (None means it), "forest", "logistic" or "mlp"; where installed,
        "xgboost", "lightgbm" or "catboost".
    model : path of a ``.skops`` file, default=None
        A fitted model instead; nothing is trained. The rows must be ones that it was not trained
        on, here and in ``probabilities``.
    probabilities : list of str, dict from label to column, or str, default=None
        Columns of class probabilities instead of a model. Of a list, the labels are the names
        without what they share; a text is what the names of the columns begin with.
    trusted : list of str, default=None
        Types that a ``.skops`` file may hold beside those that ``fareg.load`` knows.
    confidence_level : float, default=0.9
    conformity_score : str, default="aps"
        A name in ``fareg.scores.SCORES``.
    label_conditional : bool, default=False
        Whether to promise the level for every label.
    allow_empty : bool, default=True
        Whether a set may be empty; if not, the most probable label joins it.
    progress : function, optional
        Called with the name of each stage when it begins.
    seed : int, default=0
    protect : list of str, default=()
        Groups in words that have a threshold of their own, such as findings of an audit of other
        rows; none means those that learning rows show.
    tables, card : paths of a folder and of a .md file, default=None
        Also write the tables, and a section of a model card, on the test rows.
    report : path of an HTML file, default=None
        Also write a report, for which the audit of what is left computes worst slabs and excess
        risk too.
    test_out : path, default=None
        File for the test rows, which the model has not seen, for an audit. Its ending tells the
        format; in the format of ``data``, the rows stand as they do there.
    safe_csv : bool, default=False
        Whether no spreadsheet runs a cell of that file, as in :func:`predict_file`.
    sampling : Sampling, default=None
        Which rows of a folder are read, and where; None for 10^6 at most.
    settings : mapping, default=None
        What next steps call a setting, where not by its name in Python.
    """
    check_output(out)
    if report is not None:
        check_output(report, endings=HTML)
    check_safe_csv(test_out, safe_csv)
    if test_out is not None:
        check_output(test_out)
    if card is not None:
        check_output(card, endings=MARKDOWN)
    check_outputs([out, report, card, test_out], inputs=[data, model])
    if test_out is not None:
        is_parquet(test_out)  # it refuses other endings
    check_confidence_level(confidence_level)
    check_choice("conformity_score", conformity_score, SCORES)
    check_numpy_seed("seed", seed)
    given = ModelSource(estimator, model, probabilities, trusted or ())
    given.check(features=features, weights=weights)
    stamp = Stamp.of(data)
    frame = _read(data, target, drop, sampling, numbers=model is not None)
    stamp.check()
    frame = labelled_rows(frame, target, drop_missing=drop_missing_target)
    y = check_target(frame[target], has_model=bool(model or probabilities))
    asked = AskedRoles(
        target, sensitive, features, not_features, drop, clusters, weights, ids, source=str(data)
    )
    base = base_model(frame, y, given, asked, seed=seed)
    X, labels = frame[base.roles.columns], frame[target]
    kinds = column_kinds(X)
    people = None if clusters is None else check_clusters(frame[clusters])
    persons = None if ids is None else frame[ids].to_numpy()
    weighed = None if weights is None else check_weights(frame[weights])
    others = [str(name) for name in frame if name != target and name not in X]
    further = row_hashes(canonical(frame[others]), 0)
    del frame  # X is a copy, and one is enough to train with
    clf = FaReGClassifier(
        base.estimator,
        confidence_level=confidence_level,
        conformity_score=conformity_score,
        sensitive_features=base.roles.sensitive,
        label_conditional=label_conditional,
        allow_empty=allow_empty,
        random_state=seed,
        protect=[Rule.parse(text) for text in protect] or "found",
    )
    trial = fit_and_test(
        clf,
        X,
        base.y,
        was_fitted=base.was_fitted,
        clusters=people,
        ids=persons,
        weights=weighed,
        measures=report is not None,
        progress=progress,
        about={
            "file": Path(data).name,
            "target": target,
            "base_model": base.name,
            "not_read": list(base.roles.others),
        },
        listed=base.roles.sensitive or base.roles.others or None,
        settings=settings,
    )
    if test_out is not None:
        copy_rows(
            data,
            trial.X.index,
            test_out,
            labels=[target],
            kinds=kinds,
            stamp=stamp,
            safe_csv=safe_csv,
        )
    seen = SeenRows.of(X, labels, others, further, rows=~X.index.isin(trial.X.index))
    save(clf, out, metadata={"columns": kinds, **_notes(trial, base)}, seen=seen)
    if report is not None:
        trial.comparison.to_html(report)
    if tables is not None:
        trial.comparison.to_tables(tables)
    if card is not None:
        trial.comparison.to_card(card)
    return trial


def _read(
    data: AnyPath, target: str, drop: Sequence[str], sampling: Sampling | None, *, numbers: bool
) -> pd.DataFrame:
    """Read the columns that are not dropped.

    With ``numbers``, codes such as 04109 are numbers, as they are for pandas: a model that is given
    was trained on what pandas reads.
    """
    names = table_columns(data)
    check_columns([target, *drop], names, str(data))
    needed = [name for name in names if name == target or name not in drop]
    kinds = dict.fromkeys(needed, "number") if numbers else None
    return read_table(data, labels=[target], columns=needed, sampling=sampling, kinds=kinds)


def _notes(trial: Trial, base: BaseModel) -> dict[str, Any]:
    """Return what the model file tells about how it was made."""
    told = trial.to_dict()
    return {
        "target": base.roles.target,
        **base.roles.notes(),
        "data": trial.comparison.about["file"],
        "estimator": base.name,
        "date": trial.comparison.about["date"],
        "seed": trial.comparison.about["seed"],
        **{name: told[name] for name in ("verdict", "rows", "accuracy", "after")},
    }


def fit_and_test(
    clf: FaReGClassifier,
    X: pd.DataFrame,
    y: Any,
    *,
    was_fitted: bool = False,
    clusters: Any = None,
    ids: Any = None,
    weights: Any = None,
    measures: bool = True,
    progress: Progress = quiet,
    about: dict[str, Any] | None = None,
    listed: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Trial:
    """Split the rows in three: train, calibrate FaReG and split conformal sets, test both.

    The estimator of ``clf`` is trained and replaced by the trained one. If it was given fitted, the
    first part of the rows only teaches who is disadvantaged. Levels of the columns ``listed`` are
    shown in the table of groups. ``settings`` are as in :func:`fit_file`.
    """
    seed = clf.random_state
    rest, test = split_rows(len(y), TEST_SIZE, clusters, seed)
    test = np.sort(test)  # in the order of the table, as an audit of these rows reads them
    parts = split_rows(len(rest), CALIBRATION_SIZE / (1 - TEST_SIZE), _part(clusters, rest), seed)
    train, calibrate = (rest[part] for part in parts)
    # A part is copied from the table when it is needed, and only that long.
    X_train, y_train = X.iloc[train], y[train]
    proba_learn = None
    if not was_fitted:
        check_training_labels(y_train, y)
        proba_learn = _train(
            clf, X_train, y_train, _part(clusters, train), _part(weights, train), progress
        )
    progress("learning who is disadvantaged, and calibrating")
    clf.conformalize(
        X.iloc[calibrate],
        y[calibrate],
        clusters=_part(clusters, calibrate),
        ids=_part(ids, calibrate),
        X_learn=X_train,
        y_learn=y_train,
        proba_learn=proba_learn,
        clusters_learn=_part(clusters, train),
        ids_learn=_part(ids, train),
    )
    del X_train
    progress("testing, and looking for groups that are left behind")
    X_test, y_test = X.iloc[test], y[test]
    comparison = clf.report(
        X_test,
        y_test,
        clusters=_part(clusters, test),
        ids=_part(ids, test),
        measures=measures,
        about=about,
        listed=listed,
    )
    comparison = replace(comparison, left=replace(comparison.left, settings=settings or {}))
    warn_of_leak(X_test, y_test, comparison.accuracy)
    return Trial(clf, len(y_train), comparison, X_test, was_fitted)


def _part(values: Any, rows: IntArray) -> Any:
    return None if values is None else values[rows]


def _train(
    clf: FaReGClassifier, X: pd.DataFrame, y: Any, clusters: Any, weights: Any, progress: Progress
) -> FloatArray:
    """Train the estimator of a classifier; return probabilities of the same rows out of fold."""
    progress("training the model")
    fitted = trained(clone(clf.estimator), X, y, weights)
    proba = out_of_fold_proba(
        clf.estimator,
        X,
        y,
        fitted.classes_,
        cv=N_FOLDS,
        clusters=clusters,
        seed=clf.random_state,
        weights=weights,
        progress=lambda fold: progress(f"training again without fold {fold} of {N_FOLDS}"),
    )
    clf.estimator = FrozenEstimator(fitted)
    return proba
