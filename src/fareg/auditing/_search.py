"""Groups found on random halves of the rows and tested on the other halves.

Each half proposes groups and the rows outside it test them, exactly and corrected for their number
(Holm): whatever was proposed, some group that keeps its promise is rejected at level t with
probability at most t. A group found on all rows says in words what the proposals of many halves
mean. It is a finding if at least k of B halves proposed nearly the same people and rejected them
at level ``k / B * significance``. Whatever halves have to do with each other, on average at most
``B * k / B * significance`` of them reject wrongly, so by Markov's inequality k do so with
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
MAX_PROPOSING = 5000  # of twice as many rows or more, this many propose and all others test
SHARE_OF_HALVES = 0.2  # a finding is rejected in so many halves or more
MIN_OVERLAP = 0.5  # proposals that share this much of their people with a group are variants of it
MOST_TOLD = 5  # findings, unless there are more that hold mostly other people
MOSTLY_NEW = 0.5
MOST_PROPOSED, MOST_UNEQUAL = 8, 3  # groups that one half proposes, and whose sets are unequal
SIZE_RATIO = 1.25  # sets are called unequal if they hold this many times the labels of the others'
MIN_SIZED = 30  # rows that mean sizes are compared on
BESIDE = 2  # groups that a half of a simulated table is taken to propose
KINDS = ((1, 0.3), (1, 0.1), (2, 0.1))  # conditions and share of the groups that are simulated
STEP = 0.04
N_STEPS = 16  # planted groups of each kind by which the power is simulated

Test = Callable[[BoolArray, BoolArray], float]  # of a group, on some rows: its p-value


@dataclass(frozen=True, eq=False)
class Finding:
    """A group that was found on all rows, and what random halves say of it.

    Attributes
    ----------
    rule : Rule
        The group in words: ``print(finding.rule)``; ``finding.rule.inside(X)`` finds it elsewhere.
    rate : Rate
        Coverage, averaged over the halves that proposed the group, each counted on the rows that
        played no part in proposing it.
    share : float
        Of all rows that lie in the group.
    mean_size : float
        Mean number of labels in their sets, all rows of the group.
    adjusted_p_value : float
        Corrected for the search: the chance of any false finding is at most the significance if
        findings are the groups for which this is no larger.
    is_finding : bool
        Whether it is no larger.
    n_found, n_splits : int
        In how many of the random halves the group, or nearly the same people, was proposed.
    n_new : int
        Rows of the group that are in no finding before it.
    others_size : float
        Mean size of the sets of all other rows.
    mask : bool ndarray of shape (n_samples,)
        The group among all audited rows.
    counted : ndarray of shape (n_samples,)
        In how many halves each row was counted in ``rate``.

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
        """Return all but the rows, in plain types."""
        own = ("share", "mean_size", "others_size", "adjusted_p_value", "is_finding", "n_found")
        told = {name: getattr(self, name) for name in (*own, "n_splits", "n_new")}
        features = list(self.features)
        return {"rule": self.rule.text, "features": features, **self.rate.told(), **told}


@dataclass(frozen=True)
class Question:
    """How an audit looks for groups: what was promised, the chance of error, random halves."""

    promise: Promise
    significance: float
    n_splits: int

    @property
    def n_needed(self) -> int:
        """In how many halves a finding must be rejected."""
        return max(1, int(np.ceil(SHARE_OF_HALVES * self.n_splits)))


