"""The exact search for the worst slab along given directions.

A direction holds the coefficients of a projection ``pi(x) = sum_k c_k t_k(x)``. Its terms are the
features and, if it is quadratic, their products of two. Along a direction, a slab is a segment of
the ordered points, and its ends are cuts between points with different projections. ``points`` and
``missed`` are counts before each cut; the worst segment has the largest share of missed points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fareg._rows import distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray

Counts = npt.NDArray[np.integer]
Term = tuple[int, ...]  # a feature, or the product of two

CHUNK_ELEMENTS = 2**16  # numbers per working array, so that memory does not grow with directions
N_COARSE = 512  # cuts by which hopeless searches are ruled out


def smallest_slab(delta: float, n_samples: int, *, rule: str = "ceil") -> int:
    """Return the fewest points that a slab of mass ``delta`` may hold, from 1 to ``n_samples``.

    "ceil" is computed in decimals (7% of 100 is 7, although ``0.07 * 100 > 7``); "round" is
    ``round(delta * n) + 1``, the rule of the code published with WSC+.

    >>> smallest_slab(0.07, 100), smallest_slab(0.07, 100, rule="round")
    (7, 8)
    """
    exact = ceil(Fraction(str(float(delta))) * n_samples)
    return max(1, min(exact if rule == "ceil" else round(delta * n_samples) + 1, n_samples))


def terms(features: Sequence[int], kind: str) -> list[Term]:
    """Return the terms of a projection: the features, then their products of two if quadratic."""
    products = combinations_with_replacement(features if kind == "quadratic" else (), 2)
    return [*((j,) for j in features), *products]


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

    Terms are added elementwise. The rounding of a matrix product depends on how it is divided into
    blocks; here equal rows get equal projections next to any other rows, so ties stay ties.
    """
    x = np.ascontiguousarray(numbers.T)
    z = np.zeros((len(directions), len(numbers)))
    for term, c in zip(terms(range(len(x)), kind), directions.T, strict=True):
        if c.any():
            z += c[:, None] * (x[term[0]] if len(term) == 1 else x[term[0]] * x[term[1]])
    return z


