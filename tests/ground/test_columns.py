"""One table in many libraries and dtypes has the same canonical columns, coded once."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from pandas.testing import assert_frame_equal

from fareg import FaregError
from fareg._columns import (
    as_numbers,
    as_text,
    canonical,
    in_words,
    select_columns,
)
from same_table import COLUMNS, EPOCH, EXPECTED, TABLES, pandas_nullable, pandas_objects


@pytest.mark.parametrize("table", TABLES)
def test_canonical_form_does_not_depend_on_the_library(table):
    found = canonical(table())
    assert_frame_equal(found, EXPECTED, check_exact=True)
    assert_frame_equal(canonical(found), EXPECTED)


def test_canonical_form_of_an_array():
    array = pandas_objects().to_numpy()
    expected = EXPECTED.set_axis([f"x{j}" for j in range(len(COLUMNS))], axis=1)
    assert_frame_equal(canonical(array), expected, check_exact=True)
    days = np.array([["2024-02-29"], ["1901-01-01"]], dtype="datetime64[D]")
    np.testing.assert_array_equal(canonical(days)["x0"], EXPECTED["day"][[0, 2]])
    spans = np.array([[3600], [-172800]], dtype="timedelta64[s]")
    np.testing.assert_array_equal(canonical(spans)["x0"], EXPECTED["span"][[0, 2]])


def test_dates_are_the_same_in_every_time_zone_of_pandas_and_python():
    utc = pd.DataFrame({"t": pd.to_datetime(["2024-01-01 12:00", None], utc=True)})
    tokyo = utc.assign(t=utc["t"].dt.tz_convert("Asia/Tokyo"))
    zone = dt.timezone(dt.timedelta(hours=2))
    noon = [dt.datetime(2024, 1, 1, 14, tzinfo=zone), None]
    expected = canonical(utc)
    for table in (tokyo, tokyo.astype(object), pd.DataFrame({"t": noon}, dtype=object)):
        assert_frame_equal(canonical(table), expected)


def test_times_of_day_are_text_and_decimals_are_numbers():
    frame = pl.DataFrame({"t": [dt.time(1, 2), None], "d": [Decimal("1.5"), None]})
    for table in (frame, frame.to_pandas()):
        assert canonical(table)["t"].tolist() == ["01:02:00", None]
        np.testing.assert_array_equal(canonical(table)["d"], [1.5, np.nan])


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_moments_do_not_depend_on_their_unit(unit):
    moments = pd.Series(pd.date_range("2024-01-01", periods=500, freq="7777777ms", unit=unit))
    expected = [(moment - EPOCH) / dt.timedelta(seconds=1) for moment in moments.dt.to_pydatetime()]
    for column in (moments, moments.astype(object)):
        np.testing.assert_array_equal(as_numbers(canonical(column.to_frame("t"))["t"]), expected)


def test_numbers_are_written_in_full_unless_they_are_huge_or_tiny():
    assert [in_words(x) for x in (0.0, -5 / 3, 1e15, 1e16, 1e-5)] == [
        *("0", "-1.6666666666666667", "1000000000000000", "1e+16", "1e-05")
    ]


def test_far_dates_are_dates_too():
    far = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    for frame in (pd.DataFrame({"day": far}), pl.DataFrame({"day": far})):
        numbers = as_numbers(canonical(frame)["day"])
        assert np.diff(numbers) == (far[1] - far[0]).days * 86400


def test_objects_that_mix_kinds_become_text():
    values = [1, "1", "a", 2.5, None, dt.date(2024, 1, 1)]
    mixed = canonical(pd.DataFrame({"c": values}, dtype=object))["c"]
    assert mixed.tolist() == ["1", "1", "a", "2.5", None, "1704067200"]


def test_text_and_numbers_translate_back_and_forth():
    numbers = pd.Series([1.0, 0.1, np.nan, -0.0, 1e300, np.inf])
    assert as_text(numbers).tolist() == ["1", "0.1", None, "0", "1e+300", "inf"]
    np.testing.assert_array_equal(as_numbers(as_text(numbers)), numbers)
    words = pd.Series(["1", "one", None], dtype=object)
    np.testing.assert_array_equal(as_numbers(words), [1.0, np.nan, np.nan])
    days = as_text(EXPECTED["day"]).tolist()
    assert days == ["1709164800", None, "-2177452800", "1709164800"]


@pytest.mark.parametrize("names", [["a", "b", "a"], ["a", 1, "1"]])
def test_duplicate_names_and_cells_with_several_values_are_refused(names):
    table = pd.DataFrame([[1, 2, 3]], columns=names)
    with pytest.raises(FaregError, match=r"column names must be unique, got [a1] twice"):
        select_columns(table, [0])
    with pytest.raises(FaregError, match=r"a cell must hold one value, got a list.* in column a"):
        canonical(pd.DataFrame({"a": [[1], [2]]}))


# --- which columns ---


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_chosen_by_name_or_position(table):
    chosen = {
        "text": ["text"],
        1: ["flag"],
        ("span", "text"): ["span", "text"],
        (-1, 0): ["span", "text"],
        ("text", 1): ["text", "flag"],
        None: list(COLUMNS),
    }
    for selection, names in chosen.items():
        selection = list(selection) if isinstance(selection, tuple) else selection
        assert_frame_equal(select_columns(table(), selection), EXPECTED[names])


def test_columns_of_an_array_are_chosen_by_position_or_number_name():
    array = np.arange(6.0).reshape(2, 3)
    expected = pd.DataFrame({"x2": [2.0, 5.0], "x0": [0.0, 3.0]})
    for selection in ([2, 0], np.array([-1, -3]), pd.Index(["x2", "x0"])):
        assert_frame_equal(select_columns(array, selection), expected)


def test_columns_are_chosen_by_a_function_of_the_table_as_it_came():
    frame = pandas_nullable()
    for columns in (None, canonical(frame)):
        found = select_columns(frame, lambda X: X[["count", "text"]], columns=columns)
        assert_frame_equal(found, EXPECTED[["count", "text"]])
    flat = select_columns(frame, lambda X: X["count"].fillna(0) + 1)
    assert_frame_equal(flat, pd.DataFrame({"x0": [4.0, 1.0, -6.0, 1.0]}))


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        (
            "texts",
            "sensitive_features names 'texts', which is not a column of X; columns: text, flag",
        ),
        (-8, "sensitive_features names -8, which is not a column"),
        (1.5, "sensitive_features names 1.5, which is not a column"),
        ([True, False], "sensitive_features names True, which is not a column"),
        ([], "must name at least one column, got none"),
        (["text", 0], "names text twice"),
        (lambda X: X[:2], "must have one row per row of X, got 2 for 4"),
        (lambda X: 0, "must have one row per row of X, got 1 for 4"),
    ],
)
def test_bad_choices_of_columns_are_refused(selection, sentence):
    with pytest.raises(FaregError, match=sentence):
        select_columns(pl.DataFrame(COLUMNS), selection)
