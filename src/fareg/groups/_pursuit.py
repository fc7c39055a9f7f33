"""Who is worse off, in words: a pursuit of conjunctions of conditions."""

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

MIN_SHARE, MAX_SHARE = 0.005, 0.55  # of the rows: a group that is named is a minority
# Coverage must lie MIN_GAP below the level, and its whole 95% interval MARGIN below it.
MIN_GAP = 0.04
MARGIN = 0.02
MIN_ROWS = 30  # rows of a group, clusters if there are any
MAX_GROUPS = 8
MAX_ROWS = 20_000  # a larger table is searched in as many rows, drawn at random
MAX_CONDITIONS = 180  # that are combined with each other, without their opposites
MAX_TRIPLED = 150  # pairs that are extended by a third condition; all of them if there are few
N_TRIED = 8  # pairs, and triples, whose bounds and lists are improved before one is chosen
FINE = 80  # quantiles at which a number may be cut
COARSE = (4, 10, 20, 30, 40, 50, 60, 70, 76)  # those of them at which the search begins
MAX_DISCRETE = 10  # a number with as few values is cut between all of them
MIN_LEVEL_ROWS = 10  # a level with fewer rows is never listed
MAX_LEVELS = 60
MAX_LISTED = 20
SUPPORT = 1.0  # standard errors by which each listed level must be worse off by itself
MAX_FEATURES = 4  # that one rule names
NEARLY_ALL = 0.9  # share of the rows from which on a condition says too little
MAX_BOUNDS = 8  # bounds of a number resemble each other: they count as so many at most
DAY = 86_400  # seconds
NOTHING_LEFT = 1e-9  # a smaller excess is a rounding error
NOTHING_FOUND = 3.0  # nats that any group costs, so that noise gives nothing in 95% of tables


