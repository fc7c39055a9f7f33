"""A classifier's sets beside split conformal ones, on rows that it never saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fareg._columns import check_same_order
from fareg._labels import check_labels
from fareg._validation import InvalidInputError, check_same_length
from fareg.auditing import Comparison, RowLevels, compare_sets
from fareg.calibration import RisingThresholds, Rows
from fareg.classifiers._views import own_part

if TYPE_CHECKING:
    from fareg.classifiers._asking import FittedAnswers

SPLIT = "Split conformal"


def short_name(clf: Any) -> str:
    """Return what people call a method: FaReG for ``FaReGClassifier``."""
    return type(clf).__name__.removesuffix("Classifier").removesuffix("Conformal")


def verified_names(clf: Any) -> Any:
    """Return the groups that a classifier names; None if it names none, or could verify none."""
    # with "reuse", the rows that calibrate also chose the groups and cannot verify them
    reused = clf.parameters_.get("calibration") == "reuse"
    return None if reused else getattr(clf, "named_groups_", None)


def compare(clf: FittedAnswers, rows: Rows, y: Any, before: Any, **options: Any) -> Comparison:
    """Compare the sets of a fitted classifier with those of ``before``, or with split ones.

    ``options`` are those of :func:`fareg.auditing.compare_sets`.
    """
    labels = check_labels(y)
    check_same_length(X=rows.X, y=labels)
    check_same_order(X=rows.X, y=y)
    settings, seed = clf.parameters_, clf.parameters_["random_state"]
    selection = settings["sensitive_features"]
    if rows.about is not None:
        selection = rows.columns
    elif not callable(selection):
        selection = list(rows.columns)  # columns of probabilities are not among them
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
        n_calibration=clf.n_calibration_,
        random_state=seed if isinstance(seed, int) else clf.key_ % 2**32,
        **options,
    )


def _sets_before(clf: FittedAnswers, rows: Rows, before: Any) -> Any:
    if before is not None:
        proba = None if rows.given is None else rows.given.values()
        # split conformal sets need no sensitive features, and may know none
        about = rows.about if getattr(before, "sensitive_kinds_", None) else None
        sets = before.predict_set(rows.X, proba=proba, sensitive_features=about)
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
