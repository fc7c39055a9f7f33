"""The arena: contests on tables, what is measured there, and the page."""

import os
import shutil
import sys
from itertools import product

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fareg import SplitConformalClassifier
from fareg._validation import InvalidInputError
from fareg.cli import app
from fareg.datasets import make_synthetic
from fareg.experiments import benchmark, page_of
from fareg.experiments._store import Store
from fareg.experiments.arena import _contests, _measures
from fareg.experiments.arena._contests import Contest, enter, random_group
from fareg.experiments.arena._measures import worst_cells
from fareg.experiments.arena._page import write_page
from fareg.experiments.arena._rows import ArenaCell, find_methods
from fareg.experiments.arena._tables import define_tables, find_table, read_people
from fareg.workflow import MODELS

TOML = """
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
SMALL = {"models": ["logistic"], "scores": ["lac"], "sizes": [400], "repeats": 1, "jobs": 1}


class Nothing:
    """A method from elsewhere that leaves all sets empty."""

    def __init__(self, estimator, **parameters):
        self.estimator = estimator

    def fit(self, X, y, clusters=None):
        return self

    def predict_set(self, X):
        return np.zeros((len(X), 6), dtype=bool)


class Oracle(Nothing):
    """A method from elsewhere that has the name of one of fareg's."""


class Refuses(Nothing):
    """A method from elsewhere that fails."""

    def fit(self, X, y, clusters=None):
        raise ValueError("these rows\nare not for me")


