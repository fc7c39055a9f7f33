from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg.metrics._segments import Segments, smallest_slab, worst_segment


def brute_force(covered, size, min_points):
    """Smallest ratio over all segments with enough points, as an exact fraction."""
    ratios = [
        Fraction(int(sum(covered[i:j])), int(sum(size[i:j])))
        for i in range(len(size))
        for j in range(i + 1, len(size) + 1)
        if sum(size[i:j]) >= min_points
    ]
    return min(ratios)


@pytest.mark.parametrize(
    ("delta", "n", "expected"),
    [(0.1, 30, 3), (0.07, 100, 7), (0.1, 31, 4), (1.0, 5, 5), (0.001, 5, 1), (0.3, 10, 3)],
)
def test_smallest_slab_is_the_decimal_ceiling(delta, n, expected):
    assert smallest_slab(delta, n) == expected


def test_smallest_slab_by_the_published_rule():
    assert smallest_slab(0.1, 500, rule="round") == 51
    assert smallest_slab(1.0, 500, rule="round") == 500


@st.composite
def sequences(draw):
    n_blocks = draw(st.integers(1, 15))
    size = draw(st.lists(st.integers(1, 4), min_size=n_blocks, max_size=n_blocks))
    rows = [[draw(st.integers(0, s)) for s in size] for _ in range(draw(st.integers(1, 3)))]
    return np.array(rows), np.array(size), draw(st.integers(1, sum(size)))


@settings(max_examples=300, deadline=None)
@given(sequences())
def test_worst_segment_equals_brute_force(case):
    covered, size, min_points = case
    worst = worst_segment(covered, Segments.at_least(min_points, size))
    for r, row in enumerate(covered):
        inside = slice(worst.start[r], worst.stop[r])
        assert worst.covered[r] == row[inside].sum()
        assert worst.points[r] == size[inside].sum() >= min_points
        found = Fraction(int(worst.covered[r]), int(worst.points[r]))
        assert found == brute_force(row, size, min_points)


@settings(max_examples=100, deadline=None)
@given(sequences())
def test_a_known_ratio_is_beaten_or_kept(case):
    covered, size, min_points = case
    below = np.full(len(covered), 1), np.full(len(covered), 3)
    worst = worst_segment(covered, Segments.at_least(min_points, size), below=below)
    for r, row in enumerate(covered):
        found = Fraction(int(worst.covered[r]), int(worst.points[r]))
        assert found == min(brute_force(row, size, min_points), Fraction(1, 3))


@settings(max_examples=100, deadline=None)
@given(sequences(), st.randoms(use_true_random=False))
def test_rows_with_blocks_of_their_own_equal_each_row_alone(case, random):
    covered, size, min_points = case
    orders = [random.sample(range(len(size)), len(size)) for _ in covered]
    covered = np.take_along_axis(covered, np.array(orders), axis=1)
    together = worst_segment(covered, Segments.at_least(min_points, size[np.array(orders)]))
    for r, order in enumerate(orders):
        alone = worst_segment(covered[r : r + 1], Segments.at_least(min_points, size[order]))
        for name, value in vars(alone).items():
            assert getattr(together, name)[r] == value[0]


def test_long_sequences_do_not_overflow():
    n = 60_000  # n * n needs more than 32 bits
    covered = np.ones((1, n), dtype=np.uint8)
    covered[0, 40_000:46_001] = 0
    worst = worst_segment(covered, Segments.at_least(6_000, np.ones(n, dtype=np.int64)))
    assert worst.covered[0] == 0
    assert worst.points[0] in (6_000, 6_001)
