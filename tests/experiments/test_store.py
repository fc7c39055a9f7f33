"""Configurations name results; results are whole or not there."""

import errno
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fareg import FaregError
from fareg.experiments import _store as store_module
from fareg.experiments._paper_problems import PaperProblem
from fareg.experiments._settings import BaseModel, Method, content_hash
from fareg.experiments._store import MANIFEST, Store

ROWS = pd.DataFrame({"a": [1.5], "b": ["x"]})


@pytest.mark.parametrize(
    "change",
    [
        {"n": 300},
        {"seed": 1},
        {"n_test": 99},
        {"base": BaseModel(patience=1)},
        {"kind": "eight"},
        {"codes": "authors"},
        {"fingerprint": "another file"},
    ],
)
def test_any_change_of_a_configuration_changes_its_name(change):
    problem = PaperProblem("xnor", 200, 0)
    assert content_hash(problem) != content_hash(replace(problem, **change))


def test_what_is_called_or_placed_differently_is_the_same():
    places = (PaperProblem("acs", 200, 0, fingerprint="f", path=path) for path in "ab")
    assert len({content_hash(problem) for problem in places}) == 1
    assert content_hash(Method("one", "afcp")) == content_hash(Method("two", "afcp"))


def test_problems_do_not_share_random_numbers():
    problem = PaperProblem("xnor", 200, 0)
    others = [replace(problem, seed=1), replace(problem, n=201)]
    first = problem.rng(0).random()
    assert first == problem.rng(0).random()
    assert first not in [problem.rng(1).random(), *(other.rng(0).random() for other in others)]


def test_rows_come_back_as_they_were_and_leave_nothing_else(tmp_path):
    store = Store.open(tmp_path / "new" / "folder")
    assert store.get("abc") is None
    store.put("abc", ROWS)
    pd.testing.assert_frame_equal(store.get("abc"), ROWS)
    files = [path.name for path in store.folder.rglob("*") if path.is_file()]
    assert sorted(files) == ["abc.parquet", MANIFEST]


def test_a_damaged_file_counts_as_missing(tmp_path):
    store = Store.open(tmp_path)
    store.put("abc", ROWS)
    content = store.path("abc").read_bytes()
    store.path("abc").write_bytes(content[: len(content) // 2])
    assert store.get("abc") is None


def test_a_full_disk_is_one_clear_error_and_loses_nothing(tmp_path, monkeypatch):
    store = Store.open(tmp_path)
    store.put("abc", ROWS)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FaregError, match="the disk is full"):
        store.put("def", ROWS)
    assert store.get("def") is None
    pd.testing.assert_frame_equal(store.get("abc"), ROWS)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FaregError, match="choose another folder"):
        Store.open(tmp_path / "file" / "results")


def test_results_of_another_version_are_refused(tmp_path, monkeypatch):
    Store.open(tmp_path)
    monkeypatch.setattr(store_module, "FORMAT", 98)
    with pytest.raises(FaregError, match=r"another version .*format 4.*; choose another folder"):
        Store.open(tmp_path)
    (tmp_path / MANIFEST).write_text(json.dumps(["what?"]))
    with pytest.raises(FaregError, match="another version"):
        Store.open(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(FaregError, match="cannot read"):
        Store.open(tmp_path)
