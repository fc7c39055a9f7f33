"""Columns that look like ids are named in a note; amounts, ages and times are not."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from fareg.workflow import audit_file
from shell import run

N = 1500


def people(seed, n=N):
    """Return a table of ordinary columns, some of them whole numbers with many values."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    cells = rng.integers(10_000, 900_000, n // 2)  # a weight of people who are alike
    weight = cells[
        np.where(sex == "f", rng.integers(0, n // 4, n), rng.integers(n // 8, n // 2, n))
    ]
    price = np.round(rng.lognormal(12, 0.5, n), -2).astype(int)
    when = rng.integers(1_500_000_000, 1_500_000_000 + 20 * n, n)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "sex": sex,
            "fnlwgt": weight,
            "gain": np.where(rng.random(n) < 0.9, 0, rng.integers(100, 99_999, n)),
            "price": price,
            "bracket": pd.cut(price, 8).codes,
            "log_price": np.log(price),
            "when": when,
            "year": 1970 + when // 31_557_600,
            "seen": pd.to_datetime(when, unit="s").strftime("%d/%m/%Y %H:%M:%S"),
            "y": np.where(rng.random(n) < 0.5, "a", "b"),
        }
    )


def with_ids(seed, per_person, ids):
    """Let every so many rows be about one person, who has a sex and a region."""
    rng = np.random.default_rng(seed)
    table = people(seed)
    who = np.arange(N) // per_person
    n_people = who.max() + 1
    table["sex"] = rng.choice(["f", "m"], n_people)[who]
    table["region"] = rng.choice(list("NESW"), n_people)[who]
    return table.assign(who=ids(rng, n_people)[who]).sample(frac=1, random_state=seed)


def noted(table, tmp_path):
    """Return the columns that a note of an audit takes for ids."""
    table.assign(set='["a"]').to_csv(tmp_path / "t.csv", index=False)
    notes = audit_file(tmp_path / "t.csv", target="y", sets=["set"]).notes
    told = next((note for note in notes if "looks like an id" in note), "")
    return re.findall(r"(\w+) \([\d,]+ different values", told)


@pytest.fixture(autouse=True)
def _short(small_searches):
    """Nothing else is measured here."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_ordinary_numbers_and_times_are_no_ids(seed, tmp_path):
    assert noted(people(seed), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("per_person", [2, 3, 8])
@pytest.mark.parametrize(
    "ids",
    [
        lambda rng, n: rng.choice(200_000_000, n, replace=False),
        lambda rng, n: np.arange(n),
        lambda rng, n: np.array([f"P{number:06}" for number in rng.permutation(n)]),
    ],
    ids=["numbers", "counted", "texts"],
)
def test_repeated_ids_are_named_whatever_their_column_is_called(per_person, ids, tmp_path):
    assert noted(with_ids(0, per_person, ids), tmp_path) == ["who"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["patient_nbr", "id_student", "PatientId", "ID"])
def test_a_name_says_what_is_an_id(name, tmp_path):
    table = people(0)
    table[name] = np.random.default_rng(0).choice(10**8, N // 3)[np.arange(N) // 3]
    assert noted(table, tmp_path) == [name]


@pytest.mark.slow
def test_texts_that_hardly_repeat_are_ids(tmp_path):
    table = people(0).assign(person=[f"Name {number}" for number in np.arange(N) // 1.02])
    assert noted(table, tmp_path) == ["person"]


@pytest.mark.slow
def test_fit_names_ids_that_train_the_model_and_what_to_do(tmp_path):
    table = with_ids(0, 3, lambda rng, n: rng.choice(10**8, n, replace=False))
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", "--estimator", "logistic", "--json")
    out = ("--out", tmp_path / "m.fareg")
    notes = json.loads(run(*fit, *out).stdout)["warnings"]
    told = [note for note in notes if "looks like an id" in note]
    assert len(told) == 1
    assert "who (500 different values in 1,500 rows, and rows that share one agree about" in told[0]
    assert "name it as clusters, else leave it out (--clusters or --id, --drop)" in told[0]
    for answer in (
        ("--clusters", "who"),
        ("--id", "who"),
        ("--drop", "who"),
        ("--features", "age,sex,who"),
    ):
        told = json.loads(run(*fit, *out, *answer).stdout)
        assert "looks like an id" not in str(told["warnings"])


def test_copies_of_rows_make_no_ids(tmp_path):
    from fareg.workflow._ids import id_note

    table = people(3)
    assert id_note(pd.concat([table, table]), list(table)) is None
