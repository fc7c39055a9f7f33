"""New thresholds: coverage before and after, the record, rows weighted towards others, a level."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

import fareg
from fareg._encoding import ordinal_encoder
from fareg._files import digest_of
from fareg.datasets import make_synthetic
from fareg.workflow import calibrate_file, predict_file
from shell import refused, run

DATA = make_synthetic(6000, random_state=1)
X, Y = DATA.X, DATA.y.astype(str)
RED = fareg.Rule.parse("Color = Red")


@pytest.fixture(scope="module", params=[False, True])
def place(tmp_path_factory, request):
    """Return a folder with a model, and with rows in which one group has new labels."""
    folder = tmp_path_factory.mktemp("acceptance")
    tree = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=4, random_state=0))
    clf = fareg.FaReGClassifier(
        FrozenEstimator(tree.fit(X[:500], Y[:500])),
        sensitive_features=["Color", "Gender"],
        label_conditional=request.param,
        protect=[RED],
        random_state=0,
    ).conformalize(X[500:2000], Y[500:2000])
    fareg.save(clf, folder / "m.fareg")
    rng, rows = np.random.default_rng(0), X[2000:4000].assign(y=Y[2000:4000])
    lost = (rows["Color"] == "Red") & (rng.random(2000) < 0.5)
    rows.loc[lost, "y"] = rng.choice(sorted(set(Y)), lost.sum())
    rows.to_csv(folder / "rows.csv", index=False)
    return folder


def test_coverage_before_and_after_by_stream_and_the_record(place, tmp_path):
    out, record = tmp_path / "new.fareg", tmp_path / "record.json"
    options = {"target": "y", "out": out, "record": record}
    told = calibrate_file(place / "m.fareg", place / "rows.csv", **options)
    rows = pd.read_csv(place / "rows.csv", dtype={"y": str})
    old, new = fareg.load(place / "m.fareg"), fareg.load(out)
    red = (rows["Color"] == "Red").to_numpy()
    found = {row["stream"]: row for row in told["coverage"]}
    assert set(found) > {"everyone", RED.text}
    for name, inside in {"everyone": np.ones(len(rows), bool), RED.text: red}.items():
        own = found[name]
        assert own["rows"] == inside.sum()
        # other random numbers, so only nearly the same
        sets = old.predict_set(rows.drop(columns="y"))
        covered = sets[np.arange(len(rows)), np.searchsorted(old.classes_, rows["y"])]
        assert own["before"] == pytest.approx(covered[inside].mean(), abs=0.03)
        assert own["after"] > 0.86
    assert found[RED.text]["before"] < 0.8
    whole = json.loads(record.read_text())
    assert whole["found"]["coverage"] == told["coverage"]
    assert whole["asked"] == {"confidence_level": 0.9, "target": "y"}
    assert whole["rows"]["rows"] == 2000
    assert whole["rows"]["sha256"] == digest_of(place / "rows.csv")
    assert whole["replaced"]["sha256"] == digest_of(place / "m.fareg")
    assert whole["by"] == {"file": str(out), "sha256": digest_of(out)}
    assert new.protected_ == (RED,)


def test_rows_are_weighted_towards_others(place, tmp_path):
    more = X[4000:].assign(extra=1)
    more[(more["Gender"] == "Male") | (more.index % 4 == 0)].to_csv(tmp_path / "new.csv")
    arguments = ["calibrate", place / "m.fareg", place / "rows.csv", "--target", "y"]
    arguments += ["--out", tmp_path / "new.fareg", "--towards", tmp_path / "new.csv"]
    done = run(*arguments, "--record", tmp_path / "r.json")
    assert "of the labels are in the old sets" in done.stdout
    assert "weighted rows are worth 1" in done.stdout
    clf = fareg.load(tmp_path / "new.fareg")
    weights, male = clf.calibration_.sample.weights, X[2000:4000]["Gender"] == "Male"
    assert weights[male].mean() > 2 * weights[~male].mean()
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["asked"]["towards"] == str(tmp_path / "new.csv")
    assert record["found"]["effective_rows"] == clf.shift_.effective_rows
    X[4000:4020].to_csv(tmp_path / "few.csv")
    few = [*arguments[:-2], tmp_path / "none.fareg", "--towards", tmp_path / "few.csv"]
    few[few.index("--out") + 1 : few.index("--towards")] = [tmp_path / "none.fareg"]
    assert "at least 50 rows" in refused(*few)


def test_sets_of_another_level_chosen_in_advance(place, tmp_path):
    arguments = ["predict", place / "m.fareg", place / "rows.csv", "--confidence", "0.6"]
    run(*arguments, "--out", tmp_path / "sets.csv")
    clf = fareg.load(place / "m.fareg")
    rows = pd.read_csv(place / "rows.csv", dtype={"y": str})
    expected = clf.predict_set(rows.drop(columns="y"), confidence_level=0.6).sum(axis=1)
    assert pd.read_csv(tmp_path / "sets.csv")["size"].tolist() == expected.tolist()
    plain = predict_file(place / "m.fareg", place / "rows.csv", tmp_path / "all.csv")
    assert plain["mean_size"] > expected.mean()
    assert "(0, 1)" in refused(*arguments[:-1], "60", "--out", tmp_path / "no.csv")
