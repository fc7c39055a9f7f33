"""Benchmarks on tables: settings, problems, measures and the page."""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fareg import SplitConformalClassifier
from fareg._validation import InvalidInputError
from fareg.cli import app
from fareg.datasets import make_synthetic
from fareg.experiments import _bench, benchmark
from fareg.experiments._bench import TRAIN, Store
from fareg.experiments._benchmark import write_page
from fareg.experiments._measures import worst_cells
from fareg.experiments._methods import MARGINAL, _module_of, sets_of
from fareg.experiments._problems import (
    TableProblem,
    find_table,
    random_group,
    read_people,
    read_settings,
)
from fareg.experiments._runs import MethodCell
from fareg.workflow import MODELS

TABLE = """
title = "Made up"
published = "https://example.org/made-up"
path = "people.csv"
target = "label"
sensitive = ["Color", "Gender"]
drop = ["id"]
clusters = "household"
missing = ["?"]
at_least = {id = 10}
"""
HERE = Path(__file__).parents[2] / "benchmarks"
PEERS = HERE / "peers.py"
SMALL = {"models": ["logistic"], "scores": ["lac"], "sizes": [400], "repeats": 1}


def written(folder, table=TABLE, name="made-up", **said):
    """Write the settings of a benchmark and return their path."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**SMALL, **said}.items()]
    path = folder / "benchmark.toml"
    path.write_text("\n".join([*lines, f"[tables.{name}]", table]))
    return path


class Nothing:
    """An imported method with empty sets."""

    def __init__(self, estimator, **parameters):
        self.estimator = estimator

    def fit(self, X, y, clusters=None):
        return self

    def predict_set(self, X):
        return np.zeros((len(X), 6), dtype=bool)


class Oracle(Nothing):
    """An imported method with the name of one of fareg's."""


class Refuses(Nothing):
    def fit(self, X, y, clusters=None):
        raise ValueError("these rows\nare not for me")


