"""A file is the one that is expected, or nothing in it is looked at."""

import hashlib
import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import fareg
from fareg.cli import app
from fareg.persistence import describe
from fareg.persistence._archive import write_archive

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(300, 2)), columns=["a", "b"])
TABLE["y"] = np.where(TABLE["a"] + RNG.normal(size=300) > 0, "yes", "no")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a model file and a table."""
    folder = tmp_path_factory.mktemp("digest")
    clf = fareg.SplitConformalClassifier(LogisticRegression(), random_state=0)
    fareg.save(clf.fit(TABLE[["a", "b"]], TABLE["y"]), folder / "m.fareg")
    TABLE.to_csv(folder / "t.csv", index=False)
    (folder / "parts").mkdir()
    TABLE.to_parquet(folder / "parts" / "t.parquet")
    return folder


def run(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, " ".join(done.output.split())


def test_the_right_digest_is_taken_in_any_case(place):
    digest = hashlib.sha256((place / "m.fareg").read_bytes()).hexdigest()
    assert describe(place / "m.fareg")["sha256"] == digest
    for given in (digest, digest.upper()):
        fareg.load(place / "m.fareg", sha256=given)
        describe(place / "m.fareg", sha256=given)


def test_a_file_with_another_digest_is_not_parsed(place, tmp_path):
    (tmp_path / "m.fareg").write_bytes(b"no model at all")
    for path in (place / "m.fareg", tmp_path / "m.fareg"):
        for read in (fareg.load, describe):
            with pytest.raises(fareg.FaregError, match="is not the file that is expected"):
                read(path, sha256="0" * 64)


@pytest.mark.parametrize("given", ["", "abc", "0" * 63, "g" * 64, 5])
def test_what_is_no_digest_is_said_to_be_none(given, place):
    with pytest.raises(fareg.FaregError, match="sha256 must be the 64 hexadecimal digits"):
        fareg.load(place / "m.fareg", sha256=given)


@pytest.mark.slow
def test_every_command_that_reads_a_model_compares_its_digest(place, tmp_path):
    model, table = place / "m.fareg", place / "t.csv"
    for number, command in enumerate(
        (
            ("info", model),
            ("predict", model, table, "--out", tmp_path / "sets.csv"),
            ("predict", model, place / "parts", "--out", tmp_path / "sets", "--jobs", "1"),
            ("calibrate", model, place / "parts", "--target", "y", "--out", tmp_path / "n.fareg"),
            ("audit", table, "--target", "y", "--model", model),
        )
    ):
        code, words = run(*command, "--sha256", "0" * 64)
        assert (number, code) == (number, 2)
        assert "is not the file that is expected: its SHA-256 is" in words
    digest = describe(model)["sha256"]
    assert run("info", model, "--sha256", digest)[0] == 0
    assert run("predict", model, table, "--out", tmp_path / "sets.csv", "--sha256", digest)[0] == 0
    code, words = run("audit", table, "--target", "y", "--sets", "y", "--sha256", digest)
    assert code == 2
    assert "none is given" in words


@pytest.mark.slow
def test_fit_and_calibrate_tell_the_digest_of_what_they_wrote(place, tmp_path):
    out = tmp_path / "m.fareg"
    fit = ("fit", place / "t.csv", "--target", "y", "--estimator", "logistic", "--out", out)
    code, words = run(*fit)
    assert code == 0
    assert hashlib.sha256(out.read_bytes()).hexdigest() in words
    told = json.loads(CliRunner().invoke(app, [*map(str, fit), "--json"]).stdout)
    assert told["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    new = tmp_path / "n.fareg"
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
    with pytest.raises(fareg.FaregError):
        fareg.load(path, estimator=LogisticRegression())
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
        ("versions",),
        ("columns",),
        ("classes",),
    ],
)
def test_info_of_an_edited_file_is_told_in_words(where, place, tmp_path):
    path = tmp_path / "m.fareg"
    fit = ("fit", place / "t.csv", "--target", "y", "--estimator", "logistic", "--out", path)
    assert run(*fit)[0] == 0
    with zipfile.ZipFile(path) as archive:
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
