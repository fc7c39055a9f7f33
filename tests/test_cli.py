"""The command line: whole journeys, and one line for whatever goes wrong."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fareg
from fareg._labels import label_texts
from fareg.cli import app
from fareg.cli._fit import _print_trial
from fareg.datasets import make_synthetic
from fareg.persistence import describe
from fareg.workflow import audit_file
from fareg.workflow._predict import ANSWERS

pytestmark = pytest.mark.usefixtures("small_searches")
DATA = make_synthetic(3000, random_state=0)
FRAME = DATA.X.assign(outcome=np.array(["low", "mid", "high", "a|b", "e", "f"])[DATA.y])
SMALL = FRAME[["Color", "Gender", "Feature 1", "outcome"]][:120]


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exit_code != code:
        raise AssertionError(f"exit {done.exit_code}: {done.stderr}") from done.exception
    return done


def refused(*arguments):
    """Run a command that must fail with one line on stderr and leave no file behind."""
    done = run(*arguments, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a table in both formats and a model."""
    folder = tmp_path_factory.mktemp("cli")
    FRAME[:2400].to_csv(folder / "train.csv", index=False)
    FRAME[2400:].to_csv(folder / "new.csv", index=False)
    FRAME[2400:].to_parquet(folder / "new.parquet")
    arguments = ("--target", "outcome", "--sensitive", "Color, Gender", "--estimator", "logistic")
    done = run("fit", folder / "train.csv", *arguments, "--out", folder / "m.fareg")
    (folder / "fit.txt").write_text(done.stdout, encoding="utf-8")
    return folder


@pytest.fixture
def small(tmp_path):
    SMALL.to_csv(tmp_path / "small.csv", index=False)
    return tmp_path / "small.csv"


def test_fit_tells_the_story(place):
    told = (place / "fit.txt").read_text(encoding="utf-8")
    assert "960 rows trained, 960 calibrated, 480 tested" in told
    assert "(Color=Blue and Gender=Male) or (Color=Red and Gender=Female)" in " ".join(told.split())
    assert "split conformal" in told
    assert describe(place / "m.fareg")["metadata"]["target"] == "outcome"


