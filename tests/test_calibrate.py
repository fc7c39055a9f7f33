"""A model calibrated on a folder has the thresholds of all its rows, whoever scores or dies."""

import json
import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from typer.testing import CliRunner

import fareg
from fareg import FaregError, FaregWarning
from fareg._encoding import ordinal_encoder
from fareg.cli import app
from fareg.datasets import make_synthetic
from fareg.persistence import ModelFile
from fareg.workflow import audit_file, calibrate_file
from forked import dask_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning"),
]
DATA = make_synthetic(3000, random_state=0)
X = DATA.X[["Color", "Gender", "Feature 1"]]
Y = np.array([f"class {label}" for label in DATA.y])
FITTED = slice(0, 900)
N_PARTS = 8
LEARNER = DecisionTreeRegressor(max_depth=3, min_samples_leaf=20, random_state=0)


def fitted(**parameters):
    tree = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=4, random_state=0))
    clf = fareg.FaReGClassifier(
        FrozenEstimator(tree.fit(X[:300], Y[:300])),
        sensitive_features=["Color", "Gender"],
        learner=LEARNER,
        random_state=0,
        **parameters,
    )
    return clf.conformalize(X[300:900], Y[300:900])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with two models and rows in parts by colour, some of which they have seen."""
    folder = tmp_path_factory.mktemp("calibrate")
    for name, clf in {"m": fitted(), "labels": fitted(label_conditional=True)}.items():
        fareg.save(clf, folder / f"{name}.fareg", seen=(X[FITTED], Y[FITTED]))
    rows = X.assign(outcome=Y)[600:]
    for color, some in rows.groupby("Color"):
        (folder / "parts" / f"Color={color}").mkdir(parents=True)
        for part, piece in enumerate(np.array_split(np.arange(len(some)), N_PARTS // 2)):
            path = folder / "parts" / f"Color={color}" / f"{part}.parquet"
            some.iloc[piece].drop(columns="Color").to_parquet(path)
    return folder


def test_sensitive_features_may_lie_beside_the_table(place, tmp_path):
    read, beside = X[["Feature 1"]], X[["Color", "Gender"]]
    tree = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=4, random_state=0))
    clf = fareg.FaReGClassifier(
        FrozenEstimator(tree.fit(read[:300], Y[:300])),
        learner=LEARNER,
        random_state=0,
    ).conformalize(read[300:900], Y[300:900], sensitive_features=beside[300:900])
    fareg.save(clf, tmp_path / "m.fareg", seen=(read[FITTED], Y[FITTED]))
    told = calibrate_file(
        tmp_path / "m.fareg",
        place / "parts",
        target="outcome",
        out=tmp_path / "new.fareg",
        jobs=1,
    )
    assert told["left_out"] >= 300
    assert len(clf.thresholds_) > 1
    assert [len(own) for own in told["thresholds"]] == [len(clf.thresholds_)]


def by_label(clf):
    """Return the thresholds of the levels, one list per label or one for all."""
    return [own.tolist() for own in clf.calibration_.parts[0].theta]


@pytest.mark.parametrize("name", ["m", "labels"])
@pytest.mark.parametrize("batch_size", [100, 50_000])
def test_a_folder_calibrates_as_all_its_new_rows_in_one_memory(name, batch_size, place, tmp_path):
    out, before = tmp_path / "new.fareg", fareg.load(place / f"{name}.fareg")
    with pytest.warns(FaregWarning, match="300 of 2400 rows equal rows that were used to train"):
        told = calibrate_file(
            place / f"{name}.fareg",
            place / "parts",
            target="outcome",
            out=out,
            jobs=1,
            batch_size=batch_size,
        )
    assert (told["rows"], told["left_out"]) == (2100, 300)
    after, expected = fareg.load(out), before.recalibrated(X[900:], Y[900:])
    assert name == "labels" or len(before.thresholds_) > 1
    assert told["thresholds"] == by_label(after) == by_label(expected)
    assert after.n_calibration_ == expected.n_calibration_ == 2100
    np.testing.assert_array_equal(after.predict_set(X), expected.predict_set(X))
    np.testing.assert_array_equal(after.predict_p(X), expected.predict_p(X))
    pd.testing.assert_frame_equal(after.groups_, expected.groups_)
    levels = after.groups_[~after.groups_["named"]]
    assert levels["n_calibration"].sum() == 2100
    assert fareg.persistence.describe(out)["metadata"]["calibrated"]["rows"] == 2100


def test_protected_groups_keep_a_threshold_of_their_own(place, tmp_path):
    clf = fitted(protect=[fareg.Rule.parse("Color = Red and Gender = Female")])
    fareg.save(clf, tmp_path / "m.fareg")
    X.assign(outcome=Y)[900:].to_parquet(tmp_path / "rows.parquet")
    out = tmp_path / "new.fareg"
    calibrate_file(tmp_path / "m.fareg", tmp_path / "rows.parquet", target="outcome", out=out)
    after, expected = fareg.load(out), clf.recalibrated(X[900:], Y[900:])
    assert after.protected_ == clf.protected_
    inside = clf.protected_[0].inside(X[900:])
    scores = clf.labelled_rows(X[900:], Y[900:]).score[inside]
    own = fareg.pvalues.conformal_quantile(scores, confidence_level=0.9)
    assert after.calibration_.parts[1].quantiles.tolist() == [[own]]
    np.testing.assert_array_equal(after.predict_set(X), expected.predict_set(X))


def discrete_rows(n, seed):
    """Return rows of which most equal others, with an id of each."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "Color": rng.choice(["Blue", "Red"], n),
            "Gender": rng.choice(["Female", "Male"], n),
            "Feature 1": rng.integers(0, 5, n) / 5,
        }
    )
    return table.assign(outcome=rng.choice(np.unique(Y), n), person=rng.permutation(n) + 10**6)


