"""A model file remembers which rows the model has seen, and an audit leaves them out."""

import gzip
import json
import time

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from sklearn.linear_model import LogisticRegression

import fareg
from fareg._columns import canonical
from fareg._rows import row_hashes
from fareg.persistence import ModelFile, SeenRows
from fareg.workflow import audit_file, calibrate_file, fit_file, predict_file, read_table
from shell import refused, run
from tables import copy_rows

pytestmark = pytest.mark.usefixtures("small_searches")
N = 600


@pytest.fixture(scope="module")
def people():
    """Return a table with leading zeros, gaps, quotes, dates and labels that are numbers."""
    rng = np.random.default_rng(0)
    dose = rng.normal(size=N)
    return pd.DataFrame(
        {
            "code": [f"{i:05d}" for i in range(N)],
            "dose": np.where(rng.random(N) < 0.1, np.nan, dose.round(3)),
            "note": rng.choice(['a "quoted", one', "b\nc", "é"], N),
            "seen on": pd.Timestamp("2020-01-31") + pd.to_timedelta(rng.integers(0, 9, N), "D"),
            "outcome": (dose + rng.normal(size=N) > 0).astype(int),
        }
    )


@pytest.fixture(scope="module")
def place(people, tmp_path_factory):
    """Return a folder with the table in both formats, a model and its test rows."""
    folder = tmp_path_factory.mktemp("seen")
    people.to_csv(folder / "all.csv", index=False)
    people.to_parquet(folder / "all.parquet")
    fit_file(
        folder / "all.csv",
        target="outcome",
        out=folder / "m.fareg",
        features=[name for name in people if name != "outcome"],  # with the code of each row
        estimator="logistic",
        test_out=folder / "test.csv",
    )
    return folder


def test_rows_are_known_by_value_whatever_holds_them():
    X = pd.DataFrame({"a": [1, 2, 3], "b": ["u", None, "1"]})
    seen = SeenRows.of(X, [0, 1, 1])
    assert seen.contains(X.astype({"a": "float32"}), ["0", "1", "1"]).all()
    assert seen.contains(X.astype(object), np.array([0.0, 1.0, 1.0])).all()
    assert not seen.contains(X, [1, 0, 0]).any()  # the label counts
    assert not seen.contains(X[["b", "a"]], [0, 1, 1]).any()  # and the order of columns
    assert seen.contains(X[::-1], [1, 1, 0]).all()  # but not that of rows
    assert SeenRows.of(X[:0], []).contains(X, [0, 1, 1]).sum() == 0


def test_a_fingerprint_is_small_salted_and_says_nothing_of_a_row():
    X = pd.DataFrame({"income": np.arange(1000.0)})
    first, second = (SeenRows.of(X, np.zeros(1000)) for _ in range(2))
    assert len(first.to_bytes()) < 8 * 1000 + 300
    assert not np.isin(first.hashes, second.hashes).any()
    assert first.contains(X, np.zeros(1000)).all()
    assert SeenRows.from_bytes(first.to_bytes()).contains(X, np.zeros(1000)).all()


def test_many_rows_are_remembered_in_seconds():
    n = 200_000
    rows = np.random.default_rng(0).normal(size=(n, 2))
    start = time.process_time()
    seen = SeenRows.of(rows, np.zeros(n, dtype=int))
    assert seen.hashes.nbytes <= 8 * n
    assert time.process_time() - start < 10


@pytest.mark.parametrize("hashes", [np.array([2, 1], np.uint64), np.array([1.0])])
def test_a_fingerprint_that_is_none_is_refused(hashes):
    with pytest.raises(ValueError, match="see the fingerprint of its rows"):
        SeenRows.from_bytes(SeenRows(b"0" * 16, hashes).to_bytes())


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_an_audit_of_the_fitted_table_is_one_of_its_test_rows(format_, place):
    with pytest.warns(fareg.FaregWarning, match=r"^480 of 600 rows equal rows that were used"):
        result = audit_file(place / f"all.{format_}", target="outcome", model=place / "m.fareg")
    clean = audit_file(place / "test.csv", target="outcome", model=place / "m.fareg")
    told, expected = result.to_dict(), clean.to_dict()
    assert told.pop("about")["file"] == f"all.{format_}"
    assert expected.pop("about")["file"] == "test.csv"
    left_out, *notes = told.pop("notes")
    assert left_out.startswith("480 of 600 rows equal rows that were used")
    assert notes == expected.pop("notes")
    assert told == expected


def test_the_shell_says_how_many_rows_are_left_out(place, people, tmp_path):
    asked = ("--target", "outcome", "--model", place / "m.fareg")
    words = "480 of 600 rows equal rows that were used to train or calibrate this model"
    assert words in " ".join(run("audit", place / "all.csv", *asked).output.split())
    assert (
        words in json.loads(run("audit", place / "all.csv", *asked, "--json").stdout)["warnings"][0]
    )
    test = pd.read_csv(place / "test.csv", dtype={"code": str})
    people[~people["code"].isin(test["code"])].to_csv(tmp_path / "rest.csv", index=False)
    line = refused("audit", tmp_path / "rest.csv", *asked)
    assert line.startswith("Error: all 480 rows of")
    assert "rows that it has not seen" in line


