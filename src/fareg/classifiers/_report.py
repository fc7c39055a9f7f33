"""What a fitted classifier does, for people: beside split conformal sets, and as a card."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from fareg._columns import check_same_order
from fareg._hashing import holds_used
from fareg._labels import check_labels, label_codes
from fareg._validation import InvalidInputError, check_same_length, warn
from fareg.auditing import Comparison, RowLevels, compare_sets, levels_before_and_after, records
from fareg.calibration import LevelCalibration, RisingThresholds, Rows
from fareg.classifiers._naming import NamedGroup
from fareg.classifiers._views import own_part
from fareg.report import render_card, words

if TYPE_CHECKING:
    from fareg.classifiers._asking import FittedAnswers

SPLIT = "Split conformal"
HEAD = (
    "Under-covered by split conformal sets",
    "Rows",
    "Covered",
    "95% interval",
    "p",
    "Found again",
)
NOBODY = "Nobody is named: no group was credibly under-covered by split conformal sets."
CAPTION = (
    "Coverage of the calibration rows by level of disadvantage: split conformal sets (squares), "
    "these sets (discs), and the promised level (dashed). Test rows tell more: report(X, y)."
)


def short_name(clf: Any) -> str:
    """Return what people call a method: FaReG for ``FaReGClassifier``."""
    return type(clf).__name__.removesuffix("Classifier").removesuffix("Conformal")


def verified_names(clf: Any) -> Any:
    """Return the groups that a classifier names; None if it names none, or could verify none."""
    # with "reuse", the rows that calibrate also chose the groups and cannot verify them
    reused = clf.parameters_.get("calibration") == "reuse"
    return None if reused else getattr(clf, "named_groups_", None)


def compare(
    clf: FittedAnswers, rows: Rows, y: Any, before: Any, listed: Any, **options: Any
) -> Comparison:
    """Compare the sets of a fitted classifier with those of ``before``, or with split ones.

    ``listed`` are columns whose levels are listed, None for the sensitive features that were named.
    ``options`` are those of :func:`fareg.auditing.compare_sets`.
    """
    labels = check_labels(y)
    check_same_length(X=rows.X, y=labels)
    check_same_order(X=rows.X, y=y)
    rows = replace(rows, codes=label_codes(labels, clf.classes_))
    _warn_of_calibration_rows(own_part(clf.calibration_), rows, clf.n_repeated_)
    settings, seed = clf.parameters_, clf.parameters_["random_state"]
    selection = settings["sensitive_features"]
    if rows.about is not None:
        selection = rows.columns
    elif not callable(selection):
        selection = list(rows.columns)  # columns of probabilities are not among them
    if listed is None and (rows.about is not None or settings["sensitive_features"] is not None):
        listed = list(rows.columns)
    return compare_sets(
        rows.X,
        labels,
        {"before": _sets_before(clf, rows, before), "after": clf._sets(rows)},
        classes=clf.classes_,
        predicted=clf.predict(rows.X) if rows.given is None else clf.classes_[rows.top[0]],
        confidence_level=settings["confidence_level"],
        names=(SPLIT if before is None else short_name(before), short_name(clf)),
        label_conditional=settings["label_conditional"],
        sensitive_features=selection,
        named=verified_names(clf),
        levels=_levels(clf.calibration_, rows),
        n_calibration=clf.calibration_.n_people,
        promised=clf.promise_,
        listed=[] if listed is None else [str(name) for name in listed],
        random_state=seed if isinstance(seed, int) else clf.key_ % 2**32,
        **options,
    )


def _warn_of_calibration_rows(own: Any, rows: Rows, n_repeated: int) -> None:
    """Warn if more rows have the scores of calibration rows than chance explains.

    Where a calibration keeps no scores, or most rows equal others, nothing can be told. Otherwise
    ``n_repeated`` calibration rows equal an earlier one, and chance is as large.
    """
    if not hasattr(own, "scores"):
        return
    rows = rows.in_role("calibration")  # with the random numbers that they would have had there
    # the last digits of a probability may depend on the rows that are asked together with it
    used, asked = (some[np.isfinite(some)].round(12) for some in (own.scores, rows.own_scores))
    values, which = np.unique(np.concatenate([used, asked]), return_inverse=True)
    n_used, n_asked = (
        np.bincount(codes, minlength=len(values)) for codes in np.split(which, [len(used)])
    )
    known = n_used > 0
    if holds_used(n_used[known], n_asked[known], len(asked), n_asked[~known], n_repeated):
        warn(
            f"{n_asked[known].sum()} of {len(rows)} rows have the scores of calibration rows, more "
            "than chance explains: coverage of rows that calibrated is not that of new rows; pass "
            "rows that took no part in training and calibration"
        )


def _sets_before(clf: FittedAnswers, rows: Rows, before: Any) -> Any:
    if before is not None:
        proba = None if rows.given is None else rows.given.values()
        # split conformal sets need no sensitive features, and may know none
        about = rows.about if getattr(before, "sensitive_kinds_", None) else None
        sets = before.predict_set(rows.X, proba=proba, sensitive_features=about, ids=rows.ids)
        if list(before.classes_) != list(clf.classes_):
            raise InvalidInputError(
                f"before must know the same classes, got {list(before.classes_)} beside "
                f"{list(clf.classes_)}; calibrate both around one estimator"
            )
        return sets
    own = own_part(clf.calibration_)
    # residuals and learned quantiles do not tell the scores
    if not hasattr(own, "split_thresholds"):
        raise InvalidInputError(
            f"this {type(clf).__name__} keeps no scores to build split conformal sets from; pass "
            "before=, a fitted SplitConformalClassifier to compare with"
        )
    return clf._sets(rows, own.split_thresholds)


def _levels(calibration: Any, rows: Rows) -> RowLevels | None:
    own = own_part(calibration)
    if not isinstance(own, RisingThresholds):
        return None
    return RowLevels(own.leveler.levels(rows), own.leveler.n_levels, own.first_raised())


def card_of(clf: Any) -> str:
    """Return a fitted classifier as a piece of HTML."""
    card: dict[str, Any] = {
        "title": type(clf).__name__,
        "facts": f"{_calibrated_on(clf)} calibrated, "
        f"{len(clf.classes_)} classes, around {_model_name(clf)}",
        "sentence": clf.promise_,
        "confidence_level": 1 - clf.alpha_,
        "code": repr(clf),
    }
    named = verified_names(clf)
    if named is not None:
        card |= {"head": HEAD, "rows": [_row(group) for group in named]}
        card["note"] = "" if named else NOBODY
    own = own_part(clf.calibration_)
    # scores do not tell whose rows they are, so the coverage of clusters is not known here
    if isinstance(own, LevelCalibration) and own.leveler.n_levels > 1 and own.sizes is None:
        card |= {"levels": _levels_of_calibration(own), "caption": CAPTION}
    return render_card(card)


def _calibrated_on(clf: Any) -> str:
    people = clf.n_calibration_clusters_
    told = words.rows(clf.n_calibration_)
    return told if people is None else f"{told} of {words.clusters(people)}"


def _model_name(clf: Any) -> str:
    """Return the class of the wrapped model: inside a FrozenEstimator, at the end of a pipeline."""
    if clf.parameters_["estimator"] is None:
        return "gradient boosting"
    model = clf.estimator_
    if isinstance(model, FrozenEstimator):
        model = model.estimator
    return type(model[-1] if isinstance(model, Pipeline) else model).__name__


def _row(group: NamedGroup) -> list[str]:
    return [
        group.rule.text,
        f"{words.count(group.n_calibration)} ({words.percent(group.share)})",
        words.percent(group.coverage),
        words.interval(group.low, group.high),
        words.probability(group.p_value),
        words.percent(group.stability, 0),
    ]


def _levels_of_calibration(own: LevelCalibration) -> list[dict[str, Any]]:
    """Return coverage of the calibration rows by level, under split conformal sets and these."""
    labels = 0 if own.labels is None else own.labels
    covered = {
        "before": own.scores <= own.split_thresholds[labels],
        "after": own.scores <= own.level_thresholds[own.levels, labels],
    }
    return records(levels_before_and_after(own.levels, own.leveler.n_levels, covered))