def test_long_names_are_folded_and_not_cut(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    options = ("--target", "outcome", "--estimator", "logistic", "--json")
    told = json.loads(run("fit", small, *options, "--out", tmp_path / "m.fareg").stdout)
    name = "admission_by_a_very_long_disposition_code=discharged_to_another_hospital"
    figures = {"n": 9, "before": 0.8, "after": 0.9, "after_low": 0.7, "after_high": 1.0}
    _print_trial({**told, "groups": [{"group": name, **figures}]})
    first = (
        line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if "│" in line
    )
    assert name in "".join(first)


def test_fit_in_json_with_a_report(place, tmp_path):
    out, report = tmp_path / "m.fareg", tmp_path / "r.html"
    options = ("--target", "outcome", "--estimator", "logistic", "--json", "--report", report)
    done = run("fit", place / "new.parquet", *options, "--out", out)
    told = json.loads(done.stdout)
    assert done.stderr == ""
    assert told["rows"] == {"train": 240, "calibrate": 240, "test": 120}
    assert 0 <= told["accuracy"] <= 1
    assert 0 <= told["before"]["coverage"] <= 1
    assert told["model"] == str(out)
    page = report.read_text(encoding="utf-8")
    assert "Split conformal" in page
    assert sorted(os.listdir(tmp_path)) == ["m.fareg", "r.html"]


def test_fit_with_one_seed_gives_one_answer(small, tmp_path):
    def told(seed):
        options = ("--target", "outcome", "--estimator", "logistic", "--seed", seed, "--json")
        return json.loads(run("fit", small, *options, "--out", tmp_path / "m.fareg").stdout)

    assert told(1) == told(1)
    assert told(1) != told(2)


@pytest.mark.parametrize("format_", ["csv", "parquet"])
@pytest.mark.parametrize("batch_size", [1, 97, 50_000])
def test_predict_streams_to_the_same_sets(place, tmp_path, format_, batch_size):
    if batch_size == 1:  # slow: a few rows will do
        FRAME[2400:2410].to_csv(tmp_path / "new.csv", index=False)
        FRAME[2400:2410].to_parquet(tmp_path / "new.parquet")
    rows = tmp_path if batch_size == 1 else place
    out = tmp_path / f"sets.{format_}"
    model = place / "m.fareg"
    run("predict", model, rows / f"new.{format_}", "--out", out, "--batch-size", batch_size)
    read = pd.read_parquet if format_ == "parquet" else pd.read_csv
    clf = fareg.load(model)
    X = read(rows / f"new.{format_}").drop(columns="outcome")
    expected = clf.predict_table(X)
    written = read(out)
    assert list(written) == list(ANSWERS)
    assert written["set"].fillna("").tolist() == expected["set"].tolist()
    np.testing.assert_array_equal(written["level"], expected["level"])
    np.testing.assert_array_equal(written["size"], clf.predict_set(X).sum(axis=1))
    named = {group.rule.text for group in clf.named_groups_}
    assert set(written["group"].fillna("")) == {"", *named}


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_predict_keeps_columns_beside_the_sets(place, tmp_path, format_):
    rows = FRAME[2400:2440].reset_index(drop=True)
    expected = fareg.load(place / "m.fareg").predict_table(rows.drop(columns="outcome"))
    gaps = [None] * 20 + ["NA", None] * 10
    rows = rows.assign(
        id=[f"{i:04}" for i in range(40)],
        number=2**60 + np.arange(40),
        flag=np.arange(40) % 3 == 0,
        day=pd.Series(gaps).map({"NA": pd.Timestamp("2020-02-29")}),
        kind=pd.Categorical(gaps),
        note=gaps,
    )
    write = rows.to_parquet if format_ == "parquet" else rows.to_csv
    write(tmp_path / f"new.{format_}", index=False)
    keep = ["id", "number", "flag", "day", "kind", "note", "outcome", "Feature 1", "Color"]
    data, model = tmp_path / f"new.{format_}", place / "m.fareg"
    for out in ("sets.parquet", "sets.csv"):
        options = ("--out", tmp_path / out, "--batch-size", 7, "--keep", ",".join(keep))
        run("predict", model, data, *options)
    written = pd.read_parquet(tmp_path / "sets.parquet")
    assert list(written) == [*keep, *ANSWERS]
    assert written["set"].tolist() == expected["set"].tolist()
    same = {"keep_default_na": False, "dtype": str}
    if format_ == "csv":  # the texts of the file
        given = pd.read_csv(data, **same)
        pd.testing.assert_frame_equal(written[keep], given[keep])
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "sets.csv", **same)[keep], given[keep])
    else:
        pd.testing.assert_frame_equal(
            written[keep], rows[keep], check_dtype=False, check_categorical=False
        )
    out = tmp_path / "none.csv"
    for column, words in {
        "ids": "did you mean id?",
        "id,id": "named once",
        "size": "answers have a column of that name",
    }.items():
        assert words in refused("predict", model, data, "--out", out, "--keep", column)
    assert not out.exists()


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_model_saved_from_python_reads_files_as_it_was_fitted(tmp_path, format_):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "code": rng.choice(["007", "08", "9"], 600),  # numbers to the eye of a CSV reader
            "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 600), "D"),
            "flag": rng.random(600) < 0.5,
        }
    )
    y = np.where(X["code"] == "007", "yes", np.where(X["day"] < "2021-01-01", "no", "maybe"))
    clf = fareg.SplitConformalClassifier(random_state=0).fit(X[:500], y[:500])
    fareg.save(clf, tmp_path / "m.fareg")
    new = X[500:].reset_index(drop=True)
    write = new.to_parquet if format_ == "parquet" else new.to_csv
    write(tmp_path / f"new.{format_}", index=False)
    options = ("--out", tmp_path / "sets.parquet", "--batch-size", 7)
    run("predict", tmp_path / "m.fareg", tmp_path / f"new.{format_}", *options)
    expected = clf.predict_table(new)
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "sets.parquet"), expected, check_dtype=False
    )


