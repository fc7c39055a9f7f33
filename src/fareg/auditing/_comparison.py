"""Two kinds of prediction sets on the same rows: who was helped, what it cost, what is left."""

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
from fareg.auditing._result import AuditResult, write_tables, written
from fareg.auditing._tables import BOTH, group_changes, levels_before_and_after, records
from fareg.auditing._verdict import Change, fit_verdict
from fareg.metrics import coverage_by_label, is_covered
from fareg.report import render_card, render_markdown, render_report, words

TAGGED = [
    "protected",
    "verified",
    "made_worse",
    "few",
]  # what is said of a group next to its numbers


@dataclass(frozen=True, eq=False)
class RowLevels:
    """Levels of disadvantage of test rows, and where thresholds begin to be raised."""

    levels: IntArray  # (n_samples,) 0 for the least disadvantaged
    n_levels: int
    # the first whose threshold is above that of split conformal sets; 0 if everyone shares one
    first_raised: int


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The sets of a classifier next to plainer ones, on test rows: ``clf.report(X, y)``.

    Attributes
    ----------
    names : pair of str
        What to call the sets before and after.
    label_conditional : bool
        Whether every label was calibrated by itself.
    named : list of Rule, or None
        The groups that the classifier named: words as ``text``, and ``inside``, which finds rows.
        None if the method names no groups that it could verify.
    groups : DataFrame
        The groups that the classifier named, those that it protects, those that the audit
        verified, and levels: group, named, protected (it has a threshold of its own), verified (on
        test rows that did not choose the group; only these are counted),
        n, share, p_value (exact, that coverage before is below the level), least_coverage (what the
        draw of the calibration rows excuses), before and after, each with the ends of its interval,
        made_worse (coverage fell, and lies below the level, both beyond chance) and few (too few
        rows to tell). With clusters also n_clusters: every coverage, here, in ``before``, ``after``
        and ``story``, is that of a random row of a random cluster.
    left : AuditResult
        The audit of the sets after.
    story : dict or None
        How disadvantage is spread, what changed and what it cost; None without levels.
    about : dict
        Where the numbers come from: date and seed, and what else is known.
    promise : str
        What the sets after promise, and on which condition.
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
    >>> told = clf.report(data.X[1000:], data.y[1000:], measures=False)
    >>> told.before == told.after
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
        nothing = rows.size == 0
        right = float(np.asarray(rows.is_top_right)[nothing].mean()) if nothing.any() else None
        return {"share": float(nothing.mean()), "right": right, "accuracy": self.accuracy}

    @cached_property
    def by_label(self) -> list[dict[str, Any]]:
        """Coverage of the test rows by true label: the sets after, and those before."""
        rows = self.people["before"]
        earlier = coverage_by_label(self.y, rows.covered, clusters=rows.clusters)
        before = dict(zip(map(str, earlier["label"]), earlier["coverage"], strict=True))
        return [{**row, "before": before[row["label"]]} for row in records(self.left.by_label)]

    @property
    def opening(self) -> list[str]:
        """What is promised, on which condition, and what the model did not read."""
        told = {"promise": self.promise, "not_read": self.about.get("not_read")}
        return replace(self.left, about=told).opening

    @cached_property
    def verdict(self) -> dict[str, Any]:
        """What is said first, from what was repaired and from the audit of what is left."""
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
        for moment, told in zip(("before", "after"), self._told(), strict=True):
            lines.append(f"  {moment:<10} {told}, {words.rows(len(self.y))}")
        return "\n".join(map(words.printable, lines))

    __str__ = summary

    def _told(self) -> list[str]:
        """Return coverage and size of the sets before, and of those after, in words."""
        return [
            f"{name}: {words.percent(own['coverage'])} covered, {words.size(own['mean_size'])} "
            "labels per set"
            for name, own in zip(self.names, (self.before, self.after), strict=True)
        ]

    def __repr__(self) -> str:
        return (
            f"Comparison(names={self.names}, n_samples={len(self.y)}, "
            f"status={self.verdict['status']!r}, named={[own.text for own in self.named or ()]})"
        )

    def _repr_html_(self) -> str:
        """Return what notebooks show: the verdict, and the groups before and after."""

        return render_card(
            {
                "title": f"{self.names[1]} on {words.rows(len(self.y))}",
                "facts": "; ".join(self._told()),
                **self.verdict,
                "head": ("Group", "Rows", *self.names),
                "rows": [
                    [
                        ", ".join([row["group"], *words.remarks(row)]),
                        words.count(row["n"]),
                        *(words.percent(row[moment]) for moment in ("before", "after")),
                    ]
                    for row in records(self.groups)
                ],
                "levels": self.story["rows"] if self.story else None,
                "caption": f"Coverage by level of disadvantage: {self.names[0]} (squares), "
                f"{self.names[1]} (discs), and the promised level (dashed).",
                "confidence_level": self.confidence_level,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything the report shows, in plain JSON types."""
        summary: dict[str, Any] = self.left.to_dict()
        if not np.array_equal(self.sets["before"], self.sets["after"]):
            for moment in ("before", "after"):
                own = {f"{moment}{ending}": name for ending, name in BOTH.items()}
                columns = [*TAGGED, "named", "p_value", "group", "n", *own]
                table = self.groups[columns].rename(columns=own)
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
        """Return a section of a model card: Markdown after YAML, of the sets after."""
        return written(path, render_markdown(self.to_dict(), as_card=True))

    def to_tables(self, folder: AnyPath) -> None:
        """Write the groups before and after, and every table of the audit, as CSV files."""
        levels = pd.DataFrame(self.story["rows"] if self.story else [])
        self.left.to_tables(folder)
        write_tables(folder, {"before_and_after": self.groups, "disadvantage": levels})

    def fails(self, gate: str) -> bool:
        """Tell whether a gate is shut, as :meth:`AuditResult.fails` does, for the sets after."""
        worse = gate == "found" and bool(self.verdict["made_worse"])
        return worse or self.left.fails(gate)


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
    """Compare the sets ``before`` and ``after`` on rows that neither of them has seen.

    ``sets`` holds two bool arrays of shape (n_samples, n_classes); ``named`` are objects with a
    ``rule``, or None; ``protected`` are rules; ``levels`` are those of disadvantage; ``listed`` are
    columns whose levels a reader wants to see; ``promised`` is the promise of the sets after, in a
    sentence. All else is as in :func:`fareg.audit` and in :class:`Comparison`.
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
    right = np.asarray(predicted) == np.asarray(y)
    ids, _ = read_clusters(X, clusters, sensitive_features)
    people = {
        moment: Audited(columns, is_covered(y, own, classes=classes), own.sum(axis=1), ids, right)
        for moment, own in sets.items()
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
    told: RowLevels, people: Mapping[str, Audited], named: Sequence[Any] = ()
) -> dict[str, Any]:
    """Return the facts of a report about levels of disadvantage, in plain types.

    ``rows`` has one per level, ``top`` joins the levels whose thresholds were raised, ``others``
    the rest (None if everyone shares one threshold).
    """
    n_levels, first = told.n_levels, told.first_raised
    is_top = (told.levels >= first).astype(np.int64)
    others, top = records(levels_before_and_after(is_top, 2, people).drop(columns="level"))
    return {
        "n_levels": n_levels,
        "named": [rule.text for rule in named],
        "rows": records(levels_before_and_after(told.levels, n_levels, people)),
        "top": {**top, "first": first, "last": n_levels - 1},
        "others": others if first > 0 else None,
    }
