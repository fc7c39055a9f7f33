"""Dataset: lengths agree, rows travel together."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import fareg.datasets
from fareg._validation import InvalidInputError
from fareg.datasets import Dataset, make_synthetic


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


def test_take_without_a_group():
    assert small(group=None).take([1]).group is None


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small().name = "other"


def test_parts_partition_the_whole():
    data = make_synthetic(60, random_state=0)
    inside, outside = data.take(data.group), data.take(~data.group)
    assert len(inside) + len(outside) == len(data)
    assert inside.group.all()
    assert not outside.group.any()


def test_public_names_exist():
    names = fareg.datasets.__all__
    assert all(hasattr(fareg.datasets, name) for name in names)