@pytest.mark.parametrize("ids", [None, "person"])
@pytest.mark.parametrize("batch_size", [37, 50_000])
def test_equal_rows_are_numbered_over_all_parts(ids, batch_size, place, tmp_path):
    rows = discrete_rows(900, 0)
    (tmp_path / "parts").mkdir()
    for part, piece in enumerate(np.array_split(np.arange(900), 4)):
        rows.iloc[piece].to_parquet(tmp_path / "parts" / f"{part}.parquet")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    clf = fareg.load(place / "m.fareg")
    asked = rows[list(X)], rows["outcome"].to_numpy()
    of_people = {} if ids is None else {"ids": rows[ids]}
    assert len(np.unique(clf.labelled_rows(*asked, **of_people).u)) == 900
    expected = clf.recalibrated(*asked, **of_people)
    for data in ("parts", "rows.csv"):
        told = calibrate_file(
            place / "m.fareg",
            tmp_path / data,
            target="outcome",
            out=tmp_path / "new.fareg",
            ids=ids,
            batch_size=batch_size,
            jobs=1,
        )
        assert told["thresholds"] == by_label(expected)


def test_a_worker_that_dies_changes_nothing(place, tmp_path):
    pytest.importorskip("distributed")
    common = {"target": "outcome", "batch_size": 100}
    alone = calibrate_file(
        place / "m.fareg", place / "parts", out=tmp_path / "one.fareg", jobs=1, **common
    )
    rounds, died = [], []
    with dask_cluster() as cluster:
        victim = next(iter(cluster.workers.values())).pid

        def kill():
            deadline = time.monotonic() + 60
            while not rounds and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.3)  # it is loading the model, or scores
            os.kill(victim, signal.SIGKILL)
            died.append(len(rounds))

        thread = threading.Thread(target=kill)
        thread.start()
        told = calibrate_file(
            place / "m.fareg",
            place / "parts",
            out=tmp_path / "two.fareg",
            engine=cluster.scheduler_address,
            progress=rounds.append,
            **common,
        )
        thread.join()
    assert died
    assert told == alone
    one, two = (fareg.load(tmp_path / f"{name}.fareg") for name in ("one", "two"))
    np.testing.assert_array_equal(one.thresholds_, two.thresholds_)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.fareg", "two.fareg"]


