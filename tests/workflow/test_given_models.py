"""A user's model through the shell: probabilities in the table, and skops files."""

import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fareg
from fareg.persistence import describe, read_estimator
from fareg.workflow import fit_file
from fareg.workflow._models import match_labels
from shell import refused, run

LABELS = np.array(["high", "low", "mid"])
PROBA = [f"p_{label}" for label in LABELS]
READ = ["dose", "visits", "drug"]


class OwnModel(ClassifierMixin, BaseEstimator):
    """A classifier of an unknown type, with the same probabilities for everyone."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def people(n, seed):
    rng = np.random.default_rng(seed)
    dose = rng.normal(size=n).round(3)
    frame = pd.DataFrame(
        {
            "id": [f"p{seed}-{i}" for i in range(n)],
            "dose": dose,
            "visits": rng.integers(0, 9, n),
            "drug": rng.choice(["a", "b"], n),
            "age": rng.integers(18, 90, n),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    return frame.assign(y=LABELS[np.digitize(dose + rng.normal(size=n), [-0.7, 0.7])])


@pytest.fixture(scope="module")
def model():
    """Return a pipeline that was trained on other people."""
    columns = ColumnTransformer(
        [
            ("t", OneHotEncoder(handle_unknown="ignore"), ["drug"]),
            ("n", StandardScaler(), ["dose", "visits"]),
        ]
    )
    trained = people(400, 1)
    return make_pipeline(columns, LogisticRegression()).fit(trained[READ], trained["y"])


@pytest.fixture(scope="module")
def rows(model):
    """Return people with their rounded probabilities of the model."""
    frame = people(360, 0)
    return frame.assign(
        **dict(zip(PROBA, model.predict_proba(frame[READ]).T.round(6), strict=True))
    )


@pytest.fixture(scope="module")
def place(rows, tmp_path_factory):
    """Return a folder with the table, and a model file that was calibrated on its probabilities."""
    folder = tmp_path_factory.mktemp("given")
    rows.to_csv(folder / "t.csv", index=False)
    options = ("--proba", ",".join(PROBA), "--sensitive", "age,sex", "--json")
    options += ("--out", folder / "m.fareg", "--test-out", folder / "test.csv")
    done = run("fit", folder / "t.csv", "--target", "y", *options)
    (folder / "fit.json").write_text(done.stdout)
    return folder


def test_probabilities_are_calibrated_and_nothing_is_trained(place, rows):
    told = json.loads((place / "fit.json").read_text())
    assert told["rows"] == {"learn": 144, "calibrate": 144, "test": 72}
    assert told["about"]["base_model"] == "columns p_high, p_low, p_mid"
    test = pd.read_csv(place / "test.csv")
    top = LABELS[test[PROBA].to_numpy().argmax(axis=1)]
    assert told["accuracy"] == pytest.approx((top == test["y"]).mean())
    found = describe(place / "m.fareg")
    assert found["columns"] == [*PROBA, "age", "sex"]  # no id, and nothing that nobody asks for
    assert found["classes"] == list(LABELS)
    assert found["untrusted"] == []
    clf = fareg.load(place / "m.fareg")
    proba = clf.predict_proba(rows[found["columns"]])
    np.testing.assert_allclose(proba, rows[PROBA].to_numpy(), atol=2e-4)


def test_every_command_works_on_calibrated_probabilities(place, rows, tmp_path):
    model, out = place / "m.fareg", tmp_path / "sets.csv"
    run("predict", model, place / "t.csv", "--out", out, "--keep", "id", batch_rows=50)
    X = rows[describe(model)["columns"]]
    expected = fareg.load(model).predict_table(X)
    assert pd.read_csv(out)["set"].fillna("").tolist() == expected["set"].tolist()
    for drug, part in rows.groupby("drug"):
        part.to_parquet(tmp_path / f"{drug}.parquet")
    os.mkdir(tmp_path / "parts")
    for drug in "ab":
        os.rename(tmp_path / f"{drug}.parquet", tmp_path / "parts" / f"{drug}.parquet")
    run("predict", model, tmp_path / "parts", "--out", tmp_path / "answers", "--engine", "local:1")
    parts = [pd.read_parquet(tmp_path / "answers" / f"{drug}.parquet") for drug in "ab"]
    assert sum(map(len, parts)) == len(rows)
    assert "columns p_high" in run("info", model).stdout
    with_gap(rows).to_csv(tmp_path / "gap.csv", index=False)
    more = tmp_path / "more.csv"
    line = refused("predict", model, tmp_path / "gap.csv", "--out", more, batch_rows=5)
    assert "after the first 5 rows of" in line
    assert "got nan in row 2;" in line
    audited = json.loads(
        run("audit", place / "test.csv", "--target", "y", "--model", model, "--json").stdout
    )
    assert audited.pop("about")["base_model"].startswith("columns p_")
    assert "p_high" not in json.dumps(audited)  # probabilities define no groups


def test_an_audit_numbers_rows_as_they_stand_in_the_file(place, rows, tmp_path):
    seen = rows[~rows["id"].isin(pd.read_csv(place / "test.csv")["id"])][:5]
    table = pd.concat([seen, with_gap(people(9, 5).assign(**dict.fromkeys(PROBA, 1 / 3)))])
    table.to_csv(tmp_path / "t.csv", index=False)
    line = refused("audit", tmp_path / "t.csv", "--target", "y", "--model", place / "m.fareg")
    assert "got nan in row 12;" in line  # rows that were seen are counted


def test_labels_and_columns_may_be_paired_or_begin_alike(place, tmp_path):
    pairs = ",".join(f"{label}={name}" for label, name in zip(LABELS, PROBA, strict=True))
    told = []
    for given in (pairs, "p_*"):
        options = ("--proba", given, "--sensitive", "age,sex", "--out", tmp_path / "m.fareg")
        told.append(
            json.loads(run("fit", place / "t.csv", "--target", "y", *options, "--json").stdout)
        )
    same = ("rows", "accuracy", "before", "after")
    expected = json.loads((place / "fit.json").read_text())
    assert [{name: one[name] for name in same} for one in told] == [
        {name: expected[name] for name in same}
    ] * 2


def percent(rows):
    return rows.assign(**{name: rows[name] * 100 for name in PROBA})


def logits(rows):
    return rows.assign(**{name: np.log(rows[name]) for name in PROBA})


def with_gap(rows):
    return rows.assign(p_low=rows["p_low"].where(rows.index != 7))


def commas(rows):
    return rows.assign(**{name: rows[name].astype(str).str.replace(".", ",") for name in PROBA})


def thousand(rows):
    more = pd.DataFrame(0.001, index=rows.index, columns=[f"q_{j}" for j in range(1000)])
    return pd.concat([rows, more], axis=1)


@pytest.mark.parametrize(
    ("change", "given", "words"),
    [
        (None, "p_hig,p_low,p_mid", "has no column p_hig; did you mean p_high?"),
        (None, "q_*", "no column whose name begins with q_"),
        (None, "p_high,p_low", "no column is given for the label mid"),
        (None, "p_mid", "the target holds 3 (high, low, mid); give a column for each"),
        (None, "a=p_high,b=p_low,c=p_mid", "labels that the model does not know (high, low, mid)"),
        (None, "p_high,p_low,p_mid,sex", "column sex cannot be both a probability and sensitive"),
        (None, "p_high,p_low,p_mid,y", "cannot be both the target and a probability"),
        (None, "", "no columns of probabilities are named"),
        (None, "high=p_high,high=p_low", "pairs label=column of distinct labels"),
        (None, "p_high,p_low,p_mid,p_mid", "got p_mid twice"),
        (None, "p_*,x", "--proba must be a list of columns"),
        (percent, "p_*", "divide percent by 100"),
        (logits, "p_*", "apply softmax"),
        (with_gap, "p_*", "got nan in row 7;"),
        (thousand, "q_*", "write the label before each column, such as high=q_0"),
        (lambda rows: rows[:0], "p_*", "has no rows"),
        (lambda rows: rows.assign(p_mid="50%"), "p_*", "must hold numbers, got '50%'; write"),
        (commas, "p_*", "; write 0.5, not 50% or 0,5"),
        (lambda rows: rows[[*PROBA, "y"]], "p_*", "has no column"),
    ],
)
def test_what_are_no_probabilities_is_refused_in_one_line(change, given, words, rows, tmp_path):
    table = rows if change is None else change(rows)
    table.to_csv(tmp_path / "t.csv", index=False)
    options = ("--proba", given, "--sensitive", "age,sex", "--out", tmp_path / "m.fareg")
    assert words in refused("fit", tmp_path / "t.csv", "--target", "y", *options)
    assert os.listdir(tmp_path) == ["t.csv"]


def test_one_column_is_enough_for_two_labels(rows, tmp_path):
    two = rows.assign(y=np.where(rows["y"] == "high", 1, 0))[["p_high", "age", "sex", "y"]]
    two.to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "y", "--out", tmp_path / "m.fareg")
    line = refused("fit", tmp_path / "t.csv", *options, "--proba", "p_high")
    assert "such as 1=p_high" in line
    assert "the target has no label a, got a=p_high" in refused(
        "fit", tmp_path / "t.csv", *options, "--proba", "a=p_high"
    )
    run("fit", tmp_path / "t.csv", *options, "--proba", "1=p_high")
    clf = fareg.load(tmp_path / "m.fareg")
    assert sorted(clf.classes_.tolist()) == [0, 1]
    proba = clf.predict_proba(two.drop(columns="y"))[:, clf.classes_.tolist().index(1)]
    np.testing.assert_allclose(proba, two["p_high"])


@pytest.mark.parametrize("given", ["p_<=9,p_>9", "<=9=p_<=9,>9=p_>9"])
def test_names_may_hold_the_sign_between_label_and_column(given, rows, tmp_path):
    signs = {"p_<=9": rows["p_low"], "p_>9": 1 - rows["p_low"]}
    table = rows[["age"]].assign(**signs, y=np.where(rows["y"] == "low", "<=9", ">9"))
    table.to_csv(tmp_path / "t.csv", index=False)
    run("fit", tmp_path / "t.csv", "--target", "y", "--proba", given, "--out", tmp_path / "m.fareg")
    clf = fareg.load(tmp_path / "m.fareg")
    assert clf.estimator_.columns_ == {"<=9": "p_<=9", ">9": "p_>9"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--estimator", "m.joblib"],
            "a pickle runs whatever code is in it; write the model",
        ),
        (["--estimator", "m.pkl"], "or give its probabilities as columns with --proba"),
        (["--estimator", "m.pt"], "must end in .skops,"),
        (["--estimator", "no.skops"], "there is no such file"),
        (["--proba", "p_*", "--estimator", "mlp"], "pass one model, got mlp and columns of prob"),
        (["--estimator", "m.onnx"], "give the probabilities of any other model as columns"),
        (["--proba", ",".join(PROBA), "--drop", "p_low"], "both dropped and a probability"),
    ],
)
def test_models_that_cannot_be_taken_are_refused_at_once(options, words, place, tmp_path):
    fixed = ("--target", "y", "--out", tmp_path / "m.fareg")
    assert words in refused("fit", place / "t.csv", *fixed, *options)
    assert os.listdir(tmp_path) == []


def test_a_skops_model_is_calibrated_as_its_probabilities_are(model, rows, place, tmp_path):
    skops.io.dump(model, tmp_path / "m.skops")
    options = ("--target", "y", "--sensitive", "age,sex", "--out", tmp_path / "m.fareg", "--json")
    told = json.loads(
        run("fit", place / "t.csv", *options, "--estimator", tmp_path / "m.skops").stdout
    )
    expected = json.loads((place / "fit.json").read_text())
    assert told["accuracy"] == expected["accuracy"]
    assert told["rows"] == expected["rows"]
    found = describe(tmp_path / "m.fareg")
    assert found["columns"] == [*READ, "age", "sex"]
    assert found["metadata"]["not_features"] == ["age", "sex"]
    clf = fareg.load(tmp_path / "m.fareg")
    np.testing.assert_array_equal(
        clf.predict_proba(rows[found["columns"]]), model.predict_proba(rows[READ])
    )
    fixed = {"target": "y", "out": tmp_path / "m.fareg", "features": ["dose"]}
    with pytest.raises(fareg.FaregError, match="knows the features that it reads"):
        fit_file(place / "t.csv", estimator=tmp_path / "m.skops", **fixed)
    with pytest.raises(fareg.FaregError, match="leave out feat"):
        fit_file(place / "t.csv", probabilities="p_", **fixed)


def test_unknown_types_in_a_skops_model_are_named_with_the_flag(rows, place, tmp_path):
    skops.io.dump(OwnModel().fit(rows, rows["y"]), tmp_path / "m.skops")
    fixed = ("--target", "y", "--sensitive", "sex", "--out", tmp_path / "m.fareg")
    line = refused("fit", place / "t.csv", *fixed, "--estimator", tmp_path / "m.skops")
    assert f"add --trust {OwnModel.__module__}.OwnModel" in line
    asked = (*fixed, "--estimator", tmp_path / "m.skops")
    names = line.partition("add --trust ")[2].strip()
    done = run("fit", place / "t.csv", *asked, "--trust", names)
    warned = "runs code of these types, so you must trust them by name: add --trust "
    assert f"{warned}{OwnModel.__module__}.OwnModel" in done.stderr
    assert "fareg.load" not in done.stderr
    assert f"\nneeds --trust {OwnModel.__module__}.OwnModel" in run("info", fixed[-1]).stdout
    with pytest.raises(fareg.FaregError, match="not trusted"):
        read_estimator(tmp_path / "m.skops")
    (tmp_path / "bad.skops").write_bytes(pickle.dumps({}))
    assert "cannot be read as a skops file" in refused(
        "fit", place / "t.csv", *fixed, "--estimator", tmp_path / "bad.skops"
    )


def test_labels_take_the_type_of_the_classes():
    assert match_labels(np.array(["1", "0"]), np.array([0, 1])).tolist() == [1, 0]
    kept = match_labels(np.array(["no", "unknown"], dtype=object), np.array(["no", "yes"]))
    assert kept.tolist() == ["no", "unknown"]  # a label that the model never saw stays one
    with pytest.raises(fareg.FaregError, match=r"does not know \(2\); its classes are 0, 1"):
        match_labels(np.array([0, 2]), np.array([0, 1]))


def test_predict_asks_for_sensitive_columns_only_where_the_method_needs_them(model, rows, tmp_path):
    new = rows.drop(columns=["age", "sex"])
    new.to_csv(tmp_path / "new.csv", index=False)
    rows.to_csv(tmp_path / "all.csv", index=False)
    who, frozen = rows[["sex"]], FrozenEstimator(model)
    split = fareg.SplitConformalClassifier(frozen, random_state=0)
    groups = fareg.PartialConformalClassifier(frozen, random_state=0)
    for clf, name in ((split, "split.fareg"), (groups, "groups.fareg")):
        clf.conformalize(rows[READ], rows["y"], sensitive_features=who)
        fareg.save(clf, tmp_path / name)
    out = tmp_path / "sets.csv"
    run("predict", tmp_path / "split.fareg", tmp_path / "new.csv", "--out", out)
    assert pd.read_csv(out)["size"].tolist() == split.predict_set(rows[READ]).sum(axis=1).tolist()
    line = refused("predict", tmp_path / "groups.fareg", tmp_path / "new.csv", "--out", out)
    assert "has no column sex" in line
    run("predict", tmp_path / "groups.fareg", tmp_path / "all.csv", "--out", out)
    sets = groups.predict_set(rows[READ], sensitive_features=who)
    assert pd.read_csv(out)["size"].tolist() == sets.sum(axis=1).tolist()
    # an audit may look at people whom neither the model nor the method asks about
    options = ("--target", "y", "--model", tmp_path / "groups.fareg", "--json", "--sensitive")
    told = json.loads(run("audit", tmp_path / "all.csv", *options, "age,sex").stdout)
    assert told["overall"]["coverage"] == pytest.approx(
        sets[np.arange(len(rows)), np.searchsorted(LABELS, rows["y"])].mean()
    )


VENDOR = ("vendor score: FAIL, prob.", ' p "pass" ')


@pytest.fixture
def vendor(tmp_path):
    """Return a command whose columns of probabilities have names that need quotation marks."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 300)
    table = pd.DataFrame({VENDOR[0]: p, VENDOR[1]: 1 - p, "sex": rng.choice(["f", "m"], 300)})
    table["y"] = np.where(rng.random(300) < p, "Fail", "Pass")
    table.to_csv(tmp_path / "t.csv", index=False)
    return ("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m.fareg", "--proba")


@pytest.mark.parametrize(
    "given",
    [
        'Fail="vendor score: FAIL, prob."',
        'Fail="vendor score: FAIL, prob.",Pass=" p ""pass"" "',
        '"Pass" = " p ""pass"" " , "Fail" = "vendor score: FAIL, prob."',
    ],
)
def test_names_in_pairs_stand_in_quotation_marks(vendor, given, tmp_path):
    run(*vendor, given)
    estimator = fareg.load(tmp_path / "m.fareg").estimator_
    assert estimator.columns_["Fail"] == VENDOR[0]


def test_an_error_names_a_form_that_works(vendor):
    form = (
        refused(*vendor, '"vendor score: FAIL, prob."," p ""pass"" "').strip().split("such as ")[1]
    )
    assert form == 'Fail="vendor score: FAIL, prob."'
    run(*vendor, form)
