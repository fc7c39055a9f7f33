"""Fit a classifier on a table, calibrate it, and compare it with split conformal sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical
from fareg._files import AnyPath, check_output, check_outputs
from fareg._rows import check_numpy_seed, hash_key, row_hashes
from fareg._validation import IntArray, check_choice, check_confidence_level
from fareg._words import HTML
from fareg.auditing import Comparison, records
from fareg.classifiers import FaReGClassifier, is_given, split_rows
from fareg.groups import Rule
from fareg.persistence import SeenRows, save
from fareg.scores import SCORES
from fareg.workflow._models import ModelSource, Probabilities, base_model
from fareg.workflow._readers import is_parquet
from fareg.workflow._roles import (
    RequestedRoles,
    check_clusters,
    check_target,
    check_training_labels,
    labelled_rows,
    warn_of_leak,
)
from fareg.workflow._table import MAX_ROWS, Progress, Table, check_safe_csv, quiet
from fareg.workflow._values import column_kinds

TEST_SIZE = 0.2


@dataclass(frozen=True, eq=False)
class Trial:
    """A fitted classifier, and its comparison with split conformal sets on test rows."""

    clf: FaReGClassifier
    n_train: int  # training rows; if the estimator was given fitted, rows to learn groups from
    comparison: Comparison
    X: pd.DataFrame  # the test rows
    was_fitted: bool = False  # whether the estimator was given fitted

    @property
    def n_test(self) -> int:
        """Number of test rows."""
        return len(self.X)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain types."""
        comparison, left = self.comparison, self.comparison.left.to_dict()
        first = "learn" if self.was_fitted else "train"
        n_rows = {first: self.n_train, "calibrate": self.clf.n_calibration_, "test": self.n_test}
        names = ("verdict", "opening", "confidence_level", "accuracy", "before", "after", "empty")
        return {
            **{name: getattr(comparison, name) for name in (*names, "by_label")},
            "about": {**comparison.about, "accuracy": comparison.accuracy},
            "fareg_version": left["fareg_version"],
            "rows": n_rows,
            "groups": records(comparison.groups),
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
    estimator: AnyPath = "hgb",
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
    test_out: AnyPath | None = None,
    safe_csv: bool = False,
    max_rows: int = MAX_ROWS,
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
        whole numbers that differs in every row is taken as an id and left out, unless you name it;
        a warning names columns that look like ids with several rows each.
    not_features, drop : list of str, default=() and ()
        Columns that may define a group but that the model does not read; columns to ignore.
    clusters : str, default=None
        Column of ids of people or places with several rows: their rows stay in one part of the
        split and in one fold. It neither trains the model nor defines a group.
    ids : str, default=None
        Column that says whose row it is, for the random number of the row; it may be the column of
        clusters. It neither trains the model nor defines a group.
    estimator : str or path, default="hgb"
        A model to train: "hgb", "forest", "logistic" or "mlp"; if installed, "xgboost", "lightgbm"
        or "catboost". Or the path of a ``.skops`` file with a fitted model: nothing is trained
        then. Neither that model nor the one behind ``probabilities`` may have been trained on these
        rows.
    probabilities : list of str, dict from label to column, or str, default=None
        Columns of class probabilities instead of a model. In a list, the label stands before an
        equals sign, as in ``low=p_low``, or is the name without what all names share; a text is the
        beginning of the columns' names.
    trusted : list of str, default=None
        Types that a ``.skops`` file may hold besides those that ``fareg.load`` knows.
    confidence_level, conformity_score, label_conditional, allow_empty
        As in :class:`fareg.FaReGClassifier`.
    progress : function, optional
        Called with the name of each stage when it begins.
    seed : int, default=0
    protect : list of str, default=()
        Groups in words that get their own threshold, such as findings of an audit of other rows;
        if empty, groups found on the learning rows.
    report : path of an HTML file, default=None
        Also write a report, with worst slabs and excess risk.
    test_out : path, default=None
        File for the test rows, which the model has not seen, for an audit. Its ending says the
        format; in the format of ``data``, rows are copied unchanged.
    safe_csv : bool, default=False
        Whether to keep spreadsheets from running cells of that file, as in :func:`predict_file`.
    max_rows : int, default=1000000
        From a larger table, this many rows are drawn at random.
    settings : mapping, default=None
        What next steps call a setting, if not by its name in Python.
    """
    source = ModelSource(estimator, probabilities, trusted or ())
    check_output(out)
    if report is not None:
        check_output(report, endings=HTML)
    check_safe_csv(test_out, safe_csv)
    check_outputs([out, report, test_out], inputs=[data, source.path])
    if test_out is not None:
        is_parquet(check_output(test_out))  # refuses unknown endings
    check_confidence_level(confidence_level)
    check_choice("conformity_score", conformity_score, SCORES)
    check_numpy_seed("seed", seed)
    source.check(features)
    requested = RequestedRoles(
        target, sensitive, features, not_features, drop, clusters, ids, source=str(data)
    )
    with Table(data) as table:
        table.check_columns([target, *drop])
        needed = [name for name in table.names if name == target or name not in drop]
        # A fitted model was trained on a table read by pandas, in which 04109 is a number.
        kinds = dict.fromkeys(needed, "number") if source.path else None
        sample = {"max_rows": max_rows, "seed": seed}
        frame = labelled_rows(table.read(needed, labels=[target], kinds=kinds, **sample), target)
        y = check_target(frame[target], has_model=bool(source.path or probabilities))
        base = base_model(frame, y, source, requested, seed=seed)
        X, labels, kinds = frame[base.roles.columns], frame[target], column_kinds(frame)
        others = [str(name) for name in frame if name != target and name not in X]
        other_hashes = row_hashes(canonical(frame[others]), 0) if others else None
        cluster_codes = None if clusters is None else check_clusters(frame[clusters])
        id_values = None if ids is None else frame[ids].to_numpy()
        del frame  # X is a copy; training needs only one
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
        facts: dict[str, Any] = {"file": Path(data).name, "target": target, "base_model": base.name}
        facts["not_read"] = list(base.roles.others)
        trial = fit_and_test(
            clf,
            X,
            base.y,
            clusters=cluster_codes,
            ids=id_values,
            measures=report is not None,
            progress=progress,
            about=facts,
            listed=base.roles.sensitive or base.roles.others or None,
            settings=settings,
        )
        if test_out is not None:
            table.copy(trial.X.index, test_out, labels=[target], kinds=kinds, safe_csv=safe_csv)
    seen = SeenRows.of(X, labels, others, other_hashes, rows=~X.index.isin(trial.X.index))
    summary, facts = trial.to_dict(), trial.comparison.about
    notes = {
        "columns": {str(name): kinds[str(name)] for name in X},
        "target": target,
        **base.roles.notes(),
        "data": facts["file"],
        "estimator": base.name,
        **{name: facts[name] for name in ("date", "seed")},
        **{name: summary[name] for name in ("verdict", "rows", "accuracy", "after")},
    }
    save(clf, out, metadata=notes, seen=seen)
    if report is not None:
        trial.comparison.to_html(report)
    return trial


def fit_and_test(
    clf: FaReGClassifier,
    X: pd.DataFrame,
    y: Any,
    *,
    clusters: Any = None,
    ids: Any = None,
    measures: bool = True,
    progress: Progress = quiet,
    about: dict[str, Any] | None = None,
    listed: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Trial:
    """Fit a classifier on four fifths of the rows; test it and split conformal sets on the last."""
    rows, test = split_rows(len(y), TEST_SIZE, clusters, clf.random_state)
    test = np.sort(test)  # in the order of the table, as an audit of these rows reads them

    def take(values: Any, rows: IntArray) -> Any:
        return None if values is None else values[rows]

    was_fitted = clf.estimator is not None and is_given(clf.estimator)
    if not was_fitted:
        seed = hash_key(clf.random_state) % 2**32
        fit_clusters = take(clusters, rows)
        train, _ = split_rows(len(rows), clf.calibration_size, fit_clusters, seed)
        check_training_labels(y[rows][train], y)
    progress("training, learning disadvantage, and calibrating")
    clf.fit(X.iloc[rows], y[rows], clusters=take(clusters, rows), ids=take(ids, rows))
    progress("testing, and looking for under-covered groups")
    X_test, y_test = X.iloc[test], y[test]
    comparison = clf.report(
        X_test,
        y_test,
        clusters=take(clusters, test),
        ids=take(ids, test),
        measures=measures,
        about=about,
        listed=listed,
    )
    comparison = replace(comparison, left=replace(comparison.left, settings=settings or {}))
    warn_of_leak(X_test, y_test, comparison.accuracy)
    return Trial(clf, len(rows) - clf.n_calibration_, comparison, X_test, was_fitted)
