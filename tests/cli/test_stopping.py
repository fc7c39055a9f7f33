"""However a command ends: one true sentence, the right exit code, no process left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest
from typer.testing import CliRunner

from fareg.cli import app
from forked import started
from shell import FRAME, run

KEPT = "finished work is kept, and the same command continues from there"
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def invoked(*arguments):
    """Return exit code and stderr of a command, whose one line holds no traceback."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.stdout == ""
    return done.exit_code, done.stderr


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    FRAME[:600].to_csv(path, index=False)
    return path


def fit(table, *options):
    target = ("--target", "outcome", "--sensitive", "Color", "--estimator", "logistic")
    return ("fit", table, *target, "--out", table.parent / "m.fareg", *options)


# --- what an interruption says -------------------------------------------------------------------


def interrupted(*args, **options):
    raise KeyboardInterrupt


def test_control_c_while_the_report_is_written_names_the_model(table, monkeypatch):
    monkeypatch.setattr("fareg.auditing._comparison.render_report", interrupted)
    model, test, report = (table.parent / name for name in ("m.fareg", "test.csv", "r.html"))
    told = invoked(*fit(table, "--report", report, "--test-out", test))
    assert told == (130, f"Interrupted: {test}, {model} were written.\n")
    assert model.exists()
    assert not report.exists()
    told = invoked(*fit(table, "--report", report))
    assert told == (130, f"Interrupted: {model} was written.\n")


