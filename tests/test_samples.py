"""A folder larger than memory: the rows that are drawn from it, how they are read, and by whom."""

import json
from collections import Counter
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy.stats import chisquare
from typer.testing import CliRunner

from fareg import FaregError, FaregWarning
from fareg.cli import app
from fareg.datasets import make_synthetic
from fareg.workflow import Sampling, audit_file, fit_file, predict_folder
from fareg.workflow._parquet import draw_rows
from fareg.workflow._tables import read_table

DATA = make_synthetic(600, random_state=0)
FRAME = DATA.X[["Color", "Gender", "Feature 1"]].assign(
    outcome=[f"class {label}" for label in DATA.y], number=np.arange(600)
)
SENSITIVE = ["Color", "Gender"]


def write_parts(folder, frame=FRAME, n_parts=4, **options):
    """Write parts in folders by colour; rows keep their number."""
    for color, rows in frame.groupby("Color"):
        (folder / f"Color={color}").mkdir(parents=True)
        for part, piece in enumerate(np.array_split(np.arange(len(rows)), n_parts)):
            path = folder / f"Color={color}" / f"part-{part}.parquet"
            rows.iloc[piece].drop(columns="Color").to_parquet(path, row_group_size=50, **options)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_parts(tmp_path_factory.mktemp("people") / "parts")


def test_every_set_of_rows_is_as_probable_as_any_other():
    for n_wanted in (2, 4):  # fewer and more than half
        drawn = Counter(tuple(draw_rows(6, n_wanted, seed)) for seed in range(600))
        assert set(drawn) == set(combinations(range(6), n_wanted))
        assert chisquare(list(drawn.values())).pvalue > 1e-3
        assert len(drawn) == comb(6, n_wanted)


@pytest.mark.parametrize(("n_rows", "n_wanted"), [(10**12, 1000), (50, 50), (50, 80), (50, 49)])
def test_drawn_rows_are_distinct_and_in_order(n_rows, n_wanted):
    rows = draw_rows(n_rows, n_wanted, 0)
    assert len(rows) == min(n_rows, n_wanted)
    assert (np.diff(rows) > 0).all()
    assert rows[0] >= 0
    assert rows[-1] < n_rows


def test_a_sample_is_some_of_the_rows_and_no_other_column_is_decoded(folder, monkeypatch):
    whole = read_table(folder, labels=["outcome"])
    assert sorted(whole["number"]) == list(range(600))
    asked = []
    original = pyarrow.parquet.ParquetFile.iter_batches

    def spy(self, *arguments, **options):
        asked.append(options["columns"])
        return original(self, *arguments, **options)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", spy)
    columns = ["Color", "number", "outcome"]
    with pytest.warns(FaregWarning, match="has 600 rows, of which 100 were drawn at random"):
        some = read_table(
            folder, labels=["outcome"], columns=columns, sampling=Sampling(100, seed=3)
        )
    assert list(some) == columns
    assert {tuple(names) for names in asked} == {("number", "outcome")}
    pd.testing.assert_frame_equal(
        some.astype(str), whole.loc[some.index, columns].astype(str), check_index_type=False
    )
    expected = FRAME.set_index("number").loc[some["number"]]
    assert some["Color"].tolist() == expected["Color"].tolist()
    assert some["outcome"].tolist() == expected["outcome"].tolist()
    assert some["Color"].dtype == "category"


def test_parts_need_not_agree_on_types_that_mean_the_same(tmp_path):
    pieces = [
        pa.table({"n": [1, 2], "t": ["a", "b"]}),
        pa.table({"n": [0.5, None], "t": pa.array([None, None])}),
        pa.table({"n": pa.array([7], pa.int8()), "t": pa.array(["c"]).dictionary_encode()}),
    ]
    for number, piece in enumerate(pieces):
        pyarrow.parquet.write_table(piece, tmp_path / f"{number}.parquet")
    frame = read_table(tmp_path)
    assert frame["n"].tolist()[:3] == [1, 2, 0.5]
    assert frame["t"].dropna().tolist() == ["a", "b", "c"]
    pyarrow.parquet.write_table(pa.table({"n": ["x"], "t": ["c"]}), tmp_path / "3.parquet")
    with pytest.raises(FaregError, match="hold columns of different types"):
        read_table(tmp_path)


