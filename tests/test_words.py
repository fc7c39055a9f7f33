"""Names are shown so that they cannot steer the terminal."""

import pytest

from fareg._words import printable


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
