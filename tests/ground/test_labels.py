"""One function maps labels to columns, the same for every type a label may have."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fareg._labels import calibration_codes, column_classes, label_codes
from fareg._validation import FaregWarning, InvalidInputError

NUMBERS = [[1, 2, 3], [1.0, 2.0, 3.0], [np.int64(1), np.float32(2), 3], np.array([1, 2, 3], "u1")]
TEXTS = [["a", "bb"], np.array(["a", "bb"]), np.array(["a", "bb"], object), [np.str_("a"), "bb"]]


@pytest.mark.parametrize("y", NUMBERS)
@pytest.mark.parametrize("classes", NUMBERS)
def test_a_number_is_one_label_whatever_its_type(y, classes):
    assert label_codes(y, classes).tolist() == [0, 1, 2]


@pytest.mark.parametrize("y", [*TEXTS, pd.Series(["a", "bb"]), pd.Categorical(["a", "bb"])])
@pytest.mark.parametrize("classes", [*TEXTS, pd.Index(["a", "bb"]), np.array(["a", "bb", "cccc"])])
def test_text_is_one_label_whatever_its_width(y, classes):
    assert label_codes(y, classes).tolist() == [0, 1]


def test_labels_without_a_column_get_minus_one():
    assert label_codes([3, 0.5, np.nan, -1], [0, 3]).tolist() == [1, -1, -1, -1]
    assert label_codes(["1", "x", None], [1, 2]).tolist() == [-1, -1, -1]
    assert label_codes([2**53 + 1], [2.0**53]).tolist() == [-1]


def test_true_is_one_as_in_python():
    assert label_codes([True, False], [0, 1]).tolist() == [1, 0]
    assert label_codes([1, 0], [False, True]).tolist() == [1, 0]


def test_unseen_labels_are_named_as_they_were_written_and_in_order():
    y = ["low"] * 88 + [f"x{i}" for i in (1, 2)]
    with pytest.warns(FaregWarning, match=r"2 of 90 .* \(x1, x2\), .* at most 0\.1 of every group"):
        calibration_codes(y, ["low", "mid"], alpha=0.1)
    with pytest.warns(FaregWarning, match=r"\(2, 10\)"):
        calibration_codes([0] * 50 + [10, 2], [0, 1], alpha=0.1)


def test_names_that_can_be_read_in_two_ways_are_refused():
    assert column_classes(["a", "b"], 2, names=["xxa", "xxb"]).classes == ["a", "b"]
    with pytest.raises(InvalidInputError, match="none is a label of y"):
        column_classes(["xa", "b"], 2, names=["xxa", "xxb"])


def test_labels_that_are_all_unseen_are_refused():
    with pytest.raises(InvalidInputError, match="no label that the estimator knows, got 7; its"):
        calibration_codes([7, 8], [0, 1], alpha=0.1)
    with pytest.raises(InvalidInputError, match="0, 1; these are of type int: convert y from str"):
        calibration_codes(["1", "0"], [0, 1], alpha=0.1)


def test_calibration_rows_of_one_label_give_a_warning():
    with pytest.warns(FaregWarning, match="all 40 calibration rows have the label low"):
        calibration_codes(["low"] * 40, ["low", "mid"], alpha=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibration_codes(["low"] * 5, ["low", "mid"], alpha=0.1)
