"""Who may be named: groups in words, verified on rows that did not choose them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact, rankdata

from fareg import _words as words
from fareg._gaps import MARGIN, is_far_below, scaled
from fareg._validation import BoolArray, FloatArray
from fareg.calibration import Rows
from fareg.classifiers._learning import covered_by_split
from fareg.groups import (
    MAX_SHARE,
    Alternatives,
    AskedRows,
    GroupLearner,
    Rule,
    candidate_rules,
    distil_rule,
    learn_quickly,
    without,
)
from fareg.metrics import clopper_pearson
from fareg.pvalues import holm

SIGNIFICANCE = 0.05  # the chance of any false name in one round, over all candidates together
MIN_ROWS = 50  # a named group has at least so many calibration rows
MIN_RANKING = 0.8  # a group is found again if its rows rank above others in this share of pairs
MIN_STABILITY = 0.7  # a named group is found again on at least this share of the halves
N_RESAMPLES = 10  # random halves of the learning rows
MAX_ROWS = 20_000  # learning rows that are divided into halves
MIN_NEW = 0.5  # share of a further group's rows that no group before it has named


@dataclass(frozen=True, repr=False)
class NamedGroup:
    """A group in words that is credibly under-covered by plain split conformal sets.

    All numbers, the p-value among them, are of the calibration rows that the words mean, one of
    each cluster if clusters were given; these rows did not choose the group.

    Attributes
    ----------
    rule : Rule
        The words, with their fidelity to what was learned.
    share : float
    n_calibration : int
    coverage, low, high : float
        Coverage under split conformal sets with its 95% Clopper-Pearson interval.
    p_value : float
        Fisher's exact test that coverage is lower than that of the rows in no named group, times
        the number of candidates.
    stability : float
        Share of random halves of the learning rows, or of 20,000 of them, on which the group was
        found again.

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

    ``learner`` was fitted on the rows ``learning``; ``disadvantage`` and ``covered`` are what was
    learned about them, and how well they are covered. The rows ``rest`` calibrate, are independent
    (one of each cluster) and did not choose the groups. ``seed`` draws random halves of the
    learning rows.
    """
    if not learner.found_:
        return ()
    rules = candidate_rules(learning.columns, disadvantage, covered, learner.features_)

    rng = np.random.default_rng([seed, 3])
    drawn = rng.permutation(len(learning))[:MAX_ROWS]
    columns = learning.columns.iloc[drawn].reset_index(drop=True)

    @cache  # the answers of the halves serve every group
    def answers() -> FloatArray:
        clusters = None if learning.clusters is None else np.asarray(learning.clusters)[drawn]
        halves = random_halves(len(drawn), clusters, rng)
        return learn_quickly(columns, 1 - covered[drawn], halves, rng)

    def stability(rule: Rule) -> float:
        return found_again(rule.inside(columns), answers())

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

    A group is named if its coverage is lower than outside after Holm's correction, if it lies far
    below the level (``_gaps.is_far_below``), and if the group is found again on most random halves
    of the learning rows. The most significant group comes first. A further one must be
    under-covered on the rows that the groups before it leave, and these must be at least half of
    its own; otherwise it is the same group in other words. The chance that any group is named
    falsely is at most ``SIGNIFICANCE`` in the first round, and in each later one if the groups
    before it were named rightly; it adds up over rounds. Each alternative of a rule is a candidate
    too, one that alone means few rows is left out of its rule, and a rule that accuses people who
    are covered as promised is not named.

    ``covered`` tells which calibration rows the split conformal sets cover. ``stability`` tells how
    often a rule is found again, and is asked only of groups that pass all other tests.
    """
    left = np.ones(len(covered), dtype=bool)
    asked = AskedRows(columns)
    rules = [_that_can_be_checked(rule, asked) for rule in rules]
    rules = [*rules, *(part for rule in rules for part in rule.parts())]
    open_rules = [(rule, asked.inside(rule.alternatives)) for rule in rules]
    named: list[NamedGroup] = []
    while open_rules:
        tested = [_tested(rule, rows & left, covered, left) for rule, rows in open_rules]
        adjusted = holm(np.array([group.p_value for group in tested]))
        credible = [
            i
            for i, group in enumerate(tested)
            if _is_credible(replace(group, p_value=adjusted[i]), confidence_level)
            and not _accuses_innocents(group.rule, asked, covered, confidence_level)
        ]
        if not credible:
            break
        best = min(credible, key=lambda i: tested[i].p_value)
        rule, rows = open_rules.pop(best)
        found = stability(rule)
        if found >= MIN_STABILITY:
            whole = _tested(rule, rows, covered, rows | left)
            p_value = min(1.0, len(tested) * whole.p_value)
            named.append(replace(whole, p_value=p_value, stability=found))
            left = left & ~rows
            open_rules = [(r, m) for r, m in open_rules if (m & left).sum() >= MIN_NEW * m.sum()]
    return named


