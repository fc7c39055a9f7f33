"""Groups in words: short rules with round numbers, as far as the learning rows support them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, FloatArray
from fareg.groups._conditions import Alternatives, Condition, exchanged, without
from fareg.groups._learner import cut_membership
from fareg.groups._refining import narrowed, relisted, rounded
from fareg.groups._rules import Rule, distil_rule
from fareg.groups._worth import MAX_SHARE, MIN_SHARE, CoveredRows

MIN_FIDELITY = 0.7  # words that agree less with what was learned are not used
N_CUTS = 3  # nested groups that are tried
MAX_FEATURES = 8  # features that a tree may use, those that were read most
MAX_NARROWING = 40  # features that a further condition may use


def candidate_rules(
    columns: pd.DataFrame, disadvantage: FloatArray, covered: FloatArray, features: tuple[str, ...]
) -> list[Rule]:
    """Describe the most disadvantaged learning rows in words, in a few ways.

    Cuts of the disadvantage are chosen by how well the learning rows above them are covered; each
    upper set is described. Parts of a rule that share no feature are groups of their own.
    """
    others = [str(name) for name in columns if name not in features]
    shown = columns[[*features, *others][:MAX_NARROWING]]
    learning = CoveredRows(shown, covered)
    rules: dict[bytes, Rule] = {}
    cuts = {
        c for n in range(2, N_CUTS + 2) for c in cut_membership(disadvantage, covered, n_cells=n)
    }
    for cut in sorted(cuts):
        inside = disadvantage > cut
        if not MIN_SHARE <= inside.mean() <= MAX_SHARE:
            continue
        rule = _described(learning, features[:MAX_FEATURES], inside)
        if not rule.alternatives or rule.fidelity < MIN_FIDELITY:
            continue
        for part in _unrelated_parts(rule):
            rows = part.inside(shown)
            if MIN_SHARE <= rows.mean() <= MAX_SHARE:
                rules.setdefault(rows.tobytes(), part)
    return list(rules.values())


def _described(rows: CoveredRows, features: tuple[str, ...], inside: BoolArray) -> Rule:
    """Return a short rule for a group whose rows are covered less than others.

    The group is distilled into a rule of the given features, which then follows how well each row
    is covered: pieces are left out or added, lists and numbers are improved.
    """
    rule = distil_rule(rows.columns[list(features)], inside)
    for improve in (shortened, narrowed, relisted, rounded):
        rule = improve(rule, rows)
    return replace(rule, fidelity=float((rule.inside(rows.columns) == inside).mean()))


def shortened(rule: Rule, rows: CoveredRows) -> Rule:
    """Leave out what a rule does not need, one piece at a time.

    A tree has to divide everyone, so its rules say more than the rows can support: "edu=p or
    (sex=F and edu is not p)" means "edu=p or sex=F". Alternatives, conditions and single bounds are
    left out as long as that improves the Bayesian information criterion of a model in which
    coverage has one mean inside and another one outside.
    """

    def valued(alternatives: Alternatives) -> tuple[float, Alternatives]:
        masks = [*map(rows.fulfilling, alternatives)]
        kept = _needed(masks)
        alternatives = tuple(alternatives[i] for i in kept)
        gain = rows.gain(np.any([masks[i] for i in kept], axis=0)) if kept else -np.inf
        return gain - np.log(len(rows.covered)) * _length(alternatives), alternatives

    best = valued(rule.alternatives)
    while options := [valued(option) for option in _one_piece_less(best[1])]:
        better = max(options, key=lambda option: option[0])
        if better[0] <= best[0]:
            break
        best = better
    is_same = best[1] == rule.alternatives
    return rule if is_same else rule.part(_shortest(best[1], rows.columns))


def _shortest(alternatives: Alternatives, columns: pd.DataFrame) -> Alternatives:
    """Write each list of levels by those that it holds, or by the others if these are fewer."""

    def spelled(condition: Condition) -> Condition:
        if condition.levels is None:
            return condition
        column = columns[condition.feature]
        levels = pd.Series(column.dropna().unique(), dtype=object)
        meant = levels[levels.isin(condition.levels) != condition.is_excluding]
        return condition.of_levels(meant, column) if 0 < len(meant) < len(levels) else condition

    return tuple(tuple(map(spelled, conditions)) for conditions in alternatives)


def _needed(masks: list[BoolArray]) -> list[int]:
    """Return the alternatives that have a row which no other alternative has."""
    kept = list(range(len(masks)))
    for i in range(len(masks)):
        others = [masks[j] for j in kept if j != i]
        if not (masks[i] & ~np.any(others, axis=0) if others else masks[i]).any():
            kept.remove(i)
    return kept


def _length(alternatives: Alternatives) -> int:
    """Count conditions; an interval with two ends counts twice."""
    return sum(1 + _has_two_ends(c) for conditions in alternatives for c in conditions)


def _has_two_ends(condition: Condition) -> bool:
    return bool(np.isfinite([condition.low, condition.high]).all() and not condition.single())


def _one_piece_less(alternatives: Alternatives) -> Iterator[Alternatives]:
    """Yield rules with one alternative, condition or bound left out, or two of them joined."""
    for i, conditions in enumerate(alternatives):
        if len(alternatives) > 1:
            yield without(alternatives, i)
        for k in range(i + 1, len(alternatives)):
            if hull := _hull(conditions, alternatives[k]):
                yield exchanged(without(alternatives, k), i, hull)
        for j, condition in enumerate(conditions):
            if len(conditions) > 1:
                yield exchanged(alternatives, i, without(conditions, j))
            if _has_two_ends(condition):
                for wider in (replace(condition, low=-np.inf), replace(condition, high=np.inf)):
                    yield exchanged(alternatives, i, exchanged(conditions, j, wider))


def _hull(
    first: tuple[Condition, ...], second: tuple[Condition, ...]
) -> tuple[Condition, ...] | None:
    """Return two alternatives as one if they differ in what they ask of one feature only."""
    if [c.feature for c in first] != [c.feature for c in second]:
        return None
    differing = [i for i, (c, d) in enumerate(zip(first, second, strict=True)) if c != d]
    if len(differing) != 1:
        return None
    (i,) = differing
    joined = _either(first[i], second[i])
    return None if joined is None else exchanged(first, i, joined)


def _either(c: Condition, d: Condition) -> Condition | None:
    """Return the interval around two intervals, or the levels of either of two lists."""
    missing = c.missing or d.missing
    if (c.levels is None) != (d.levels is None):
        return None
    if c.levels is None or d.levels is None:
        return replace(c, low=min(c.low, d.low), high=max(c.high, d.high), missing=missing)
    listed, others = set(c.levels), set(d.levels)
    if c.is_excluding and d.is_excluding:
        left = listed & others
    elif c.is_excluding or d.is_excluding:
        left = listed - others if c.is_excluding else others - listed
    else:
        left = listed | others
    is_excluding = c.is_excluding or d.is_excluding
    levels = tuple(sorted(left))
    return replace(c, levels=levels, is_excluding=is_excluding, missing=missing) if left else None


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
