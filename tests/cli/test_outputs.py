"""No command replaces what it reads, and only what fareg left behind is ever removed."""

import hashlib
import os
import shutil

import pytest

from shell import FRAME, SMALL, refused, run


@pytest.fixture
def files(place, tmp_path):
    """Return a folder with copies of tables and models, some under a second name."""
    SMALL.to_csv(tmp_path / "t.csv", index=False)
    shutil.copy(place / "m.fareg", tmp_path / "m.fareg")
    (tmp_path / "model.skops").write_bytes(b"a model")
    (tmp_path / "parts").mkdir()
    FRAME[2400:2500].to_parquet(tmp_path / "parts" / "p.parquet")
    for name in ("t.csv", "m.fareg", "model.skops"):
        os.link(tmp_path / name, tmp_path / f"hard-{name}.html")
        (tmp_path / f"soft-{name}.html").symlink_to(name)
    return tmp_path


def contents(folder):
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


TARGET = ("--target", "outcome")
COMMANDS = {
    "fit": [
        ("fit t.csv --estimator model.skops --out {}", "model.skops"),
        ("fit t.csv --out {}", "t.csv"),
        ("fit t.csv --estimator model.skops --out new.fareg --test-out {}", "model.skops"),
        ("fit t.csv --estimator model.skops --out new.fareg --report {}", "model.skops"),
        ("fit t.csv --out new.fareg --report {}", "t.csv"),
    ],
    "predict": [
        ("predict m.fareg t.csv --out {}", "t.csv"),
        ("predict m.fareg t.csv --out {}", "m.fareg"),
    ],
    "calibrate": [
        ("calibrate m.fareg t.csv --out {}", "t.csv"),
        ("calibrate m.fareg t.csv --out {}", "m.fareg"),
    ],
    "audit": [
        ("audit t.csv --model m.fareg --report {}", "t.csv"),
        ("audit t.csv --model m.fareg --report {}", "m.fareg"),
    ],
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_inputs_are_never_replaced_under_any_name(files, verb, monkeypatch):
    monkeypatch.chdir(files)
    before = contents(files)
    for line, name in COMMANDS[verb]:
        for output in (name, f"hard-{name}.html", f"soft-{name}.html"):
            target = () if verb == "predict" else TARGET
            told = refused(*line.format(output).split(), *target)
            words = f"cannot write {output}: it is the same as {name}, which is read too"
            assert words in told or "must end in" in told
    assert contents(files) == before


@pytest.mark.parametrize(
    "line",
    [
        "fit parts --target outcome --out parts/m.fareg",
        "fit parts --target outcome --out new.fareg --report parts/r.html",
        "fit parts --target outcome --out new.fareg --test-out parts/t.parquet",
        "calibrate m.fareg parts --target outcome --out parts/new.fareg",
        "audit parts --target outcome --model m.fareg --report parts/r.html",
        "predict m.fareg parts --out parts/sets",
        "reproduce acs --acs-root parts --out parts/results",
    ],
)
def test_nothing_is_written_into_a_folder_that_is_read(files, line, monkeypatch):
    monkeypatch.chdir(files)
    before = contents(files)
    assert "it lies in parts, which is read; choose another name" in refused(*line.split())
    assert contents(files) == before


def test_two_outputs_are_two_files(files, monkeypatch):
    monkeypatch.chdir(files)
    before = contents(files)
    fit = ("fit", "t.csv", *TARGET)
    told = refused(*fit, "--out", "x.html", "--report", "x.html")
    assert "it is the same as x.html, which is written too; choose another name" in told
    refused(*fit, "--out", "x.csv", "--test-out", "./x.csv")
    refused(*fit, "--out", "m.fareg", "--report", "soft-m.fareg.html")
    assert contents(files) == before


def test_results_are_not_written_around_what_is_read(files, monkeypatch):
    monkeypatch.chdir(files)
    table = "[tables.a]\ntitle = 'a'\npublished = 'b'\npath = 't.csv'\ntarget = 'outcome'\n"
    settings = "data = '.'\nmethods = ['split']\n{}" + table + "sensitive = ['Color']\n"
    (files / "a.toml").write_text(settings.format(""))
    (files / "page.toml").write_text(settings.format("page = 't.csv'\n"))
    before = contents(files)
    told = refused("benchmark", "a.toml", "--out", ".")
    assert "a.toml, which is read, lies in it; choose another name" in told
    told = refused("benchmark", "page.toml", "--out", "results")
    assert "cannot write t.csv: it is the same as" in told
    told = refused("reproduce", "acs", "--acs-root", "parts", "--out", ".")
    assert "parts, which is read, lies in it" in told
    assert contents(files) == before


def test_a_finished_folder_removes_only_what_was_left_of_itself(files, monkeypatch):
    """Unfinished work of another output and folders of the user are not removed."""
    monkeypatch.chdir(files)
    mine = [".sets.2024.0123456789abcdef.partial", ".sets.old.partial", ".sets.notes.partial"]
    mine += [".sets.0123456789abcdef.partial"]  # it has the form of ours, but not our mark
    for name in mine:
        (files / name).mkdir()
        (files / name / "thesis.txt").write_text("years of work")
    shutil.copytree("parts", "damaged")
    (files / "damaged" / "q.parquet").write_bytes(b"PAR1 and no more")
    for out in ("sets", "sets.2024"):
        refused("predict", "m.fareg", "damaged", "--out", out, "--engine", "local:1")
    left = {path.name for path in files.glob(".sets*.partial")} - set(mine)
    assert len(left) == 2
    run("predict", "m.fareg", "parts", "--out", "sets", "--engine", "local:1")
    still = {path.name for path in files.glob(".sets*.partial")} - set(mine)
    assert len(still) == 1
    assert next(iter(still)).startswith(".sets.2024.")
    assert all((files / name / "thesis.txt").exists() for name in mine)
    assert os.listdir("sets") == ["p.parquet"]
    run("predict", "m.fareg", "parts", "--out", "sets.2024", "--engine", "local:1")
    assert {path.name for path in files.glob(".sets*.partial")} == set(mine)