def refused(match, *arguments, **options):
    with pytest.raises(FaregError, match=match) as caught:
        calibrate_file(*arguments, jobs=1, **options)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_calibrated_is_said_in_one_line(place, tmp_path):
    model, parts, out = place / "m.fareg", place / "parts", tmp_path / "new.fareg"
    refused("did you mean outcome", model, parts, target="outcom", out=out)
    refused("which is read too", model, parts, target="outcome", out=model)
    split = fareg.SplitConformalClassifier(fitted().estimator_).conformalize(X[900:], Y[900:])
    fareg.save(split, tmp_path / "split.fareg")
    refused(
        "can calibrate a FaReGClassifier",
        tmp_path / "split.fareg",
        parts,
        target="outcome",
        out=out,
    )
    rows = X.assign(outcome=Y)
    rows[FITTED].to_parquet(tmp_path / "seen.parquet")
    refused(
        "all equal rows that were used to train or calibrate",
        model,
        tmp_path / "seen.parquet",
        target="outcome",
        out=out,
    )
    rows[:0].to_csv(tmp_path / "header.csv", index=False)
    refused("has no rows; check", model, tmp_path / "header.csv", target="outcome", out=out)
    rows[900:].assign(outcome="other").to_parquet(tmp_path / "other.parquet")
    refused(
        "no label that the estimator knows, got other",
        model,
        tmp_path / "other.parquet",
        target="outcome",
        out=out,
    )
    rows[900:].assign(outcome=None).to_parquet(tmp_path / "none.parquet")
    refused(
        "has no label in any of 2100 rows",
        model,
        tmp_path / "none.parquet",
        target="outcome",
        out=out,
    )
    assert not out.exists()


def test_the_command_says_how_many_rows_calibrated(place, tmp_path):
    arguments = ["calibrate", place / "m.fareg", place / "parts", "--target", "outcome"]
    arguments += ["--out", tmp_path / "new.fareg", "--engine", "local:1", "--json"]
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["rows"], told["left_out"]) == (2100, 300)
    assert list(map(len, told["thresholds"])) == [len(fareg.load(place / "m.fareg").thresholds_)]
    rows = X.assign(outcome=Y)[600:]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    arguments[2] = tmp_path / "rows.csv"
    del arguments[-3:-1]
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["thresholds"] == told["thresholds"]


@pytest.mark.parametrize("kind", ["parts", "rows.csv"])
def test_rows_without_a_label_are_counted_and_left_out_if_asked(kind, place, tmp_path):
    rows = X.assign(outcome=Y)[600:]
    gaps = np.random.default_rng(0).random(len(rows)) < 0.1
    holes = rows.assign(outcome=rows["outcome"].where(~gaps))
    if kind == "parts":
        for color, some in holes.groupby("Color"):
            (tmp_path / kind / f"Color={color}").mkdir(parents=True)
            some = some.drop(columns="Color")
            some[:100].to_parquet(tmp_path / kind / f"Color={color}" / "0.parquet")
            some[100:].to_parquet(tmp_path / kind / f"Color={color}" / "1.parquet")
    else:
        holes.to_csv(tmp_path / kind, index=False)
    rows[~gaps].to_csv(tmp_path / "full.csv", index=False)
    out = tmp_path / "new.fareg"
    arguments = ("calibrate", place / "m.fareg", tmp_path / kind, "--target", "outcome")
    done, told = run(*arguments, "--out", out)
    assert done.exit_code == 0, told
    assert f"{gaps.sum()} of 2400 rows have no outcome and are left out" in told
    full = calibrate_file(
        place / "m.fareg", tmp_path / "full.csv", target="outcome", out=tmp_path / "full.fareg"
    )
    assert by_label(fareg.load(out)) == full["thresholds"]
    if kind != "parts":  # the file remembers its rows
        old, new = (ModelFile.open(tmp_path / name).seen for name in ("full.fareg", "new.fareg"))
        assert len(old.hashes) == len(new.hashes)


