"""Who may be named: groups in words, verified on rows that did not choose them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact

from fareg._validation import BoolArray, FloatArray
from fareg.groups import Rule, cut_membership, distil_rule
from fareg.metrics import clopper_pearson
from fareg.pvalues import holm

SIGNIFICANCE = 0.05  # of all candidates together
MIN_FIDELITY = 0.8  # words that agree less with what was learned are not used
MIN_SHARE, MAX_SHARE = 0.02, 0.55  # of the rows: a group that is named is a minority
MIN_ROWS = 50  # calibration rows of a group that is named
MARGIN = 0.02  # coverage must lie so far below the level, with its whole 95% interval
MIN_STABILITY = 0.7
N_RESAMPLES = 10
N_CUTS = 3  # nested groups that are tried
MAX_FEATURES = 8  # features that words may use, those that were read most


@dataclass(frozen=True)
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


def candidate_rules(
    columns: pd.DataFrame, disadvantage: FloatArray, covered: FloatArray, features: tuple[str, ...]
) -> list[Rule]:
    """Describe the most disadvantaged learning rows in words, in a few ways.

    Cuts of the disadvantage are chosen by how well the learning rows above them are covered; each
    upper set is distilled into a rule. Parts of a rule that share no feature are groups of their
    own.
    """
    shown = columns[list(features[:MAX_FEATURES])]
    rules: dict[bytes, Rule] = {}
    for n_cells in range(2, N_CUTS + 2):
        for cut in cut_membership(disadvantage, covered, n_cells=n_cells):
            inside = disadvantage > cut
            if not MIN_SHARE <= inside.mean() <= MAX_SHARE:
                continue
            rule = distil_rule(shown, inside)
            if not rule.alternatives or rule.fidelity < MIN_FIDELITY:
                continue
            for part in _unrelated_parts(rule):
                rows = part.inside(shown)
                if MIN_SHARE <= rows.mean() <= MAX_SHARE:
                    rules.setdefault(rows.tobytes(), part)
    return list(rules.values())


def _unrelated_parts(rule: Rule) -> Iterator[Rule]:
    """Split a rule into the parts that have no feature in common."""
    groups: list[tuple[set[str], list[Any]]] = []
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


def verified_groups(
    rules: list[Rule],
    columns: pd.DataFrame,
    covered: BoolArray,
    confidence_level: float,
    stability: Callable[[Rule], float],
) -> list[NamedGroup]:
    """Test candidates on rows that did not choose them; return those that may be named.

    A group is named if its coverage is lower than outside after Holm's correction, if its 95%
    interval lies at least ``MARGIN`` below the level, and if it is found again on most random
    halves of the learning rows. The most significant group comes first; a further one must be
    under-covered on the rows that the groups before it leave.

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
    left = np.ones(len(covered), dtype=bool)
    masks = [rule.inside(columns) for rule in rules]
    named: list[NamedGroup] = []
    while masks:
        tested = [
            _tested(rule, mask & left, covered, left)
            for rule, mask in zip(rules, masks, strict=True)
        ]
        adjusted = holm(np.array([group.p_value for group in tested]))
        best = int(np.argmin(adjusted))
        group = replace(tested[best], p_value=float(adjusted[best]))
        if not _is_credible(group, confidence_level):
            break
        found_again = stability(group.rule)
        if found_again >= MIN_STABILITY:
            whole = _tested(group.rule, masks[best], covered, np.ones(len(covered), dtype=bool))
            named.append(replace(whole, p_value=group.p_value, stability=found_again))
            left &= ~masks[best]
        rules = [rule for i, rule in enumerate(rules) if i != best]
        masks = [mask for i, mask in enumerate(masks) if i != best]
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
    return (
        group.p_value <= SIGNIFICANCE
        and group.n_calibration >= MIN_ROWS
        and group.share <= MAX_SHARE
        and group.high <= confidence_level - MARGIN
    )


def found_again(
    rule: Rule,
    columns: pd.DataFrame,
    covered: FloatArray,
    relearn: Callable[[pd.DataFrame, FloatArray, int], FloatArray],
    rng: np.random.Generator,
) -> float:
    """Return the share of random halves of the learning rows that lead to the group again.

    ``relearn(columns, covered, seed)`` learns from a half and returns a function that tells the
    disadvantage of rows. The group is found again if, of the most disadvantaged rows, as many as
    the group has, more belong to it than halfway between chance and all.
    """
    inside = rule.inside(columns)
    share, hits = inside.mean(), 0
    for _ in range(N_RESAMPLES):
        half = rng.permutation(len(covered))[: len(covered) // 2]
        seed = int(rng.integers(2**31))
        tell: Any = relearn(columns.iloc[half].reset_index(drop=True), covered[half], seed)
        b = tell(columns)
        # ties at the cut count by their share
        order = np.argsort(-(b + 1e-9 * rng.random(len(b))), kind="stable")
        top = order[: int(inside.sum())]
        hits += bool(inside[top].mean() >= (1 + share) / 2)
    return hits / N_RESAMPLES