@pytest.mark.parametrize(
    "notes",
    [
        {"verdict": {"mine": 1}},
        {"verdict": {"label": 1, "sentence": 2}},
        {"columns": {"Color": "what people see"}},
        {"columns": dict.fromkeys(DATA.X, "text"), "calibrated": "in May", "estimator": "a forest"},
    ],
)
def test_notes_of_a_user_are_shown_and_taken_for_nothing_else(notes, tmp_path):
    clf = fareg.SplitConformalClassifier(random_state=0).fit(DATA.X[:400], DATA.y[:400])
    fareg.save(clf, tmp_path / "m.fareg", metadata=notes)
    FRAME[400:500].to_csv(tmp_path / "new.csv", index=False)
    shown = " ".join(run("info", tmp_path / "m.fareg").stdout.split())
    assert all(f"note: {name} " in shown for name in notes)
    run("predict", tmp_path / "m.fareg", tmp_path / "new.csv", "--out", tmp_path / "s.parquet")
    expected = clf.predict_table(DATA.X[400:500]).reset_index(drop=True)
    sets = pd.read_parquet(tmp_path / "s.parquet")
    pd.testing.assert_frame_equal(sets, expected, check_dtype=False)


def test_a_changed_verdict_of_fit_is_a_note(place, tmp_path):
    told = describe(place / "m.fareg")["metadata"] | {"verdict": "fine"}
    fareg.save(fareg.load(place / "m.fareg"), tmp_path / "m.fareg", metadata=told)
    assert "verdict fine" in " ".join(run("info", tmp_path / "m.fareg").stdout.split())


