"""The content of tables and files cannot steer a terminal or run in a spreadsheet."""

import json
import unicodedata

import numpy as np
import pandas as pd
import pytest

from fareg.workflow import audit_file, fit_file
from shell import refused, run

pytestmark = pytest.mark.usefixtures("small_searches")
EVIL = ["\x1b[2Jgone", "[red]up[/red]", "\u202eback\x07", "=1+1", "@x\x9b2J"]
COLUMN = "=who\x1b]0;owned\x07[bold]"


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """Return a folder with a table of such names and labels, and a model of it."""
    folder = tmp_path_factory.mktemp("evil")
    rng = np.random.default_rng(0)
    x = rng.normal(size=900)
    codes = np.digitize(x + rng.normal(size=900), [-1, 0, 0.5, 1.2])
    who = rng.choice(EVIL, 900)
    codes = np.where(who == EVIL[0], rng.integers(0, 5, 900), codes)  # a group to be found
    table = pd.DataFrame({"x": x, COLUMN: who, "y": np.array(EVIL)[codes]})
    table.to_csv(folder / "t\x1b[31m.csv", index=False)
    options = ("--estimator", "logistic", "--test-out", folder / "new.csv")
    source, model = folder / "t\x1b[31m.csv", folder / "m\x9b.fareg"
    fitted = run("fit", source, "--target", "y", "--out", model, *options)
    (folder / "fit.txt").write_text(fitted.stdout + fitted.stderr, encoding="utf-8", newline="")
    run("predict", model, source, "--out", folder / "o\x1b.csv", "--keep", f"y,{COLUMN}")
    return folder


def check_quiet(*streams):
    for stream in streams:
        steering = {c for c in stream if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}
        assert steering <= {"\n"}, stream


def test_no_command_prints_what_steers_a_terminal(evil):
    table, model = evil / "t\x1b[31m.csv", evil / "m\x9b.fareg"
    target = ("--target", "y")
    fitted = (evil / "fit.txt").read_text(encoding="utf-8")
    assert r"\x1b[2Jgone" in fitted
    check_quiet(fitted)
    for done in (
        run("info", model),
        run("predict", model, table, "--out", evil / "p\x1b.csv", "--keep", "y"),
        run("audit", evil / "o\x1b.csv", *target, "--sets", "set"),
        run("audit", table, *target, "--model", model),
        run("calibrate", model, table, *target, "--out", evil / "c\x1b.fareg"),
        run("fit", table, *target, "--out", model, "--sensitive", "\x1b", code=2),
        run("audit", evil / "o\x1b.csv", *target, "--sets", "size", code=2),
        run("predict", evil / "no\x1b.fareg", table, "--out", evil / "x.csv", code=2),
    ):
        check_quiet(done.stdout, done.stderr)


def test_json_says_the_names_as_they_are_and_steers_nothing(evil):
    done = run("audit", evil / "o\x1b.csv", "--target", "y", "--sets", "set", "--json")
    check_quiet(done.stdout, done.stderr)
    rows = json.loads(done.stdout)["by_label"]["rows"]
    assert {row["label"] for row in rows} == set(EVIL)


def test_markup_in_a_label_stays_text(evil, tmp_path):
    table = pd.read_csv(evil / "t\x1b[31m.csv")
    table.loc[table["y"] == EVIL[1], "x"] = 9.0  # a worst label to be shown
    table[[*table.columns[:1], COLUMN, "y"]].replace({"y": {EVIL[0]: EVIL[1]}}).to_csv(
        tmp_path / "t.csv", index=False
    )
    options = ("--out", tmp_path / "m.fareg", "--estimator", "logistic")
    shown = run("fit", tmp_path / "t.csv", "--target", "y", *options).stdout
    assert "[bold]" in shown or "[red]" in shown


def test_cells_like_formulas_are_kept_or_made_safe(evil, tmp_path):
    table, model = evil / "t\x1b[31m.csv", evil / "m\x9b.fareg"
    keep, plain, safe = ("--keep", f"y,x,{COLUMN}"), tmp_path / "plain.csv", tmp_path / "safe.csv"
    run("predict", model, table, "--out", plain, *keep)
    run("predict", model, table, "--out", safe, *keep, "--safe-csv")
    before, after = pd.read_csv(plain), pd.read_csv(safe)
    assert before["y"].tolist() == pd.read_csv(table)["y"].tolist()
    cells = after.select_dtypes(exclude="number").fillna("").to_numpy().ravel()
    assert not [c for c in [*cells, *after.columns] if c.startswith(("=", "+", "-", "@", "\t"))]
    assert f"'{COLUMN}" in after
    assert after["y"].str.removeprefix("'").tolist() == before["y"].tolist()
    same = ["x", "set", "size", "probability"]  # numbers and sets stay as they are
    pd.testing.assert_frame_equal(before[same], after[same])


def test_test_rows_can_be_made_safe(evil, tmp_path):
    test = tmp_path / "test.csv"
    options = {"target": "y", "estimator": "logistic", "out": tmp_path / "m.fareg"}
    fit_file(evil / "t\x1b[31m.csv", **options, test_out=test, safe_csv=True)
    rows = pd.read_csv(test)
    assert "'=1+1" in set(rows["y"])
    assert rows["x"].dtype == np.float64
    assert (rows["x"] < 0).any()


def test_safe_cells_are_for_csv_files(evil, tmp_path):
    table, model = evil / "t\x1b[31m.csv", evil / "m\x9b.fareg"
    out = ("--out", tmp_path / "o.parquet", "--safe-csv")
    assert "a CSV file to write, got" in refused("predict", model, table, *out)
    (tmp_path / "parts").mkdir()
    assert "a CSV file to write" in refused("predict", model, tmp_path / "parts", *out)


def test_a_summary_in_python_steers_nothing_either(evil):
    found = audit_file(evil / "o\x1b.csv", target="y", sets=["set"])
    assert "\x1b" not in found.summary()
