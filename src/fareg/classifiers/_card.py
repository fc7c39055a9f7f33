"""What a notebook shows of a fitted classifier: the promise, the named groups, the picture."""

from __future__ import annotations

from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from fareg.auditing import levels_before_and_after, records
from fareg.calibration import LevelCalibration
from fareg.classifiers._naming import NamedGroup
from fareg.classifiers._report import verified_names
from fareg.classifiers._views import own_part
from fareg.report import render_card, words

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


def card_of(clf: Any) -> str:
    """Return a fitted classifier as a piece of HTML."""
    card: dict[str, Any] = {
        "title": type(clf).__name__,
        "facts": f"{words.rows(clf.n_calibration_)} given to calibrate, "
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
    if isinstance(own, LevelCalibration) and own.leveler.n_levels > 1:
        card |= {"levels": _levels(own), "caption": CAPTION}
    return render_card(card)


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


def _levels(own: LevelCalibration) -> list[dict[str, Any]]:
    """Return coverage of the calibration rows by level, under split conformal sets and these."""
    labels = 0 if own.labels is None else own.labels
    covered = {
        "before": own.scores <= own.split_thresholds[labels],
        "after": own.scores <= own.level_thresholds[own.levels, labels],
    }
    return records(levels_before_and_after(own.levels, own.leveler.n_levels, covered))
