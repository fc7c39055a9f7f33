"""The demo: its rows, its references and its figures, on fewer rows and without slow methods."""

import json
import os

import pytest
from typer.testing import CliRunner

from fareg.cli import app
from fareg.experiments import demo


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return the demo's output as JSON and as text, and its folder."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        slow = ("FaReG as published", "RCP")
        methods = {name: method for name, method in demo.METHODS.items() if name not in slow}
        for name, value in (("N_FIT", 1400), ("N_TEST", 1000), ("METHODS", methods)):
            patch.setattr(demo, name, value)
        patch.setattr("fareg.experiments._bench.N_FOLDS", 2)
        result = demo.run_demo(0)
        patch.setattr(demo, "run_demo", lambda seed: result)
        runs = [
            CliRunner().invoke(app, ["demo", "--out", str(folder), *options])
            for options in (["--json"], [])
        ]
    assert all(run.exit_code == 0 for run in runs), runs[0].output
    return json.loads(runs[0].stdout), runs[1].stdout, folder


def test_rows_text_and_figures_tell_the_story(told):
    told, text, folder = told
    rows = {row["method"]: row for row in told["rows"]}
    first, matched, levels, oracle = rows.values()
    assert [first["method"], levels["method"]] == [demo.SPLIT, demo.LEVELS]
    assert matched["size"] == pytest.approx(levels["size"], abs=0.002)
    assert first["group"] < levels["group"]
    assert oracle["method"].startswith("Oracle")
    assert "above a level" in " ".join(text.split())
    for name in ("demo.png", "demo-levels.png"):
        assert name in text.replace("\n", "")
        assert (folder / name).stat().st_size > 10_000


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "run_demo", None)
    (tmp_path / "file").write_text("in the way")
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "figures")])
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: cannot write to ")
    os.mkfifo(tmp_path / "demo.png")
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "it exists and is not a regular file" in done.stderr
