"""Synthetic data: the rules in the docstring hold row by row, the shares within sampling error."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from fareg._validation import InvalidInputError
from fareg.datasets import make_metric_benchmark, make_nursery_experiment, make_synthetic

N = 20_000
HARD = {
    "xnor": lambda c, g, a: (c, g) in {("Red", "Female"), ("Blue", "Male")},
    "eight": lambda c, g, a: (g == "Male") == (a in ("Child", "Youth")),
    "none": lambda c, g, a: False,
}


def five_sigma(p, n):
    return 5 * np.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("bias", HARD)
@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.7, 0.2)])
def test_synthetic_rows_follow_the_documented_rules(bias, shares):
    inside, outside = shares
    options = {"hard_inside": inside, "hard_outside": outside, "random_state": 2}
    data = make_synthetic(N, bias=bias, **options)
    rows = zip(data.X["Color"], data.X["Gender"], data.X["Age Group"], strict=True)
    assert data.group.tolist() == [HARD[bias](*row) for row in rows]
    hard = data.X["Feature 2"].to_numpy() < np.where(data.group, inside, outside)
    check_labels(data.y, data.X["Feature 1"].to_numpy(), hard)
    assert np.bincount(data.y) / N == pytest.approx(1 / 6, abs=five_sigma(1 / 6, N))
    for column, levels in {"Color": 2, "Gender": 2, "Age Group": 4, "Region": 5}.items():
        found = data.X[column].value_counts(normalize=True).to_numpy()
        assert len(found) == levels
        assert found == pytest.approx(1 / levels, abs=five_sigma(1 / levels, N))
    features = data.X.filter(like="Feature").to_numpy()
    assert 0 <= features.min() <= features.max() < 1


def check_labels(y, signal, hard):
    sixth = np.floor(6 * signal).astype(int)
    assert_array_equal(y[~hard], sixth[~hard])
    assert_array_equal(y >= 3, signal >= 0.5)
    agree = (y == sixth)[hard].mean()
    assert agree == pytest.approx(1 / 3, abs=five_sigma(1 / 3, hard.sum()))


def test_metric_benchmark_rule():
    data = make_metric_benchmark(N, random_state=0)
    X = data.X.to_numpy()
    assert list(data.X.columns) == [f"x{j}" for j in range(10)]
    assert_array_equal(data.group, (X[:, 0] >= 0.1) != (X[:, 1] >= 0.1))
    assert data.group.mean() == pytest.approx(0.18, abs=five_sigma(0.18, N))
    check_labels(data.y, X[:, 2], data.group)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: make_synthetic(50, random_state=seed),
        lambda seed: make_metric_benchmark(50, random_state=seed),
        lambda seed: make_nursery_experiment(random_state=seed),
    ],
)
def test_seed_decides_and_the_global_seed_does_not(make):
    np.random.seed(0)  # noqa: NPY002
    first = make(7)
    np.random.seed(1)  # noqa: NPY002
    again, other = make(7), make(8)
    assert_frame_equal(first.X, again.X)
    assert_array_equal(first.y, again.y)
    assert (first.y != other.y).any()


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
