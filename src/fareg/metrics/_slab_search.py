"""The exact search for the worst slab: along given directions, for several masses at once.

Along one direction a slab is a segment of the points in their order, and its ends are cuts between
points with different projections. Everything is counted before each cut: ``points`` and ``missed``,
whose share in a segment is the largest where coverage is worst.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fareg._rows import distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.metrics._directions import Directions

Counts = npt.NDArray[np.integer]

CHUNK_ELEMENTS = 2**16  # numbers per working array, so that memory does not grow with directions
N_COARSE = 256  # cuts among which hopeless searches are ruled out


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
    each = np.broadcast_to(points, missed.shape)
    start, stop = np.zeros((2, len(missed)), dtype=np.int64)
    if known is None:  # the segments that start as late as they may come close to the largest share
        size = _between(each, each, latest, fewest)
        share = np.full(size.shape, -1.0)
        np.divide(_between(missed, missed, latest, fewest), size, out=share, where=size > 0)
        stop = np.argmax(share, axis=1) + missed.shape[1] - share.shape[1]
        late = np.arange(missed.shape[1]) - fewest if latest is None else latest
        start = np.broadcast_to(late, missed.shape)[rows, stop]
        a, b = missed[rows, stop] - missed[rows, start], each[rows, stop] - each[rows, start]
    else:
        a, b = known[0].astype(dtype), known[1].astype(dtype)
    while len(rows):
        F = b[rows, None] * missed[rows]
        F -= a[rows, None] * (points if points.ndim == 1 else points[rows])
        own = latest if latest is None or latest.ndim == 1 else latest[rows]
        gain = _between(F, np.minimum.accumulate(F, axis=1), own, fewest)
        end = np.argmax(gain, axis=1)
        most = gain[np.arange(len(rows)), end]
        better = most > 0
        rows, end, F = rows[better], end[better] + F.shape[1] - gain.shape[1], F[better]
        lowest = F[np.arange(len(rows)), end] - most[better]
        start[rows], stop[rows] = np.argmax(lowest[:, None] == F, axis=1), end
        a[rows] = missed[rows, end] - missed[rows, start[rows]]
        b[rows] = each[rows, end] - each[rows, start[rows]]
    return Segments(start, stop, a.astype(np.int64), b.astype(np.int64))


def _latest_starts(points: Counts, fewest: int) -> IntArray | None:
    """Return for each end the latest cut to start at, -1 if none; None if each cut is one point."""
    n_cuts = points.shape[-1]
    if points.ndim == 1 and n_cuts == points[-1] + 1:
        return None
    row = np.arange(points.size // n_cuts).reshape(*points.shape[:-1], 1)
    lifted = points + 2 * points.max().astype(np.int64) * row  # one search for all rows
    found = np.searchsorted(lifted.ravel(), lifted - fewest, side="right") - 1 - n_cuts * row
    return np.asarray(found)


def _between(ends: Any, starts: Any, latest: IntArray | None, fewest: int) -> Any:
    """Return what lies between each end and its latest start; 0 for an end without a start.

    If each cut is one point, the ends without a start are left out.
    """
    if latest is None:
        return ends[:, fewest:] - starts[:, : ends.shape[1] - fewest]
    if latest.ndim == 1:
        first = int(np.searchsorted(latest, 0))
        between = np.zeros_like(ends)
        np.subtract(
            ends[:, first:], np.take(starts, latest[first:], axis=1), out=between[:, first:]
        )
        return between
    return np.where(latest < 0, 0, ends - np.take_along_axis(starts, latest, axis=1))


@dataclass(frozen=True)
class Points:
    """The distinct rows of a table: a table of categories has few of them, however long it is."""

    numbers: FloatArray  # (n_distinct, n_features)
    row: IntArray  # (n_samples,): the distinct row of each point
    size: IntArray  # (n_distinct,): how many points share it
    merge: bool  # whether points with equal projections stay together

    @classmethod
    def of(cls, numbers: FloatArray, *, merge: bool) -> Points:
        """Find the distinct rows, in an order that does not depend on that of the points."""
        n = len(numbers)
        if not merge:
            return cls(np.asfortranarray(numbers), np.arange(n), np.ones(n, np.int64), merge)
        first, row = distinct_rows(pd.DataFrame(numbers))
        distinct = numbers[first]
        order = np.argsort(distinct[:, -1])
        if not np.diff(distinct[order, -1]).all():  # the last column alone does not tell an order
            order = np.lexsort(distinct.T)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        row = place[row]
        return cls(np.asfortranarray(distinct[order]), row, np.bincount(row), merge)

    def missed(self, covered: BoolArray, n_permutations: int, rng: np.random.Generator) -> Counts:
        """Count missed points per distinct row: as observed, then for each permutation."""
        counts = np.empty((1 + n_permutations, len(self.size)), np.min_scalar_type(self.size.max()))
        for number, count in enumerate(counts):
            hits = rng.permutation(covered) if number else covered
            count[:] = np.bincount(self.row[~hits], minlength=len(self.size))
        return counts

    def lines(self, directions: Directions) -> Iterator[Lines]:
        """Sort the points along each direction; a chunk of directions is projected at a time."""
        step = max(1, CHUNK_ELEMENTS // len(self.size))
        for first in range(0, len(directions.v), step):
            z = directions[first : first + step].project(self.numbers)
            order = np.argsort(z, axis=1)
            # Indexing row by row takes a third of the time of take_along_axis.
            z_sorted = np.stack([own[rank] for own, rank in zip(z, order, strict=True)])
            apart = np.ones((len(z), len(self.size) + 1), dtype=bool)
            np.greater(z_sorted[:, 1:], z_sorted[:, :-1], out=apart[:, 1:-1])
            tied = not apart.all()
            if tied and not self.merge:  # points that are split keep their order of appearance
                order = np.argsort(z, axis=1, kind="stable")
            yield Lines(self, z_sorted, order, apart if tied and self.merge else None)


@dataclass(frozen=True)
class Lines:
    """The points in their order along some directions."""

    of: Points
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
        if self.apart is None or self.apart[direction].all():
            return counted
        return counted[:, self.apart[direction]]

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
    direction: int = 0
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
            self.value, self.direction = float(coverage[r]), len(self.values) + r
            self.lower, self.upper = lines.z[r, [found.start[r], found.stop[r] - 1]].tolist()
            self.n_points = int(found.points[r])
        self.values.extend(coverage.tolist())

    def lower_null(self, rows: IntArray, missed: Counts, points: Counts) -> None:
        """Look for worse slabs of some permuted outcomes."""
        found = worst_segments(missed, points, self.fewest, (self.missed[rows], self.points[rows]))
        self.missed[rows], self.points[rows] = found.missed, found.points


def search_shared(
    searches: Sequence[Search], points: Points, missed: Counts, directions: Directions
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


def search_own(search: Search, points: Points, missed: Counts, directions: Directions) -> None:
    """Search each outcome along a direction of its own: the observed one, then the permuted."""
    done = 0
    for lines in points.lines(directions):
        rows = np.arange(done, done + len(lines.order))
        counts = lines.before(missed[rows])
        size = np.broadcast_to(lines.points, counts.shape)
        if done == 0:
            search.note(lines, worst_segments(counts[:1], size[:1], search.fewest))
        null = rows >= 1
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
