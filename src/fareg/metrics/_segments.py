"""The worst segment of a sorted sequence: exact, in a few linear passes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from fareg._validation import IntArray


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


@dataclass(frozen=True)
class Segments:
    """The segments of sequences of blocks that hold at least ``min_points`` points.

    Cut ``j`` lies before block ``j``. A segment from cut ``i`` to cut ``j`` is allowed if
    ``first_end <= j`` and ``i <= latest[j - first_end]``. All sequences share ``points`` and
    ``latest``, or each has a row of its own.
    """

    points: IntArray  # (..., n_blocks + 1) number of points before each cut
    first_end: int  # the first cut at which a segment may end
    latest: IntArray  # for each such end the latest cut to start at, -1 if there is none

    @classmethod
    def at_least(cls, min_points: int, size: npt.NDArray[Any]) -> Segments:
        """Allow segments of at least ``min_points`` points, given the points of each block.

        >>> segments = Segments.at_least(3, np.array([2, 2, 1]))
        >>> segments.first_end, segments.latest.tolist()  # blocks 0-1; 0-2 or 1-2
        (2, [0, 1])
        >>> Segments.at_least(3, np.array([[2, 2, 1], [1, 1, 3]])).latest.tolist()
        [[0, 1], [-1, 2]]
        """
        points = np.zeros((*size.shape[:-1], size.shape[-1] + 1), dtype=np.int64)
        np.cumsum(size, axis=-1, out=points[..., 1:])
        n_points = int(points.flat[-1])
        if points.shape == (n_points + 1,):  # with one point per block, no search is needed
            return cls(points, min_points, np.arange(len(points) - min_points))
        if size.ndim == 1:
            first_end = int(np.searchsorted(points, min_points))
            found = np.searchsorted(points, points[first_end:] - min_points, side="right")
            return cls(points, first_end, found - 1)
        # one search for all rows, each lifted above the one before
        row = np.arange(len(points))[:, None]
        lifted = points + 2 * n_points * row
        first_end = int((points < min_points).sum(axis=1).min())
        found = np.searchsorted(lifted.ravel(), lifted[:, first_end:] - min_points, side="right")
        return cls(points, first_end, found - 1 - points.shape[1] * row)

    def of(self, rows: IntArray) -> Segments:
        """Return the segments of some rows, the same if all rows share them."""
        if self.points.ndim == 1:
            return self
        return Segments(self.points[rows], self.first_end, self.latest[rows])

    def spans(self, ends: npt.NDArray[Any], starts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return for every end the value of ``ends`` there minus ``starts`` at its latest start.

        Both hold a value per cut; 0 stands for an end without a start.
        """
        last = ends[..., self.first_end :]
        if self.latest.ndim == 2:
            first = np.take_along_axis(starts, self.latest, axis=-1)
            return np.where(self.latest < 0, 0, last - first)
        if len(self.points) == self.points[-1] + 1:  # with one point per block, no search is needed
            return np.asarray(last - starts[..., : len(self.latest)])
        return np.asarray(last - np.take(starts, self.latest, axis=-1))


@dataclass(frozen=True)
class WorstSegments:
    """The worst segment of each row: from cut ``start`` to cut ``stop``, ``covered`` of ``points``.

    Each is an integer array of shape (n_rows,); ``start == stop == 0`` where no segment beats the
    ratio that was asked for.
    """

    start: IntArray
    stop: IntArray
    covered: IntArray
    points: IntArray


def worst_segment(
    covered: npt.NDArray[Any],
    segments: Segments,
    *,
    below: tuple[IntArray, IntArray] | None = None,
) -> WorstSegments:
    """Find the segment with the smallest share of covered points, for several coverages at once.

    Dinkelbach's iteration (1967) for the ratio covered / points: given a ratio a / b, the segment
    that minimises ``b * covered - a * points`` comes from prefix sums ``P`` and their running
    maximum; a negative minimum gives a better ratio, zero proves a / b optimal. All numbers are
    integers, so the answer is exact. Of equally bad segments, it is the one that the iteration
    meets first.

    ``covered`` of shape (n_rows, n_blocks) holds the covered points of each block, one sequence of
    blocks per row. With ``below``, covered and points of a known ratio per row, only better
    segments are looked for.

    >>> covered = np.array([[1, 0, 1, 0, 0, 1]])
    >>> worst = worst_segment(covered, Segments.at_least(3, np.ones(6, int)))
    >>> worst.covered.item(), worst.points.item()
    (1, 4)
    """
    n_rows, n_points = len(covered), int(segments.points.flat[-1])
    dtype = np.int32 if n_points**2 < 2**31 else np.int64  # holds b * covered - a * points
    segments = Segments(segments.points.astype(dtype), segments.first_end, segments.latest)
    sums: npt.NDArray[Any] = np.zeros((n_rows, segments.points.shape[-1]), dtype=dtype)
    np.cumsum(covered, axis=1, out=sums[:, 1:])
    points = np.broadcast_to(segments.points, sums.shape)
    rows = np.arange(n_rows)
    if below is None:
        start, stop = _shortest(sums, segments)
        a, b = sums[rows, stop] - sums[rows, start], points[rows, stop] - points[rows, start]
    else:
        start, stop = np.zeros((2, n_rows), dtype=np.int64)
        a, b = below[0].astype(dtype), below[1].astype(dtype)
    here, own = sums, segments
    while len(rows):
        P = b[rows, None] * here
        P -= a[rows, None] * own.points
        slack = own.spans(P, np.maximum.accumulate(P, axis=1))
        end = np.argmin(slack, axis=1)
        least = slack[np.arange(len(rows)), end]
        better = least < 0
        rows, end, P, least = rows[better], end[better] + own.first_end, P[better], least[better]
        here, own = here[better], own.of(better)
        peak = P[np.arange(len(rows)), end] - least
        start[rows], stop[rows] = np.argmax(peak[:, None] == P, axis=1), end
        a[rows] = sums[rows, end] - sums[rows, start[rows]]
        b[rows] = points[rows, end] - points[rows, start[rows]]
    return WorstSegments(start, stop, a.astype(np.int64), b.astype(np.int64))


def _shortest(sums: npt.NDArray[Any], segments: Segments) -> tuple[IntArray, IntArray]:
    """Return the worst of the segments that start as late as they may: close to the optimum."""
    count = segments.spans(sums, sums)
    size = np.broadcast_to(segments.spans(segments.points, segments.points), count.shape)
    ratio = np.divide(count, size, out=np.full(count.shape, np.inf), where=size > 0)
    end = np.argmin(ratio, axis=1)
    latest = np.broadcast_to(segments.latest, count.shape)
    return latest[np.arange(len(end)), end], end + segments.first_end
