"""A table that changes while it is read is refused, and nothing is written."""

import os
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

from fareg import FaregError
from fareg.datasets import make_synthetic
from fareg.workflow import calibrate_file, fit_file, predict_file

pytestmark = pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
DATA = make_synthetic(2400, random_state=0)
FRAME = DATA.X.assign(outcome=DATA.y, id=np.arange(2400))
NEW = FRAME[1600:].reset_index(drop=True)
CHANGED = "changed while it was read, so nothing is written"
OPENED = []
sys.addaudithook(lambda event, arguments: event == "open" and OPENED.append(str(arguments[0])))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    FRAME[:1600].to_parquet(folder / "train.parquet")
    options = {"sensitive": ["Color", "Gender"], "drop": ["id"], "estimator": "logistic"}
    fit_file(folder / "train.parquet", target="outcome", out=folder / "m.fareg", **options)
    return folder / "m.fareg"


def write(frame, path):
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)


def replaced(path):
    """Replace a file by another one with as many rows."""
    other = path.with_name(f"other-{path.name}")
    write(NEW.assign(id=NEW["id"] + 10_000), other)
    os.replace(other, path)


def grown(path):
    with open(path, "ab") as file:
        file.write(path.read_bytes()[-50:])


def rewritten(path):
    """Change a file in place, without changing its size."""
    content = path.read_bytes()
    path.write_bytes(content[:-40] + content[-40:].replace(b"2", b"3"))


def once(change, path):
    """Return a function that changes a file when it is first called."""
    pending = [change]

    def call(*arguments):
        while pending:
            pending.pop()(path)

    return call


@pytest.mark.parametrize("change", [replaced, grown, rewritten])
@pytest.mark.parametrize("name", ["new.csv", "new.csv.gz", "new.parquet"])
def test_answers_never_stand_beside_columns_of_another_file(name, change, model, tmp_path):
    data, out = tmp_path / name, tmp_path / "out.csv"
    write(NEW, data)
    with pytest.raises(FaregError, match=CHANGED):
        predict_file(model, data, out, keep=["id"], batch_size=200, progress=once(change, data))
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["new.csv", "new.csv.gz"])
def test_prediction_opens_its_table_once(name, model, tmp_path):
    data, out = tmp_path / name, tmp_path / "out.csv"
    write(NEW, data)
    OPENED.clear()
    predict_file(model, data, out, keep=["id"], batch_size=200)
    assert OPENED.count(str(data)) == 1
    assert pd.read_csv(out)["id"].tolist() == NEW["id"].tolist()


@pytest.fixture
def parts(tmp_path):
    (tmp_path / "parts").mkdir()
    for number, piece in enumerate(np.array_split(np.arange(len(NEW)), 4)):
        NEW.iloc[piece].to_parquet(tmp_path / "parts" / f"{number}.parquet")
    return tmp_path / "parts"


def doubled(path):
    shutil.copy(path, path.with_name("4.parquet"))


@pytest.mark.parametrize("change", [replaced, doubled])
def test_a_folder_that_changes_is_refused(change, model, parts, tmp_path):
    out = tmp_path / "sets"
    with pytest.raises(FaregError, match=CHANGED):
        predict_file(model, parts, out, jobs=1, progress=once(change, parts / "0.parquet"))
    assert not out.exists()


def test_a_run_goes_on_with_parts_that_hold_the_same_rows_only(model, parts, tmp_path):
    first, out = parts / "0.parquet", tmp_path / "sets"
    last = (parts / "3.parquet").read_bytes()
    (parts / "3.parquet").write_bytes(b"damaged")
    with pytest.raises(FaregError, match="cannot be read as Parquet"):
        predict_file(model, parts, out, jobs=1)
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob(".sets.*/*.parquet")}
    assert kept.keys() == {"0.parquet", "1.parquet", "2.parquet"}
    (parts / "3.parquet").write_bytes(last)
    time = first.stat().st_mtime_ns
    pd.read_parquet(first)[::-1].to_parquet(first)
    os.utime(first, ns=(time, time))  # other rows, as old as the former ones
    os.utime(parts / "1.parquet")  # newer, with the same rows
    predict_file(model, parts, out, jobs=1)
    after = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert {name for name, time in kept.items() if after[name] == time} == kept.keys() - {
        first.name
    }
    predict_file(model, parts, tmp_path / "fresh", jobs=1)
    for path in out.iterdir():
        assert path.read_bytes() == (tmp_path / "fresh" / path.name).read_bytes()


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_other_commands_refuse_a_table_that_changes_between_readings(name, model, tmp_path):
    data, out, test = (tmp_path / file for file in (name, "new.fareg", "test.csv"))
    fit = {"target": "outcome", "out": out, "estimator": "logistic", "test_out": test}
    commands = [
        lambda **options: fit_file(data, **fit, **options),
        lambda **options: calibrate_file(model, data, target="outcome", out=out, **options),
    ]
    for command in commands:
        write(NEW, data)
        with pytest.raises(FaregError, match=CHANGED):
            command(progress=once(replaced, data))
        assert not out.exists()
        assert not test.exists()
