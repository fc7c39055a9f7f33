"""Label noise: inside the group only, within the classes only, uniform before rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fareg._validation import InvalidInputError
from fareg.datasets import inject_label_noise


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30),
    seed=st.integers(0, 1000),
)
def test_outside_stays_and_inside_stays_in_range(rows, seed):
    y = np.array([label for label, _ in rows], dtype=int)
    group = np.array([member for _, member in rows], dtype=bool)
    noisy = inject_label_noise(y, group, n_classes=6, random_state=seed)
    assert_array_equal(noisy[~group], y[~group])
    assert ((noisy >= 0) & (noisy < 6)).all()
    assert noisy.dtype == np.int64


def test_shift_is_rounded_uniform():
    n = 40_000
    y = np.full(n, 10)
    noisy = inject_label_noise(y, np.ones(n, dtype=bool), n_classes=21, random_state=0)
    counts = np.bincount(noisy, minlength=21)[6:15] / n
    law = np.array([0.5, 1, 1, 1, 1, 1, 1, 1, 0.5]) / 8  # half a unit at either end
    assert counts == pytest.approx(law, abs=5 * np.sqrt(0.125 / n))


def test_classes_default_to_the_largest_label():
    y = np.array([0, 1, 2] * 100)
    assert inject_label_noise(y, np.ones(300, dtype=bool), random_state=0).max() == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [0, 1]}, "y has 2, group has 3"),
        ({"group": [0, 1, 1]}, "group must hold bools, got dtype int64"),
        ({"y": ["a", "b", "c"]}, "y must hold whole numbers"),
        ({"n_classes": 2}, r"y must lie in 0, ..., 1, got 0 to 2; check n_classes"),
        ({"y": [-1, 0, 1]}, r"got -1 to 1"),
        ({"low": 2, "high": 1}, "low must be <= high, got low=2 and high=1"),
    ],
)
def test_bad_arguments(arguments, message):
    good = {"y": [0, 1, 2], "group": [True, False, True]}
    with pytest.raises(InvalidInputError, match=message):
        inject_label_noise(**(good | arguments))
