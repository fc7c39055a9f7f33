"""Groups proposed on one half of the rows, put to the test on the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import beta

from fareg._levels import LevelCoding
from fareg._validation import BoolArray
from fareg.auditing._cells import cell_coverage
from fareg.auditing._counts import Audited, Promise, binomial_cdf
from fareg.groups import GroupLearner, candidate_rules, cut_membership
from fareg.pvalues import holm

MEMBERS = ("cells", "kernel", "boosting")  # these learn; the network takes longer than all
MIN_ROWS = 20  # a half with fewer rows proposes nothing
MIN_GROUP_ROWS = 10  # a group with fewer on the discovery half could hardly be verified
SUSPICIOUS = 0.05  # a level or pair is tested if its p-value on the discovery half is this small
MAX_CELLS = 5  # worst levels and pairs that are put to the test, beside the learned groups
NO_RULE = "high learned disadvantage (no short rule describes it)"
POWER = 0.8
TYPICAL_SHARE = 0.3  # the group whose detectable coverage is reported holds this share of the rows


@dataclass(frozen=True, eq=False)
class VerifiedGroup:
    """A group proposed on the discovery half, measured on the verification half.

    Attributes
    ----------
    rule : str
        The group in words. All numbers below are those of the rows that fit these words. Where no
        short rule describes those who were learned to be worst off, the words say so, and the
        numbers are those of the rows that were learned.
    source : str
        "learned" (from where coverage is low), "level" or "pair".
    features : tuple of str
        The features that the rule names.
    fidelity : float
        Share of the discovery rows on which the words agree with the group as it was learned, that
        of the whole rule if these are one of its alternatives; 1 for the other groups.
    n, share, coverage, low, high, mean_size : numbers
        Rows of the verification half in the group, their share and coverage, its 95%
        Clopper-Pearson interval, and the mean size of their sets.
    p_value, adjusted_p_value : float
        Exact binomial test that coverage is below the confidence level; after Holm's correction.
    is_finding : bool
        Whether ``adjusted_p_value`` is at most the audit's significance.
    discovery_n, discovery_coverage : numbers
        The same on the discovery half: too pessimistic, for the group was chosen there.
    mask : bool ndarray of shape (n_samples,)
        The group among all audited rows.
    n_clusters : int or None
        Clusters of the verification half with rows in the group, if the audit was told of any. Then
        every cluster counts once in all but ``n`` and ``discovery_n``, which are rows.

    Examples
    --------
    >>> from fareg import audit
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(400, random_state=0)
    >>> sets = [[] if hard else [label] for label, hard in zip(data.y, data.group)]
    >>> result = audit(data.X, data.y, sets, sensitive_features=data.sensitive, random_state=0)
    >>> result.findings[0].rule, result.findings[0].coverage
    ('(Color=Blue and Gender=Male) or (Color=Red and Gender=Female)', 0.0)
    """

    rule: str
    source: str
    features: tuple[str, ...]
    fidelity: float
    n: int
    share: float
    coverage: float
    low: float
    high: float
    mean_size: float
    p_value: float
    adjusted_p_value: float
    is_finding: bool
    discovery_n: int
    discovery_coverage: float
    mask: BoolArray = field(repr=False)
    n_clusters: int | None


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A group that is put to the test."""

    rule: str
    source: str
    features: tuple[str, ...]
    fidelity: float
    mask: BoolArray


