"""A fit and an audit of its test rows report the same."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fareg import load
from fareg.cli import app
from fareg.datasets import make_synthetic
from fareg.workflow import audit_file, fit_file, predict_file

pytestmark = pytest.mark.usefixtures("small_searches")


def fitted(folder, seed, **options):
    """Fit a table in which two people in three have several rows; return what is left, as JSON."""
    data = make_synthetic(1000, random_state=seed)
    who = np.random.default_rng(seed).integers(0, 600, 1000)
    data.X.assign(who=who, y=data.y).to_csv(folder / "all.csv", index=False)
    trial = fit_file(
        folder / "all.csv",
        target="y",
        out=folder / "m.fareg",
        estimator="logistic",
        test_out=folder / "test.csv",
        seed=seed,
        **options,
    )
    return trial.to_dict()["left"]


@pytest.mark.parametrize(
    ("seed", "roles"),
    [
        (0, {"sensitive": ["Region", "Gender", "Color"], "drop": ["who"]}),
        (1, {"sensitive": ["Color", "Gender"], "clusters": "who"}),
        (1, {"sensitive": ["Color", "Gender"], "clusters": "who", "ids": "who"}),
        (2, {"ids": "who"}),
        (2, {"drop": ["who"]}),
        (3, {"sensitive": ["Color", "Gender"], "drop": ["who"]}),
    ],
)
def test_fit_and_audit_of_its_test_rows_agree(seed, roles, tmp_path):
    left = fitted(tmp_path, seed, **roles)
    again = audit_file(tmp_path / "test.csv", target="y", model=tmp_path / "m.fareg")
    told = again.to_dict()
    assert {name: told[name] for name in left} == left
    assert (told["overall"]["n_clusters"] is None) == ("clusters" not in roles)
    assert ("the model's sensitive features" in str(again)) == ("sensitive" in roles)


def test_a_fit_with_clusters_names_groups_by_one_row_of_each_person(tmp_path):
    """Every person has two rows in the table, and counts once as evidence."""
    data = make_synthetic(3000, random_state=5)
    table = data.X.assign(who=np.arange(3000), y=data.y)
    table.loc[table.index.repeat(2)].to_csv(tmp_path / "all.csv", index=False)
    options = {"estimator": "logistic", "sensitive": ["Color", "Gender"], "clusters": "who"}
    fit_file(tmp_path / "all.csv", target="y", out=tmp_path / "m.fareg", **options)
    clf = load(tmp_path / "m.fareg")
    named = clf.named_groups_[0]
    assert clf.n_calibration_ == 2 * clf.n_calibration_clusters_
    assert named.share * clf.n_calibration_clusters_ == pytest.approx(named.n_calibration)
    # those who share a threshold are all people, or the others where one of them is the named group
    n_people = clf.groups_["n_calibration"][clf.groups_["rule"] == ""].sum()
    others = clf.n_calibration_clusters_ - named.n_calibration
    assert n_people in (clf.n_calibration_clusters_, others)


def test_clusters_of_the_model_that_the_table_lacks_are_told(tmp_path):
    fitted(tmp_path, 1, sensitive=["Color", "Gender"], clusters="who")
    table, model, page = tmp_path / "test.csv", tmp_path / "m.fareg", tmp_path / "a.html"
    words = "clusters who, which {}: rows were counted as independent"
    assert "counted as independent" not in str(audit_file(table, target="y", model=model))
    taken = audit_file(table, target="y", model=model, sensitive=["who"])
    assert words.format("has another role") in str(taken)
    pd.read_csv(table).drop(columns="who").to_csv(table, index=False)
    shell = ["audit", str(table), "--target", "y", "--model", str(model), "--report", str(page)]
    told = CliRunner().invoke(app, [*shell, "--json"]).stdout
    lacks = words.format("is not a column of this table")
    for text in (told, CliRunner().invoke(app, shell).stdout, page.read_text(encoding="utf-8")):
        assert lacks in text
    given = audit_file(table, target="y", model=model, clusters="Region")
    assert "counted as independent" not in str(given)


def test_a_model_is_audited_in_its_own_sensitive_features_unless_others_are_named(tmp_path):
    fitted(tmp_path, 0, sensitive=["Gender", "Color"], not_features=["Color"], drop=["who"])
    table, model = tmp_path / "test.csv", tmp_path / "m.fareg"
    own = audit_file(table, target="y", model=model)
    assert own.sensitive_features == ("Gender", "Color")
    assert "sensitive features were searched for groups: Gender, Color;" in str(own)
    other = audit_file(table, target="y", model=model, sensitive=["Region"])
    assert other.sensitive_features == ("Region",)
    assert "the model's sensitive features" not in str(other)
    shell = ["audit", str(table), "--target", "y", "--model", str(model)]
    assert CliRunner().invoke(app, shell).stdout.strip() == str(own)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_a_boolean_target_may_have_gaps(tmp_path, ending):
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    table = pd.DataFrame({"x": x, "sex": rng.choice(["f", "m"], 400)})
    table["y"] = (x + rng.normal(size=400) > 0).astype(object)
    table.loc[::8, "y"] = None
    path, model = tmp_path / f"t.{ending}", tmp_path / "m.fareg"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    asked = {"target": "y"}
    trial = fit_file(path, out=model, estimator="logistic", test_out=tmp_path / "new.csv", **asked)
    assert trial.clf.classes_.tolist() == [False, True]
    assert sum(trial.to_dict()["rows"].values()) == 350
    audited = audit_file(tmp_path / "new.csv", model=model, **asked).to_dict()["overall"]
    assert audited["coverage"] == trial.to_dict()["after"]["coverage"]


def test_a_column_of_texts_may_hold_only_dates_in_a_file_to_audit(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    table = pd.DataFrame({"x": x, "seen": ["2020-01-31", "2020-02-28"] * 200})
    table["y"] = np.where(x + rng.normal(size=400) > 0, "2021-01-01", "never")
    table.loc[:3, "seen"] = "unknown"
    table[:300].to_csv(tmp_path / "t.csv", index=False)
    table[300:].to_csv(tmp_path / "new.csv", index=False)
    model, answers = tmp_path / "m.fareg", tmp_path / "sets.csv"
    fit_file(tmp_path / "t.csv", target="y", out=model, estimator="logistic")
    predict_file(model, tmp_path / "new.csv", answers, keep=["y", "seen"])
    from_model = audit_file(tmp_path / "new.csv", target="y", model=model)
    from_sets = audit_file(answers, target="y", sets=["set"], sensitive=["seen"])
    assert from_model.coverage == from_sets.coverage
