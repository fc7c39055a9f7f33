"""Columns that look like ids are named in a note; amounts, ages and times are not."""

import json

import numpy as np
import pandas as pd
import pytest

from fareg.workflow._roles import id_note
from shell import run

N = 1500
RNG = np.random.default_rng(0)
WHEN = RNG.integers(1_500_000_000, 1_500_000_000 + 20 * N, N)
PEOPLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, N),
        "sex": RNG.choice(["f", "m"], N),
        "fnlwgt": RNG.integers(10_000, 900_000, N // 2)[RNG.integers(0, N // 2, N)],
        "price": np.round(RNG.lognormal(12, 0.5, N), -2).astype(int),
        "dose": RNG.normal(size=N),
        "when": WHEN,
        "seen": pd.to_datetime(WHEN, unit="s").strftime("%d/%m/%Y %H:%M:%S"),
        "visits": RNG.integers(0, 9, N),
    }
)


@pytest.mark.parametrize("table", [PEOPLE, pd.concat([PEOPLE, PEOPLE])], ids=["once", "copied"])
def test_ordinary_numbers_and_times_are_no_ids(table):
    assert id_note(table, list(table)) is None


@pytest.mark.parametrize("name", ["patient_nbr", "id_student", "PatientId", "ID", "who"])
@pytest.mark.parametrize("per_person", [2, 3, 8])
def test_a_name_says_what_is_an_id(name, per_person):
    ids = RNG.choice(10**8, N)[np.arange(N) // per_person]
    told = id_note(PEOPLE.assign(**{name: ids}), [*PEOPLE, name])
    assert f"like an id: {name} ({len(set(ids)):,} different values in 1,500 rows)" in told


def test_texts_that_hardly_repeat_are_ids():
    table = PEOPLE.assign(mail=[f"Name {number}" for number in np.arange(N) // 1.02])
    assert "like an id: mail (" in id_note(table, list(table))


@pytest.mark.slow
def test_fit_names_ids_that_train_the_model_and_what_to_do(tmp_path):
    table = PEOPLE.assign(who=RNG.choice(10**8, N)[np.arange(N) // 3], y=RNG.choice(["a", "b"], N))
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", "--estimator", "logistic", "--json")
    out = ("--out", tmp_path / "m.fareg")
    told = [n for n in json.loads(run(*fit, *out).stdout)["warnings"] if "looks like an id" in n]
    assert len(told) == 1
    assert "name it as clusters, otherwise leave it out (--clusters or --id, --drop)" in told[0]
    few = ("--sensitive", "sex")
    for flag in ("--clusters", "--id", "--drop"):
        told = json.loads(run(*fit, *out, *few, flag, "who").stdout)
        assert "looks like an id" not in str(told["warnings"])
    told = json.loads(run(*fit, *out, *few).stdout)["warnings"]
    assert sum("looks like an id" in note for note in told) == 1


@pytest.mark.usefixtures("small_searches")
@pytest.mark.parametrize("few", [(), ("--sensitive", "sex")])
def test_an_id_that_nothing_reads_is_named_too(few, tmp_path):
    who = RNG.choice(10**8, N)[np.arange(N) // 3]
    table = PEOPLE.assign(who=who, y=RNG.choice(["a", "b"], N), a=0.5, b=0.5, nr=np.arange(N))
    table.assign(set="a|b").to_csv(tmp_path / "t.csv", index=False)
    other = table[["sex", "y", "a", "b", "age"]].assign(age=table["age"] + 100)
    other.to_csv(tmp_path / "other.csv", index=False)
    asked = (tmp_path / "t.csv", "--target", "y", "--json", *few)
    model = tmp_path / "m.fareg"
    fit = ("--proba", "a,b", "--drop", "set", "--out", model)
    told = json.loads(run("fit", *asked, *fit).stdout)["warnings"]
    assert sum("id: who (500 different values" in note for note in told) == 1
    assert not any("nr (" in note for note in told)
    run("fit", tmp_path / "other.csv", *asked[1:], "--proba", "a,b", "--out", model)
    for sets in (("--sets", "set"), ("--model", model)):
        told = json.loads(run("audit", *asked, *sets).stdout)["notes"]
        assert sum("id: who (500 different values" in note for note in told) == 1, sets
        assert not any("nr (" in note for note in told)
        told = json.loads(run("audit", *asked, *sets, "--clusters", "who").stdout)["notes"]
        assert not any("looks like an id" in note for note in told)