def test_an_error_while_the_report_is_written_names_the_model_too(table, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fareg._files.Path.write_text", full)
    report = table.parent / "r.html"
    code, line = invoked(*fit(table, "--report", report))
    assert code == 2, line
    assert line.startswith(f"Error: cannot write {report}: the disk is full; ")
    assert line.endswith(f"{table.parent / 'm.fareg'} was written\n")


def test_control_c_before_anything_is_written_says_so(table, monkeypatch):
    monkeypatch.setattr("fareg.workflow._fit.save", interrupted)
    assert invoked(*fit(table)) == (130, "Interrupted: nothing was written.\n")


def test_a_folder_run_tells_whether_anything_is_kept(place, parts, monkeypatch):
    out = parts.parent / "sets"
    predict = ("predict", place / "m.fareg", parts, "--out", out, "--engine", "local:1")
    monkeypatch.setattr("fareg.workflow._predict._write", interrupted)
    assert invoked(*predict) == (130, "Interrupted: nothing was written.\n")
    monkeypatch.undo()
    (parts / "p9.parquet").write_bytes(b"PAR1 and no more")
    code, line = invoked(*predict)
    assert code == 2
    assert line.endswith(f"; {KEPT}\n")


# --- errors that are not ours --------------------------------------------------------------------


@pytest.mark.parametrize("kind", [KeyError, ValueError, AttributeError])
def test_an_error_of_a_library_is_one_sentence_and_a_traceback_with_debug(place, monkeypatch, kind):
    def broken(*args, **options):
        raise kind("a library\nhas an error")

    monkeypatch.setattr("fareg.persistence.ModelFile.open", broken)
    info = ("info", place / "m.fareg")
    code, line = invoked(*info)
    assert code == 1
    assert line.startswith(f"Error: {kind.__name__}: ")
    assert line.endswith("; add --debug to see where; nothing was written\n")
    assert line.count("\n") == 1
    for arguments in (("--debug", *info), (*info, "--debug")):
        code, text = invoked(*arguments)
        assert code == 1
        assert text.startswith("Traceback (most recent call last):")
        assert "in broken" in text
        assert text.endswith(line)


def test_debug_shows_where_a_refusal_comes_from_and_keeps_its_code(tmp_path):
    code, text = invoked("info", tmp_path / "none.fareg", "--debug")
    assert code == 2
    assert "InvalidInputError" in text
    assert text.splitlines()[-1].startswith("Error: cannot read")
    done = run("--debug", "--version")
    assert done.stdout.startswith("fareg ")


# --- terminals -----------------------------------------------------------------------------------


def child(*arguments, **options):
    """Run a command in a new process."""
    command = [sys.executable, "-m", "fareg", *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, timeout=120, check=False, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_full_terminal_is_one_sentence_that_names_what_was_written(place, tmp_path, options):
    out = tmp_path / "s.csv"
    with open("/dev/full", "w") as full:
        done = child("info", place / "m.fareg", *options, stdout=full)
        assert done.returncode == 1
        line = "Error: cannot print the answer (No space left on device); nothing was written\n"
        assert done.stderr.decode() == line
        predict = ("predict", place / "m.fareg", place / "new.csv", "--out", out, *options)
        done = child(*predict, stdout=full)
        assert done.returncode == 1
        assert done.stderr.decode() == line.replace("nothing", str(out))
    assert len(pd.read_csv(out)) == len(FRAME) - 2400


def test_a_terminal_of_ascii_shows_any_name_and_json_stays_json(tmp_path):
    table = tmp_path / "tëst.csv"
    FRAME[:600].replace({"outcome": {"e": "é", "f": "猫"}}).to_csv(table, index=False)
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for options in ((), ("--json",)):
        done = child(*fit(table, *options), stdout=subprocess.PIPE, env=ascii_only)
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        assert done.stderr.count(b"\n") <= 1
    labels = {row["label"] for row in json.loads(done.stdout)["by_label"]}
    assert {"é", "猫"} <= labels
    shutil.rmtree(tmp_path, ignore_errors=True)
    done = child("info", table, stdout=subprocess.PIPE, env=ascii_only)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


# --- memory --------------------------------------------------------------------------------------

LITTLE = """
import resource, sys
from pathlib import Path
os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600), 2)
sys.stderr = open(2, "w", closefd=False)
import fareg.workflow._predict
from fareg.cli import app
fareg.workflow._predict.BATCH_ROWS = rows
if room is not None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
app(arguments)
"""


@needs_proc
@pytest.mark.parametrize("name", ["big.csv", "big.parquet"])
def test_too_little_memory_is_one_sentence_and_leaves_nothing(place, tmp_path, name):
    data, log = tmp_path / name, tmp_path / "log"
    big = pd.concat([FRAME] * 120)
    big.to_csv(data, index=False) if name.endswith("csv") else big.to_parquet(data)
    arguments = ["predict", place / "m.fareg", data, "--out", tmp_path / "s.csv"]
    process = started(
        LITTLE, arguments=[*map(str, arguments)], rows=10**6, room=24 << 20, log=str(log)
    )
    process.join(60)
    line = log.read_text()
    assert process.exitcode == 1, line
    assert line.startswith("Error: out of memory; close other programs")
    assert line.endswith("; nothing was written\n")
    assert line.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == sorted([name, "log"])


# --- processes -----------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path):
    """Return a folder of many parts, so that a run can be caught in the middle."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(8):
        FRAME[2400:].to_parquet(folder / f"p{number}.parquet")
    return folder


def processes_of(session):
    """Return the worker processes of a session, by their command lines."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                state = (place / "stat").read_text().rpartition(")")[2].split()
                if int(state[3]) == session and state[0] != "Z":
                    found[int(place.name)] = (place / "cmdline").read_text()
            except OSError:  # it has just ended
                continue
    return found


def workers_of(session):
    return [pid for pid, command in processes_of(session).items() if "--process-name" in command]


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found


def caught_in_the_middle(place, parts, log, engine="local"):
    """Return a folder run in two processes that has finished a part."""
    arguments = ["predict", place / "m.fareg", parts, "--out", parts.parent / "sets"]
    arguments = [*map(str, arguments), "--engine", f"{engine}:2"]
    process = started(LITTLE, arguments=arguments, rows=10, room=None, log=str(log))
    wait_for(lambda: list(parts.parent.glob(".sets.*.partial/*.parquet")))
    return process


@needs_proc
@pytest.mark.parametrize("engine", ["local", "dask"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(place, parts, tmp_path, number, engine):
    if engine == "dask":
        pytest.importorskip("distributed")
    process = caught_in_the_middle(place, parts, tmp_path / "log", engine)
    assert len(processes_of(process.pid)) > 2
    # A terminal sends Ctrl-C to all processes of a command, workers too.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    process.join(30)
    wait_for(lambda: not processes_of(process.pid), seconds=20)
    assert not (tmp_path / "sets").exists()
    ends = {signal.SIGTERM: (143, "Terminated"), signal.SIGINT: (130, "Interrupted")}
    code, word = ends.get(number, (-number, ""))
    assert process.exitcode == code
    if word:  # after a kill, the trackers of joblib and Python say what they clean up
        assert (tmp_path / "log").read_text() == f"{word}: {KEPT}.\n"


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, 143, "Terminated"), (signal.SIGINT, 130, "Interrupted")],
)
def test_a_signal_is_one_line_and_removes_temporary_files(place, tmp_path, number, code, word):
    FRAME.to_csv(tmp_path / "big.csv", index=False)
    arguments = ["predict", place / "m.fareg", tmp_path / "big.csv", "--out", tmp_path / "s.csv"]
    arguments = [*map(str, arguments)]
    process = started(LITTLE, arguments=arguments, rows=1, room=None, log=str(tmp_path / "log"))
    wait_for(lambda: list(tmp_path.glob(".*.tmp")))
    os.kill(process.pid, number)
    process.join(30)
    assert process.exitcode == code
    assert (tmp_path / "log").read_text() == f"{word}: nothing was written.\n"
    assert sorted(os.listdir(tmp_path)) == ["big.csv", "log"]


