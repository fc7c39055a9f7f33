"""The command line: every failure gives one line and leaves no file behind."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import fareg
from fareg.persistence import describe
from fareg.workflow import fit_file
from shell import FRAME, SMALL, refused, run

pytestmark = pytest.mark.usefixtures("small_searches")


def fit_refused(path, tmp_path, *options):
    before, asked = (
        set(os.listdir(tmp_path)),
        ("--target", "outcome", "--out", tmp_path / "m.fareg"),
    )
    line = refused("fit", path, *asked, *options)
    assert set(os.listdir(tmp_path)) == before, "nothing may be left behind"
    return line


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("did you mean Gender?", ["--sensitive", "gender"]),
        ("the target and sensitive", ["--sensitive", "outcome"]),
        ("hgb, forest, logistic, mlp", ["--estimator", "xgb"]),
        ("did you mean 0.9?", ["--confidence", "90"]),
        ("--seed must be a whole number >= 0, got -1", ["--seed", "-1"]),
        ("--confidence must be in (0, 1)", ["--confidence", "0"]),
        ("--confidence must be in (0, 1)", ["--confidence", "nan"]),
        ("did you mean outcome?", ["--target", "outcom"]),
        ("its columns: Color, Gender, Feature 1, outcome\n", ["--target", "zzz"]),
        ("nearest columns: Color\n", ["--target", "Colxyz"]),
        ("low, unequal, got low,found; give one\n", ["--fail-on", "low,found"]),
        ("must end in .html or .htm, got .pdf", ["--report", "r.pdf"]),
        ("must end in .html or .htm, got no ending", ["--report", "r"]),
        ("there is no folder", ["--report", "no/r.html"]),
        ("it is a folder", ["--out", "."]),
        ("there is no folder", ["--out", "no/m.fareg"]),
        ("too long; choose another place", ["--out", "m" * 300]),
        ("--trust must name one SHA-256", ["--trust", "a,b", "--json"]),
        ("--protect: the sensitive columns lack gender; did", ["--protect", "gender = Female"]),
        ("Gender holds Female, Male; did you mean Male?", ["--protect", "Gender = Maale"]),
    ],
)
def test_what_is_asked_is_refused_with_a_fix(words, options, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "--trust" in options:
        assert words in refused("predict", "m.fareg", small, "--out", "s.csv", *options)
    else:
        assert words in fit_refused(small, tmp_path, *options)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,outcome\n", "has no rows"),
        (b"a,a,outcome\n1,2,x\n", "has column a twice"),
        (b"a;outcome\n1;x\n2;y\n", "at least 20"),
        (b"a,outcome\n1,x\n1,2,3,4,x\n", "5 values in line 3, but 2 columns; repair that line"),
        (b'a,outcome\n1,x\n2,"y\n1,x\n', "quotation mark in line 3 that is not closed; close or"),
        (b"a,outcome\n5,1,x\n6,2,y\n", "names 2 columns in its first line"),
        (b"a,outcome\n1,x\nj\xe9,y\n", "byte 0xe9"),
        (b"a,outcome\n" + b"1,x\n" * 50, "one class only (x)"),
        (b"a,outcome\n" + b"1,x\n2,\n" * 25, "one class only (x)"),
        (b"a,outcome\n1,x\n2,y\n", "at least 20"),
        (b"outcome\n" + b"x\ny\n" * 25, "no column left that the model could read"),
        (b"a,outcome\n" + b"1,0.5\n2,1\n" * 25, "fractions such as 0.5"),
        (b"a,outcome\n" + b"".join(b"1,%d\n" % i for i in range(50)), "50 distinct values"),
        (b"a,outcome\n" + b"1,2020-01-02\n2,2020-01-03\n" * 25, "distinct values"),
        (b"a,outcome\n\x00\x01\x02,\x00\n", "Error"),
    ],
)
def test_strange_tables_are_refused(content, words, tmp_path):
    (tmp_path / "t.csv").write_bytes(content)
    assert words in fit_refused(tmp_path / "t.csv", tmp_path)
    (tmp_path / "t.csv").rename(tmp_path / "t.xlsx")
    assert "must end in .csv, .csv.gz, .txt, .parquet or .pq" in fit_refused(
        tmp_path / "t.xlsx", tmp_path
    )
    assert "there is no such file" in fit_refused(tmp_path / "t.csv", tmp_path)


def test_the_version_is_told():
    assert run("--version").stdout.strip() == f"fareg {fareg.__version__}"


def test_broken_parquet_is_refused(place, tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing")
    told = fit_refused(tmp_path / "t.parquet", tmp_path)
    assert f"{tmp_path / 't.parquet'} cannot be read as Parquet" in told
    assert "; write it again, or name it after its format" in told
    (tmp_path / "t.parquet").write_bytes((place / "new.parquet").read_bytes()[:3000])
    assert "cannot be read as Parquet" in fit_refused(tmp_path / "t.parquet", tmp_path)
    pd.DataFrame({"a": [[1], [2]] * 20, "outcome": ["x", "y"] * 20}).to_parquet(
        tmp_path / "t.parquet"
    )
    assert "in column a;" in fit_refused(tmp_path / "t.parquet", tmp_path)


def test_numbers_as_text_are_learned_as_text_and_told(tmp_path):
    table = pd.DataFrame({"price": ["1,500", "2,500"] * 60, "y": ["a", "b"] * 60, "set": "a|b"})
    table.to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "y", "--estimator", "logistic", "--out", tmp_path / "m.fareg", "--json")
    told = json.loads(run("fit", tmp_path / "t.csv", *options, "--drop", "set").stdout)
    assert told["accuracy"] == 1
    sentence = "price: numbers written as text, such as 1,500, are read as categories"
    assert sum(sentence in note for note in told["warnings"]) == 1
    told = json.loads(
        run("audit", tmp_path / "t.csv", *options[:2], "--sets", "set", "--json").stdout
    )
    assert sum(sentence in note for note in told["notes"]) == 1


def test_a_small_table_is_answered_with_a_warning(small, tmp_path):
    options = ("--target", "outcome", "--estimator", "logistic", "--out", tmp_path / "m.fareg")
    done = run("fit", small, *options)
    assert all(line.startswith("Warning: ") for line in done.stderr.splitlines())
    assert "too few to look for a group" in done.stderr
    told = json.loads(run("fit", small, *options, "--json").stdout)
    assert any("too few" in note for note in told["warnings"])


def test_predict_refuses_tables_that_do_not_fit(place, tmp_path):
    def predict_refused(frame, **kwargs):
        frame.to_csv(tmp_path / "bad.csv", index=False)
        return refused(
            "predict", place / "m.fareg", tmp_path / "bad.csv", "--out", tmp_path / "s.csv"
        )

    rows = FRAME[2400:2420]
    renamed = rows.rename(columns={"Color": "Colour"})
    assert "has no column Color; did you mean Colour?" in predict_refused(renamed)
    assert "has no rows" in predict_refused(rows[:0])
    text = predict_refused(rows.assign(**{"Feature 1": "tall"}))
    assert "Feature 1" in text
    assert "held numbers" in text
    assert "'tall'" in text
    rows.assign(Color=1.5).to_parquet(tmp_path / "bad.parquet")
    out = tmp_path / "s.parquet"
    line = refused("predict", place / "m.fareg", tmp_path / "bad.parquet", "--out", out)
    assert "held texts when the model was fitted, here it holds numbers" in line
    assert not (tmp_path / "s.csv").exists()


def test_a_late_error_leaves_the_old_output(place, tmp_path):
    late = FRAME[2400:2500].astype({"Feature 1": object}).reset_index(drop=True)
    late.loc[90, "Feature 1"] = "tall"
    late.to_csv(tmp_path / "late.csv", index=False)
    out = tmp_path / "s.csv"
    out.write_text("old")
    late = ("predict", place / "m.fareg", tmp_path / "late.csv", "--out", out)
    assert "'tall'" in refused(*late, batch_rows=10)
    assert out.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["late.csv", "s.csv"]


def test_outputs_follow_links_and_replace_nothing_but_files(small, tmp_path):
    """A pipe, a link to one, a link to itself and a folder that is a file are refused at once."""
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "link.html").symlink_to("pipe.html")
    (tmp_path / "loop.html").symlink_to("loop.html")
    (tmp_path / "lost.html").symlink_to(tmp_path / "no" / "r.html")
    (tmp_path / "old.fareg").write_text("old")
    (tmp_path / "m.fareg").symlink_to("old.fareg")
    fit = ("fit", small, "--target", "outcome", "--estimator", "logistic", "--out")
    before = sorted(os.listdir(tmp_path))
    for name in ("pipe", "link", "loop"):
        told = refused(*fit, tmp_path / "m.fareg", "--report", tmp_path / f"{name}.html")
        assert "is not a regular file; choose another name" in told
        assert "is not a regular file" in refused(*fit, tmp_path / f"{name}.html")
    assert "there is no folder" in refused(*fit, tmp_path / "lost.html")
    assert f"there is no folder {small}" in refused(*fit, small / "m.fareg")
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "pipe.html").is_fifo()
    assert (tmp_path / "old.fareg").read_text() == "old"

    run(*fit, tmp_path / "m.fareg")
    assert os.readlink(tmp_path / "m.fareg") == "old.fareg"
    assert describe(tmp_path / "old.fareg")["metadata"]["target"] == "outcome"
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name", ["Gender, as told", " Gender"])
def test_names_with_commas_or_outer_blanks_stand_in_quotation_marks(name, tmp_path):
    table, model = tmp_path / "t.csv", tmp_path / "m.fareg"
    SMALL.rename(columns={"Gender": name}).to_csv(table, index=False)
    asked = ("fit", table, "--target", "outcome", "--estimator", "logistic", "--out", model)
    assert f'"{name}"' in refused(*asked, "--sensitive", name)
    run(*asked, "--sensitive", f'Color , "{name}"')
    assert describe(model)["parameters"]["sensitive_features"] == ["Color", name]


def test_clusters_of_no_use_are_refused_with_what_was_given(small, tmp_path):
    fit = ("fit", small, "--target", "outcome", "--out", tmp_path / "m.fareg")
    for n, got in ((1, "1 different id in 120"), (2, "2 different ids in 120")):
        SMALL.assign(grp=np.arange(120) % n).to_csv(small, index=False)
        told = refused(*fit, "--clusters", "grp")
        assert f"the clusters grp have {got} rows, at least 3 are needed" in told
        assert "choose a column with more ids, or name no clusters" in told
    SMALL.assign(grp=np.arange(120) % 3).to_csv(small, index=False)
    run(*fit, "--clusters", "grp", "--estimator", "logistic")


def test_help_names_all_endings_that_are_read(place, tmp_path):
    for command in ("fit", "predict", "calibrate", "audit"):
        told = run(command, "--help").stdout
        assert all(ending in told for ending in (".csv.gz", ".txt", ".parquet", ".pq")), command
    for name in ("s.csv", "s.csv.gz", "s.txt", "s.parquet", "s.pq"):
        run("predict", place / "m.fareg", place / "new.csv", "--out", tmp_path / name)
        told = refused("predict", place / "m.fareg", tmp_path / name, "--out", tmp_path / "o.csv")
        assert "has no column" in told  # it was read


def test_audit_knows_clusters_and_calibration_rows(tmp_path):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"who": range(60), "age": rng.normal(size=60), "y": "a", "set": "a|b"})
    people.loc[:5, "set"] = "b"
    pd.concat([people] * 5).to_csv(tmp_path / "t.csv", index=False)
    options = ("audit", tmp_path / "t.csv", "--target", "y", "--sets", "set", "--json")
    told = json.loads(run(*options, "--clusters", "who", "--calibration-rows", 200).stdout)
    assert told["data"]["sensitive_features"] == ["age"]
    assert any("300 rows in 60 clusters" in note for note in told["notes"])
    assert any("calibrated on 200 clusters" in note for note in told["notes"])
    assert "has no column nobody" in refused(*options[:-1], "--clusters", "nobody")
    assert "column of their own" in refused(*options[:-1], "--clusters", "y")
    assert "--confidence must be in (0, 1)" in refused(*options[:-1], "--confidence", "90")
    assert "must end in .html or .htm, got .pdf" in refused(*options[:-1], "--report", "r.pdf")
    assert "at least 9" in refused(*options[:-1], "--calibration-rows", "3")


def test_audit_refuses_sets_that_are_none(small):
    audit = ("audit", small, "--target", "outcome")
    assert "either" in refused(*audit)
    line = refused(*audit, "--sets", "colors")
    assert line.endswith("small.csv has no column colors; did you mean Color?\n")
    line = refused(*audit, "--sets", "outcomes")  # the target is no set
    told = line.partition("; its columns: ")[2].strip().split(", ")
    assert told == ["Color", "Gender", "Feature 1"]
    assert "must hold True and False" in refused(*audit, "--sets", "Color,Gender")


@pytest.mark.parametrize("option", ["--sets", "--model"])
def test_the_target_defines_no_group(option, place):
    table = ("audit", place / "new.csv", "--target", "outcome", "--sensitive", "Color,outcome")
    line = refused(*table, option, place / "m.fareg" if option == "--model" else "Gender")
    told = "--sensitive names the target outcome, which cannot define a group; leave it out"
    assert line == f"Error: {told}\n"


def test_a_column_of_a_rule_is_asked_for_in_the_table(place, tmp_path):
    more = ("--target", "outcome", "--state", tmp_path / "s.json", "--group", "Colour = Red")
    line = refused("monitor", place / "m.fareg", place / "new.csv", *more)
    assert "Error: the table has no column Colour" in line


def test_usage_errors_exit_with_2(small):
    run("fit", small, code=2)
    run("nonsense", code=2)
    run("fit", "--seed", "many", code=2)
    told = run("info", small, "--json", "answer.json", code=2).stderr
    told = " ".join(told.replace("│", " ").split())
    assert "--json prints to the screen: write --json > answer.json" in told


@pytest.mark.parametrize("command", ["--help", "info", "predict"])
def test_light_commands_load_neither_torch_nor_matplotlib(command, place, tmp_path):
    arguments = {
        "--help": ["--help"],
        "info": ["info", str(place / "m.fareg")],
        "predict": ["predict", str(place / "m.fareg"), str(place / "new.csv")],
    }[command]
    if command == "predict":
        arguments += ["--out", str(tmp_path / "s.csv")]
    code = (
        "import sys\nfrom fareg.cli import app\n"
        f"try:\n    app({arguments!r})\n"
        "finally:\n    print(sorted({'torch', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_audit_says_where_its_numbers_come_from(place):
    options = ("--target", "outcome", "--model", place / "m.fareg", "--sensitive", "Color")
    told = json.loads(run("audit", place / "new.csv", *options, "--json").stdout)
    about = told["about"]
    assert (about["file"], about["model"], about["seed"]) == ("new.csv", "m.fareg", 1)
    assert (about["target"], about["base_model"]) == ("outcome", "logistic")
    assert 0 < about["accuracy"] < 1
    assert told["fareg_version"]
    labels = told["by_label"]["rows"]
    assert sum(row["n"] for row in labels) == 600
    assert {row["label"] for row in labels} == set(FRAME["outcome"][2400:])


def test_empty_sets_of_easy_rows_are_explained_and_can_be_left_out(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 1500)
    table = pd.DataFrame(
        rng.normal(size=(1500, 3)) + 3.0 * np.eye(3)[label], columns=["a", "b", "c"]
    )
    table.assign(y=label).to_csv(tmp_path / "easy.csv", index=False)
    path, out = tmp_path / "easy.csv", tmp_path / "none.fareg"
    fit = ["fit", path, "--target", "y", "--estimator", "logistic", "--json"]
    some = json.loads(run(*fit, "--out", tmp_path / "some.fareg").stdout)
    fitted = fit_file(path, target="y", out=out, estimator="logistic", allow_empty=False)
    none = fitted.to_dict()
    assert some["empty"]["share"] > 0.01
    assert some["empty"]["right"] > some["accuracy"] > 0.9
    assert (
        "use allow_empty=False (Python only); coverage can only rise"
        in some["verdict"]["next_steps"][-1]
    )
    told = fareg.load(tmp_path / "some.fareg").report(table, label, measures=False)
    assert "allow_empty=False" in told.verdict["next_steps"][-1]
    assert none["empty"] == {"share": 0.0, "right": None, "accuracy": some["accuracy"]}
    assert none["after"]["coverage"] >= some["after"]["coverage"]
    assert not any("allow_empty" in step for step in none["verdict"]["next_steps"])
    assert not fareg.load(out).allow_empty
