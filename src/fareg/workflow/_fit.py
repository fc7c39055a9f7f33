"""One table in, a calibrated classifier out, with its test on rows that it never saw."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from fareg._files import check_output
from fareg._frames import select_columns
from fareg._validation import BoolArray, InvalidInputError, check_choice, check_confidence_level
from fareg.audit import audit
from fareg.audit._picture import group_picture
from fareg.classifiers import FaReGClassifier, SplitConformalClassifier
from fareg.metrics import coverage_by_group
from fareg.persistence import save
from fareg.workflow._models import MODELS
from fareg.workflow._tables import check_columns, column_kinds, read_table
from fareg.workflow._target import check_target

TEST_SIZE = 0.2
CALIBRATION_SIZE = 0.4  # as large as the training part: groups are learned on half of it
MIN_GROUP_ROWS = 20  # test rows below which a group's coverage says little
N_WORST = 5


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
    groups : DataFrame
        The discovered group and the worst levels: group, n, before, after, and intervals.
    X, y, sets : the test rows, their labels and the FaReG sets
    covered : dict
        Which test rows are covered ``before`` and ``after``.
    """

    clf: FaReGClassifier
    n_train: int
    n_calibration: int
    accuracy: float
    before: dict[str, float]
    after: dict[str, float]
    groups: pd.DataFrame
    X: pd.DataFrame = field(repr=False)
    y: Any = field(repr=False)
    sets: BoolArray = field(repr=False)
    covered: dict[str, BoolArray] = field(repr=False)

    @property
    def n_test(self) -> int:
        """Number of test rows."""
        return len(self.y)

    @property
    def rule(self) -> str | None:
        """The discovered group in words, None if nobody is credibly under-covered."""
        return str(self.clf.groups_["rule"].iloc[0]) if len(self.clf.cuts_) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain types."""
        return {
            "rows": {"train": self.n_train, "calibrate": self.n_calibration, "test": self.n_test},
            "confidence_level": float(self.clf.confidence_level),
            "accuracy": self.accuracy,
            "before": self.before,
            "after": self.after,
            "group": self.rule,
            "groups": self.groups.to_dict("records"),
        }

    def report(self) -> dict[str, Any]:
        """Return the summary of a report: what was repaired, and an audit of what is left."""
        result = audit(
            self.X,
            self.y,
            self.sets,
            classes=self.clf.classes_,
            sensitive_features=self.clf.sensitive_features,
            confidence_level=self.clf.confidence_level,
            random_state=0,
        )
        summary: dict[str, Any] = result.to_dict()
        for moment in ("before", "after"):
            table = self.groups[["group", "n", moment, f"{moment}_low", f"{moment}_high"]]
            table = table.set_axis(["group", "n", "coverage", "low", "high"], axis=1)
            summary[moment] = table.to_dict("records")
        summary["title"] = "FaReG model: coverage on test rows"
        summary["comparison_labels"] = ["Split conformal", "FaReG"]
        summary["residual"] = summary["verdict"]
        summary["verdict"] = fit_verdict(self.to_dict(), summary["residual"])
        summary["repair"] = self._repair()
        return summary

    def _repair(self) -> dict[str, Any] | None:
        """Return the discovered group in words, numbers and pictures; None: no test row in it."""
        if self.rule is None or self.rule not in set(self.groups["group"]):
            return None
        columns = select_columns(self.X, self.clf.sensitive_features)
        mask = _in_group(self.clf, self.X)
        row: dict[str, Any] = self.to_dict()["groups"][0]  # the discovered group comes first
        pictures = {
            f"{moment}_picture": group_picture(columns, hit, mask, self.clf.rule_.features)
            for moment, hit in self.covered.items()
        }
        return {**row, "fidelity": float(self.clf.rule_.fidelity), **pictures}


def fit_verdict(trial: dict[str, Any], residual: dict[str, Any]) -> dict[str, str]:
    """Return status, label and sentence of a fit: what was repaired, then what is left.

    ``trial`` is ``Trial.to_dict()`` and ``residual`` the verdict of an audit of the FaReG sets,
    which leads if all rows together are covered too rarely.
    """
    verdict = _repair_verdict(trial)
    if residual["status"] == "low":
        sentence = f"{residual['sentence']} {verdict['label']}. {verdict['sentence']}"
        return {**residual, "sentence": sentence}
    if residual["status"] == "finding":
        sentence = f"{verdict['sentence']} What is left: {residual['sentence']}"
        return {**verdict, "status": "finding", "sentence": sentence}
    return verdict


def _repair_verdict(trial: dict[str, Any]) -> dict[str, str]:
    level, rule = trial["confidence_level"], trial["group"]
    target = f"{100 * level:.10g}%"
    if rule is None:
        return {
            "status": "pass",
            "label": "No group is credibly under-covered",
            "sentence": f"Sets are plain split conformal ones: they cover "
            f"{trial['after']['coverage']:.1%} of {trial['rows']['test']:,} test rows "
            f"(target {target}).",
        }
    row = next((row for row in trial["groups"] if row["group"] == rule), None)
    if row is None:
        status, label, numbers = "unclear", "One group was repaired, untested", "no test row in it"
    else:
        status, label = _repair_status(row, level)
        numbers = (
            f"{row['before']:.1%} → {row['after']:.1%} on {row['n']:,} test "
            f"{'row' if row['n'] == 1 else 'rows'} (95% interval {row['after_low']:.1%} to "
            f"{row['after_high']:.1%}, target {target})"
        )
    return {"status": status, "label": label, "sentence": f"{rule}: {numbers}."}


def _repair_status(row: dict[str, Any], level: float) -> tuple[str, str]:
    """Say no more about a repair than the test rows of the group do."""
    if row["n"] < MIN_GROUP_ROWS:
        return "unclear", "One group was repaired, on too few test rows to tell"
    if row["after_high"] < level:
        much = "only partly" if row["after"] > row["before"] else "not"
        return "finding", f"One group was under-covered and is {much} repaired"
    if row["before"] >= level:
        return "unclear", "One group was repaired whose need the test rows do not show"
    if row["after"] >= level:
        return "pass", "One group was under-covered and is repaired"
    return "pass", "One group was under-covered and now reaches the target within chance"


def fit_file(
    data: str | os.PathLike[str],
    *,
    target: str,
    out: str | os.PathLike[str],
    sensitive: Sequence[str] | None = None,
    estimator: str = "hgb",
    confidence_level: float = 0.9,
    seed: int = 0,
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
    seed : int, default=0

    Returns
    -------
    Trial
    """
    check_output(out, apart_from=[data])
    check_confidence_level(confidence_level)
    check_choice("estimator", estimator, MODELS)
    frame = read_table(data)
    names = [str(name) for name in frame.columns]
    check_columns([target, *(sensitive or ())], names, str(data))
    if target in (sensitive or ()):
        raise InvalidInputError(f"the target {target} cannot be a sensitive feature")
    X, y = frame.drop(columns=target), check_target(frame[target])
    if X.shape[1] == 0:
        raise InvalidInputError(f"{data} has no column but the target {target}; nothing to learn")
    kinds = column_kinds(X)
    trial = fit_and_test(
        X,
        y,
        sensitive=None if sensitive is None else list(sensitive),
        estimator=MODELS[estimator](seed),
        confidence_level=confidence_level,
        seed=seed,
    )
    notes = {"target": target, "columns": kinds, "data": Path(data).name, "estimator": estimator}
    numbers = {k: v for k, v in trial.to_dict().items() if k in ("rows", "accuracy", "after")}
    save(trial.clf, out, metadata={**notes, **numbers})
    return trial


