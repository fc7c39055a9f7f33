"""A classifier for readers: compared with split conformal sets, on a card, in a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from fareg._columns import check_same_order, select_columns
from fareg._labels import check_labels, label_codes
from fareg._validation import InvalidInputError, check_same_length
from fareg.auditing import Comparison, RowLevels, compare_sets
from fareg.calibration import Batch, LevelThresholds, Rectified, Union
from fareg.classifiers._models import hidden_columns, unfrozen
from fareg.classifiers._rows import Rows
from fareg.metrics import coverage_by_level, is_covered
from fareg.report import render_card, words

SPLIT = "Split conformal"
HEAD = ("Under-covered by split conformal sets", "Rows", "Covered", "95% interval", "p")
NO_GROUP = "No group is named: none was credibly under-covered by split conformal sets."
CAPTION = (
    "Coverage of the calibration rows by level of disadvantage: split conformal sets (squares), "
    "these sets (discs), promised coverage (dashed). Test rows say more: report(X, y)."
)


def short_name(clf: Any) -> str:
    """Return the short name of a method: FaReG for ``FaReGClassifier``."""
    return type(clf).__name__.removesuffix("Classifier").removesuffix("Conformal")


def levels_part(calibration: Any) -> LevelThresholds | None:
    """Return the levels of a calibration, or None."""
    first = calibration.parts[0] if isinstance(calibration, Union) else calibration
    return first if isinstance(first, LevelThresholds) else None


def compare(clf: Any, rows: Rows, y: Any, before: Any, listed: Any, **options: Any) -> Comparison:
    """Compare the sets of a fitted classifier with those of ``before``, or with split ones.

    ``listed`` are the columns whose categories are listed; None lists the named sensitive features.
    ``options`` are passed to :func:`fareg.auditing.compare_sets`.
    """
    labels = check_labels(y)
    check_same_length(X=rows.X, y=labels)
    check_same_order(X=rows.X, y=y)
    codes, batches = label_codes(labels, clf.classes_), list(clf._scored(rows))
    top = clf.classes_[np.concatenate([batch.proba.argmax(axis=1) for batch in batches])]
    if before is None:
        sets_before = _split_sets(clf, batches)
    else:
        sets_before = _sets_before(before, rows, clf.classes_)
    selection, X = clf.sensitive_features, rows.X if rows.sensitive is None else rows.sensitive
    people = select_columns(X, selection, hidden=hidden_columns(clf.estimator_, rows.table))
    is_named = rows.sensitive is not None or selection is not None
    if listed is None:  # if none was named, the least covered categories are listed
        listed = list(people) if is_named else None
    if rows.sensitive is not None:
        selection = people
    elif not callable(selection):
        selection = list(people)  # without columns of probabilities
    fitted, levels = levels_part(clf.calibration_), None
    if fitted is not None:
        n_levels = max(map(len, fitted.theta))
        levels = RowLevels(clf.levels_of(people, codes), n_levels, fitted.first_raised())
    seed = clf.random_state
    not_read = list(map(str, people)) if rows.sensitive is not None else []
    options["about"] = {"not_read": not_read, **(options.get("about") or {})}
    return compare_sets(
        rows.X,
        labels,
        {"before": sets_before, "after": np.concatenate([clf._sets(batch) for batch in batches])},
        classes=clf.classes_,
        predicted=clf.predict(rows.X) if rows.proba is None else top,
        confidence_level=clf.confidence_level,
        names=(SPLIT if before is None else short_name(before), short_name(clf)),
        label_conditional=clf.label_conditional,
        sensitive_features=selection,
        named=getattr(clf, "named_groups_", None),
        protected=getattr(clf, "protected_", ()),
        levels=levels,
        n_calibration=clf.calibration_.sample.n_people,
        promised=clf.promise_,
        listed=listed and [str(name) for name in listed],
        random_state=seed if isinstance(seed, int) else clf.key_ % 2**32,
        **options,
    )


def _sets_before(before: Any, rows: Rows, classes: Any) -> Any:
    """Return the sets of another classifier for the same rows."""
    # split conformal sets need no sensitive features, and may refuse them
    needs_people = rows.sensitive is not None and before.sensitive_kinds_ is not None
    people = rows.sensitive if needs_people else None
    sets = before.predict_set(rows.X, proba=rows.proba, sensitive_features=people, ids=rows.ids)
    if list(before.classes_) != list(classes):
        raise InvalidInputError(
            f"before must know the same classes, {list(classes)}, got {list(before.classes_)}; "
            "calibrate both around one estimator"
        )
    return sets


def _split_sets(clf: Any, batches: list[Batch]) -> Any:
    """Return the split conformal sets from the same calibration rows."""
    if isinstance(clf.calibration_, Rectified):  # it stores residuals instead of scores
        raise InvalidInputError(
            f"this {type(clf).__name__} keeps no scores for split conformal sets; pass before=, a "
            "fitted SplitConformalClassifier to compare with"
        )
    split = clf.calibration_.sample.split_thresholds(clf.alpha_)
    return np.concatenate([clf._fill_empty(batch, batch.scores <= split) for batch in batches])


def html_card(clf: Any) -> str:
    """Return a summary of a fitted classifier in HTML."""
    rows, n_clusters = words.rows(clf.n_calibration_), clf.n_calibration_clusters_
    rows = rows if n_clusters is None else f"{rows} of {words.clusters(n_clusters)}"
    model = unfrozen(clf.estimator_)
    model = type(model[-1] if isinstance(model, Pipeline) else model).__name__
    model = "gradient boosting" if clf.estimator is None else model
    card: dict[str, Any] = {
        "title": type(clf).__name__,
        "facts": f"{rows} calibrated, {len(clf.classes_)} classes, around {model}",
        "sentence": clf.promise_,
        "confidence_level": 1 - clf.alpha_,
        "code": repr(clf),
    }
    if (named := getattr(clf, "named_groups_", None)) is not None:
        card |= {"head": HEAD, "rows": [group.in_words() for group in named]}
        card["note"] = "" if named else NO_GROUP
    levels = levels_part(clf.calibration_)
    # stored scores do not know their clusters, so the coverage of clusters cannot be shown
    if levels is not None and len(levels.theta[0]) > 1 and levels.sample.sizes is None:
        sample, known = levels.sample, levels.row_levels >= 0
        split = sample.split_thresholds(levels.alpha)[sample.row_labels]
        thresholds = {"before": split, "after": clf.calibration_.row_thresholds()}
        n_levels, tables = max(map(len, levels.theta)), []
        for when, threshold in thresholds.items():
            covered = (sample.score <= threshold)[known]
            table = coverage_by_level(levels.row_levels[known], covered, n_levels=n_levels)
            names = {"coverage": when, "low": f"{when}_low", "high": f"{when}_high"}
            tables.append(table[["level", "n", *names]].rename(columns=names))
        card |= {"levels": tables[0].merge(tables[1]).to_dict("records"), "caption": CAPTION}
    return render_card(card)


def plot_levels(clf: Any, rows: Rows, y: Any) -> Any:
    """Draw thresholds by level on the left, coverage by level before and after on the right."""
    from matplotlib.figure import Figure

    fitted, batches = clf.calibration_.parts[0], list(clf._scored(rows))
    people = pd.concat([batch.people for batch in batches], ignore_index=True)
    levels = clf.levels_of(people, label_codes(y, clf.classes_))
    n_levels, split = max(map(len, fitted.theta)), fitted.sample.split_thresholds(fitted.alpha)
    before = _split_sets(clf, batches)
    after = np.concatenate([clf._sets(batch) for batch in batches])
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    names = [""] if fitted.sample.labels is None else [f", {label}" for label in clf.classes_]
    for name, theta, threshold in zip(names, fitted.theta, split, strict=True):
        # infinite thresholds (full sets, in levels with too few rows) are not drawn
        (line,) = left.step(range(len(theta)), theta, where="mid", lw=2, label=f"FaReG{name}")
        left.axhline(threshold, color=line.get_color(), ls=":", label=f"split conformal{name}")
    for name, sets, shift in (("split conformal", before, -0.12), ("FaReG", after, 0.12)):
        covered = is_covered(y, sets, classes=clf.classes_)
        table = coverage_by_level(levels, covered, n_levels=n_levels)
        table = table[table["n"] > 0]
        errors = [table["coverage"] - table["low"], table["high"] - table["coverage"]]
        right.errorbar(table["level"] + shift, table["coverage"], errors, fmt="o", label=name)
    promised = f"promised {words.confidence(1 - fitted.alpha)}"
    right.axhline(1 - fitted.alpha, color="black", ls="--", label=promised)
    for ax, what in ((left, "threshold of the score"), (right, "coverage, 95% intervals")):
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        ax.set(xlabel="level of disadvantage", ylabel=what, xlim=(-0.5, n_levels - 0.5))
        ax.legend(frameon=False, fontsize=9)
    return figure
