"""Compare two kinds of prediction sets on the same rows: who was helped, what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import SensitiveFeatures, select_columns
from fareg._files import AnyPath, check_output, write_text
from fareg._validation import BoolArray, IntArray
from fareg._words import HTML
from fareg.auditing._audit import audit
from fareg.auditing._rate import Audited, Promise
from fareg.auditing._reading import read_clusters
from fareg.auditing._result import AuditResult, save_text, write_tables
from fareg.auditing._tables import ENDINGS, group_changes, levels_before_and_after, records
from fareg.auditing._verdict import Change, fit_verdict
from fareg.metrics import coverage_by_label, is_covered
from fareg.report import render_card, render_markdown, render_report, words

TAGS = ["protected", "verified", "made_worse", "few"]  # shown next to the name of a group


@dataclass(frozen=True, eq=False)
class RowLevels:
    """Levels of disadvantage of test rows, and the lowest level with a raised threshold."""

    levels: IntArray  # (n_samples,) 0 for the least disadvantaged
    n_levels: int
    # the first with a threshold above that of split conformal sets; 0 if all share one threshold
    first_raised: int


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The sets of a classifier next to plainer ones, on test rows: ``clf.report(X, y)``.

    Attributes
    ----------
    names : pair of str
        Names of the sets before and after.
    label_conditional : bool
        Whether every label was calibrated by itself.
    named : list of Rule, or None
        The groups that the classifier named; None if the method verifies no groups.
    groups : DataFrame
        Groups that the classifier named or protects, groups that the audit verified, and
        categories. Columns: group, named, protected (it has its own threshold), verified (on test
        rows that did not choose the group; only these are counted), n, share, p_value (exact, that
        coverage before is below the promise), least_coverage (the lowest coverage that an unlucky
        calibration explains), before and after with their intervals, made_worse (coverage fell, and
        lies below the promise, both beyond chance) and few (too few rows to tell). With clusters
        also n_clusters: every coverage, here, in ``before``, ``after`` and ``story``, is that of a
        random row of a random cluster.
    left : AuditResult
        The audit of the sets after.
    story : dict or None
        How disadvantage is spread, what changed and what it cost; None without levels.
    about : dict
        Where the numbers come from: date, seed, and what else is known.
    promise : str
        The promise of the sets after, with its condition.
    y : array of shape (n_samples,)
        The true labels.
    sets, people : dict
        ``before`` and ``after``: the sets, and the rows with their sensitive features as
        ``columns``, and ``covered``, ``size`` and ``clusters`` of shape (n_samples,).

    Examples
    --------
    >>> from fareg import SplitConformalClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(1500, random_state=0)
    >>> clf = SplitConformalClassifier(random_state=0).fit(data.X[:1000], data.y[:1000])
    >>> comparison = clf.report(data.X[1000:], data.y[1000:], measures=False)
    >>> comparison.before == comparison.after
    True
    """

    names: tuple[str, str]
    label_conditional: bool
    named: list[Any] | None
    groups: pd.DataFrame
    left: AuditResult
    story: dict[str, Any] | None
    about: dict[str, Any]
    promise: str
    y: Any
    sets: Mapping[str, BoolArray]
    people: Mapping[str, Audited]

    @property
    def confidence_level(self) -> float:
        """Promised coverage."""
        return self.left.confidence_level

    @property
    def accuracy(self) -> float:
        """Accuracy of the wrapped estimator."""
        return float(np.asarray(self.people["after"].is_top_right).mean())

    @property
    def before(self) -> dict[str, float]:
        """Coverage and mean_size of the sets before."""
        return self.people["before"].overall()

    @property
    def after(self) -> dict[str, float]:
        """Coverage and mean_size of the sets after."""
        return self.people["after"].overall()

    @property
    def empty(self) -> dict[str, Any]:
        """Of the empty sets after: ``share``, how often the top label is ``right``, accuracy."""
        rows = self.people["after"]
        is_empty = rows.size == 0
        right = float(np.asarray(rows.is_top_right)[is_empty].mean()) if is_empty.any() else None
        return {"share": float(is_empty.mean()), "right": right, "accuracy": self.accuracy}

    @cached_property
    def by_label(self) -> list[dict[str, Any]]:
        """Coverage of the test rows by true label, with the coverage before."""
        rows = self.people["before"]
        earlier = coverage_by_label(self.y, rows.covered, clusters=rows.clusters)
        before = dict(zip(map(str, earlier["label"]), earlier["coverage"], strict=True))
        return [{**row, "before": before[row["label"]]} for row in records(self.left.by_label)]

    @property
    def opening(self) -> list[str]:
        """What is promised, on which condition, and what the model did not read."""
        about = {"promise": self.promise, "not_read": self.about.get("not_read")}
        return replace(self.left, about=about).opening

    @cached_property
    def verdict(self) -> dict[str, Any]:
        """The verdict, from what was repaired and from the audit of what is left."""
        changes = {
            name: [Change.of_row(row) for row in records(self.groups[self.groups[name]])]
            for name in ("named", "made_worse")
        }
        return fit_verdict(
            self.left.facts,
            None if self.named is None else changes["named"],
            label_conditional=self.label_conditional,
            empty=self.empty,
            made_worse=changes["made_worse"],
            settings=self.left.settings,
        ).to_dict()

    def summary(self) -> str:
        """Return the verdict and the key numbers as a few lines of text."""
        verdict = self.verdict
        lines = [f"{verdict['label']}: {verdict['sentence']}"]
        lines += [f"  next       {step}" for step in verdict["next_steps"]]
        for moment, numbers in zip(("before", "after"), self._key_numbers(), strict=True):
            lines.append(f"  {moment:<10} {numbers}, {words.rows(len(self.y))}")
        return "\n".join(map(words.printable, lines))

    __str__ = summary

    def _key_numbers(self) -> list[str]:
        """Return coverage and size in words, of the sets before and of those after."""
        return [
            f"{name}: {words.percent(sets['coverage'])} covered, {words.size(sets['mean_size'])} "
            "labels per set"
            for name, sets in zip(self.names, (self.before, self.after), strict=True)
        ]

    def __repr__(self) -> str:
        return (
            f"Comparison(names={self.names}, n_samples={len(self.y)}, "
            f"status={self.verdict['status']!r}, named={[rule.text for rule in self.named or ()]})"
        )

    def _repr_html_(self) -> str:
        """Return what notebooks show: the verdict, and the groups before and after."""
        return render_card(
            {
                "title": f"{self.names[1]} on {words.rows(len(self.y))}",
                "facts": "; ".join(self._key_numbers()),
                **self.verdict,
                "head": ("Group", "Rows", *self.names),
                "rows": [
                    [
                        ", ".join([words.group_name(row["group"]), *words.remarks(row)]),
                        words.count(row["n"]),
                        *(words.percent(row[moment]) for moment in ("before", "after")),
                    ]
                    for row in records(self.groups)
                ],
                "levels": self.story["rows"] if self.story else None,
                "caption": f"Coverage by level of disadvantage: {self.names[0]} (squares), "
                f"{self.names[1]} (discs), promised coverage (dashed).",
                "confidence_level": self.confidence_level,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything the report shows, in plain JSON types."""
        summary: dict[str, Any] = self.left.to_dict()
        if not np.array_equal(self.sets["before"], self.sets["after"]):
            for moment in ("before", "after"):
                names = {f"{moment}{ending}": name for ending, name in ENDINGS.items()}
                columns = [*TAGS, "named", "p_value", "group", "n", *names]
                table = self.groups[columns].rename(columns=names)
                summary[moment] = records(table[table["n"] > 0])
        return {
            **summary,
            "title": f"{self.names[1]} model: coverage on test rows",
            "opening": self.opening,
            "comparison_labels": list(self.names),
            "about": {**self.about, "accuracy": self.accuracy},
            "residual": None if self.named is None else summary["verdict"],
            "verdict": self.verdict,
            "repairs": records(self.groups[self.groups["named"]]),
            "story": self.story,
        }

    def to_html(self, path: AnyPath) -> None:
        """Write the report, one HTML file that needs nothing else, at once or not at all."""
        check_output(path, endings=HTML)
        write_text(path, render_report(self.to_dict()))

    def to_card(self, path: AnyPath | None = None) -> str:
        """Return a section of a model card on the sets after, Markdown after YAML."""
        return save_text(path, render_markdown(self.to_dict(), as_card=True))

    def to_tables(self, folder: AnyPath) -> None:
        """Write the groups before and after, and every table of the audit, as CSV files."""
        levels = pd.DataFrame(self.story["rows"] if self.story else [])
        self.left.to_tables(folder)
        write_tables(folder, {"before_and_after": self.groups, "disadvantage": levels})

    def fails(self, gate: str) -> bool:
        """Return whether a gate is shut for the sets after, as :meth:`AuditResult.fails` does."""
        is_worse = gate == "found" and bool(self.verdict["made_worse"])
        return is_worse or self.left.fails(gate)


def compare_sets(
    X: Any,
    y: Any,
    sets: Mapping[str, BoolArray],
    *,
    classes: Any,
    predicted: Any,
    confidence_level: float,
    names: tuple[str, str],
    label_conditional: bool = False,
    sensitive_features: SensitiveFeatures = None,
    named: Sequence[Any] | None = None,
    protected: Sequence[Any] = (),
    levels: RowLevels | None = None,
    clusters: Any = None,
    n_calibration: int | None = None,
    measures: bool = True,
    about: Mapping[str, Any] | None = None,
    listed: Sequence[str] | None = None,
    promised: str = "",
    random_state: Any = None,
) -> Comparison:
    """Compare the sets ``before`` and ``after`` on rows that were used for neither.

    ``sets`` holds two bool arrays of shape (n_samples, n_classes). ``named`` are objects with a
    ``rule``, or None, and ``protected`` are rules. ``levels`` are levels of disadvantage.
    ``listed`` are the columns whose categories are shown. ``promised`` states the promise of the
    sets after. All else is as in :func:`fareg.audit` and in :class:`Comparison`.
    """
    promise = Promise.of_fitted(float(confidence_level), n_calibration)
    left = audit(
        X,
        y,
        sets["after"],
        classes=classes,
        sensitive_features=sensitive_features,
        confidence_level=confidence_level,
        clusters=clusters,
        n_calibration=promise.n_calibration,
        predicted=predicted,
        measures=measures,
        random_state=random_state,
    )
    columns = select_columns(X, sensitive_features)
    rules = None if named is None else [group.rule for group in named]
    is_right = np.asarray(predicted) == np.asarray(y)
    ids, _ = read_clusters(X, clusters, sensitive_features)
    people = {
        moment: Audited(columns, is_covered(y, marks, classes=classes), marks.sum(1), ids, is_right)
        for moment, marks in sets.items()
    }
    return Comparison(
        names=names,
        label_conditional=bool(label_conditional),
        named=rules,
        groups=group_changes(people, rules or (), left.findings, promise, listed, protected),
        left=left,
        story=None if levels is None else level_story(levels, people, rules or ()),
        about={**(about or {}), **left.about},
        promise=promised,
        y=y,
        sets=sets,
        people=people,
    )


def level_story(
    row_levels: RowLevels, people: Mapping[str, Audited], named: Sequence[Any] = ()
) -> dict[str, Any]:
    """Return what a report shows of levels of disadvantage, in plain types.

    ``rows`` has one entry per level, ``top`` joins the levels with raised thresholds, and
    ``others`` joins all other levels (None if everyone shares one threshold).
    """
    n_levels, first = row_levels.n_levels, row_levels.first_raised
    is_top = (row_levels.levels >= first).astype(np.int64)
    others, top = records(levels_before_and_after(is_top, 2, people).drop(columns="level"))
    return {
        "n_levels": n_levels,
        "named": [rule.text for rule in named],
        "rows": records(levels_before_and_after(row_levels.levels, n_levels, people)),
        "top": {**top, "first": first, "last": n_levels - 1},
        "others": others if first > 0 else None,
    }
