"""Bets against large scores: fair games while nothing has changed, rich when coverage falls.

Under exchangeability the ``n`` scores of a reference cut the line into ``n + 1`` gaps, and the next
score falls into each of them with probability ``(1 + what fell there before) / (n + 1 + t)``,
whatever its distribution is. So the luck of calibration is part of the game, and whole scores are
used. Gaps are joined to a few dozen bins, finest where sets end: the state never grows.

A bet is a density on ranks that falls from the largest scores to the smallest. Wealth moves
between bets, and between betting and waiting, at a rate that falls with time (fixed share, Herbster
& Warmuth 1998): a mixture over times of change and sizes of change. It is a martingale that starts
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
ODDS = (1.25, 1.6, 2.2, 3.5, 7.0)  # by which bets on misses multiply theirs
MILD = (2, 6)  # the bets that tell since when; the stronger ones forget a small change
N_BETS = 1 + len(POWERS) + len(ODDS)  # the first one is to wait
WAITING = 0.5  # share of the wealth that new bets leave
PATIENCE = 100  # rows: a change is expected at about this time, or this time later than ever before
PAUSE, LONGEST = 16, 256  # rows between two moves of wealth, at first and at last


@dataclass(frozen=True, eq=False)
class Reference:
    """Scores of known rows, kept as the edges of bins, from the largest score downwards.

    Equal scores are put in order by a random number of each row, the ``tie``.
    """

    edges: FloatArray  # (n_bins - 1,) falling
    ties: FloatArray  # (n_bins - 1,)
    gaps: IntArray  # (n_bins,) how many gaps between scores lie above the lower end of each bin

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(value) for name, value in vars(self).items()}
        vars(self).update(arrays)  # a state file has lists
        require(len({len(own) for own in (self.edges, self.ties, self.gaps[:-1])}) == 1, "gaps")
        require((np.diff(self.gaps) > 0).all() and self.gaps[0] > 0, "gaps")

    @classmethod
    def of(cls, scores: FloatArray, ties: FloatArray, alpha: float) -> Self:
        """Join the gaps between scores to bins."""
        n = len(scores)
        shares = np.concatenate([np.multiply(EDGES, alpha), np.arange(3, 10) / 10])
        gaps = np.unique(np.rint(shares[shares < 1] * (n + 1)).astype(np.int64))
        gaps = gaps[(gaps > 0) & (gaps <= n)]
        own = np.lexsort((ties, scores))[::-1][gaps - 1]
        return cls(scores[own], ties[own], np.append(gaps, n + 1))

    def bins(self, scores: FloatArray, ties: FloatArray) -> IntArray:
        """Return the bin of each score; the first holds the largest scores."""
        above = np.searchsorted(-self.edges, -scores, side="left")
        tied = np.flatnonzero(np.isin(scores, self.edges))
        below = (self.edges == scores[tied, None]) & (self.ties >= ties[tied, None])
        above[tied] += below.sum(axis=1)
        return above.astype(np.int64)


def bet_shares(p: FloatArray, alpha: float) -> FloatArray:
    """Return what each bet puts on the ranks up to ``p``, shape (n, N_BETS)."""
    missing = [odds * alpha / (1 - alpha + odds * alpha) for odds in ODDS]
    misses = [
        np.where(p <= alpha, m * p / alpha, 1 - (1 - m) * (1 - p) / (1 - alpha)) for m in missing
    ]
    return np.stack([p, *(p**k for k in POWERS), *misses], axis=-1)


def first_weights() -> FloatArray:
    """Return how wealth is divided among the bets at the start."""
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
        """Return the wealth after each row, and the log of what mild bets gain there: both (n,).

        The answers and the state at the end do not depend on how rows are divided among calls.
        """
        wealth, mild = np.empty(len(bins)), np.empty(len(bins))
        start = 0
        while start < len(bins):
            stop = min(len(bins), start + self.next_move - self.n_rows)
            own, rows = bins[start:stop], np.arange(stop - start)
            came = np.eye(len(self.counts), dtype=np.int64)[own]
            before = self.counts + np.cumsum(came, axis=0) - came
            rank = np.cumsum(before, axis=1) + reference.gaps
            share = rank / (reference.gaps[-1] + self.n_rows + rows)[:, None]
            high = share[rows, own]
            low = np.where(own > 0, share[rows, own - 1], 0.0)
            gain = (bet_shares(high, alpha) - bet_shares(low, alpha)) / (high - low)[:, None]
            path = np.cumprod(np.vstack([self.weights, gain]), axis=0)[1:]
            wealth[start:stop] = path.sum(axis=1)
            mild[start:stop] = np.log(gain[:, MILD].mean(axis=1))
            self.counts, self.weights = self.counts + came.sum(axis=0), path[-1]
            self.n_rows, start = self.n_rows + len(own), stop
            if self.n_rows == self.next_move:
                self._move()
        return wealth, mild

    def _move(self) -> None:
        """Put a share of the wealth back to where it was at the start."""
        pause = min(LONGEST, max(PAUSE, self.n_rows // 64))
        moved = pause / (self.n_rows + PATIENCE)
        self.weights = (1 - moved) * self.weights + moved * self.weights.sum() * first_weights()
        self.next_move = self.n_rows + pause


def misses_since(
    gains: Any, missed: BoolArray, before: Sequence[Any]
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return for each row the gain, the rows and the misses since the gains were lowest.

    That is where a change begins, if there is one (Page 1954). ``before`` are these three numbers
    ahead of the first row.

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
    """Return an interval of the mean coverage of ``n`` rows that holds at every moment, (..., 2).

    With ``m`` the mean of the probabilities with which these rows were missed, given what came
    before each, ``exp(L misses) / (1 - m + m exp(L)) ** n`` is at most a martingale from 1, for
    every number ``L``; so is a mixture. The interval holds all ``m`` for which a mixture of
    positive and one of negative ``L`` are below ``2 / error``. Coverage may move as it likes.

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
    for sign, end in ((-1, 1.0), (1, 0.0)):  # the highest m, then the lowest
        near, far = centre, np.full_like(centre, end)
        for _ in range(50):
            middle = (near + far) / 2
            inside = wealth(middle, sign) < np.log(2 / error)
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        ends.append(1 - np.where(n > 0, far, end))
    return np.stack(ends, axis=-1)
