"""Synthetic data: the rules in the docstring hold row by row, the shares within sampling error."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from fareg._validation import InvalidInputError
from fareg.datasets import make_metric_benchmark, make_synthetic

N = 20_000
BIASES = ["xnor", "eight", "none"]


def five_sigma(p, n):
    return 5 * np.sqrt(p * (1 - p) / n)


def expected_group(X, bias):
    rows = zip(X["Color"], X["Gender"], X["Age Group"], strict=True)
    hard = {
        "xnor": lambda c, g, a: (c, g) in {("Red", "Female"), ("Blue", "Male")},
        "eight": lambda c, g, a: (
            (g, a)
            in {("Male", "Child"), ("Male", "Youth"), ("Female", "Middle"), ("Female", "Elder")}
        ),
        "none": lambda c, g, a: False,
    }[bias]
    return [hard(*row) for row in rows]


@pytest.mark.parametrize("bias", BIASES)
def test_group_is_the_rule_on_x(bias):
    data = make_synthetic(2000, bias=bias, random_state=1)
    assert data.group.tolist() == expected_group(data.X, bias)
    assert data.group.mean() == pytest.approx(0 if bias == "none" else 0.5, abs=0.06)


@pytest.mark.parametrize("bias", BIASES)
def test_labels_follow_the_documented_rule(bias):
    data = make_synthetic(N, bias=bias, random_state=2)
    signal = data.X["Feature 1"].to_numpy()
    hard = data.X["Feature 2"].to_numpy() < np.where(data.group, 0.9, 0.1)
    sixth = np.floor(6 * signal).astype(int)
    assert_array_equal(data.y[~hard], sixth[~hard])
    assert_array_equal(data.y >= 3, signal >= 0.5)
    agree = (data.y == sixth)[hard].mean()
    assert agree == pytest.approx(1 / 3, abs=five_sigma(1 / 3, hard.sum()))


def test_hard_shares_inside_and_outside():
    data = make_synthetic(N, hard_inside=0.7, hard_outside=0.2, random_state=3)
    off_sixth = data.y != np.floor(6 * data.X["Feature 1"])
    for rows, share in [(data.group, 0.7), (~data.group, 0.2)]:
        p = share * 2 / 3  # a hard row keeps the label of its sixth one time in three
        assert off_sixth[rows].mean() == pytest.approx(p, abs=five_sigma(p, rows.sum()))


@pytest.mark.parametrize("bias", BIASES)
def test_classes_and_levels_are_balanced(bias):
    data = make_synthetic(N, bias=bias, random_state=5)
    assert np.bincount(data.y) / N == pytest.approx(1 / 6, abs=five_sigma(1 / 6, N))
    for column, levels in [("Color", 2), ("Gender", 2), ("Age Group", 4)]:
        shares = data.X[column].value_counts(normalize=True)
        assert len(shares) == levels
        assert shares.to_numpy() == pytest.approx(1 / levels, abs=five_sigma(1 / levels, N))
    features = data.X.iloc[:, 4:].to_numpy()
    assert features.min() >= 0
    assert features.max() < 1


@pytest.mark.parametrize("make", [make_synthetic, make_metric_benchmark])
def test_seed_decides_and_the_global_seed_does_not(make):
    np.random.seed(0)  # noqa: NPY002
    first = make(50, random_state=7)
    np.random.seed(1)  # noqa: NPY002
    again = make(50, random_state=7)
    other = make(50, random_state=8)
    assert_frame_equal(first.X, again.X)
    assert_array_equal(first.y, again.y)
    assert not first.X.equals(other.X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 0}, "n_samples must be a whole number >= 1, got 0"),
        ({"bias": "xor"}, "bias must be one of xnor, eight, none; got 'xor'"),
        ({"hard_inside": 90}, r"hard_inside must be a number in \[0, 1\], got 90"),
        ({"hard_outside": "low"}, r"hard_outside must be a number in \[0, 1\], got 'low'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        make_synthetic(**arguments)


def test_metric_benchmark_rule():
    data = make_metric_benchmark(N, random_state=0)
    X = data.X.to_numpy()
    assert list(data.X.columns) == [f"x{j}" for j in range(10)]
    assert_array_equal(data.group, (X[:, 0] >= 0.1) != (X[:, 1] >= 0.1))
    assert data.group.mean() == pytest.approx(0.18, abs=five_sigma(0.18, N))
    sixth = np.floor(6 * X[:, 2])
    assert_array_equal(data.y[~data.group], sixth[~data.group])
    assert_array_equal(data.y >= 3, X[:, 2] >= 0.5)
    agree = (data.y == sixth)[data.group].mean()
    assert agree == pytest.approx(1 / 3, abs=five_sigma(1 / 3, data.group.sum()))
