"""A model file gives back the same classifier to the bit, or one clear error."""

import errno
import functools
import hashlib
import json
import os
import pickle
import sys

import lightgbm
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import xgboost
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from typer.testing import CliRunner

import fareg
from fareg._encoding import ordinal_encoder
from fareg._files import replacing
from fareg.cli import app
from fareg.persistence import ModelFile, describe
from fareg.persistence._archive import write_archive
from fareg.scores import lac, raps
from fareg.workflow import audit_file, calibrate_file, fit_file, predict_file
from stored_zoo import (
    CONFORMAL,
    NUMBERS,
    PEOPLE,
    TOLD,
    TREE,
    assert_same,
    dicts,
    entries_of,
    forged,
    stored,
)

PLAIN = PEOPLE[["a", "b"]]


def saved(clf, tmp_path, **options):
    path = tmp_path / "model.fareg"
    fareg.save(clf, path, **options)
    assert os.listdir(tmp_path) == ["model.fareg"], "nothing else may be left behind"
    return path


def conformal(model, X=PLAIN, y=TOLD, **parameters):
    """Return a classifier around a model that is fitted on the same rows."""
    model = FrozenEstimator(model.fit(X, y))
    return fareg.SplitConformalClassifier(model, random_state=0, **parameters).conformalize(X, y)


