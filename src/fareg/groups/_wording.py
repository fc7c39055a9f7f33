"""Groups in words: short rules with round numbers, as far as the learning rows support them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, FloatArray
from fareg.groups._conditions import Condition
from fareg.groups._learner import cut_membership
from fareg.groups._rules import Rule, distil_rule

MIN_FIDELITY = 0.7  # words that agree less with what was learned are not used
MIN_SHARE, MAX_SHARE = 0.02, 0.55  # of the rows: a group that is named is a minority
N_CUTS = 3  # nested groups that are tried
MAX_FEATURES = 8  # features that words may use, those that were read most
NOISE = 2.0  # gain that rounder numbers may cost; by chance, a gain is 1 on average
MAX_GRID = 60  # numbers that a bound is moved to, at most
HUGE = 1e15  # larger numbers are not counted in steps


def candidate_rules(
    columns: pd.DataFrame, disadvantage: FloatArray, covered: FloatArray, features: tuple[str, ...]
) -> list[Rule]:
    """Describe the most disadvantaged learning rows in words, in a few ways.

    Cuts of the disadvantage are chosen by how well the learning rows above them are covered; each
    upper set is described. Parts of a rule that share no feature are groups of their own.
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
        rule = _described(shown, inside, covered)
        if not rule.alternatives or rule.fidelity < MIN_FIDELITY:
            continue
        for part in _unrelated_parts(rule):
            rows = part.inside(shown)
            if MIN_SHARE <= rows.mean() <= MAX_SHARE:
                rules.setdefault(rows.tobytes(), part)
    return list(rules.values())


def _described(columns: pd.DataFrame, inside: BoolArray, covered: FloatArray) -> Rule:
    """Return a short rule for a group whose rows are covered less than others.

    The group is distilled into a rule, which is shortened and whose lists and numbers are improved
    as far as ``covered``, how well each row is covered, supports it.
    """
    rule = distil_rule(columns, inside)
    for improve in (shortened, relisted, rounded):
        rule = improve(rule, columns, covered)
    return replace(rule, fidelity=float((rule.inside(columns) == inside).mean()))


Alternatives = tuple[tuple[Condition, ...], ...]


def _rows_of(columns: pd.DataFrame) -> Callable[[tuple[Condition, ...]], BoolArray]:
    """Return a function that tells which rows fulfil conditions; it asks each condition once."""

    @cache
    def holds(condition: Condition) -> BoolArray:
        return condition.holds(columns[condition.feature])

    everyone = np.ones(len(columns), dtype=bool)
    return lambda conditions: np.logical_and.reduce([everyone, *map(holds, conditions)])


def shortened(rule: Rule, columns: pd.DataFrame, covered: FloatArray) -> Rule:
    """Leave out what a rule does not need, one piece at a time.

    A tree has to divide everyone, so its rules say more than the rows can support: "edu=p or
    (sex=F and edu is not p)" means "edu=p or sex=F". Alternatives, conditions and single bounds are
    left out as long as that improves the Bayesian information criterion of a model in which
    ``covered`` has one mean inside and another one outside.
    """
    rows_of = _rows_of(columns)

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
    return rule if best[1] == rule.alternatives else rule.part(_shortest(best[1], columns))


def _shortest(alternatives: Alternatives, columns: pd.DataFrame) -> Alternatives:
    """Write joined lists of levels by the levels that they hold or by the others, if fewer."""

    def spelled(condition: Condition) -> Condition:
        if condition.levels is None:
            return condition
        column = columns[condition.feature]
        levels = pd.Series(column.dropna().unique(), dtype=object)
        meant = levels[levels.isin(condition.levels) != condition.is_excluding]
        return condition.of_levels(meant, column) if 0 < len(meant) < len(levels) else condition

    return tuple(tuple(map(spelled, conditions)) for conditions in alternatives)


def relisted(rule: Rule, columns: pd.DataFrame, covered: FloatArray) -> Rule:
    """Move levels into or out of the lists of a rule, one at a time, the best one first.

    A tree parts levels by what was learned of all rows together, so a list may hold levels whose
    people are covered like everyone else, or that hardly anyone has. Each level that is listed has
    to be worth ``NOISE`` of gain.
    """
    best = rule.alternatives
    if np.isinf(_gain(rule.inside(columns), covered)):  # too few or too many rows to compare
        return rule
    while moves := [_best_move(best, i, j, columns, covered) for i, j in _lists(best)]:
        worth, moved = max(moves, key=lambda move: move[0])
        if worth <= 0:
            break
        best = moved
    return rule if best == rule.alternatives else rule.part(best)


def _lists(alternatives: Alternatives) -> list[tuple[int, int]]:
    """Return where lists of levels stand."""
    return [
        (i, j)
        for i, conditions in enumerate(alternatives)
        for j, condition in enumerate(conditions)
        if condition.levels
    ]


