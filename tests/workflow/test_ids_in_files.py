"""``--id``: a person has the same random number in a file and in Python."""

import json

import numpy as np
import pandas as pd
import pytest

import fareg
from fareg.persistence import ModelFile, describe
from fareg.workflow import audit_file, predict_file
from shell import refused, run

READ = ["kind", "place"]


def discrete_table(n, seed):
    """Return people, many of them with equal rows."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"kind": rng.integers(0, 4, n), "place": rng.choice(["x", "y", "z"], n)})
    y = np.array(["no", "yes", "maybe"])[(rng.integers(0, 4, n) + X["kind"].to_numpy()) % 3]
    return X.assign(person=[f"{i:05}" for i in rng.permutation(n)], outcome=y)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ids")
    discrete_table(900, 0).to_csv(folder / "people.csv", index=False)
    told = run(
        *("fit", folder / "people.csv", "--target", "outcome", "--out", folder / "m.fareg"),
        *("--id", "person", "--sensitive", "place", "--estimator", "logistic", "--json"),
    )
    assert not any("equal an earlier one" in str(told) for told in json.loads(told.stdout).items())
    new = discrete_table(400, 1)
    new.to_csv(folder / "new.csv", index=False)
    new.to_parquet(folder / "new.parquet")
    (folder / "parts").mkdir()
    for part, piece in enumerate(np.array_split(np.arange(400), 3)):
        new.iloc[piece].to_parquet(folder / "parts" / f"{part}.parquet")
    return folder


def test_the_model_file_remembers_the_ids_which_neither_train_nor_define_groups(place):
    notes = describe(place / "m.fareg")["metadata"]
    assert notes["ids"] == "person"
    assert notes["left_out"] == {"person": "ids"}
    assert list(fareg.load(place / "m.fareg").feature_names_in_) == READ


@pytest.mark.parametrize("asked", [{}, {"ids": "person"}])
@pytest.mark.parametrize("batch_size", [7, 50_000])
def test_files_and_folders_have_the_sets_of_python(asked, batch_size, place, tmp_path):
    clf, new = fareg.load(place / "m.fareg"), discrete_table(400, 1)
    expected = clf.predict_table(new[READ], ids=new["person"])["size"].to_numpy()
    assert (expected != clf.predict_table(new[READ])["size"]).any()
    common = {"batch_size": batch_size, **asked}
    predict_file(place / "m.fareg", place / "new.csv", tmp_path / "a.csv", **common)
    assert pd.read_csv(tmp_path / "a.csv")["size"].tolist() == expected.tolist()
    assert "person" not in pd.read_csv(tmp_path / "a.csv")
    predict_file(
        place / "m.fareg", place / "new.parquet", tmp_path / "a.parquet", keep=["person"], **common
    )
    kept = pd.read_parquet(tmp_path / "a.parquet")
    assert kept["size"].tolist() == expected.tolist()
    assert kept["person"].tolist() == new["person"].tolist()
    predict_file(place / "m.fareg", place / "parts", tmp_path / "sets", jobs=1, **common)
    parts = [pd.read_parquet(path) for path in sorted((tmp_path / "sets").iterdir())]
    assert pd.concat(parts)["size"].tolist() == expected.tolist()


def test_without_ids_equal_rows_of_a_batch_have_numbers_of_their_own(place, tmp_path):
    same = discrete_table(1, 1)[READ]
    pd.concat([same] * 300).to_csv(tmp_path / "same.csv", index=False)
    with pytest.warns(fareg.FaregWarning, match="fitted with ids in the column person, which"):
        told = predict_file(place / "m.fareg", tmp_path / "same.csv", tmp_path / "out.csv")
    again = run("predict", place / "m.fareg", tmp_path / "same.csv", "--out", tmp_path / "two.csv")
    assert "which" in again.stderr
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert len(told["sizes"]) > 1


def test_an_audit_and_a_calibration_take_ids(place, tmp_path):
    new = ("--target", "outcome", "--json")
    told = [
        run("calibrate", place / "m.fareg", place / data, "--out", tmp_path / "c.fareg", *new)
        for data in ("new.csv", "parts")
    ]
    first, second = (json.loads(done.stdout)["thresholds"] for done in told)
    assert first == second
    clf, table = fareg.load(place / "m.fareg"), discrete_table(400, 1)
    sets = clf.predict_set(table[READ], ids=table["person"])
    codes = np.searchsorted(clf.classes_, table["outcome"])
    done = run("audit", place / "new.csv", "--model", place / "m.fareg", *new)
    coverage = json.loads(done.stdout)["overall"]["coverage"]
    # the tables share ids, so a few rows equal used ones in every column
    seen = ModelFile.open(place / "m.fareg").seen
    is_new = ~seen.contains(table[list(clf.column_kinds_)], table["outcome"], table)
    assert is_new.mean() > 0.95
    assert coverage == pytest.approx(sets[np.arange(400), codes][is_new].mean())


def test_ids_that_cannot_be_used_are_refused_in_one_line(place, tmp_path):
    model, out = place / "m.fareg", tmp_path / "out.csv"
    ask = ("predict", model, place / "new.csv", "--out", out)
    assert "did you mean person" in refused(*ask, "--id", "persom")
    gaps = discrete_table(30, 2)
    gaps.loc[3, "person"] = None
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    said = refused("predict", model, tmp_path / "gaps.csv", "--out", out, "--id", "person")
    assert "ids must not be missing, got 1 missing ids of 30" in said
    fit = ("fit", place / "people.csv", "--target", "outcome", "--out", tmp_path / "m.fareg")
    assert "cannot be both the target and the column of ids" in refused(*fit, "--id", "outcome")
    said = refused(*fit, "--id", "person", "--not-features", "person")
    assert "cannot be both the column of ids and not a feature" in said
    table = discrete_table(60, 3).assign(set="yes|no")
    table.to_csv(tmp_path / "sets.csv", index=False)
    with pytest.raises(fareg.FaregError, match="ids are for the random numbers of a model"):
        audit_file(tmp_path / "sets.csv", target="outcome", sets=["set"], ids="person")
    assert not out.exists()
