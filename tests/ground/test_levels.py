"""A value has its level whichever rows came with it; equal rows are one joint cell."""

import datetime as dt
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg import FaregWarning, SplitConformalClassifier
from fareg._columns import canonical
from fareg._drift import doubtful_columns
from fareg._levels import Levels
from fareg._rows import cell_numbers, distinct_rows, joint_codes
from same_table import DAY, NOON

laws = settings(max_examples=30, deadline=None)


def column(values, name="c"):
    return canonical(pd.DataFrame({name: pd.Series(values, dtype=object)}))[name]


def test_discrete_levels_are_the_distinct_values():
    levels = Levels.learn(column(["b", "a", None, "b"]))
    assert levels.values == ("a", "b", None)
    assert levels.codes(column(["a", "b", None, "z"])).tolist() == [0, 1, 2, -1]
    assert [levels.label(code) for code in (0, 1, 2, -1)] == ["c=a", "c=b", "c missing", "c=unseen"]


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


def rows_meant(words, values):
    """Which values the words of a level select, for somebody who has nothing but the words."""
    if between := re.fullmatch(r"c in \((.+), (.+)\]", words):
        low, high = map(float, between.groups())
        return (low < values) & (values <= high)
    sign, bound = re.fullmatch(r"c ?(<=|>|=) ?(.+)", words).groups()
    return {"<=": np.less_equal, ">": np.greater, "=": np.equal}[sign](values, float(bound))


@pytest.mark.parametrize(
    "values",
    [
        36061000100.0 + 100 * np.arange(4),
        1e6 + np.arange(3),
        np.array([0.1, 0.1 + 1e-12, 1e-7, 1e17]),
        np.arange(-100, 100) / 3,
        1e9 + np.arange(40),
        [*np.repeat(7 / 3, 100).tolist(), *np.arange(30.0)],
    ],
)
def test_words_select_the_rows_of_their_level(values):
    values = np.asarray(values, dtype=np.float64)
    levels = Levels.learn(column(values))
    codes = levels.codes(column(values))
    for code in range(len(levels.values)):
        assert ((codes == code) == rows_meant(levels.label(code), values)).all()


@laws
@given(st.lists(st.floats(allow_nan=False, width=32), min_size=21, unique=True))
def test_short_edges_part_the_rows_as_quartiles_do(values):
    quartiles = np.quantile(values, [0.25, 0.5, 0.75], method="inverted_cdf")
    levels = Levels.learn(column(values))
    assert levels.codes(column(values)).tolist() == np.searchsorted(quartiles, values).tolist()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([True, None, False], ["c=False", "c=True", "c missing"]),
        ([1, 0], ["c=0", "c=1"]),
        ([DAY, dt.date(1901, 1, 1)], ["c=1901-01-01", "c=2024-02-29"]),
        ([dt.datetime(2024, 1, 1, 0, 0, 0, 250_000)], ["c=2024-01-01 00:00:00.250000"]),
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


@laws
@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 3)), min_size=1, max_size=20))
def test_joint_numbers_are_equal_where_all_levels_are(rows):
    codes = np.array(rows, dtype=np.int64)
    joint = joint_codes([codes[:, 0], codes[:, 1]], [3, 4])
    same = (codes[:, None] == codes).all(axis=2)
    np.testing.assert_array_equal(joint[:, None] == joint, same)
    known = np.unique(codes, axis=0)
    np.testing.assert_array_equal(known[cell_numbers(known, codes)], codes)
    assert np.array_equal(np.argsort(joint, kind="stable"), np.lexsort((codes[:, 1], codes[:, 0])))


@pytest.mark.parametrize("sizes", [[127] * 9, [127] * 10, [500] * 10, [2**62, 2, 2], [2**32] * 3])
def test_combinations_beyond_64_bits_have_numbers_of_their_own(sizes):
    """Pairs of rows differ in one level only, where numbers that wrap around would be equal."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-1, sizes, (50, len(sizes)))
    twins = rows.copy()
    twins[:, 0] = np.where(rows[:, 0] + 2 < sizes[0], rows[:, 0] + 2, rows[:, 0] - 2)
    codes = np.vstack([rows, twins, rows])
    joint = joint_codes(list(codes.T), sizes)
    same = (codes[:, None] == codes).all(axis=2)
    np.testing.assert_array_equal(joint[:, None] == joint, same)
    assert joint[:50].tolist() == joint_codes(list(rows.T), sizes).tolist()  # whoever is beside
    np.testing.assert_array_equal(np.argsort(joint, kind="stable"), np.lexsort(codes.T[::-1]))
    known = np.unique(codes, axis=0)
    np.testing.assert_array_equal(known[cell_numbers(known, codes)], codes)


@pytest.mark.parametrize(
    ("texts", "are_numbers"),
    [
        (["77,516", "516", None], True),
        (["1 234", "5"], True),
        (["12%", "3.5 %"], True),
        (["$5", "$6.20"], True),
        (["-1,5", "2,25"], True),
        (["1.234.567,8 €", "12"], True),
        (["0815", "4711"], False),  # codes, which pandas would read if they were numbers
        (["250.83", "V57", "414"], False),
        (["5-9", "10-14"], False),
        (["2017-01-13", "12:30"], False),
        (["1,23,4", "a"], False),
        ([None, None], False),
    ],
)
def test_numbers_that_are_written_as_text_are_reported(texts, are_numbers):
    table = pd.DataFrame({"pay": texts * 30, "age": range(len(texts) * 30), "sex": "f"})
    for given_ in (table, table.astype({"pay": "category"}), pl.from_pandas(table)):
        sentences = [
            text for text in doubtful_columns(canonical(given_)) if "written as text" in text
        ]
        assert bool(sentences) == are_numbers
        assert not sentences or sentences[0].startswith("pay: numbers written as text")
    assert not doubtful_columns(canonical(pd.DataFrame({"pay": ["unknown", "1,000", "new"] * 30})))
    assert not doubtful_columns(canonical(table[["age"]].to_numpy()))


def test_columns_without_any_value_are_reported():
    for nothing in (None, np.nan, pd.NaT, pd.NA):
        table = pd.DataFrame({"age": [nothing] * 2000 + [3.0], "pay": [nothing] * 2001, "sex": "f"})
        assert doubtful_columns(canonical(table)) == [
            "pay: no value in 2,001 rows, so it can teach nothing; fill it in or leave it out"
        ]
        assert doubtful_columns(canonical(table.assign(more=nothing)))[0].startswith(
            "pay, more: no value"
        )
    numbers = np.array([[1.0, np.nan], [2.0, np.nan]] * 30)
    assert not doubtful_columns(canonical(numbers[:19]))
    clf = SplitConformalClassifier(random_state=0)
    with pytest.warns(FaregWarning, match="x1: no value in 60 rows"):
        clf.fit(numbers, np.arange(60) % 2)
