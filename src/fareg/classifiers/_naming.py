"""Who may be named: groups in words, verified on rows that did not choose them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact, rankdata

from fareg import _words as words
from fareg._validation import BoolArray, FloatArray
from fareg.calibration import Rows
from fareg.classifiers._learning import covered_by_split
from fareg.groups import (
    Condition,
    GroupLearner,
    Rule,
    cut_membership,
    distil_rule,
    learn_quickly,
)
from fareg.metrics import clopper_pearson
from fareg.pvalues import holm

SIGNIFICANCE = 0.05  # of all candidates together
MIN_FIDELITY = 0.7  # words that agree less with what was learned are not used
MIN_SHARE, MAX_SHARE = 0.02, 0.55  # of the rows: a group that is named is a minority
MIN_ROWS = 50  # calibration rows of a group that is named
MIN_GAP = 0.04  # coverage must lie so far below the level
MARGIN = 0.02  # and its whole 95% interval so far; both are less if alpha is below 0.1
MIN_RANKING = 0.8  # a group is found again if its rows outrank so many pairs with other rows
MIN_STABILITY = 0.7
N_RESAMPLES = 10
N_CUTS = 3  # nested groups that are tried
MIN_NEW = 0.5  # share of a further group's rows that no group before it has named
MAX_FEATURES = 8  # features that words may use, those that were read most


@dataclass(frozen=True, repr=False)
class NamedGroup:
    """A group in words that is credibly under-covered by plain split conformal sets.

    All numbers are of the calibration rows that the words mean; these rows did not choose the
    group.

    Attributes
    ----------
    rule : Rule
        The words, with their fidelity to what was learned.
    share : float
    n_calibration : int
    coverage, low, high : float
        Coverage under split conformal sets with its 95% Clopper-Pearson interval.
    p_value : float
        Fisher's exact test that coverage is lower than outside, after Holm's correction for all
        candidates.
    stability : float
        Share of random halves of the learning rows on which the group was found again.

    Examples
    --------
    >>> from fareg import FaReGClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = FaReGClassifier(sensitive_features=["Color", "Gender"], random_state=0)
    >>> group = clf.fit(data.X, data.y).named_groups_[0]
    >>> group.rule.text, group.high < 0.9
    ('(Color=Blue and Gender=Male) or (Color=Red and Gender=Female)', True)
    """

    rule: Rule
    share: float
    n_calibration: int
    coverage: float
    low: float
    high: float
    p_value: float
    stability: float

    def __repr__(self) -> str:
        return (
            f"NamedGroup({self.rule.text!r}: {words.percent(self.coverage)} of "
            f"{words.rows(self.n_calibration)} covered ({words.interval(self.low, self.high)}), "
            f"{words.p_value(self.p_value)}, found again in {words.percent(self.stability, 0)})"
        )


def candidate_rules(
    columns: pd.DataFrame, disadvantage: FloatArray, covered: FloatArray, features: tuple[str, ...]
) -> list[Rule]:
    """Describe the most disadvantaged learning rows in words, in a few ways.

    Cuts of the disadvantage are chosen by how well the learning rows above them are covered; each
    upper set is distilled into a rule, and the rule is shortened. Parts of a rule that share no
    feature are groups of their own.
    """
    shown = columns[list(features[:MAX_FEATURES])]
    rules: dict[bytes, Rule] = {}
    cuts = {
        c for n in range(2, N_CUTS + 2) for c in cut_membership(disadvantage, covered, n_cells=n)
    }
    for cut in sorted(cuts):
        inside = disadvantage > cut
        if not MIN_SHARE <= inside.mean() <= MAX_SHARE:
            continue
        distilled = distil_rule(shown, inside)
        rule = shortened(distilled, shown, covered)
        fidelity = float((rule.inside(shown) == inside).mean())
        if not rule.alternatives or fidelity < MIN_FIDELITY:
            continue
        for part in _unrelated_parts(replace(rule, fidelity=fidelity)):
            rows = part.inside(shown)
            if MIN_SHARE <= rows.mean() <= MAX_SHARE:
                rules.setdefault(rows.tobytes(), part)
    return list(rules.values())


Alternatives = tuple[tuple[Condition, ...], ...]


def shortened(rule: Rule, columns: pd.DataFrame, covered: FloatArray) -> Rule:
    """Leave out what a rule does not need, one piece at a time.

    A tree has to divide everyone, so its rules say more than the rows can support: "edu=p or
    (sex=F and edu is not p)" means "edu=p or sex=F". Alternatives, conditions and single bounds are
    left out as long as that improves the Bayesian information criterion of a model in which
    ``covered`` has one mean inside and another one outside.
    """
    known: dict[Condition, BoolArray] = {}

    def rows_of(conditions: tuple[Condition, ...]) -> BoolArray:
        here = np.ones(len(columns), dtype=bool)
        for condition in conditions:
            if condition not in known:
                known[condition] = condition.holds(columns[condition.feature])
            here &= known[condition]
        return here

    def valued(alternatives: Alternatives) -> tuple[float, Alternatives]:
        masks = [rows_of(conditions) for conditions in alternatives]
        kept = _needed(masks)
        alternatives = tuple(alternatives[i] for i in kept)
        gain = _gain(np.any([masks[i] for i in kept], axis=0), covered) if kept else -np.inf
        return gain - np.log(len(covered)) * _length(alternatives), alternatives

    best = valued(rule.alternatives)
    while options := [valued(option) for option in _one_piece_less(best[1])]:
        better = max(options, key=lambda option: option[0])
        if better[0] <= best[0]:
            break
        best = better
    return rule if best[1] == rule.alternatives else rule.part(best[1])


def _needed(masks: list[BoolArray]) -> list[int]:
    """Return the alternatives that have a row which no other alternative has."""
    kept = list(range(len(masks)))
    for i in range(len(masks)):
        others = [masks[j] for j in kept if j != i]
        if not (masks[i] & ~np.any(others, axis=0) if others else masks[i]).any():
            kept.remove(i)
    return kept


def _gain(inside: BoolArray, covered: FloatArray) -> float:
    """Return how much better two means describe ``covered`` than one, in units of its variance."""
    share, variance = float(inside.mean()), float(covered.var())
    if not MIN_SHARE <= share <= MAX_SHARE or variance == 0:
        return -np.inf
    gap = float(covered[~inside].mean() - covered[inside].mean())
    return len(covered) * share * (1 - share) * gap * abs(gap) / variance


def _length(alternatives: Alternatives) -> int:
    """Count conditions; an interval with two ends counts twice."""
    return sum(
        1 + bool(np.isfinite(condition.low) and np.isfinite(condition.high))
        for conditions in alternatives
        for condition in conditions
    )


def _one_piece_less(alternatives: Alternatives) -> Iterator[Alternatives]:
    """Yield rules with one alternative, condition or bound left out, or two intervals joined."""
    for i, conditions in enumerate(alternatives):
        before, after = alternatives[:i], alternatives[i + 1 :]
        if before or after:
            yield (*before, *after)
        for k, other in enumerate(after):
            if hull := _hull(conditions, other):
                yield (*before, hull, *after[:k], *after[k + 1 :])
        for j, condition in enumerate(conditions):
            others = (conditions[:j], conditions[j + 1 :])
            if len(conditions) > 1:
                yield (*before, (*others[0], *others[1]), *after)
            if np.isfinite(condition.low) and np.isfinite(condition.high):
                for wider in (replace(condition, low=-np.inf), replace(condition, high=np.inf)):
                    yield (*before, (*others[0], wider, *others[1]), *after)


def _hull(
    first: tuple[Condition, ...], second: tuple[Condition, ...]
) -> tuple[Condition, ...] | None:
    """Return two alternatives as one if they differ in the interval of one feature only."""
    if [c.feature for c in first] != [c.feature for c in second]:
        return None
    differing = [i for i, (c, d) in enumerate(zip(first, second, strict=True)) if c != d]
    if len(differing) != 1 or first[differing[0]].levels is not None:
        return None
    (i,) = differing
    c, d = first[i], second[i]
    low, high = min(c.low, d.low), max(c.high, d.high)
    joined = replace(c, low=low, high=high, missing=c.missing or d.missing)
    return (*first[:i], joined, *first[i + 1 :])


def _unrelated_parts(rule: Rule) -> Iterator[Rule]:
    """Split a rule into the parts that have no feature in common."""
    groups: list[tuple[set[str], list[tuple[Condition, ...]]]] = []
    for alternative in rule.alternatives:
        names = {condition.feature for condition in alternative}
        related = [group for group in groups if group[0] & names]
        merged = (names.union(*(g[0] for g in related)), [*(a for g in related for a in g[1])])
        merged[1].append(alternative)
        groups = [group for group in groups if group not in related] + [merged]
    if len(groups) == 1:
        yield rule
        return
    for _, alternatives in groups:
        yield rule.part(tuple(alternatives))


def credible_groups(
    learner: GroupLearner,
    learning: Rows,
    disadvantage: FloatArray,
    covered: FloatArray,
    rest: Rows,
    alpha: float,
    *,
    seed: int,
) -> tuple[NamedGroup, ...]:
    """Return the groups that are credibly under-covered, in words.

    Parameters
    ----------
    learner : GroupLearner
        Fitted on the learning rows.
    learning, rest : Rows
        The rows that taught, and those that calibrate, which did not choose the groups.
    disadvantage, covered : ndarray of shape (n_learning,)
        What was learned about the learning rows, and how well they are covered.
    alpha : float
    seed : int
        Seeds the random halves of the learning rows.
    """
    if not learner.found_:
        return ()
    rules = candidate_rules(learning.columns, disadvantage, covered, learner.features_)

    def relearn(columns: pd.DataFrame, target: FloatArray, own_seed: int) -> Any:
        return learn_quickly(columns, 1 - target, np.random.default_rng(own_seed))

    @cache  # the answers of the halves serve every group
    def answers() -> list[FloatArray]:
        return relearned(learning.columns, covered, relearn, np.random.default_rng([seed, 3]))

    def stability(rule: Rule) -> float:
        return found_again(rule.inside(learning.columns), answers())

    split = covered_by_split(rest, alpha)
    return tuple(verified_groups(rules, rest.columns, split, 1 - alpha, stability))


def rule_to_explain(
    named: tuple[NamedGroup, ...], columns: pd.DataFrame, membership: FloatArray, cuts: FloatArray
) -> Rule:
    """Return the rule of the first named group.

    If none is named, the group above the last cut is described as it is; without cuts, nobody is.
    """
    if named:
        return named[0].rule
    if not len(cuts):
        return Rule("nobody is named", (), 1.0)
    return distil_rule(columns, membership > cuts[-1])


def verified_groups(
    rules: list[Rule],
    columns: pd.DataFrame,
    covered: BoolArray,
    confidence_level: float,
    stability: Callable[[Rule], float],
) -> list[NamedGroup]:
    """Test candidates on rows that did not choose them; return those that may be named.

    A group is named if its coverage is lower than outside after Holm's correction, if it lies at
    least ``MIN_GAP`` below the level and its whole 95% interval ``MARGIN`` below, and if the group
    is found again on most random halves of the learning rows. The most significant group comes
    first. A further one must be under-covered on the rows that the groups before it leave, and
    these must be at least half of its own; otherwise it is the same group in other words.

    Parameters
    ----------
    rules : list of Rule
    columns : DataFrame of shape (n, n_features)
        Canonical columns of the calibration rows.
    covered : bool ndarray of shape (n,)
        Which of them the split conformal sets cover.
    confidence_level : float
    stability : function
        Tells how often a rule is found again; asked only of groups that pass all other tests.
    """
    left = everyone = np.ones(len(covered), dtype=bool)
    open_rules = [(rule, rule.inside(columns)) for rule in rules]
    named: list[NamedGroup] = []
    while open_rules:
        tested = [_tested(rule, rows & left, covered, left) for rule, rows in open_rules]
        adjusted = holm(np.array([group.p_value for group in tested]))
        credible = [
            i
            for i, group in enumerate(tested)
            if _is_credible(replace(group, p_value=adjusted[i]), confidence_level)
        ]
        if not credible:
            break
        best = min(credible, key=lambda i: tested[i].p_value)
        rule, rows = open_rules.pop(best)
        found = stability(rule)
        if found >= MIN_STABILITY:
            whole = _tested(rule, rows, covered, everyone)
            named.append(replace(whole, p_value=float(adjusted[best]), stability=found))
            left = left & ~rows
            open_rules = [(r, m) for r, m in open_rules if (m & left).sum() >= MIN_NEW * m.sum()]
    return named


def _tested(rule: Rule, inside: BoolArray, covered: BoolArray, among: BoolArray) -> NamedGroup:
    n, hit = int(inside.sum()), int((covered & inside).sum())
    rest, rest_hit = int(among.sum()) - n, int((covered & among).sum()) - hit
    table = np.array([[hit, n - hit], [rest_hit, rest - rest_hit]])
    low, high = clopper_pearson(hit, n)
    return NamedGroup(
        rule=rule,
        share=n / max(1, len(covered)),
        n_calibration=n,
        coverage=hit / n if n else float("nan"),
        low=float(low),
        high=float(high),
        p_value=float(fisher_exact(table, alternative="less").pvalue),
        stability=float("nan"),
    )


def _is_credible(group: NamedGroup, confidence_level: float) -> bool:
    # at 99%, a gap of 0.04 would mean five times as many errors as promised
    scale = min(1.0, (1 - confidence_level) / 0.1)
    return (
        group.p_value <= SIGNIFICANCE
        and group.n_calibration >= MIN_ROWS
        and group.share <= MAX_SHARE
        and group.coverage <= confidence_level - MIN_GAP * scale
        and group.high <= confidence_level - MARGIN * scale
    )


def relearned(
    columns: pd.DataFrame,
    covered: FloatArray,
    relearn: Callable[[pd.DataFrame, FloatArray, int], Callable[[pd.DataFrame], FloatArray]],
    rng: np.random.Generator,
) -> list[FloatArray]:
    """Learn from random halves of the learning rows; return the disadvantage of all of them.

    ``relearn(columns, covered, seed)`` learns from a half and returns a function that tells the
    disadvantage of rows.
    """
    answers = []
    for _ in range(N_RESAMPLES):
        half = rng.permutation(len(covered))[: len(covered) // 2]
        seed = int(rng.integers(2**31))
        tell = relearn(columns.iloc[half].reset_index(drop=True), covered[half], seed)
        answers.append(tell(columns))
    return answers


def found_again(inside: BoolArray, answers: list[FloatArray]) -> float:
    """Return the share of relearned answers that lead to the group again.

    They do if a row of the group is more disadvantaged than a row outside in at least
    ``MIN_RANKING`` of all pairs; a tie counts one half. Other groups may be worse off still, so
    the group need not come first.

    Examples
    --------
    >>> inside = np.array([True, True, False, False])
    >>> found_again(inside, [np.array([3.0, 4.0, 1.0, 2.0]), np.array([1.0, 4.0, 3.0, 2.0])])
    0.5
    """
    n = int(inside.sum())
    n_pairs = n * (len(inside) - n)
    won = [rankdata(b)[inside].sum() - n * (n + 1) / 2 for b in answers]
    return float(np.mean([n_pairs > 0 and w >= MIN_RANKING * n_pairs for w in won]))
