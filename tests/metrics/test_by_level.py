import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg._validation import InvalidInputError
from fareg.metrics import clopper_pearson, coverage_by_level

GROUP = ("n", "share", "coverage", "low", "high")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
def test_equals_counting_by_hand(rows):
    levels, covered = (np.array(column) for column in zip(*rows, strict=True))
    table = coverage_by_level(levels, covered, n_levels=7)
    assert table["level"].tolist() == list(range(7))
    for m in range(7):
        for mask, names in (
            (levels == m, GROUP),
            (levels >= m, [f"upper_{name}" for name in GROUP]),
        ):
            n, share, coverage, low, high = table.loc[m, list(names)]
            assert (n, share) == (mask.sum(), mask.mean())
            expected = covered[mask].mean() if mask.any() else np.nan
            np.testing.assert_array_equal(coverage, expected)
            assert (low, high) == clopper_pearson(covered[mask].sum(), mask.sum())


def test_the_lowest_upper_set_is_everyone_and_the_highest_is_its_level():
    rng = np.random.default_rng(0)
    levels, covered = rng.integers(0, 5, 300), rng.random(300) < 0.9
    table = coverage_by_level(levels, covered, interval_level=0.8)
    assert table.loc[0, "upper_n"] == 300
    assert table.loc[0, "upper_coverage"] == covered.mean()
    for name in GROUP:
        assert table[f"upper_{name}"].iloc[-1] == table[name].iloc[-1]


def test_intervals_hold_at_the_stated_rate():
    rng = np.random.default_rng(0)
    truth = np.array([0.95, 0.9, 0.8])
    misses = np.zeros(3)
    for _ in range(300):
        levels = rng.integers(0, 3, 120)
        table = coverage_by_level(levels, rng.random(120) < truth[levels], n_levels=3)
        misses += (table["low"] > truth) | (table["high"] < truth)
    # at most 5% each in expectation: 15 of 300, and 27 is beyond three standard errors
    assert misses.max() <= 27


@pytest.mark.parametrize(
    ("levels", "options", "message"),
    [
        ([0, -1], {}, "whole numbers from 0"),
        ([0, 0.5], {}, "whole numbers from 0"),
        ([0, np.nan], {}, "whole numbers from 0"),
        ([0, 10**12], {}, "whole numbers from 0"),
        (["a", "b"], {}, "one whole number per row"),
        ([0, 3], {"n_levels": 3}, "levels must be whole numbers from 0 to 2, got 3"),
        ([0, 1, 2], {}, "same number of rows"),
    ],
)
def test_errors_say_what_to_fix(levels, options, message):
    with pytest.raises(InvalidInputError, match=message):
        coverage_by_level(levels, [0, 1], **options)