def fit_and_test(
    X: pd.DataFrame,
    y: Any,
    *,
    sensitive: list[str] | None,
    estimator: Any,
    confidence_level: float,
    seed: int,
) -> Trial:
    """Split the rows in three: train, calibrate FaReG and split conformal sets, test both."""
    X_rest, X_test, y_rest, y_test = train_test_split(X, y, test_size=TEST_SIZE, random_state=seed)
    X_train, X_cal, y_train, y_cal = train_test_split(
        X_rest, y_rest, test_size=CALIBRATION_SIZE / (1 - TEST_SIZE), random_state=seed
    )
    if len(np.unique(y_train)) < 2:
        raise InvalidInputError(
            "the training rows hold one class only; give more rows of the rare class"
        )
    model = FrozenEstimator(estimator.fit(X_train, y_train))
    common: dict[str, Any] = {"confidence_level": confidence_level, "random_state": seed}
    plain = SplitConformalClassifier(model, **common).conformalize(X_cal, y_cal)
    clf = FaReGClassifier(model, sensitive_features=sensitive, **common).conformalize(X_cal, y_cal)
    sets = {"before": plain.predict_set(X_test), "after": clf.predict_set(X_test)}
    covered = {moment: _covered(s, y_test, clf.classes_) for moment, s in sets.items()}
    overall = {
        moment: {"coverage": float(covered[moment].mean()), "mean_size": float(s.sum(1).mean())}
        for moment, s in sets.items()
    }
    return Trial(
        clf=clf,
        n_train=len(y_train),
        n_calibration=len(y_cal),
        accuracy=float((clf.predict(X_test) == y_test).mean()),
        before=overall["before"],
        after=overall["after"],
        groups=_worst_groups(clf, X_test, covered),
        X=X_test,
        y=y_test,
        sets=sets["after"],
        covered=covered,
    )


def _covered(sets: BoolArray, y: Any, classes: Any) -> BoolArray:
    codes = pd.Index(classes, dtype=object).get_indexer(pd.Index(y, dtype=object))
    covered: BoolArray = (codes >= 0) & sets[np.arange(len(codes)), codes]
    return covered


def _in_group(clf: FaReGClassifier, X: Any) -> BoolArray:
    """Tell which rows lie in the discovered group."""
    inside: BoolArray = clf.predict_group(X) > clf.cuts_[-1]
    return inside


def _worst_groups(clf: FaReGClassifier, X: Any, covered: dict[str, BoolArray]) -> pd.DataFrame:
    """Return the discovered group and the levels that the split conformal sets cover least."""
    masks = {}
    if len(clf.cuts_):
        masks[str(clf.groups_["rule"].iloc[0])] = _in_group(clf, X)
    tables = {
        moment: coverage_by_group(X, hit, features=clf.sensitive_features, masks=masks)
        for moment, hit in covered.items()
    }
    table = tables["before"][["group", "n", "share"]].copy()
    for moment, own in tables.items():
        for column, name in (("coverage", ""), ("low", "_low"), ("high", "_high")):
            table[moment + name] = own[column]
    discovered = table["group"].isin(list(masks))
    levels = table[~discovered & (table["n"] >= MIN_GROUP_ROWS)].nsmallest(N_WORST, "before")
    shown = table[discovered & (table["n"] > 0)]
    return pd.concat([shown, levels], ignore_index=True)
