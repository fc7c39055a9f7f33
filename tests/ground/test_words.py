"""Names are shown so that they cannot steer the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fareg._words import list_items, printable, quoted, unquoted


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("red\x1b[31m", r"red\x1b[31m"),
        ("two\r\nlines\t", r"two\r\nlines\t"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),  # the escape sequence of one byte
        ("ab\u202ecd\u2066\u200e", r"ab\u202ecd\u2066\u200e"),  # marks that reverse text
        ("\u2028\u2029\ud800", r"\u2028\u2029\ud800"),
        ("\U000e0041", r"\U000e0041"),  # a tag that nobody sees
    ],
)
def test_what_would_steer_a_terminal_is_escaped(name, shown):
    assert printable(name) == shown


@pytest.mark.parametrize("name", ["Zoë", "日本", "می‌خواهم", "👩‍👩‍👧", "a b", r"C:\new", "=1+1"])
def test_other_names_stay_as_they_are(name):
    assert printable(name) == name


NAMES = st.text(st.sampled_from([*'ab ,"=*\n', "é"]), min_size=1, max_size=6)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_list_of_the_shell_holds_any_names(names):
    assert [unquoted(item) for item in list_items(",".join(map(quoted, names)))] == names


@given(NAMES, NAMES)
def test_both_sides_of_a_pair_may_be_any_names(label, column):
    (item, other) = list_items(f'"{label.replace(chr(34), chr(34) * 2)}"={quoted(column)},z')
    assert other == "z"
    assert (label, column) in [
        (unquoted(item[:cut]), unquoted(item[cut + 1 :]))
        for cut, sign in enumerate(item)
        if sign == "="
    ]