def _best_move(
    alternatives: Alternatives, i: int, j: int, columns: pd.DataFrame, covered: FloatArray
) -> tuple[float, Alternatives]:
    """Return what the best move of one level of a list is worth, and the rule after it."""
    rows_of = _rows_of(columns)
    conditions, condition = alternatives[i], alternatives[i][j]
    column = columns[condition.feature]
    nobody = np.zeros(len(covered), dtype=bool)
    elsewhere = np.any([nobody, *map(rows_of, _without(alternatives, i))], axis=0)
    inside = elsewhere | rows_of(conditions)
    codes, levels = pd.factorize(column, sort=True)
    # only rows that this list decides about come or go with their level
    decided = rows_of(_without(conditions, j)) & ~elsewhere & (codes >= 0)
    n = np.bincount(codes[decided], minlength=len(levels))
    total = np.bincount(codes[decided], covered[decided], len(levels))
    is_meant = np.isin(levels.astype(str), condition.levels or ()) != condition.is_excluding
    sign = np.where(is_meant, -1, 1)
    gains = _gains(inside.sum() + sign * n, covered[inside].sum() + sign * total, covered)
    n_meant = is_meant.sum() + sign
    words = np.minimum(n_meant, len(levels) - n_meant)  # the others are listed if they are fewer
    before = _gain(inside, covered) - NOISE * min(is_meant.sum(), (~is_meant).sum())
    worth = np.where(words > 0, gains - NOISE * words - before, -np.inf)
    best = int(worth.argmax())
    is_meant[best] = not is_meant[best]
    other = condition.of_levels(levels[is_meant], column)
    moved = (*conditions[:j], other, *conditions[j + 1 :])
    return float(worth[best]), (*alternatives[:i], moved, *alternatives[i + 1 :])


def _without(parts: tuple[Any, ...], i: int) -> tuple[Any, ...]:
    return (*parts[:i], *parts[i + 1 :])


def rounded(rule: Rule, columns: pd.DataFrame, covered: FloatArray) -> Rule:
    """Move bounds of numbers to the roundest ones that describe coverage as well but for noise.

    A tree cuts where its rows happen to part, so other rows of the same people would give other
    words. Each bound moves to the best number of the coarsest grid, with steps of 5, 2 or 1 times a
    power of ten, on which the rule loses at most ``NOISE`` of its gain.
    """
    rows_of = _rows_of(columns)

    def gain(alternatives: Alternatives) -> float:
        return _gain(np.any([rows_of(conditions) for conditions in alternatives], axis=0), covered)

    best = rule.alternatives
    least = gain(best) - NOISE if best else np.inf
    for i, j, side in _bounds(best):
        condition = best[i][j]
        before = getattr(condition, side)
        for grid in _grids(columns[condition.feature]):
            allowed = grid[grid < condition.high] if side == "low" else grid[grid > condition.low]
            moved = [_moved(best, i, j, side, bound) for bound in allowed.tolist()]
            # of equally good numbers, the nearest
            worth = [(gain(m), -abs(b - before)) for m, b in zip(moved, allowed, strict=True)]
            if worth and max(worth)[0] >= least:
                best = moved[worth.index(max(worth))]
                break
    return rule if best == rule.alternatives else rule.part(best)


def _moved(alternatives: Alternatives, i: int, j: int, side: str, bound: float) -> Alternatives:
    conditions = list(alternatives[i])
    conditions[j] = replace(conditions[j], **{side: bound})  # type: ignore[arg-type]
    return (*alternatives[:i], tuple(conditions), *alternatives[i + 1 :])


def _bounds(alternatives: Alternatives) -> list[tuple[int, int, str]]:
    """Return where bounds of numbers stand that may be moved: no dates, no single values."""
    return [
        (i, j, side)
        for i, conditions in enumerate(alternatives)
        for j, condition in enumerate(conditions)
        for side in ("low", "high")
        if condition.levels is None
        and condition.kind is None
        and np.isfinite(getattr(condition, side))
        and condition.low < np.nextafter(condition.high, -np.inf)
    ]


def _grids(column: pd.Series) -> Iterator[FloatArray]:
    """Yield ever finer grids of round numbers between the values of a column."""
    values = np.asarray(column, dtype=np.float64)
    values = values[np.isfinite(values) & (np.abs(values) < HUGE)]
    if not len(values) or values.min() == values.max():
        return
    low, high = float(values.min()), float(values.max())
    power = np.floor(np.log10(high - low))
    for step in (factor * 10.0**k for k in (power, power - 1) for factor in (5, 2, 1)):
        first, last = np.ceil(low / step), np.ceil(high / step)
        if last - first <= MAX_GRID:
            # dividing by a whole number keeps 0.3 from becoming 0.30000000000000004
            inverse = round(1 / step)
            marks = np.arange(first, last)
            yield marks * step if step >= 1 else marks / inverse


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
    return float(_gains(inside.sum(), covered[inside].sum(), covered))


def _gains(n: Any, total: Any, covered: FloatArray) -> Any:
    """Return the gain of groups of ``n`` rows that are covered ``total`` in sum."""
    share, variance = n / len(covered), float(covered.var())
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = (covered.sum() - total) / (len(covered) - n) - total / n
        gain = len(covered) * share * (1 - share) * gap * np.abs(gap) / variance
    return np.where((share >= MIN_SHARE) & (share <= MAX_SHARE) & (variance > 0), gain, -np.inf)


def _length(alternatives: Alternatives) -> int:
    """Count conditions; an interval with two ends counts twice."""
    return sum(
        1 + bool(np.isfinite(condition.low) and np.isfinite(condition.high))
        for conditions in alternatives
        for condition in conditions
    )


def _one_piece_less(alternatives: Alternatives) -> Iterator[Alternatives]:
    """Yield rules with one alternative, condition or bound left out, or two of them joined."""
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
    """Return two alternatives as one if they differ in what they ask of one feature only."""
    if [c.feature for c in first] != [c.feature for c in second]:
        return None
    differing = [i for i, (c, d) in enumerate(zip(first, second, strict=True)) if c != d]
    if len(differing) != 1:
        return None
    (i,) = differing
    joined = _either(first[i], second[i])
    return None if joined is None else (*first[:i], joined, *first[i + 1 :])


def _either(c: Condition, d: Condition) -> Condition | None:
    """Return the interval around two intervals, or the levels of either of two lists."""
    missing = c.missing or d.missing
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
