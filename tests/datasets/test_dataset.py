"""Dataset: lengths agree, rows travel together."""

import numpy as np
import pandas as pd
import pytest

from fareg._validation import InvalidInputError
from fareg.datasets import Dataset


def small(**changes):
    fields = {
        "X": pd.DataFrame({"a": ["u", "v", "w"], "b": [0.0, 1.0, 2.0]}),
        "y": np.array([0, 1, 0]),
        "sensitive": ("a",),
        "group": np.array([True, False, True]),
        "name": "small",
    }
    return Dataset(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.array([0, 1])}, "X has 3, y has 2"),
        ({"group": np.array([True])}, "X has 3, group has 1"),
        ({"group": np.array([1, 0, 1])}, "group must be a bool array, got dtype int64"),
        ({"sensitive": ("a", "c")}, "sensitive must name columns of X, got c; columns: a, b"),
    ],
)
def test_refuses_what_does_not_fit(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("rows", "positions"),
    [
        ([2, 0], [2, 0]),
        (np.array([True, False, True]), [0, 2]),
        (slice(1, None), [1, 2]),
        ([], []),
    ],
)
def test_take_keeps_rows_together(rows, positions):
    data = small()
    part = data.take(rows)
    assert part.X["b"].tolist() == positions
    assert part.y.tolist() == [data.y[i] for i in positions]
    assert part.group.tolist() == [data.group[i] for i in positions]
    assert part.X.index.tolist() == list(range(len(part)))
    assert (part.sensitive, part.name) == (data.sensitive, data.name)
