"""A row's random numbers depend on its values and the key alone."""

from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from fareg import FaregError
from fareg._columns import canonical
from fareg._rows import ROLES, equal_before, hash_key, numbered_hashes, row_hashes, uniforms_of
from same_table import EXPECTED, TABLES


def row_uniforms(X, key):
    """Return a number per row that depends on its values and the key alone."""
    return uniforms_of(row_hashes(canonical(X), key))


laws = settings(max_examples=30, deadline=None)

cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=True),
    st.text(max_size=3),
    st.dates(date(1700, 1, 1), date(2200, 1, 1)),
)


@laws
@given(rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_row_numbers_depend_on_the_row_alone(rows, seed):
    table = np.empty((len(rows), 2), dtype=object)
    table[:] = rows
    together = row_uniforms(table, seed)
    alone = [row_uniforms(table[i : i + 1], seed)[0] for i in range(len(rows))]
    np.testing.assert_array_equal(together, alone)
    shuffled = np.random.default_rng(seed).permutation(len(rows))
    np.testing.assert_array_equal(row_uniforms(table[shuffled], seed), together[shuffled])


def random_table(rng):
    return rng.normal(size=(5000, 3))


def counting_table(rng):
    return np.arange(5000)[:, None]


def grid_table(rng):
    return np.array(np.meshgrid(*[[0, 1]] * 12)).reshape(12, -1).T


def text_table(rng):
    return pd.DataFrame({"a": [f"row {i}" for i in range(5000)], "b": "same"})


@pytest.mark.parametrize("table", [random_table, counting_table, grid_table, text_table])
@pytest.mark.parametrize("key", [0, 1, hash_key(0)])
def test_row_numbers_are_uniform_and_uncorrelated(table, key):
    u = row_uniforms(table(np.random.default_rng(0)), key)
    assert ((u >= 0) & (u < 1)).all()
    assert kstest(u, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4 / np.sqrt(len(u))
    assert len(np.unique(u)) == len(u)


@pytest.mark.parametrize("role", ROLES)
def test_equal_rows_have_numbers_of_their_own_in_every_role(role):
    hashes = row_hashes(canonical(np.zeros((5000, 2))), hash_key(0))
    u = uniforms_of(numbered_hashes(hashes, role))
    assert kstest(u, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4 / np.sqrt(len(u))
    assert len(np.unique(u)) == len(u)
    for other in [uniforms_of(numbered_hashes(hashes, name)) for name in ROLES if name != role]:
        assert abs(np.corrcoef(u, other)[0, 1]) < 4 / np.sqrt(len(u))


@laws
@given(values=st.lists(st.integers(0, 4), max_size=30))
def test_equal_rows_are_counted_in_their_order(values):
    hashes = np.array(values, dtype=np.uint64)
    expected = [values[:i].count(value) for i, value in enumerate(values)]
    assert equal_before(hashes).tolist() == expected


def test_row_numbers_of_two_keys_are_independent():
    table = random_table(np.random.default_rng(0))
    first, second = row_uniforms(table, hash_key(0)), row_uniforms(table, hash_key(1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(table))
    assert kstest((first - second) % 1, "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int64, np.uint16, np.float32, np.float64, bool, object, "Int64", "str"]
)
def test_row_numbers_do_not_depend_on_the_dtype(dtype):
    ones = pd.DataFrame({"a": pd.Series([1, 0, 1]), "b": ["x", "y", None]})
    typed = ones.assign(a=["1", "0", "1.0"]) if dtype == "str" else ones.astype({"a": dtype})
    np.testing.assert_array_equal(row_uniforms(typed, 3), row_uniforms(ones, 3))


def test_zero_has_one_sign_and_nan_one_form():
    zeros = row_uniforms(np.array([[0.0], [-0.0]]), 0)
    assert zeros[0] == zeros[1]
    odd_nan = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    assert row_uniforms(odd_nan[:, None], 0) == row_uniforms(np.array([[np.nan]]), 0)
    assert row_uniforms(np.array([[np.nan]]), 0) != zeros[0]


def test_equal_rows_of_other_labels_have_other_hashes():
    columns, labels = canonical(np.zeros((3, 1))), np.array([0, 1, 0])
    first, second, third = row_hashes(columns, 0, labels=labels)
    assert first == third != second


def test_hash_keys():
    assert hash_key(5) == hash_key(np.int32(5)) != hash_key(6)
    assert hash_key(None) != hash_key(None)
    assert hash_key(np.random.default_rng(1)) == hash_key(np.random.default_rng(1))
    assert hash_key(np.random.RandomState(1)) == hash_key(np.random.RandomState(1))
    with pytest.raises(FaregError, match="random_state must be None, a whole number or a random"):
        hash_key("seed")


@pytest.mark.parametrize("table", TABLES)
def test_row_numbers_do_not_depend_on_the_library(table):
    np.testing.assert_array_equal(row_uniforms(table(), 7), row_uniforms(EXPECTED, 7))


def test_half_a_surrogate_pair_and_endless_numbers_have_a_hash():
    frame = pd.DataFrame({"a": pd.Series(["\ud800", "b", 10**400, -(10**400)], dtype=object)})
    assert len(set(row_uniforms(frame, 0))) == 4