def test_words_for_missing_values_are_labels_as_in_fit(tmp_path):
    words = np.where(Y == "class 1", "NA", Y)
    tree = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=4, random_state=0))
    clf = fareg.FaReGClassifier(
        FrozenEstimator(tree.fit(X[:300], words[:300])),
        learner=LEARNER,
        random_state=0,
    ).conformalize(X[300:900], words[300:900])
    fareg.save(clf, tmp_path / "m.fareg")
    X.assign(outcome=words)[900:].to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "new.fareg"
    with pytest.warns(FaregWarning, match=f"outcome holds NA in {(words[900:] == 'NA').sum()} of"):
        told = calibrate_file(
            tmp_path / "m.fareg", tmp_path / "t.csv", target="outcome", out=out, batch_size=500
        )
    assert told["rows"] == 2100
    X.assign(outcome=words)[900:].to_parquet(tmp_path / "t.parquet")  # it needs no words for gaps
    same = calibrate_file(
        tmp_path / "m.fareg", tmp_path / "t.parquet", target="outcome", out=tmp_path / "p.fareg"
    )
    assert told["thresholds"] == same["thresholds"]


def run(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done, " ".join(done.output.split())


def test_an_audit_leaves_out_the_rows_of_a_file_that_calibrated(place, tmp_path, small_searches):
    model, out, rows = place / "m.fareg", tmp_path / "new.fareg", X.assign(outcome=Y)
    rows[900:1900].to_csv(tmp_path / "some.csv", index=False)
    rows[900:].to_csv(tmp_path / "all.csv", index=False)
    asked = ("--target", "outcome", "--out", out)
    _, told = run("calibrate", model, tmp_path / "some.csv", *asked)
    assert "calibrated on 1,000 rows: model in" in told
    result = audit_file(tmp_path / "all.csv", target="outcome", model=out)
    assert result.n_samples == 1100
    assert any("1000 of 2100 rows equal rows that were used" in note for note in result.notes)
    refused(
        "all equal rows that were used",
        out,
        tmp_path / "some.csv",
        target="outcome",
        out=tmp_path / "twice.fareg",
    )
    _, told = run("audit", tmp_path / "some.csv", "--target", "outcome", "--model", out)
    assert "all 1000 rows of" in told


def test_notes_of_a_user_stay_and_are_taken_for_nothing_else(place, tmp_path, small_searches):
    mine = {"rows": "all", "left_out": {"Color": "clusters"}, "calibrated": {"by": "me"}}
    model, out, rows = tmp_path / "m.fareg", tmp_path / "new.fareg", tmp_path / "some.csv"
    fareg.save(fitted(), model, metadata=mine)
    X.assign(outcome=Y)[900:1900].to_csv(rows, index=False)
    result = audit_file(rows, target="outcome", model=model)
    assert not any("calibrated again" in note for note in result.notes)
    assert result.n_clusters is None
    calibrate_file(model, rows, target="outcome", out=out)
    kept = fareg.persistence.describe(out)["metadata"]
    assert kept["rows"] == "all"
    assert kept["calibrated"]["rows"] == 1000


def test_an_audit_tells_of_a_folder_whose_rows_are_not_remembered(place, tmp_path, small_searches):
    model, out = place / "m.fareg", tmp_path / "new.fareg"
    calibrate_file(model, place / "parts", target="outcome", out=out, jobs=1)
    said = "calibrated again on parts (2100 rows), which its file does not remember"
    for asked, is_said in ((model, False), (out, True)):
        result = audit_file(place / "parts", target="outcome", model=asked)
        assert any(said in note for note in result.notes) == is_said
