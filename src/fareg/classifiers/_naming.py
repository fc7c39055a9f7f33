"""Who is named in words, verified on rows that did not choose them: the table ``groups_``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact

from fareg import _words as words
from fareg._columns import check_columns
from fareg._validation import BoolArray, IntArray, InvalidInputError, require
from fareg.calibration import LevelThresholds, Members, Union
from fareg.groups import MAX_SHARE, Rule, is_far_below
from fareg.metrics import clopper_pearson
from fareg.pvalues import holm

SIGNIFICANCE = 0.05  # the chance of any false name in one round, over all candidates together
MIN_ROWS = 50  # a named group has at least so many calibration rows
MIN_NEW = 0.5  # share of a further group's rows that no group before it has named
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


def rules_of(groups: Any) -> tuple[Any, ...]:
    """Return the rules of one group or several: rules, named groups or findings of an audit."""
    several = groups if isinstance(groups, list | tuple) else [groups]
    return tuple(getattr(group, "rule", group) for group in several)


def check_rules(name: str, groups: Any, words: tuple[str, ...] = ()) -> None:
    """Refuse what is neither rules nor one of these words."""
    if isinstance(groups, str) and groups in words:
        return
    for rule in rules_of(groups):
        if not isinstance(rule, Rule):
            known = "".join(f'"{word}", ' for word in words)
            raise InvalidInputError(
                f"{name} must be {known}a rule or a list of rules, got {rule!r}; make a rule with "
                'Rule.parse("sex = Female and age > 60")'
            )


def protected(rules: Sequence[Rule], people: pd.DataFrame) -> list[Members]:
    """Return the groups that rules mean; refuse rules about other columns than these."""
    for rule in rules:
        check_columns(rule.features, list(map(str, people)), "sensitive_features")
    return [Members(rule) for rule in rules]


@dataclass(frozen=True, repr=False)
class NamedGroup:
    """A group in words that is credibly under-covered by plain split conformal sets.

    All numbers, the p-value among them, are of the calibration rows that the words mean, one of
    each cluster if clusters were given; these rows did not choose the group.

    Attributes
    ----------
    rule : Rule
        The words.
    share : float
    n_calibration : int
    coverage, low, high : float
        Coverage under split conformal sets with its 95% Clopper-Pearson interval.
    p_value : float
        Fisher's exact test that coverage is lower than that of the rows in no named group, times
        the number of candidates.

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
        """Compare the rows inside with others, by masks of shape (n_samples,)."""
        hit, n = int((covered & inside).sum()), int(inside.sum())
        low, high = clopper_pearson(hit, n)
        outside = others & ~inside
        table = [[hit, n - hit], [(covered & outside).sum(), (~covered & outside).sum()]]
        p = float(fisher_exact(np.array(table), alternative="less").pvalue)
        coverage = hit / n if n else float("nan")
        return cls(rule, n / max(1, len(covered)), n, coverage, float(low), float(high), p)

    def in_words(self) -> list[str]:
        """Return words, rows, coverage, its interval and the p-value as texts."""
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

    A group is named if its coverage is lower than that of the rows in no candidate after Holm's
    correction, if it lies far below the confidence level (``is_far_below``), alone or
    together with the other groups that may be named, and if it is a minority of at least 50 rows.
    The most significant group comes first. A further one must be under-covered on the rows that the
    groups before it leave, and these must be at least half of its own; otherwise it is the same
    group in other words. The chance that any group is named falsely is at most ``SIGNIFICANCE`` in
    the first round, and in each later one if the groups before it were named rightly; it adds up
    over rounds.

    Parameters
    ----------
    rules : sequence of Rule
        The candidates; each is tested once, however often it is given.
    people : DataFrame of shape (n_samples, n_features)
        Independent rows, one of each cluster.
    covered : bool array of shape (n_samples,)
        Which of these rows the split conformal sets cover.
    confidence_level : float
    """
    candidates = [(rule, rule.inside(people)) for rule in dict.fromkeys(rules)]
    left = np.ones(len(covered), dtype=bool)
    # Candidates are fixed, so the rows of all of them may be left out of the comparison.
    others = ~np.logical_or.reduce([rows for _, rows in candidates], initial=False)
    others = others if others.sum() >= MIN_ROWS else np.ones_like(left)  # if there are enough
    named: list[NamedGroup] = []
    while candidates:
        tested = [NamedGroup.of(rule, rows & left, covered, others) for rule, rows in candidates]
        adjusted = holm(np.array([group.p_value for group in tested]))
        low = [
            i
            for i, group in enumerate(tested)
            if adjusted[i] <= SIGNIFICANCE
            and group.n_calibration >= MIN_ROWS
            and group.share <= MAX_SHARE
            and group.high < confidence_level
        ]
        joint = ~left | np.logical_or.reduce([candidates[i][1] for i in low], initial=False)
        # the gap is large, by the interval of the group or by that of all such groups together
        high = NamedGroup.of(Rule(()), joint, covered, others).high
        far = [
            i
            for i in low
            if is_far_below(tested[i].coverage, min(tested[i].high, high), confidence_level)
        ]
        if not far:
            break
        rule, rows = candidates.pop(min(far, key=lambda i: tested[i].p_value))
        whole = NamedGroup.of(rule, rows, covered, others)
        named.append(replace(whole, p_value=min(1.0, len(tested) * whole.p_value)))
        left = left & ~rows
        candidates = [(r, m) for r, m in candidates if (m & left).sum() >= MIN_NEW * m.sum()]
    return tuple(named)


def describe_groups(
    named: Sequence[NamedGroup],
    protected: Sequence[Rule],
    members: Mapping[Rule, BoolArray],
    calibration: Union,
    apart: IntArray,
    classes: Any,
) -> pd.DataFrame:
    """Return named groups, protected ones, then those who share a threshold, the worst off first.

    ``members`` are the calibration rows of each group, as far as they are known; ``apart`` are the
    numbers of independent ones. The rows that pooled levels cannot test them, so levels have no
    p-value.
    """
    thresholds, sample = calibration.row_thresholds()[apart], calibration.sample
    split = sample.split_thresholds(calibration.parts[0].alpha)
    covered = sample.score[apart] <= split[sample.row_labels[apart]]
    known, described = {group.rule: group for group in named}, list[dict[str, Any]]()
    for rule in dict.fromkeys([*known, *protected]):
        inside = members.get(rule, np.zeros(len(sample), dtype=bool))[apart]
        own = known.get(rule) or NamedGroup.of(rule, inside, covered, ~inside)
        whose: dict[str, Any] = {"group": "named", "named": True, "rule": rule.text}
        if rule not in known:
            whose |= {"group": "protected", "named": False, "p_value": float("nan")}
        threshold = float(np.median(thresholds[inside])) if inside.any() else np.nan
        described.append({**vars(own), **whose, "threshold": threshold})
    described += _runs_of_levels(calibration.parts[0], apart, classes)
    kinds = {"named": bool, "n_calibration": np.int64}
    return pd.DataFrame(described, columns=list(GROUP_COLUMNS)).astype(kinds)


def _runs_of_levels(
    levels: LevelThresholds, apart: IntArray, classes: Any
) -> Iterator[dict[str, Any]]:
    """Describe each run of levels that share a threshold; with labels apart, label by label."""
    sample, row_levels = levels.sample, levels.row_levels[apart]
    labels, split = sample.row_labels[apart], sample.split_thresholds(levels.alpha)
    covered = sample.score[apart] <= split[labels]
    for label, theta in enumerate(levels.theta):
        whose = "" if sample.labels is None else f", label {classes[label]}"
        for first, last in levels.pooled_levels(label)[::-1]:
            name = f"level {first}" if first == last else f"levels {first} to {last}"
            if (first, last) == (0, len(theta) - 1):
                name = "everyone"
            inside = (labels == label) & (row_levels >= first) & (row_levels <= last)
            yield {
                **vars(NamedGroup.of(Rule(()), inside, covered, ~inside)),
                "group": f"{name}{whose}",
                "named": False,
                "rule": "",
                "p_value": float("nan"),
                "threshold": float(theta[first]),
            }


def check_groups(groups: Any, named: Any, protected: Sequence[Rule], features: set[Any]) -> None:
    """Refuse a stored table of groups, or named groups, of another form or of other features."""
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
    others = {"", *(rule.text for rule in protected)}
    require(set(map(str, groups["rule"][len(named) :])) <= others, "groups_")
