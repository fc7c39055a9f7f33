"""Groups found on random halves of the rows and tested on the other halves.

Each half proposes groups, and the rows outside it test them, exactly and corrected for their number
(Holm): whatever was proposed, the probability is at most t that a group that is covered as promised
is rejected with a p-value of at most t. The words of a finding come from a search on all rows. The
group is a finding if at least k of B halves proposed nearly the same rows and rejected them with a
p-value of at most ``k / B * significance``. However the halves depend on each other, on average at
most ``B * k / B * significance`` of them reject wrongly, so by Markov's inequality k do so with
probability at most ``significance`` (Meinshausen, Meier & Buehlmann 2009, for any set of variants).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from fareg._validation import BoolArray, FloatArray
from fareg.auditing._rate import Audited, Promise, Rate
from fareg.groups import Condition, Rule, find_groups
from fareg.pvalues import holm

MIN_ROWS = 20  # a half with fewer rows proposes nothing
MAX_PROPOSING = 5000  # most rows that propose; all others test
SHARE_OF_HALVES = 0.2  # share of the halves that must reject a finding
MIN_OVERLAP = 0.5  # a proposal that shares this much of its rows with a group is a variant of it
MAX_OVERLAPPING = 5  # further findings are kept only if most of their rows are in no earlier one
MOSTLY_NEW = 0.5  # share of a group's rows that counts as most of them
MOST_PROPOSED, MOST_UNEQUAL = 8, 3  # groups that one half proposes for coverage, and for sizes
SIZE_RATIO = 1.25  # sets are unequal if they hold at least this many times the labels of the others
MIN_SIZED = 30  # fewest rows on which mean sizes are compared
N_SIMULATED = 2  # groups that a half of a simulated table is assumed to propose
KINDS = ((1, 0.3), (1, 0.1), (2, 0.1))  # conditions and share of the groups that are simulated
STEP = 0.04  # change of coverage from one simulated group to the next
N_STEPS = 16  # simulated groups of each kind

Test = Callable[[BoolArray, BoolArray], float]  # takes a group and the testing rows, returns p


def halves_needed(n_splits: int) -> int:
    """Return the number of halves that must reject a finding."""
    return max(1, int(np.ceil(SHARE_OF_HALVES * n_splits)))


@dataclass(frozen=True, eq=False)
class Finding:
    """A group that was found on all rows, with the results of testing it on random halves.

    Attributes
    ----------
    rule : Rule
        The group in words: ``print(finding.rule)``; ``finding.rule.inside(X)`` finds it elsewhere.
    rate : Rate
        Coverage, averaged over the halves that proposed the group, each counted on the rows that
        played no part in proposing it.
    share : float
        Share of all rows that lie in the group.
    mean_size : float
        Mean number of labels in the sets of all rows of the group.
    adjusted_p_value : float
        p-value, corrected for the search: if findings are the groups where it is at most the
        significance, the chance of any false finding is at most the significance.
    is_finding : bool
        Whether it is at most the significance.
    n_found, n_splits : int
        Number of random halves that proposed the group or nearly the same rows, and of all halves.
    n_new : int
        Rows of the group that are in no earlier finding.
    others_size : float
        Mean number of labels in the sets of all other rows.
    mask : bool ndarray of shape (n_samples,)
        Which audited rows are in the group.
    counted : ndarray of shape (n_samples,)
        In how many halves ``rate`` counts each row.

    Examples
    --------
    >>> from fareg import audit
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(400, random_state=0)
    >>> sets = [[] if hard else [label] for label, hard in zip(data.y, data.group)]
    >>> result = audit(data.X, data.y, sets, sensitive_features=data.sensitive, random_state=0)
    >>> finding = result.findings[0]
    >>> finding.rule.text, finding.rate.share, finding.stability
    ('Color = Blue and Gender = Male', 0.0, 1.0)
    """

    rule: Rule
    rate: Rate
    share: float
    mean_size: float
    others_size: float
    adjusted_p_value: float
    is_finding: bool
    n_found: int
    n_splits: int
    n_new: int
    mask: BoolArray = field(repr=False)
    counted: FloatArray = field(repr=False)

    @property
    def stability(self) -> float:
        """The share of the halves that found the group."""
        return self.n_found / self.n_splits

    @property
    def features(self) -> tuple[str, ...]:
        """The features that the rule names."""
        return self.rule.features

    def to_dict(self) -> dict[str, Any]:
        """Return plain types: ``n_rows`` counts all rows of the group, ``n`` those that tested it
        on average, and ``n_needed`` the halves that must propose a finding."""
        names = ("share", "mean_size", "others_size", "adjusted_p_value", "is_finding", "n_found")
        fields = {name: getattr(self, name) for name in (*names, "n_splits", "n_new")}
        fields |= {"n_rows": int(self.mask.sum()), "n_needed": halves_needed(self.n_splits)}
        features = list(self.features)
        return {"rule": self.rule.text, "features": features, **self.rate.to_dict(), **fields}


@dataclass(frozen=True)
class SearchPlan:
    """What an audit tests: the promise, the allowed chance of error, the number of halves."""

    promise: Promise
    significance: float
    n_splits: int


@dataclass(frozen=True, eq=False)
class _Proposer:
    """Proposes groups with a large shortfall on some rows, and tests them on the others."""

    people: Audited
    shortfall: FloatArray
    test: Test
    most: int
    mask_of: Callable[[Rule], BoolArray]

    def rules(self, rows: Any = slice(None)) -> list[Rule]:
        clusters = None if self.people.clusters is None else self.people.clusters[rows]
        columns = self.people.columns.iloc[rows].reset_index(drop=True)
        return list(find_groups(columns, self.shortfall[rows], clusters, most=self.most))

    def half(self, proposing: BoolArray) -> list[tuple[BoolArray, float]]:
        """Return the mask of each proposal, with its p-value corrected for their number."""
        is_enough = self.people.size_of(proposing)[1] >= MIN_ROWS
        masks = [self.mask_of(rule) for rule in self.rules(proposing)] if is_enough else []
        p = holm(np.array([self.test(mask, ~proposing) for mask in masks]))
        return list(zip(masks, p.tolist(), strict=True))

    def found(self, rules: list[Rule], halves: list[BoolArray], plan: SearchPlan) -> list[Finding]:
        """Test groups that were found on all rows, with the proposals of each half."""
        if not rules:
            return []
        results = [(~proposing, self.half(proposing)) for proposing in halves]
        groups = [self._judged(rule, self.mask_of(rule), results, plan) for rule in rules]
        return _without_overlaps(groups)

    def _judged(self, rule: Rule, inside: BoolArray, results: Any, plan: SearchPlan) -> Finding:
        """Combine the results of all halves for a group and its variants."""
        people, weights = self.people, self.people.weights
        p, tested, counted = np.ones(len(results)), [], np.zeros(len(people))
        for i, (testing, proposals) in enumerate(results):
            variants = [pair for pair in proposals if _overlap(pair[0], inside) >= MIN_OVERLAP]
            if variants:
                mask, p[i] = min(variants, key=lambda pair: pair[1])
                tested.append(people.size_of(mask & testing))
                counted += mask & testing
        k = halves_needed(plan.n_splits)
        adjusted = float(min(1.0, np.sort(p)[k - 1] * len(results) / k))
        if counted.any():
            n, n_independent = np.mean(tested, axis=0).round().astype(int).tolist()
            rate = people.averaged_rate(counted, n, n_independent)
        else:
            rate = people.rate(inside, plan.promise)
        return Finding(
            rule=rule,
            rate=rate,
            share=float(weights[inside].sum() / weights.sum()),
            mean_size=people.mean_size(inside),
            others_size=people.mean_size(~inside),
            adjusted_p_value=adjusted,
            is_finding=adjusted <= plan.significance,
            n_found=len(tested),
            n_splits=len(results),
            n_new=int(inside.sum()),
            mask=inside,
            counted=counted,
        )


def search(
    people: Audited, plan: SearchPlan, rng: np.random.Generator
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return groups that may be covered less than promised, and groups with larger sets.

    With probability at least ``1 - significance``, every finding has a variant, a group that shares
    at least half of its rows, whose coverage is really below the promise. The same holds for sizes,
    except that Student's t is an approximation.
    """
    if not len(people):
        return (), ()
    halves = [_random_half(people, rng) for _ in range(plan.n_splits)]
    mask_of = _masks(people.columns)
    coverage = _coverage_proposer(people, plan.promise, MOST_PROPOSED, mask_of)
    below = tuple(coverage.found(coverage.rules(), halves, plan))
    if people.size.max(initial=0) == people.size.min(initial=0):
        return below, ()
    size = people.size.astype(np.float64)
    sizes = _Proposer(people, size, _size_test(people), MOST_UNEQUAL, mask_of)
    rules = [
        rule
        for rule in sizes.rules()
        if people.mean_size(mask := mask_of(rule)) >= SIZE_RATIO * people.mean_size(~mask)
    ]
    fewer = replace(plan, n_splits=max(1, plan.n_splits // 2))
    larger = sizes.found(rules, halves[: fewer.n_splits], fewer)
    return below, tuple(
        group
        for group in larger
        if group.is_finding and group.n_new >= MOSTLY_NEW * group.mask.sum()
    )


def _masks(columns: pd.DataFrame) -> Callable[[Rule], BoolArray]:
    """Return a function from rules to masks that remembers conditions, as halves repeat them."""

    @cache
    def inside(condition: Condition) -> BoolArray:
        return np.asarray(Rule((condition,)).inside(columns))

    return lambda rule: np.asarray(np.logical_and.reduce([*map(inside, rule.conditions)]))


def _random_half(people: Audited, rng: np.random.Generator) -> BoolArray:
    """Draw the rows that propose: half of all rows or clusters, or fewer in a large table."""
    units = np.arange(len(people)) if people.clusters is None else people.clusters
    n_units = int(units.max(initial=-1)) + 1
    chosen = np.zeros(n_units, dtype=bool)
    n_proposing = min(n_units // 2, n_units * MAX_PROPOSING // max(1, len(people)))
    chosen[rng.permutation(n_units)[:n_proposing]] = True
    return np.asarray(chosen[units])


def _coverage_proposer(
    people: Audited, promise: Promise, most: int, mask_of: Callable[[Rule], BoolArray]
) -> _Proposer:
    def p_value(inside: BoolArray, testing: BoolArray) -> float:
        return people.count(inside & testing).p_value(promise)

    return _Proposer(people, 1.0 - people.covered.astype(np.float64), p_value, most, mask_of)


def _size_test(people: Audited) -> Test:
    """Return a test that a group's sets hold at most ``SIZE_RATIO`` times the others' labels."""

    def moments(rows: BoolArray) -> tuple[float, float, int]:
        size = people.size[rows].astype(np.float64)
        if people.clusters is not None:  # the rows of a cluster in the group count as one
            _, codes = np.unique(people.clusters[rows], return_inverse=True)
            size = np.bincount(codes, size) / np.maximum(np.bincount(codes), 1)
        n = len(size)
        return (float(size.mean()), float(size.var(ddof=1)) / n, n) if n > 1 else (0.0, 0.0, n)

    def p_value(inside: BoolArray, testing: BoolArray) -> float:
        mean, error, n = moments(testing & inside)
        other, other_error, m = moments(testing & ~inside)
        spread = error + SIZE_RATIO**2 * other_error
        if min(n, m) < MIN_SIZED or spread <= 0:
            return 1.0
        return float(student.sf((mean - SIZE_RATIO * other) / np.sqrt(spread), min(n, m) - 1))

    return p_value


def _overlap(first: BoolArray, second: BoolArray) -> float:
    """Return the share of the rows in either group that are in both."""
    return float((first & second).sum() / max(1, (first | second).sum()))


def _without_overlaps(groups: list[Finding]) -> list[Finding]:
    """Put findings first, and leave out those that add little to earlier ones.

    From the sixth on, a finding is kept only if most of its rows are in no earlier one.
    """
    kept: list[Finding] = []
    before = np.zeros(len(groups[0].mask), dtype=bool)
    for group in sorted(groups, key=lambda group: not group.is_finding):
        n_new = int((group.mask & ~before).sum())
        is_new = n_new >= MOSTLY_NEW * group.mask.sum()
        around = [g for g in kept if _overlap(g.mask & group.mask, group.mask) >= MOSTLY_NEW]
        is_worse = all(group.rate.high < larger.rate.share for larger in around)
        if not group.is_finding or is_new or (is_worse and len(kept) < MAX_OVERLAPPING):
            kept.append(replace(group, n_new=n_new))
            before |= group.mask & group.is_finding
    return kept


def simulated_power(
    people: Audited, plan: SearchPlan, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Simulate how low the coverage of groups of one and two conditions must be for a finding.

    Groups are drawn at random, everyone else is covered as promised, and one half looks for the
    group as an audit does. Coverage goes down after each missed group and up after two found in a
    row, so it settles where 70% of the halves succeed. One half in five suffices, so the audit then
    finds the group in at least 80% of cases. The simulation is cautious: it takes fewer rows of a
    large table, and a half must propose the group first and reject it next to another proposal.
    """
    people = people.sample(2 * MAX_PROPOSING, rng)
    mask_of = _masks(people.columns)
    promised, power = plan.promise.confidence_level, []
    threshold = plan.significance * halves_needed(plan.n_splits) / plan.n_splits
    for n_conditions, wanted_share in KINDS:
        coverage, tried, shares, successes, streak = promised - 3 * STEP, [], [], 0, 0
        for i in range(N_STEPS):
            inside = _random_group(people, n_conditions, wanted_share, rng)
            if inside is None:
                break
            covered = rng.random(len(people)) < np.where(inside, coverage, promised)
            planted = replace(people, covered=covered)
            proposer = _coverage_proposer(planted, plan.promise, 1, mask_of)
            proposing = _random_half(people, rng)
            is_found = N_SIMULATED * proposer.test(inside, ~proposing) <= threshold and any(
                N_SIMULATED * p <= threshold and _overlap(mask, inside) >= MIN_OVERLAP
                for mask, p in proposer.half(proposing)
            )
            tried.append(coverage)
            shares.append(float(inside.mean()))
            successes += is_found and i >= N_STEPS // 3
            streak = streak + 1 if is_found else 0
            direction = {0: -1, 1: 0}.get(streak, 1)  # up after two found in a row
            streak %= 2
            step = (STEP if i < N_STEPS // 2 else STEP / 2) * direction
            coverage = min(promised, max(0.0, coverage + step))
        if successes >= 2:
            settled, share = float(np.mean(tried[N_STEPS // 3 :])), float(np.median(shares))
            power.append({"conditions": n_conditions, "share": share, "coverage": settled})
    return power


def _random_group(
    people: Audited, n_conditions: int, share: float, rng: np.random.Generator
) -> BoolArray | None:
    """Draw a conjunction that holds about this share of the rows, None if there is none."""
    if people.columns.shape[1] < n_conditions or len(people) < MIN_ROWS:
        return None
    names = sorted(people.columns, key=str)  # so that the order of columns does not matter

    def misfit(group: BoolArray) -> float:
        return abs(float(np.log(max(group.mean(), 1e-9) / share)))

    drawn: list[BoolArray] = []
    while len(drawn) < 10 and not (drawn and misfit(drawn[-1]) < 0.25):
        chosen = rng.choice(len(names), n_conditions, replace=False)
        part = share ** (1 / n_conditions)
        masks = [_random_condition(people.columns[names[j]], part, rng) for j in chosen]
        drawn.append(np.asarray(np.logical_and.reduce(masks)))
    best = min(drawn, key=misfit)
    return best if misfit(best) < 1.0 else None


def _random_condition(column: pd.Series, share: float, rng: np.random.Generator) -> BoolArray:
    """Draw a condition on a column that holds for about this share of the rows."""
    if column.dtype == object:
        shares = column.value_counts(normalize=True, dropna=False)
        closeness = np.exp(-np.abs(np.log(shares.to_numpy() / share)))
        value = shares.index[rng.choice(len(shares), p=closeness / closeness.sum())]
        return np.asarray(column.isna() if pd.isna(value) else column == value)
    numbers = column.to_numpy(np.float64)
    is_above, finite = rng.random() < 0.5, numbers[np.isfinite(numbers)]
    cut = np.quantile(finite, 1 - share if is_above else share) if len(finite) else 0.0
    return np.asarray(numbers > cut if is_above else numbers <= cut)
