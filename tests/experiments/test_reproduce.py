"""Every target leaves its tables and figures; bad input leaves one clear line."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fareg._engines import ENGINES
from fareg.cli import app
from fareg.experiments import list_targets, reproduce
from fareg.experiments._bench import BaseModel
from fareg.experiments._measures import MetricSettings
from fareg.experiments._methods import comparison
from fareg.experiments._reports import printed, summarise, with_paper, write_page
from fareg.experiments._targets import DRAWS

TARGETS, TINY = "fareg.experiments._targets", BaseModel(hidden=(8,), max_epochs=2, patience=2)
SMALLER = {
    f"{TARGETS}.QUICK_BASE": replace(TINY, learning_rate=0.01),
    f"{TARGETS}.QUICK_METRICS": MetricSettings(n_directions=4, n_permutations=2),
    **{
        f"{TARGETS}.{k}": n
        for k, n in {"QUICK_EPOCHS": 3, "ACS_TEST": 60, "SLAB_TEST": 100}.items()
    },
    f"{TARGETS}.QUICK_SIZES": (60,),
    "fareg.experiments._measures.ERT_ROUNDS": 2,
    "fareg.experiments._figures.DPI": 20,
}
FIGURES = {"wsc-cdf": "cdf", "selection": "selection", "visualization": "reconstructions"}
PANELS = ("synthetic", "nursery", "time", "delta", "delta-draws", "draws", "beta")
RANGES = {"AGEP": (17, 57), "COW": (1, 8), "SCHL": (1, 24), "MAR": (1, 6), "OCCP": (10, 30)}
RANGES |= {"POBP": (1, 9), "RELP": (0, 5), "WKHP": (10, 60), "SEX": (1, 3), "RAC1P": (1, 10)}
RANGES |= {"PINCP": (1000, 90000)}


@pytest.fixture(scope="module")
def smaller():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALLER.items():
            patch.setattr(name, value)
        yield


@pytest.fixture(scope="module")
def everything(smaller, tmp_path_factory):
    """Run every target once, the census ones on made-up people."""
    folder = tmp_path_factory.mktemp("everything")
    census = folder / "census" / "2018" / "1-Year"
    census.mkdir(parents=True)
    for fips in (15, 35):
        rng = np.random.default_rng(fips)
        people = {name: rng.integers(*ends, 150) for name, ends in RANGES.items()}
        pd.DataFrame({**people, "PWGTP": 1}).to_csv(census / f"psam_p{fips}.csv", index=False)
    own = {"acs_root": folder / "census", "acs_states": ["NM", "HI"], "out": folder / "results"}
    arguments = {"quick": True, "sizes": [100], "jobs": 1, **own}
    return reproduce(**arguments), arguments


def test_every_target_leaves_tables_and_figures(everything):
    done, _ = everything
    assert set(done.files) == set(list_targets())
    assert done.skipped == {}
    for target, paths in done.files.items():
        figure = "panels" if target in PANELS else FIGURES.get(target)
        assert [path.stem for path in paths] == ["summary", *([figure] if figure else [])]
        assert all(path.read_bytes().startswith(b"<?xml") for path in paths[1:])


def test_comparisons_hold_every_method_and_metric(everything):
    done, _ = everything
    for target in ("synthetic", "nursery", "published", "condcp", "acs"):
        summary = summary_of(done, target)
        n_more = {"condcp": 3, "acs": len(comparison()) + 5}
        assert len(summary) == len(comparison()) + n_more.get(target, 0)
        for metric in ("group_coverage", "wsc_plus", "wsc_plus_held_out", "ert", "coverage"):
            assert summary[metric].between(-1, 1).all()
            assert f"{metric}_se" in summary
        assert (summary["size"] <= 6).all()
        assert {"wsc_plus_null_low", "wsc_plus_null_high", "seconds"} <= set(summary)
        summary["base"] = summary.get("base", "")
        for _, own in summary.groupby("base"):
            rows = own.set_index("method")
            for like in ("FaReG (paper)", "FaReG (levels)"):
                matched = rows.loc[f"Marginal at the size of {like}"]
                assert matched["size"] == rows.loc[like, "size"]
                gain = rows.loc[like, "group_coverage"] - matched["group_coverage"]
                assert rows.loc[like, "gain"] == pytest.approx(gain, abs=2e-6)
    assert len(summary_of(done, "draws")) == len(DRAWS)


def summary_of(done, target):
    return pd.read_csv(done.page.with_suffix("") / target / "summary.csv")


def test_the_page_says_what_the_summaries_say(everything, tmp_path):
    done, _ = everything
    text = done.page.read_text()
    for target, paths in done.files.items():
        for figure in (path for path in paths if path.suffix == ".svg"):
            assert f"(page/{target}/{figure.name})" in text
    assert "People of NM, HI; the paper's: CA, NY, TX, AK, AL." in text
    settings = text.split("## Settings")[1]
    assert "n_draws 100" in settings
    assert "epochs 3," in settings  # those that really trained
    assert "epochs 2000" not in settings
    assert "4 (quick) random directions" in settings
    assert text.count("**Small and rough (--quick).**") == len(done.files)
    slabs = text.split("## Table 1")[1].split("## ")[0]
    assert "On the first two features;" in slabs
    assert "(0.829)" in slabs  # what the paper prints for WSC+
    assert "## Not run" not in text

    folder = tmp_path / "other"
    shutil.copytree(done.page.with_suffix("") / "beta", folder / "beta")
    notes = (
        "beta = \"{{ value('beta', 'size', setting=0.5) }} and {{ mean('beta', 'n', setting=2) }}\""
    )
    (folder / "notes.toml").write_text(notes)
    full = pd.read_csv(folder / "beta" / "summary.csv").drop(columns="quick")
    shutil.copytree(folder / "beta", folder / "draws")
    full.to_csv(folder / "draws" / "summary.csv", index=False)  # a full run beside a quick one
    page = write_page(folder.with_suffix(".md")).read_text()
    assert page.count("**Small and rough (--quick).**") == 1
    assert "epochs 2000" in page
    size = summary_of(done, "beta").set_index("setting").loc[0.5, "size"]
    assert f"{size:.2f} and 100" in page
    assert "- Fig. 8" in page.split("## Not run")[1]


def test_the_page_of_this_repository_is_that_of_its_summaries(request, tmp_path):
    docs = request.config.rootpath / "docs"
    shutil.copytree(docs / "reproduction", tmp_path / "reproduction")
    page = write_page(tmp_path / "reproduction.md")
    assert page.read_text() == (docs / "reproduction.md").read_text()


def test_a_second_run_computes_nothing_and_says_the_same(everything, monkeypatch):
    done, arguments = everything
    targets = ["wsc-table", "condcp", "visualization"]
    before = {path: path.read_bytes() for target in targets for path in done.files[target]}

    def nothing(*args):
        raise AssertionError("there is nothing to do")

    monkeypatch.setitem(ENGINES, "local", nothing)
    again = reproduce(targets, **arguments)
    assert again.files == {target: done.files[target] for target in targets}
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wsc"], "unknown target wsc; known are wsc-cdf, wsc-table, synthetic"),
        (["beta", "--engine", "local:0"], "jobs must be"),
        (["beta", "--engine", "ray"], "engine must be one of local, dask"),
        (["acs", "--acs-root", "nowhere"], "PUMS person files are missing"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, message, tmp_path):
    result = CliRunner().invoke(
        app, ["reproduce", *arguments, "--quick", "--out", str(tmp_path / "results")]
    )
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_command_line_lists_runs_and_reports(smaller, tmp_path):
    told = CliRunner().invoke(app, ["reproduce", "--help"]).stdout.replace("\u2502", " ")
    listed = " ".join(told.split()).split("The targets are ")[1].split(".")[0]
    assert listed.replace(" and ", ", ").split(", ") == list(list_targets())
    options = ["--quick", "--engine", "local:1", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, ["reproduce", "wsc-cdf", *options])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["files"]["wsc-cdf"][0].endswith("wsc-cdf/summary.csv")


def test_a_summary_holds_means_and_standard_errors():
    rows = pd.DataFrame({"method": list("aab"), "seed": [0, 1, 0], "x": [1.0, 3.0, 5.0]})
    summary = summarise(rows, ["method"]).set_index("method")
    assert summary.loc["a", ["repeats", "x", "x_se"]].tolist() == [2, 2.0, 1.0]
    assert np.isnan(summary.loc["b", "x_se"])


def test_numbers_meet_the_paper_only_at_the_papers_size():
    table = printed()[printed()["target"] == "eight"]
    ours = table.pivot(index="method", columns="metric", values="paper").reset_index()
    same = with_paper(ours.assign(n=2000), "eight")
    beside = [name for name in same if name.endswith("_paper")]
    assert len(beside) == 4
    for name in beside:
        assert same[name].equals(same[name.removesuffix("_paper")].rename(name))
    assert with_paper(ours.assign(n=500), "eight")[beside].isna().all(axis=None)
