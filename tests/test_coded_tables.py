"""A table that is coded once is to every reader what the table itself is."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from fareg import _columns
from fareg._columns import (
    canonical,
    code_table,
    column_names,
    held,
    take_rows,
    without_columns,
)
from fareg._drift import count_strange, summarise
from fareg._hashing import row_hashes
from fareg._levels import empty_columns, numbers_as_text
from fareg._selection import select_columns
from same_table import TABLES, pandas_objects

READERS = {
    "canonical": canonical,
    "names": column_names,
    "kinds": lambda X: code_table(X).kinds(),
    "hashes": lambda X: row_hashes(X, 7, X, labels=np.arange(len(X))),
    "summary": lambda X: summarise(X, X),
    "strange": lambda X: count_strange(summarise(X), take_rows(X, [1, 0])),
    "written numbers": numbers_as_text,
    "empty": empty_columns,
    "all columns": lambda X: select_columns(X, None, hidden=["span"]),
    "by name": lambda X: select_columns(X, ["moment", "flag"]),
    "by position": lambda X: select_columns(X, [-1, 0]),
    "others": lambda X: canonical(without_columns(X, [0, 2])),
}


def assert_same(found, expected):
    if isinstance(found, pd.DataFrame):
        assert_frame_equal(found, expected)
        assert [held(found[name]) for name in found] == [held(expected[name]) for name in expected]
    else:
        np.testing.assert_equal(found, expected)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("table", TABLES)
def test_readers_find_in_a_coded_table_what_they_find_in_the_table(table, read):
    assert_same(read(code_table(table())), read(table()))


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_coded_table_is_coded_no_more(read, monkeypatch):
    coded = code_table(pandas_objects())

    def refuse(column):
        raise AssertionError("a column was coded again")

    monkeypatch.setattr(_columns, "_coded", refuse)
    read(coded)


@pytest.mark.parametrize("rows", [[2, 0], slice(1, 3), np.array([True, False, True, True])])
@pytest.mark.parametrize("table", TABLES)
def test_rows_are_taken_from_codes_as_from_the_table(table, rows):
    coded = code_table(table()).take(rows)
    assert len(coded) == len(coded.columns["text"])
    assert_same(canonical(coded), canonical(take_rows(table(), rows)))


def test_written_numbers_and_empty_columns_are_found_in_codes():
    table = pd.DataFrame({"pay": ["1,090", "2,050"] * 20, "none": [None] * 40})
    for tell, name in ((numbers_as_text, "pay"), (empty_columns, "none")):
        assert tell(code_table(table)) == tell(table)
        assert tell(table).startswith(f"{name}: ")


def test_a_function_chooses_columns_of_the_table_as_it_came():
    table = pandas_objects()
    seen = []
    select_columns(code_table(table), lambda X: seen.append(X) or X[["flag"]])
    assert seen[0] is table


def test_a_text_that_stands_for_several_values_counts_them_all():
    """1 and "1" are one text, in one column and in parts of a table."""
    mixed = pd.DataFrame({"a": [1, "1", "b", "b"]}, dtype=object)
    assert summarise(mixed, mixed)["a"]["rare"] == 0
    assert summarise(mixed)["a"] | {"known": None} == {
        "rows": 4,
        "people": 4,
        "empty": 0,
        "rare": 0,
        "known": None,
    }
