"""What a fitted classifier does, for people: beside split conformal sets, and as a card."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from fareg._columns import check_same_order
from fareg._hashing import holds_used
from fareg._labels import check_labels, label_codes
from fareg._validation import InvalidInputError, check_same_length, warn
from fareg.auditing import Comparison, RowLevels, compare_sets, levels_before_and_after, records
from fareg.calibration import Labelled, LevelThresholds, Rectified, Sample, Union
from fareg.classifiers._inputs import Given
from fareg.classifiers._learning import unfrozen
from fareg.classifiers._naming import NamedGroup
from fareg.report import render_card, words

SPLIT = "Split conformal"
HEAD = ("Under-covered by split conformal sets", "Rows", "Covered", "95% interval", "p")
NOBODY = "Nobody is named: no group was credibly under-covered by split conformal sets."
CAPTION = (
    "Coverage of the calibration rows by level of disadvantage: split conformal sets (squares), "
    "these sets (discs), and the promised level (dashed). Test rows tell more: report(X, y)."
)


def short_name(clf: Any) -> str:
    """Return what people call a method: FaReG for ``FaReGClassifier``."""
    return type(clf).__name__.removesuffix("Classifier").removesuffix("Conformal")


def levels_part(calibration: Any) -> LevelThresholds | None:
    """Return the levels of a calibration, None if it has none."""
    first = calibration.parts[0] if isinstance(calibration, Union) else calibration
    return first if isinstance(first, LevelThresholds) else None


def compare(clf: Any, given: Given, y: Any, before: Any, listed: Any, **options: Any) -> Comparison:
    """Compare the sets of a fitted classifier with those of ``before``, or with split ones.

    ``listed`` are columns whose levels are listed, None for the sensitive features that were named.
    ``options`` are those of :func:`fareg.auditing.compare_sets`.
    """
    labels = check_labels(y)
    check_same_length(X=given.X, y=labels)
    check_same_order(X=given.X, y=y)
    codes = label_codes(labels, clf.classes_)
    batches = list(clf._batches(given))
    if before is None:
        split = _split_thresholds(clf)
        sets_before = np.concatenate([clf._sets(batch, split) for batch in batches])
    else:
        sets_before = _sets_of(before, given, clf.classes_)
    sets = np.concatenate([clf._sets(batch) for batch in batches])
    top = clf.classes_[np.concatenate([batch.proba.argmax(axis=1) for batch in batches])]
    _warn_of_calibration_rows(
        clf.calibration_.sample, clf._labelled(given, codes, "calibration"), clf.n_repeated_
    )
    settings, seed = clf.parameters_, clf.parameters_["random_state"]
    selection = settings["sensitive_features"]
    people = clf._sensitive_columns(given, selection)
    if listed is None:  # where none was named, the levels that are covered least will do
        listed = [] if given.beside is None and selection is None else list(people)
    if given.beside is not None:
        selection = people
    elif not callable(selection):
        selection = list(people)  # columns of probabilities are not among them
    own, levels = levels_part(clf.calibration_), None
    if own is not None:
        by_row = clf.levels_of(people, codes)
        levels = RowLevels(by_row, max(map(len, own.theta)), own.first_raised())
    return compare_sets(
        given.X,
        labels,
        {"before": sets_before, "after": sets},
        classes=clf.classes_,
        predicted=clf.predict(given.X) if given.proba is None else top,
        confidence_level=settings["confidence_level"],
        names=(SPLIT if before is None else short_name(before), short_name(clf)),
        label_conditional=settings["label_conditional"],
        sensitive_features=selection,
        named=getattr(clf, "named_groups_", None),
        levels=levels,
        n_calibration=clf.calibration_.sample.n_people,
        promised=clf.promise_,
        listed=[str(name) for name in listed],
        random_state=seed if isinstance(seed, int) else clf.key_ % 2**32,
        **options,
    )


def _warn_of_calibration_rows(sample: Sample, rows: Labelled, n_repeated: int) -> None:
    """Warn if more rows have the scores of calibration rows than chance explains.

    The rows have the random numbers that they would have had where they calibrated. Where most rows
    equal others, nothing can be said; otherwise ``n_repeated`` calibration rows equal an earlier
    one, and chance is as large.
    """
    # the last digits of a probability may depend on the rows that are asked together with it
    used, new = (some[np.isfinite(some)].round(12) for some in (sample.score, rows.score))
    values, which = np.unique(np.concatenate([used, new]), return_inverse=True)
    n_used, n_new = (
        np.bincount(codes, minlength=len(values)) for codes in np.split(which, [len(used)])
    )
    known = n_used > 0
    if holds_used(n_used[known], n_new[known], len(new), n_repeated):
        warn(
            f"{n_new[known].sum()} of {len(rows)} rows have the scores of calibration rows, more "
            "than chance explains: coverage of rows that calibrated is not that of new rows; pass "
            "rows that took no part in training and calibration"
        )


def _sets_of(before: Any, given: Given, classes: Any) -> Any:
    """Return the sets of another classifier for the same rows."""
    # split conformal sets need no sensitive features, and may know none
    is_read = getattr(before, "sensitive_kinds_", None)
    beside = given.beside.source if given.beside is not None and is_read else None
    sets = before.predict_set(given.X, proba=given.proba, sensitive_features=beside, ids=given.ids)
    if list(before.classes_) != list(classes):
        raise InvalidInputError(
            f"before must know the same classes, got {list(before.classes_)} beside "
            f"{list(classes)}; calibrate both around one estimator"
        )
    return sets


def _split_thresholds(clf: Any) -> Any:
    if isinstance(clf.calibration_, Rectified):  # residuals do not say what the scores were
        raise InvalidInputError(
            f"this {type(clf).__name__} keeps no scores to build split conformal sets from; pass "
            "before=, a fitted SplitConformalClassifier to compare with"
        )
    return clf.calibration_.sample.split_thresholds(clf.alpha_)


def card_of(clf: Any) -> str:
    """Return a fitted classifier as a piece of HTML."""
    rows, people = words.rows(clf.n_calibration_), clf.n_calibration_clusters_
    rows = rows if people is None else f"{rows} of {words.clusters(people)}"
    card: dict[str, Any] = {
        "title": type(clf).__name__,
        "facts": f"{rows} calibrated, {len(clf.classes_)} classes, around {_model_name(clf)}",
        "sentence": clf.promise_,
        "confidence_level": 1 - clf.alpha_,
        "code": repr(clf),
    }
    named = getattr(clf, "named_groups_", None)
    if named is not None:
        card |= {"head": HEAD, "rows": [_row(group) for group in named]}
        card["note"] = "" if named else NOBODY
    own = levels_part(clf.calibration_)
    # scores do not say whose rows they are, so the coverage of clusters is not known here
    if own is not None and len(own.theta[0]) > 1 and own.sample.sizes is None:
        card |= {"levels": _levels_of_calibration(clf.calibration_, own), "caption": CAPTION}
    return render_card(card)


def _model_name(clf: Any) -> str:
    """Return the class of the wrapped model: inside a FrozenEstimator, at the end of a pipeline."""
    if clf.parameters_["estimator"] is None:
        return "gradient boosting"
    model = unfrozen(clf.estimator_)
    return type(model[-1] if isinstance(model, Pipeline) else model).__name__


def _row(group: NamedGroup) -> list[str]:
    return [
        group.rule.text,
        f"{words.count(group.n_calibration)} ({words.percent(group.share)})",
        words.percent(group.coverage),
        words.interval(group.low, group.high),
        words.probability(group.p_value),
    ]


def _levels_of_calibration(calibration: Any, own: LevelThresholds) -> list[dict[str, Any]]:
    """Return coverage of the calibration rows by level, under split conformal sets and these."""
    sample, known = own.sample, own.row_levels >= 0
    split = sample.split_thresholds(own.alpha)[sample.problems]
    covered = {
        "before": (sample.score <= split)[known],
        "after": (sample.score <= calibration.of_rows())[known],
    }
    n_levels = max(map(len, own.theta))
    return records(levels_before_and_after(own.row_levels[known], n_levels, covered))