def _apart(alternatives: Alternatives, asked: AskedRows) -> list[tuple[BoolArray, BoolArray]]:
    """Return for each alternative the rows of all others, and those that it alone means."""
    others = [asked.inside(without(alternatives, i)) for i in range(len(alternatives))]
    return [
        (rest, asked.inside((own,)) & ~rest) for rest, own in zip(others, alternatives, strict=True)
    ]


def _that_can_be_checked(rule: Rule, asked: AskedRows) -> Rule:
    """Leave out alternatives that alone mean too few rows to tell how these are covered."""
    kept = rule.alternatives
    while len(kept) > 1:
        n_own = [int(own.sum()) for _, own in _apart(kept, asked)]
        if min(n_own) >= MIN_ROWS:
            break
        kept = without(kept, n_own.index(min(n_own)))
    return rule.part(kept)


def _accuses_innocents(
    rule: Rule, asked: AskedRows, covered: BoolArray, confidence_level: float
) -> bool:
    """Tell whether one alternative is covered as promised, and clearly better than the others."""
    inside = asked.inside(rule.alternatives)
    for others, own in _apart(rule.alternatives, asked):
        if own.sum() < MIN_ROWS or not others.any():
            continue
        counts = [(int(covered[rows].sum()), int(rows.sum())) for rows in (others, inside)]
        is_promised = covered[own].mean() > confidence_level - scaled(MARGIN, confidence_level)
        if is_promised and evidence_of(*counts)["p_value"] <= SIGNIFICANCE:
            return True
    return False


def _tested(rule: Rule, inside: BoolArray, covered: BoolArray, among: BoolArray) -> NamedGroup:
    n = int(inside.sum())
    everyone = (int((covered & among).sum()), int(among.sum()))
    evidence = evidence_of((int((covered & inside).sum()), n), everyone)
    return NamedGroup(rule, share=n / max(1, len(covered)), **evidence, stability=float("nan"))


def evidence_of(inside: tuple[int, int], everyone: tuple[int, int]) -> dict[str, Any]:
    """Return coverage, its 95% interval and Fisher's test that it is lower than that of the others.

    ``inside`` and ``everyone`` are the numbers of covered rows and of rows.
    """
    (hit, n), (hit_all, n_all) = inside, everyone
    low, high = clopper_pearson(hit, n)
    rest = hit_all - hit
    table = np.array([[hit, n - hit], [rest, n_all - n - rest]])
    return {
        "n_calibration": n,
        "coverage": hit / n if n else float("nan"),
        "low": float(low),
        "high": float(high),
        "p_value": float(fisher_exact(table, alternative="less").pvalue),
    }


def _is_credible(group: NamedGroup, confidence_level: float) -> bool:
    return (
        group.p_value <= SIGNIFICANCE
        and group.n_calibration >= MIN_ROWS
        and group.share <= MAX_SHARE
        and is_far_below(group.coverage, group.high, confidence_level)
    )


def random_halves(n_rows: int, clusters: Any, rng: np.random.Generator) -> BoolArray:
    """Draw ``N_RESAMPLES`` halves, one in each row; rows of one cluster are in the same half.

    >>> random_halves(10, None, np.random.default_rng(0)).sum(axis=1).tolist()
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    """
    unit = np.arange(n_rows) if clusters is None else pd.factorize(np.asarray(clusters))[0]
    n_units = int(unit.max(initial=-1)) + 1
    n_half = max(1, n_units // 2)
    return np.array([rng.permutation(n_units)[unit] < n_half for _ in range(N_RESAMPLES)])


def found_again(inside: BoolArray, answers: FloatArray) -> float:
    """Return the share of relearned answers that lead to the group again.

    They do if a row of the group is more disadvantaged than a row outside in at least
    ``MIN_RANKING`` of all pairs; a tie counts one half. Other groups may be worse off still, so the
    group need not come first.

    >>> inside = np.array([True, True, False, False])
    >>> found_again(inside, np.array([[3.0, 4.0, 1.0, 2.0], [1.0, 4.0, 3.0, 2.0]]))
    0.5
    """
    n = int(inside.sum())
    n_pairs = n * (len(inside) - n)
    won = [rankdata(b)[inside].sum() - n * (n + 1) / 2 for b in answers]
    return float(np.mean([n_pairs > 0 and w >= MIN_RANKING * n_pairs for w in won]))
