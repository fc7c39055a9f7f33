import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from fareg._validation import FaregWarning, InvalidInputError
from fareg.metrics import (
    coverage_by_group,
    coverage_score,
    excess_risk,
    is_covered,
    mean_set_size,
    worst_slab_coverage,
)

SETS = np.array([[True, False, False], [True, True, False], [False, False, False]])


def test_column_codes_and_labels_agree():
    expected = [True, False, False]
    np.testing.assert_array_equal(is_covered([0, 2, 1], SETS), expected)
    np.testing.assert_array_equal(is_covered(["a", "c", "b"], SETS, classes=list("abc")), expected)
    np.testing.assert_array_equal(is_covered([1, 5, 3], SETS, classes=[1, 3, 5]), expected)
    assert coverage_score([0, 2, 1], SETS) == pytest.approx(1 / 3)


def test_unknown_labels_are_not_covered_and_named():
    everything = np.ones((3, 2), dtype=bool)
    with pytest.warns(FaregWarning, match=r"2 of 3 labels are not among the classes \(-1, 7\)"):
        covered = is_covered([0, 7, -1], everything, classes=[0, 1])
    np.testing.assert_array_equal(covered, [True, False, False])
    with pytest.warns(FaregWarning, match=r"1 of 3 labels are not among the classes \(z\)"):
        covered = is_covered(["a", "z", "b"], everything, classes=["a", "b"])
    np.testing.assert_array_equal(covered, [True, False, True])


def test_sets_of_mapie_shape():
    assert coverage_score([0, 1, 2], SETS[:, :, None]) == coverage_score([0, 1, 2], SETS)
    assert mean_set_size(SETS[:, :, None]) == mean_set_size(SETS) == 1


@pytest.mark.parametrize(
    ("y", "sets", "classes", "message"),
    [
        ([0], np.ones((1, 2, 3)), None, "level at a time"),
        ([], np.ones((0, 2)), None, "not empty"),
        ([0, 1], np.ones((1, 2)), None, "same number of rows"),
        ([[0, 1]], np.ones((1, 2)), None, "one-dimensional"),
        ([0], [[0.3, 0.7]], None, "only True and False"),
        (["a"], np.ones((1, 2)), None, "pass classes"),
        ([0, None], np.ones((2, 2)), [0, 1], "missing labels"),
        ([1, 2], np.ones((2, 3)), None, "pass classes"),
        ([0, 7, -1], np.ones((3, 2)), None, "pass classes"),
        (["a"], np.ones((1, 2)), ["a"], "each of the 2 columns"),
        (["a"], np.ones((1, 2)), ["a", "a"], "distinct labels"),
    ],
)
def test_errors_say_what_to_fix(y, sets, classes, message):
    with pytest.raises(InvalidInputError, match=message):
        is_covered(y, sets, classes=classes)


@pytest.mark.parametrize(
    "sets",
    [
        [["a"], ["a", "b"], []],
        [["a"], ["b"], ["a"]],
        pd.Series([["a"], ["a", "b"], []]),
        [[0], [0, 1], [1]],
        [{"a"}, {"b"}, set()],
    ],
)
def test_lists_of_labels_are_refused_with_how_to_mark_them(sets):
    for ask in (is_covered, coverage_score):
        with pytest.raises(InvalidInputError, match=r"got labels; mark them: \[\[label in row for"):
            ask(["a", "b", "b"], sets)


@pytest.mark.parametrize("measure", [coverage_by_group, excess_risk, worst_slab_coverage])
def test_a_sparse_table_is_refused_with_what_to_pass(measure):
    X = scipy.sparse.csr_matrix(np.eye(40))
    with pytest.raises(InvalidInputError, match=r"dense, got a sparse matrix; pass X.toarray\(\)"):
        measure(X, np.arange(40) % 9 > 0)
