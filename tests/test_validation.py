"""Errors: one tree, and sentences that say what, got and fix."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import fareg
from fareg._validation import (
    FaregError,
    FaregWarning,
    InvalidInputError,
    NotConformalizedError,
    check_choice,
    check_confidence_level,
    check_count,
    check_fraction,
    check_same_length,
    warn,
)
from fareg.metrics._tally import check_covered


def test_error_tree():
    assert issubclass(InvalidInputError, FaregError)
    assert issubclass(InvalidInputError, ValueError)
    assert issubclass(NotConformalizedError, FaregError)
    assert issubclass(NotConformalizedError, NotFittedError)
    assert issubclass(FaregWarning, UserWarning)
    assert fareg.FaregError is FaregError
    assert fareg.FaregWarning is FaregWarning


@pytest.mark.parametrize(
    ("level", "sentence"),
    [
        (90, "confidence_level must be in (0, 1), got 90; did you mean 0.9?"),
        (99.5, "confidence_level must be in (0, 1), got 99.5; did you mean 0.995?"),
        (1, "confidence_level must be in (0, 1), got 1; try 0.9"),
        (0, "confidence_level must be in (0, 1), got 0; try 0.9"),
        (-0.1, "confidence_level must be in (0, 1), got -0.1; try 0.9"),
        (float("nan"), "confidence_level must be in (0, 1), got nan; try 0.9"),
        ("0.9", "confidence_level must be a number in (0, 1), got '0.9'; try 0.9"),
        (True, "confidence_level must be a number in (0, 1), got True; try 0.9"),
        (None, "confidence_level must be a number in (0, 1), got None; try 0.9"),
    ],
)
def test_bad_confidence_level(level, sentence):
    with pytest.raises(InvalidInputError) as caught:
        check_confidence_level(level)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("level", "alpha"), [(0.9, 0.1), (0.7, 0.3), (np.float64(0.95), 0.05)])
def test_alpha_is_exact_in_decimals(level, alpha):
    assert check_confidence_level(level) == alpha


@pytest.mark.parametrize("value", [0, 1, -1, 2, True, "half", None, float("nan")])
def test_bad_fraction(value):
    with pytest.raises(InvalidInputError) as caught:
        check_fraction("delta", value)
    assert str(caught.value) == f"delta must be a number in (0, 1), got {value!r}"


def test_fraction_may_include_one():
    assert check_fraction("delta", 1, include_one=True) == 1.0
    assert check_fraction("delta", 0.25) == 0.25
    with pytest.raises(InvalidInputError, match=r"delta must be a number in \(0, 1\], got 1.5"):
        check_fraction("delta", 1.5, include_one=True)


@pytest.mark.parametrize("value", [0, -3, 1.5, True, "3", None])
def test_bad_count(value):
    with pytest.raises(InvalidInputError) as caught:
        check_count("n_draws", value)
    assert str(caught.value) == f"n_draws must be a whole number >= 1, got {value!r}"


def test_good_counts():
    assert check_count("n", np.int64(3)) == 3
    assert check_count("n", 0, minimum=0) == 0


def test_choice_lists_the_choices():
    assert check_choice("kind", "b", ["a", "b"]) == "b"
    with pytest.raises(InvalidInputError, match=r"^kind must be one of a, b; got 'c'$"):
        check_choice("kind", "c", ["a", "b"])


def test_lengths_are_named():
    assert check_same_length(X=[1, 2], y=[3, 4]) == 2
    sentence = "^X and y must have the same number of rows; X has 2, y has 3$"
    with pytest.raises(InvalidInputError, match=sentence):
        check_same_length(X=[1, 2], y=[3, 4, 5])


def test_covered_is_zero_or_one():
    np.testing.assert_array_equal(check_covered([1, 0.0, True]), [True, False, True])
    for bad in ([], [[True]], True):
        with pytest.raises(InvalidInputError, match="one-dimensional and not empty, got shape"):
            check_covered(bad)
    for bad in ([0, 2], [0.5], [np.nan]):
        with pytest.raises(InvalidInputError, match="covered must hold only 0 and 1"):
            check_covered(bad)


def test_warning_points_at_the_line_outside_the_package():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("a fallback")
    (warning,) = caught
    assert warning.category is FaregWarning
    assert warning.filename == __file__
