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
    check_confidence_level,
    check_count,
    check_flag,
    check_fraction,
    check_number,
    warn,
)


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


NOT = {
    (check_fraction, "a number in (0, 1)"): [0, 1, -1, 2, True, "half", None, float("nan")],
    (check_count, "a whole number >= 1"): [0, -3, 1.5, True, "3", None],
    (check_number, "a number > 0"): [0, -1, np.inf, np.nan, True, "1"],
    (check_flag, "True or False"): [0, "yes", None],
}


@pytest.mark.parametrize(("check", "rule"), NOT)
def test_other_values_are_refused_with_the_rule(check, rule):
    for value in NOT[check, rule]:
        with pytest.raises(InvalidInputError) as caught:
            check("x", value)
        assert str(caught.value) == f"x must be {rule}, got {value!r}"


def test_warning_points_at_the_line_outside_the_package():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("a fallback")
    (warning,) = caught
    assert warning.category is FaregWarning
    assert warning.filename == __file__