def test_seen_rows_among_new_ones_are_left_out(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=400)})
    y = (X["a"] + rng.normal(size=400) > 0).astype(int)
    clf = fareg.SplitConformalClassifier(LogisticRegression(), random_state=0)
    clf.fit(X[:200], y[:200])
    fareg.save(clf, tmp_path / "m.fareg", seen=(X[:200], y[:200]))
    rows = pd.concat([X[200:].assign(y=y[200:]), X[:50].assign(y=y[:50])])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.warns(fareg.FaregWarning, match="50 of 250 rows"):
        audit_file(tmp_path / "rows.csv", target="y", model=tmp_path / "m.fareg")
    fareg.save(clf, tmp_path / "m.fareg")
    assert ModelFile.open(tmp_path / "m.fareg").seen is None
    for strange in ((X, y[:3]), (X.assign(b=1), y), X, "rows"):
        with pytest.raises(fareg.FaregError, match="seen must"):
            fareg.save(clf, tmp_path / "m.fareg", seen=strange)


def test_rounded_probabilities_of_other_people_are_not_taken_for_seen_rows(tmp_path):
    """Nine values of a probability repeat in all parts; the id tells who is who."""
    rng = np.random.default_rng(0)
    p = rng.integers(1, 10, 300) / 10
    frame = pd.DataFrame({"id": range(300), "sex": rng.choice(["f", "m"], 300), "p": p})
    frame["y"] = (rng.random(300) < p).astype(int)
    frame.to_csv(tmp_path / "t.csv", index=False)
    files = {"out": tmp_path / "m.fareg", "test_out": tmp_path / "test.csv"}
    options = {"probabilities": {"1": "p"}, "sensitive": ["sex"], "target": "y"}
    fit_file(tmp_path / "t.csv", **options, **files)
    asked = {"target": "y", "model": tmp_path / "m.fareg"}
    assert audit_file(tmp_path / "test.csv", **asked).n_samples == 60
    with pytest.warns(fareg.FaregWarning, match="240 of 300 rows"):
        audit_file(tmp_path / "t.csv", **asked)
    narrow = frame.drop(columns="id")  # without it, any row equals a used one by chance
    narrow.to_csv(tmp_path / "narrow.csv", index=False)
    result = audit_file(tmp_path / "narrow.csv", **asked)
    assert result.n_samples == 300
    assert any("are known by id, not columns here" in note for note in result.notes)


