"""One table in many libraries and dtypes has the same canonical columns."""

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
    code_table,
    column_names,
    held,
    take_rows,
)
from fareg._selection import select_columns
from same_table import (
    COLUMNS,
    EPOCH,
    EXPECTED,
    TABLES,
    pandas_nullable,
    pandas_objects,
    polars_plain,
)


@pytest.mark.parametrize("table", TABLES)
def test_canonical_form_does_not_depend_on_the_library(table):
    assert_frame_equal(canonical(table()), EXPECTED, check_exact=True)


@pytest.mark.parametrize("table", TABLES)
def test_flags_and_dates_are_noted_in_every_library_and_choice_of_rows_and_columns(table):
    columns = select_columns(table(), ["moment", "flag", "count", "day", "text"])
    chosen = columns.iloc[:3][["flag", "day", "count", "moment"]]
    assert [held(column) for _, column in chosen.items()] == ["flag", "date", None, "date"]


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_taken_by_a_mask_as_by_their_numbers(table):
    n = len(table())
    mask = np.arange(n) % 2 == 1
    taken = [canonical(take_rows(table(), rows)) for rows in (mask, np.flatnonzero(mask))]
    assert_frame_equal(*taken)
    assert taken[0].shape == (n // 2, canonical(table()).shape[1])


@pytest.mark.parametrize("table", TABLES)
def test_a_canonical_frame_keeps_its_notes(table):
    once = canonical(table())
    again = canonical(once)
    assert again.equals(once)
    assert [held(again[name]) for name in again] == [held(once[name]) for name in once]
    assert "flag" in {held(once[name]) for name in once}


def test_flags_of_an_array_are_noted_by_their_own_names():
    X = np.array([[1, "a", True], [2, "b", False]], dtype=object)
    assert [held(column) for _, column in select_columns(X, [2, 0]).items()] == ["flag", None]


def test_canonical_form_of_an_array():
    array = pandas_objects().to_numpy()
    expected = EXPECTED.set_axis([f"x{j}" for j in range(len(COLUMNS))], axis=1)
    assert_frame_equal(canonical(array), expected, check_exact=True)
    days = np.array([["2024-02-29"], ["1901-01-01"]], dtype="datetime64[D]")
    np.testing.assert_array_equal(canonical(days)["x0"], EXPECTED["day"][[0, 2]])
    spans = np.array([[3600], [-172800]], dtype="timedelta64[s]")
    np.testing.assert_array_equal(canonical(spans)["x0"], EXPECTED["span"][[0, 2]])


def test_time_zones_count_from_the_same_epoch():
    utc = pd.DataFrame({"t": pd.to_datetime(["2024-01-01 12:00"], utc=True)})
    assert_frame_equal(
        canonical(utc), canonical(utc.assign(t=utc["t"].dt.tz_convert("Asia/Tokyo")))
    )


def test_dates_of_python_are_dates_with_and_without_a_time_zone():
    zones = [None, dt.UTC, dt.timezone(dt.timedelta(hours=2))]
    moments = [dt.datetime(2020, 1, day, tzinfo=zone) for day in (1, 2) for zone in zones]
    table = pd.DataFrame(
        {
            "zoned": pd.Series([m for m in moments if m.tzinfo], dtype=object),
            "naive": pd.Series([m.replace(tzinfo=None) for m in moments[:4]], dtype=object),
            "day": pd.Series([m.date() for m in moments[:4]], dtype=object),
            "flag": pd.Series([True, False, None, True], dtype=object),
        }
    )
    assert code_table(table).kinds() == {
        "zoned": "date",
        "naive": "date",
        "day": "date",
        "flag": "number",
    }


def test_times_of_day_are_text_and_decimals_are_numbers():
    frame = pl.DataFrame({"t": [dt.time(1, 2), None], "d": [Decimal("1.5"), None]})
    for table in (frame, frame.to_pandas()):
        assert canonical(table)["t"].tolist() == ["01:02:00", None]
        np.testing.assert_array_equal(canonical(table)["d"], [1.5, np.nan])


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_moments_do_not_depend_on_their_unit(unit):
    moments = pd.Series(pd.date_range("2024-01-01", periods=500, freq="7777777ms", unit=unit))
    expected = [(moment - EPOCH) / dt.timedelta(seconds=1) for moment in moments.dt.to_pydatetime()]
    np.testing.assert_array_equal(canonical(moments.to_frame("t"))["t"], expected)
    np.testing.assert_array_equal(canonical(moments.astype(object).to_frame("t"))["t"], expected)


def test_far_dates_are_numbers_or_refused():
    far = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    frame = pl.DataFrame({"day": far})
    if pd.__version__ < "3":
        with pytest.raises(FaregError, match="the years 1678 to 2261"):
            canonical(pd.DataFrame({"day": far}))
        return
    assert_frame_equal(canonical(frame), canonical(pd.DataFrame({"day": far})))
    days = (far[1] - far[0]).days
    assert np.diff(canonical(frame)["day"]) == days * 86400


def test_objects_that_mix_numbers_and_text_become_text():
    mixed = canonical(np.array([[1], ["a"], [2.5], [None], [True]], dtype=object))["x0"]
    assert mixed.tolist() == ["1", "a", "2.5", None, "1"]


def test_text_and_numbers_translate_back_and_forth():
    numbers = pd.Series([1.0, 0.1, np.nan, -0.0, 1e300, np.inf])
    assert as_text(numbers).tolist() == ["1", "0.1", None, "0", "1e+300", "inf"]
    np.testing.assert_array_equal(as_numbers(as_text(numbers)), numbers)
    words = pd.Series(["1", "one", None], dtype=object)
    np.testing.assert_array_equal(as_numbers(words), [1.0, np.nan, np.nan])
    assert as_text(words) is words


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]),
        pd.DataFrame([[1, 2, 3]], columns=["a", 1, "1"]),
    ],
)
def test_duplicate_names_are_refused(table):
    with pytest.raises(FaregError, match=r"column names must be unique, got [a1] twice"):
        canonical(table)
    with pytest.raises(FaregError, match=r"column names must be unique, got [a1] twice"):
        select_columns(table, [0])