@dataclass(frozen=True, eq=False)
class _Proposer:
    """Looks for groups with a large shortfall on some rows, and tests them on the others."""

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
        """Return the rows of each proposal, and its p-value corrected for their number."""
        enough = self.people.size_of(proposing)[1] >= MIN_ROWS
        masks = [self.mask_of(rule) for rule in self.rules(proposing)] if enough else []
        p = holm(np.array([self.test(mask, ~proposing) for mask in masks]))
        return list(zip(masks, p.tolist(), strict=True))

    def found(self, rules: list[Rule], halves: list[BoolArray], ask: Question) -> list[Finding]:
        """Ask each half for its proposals, and what they say of groups found on all rows."""
        if not rules:
            return []
        said = [(~proposing, self.half(proposing)) for proposing in halves]
        groups = [self._judged(rule, self.mask_of(rule), said, ask) for rule in rules]
        return _told(groups)

    def _judged(self, rule: Rule, inside: BoolArray, said: Any, ask: Question) -> Finding:
        """Combine what the halves say of a group and its variants."""
        people, weights = self.people, self.people.weights
        p, tested, counted = np.ones(len(said)), [], np.zeros(len(people))
        for i, (testing, proposals) in enumerate(said):
            close = [own for own in proposals if _overlap(own[0], inside) >= MIN_OVERLAP]
            if close:
                mask, p[i] = min(close, key=lambda own: own[1])
                tested.append(people.size_of(mask & testing))
                counted += mask & testing
        k = ask.n_needed
        adjusted = float(min(1.0, np.sort(p)[k - 1] * len(said) / k))
        if counted.any():
            n, n_independent = np.mean(tested, axis=0).round().astype(int).tolist()
            rate = people.averaged_rate(counted, n, n_independent)
        else:
            rate = people.rate(inside, ask.promise)
        return Finding(
            rule=rule,
            rate=rate,
            share=float(weights[inside].sum() / weights.sum()),
            mean_size=people.mean_size(inside),
            others_size=people.mean_size(~inside),
            adjusted_p_value=adjusted,
            is_finding=adjusted <= ask.significance,
            n_found=len(tested),
            n_splits=len(said),
            n_new=int(inside.sum()),
            mask=inside,
            counted=counted,
        )