def run(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, " ".join(done.output.split())


# --- what comes back ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFORMAL)
def test_every_classifier_comes_back_to_the_bit(name, tmp_path):
    thing = stored(name)
    path = saved(thing.model, tmp_path)
    assert describe(path)["untrusted"] == []
    back = fareg.load(path)
    assert type(back) is type(thing.model)
    assert vars(back).keys() == vars(thing.model).keys()
    assert type(back.calibration_) is type(thing.model.calibration_)
    assert_same(thing.model, back, thing.table, **thing.beside)
    apart = ("estimator", "base")
    ours, theirs = (clf.get_params(deep=False).items() for clf in (thing.model, back))
    assert repr([v for k, v in ours if k not in apart]) == repr(
        [v for k, v in theirs if k not in apart]
    )
    if hasattr(back, "groups_"):
        pd.testing.assert_frame_equal(thing.model.groups_, back.groups_, check_exact=True)
        assert thing.model.named_groups_ == back.named_groups_
    if name == "partial of dates":
        assert [[own.label(k) for k in range(len(own.values))] for own in back.levels_] == [
            ["hard=False", "hard=True"],
            ["born=1980-01-31", "born=1980-02-01", "born=1980-02-02"],
        ]


BOOSTERS = {  # read by libraries whose memory we cannot check
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=8, verbose=-1),
    "xgboost": xgboost.XGBClassifier(n_estimators=8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOOSTERS)
def test_boosters_of_other_libraries_come_back_to_the_bit_if_they_are_trusted(name, tmp_path):
    model = make_pipeline(ordinal_encoder(), BOOSTERS[name])
    clf = conformal(model, PEOPLE, (TOLD == "yes").astype(int))
    with pytest.warns(fareg.FaregWarning, match=f"trusted=.*{name}"):
        path = saved(clf, tmp_path)
    needed = describe(path)["untrusted"]
    with pytest.raises(fareg.FaregError, match=f"not trusted: .*{name}.*runs their code"):
        fareg.load(path)
    assert_same(clf, fareg.load(path, trusted=needed), PEOPLE)


def test_a_classifier_that_trained_its_estimator_keeps_the_untrained_one(tmp_path):
    clf = fareg.SplitConformalClassifier(RandomForestClassifier(5), random_state=0)
    back = fareg.load(saved(clf.fit(PLAIN, TOLD), tmp_path))
    assert_same(clf, back, PLAIN)
    assert not hasattr(back.estimator, "estimators_")
    assert back.estimator.n_estimators == 5


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(N := len(PLAIN)) % 3,
        np.arange(N) % 2 == 0,
        np.array(["é", "b|c", "汉"])[np.arange(N) % 3],
        pd.Series(["a", "b"] * (N // 2), dtype=object),
    ],
    ids=["int", "bool", "str", "object"],
)
def test_labels_keep_their_type(labels, tmp_path):
    clf = conformal(LogisticRegression(), PLAIN, labels)
    back = fareg.load(saved(clf, tmp_path))
    assert back.classes_.dtype == clf.classes_.dtype
    assert_same(clf, back, PLAIN)


@pytest.mark.parametrize("score", ["lac", lac, functools.partial(raps, penalty=0.1)])
def test_scores_of_the_package_are_stored_by_name(score, tmp_path):
    clf = conformal(LogisticRegression(), conformity_score=score)
    assert_same(clf, fareg.load(saved(clf, tmp_path)), PLAIN)


# --- what does not -----------------------------------------------------------------------------


class OwnModel(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / counts.sum()
        return self

    def predict_proba(self, X):
        return np.tile(self.shares_, (len(X), 1))


def test_unknown_types_are_refused_by_name(tmp_path):
    clf = conformal(OwnModel())
    name = f"{OwnModel.__module__}.OwnModel"
    sys.modules.setdefault(OwnModel.__module__, sys.modules[__name__])
    with pytest.warns(fareg.FaregWarning, match=f"trusted=.*{name}"):
        path = saved(clf, tmp_path)
    with pytest.raises(fareg.FaregError, match=f"not trusted: {name}"):
        fareg.load(path)
    assert_same(clf, fareg.load(path, trusted=[name]), PLAIN)
    assert_same(clf, fareg.load(path, estimator=clf.estimator_), PLAIN)
    with pytest.raises(fareg.FaregError, match="list of type names"):
        fareg.load(path, trusted=name)


def test_an_estimator_that_cannot_be_stored_is_left_out_in_words(tmp_path):
    clf = conformal(make_pipeline(FunctionTransformer(lambda table: table), LogisticRegression()))
    with pytest.warns(fareg.FaregWarning, match="left out of the file.*estimator=model"):
        path = saved(clf, tmp_path)
    with pytest.raises(fareg.FaregError, match="holds no estimator"):
        fareg.load(path)
    assert_same(clf, fareg.load(path, estimator=clf.estimator_), PLAIN)


def test_without_its_estimator_a_file_asks_for_the_right_one(tmp_path):
    clf = stored("fareg").model
    path = saved(clf, tmp_path, include_estimator=False)
    assert (describe(path)["has_estimator"], describe(path)["needs_estimator"]) == (False, True)
    assert_same(clf, fareg.load(path, estimator=clf.estimator_), PEOPLE)
    for model, words in (
        (None, r"load\(path, estimator=model\)"),
        (TREE.fit(PEOPLE, TOLD == "yes"), "has classes"),
        (LogisticRegression().fit(PLAIN.to_numpy(), TOLD), "takes 2 features"),
        (LogisticRegression().fit(PLAIN.add_suffix("2"), TOLD), "takes 2 features"),
        ("model", "must be a fitted classifier"),
    ):
        with pytest.raises(fareg.FaregError, match=words):
            fareg.load(path, estimator=model)


BY_NAME = ColumnTransformer([("numbers", "passthrough", ["b", "a"])])
READ_BY_NAME = {
    "logistic": LogisticRegression(),
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=8, verbose=-1),
}


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("ignored", [{}, {"race": "x", "id": 1.0}], ids=["fewer", "more"])
@pytest.mark.parametrize("name", READ_BY_NAME)
def test_a_model_that_picks_its_columns_by_name_comes_back(name, ignored, tmp_path):
    """The race only defines groups; a column that the model ignores may be missing."""
    X = PLAIN.assign(race=np.array(["x", "y"])[np.arange(N) % 2])
    model = make_pipeline(clone(BY_NAME), READ_BY_NAME[name]).fit(PLAIN.assign(**ignored), TOLD)
    clf = fareg.FaReGClassifier(FrozenEstimator(model), sensitive_features=["race"], random_state=0)
    path = saved(clf.conformalize(X, TOLD), tmp_path)
    trusted = describe(path)["untrusted"]
    assert bool(trusted) == (name == "lightgbm")
    for options in (
        {"trusted": trusted},
        {"estimator": model},
        {"estimator": FrozenEstimator(model)},
    ):
        assert_same(clf, fareg.load(path, **options), X)
    X.to_csv(tmp_path / "new.csv", index=False)
    trust = ["--trust", ",".join(trusted)] if trusted else []
    code, told = run("predict", path, tmp_path / "new.csv", "--out", tmp_path / "sets.csv", *trust)
    assert code == 0, told
    sets = pd.read_csv(tmp_path / "sets.csv")["set"]
    assert sets.tolist() == clf.predict_table(X)["set"].tolist()


@pytest.mark.parametrize(
    ("clf", "words"),
    [
        (fareg.FaReGClassifier(), "not conformalized yet"),
        (LogisticRegression(), "takes a classifier of fareg"),
        (
            conformal(LogisticRegression()).set_params(confidence_level=0.5),
            "cannot save .*confidence_level was changed after fit",
        ),
        (
            fareg.SplitConformalClassifier(
                make_pipeline(clone(BY_NAME), LogisticRegression()).fit(PLAIN.assign(id=1.0), TOLD)
            ).conformalize(PLAIN.assign(race="x", sex="y"), TOLD),
            r"cannot save .*\(estimator takes 3 features, the calibration rows had 4\)",
        ),
        (
            conformal(LogisticRegression(), conformity_score=lambda proba, u: 1 - proba),
            "cannot save conformity_score=.*holds no code",
        ),
        (
            conformal(LogisticRegression()).set_params(sensitive_features=lambda table: table),
            "cannot save sensitive_features=.*holds no code",
        ),
    ],
)
def test_what_could_not_be_loaded_again_is_not_saved(clf, words, tmp_path):
    with pytest.raises(fareg.FaregError, match=words):
        fareg.save(clf, tmp_path / "m.fareg")
    assert os.listdir(tmp_path) == []


def test_notes_hold_what_json_has(tmp_path):
    notes = {"target": "y", "n": np.int64(3), "shares": np.array([0.5, np.nan]), "in": ("a", None)}
    path = saved(stored("split").model, tmp_path, metadata=notes)
    expected = {"target": "y", "n": 3, "shares": [0.5, None], "in": ["a", None]}
    assert describe(path)["metadata"] == expected
    with pytest.raises(fareg.FaregError, match="metadata must hold text, numbers"):
        fareg.save(stored("split").model, path, metadata={"model": object()})


def test_describe_tells_without_loading(tmp_path):
    clf = stored("fareg").model
    told = describe(saved(clf, tmp_path))
    assert told["class"] == "FaReGClassifier"
    assert told["columns"] == list(PEOPLE.columns)
    assert told["classes"] == ["no", "yes"]
    assert told["parameters"]["confidence_level"] == 0.9
    assert [group["rule"] for group in told["groups"]] == list(clf.groups_["rule"])
    json.dumps(told, allow_nan=False)


def test_the_same_model_gives_the_same_bytes_and_nothing_is_pickled(tmp_path, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, never)
    clf = stored("fareg").model
    written = {saved(clf, tmp_path).read_bytes() for _ in range(2)}
    assert len(written) == 1
    assert_same(clf, fareg.load(tmp_path / "model.fareg"), PEOPLE)


# --- files that cannot be written --------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    clf = stored("split").model
    before = saved(clf, tmp_path).read_bytes()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(fareg.FaregError, match="the disk is full"):
        saved(clf, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        saved(clf, tmp_path)
    assert os.listdir(tmp_path) == ["model.fareg"]
    assert (tmp_path / "model.fareg").read_bytes() == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_really_full_disk_is_one_error(tmp_path):
    def write():
        with replacing(tmp_path / "out") as temporary:
            temporary.symlink_to("/dev/full")
            temporary.write_bytes(b"x" * 10)

    with pytest.raises(fareg.FaregError, match="the disk is full"):
        write()
    assert os.listdir(tmp_path) == []


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    clf, far = stored("split").model, tmp_path / "far"
    far.mkdir()
    (tmp_path / "m.fareg").symlink_to(far / "m.fareg")  # a file that is not there yet
    for _ in range(2):
        fareg.save(clf, tmp_path / "m.fareg")
        assert (tmp_path / "m.fareg").is_symlink()
        assert [path.is_symlink() for path in far.iterdir()] == [False]
    fareg.load(far / "m.fareg")
    os.mkfifo(tmp_path / "pipe")
    for place, words in (
        (tmp_path / "pipe", "it exists and is not a regular file"),
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "m.fareg", "there is no folder"),
    ):
        with pytest.raises(fareg.FaregError, match=words):
            fareg.save(clf, place)
    assert (tmp_path / "pipe").is_fifo()
    for place, words in ((tmp_path, "it is a folder"), (tmp_path / "x.fareg", "no such file")):
        with pytest.raises(fareg.FaregError, match=words):
            fareg.load(place)


# --- a file is opened once, and is the one that is expected ------------------------------------

RNG = np.random.default_rng(0)
TABLE = NUMBERS[["a", "b"]].sample(300, replace=True, random_state=0, ignore_index=True)
TABLE = (TABLE + RNG.normal(size=(300, 2))).round(4)
TABLE["y"] = np.where(TABLE["a"] + RNG.normal(size=300) > 0, "yes", "no")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a model file and a table."""
    folder = tmp_path_factory.mktemp("digest")
    TABLE.to_csv(folder / "t.csv", index=False)
    fit_file(folder / "t.csv", target="y", estimator="logistic", out=folder / "m.fareg")
    (folder / "parts").mkdir()
    TABLE.assign(a=TABLE["a"] + 0.5).to_parquet(folder / "parts" / "t.parquet")
    return folder


@pytest.fixture(scope="module")
def openings():
    """Return a function that calls another, and tells how often it opens a model file."""
    opened = []

    def watch(event, arguments):
        if event == "open" and str(arguments[0]).endswith("m.fareg"):
            opened.append(arguments[0])

    def count(function, *arguments, **options):
        opened.clear()
        function(*arguments, **options)
        return len(opened)

    sys.addaudithook(watch)
    return count


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_every_command_opens_a_model_once(place, openings, tmp_path):
    model, table, parts = place / "m.fareg", place / "t.csv", place / "parts"
    assert openings(ModelFile.open, model) == 1
    assert openings(predict_file, model, table, out=tmp_path / "sets.csv") == 1
    assert openings(audit_file, table, target="y", model=model) == 1
    assert openings(predict_file, model, parts, tmp_path / "sets", jobs=1) == 1
    new = {"target": "y", "out": tmp_path / "n.fareg", "jobs": 1}
    assert openings(calibrate_file, model, parts, **new) == 1
    assert openings(run, "info", model) == 1


def test_an_opened_file_hands_out_everything(place):
    file = ModelFile.open(place / "m.fareg")
    assert file.classifier is file.classifier
    assert file.columns == {"a": "number", "b": "number"} == file.fit_notes["columns"]
    assert file.notes["target"] == "y"
    assert file.seen.contains(TABLE[["a", "b"]], TABLE["y"]).sum() == len(file.seen.hashes)
    assert file.describe() == describe(place / "m.fareg")


def test_other_processes_open_the_same_file_or_none(place, tmp_path):
    path = tmp_path / "m.fareg"
    path.write_bytes((place / "m.fareg").read_bytes())
    packed = pickle.dumps(ModelFile.open(path))
    assert len(packed) < 1000
    assert pickle.loads(packed) is pickle.loads(packed)  # opened once for all tasks
    moved = pickle.dumps(ModelFile.open(place / "m.fareg"))
    assert pickle.loads(moved).classifier.n_calibration_ == 120
    path.write_bytes(b"another file")
    with pytest.raises(fareg.FaregError, match="is not the file that is expected"):
        pickle.loads(packed)


@pytest.mark.parametrize("read", [fareg.load, describe, ModelFile.open])
def test_a_digest_is_compared_before_anything_is_parsed(read, place, tmp_path):
    digest = hashlib.sha256((place / "m.fareg").read_bytes()).hexdigest()
    assert ModelFile.open(place / "m.fareg").sha256 == digest
    for given in (digest, digest.upper()):
        read(place / "m.fareg", sha256=given)
    (tmp_path / "m.fareg").write_bytes(b"no model at all")
    for path in (place / "m.fareg", tmp_path / "m.fareg"):
        with pytest.raises(fareg.FaregError, match="is not the file that is expected"):
            read(path, sha256="0" * 64)
    for given in ("", "abc", "0" * 63, "g" * 64, 5):
        with pytest.raises(fareg.FaregError, match="sha256 must be the 64 hexadecimal digits"):
            read(place / "m.fareg", sha256=given)


@pytest.mark.slow
def test_every_command_that_reads_a_model_compares_its_digest(place, tmp_path):
    model, table = place / "m.fareg", place / "t.csv"
    for command in (
        ("predict", model, table, "--out", tmp_path / "sets.csv"),
        ("predict", model, place / "parts", "--out", tmp_path / "sets", "--engine", "local:1"),
        ("calibrate", model, place / "parts", "--target", "y", "--out", tmp_path / "n.fareg"),
        ("audit", table, "--target", "y", "--model", model),
    ):
        code, words = run(*command, "--trust", "0" * 64)
        assert (command, code) == (command, 2)
        assert "is not the file that is expected: its SHA-256 is" in words
    digest = describe(model)["sha256"]
    assert run("predict", model, table, "--out", tmp_path / "sets.csv", "--trust", digest)[0] == 0
    code, words = run("audit", table, "--target", "y", "--sets", "y", "--trust", digest)
    assert code == 2
    assert "got no model" in words


@pytest.mark.slow
def test_fit_and_calibrate_tell_the_digest_of_what_they_wrote(place, tmp_path):
    out, new = tmp_path / "m.fareg", tmp_path / "n.fareg"
    fit = ("fit", place / "t.csv", "--target", "y", "--estimator", "logistic", "--out", out)
    told = json.loads(CliRunner().invoke(app, [*map(str, fit), "--json"]).stdout)
    assert told["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    code, words = run("calibrate", out, place / "parts", "--target", "y", "--out", new)
    assert code == 0, words
    assert hashlib.sha256(new.read_bytes()).hexdigest() in words


# --- what a file shows, and what it holds of people --------------------------------------------


@pytest.mark.slow
def test_info_prints_nothing_that_steers_the_terminal(tmp_path):
    wild = "\x1b[2J\x1b]0;owned\x07\u202e"
    labels = TABLE["y"].map({"yes": f"yes{wild}", "no": "no"})
    clf = conformal(LogisticRegression(), TABLE[["a", "b"]].rename(columns={"a": wild}), labels)
    path = saved(clf, tmp_path, metadata={f"note{wild}": [wild, {wild: wild}]})
    for arguments in (["info", path], ["info", path, "--json"], ["info", tmp_path / wild]):
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == (0 if path in arguments else 2)
        assert not set(done.output) & set("\x1b\x07\u202e")
        assert "x1b[2J" in done.output or "u001b[2J" in done.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [
        ("state", "fitted", "n_calibration_"),
        ("state", "fitted", "n_calibration_clusters_"),
        *(("metadata", "verdict", name) for name in ("label", "sentence", "next_steps")),
        ("metadata", "verdict"),
        ("metadata", "columns"),
        *((name,) for name in ("metadata", "versions", "columns", "classes")),
    ],
)
def test_info_of_an_edited_file_is_told_in_words(where, place, tmp_path):
    path = tmp_path / "m.fareg"
    for value in (None, -1, 10**30, 1.5, "x", [1], {}, {"x": 1}, [{}]):
        manifest, entries = entries_of(place / "m.fareg")
        node = functools.reduce(dict.__getitem__, where[:-1], manifest)
        node[where[-1]] = value
        write_archive(path, manifest, entries)
        code, words = run("info", path)
        assert code in (0, 2), words


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["logistic", "hgb", "forest"])
def test_no_recognisable_row_is_in_a_file(estimator, tmp_path):
    """Columns that are dropped leave no trace, and values of one person never stand together."""
    n = 400
    rows = TABLE.sample(n, replace=True, random_state=0).reset_index(drop=True)
    rows["income"] = 7_000_003 + RNG.permutation(10**6)[:n]
    rows["name"] = [f"person-{i:04d}" for i in range(n)]
    rows.to_csv(tmp_path / "t.csv", index=False)
    options = {"target": "y", "estimator": estimator, "sensitive": ["income", "a"]}
    fit_file(tmp_path / "t.csv", out=tmp_path / "m.fareg", drop=["name"], **options)
    manifest, entries = entries_of(tmp_path / "m.fareg")
    held = b"".join([json.dumps(manifest).encode(), *entries.values()])
    assert b"person-" not in held
    for kind in (np.float64, np.float32):
        numbers = rows[["a", "b", "income"]].to_numpy().astype(kind)
        for pair in ([0, 1], [0, 2], [1, 2], [2, 0]):
            assert not any(row.tobytes() in held for row in numbers[:, pair])
    for array in safetensors.numpy.load(entries["arrays.safetensors"]).values():
        incomes = array[np.isin(array, rows["income"])]  # sorted, they do not show whose they are
        assert len(incomes) < 20 or (np.diff(incomes) >= 0).all()


def test_arrays_have_no_row_per_person(tmp_path):
    """What a file holds of people: ranks, codes, means; and values that drift is judged by."""
    clf, held = stored("fareg").model, {}
    forged(saved(clf, tmp_path), lambda state, arrays: held.update(state=state, arrays=arrays))
    frames = [node for node in dicts(held["state"]) if node.get("$") == "frame"]
    assert frames == [held["state"]["fitted"]["groups_"]]
    n = clf.n_calibration_
    assert [a.shape for a in held["arrays"].values() if a.ndim == 2 and len(a) >= n] == []


def test_ranks_in_a_file_do_not_lead_back_to_rows(tmp_path):
    """A file holds sorted values of columns, and ranks together, but no row that has them."""
    n = 1000
    X = pd.DataFrame({"income": 7e6 + RNG.permutation(10**6)[:n], "age": 18 + 60 * RNG.random(n)})
    X["b"] = RNG.normal(size=n)
    hard = (X["income"] > 7.6e6) & (X["age"] > 50)
    y = np.where(hard, RNG.random(n) > 0.5, X["b"] > 0)
    who = {"sensitive_features": ["income", "age"], "random_state": 0}
    clf = fareg.FaReGClassifier(LogisticRegression(), **who).fit(X, y)
    fareg.save(clf, tmp_path / "m.fareg")
    learned = fareg.load(tmp_path / "m.fareg").calibration_.parts[0].levels.disadvantage
    kernels = [model for model in learned.models if type(model).__name__ == "KernelSum"]
    smooth = max(kernels, key=lambda model: len(model.columns))
    read = [learned.readings[j] for j in smooth.columns]
    ranks = [own.read(pd.Series(own.edges)) for own in read]
    guesses = {
        tuple(
            float(own.edges[np.abs(known - rank).argmin()])
            for own, known, rank in zip(read, ranks, centre, strict=True)
        )
        for centre in smooth.centres
    }
    people = set(map(tuple, X[[own.name for own in read]].to_numpy()))
    assert len(read) == 2
    assert len(guesses & people) <= len(guesses) / 10  # by chance; without rounding, all of them
