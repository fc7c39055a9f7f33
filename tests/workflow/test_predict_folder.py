"""A folder of Parquet files: same answers as one file, on every engine, whichever workers die."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fareg import FaregError
from fareg.cli import app
from fareg.datasets import make_synthetic
from fareg.workflow import fit_file, predict_file
from forked import dask_cluster, forked_workers, started

DATA = make_synthetic(4000, random_state=0)
FRAME = DATA.X.assign(outcome=DATA.y)
N_PARTS, PART_ROWS = 12, 200
FEW_ROWS = "import fareg.workflow._predict as room\nroom.BATCH_ROWS = 50\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a model, a table as one file, and as parts in folders by colour."""
    folder = tmp_path_factory.mktemp("folder")
    FRAME[:1600].to_parquet(folder / "train.parquet")
    fit_file(
        folder / "train.parquet",
        target="outcome",
        out=folder / "m.fareg",
        sensitive=["Color", "Gender"],
        estimator="logistic",
    )
    rows = DATA.X[1600:].reset_index(drop=True)
    rows.to_parquet(folder / "new.parquet")
    write_parts(folder / "parts", np.array_split(np.arange(len(rows)), N_PARTS), rows)
    return folder


def write_parts(folder, pieces, rows):
    folder.mkdir()
    for number, piece in enumerate(pieces):
        rows.iloc[piece].to_parquet(folder / f"part-{number:03}.parquet", row_group_size=50)


