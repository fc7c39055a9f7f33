"""One table in, a calibrated classifier out, with its test on rows that it never saw."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from fareg._columns import select_columns
from fareg._files import check_output
from fareg._validation import (
    BoolArray,
    IntArray,
    InvalidInputError,
    check_choice,
    check_confidence_level,
)
from fareg.auditing import AuditResult, audit, group_picture, records
from fareg.classifiers import (
    FaReGClassifier,
    SplitConformalClassifier,
    out_of_fold_proba,
    split_rows,
    trained,
)
from fareg.metrics import coverage_by_label, is_covered
from fareg.persistence import save
from fareg.report import fit_verdict
from fareg.workflow._models import MODELS
from fareg.workflow._named_groups import ReportedGroup, groups_before_and_after, reported_groups
from fareg.workflow._story import level_story
from fareg.workflow._tables import check_columns, check_copy, column_kinds, copy_rows, read_table
from fareg.workflow._target import check_target, check_training_labels, warn_of_leak

TEST_SIZE = 0.2
N_FOLDS = 5  # of out-of-fold learning
CALIBRATION_SIZE = 0.4  # as large as the training part


def quiet(stage: str) -> None:
    """Show no progress."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A fitted classifier beside plain split conformal sets, on the same test rows.

    Attributes
    ----------
    clf : FaReGClassifier
    n_train, n_calibration, n_test : int
    accuracy : float
        Of the wrapped estimator, on the test rows.
    before, after : dict
        ``coverage`` and ``mean_size`` of the split conformal and of the FaReG sets.
    empty : dict
        Of the empty FaReG sets: their ``share`` of the test rows, how often the top label is
        ``right`` for them (None if there are none), and the ``accuracy`` on all test rows.
    named : list of ReportedGroup
        The groups that the classifier named, and their test rows.
    groups : DataFrame
        The groups that the classifier named and the worst levels: group, named, fidelity (share
        of rows on which the words agree with what was learned), n, share, p_value (exact, that
        coverage before is below the level), before and after, each with the ends of its interval.
    left : AuditResult
        The audit of the FaReG sets on the test rows.
    about : dict
        Where the numbers come from: date and seed, and file, target and base_model if known.
    X, y, sets : the test rows, their labels and the FaReG sets
    covered, sizes : dict
        Which test rows are covered ``before`` and ``after``, and how large their sets are.
    """

    clf: FaReGClassifier
    n_train: int
    n_calibration: int
    accuracy: float
    before: dict[str, float]
    after: dict[str, float]
    empty: dict[str, Any]
    named: list[ReportedGroup]
    groups: pd.DataFrame
    left: AuditResult
    about: dict[str, Any]
    X: pd.DataFrame = field(repr=False)
    y: Any = field(repr=False)
    sets: BoolArray = field(repr=False)
    covered: dict[str, BoolArray] = field(repr=False)
    sizes: dict[str, IntArray] = field(repr=False)

    @property
    def n_test(self) -> int:
        """Number of test rows."""
        return len(self.y)

    @property
    def repairs(self) -> list[dict[str, Any]]:
        """The groups that the classifier named, with their figures on the test rows."""
        return records(self.groups[self.groups["named"]])

    @property
    def by_label(self) -> list[dict[str, Any]]:
        """Coverage of the test rows by true label: the FaReG sets, and the split ones before."""
        earlier = coverage_by_label(self.y, self.covered["before"])
        before = dict(zip(map(str, earlier["label"]), earlier["coverage"], strict=True))
        return [{**row, "before": before[row["label"]]} for row in records(self.left.by_label)]

    @property
    def verdict(self) -> dict[str, Any]:
        """What the fit says, from what was repaired and from the audit of what is left."""
        return fit_verdict(
            self.repairs,
            self.left.to_dict()["verdict"],
            confidence_level=float(self.clf.confidence_level),
            by_label=self.by_label,
            label_conditional=bool(self.clf.label_conditional),
            empty=self.empty,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain types."""
        left = self.left.to_dict()
        return {
            "verdict": self.verdict,
            "about": {**self.about, "accuracy": self.accuracy},
            "fareg_version": left["fareg_version"],
            "rows": {"train": self.n_train, "calibrate": self.n_calibration, "test": self.n_test},
            "confidence_level": float(self.clf.confidence_level),
            "accuracy": self.accuracy,
            "before": self.before,
            "after": self.after,
            "empty": self.empty,
            "groups": records(self.groups),
            "by_label": self.by_label,
            "left": {"verdict": left["verdict"], "groups": left["groups"]},
        }

    def report(self) -> dict[str, Any]:
        """Return the summary of a report: what was repaired, and an audit of what is left."""
        summary: dict[str, Any] = self.left.to_dict()
        for moment in ("before", "after"):
            table = self.groups[["group", "n", moment, f"{moment}_low", f"{moment}_high"]]
            table = table.set_axis(["group", "n", "coverage", "low", "high"], axis=1)
            summary[moment] = table[table["n"] > 0].to_dict("records")
        summary["title"] = "FaReG model: coverage on test rows"
        summary["comparison_labels"] = ["Split conformal", "FaReG"]
        summary["about"] = {**self.about, "accuracy": self.accuracy}
        summary["residual"] = summary["verdict"]
        summary["verdict"] = self.verdict
        summary["repairs"] = [{**row, **self._pictures(row)} for row in self.repairs]
        summary["story"] = self.story
        return summary

    @property
    def story(self) -> dict[str, Any]:
        """How disadvantage is spread, who is at the top, what changed, and what it cost."""
        calibration = self.clf.calibration_
        return level_story(
            self.clf.predict_level(self.X),
            calibration.leveler.n_levels,
            calibration.first_raised(),
            self.covered,
            self.sizes,
            [group.rule for group in self.named],
        )

    def _pictures(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return coverage over the features that the words of a group name, before and after."""
        if row["n"] == 0:
            return {}
        columns = select_columns(self.X, self.clf.sensitive_features)
        group = next(group for group in self.named if group.rule == row["group"])
        return {
            f"{moment}_picture": group_picture(columns, hit, group.inside, group.features)
            for moment, hit in self.covered.items()
        }


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
    notes |= {"date": trial.about["date"], "seed": seed}
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
    common: dict[str, Any] = {
        "confidence_level": confidence_level,
        "label_conditional": label_conditional,
        "allow_empty": allow_empty,
        "random_state": seed,
    }
    plain = SplitConformalClassifier(model, **common).conformalize(X_cal, y_cal)
    clf = FaReGClassifier(model, sensitive_features=sensitive, **common).conformalize(
        X_cal,
        y_cal,
        X_learn=X_train,
        y_learn=y_train,
        proba_learn=proba_learn,
        clusters_learn=clusters_learn,
    )
    sets = {"before": plain.predict_set(X_test), "after": clf.predict_set(X_test)}
    covered = {moment: is_covered(y_test, s, classes=clf.classes_) for moment, s in sets.items()}
    overall = {
        moment: {"coverage": float(covered[moment].mean()), "mean_size": float(s.sum(1).mean())}
        for moment, s in sets.items()
    }
    progress("testing, and looking for groups that are left behind")
    left = audit(
        X_test,
        y_test,
        sets["after"],
        classes=clf.classes_,
        sensitive_features=sensitive,
        confidence_level=confidence_level,
        clusters=None if clusters is None else clusters[test],
        measures=measures,
        random_state=seed,
    )
    right = clf.predict(X_test) == y_test
    accuracy = float(right.mean())
    nothing = ~sets["after"].any(axis=1)
    empty = {
        "share": float(nothing.mean()),
        "right": float(right[nothing].mean()) if nothing.any() else None,
        "accuracy": accuracy,
    }
    warn_of_leak(X_test, y_test, accuracy)
    named = reported_groups(clf, X_test)
    return Trial(
        clf=clf,
        n_train=len(y_train),
        n_calibration=len(y_cal),
        accuracy=accuracy,
        before=overall["before"],
        after=overall["after"],
        empty=empty,
        named=named,
        groups=groups_before_and_after(
            named, X_test, covered, features=sensitive, confidence_level=confidence_level
        ),
        left=left,
        about={**(about or {}), **left.about},
        X=X_test,
        y=y_test,
        sets=sets["after"],
        covered=covered,
        sizes={moment: s.sum(axis=1) for moment, s in sets.items()},
    )
