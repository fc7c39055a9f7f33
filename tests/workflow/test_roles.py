"""Roles of the columns of a table: features, groups only, ids, weights."""

import json
import os
import re
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import fareg
from fareg._encoding import gradient_boosting, one_hot_encoder
from fareg.classifiers import out_of_fold_proba
from fareg.classifiers._models import trained
from fareg.persistence import describe
from fareg.workflow import fit_file
from fareg.workflow._models import LIBRARIES, MODELS, CodedLabels, reading
from fareg.workflow._roles import RequestedRoles, assign_roles, is_id
from shell import SMALL, refused, run

TABLE = pd.DataFrame(
    {
        "id": [f"p{i}" for i in range(6)],
        "age": [30, 30, 40, 40, 50, 50],
        "sex": list("fmfmfm"),
        "dose": np.arange(6) / 7,
        "w": [1.0, 2.0, 1.0, 2.0, 1.0, 2.0],
        "y": list("abcabc"),
    }
)
WEIGHTED = SMALL.assign(
    id=range(1000, 1000 + len(SMALL)), weight=np.arange(len(SMALL)) % 3 + 1.0, note="same"
)


@pytest.fixture
def weighted(tmp_path):
    WEIGHTED.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def roles(probabilities=(), **given):
    return assign_roles(TABLE.drop(columns="id"), RequestedRoles("y", **given), probabilities)


def test_every_column_has_one_role():
    plain = roles()
    assert (plain.features, plain.others) == (["age", "sex", "dose", "w"], [])
    told = roles(not_features=["sex"], drop=["dose"], ids="w")
    assert (told.features, told.others) == (["age"], ["sex"])
    assert told.left_out == {"dose": "dropped", "w": "ids"}
    assert told.sensitive is None
    # columns that the model does not read define groups, whichever others are named
    named = roles(not_features=["sex"], sensitive=["age"])
    assert (named.sensitive, named.others) == (["age", "sex"], ["sex"])
    # what is neither read nor sensitive is not asked for
    few = roles(features=["dose", "age"], sensitive=["sex"])
    assert few.columns == ["dose", "age", "sex"]


def test_a_column_that_identifies_rows_is_left_out_unless_it_is_named():
    with pytest.warns(fareg.FaregWarning, match="id: different in every row"):
        found = assign_roles(TABLE, RequestedRoles("y"))
    assert found.left_out == {"id": "id"}
    assert "id" in assign_roles(TABLE, RequestedRoles("y", features=["id"])).features
    assert is_id(TABLE["id"])
    assert not is_id(TABLE["dose"])  # measurements differ in every row too


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ids": "y"}, "column y cannot be both the target and the column of ids"),
        ({"features": ["age"], "not_features": ["age"]}, "a feature and not a feature"),
        ({"drop": ["sex"], "sensitive": ["sex"]}, "column sex cannot be both dropped and sens"),
        ({"drop": ["age", "sex", "dose", "w"]}, "no column left that the model could read"),
        ({"ids": "ag"}, "did you mean age?"),
    ],
)
def test_roles_that_contradict_are_refused(given, words):
    with pytest.raises(fareg.FaregError, match=words):
        roles(**given)


def test_a_model_that_reads_some_columns_is_the_model_trained_on_them():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=80), "b": rng.choice(["u", "v"], 80), "c": 0.0})
    y = rng.choice(["yes", "no"], 80)
    plain = make_pipeline(one_hot_encoder(), LogisticRegression())
    some = reading(plain, ["b", "a"]).fit(X, y).predict_proba(X.assign(c="anything"))
    np.testing.assert_array_equal(some, plain.fit(X[["b", "a"]], y).predict_proba(X[["b", "a"]]))


@pytest.mark.parametrize("name", ["hgb", "logistic", "mlp", "xgboost", "lightgbm"])
def test_training_weights_count_rows(name):
    if name in LIBRARIES:
        pytest.importorskip(name)
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60)})
    y = np.where(rng.random(60) < 0.5, "yes", "no")
    heavy = np.where(y == "yes", 100.0, 1.0)
    model = reading(MODELS[name](0), ["a"])
    options = {"cv": 2, "clusters": None, "seed": 0}
    plain, more = (
        out_of_fold_proba(model, X, y, ["no", "yes"], **options, weights=weights)[:, 1].mean()
        for weights in (None, heavy)
    )
    assert more > plain + 0.05
    assert trained(model, X, y, heavy).predict_proba(X)[:, 1].mean() > 0.4


def test_a_model_without_weights_says_so():
    from sklearn.neighbors import KNeighborsClassifier

    with pytest.raises(fareg.FaregError, match="KNeighborsClassifier takes no training weights"):
        trained(make_pipeline(KNeighborsClassifier()), [[0.0], [1.0]], [0, 1], np.ones(2))


