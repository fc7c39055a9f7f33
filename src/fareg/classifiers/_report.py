"""What a classifier does, for people: next to split conformal sets, on a card, in a picture."""

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
NOBODY = "Nobody is named: no group was credibly under-covered by split conformal sets."
CAPTION = (
    "Coverage of the calibration rows by level of disadvantage: split conformal sets (squares), "
    "these sets (discs), and the promised level (dashed). Test rows say more: report(X, y)."
)


def short_name(clf: Any) -> str:
    """Return what people call a method: FaReG for ``FaReGClassifier``."""
    return type(clf).__name__.removesuffix("Classifier").removesuffix("Conformal")


def levels_part(calibration: Any) -> LevelThresholds | None:
    """Return the levels of a calibration, None if it has none."""
    first = calibration.parts[0] if isinstance(calibration, Union) else calibration
    return first if isinstance(first, LevelThresholds) else None


def compare(clf: Any, rows: Rows, y: Any, before: Any, listed: Any, **options: Any) -> Comparison:
    """Compare the sets of a fitted classifier with those of ``before``, or with split ones.

    ``listed`` are columns whose levels are listed, None for the sensitive features that were named.
    ``options`` are those of :func:`fareg.auditing.compare_sets`.
    """
    labels = check_labels(y)
    check_same_length(X=rows.X, y=labels)
    check_same_order(X=rows.X, y=y)
    codes, batches = label_codes(labels, clf.classes_), list(clf._score(rows))
    top = clf.classes_[np.concatenate([batch.proba.argmax(axis=1) for batch in batches])]
    if before is None:
        sets_before = _split_sets(clf, batches)
    else:
        sets_before = _sets_of(before, rows, clf.classes_)
    selection, X = clf.sensitive_features, rows.X if rows.beside is None else rows.beside
    people = select_columns(X, selection, hidden=hidden_columns(clf.estimator_, rows.table))
    is_named = rows.beside is not None or selection is not None
    if listed is None:  # where none was named, the levels that are covered least will do
        listed = list(people) if is_named else None
    if rows.beside is not None:
        selection = people
    elif not callable(selection):
        selection = list(people)  # columns of probabilities are not among them
    own, levels = levels_part(clf.calibration_), None
    if own is not None:
        n_levels = max(map(len, own.theta))
        levels = RowLevels(clf.levels_of(people, codes), n_levels, own.first_raised())
    seed = clf.random_state
    not_read = list(map(str, people)) if rows.beside is not None else []
    options["about"] = {"not_read": not_read, **(options.get("about") or {})}
    return compare_sets(
        rows.X,
        labels,
        {"before": sets_before, "after": np.concatenate([clf._sets(own) for own in batches])},
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


def _sets_of(before: Any, rows: Rows, classes: Any) -> Any:
    """Return the sets of another classifier for the same rows."""
    # split conformal sets need no sensitive features, and may know none
    is_read = rows.beside is not None and before.sensitive_kinds_ is not None
    beside = rows.beside if is_read else None
    sets = before.predict_set(rows.X, proba=rows.proba, sensitive_features=beside, ids=rows.ids)
    if list(before.classes_) != list(classes):
        raise InvalidInputError(
            f"before must know the same classes, got {list(before.classes_)} beside "
            f"{list(classes)}; calibrate both around one estimator"
        )
    return sets


def _split_sets(clf: Any, batches: list[Batch]) -> Any:
    """Return the split conformal sets with the same calibration rows."""
    if isinstance(clf.calibration_, Rectified):  # residuals do not say what the scores were
        raise InvalidInputError(
            f"this {type(clf).__name__} keeps no scores to build split conformal sets from; pass "
            "before=, a fitted SplitConformalClassifier to compare with"
        )
    split = clf.calibration_.sample.split_thresholds(clf.alpha_)
    return np.concatenate([clf._kept(own, own.scores <= split) for own in batches])


def card_of(clf: Any) -> str:
    """Return a fitted classifier as a piece of HTML."""
    rows, people = words.rows(clf.n_calibration_), clf.n_calibration_clusters_
    rows = rows if people is None else f"{rows} of {words.clusters(people)}"
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
        card["note"] = "" if named else NOBODY
    own = levels_part(clf.calibration_)
    # scores do not say whose rows they are, so the coverage of clusters is not known here
    if own is not None and len(own.theta[0]) > 1 and own.sample.sizes is None:
        sample, known = own.sample, own.row_levels >= 0
        split = sample.split_thresholds(own.alpha)[sample.row_labels]
        thresholds = {"before": split, "after": clf.calibration_.row_thresholds()}
        n_levels, tables = max(map(len, own.theta)), []
        for when, threshold in thresholds.items():
            covered = (sample.score <= threshold)[known]
            table = coverage_by_level(own.row_levels[known], covered, n_levels=n_levels)
            ends = {"coverage": when, "low": f"{when}_low", "high": f"{when}_high"}
            tables.append(table[["level", "n", *ends]].rename(columns=ends))
        card |= {"levels": tables[0].merge(tables[1]).to_dict("records"), "caption": CAPTION}
    return render_card(card)


def plot_levels(clf: Any, rows: Rows, y: Any) -> Any:
    """Draw thresholds by level on the left, coverage by level before and after on the right."""
    from matplotlib.figure import Figure

    own, batches = clf.calibration_.parts[0], list(clf._score(rows))
    people = pd.concat([batch.people for batch in batches], ignore_index=True)
    levels = clf.levels_of(people, label_codes(y, clf.classes_))
    n_levels, split = max(map(len, own.theta)), own.sample.split_thresholds(own.alpha)
    before = _split_sets(clf, batches)
    after = np.concatenate([clf._sets(batch) for batch in batches])
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    names = [""] if own.sample.labels is None else [f", {label}" for label in clf.classes_]
    for name, theta, threshold in zip(names, own.theta, split, strict=True):
        # a level with too few rows has an infinite threshold, which is not drawn: a full set
        (line,) = left.step(range(len(theta)), theta, where="mid", lw=2, label=f"FaReG{name}")
        left.axhline(threshold, color=line.get_color(), ls=":", label=f"split conformal{name}")
    for name, sets, shift in (("split conformal", before, -0.12), ("FaReG", after, 0.12)):
        covered = is_covered(y, sets, classes=clf.classes_)
        table = coverage_by_level(levels, covered, n_levels=n_levels)
        table = table[table["n"] > 0]
        gaps = [table["coverage"] - table["low"], table["high"] - table["coverage"]]
        right.errorbar(table["level"] + shift, table["coverage"], gaps, fmt="o", label=name)
    promised = f"promised {words.confidence(1 - own.alpha)}"
    right.axhline(1 - own.alpha, color="black", ls="--", label=promised)
    for ax, what in ((left, "threshold of the score"), (right, "coverage, 95% intervals")):
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        ax.set(xlabel="level of disadvantage", ylabel=what, xlim=(-0.5, n_levels - 0.5))
        ax.legend(frameon=False, fontsize=9)
    return figure
