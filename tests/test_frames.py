"""One table in many libraries and dtypes: the same columns, levels and row numbers."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from scipy.stats import kstest

from fareg import FaregError
from fareg._encoding import gradient_boosting, one_hot_encoder, ordinal_encoder
from fareg._frames import (
    Levels,
    as_numbers,
    as_text,
    canonical,
    column_names,
    distinct_rows,
    hash_key,
    held,
    row_uniforms,
    select_columns,
)

laws = settings(max_examples=30, deadline=None)


@laws
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, -0.0, 1.5, np.nan]))))
def test_distinct_rows_come_in_order_of_appearance(rows):
    columns = pd.DataFrame(
        {
            "text": pd.Series([None if text == "b" else text for text, _ in rows], dtype=object),
            "number": pd.Series([number for _, number in rows], dtype=np.float64),
        }
    )
    first, which = distinct_rows(columns)
    keys = [(text, str(number + 0.0)) for text, number in rows]
    assert [keys[i] for i in first] == list(dict.fromkeys(keys))
    assert [keys[first[i]] for i in which] == keys
    assert list(first) == sorted(first)


DAY, NOON = dt.date(2024, 2, 29), dt.datetime(1969, 7, 20, 12, 30)
COLUMNS = {
    "text": ["Red", None, "Blue", "Red"],
    "flag": [True, False, None, True],
    "count": [3, None, -7, 0],
    "number": [0.5, -0.0, None, 1e9],
    "day": [DAY, None, dt.date(1901, 1, 1), DAY],
    "moment": [NOON, dt.datetime(2024, 1, 1), None, NOON],
    "span": [dt.timedelta(hours=1), None, dt.timedelta(days=-2), dt.timedelta(seconds=0.5)],
}
EPOCH = dt.datetime(1970, 1, 1)
EXPECTED = pd.DataFrame(
    {
        "text": pd.Series(["Red", None, "Blue", "Red"], dtype=object),
        "flag": [1.0, 0.0, np.nan, 1.0],
        "count": [3.0, np.nan, -7.0, 0.0],
        "number": [0.5, -0.0, np.nan, 1e9],
        "day": [
            (dt.datetime(2024, 2, 29) - EPOCH).total_seconds(),
            np.nan,
            (dt.datetime(1901, 1, 1) - EPOCH).total_seconds(),
            (dt.datetime(2024, 2, 29) - EPOCH).total_seconds(),
        ],
        "moment": [
            (NOON - EPOCH).total_seconds(),
            (dt.datetime(2024, 1, 1) - EPOCH).total_seconds(),
            np.nan,
            (NOON - EPOCH).total_seconds(),
        ],
        "span": [3600.0, np.nan, -172800.0, 0.5],
    }
)


def pandas_objects():
    return pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in COLUMNS.items()})


def pandas_nullable():
    frame = pandas_objects()
    dtypes = {
        "text": "string",
        "flag": "boolean",
        "count": "Int64",
        "number": "Float64",
        "day": "datetime64[s]",
        "moment": "datetime64[us]",
        "span": "timedelta64[ms]",
    }
    return frame.astype(dtypes)


def pandas_categories():
    return pandas_objects().astype({"text": "category", "flag": "category", "count": "category"})


def arrow_table():
    return pa.table({**COLUMNS, "number": pa.array(COLUMNS["number"], pa.float64())})


def pandas_arrow():
    return arrow_table().to_pandas(types_mapper=pd.ArrowDtype)


def polars_plain():
    return pl.DataFrame(COLUMNS)


def polars_categorical():
    return polars_plain().with_columns(
        pl.col("text").cast(pl.Categorical), pl.col("count").cast(pl.Int8)
    )


def polars_enum():
    return polars_plain().with_columns(pl.col("text").cast(pl.Enum(["Blue", "Green", "Red"])))


TABLES = [
    pandas_objects,
    pandas_nullable,
    pandas_categories,
    pandas_arrow,
    arrow_table,
    polars_plain,
    polars_categorical,
    polars_enum,
]


@pytest.mark.parametrize("table", TABLES)
def test_canonical_form_does_not_depend_on_the_library(table):
    assert_frame_equal(canonical(table()), EXPECTED, check_exact=True)


@pytest.mark.parametrize("table", TABLES)
def test_flags_and_dates_are_noted_in_every_library_and_choice_of_rows_and_columns(table):
    columns = select_columns(table(), ["moment", "flag", "count", "day", "text"])
    chosen = columns.iloc[:3][["flag", "day", "count", "moment"]]
    assert [held(column) for _, column in chosen.items()] == ["flag", "date", None, "date"]


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


@pytest.mark.parametrize("table", TABLES)
def test_row_numbers_do_not_depend_on_the_library(table):
    np.testing.assert_array_equal(row_uniforms(table(), 7), row_uniforms(EXPECTED, 7))


def test_time_zones_count_from_the_same_epoch():
    utc = pd.DataFrame({"t": pd.to_datetime(["2024-01-01 12:00"], utc=True)})
    assert_frame_equal(
        canonical(utc), canonical(utc.assign(t=utc["t"].dt.tz_convert("Asia/Tokyo")))
    )


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


def test_far_dates_are_numbers():
    far = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    frame = pl.DataFrame({"day": far})
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
        ("texts", "sensitive feature 'texts' is not a column of X; columns: text, flag"),
        (["text", 7], "sensitive feature 7 is not a column"),
        (-8, "sensitive feature -8 is not a column"),
        (1.5, "sensitive feature 1.5 is not a column"),
        ([True, False], "sensitive feature True is not a column"),
        ([], "must name at least one column, got none"),
        (["text", 0], "names text twice"),
        ([0, -7], "names text twice"),
        (lambda X: X[:2], "must return one row per row of X, got 2 for 4"),
        (lambda X: 0, "must return one row per row of X, got 1 for 4"),
    ],
)
@pytest.mark.parametrize("table", [pandas_objects, polars_plain])
def test_bad_choices_of_columns_are_refused(table, selection, sentence):
    with pytest.raises(FaregError, match=sentence):
        select_columns(table(), selection)


# --- levels ---


def column(values, name="c"):
    return canonical(pd.DataFrame({name: pd.Series(values, dtype=object)}))[name]


def test_discrete_levels_are_the_distinct_values():
    levels = Levels.learn(column(["b", "a", None, "b"]))
    assert levels.values == ("a", "b", None)
    assert levels.codes(column(["a", "b", None, "z"])).tolist() == [0, 1, 2, -1]
    assert [levels.label(code) for code in (0, 1, 2, -1)] == ["c=a", "c=b", "c missing", "c=unseen"]


def test_missing_is_unseen_where_it_was_never_seen():
    assert Levels.learn(column(["a", "b"])).codes(column([None, "b"])).tolist() == [-1, 1]


def test_numbers_with_few_values_are_discrete():
    levels = Levels.learn(column([3, 1, 1, None]))
    assert levels.values == (1.0, 3.0, None)
    assert levels.edges is None
    assert levels.codes(column([1, 2, 3, None])).tolist() == [0, -1, 1, 2]
    assert levels.label(1) == "c=3"


@pytest.mark.parametrize(("n_distinct", "binned"), [(20, False), (21, True)])
def test_numbers_with_many_values_are_binned(n_distinct, binned):
    assert (Levels.learn(column(range(n_distinct))).edges is not None) == binned


def test_bins_are_quartiles_closed_on_the_right():
    levels = Levels.learn(column([*range(100), None], name="age"))
    assert levels.edges == (24.0, 49.0, 74.0)
    assert levels.codes(column([-5, 24, 24.5, 49, 74, 75, 1e9, None])).tolist() == [
        *(0, 0, 1, 1, 2, 3, 3),
        4,
    ]
    assert np.bincount(levels.codes(column(range(100)))).tolist() == [25, 25, 25, 25]
    words = ["age <= 24", "age in (24, 49]", "age in (49, 74]", "age > 74", "age missing"]
    assert [levels.label(code) for code in range(5)] == words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([True, None, False], ["c=False", "c=True", "c missing"]),
        ([1, 0], ["c=0", "c=1"]),
        ([DAY, dt.date(1901, 1, 1)], ["c=1901-01-01", "c=2024-02-29"]),
        ([NOON], ["c=1969-07-20 12:30:00"]),
        (
            [dt.date(2024, 1, day) for day in range(1, 29)],
            [
                "c <= 2024-01-07",
                "c in (2024-01-07, 2024-01-14]",
                "c in (2024-01-14, 2024-01-21]",
                "c > 2024-01-21",
            ],
        ),
    ],
)
def test_labels_speak_of_flags_and_dates(values, words):
    levels = Levels.learn(column(values))
    assert [levels.label(code) for code in range(len(levels.values))] == words


def test_edges_come_from_the_reference():
    reference = column(range(100))
    levels = Levels.learn(column([1000, 2000, None]), reference)
    assert levels.edges == Levels.learn(reference).edges
    assert levels.values == (0, 1, 2, 3, None)


@laws
@given(
    values=st.lists(st.one_of(st.none(), st.text(max_size=2), st.integers(0, 3)), min_size=1),
    number_heavy=st.booleans(),
)
def test_a_value_has_its_level_whichever_values_came_with_it(values, number_heavy):
    learned = Levels.learn(column([*values, *range(50)] if number_heavy else values))
    alone = [int(learned.codes(column([value]))[0]) for value in values]
    assert learned.codes(column(values)).tolist() == alone


def test_text_in_a_column_of_bins_is_unseen():
    assert Levels.learn(column(range(50))).codes(column(["old", 3])).tolist() == [-1, 0]


# --- one uniform number per row ---


cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=True),
    st.text(max_size=3),
    st.dates(),
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


def test_swapping_two_columns_changes_the_row_number():
    assert row_uniforms([[1.0, 2.0]], 0) != row_uniforms([[2.0, 1.0]], 0)


def test_hash_keys():
    assert hash_key(5) == hash_key(np.int32(5)) != hash_key(6)
    assert hash_key(None) != hash_key(None)
    assert hash_key(np.random.default_rng(1)) == hash_key(np.random.default_rng(1))
    assert hash_key(np.random.RandomState(1)) == hash_key(np.random.RandomState(1))
    with pytest.raises(FaregError, match="random_state must be None, a whole number or a random"):
        hash_key("seed")


# --- encoders for models ---


@pytest.mark.parametrize("encoder", [ordinal_encoder(), one_hot_encoder(), one_hot_encoder(2)])
def test_encoded_rows_do_not_depend_on_the_batch_or_the_library(encoder):
    frame, polars = pandas_nullable(), polars_plain()
    together = encoder.fit_transform(frame)
    alone = np.vstack([encoder.transform(frame[i : i + 1]) for i in range(len(frame))])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together, encoder.transform(polars))
    assert len(encoder[-1].get_feature_names_out()) == together.shape[1]


def test_unseen_text_and_numbers_in_unlike_columns_are_encoded():
    encoder = ordinal_encoder().fit(pd.DataFrame({"t": ["a", "b"], "n": [1.0, 2.0]}))
    other = pd.DataFrame({"t": [5.0, None], "n": ["x", "3"]})
    np.testing.assert_array_equal(encoder.transform(other), [[np.nan, np.nan], [np.nan, 3.0]])
    indicators = one_hot_encoder().fit(pd.DataFrame({"t": ["a", "b"]}))
    np.testing.assert_array_equal(indicators.transform(pd.DataFrame({"t": ["z"]})), [[0, 0]])


def test_default_model_takes_any_table(patients):
    X, y = patients
    model = gradient_boosting(0).fit(X, y)
    polars = pl.from_pandas(X)
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(polars))
    assert model.score(X, y) > 0.6


def test_half_a_surrogate_pair_and_endless_numbers_have_a_hash():
    frame = pd.DataFrame({"a": pd.Series(["\ud800", "b", 10**400, -(10**400)], dtype=object)})
    assert len(set(row_uniforms(frame, 0))) == 4
