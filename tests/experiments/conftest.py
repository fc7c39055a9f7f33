"""Fixtures of the experiments' tests."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from fareg.experiments._bench import Store
from fareg.experiments._runs import run_cells

SCRIPT = Path(__file__).with_name("tiny.py")


@pytest.fixture(scope="session")
def tiny():
    """Return the names in tiny.py, and its path."""
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)), script=SCRIPT)


def numbers(cells, folder):
    """Return the results of a run by key, without seconds."""
    store = Store(folder)
    rows = {cell.key: store.get(cell.key) for cell in cells}
    assert all(frame is not None for frame in rows.values())
    table = pd.concat(rows)
    return table[[name for name in table if not name.endswith("_seconds")]]


@pytest.fixture(scope="session")
def expected(tiny, tmp_path_factory):
    """Return the numbers of an undisturbed run in this process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    cells = tiny.tiny_cells()
    run_cells(cells, Store.open(folder), jobs=1)
    return numbers(cells, folder)


@pytest.fixture(scope="session")
def numbers_of():
    return numbers