def discover_and_verify(
    people: Audited, *, promise: Promise, significance: float, rng: np.random.Generator
) -> tuple[tuple[VerifiedGroup, ...], BoolArray]:
    """Propose groups on a random half and verify them on the other.

    If the rows are independent and the promise is kept in every group, any group is a finding with
    probability at most ``significance``: given the discovery half, the candidates are fixed, their
    binomial p-values exact and their number accounted for by Holm. The same holds for rows that
    depend on each other within clusters, which are never divided.

    Returns the groups, most significant first, and which rows are the discovery half.
    """
    units = np.arange(len(people)) if people.clusters is None else people.clusters
    n_units = int(units.max(initial=-1)) + 1
    chosen = np.zeros(n_units, dtype=bool)
    chosen[rng.permutation(n_units)[: n_units // 2]] = True
    discovery: BoolArray = chosen[units]
    seed = int(rng.integers(2**31))
    if chosen.sum() < MIN_ROWS:
        return (), discovery
    learned = _learned_groups(people, discovery, seed)
    cells = _worst_cells(people, discovery, promise.confidence_level)
    candidates = _distinct([*learned, *cells], discovery)
    return _verified(candidates, people, discovery, promise, significance), discovery


def _learned_groups(people: Audited, discovery: BoolArray, seed: int) -> list[_Candidate]:
    """Learn on the discovery half where coverage is low, and put the worst off into words.

    Each alternative of a rule is a candidate too, because only some of them may be to blame.
    """
    own = people[discovery]
    target = own.covered.astype(np.float64)
    learner = GroupLearner(members=MEMBERS, random_state=seed)
    told = learner.fit(own.columns, target, own.clusters).disadvantage(own.columns)
    rules = candidate_rules(own.columns, told, target, learner.features_)
    if rules:
        return [
            _Candidate(
                rule.text, "learned", rule.features, rule.fidelity, rule.inside(people.columns)
            )
            for whole in rules
            for rule in (whole, *whole.parts())
        ]
    cuts = cut_membership(told, target)
    if not len(cuts):
        return []
    mask = learner.disadvantage(people.columns) > cuts[-1]
    return [_Candidate(NO_RULE, "learned", learner.features_, 1.0, mask)]


def _worst_cells(
    people: Audited, discovery: BoolArray, confidence_level: float
) -> list[_Candidate]:
    """Propose the levels and pairs that look most under-covered on the discovery half."""
    own = people[discovery]
    coding = LevelCoding.learn(own.columns)
    codes = coding.codes(people.columns)
    cells = cell_coverage(codes[discovery], own, confidence_level)
    # Every candidate costs the others some power, so those that look fine already here stay out.
    eligible = (cells["p_value"] <= SUSPICIOUS) & (cells["n"] >= MIN_GROUP_ROWS)
    suspects = cells[eligible]
    worst = suspects[~_like_a_level(suspects)].nsmallest(MAX_CELLS, "p_value")
    return [
        _Candidate(
            rule=coding.describe(features, levels),
            source="level" if len(features) == 1 else "pair",
            features=tuple(coding.levels[j].name for j in features),
            fidelity=1.0,
            mask=(codes[:, features] == levels).all(axis=1),
        )
        for features, levels in zip(worst["features"], worst["codes"], strict=True)
    ]


def _like_a_level(cells: pd.DataFrame) -> BoolArray:
    """Tell the pairs that look no worse than a level of theirs among the cells.

    They would tell again who that level tells, in one variant for every other feature.
    """
    parts = [
        list(zip(features, codes, strict=True))
        for features, codes in zip(cells["features"], cells["codes"], strict=True)
    ]
    levels = {
        own[0]: coverage
        for own, coverage in zip(parts, cells["coverage"], strict=True)
        if len(own) == 1
    }
    # 1, which nothing is like, for levels themselves and for pairs of which no level is a cell
    least = [min(levels.get(p, 1.0) for p in own) if len(own) > 1 else 1.0 for own in parts]
    p = binomial_cdf(cells["hits"], cells["effective"], np.asarray(least))
    return np.asarray(p > SUSPICIOUS, dtype=bool)


def _distinct(candidates: list[_Candidate], discovery: BoolArray) -> list[_Candidate]:
    """Drop candidates with hardly any discovery rows, with all, or with those of another."""
    kept: dict[bytes, _Candidate] = {}
    for candidate in candidates:
        rows = candidate.mask[discovery]
        if rows.sum() >= MIN_GROUP_ROWS and not rows.all():
            kept.setdefault(rows.tobytes(), candidate)
    return list(kept.values())


def _verified(
    candidates: list[_Candidate],
    people: Audited,
    discovery: BoolArray,
    promise: Promise,
    significance: float,
) -> tuple[VerifiedGroup, ...]:
    """Measure candidates on the verification half, and correct p-values for their number."""
    masks = [c.mask & ~discovery for c in candidates]
    counts, weights = [people.count(mask) for mask in masks], people.weights
    p = np.array([count.p_value(promise) for count in counts])
    groups = []
    for c, mask, count, own_p, adjusted in zip(candidates, masks, counts, p, holm(p), strict=True):
        low, high = count.interval()
        groups.append(
            VerifiedGroup(
                **vars(c),
                n=int(mask.sum()),
                share=float(weights[mask].sum() / weights[~discovery].sum()),
                coverage=count.coverage,
                low=low,
                high=high,
                mean_size=people.mean_size(mask),
                p_value=float(own_p),
                adjusted_p_value=float(adjusted),
                is_finding=bool(adjusted <= significance),
                discovery_n=int((c.mask & discovery).sum()),
                discovery_coverage=people.count(c.mask & discovery).coverage,
                n_clusters=None if people.clusters is None else count.n,
            )
        )
    # a stable sort keeps learned groups first among equals
    return tuple(sorted(groups, key=lambda group: group.p_value))


def detectable_coverage(
    n_verification: int, n_candidates: int, promise: Promise, significance: float
) -> float | None:
    """Return the coverage at which a typical group is found with 80% power; None if at no coverage.

    The group holds 30% of the independent verification rows and is tested at the first step of
    Holm.
    """
    n = int(TYPICAL_SHARE * n_verification)
    level = significance / max(1, n_candidates)
    counts = np.arange(n)
    significant = np.flatnonzero(promise.at_most(counts, n) <= level) if n else counts
    if not len(significant):
        return None
    k = int(significant[-1])  # the largest count that is significant
    # P(Binomial(n, c) <= k) is the survival function of Beta(k + 1, n - k) at c
    return float(beta.ppf(1 - POWER, k + 1, n - k))