def test_predict_finds_columns_by_name(place, tmp_path):
    FRAME[2400:][[*reversed(FRAME.columns)]].assign(extra="x").to_csv(
        tmp_path / "turned.csv", index=False
    )
    first = json.loads(
        run(
            "predict", place / "m.fareg", place / "new.csv", "--out", tmp_path / "a.csv", "--json"
        ).stdout
    )
    run("predict", place / "m.fareg", tmp_path / "turned.csv", "--out", tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert first["rows"] == 600
    assert sum(first["sizes"].values()) == 600


def test_a_text_of_digits_stays_text(tmp_path):
    table = pd.DataFrame({"code": ["007", "7", "x", "1.0"] * 30, "y": ["a", "b", "c", "d"] * 30})
    table.to_csv(tmp_path / "t.csv", index=False)
    model, out = tmp_path / "m.fareg", tmp_path / "sets.csv"
    run("fit", tmp_path / "t.csv", "--target", "y", "--estimator", "logistic", "--out", model)
    table[:2].to_csv(tmp_path / "digits.csv", index=False)
    run("predict", model, tmp_path / "digits.csv", "--out", out)
    assert pd.read_csv(out)["top"].tolist() == ["a", "b"]


def test_codes_keep_their_leading_zeros(tmp_path):
    rng = np.random.default_rng(0)
    codes = np.array(["04109", "04317", "60311"])[rng.integers(0, 3, 900)]
    y = np.where(rng.random(900) < np.where(codes == "04109", 0.5, 0.05), "b", "a")
    table = pd.DataFrame({"PLZ": codes, "part": rng.choice(["", "02", "10"], 900), "y": y})
    table.to_csv(tmp_path / "t.csv", index=False)
    model, asked = tmp_path / "m.fareg", ("--target", "y", "--estimator", "logistic", "--json")
    files = ("--out", model, "--test-out", tmp_path / "test.parquet")
    run("fit", tmp_path / "t.csv", *asked, *files)
    assert describe(model)["metadata"]["columns"] == {"PLZ": "text", "part": "text"}
    assert set(pd.read_parquet(tmp_path / "test.parquet")["PLZ"]) == set(codes)
    # a table without leading zeros holds the same codes
    rest = table[table["PLZ"] == "60311"].assign(part="10")
    rest.to_csv(tmp_path / "rest.csv", index=False)
    run("predict", model, tmp_path / "rest.csv", "--out", tmp_path / "sets.csv")
    table.assign(set=y).to_csv(tmp_path / "sets.csv", index=False)
    result = audit_file(tmp_path / "sets.csv", target="y", sets=["set"])
    assert {"PLZ=04109", "PLZ=60311", "part=02", "part missing"} <= set(result.levels["group"])
    result = audit_file(tmp_path / "rest.csv", target="y", model=model)
    assert set(result.levels["group"]) == {"PLZ=60311", "part=10"}


def test_labels_keep_their_leading_zeros(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    y = np.array(["08", "09", "10"])[np.digitize(x + rng.normal(size=600), [-0.7, 0.7])]
    source, model, test = (tmp_path / name for name in ("t.csv", "m.fareg", "test.csv"))
    pd.DataFrame({"x": x, "sex": rng.choice(["f", "m"], 600), "y": y}).to_csv(source, index=False)
    asked, labels = ("--estimator", "logistic", "--test-out", test, "--json"), ("--target", "y")
    fitted = json.loads(run("fit", source, *labels, *asked, "--out", model).stdout)
    run("predict", model, test, "--out", tmp_path / "sets.csv", "--keep", "y,sex")
    sets = pd.read_csv(tmp_path / "sets.csv", dtype=str, keep_default_na=False)
    covered = [label in labels.split("|") for label, labels in zip(sets.y, sets.set, strict=True)]
    for audited in (
        audit_file(tmp_path / "sets.csv", target="y", sets=["set"], sensitive=["sex"]),
        audit_file(test, target="y", model=model),
    ):
        coverage = audited.to_dict()["overall"]["coverage"]
        assert coverage == fitted["after"]["coverage"] == np.mean(covered)
    run("calibrate", model, test, *labels, "--out", tmp_path / "new.fareg")
    assert "all 120 rows" in refused("audit", test, *labels, "--model", tmp_path / "new.fareg")


def test_labels_that_a_model_knows_as_numbers_may_have_leading_zeros(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=600), "y": rng.integers(8, 11, 600)})
    table.to_parquet(tmp_path / "t.parquet")
    table["y"] = table["y"].map("{:02d}".format)
    table.to_csv(tmp_path / "t.csv", index=False)
    model, asked = tmp_path / "m.fareg", ("--target", "y", "--json")
    files = (tmp_path / "t.parquet", "--out", model)
    told = json.loads(run("fit", *files, *asked, "--estimator", "logistic").stdout)
    audited = json.loads(run("audit", tmp_path / "t.csv", *asked, "--model", model).stdout)
    assert audited["overall"]["coverage"] == told["after"]["coverage"]


def test_dates_and_many_categories_and_gaps_are_learned_from(tmp_path):
    rng = np.random.default_rng(0)
    n = 12_000
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), "D")
    table = pd.DataFrame({"day": day.strftime("%Y-%m-%d"), "id": np.arange(n).astype(str)})
    table["id"] = "customer " + table["id"]  # ten thousand categories
    table["empty"] = np.nan
    table["gaps"] = np.where(rng.random(n) < 0.5, None, "here")
    table["y"] = (day > pd.Timestamp("2021-06-01")).astype(int)
    table.to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "y", "--out", tmp_path / "m.fareg", "--json")
    assert json.loads(run("fit", tmp_path / "t.csv", *options).stdout)["accuracy"] > 0.95
    assert describe(tmp_path / "m.fareg")["metadata"]["columns"]["day"] == "date"
    table[:9].to_csv(tmp_path / "new.csv", index=False)
    run("predict", tmp_path / "m.fareg", tmp_path / "new.csv", "--out", tmp_path / "s.csv")
    assert pd.read_csv(tmp_path / "s.csv")["top"].tolist() == table["y"][:9].tolist()