class OutsideIn(Nothing):
    def fit(self, X, y, clusters=None):
        self.estimator.fit(X.to_numpy(), y)  # forgets which rows it has


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A folder with one table of 1,000 people in households of two."""
    folder = tmp_path_factory.mktemp("tables")
    data = make_synthetic(1000, random_state=0)
    people = data.X.assign(
        label=data.y.astype(str), id=np.arange(1000), household=np.arange(1000) // 2
    )
    people.loc[::50, "label"] = "?"
    people.to_csv(folder / "people.csv", index=False)
    return folder


@pytest.fixture
def folder(people, tmp_path):
    """A folder for settings next to the data."""
    folder = tmp_path / "settings"
    folder.mkdir()
    (folder / "people.csv").symlink_to(people / "people.csv")
    return folder


@pytest.fixture
def table(folder):
    return find_table(read_settings(written(folder)).tables[0], folder)


def problem(table, labels="natural", seed=0):
    return TableProblem(table, labels, "logistic", 400, seed, 300)


def run(folder, out, table=TABLE, **said):
    return benchmark(written(folder, table, **said), out=out, jobs=1)


def test_a_table_means_what_the_settings_say(table):
    people = read_people(table)
    rows = pd.read_csv(table.path)
    kept = rows[(rows["label"] != "?") & (rows["id"] >= 10)]
    assert len(people.y) == len(kept)
    assert not {"id", "household", "label"} & set(people.X)
    assert [people.classes[code] for code in people.y] == kept["label"].tolist()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.replace("target", "taget"), "table made-up in .* lacks target"),
        (TABLE + "weights = 'w'\n", "has the unknown key weights"),
        (TABLE + "path\n", "is not a TOML file"),
        (TABLE.replace("people.csv", "other.csv"), "get it from https://example.org/made-up"),
        (TABLE.replace('"Gender"', '"Gendr"'), "has no column Gendr; did you mean Gender"),
        (
            TABLE.replace("id = 10", "Color = 1"),
            "at_least of made-up needs numbers, got .* in column",
        ),
        (TABLE.replace("{id = 10}", "5"), "at_least in .* must look like .*, got 5"),
        (TABLE.replace('["id"]', '"id"'), "drop in .* must look like .*, got 'id'"),
        (TABLE + "edges = ['low']", "edges in .* must look like .*, got"),
        (TABLE.replace('["Color", "Gender"]', "[]"), "lacks sensitive"),
    ],
)
def test_a_wrong_table_is_one_sentence(folder, tmp_path, table, message):
    with pytest.raises(InvalidInputError, match=message):
        run(folder, tmp_path / "out", table, methods=["split"])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"sizes": []}, "nothing can be compared"),
        ({"methods": ["oracle"], "labels": ["natural"]}, "nothing can be compared"),
        ({"test_rows": 10}, "test_rows must be a whole number >= 60"),
        ({"repeats": "3"}, "repeats in .* must look like 1, got '3'"),
        ({"seeds": 3}, "has the unknown key seeds; keys are data, labels"),
        ({"models": ["svm"]}, "models must be one of hgb, logistic, network"),
        ({"methods": ["spilt"]}, "unknown method spilt"),
        ({"methods": ["no_such_module:Method"]}, "no_such_module:Method"),
        ({"methods": ["fareg:NoMethod"]}, "fareg:NoMethod"),
        ({"methods": [f"{HERE}/rivals.py:Other"]}, r"rivals\.py has no class Other"),
        ({"methods": ["none.py:Other"]}, r"there is no file .*none\.py"),
        ({"methods": [f"{__name__}:Oracle"]}, "has the name of another method, Oracle"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(folder, tmp_path, said, message):
    with pytest.raises(InvalidInputError, match=message):
        run(folder, tmp_path / "out", **said)


def test_households_are_tested_or_not_and_noise_stays_in_its_group(table, tmp_path):
    plain = problem(table).prepare(Store(tmp_path))
    noisy = problem(table, "noise").prepare(Store(tmp_path))
    n_fit = len(plain.y) - len(plain.test)
    assert n_fit in (400, 401)
    assert len(plain.test) == 300
    homes, rest = plain.clusters[:n_fit], plain.clusters[plain.test]
    assert not set(homes) & set(rest)
    training = np.setdiff1d(np.arange(n_fit), plain.calibration)
    assert not set(plain.clusters[plain.calibration]) & set(plain.clusters[training])
    assert 0.05 < noisy.group.mean() < 0.35


@pytest.mark.parametrize(
    ("levels", "share"),
    [(["f", "m"], 1 / 2), (["a", "b", "c"], 1 / 3), (["a"] * 9 + ["b"], 1 / 10)],
)
def test_noise_goes_to_a_minority_whatever_the_cells(levels, share):
    columns = pd.DataFrame({"one": "same", "who": levels * 10})
    for seed in range(5):
        group = random_group(columns, np.random.default_rng(seed))
        assert group.mean() == pytest.approx(share)
        assert columns.loc[group, "who"].nunique() == 1
    with pytest.raises(InvalidInputError, match="all rows are alike in one; name another"):
        random_group(columns[["one"]], np.random.default_rng(0))


def test_split_in_the_benchmark_is_split_outside_it(table, tmp_path):
    bench = problem(table).prepare(Store(tmp_path))
    sets, _ = sets_of(MARGINAL, bench, "aps")
    seed = int(problem(table).rng(TRAIN).integers(2**31))
    clf = SplitConformalClassifier(MODELS["logistic"](seed), random_state=bench.seed())
    rows = np.setdiff1d(np.arange(len(bench.y)), bench.test)
    clf.fit(bench.X.iloc[rows], bench.y[rows], clusters=bench.clusters[rows])
    assert clf.classes_.tolist() == list(range(6))
    expected = clf.predict_set(bench.X.iloc[bench.test])
    assert (sets == expected).mean() > 0.999  # stored in single precision


def test_methods_and_scores_share_every_training(folder, tmp_path, monkeypatch):
    trained = []
    real = _bench._train

    def counted(bench, rows, y):
        trained.append(len(rows))
        return real(bench, rows, y)

    monkeypatch.setattr(_bench, "_train", counted)
    said = {
        "scores": ["lac", "aps"],
        "labels": ["natural"],
        "methods": ["split", "rcp", f"{PEERS}:MapieSplit"],
    }
    done = run(folder, tmp_path / "out", **said)
    assert len(done.results) == 6
    assert len(trained) == 6  # the model and its five folds

    monkeypatch.setattr(MethodCell, "compute", None)  # a second run computes nothing
    again = run(folder, tmp_path / "out", **said)
    pd.testing.assert_frame_equal(again.results, done.results, check_exact=False, rtol=1e-4)


def test_methods_of_other_authors_enter_from_files(folder, tmp_path):
    # without households, of which only fareg counts each once
    rows = TABLE.replace('clusters = "household"', "").replace('["id"]', '["id", "household"]')
    theirs = [f"{PEERS}:{name}" for name in ("MapieSplit", "CrepesSplit", "CrepesMondrian")]
    theirs += [f"{HERE}/rivals.py:{k}" for k in ("ConformalTree", "BatchGCP", "ClusteredLabels")]
    said = {"methods": ["split", "oracle", *theirs], "scores": ["lac", "aps"]}
    done = benchmark(written(folder, rows, **said), out=tmp_path / "out", jobs=2)
    assert (done.results["error"] == "").all()
    for _, own in done.results.groupby("labels"):
        sizes = own.set_index(["method", "score"])["mean_size"]
        assert sizes["MAPIE split", "lac"] == pytest.approx(sizes["Split", "lac"], abs=0.02)
        # crepes keeps a label whose p-value is exactly alpha: one rank more
        assert 0 <= sizes["crepes", "lac"] - sizes["Split", "lac"] < 0.25
        assert ("crepes", "aps") not in sizes  # it does not know the score
        for name in ("Conformal Tree", "BatchGCP", "Clustered labels"):
            assert sizes[name, "aps"] == pytest.approx(sizes["Split", "aps"], rel=0.3)
    assert set(done.results.loc[done.results["method"] == "Oracle", "labels"]) == {"noise"}
    text = (tmp_path / "out" / "page.md").read_text()
    assert "MAPIE split" in text.split("## Other packages")[1]


def test_methods_from_elsewhere_and_failures_are_rows(folder, tmp_path):
    theirs = [f"{__name__}:{name.__name__}" for name in (Nothing, Refuses, OutsideIn)]
    said = {"labels": ["natural"], "methods": ["split", *theirs]}
    done = run(folder, tmp_path / "out", **said)
    rows = done.results.set_index("method")
    assert rows.loc["Nothing", ["coverage", "mean_size", "empty"]].tolist() == [0, 0, 1]
    assert rows.loc["Refuses", "error"] == "ValueError: these rows are not for me"
    assert "with their index, to the estimator, got ndarray" in rows.loc["OutsideIn", "error"]
    page = (tmp_path / "out" / "page.md").read_text()
    assert "Refuses, 1 times (made-up): ValueError" in page

    note = folder / "conclusions.md"
    note.write_text("## What to conclude\n\nSplit sets cover {{ natural.Split.coverage }}%.\n")
    benchmark(written(folder, **said, page="../again.md"), out=tmp_path / "out")
    covered = 100 * rows.loc["Split", "coverage"]
    assert f"Split sets cover {covered:.1f}%." in (tmp_path / "again.md").read_text()
    note.write_text("{{ natural.Spilt.coverage }}")
    with pytest.raises(InvalidInputError, match=r"conclusions\.md is not a template that can be"):
        run(folder, tmp_path / "out", **said)


def test_a_package_that_is_missing_is_refused_at_once(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "crepes", None)  # importing it fails
    _module_of.cache_clear()
    with pytest.raises(InvalidInputError, match=r"cannot import the method .*Mondrian: .*crepes"):
        run(folder, tmp_path / "out", methods=["split", f"{PEERS}:CrepesMondrian"])
    assert not (tmp_path / "out").exists()


def test_sizes_beyond_a_table_are_one_size(folder, tmp_path):
    said = {"methods": ["split"], "labels": ["natural"], "name": "2018", "sizes": [700, 900]}
    assert len(run(folder, tmp_path / "out", **said).results) == 1


@pytest.mark.parametrize(
    ("methods", "labels"),
    [(["matched"], "natural"), (["oracle"], "noise"), ([f"{__name__}:Refuses"], "natural")],
)
def test_a_page_without_split_sets_says_so(folder, tmp_path, methods, labels):
    run(folder, tmp_path / "out", methods=methods, labels=[labels])
    page = (tmp_path / "out" / "page.md").read_text()
    assert "There is nothing to compare" in page
    assert ("## Failures" in page) == methods[0].endswith("Refuses")


@pytest.fixture
def results():
    """Results of two methods on two tables, without any work."""
    values = dict.fromkeys(
        ("coverage", "worst_cells", "matched_worst_cells", "matched_group_coverage"), 0.9
    )
    values |= dict.fromkeys(("ert_under", "wsc_plus_held_out", "group_coverage"), 0.1)
    values |= dict.fromkeys(("fit_seconds", "predict_seconds", "training_seconds"), 0.1)
    values |= {"labels": "natural", "model": "hgb", "score": "lac", "n": 400, "seed": 0}
    values |= {"mean_size": 2.0, "n_named": 1, "error": ""}
    own = product(("a", "b"), ("Split", "FaReG (levels)"))
    return pd.DataFrame([{"table": table, "method": method, **values} for table, method in own])


def test_a_page_has_gaps_where_a_method_failed_or_a_measure_is_missing(results, tmp_path):
    failed = (results["table"] == "b") & (results["method"] != "Split")
    results.loc[failed, "error"] = "RuntimeError: no"
    results.loc[failed, ["coverage", "worst_cells", "mean_size"]] = np.nan
    write_page(results, [], tmp_path, tmp_path / "failed.md")
    shown = pd.read_csv(tmp_path / "failed" / "tables.csv").set_index(["table", "method"])
    assert shown.loc[("a", "FaReG (levels)"), ["size_ratio", "share_named"]].tolist() == [1, 1]
    assert ("b", "Split") in shown.index
    assert ("b", "FaReG (levels)") not in shown.index

    results = results.assign(error="", worst_cells=np.nan, matched_worst_cells=np.nan)
    results["worst_cells"] = results["worst_cells"].mask(results["table"] == "a", 0.8)
    write_page(results, [], tmp_path, tmp_path / "empty.md")
    shown = pd.read_csv(tmp_path / "empty" / "tables.csv").set_index(["table", "method"])
    assert np.isnan(shown.loc[("b", "Split"), "worst_cells"])
    assert "nan" not in (tmp_path / "empty.md").read_text()


def test_the_published_method_is_compared_when_named_and_small_tables_are(folder, tmp_path):
    table = TABLE.replace('title = "Made up"', "")
    said = {"methods": ["split", "paper"], "sizes": [400, 5000], "labels": ["natural"]}
    done = run(folder, tmp_path / "out", table, **said, test_rows=200)
    assert set(done.results["method"]) == {"Split", "FaReG (paper)"}
    assert set(done.results["error"]) == {""}
    (sentence,) = done.too_small
    assert sentence == "made-up is too small for N = 5000: N = 582 is used instead."
    page = (tmp_path / "out" / "page.md").read_text()
    assert sentence in page
    assert "up to 1 seed." in page
    assert "[made-up](https://example.org/made-up)" in page  # it needs no title


def test_the_command_runs_a_benchmark(folder, tmp_path):
    path = written(folder, methods=["split"], scores=["aps"], sizes=[300])
    line = ["benchmark", str(path), "--out", str(tmp_path / "out"), "--engine", "local:1"]
    answer = CliRunner().invoke(app, line)
    assert answer.exit_code == 0, answer.output
    assert "2 rows, 0 of them failures" in answer.output
    answer = CliRunner().invoke(app, ["benchmark", str(tmp_path / "none.toml")])
    assert answer.exit_code == 2
    assert "cannot read the settings" in answer.output


@pytest.mark.parametrize(("worst", "others"), [(0.9, 0.9), (0.6, 0.95)])
def test_worst_cells_find_who_is_short_changed_without_bias(worst, others):
    rng = np.random.default_rng(0)
    cells = np.repeat(np.eye(30), 80, axis=0)
    coverage = np.where(np.arange(len(cells)) < 240, worst, others)  # of three cells
    found = [worst_cells(cells, rng.random(len(cells)) < coverage, rng) for _ in range(200)]
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(worst, abs=4 * error if worst == others else 0.02)
    assert error < 0.004
