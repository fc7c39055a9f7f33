"""What a classifier does, for people: beside split conformal sets, on a card, in a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from fareg._columns import check_same_order
from fareg._labels import check_labels, label_codes
from fareg._selection import select_columns
from fareg._validation import FloatArray, InvalidInputError, check_same_length, warn
from fareg.auditing import Comparison, RowLevels, compare_sets, levels_before_and_after, records
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
    "these sets (discs), and the promised level (dashed). Test rows tell more: report(X, y)."
)
MARGIN = 0.05  # share of new rows that may have the scores of calibration rows by chance
LOOKS = {
    "before": ("#d55e00", "s", "split conformal", -0.12),
    "after": ("#0072b2", "o", "FaReG", 0.12),
}
MAX_NAMED_LABELS = 6


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
    _warn_of_calibration_rows(clf, clf._labelled(rows, "calibration", codes).score)
    table, selection = rows.table if rows.beside is None else rows.beside, clf.sensitive_features
    people = select_columns(table, selection, hidden=hidden_columns(clf.estimator_, rows.X))
    is_named = rows.beside is not None or selection is not None
    if listed is None:  # where none was named, the levels that are covered least will do
        listed = list(people) if is_named else []
    if rows.beside is not None:
        selection = people
    elif not callable(selection):
        selection = list(people)  # columns of probabilities are not among them
    own, levels = levels_part(clf.calibration_), None
    if own is not None:
        n_levels = max(map(len, own.theta))
        levels = RowLevels(clf.levels_of(people, codes), n_levels, own.first_raised())
    seed = clf.random_state
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
        levels=levels,
        n_calibration=clf.calibration_.sample.n_people,
        promised=clf.promise_,
        listed=[str(name) for name in listed],
        random_state=seed if isinstance(seed, int) else clf.key_ % 2**32,
        **options,
    )


def _warn_of_calibration_rows(clf: Any, scores: FloatArray) -> None:
    """Warn if more rows have the scores of calibration rows than chance explains.

    ``scores`` are those that the rows would have had where they calibrated. The share of
    calibration rows whose score is not theirs alone estimates that of new rows with such a score
    (Good 1953); of rows that equal others, random scores do not show it, but they are counted.
    """
    # the last digits of a probability may depend on the rows that are asked together with it
    used, new = (
        some[np.isfinite(some)].round(12) for some in (clf.calibration_.sample.score, scores)
    )
    counts = np.unique(used, return_counts=True)[1]
    n_alone = max(0, int((counts == 1).sum()) - 2 * clf.n_repeated_)
    n_found = int(np.isin(new, used).sum())
    if n_found > (2 * (1 - n_alone / max(1, len(used))) + MARGIN) * len(new):
        warn(
            f"{n_found} of {len(scores)} rows have the scores of calibration rows, more "
            "than chance explains: coverage of rows that calibrated is not that of new rows; pass "
            "rows that took no part in training and calibration"
        )


def _sets_of(before: Any, rows: Rows, classes: Any) -> Any:
    """Return the sets of another classifier for the same rows."""
    # split conformal sets need no sensitive features, and may know none
    is_read = rows.beside is not None and before.sensitive_kinds_ is not None
    beside = rows.beside.source if rows.beside is not None and is_read else None
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
        split = sample.split_thresholds(own.alpha)[sample.problems]
        thresholds = {"before": split, "after": clf.calibration_.of_rows()}
        covered = {when: (sample.score <= own)[known] for when, own in thresholds.items()}
        n_levels = max(map(len, own.theta))
        levels = levels_before_and_after(own.row_levels[known], n_levels, covered)
        card |= {"levels": records(levels), "caption": CAPTION}
    return render_card(card)


def plot_levels(clf: Any, rows: Rows, y: Any) -> Any:
    """Draw thresholds by level on the left, coverage by level before and after on the right."""
    from matplotlib.figure import Figure

    batches, own = list(clf._score(rows)), clf.calibration_.parts[0]
    people = pd.concat([batch.people for batch in batches], ignore_index=True)
    levels = clf.levels_of(people, label_codes(y, clf.classes_))
    sets = {
        "before": _split_sets(clf, batches),
        "after": np.concatenate([clf._sets(batch) for batch in batches]),
    }
    covered = {when: is_covered(y, some, classes=clf.classes_) for when, some in sets.items()}
    n_levels, pools = max(map(len, own.theta)), own.pooled_levels()
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    _draw_thresholds(left, own, clf.classes_)
    for when, (colour, marker, name, shift) in LOOKS.items():
        table = coverage_by_level(levels, covered[when], n_levels=n_levels)
        table = table[table["n"] > 0]
        gaps = [table["coverage"] - table["low"], table["high"] - table["coverage"]]
        look = {"color": colour, "marker": marker, "label": name}
        right.errorbar(table["level"] + shift, table["coverage"], gaps, ms=5, lw=1.2, **look)
    promised = f"promised {words.confidence(1 - own.alpha)}"
    right.axhline(1 - own.alpha, color="black", lw=1, ls="--", label=promised)
    right.set_ylabel("coverage, 95% intervals")
    right.legend(loc="best", frameon=False, fontsize=9)
    together = own.sample.labels is None
    for ax in (left, right):
        for first, last in pools[1::2] if together else ():
            ax.axvspan(first - 0.5, last + 0.5, color="#eeeeee", lw=0, zorder=0)
        ax.set_xlim(-0.5, n_levels - 0.5)
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        ax.set_xlabel("level of disadvantage")
        ax.spines[["top", "right"]].set_visible(False)
    shared = (
        "Levels under one shade share a threshold" if len(pools) > 1 else "One threshold for all"
    )
    figure.suptitle(shared if together else "Every label has levels of its own", fontsize=10)
    return figure


def _draw_thresholds(ax: Any, own: LevelThresholds, classes: Any) -> None:
    """Draw one step line per label; an infinite threshold stands at the top as a triangle."""
    split, thresholds = own.sample.split_thresholds(own.alpha), own.theta
    known = np.concatenate([*thresholds, split])
    top = 1.05 * known[np.isfinite(known)].max(initial=0.0) or 1.0
    full = set[int]()
    for column, theta in enumerate(thresholds):
        looks = [(look[0], look[2]) for look in LOOKS.values()]
        if own.sample.labels is not None:  # an empty name is left out of the legend
            name = str(classes[column]) if column < MAX_NAMED_LABELS else ""
            looks = [(f"C{column % 10}", ""), (f"C{column % 10}", name)]
        (split_colour, split_name), (colour, name) = looks
        full.update(np.flatnonzero(np.isinf(theta)).tolist())
        steps, edges = np.where(np.isinf(theta), top, theta), np.arange(len(theta) + 1) - 0.5
        ax.stairs(steps, edges, baseline=None, color=colour, lw=2, label=name)
        ax.axhline(min(split[column], top), color=split_colour, lw=2, ls=":", label=split_name)
    if full:
        heights = np.full(len(full), top)
        ax.plot(sorted(full), heights, "^", color="black", label="too few rows: full set")
    ax.set_ylabel("threshold of the score" + (", dotted: split" if len(thresholds) > 1 else ""))
    ax.legend(loc="best", frameon=False, fontsize=9)
