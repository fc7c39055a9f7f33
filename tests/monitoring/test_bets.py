"""Bets are fair, whatever the scores are; helpers equal their slow definitions."""

from itertools import permutations

import numpy as np
import pytest

from fareg.monitoring._bets import (
    N_BETS,
    Reference,
    Wager,
    bet_shares,
    interval_at_all_times,
    misses_since,
)

ALPHA = 0.1


def reference(n, seed=0, decimals=2):
    rng = np.random.default_rng(seed)
    return Reference.of(rng.random(n).round(decimals), rng.random(n), ALPHA)


def test_bins_order_scores_and_then_ties():
    rng, known = np.random.default_rng(1), reference(60, decimals=1)
    scores, ties = rng.random(500).round(1), rng.random(500)
    pairs = list(zip(known.edges, known.ties, strict=True))
    slow = [sum(edge >= own for edge in pairs) for own in zip(scores, ties, strict=True)]
    assert known.bins(scores, ties).tolist() == slow


def test_infinite_scores_have_a_place():
    known = Reference.of(np.array([np.inf] * 30 + [0.0] * 30), np.linspace(0, 1, 60), ALPHA)
    bins = known.bins(np.array([np.inf, np.inf, -np.inf]), np.array([1.0, 0.0, 0.5]))
    assert bins[0] == 0 < bins[1] < bins[2] == len(known.gaps) - 1


def test_the_next_score_falls_into_gaps_as_all_orders_say():
    # five exchangeable scores: three known ones, one that came, and the next
    known = Reference(np.array([2.0, 1.0, 0.0]), np.zeros(3), np.arange(1, 5))
    seen = np.zeros((4, 4))
    for order in permutations(range(5)):
        scores = np.array(order, dtype=float)
        own = Reference(np.sort(scores[:3])[::-1], np.zeros(3), known.gaps)
        first, second = own.bins(scores[3:], np.ones(2))
        seen[first, second] += 1
    urn = (1 + np.eye(4)) / 5  # (1 + what fell there before) / (n + 1 + t)
    assert np.allclose(seen / seen.sum(axis=1, keepdims=True), urn)


@pytest.mark.parametrize("n", [0, 3, 40, 700])
def test_every_bet_is_fair_at_every_row(n):
    known, rng = reference(n), np.random.default_rng(2)
    played = rng.integers(len(known.gaps), size=150)
    wager = Wager.start(known)
    wager.play(known, played, ALPHA)
    urn = np.diff(known.gaps + np.cumsum(wager.counts), prepend=0) / (n + 1 + 150)
    gains = []
    for own in range(len(known.gaps)):
        again = Wager(wager.counts, wager.weights, wager.n_rows, wager.next_move + 1)
        gains.append(again.play(known, np.array([own]), ALPHA)[0][0])
    assert np.dot(urn, gains) == pytest.approx(wager.weights.sum())


def test_bets_are_densities_that_fall():
    p = np.linspace(0, 1, 1001)
    shares = bet_shares(p, ALPHA)
    assert shares.shape == (1001, N_BETS)
    assert np.allclose(shares[0], 0)
    assert np.allclose(shares[-1], 1)
    density = np.diff(shares, axis=0)
    assert (np.diff(density, axis=0) <= 1e-12).all()  # they pay for large scores only


def test_the_division_into_calls_does_not_matter():
    known, rng = reference(300), np.random.default_rng(3)
    bins = known.bins(rng.random(4000), rng.random(4000))
    whole, parts = Wager.start(known), Wager.start(known)
    together = whole.play(known, bins, ALPHA)[0]
    apart = [parts.play(known, own, ALPHA)[0] for own in np.split(bins, [1, 17, 900, 905, 3333])]
    assert np.array_equal(together, np.concatenate(apart))
    assert np.array_equal(whole.weights, parts.weights)


def test_misses_since_the_lowest_gain_as_a_loop_finds_them():
    rng = np.random.default_rng(4)
    gains, missed = rng.normal(0.02, 1, 400), rng.random(400) < 0.2
    gain, rows, misses, slow = 0.0, 0, 0, []
    for one, is_missed in zip(gains, missed, strict=True):
        gain, rows, misses = gain + one, rows + 1, misses + is_missed
        if gain <= 0:
            gain, rows, misses = 0.0, 0, 0
        slow.append((gain, rows, misses))
    first = np.transpose(misses_since(gains[:150], missed[:150], (0.0, 0, 0)))
    rest = np.transpose(misses_since(gains[150:], missed[150:], first[-1]))
    assert np.allclose(np.vstack([first, rest]), slow)


def test_intervals_shrink_and_hold_the_share():
    n = np.array([1, 10, 100, 10**4, 10**6])
    low, high = interval_at_all_times(n, n // 10, 0.05).T
    assert ((low <= 0.9 + 0.1 * (n == 1)) & (high >= 0.9)).all()
    assert (np.diff(high - low) < 0).all()
    wide = interval_at_all_times(n, n // 10, 0.01)
    assert (wide[:, 0] <= low).all()
    assert (wide[:, 1] >= high).all()
