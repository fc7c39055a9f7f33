"""Bets on large scores: a fair game while nothing changes, and one that wins when coverage falls.

Under exchangeability, the ``n`` scores of a reference cut the line into ``n + 1`` gaps, and score
``t + 1`` of a stream falls into a gap with probability ``(1 + scores in it so far) / (n + 1 + t)``,
whatever the distribution. So the game accounts for the luck of calibration, and uses whole scores.
Gaps are joined into a few dozen bins, finest where sets end, so the state never grows.

A bet is a density on ranks that falls from the largest scores to the smallest. Wealth moves
between bets, and between betting and waiting, at a rate that falls with time (fixed share, Herbster
& Warmuth 1998): a mixture over times and sizes of a change. It is a martingale that starts
from 1, so the probability that it ever reaches ``c`` is at most ``1 / c`` (Ville 1939).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fareg._validation import BoolArray, FloatArray, IntArray, require

EDGES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 1.25, 1.5, 2, 2.5, 3, 4)  # of bins, times alpha
POWERS = (0.9, 0.75, 0.6, 0.4)  # of bets p ** k on all ranks
ODDS = (1.25, 1.6, 2.2, 3.5, 7.0)  # factors by which bets on misses multiply the odds of a miss
MILD = (2, 6)  # the bets that estimate when a change began; stronger ones forget a small change
N_BETS = 1 + len(POWERS) + len(ODDS)  # the first one is to wait
WAITING = 0.5  # share of the wealth that waits at the start
PATIENCE = 100  # about 1 / (n + PATIENCE) of the wealth moves per row, after n rows
PAUSE, LONGEST = 16, 256  # rows between two moves of wealth, at first and at most


@dataclass(frozen=True, eq=False)
class Reference:
    """Scores of known rows, kept as the edges of bins, from the largest score downwards.

    A random number per row, its ``tie``, puts equal scores in order.
    """

    edges: FloatArray  # (n_bins - 1,) falling
    ties: FloatArray  # (n_bins - 1,)
    gaps: IntArray  # (n_bins,) number of gaps between scores above the lower end of each bin

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(value) for name, value in vars(self).items()}
        vars(self).update(arrays)  # a state file has lists
        require(len({len(x) for x in (self.edges, self.ties, self.gaps[:-1])}) == 1, "gaps")
        require((np.diff(self.gaps) > 0).all() and self.gaps[0] > 0, "gaps")

    @classmethod
    def of(cls, scores: FloatArray, ties: FloatArray, alpha: float) -> Self:
        """Join the gaps between scores into bins."""
        n = len(scores)
        shares = np.concatenate([np.multiply(EDGES, alpha), np.arange(3, 10) / 10])
        gaps = np.unique(np.rint(shares[shares < 1] * (n + 1)).astype(np.int64))
        gaps = gaps[(gaps > 0) & (gaps <= n)]
        edges = np.lexsort((ties, scores))[::-1][gaps - 1]
        return cls(scores[edges], ties[edges], np.append(gaps, n + 1))

    def bins(self, scores: FloatArray, ties: FloatArray) -> IntArray:
        """Return the bin of each score; the first holds the largest scores."""
        above = np.searchsorted(-self.edges, -scores, side="left")
        tied = np.flatnonzero(np.isin(scores, self.edges))
        below = (self.edges == scores[tied, None]) & (self.ties >= ties[tied, None])
        above[tied] += below.sum(axis=1)
        return above.astype(np.int64)


def bet_shares(p: FloatArray, alpha: float) -> FloatArray:
    """Return the share of each bet on the ranks up to ``p``, shape (n, N_BETS)."""
    rates = [odds * alpha / (1 - alpha + odds * alpha) for odds in ODDS]
    misses = [
        np.where(p <= alpha, m * p / alpha, 1 - (1 - m) * (1 - p) / (1 - alpha)) for m in rates
    ]
    return np.stack([p, *(p**k for k in POWERS), *misses], axis=-1)


def first_weights() -> FloatArray:
    """Return the wealth in each bet at the start."""
    return np.array([WAITING, *[(1 - WAITING) / (N_BETS - 1)] * (N_BETS - 1)])


@dataclass(eq=False)
class Wager:
    """The wealth of one stream, row by row."""

    counts: IntArray  # (n_bins,) rows of the stream in each bin
    weights: FloatArray  # (N_BETS,) the wealth in each bet
    n_rows: int = 0
    next_move: int = PAUSE  # the row before which wealth moves

    def __post_init__(self) -> None:
        self.counts, self.weights = np.asarray(self.counts), np.asarray(self.weights)
        require(self.weights.shape == (N_BETS,) and self.next_move > self.n_rows, "weights")

    @classmethod
    def start(cls, reference: Reference) -> Self:
        """Begin with wealth 1."""
        return cls(np.zeros(len(reference.gaps), dtype=np.int64), first_weights())

    def play(
        self, reference: Reference, bins: IntArray, alpha: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the wealth after each row and the log of the mild bets' gain there, both (n,).

        Neither these nor the final state depend on how rows are divided among calls.
        """
        wealth, mild = np.empty(len(bins)), np.empty(len(bins))
        start = 0
        while start < len(bins):
            stop = min(len(bins), start + self.next_move - self.n_rows)
            row_bins, rows = bins[start:stop], np.arange(stop - start)
            is_in_bin = np.eye(len(self.counts), dtype=np.int64)[row_bins]
            before = self.counts + np.cumsum(is_in_bin, axis=0) - is_in_bin
            rank = np.cumsum(before, axis=1) + reference.gaps
            share = rank / (reference.gaps[-1] + self.n_rows + rows)[:, None]
            high = share[rows, row_bins]
            low = np.where(row_bins > 0, share[rows, row_bins - 1], 0.0)
            gain = (bet_shares(high, alpha) - bet_shares(low, alpha)) / (high - low)[:, None]
            path = np.cumprod(np.vstack([self.weights, gain]), axis=0)[1:]
            wealth[start:stop] = path.sum(axis=1)
            mild[start:stop] = np.log(gain[:, MILD].mean(axis=1))
            self.counts, self.weights = self.counts + is_in_bin.sum(axis=0), path[-1]
            self.n_rows, start = self.n_rows + len(rows), stop
            if self.n_rows == self.next_move:
                self._move()
        return wealth, mild

    def _move(self) -> None:
        """Divide a share of the wealth among the bets as at the start."""
        pause = min(LONGEST, max(PAUSE, self.n_rows // 64))
        moved = pause / (self.n_rows + PATIENCE)
        self.weights = (1 - moved) * self.weights + moved * self.weights.sum() * first_weights()
        self.next_move = self.n_rows + pause


def misses_since(
    gains: Any, missed: BoolArray, before: Sequence[Any]
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the gain, the rows and the misses since the total gain was lowest, for each row.

    If there is a change, it began there (Page 1954). ``before`` holds the three numbers before
    the first row.

    >>> gains, missed = np.array([-1.0, 2.0, 1.0]), np.array([True, True, False])
    >>> [column.tolist() for column in misses_since(gains, missed, (0.5, 7, 2))]
    [[0.0, 2.0, 3.0], [0, 1, 2], [0, 1, 1]]
    """
    total = before[0] + np.cumsum(gains)
    low = np.minimum.accumulate(np.minimum(total, 0.0))
    is_lowest, place = total <= low, np.arange(len(total))
    start = np.maximum.accumulate(np.where(is_lowest, place, -1))
    seen = np.concatenate([[0], np.cumsum(missed)])
    rows = place - start + np.where(start < 0, before[1], 0)
    misses = seen[1:] - seen[start + 1] + np.where(start < 0, before[2], 0)
    return total - low, rows, misses


def interval_at_all_times(n: IntArray, n_missed: IntArray, error: float) -> FloatArray:
    """Return an interval for the mean coverage of ``n`` rows, valid at every moment, (..., 2).

    Let ``m`` be the mean probability of a miss over these rows, each given the past. For every
    number ``L``, ``exp(L misses) / (1 - m + m exp(L)) ** n`` is at most a martingale from 1, and so
    is a mixture. The interval holds all ``m`` for which a mixture over positive ``L`` and one over
    negative ``L`` are both below ``2 / error``. Coverage may change in any way.

    >>> interval_at_all_times(np.array([0, 1000]), np.array([0, 100]), 0.05).round(3).tolist()
    [[0.0, 1.0], [0.865, 0.929]]
    """
    n, n_missed = np.asarray(n, dtype=np.float64), np.asarray(n_missed, dtype=np.float64)
    slopes = np.geomspace(0.004, 4, 24)

    def wealth(m: FloatArray, sign: int) -> FloatArray:
        exponent = sign * slopes * n_missed[..., None]
        exponent = exponent - n[..., None] * np.log1p(m[..., None] * np.expm1(sign * slopes))
        return np.logaddexp.reduce(exponent, axis=-1) - np.log(len(slopes))

    ends, centre = [], n_missed / np.maximum(n, 1)
    for sign, end in ((-1, 1.0), (1, 0.0)):  # for the highest m, then the lowest
        near, far = centre, np.full_like(centre, end)
        for _ in range(50):
            middle = (near + far) / 2
            inside = wealth(middle, sign) < np.log(2 / error)
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        ends.append(1 - np.where(n > 0, far, end))
    return np.stack(ends, axis=-1)
