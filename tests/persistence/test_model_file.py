"""A model file is opened once, is the one that is expected, and holds no row of any person."""

import hashlib
import json
import pickle
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import fareg
from fareg.cli import app
from fareg.persistence import ModelFile, describe
from fareg.persistence._archive import write_archive
from fareg.workflow import audit_file, calibrate_file, fit_file, predict_file

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(300, 2)).round(4), columns=["a", "b"])
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


def run(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, " ".join(done.output.split())


OPENED = []


@pytest.fixture(scope="module")
def openings():
    """Return a function that calls another, and tells how often it opens a model file."""

    def watch(event, arguments):
        if event == "open" and str(arguments[0]).endswith("m.fareg"):
            OPENED.append(arguments[0])

    def count(function, *arguments, **options):
        OPENED.clear()
        function(*arguments, **options)
        return len(OPENED)

    sys.addaudithook(watch)
    return count


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_every_command_opens_a_model_once(place, openings, tmp_path):
    model, table, parts = place / "m.fareg", place / "t.csv", place / "parts"
    out = {"out": tmp_path / "sets.csv"}
    assert openings(ModelFile.open, model) == 1
    assert openings(predict_file, model, table, **out) == 1
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


def test_the_right_digest_is_taken_in_any_case(place):
    digest = hashlib.sha256((place / "m.fareg").read_bytes()).hexdigest()
    assert ModelFile.open(place / "m.fareg").sha256 == digest
    for given in (digest, digest.upper()):
        fareg.load(place / "m.fareg", sha256=given)
        describe(place / "m.fareg", sha256=given)


def test_a_file_with_another_digest_is_not_parsed(place, tmp_path):
    (tmp_path / "m.fareg").write_bytes(b"no model at all")
    for path in (place / "m.fareg", tmp_path / "m.fareg"):
        for read in (fareg.load, describe, ModelFile.open):
            with pytest.raises(fareg.FaregError, match="is not the file that is expected"):
                read(path, sha256="0" * 64)


@pytest.mark.parametrize("given", ["", "abc", "0" * 63, "g" * 64, 5])
def test_what_is_no_digest_is_said_to_be_none(given, place):
    with pytest.raises(fareg.FaregError, match="sha256 must be the 64 hexadecimal digits"):
        fareg.load(place / "m.fareg", sha256=given)


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
    assert "none is given" in words


@pytest.mark.slow
def test_fit_and_calibrate_tell_the_digest_of_what_they_wrote(place, tmp_path):
    out, new = tmp_path / "m.fareg", tmp_path / "n.fareg"
    fit = ("fit", place / "t.csv", "--target", "y", "--estimator", "logistic", "--out", out)
    told = json.loads(CliRunner().invoke(app, [*map(str, fit), "--json"]).stdout)
    assert told["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    code, words = run("calibrate", out, place / "parts", "--target", "y", "--out", new)
    assert code == 0, words
    assert hashlib.sha256(new.read_bytes()).hexdigest() in words


@pytest.mark.slow
def test_info_prints_nothing_that_steers_the_terminal(tmp_path):
    wild = "\x1b[2J\x1b]0;owned\x07\u202e"
    table = TABLE.rename(columns={"a": f"a{wild}"})
    labels = TABLE["y"].map({"yes": f"yes{wild}", "no": "no"})
    clf = fareg.SplitConformalClassifier(LogisticRegression(), random_state=0)
    clf.fit(table.drop(columns="y"), labels)
    path = tmp_path / "m.fareg"
    fareg.save(clf, path, metadata={f"note{wild}": [wild, {wild: wild}]})
    for options in ((), ("--json",)):
        done = CliRunner().invoke(app, ["info", str(path), *options])
        assert done.exit_code == 0
        assert not set(done.output) & set("\x1b\x07\u202e")
        assert "x1b[2J" in done.output or "u001b[2J" in done.output
    done = CliRunner().invoke(app, ["info", str(tmp_path / f"{wild}.fareg")])
    assert done.exit_code == 2
    assert not set(done.output) & set("\x1b\x07\u202e")


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [
        ("state", "fitted", "n_calibration_"),
        ("state", "fitted", "n_calibration_clusters_"),
        ("metadata", "verdict"),
        ("metadata", "verdict", "label"),
        ("metadata", "verdict", "sentence"),
        ("metadata", "verdict", "next_steps"),
        ("metadata", "columns"),
        ("metadata",),
        ("versions",),
        ("columns",),
        ("classes",),
    ],
)
def test_info_of_an_edited_file_is_told_in_words(where, place, tmp_path):
    path = tmp_path / "m.fareg"
    with zipfile.ZipFile(place / "m.fareg") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(entries.pop("manifest.json"))
    for name in ("kind", "format", "entries", "checksum"):
        del manifest[name]
    for value in (None, -1, 10**30, 1.5, "x", [1], {}, {"x": 1}, [{}]):
        changed = json.loads(json.dumps(manifest))
        node = changed
        for key in where[:-1]:
            node = node[key]
        node[where[-1]] = value
        write_archive(path, changed, entries)
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
    with zipfile.ZipFile(tmp_path / "m.fareg") as archive:
        held = b"".join(archive.read(name) for name in archive.namelist())
    assert b"person-" not in held
    for kind in (np.float64, np.float32):
        numbers = rows[["a", "b", "income"]].to_numpy().astype(kind)
        for pair in ([0, 1], [0, 2], [1, 2], [2, 0]):
            assert not any(row.tobytes() in held for row in numbers[:, pair])
