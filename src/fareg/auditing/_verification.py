"""Groups proposed on one half of the rows, put to the test on the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta

from fareg._validation import BoolArray
from fareg.auditing._counts import Audited, Promise
from fareg.groups import Rule, find_groups
from fareg.pvalues import holm

MIN_ROWS = 20  # a half with fewer rows proposes nothing
MIN_GROUP_ROWS = 10  # a group with fewer on the discovery half could hardly be verified
POWER = 0.8
TYPICAL_SHARE = 0.3  # the group whose detectable coverage is reported holds this share of the rows


@dataclass(frozen=True, eq=False)
class VerifiedGroup:
    """A group proposed on the discovery half, measured on the verification half.

    Attributes
    ----------
    rule : str
        The group in words. All numbers below are those of the rows that these words mean.
    group : Rule
        The same, as a rule that finds these people in other tables.
    features : tuple of str
        The features that the rule names.
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
    ('Color = Red and Gender = Female', 0.0)
    """

    rule: str
    group: Rule
    features: tuple[str, ...]
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
    if chosen.sum() < MIN_ROWS:
        return (), discovery
    half = people[discovery]
    rules = find_groups(half.columns, 1.0 - half.covered, half.clusters)
    return _verified(rules, people, discovery, promise, significance), discovery


def _verified(
    rules: list[Rule],
    people: Audited,
    discovery: BoolArray,
    promise: Promise,
    significance: float,
) -> tuple[VerifiedGroup, ...]:
    """Measure groups on the verification half, and correct p-values for their number."""
    inside = [rule.inside(people.columns) for rule in rules]
    masks = [rows & ~discovery for rows in inside]
    counts, weights = [people.count(mask) for mask in masks], people.weights
    p = np.array([count.p_value(promise) for count in counts])
    groups = []
    for rule, rows, mask, count, own_p, adjusted in zip(
        rules, inside, masks, counts, p, holm(p), strict=True
    ):
        low, high = count.interval()
        groups.append(
            VerifiedGroup(
                rule=rule.text,
                group=rule,
                features=rule.features,
                n=int(mask.sum()),
                share=float(weights[mask].sum() / weights[~discovery].sum()),
                coverage=count.coverage,
                low=low,
                high=high,
                mean_size=people.mean_size(mask),
                p_value=float(own_p),
                adjusted_p_value=float(adjusted),
                is_finding=bool(adjusted <= significance),
                discovery_n=int((rows & discovery).sum()),
                discovery_coverage=people.count(rows & discovery).coverage,
                mask=rows,
                n_clusters=None if people.clusters is None else count.n,
            )
        )
    # A stable sort keeps the order in which equals were found.
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
