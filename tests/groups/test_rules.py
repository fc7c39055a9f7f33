"""Laws of rules: words and rows mean the same, and words can be read again."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg import FaregError
from fareg._columns import as_numbers, canonical
from fareg._words import group_name
from fareg.groups import Condition, Rule

NASTY = ["and", "a and b", "x = 1", '6" pipe', "a, b", "{a}", "", " a", "a  b", "missing", "not in"]
NASTY += [
    "IN",
    "is not",
    "12",
    "1e3",
    "2017-01-13",
    "<=50K",
    "a\n",
    "\u00a0",
    "True",
    "(x",
    "!",
    "a!=b",
]
LETTERS = st.sampled_from([*'ab5 ,="{}()<>!-.\\\n\u00a0é', " and ", " or missing"])
TEXTS = st.one_of(st.sampled_from(NASTY), st.lists(LETTERS, max_size=6).map("".join))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
MICROSECONDS = st.integers(-(9 * 10**15), 9 * 10**15)
# dates as a canonical column holds them
SECONDS = MICROSECONDS.map(
    lambda us: float(as_numbers(pd.Series(np.array([us], dtype="M8[us]")))[0])
)


@st.composite
def conditions(draw) -> Condition:
    name, missing = draw(TEXTS), draw(st.booleans())
    kind = draw(st.sampled_from(["missing", "levels", "number", "date"]))
    if kind == "missing":
        return Condition(name, (), is_excluding=not missing, missing=missing)
    if kind == "levels":
        levels = tuple(draw(st.lists(TEXTS, min_size=1, max_size=3)))
        return Condition(name, levels, draw(st.booleans()), missing=missing)
    bounds = st.one_of(st.none(), SECONDS if kind == "date" else NUMBERS)
    low, high = draw(st.tuples(bounds, bounds).filter(lambda pair: pair != (None, None)))
    return Condition(
        name,
        low=-np.inf if low is None else low,
        high=np.inf if high is None else high,
        has_low=low is not None and draw(st.booleans()),
        has_high=high is None or draw(st.booleans()),
        is_date=kind == "date",
        missing=missing,
    )


@settings(deadline=None)
@given(st.lists(conditions(), max_size=3))
def test_words_say_everything(parts):
    rule = Rule(tuple(parts))
    again = Rule.parse(rule.text)
    assert again == rule
    assert again.text == rule.text


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["and", "in", "{", "}", "=", '"', "x", "5", "<", ",", "(", "or missing"])
    )
)
def test_any_text_is_a_rule_or_one_sentence(pieces):
    text = " ".join(pieces)
    try:
        rule = Rule.parse(text)
    except FaregError:
        with pytest.raises(FaregError, match=re.escape(repr(text))):
            Rule.parse(text)
    else:
        assert Rule.parse(rule.text) == rule


def people() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sex": ["Female", "Male", None, "Female", "male"],
            "age": [70.0, 60.0, 61.0, np.nan, np.inf],
            "born": pd.to_datetime(
                ["1950-01-31", None, "1960-01-01", "1959-12-31", "1960-06-01 12:00"],
                format="ISO8601",
            ),
            "member": [True, False, None, True, False],
            "job": ["Craft, repair", "Sales", "Sales", None, "and"],
            "code": ["007", "7", "x", "7.0", None],
        }
    )


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("sex = Female and age > 60", [0]),
        ("sex == Female", [0, 3]),
        ("sex is Female", [0, 3]),
        ("sex != Female", [1, 4]),  # a missing value is no other level
        ("sex is not Female", [1, 4]),
        ("(sex != Female or missing)", [1, 2, 4]),
        ("sex in {Female, male}", [0, 3, 4]),
        ("sex in {Female, missing}", [0, 2, 3]),
        ("sex not in {Female, Male}", [4]),
        ("sex = Other", []),
        ("sex is missing", [2]),
        ("sex missing", [2]),
        ("sex = missing", [2]),
        ("sex is not missing", [0, 1, 3, 4]),
        ("age >= 61", [0, 2]),
        ("61 <= age", [0, 2]),
        ("60 < age <= 61", [2]),
        ("61 >= age > 60", [2]),
        ("age = 61", [2]),
        ("age = 61.0", [2]),
        ("age is missing", [3, 4]),  # an infinite number counts as missing
        ("age is not missing", [0, 1, 2]),
        ("(age < 61 or missing)", [1, 3, 4]),
        ("born < 1960-01-01", [0, 3]),
        ("1959-12-31 <= born <= 1960-01-01", [2, 3]),
        ("born > 1960-06-01 11:59:59", [4]),
        ("born = 1960-01-01", [2]),
        ("member = True", [0, 3]),
        ("member != True", [1, 4]),
        ('job in {"Craft, repair", "and"}', [0, 4]),
        ("code = 007", [0]),
        ("code > 6", [0, 1, 3]),
        ("everyone", [0, 1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("form", [lambda X: X, pl.from_pandas, canonical])
def test_rows_are_those_of_the_words_in_any_table(text, rows, form):
    inside = Rule.parse(text).inside(form(people()))
    assert inside.dtype == bool
    assert np.flatnonzero(inside).tolist() == rows


def test_a_missing_column_is_one_sentence_with_its_neighbour():
    with pytest.raises(FaregError, match=r"X has no column Sexes; did you mean sex\?"):
        Rule.parse("Sexes = Female").inside(people())


@pytest.mark.parametrize(
    "value", [v for v in NASTY if v.strip() and v[0].strip() and '"' not in v] + ["[70-80)"]
)
def test_names_of_groups_are_written_as_rules(value):
    rule = Rule((Condition("a, b", ("y",)), Condition("x", (value,))))
    told = group_name(f"a, b=y and x={value}")
    if value != "missing":
        assert Rule.parse(told) == rule
    for again in (told, rule.text):
        assert group_name(again) == again


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("age = [70-80)", 'age = "[70-80)"'),
        ("sex=f and age=[70-80)", 'sex = f and age = "[70-80)"'),
        ("income = <=50K", 'income = "<=50K"'),
    ],
)
def test_signs_without_quotation_marks_are_told_with_the_right_rule(text, fixed):
    with pytest.raises(FaregError, match=re.escape(f"in quotation marks: {fixed}") + "$"):
        Rule.parse(text)
    assert Rule.parse(fixed).text == fixed


@pytest.mark.parametrize(
    "text",
    ["", "sex Female", "a =", "a in {b,}", "a < b", "5 < x > 3", "a = b and", 'a = "b'],
)
def test_what_is_no_rule_gets_one_sentence(text):
    with pytest.raises(FaregError, match="cannot read the rule"):
        Rule.parse(text)
    with pytest.raises(FaregError, match="must be text, got 5"):
        Rule.parse(5)
