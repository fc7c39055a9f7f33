"""The exact search for the worst slab along given directions, and directions fitted to an outcome.

A direction holds the coefficients of a projection ``pi(x) = sum_k c_k t_k(x)``, whose terms are the
features and, if it is quadratic, their products of two. Along it a slab is a segment of the points
in their order, and its ends are cuts between points with different projections. Counted before each
cut are ``points`` and ``missed``, whose share in a segment is the largest where coverage is worst.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit
from scipy.stats import chi2

from fareg._rows import distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray

Counts = npt.NDArray[np.integer]
Term = tuple[int, ...]  # a feature, or the product of two

CHUNK_ELEMENTS = 2**16  # numbers per working array, so that memory does not grow with directions
N_COARSE = 256  # cuts among which hopeless searches are ruled out
MAX_FEATURES = 4  # a fitted direction uses at most so many features
N_TRIED = 5  # sets of features whose joint fit is tried in each step
SIGNIFICANCE = 0.05  # of further features, over all features
N_STEPS = 4
WIDTHS = (0.3, 0.05)  # softness of the slab's edges in standard deviations, first and last step
LENGTHS = (0.5, 0.1)  # length of the step on the unit sphere, first and last
N_BINS = 128  # the descent looks at projections in bins
REACH = 4.0  # from minus to plus so many standard deviations


def smallest_slab(delta: float, n_samples: int, *, rule: str = "ceil") -> int:
    """Return the fewest points that a slab of mass ``delta`` may hold: from 1 to ``n_samples``.

    The rule "ceil" is ``ceil(delta * n)``, computed in decimals (7% of 100 is 7, though ``0.07 *
    100 > 7``); "round" is ``round(delta * n) + 1``, the rule of the code published with WSC+.

    >>> smallest_slab(0.07, 100), smallest_slab(0.07, 100, rule="round")
    (7, 8)
    """
    if rule == "ceil":
        points = ceil(Fraction(str(float(delta))) * n_samples)
    else:
        points = round(delta * n_samples) + 1
    return max(1, min(points, n_samples))


def terms(features: Sequence[int], kind: str) -> list[Term]:
    """Return the terms of a projection of some features: all of them, then all products of two."""
    single: list[Term] = [(j,) for j in features]
    if kind == "linear":
        return single
    return [*single, *combinations_with_replacement(features, 2)]


def draw_directions(
    n_directions: int, n_features: int, kind: str, rng: np.random.Generator
) -> FloatArray:
    """Draw ``v``, and each column of ``W`` in ``x'Wx + v'x``, uniformly on the unit sphere."""
    n_vectors = 1 if kind == "linear" else 1 + n_features
    vectors = rng.standard_normal((n_directions, n_vectors, n_features))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    if kind == "linear":
        return np.asarray(vectors[:, 0])
    i, j = np.triu_indices(n_features)
    W = vectors[:, 1:].transpose(0, 2, 1)
    return np.hstack([vectors[:, 0], W[:, i, j] + W[:, j, i] * (i != j)])


def project(numbers: FloatArray, directions: FloatArray, kind: str) -> FloatArray:
    """Return the projections, shape (n_directions, n_samples), of an array of numbers.

    Sums run term by term, elementwise: unlike a matrix product, whose rounding depends on how it is
    blocked, equal rows get equal projections whatever rows and directions come with them, so ties
    are ties.
    """
    x = np.ascontiguousarray(numbers.T)
    z = np.zeros((len(directions), len(numbers)))
    for term, c in zip(terms(range(len(x)), kind), directions.T, strict=True):
        if c.any():
            z += c[:, None] * (x[term[0]] if len(term) == 1 else x[term[0]] * x[term[1]])
    return z


class Segments(NamedTuple):
    """The worst segment of each row: from cut ``start`` to cut ``stop``, ``missed`` of ``points``.

    ``start == stop == 0`` where no segment beats the share that was asked for.
    """

    start: IntArray
    stop: IntArray
    missed: IntArray
    points: IntArray


def worst_segments(
    missed: Counts, points: Counts, fewest: int, known: tuple[IntArray, IntArray] | None = None
) -> Segments:
    """Find in each row the segment of at least ``fewest`` points with the largest missed share.

    Dinkelbach's iteration (1967): given a share a / b, the segment that maximises
    ``b * missed - a * points`` follows from a running minimum; a positive maximum gives a larger
    share, zero proves that a / b is the largest. All numbers are integers, so the answer is exact.

    ``missed`` of shape (n_rows, n_cuts) and ``points``, of that shape or the same for all rows,
    count what lies before each cut. With ``known``, missed and all points of a known share per row,
    only larger shares are looked for.

    >>> missed, points = np.array([[0, 1, 1, 2, 4]]), np.arange(5)
    >>> worst_segments(missed, points, 3)[2:]
    (array([3]), array([3]))
    """
    n_points = int(points.flat[-1])
    dtype = np.int32 if n_points**2 < 2**31 else np.int64  # holds b * missed - a * points
    missed, points = missed.astype(dtype), points.astype(dtype)
    latest, rows = _latest_starts(points, fewest), np.arange(len(missed))
    each, late = np.broadcast_to(points, missed.shape), np.broadcast_to(latest, missed.shape)
    start, stop = np.zeros((2, len(missed)), dtype=np.int64)
    if known is None:  # the segments that start as late as they may come close to the largest share
        size = _between(each, each, latest)
        stop = np.argmax(_between(missed, missed, latest) / np.maximum(size, 1), axis=1)
        stop = np.where(size[rows, stop] > 0, stop, missed.shape[1] - 1)
        start = late[rows, stop]
        a, b = missed[rows, stop] - missed[rows, start], each[rows, stop] - each[rows, start]
    else:
        a, b = known[0].astype(dtype), known[1].astype(dtype)
    while len(rows):
        F = b[rows, None] * missed[rows] - a[rows, None] * each[rows]
        its = latest if latest.ndim == 1 else latest[rows]
        gain = _between(F, np.minimum.accumulate(F, axis=1), its)
        end = np.argmax(gain, axis=1)
        most = gain[np.arange(len(rows)), end]
        better = most > 0
        rows, end, F, most = rows[better], end[better], F[better], most[better]
        lowest = F[np.arange(len(rows)), end] - most
        start[rows], stop[rows] = np.argmax(lowest[:, None] == F, axis=1), end
        a[rows] = missed[rows, end] - missed[rows, start[rows]]
        b[rows] = each[rows, end] - each[rows, start[rows]]
    return Segments(start, stop, a.astype(np.int64), b.astype(np.int64))


def _latest_starts(points: Counts, fewest: int) -> IntArray:
    """Return for each end the latest cut to start at, -1 if none."""
    n_cuts = points.shape[-1]
    row = np.arange(points.size // n_cuts).reshape(*points.shape[:-1], 1)
    lifted = points + 2 * points.max().astype(np.int64) * row  # one search for all rows
    found = np.searchsorted(lifted.ravel(), lifted - fewest, side="right") - 1 - n_cuts * row
    return np.asarray(found)


def _between(ends: Any, starts: Any, latest: IntArray) -> Any:
    """Return what lies between each end and its latest start; 0 for an end without a start."""
    if latest.ndim > 1:
        return np.where(latest < 0, 0, ends - np.take_along_axis(starts, latest, axis=1))
    first, between = int(np.searchsorted(latest, 0)), np.zeros_like(ends)
    own = np.take(starts, latest[first:], axis=1)
    np.subtract(ends[:, first:], own, out=between[:, first:])
    return between


@dataclass(frozen=True)
class Points:
    """The distinct rows of a table: a table of categories has few of them, however long it is."""

    numbers: FloatArray  # (n_distinct, n_features)
    row: IntArray  # (n_samples,): the distinct row of each point
    size: IntArray  # (n_distinct,): how many points share it
    merge: bool  # whether points with equal projections stay together
    kind: str  # of the projections

    @classmethod
    def of(cls, numbers: FloatArray, kind: str, *, merge: bool) -> Points:
        """Find the distinct rows, in an order that does not depend on that of the points."""
        n = len(numbers)
        if not merge:
            return cls(numbers, np.arange(n), np.ones(n, np.int64), merge, kind)
        first, row = distinct_rows(pd.DataFrame(numbers))
        order = np.lexsort(numbers[first].T)
        row = np.argsort(order)[row]
        return cls(numbers[first[order]], row, np.bincount(row), merge, kind)

    def missed(self, covered: BoolArray, n_permutations: int, rng: np.random.Generator) -> Counts:
        """Count missed points per distinct row: as observed, then for each permutation."""
        counts = np.empty((1 + n_permutations, len(self.size)), np.min_scalar_type(self.size.max()))
        for number, count in enumerate(counts):
            hits = rng.permutation(covered) if number else covered
            count[:] = np.bincount(self.row[~hits], minlength=len(self.size))
        return counts

    def lines(self, directions: FloatArray) -> Iterator[Lines]:
        """Sort the points along each direction; a chunk of directions is projected at a time."""
        step = max(1, CHUNK_ELEMENTS // len(self.size))
        for first in range(0, len(directions), step):
            some = directions[first : first + step]
            z = project(self.numbers, some, self.kind)
            order = np.argsort(z, axis=1)
            # Indexing row by row takes a third of the time of take_along_axis.
            z_sorted = np.stack([own[rank] for own, rank in zip(z, order, strict=True)])
            apart = np.ones((len(z), len(self.size) + 1), dtype=bool)
            np.greater(z_sorted[:, 1:], z_sorted[:, :-1], out=apart[:, 1:-1])
            tied = not apart.all()
            if tied and not self.merge:  # points that are split keep their order of appearance
                order = np.argsort(z, axis=1, kind="stable")
            yield Lines(self, some, z_sorted, order, apart if tied and self.merge else None)


@dataclass(frozen=True)
class Lines:
    """The points in their order along some directions."""

    of: Points
    directions: FloatArray
    z: FloatArray  # (n_directions, n_distinct) projections in increasing order
    order: IntArray  # (n_directions, n_distinct)
    apart: BoolArray | None  # (n_directions, n_distinct + 1) which cuts separate; None if all do

    def before(self, counts: Counts) -> Counts:
        """Count before each cut: row i along direction i.

        A cut between equal projections gets the counts of the cut before it, so that it is the
        same cut once more.
        """
        own = np.broadcast_to(counts, self.order.shape)
        counted = sums(np.stack([row[rank] for row, rank in zip(own, self.order, strict=True)]))
        if self.apart is None:
            return counted
        return np.maximum.accumulate(np.where(self.apart, counted, 0), axis=1)

    def before_along(self, direction: int, counts: Counts) -> Counts:
        """Count before each cut that separates points: every row along one direction."""
        counted = sums(np.take(counts, self.order[direction], axis=1))
        return counted if self.apart is None else counted[:, self.apart[direction]]

    @property
    def points(self) -> Counts:
        """All points before each cut; one row if it is the same for every direction."""
        if self.apart is None and len(self.of.size) == len(self.of.row):
            return np.arange(len(self.of.row) + 1)
        return self.before(self.of.size)


def sums(counts: Counts) -> Counts:
    """Add up what comes before each position, and all."""
    added = np.zeros((len(counts), counts.shape[1] + 1), dtype=np.int32)
    np.cumsum(counts, axis=1, out=added[:, 1:])
    return added


@dataclass
class Search:
    """What is known so far about slabs of at least ``fewest`` points.

    Of the observed outcome it is the worst slab: its coverage, direction, edges and points. Of each
    permuted outcome it is how many points the worst slab holds, and how many of them are missed.
    """

    fewest: int
    missed: IntArray  # (n_permutations,)
    points: IntArray  # (n_permutations,)
    values: list[float] = field(default_factory=list)  # worst coverage along each direction so far
    value: float = np.inf
    direction: Any = None
    lower: float = -np.inf
    upper: float = np.inf
    n_points: int = 0

    @classmethod
    def start(cls, points: Points, missed: Counts, fewest: int) -> Search:
        """Start with the slab of all points."""
        total = missed[1:].sum(axis=1, dtype=np.int64)
        return cls(fewest, total, np.full(len(total), len(points.row)))

    @property
    def null(self) -> FloatArray:
        """Worst coverage of each permuted outcome."""
        return np.asarray((self.points - self.missed) / self.points)

    def note(self, lines: Lines, found: Segments) -> None:
        """Keep the worst slab of the observed outcome along some directions."""
        coverage = (found.points - found.missed) / found.points
        r = int(np.argmin(coverage))
        if coverage[r] < self.value:
            self.value, self.direction = float(coverage[r]), lines.directions[r]
            self.lower, self.upper = lines.z[r, [found.start[r], found.stop[r] - 1]].tolist()
            self.n_points = int(found.points[r])
        self.values.extend(coverage.tolist())

    def lower_null(self, rows: IntArray, missed: Counts, points: Counts) -> None:
        """Look for worse slabs of some permuted outcomes."""
        found = worst_segments(missed, points, self.fewest, (self.missed[rows], self.points[rows]))
        self.missed[rows], self.points[rows] = found.missed, found.points


def search_shared(
    searches: Sequence[Search], points: Points, missed: Counts, directions: FloatArray
) -> None:
    """Search the observed outcome and every permuted one along the same directions.

    A permutation carries its largest share from direction to direction. Most directions cannot beat
    it, and :func:`_may_be_worse` proves that cheaply.
    """
    step = max(1, 4 * CHUNK_ELEMENTS // len(points.size))
    for lines in points.lines(directions):
        observed, size = lines.before(missed[0]), lines.points
        for search in searches:
            search.note(lines, worst_segments(observed, size, search.fewest))
        for direction in range(len(lines.order)) if len(missed) > 1 else ():
            size = lines.before_along(direction, points.size[None])[0]
            for first in range(0, len(missed) - 1, step):
                counts = lines.before_along(direction, missed[1 + first : 1 + first + step])
                for search in searches:
                    hopeful = _may_be_worse(search, first, counts, size)
                    if len(hopeful):
                        search.lower_null(first + hopeful, counts[hopeful], size)


def search_own(search: Search, points: Points, missed: Counts, directions: FloatArray) -> None:
    """Search each outcome along a direction of its own: the observed one, then the permuted."""
    done = 0
    for lines in points.lines(directions):
        rows = np.arange(done, done + len(lines.order))
        counts = lines.before(missed[rows])
        size = np.broadcast_to(lines.points, counts.shape)
        null = rows >= 1
        if done == 0:
            search.note(lines, worst_segments(counts[:1], size[:1], search.fewest))
        if null.any():
            search.lower_null(rows[null] - 1, counts[null], size[null])
        done += len(rows)


def _may_be_worse(search: Search, first: int, missed: Counts, points: Counts) -> IntArray:
    """Return the rows in which a slab may hold a larger missed share than known.

    Of the cuts only every so manieth is looked at. A slab from the coarse cell that ends at cut
    A + 1 to the one that starts at cut B - 1 misses at most what lies between A and B, and holds
    all points between A + 1 and B - 1.
    """
    n_cuts = missed.shape[1]
    width = -(-n_cuts // N_COARSE)
    if width < 4:  # too few cuts to save anything
        return np.arange(len(missed))
    cut = np.append(np.arange(0, n_cuts - 1, width), n_cuts - 1)
    own = slice(first, first + len(missed))
    share = (search.missed[own] / search.points[own])[:, None]
    M, p = missed[:, cut], points[cut]
    latest = np.searchsorted(p, p - search.fewest, side="right") - 1
    begin = np.minimum.accumulate(M[:, :-1] - share * p[1:], axis=1)
    early = latest >= 2
    between = (M[:, early] - share * p[np.flatnonzero(early) - 1]) - begin[:, latest[early] - 2]
    bound = between.max(axis=1, initial=-np.inf)
    # From the two latest starts there may be no point between, only the fewest of a slab.
    late = latest >= 0
    most = (M[:, late] - M[:, np.maximum(latest[late] - 1, 0)]).max(axis=1)
    bound = np.maximum(bound, most - share[:, 0] * search.fewest)
    # The share is a fraction of at most n, so an excess is 0 or at least 1 / n.
    return np.flatnonzero(bound > 0.5 / p[-1])


def fitted_directions(
    points: Points, missed: Counts, searches: Sequence[Search]
) -> Iterator[FloatArray]:
    """Fit a direction to every outcome, for the size of slab of each search.

    Random directions are blind beyond a few features, and descent in all coefficients fits noise.
    So the start is least squares of the missed points on few features (with their squares and
    products for a quadratic direction), which enter as long as their gain is more than chance would
    give. Then the coverage of the slab with soft edges descends by gradient steps in the
    coefficients of these features. Nothing is drawn at random.

    ``missed`` of shape (n_outcomes, n_distinct) holds the missed points of each distinct row.
    """
    fit, total = Fit(points), len(points.row)
    rate = missed.sum(axis=1, keepdims=True) / total
    # By chance alone, the product of y with each column of a basis is standard normal.
    noise = np.sqrt(total * np.maximum(rate * (1 - rate), 1 / total))
    y = (missed - rate * points.size) / noise
    alone, together = fit.screen(y)
    chosen = [fit.choose(*its) for its in zip(y, alone, together, strict=True)]
    for search in searches:
        yield np.array(
            [
                fit.direction(
                    features, _descend(fit.basis(features)[0], own, points, its, search.fewest)
                )
                for features, own, its in zip(chosen, y, missed, strict=True)
            ]
        )


class Fit:
    """The standardised features of a table: a few of them explain who is missed."""

    def __init__(self, points: Points) -> None:
        self.kind, self.weight = points.kind, points.size / len(points.row)
        self.center = self.weight @ points.numbers
        spread = np.sqrt(self.weight @ (points.numbers - self.center) ** 2)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.z = (points.numbers - self.center) / self.scale
        self.basis = cache(self._basis)

    def _basis(self, features: Term) -> tuple[FloatArray, FloatArray]:
        """Return the terms of features as uncorrelated columns of mean 0 and variance 1.

        Also returns how terms are mixed in each column, shape (n_terms, n_columns).
        """
        own = terms(sorted(features), self.kind)
        columns = np.column_stack([self.z[:, list(term)].prod(axis=1) for term in own])
        columns -= self.weight @ columns
        variance, vectors = np.linalg.eigh((columns.T * self.weight) @ columns)
        real = variance > 1e-9 * max(variance[-1], 1e-300)
        mix = vectors[:, real] / np.sqrt(variance[real])
        return columns @ mix, mix

    def direction(self, features: Term, w: FloatArray) -> FloatArray:
        """Return coefficients in a basis as a direction in the table's own units."""
        place = {term: k for k, term in enumerate(terms(range(len(self.center)), self.kind))}
        c = np.zeros(len(place))
        mixed = self.basis(features)[1] @ w
        for term, a in zip(terms(sorted(features), self.kind), mixed, strict=True):
            a = a / self.scale[list(term)].prod()
            c[place[term]] += a
            if len(term) == 2:  # a (x_i - m_i) (x_j - m_j), without its constant
                for one, other in (term, term[::-1]):
                    c[place[one,]] -= a * self.center[other]
        if not c.any():
            c[0] = 1.0  # with nothing to fit, any direction will do
        return c

    def screen(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gain of each feature alone and of each product of two, for every outcome."""
        d = self.z.shape[1]
        alone = [((y @ self.basis((k,))[0]) ** 2).sum(axis=1) for k in range(d)]
        together = np.zeros((len(y), d, d))
        for i in range(d - 1 if self.kind == "quadratic" else 0):
            product = self.z[:, [i]] * self.z[:, i + 1 :]
            product -= self.weight @ product
            variance = self.weight @ product**2
            gain = (y @ product) ** 2 / np.where(variance > 0, variance, np.inf)
            together[:, i, i + 1 :] = together[:, i + 1 :, i] = gain
        return np.column_stack(alone), together

    def choose(self, y: FloatArray, alone: FloatArray, together: FloatArray) -> Term:
        """Choose the features that tell who is missed in one outcome.

        The best feature, or pair for a quadratic direction, is the beginning; the best further one
        joins while it gains more than chance would give.
        """

        def gain(features: Term) -> float:
            return float(((y @ self.basis(features)[0]) ** 2).sum())

        def promise(features: Term) -> float:
            pairs = combinations(features, 2)
            return -float(alone[list(features)].sum() + sum(together[pair] for pair in pairs))

        d = len(alone)
        chosen: Term = ()
        while len(chosen) < min(MAX_FEATURES, d):
            n_more = 2 if not chosen and self.kind == "quadratic" and d > 1 else 1
            left = [k for k in range(d) if k not in chosen]
            sets = [tuple(sorted(chosen + more)) for more in combinations(left, n_more)]
            best = max(sorted(sets, key=promise)[:N_TRIED], key=gain)
            n_columns = [self.basis(its)[0].shape[1] for its in (chosen, best) if its]
            freedom = n_columns[-1] - n_columns[0]
            if chosen and (freedom < 1 or gain(best) - gain(chosen) < _chance(freedom, d)):
                break
            chosen = best
        return chosen


@cache
def _chance(freedom: int, n_features: int) -> float:
    """Return the gain of further terms that chance alone exceeds at the stated significance."""
    return float(chi2.isf(SIGNIFICANCE / n_features, freedom))


def _descend(
    columns: FloatArray, y: FloatArray, points: Points, missed: Counts, fewest: int
) -> FloatArray:
    """Improve the direction of an outcome by gradient steps; the best one met is kept.

    With soft membership ``s(z)`` of the slab, the missed share ``M = sum(s m) / sum(s)`` changes
    with the projection of a point by ``s'(z) (m - M) / sum(s)``. In each step the slab is the worst
    one along the current direction, with edges between bins.
    """
    w = best = _unit(columns.T @ y)
    most = -np.inf
    edges = np.linspace(-REACH, REACH, N_BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    steps = zip(np.geomspace(*WIDTHS, N_STEPS), np.geomspace(*LENGTHS, N_STEPS), strict=True)
    for width, length in [*map(tuple, steps), (0.0, 0.0)]:
        cell = (columns @ w + REACH) * (N_BINS / (2 * REACH))
        cell = np.clip(cell, 0, N_BINS - 1).astype(np.int64)
        n, m = (np.bincount(cell, its, N_BINS).astype(np.int64) for its in (points.size, missed))
        worst = worst_segments(sums(m[None]), sums(n[None])[0], fewest)
        start, stop, share = worst.start[0], worst.stop[0], worst.missed[0] / worst.points[0]
        if share > most:
            most, best = share, w
        if not width:  # the last direction is only looked at
            break
        lower = edges[start] if start else -np.inf
        upper = edges[stop] if stop < N_BINS else np.inf
        above, below = expit((middle - lower) / width), expit((upper - middle) / width)
        s = above * below
        slope = s * (below - above) / width  # s' = s (1 - above) - s (1 - below), over the width
        M = (s @ m) / max(s @ n, 1e-300)
        gradient = (slope[cell] * (missed - M * points.size)) @ columns
        w = _unit(w + length * _unit(gradient - w * (w @ gradient)))
    return best


def _unit(w: FloatArray) -> FloatArray:
    """Scale a vector to length one; a zero vector stays."""
    length = float(np.linalg.norm(w))
    return w / length if length > 0 else w
