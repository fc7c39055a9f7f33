"""Thresholds from counts are those of sorted scores, to the bit, however the rows are divided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fareg._validation import InvalidInputError
from fareg.calibration import (
    CountedLevels,
    IntervalSearch,
    LevelCalibration,
    ScoreCounts,
    level_thresholds,
)
from fareg.calibration._counting import ordered_bits, scores_of
from fareg.pvalues import conformal_rank

ALPHAS = (0.1, 0.3, 0.5)
FLOATS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 0.25, 0.5, np.inf])


class Levels:
    """A stand-in for a leveler with so many levels."""

    def __init__(self, n_levels):
        self.n_levels = n_levels


def counted(scores, levels, problems, n_levels, n_problems, alpha, *, few_rows, places=3):
    """Search by rounds in which each place counts its own rows; return the search and rounds."""
    search = IntervalSearch(n_levels, n_problems, alpha, len(scores), few_rows)
    rounds = 0
    while search.is_open:
        asked = search.next_round()
        parts = [
            asked.count(scores[i::places], levels[i::places], problems[i::places])
            for i in range(places)
        ]
        search.narrow(ScoreCounts.joined(parts))
        rounds += 1
    return search, rounds


@given(
    st.data(),
    st.integers(1, 5),
    st.sampled_from(ALPHAS),
    st.sampled_from([0, 10, 10**6]),
)
def test_counts_find_the_thresholds_of_sorted_scores(data, n_levels, alpha, few_rows):
    n = data.draw(st.integers(1, 60))
    scores = data.draw(arrays(np.float64, n, elements=FLOATS))
    levels = data.draw(arrays(np.int64, n, elements=st.integers(0, n_levels - 1)))
    problems = data.draw(arrays(np.int64, n, elements=st.integers(-1, 1)))
    search, rounds = counted(scores, levels, problems, n_levels, 2, alpha, few_rows=few_rows)
    assert rounds <= 4
    found = CountedLevels.of(Levels(n_levels), search, label_conditional=True)
    labels = np.where(problems >= 0, problems, -1)
    whole = LevelCalibration(Levels(n_levels), scores, levels, labels, 2, alpha)
    np.testing.assert_array_equal(found.level_thresholds, whole.level_thresholds)
    np.testing.assert_array_equal(found.split_thresholds, whole.split_thresholds)
    assert list(found.full_sets()) == list(whole.full_sets())
    for label in range(2):
        own = (labels == label) & (scores <= whole.split_thresholds[label])
        np.testing.assert_array_equal(
            found.covered[label], np.bincount(levels[own], minlength=n_levels)
        )


def test_every_run_of_levels_has_the_quantile_of_its_rows():
    rng = np.random.default_rng(0)
    scores, levels = np.round(rng.random(500), 2), rng.integers(0, 4, 500)
    search, rounds = counted(scores, levels, np.zeros(500, int), 4, 1, 0.1, few_rows=0)
    assert rounds == 4
    for a in range(4):
        for b in range(a, 4):
            own = np.sort(scores[(levels >= a) & (levels <= b)])
            assert search.quantiles[0, a, b] == own[conformal_rank(len(own), 0.1) - 1]
    thresholds = CountedLevels.of(Levels(4), search, label_conditional=False).level_thresholds
    np.testing.assert_array_equal(thresholds[:, 0], level_thresholds(scores, levels, 4, alpha=0.1))


def test_what_a_place_sends_does_not_grow_with_its_rows():
    rng = np.random.default_rng(0)
    sent = []
    for n in (20_000, 200_000):
        search = IntervalSearch(20, 1, 0.1, n, few_rows=1000)
        scores, levels = rng.random(n), rng.integers(0, 20, n)
        asked = search.next_round()
        counts = asked.count(scores, levels, np.zeros(n, dtype=np.int64))
        assert asked.bits == 16
        sent.append(len(counts.counts))
        assert counts.counts.sum() == n
    assert sent[1] < 2 * sent[0]


def test_rows_that_change_between_rounds_are_noticed():
    scores, levels, problems = np.arange(100.0), np.zeros(100, int), np.zeros(100, int)
    search = IntervalSearch(1, 1, 0.1, 100, few_rows=0)
    search.narrow(search.next_round().count(scores, levels, problems))
    with pytest.raises(InvalidInputError, match="changed between two rounds"):
        search.narrow(search.next_round().count(scores[:90], levels[:90], problems[:90]))


@given(arrays(np.float64, 20, elements=FLOATS))
def test_bits_keep_the_order_of_scores_and_give_them_back(scores):
    bits = ordered_bits(scores)
    np.testing.assert_array_equal(np.sort(scores), scores[np.argsort(bits, kind="stable")])
    np.testing.assert_array_equal(scores_of(bits), scores)
