"""Columns that differ from those of fit: a warning from 5% on, a refusal from half on."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fareg
from fareg import FaregError, FaregWarning, SplitConformalClassifier
from fareg._columns import canonical
from fareg._drift import MAX_KNOWN, Strange, count_strange, judge_drift, summarise
from shell import FRAME, refused, run

N = 400
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "sex": RNG.choice(["Female", "Male"], N),
        "town": RNG.choice([f"town {i}" for i in range(8)], N),
        "age": RNG.uniform(18, 90, N),
        "pay": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(size=N)),
        "day": pd.date_range("2020-01-01", periods=N),
        "name": [f"person {i}" for i in range(N)],
    }
)
Y = (X["age"] + RNG.normal(size=N) * 20 > 50).to_numpy().astype(int)


class Half:
    """A model that knows nothing and reads everything."""

    classes_ = np.array([0, 1])

    def predict_proba(self, table):
        return np.full((len(table), 2), 0.5)


def fitted(table=X):
    return SplitConformalClassifier(Half(), random_state=0).conformalize(table, Y)


def some(share, strange, column):
    """Return a column with this share of its first values exchanged."""
    return np.where(np.arange(N) < share * N, strange, X[column])


NAN = float("nan")
CHANGES = {
    "sex": ("FEMALE", "hold a value that fit never had, such as 'FEMALE' (fit had Female, Male)"),
    "town": ("", "hold a value that fit never had, such as '' (fit had town 0, town 1"),
    "age": (200.0, "lie outside 18"),
    "pay": (NAN, "are empty (1"),
}


@pytest.mark.parametrize("column", CHANGES)
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_strange_columns_give_a_warning_from_a_twentieth_and_an_error_from_half(column, make):
    clf, (strange, words) = fitted(), CHANGES[column]

    def changed(share):
        return make({**X, column: some(share, strange, column)})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict_set(changed(0.02))
    with pytest.warns(FaregWarning) as caught:
        clf.predict_set(changed(0.3))
    assert f"column {column}: " in str(caught[0].message)
    assert words in str(caught[0].message)
    for ask in (clf.predict_set, clf.predict_p, clf.predict_table, clf.predict_labels):
        with pytest.raises(FaregError) as error:
            ask(changed(0.8))
        assert words in str(error.value)
        assert "fareg.accept_drift()" in str(error.value)
    with fareg.accept_drift(), pytest.warns(FaregWarning) as caught:
        clf.predict_set(changed(0.8))
    assert words in str(caught[0].message)


def test_messages_write_dates_as_dates():
    with pytest.raises(FaregError, match="outside 2020-01-01 to 2021-02-03, such as 2030-01-01"):
        fitted().predict_set(X.assign(day=pd.Timestamp("2030-01-01")))


def test_columns_of_an_array_and_of_a_second_table_are_judged_too():
    numbers = X[["age", "pay"]].to_numpy()
    with pytest.raises(FaregError, match="column x0: 100"):
        fitted(numbers).predict_set(numbers + 1000)
    clf = fareg.PartialConformalClassifier(Half(), random_state=0)
    clf.conformalize(X[["age"]], Y, sensitive_features=X[["sex"]])
    recoded = X[["sex"]].apply(lambda column: column.str.upper())
    with pytest.raises(FaregError, match="column sex: 100"):
        clf.predict_set(X[["age"]], sensitive_features=recoded)


@pytest.mark.filterwarnings("error")
def test_a_few_rows_are_never_judged():
    odd = X.assign(sex="F", age=-1.0, pay=NAN)
    assert fitted().predict_set(odd[:19]).shape == (19, 2)
    assert fitted().predict_set(odd[:1]).shape == (1, 2)


@pytest.mark.filterwarnings("error")
def test_values_that_name_single_rows_are_new_in_every_table():
    seen = summarise(canonical(X))["name"]
    assert seen["known"] is None  # nor are they in the model file
    fitted().predict_set(X.assign(name=[f"other {i}" for i in range(N)]))
    many = pd.DataFrame({"code": np.arange(MAX_KNOWN + 1).repeat(3).astype(str)})
    assert summarise(canonical(many))["code"]["known"] is None


@pytest.mark.filterwarnings("error")
def test_rows_like_those_of_fit_give_no_warning():
    """Many small tables with rare towns, ages and gaps, each half of which teaches."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        n = int(rng.integers(20, 200))
        table = pd.DataFrame(
            {
                "town": rng.zipf(1.5, 2 * n).clip(max=10_000).astype(str),
                "age": rng.standard_cauchy(2 * n),
                "gaps": np.where(rng.random(2 * n) < rng.random(), np.nan, 1.0),
                "flag": rng.random(2 * n) < 0.01,
            }
        )
        summary = summarise(canonical(table[:n]))
        judge_drift(summary, count_strange(summary, canonical(table[n:])), accept=False)