def test_labels_of_any_type_reach_a_classifier_that_wants_numbers():
    X, y = np.arange(20.0)[:, None], np.array(["b", "a"] * 10)
    coded = CodedLabels(gradient_boosting(0)).fit(X, y)
    assert coded.classes_.tolist() == ["a", "b"]
    assert set(coded.classifier_.classes_) == {0, 1}
    assert set(coded.predict(X)) <= {"a", "b"}
    network = MODELS["mlp"](0).fit(X, y)
    assert network.classes_.tolist() == ["a", "b"]
    assert network[-1].classifier_.classes_.tolist() == [0, 1]


def test_a_library_that_is_not_installed_is_named_with_its_command(weighted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    options = ("--target", "outcome", "--estimator", "catboost", "--out", tmp_path / "m.fareg")
    assert "pip install catboost" in refused("fit", weighted, *options)


@pytest.mark.slow
def test_the_model_file_remembers_which_columns_are_which(weighted, tmp_path):
    out = tmp_path / "m.fareg"
    options = {"target": "outcome", "conformity_score": "lac", "estimator": "logistic"}
    columns = {"not_features": ["Gender"], "drop": ["note", "weight"]}
    with pytest.warns(fareg.FaregWarning, match="id: different in every row"):
        fit_file(weighted, out=out, **options, **columns)
    found = describe(out)
    assert found["columns"] == ["Color", "Feature 1", "Gender"]
    assert found["parameters"]["conformity_score"] == "lac"
    assert found["metadata"]["not_features"] == ["Gender"]
    assert found["metadata"]["left_out"] == {"note": "dropped", "weight": "dropped", "id": "id"}
    clf = fareg.load(out)
    X = WEIGHTED[found["columns"]]
    other = X.assign(Gender="nobody")
    with fareg.accept_drift(), pytest.warns(fareg.FaregWarning, match="nobody"):
        np.testing.assert_array_equal(clf.predict_proba(X), clf.predict_proba(other))
    # new rows need neither weights nor ids
    X.to_csv(tmp_path / "new.csv", index=False)
    run("predict", out, tmp_path / "new.csv", "--out", tmp_path / "sets.csv")


@pytest.mark.slow
def test_the_shell_says_that_clusters_count_once(tmp_path):
    SMALL.assign(who=np.arange(len(SMALL)) // 3).to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "outcome", "--estimator", "logistic", "--clusters", "who"]
    options += ["--protect", "Gender = Female"]
    done = run("fit", tmp_path / "t.csv", *options, "--out", tmp_path / "m.fareg")
    assert re.search(r"^Gender = Female \(protected\) +\d", done.stdout, re.MULTILINE)
    shown = " ".join(done.stdout.split())
    options = ["--target", "outcome", "--state", tmp_path / "s.json"]
    done = run("monitor", tmp_path / "m.fareg", tmp_path / "t.csv", *options)
    assert re.match(
        r"([\d,]+) new rows, one drawn from each of ([\d,]+) clusters, \2 in", done.stdout
    )
    assert re.search(r"90% promised, for a random row of a random cluster \(\d+ rows in", shown)


@pytest.mark.slow
def test_rows_without_a_label_are_left_out(tmp_path):
    gaps = SMALL.assign(outcome=SMALL["outcome"].where(np.arange(len(SMALL)) % 4 > 0))
    gaps.to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "outcome", "--estimator", "logistic", "--out", tmp_path / "m.fareg"]
    options += ["--json", "--test-out", tmp_path / "test.csv"]
    told = json.loads(run("fit", tmp_path / "t.csv", *options).stdout)
    assert sum(told["rows"].values()) == 90
    assert "30 of 120 rows have no outcome and are left out" in told["warnings"]
    kept = pd.read_csv(tmp_path / "test.csv")
    assert kept["outcome"].notna().all()
    assert len(kept) == told["rows"]["test"]
    audit = ["audit", tmp_path / "t.csv", "--target", "outcome", "--model", tmp_path / "m.fareg"]
    told = json.loads(run(*audit, "--json").stdout)
    assert told["data"]["n_samples"] == len(kept)  # the rows that the model has not seen
    assert "30 of 120 rows have no outcome and are left out" in told["warnings"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--score", "asp"], "--score must be one of"),
        (["--not-features", "Color,Nothing"], "has no column Nothing"),
    ],
)
def test_bad_columns_are_refused_in_one_line(options, words, weighted, tmp_path):
    before = set(os.listdir(tmp_path))
    base = ("--target", "outcome", "--out", tmp_path / "m.fareg")
    assert words in refused("fit", weighted, *base, *options)
    assert set(os.listdir(tmp_path)) == before


def test_clusters_without_an_id_are_refused(tmp_path):
    WEIGHTED.assign(id=WEIGHTED["id"].where(WEIGHTED.index > 1)).to_csv(tmp_path / "t.csv")
    options = {"target": "outcome", "clusters": "id", "out": tmp_path / "m.fareg"}
    with pytest.raises(fareg.FaregError, match="the clusters id have 2 missing ids in 120 rows"):
        fit_file(tmp_path / "t.csv", **options)
