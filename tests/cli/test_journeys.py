"""The command line: full runs from a table to sets, audits and reports."""

import json
import os
import re
import shlex

import numpy as np
import pandas as pd
import pytest

import fareg
from fareg.cli._commands import _print_trial
from fareg.persistence import describe
from fareg.workflow import audit_file
from fareg.workflow._predict import ANSWERS
from shell import DATA, FRAME, SMALL, refused, run

pytestmark = pytest.mark.usefixtures("small_searches")


def test_fit_tells_the_story(place):
    told = (place / "fit.txt").read_text(encoding="utf-8")
    assert "960 training rows, 960 calibration rows, 480 test rows" in told
    assert "Color = Red and Gender = Female" in " ".join(told.split())
    assert "split" in told
    assert describe(place / "m.fareg")["metadata"]["target"] == "outcome"


def test_long_names_are_folded_and_not_cut(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    options = ("--target", "outcome", "--estimator", "logistic", "--json")
    told = json.loads(run("fit", small, *options, "--out", tmp_path / "m.fareg").stdout)
    name = "admission_by_a_very_long_disposition_code=discharged_to_another_hospital"
    figures = {"n": 9, "before": 0.8, "after": 0.9, "after_low": 0.7, "after_high": 1.0}
    figures |= {"few": False}
    for moment in ("before", "after"):
        figures |= {f"{moment}_size": 1.5, f"{moment}_singletons": 0.5}
    _print_trial({**told, "groups": [{"group": name, **figures}]})
    lines = capsys.readouterr().out.splitlines()
    folded = "".join(re.split(r"\s{2,}", line)[0] for line in lines)
    assert name in folded.replace(" ", "")


def test_what_is_found_becomes_a_threshold_and_shuts_a_gate(tmp_path):
    """Sets that miss women over 60: found, protected in one step, and reported by the exit code."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sex": rng.choice(["f", "m"], 2000), "age": rng.integers(20, 80, 2000)})
    table["y"] = rng.choice(["a", "b"], 2000)
    hard = (table["sex"] == "f") & (table["age"] > 60)
    hit = rng.random(2000) < np.where(hard, 0.5, 0.97)
    sets = [json.dumps([label] if own else []) for label, own in zip(table["y"], hit, strict=True)]
    path, folder = tmp_path / "t.csv", tmp_path / "tables"
    table.assign(set=sets).to_csv(path, index=False)
    asked = ("--target", "y", "--sets", "set", "--tables", folder, "--card", tmp_path / "c.md")
    for gate, code in (("found", 3), ("unequal", 0)):
        run("audit", path, *asked, "--fail-on", gate, "--json", code=code)
        done = run("audit", path, *asked, "--fail-on", gate, code=code)
        assert ("Failed --fail-on found: Rows with " in done.stderr) == (code == 3)
    assert pd.read_csv(folder / "table.csv")["group"][0] == "everyone"
    assert (tmp_path / "c.md").read_text().startswith("---\ntags:")
    step = next(line for line in done.stdout.splitlines() if "next" in line)
    command = shlex.split(step[step.index("fareg fit") :])
    assert command[-2] == "--protect"
    out, logistic = str(tmp_path / "m.fareg"), ["--estimator", "logistic"]
    command[command.index("--out") + 1] = out
    run(*command[1:], *logistic)
    assert [rule.text for rule in fareg.load(out).protected_] == [command[-1]]
    answers = tmp_path / "answers.csv"
    run("predict", out, path, "--out", answers, "--action")
    told = pd.read_csv(answers)
    assert (told["action"] == np.where(told["size"] == 1, "decide", "refer")).all()
    assert "found, low, unequal" in refused("audit", path, *asked, "--fail-on", "everything")


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
        found = json.loads(run("fit", small, *options, "--out", tmp_path / "m.fareg").stdout)
        del found["sha256"]  # the rows that were used are remembered with random salt
        return found

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
    run("predict", model, rows / f"new.{format_}", "--out", out, batch_rows=batch_size)
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
        options = ("--out", tmp_path / out, "--keep", ",".join(keep))
        run("predict", model, data, *options, batch_rows=7)
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
    options = ("--out", tmp_path / "sets.parquet")
    run("predict", tmp_path / "m.fareg", tmp_path / f"new.{format_}", *options, batch_rows=7)
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


def test_predict_finds_columns_by_name(place, tmp_path):
    turned = FRAME[2400:][[*reversed(FRAME.columns)]].assign(extra="x")
    turned.to_csv(tmp_path / "turned.csv", index=False)
    predict = ("predict", place / "m.fareg")
    told = json.loads(
        run(*predict, place / "new.csv", "--out", tmp_path / "a.csv", "--json").stdout
    )
    run(*predict, tmp_path / "turned.csv", "--out", tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert told["rows"] == sum(told["sizes"].values()) == 600


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
    covered = [label in json.loads(labels) for label, labels in zip(sets.y, sets.set, strict=True)]
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
    assert "learn_from auto" in shown  # the parameter
    assert "fit: target outcome" in shown  # the column
    assert "fit: rows train 960, calibrate 960, test 480" in shown
    told = json.loads(run("info", place / "m.fareg", "--json").stdout)
    assert told["metadata"]["rows"]["train"] == 960
    named = [group["named"] for group in told["groups"]]
    assert named == sorted(named, reverse=True)
    assert named[0]
    assert not named[-1]


def test_info_tells_which_calibration_rows_its_groups_were_counted_on(place, tmp_path):
    FRAME[2400:].to_csv(tmp_path / "new.csv", index=False)
    asked = ("--target", "outcome", "--out", tmp_path / "new.fareg")
    run("calibrate", place / "m.fareg", tmp_path / "new.csv", *asked)
    for model, words in ((place / "m.fareg", "the"), (tmp_path / "new.fareg", "the earlier")):
        shown = " ".join(run("info", model).stdout.split())
        assert f"of {words} calibration rows; split conformal sets cover" in shown
    assert "coverage stream everyone, rows 600, before 0." in shown
    assert "'stream'" not in shown


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


@pytest.mark.parametrize("form", ["{0}|{1}", "{0} | {1}", '["{0}", "{1}"]'])
def test_audit_reads_sets_as_tools_write_them(tmp_path, form):
    table = SMALL[["Color", "Gender"]].assign(y=["low", "mid"] * 60, sets=form.format("low", "mid"))
    table.to_csv(tmp_path / "t.csv", index=False)
    told = run("audit", tmp_path / "t.csv", "--target", "y", "--sets", "sets", "--json").stdout
    assert json.loads(told)["overall"]["coverage"] == 1.0


def test_audit_refuses_sets_without_any_true_label(tmp_path):
    table = SMALL[["Color", "Gender"]].assign(y=["low", "mid"] * 60, sets="LOW|MID")
    table.to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "y", "--sets")
    told = refused("audit", tmp_path / "t.csv", *options, "sets")
    assert "column sets holds 'LOW|MID' in row 1, which is not a set of labels" in told
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
