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
    """Return the fewest points that a slab of mass ``delta`` may hold.

    Parameters
    ----------
    delta : float
        Smallest share of the points, in (0, 1].
    n_samples : int
        Number of points.
    rule : {"ceil", "round"}, default="ceil"
        ``ceil(delta * n)``, computed in decimals (7% of 100 is 7, though ``0.07 * 100 > 7``), or
        ``round(delta * n) + 1``, the rule of the code published with WSC+.

    Returns
    -------
    int
        At least 1, at most ``n_samples``.

    Examples
    --------
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
    """The segments of a sequence of blocks that hold at least ``min_points`` points.

    Cut ``j`` lies before block ``j``. A segment from cut ``i`` to cut ``j`` is allowed if
    ``first_end <= j`` and ``i <= latest[j - first_end]``.

    Attributes
    ----------
    points : ndarray of shape (n_blocks + 1,)
        Number of points before each cut.
    first_end : int
        The first cut at which a segment may end.
    latest : ndarray of shape (n_blocks + 1 - first_end,)
        For each such end, the latest cut at which its segment may start.
    """

    points: IntArray
    first_end: int
    latest: IntArray

    @classmethod
    def at_least(cls, min_points: int, size: npt.NDArray[Any]) -> Segments:
        """Allow segments of at least ``min_points`` points, given the points of each block.

        Examples
        --------
        >>> import numpy as np
        >>> segments = Segments.at_least(3, np.array([2, 2, 1]))
        >>> segments.first_end, segments.latest.tolist()  # blocks 0-1; 0-2 or 1-2
        (2, [0, 1])
        """
        points = np.concatenate([[0], np.cumsum(size, dtype=np.int64)])
        first_end = int(np.searchsorted(points, min_points))
        if points[-1] == len(size):  # one point per block: no search needed
            return cls(points, first_end, np.arange(len(points) - first_end))
        latest = np.searchsorted(points, points[first_end:] - min_points, side="right") - 1
        return cls(points, first_end, latest)


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

    Dinkelbach's iteration for the ratio covered / points: given a ratio a / b, the segment that
    minimises ``b * covered - a * points`` comes from prefix sums ``P`` and their running maximum;
    a negative minimum gives a better ratio, zero proves a / b optimal. All numbers are integers,
    so the answer is exact.

    Parameters
    ----------
    covered : ndarray of shape (n_rows, n_blocks)
        Covered points of each block; each row is one coverage of the same sequence of blocks.
    segments : Segments
        The segments to choose from.
    below : pair of ndarray of shape (n_rows,), optional
        Covered and points of a known ratio per row: only better segments are looked for.

    Returns
    -------
    WorstSegments
        Of equally bad segments, the one the iteration meets first.

    References
    ----------
    Dinkelbach, W. (1967). On nonlinear fractional programming. Management Science 13, 492-498.

    Examples
    --------
    >>> import numpy as np
    >>> covered = np.array([[1, 0, 1, 0, 0, 1]])
    >>> worst = worst_segment(covered, Segments.at_least(3, np.ones(6, int)))
    >>> worst.covered.item(), worst.points.item()
    (1, 4)
    """
    n_rows, n_points = len(covered), int(segments.points[-1])
    dtype = np.int32 if n_points**2 < 2**31 else np.int64  # holds b * covered - a * points
    sums: npt.NDArray[Any] = np.zeros((n_rows, len(segments.points)), dtype=dtype)
    np.cumsum(covered, axis=1, out=sums[:, 1:])
    points: npt.NDArray[Any] = segments.points.astype(dtype)
    rows = np.arange(n_rows)
    if below is None:
        start, stop = _shortest(sums, points, segments)
        a, b = sums[rows, stop] - sums[rows, start], points[stop] - points[start]
    else:
        start, stop = np.zeros((2, n_rows), dtype=np.int64)
        a, b = below[0].astype(dtype), below[1].astype(dtype)
    while len(rows):
        P = b[rows, None] * sums[rows] - a[rows, None] * points
        best = np.maximum.accumulate(P, axis=1)
        slack = P[:, segments.first_end :] - np.take(best, segments.latest, axis=1)
        end = np.argmin(slack, axis=1)
        better = slack[np.arange(len(rows)), end] < 0
        rows, end, P, best = rows[better], end[better], P[better], best[better]
        peak = best[np.arange(len(rows)), segments.latest[end]]
        start[rows] = np.argmax(peak[:, None] == P, axis=1)
        stop[rows] = end + segments.first_end
        a[rows] = sums[rows, stop[rows]] - sums[rows, start[rows]]
        b[rows] = points[stop[rows]] - points[start[rows]]
    return WorstSegments(start, stop, a.astype(np.int64), b.astype(np.int64))


def _shortest(
    sums: npt.NDArray[Any], points: npt.NDArray[Any], segments: Segments
) -> tuple[IntArray, IntArray]:
    """Return the worst of the segments that start as late as they may: close to the optimum."""
    count = sums[:, segments.first_end :] - np.take(sums, segments.latest, axis=1)
    end = np.argmin(count / (points[segments.first_end :] - points[segments.latest]), axis=1)
    return segments.latest[end], end + segments.first_end
