"""Configurations name results; results are whole or absent."""

import errno
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fareg import FaregError
from fareg.experiments import _bench
from fareg.experiments._bench import MANIFEST, BaseModel, Store, content_hash
from fareg.experiments._methods import Method
from fareg.experiments._problems import PaperProblem

ROWS = pd.DataFrame({"a": [1.5], "b": ["x"]})
PROBLEM = PaperProblem("xnor", 200, 0)
CHANGES = {"n": 300, "seed": 1, "n_test": 99, "base": BaseModel(patience=1), "kind": "eight"}
CHANGES |= {"codes": "authors", "fingerprint": "another file"}


def test_what_changes_a_result_changes_its_name_and_its_random_numbers():
    others = [replace(PROBLEM, **{name: value}) for name, value in CHANGES.items()]
    assert len({content_hash(problem) for problem in [PROBLEM, *others]}) == 1 + len(CHANGES)
    assert content_hash(PROBLEM) == content_hash(replace(PROBLEM, path="elsewhere"))
    assert content_hash(Method("one", "afcp")) == content_hash(Method("two", "afcp"))
    drawn = [own.rng(0).random() for own in (PROBLEM, *others[:2])] + [PROBLEM.rng(1).random()]
    assert len(set(drawn)) == 4
    assert drawn[0] == PROBLEM.rng(0).random()


def test_rows_come_back_as_they_were_and_leave_nothing_else(tmp_path):
    store = Store.open(tmp_path / "new" / "folder")
    assert store.get("abc") is None
    store.put("abc", ROWS)
    pd.testing.assert_frame_equal(store.get("abc"), ROWS)
    files = [path.name for path in store.folder.rglob("*") if path.is_file()]
    assert sorted(files) == ["abc.parquet", MANIFEST]
    content = store.path("abc").read_bytes()
    store.path("abc").write_bytes(content[: len(content) // 2])
    assert store.get("abc") is None  # a damaged file counts as missing


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


def test_folders_that_cannot_be_used_are_refused_at_once(tmp_path, monkeypatch):
    Store.open(tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FaregError, match="choose another folder"):
        Store.open(tmp_path / "file" / "results")
    monkeypatch.setattr(_bench, "FORMAT", 98)
    with pytest.raises(FaregError, match=r'another version.*"format": 4.*; choose another'):
        Store.open(tmp_path)
    for text, message in {'["what?"]': "another version", "{": "cannot read"}.items():
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(FaregError, match=message):
            Store.open(tmp_path)