def values_of(n, n_levels, seed=0):
    """Return a table of three columns with few levels, and labels that it tells nothing about."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.integers(0, n_levels, (n, 3)), columns=["a", "b", "c"])
    return table.assign(y=np.where(rng.random(n) < 0.8, "no", "yes"))


@pytest.mark.parametrize("n_levels", [3, 10, 60, 300])
def test_rows_are_remembered_where_few_of_them_equal_another_one(n_levels):
    n, columns = 4000, ["a", "b", "c"]
    rows = values_of(2 * n, n_levels)
    seen = SeenRows.of(rows[columns][:n], rows["y"][:n])
    repeated = rows[:n].duplicated(keep=False).mean()
    assert (seen is None) == (repeated > 0.1) == (n_levels <= 10)
    if seen is not None:
        known = rows.merge(rows[:n].drop_duplicates(), how="left", indicator=True)["_merge"]
        used = seen.contains(rows[columns], rows["y"])
        assert used.tolist() == (known == "both").tolist()  # as the rows themselves tell
        assert used[n:].mean() < 0.1


@pytest.mark.parametrize("names", [("id",), ()])
def test_further_rows_are_remembered_by_the_columns_that_tell_rows_apart(names):
    frame = pd.DataFrame({"p": np.arange(400) % 3, "id": np.arange(400)})
    X, y = frame[["p"]], np.zeros(400)
    assert SeenRows.of(X[:200], y[:200]) is None
    seen = SeenRows.of(X[:200], y[:200], ["id"], row_hashes(canonical(frame[["id"]][:200]), 0))
    more = seen.with_rows(X[100:300], y[100:300], frame[100:300][["p", *names]])
    assert (more is None) == (not names)
    if more is not None:
        assert len(more.hashes) == 300
        assert more.contains(X, y, frame).tolist() == [True] * 300 + [False] * 100
        assert not more.contains(X, y, X).any()


def model_of(folder, n_levels):
    """Write a table, a model of it, its test rows and many new rows; return the trial of fit."""
    for seed, (name, n) in enumerate({"all": 6000, "new": 8000}.items()):
        values_of(n, n_levels, seed).to_csv(folder / f"{name}.csv", index=False)
    files = {"out": folder / "m.fareg", "test_out": folder / "test.csv"}
    options = {"target": "y", "estimator": "logistic", "sensitive": ["a"]}
    return fit_file(folder / "all.csv", features=["a", "b", "c"], **options, **files)


def test_a_fair_model_of_few_values_is_not_accused(tmp_path):
    trial = model_of(tmp_path, n_levels=10)  # nearly every row equals another one
    model = tmp_path / "m.fareg"
    for name, n in {"test": 1200, "new": 8000, "all": 6000}.items():
        predict_file(model, tmp_path / f"{name}.csv", tmp_path / "sets.csv", keep=["y"])
        asked = audit_file(tmp_path / f"{name}.csv", target="y", model=model)
        written = audit_file(tmp_path / "sets.csv", target="y", sets=["set"], sensitive=["level"])
        assert asked.n_samples == n
        assert any("its file remembers none" in note for note in asked.notes)
        assert asked.coverage == written.coverage
        if name == "test":
            assert asked.coverage == trial.to_dict()["after"]["coverage"]
    out = {"target": "y", "out": tmp_path / "n.fareg", "jobs": 1}
    found = calibrate_file(model, tmp_path / "new.csv", **out)
    assert (found["rows"], found["left_out"]) == (8000, 0)


def test_used_rows_in_several_parts_do_not_calibrate(tmp_path):
    model_of(tmp_path, n_levels=100)
    rows = pd.read_csv(tmp_path / "all.csv")
    (tmp_path / "parts").mkdir()
    for part, piece in enumerate(np.array_split(np.arange(6000), 5)):
        rows.iloc[piece].to_parquet(tmp_path / "parts" / f"{part}.parquet")
    model, out = tmp_path / "m.fareg", {"target": "y", "out": tmp_path / "n.fareg", "jobs": 1}
    with pytest.warns(fareg.FaregWarning, match="48.. of 6000 rows equal rows that were used"):
        found = calibrate_file(model, tmp_path / "parts", batch_size=500, **out)
    test = calibrate_file(model, tmp_path / "test.csv", **out)
    assert found["rows"] == test["rows"] <= 1200
    assert found["left_out"] == 4800 + test["left_out"]
    assert found["thresholds"] == test["thresholds"]


def test_test_rows_stand_as_they_stood_in_a_csv_file(place):
    every, test = (
        pd.read_csv(place / name, dtype=str, keep_default_na=False)
        for name in ("all.csv", "test.csv")
    )
    assert len(test) == 120
    kept = every[every["code"].isin(test["code"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(test, kept)


@pytest.mark.parametrize("ending", ["parquet", "csv.gz"])
def test_test_rows_keep_the_format(ending, people, tmp_path):
    data, out = tmp_path / f"all.{ending}", tmp_path / f"test.{ending}"
    people.to_parquet(data) if ending == "parquet" else people.to_csv(data, index=False)
    fit = ("fit", data, "--target", "outcome", "--estimator", "logistic", "--test-out", out)
    assert "test rows in" in " ".join(run(*fit, "--out", tmp_path / "m.fareg").output.split())
    if ending == "parquet":
        every, test = (pyarrow.parquet.read_table(path) for path in (data, out))
        assert test.schema == every.schema
        test = test.to_pandas()
    else:
        assert gzip.decompress(out.read_bytes()).startswith(b"code")
        test = pd.read_csv(out, dtype={"code": str})
    assert len(test) == 120
    assert set(test["code"]) <= set(people["code"])


@pytest.mark.parametrize("source", ["all.csv", "all.parquet"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_rows_are_copied_into_the_format_that_the_ending_tells(source, ending, place, tmp_path):
    kept = pd.read_csv(place / "test.csv")["code"].to_numpy()  # codes count the rows from zero
    out = tmp_path / f"test.{ending}"
    copy_rows(place / source, kept, out, labels=["outcome"])
    read = pd.read_parquet if ending == "parquet" else pd.read_csv
    assert read(out)["code"].astype(int).tolist() == kept.tolist()
    expected = read_table(place / "all.csv").loc[kept].reset_index(drop=True)
    options = {"check_dtype": False, "check_categorical": False}
    pd.testing.assert_frame_equal(read_table(out), expected, **options)


def test_bad_places_for_test_rows_are_refused_before_any_work(place, tmp_path):
    arguments = ("fit", place / "all.csv", "--target", "outcome", "--out", tmp_path / "m.fareg")
    for out, words in (
        (place / "all.csv", "which is read too"),
        (tmp_path / "m.fareg", "which is written too"),
        (tmp_path / "test.xlsx", "must end in .csv, .csv.gz, .txt, .parquet or .pq"),
        (tmp_path / "no" / "test.csv", "there is no folder"),
    ):
        assert words in refused(*arguments, "--test-out", out)
    refused(*arguments, "--test-out", tmp_path / "t.csv", "--report", tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []
