"""A model calibrated on a folder has the thresholds of all its rows, whichever workers die."""

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

import fareg
from fareg import FaregWarning
from fareg._encoding import ordinal_encoder
from fareg.datasets import make_synthetic
from fareg.persistence import ModelFile, describe
from fareg.workflow import _calibrate, audit_file, calibrate_file
from forked import dask_cluster
from shell import refused, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning"),
    pytest.mark.usefixtures("small_searches"),
]
DATA = make_synthetic(3000, random_state=0)
X = DATA.X[["Color", "Gender", "Feature 1"]]
Y = np.array([f"class {label}" for label in DATA.y])
ROWS = X.assign(outcome=Y)
FITTED, SENSITIVE = slice(0, 900), ["Color", "Gender"]
TARGET = ("--target", "outcome", "--out")


def fitted(y=Y, beside=False, **parameters):
    """Fit a classifier, perhaps with the sensitive features next to its table."""
    read = X.drop(columns=SENSITIVE) if beside else X
    tree = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=4, random_state=0))
    learner = DecisionTreeRegressor(max_depth=3, min_samples_leaf=20, random_state=0)
    model = FrozenEstimator(tree.fit(read[:300], y[:300]))
    names = None if beside else SENSITIVE
    clf = fareg.FaReGClassifier(
        model, sensitive_features=names, learner=learner, random_state=0, **parameters
    )
    people = {"sensitive_features": X[SENSITIVE][300:900]} if beside else {}
    return clf.conformalize(read[300:900], y[300:900], **people)


RED = "Color = Red and Gender = Female"
MODELS = {
    "m": {},
    "labels": {"label_conditional": True},
    "fixed": {"conformity_score": "lac"},  # without random numbers
    "protected": {"protect": [fareg.Rule.parse(RED)]},
    "beside": {"beside": True},
}


def write_parts(rows, folder):
    """Write rows in folders by colour."""
    for color, some in rows.groupby("Color"):
        (folder / f"Color={color}").mkdir(parents=True)
        for part, piece in enumerate(np.array_split(np.arange(len(some)), 4)):
            path = folder / f"Color={color}" / f"{part}.parquet"
            some.iloc[piece].drop(columns="Color").to_parquet(path)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with models and rows in parts by colour, some seen by the models."""
    folder = tmp_path_factory.mktemp("calibrate")
    for name, parameters in MODELS.items():
        clf = fitted(**parameters)
        seen = X[list(clf.column_kinds_)][FITTED]
        fareg.save(clf, folder / f"{name}.fareg", seen=(seen, Y[FITTED]))
    write_parts(ROWS[600:], folder / "parts")
    return folder


def by_label(clf):
    """Return the thresholds of the levels, one list per label or one for all."""
    return [own.tolist() for own in clf.calibration_.parts[0].theta]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch_size", [100, 50_000])
def test_a_folder_calibrates_as_all_its_new_rows_in_one_memory(name, batch_size, place, tmp_path):
    out, before, beside = (
        tmp_path / "new.fareg",
        fareg.load(place / f"{name}.fareg"),
        name == "beside",
    )
    options = {"target": "outcome", "out": out, "jobs": 1, "batch_size": batch_size}
    with pytest.warns(FaregWarning, match="of 2400 rows equal rows that were used to train"):
        told = calibrate_file(place / f"{name}.fareg", place / "parts", **options)
    if beside:  # fewer columns tell whether a row was used
        assert told["left_out"] >= 300
        return
    assert (told["rows"], told["left_out"]) == (2100, 300)
    after, expected = fareg.load(out), before.recalibrated(X[900:], Y[900:])
    assert name == "labels" or len(before.thresholds_) > 1
    assert told["thresholds"] == by_label(after) == by_label(expected)
    assert after.n_calibration_ == expected.n_calibration_ == 2100
    assert after.protected_ == before.protected_
    np.testing.assert_array_equal(after.predict_set(X), expected.predict_set(X))
    np.testing.assert_array_equal(after.predict_p(X), expected.predict_p(X))
    pd.testing.assert_frame_equal(after.groups_, expected.groups_)
    assert describe(out)["metadata"]["calibrated"]["rows"] == 2100
    if name == "protected":
        inside = before.protected_[0].inside(X[900:])
        scores = before.labelled_rows(X[900:], Y[900:]).score[inside]
        own = fareg.pvalues.conformal_quantile(scores, confidence_level=0.9)
        assert after.calibration_.parts[1].quantiles.tolist() == [[own]]


@pytest.mark.parametrize("name", ["fixed", "m", "labels", "protected"])
def test_few_bytes_a_row_come_back(name, place, tmp_path, monkeypatch):
    sent = []

    def spy(function, tasks, **options):
        found = [function(task) for task in tasks]
        arrays = [
            [own] if isinstance(own, np.ndarray) else list(own[0].values()) for _, own in found
        ]
        sent.append(sum(a.nbytes for some in arrays for a in some) / sum(len(s[0]) for s in arrays))
        return iter(found)

    monkeypatch.setattr(_calibrate, "run_tasks", spy)
    model, out = place / f"{name}.fareg", tmp_path / "new.fareg"
    calibrate_file(model, place / "parts", target="outcome", out=out)
    n_parts = len(fareg.load(model).calibration_.parts)  # the levels, and protected groups
    first = [] if name == "fixed" else [8]  # hashes, if scores are random
    assert sent == [*first, 8 + n_parts + (name == "labels")]


def discrete_rows(n, seed):
    """Return rows, most of which equal others, each with an id."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({name: rng.choice(X[name].unique()[:2], n) for name in SENSITIVE})
    table["Feature 1"] = rng.integers(0, 5, n) / 5
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
    options = {"target": "outcome", "ids": ids, "batch_size": batch_size, "jobs": 1}
    for data in ("parts", "rows.csv"):
        out = tmp_path / "new.fareg"
        told = calibrate_file(place / "m.fareg", tmp_path / data, out=out, **options)
        assert told["thresholds"] == by_label(expected)


def test_a_worker_that_dies_changes_nothing(place, tmp_path):
    pytest.importorskip("distributed")
    asked = (place / "m.fareg", place / "parts")
    common = {"target": "outcome", "batch_size": 100}
    alone = calibrate_file(*asked, out=tmp_path / "one.fareg", jobs=1, **common)
    stages, died = [], []
    with dask_cluster() as cluster:
        victim = next(iter(cluster.workers.values())).pid

        def kill():
            deadline = time.monotonic() + 60
            while not stages and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.3)  # it is loading the model, or scores
            os.kill(victim, signal.SIGKILL)
            died.append(len(stages))

        thread = threading.Thread(target=kill)
        thread.start()
        options = {"engine": cluster.scheduler_address, "progress": stages.append}
        told = calibrate_file(*asked, out=tmp_path / "two.fareg", **options, **common)
        thread.join()
    assert died
    assert told == alone
    one, two = (fareg.load(tmp_path / f"{name}.fareg") for name in ("one", "two"))
    np.testing.assert_array_equal(one.thresholds_, two.thresholds_)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.fareg", "two.fareg"]


def split(place, tmp_path):
    clf = fareg.SplitConformalClassifier(fitted().estimator_).conformalize(X[900:], Y[900:])
    fareg.save(clf, tmp_path / "split.fareg")
    return tmp_path / "split.fareg", place / "parts"


def table(change):
    def written(place, tmp_path):
        change(ROWS).to_parquet(tmp_path / "t.parquet")
        return place / "m.fareg", tmp_path / "t.parquet"

    return written


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (split, "can calibrate a FaReGClassifier"),
        (table(lambda rows: rows.rename(columns={"outcome": "outcom"})), "did you mean outcom"),
        (table(lambda rows: rows[FITTED]), "all equal rows that were used to train or calibrate"),
        (table(lambda rows: rows[:0]), "has no rows; check"),
        (table(lambda rows: rows[900:].assign(outcome="other")), "estimator knows, got other"),
        (table(lambda rows: rows[900:].assign(outcome=None)), "has no label in any of 2100 rows"),
    ],
)
def test_what_cannot_be_calibrated_is_said_in_one_line(asked, words, place, tmp_path):
    out = tmp_path / "new.fareg"
    assert words in refused("calibrate", *asked(place, tmp_path), *TARGET, out)
    assert not out.exists()


def test_the_command_says_how_many_rows_calibrated(place, tmp_path):
    ROWS[600:].to_csv(tmp_path / "rows.csv", index=False)
    asked = (*TARGET, tmp_path / "new.fareg", "--json")
    folder = run("calibrate", place / "m.fareg", place / "parts", *asked, "--engine", "local:1")
    told = json.loads(folder.stdout)
    assert (told["rows"], told["left_out"]) == (2100, 300)
    file = run("calibrate", place / "m.fareg", tmp_path / "rows.csv", *asked)
    assert json.loads(file.stdout)["thresholds"] == told["thresholds"]


@pytest.mark.parametrize("kind", ["parts", "rows.csv"])
def test_rows_without_a_label_are_counted_and_left_out(kind, place, tmp_path):
    rows = ROWS[600:]
    gaps = np.random.default_rng(0).random(len(rows)) < 0.1
    holes = rows.assign(outcome=rows["outcome"].where(~gaps))
    if kind == "parts":
        write_parts(holes, tmp_path / kind)
    else:
        holes.to_csv(tmp_path / kind, index=False)
    rows[~gaps].to_csv(tmp_path / "full.csv", index=False)
    out = tmp_path / "new.fareg"
    done = run("calibrate", place / "m.fareg", tmp_path / kind, *TARGET, out)
    assert f"{gaps.sum()} of 2400 rows have no outcome and are left out" in done.stderr
    full = calibrate_file(
        place / "m.fareg", tmp_path / "full.csv", target="outcome", out=tmp_path / "full.fareg"
    )
    assert by_label(fareg.load(out)) == full["thresholds"]
    if kind != "parts":  # the file remembers its rows
        old, new = (ModelFile.open(tmp_path / name).seen for name in ("full.fareg", "new.fareg"))
        assert len(old.hashes) == len(new.hashes)


def test_words_for_missing_values_are_labels_as_in_fit(tmp_path):
    words = np.where(Y == "class 1", "NA", Y)
    fareg.save(fitted(words), tmp_path / "m.fareg")
    X.assign(outcome=words)[900:].to_csv(tmp_path / "t.csv", index=False)
    X.assign(outcome=words)[900:].to_parquet(tmp_path / "t.parquet")  # it needs no words for gaps
    asked = {"target": "outcome", "out": tmp_path / "new.fareg", "batch_size": 500}
    with pytest.warns(FaregWarning, match="outcome holds NA in"):
        told = calibrate_file(tmp_path / "m.fareg", tmp_path / "t.csv", **asked)
    assert told["rows"] == 2100
    same = calibrate_file(tmp_path / "m.fareg", tmp_path / "t.parquet", **asked)
    assert told["thresholds"] == same["thresholds"]


def test_an_audit_leaves_out_the_rows_of_a_file_that_calibrated(place, tmp_path):
    out, some, audit = (
        tmp_path / "new.fareg",
        tmp_path / "some.csv",
        ("audit", tmp_path / "some.csv"),
    )
    ROWS[900:1900].to_csv(some, index=False)
    ROWS[900:].to_csv(tmp_path / "all.csv", index=False)
    done = run("calibrate", place / "m.fareg", some, *TARGET, out)
    assert "calibrated on 1,000 rows: model in" in done.stdout
    result = audit_file(tmp_path / "all.csv", target="outcome", model=out)
    assert result.n_samples == 1100
    assert any("1000 of 2100 rows equal rows that were used" in note for note in result.notes)
    assert "all equal rows" in refused("calibrate", out, some, *TARGET, tmp_path / "twice.fareg")
    assert "all 1000 rows of" in refused(*audit, *TARGET[:2], "--model", out)


def test_notes_of_a_user_stay_and_are_taken_for_nothing_else(tmp_path):
    mine = {"rows": "all", "left_out": {"Color": "clusters"}, "calibrated": {"by": "me"}}
    model, out, rows = tmp_path / "m.fareg", tmp_path / "new.fareg", tmp_path / "some.csv"
    fareg.save(fitted(), model, metadata=mine)
    ROWS[900:1900].to_csv(rows, index=False)
    result = audit_file(rows, target="outcome", model=model)
    assert not any("calibrated again" in note for note in result.notes)
    assert result.n_clusters is None
    calibrate_file(model, rows, target="outcome", out=out)
    kept = describe(out)["metadata"]
    assert (kept["rows"], kept["calibrated"]["rows"]) == ("all", 1000)


def test_an_audit_tells_of_a_folder_whose_rows_are_not_remembered(place, tmp_path):
    model, out = place / "m.fareg", tmp_path / "new.fareg"
    calibrate_file(model, place / "parts", target="outcome", out=out, jobs=1)
    said = "calibrated again on parts (2100 rows), which its file does not remember"
    for asked, is_said in ((model, False), (out, True)):
        result = audit_file(place / "parts", target="outcome", model=asked)
        assert any(said in note for note in result.notes) == is_said
