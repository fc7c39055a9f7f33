"""The exact search for the worst slab: along given directions, for several masses at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from fareg._levels import distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.metrics._directions import Directions
from fareg.metrics._segments import Segments, worst_segment

Counts = npt.NDArray[np.unsignedinteger]

CHUNK_ELEMENTS = 2**16  # numbers per working array, so that memory does not grow with directions
N_GROUPS = 256  # neighbouring blocks are taken together to rule out hopeless searches


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
        n_samples = len(numbers)
        if not merge:
            return cls(
                np.asfortranarray(numbers),
                np.arange(n_samples, dtype=np.int64),
                np.ones(n_samples, np.int64),
                merge,
            )
        first, row = distinct_rows(pd.DataFrame(numbers))
        distinct = numbers[first]
        order = np.argsort(distinct[:, -1])
        if not np.diff(distinct[order, -1]).all():  # the last column alone does not tell an order
            order = np.lexsort(distinct.T)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        row = place[row]
        return cls(np.asfortranarray(distinct[order]), row, np.bincount(row), merge)

    def count(self, covered: BoolArray, n_permutations: int, rng: np.random.Generator) -> Counts:
        """Count covered points per distinct row: as observed, then for each permutation."""
        counts = np.empty((1 + n_permutations, len(self.size)), np.min_scalar_type(self.size.max()))
        counts[0] = np.bincount(self.row[covered], minlength=len(self.size))
        for permuted in counts[1:]:
            permuted[:] = np.bincount(self.row[rng.permutation(covered)], minlength=len(self.size))
        return counts

    def in_order(self, directions: Directions) -> Iterator[_Blocks]:
        """Sort the points along each direction; a chunk of directions is projected at a time."""
        step = max(1, CHUNK_ELEMENTS // len(self.size))
        for first in range(0, len(directions.v), step):
            projection = directions[first : first + step].project(self.numbers)
            order = np.argsort(projection, axis=1)
            # Indexing row by row takes a third of the time of take_along_axis.
            ordered = np.stack([z[one] for z, one in zip(projection, order, strict=True)])
            is_start = np.diff(ordered, axis=1, prepend=-np.inf) > 0
            no_ties = bool(is_start.all())
            if not self.merge and not no_ties:  # split points keep their order of appearance
                order = np.argsort(projection, axis=1, kind="stable")
            if not self.merge or (no_ties and len(self.size) == len(self.row)):
                yield _Blocks(ordered, order, None, self.size)
            elif no_ties:
                yield _Blocks(ordered, order, None, self.size[order])
            else:
                for z, one, start in zip(ordered, order, is_start, strict=True):
                    starts = np.flatnonzero(start)
                    size = np.add.reduceat(self.size[one], starts)
                    yield _Blocks(z[None, starts], one[None], starts, size)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of points with equal projections, in increasing order, along some directions.

    Directions with as many blocks as distinct rows come together, others alone.
    """

    projection: FloatArray  # (n_directions, n_blocks)
    order: IntArray  # (n_directions, n_distinct)
    starts: IntArray | None  # first position of each block in order; None if each is one row
    size: IntArray  # (n_blocks,) or (n_directions, n_blocks): points of each block

    def sum(self, counts: npt.NDArray[np.integer], direction: int) -> npt.NDArray[np.integer]:
        """Add up counts of shape (n_rows, n_distinct) over each block along a direction."""
        counts = np.take(counts, self.order[direction], axis=-1)
        if self.starts is None:
            return counts
        return np.add.reduceat(counts, self.starts, axis=-1, dtype=np.int64)

    def sums(self, counts: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """Add up counts over each block: those of row i along direction i."""
        own = np.stack([count[one] for count, one in zip(counts, self.order, strict=True)])
        if self.starts is None:
            return own
        return np.add.reduceat(own, self.starts, axis=-1, dtype=np.int64)

    def sizes(self, direction: int) -> IntArray:
        """Return the points of each block along a direction."""
        return self.size if self.size.ndim == 1 else self.size[direction]

    def block_of(self, direction: int) -> IntArray:
        """Return the block of each distinct row along a direction."""
        order = self.order[direction]
        block = np.empty(len(order), dtype=np.int64)
        position = np.arange(len(order))
        if self.starts is not None:
            position = np.searchsorted(self.starts, position, side="right") - 1
        block[order] = position
        return block


@dataclass
class Search:
    """What is known so far about slabs of at least ``min_points`` points.

    Of the observed outcome it is the worst slab: its coverage, direction, edges and points. Of each
    permuted outcome it is how many points the worst slab holds, and how many of them are covered.
    """

    min_points: int
    covered: IntArray  # (n_permutations,)
    points: IntArray  # (n_permutations,)
    values: list[float] = field(default_factory=list)  # worst coverage along each direction so far
    value: float = np.inf
    direction: int = 0
    lower: float = -np.inf
    upper: float = np.inf
    n_points: int = 0

    @classmethod
    def start(cls, points: Points, counts: Counts, min_points: int) -> Search:
        """Start with the slab of all points."""
        covered = counts[1:].sum(axis=1, dtype=np.int64)
        return cls(min_points, covered, np.full(len(covered), len(points.row)))

    @property
    def null(self) -> FloatArray:
        """Worst coverage of each permuted outcome."""
        return np.asarray(self.covered / self.points)


def search_shared(
    searches: Sequence[Search], points: Points, counts: Counts, directions: Directions
) -> None:
    """Search the observed outcome and every permuted one along the same directions."""
    missed = _Missed.of(points, counts[1:])
    for blocks in points.in_order(directions):
        n_directions = len(blocks.order)
        observed = blocks.sums(np.broadcast_to(counts[0], (n_directions, counts.shape[1])))
        allowed = [Segments.at_least(search.min_points, blocks.size) for search in searches]
        for search, segments in zip(searches, allowed, strict=True):
            _note_observed(search, blocks, observed, segments)
        for direction in range(n_directions if len(counts) > 1 else 0):
            if blocks.size.ndim > 1:
                size = blocks.size[direction]
                allowed = [Segments.at_least(search.min_points, size) for search in searches]
            _search_null(searches, allowed, blocks, direction, counts[1:], missed)


def search_own(search: Search, points: Points, counts: Counts, directions: Directions) -> None:
    """Search each outcome along a direction of its own: the observed one, then the permuted."""
    done = 0
    for blocks in points.in_order(directions):
        n_directions = len(blocks.order)
        covered = blocks.sums(counts[done : done + n_directions])
        segments = Segments.at_least(search.min_points, blocks.size)
        if done == 0:
            _note_observed(search, blocks, covered[:1], segments.of(np.arange(1)))
        null = np.arange(max(done, 1), done + n_directions)
        if len(null):
            below = (search.covered[null - 1], search.points[null - 1])
            worst = worst_segment(covered[null - done], segments.of(null - done), below=below)
            search.covered[null - 1], search.points[null - 1] = worst.covered, worst.points
        done += n_directions


def _note_observed(
    search: Search, blocks: _Blocks, covered: npt.NDArray[np.integer], segments: Segments
) -> None:
    """Search the observed outcome along some directions and keep the worst slab."""
    worst = worst_segment(covered, segments)
    ratio = worst.covered / worst.points
    r = int(np.argmin(ratio))
    if ratio[r] < search.value:
        search.value, search.direction = float(ratio[r]), len(search.values) + r
        edges = blocks.projection[r, [worst.start[r], worst.stop[r] - 1]]
        search.lower, search.upper = edges.tolist()
        search.n_points = int(worst.points[r])
    search.values.extend(ratio.tolist())


@dataclass(frozen=True)
class _Missed:
    """The missed points of every permuted outcome, in one list."""

    outcome: IntArray
    row: IntArray

    @classmethod
    def of(cls, points: Points, counts: Counts) -> _Missed:
        missed = points.size - counts.astype(np.int64)
        outcome, row = np.nonzero(missed)
        times = missed[outcome, row]
        return cls(np.repeat(outcome, times), np.repeat(row, times))

    def before(self, group: IntArray, n_outcomes: int, n_groups: int) -> IntArray:
        """Count the missed points of each outcome before each of ``n_groups + 1`` cuts."""
        cell = self.outcome * n_groups + group[self.row]
        counts = np.bincount(cell, minlength=n_outcomes * n_groups).reshape(n_outcomes, n_groups)
        return np.concatenate([np.zeros((n_outcomes, 1), np.int64), counts.cumsum(axis=1)], axis=1)


def _search_null(
    searches: Sequence[Search],
    allowed: Sequence[Segments],
    blocks: _Blocks,
    direction: int,
    counts: Counts,
    missed: _Missed,
) -> None:
    """Lower the worst ratio of each permutation along one more direction.

    A permutation carries its worst ratio from direction to direction. Most directions cannot
    beat it, and a bound on groups of neighbouring blocks proves that cheaply.
    """
    size = blocks.sizes(direction)
    width = -(-len(size) // N_GROUPS)
    group_size = np.add.reduceat(size, np.arange(0, len(size), width))
    before = missed.before(blocks.block_of(direction) // width, len(counts), len(group_size))
    step = max(1, CHUNK_ELEMENTS // len(size))
    for search, segments in zip(searches, allowed, strict=True):
        hopeful = np.flatnonzero(_may_be_worse(search, before, group_size, whole=width == 1))
        for first in range(0, len(hopeful), step):
            part = hopeful[first : first + step]
            worst = worst_segment(
                blocks.sum(counts[part], direction),
                segments,
                below=(search.covered[part], search.points[part]),
            )
            search.covered[part], search.points[part] = worst.covered, worst.points


def _may_be_worse(
    search: Search, missed: IntArray, group_size: IntArray, *, whole: bool
) -> BoolArray:
    """Tell for which permutations a slab may hold a larger share of missed points than known.

    A slab that starts in group i and ends in group j - 1 misses at most all missed points of these
    groups. It holds at least ``min_points`` points, and all points of the groups between, or of all
    its groups if these are ``whole``: then no slab divides them. It is worse than the known ratio r
    only if missed > r * points.
    """
    r = (1 - search.null)[:, None]
    segments = Segments.at_least(search.min_points, group_size)
    points, first_end, latest = segments.points, segments.first_end, segments.latest
    upto = missed[:, first_end:]
    cut = 0 if whole else 1  # how many groups at either end a slab may divide
    start = np.minimum.accumulate(missed[:, : len(points) - cut] - r * points[cut:], axis=1)
    end = upto - r * points[first_end - cut : len(points) - cut]
    early = latest >= 2 * cut
    between = end[:, early] - start[:, latest[early] - 2 * cut]
    bound = between.max(axis=1, initial=-np.inf)
    if cut:  # from the two latest starts there may be no group between, only min_points points
        most = (upto - missed[:, np.maximum(latest - 1, 0)]).max(axis=1)
        bound = np.maximum(bound, most - r[:, 0] * search.min_points)
    # r is a fraction whose denominator is at most n, so missed - r * points is 0 or at least 1 / n
    return np.asarray(bound > 0.5 / points[-1])