@needs_proc
def test_a_dead_worker_of_calibrate_keeps_nothing_and_says_so(place, parts, tmp_path):
    arguments = ["calibrate", place / "m.fareg", parts, "--target", "outcome"]
    arguments = [*arguments, "--out", tmp_path / "new.fareg", "--engine", "local:2"]
    log = tmp_path / "log"
    arguments = [str(argument) for argument in arguments]
    process = started(LITTLE, arguments=arguments, rows=10, room=None, log=str(log))
    victim = wait_for(lambda: workers_of(process.pid))[0]
    os.kill(victim, signal.SIGKILL)
    process.join(60)
    assert process.exitcode == 1, log.read_text()
    line = log.read_text()
    assert line.startswith("Error: a worker process died, perhaps for lack of memory; ")
    assert line.endswith("with fewer jobs; nothing was written\n")
    assert line.count("\n") == 1
    assert not (tmp_path / "new.fareg").exists()


# --- clusters ------------------------------------------------------------------------------------

CLUSTER = """
import time
from pathlib import Path
import distributed
options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
options |= {"host": "127.0.0.1", "protocol": "tcp://"}
with distributed.LocalCluster(**options, dashboard_address=None) as cluster:
    Path(told).write_text(cluster.scheduler_address)
    time.sleep(120)
"""


def test_a_dask_scheduler_that_dies_is_one_sentence(place, parts, tmp_path):
    pytest.importorskip("distributed")
    told = tmp_path / "address"
    cluster = started(CLUSTER, told=str(told))
    address = wait_for(lambda: told.exists() and told.read_text())

    def kill():
        wait_for(lambda: list(tmp_path.glob(".sets.*.partial/*.parquet")))
        cluster.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    predict = ("predict", place / "m.fareg", parts, "--out", tmp_path / "sets")
    with patch("fareg.workflow._predict.BATCH_ROWS", 10):
        code, line = invoked(*predict, "--engine", address)
    thread.join()
    cluster.join()
    assert code == 1
    lost = f"Error: the connection to the dask scheduler at {address} was lost; run this again"
    assert line.startswith(lost)
    assert line.endswith(f"; {KEPT}\n")
    assert line.count("\n") == 1
    assert not (tmp_path / "sets").exists()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tls://127.0.0.1:8786", "cannot reach the dask scheduler at tls://"),
        ("carrier-pigeon://head:1", "or an address such as tcp://head:8786"),
        ("", "or an address such as tcp://head:8786"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_sentence(place, parts, address, words):
    pytest.importorskip("distributed")
    predict = ("predict", place / "m.fareg", parts, "--out", parts.parent / "sets")
    code, line = invoked(*predict, "--engine", address)
    assert code == 2
    assert line.startswith("Error: ")
    assert words in line
    assert line.count("\n") == 1
    assert os.listdir(parts.parent) == ["parts"]