@one_thread()  # threads wait for each other longer than these small pieces of work take
def find_groups(
    people: pd.DataFrame, shortfall: Any, clusters: Any = None, *, most: int = MAX_GROUPS
) -> list[Rule]:
    """Return groups whose shortfall is credibly larger than that of others, in words, best first.

    The search tries all conjunctions of one and two conditions, and those of three that extend the
    best pairs, takes the best one, explains the shortfall by the groups found so far, and searches
    what is left, until nothing stands out. So no group is said twice. Where nobody is worse off,
    nothing is found in at least 95% of tables.

    A conjunction is worth the logarithm of how unlikely its mean shortfall is by chance, by
    Bennett's inequality, minus a price: the logarithm of the number of conjunctions of its kind.

    Parameters
    ----------
    people : DataFrame of shape (n_samples, n_features)
        Canonical columns.
    shortfall : array of shape (n_samples,)
        How badly each row is served, larger is worse: 1 for a miss and 0 otherwise, for example.
    clusters : array of shape (n_samples,), optional
        Rows with equal numbers depend on each other. Every cluster counts once.
    most : int, default=8
        Number of groups after which the search ends.

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
    of = rows if clusters is None else np.asarray(clusters)[rows]
    cluster = pd.factorize(of)[0]
    # The features are sorted, so their order in the table cannot matter.
    features = [_Feature.of(people[name]) for name in sorted(people.columns, key=str)]
    search = _Search([f for f in features if f.n_codes + f.has_missing > 1], shortfall, cluster)
    rules: list[Rule] = []
    while len(rules) < most and (found := search.best()):
        rules.append(search.rule(found))
        search.explain(found)
    return rules


Parts = dict[int, BoolArray]  # a conjunction: which codes of a feature are meant, by its position


@dataclass(frozen=True, eq=False)
class _Feature:
    """One column as codes: bins of a number in order, or levels of a text.

    Which codes a condition means is said by an array with two more entries, for missing values and
    for rare levels.
    """

    name: str
    codes: IntArray  # (n,), n_codes stands for a missing value, n_codes + 1 for a rare level
    n_codes: int
    bounds: tuple[float, ...] | None  # of a number: code j ends at bound j
    levels: tuple[str, ...] | None  # of a text, or of a number with few values
    coarse: tuple[int, ...] = ()  # bounds at which the search begins
    is_date: bool = False

    @classmethod
    def of(cls, column: pd.Series) -> _Feature:
        """Code a canonical column, from its values alone."""
        name, is_date = str(column.name), kind_of(column) == "date"
        if column.dtype != object:
            numbers = np.asarray(as_numbers(column))
            known = np.isfinite(numbers)
            values = np.unique(numbers[known])
            if len(values) > 2 or (len(values) and is_date):
                bounds, coarse = _bounds(np.sort(numbers[known]), values, is_date)
                codes = np.searchsorted(bounds, numbers, side="right" if is_date else "left")
                codes, few = np.where(known, codes, len(bounds) + 1), len(values) <= MAX_DISCRETE
                levels = tuple(as_text(pd.Series(values))) if few and not is_date else None
                return cls(name, codes, len(bounds) + 1, tuple(bounds), levels, coarse, is_date)
            column = pd.Series(np.where(known, numbers, np.nan))
        texts = pd.Series(np.asarray(as_text(column)), dtype=object)
        counts = texts.value_counts()
        kept = sorted(counts.index[counts >= MIN_LEVEL_ROWS], key=lambda t: (-counts[t], t))
        levels = tuple(sorted(kept[:MAX_LEVELS]))
        codes = pd.Index(levels, dtype=object).get_indexer(pd.Index(texts, dtype=object))
        codes = np.where(codes < 0, len(levels) + 1, codes)
        return cls(name, np.where(texts.isna(), len(levels), codes), len(levels), None, levels)

    @property
    def has_missing(self) -> bool:
        return bool((self.codes == self.n_codes).any())

    @property
    def present(self) -> BoolArray:
        return np.asarray(np.arange(self.n_codes + 2) != self.n_codes)

    def conditions(self) -> Iterator[BoolArray]:
        """Yield the conditions that are tried, of each two opposites at least one."""
        one: BoolArray = np.eye(self.n_codes, self.n_codes + 2, dtype=bool)
        if self.has_missing:
            yield self.present
        for j in self.coarse:
            yield np.asarray(one[j + 1 :].any(axis=0))
        if self.levels is not None:
            yield from one

    def other_bounds(self, meant: BoolArray) -> BoolArray:
        """Return intervals with other bounds on the same sides, one in each row."""
        known, place = meant[: self.n_codes], np.arange(self.n_codes + 2)
        if self.bounds is None or not _is_interval(known) or known.all():
            return np.empty((0, len(place)), dtype=bool)
        inside = np.flatnonzero(known)
        low, high = int(inside[0]), int(inside[-1]) + 1
        lows = np.arange(1, high if low else 1)[:, None]
        highs = np.arange(low + 1, self.n_codes if high < self.n_codes else low + 1)[:, None]
        return np.concatenate(
            [(place >= lows) & (place < high), (place >= low) & (place < highs)], dtype=bool
        )

    def prices(self, meant: BoolArray) -> FloatArray:
        """Return the logarithm of the number of conditions like each row of ``meant``.

        It counts the bounds of an interval, or which levels are listed, or left out.
        """
        known = meant[:, : self.n_codes]
        n = known.sum(axis=1)
        listed = _list_prices(self.n_codes)[n]
        if self.bounds is None:
            return np.asarray(listed)
        starts = known[:, 0] + (known[:, 1:] & ~known[:, :-1]).sum(axis=1)
        n_bounds = (known[:, 1:] != known[:, :-1]).sum(axis=1)
        is_bounded = (starts == 1) & ((n != 1) | (self.levels is None))
        bounded = np.maximum(n_bounds, 1) * log(min(2 * max(1, len(self.coarse)), MAX_BOUNDS))
        return np.asarray(np.where(is_bounded, bounded, listed))

    def condition(self, meant: BoolArray) -> Condition:
        """Return the condition in words."""
        known = meant[: self.n_codes]
        if not known.any() or (known.all() and self.has_missing):
            missing = bool(meant[self.n_codes])
            return Condition(self.name, (), not missing, missing=missing)
        inside = np.flatnonzero(known)
        is_inner = len(inside) == 1 and not known[-1]
        if self.bounds is None or not _is_interval(known) or (self.levels and is_inner):
            assert self.levels is not None
            is_excluding = 2 * len(inside) > len(known)
            if not self.bounds and (self.codes == self.n_codes + 1).any():
                is_excluding = bool(meant[-1])  # as the rare levels say
            listed = [self.levels[j] for j in np.flatnonzero(known != is_excluding)]
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
    """Return the price of a list of 0, 1, ..., n of n levels, or of all others."""
    k = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    # Sorted by their mean, n levels of noise are worth about .3 n as a list.
    least = log(max(1, n)) + 0.3 * n
    return np.asarray(np.minimum(ways, least) + np.where(2 * k == n, 0.0, log(2)))


def _bounds(
    finite: FloatArray, values: FloatArray, is_date: bool
) -> tuple[list[float], tuple[int, ...]]:
    """Return where a number may be cut, and which of these cuts begin the search."""
    if len(values) <= MAX_DISCRETE:
        cuts = {i: _bound(values, i, i, is_date) for i in range(len(values) - 1)}
        coarse = set(cuts)
    else:  # A round number within a hundredth of the rows is as good as the quantile.
        n, coarse, q = len(finite), set(COARSE), np.arange(1, FINE)
        near = -(-q * n // FINE) - 1 + np.array([[-1], [1]]) * (n // 200)
        ends = np.searchsorted(values, finite[np.clip(near, 0, n - 1)]).T.tolist()
        cuts = {i: _bound(values, first, last, is_date) for i, (first, last) in enumerate(ends, 1)}
    bounds = sorted({t for t in cuts.values() if t < values[-1]})
    return bounds, tuple(sorted({bounds.index(cuts[q]) for q in coarse if cuts[q] in bounds}))


def _bound(values: FloatArray, first: int, last: int, is_date: bool) -> float:
    """Return a bound with few digits between two of the ordered values, or just above the first."""
    below, above = float(values[first]), float(values[min(max(last, first + 1), len(values) - 1)])
    middle = below / 2 + above / 2
    if is_date:  # midnight, or else the next value
        return min((middle // DAY + 1) * DAY, above)
    if last > first + 1:
        rounded = (float(f"{middle:.{digits}g}") for digits in (1, 2, 3))
        if (round_one := next((t for t in rounded if below <= t < above), None)) is not None:
            return round_one
    return shortest_between(below, above, below, middle)


class _Search:
    """The rows that are searched, and how much of their shortfall is explained so far."""

    def __init__(self, features: list[_Feature], shortfall: FloatArray, cluster: IntArray) -> None:
        self.features, self.shortfall, self.cluster = features, shortfall, cluster
        n_of = np.bincount(cluster, minlength=1)
        self.weight = 1 / n_of[cluster] if len(cluster) else np.empty(0)
        self.total = float(self.weight.sum())
        self.is_plain = len(np.unique(shortfall)) <= 2 and bool((self.weight == 1).all())
        # the price of choosing so many features, with that of any group at all
        ways = [comb(max(k, len(features)), k) for k in range(MAX_FEATURES + 2)]
        self.price_of_features = NOTHING_FOUND + np.log(ways)
        self.cell = np.zeros(len(cluster), dtype=np.int64)  # of the groups found so far
        self.explain({})
        self.conditions = self._promising()

    def explain(self, parts: Parts) -> None:
        """Let the shortfall that is expected be that of the cells of all groups so far."""
        _, self.cell = np.unique(2 * self.cell + self.inside(parts), return_inverse=True)
        weight = np.bincount(self.cell, self.weight)
        mean = np.bincount(self.cell, self.weight * self.shortfall) / np.maximum(weight, 1e-300)
        self.excess = self.shortfall - mean[self.cell]
        of_cluster = np.bincount(self.cluster, self.weight * self.excess)
        # The variance of a row's excess, or of the mean over a cluster, which counts as one row.
        self.variance = float(of_cluster @ of_cluster) / max(1.0, self.total)
        self.largest = float(self.excess.max(initial=0.0))
        self.summed = np.array([self.weight, self.weight * self.excess])

    def rule(self, parts: Parts) -> Rule:
        """Return a conjunction in words."""
        return Rule(tuple(self.features[j].condition(parts[j]) for j in sorted(parts)))

    def inside(self, parts: Parts) -> BoolArray:
        """Tell which rows fulfil all conditions."""
        meant = [parts[j][self.features[j].codes] for j in parts]
        return np.logical_and.reduce(meant) if meant else np.ones(len(self.weight), dtype=bool)

    def evidence(self, weight: Any, excess: Any, own: Any = 0.0) -> Any:
        """Return minus the logarithm of the chance of so much excess in groups of this weight.

        P(sum of excess >= t) <= exp(-V / b^2 h(b t / V)), h(x) = (1 + x) log(1 + x) - x, if the sum
        has variance V and no term exceeds b (Bennett). Groups too small or too large get -inf.
        """
        b, share = self.largest, weight / max(self.total, 1.0)
        spread = np.maximum(self.variance * weight, own)
        spread = np.maximum(spread * (1 - share), 1e-12 * b * b)
        x = b * np.maximum(excess, 0.0) / spread
        worth = spread / (b * b) * ((1 + x) * np.log1p(x) - x)
        is_minority = (share >= MIN_SHARE) & (share <= MAX_SHARE) & (weight >= MIN_ROWS - 0.01)
        return np.where(is_minority, worth, -np.inf)

    def worth(self, parts: Parts) -> float:
        """Return what one conjunction is worth beyond its price.

        Misses have the variance that their mean says. Another shortfall may vary more in some
        groups, and rows of a cluster vary together, so the variance of their own rows counts, too.
        """
        rows, spread = self.inside(parts), 0.0
        weight, excess = self.summed[:, rows].sum(axis=1)
        if not self.is_plain and weight:
            own = self.excess[rows] - excess / weight
            of_cluster = np.bincount(self.cluster[rows], self.weight[rows] * own)
            spread = float(of_cluster @ of_cluster)
        each = sum(self.features[j].prices(meant[None])[0] for j, meant in parts.items())
        evidence = self.evidence(weight, excess, spread)
        return float(evidence - each) - float(self.price_of_features[len(parts)])

    def _by_code(self, feature: _Feature, inside: Any = slice(None)) -> FloatArray:
        """Return the sums over the rows inside that have each code, shape (2, n_codes + 2)."""
        rows = inside if isinstance(inside, slice) else np.flatnonzero(inside)
        codes, size = feature.codes[rows], feature.n_codes + 2
        return np.array([np.bincount(codes, own[rows], size) for own in self.summed])

    def _promising(self) -> list[tuple[int, BoolArray]]:
        """Return the conditions that matter most by themselves, if there are too many."""
        found: list[tuple[float, int, BoolArray]] = []
        least = max(MIN_ROWS - 0.01, MIN_SHARE * self.total)
        for j, feature in enumerate(self.features):
            weight, excess = self._by_code(feature)
            for meant in feature.conditions():
                n = float(meant @ weight)
                if least <= n <= self.total - min(least, 1.0):
                    promise = abs(meant @ excess) / np.sqrt(max(n * (1 - n / self.total), 1e-9))
                    found.append((-round(float(promise), 9), j, meant))
        kept = sorted(range(len(found)), key=lambda i: found[i][0])[:MAX_CONDITIONS]
        return [found[i][1:] for i in sorted(kept)]

    def best(self) -> Parts | None:
        """Return the conjunction that is worth most beyond its price, or None."""
        conditions = [*self.conditions, *self._listed()] if self.largest >= NOTHING_LEFT else []
        if not conditions:
            return None
        terms = _Terms(self, conditions)
        tried = _distinct(map(self._improved, terms.candidates()))
        tried = _distinct(map(self._improved, terms.extended(tried))) if tried else []
        worth = [(round(self.worth(parts), 6), parts) for parts in tried]
        # Of equally good conjunctions the one that comes first in the alphabet.
        value, best = min(
            worth, key=lambda pair: (-pair[0], self.rule(pair[1]).text), default=(0.0, {})
        )
        return self._plain(best) if value > 0 else None

    def _plain(self, parts: Parts) -> Parts:
        """Leave out conditions that exclude hardly anyone, who may have been lucky."""
        for j in sorted(parts):
            shorter = _without(parts, j)
            n, n_shorter = (self.weight[self.inside(p)].sum() for p in (parts, shorter))
            if n >= NEARLY_ALL * n_shorter and shorter and self.worth(shorter) > 0:
                parts = shorter
        return parts

    def _improved(self, parts: Parts) -> Parts:
        """Move bounds and lists of levels, one feature at a time, while that is worth more."""
        for _ in range(2):
            before = parts
            for j in sorted(parts):
                feature = self.features[j]
                sums = self._by_code(feature, self.inside(_without(parts, j)))
                lists = self._lists(feature, *sums)
                table = np.array([parts[j], *feature.other_bounds(parts[j]), *lists])
                best = self._best_of(feature, table, sums)
                parts = {**parts, j: table[best] if best else parts[j]}
            if len(parts) == 1 or all(parts[j] is before[j] for j in parts):
                break
        return parts

    def _best_of(self, feature: _Feature, table: BoolArray, sums: FloatArray) -> int:
        """Return which condition of a feature is worth most, the first of equal ones."""
        worth = self.evidence(*(table @ own for own in sums)) - feature.prices(table)
        return int(np.argmax(np.round(worth, 6)))

    def _lists(self, feature: _Feature, weight: FloatArray, excess: FloatArray) -> list[BoolArray]:
        """Return lists of the worst levels, each of which is worse off by itself."""
        n = feature.n_codes
        if feature.levels is None or n < 3:
            return []
        error = np.sqrt(np.maximum(self.variance * weight[:n], 1e-300))
        supported = np.flatnonzero(excess[:n] > SUPPORT * error)
        mean = np.round(excess[supported] / np.maximum(weight[supported], 1e-9), 9)
        order = supported[np.argsort(-mean, kind="stable")][: min(MAX_LISTED, n - 1)]
        lists = np.tri(len(order), dtype=bool)
        return list(lists @ np.eye(n + 2, dtype=bool)[order]) if len(order) else []

    def _listed(self) -> Iterator[tuple[int, BoolArray]]:
        """Yield for each text the list of levels that is worth most by itself."""
        for j, feature in enumerate(self.features):
            sums = self._by_code(feature)
            lists = np.array(self._lists(feature, *sums)[1:])
            if len(lists):
                yield j, lists[self._best_of(feature, lists, sums)]


class _Terms:
    """The conditions of one round and their opposites, and sums over any two of them.

    Codes of a feature between which no condition tells a difference are one atom. The sums over the
    rows of every pair of atoms, a matrix product, are all that pairs of conditions need.
    """

    def __init__(self, search: _Search, conditions: list[tuple[int, BoolArray]]) -> None:
        self.search = search
        by_feature: dict[int, dict[bytes, BoolArray]] = {}
        for j, meant in conditions:
            present = search.features[j].present
            opposite = ~meant if np.array_equal(meant, present) else present & ~meant
            by_feature.setdefault(j, {}).update({m.tobytes(): m for m in (meant, opposite)})
        tables = {j: np.array(list(own.values())) for j, own in by_feature.items()}
        self.terms = [(j, meant) for j, table in tables.items() for meant in table]
        self.feature = np.array([j for j, _ in self.terms])
        self.price = np.concatenate([search.features[j].prices(t) for j, t in tables.items()])
        atoms = {j: np.unique(table, axis=1, return_inverse=True) for j, table in tables.items()}
        self.means = block_diag(*(own for own, _ in atoms.values())).astype(np.float32)
        # which rows each atom means, in single precision: fast
        rows = [
            np.arange(own.shape[1])[:, None] == which.ravel()[search.features[j].codes]
            for j, (own, which) in atoms.items()
        ]
        self.rows = np.concatenate(rows, dtype=np.float32, casting="unsafe")

    def sums(self, rows: Any) -> list[FloatArray]:
        """Return weight and excess of the rows of each conjunction that fulfil each term."""
        summed = self.search.summed.astype(np.float32)
        return [((rows * own) @ self.rows.T @ self.means.T).astype(np.float64) for own in summed]

    def pairs(self) -> FloatArray:
        """Return what each pair of terms is worth; a term with itself is a term alone."""
        both = [self.means @ own.astype(np.float32) for own in self.sums(self.rows)]
        by_number, is_other = self.search.price_of_features, self.feature[:, None] != self.feature
        price = self.price[:, None] + self.price + by_number[1 + is_other]
        np.fill_diagonal(price, self.price + by_number[1])
        worth = self.search.evidence(*(own.astype(np.float64) for own in both)) - price
        worth[np.tri(len(worth), k=-1, dtype=bool)] = -np.inf
        return np.asarray(worth)

    def triples(self, pairs: IntArray) -> FloatArray:
        """Return what each of these pairs is worth with each further term, shape (m, n_terms)."""
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
        """Yield conjunctions with one more condition or one less, where that is worth more."""
        sums = self.sums(np.array([self.search.inside(parts) for parts in several]))
        gains = np.round(self.search.evidence(*sums) - self.price, 6)
        for parts, gain in zip(several, gains, strict=True):
            options = [parts, *(_without(parts, left) for left in parts)]
            if len(parts) < MAX_FEATURES:
                j, meant = self.terms[int(np.argmax(gain))]
                options.append({**parts, j: meant & parts.get(j, True)})
            yield max(filter(None, options), key=lambda own: round(self.search.worth(own), 6))

    def parts(self, chosen: Iterable[int]) -> Parts:
        """Return a conjunction of terms."""
        parts: Parts = {}
        for j, meant in (self.terms[i] for i in chosen):
            parts[j] = meant & parts.get(j, True)
        return parts


def _without(parts: Parts, left: int) -> Parts:
    return {j: meant for j, meant in parts.items() if j != left}


def _distinct(several: Iterable[Parts]) -> list[Parts]:
    return list({tuple((j, p[j].tobytes()) for j in sorted(p)): p for p in several}.values())


def _largest(worth: FloatArray, most: int) -> IntArray:
    """Return the places of the largest finite numbers of a table, the largest first: (m, 2)."""
    flat = worth.ravel()
    few = np.argpartition(-flat, most)[:most] if len(flat) > most else np.arange(len(flat))
    few = few[np.isfinite(flat[few])]
    few = few[np.lexsort((few, -flat[few]))]
    return np.transpose(np.unravel_index(few, worth.shape))


def is_far_below(coverage: float, high: float, confidence_level: float) -> bool:
    """Tell whether a group with this coverage, and this end of its interval, is worth a name.

    At 99%, a gap of 0.04 would be five times the promised errors: above 90%, gaps shrink with them.

    >>> is_far_below(0.82, 0.85, 0.9), is_far_below(0.876, 0.88, 0.9), is_far_below(0.8, 0.89, 0.9)
    (True, False, False)
    >>> is_far_below(0.985, 0.987, 0.99), is_far_below(0.987, 0.987, 0.99)
    (True, False)
    """
    scale = min(1.0, round((1 - confidence_level) / 0.1, 9))
    gap, margin = MIN_GAP * scale, MARGIN * scale
    return coverage <= confidence_level - gap and high <= confidence_level - margin
