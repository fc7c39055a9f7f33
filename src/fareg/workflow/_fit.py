"""One table in, a calibrated classifier out, tested next to plain split conformal sets."""

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
    AskedRoles,
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
        told, left = self.comparison, self.comparison.left.to_dict()
        first = "learn" if self.was_fitted else "train"
        n_rows = {first: self.n_train, "calibrate": self.clf.n_calibration_, "test": self.n_test}
        names = ("verdict", "opening", "confidence_level", "accuracy", "before", "after", "empty")
        return {
            **{name: getattr(told, name) for name in (*names, "by_label")},
            "about": {**told.about, "accuracy": told.accuracy},
            "fareg_version": left["fareg_version"],
            "rows": n_rows,
            "groups": records(told.groups),
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
        whole numbers that differs in every row is taken as an id and left out, unless it is named;
        one that looks like an id with several rows each is named in a warning.
    not_features, drop : list of str, default=() and ()
        Columns that may define a group and that the model does not read; columns to ignore.
    clusters : str, default=None
        Column of ids of people or places with several rows: they stay in one part of the split and
        in one fold, and neither train the model nor define a group.
    ids : str, default=None
        Column that says whose row it is, for the random number of the row; it may be the column of
        clusters. It neither trains the model nor defines a group.
    estimator : str or path, default="hgb"
        A model to train: "hgb", "forest", "logistic" or "mlp"; where installed, "xgboost",
        "lightgbm" or "catboost". Or the path of a ``.skops`` file with a fitted model; nothing is
        trained then, and the rows must be ones that it was not trained on, here and in
        ``probabilities``.
    probabilities : list of str, dict from label to column, or str, default=None
        Columns of class probabilities instead of a model. Of a list, the labels are the names
        without what they share, or stand before an equals sign as in ``low=p_low``; a text is what
        the names of the columns begin with.
    trusted : list of str, default=None
        Types that a ``.skops`` file may hold besides those that ``fareg.load`` knows.
    confidence_level, conformity_score, label_conditional, allow_empty
        As in :class:`fareg.FaReGClassifier`.
    progress : function, optional
        Called with the name of each stage when it begins.
    seed : int, default=0
    protect : list of str, default=()
        Groups in words that have a threshold of their own, such as findings of an audit of other
        rows; none means those that learning rows show.
    report : path of an HTML file, default=None
        Also write a report, for which the audit of what is left computes worst slabs and excess
        risk too.
    test_out : path, default=None
        File for the test rows, which the model has not seen, for an audit. Its ending tells the
        format; in the format of ``data``, the rows stand as they do there.
    safe_csv : bool, default=False
        Whether no spreadsheet runs a cell of that file, as in :func:`predict_file`.
    max_rows : int, default=1000000
        If a table has more rows, so many are drawn at random.
    settings : mapping, default=None
        What next steps call a setting, where not by its name in Python.
    """
    given = ModelSource(estimator, probabilities, trusted or ())
    check_output(out)
    if report is not None:
        check_output(report, endings=HTML)
    check_safe_csv(test_out, safe_csv)
    check_outputs([out, report, test_out], inputs=[data, given.path])
    if test_out is not None:
        is_parquet(check_output(test_out))  # it refuses other endings
    check_confidence_level(confidence_level)
    check_choice("conformity_score", conformity_score, SCORES)
    check_numpy_seed("seed", seed)
    given.check(features)
    asked = AskedRoles(
        target, sensitive, features, not_features, drop, clusters, ids, source=str(data)
    )
    with Table(data) as table:
        table.check_columns([target, *drop])
        needed = [name for name in table.names if name == target or name not in drop]
        # A model that is given was trained on what pandas reads, where 04109 is a number.
        kinds = dict.fromkeys(needed, "number") if given.path else None
        sample = {"max_rows": max_rows, "seed": seed}
        frame = labelled_rows(table.read(needed, labels=[target], kinds=kinds, **sample), target)
        y = check_target(frame[target], has_model=bool(given.path or probabilities))
        base = base_model(frame, y, given, asked, seed=seed)
        X, labels, kinds = frame[base.roles.columns], frame[target], column_kinds(frame)
        others = [str(name) for name in frame if name != target and name not in X]
        further = row_hashes(canonical(frame[others]), 0) if others else None
        beside = {
            "clusters": None if clusters is None else check_clusters(frame[clusters]),
            "ids": None if ids is None else frame[ids].to_numpy(),
        }
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
        about: dict[str, Any] = {"file": Path(data).name, "target": target, "base_model": base.name}
        about["not_read"] = list(base.roles.others)
        trial = fit_and_test(
            clf,
            X,
            base.y,
            **beside,
            measures=report is not None,
            progress=progress,
            about=about,
            listed=base.roles.sensitive or base.roles.others or None,
            settings=settings,
        )
        if test_out is not None:
            table.copy(trial.X.index, test_out, labels=[target], kinds=kinds, safe_csv=safe_csv)
    seen = SeenRows.of(X, labels, others, further, rows=~X.index.isin(trial.X.index))
    told, about = trial.to_dict(), trial.comparison.about
    notes = {
        "columns": {str(name): kinds[str(name)] for name in X},
        "target": target,
        **base.roles.notes(),
        "data": about["file"],
        "estimator": base.name,
        **{name: about[name] for name in ("date", "seed")},
        **{name: told[name] for name in ("verdict", "rows", "accuracy", "after")},
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
    """Fit a classifier on four fifths of the rows, and test it next to split conformal sets."""
    rest, test = split_rows(len(y), TEST_SIZE, clusters, clf.random_state)
    test = np.sort(test)  # in the order of the table, as an audit of these rows reads them

    def some(rows: IntArray, values: Any) -> Any:
        return None if values is None else values[rows]

    was_fitted = clf.estimator is not None and is_given(clf.estimator)
    if not was_fitted:
        seed = hash_key(clf.random_state) % 2**32
        train, _ = split_rows(len(rest), clf.calibration_size, some(rest, clusters), seed)
        check_training_labels(y[rest][train], y)
    progress("training, learning who is disadvantaged, and calibrating")
    clf.fit(X.iloc[rest], y[rest], clusters=some(rest, clusters), ids=some(rest, ids))
    progress("testing, and looking for groups that are left behind")
    X_test, y_test = X.iloc[test], y[test]
    comparison = clf.report(
        X_test,
        y_test,
        clusters=some(test, clusters),
        ids=some(test, ids),
        measures=measures,
        about=about,
        listed=listed,
    )
    comparison = replace(comparison, left=replace(comparison.left, settings=settings or {}))
    warn_of_leak(X_test, y_test, comparison.accuracy)
    return Trial(clf, len(rest) - clf.n_calibration_, comparison, X_test, was_fitted)
