"""Groups that are worse off, in words: a pursuit of conjunctions of conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from math import comb, log
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import block_diag
from scipy.special import gammaln

from fareg._columns import as_numbers, as_text, kind_of, shortest_between, spelled_numbers
from fareg._threads import one_thread
from fareg._validation import BoolArray, FloatArray, IntArray, check_same_length
from fareg.groups._members import some_rows
from fareg.groups._rules import Condition, Rule

MIN_SHARE, MAX_SHARE = 0.005, 0.55  # of the rows: a named group is a minority
# Coverage must lie MIN_GAP below the confidence, and its whole 95% interval MARGIN below it.
MIN_GAP = 0.04
MARGIN = 0.02
MIN_ROWS = 30  # rows of a group, clusters if there are any
MAX_GROUPS = 8
MAX_ROWS = 20_000  # of a larger table, so many rows are drawn at random
MAX_CONDITIONS = 180  # conditions that are combined with each other, besides their opposites
MAX_TRIPLED = 150  # pairs that are extended by a third condition
N_TRIED = 8  # pairs, and triples, whose bounds and lists are improved before one is chosen
FINE = 80  # quantiles at which a number may be cut
COARSE = (4, 10, 20, 30, 40, 50, 60, 70, 76)  # quantiles at which the search begins
MAX_DISCRETE = 10  # a number with at most so many values is cut between all of them
MIN_CATEGORY_ROWS = 10  # a category with fewer rows is never listed
MAX_CATEGORIES = 60
MAX_LISTED = 20
SUPPORT = 1.0  # standard errors by which each listed category must be worse off by itself
MAX_FEATURES = 4  # features that one rule names
NEARLY_ALL = 0.9  # a condition that holds for this share of the rows says too little
MAX_BOUNDS = 8  # bounds of a number resemble each other, so at most so many count
DAY = 86_400  # seconds
NOTHING_LEFT = 1e-9  # a smaller excess is a rounding error
NOTHING_FOUND = 3.0  # price of any group in nats, so that noise gives no group in 95% of tables


@one_thread()  # the tasks are so small that several threads would mostly wait for each other
def find_groups(
    people: pd.DataFrame, shortfall: Any, clusters: Any = None, *, most: int = MAX_GROUPS
) -> list[Rule]:
    """Return groups with a credibly larger shortfall than others, in words, best first.

    The search tries all conjunctions of one and two conditions, and those of three that extend the
    best pairs. It takes the best one, explains the shortfall by the groups found so far, and
    searches the remaining shortfall, until nothing stands out. So no group is found twice. If
    nobody is worse off, nothing is found in at least 95% of tables.

    The worth of a conjunction is how unlikely its mean shortfall is by chance, by Bennett's
    inequality, as a logarithm, minus a price: the logarithm of the number of such conjunctions.

    Parameters
    ----------
    people : DataFrame of shape (n_samples, n_features)
        Canonical columns.
    shortfall : array of shape (n_samples,)
        How badly each row is served, larger is worse: 1 for a miss and 0 otherwise, for example.
    clusters : array of shape (n_samples,), optional
        Rows with equal numbers belong together. Every cluster counts once.
    most : int, default=8
        Maximum number of groups.

    Examples
    --------
    >>> from fareg._columns import canonical
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(1000, random_state=0)
    >>> people = canonical(data.X[["Color", "Gender", "Region"]])
    >>> for rule in find_groups(people, data.group):
    ...     print(rule.text)
    Color = Blue and Gender = Male
    Color = Red and Gender = Female
    """
    check_same_length(people=people, shortfall=shortfall)
    shortfall = np.asarray(shortfall, dtype=np.float64)
    rows = some_rows(len(people), MAX_ROWS)
    people, shortfall = people.iloc[rows], shortfall[rows]
    cluster = pd.factorize(rows if clusters is None else np.asarray(clusters)[rows])[0]
    # The features are sorted, so their order in the table cannot matter.
    features = [_Feature.learn(people[name]) for name in sorted(people.columns, key=str)]
    search = _Search([f for f in features if f.n_codes + f.has_missing > 1], shortfall, cluster)
    rules: list[Rule] = []
    while len(rules) < most and (found := search.best()):
        rules.append(search.rule(found))
        search.explain(found)
    return rules


Parts = dict[int, BoolArray]  # a conjunction: for each feature, by position, a mask of its codes


@dataclass(frozen=True, eq=False)
class _Feature:
    """One column as codes: ordered bins of a number, or categories of a text.

    A condition is a mask of the codes, with two more entries for missing values and rare
    categories.
    """

    name: str
    codes: IntArray  # (n,), n_codes stands for a missing value, n_codes + 1 for a rare category
    n_codes: int
    bounds: tuple[float, ...] | None  # of a number: code j ends at bound j
    categories: tuple[str, ...] | None  # of a text, or of a number with few values
    coarse: tuple[int, ...] = ()  # bounds at which the search begins
    is_date: bool = False

    @classmethod
    def learn(cls, column: pd.Series) -> _Feature:
        """Code a canonical column by its own values."""
        name, is_date = str(column.name), kind_of(column) == "date"
        if column.dtype != object:
            numbers = np.asarray(as_numbers(column))
            known = np.isfinite(numbers)
            values = np.unique(numbers[known])
            if len(values) > 2 or (len(values) and is_date):
                bounds, coarse = _bounds(np.sort(numbers[known]), values, is_date)
                codes = np.searchsorted(bounds, numbers, side="right" if is_date else "left")
                codes, few = np.where(known, codes, len(bounds) + 1), len(values) <= MAX_DISCRETE
                categories = tuple(as_text(pd.Series(values))) if few and not is_date else None
                return cls(name, codes, len(bounds) + 1, tuple(bounds), categories, coarse, is_date)
            column = pd.Series(np.where(known, numbers, np.nan))
        texts = pd.Series(np.asarray(as_text(column)), dtype=object)
        counts = texts.value_counts()
        kept = sorted(counts.index[counts >= MIN_CATEGORY_ROWS], key=lambda t: (-counts[t], t))
        categories = tuple(sorted(kept[:MAX_CATEGORIES]))
        codes = pd.Index(categories, dtype=object).get_indexer(pd.Index(texts, dtype=object))
        n = len(categories)
        codes = np.where(texts.isna(), n, np.where(codes < 0, n + 1, codes))
        return cls(name, codes, n, None, categories)

    @property
    def has_missing(self) -> bool:
        return bool((self.codes == self.n_codes).any())

    @property
    def present(self) -> BoolArray:
        return np.asarray(np.arange(self.n_codes + 2) != self.n_codes)

    def conditions(self) -> Iterator[BoolArray]:
        """Yield masks of the conditions to try, at least one of each two opposites."""
        single: BoolArray = np.eye(self.n_codes, self.n_codes + 2, dtype=bool)
        if self.has_missing:
            yield self.present
        for j in self.coarse:
            yield np.asarray(single[j + 1 :].any(axis=0))
        if self.categories is not None:
            yield from single

    def other_bounds(self, mask: BoolArray) -> BoolArray:
        """Return masks of the interval with one bound moved, one in each row."""
        known, code = mask[: self.n_codes], np.arange(self.n_codes + 2)
        if self.bounds is None or not _is_interval(known) or known.all():
            return np.empty((0, len(code)), dtype=bool)
        inside = np.flatnonzero(known)
        low, high = int(inside[0]), int(inside[-1]) + 1
        lows = np.arange(1, high if low else 1)[:, None]
        highs = np.arange(low + 1, self.n_codes if high < self.n_codes else low + 1)[:, None]
        return np.concatenate(
            [(code >= lows) & (code < high), (code >= low) & (code < highs)], dtype=bool
        )

    def prices(self, masks: BoolArray) -> FloatArray:
        """Return the logarithm of the number of conditions like each mask.

        It counts the choices of bounds, or of categories to list or to leave out.
        """
        known = masks[:, : self.n_codes]
        n = known.sum(axis=1)
        listed = _list_prices(self.n_codes)[n]
        if self.bounds is None:
            return np.asarray(listed)
        starts = known[:, 0] + (known[:, 1:] & ~known[:, :-1]).sum(axis=1)
        n_bounds = (known[:, 1:] != known[:, :-1]).sum(axis=1)
        is_bounded = (starts == 1) & ((n != 1) | (self.categories is None))
        bounded = np.maximum(n_bounds, 1) * log(min(2 * max(1, len(self.coarse)), MAX_BOUNDS))
        return np.asarray(np.where(is_bounded, bounded, listed))

    def condition(self, mask: BoolArray) -> Condition:
        """Return the condition in words."""
        known = mask[: self.n_codes]
        if not known.any() or (known.all() and self.has_missing):
            missing = bool(mask[self.n_codes])
            return Condition(self.name, (), not missing, missing=missing)
        inside = np.flatnonzero(known)
        is_inner = len(inside) == 1 and not known[-1]
        if self.bounds is None or not _is_interval(known) or (self.categories and is_inner):
            assert self.categories is not None
            is_excluding = 2 * len(inside) > len(known)
            if not self.bounds and (self.codes == self.n_codes + 1).any():
                is_excluding = bool(mask[-1])  # the condition includes rare categories
            listed = [self.categories[j] for j in np.flatnonzero(known != is_excluding)]
            order = np.argsort(np.nan_to_num(spelled_numbers(listed), nan=np.inf), kind="stable")
            return Condition(self.name, tuple(listed[j] for j in order), is_excluding)
        bounds = (-np.inf, *self.bounds, np.inf)
        low, high = bounds[inside[0]], bounds[inside[-1] + 1]
        is_date, has_low = self.is_date, self.is_date and low > -np.inf
        has_high = not is_date or high == np.inf
        return Condition(self.name, None, False, low, high, has_low, has_high, is_date)


def _is_interval(known: BoolArray) -> bool:
    inside = np.flatnonzero(known)
    return len(inside) > 0 and int(np.ptp(inside)) + 1 == len(inside)


@cache
def _list_prices(n: int) -> FloatArray:
    """Return the price of listing 0, 1, ..., n of n categories, or of leaving them out."""
    k = np.arange(n + 1)
    lists = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    # The worst list of n categories, sorted by their mean, is worth about 0.3 n on noise.
    least = log(max(1, n)) + 0.3 * n
    return np.asarray(np.minimum(lists, least) + np.where(2 * k == n, 0.0, log(2)))


def _bounds(
    finite: FloatArray, values: FloatArray, is_date: bool
) -> tuple[list[float], tuple[int, ...]]:
    """Return the bounds of a number, and which of them begin the search."""
    if len(values) <= MAX_DISCRETE:
        cuts = {i: _bound(values, i, i, is_date) for i in range(len(values) - 1)}
        coarse = set(cuts)
    else:  # a round number within a hundredth of the rows is as good as the quantile
        n, coarse, q = len(finite), set(COARSE), np.arange(1, FINE)
        near = -(-q * n // FINE) - 1 + np.array([[-1], [1]]) * (n // 200)
        ends = np.searchsorted(values, finite[np.clip(near, 0, n - 1)]).T.tolist()
        cuts = {i: _bound(values, first, last, is_date) for i, (first, last) in enumerate(ends, 1)}
    bounds = sorted({t for t in cuts.values() if t < values[-1]})
    return bounds, tuple(sorted({bounds.index(cuts[q]) for q in coarse if cuts[q] in bounds}))


def _bound(values: FloatArray, first: int, last: int, is_date: bool) -> float:
    """Return a bound with few digits between two of the sorted values, or just above the first."""
    below, above = float(values[first]), float(values[min(max(last, first + 1), len(values) - 1)])
    middle = below / 2 + above / 2
    if is_date:  # midnight, or else the next value
        return min((middle // DAY + 1) * DAY, above)
    if last > first + 1:
        rounded = (float(f"{middle:.{digits}g}") for digits in (1, 2, 3))
        if (bound := next((t for t in rounded if below <= t < above), None)) is not None:
            return bound
    return shortest_between(below, above, below, middle)


class _Search:
    """The rows that are searched, and the shortfall that is not explained yet."""

    def __init__(self, features: list[_Feature], shortfall: FloatArray, cluster: IntArray) -> None:
        self.features, self.shortfall, self.cluster = features, shortfall, cluster
        sizes = np.bincount(cluster, minlength=1)
        self.weight = 1 / sizes[cluster] if len(cluster) else np.empty(0)
        self.total = float(self.weight.sum())
        self.is_binary = len(np.unique(shortfall)) <= 2 and bool((self.weight == 1).all())
        # the price of any group, plus that of choosing so many features
        subsets = [comb(max(k, len(features)), k) for k in range(MAX_FEATURES + 2)]
        self.price_of_features = NOTHING_FOUND + np.log(subsets)
        self.cell = np.zeros(len(cluster), dtype=np.int64)  # of the groups found so far
        self.explain({})
        self.conditions = self._promising()

    def explain(self, parts: Parts) -> None:
        """Subtract the mean shortfall of each cell that the groups found so far make."""
        _, self.cell = np.unique(2 * self.cell + self.inside(parts), return_inverse=True)
        weight = np.bincount(self.cell, self.weight)
        mean = np.bincount(self.cell, self.weight * self.shortfall) / np.maximum(weight, 1e-300)
        self.excess = self.shortfall - mean[self.cell]
        cluster_sums = np.bincount(self.cluster, self.weight * self.excess)
        # The variance of a row's excess, or of the mean over a cluster, which counts as one row.
        self.variance = float(cluster_sums @ cluster_sums) / max(1.0, self.total)
        self.largest = float(self.excess.max(initial=0.0))
        self.summed = np.array([self.weight, self.weight * self.excess])

    def rule(self, parts: Parts) -> Rule:
        """Return a conjunction in words."""
        return Rule(tuple(self.features[j].condition(parts[j]) for j in sorted(parts)))

    def inside(self, parts: Parts) -> BoolArray:
        """Return a mask of the rows that meet all conditions."""
        masks = [parts[j][self.features[j].codes] for j in parts]
        return np.logical_and.reduce(masks) if masks else np.ones(len(self.weight), dtype=bool)

    def evidence(self, weight: Any, excess: Any, least_variance: Any = 0.0) -> Any:
        """Return minus the logarithm of the probability of so much excess in groups by chance.

        P(sum of excess >= t) <= exp(-V / b^2 h(b t / V)), h(x) = (1 + x) log(1 + x) - x, if the sum
        has variance V and no term exceeds b (Bennett). Groups too small or too large get -inf.
        """
        b, share = self.largest, weight / max(self.total, 1.0)
        variance = np.maximum(self.variance * weight, least_variance)
        variance = np.maximum(variance * (1 - share), 1e-12 * b * b)
        x = b * np.maximum(excess, 0.0) / variance
        worth = variance / (b * b) * ((1 + x) * np.log1p(x) - x)
        is_minority = (share >= MIN_SHARE) & (share <= MAX_SHARE) & (weight >= MIN_ROWS - 0.01)
        return np.where(is_minority, worth, -np.inf)

    def worth(self, parts: Parts) -> float:
        """Return the evidence for one conjunction minus its price.

        The mean of misses determines their variance. Another shortfall may vary more in some
        groups, and rows of a cluster vary together, so the variance within the group counts too.
        """
        rows, variance = self.inside(parts), 0.0
        weight, excess = self.summed[:, rows].sum(axis=1)
        if not self.is_binary and weight:
            deviation = self.excess[rows] - excess / weight
            cluster_sums = np.bincount(self.cluster[rows], self.weight[rows] * deviation)
            variance = float(cluster_sums @ cluster_sums)
        price = sum(self.features[j].prices(mask[None])[0] for j, mask in parts.items())
        evidence = self.evidence(weight, excess, variance)
        return float(evidence - price) - float(self.price_of_features[len(parts)])

    def _sums_by_code(self, feature: _Feature, inside: Any = slice(None)) -> FloatArray:
        """Return weight and excess of the rows inside with each code, shape (2, n_codes + 2)."""
        rows = inside if isinstance(inside, slice) else np.flatnonzero(inside)
        codes, size = feature.codes[rows], feature.n_codes + 2
        return np.array([np.bincount(codes, values[rows], size) for values in self.summed])

    def _promising(self) -> list[tuple[int, BoolArray]]:
        """Return the conditions with the largest effects, at most ``MAX_CONDITIONS``."""
        found: list[tuple[float, int, BoolArray]] = []
        least = max(MIN_ROWS - 0.01, MIN_SHARE * self.total)
        for j, feature in enumerate(self.features):
            weight, excess = self._sums_by_code(feature)
            for mask in feature.conditions():
                n = float(mask @ weight)
                if least <= n <= self.total - min(least, 1.0):
                    effect = abs(mask @ excess) / np.sqrt(max(n * (1 - n / self.total), 1e-9))
                    found.append((-round(float(effect), 9), j, mask))
        kept = sorted(range(len(found)), key=lambda i: found[i][0])[:MAX_CONDITIONS]
        return [found[i][1:] for i in sorted(kept)]

    def best(self) -> Parts | None:
        """Return the conjunction with the largest worth above zero, or None."""
        conditions = [*self.conditions, *self._best_lists()] if self.largest >= NOTHING_LEFT else []
        if not conditions:
            return None
        terms = _Terms(self, conditions)
        tried = _distinct(map(self._improved, terms.candidates()))
        tried = _distinct(map(self._improved, terms.extended(tried))) if tried else []
        worth = [(round(self.worth(parts), 6), parts) for parts in tried]
        # Of equally good conjunctions, take the first in alphabetical order.
        value, best = min(
            worth, key=lambda pair: (-pair[0], self.rule(pair[1]).text), default=(0.0, {})
        )
        return self._shortened(best) if value > 0 else None

    def _shortened(self, parts: Parts) -> Parts:
        """Drop conditions that exclude hardly anyone: those rows may have been lucky."""
        for j in sorted(parts):
            shorter = _without(parts, j)
            n, n_shorter = (self.weight[self.inside(p)].sum() for p in (parts, shorter))
            if n >= NEARLY_ALL * n_shorter and shorter and self.worth(shorter) > 0:
                parts = shorter
        return parts

    def _improved(self, parts: Parts) -> Parts:
        """Change bounds and lists of categories, one feature at a time, while worth increases."""
        for _ in range(2):
            before = parts
            for j in sorted(parts):
                feature = self.features[j]
                sums = self._sums_by_code(feature, self.inside(_without(parts, j)))
                lists = self._lists(feature, *sums)
                masks = np.array([parts[j], *feature.other_bounds(parts[j]), *lists])
                best = self._best_mask(feature, masks, sums)
                parts = {**parts, j: masks[best] if best else parts[j]}
            if len(parts) == 1 or all(parts[j] is before[j] for j in parts):
                break
        return parts

    def _best_mask(self, feature: _Feature, masks: BoolArray, sums: FloatArray) -> int:
        """Return the position of the best condition of a feature, the first of equal ones."""
        worth = self.evidence(*(masks @ values for values in sums)) - feature.prices(masks)
        return int(np.argmax(np.round(worth, 6)))

    def _lists(self, feature: _Feature, weight: FloatArray, excess: FloatArray) -> list[BoolArray]:
        """Return masks of the 1, 2, ... worst categories that are worse off by themselves."""
        n = feature.n_codes
        if feature.categories is None or n < 3:
            return []
        error = np.sqrt(np.maximum(self.variance * weight[:n], 1e-300))
        supported = np.flatnonzero(excess[:n] > SUPPORT * error)
        mean = np.round(excess[supported] / np.maximum(weight[supported], 1e-9), 9)
        order = supported[np.argsort(-mean, kind="stable")][: min(MAX_LISTED, n - 1)]
        lists = np.tri(len(order), dtype=bool)
        return list(lists @ np.eye(n + 2, dtype=bool)[order]) if len(order) else []

    def _best_lists(self) -> Iterator[tuple[int, BoolArray]]:
        """Yield the best list of two or more categories of each feature."""
        for j, feature in enumerate(self.features):
            sums = self._sums_by_code(feature)
            lists = np.array(self._lists(feature, *sums)[1:])
            if len(lists):
                yield j, lists[self._best_mask(feature, lists, sums)]


class _Terms:
    """The conditions of one round and their opposites, and sums over any two of them.

    Codes of a feature that no condition separates form an atom. The sums over the rows of every
    pair of atoms, a matrix product, determine those of all pairs of conditions.
    """

    def __init__(self, search: _Search, conditions: list[tuple[int, BoolArray]]) -> None:
        self.search = search
        by_feature: dict[int, dict[bytes, BoolArray]] = {}
        for j, mask in conditions:
            present = search.features[j].present
            opposite = ~mask if np.array_equal(mask, present) else present & ~mask
            by_feature.setdefault(j, {}).update({m.tobytes(): m for m in (mask, opposite)})
        tables = {j: np.array(list(masks.values())) for j, masks in by_feature.items()}
        self.terms = [(j, mask) for j, table in tables.items() for mask in table]
        self.feature = np.array([j for j, _ in self.terms])
        self.price = np.concatenate([search.features[j].prices(t) for j, t in tables.items()])
        atoms = {j: np.unique(table, axis=1, return_inverse=True) for j, table in tables.items()}
        # (n_terms, n_atoms) whether a term includes an atom; single precision is fast
        self.includes = block_diag(*(table for table, _ in atoms.values())).astype(np.float32)
        rows = [
            np.arange(table.shape[1])[:, None] == which.ravel()[search.features[j].codes]
            for j, (table, which) in atoms.items()
        ]
        self.rows = np.concatenate(rows, dtype=np.float32, casting="unsafe")  # (n_atoms, n)

    def sums(self, rows: Any) -> list[FloatArray]:
        """Return weight and excess of the rows of each conjunction that meet each term."""
        return [
            ((rows * values) @ self.rows.T @ self.includes.T).astype(np.float64)
            for values in self.search.summed.astype(np.float32)
        ]

    def pairs(self) -> FloatArray:
        """Return the worth of each pair of terms, and of single terms on the diagonal."""
        sums = [self.includes @ values.astype(np.float32) for values in self.sums(self.rows)]
        by_number, is_other = self.search.price_of_features, self.feature[:, None] != self.feature
        price = self.price[:, None] + self.price + by_number[1 + is_other]
        np.fill_diagonal(price, self.price + by_number[1])
        worth = self.search.evidence(*(values.astype(np.float64) for values in sums)) - price
        worth[np.tri(len(worth), k=-1, dtype=bool)] = -np.inf
        return np.asarray(worth)

    def triples(self, pairs: IntArray) -> FloatArray:
        """Return the worth of each pair with each further term, shape (m, n_terms)."""
        rows = np.array([self.search.inside(self.parts(pair)) for pair in pairs.tolist()])
        first, second = self.feature[pairs].T[:, :, None]
        n_features = 1 + (first != second) + ((first != self.feature) & (second != self.feature))
        price = self.price[pairs].sum(axis=1)[:, None] + self.price
        price = price + self.search.price_of_features[n_features]
        return np.asarray(self.search.evidence(*self.sums(rows)) - price)

    def candidates(self) -> list[Parts]:
        """Return the best conjunctions of one, two and three terms."""
        pairs = _largest(self.pairs(), MAX_TRIPLED)
        found = [tuple(pair) for pair in pairs[:N_TRIED].tolist()]
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        if len(pairs):
            best = _largest(self.triples(pairs), 3 * N_TRIED).tolist()
            triples = dict.fromkeys(tuple(sorted({*pairs[i].tolist(), k})) for i, k in best)
            found += [triple for triple in triples if len(triple) == 3][:N_TRIED]
        return [self.parts(chosen) for chosen in found]

    def extended(self, several: list[Parts]) -> Iterator[Parts]:
        """Yield conjunctions with a condition added or dropped, if that increases their worth."""
        sums = self.sums(np.array([self.search.inside(parts) for parts in several]))
        gains = np.round(self.search.evidence(*sums) - self.price, 6)
        for parts, gain in zip(several, gains, strict=True):
            options = [parts, *(_without(parts, j) for j in parts)]
            if len(parts) < MAX_FEATURES:
                j, mask = self.terms[int(np.argmax(gain))]
                options.append({**parts, j: mask & parts.get(j, True)})
            yield max(filter(None, options), key=lambda option: round(self.search.worth(option), 6))

    def parts(self, chosen: Iterable[int]) -> Parts:
        """Return the conjunction of some terms."""
        parts: Parts = {}
        for j, mask in (self.terms[i] for i in chosen):
            parts[j] = mask & parts.get(j, True)
        return parts


def _without(parts: Parts, feature: int) -> Parts:
    return {j: mask for j, mask in parts.items() if j != feature}


def _distinct(several: Iterable[Parts]) -> list[Parts]:
    return list({tuple((j, p[j].tobytes()) for j in sorted(p)): p for p in several}.values())


def _largest(worth: FloatArray, most: int) -> IntArray:
    """Return rows and columns of the largest finite entries of a table, largest first: (m, 2)."""
    flat = worth.ravel()
    top = np.argpartition(-flat, most)[:most] if len(flat) > most else np.arange(len(flat))
    top = top[np.isfinite(flat[top])]
    top = top[np.lexsort((top, -flat[top]))]
    return np.transpose(np.unravel_index(top, worth.shape))


def is_far_below(coverage: float, high: float, confidence_level: float) -> bool:
    """Return whether a group's coverage, and the upper end of its interval, deserve a name.

    At 99%, a gap of 0.04 would be five times the promised errors: above 90%, gaps shrink with them.

    >>> is_far_below(0.82, 0.85, 0.9), is_far_below(0.876, 0.88, 0.9), is_far_below(0.8, 0.89, 0.9)
    (True, False, False)
    >>> is_far_below(0.985, 0.987, 0.99), is_far_below(0.987, 0.987, 0.99)
    (True, False)
    """
    scale = min(1.0, round((1 - confidence_level) / 0.1, 9))
    gap, margin = MIN_GAP * scale, MARGIN * scale
    return coverage <= confidence_level - gap and high <= confidence_level - margin