class OutsideIn(Nothing):
    """A method that forgets which rows it has."""

    def fit(self, X, y, clusters=None):
        self.estimator.fit(X.to_numpy(), y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one table of 1,000 people in households of two."""
    folder = tmp_path_factory.mktemp("tables")
    data = make_synthetic(1000, random_state=0)
    people = data.X.assign(
        label=data.y.astype(str), id=np.arange(1000), household=np.arange(1000) // 2
    )
    people.loc[::50, "label"] = "?"
    people.to_csv(folder / "people.csv", index=False)
    (folder / "made-up.toml").write_text(TOML)
    return folder


@pytest.fixture
def table(folder):
    return find_table(define_tables(folder)[0], folder)


def contest(table, labels="natural", seed=0):
    return Contest(table, labels, "logistic", 400, seed, 300)


def test_a_toml_file_says_what_a_table_means(table):
    people = read_people(table)
    written = pd.read_csv(table.path)
    kept = written[(written["label"] != "?") & (written["id"] >= 10)]
    assert len(people.y) == len(kept)
    assert not {"id", "household", "label"} & set(people.X)
    assert [people.classes[code] for code in people.y] == kept["label"].tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TOML.replace("target", "taget"), "made-up.toml lacks target"),
        (TOML + "weights = 'w'\n", "has the unknown key weights"),
        (TOML + "path\n", "is no TOML file"),
        (TOML.replace("people.csv", "other.csv"), "get it from https://example.org/made-up"),
        (TOML.replace('"Gender"', '"Gendr"'), "has no column Gendr; did you mean Gender"),
        (TOML.replace("id = 10", "Color = 1"), "at_least of made-up needs numbers, column Color"),
        (TOML.replace("id = 10", "Color = 'a'"), "at_least in .* must be a number for each column"),
        (
            TOML.replace("{id = 10}", "5"),
            "at_least in .* must be a number for each column, .* got 5",
        ),
        (TOML.replace('["id"]', '"id"'), "drop in .* must be a list of texts, .* got 'id'"),
        (TOML + "edges = ['low']", "edges in .* must be a list of numbers"),
        (TOML.replace('["Color", "Gender"]', "[]"), "made-up.toml lacks sensitive"),
        (
            TOML.replace('"label"', '"Color"') + "edges = [1]",
            "edges of made-up needs numbers, column Color holds 'Blue'",
        ),
    ],
)
def test_a_wrong_definition_is_one_sentence(folder, tmp_path, text, message):
    (tmp_path / "made-up.toml").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        benchmark(tmp_path, data=folder, out=tmp_path / "out", methods=["split"], **SMALL)


def test_the_repository_defines_its_tables(request):
    tables = define_tables(request.config.rootpath / "benchmarks" / "tables")
    assert len(tables) >= 10
    assert all(table.published.startswith("https://") for table in tables)


def test_households_are_tested_or_not_and_noise_stays_in_its_group(table, tmp_path):
    plain = enter(contest(table), Store(tmp_path))
    noisy = enter(contest(table, "noise"), Store(tmp_path))
    assert len(plain.y) in (400, 401)
    assert len(plain.test.y) == 300
    written = pd.read_csv(table.path).drop_duplicates(["Feature 1", "Feature 2"])
    homes = written.set_index(["Feature 1", "Feature 2"])["household"]
    fitted, tested = (
        set(homes.loc[list(zip(X["Feature 1"], X["Feature 2"], strict=True))])
        for X in (plain.X, plain.test.X)
    )
    assert not fitted & tested
    calibration = plain.calibration
    training = np.setdiff1d(np.arange(len(plain.y)), calibration)
    assert not set(plain.clusters[calibration]) & set(plain.clusters[training])
    assert noisy.group is not None
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


def test_noise_changes_labels_of_the_group_only(table, tmp_path, monkeypatch):
    noisy = enter(contest(table, "noise"), Store(tmp_path))
    monkeypatch.setattr(_contests, "RANDOM_LABELS", 0.0)
    clean = enter(contest(table, "noise"), Store(tmp_path))
    changed = noisy.y != clean.y
    assert changed.any()
    assert not changed[~noisy.group].any()


def test_split_in_the_arena_is_split_outside_it(table, tmp_path):
    arena = enter(contest(table), Store(tmp_path))
    sets, _ = ArenaCell(contest(table), "aps", find_methods(["split"])[0])._sets(arena)
    seed = int(contest(table).rng(_contests.TRAIN).integers(2**31))
    clf = SplitConformalClassifier(MODELS["logistic"](seed), random_state=arena.seed)
    clf.fit(arena.X, arena.y, clusters=arena.clusters)
    assert clf.classes_.tolist() == list(range(6))
    assert (sets == clf.predict_set(arena.test.X)).mean() > 0.999  # stored in single precision


def test_methods_and_scores_share_every_training(folder, tmp_path, monkeypatch):
    trained = []
    real = _contests.Trainings._train

    def counted(self, rows, y):
        trained.append(len(rows))
        return real(self, rows, y)

    monkeypatch.setattr(_contests.Trainings, "_train", counted)
    run = {**SMALL, "scores": ["lac", "aps"], "labels": ["natural"]}
    methods = ["split", "rcp", "mapie"]
    done = benchmark(folder, out=tmp_path, methods=methods, **run)
    assert len(done.results) == 6
    assert len(trained) == 6  # the model and its five folds

    monkeypatch.setattr(ArenaCell, "compute", None)  # a second run computes nothing
    again = benchmark(folder, out=tmp_path, methods=methods, **run)
    pd.testing.assert_frame_equal(again.results, done.results, check_exact=False, rtol=1e-4)


def test_a_training_on_other_labels_is_another_one_and_changed_rows_are_refused(table, tmp_path):
    arena = enter(contest(table), Store(tmp_path))
    X, y = arena.X, arena.y
    own, other, again = (
        _contests.RememberedModel(arena.trainings).fit(X, labels).predict_proba(X)
        for labels in (y, 5 - y, y)
    )
    assert (own == again).all()
    assert not np.allclose(own, other)
    model = _contests.RememberedModel(arena.trainings)
    for changed in (X.drop(columns="Color"), X.assign(Color="Blue"), X.set_axis(X.index + 10**6)):
        with pytest.raises(InvalidInputError, match="as it got them, got other values, columns or"):
            model.fit(changed, y)


def test_peers_agree_with_split_and_the_oracle_covers_its_group(folder, tmp_path):
    methods = ["split", "mapie", "crepes", "crepes-mondrian", "oracle"]
    rows = tmp_path / "rows"  # without households, of which only fareg counts each once
    rows.mkdir()
    shutil.copy(folder / "people.csv", rows)
    text = TOML.replace('clusters = "household"', "").replace('["id"]', '["id", "household"]')
    (rows / "made-up.toml").write_text(text)
    done = benchmark(rows, out=tmp_path / "out", methods=methods, **SMALL)
    assert (done.results["error"] == "").all()
    for _, own in done.results.groupby("labels"):
        sizes = own.set_index("method")["mean_size"]
        assert sizes["MAPIE split"] == pytest.approx(sizes["Split"], abs=0.02)
        # crepes keeps a label whose p-value is exactly alpha: one rank more
        assert 0 <= sizes["crepes"] - sizes["Split"] < 0.25
    assert set(done.results.loc[done.results["method"] == "Oracle", "labels"]) == {"noise"}
    text = (tmp_path / "out" / "page.md").read_text()
    assert "## Other packages" in text
    assert "MAPIE split" in text


def test_methods_from_elsewhere_and_failures_are_rows(folder, tmp_path):
    run = {**SMALL, "labels": ["natural"]}
    theirs = [f"{__name__}:{name.__name__}" for name in (Nothing, Refuses, OutsideIn)]
    done = benchmark(folder, out=tmp_path, methods=["split", *theirs], **run)
    rows = done.results.set_index("method")
    assert rows.loc["Nothing", ["coverage", "mean_size", "empty"]].tolist() == [0, 0, 1]
    assert rows.loc["Refuses", "error"] == "ValueError: these rows are not for me"
    assert "with its index, got ndarray" in rows.loc["OutsideIn", "error"]
    page = (tmp_path / "page.md").read_text()
    assert "Refuses, 1 times (made-up): ValueError" in page

    (folder / "conclusions.md").write_text("## What to conclude\n\nNothing.\n")
    page_of(folder, tmp_path, tmp_path / "again.md")
    assert "## What to conclude" in (tmp_path / "again.md").read_text()


def test_a_package_that_is_missing_is_refused_at_once(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "crepes", None)  # importing it fails
    with pytest.raises(InvalidInputError, match=r"crepes .* pip install 'fareg\[bench\]'"):
        benchmark(folder, out=tmp_path, methods=["split", "crepes-mondrian"], **SMALL)
    assert not list(tmp_path.iterdir())


def test_a_second_run_adds_no_row_to_a_table_that_is_named_like_a_number(folder, tmp_path):
    (tmp_path / "2018.toml").write_text(TOML)
    run = {**SMALL, "methods": ["split"], "labels": ["natural"], "out": tmp_path / "out"}
    for _ in range(2):
        assert len(benchmark(tmp_path, data=folder, **run).results) == 1
    assert page_of(tmp_path, tmp_path / "out").results["table"].tolist() == ["2018"]


@pytest.mark.parametrize(
    "name", ["spilt", "no_such_module:Method", "fareg:NoMethod", f"{__name__}:Oracle"]
)
def test_an_unknown_method_is_refused_at_once(folder, tmp_path, name):
    with pytest.raises(InvalidInputError, match=name.split(":")[-1]):
        benchmark(folder, out=tmp_path, methods=[name], **SMALL)


@pytest.mark.parametrize(
    ("methods", "labels"),
    [(["matched"], "natural"), (["oracle"], "noise"), ([f"{__name__}:Refuses"], "natural")],
)
def test_a_page_without_split_sets_says_so(folder, tmp_path, methods, labels):
    done = benchmark(folder, out=tmp_path, methods=methods, **{**SMALL, "labels": [labels]})
    assert len(done.results) == 1
    page = (tmp_path / "page.md").read_text()
    assert "There is nothing to compare" in page
    assert ("## Failures" in page) == methods[0].endswith("Refuses")


@pytest.fixture
def results():
    """Results of two methods on two tables, without any work."""
    values = dict.fromkeys(("coverage", "worst_cells", "matched_worst_cells"), 0.9)
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
    text = (tmp_path / "failed.md").read_text()
    assert "| a | 0.900 | 2.00 | 0.900 | 0.900 | 1.00 | 1 of 1 |" in text
    assert "| b | 0.900 | 2.00 | 0.900 |  |  |  |" in text

    results = results.assign(error="", worst_cells=np.nan, matched_worst_cells=np.nan)
    results["worst_cells"] = results["worst_cells"].mask(results["table"] == "a", 0.8)
    write_page(results, [], tmp_path, tmp_path / "empty.md")
    text = (tmp_path / "empty.md").read_text()
    assert "| b | 0.900 | 2.00 |  |" in text
    assert "nan" not in text


def test_without_a_cell_of_enough_rows_other_measures_are_told(table, tmp_path, monkeypatch):
    monkeypatch.setattr(_measures, "MIN_CELL", 301)
    arena = enter(contest(table), Store(tmp_path))
    row = ArenaCell(contest(table), "lac", find_methods(["split"])[0]).compute(arena).iloc[0]
    assert row["error"] == ""
    assert np.isnan(row["worst_cells"])
    assert 0.5 < row["coverage"] < 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sizes": []}, "nothing can be compared"),
        ({"methods": ["oracle"], "labels": ["natural"]}, "nothing can be compared"),
        ({"test_rows": 10}, "test_rows must be a whole number >= 60"),
    ],
)
def test_a_benchmark_of_nothing_is_refused(folder, tmp_path, options, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        benchmark(folder, out=tmp_path, **{**SMALL, **options})


def test_a_page_that_cannot_be_written_is_refused_at_once(folder, tmp_path):
    os.mkfifo(tmp_path / "page.md")
    with pytest.raises(InvalidInputError, match="it exists and is not a regular file"):
        benchmark(folder, out=tmp_path / "out", page=tmp_path / "page.md", **SMALL)
    assert os.listdir(tmp_path) == ["page.md"]


def test_sizes_beyond_a_table_are_one_size(folder, tmp_path):
    run = {**SMALL, "labels": ["natural"], "sizes": [700, 900]}
    assert len(benchmark(folder, out=tmp_path, methods=["split"], **run).results) == 1


def test_the_command_runs_a_benchmark(folder, tmp_path):
    options = "--method split --models logistic --scores aps --sizes 300 --repeats 1 --jobs 1"
    line = ["benchmark", str(folder), "--out", str(tmp_path / "out"), *options.split()]
    answer = CliRunner().invoke(app, line)
    assert answer.exit_code == 0, answer.output
    assert "2 rows, 0 of them failures" in answer.output
    answer = CliRunner().invoke(app, [*line, "--only", "other"])
    assert answer.exit_code == 2
    assert "unknown table other" in answer.output


def test_worst_cells_are_unbiased_where_coverage_is_even():
    rng = np.random.default_rng(0)
    cells = np.repeat(np.eye(30), 80, axis=0)
    found = [worst_cells(cells, rng.random(len(cells)) < 0.9, rng) for _ in range(200)]
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(0.9, abs=4 * error)
    assert error < 0.002


def test_worst_cells_find_who_is_short_changed():
    rng = np.random.default_rng(0)
    cells = np.repeat(np.eye(30), 80, axis=0)
    coverage = np.where(np.arange(len(cells)) < 240, 0.6, 0.95)  # three cells lack a third
    found = [worst_cells(cells, rng.random(len(cells)) < coverage, rng) for _ in range(50)]
    assert np.mean(found) == pytest.approx(0.6, abs=0.02)