def run(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_a_folder_is_fitted_audited_and_predicted_as_its_rows_in_one_file_are(folder, tmp_path):
    common = {"target": "outcome", "sensitive": SENSITIVE, "estimator": "logistic"}
    sampling = Sampling(400, seed=1)
    trial = fit_file(
        folder,
        out=tmp_path / "m.fareg",
        test_out=tmp_path / "t.parquet",
        sampling=sampling,
        **common,
    )
    rows = read_table(folder, labels=["outcome"], sampling=sampling)
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    again = fit_file(tmp_path / "rows.parquet", out=tmp_path / "n.fareg", **common)
    assert [trial.to_dict()[name] for name in ("before", "after")] == [
        again.to_dict()[name] for name in ("before", "after")
    ]
    test = pd.read_parquet(tmp_path / "t.parquet")
    assert len(test) == 80
    assert sorted(test["number"]) == sorted(rows.loc[trial.X.index, "number"])
    assert test["Color"].tolist() == FRAME["Color"][test["number"]].tolist()
    found = audit_file(folder, target="outcome", model=tmp_path / "m.fareg", sensitive=SENSITIVE)
    assert found.n_samples == 600 - 400 + 80  # those that the model has not seen
    told = predict_folder(tmp_path / "m.fareg", folder, tmp_path / "sets", jobs=1)
    assert told["rows"] == 600


def test_samples_with_one_seed_for_fit_and_audit_are_independent():
    fit = Sampling(8000, seed=0)
    assert fit.apart() == fit.apart()
    common = 0
    for seed in range(20):
        drawn = Sampling(5000, seed)
        rows = draw_rows(50_000, 5000, drawn.apart().seed)
        assert len(rows) == 5000
        common += len(np.intersect1d(rows, draw_rows(50_000, 8000, drawn.seed)))
    assert abs(common / 20 - 800) < 5 * np.sqrt(800 * 0.84 * 0.9 / 20)  # hypergeometric


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_an_audit_draws_other_rows_than_the_fit_did(folder, tmp_path):
    model = tmp_path / "m.fareg"
    options = {"target": "outcome", "sampling": Sampling(200)}
    fit_file(folder, out=model, estimator="logistic", sensitive=SENSITIVE, **options)
    found, again = (audit_file(folder, model=model, **options) for _ in range(2))
    assert found.n_samples > 120  # 160 of 600 were seen, which is 53 of 200 on average
    assert found.to_dict() == again.to_dict()


@pytest.mark.slow
def test_dask_reads_the_same_rows(folder, tmp_path):
    distributed = pytest.importorskip("distributed")
    stages = []
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        there = Sampling(300, 2, "dask", cluster.scheduler_address)
        with pytest.warns(FaregWarning, match="drawn at random"):
            far = read_table(folder, labels=["outcome"], sampling=there)
    with pytest.warns(FaregWarning, match="drawn at random"):
        near = read_table(folder, labels=["outcome"], sampling=Sampling(300, 2))
    pd.testing.assert_frame_equal(far, near)
    sets = near.assign(set=near["outcome"].where(near["Gender"] == "Male", ""))
    sets.to_parquet(tmp_path / "sets.parquet")
    audit_file(
        tmp_path / "sets.parquet",
        target="outcome",
        sets=["set"],
        sensitive=SENSITIVE,
        progress=stages.append,
    )
    assert len(stages) == 3


@pytest.mark.slow
def test_the_shell_samples_folders_only(folder, tmp_path):
    out = tmp_path / "m.fareg"
    options = ("--target", "outcome", "--estimator", "logistic", "--json", "--out", out)
    told = json.loads(run("fit", folder, "--max-rows", 200, *options).stdout)
    assert sum(told["rows"].values()) == 200
    assert f"{folder} has 600 rows, of which 200 were drawn at random" in told["warnings"]
    FRAME.to_parquet(tmp_path / "one.parquet")
    for option in (("--max-rows", 10), ("--engine", "dask")):
        arguments = ("fit", tmp_path / "one.parquet", *options, *option)
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exit_code == 2
        assert "are for a folder of Parquet files" in done.stderr


def test_a_folder_without_rows_is_told_as_such(tmp_path):
    FRAME.iloc[:0].to_parquet(tmp_path / "part.parquet")
    with pytest.raises(FaregError, match="has no rows"):
        read_table(tmp_path)
