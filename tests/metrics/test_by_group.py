import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from fareg._validation import FaregError, InvalidInputError
from fareg.metrics import (
    clopper_pearson,
    coverage_by_group,
    coverage_by_label,
    coverage_by_level,
)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_clopper_pearson_inverts_the_binomial_tails(level):
    tail = (1 - level) / 2
    for n in (1, 2, 7, 50, 1000):
        k = np.unique(np.linspace(0, n, 8).astype(int))
        low, high = clopper_pearson(k, n, level)
        np.testing.assert_allclose(binom.sf(k[k > 0] - 1, n, low[k > 0]), tail, rtol=1e-8)
        np.testing.assert_allclose(binom.cdf(k[k < n], n, high[k < n]), tail, rtol=1e-8)
        assert low[0] == 0
        assert high[-1] == 1


def test_clopper_pearson_without_trials_knows_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = clopper_pearson([0, 1], [0, 1])
    assert (low[0], high[0]) == (0, 1)
    with pytest.raises(InvalidInputError, match="successes cannot outnumber trials"):
        clopper_pearson(2, 1)


FRAME = pd.DataFrame(
    {"Color": ["Red", "Blue", "Red", None], "Gender": ["F", "M", "M", "F"], "Age": [1.0, 2, 2, 1]}
)


def test_levels_of_each_feature():
    table = coverage_by_group(FRAME, [1, 0, 1, 0], features=["Color", "Age"])
    assert table.columns.tolist() == ["group", "n", "share", "coverage", "low", "high"]
    assert table.group.tolist() == [
        "Color=Blue",
        "Color=Red",
        "Color missing",
        "Age=1",
        "Age=2",
    ]
    assert table.n.tolist() == [1, 2, 1, 2, 2]
    assert table.share.tolist() == [0.25, 0.5, 0.25, 0.5, 0.5]
    assert table.coverage.tolist() == [0, 1, 0, 0.5, 0.5]
    assert ((table.low <= table.coverage) & (table.coverage <= table.high)).all()


def test_each_feature_and_each_pair_partitions_the_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.integers(0, 3, 200), "b": rng.random(200), "c": rng.random(200) < 1})
    covered = rng.random(200) < 0.9
    table = coverage_by_group(X, covered, pairs=True)
    assert table.n.sum() == 200 * (3 + 3)
    assert (table.coverage * table.n).sum() == pytest.approx(covered.sum() * (3 + 3))
    assert "a=0 and c=True" in set(table.group)


def test_errors_say_what_to_fix():
    with pytest.raises(InvalidInputError, match="same number of rows"):
        coverage_by_group(FRAME, [1, 0])
    with pytest.raises(InvalidInputError, match="level must be a number"):
        coverage_by_group(FRAME, [1, 0, 1, 0], interval_level=95)


def test_true_labels_are_rows_beside_the_groups():
    X, covered = pd.DataFrame({"a": ["u", "v"] * 4}), np.array([1, 1, 1, 0, 0, 0, 1, 1])
    y = ["no", "no", "yes", "yes", "yes", "yes", "yes", "no"]
    table = coverage_by_group(X, covered, y=y)
    assert table["group"].tolist() == ["a=u", "a=v", "label=no", "label=yes"]
    alone = coverage_by_label(y, covered)
    assert alone["label"].tolist() == ["yes", "no"]  # worst first
    for row in alone.itertuples():
        same = table.set_index("group").loc[f"label={row.label}"]
        assert (row.n, row.share, row.coverage) == (same["n"], same["share"], same["coverage"])
        assert (row.low, row.high) == (same["low"], same["high"])
    assert alone["n"].sum() == len(y)
    assert (alone["n"] * alone["coverage"]).sum() == covered.sum()


def test_labels_of_any_kind_are_counted():
    assert coverage_by_label([1, "a", 2, 1.0], [1, 0, 1, 0])["n"].tolist() == [1, 2, 1]
    assert coverage_by_label(np.array([[3], [10], [3]]), [1, 0, 0])["label"].tolist() == [10, 3]
    with pytest.raises(FaregError, match="same number of rows"):
        coverage_by_label([1, 2], [True])
    with pytest.raises(FaregError, match="y must not have missing labels"):
        coverage_by_label(["a", None], [1, 0])


GROUP = ("n", "share", "coverage", "low", "high")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
def test_levels_equal_counting_by_hand(rows):
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
def test_levels_that_are_none_are_refused(levels, options, message):
    with pytest.raises(InvalidInputError, match=message):
        coverage_by_level(levels, [0, 1], **options)
