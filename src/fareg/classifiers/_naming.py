"""Groups that are named in words, verified on other rows; and the table ``groups_``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact

from fareg import _words as words
from fareg._columns import as_numbers, check_columns, in_words, kind_of, nearest
from fareg._validation import BoolArray, IntArray, InvalidInputError, require
from fareg.calibration import LevelThresholds, Members, Union
from fareg.groups import MAX_SHARE, Rule, is_far_below
from fareg.metrics import clopper_pearson
from fareg.pvalues import holm

SIGNIFICANCE = 0.05  # the chance of any false name in one round, over all candidates together
MIN_ROWS = 50  # calibration rows of a named group
MIN_NEW = 0.5  # share of a group's rows that are in no group named before it
GROUP_COLUMNS = {
    "group": "O",
    "named": "b",
    "rule": "O",
    "share": "f",
    "n_calibration": "i",
    "coverage": "f",
    "low": "f",
    "high": "f",
    "p_value": "f",
    "threshold": "f",
}  # columns of groups_, with the kind of their values


def as_rules(groups: Any) -> tuple[Any, ...]:
    """Return the rules of one or more groups: rules, named groups or findings of an audit."""
    groups = groups if isinstance(groups, list | tuple) else [groups]
    return tuple(getattr(group, "rule", group) for group in groups)


def check_rules(name: str, groups: Any, choices: tuple[str, ...] = ()) -> None:
    """Refuse anything but rules and these words."""
    if isinstance(groups, str) and groups in choices:
        return
    for rule in as_rules(groups):
        if not isinstance(rule, Rule):
            named = "".join(f'"{choice}", ' for choice in choices)
            raise InvalidInputError(
                f"{name} must be {named}a rule or a list of rules, got {rule!r}; make a rule with "
                'Rule.parse("sex = Female and age > 60")'
            )


def member_groups(name: str, rules: Sequence[Rule], *parts: Any) -> list[Members]:
    """Return the groups that rules describe; refuse other columns, and conditions of nobody.

    ``parts`` are the rows that calibrate or train, if there are any; errors say ``name``.
    """
    tables = [part.people for part in parts if part is not None]
    for rule in rules:
        check_columns(rule.features, list(map(str, tables[0])), f"{name}: sensitive_features")
        if hint := _instead(rule, tables):
            raise InvalidInputError(f"{name}: no training or calibration row has {rule}; {hint}")
    return [Members(rule) for rule in rules]


def _instead(rule: Rule, tables: Sequence[pd.DataFrame]) -> str:
    """Return what the column of a condition holds that no row meets; nothing if rows meet all."""
    for condition in rule.conditions:
        column = pd.concat([table[condition.feature] for table in tables])
        if condition.holds(column).any() or column.isna().all():
            continue
        held, near = f"{words.quoted(condition.feature)} holds ", list[str]()
        if column.dtype == object:
            values = sorted(map(str, column.dropna().unique()))
            near = [close for level in condition.levels or () for close in nearest(level, values)]
            held += words.shown(map(words.quoted, values))
        else:
            ends, kind = as_numbers(column).agg(["min", "max"]), kind_of(column)
            held += " to ".join(in_words(end, kind) for end in ends)
        return held + (f"; did you mean {words.quoted(near[0])}?" if near else "")
    return ""


@dataclass(frozen=True, repr=False)
class NamedGroup:
    """A group in words that is credibly under-covered by plain split conformal sets.

    All numbers, including the p-value, come from the calibration rows inside, one of each cluster
    if there are clusters. These rows did not choose the group.

    Attributes
    ----------
    rule : Rule
        The words.
    share : float
    n_calibration : int
    coverage, low, high : float
        Coverage under split conformal sets with its 95% Clopper-Pearson interval.
    p_value : float
        Fisher's exact test that coverage is lower than that of the rows in no candidate group,
        times the number of candidates.

    Examples
    --------
    >>> from fareg import FaReGClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = FaReGClassifier(sensitive_features=["Color", "Gender"], random_state=0)
    >>> group = clf.fit(data.X, data.y).named_groups_[0]
    >>> group.rule.text, group.high < 0.9
    ('Color = Red and Gender = Female', True)
    """

    rule: Rule
    share: float
    n_calibration: int
    coverage: float
    low: float
    high: float
    p_value: float

    @classmethod
    def of(cls, rule: Rule, inside: BoolArray, covered: BoolArray, others: BoolArray) -> Self:
        """Compare the rows inside with others; all masks have shape (n_samples,)."""
        k, n = int((covered & inside).sum()), int(inside.sum())
        low, high = clopper_pearson(k, n)
        outside = others & ~inside
        table = [[k, n - k], [(covered & outside).sum(), (~covered & outside).sum()]]
        p = float(fisher_exact(np.array(table), alternative="less").pvalue)
        coverage = k / n if n else float("nan")
        return cls(rule, n / max(1, len(covered)), n, coverage, float(low), float(high), p)

    def in_words(self) -> list[str]:
        """Return rule, rows, coverage, its interval and the p-value as texts."""
        return [
            self.rule.text,
            f"{words.count(self.n_calibration)} ({words.percent(self.share)})",
            words.percent(self.coverage),
            words.interval(self.low, self.high),
            words.probability(self.p_value),
        ]

    def __repr__(self) -> str:
        return (
            f"NamedGroup({self.rule.text!r}: {words.percent(self.coverage)} of "
            f"{words.rows(self.n_calibration)} covered ({words.interval(self.low, self.high)}), "
            f"{words.p_value(self.p_value)})"
        )


def verify_groups(
    rules: Sequence[Rule], people: pd.DataFrame, covered: BoolArray, confidence_level: float
) -> tuple[NamedGroup, ...]:
    """Test candidates on rows that did not choose them; return those that may be named.

    A group is named if its coverage is significantly lower than that of the rows in no candidate
    (with Holm's correction), if it is far below the confidence level (``is_far_below``), alone or
    together with the other groups that may be named, and if it is a minority of at least 50 rows.
    The most significant group comes first. Each further group must be under-covered on its rows
    outside the groups before it, and these must be at least half of its rows; otherwise it is the
    same group in other words. The chance of a false name is at most ``SIGNIFICANCE`` in the first
    round, and in each later round if the groups before it were named rightly; it adds up.

    Parameters
    ----------
    rules : sequence of Rule
        The candidates; duplicates are tested once.
    people : DataFrame of shape (n_samples, n_features)
        Independent rows, one of each cluster.
    covered : bool array of shape (n_samples,)
        Whether split conformal sets cover each row.
    confidence_level : float
    """
    candidates = [(rule, rule.inside(people)) for rule in dict.fromkeys(rules)]
    unnamed = np.ones(len(covered), dtype=bool)
    # Candidates are fixed in advance, so the comparison may leave out the rows of all of them.
    others = ~np.logical_or.reduce([inside for _, inside in candidates], initial=False)
    others = others if others.sum() >= MIN_ROWS else np.ones_like(unnamed)
    named: list[NamedGroup] = []
    while candidates:
        tested = [NamedGroup.of(rule, m & unnamed, covered, others) for rule, m in candidates]
        adjusted = holm(np.array([group.p_value for group in tested]))
        eligible = [
            i
            for i, group in enumerate(tested)
            if adjusted[i] <= SIGNIFICANCE
            and group.n_calibration >= MIN_ROWS
            and group.share <= MAX_SHARE
            and group.high < confidence_level
        ]
        joint = np.logical_or.reduce([candidates[i][1] for i in eligible], initial=False) | ~unnamed
        # the interval of the group, or of all such groups together, must end far below
        high = NamedGroup.of(Rule(()), joint, covered, others).high
        far_below = [
            i
            for i in eligible
            if is_far_below(tested[i].coverage, min(tested[i].high, high), confidence_level)
        ]
        if not far_below:
            break
        rule, inside = candidates.pop(min(far_below, key=lambda i: tested[i].p_value))
        group = NamedGroup.of(rule, inside, covered, others)
        named.append(replace(group, p_value=min(1.0, len(tested) * group.p_value)))
        unnamed &= ~inside
        candidates = [(r, m) for r, m in candidates if (m & unnamed).sum() >= MIN_NEW * m.sum()]
    return tuple(named)


def describe_groups(
    named: Sequence[NamedGroup],
    protected: Sequence[Rule],
    members: Mapping[Rule, BoolArray],
    calibration: Union,
    independent: IntArray,
    classes: Any,
) -> pd.DataFrame:
    """Return named groups, protected ones, then runs of levels with one threshold, worst off first.

    ``members`` masks the calibration rows of each group, if they are known; ``independent`` are the
    numbers of independent rows. Levels have no p-value: the rows that pooled them cannot test them.
    """
    thresholds, sample = calibration.row_thresholds()[independent], calibration.sample
    split = sample.split_thresholds(calibration.parts[0].alpha)
    covered = sample.score[independent] <= split[sample.row_labels[independent]]
    by_rule, lines = {group.rule: group for group in named}, list[dict[str, Any]]()
    for rule in dict.fromkeys([*by_rule, *protected]):
        inside = members.get(rule, np.zeros(len(sample), dtype=bool))[independent]
        group = by_rule.get(rule) or NamedGroup.of(rule, inside, covered, ~inside)
        line: dict[str, Any] = {**vars(group), "group": "named", "named": True, "rule": rule.text}
        if rule not in by_rule:
            line |= {"group": "protected", "named": False, "p_value": float("nan")}
        line["threshold"] = float(np.median(thresholds[inside])) if inside.any() else np.nan
        lines.append(line)
    lines += _runs_of_levels(calibration.parts[0], independent, classes)
    kinds = {"named": bool, "n_calibration": np.int64}
    return pd.DataFrame(lines, columns=list(GROUP_COLUMNS)).astype(kinds)


def _runs_of_levels(
    levels: LevelThresholds, independent: IntArray, classes: Any
) -> Iterator[dict[str, Any]]:
    """Describe each run of levels that share a threshold, label by label if labels are separate."""
    sample, row_levels = levels.sample, levels.row_levels[independent]
    labels, split = sample.row_labels[independent], sample.split_thresholds(levels.alpha)
    covered = sample.score[independent] <= split[labels]
    for label, theta in enumerate(levels.theta):
        suffix = "" if sample.labels is None else f", label {classes[label]}"
        for first, last in levels.pooled_levels(label)[::-1]:
            name = f"level {first}" if first == last else f"levels {first} to {last}"
            if (first, last) == (0, len(theta) - 1):
                name = "everyone"
            inside = (labels == label) & (row_levels >= first) & (row_levels <= last)
            yield {
                **vars(NamedGroup.of(Rule(()), inside, covered, ~inside)),
                "group": f"{name}{suffix}",
                "named": False,
                "rule": "",
                "p_value": float("nan"),
                "threshold": float(theta[first]),
            }


def check_groups(groups: Any, named: Any, protected: Sequence[Rule], features: set[Any]) -> None:
    """Refuse a stored table of groups, or named groups, of another form or with other features."""
    require(isinstance(groups, pd.DataFrame) and list(groups) == list(GROUP_COLUMNS), "groups_")
    require([dtype.kind for dtype in groups.dtypes] == list(GROUP_COLUMNS.values()), "groups_")
    require(isinstance(named, tuple) and len(named) <= len(groups), "groups_")
    for group, text in zip(named, groups["rule"], strict=False):
        require(isinstance(group, NamedGroup) and isinstance(group.rule, Rule), "named_groups_")
        group.rule.check()
        require(group.rule.text == text and set(group.rule.features) <= features, "named_groups_")
        numbers = [value for name, value in vars(group).items() if name != "rule"]
        require(all(isinstance(value, int | float) for value in numbers), "named_groups_")
    for rule in protected:
        rule.check()
    allowed = {"", *(rule.text for rule in protected)}
    require(set(map(str, groups["rule"][len(named) :])) <= allowed, "groups_")