def test_info_in_words_and_json(place):
    shown = " ".join(run("info", place / "m.fareg").stdout.split())
    assert "FaReGClassifier" in shown
    assert "target score" in shown  # the parameter
    assert "fit: target outcome" in shown  # the column
    assert "fit: rows train 960, calibrate 960, test 480" in shown
    told = json.loads(run("info", place / "m.fareg", "--json").stdout)
    assert told["metadata"]["rows"]["train"] == 960
    assert [group["named"] for group in told["groups"]][:2] == [True, False]


def test_info_tells_which_calibration_rows_its_groups_were_counted_on(place, tmp_path):
    FRAME[2400:].to_csv(tmp_path / "new.csv", index=False)
    asked = ("--target", "outcome", "--out", tmp_path / "new.fareg")
    run("calibrate", place / "m.fareg", tmp_path / "new.csv", *asked)
    for model, words in ((place / "m.fareg", "the"), (tmp_path / "new.fareg", "the earlier")):
        shown = " ".join(run("info", model).stdout.split())
        assert f"of {words} calibration rows; split conformal sets cover" in shown


def test_audit_reads_the_sets_of_any_tool(place, tmp_path):
    clf = fareg.load(place / "m.fareg")
    rows = FRAME[2400:2600].reset_index(drop=True)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    sets = clf.predict_set(rows.drop(columns="outcome"))
    classes = [str(label) for label in clf.classes_]
    lists = [[label for label, is_in in zip(classes, row, strict=True) if is_in] for row in sets]
    few = rows[["Color", "Gender", "outcome"]]
    texts = clf.predict_table(rows.drop(columns="outcome"))["set"]
    few.assign(sets=texts).to_csv(tmp_path / "text.csv", index=False)
    few.assign(sets=lists).to_parquet(tmp_path / "lists.parquet")
    flags = pd.DataFrame(sets, columns=classes)
    pd.concat([few, flags], axis=1).to_csv(tmp_path / "flags.csv", index=False)
    calibrated = ("--calibration-rows", clf.n_calibration_)  # what a model tells by itself
    asked = [
        (tmp_path / "text.csv", "--sets", "sets"),
        (tmp_path / "lists.parquet", "--sets", "sets"),
        (tmp_path / "flags.csv", "--sets", ",".join(classes)),
        (tmp_path / "rows.csv", "--model", place / "m.fareg", "--sensitive", "Color,Gender"),
    ]
    told = [
        json.loads(run("audit", *options, *calibrated, "--target", "outcome", "--json").stdout)
        for options in asked
    ]
    for one in told:
        assert one["overall"] == told[0]["overall"]
        assert one["overall"]["n"] == 200
    assert told[0]["overall"]["mean_size"] == pytest.approx(sets.sum(axis=1).mean())


def test_audit_finds_the_group_and_writes_a_report(tmp_path):
    table = FRAME[:1000].copy()
    # nothing for those in the group, the right label for all others
    table["sets"] = table["outcome"].str.replace("|", "\\|").where(~DATA.group[:1000])
    table.to_csv(tmp_path / "t.csv", index=False)
    report = tmp_path / "audit.html"
    options = ("--target", "outcome", "--sets", "sets", "--sensitive", "Color,Gender")
    done = run("audit", tmp_path / "t.csv", *options, "--report", report)
    assert "Color=Blue and Gender=Male" in done.stdout
    assert "<html" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "form", ["{0}|{1}", "{0} ; {1}", "{0},{1}", "['{0}', '{1}']", '["{0}", "{1}"]', "{{{0}, {1}}}"]
)
def test_audit_reads_sets_as_tools_write_them(tmp_path, form):
    table = SMALL[["Color", "Gender"]].assign(y=["low", "mid"] * 60, sets=form.format("low", "mid"))
    table.to_csv(tmp_path / "t.csv", index=False)
    told = run("audit", tmp_path / "t.csv", "--target", "y", "--sets", "sets", "--json").stdout
    assert json.loads(told)["overall"]["coverage"] == 1.0