def test_columns_of_an_array_are_numbered():
    assert column_names(np.zeros((2, 3))) == ["x0", "x1", "x2"]
    assert column_names(pl.DataFrame({"a": [1], "b": [2]})) == ["a", "b"]


# --- which columns ---


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ("text", ["text"]),
        (["span", "text"], ["span", "text"]),
        (1, ["flag"]),
        ([-1, 0], ["span", "text"]),
        (np.array([2, 3]), ["count", "number"]),
        (pd.Index(["day", "flag"]), ["day", "flag"]),
        (["text", 1], ["text", "flag"]),
        (None, list(COLUMNS)),
    ],
)
def test_columns_are_chosen_by_name_or_position(table, selection, names):
    assert_frame_equal(select_columns(table(), selection), EXPECTED[names])


def test_columns_of_an_array_are_chosen_by_position_or_number_name():
    array = np.arange(6.0).reshape(2, 3)
    expected = pd.DataFrame({"x2": [2.0, 5.0], "x0": [0.0, 3.0]})
    for selection in ([2, 0], [-1, -3], ["x2", "x0"]):
        assert_frame_equal(select_columns(array, selection), expected)


def test_columns_are_chosen_by_a_function():
    frame = pandas_nullable()
    assert_frame_equal(
        select_columns(frame, lambda X: X[["count", "text"]]), EXPECTED[["count", "text"]]
    )
    flat = select_columns(frame, lambda X: X["count"].fillna(0) > 0)
    assert_frame_equal(flat, pd.DataFrame({"x0": [1.0, 0.0, 0.0, 0.0]}))


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ("texts", "sensitive_features names 'texts', which is no column of X; columns: text, flag"),
        (["text", 7], "sensitive_features names 7, which is no column"),
        (-8, "sensitive_features names -8, which is no column"),
        (1.5, "sensitive_features names 1.5, which is no column"),
        ([True, False], "sensitive_features names True, which is no column"),
        ([], "must name at least one column, got none"),
        (["text", 0], "names text twice"),
        ([0, -7], "names text twice"),
        (lambda X: X[:2], "must have one row per row of X, got 2 for 4"),
        (lambda X: 0, "must have one row per row of X, got 1 for 4"),
    ],
)
@pytest.mark.parametrize("table", [pandas_objects, polars_plain])
def test_bad_choices_of_columns_are_refused(table, selection, sentence):
    with pytest.raises(FaregError, match=sentence):
        select_columns(table(), selection)
