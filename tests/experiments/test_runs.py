"""A run may die at any moment, on any engine: it ends with the same numbers."""

import os
import signal
import threading
import time
from dataclasses import replace

import pandas as pd
import pytest

from fareg import FaregError
from fareg.experiments._bench import Store
from fareg.experiments._runs import run_cells, units_of
from forked import dask_cluster, started


def stored(folder):
    return sorted(path.name for path in folder.rglob("*.parquet"))


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_cells_of_one_problem_run_together_and_once(tiny):
    cells = tiny.tiny_cells()
    units = units_of([*cells, *cells])
    assert sorted(map(len, units)) == [4, 4, 4, 5]
    assert {cell.key for unit in units for cell in unit} == {cell.key for cell in cells}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_numbers(
    jobs, tiny, expected, numbers_of, tmp_path
):
    code = f"import runpy\nrunpy.run_path({str(tiny.script)!r})['run'](folder, jobs)"
    for _ in range(3 if jobs == 1 else 1):  # processes of jobs start in seconds
        before = len(stored(tmp_path))
        run = started(code, folder=str(tmp_path), jobs=jobs)
        wait_for(lambda run=run, n=before: not run.is_alive() or len(stored(tmp_path)) > n + 1)
        os.killpg(run.pid, signal.SIGKILL)  # the whole session: workers die with their parent
        run.join()
        assert run.exitcode == -signal.SIGKILL
        wait_for(lambda pid=run.pid: not alive(pid))
    cells = tiny.tiny_cells()
    assert 0 < len(stored(tmp_path)) < len(cells) + 4  # killed in mid-run, for real
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    tiny.run(str(tmp_path), jobs)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(stored(tmp_path)) == len(cells) + 4  # and four base models
    pd.testing.assert_frame_equal(numbers_of(cells, tmp_path), expected)


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_changed_configuration_reuses_nothing(tiny, tmp_path):
    cell = tiny.tiny_cells(1)[1]
    changed = replace(cell, metrics=replace(cell.metrics, n_directions=5))
    retrained = replace(cell, problem=replace(cell.problem, base=tiny.BaseModel("hgb")))
    store = Store.open(tmp_path)
    counts = []
    for one in (cell, cell, changed, retrained):
        run_cells([one], store, jobs=1)
        counts.append(len(stored(tmp_path)))
    assert counts == [2, 2, 3, 5]  # cell and model; nothing; a cell; cell and model


def test_a_dask_cluster_survives_the_death_of_a_worker(tiny, expected, numbers_of, tmp_path):
    pytest.importorskip("distributed")
    cells = tiny.tiny_cells()
    with dask_cluster() as cluster:
        victim = next(iter(cluster.workers.values())).pid
        killed = threading.Event()

        def kill():
            wait_for(lambda: len(stored(tmp_path)) > 1)
            os.kill(victim, signal.SIGKILL)
            killed.set()

        thread = threading.Thread(target=kill)
        thread.start()
        store = Store.open(tmp_path)
        run_cells(cells, store, engine=cluster.scheduler_address)
        thread.join()
    assert killed.is_set()
    assert len(stored(tmp_path)) == len(cells) + 4
    pd.testing.assert_frame_equal(numbers_of(cells, tmp_path), expected)


def test_a_scheduler_out_of_reach_is_one_clear_error(tiny, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("fareg._engines.CONNECT_SECONDS", 1)
    store = Store.open(tmp_path)
    address = "tcp://127.0.0.1:9"
    with pytest.raises(FaregError, match=f"cannot reach the dask scheduler at {address}"):
        run_cells(tiny.tiny_cells(1), store, engine=address)
    with pytest.raises(FaregError, match="engine must be one of local, dask"):
        run_cells(tiny.tiny_cells(1), store, engine="ray")