def test_audit_refuses_sets_without_any_true_label(tmp_path):
    table = SMALL[["Color", "Gender"]].assign(y=["low", "mid"] * 60, sets="LOW|MID")
    table.to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "y", "--sets")
    assert "must use the same labels" in refused("audit", tmp_path / "t.csv", *options, "sets")
    table.assign(low=True, mid=False, high=1).to_csv(tmp_path / "t.csv", index=False)
    assert "name all columns" in refused("audit", tmp_path / "t.csv", *options, "low,high")


def test_audit_of_predictions_beside_the_table_finds_no_group_in_them(place, tmp_path):
    rows = FRAME[2400:].reset_index(drop=True)
    answers = fareg.load(place / "m.fareg").predict_table(rows.drop(columns="outcome"))
    pd.concat([rows, answers], axis=1).to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "outcome", "--sets", "set", "--json")
    told = json.loads(run("audit", tmp_path / "t.csv", *options).stdout)
    assert "size, top, probability, level, group belong to the predictions" in " ".join(
        told["warnings"]
    )
    assert told["data"]["sensitive_features"] == list(DATA.X.columns)
    named = json.loads(
        run("audit", tmp_path / "t.csv", *options, "--sensitive", "Color,size").stdout
    )
    assert named["data"]["sensitive_features"] == ["Color", "size"]
    assert not any("belong to the predictions" in note for note in named["warnings"])


def test_labels_are_compared_as_text():
    assert label_texts([1, 2]).tolist() == ["1", "2"]
    assert label_texts([1.0, 2.0]).tolist() == ["1", "2"]
    assert label_texts(["a", "1"]).tolist() == ["a", "1"]
    assert label_texts([True, False]).tolist() == ["True", "False"]
    assert label_texts([0.5]).tolist() == ["0.5"]


# --- bad input -------------------------------------------------------------------------------


def fit_refused(path, tmp_path, *options, target="outcome"):
    before = set(os.listdir(tmp_path))
    line = refused("fit", path, "--target", target, "--out", tmp_path / "m.fareg", *options)
    assert set(os.listdir(tmp_path)) == before, "nothing may be left behind"
    return line