def contents(folder):
    """Return the digest of every file below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


@pytest.fixture(scope="module")
def expected(place):
    predict_file(place / "m.fareg", place / "parts", place / "expected", jobs=1)
    return contents(place / "expected")


def test_parts_hold_the_answers_of_one_file(place, expected, tmp_path):
    told = predict_file(place / "m.fareg", place / "new.parquet", tmp_path / "sets.parquet")
    again = predict_file(place / "m.fareg", place / "parts", tmp_path / "sets")
    assert again == {**told, "files": N_PARTS}
    assert contents(tmp_path / "sets") == expected
    parts = [pd.read_parquet(path) for path in sorted((tmp_path / "sets").iterdir())]
    whole = pd.read_parquet(tmp_path / "sets.parquet")
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole, rtol=1e-12)
    assert sorted(os.listdir(tmp_path)) == ["sets", "sets.parquet"]


def test_the_command_on_a_dask_cluster_of_its_own(place, expected, tmp_path):
    pytest.importorskip("distributed")
    arguments = ["predict", place / "m.fareg", place / "parts", "--out", tmp_path / "sets"]
    options = ["--engine", "dask:2", "--json"]
    with forked_workers():
        done = CliRunner().invoke(app, [str(argument) for argument in [*arguments, *options]])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 2400
    assert contents(tmp_path / "sets") == expected


def test_a_worker_that_dies_loses_and_duplicates_nothing(place, expected, tmp_path):
    pytest.importorskip("distributed")
    out = tmp_path / "sets"
    with dask_cluster() as cluster:
        victim = next(iter(cluster.workers.values())).pid
        killed_after = []

        def kill():
            wait_for(lambda: list(tmp_path.glob(".sets.*/*.parquet")))
            os.kill(victim, signal.SIGKILL)
            killed_after.append(len(list(tmp_path.glob(".sets.*/*.parquet"))))

        thread = threading.Thread(target=kill)
        thread.start()
        told = predict_file(
            place / "m.fareg",
            place / "parts",
            out,
            engine=cluster.scheduler_address,
            batch_size=50,  # slow enough to be caught in the middle
        )
        thread.join()
    assert killed_after[0] < N_PARTS
    assert told["rows"] == 2400
    small = predict_file(
        place / "m.fareg", place / "parts", tmp_path / "small", jobs=1, batch_size=50
    )
    assert small == told
    assert contents(out) == contents(tmp_path / "small")
    assert contents(out).keys() == expected.keys()


def test_a_run_that_is_killed_goes_on_where_it_stopped(place, expected, tmp_path):
    arguments = ["predict", place / "m.fareg", place / "parts", "--out", tmp_path / "sets"]
    arguments = [*map(str, arguments), "--engine", "local:1"]
    run = started(FEW_ROWS + "from fareg.cli import app; app(arguments)", arguments=arguments)
    wait_for(lambda: len(list(tmp_path.glob(".sets.*/*.parquet"))) > 1)
    run.kill()
    run.join()
    assert not (tmp_path / "sets").exists()
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob(".sets.*/*.parquet")}
    assert 0 < len(kept) < N_PARTS
    with patch("fareg.workflow._predict.BATCH_ROWS", 50):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "sets").iterdir()}
    assert after.items() >= kept.items()
    assert after.keys() == expected.keys()
    assert os.listdir(tmp_path) == ["sets"]


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_names_of_folders_are_columns(place, tmp_path):
    rows = pd.read_parquet(place / "new.parquet")
    rows.to_parquet(tmp_path / "by_color", partition_cols=["Color"])
    told = predict_file(place / "m.fareg", tmp_path / "by_color", tmp_path / "sets", jobs=1)
    assert told["rows"] == len(rows)
    assert {path.name for path in (tmp_path / "sets").iterdir()} == {"Color=Blue", "Color=Red"}
    (blue,) = (tmp_path / "sets" / "Color=Blue").iterdir()
    whole = predict_file(place / "m.fareg", place / "new.parquet", tmp_path / "whole.parquet")
    assert told["sizes"] == whole["sizes"]
    expected = pd.read_parquet(tmp_path / "whole.parquet")[(rows["Color"] == "Blue").to_numpy()]
    assert pd.read_parquet(blue, partitioning=None)["set"].tolist() == expected["set"].tolist()
    keep = ["Color", "Feature 1"]
    predict_file(place / "m.fareg", tmp_path / "by_color", tmp_path / "kept", jobs=1, keep=keep)
    (blue,) = (tmp_path / "kept" / "Color=Blue").iterdir()
    kept = pd.read_parquet(blue, partitioning=None)
    assert list(kept)[:2] == ["Feature 1", "set"]  # the folder says the color
    assert kept["Feature 1"].tolist() == rows.loc[rows["Color"] == "Blue", "Feature 1"].tolist()
    assert kept["set"].tolist() == expected["set"].tolist()
    assert pd.read_parquet(tmp_path / "kept")["Color"].value_counts().to_dict() == (
        rows["Color"].value_counts().to_dict()
    )


def test_a_full_disk_is_one_line_and_loses_no_finished_part(place, expected, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(*options):
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(disk)]
        return subprocess.run(command, capture_output=True).returncode == 0

    if not mount("size=32k"):
        pytest.skip("mounting a small disk needs root")
    try:
        with pytest.raises(FaregError, match="the disk is full; free some space"):
            predict_file(place / "m.fareg", place / "parts", disk / "sets", jobs=2)
        assert not (disk / "sets").exists()
        finished = list(disk.glob(".sets.*.partial/*.parquet"))
        assert 0 < len(finished) < N_PARTS
        assert mount("remount", "size=1m")
        predict_file(place / "m.fareg", place / "parts", disk / "sets", jobs=2)
        assert contents(disk / "sets") == expected
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_parts_without_rows_are_left_out(place, tmp_path):
    shutil.copytree(place / "parts", tmp_path / "parts")
    empty = pd.read_parquet(tmp_path / "parts" / "part-000.parquet")[:0]
    empty.to_parquet(tmp_path / "parts" / "part-000.parquet")
    told = predict_file(place / "m.fareg", tmp_path / "parts", tmp_path / "sets", jobs=1)
    assert told["rows"] == 2200
    assert len(os.listdir(tmp_path / "sets")) == N_PARTS - 1
    for path in (tmp_path / "parts").iterdir():
        empty.to_parquet(path)
    with pytest.raises(FaregError, match="has no rows"):
        predict_file(place / "m.fareg", tmp_path / "parts", tmp_path / "none", jobs=1)
    assert not (tmp_path / "none").exists()


def test_what_is_wrong_with_a_folder_is_said_in_one_line(place, tmp_path):
    model, parts, odd = place / "m.fareg", place / "parts", tmp_path / "odd"

    def refused(match, data, out=tmp_path / "sets", **options):
        with pytest.raises(FaregError, match=match) as caught:
            predict_file(model, data, out, **options)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "sets").exists()
        assert all(any(kept.iterdir()) for kept in tmp_path.glob(".sets*"))

    (tmp_path / "empty").mkdir()
    refused("holds no Parquet file", tmp_path / "empty")
    (tmp_path / "empty" / "notes.txt").write_text("hello")
    refused("must hold Parquet files only, got notes.txt", tmp_path / "empty")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    for match, out in {
        "it exists": tmp_path / "empty",
        "exists; remove": tmp_path / "lost",
    }.items():
        refused(match, parts, out=out)
    refused("there is no folder", parts, out=tmp_path / "no" / "sets")
    refused("engine must be one of local, dask", parts, engine="spark")
    refused("jobs must be", parts, jobs=0)
    shutil.copytree(parts, odd)
    pd.DataFrame({"Color": ["Red"]}).to_parquet(odd / "part-003.parquet")
    refused("part-003.parquet has no columns Gender", odd, jobs=1)
    (odd / "part-003.parquet").write_bytes(b"PAR1 and no more")
    refused("part-003.parquet cannot be read as Parquet", odd, jobs=2)
    assert list(tmp_path.glob(".sets*"))  # parts that could be answered
    predict_file(model, parts, tmp_path / "sets", jobs=1)
    assert not list(tmp_path.glob(".sets*"))


def test_engines_are_for_folders(place, tmp_path):
    command = ["predict", place / "m.fareg", place / "new.parquet", "--out", tmp_path / "s.parquet"]
    for option in (["--engine", "dask"], ["--engine", "local:2"], ["--engine", "tcp://x:1"]):
        done = CliRunner().invoke(app, [str(argument) for argument in [*command, *option]])
        assert done.exit_code == 2
        assert "are for a folder of Parquet files" in done.stderr
    assert os.listdir(tmp_path) == []
