"""``fareg monitor``: a watch from file to file, its refusals, and what a killed run leaves."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import fareg
from shell import FRAME, refused, run

OPTIONS = ("--target", "outcome")


@pytest.fixture
def weeks(tmp_path):
    """Return tables of three weeks; in the last one Feature 1, which gives the label, is noise."""
    rng, paths = np.random.default_rng(0), []
    for week in range(3):
        rows = FRAME[2400 + 200 * week : 2600 + 200 * week].assign(week=week)
        if week == 2:
            rows["Feature 1"] = rng.random(len(rows))
        paths.append(tmp_path / f"week{week}.csv")
        rows.to_csv(paths[-1], index=False)
    return paths


def test_a_watch_finds_a_change_and_shuts_the_gate(place, weeks, tmp_path):
    state, page, model = tmp_path / "s.json", tmp_path / "watch.html", place / "m.fareg"
    more = (*OPTIONS, "--state", state, "--when", "week", "--group", "Region = Asia")
    first = run("monitor", model, weeks[0], *more)
    assert "200 new rows, 200 in all. Coverage holds" in first.stdout
    told = json.loads(run("monitor", model, weeks[1], *more, "--json").stdout)
    assert (told["fed"], told["rows"], told["verdict"]) == (200, 400, "holding")
    assert {row["stream"] for row in told["streams"]} >= {"everyone", "Region = Asia"}
    gate = run("monitor", model, weeks[2], *more, "--out", page, "--fail-on", "alarm", code=3)
    assert "everyone: " in gate.stdout
    assert "alarm since time 2" in gate.stdout
    assert "rows since the alarm (" in gate.stdout
    assert f"alarm since time 2, raised in {weeks[2]}" in gate.stdout
    assert "Next: Look at the rows since the change" in gate.stdout  # of everyone
    assert "Failed --fail-on alarm: Coverage is lost for everyone" in gate.stderr
    assert "alarm since time 2" in page.read_text(encoding="utf-8")
    # the same in Python
    monitor = fareg.CoverageMonitor.load(state, fareg.load(model))
    assert (monitor.n_rows, monitor.alarms[0].when) == (600, 2)


def test_what_is_refused_leaves_the_state_as_it_was(place, weeks, tmp_path):
    state, model = tmp_path / "s.json", place / "m.fareg"
    more = (*OPTIONS, "--state", state)
    run("monitor", model, weeks[0], *more)
    before = state.read_bytes()
    for words, arguments in {
        "these 200 rows were fed already, in the latest batch; if": (weeks[0], *more),
        "began without the group Region = Asia": (weeks[1], *more, "--group", "Region = Asia"),
        "has no column": (weeks[1], *more, "--when", "day"),
        "must end in": (weeks[1], *OPTIONS, "--state", tmp_path / "s.txt"),
        "m.fareg": (weeks[1], *OPTIONS, "--state", model),
        "not the state of a monitor": (weeks[1], *OPTIONS, "--state", place / "other.json"),
    }.items():
        (place / "other.json").write_text("{}")
        assert words in refused("monitor", model, *arguments)
    assert state.read_bytes() == before
    unlabelled = FRAME[2600:2800].assign(outcome=["low"] * 5 + [None] * 195)
    unlabelled.to_csv(tmp_path / "late.csv", index=False)
    done = run("monitor", model, tmp_path / "late.csv", *more)
    assert "195 of 200 rows have no outcome and are left out" in done.stderr
    assert "5 new rows, 205 in all" in done.stdout


def test_a_killed_run_loses_nothing(place, weeks, tmp_path):
    state, model = tmp_path / "s.json", place / "m.fareg"
    run("monitor", model, weeks[0], *OPTIONS, "--state", state)
    before = state.read_bytes()
    program = """
import os, signal, sys
from fareg import _files
from fareg.cli import app
place = sys.argv.pop(1)
replace = os.replace
def killed(*paths):
    if place == "after":
        replace(*paths)
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = killed
app()
"""
    arguments = ["monitor", model, weeks[1], *OPTIONS, "--state", state]
    for place_of_death in ("before", "after"):
        command = [sys.executable, "-c", program, place_of_death, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, env=os.environ, check=False)
        assert done.returncode == -signal.SIGKILL
        if place_of_death == "before":
            assert state.read_bytes() == before  # the same rows may be fed again
    told = fareg.CoverageMonitor.load(state, fareg.load(model))
    assert told.n_rows == 400
    assert "were fed already" in refused("monitor", model, weeks[1], *arguments[3:])
