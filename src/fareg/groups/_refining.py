"""Rules that follow coverage: further conditions, the right levels in lists, round numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import held
from fareg._levels import MAX_DISCRETE
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.groups._conditions import Alternatives, Condition, distinct_numbers, exchanged, without
from fareg.groups._rules import Rule
from fareg.groups._worth import CoveredRows

NOISE = 2.0  # gain that a listed level has to bring; by chance, a gain is 1 on average
NEARLY = 0.2  # part of the way from outside to inside at which people still count as outside
MANY = 1 / 3  # share of the people of a rule who must be left out, or else longer words do not pay
MAX_GRID = 60  # numbers that a bound is moved to, at most
HUGE = 1e15  # larger numbers are not counted in steps


def narrowed(rule: Rule, rows: CoveredRows) -> Rule:
    """Add conditions that leave out many people who are covered like everyone outside.

    What was learned is smooth, so a rule may name a whole region although only its men are covered
    less. The best condition is added, one at a time, as long as its gain is worth ``log n`` for
    itself and for every level that it lists.
    """
    best = rule.alternatives
    names = tuple(map(str, rows.columns))
    while np.isfinite(rows.gain(rows.inside(best))):
        options = [
            _with_condition(best, i, rows.columns[name], rows)
            for i, conditions in enumerate(best)
            for name in names
            if name not in {condition.feature for condition in conditions}
        ]
        worth, option = max(options, key=lambda option: option[0], default=(0.0, best))
        if worth <= 0:
            break
        best = option
    return rule if best == rule.alternatives else Rule.of(best, names, rule.fidelity)


def _with_condition(
    alternatives: Alternatives, i: int, column: pd.Series, rows: CoveredRows
) -> tuple[float, Alternatives]:
    """Return what the best condition on one more feature is worth, and the rule with it.

    Of a text the levels that are covered least are kept, of a number those below or above a bound.
    """
    known = _Decided.by(alternatives, i, alternatives[i], column, rows)
    n_levels = len(known.levels)
    before = rows.gains(known.n_elsewhere + known.n.sum(), known.sum_elsewhere + known.total.sum())
    orders = [np.argsort(known.mean(), kind="stable")]
    if column.dtype != object:
        orders = [np.arange(n_levels), np.arange(n_levels)[::-1]]
    best: tuple[float, IntArray] = (-np.inf, orders[0])
    for order in orders:
        n, total = (np.cumsum(sums[order])[:-1] for sums in (known.n, known.total))
        gains = rows.gains(known.n_elsewhere + n, known.sum_elsewhere + total)
        kept = np.arange(1, n_levels)
        words = np.minimum(kept, n_levels - kept) if column.dtype == object else 1
        worth = gains - before - np.log(len(rows.covered)) * (1 + words)
        worth[~_leaves_out_others(known, n, total, rows.covered)] = -np.inf
        if len(worth) and worth.max() > best[0]:
            best = float(worth.max()), order[: int(worth.argmax()) + 1]
    if np.isinf(best[0]):
        return best[0], alternatives
    condition = Condition(str(column.name)).of_levels(known.levels[best[1]], column)
    return best[0], exchanged(alternatives, i, (*alternatives[i], condition))


def _leaves_out_others(known: _Decided, n: Any, total: Any, covered: FloatArray) -> BoolArray:
    """Tell whether those left out are many, and covered nearly like everyone outside.

    ``n`` and ``total`` are of those who stay.
    """
    n_left, total_left = known.n.sum() - n, known.total.sum() - total
    n_out = len(covered) - known.n_elsewhere - known.n.sum()
    total_out = covered.sum() - known.sum_elsewhere - known.total.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        inside, left, outside = total / n, total_left / n_left, total_out / n_out
        is_covered = left >= outside - NEARLY * (outside - inside)
    return np.asarray(is_covered & (n_left >= MANY * known.n.sum()))


@dataclass(frozen=True)
class _Decided:
    """The rows that fulfil some conditions and no other alternative, counted by level.

    A further condition on the feature of these levels decides which of them are inside. Rows of
    other alternatives are inside whatever it says.
    """

    levels: Any  # distinct values of the feature, in order
    n: IntArray  # rows of each level
    total: Any  # how much of them is covered, in sum
    n_elsewhere: int  # rows of other alternatives
    sum_elsewhere: float  # how much of them is covered, in sum

    @classmethod
    def by(
        cls,
        alternatives: Alternatives,
        i: int,
        conditions: tuple[Condition, ...],
        column: pd.Series,
        rows: CoveredRows,
    ) -> _Decided:
        """Count the rows of ``conditions``, which are those of alternative i or some of them."""
        elsewhere = rows.inside(without(alternatives, i))
        # a number that is not finite counts as missing
        values = column if column.dtype == object else column.where(np.isfinite(column))
        codes, levels = pd.factorize(values, sort=True)
        here = rows.fulfilling(conditions) & ~elsewhere & (codes >= 0)
        return cls(
            np.asarray(levels),
            np.bincount(codes[here], minlength=len(levels)),
            np.bincount(codes[here], rows.covered[here], len(levels)),
            int(elsewhere.sum()),
            float(rows.covered[elsewhere].sum()),
        )

    def mean(self) -> FloatArray:
        """Return how well each level is covered; one without rows comes last."""
        return np.asarray(np.where(self.n > 0, self.total / np.maximum(self.n, 1), np.inf))


def relisted(rule: Rule, rows: CoveredRows) -> Rule:
    """Move levels into or out of the lists of a rule, one at a time, the best one first.

    A tree parts levels by what was learned of all rows together, so a list may hold levels whose
    people are covered like everyone else, or that hardly anyone has. Each level that is listed has
    to be worth ``NOISE`` of gain.
    """
    best = rule.alternatives
    if np.isinf(rows.gain(rows.inside(best))):  # too few or too many rows to compare
        return rule
    while moves := [_best_move(best, i, j, rows) for i, j in _lists(best, rows.columns)]:
        worth, moved = max(moves, key=lambda move: move[0])
        if worth <= 0:
            break
        best = moved
    return rule.part(best)


def _lists(alternatives: Alternatives, columns: pd.DataFrame) -> list[tuple[int, int]]:
    """Return where lists of levels stand, and intervals of numbers that may be codes."""
    return [
        (i, j)
        for i, conditions in enumerate(alternatives)
        for j, condition in enumerate(conditions)
        if condition.levels
        or (condition.levels is None and _may_be_codes(columns[condition.feature]))
    ]


def _may_be_codes(column: pd.Series) -> bool:
    """Tell whether a column holds a few whole numbers."""
    if column.dtype == object or held(column) is not None:
        return False
    values = distinct_numbers(column)
    return 2 < len(values) <= MAX_DISCRETE and bool((values % 1 == 0).all())


def _best_move(
    alternatives: Alternatives, i: int, j: int, rows: CoveredRows
) -> tuple[float, Alternatives]:
    """Return what the best move of one level of a list is worth, and the rule after it."""
    conditions, condition = alternatives[i], alternatives[i][j]
    column = rows.columns[condition.feature]
    known = _Decided.by(alternatives, i, without(conditions, j), column, rows)
    is_meant = condition.holds(pd.Series(known.levels, dtype=known.levels.dtype))
    inside = rows.inside(alternatives)
    sign = np.where(is_meant, -1, 1)
    n, total = inside.sum(), rows.covered[inside].sum()
    gains = rows.gains(n + sign * known.n, total + sign * known.total)
    after = is_meant ^ np.eye(len(is_meant), dtype=bool)  # in each row another level has moved
    words = np.array([_n_words(meant, column) for meant in after])
    before = rows.gain(inside) - NOISE * _n_words(is_meant, column)
    worth = np.where(words > 0, gains - NOISE * words - before, -np.inf)
    best = int(worth.argmax())
    if np.isinf(worth[best]):  # a list holds some levels and leaves out others
        return -np.inf, alternatives
    other = condition.of_levels(known.levels[after[best]], column)
    return float(worth[best]), exchanged(alternatives, i, exchanged(conditions, j, other))


def _n_words(is_meant: BoolArray, column: pd.Series) -> int:
    """Count the levels that have to be listed, those meant or the others; an interval counts one.

    None or all of them would say nothing.
    """
    n_meant, n = int(is_meant.sum()), len(is_meant)
    if column.dtype != object and 0 < n_meant < n and np.ptp(np.flatnonzero(is_meant)) < n_meant:
        return 1
    return min(n_meant, n - n_meant)


def rounded(rule: Rule, rows: CoveredRows) -> Rule:
    """Move bounds of numbers to the roundest ones that describe coverage as well but for noise.

    A tree cuts where its rows happen to part, so other rows of the same people would give other
    words. Each bound moves to the best number of the coarsest grid, with steps of 5, 2 or 1 times a
    power of ten, on which the rule loses at most ``NOISE`` of its gain.
    """
    best = rule.alternatives
    least = rows.gain(rows.inside(best)) - NOISE
    for i, j, side in _bounds(best):
        condition = best[i][j]
        before = getattr(condition, side)
        for grid in _grids(rows.columns[condition.feature]):
            allowed = grid[grid < condition.high] if side == "low" else grid[grid > condition.low]
            other = (replace(condition, **{side: bound}) for bound in allowed.tolist())
            moved = [exchanged(best, i, exchanged(best[i], j, c)) for c in other]
            gains = [rows.gain(rows.inside(alternatives)) for alternatives in moved]
            # of equally good numbers the nearest is taken
            worth = list(zip(gains, -np.abs(allowed - before), strict=True))
            if worth and max(worth)[0] >= least:
                best = moved[worth.index(max(worth))]
                break
    return rule.part(best)


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
        and not condition.single()
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
