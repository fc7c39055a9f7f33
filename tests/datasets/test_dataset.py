"""Dataset: lengths agree, rows travel together; label noise is uniform and stays in its group."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fareg._validation import InvalidInputError
from fareg.datasets import Dataset, inject_label_noise


def small(**changes):
    fields = {
        "X": pd.DataFrame({"a": ["u", "v", "w"], "b": [0.0, 1.0, 2.0]}),
        "y": np.array([0, 1, 0]),
        "sensitive": ("a",),
        "group": np.array([True, False, True]),
        "name": "small",
    }
    return Dataset(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.array([0, 1])}, "X has 3, y has 2"),
        ({"group": np.array([True])}, "X has 3, group has 1"),
        ({"group": np.array([1, 0, 1])}, "group must be a bool array, got dtype int64"),
        ({"sensitive": ("a", "c")}, "sensitive must name columns of X, got c; columns: a, b"),
    ],
)
def test_refuses_what_does_not_fit(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("rows", "positions"),
    [
        ([2, 0], [2, 0]),
        (np.array([True, False, True]), [0, 2]),
        (slice(1, None), [1, 2]),
        ([], []),
    ],
)
def test_take_keeps_rows_together(rows, positions):
    data = small()
    part = data.take(rows)
    assert part.X["b"].tolist() == positions
    assert part.y.tolist() == [data.y[i] for i in positions]
    assert part.group.tolist() == [data.group[i] for i in positions]
    assert part.X.index.tolist() == list(range(len(part)))
    assert (part.sensitive, part.name) == (data.sensitive, data.name)


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
    if len(y):  # by default the largest label is the last class
        assert inject_label_noise(y, group, random_state=seed).max() <= y.max()


def test_shift_is_rounded_uniform():
    n = 40_000
    y = np.full(n, 10)
    noisy = inject_label_noise(y, np.ones(n, dtype=bool), n_classes=21, random_state=0)
    counts = np.bincount(noisy, minlength=21)[6:15] / n
    law = np.array([0.5, 1, 1, 1, 1, 1, 1, 1, 0.5]) / 8  # half a unit at either end
    assert counts == pytest.approx(law, abs=5 * np.sqrt(0.125 / n))


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