def test_wrong_names_are_refused_with_the_closest(small, tmp_path):
    assert "there is no such file" in fit_refused(tmp_path / "no.csv", tmp_path)
    assert "did you mean outcome?" in fit_refused(small, tmp_path, target="outcom")
    assert "did you mean Gender?" in fit_refused(small, tmp_path, "--sensitive", "gender")
    assert "nearest columns: " in fit_refused(small, tmp_path, target="zzz")
    assert "the target and sensitive" in fit_refused(small, tmp_path, "--sensitive", "outcome")
    assert "hgb, forest, logistic, mlp" in fit_refused(small, tmp_path, "--estimator", "xgb")
    assert "did you mean 0.9?" in fit_refused(small, tmp_path, "--confidence", "90")
    (tmp_path / "t.xlsx").write_bytes(b"x")
    assert "must end in .csv, .csv.gz, .txt, .parquet or .pq" in fit_refused(
        tmp_path / "t.xlsx", tmp_path
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,outcome\n", "has no rows"),
        (b"a,a,outcome\n1,2,x\n", "has column a twice"),
        (b"a;outcome\n1;x\n2;y\n", "at least 20"),
        (b"a,outcome\n1,x\n1,2,3,4,x\n", "5 values in line 3, but 2 columns; repair that line"),
        (b'a,outcome\n1,x\n2,"y\n1,x\n', "not closed in row 2 after the first line; close or"),
        (b"a,outcome\n5,1,x\n6,2,y\n", "names 2 columns in its first line"),
        (b"a,outcome\n1,x\nj\xe9,y\n", "byte 0xe9 in line 3"),
        (b"a,outcome\n" + b"1,x\n" * 50, "one class only (x)"),
        (b"a,outcome\n" + b"1,x\n2,\n" * 25, "25 missing values in 50 rows"),
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


def test_no_command_replaces_its_own_input(place, tmp_path):
    files = {name: (place / name).read_bytes() for name in ("m.fareg", "new.csv")}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    table, model = tmp_path / "new.csv", tmp_path / "m.fareg"
    target = ("--target", "outcome")
    report = tmp_path / "x.html"
    lines = [
        refused("fit", table, *target, "--out", table),
        refused("fit", table, *target, "--out", report, "--report", report),
        refused("predict", model, table, "--out", table),
        refused("predict", model, table, "--out", tmp_path / "." / "m.fareg"),
        refused("audit", table, *target, "--model", model, "--report", model),
    ]
    assert all("choose a new one" in line for line in lines)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == files


def test_the_version_is_told():
    assert run("--version").stdout.strip() == f"fareg {fareg.__version__}"


def test_broken_parquet_is_refused(place, tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing")
    told = fit_refused(tmp_path / "t.parquet", tmp_path)
    assert f"{tmp_path / 't.parquet'} cannot be read as Parquet" in told
    assert "; write it again, or let its name tell its format" in told
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
    sentence = "price: numbers written as text, such as 1,500, each of which is taken as a category"
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
    options = ("--out", out, "--batch-size", 10)
    assert "'tall'" in refused("predict", place / "m.fareg", tmp_path / "late.csv", *options)
    assert out.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["late.csv", "s.csv"]


def test_bad_places_are_refused_before_any_work(place, small, tmp_path):
    fit = ("fit", small, "--target", "outcome", "--out")
    assert "it is a folder" in refused(*fit, tmp_path)
    assert "there is no folder" in refused(*fit, tmp_path / "no" / "m.fareg")
    predict = ("predict", place / "m.fareg", place / "new.csv", "--out")
    assert "it is a folder" in refused(*predict, tmp_path)
    assert "there is no folder" in refused(*predict, tmp_path / "no" / "s.csv")
    assert "must end in .csv, .csv.gz, .txt, .parquet or .pq" in refused(
        *predict, tmp_path / "s.txt.zip"
    )
    report = ("--report", tmp_path / "no" / "r.html")
    assert "there is no folder" in refused(*fit, tmp_path / "m.fareg", *report)
    assert not (tmp_path / "m.fareg").exists()


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
    assert f"{small} is not a folder; choose another" in refused(*fit, small / "m.fareg")
    assert "too long; choose another place" in refused(*fit, tmp_path / ("m" * 300))
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


def test_reports_are_html_by_their_names(place, small, tmp_path):
    fit = ("fit", small, "--target", "outcome", "--out", tmp_path / "m.fareg")
    audit = ("audit", place / "new.csv", "--target", "outcome", "--model", place / "m.fareg")
    for command in (fit, audit):
        for name, got in (("r.pdf", ".pdf"), ("r", "no ending")):
            told = refused(*command, "--report", tmp_path / name)
            assert f"must end in .html or .htm, got {got}" in told
    assert os.listdir(tmp_path) == ["small.csv"]


def test_seeds_and_clusters_of_no_use_are_refused_with_what_was_given(small, tmp_path):
    fit = ("fit", small, "--target", "outcome", "--out", tmp_path / "m.fareg")
    assert "seed must be a whole number >= 0, got -1" in refused(*fit, "--seed", -1)
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


def test_damaged_models_are_refused(place, tmp_path):
    bad = tmp_path / "bad.fareg"
    bad.write_bytes((place / "m.fareg").read_bytes()[:-100])
    for arguments in (
        ("info", bad),
        ("predict", bad, place / "new.csv", "--out", tmp_path / "s.csv"),
        ("audit", place / "new.csv", "--target", "outcome", "--model", bad),
    ):
        assert "cut short" in refused(*arguments)


def test_audit_knows_clusters_and_calibration_rows(tmp_path):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"who": range(60), "age": rng.normal(size=60), "y": "a", "set": "a|b"})
    people.loc[:5, "set"] = "b"
    pd.concat([people] * 5).to_csv(tmp_path / "t.csv", index=False)
    options = ("audit", tmp_path / "t.csv", "--target", "y", "--sets", "set", "--json")
    told = json.loads(run(*options, "--clusters", "who", "--calibration-rows", 200).stdout)
    assert told["data"]["sensitive_features"] == ["age"]
    assert any("300 rows in 60 clusters" in note for note in told["notes"])
    assert any("calibrated on 200 rows" in note for note in told["notes"])
    assert "has no column nobody" in refused(*options[:-1], "--clusters", "nobody")
    assert "column of their own" in refused(*options[:-1], "--clusters", "y")
    assert "at least 9" in refused(*options[:-1], "--calibration-rows", "3")