def search(
    people: Audited, ask: Question, rng: np.random.Generator
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return groups that may be covered less than promised, and those that may have larger sets.

    With probability at least ``1 - significance``, every finding has a variant, a group that shares
    at least half of its people with it, whose coverage is really below the promise. The same holds
    for sizes, but for the approximation by Student's t.
    """
    if not len(people):
        return (), ()
    halves = [_some_half(people, rng) for _ in range(ask.n_splits)]
    mask_of = _masks(people.columns)
    coverage = _coverage_proposer(people, ask.promise, MOST_PROPOSED, mask_of)
    below = tuple(coverage.found(coverage.rules(), halves, ask))
    if people.size.max(initial=0) == people.size.min(initial=0):
        return below, ()
    size = people.size.astype(np.float64)
    sizes = _Proposer(people, size, _size_test(people), MOST_UNEQUAL, mask_of)
    rules = [
        rule
        for rule in sizes.rules()
        if people.mean_size(own := mask_of(rule)) >= SIZE_RATIO * people.mean_size(~own)
    ]
    fewer = replace(ask, n_splits=max(1, ask.n_splits // 2))
    larger = sizes.found(rules, halves[: fewer.n_splits], fewer)
    return below, tuple(
        own for own in larger if own.is_finding and own.n_new >= MOSTLY_NEW * own.mask.sum()
    )


def _masks(columns: pd.DataFrame) -> Callable[[Rule], BoolArray]:
    """Return what finds the rows of a rule; halves propose the same conditions again and again."""

    @cache
    def inside(condition: Condition) -> BoolArray:
        return np.asarray(Rule((condition,)).inside(columns))

    return lambda rule: np.asarray(np.logical_and.reduce([inside(one) for one in rule.conditions]))


def _some_half(people: Audited, rng: np.random.Generator) -> BoolArray:
    """Draw the rows that propose: half of them or of the clusters, or fewer of a large table."""
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
    """Test that sets in a group hold at most ``SIZE_RATIO`` times the labels of the others'."""

    def moments(rows: BoolArray) -> tuple[float, float, int]:
        size = people.size[rows].astype(np.float64)
        if people.clusters is not None:  # the rows of a cluster in the group count as one
            _, own = np.unique(people.clusters[rows], return_inverse=True)
            size = np.bincount(own, size) / np.maximum(np.bincount(own), 1)
        n = len(size)
        return (float(size.mean()), float(size.var(ddof=1)) / n, n) if n > 1 else (0.0, 0.0, n)

    def p_value(inside: BoolArray, testing: BoolArray) -> float:
        (mean, error, n), (other, other_error, m) = (
            moments(testing & own) for own in (inside, ~inside)
        )
        spread = error + SIZE_RATIO**2 * other_error
        if min(n, m) < MIN_SIZED or spread <= 0:
            return 1.0
        return float(student.sf((mean - SIZE_RATIO * other) / np.sqrt(spread), min(n, m) - 1))

    return p_value


def _overlap(first: BoolArray, second: BoolArray) -> float:
    """Return the share of the rows in either group that are in both."""
    return float((first & second).sum() / max(1, (first | second).sum()))


def _told(groups: list[Finding]) -> list[Finding]:
    """Order groups, findings first, and leave out those that add little to the ones before.

    Beyond five, a finding is said only if most of its people are in none before it.
    """
    told: list[Finding] = []
    before = np.zeros(len(groups[0].mask), dtype=bool)
    for group in sorted(groups, key=lambda group: not group.is_finding):
        n_new = int((group.mask & ~before).sum())
        is_new = n_new >= MOSTLY_NEW * group.mask.sum()
        within = [own for own in told if _overlap(own.mask & group.mask, group.mask) >= MOSTLY_NEW]
        is_worse = all(group.rate.high < own.rate.share for own in within)
        if not group.is_finding or is_new or (is_worse and len(told) < MOST_TOLD):
            told.append(replace(group, n_new=n_new))
            before |= group.mask & group.is_finding
    return told


def simulated_power(
    people: Audited, ask: Question, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Simulate how badly covered a group of one and of two conditions must be to be found.

    Groups are drawn, everyone else is covered as promised, and one half looks for the group as an
    audit does. Coverage goes down after each group that is missed and up after two in a row that
    are found, so it settles where 70% of the halves succeed; one half in five makes a finding, so
    it is then made in 80% of cases or more. It is cautious: of a large table fewer rows are
    simulated, and a half has to propose the group first and reject it beside another proposal.
    """
    people = people.sample(2 * MAX_PROPOSING, rng)
    mask_of = _masks(people.columns)
    promised, told = ask.promise.confidence_level, []
    level = ask.significance * ask.n_needed / ask.n_splits
    for n_conditions, wanted in KINDS:
        coverage, tried, shares, successes, streak = promised - 3 * STEP, [], [], 0, 0
        for i in range(N_STEPS):
            inside = _some_group(people, n_conditions, wanted, rng)
            if inside is None:
                break
            covered = rng.random(len(people)) < np.where(inside, coverage, promised)
            planted = replace(people, covered=covered)
            proposer = _coverage_proposer(planted, ask.promise, 1, mask_of)
            proposing = _some_half(people, rng)
            is_found = BESIDE * proposer.test(inside, ~proposing) <= level and any(
                BESIDE * p <= level and _overlap(mask, inside) >= MIN_OVERLAP
                for mask, p in proposer.half(proposing)
            )
            tried.append(coverage)
            shares.append(float(inside.mean()))
            successes += is_found and i >= N_STEPS // 3
            streak = streak + 1 if is_found else 0
            up = {0: -1, 1: 0}.get(streak, 1)  # up after two in a row that are found
            streak %= 2
            step = (STEP if i < N_STEPS // 2 else STEP / 2) * up
            coverage = min(promised, max(0.0, coverage + step))
        if successes >= 2:
            settled, share = float(np.mean(tried[N_STEPS // 3 :])), float(np.median(shares))
            told.append({"conditions": n_conditions, "share": share, "coverage": settled})
    return told


def _some_group(
    people: Audited, n_conditions: int, share: float, rng: np.random.Generator
) -> BoolArray | None:
    """Draw a conjunction of so many conditions that holds about such a share of the rows."""
    if people.columns.shape[1] < n_conditions or len(people) < MIN_ROWS:
        return None

    names = sorted(people.columns, key=str)  # the order of columns does not matter

    def far(group: BoolArray) -> float:
        return abs(float(np.log(max(group.mean(), 1e-9) / share)))

    drawn: list[BoolArray] = []
    while len(drawn) < 10 and not (drawn and far(drawn[-1]) < 0.25):
        chosen = rng.choice(len(names), n_conditions, replace=False)
        each = share ** (1 / n_conditions)
        parts = [_some_condition(people.columns[names[j]], each, rng) for j in chosen]
        drawn.append(np.asarray(np.logical_and.reduce(parts)))
    best = min(drawn, key=far)
    return best if far(best) < 1.0 else None


def _some_condition(column: pd.Series, share: float, rng: np.random.Generator) -> BoolArray:
    """Draw a condition on a column that holds about such a share of the rows."""
    if column.dtype == object:
        shares = column.value_counts(normalize=True, dropna=False)
        near = np.exp(-np.abs(np.log(shares.to_numpy() / share)))
        level = shares.index[rng.choice(len(shares), p=near / near.sum())]
        return np.asarray(column.isna() if pd.isna(level) else column == level)
    numbers = column.to_numpy(np.float64)
    is_above, finite = rng.random() < 0.5, numbers[np.isfinite(numbers)]
    cut = np.quantile(finite, 1 - share if is_above else share) if len(finite) else 0.0
    return np.asarray(numbers > cut if is_above else numbers <= cut)
