"""ACS readers: files with the PUMS layout, written here, come back as the documented table."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from fareg._validation import InvalidInputError
from fareg.datasets import load_acs_income


def pums(n, *, seed):
    """Person records with some of the columns of a PUMS file; incomes are all different."""
    rng = np.random.default_rng(seed)
    ranges = {"PWGTP": 200, "AGEP": 90, "COW": 9, "SCHL": 25, "MAR": 6, "OCCP": 9800, "POBP": 500}
    ranges |= {"RELP": 18, "SEX": 3, "RAC1P": 10}
    people = {k: rng.integers(k not in ("PWGTP", "AGEP"), end, n) for k, end in ranges.items()}
    people["WKHP"] = np.where(rng.random(n) < 0.3, np.nan, rng.integers(1, 99, n))
    people["PINCP"] = rng.permutation(n) * 10.0 - 100
    return pd.DataFrame(people).astype({"COW": float, "OCCP": float}).assign(RT="P", PWGTP1=1)


def write(people, root, name="psam_p02.csv"):
    folder = root / "2018" / "1-Year"
    folder.mkdir(parents=True, exist_ok=True)
    people.to_csv(folder / name, index=False)


def eligible(people):
    worked = (people["PINCP"] > 100) & (people["WKHP"] > 0) & (people["PWGTP"] >= 1)
    return people[people["AGEP"].between(17, 56) & worked].reset_index(drop=True)


@pytest.fixture
def people():
    return pums(800, seed=0)


@pytest.fixture
def clean(people, tmp_path):
    write(people, tmp_path)
    return load_acs_income(tmp_path, states=["AK"], n_samples=None, label_noise=False)


def test_columns_come_back_as_documented(clean, people):
    kept, X = eligible(people), clean.X
    assert (clean.name, clean.sensitive) == ("ACSIncome 2018", ("AGE", "MAR", "SEX", "RAC1P"))
    names = ["AGE", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"]
    assert list(X.columns) == names
    for code in ("COW", "OCCP", "POBP", "RELP"):
        assert X[code].tolist() == kept[code].astype(int).astype(str).tolist()
    assert X["SEX"].tolist() == kept["SEX"].map({1: "Male", 2: "Female"}).tolist()
    for number in ("SCHL", "WKHP"):
        assert X[number].tolist() == kept[number].tolist()
    for words in ("MAR", "RAC1P"):
        pairs = set(zip(X[words], kept[words], strict=True))
        assert len(pairs) == kept[words].nunique() == X[words].nunique()
        assert not any(word.isdigit() for word in X[words])
    for age, name in zip(kept["AGEP"], X["AGE"], strict=True):
        low, high = map(int, name.split("-"))
        assert low <= age <= high


def test_brackets_are_equal_and_ordered_by_income(clean, people):
    sizes = np.bincount(clean.y, minlength=4)
    assert len(sizes) == 4
    assert sizes.max() - sizes.min() <= 1
    income = eligible(people)["PINCP"].to_numpy()
    edges = np.sort(income)[[int(np.ceil(len(income) * k / 4)) - 1 for k in (1, 2, 3)]]
    assert clean.y.tolist() == (income[:, None] > edges).sum(axis=1).tolist()


def test_group_is_the_rule_on_x_and_holds_the_noise(clean, tmp_path):
    noisy = load_acs_income(tmp_path, states=["AK"], n_samples=None, random_state=0)
    pairs = zip(clean.X["AGE"], clean.X["SEX"], strict=True)
    expected = [pair in {("17-26", "Male"), ("47-56", "Female")} for pair in pairs]
    assert clean.group.tolist() == expected == noisy.group.tolist()
    assert_frame_equal(clean.X, noisy.X)
    assert_array_equal(clean.y[~clean.group], noisy.y[~clean.group])
    assert (clean.y != noisy.y)[clean.group].any()
    assert set(noisy.y.tolist()) <= {0, 1, 2, 3}


def test_states_add_up_and_n_samples_draws_without_replacement(clean, people, tmp_path):
    other = pums(300, seed=1)
    write(other, tmp_path, "psam_p06.csv")
    everyone = load_acs_income(tmp_path, states=["AK", "CA", "AK"], n_samples=10**6)
    assert len(everyone) == len(clean) + len(eligible(other))
    some = load_acs_income(tmp_path, states=("AK", "CA"), n_samples=40, random_state=0)
    features = [tuple(row) for row in everyone.X.astype(str).itertuples(index=False)]
    drawn = [tuple(row) for row in some.X.astype(str).itertuples(index=False)]
    assert len(set(drawn)) == len(some) == 40
    assert set(drawn) <= set(features)


def test_blank_fields_are_missing_values(tmp_path, people):
    blank = people.astype({"COW": object, "WKHP": object})
    blank.loc[::2, "WKHP"] = "  "
    blank.loc[1::4, "COW"] = " "
    write(blank, tmp_path)
    data = load_acs_income(tmp_path, states=["AK"], n_samples=None)
    assert len(data) == len(eligible(people.iloc[1::2]))
    assert data.X["COW"].isna().any()
    assert data.X["COW"].dropna().str.isdigit().all()


def test_missing_files_are_named_with_a_way_to_get_them(tmp_path, people):
    write(people, tmp_path)
    with pytest.raises(InvalidInputError) as caught:
        load_acs_income(tmp_path, states=["AK", "CA", "WY"])
    message = str(caught.value)
    for part in ("psam_p06.csv", "psam_p56.csv", "census.gov", "download=True"):
        assert part in message
    assert "psam_p02.csv" not in message


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        ({"states": ["XX"]}, {}, "states must be postal codes such as 'CA', got 'XX'"),
        ({"states": []}, {}, "got none"),
        ({"n_samples": 0}, {}, "n_samples must be a whole number >= 1, got 0"),
        ({}, {"OCCP": None, "RELP": None}, "no column OCCP, RELP"),
        ({}, {"AGEP": 70}, "no people of 17 to 56"),
    ],
)
def test_refusals(tmp_path, people, arguments, change, message):
    lacking = [name for name, value in change.items() if value is None]
    write(people.assign(**change).drop(columns=lacking), tmp_path)
    with pytest.raises(InvalidInputError, match=message):
        load_acs_income(tmp_path, **{"states": ["AK"], **arguments})