def test_strange_rows_are_counted_on_both_sides():
    fit = canonical(pd.DataFrame({"sex": ["F", "F", "M", "M"], "age": [18, 40, 40, 90]}))
    new = canonical(pd.DataFrame({"sex": ["F", "f", None], "age": [1, 2, 50]}))
    counted = {"sex": Strange(3, 1, 1, "f"), "age": Strange(3, 2, 0, 1.0)}
    assert count_strange(summarise(fit), new) == counted


def test_parts_of_a_table_add_up():
    summary = summarise(canonical(X))
    odd = X.assign(sex=some(0.3, "x", "sex"), age=some(0.6, -1, "age"))
    whole, parts = count_strange(summary, canonical(odd)), [Strange()] * 2
    for first in range(0, N, 7):
        found = count_strange(summary, canonical(odd[first : first + 7]))
        parts = [parts[0] + found["sex"], parts[1] + found["age"]]
    assert parts == [whole["sex"], whole["age"]]
    assert whole["sex"].shares() == {"unseen": 0.3, "empty": 0.0}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift")
    FRAME[:1500].to_csv(folder / "train.csv", index=False)
    options = ("--target", "outcome", "--sensitive", "Color, Gender", "--estimator", "logistic")
    run("fit", folder / "train.csv", *options, "--out", folder / "m.fareg")
    new = FRAME[1500:2500].reset_index(drop=True)
    gender = new["Gender"].where(new.index >= 700, new["Gender"].str.upper())
    new.assign(Gender=gender).to_csv(folder / "odd.csv", index=False)
    (folder / "parts").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(1000), 4)):
        part = new.assign(Gender=gender).iloc[rows]
        part.to_parquet(folder / "parts" / f"{number}.parquet")
    few = new.assign(Gender=new["Gender"].where(new.index >= 200, None))
    few.to_csv(folder / "few.csv", index=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("data", ["odd.csv", "parts"])
def test_a_recoded_file_is_refused_with_nothing_written(data, place, tmp_path):
    # 70% of all rows are strange, though all of some batches and none of others
    out = tmp_path / ("sets.csv" if data == "odd.csv" else "sets")
    command = ["predict", place / "m.fareg", place / data, "--out", out]
    command += [] if data == "odd.csv" else ["--engine", "local:1"]
    message = refused(*command, batch_rows=100)
    assert "column Gender: 70.0% of 1,000 rows hold a value that fit never had" in message
    assert "as it was in fit, or add --accept-drift" in message
    assert "fareg.accept_drift" not in message
    assert not out.exists()
    done = json.loads(run(*command, "--accept-drift", "--json").stdout)
    assert out.exists()
    assert done["drift"]["Gender"] == {"unseen": 0.7, "empty": 0.0}
    assert done["drift"].keys() == set(FRAME) - {"outcome"}
    assert "column Gender" in done["warnings"][0]


@pytest.mark.slow
def test_a_part_that_is_strange_is_a_warning_of_every_command(place, tmp_path):
    model, target = place / "m.fareg", ("--target", "outcome")
    commands = [
        ("predict", model, place / "few.csv", "--out", tmp_path / "sets.csv"),
        ("calibrate", model, place / "few.csv", *target, "--out", tmp_path / "new.fareg"),
        ("audit", place / "few.csv", "--model", model, *target),
    ]
    for command in commands:
        message = run(*command).stderr
        assert "Warning: column Gender: 20.0% of 1,000 rows are empty (0.0% in fit)" in message
        assert message.count("Gender: ") == 1


def test_a_column_that_was_mostly_empty_may_not_be_full_of_new_values():
    mostly_empty = X.assign(town=np.where(np.arange(N) % 20 == 0, X["town"], None))
    clf = fitted(mostly_empty)
    clf.predict_set(mostly_empty)
    with pytest.raises(FaregError, match=r"95.0% of 400 rows hold a value that fit never had"):
        clf.predict_set(mostly_empty.fillna({"town": "None"}))