def test_audit_refuses_sets_that_are_none(small):
    audit = ("audit", small, "--target", "outcome")
    assert "either" in refused(*audit)
    line = refused(*audit, "--sets", "colors")
    assert line.endswith("small.csv has no column colors; did you mean Color?\n")
    line = refused(*audit, "--sets", "outcomes")  # the target is no set
    told = line.partition("; nearest columns: ")[2].strip().split(", ")
    assert len(told) == 3
    assert set(told) <= set(FRAME) - {"outcome"}
    assert "must hold True and False" in refused(*audit, "--sets", "Color,Gender")


def test_usage_errors_exit_with_2(small):
    run("fit", small, code=2)
    run("nonsense", code=2)
    run("predict", "--batch-size", "many", code=2)


def test_control_c_is_one_line_and_leaves_nothing(place, tmp_path):
    big = tmp_path / "big.csv"
    FRAME.to_csv(big, index=False)
    command = [sys.executable, "-m", "fareg", "predict", place / "m.fareg", big]
    command = [*map(str, command), "--out", str(tmp_path / "s.csv"), "--batch-size", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for _ in range(600):  # until the first rows are being written
        if any(name.endswith(".tmp") for name in os.listdir(tmp_path)):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == "Interrupted: nothing was written.\n"
    assert os.listdir(tmp_path) == ["big.csv"]


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
    told = json.loads(run("audit", place / "new.csv", *options, "--seed", 3, "--json").stdout)
    about = told["about"]
    assert (about["file"], about["model"], about["seed"]) == ("new.csv", "m.fareg", 3)
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
    fit = ["fit", tmp_path / "easy.csv", "--target", "y", "--estimator", "logistic", "--json"]
    some = json.loads(run(*fit, "--out", tmp_path / "some.fareg").stdout)
    none = json.loads(run(*fit, "--out", tmp_path / "none.fareg", "--no-allow-empty").stdout)
    assert some["empty"]["share"] > 0.01
    assert some["empty"]["right"] > some["accuracy"] > 0.9
    assert "allow_empty" in some["verdict"]["next_steps"][-1]
    assert none["empty"] == {"share": 0.0, "right": None, "accuracy": some["accuracy"]}
    assert none["after"]["coverage"] >= some["after"]["coverage"]
    assert not any("allow_empty" in step for step in none["verdict"]["next_steps"])
    assert not fareg.load(tmp_path / "none.fareg").allow_empty


@pytest.mark.parametrize("level", ["0", "1", "90", "nan", "-0.5"])
def test_a_level_that_is_none_is_refused_in_fit_and_audit(level, place, tmp_path):
    arguments = ("--target", "outcome", "--confidence", level)
    audited = ("audit", place / "new.csv", "--model", place / "m.fareg", *arguments)
    assert "confidence_level must be in (0, 1)" in refused(*audited)
    fitted = ("fit", place / "train.csv", "--out", tmp_path / "m.fareg", *arguments)
    assert "confidence_level must be in (0, 1)" in refused(*fitted)