def worst_segments(
    missed: Counts, points: Counts, fewest: int, known: Any = None
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Find in each row the segment of at least ``fewest`` points with the largest missed share.

    Dinkelbach's iteration (1967): given a share a / b, a running minimum finds the segment that
    maximises ``b * missed - a * points``. A positive maximum gives a larger share, and zero proves
    that a / b is the largest. All numbers are integers, so the answer is exact.

    ``missed`` of shape (n_rows, n_cuts) and ``points`` of shape (n_cuts,) are counts before each
    cut. Returns the first and the last cut, the missed and all points of each segment. ``known``
    holds the missed and all points of a known share per row: then only larger shares are searched,
    and both cuts are 0 where there is none.

    >>> missed, points = np.array([[0, 1, 1, 2, 4]]), np.arange(5)
    >>> worst_segments(missed, points, 3)[2:]
    (array([3]), array([3]))
    """
    dtype = np.int32 if int(points[-1]) ** 2 < 2**31 else np.int64  # b * missed - a * points fits
    missed, points = missed.astype(dtype), points.astype(dtype)
    latest = latest_starts(points, fewest)
    end = int(np.searchsorted(latest, 0))  # the first cut at which a segment may end
    latest = latest[end:]  # the latest start of a segment for each end
    rows = np.arange(len(missed))
    if known is None:  # the shortest segments come close to the largest share
        share = (missed[:, end:] - missed[:, latest]) / (points[end:] - points[latest])
        best = np.argmax(share, axis=1)
        start, stop = latest[best], end + best
        a, b = missed[rows, stop] - missed[rows, start], points[stop] - points[start]
    else:
        start, stop = np.zeros((2, len(missed)), dtype=np.int64)
        a, b = known.astype(dtype)
    while len(rows):
        F = b[rows, None] * missed[rows] - a[rows, None] * points
        gain = F[:, end:] - np.take(np.minimum.accumulate(F, axis=1), latest, axis=1)
        best = np.argmax(gain, axis=1)
        most = gain[np.arange(len(rows)), best]
        is_better = most > 0
        rows, best, F, most = rows[is_better], best[is_better], F[is_better], most[is_better]
        lowest = F[np.arange(len(rows)), end + best] - most
        start[rows], stop[rows] = np.argmax(lowest[:, None] == F, axis=1), end + best
        a[rows] = missed[rows, stop[rows]] - missed[rows, start[rows]]
        b[rows] = points[stop[rows]] - points[start[rows]]
    return start, stop, a.astype(np.int64), b.astype(np.int64)


def latest_starts(points: Counts, fewest: int) -> Counts:
    """Return the last cut where a segment of ``fewest`` points up to each cut starts, -1 if none.

    >>> latest_starts(np.array([0, 2, 3, 5]), 2)
    array([-1,  0,  0,  2])
    """
    if points[-1] == len(points) - 1:  # one point between any two cuts
        return np.maximum(points - fewest, -1)
    return np.searchsorted(points, points - fewest, side="right") - 1


class Lines(NamedTuple):
    """Ordered points along one direction, or along several without tied projections."""

    directions: FloatArray
    z: FloatArray  # (n_directions, n_distinct) projections in increasing order
    order: IntArray  # (n_directions, n_distinct)
    cuts: Any  # the positions between different projections, and both ends
    points: Counts  # (n_cuts,) all points before each cut

    def before(self, counts: Counts) -> Counts:
        """Add up the counts of ordered points before each cut."""
        return sums(counts)[:, self.cuts]


def sums(counts: Counts) -> Counts:
    """Return cumulative sums along each row, from 0 to the total."""
    added = np.zeros((len(counts), counts.shape[1] + 1), dtype=np.int32)
    np.cumsum(counts, axis=1, out=added[:, 1:])
    return added


@dataclass(frozen=True)
class Points:
    """The distinct rows of a table; even a long table of categories has few of them."""

    numbers: FloatArray  # (n_distinct, n_features)
    row: IntArray  # (n_samples,): the distinct row of each point
    size: IntArray  # (n_distinct,): number of points in each
    kind: str  # of the projections

    @classmethod
    def of(cls, numbers: FloatArray, kind: str) -> Points:
        """Find the distinct rows, in an order that does not depend on the order of the points."""
        first, row = distinct_rows(pd.DataFrame(numbers))
        order = np.lexsort(numbers[first].T)
        row = np.argsort(order)[row]
        return cls(numbers[first[order]], row, np.bincount(row), kind)

    def missed(self, covered: BoolArray, n_permutations: int, rng: np.random.Generator) -> Counts:
        """Count missed points per distinct row, as observed and then for each permutation."""
        counts = np.empty((1 + n_permutations, len(self.size)), np.min_scalar_type(self.size.max()))
        for number, count in enumerate(counts):
            outcome = rng.permutation(covered) if number else covered
            count[:] = np.bincount(self.row[~outcome], minlength=len(self.size))
        return counts

    def lines(self, directions: FloatArray) -> Iterator[Lines]:
        """Sort the points along each direction, in chunks of directions."""
        n = len(self.size)
        step = max(1, CHUNK_ELEMENTS // n)
        for first in range(0, len(directions), step):
            chunk = directions[first : first + step]
            z = project(self.numbers, chunk, self.kind)
            order = np.argsort(z, axis=1)
            # Indexing row by row takes a third of the time of take_along_axis.
            z = np.stack([values[rank] for values, rank in zip(z, order, strict=True)])
            is_cut = np.ones((len(z), n + 1), dtype=bool)
            np.greater(z[:, 1:], z[:, :-1], out=is_cut[:, 1:-1])
            if n == len(self.row) and is_cut.all():
                yield Lines(chunk, z, order, slice(None), np.arange(n + 1))
                continue
            for k in range(len(z)):
                line, cuts = slice(k, k + 1), np.flatnonzero(is_cut[k])
                points = sums(self.size[order[line]])[0, cuts]
                yield Lines(chunk[line], z[line], order[line], cuts, points)


class Search:
    """The worst slabs of at least ``fewest`` points found so far.

    For the observed outcome, the worst slab and the worst coverage along each direction; for each
    permuted outcome, the missed points and all points of its worst slab.
    """

    def __init__(self, fewest: int, missed: Counts, n_points: int) -> None:
        self.fewest = fewest
        self.values: list[float] = []
        self.worst: tuple[float, Any, float, float, int] = (np.inf, None, 0.0, 0.0, 0)
        all_missed = missed[1:].sum(axis=1, dtype=np.int64)
        self.null = np.stack([all_missed, np.full_like(all_missed, n_points)])

    def note(self, lines: Lines, missed: Counts) -> None:
        """Record the worst slab of the observed outcome along some directions."""
        start, stop, missed, points = worst_segments(missed, lines.points, self.fewest)
        coverage = (points - missed) / points
        self.values.extend(coverage.tolist())
        r = int(np.argmin(coverage))
        if coverage[r] < self.worst[0]:
            cuts = np.arange(lines.z.shape[1] + 1)[lines.cuts]
            lower, upper = lines.z[r, [cuts[start[r]], cuts[stop[r]] - 1]].tolist()
            self.worst = float(coverage[r]), lines.directions[r], lower, upper, int(points[r])

    def lower_null(self, first: int, missed: Counts, points: Counts) -> None:
        """Search for worse slabs of the permuted outcomes from ``first`` on."""
        known = self.null[:, first : first + len(missed)]
        rows = _may_be_worse(missed, points, self.fewest, known[0] / known[1])
        if len(rows):
            known[:, rows] = worst_segments(missed[rows], points, self.fewest, known[:, rows])[2:]


def _may_be_worse(missed: Counts, points: Counts, fewest: int, share: FloatArray) -> IntArray:
    """Return the rows in which a slab may have a larger missed share than the known one.

    Most directions cannot beat what a permutation has found so far, and a coarse grid of cuts
    proves it: a slab that starts between two grid cuts and ends between two others misses at most
    what lies between the outer ones, and holds all points between the inner ones.
    """
    n_cuts = missed.shape[1]
    width = -(-n_cuts // N_COARSE)
    if width < 4:  # too few cuts to save time
        return np.arange(len(missed))
    cut = np.append(np.arange(0, n_cuts - 1, width), n_cuts - 1)
    M, p = missed[:, cut], points[cut]
    latest = np.searchsorted(p, p - fewest, side="right") - 1
    end = int(np.searchsorted(latest, 0))
    begin = np.minimum.accumulate(M[:, :-1] - share[:, None] * p[1:], axis=1)
    bound = (M[:, end:] - share[:, None] * p[end - 1 : -1]) - begin[:, latest[end:]]
    # The share is a fraction with denominator at most n, so an excess is 0 or at least 1 / n.
    return np.flatnonzero(bound.max(axis=1) > 0.5 / p[-1])


def search_shared(
    searches: Sequence[Search], points: Points, missed: Counts, directions: FloatArray
) -> None:
    """Search the observed outcome and every permuted one along the same directions."""
    step = max(1, 4 * CHUNK_ELEMENTS // len(points.size))
    for lines in points.lines(directions):
        counts = lines.before(np.stack([missed[0][rank] for rank in lines.order]))
        for search in searches:
            search.note(lines, counts)
        for order in lines.order if len(missed) > 1 else ():
            for first in range(1, len(missed), step):
                counts = lines.before(np.take(missed[first : first + step], order, axis=1))
                for search in searches:
                    search.lower_null(first - 1, counts, lines.points)


def search_separately(
    search: Search, points: Points, missed: Counts, directions: FloatArray
) -> None:
    """Search each outcome along its own direction, first the observed one, then the permuted."""
    for outcome in range(len(directions)):
        (lines,) = points.lines(directions[[outcome]])
        counts = lines.before(missed[[outcome]][:, lines.order[0]])
        if outcome == 0:
            search.note(lines, counts)
        else:
            search.lower_null(outcome - 1, counts, lines.points)
