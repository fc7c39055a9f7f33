"""ACS readers: files with the PUMS layout, written here, come back as the documented table."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from fareg._validation import InvalidInputError
from fareg.datasets import load_acs_income


def pums(n, *, seed, relationship="RELP"):
    """Person records with some of the columns of a PUMS file; incomes are all different."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "RT": "P",
            "SERIALNO": [f"2018GQ{i:07d}" for i in range(n)],
            "PWGTP": rng.integers(0, 200, n),
            "AGEP": rng.integers(0, 90, n),
            "COW": rng.integers(1, 9, n).astype(float),
            "SCHL": rng.integers(1, 25, n).astype(float),
            "MAR": rng.integers(1, 6, n),
            "OCCP": rng.integers(10, 9800, n).astype(float),
            "POBP": rng.integers(1, 500, n),
            relationship: rng.integers(0, 18, n),
            "WKHP": np.where(rng.random(n) < 0.3, np.nan, rng.integers(1, 99, n)),
            "SEX": rng.integers(1, 3, n),
            "RAC1P": rng.integers(1, 10, n),
            "PINCP": rng.permutation(n) * 10.0 - 100,
            "PWGTP1": rng.integers(0, 200, n),
        }
    )


def write(people, root, name, year=2018, horizon="1-Year"):
    folder = root / str(year) / horizon
    folder.mkdir(parents=True, exist_ok=True)
    people.to_csv(folder / name, index=False)


def eligible(people):
    return people[
        people["AGEP"].between(17, 56)
        & (people["PINCP"] > 100)
        & (people["WKHP"] > 0)
        & (people["PWGTP"] >= 1)
    ].reset_index(drop=True)


@pytest.fixture
def people():
    return pums(800, seed=0)


def test_round_trip(tmp_path, people):
    write(people, tmp_path, "psam_p02.csv")
    data = load_acs_income(tmp_path, states=["AK"], n_samples=None, label_noise=False)
    kept = eligible(people)
    assert data.name == "ACSIncome 2018"
    assert data.sensitive == ("AGE", "MAR", "SEX", "RAC1P")
    assert list(data.X.columns) == (
        ["AGE", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"]
    )
    for code in ("COW", "OCCP", "POBP", "RELP"):
        assert data.X[code].tolist() == kept[code].astype(int).astype(str).tolist()
    assert data.X["SEX"].tolist() == kept["SEX"].map({1: "Male", 2: "Female"}).tolist()
    for number in ("SCHL", "WKHP"):
        assert data.X[number].tolist() == kept[number].tolist()
    for words in ("MAR", "RAC1P"):
        pairs = set(zip(data.X[words], kept[words], strict=True))
        assert len(pairs) == kept[words].nunique() == data.X[words].nunique()
        assert not any(word.isdigit() for word in data.X[words])


def test_ages_fall_in_their_bin(tmp_path, people):
    write(people, tmp_path, "psam_p02.csv")
    data = load_acs_income(tmp_path, states=["AK"], n_samples=None)
    for age, name in zip(eligible(people)["AGEP"], data.X["AGE"], strict=True):
        low, high = map(int, name.split("-"))
        assert low <= age <= high


def test_brackets_are_equal_and_ordered_by_income(tmp_path, people):
    write(people, tmp_path, "psam_p02.csv")
    data = load_acs_income(tmp_path, states=["AK"], n_samples=None, label_noise=False)
    sizes = np.bincount(data.y, minlength=4)
    assert len(sizes) == 4
    assert sizes.max() - sizes.min() <= 1
    income = eligible(people)["PINCP"].to_numpy()
    edges = np.sort(income)[[int(np.ceil(len(income) * k / 4)) - 1 for k in (1, 2, 3)]]
    assert data.y.tolist() == (income[:, None] > edges).sum(axis=1).tolist()


def test_group_is_the_rule_on_x_and_holds_the_noise(tmp_path, people):
    write(people, tmp_path, "psam_p02.csv")
    clean = load_acs_income(tmp_path, states=["AK"], n_samples=None, label_noise=False)
    noisy = load_acs_income(tmp_path, states=["AK"], n_samples=None, random_state=0)
    pairs = zip(clean.X["AGE"], clean.X["SEX"], strict=True)
    expected = [pair in {("17-26", "Male"), ("47-56", "Female")} for pair in pairs]
    assert clean.group.tolist() == expected == noisy.group.tolist()
    assert_frame_equal(clean.X, noisy.X)
    assert_array_equal(clean.y[~clean.group], noisy.y[~clean.group])
    assert (clean.y != noisy.y)[clean.group].any()
    assert set(noisy.y.tolist()) <= {0, 1, 2, 3}


def test_states_add_up_and_n_samples_draws_without_replacement(tmp_path, people):
    other = pums(300, seed=1)
    write(people, tmp_path, "psam_p02.csv")
    write(other, tmp_path, "psam_p06.csv")
    everyone = load_acs_income(tmp_path, states=["AK", "CA", "AK"], n_samples=10**6)
    assert len(everyone) == len(eligible(people)) + len(eligible(other))
    some = load_acs_income(tmp_path, states=("AK", "CA"), n_samples=40, random_state=0)
    assert len(some) == 40
    features = [tuple(row) for row in everyone.X.astype(str).itertuples(index=False)]
    drawn = [tuple(row) for row in some.X.astype(str).itertuples(index=False)]
    assert len(set(drawn)) == 40
    assert set(drawn) <= set(features)


@pytest.mark.parametrize(
    ("year", "name", "relationship"),
    [
        (2016, "ss16pak.csv", "RELP"),
        (2017, "psam_p02.csv", "RELP"),
        (2021, "psam_p02.csv", "RELSHIPP"),
    ],
)
def test_layouts_of_other_years(tmp_path, year, name, relationship):
    write(pums(200, seed=0, relationship=relationship), tmp_path, name, year, "5-Year")
    data = load_acs_income(tmp_path, year=year, states=["AK"], horizon="5-Year")
    assert relationship in data.X.columns
    assert data.name == f"ACSIncome {year}"


def test_blank_fields_are_missing_values(tmp_path, people):
    blank = people.astype({"COW": object, "WKHP": object})
    blank.loc[::2, "WKHP"] = "  "
    blank.loc[1::4, "COW"] = " "
    write(blank, tmp_path, "psam_p02.csv")
    data = load_acs_income(tmp_path, states=["AK"], n_samples=None)
    kept = eligible(people.iloc[1::2])
    assert len(data) == len(kept)
    assert data.X["COW"].isna().any()
    assert data.X["COW"].dropna().str.isdigit().all()


def test_missing_files_are_named_with_a_way_to_get_them(tmp_path, people):
    write(people, tmp_path, "psam_p02.csv")
    with pytest.raises(InvalidInputError) as caught:
        load_acs_income(tmp_path, states=["AK", "CA", "NY"])
    message = str(caught.value)
    assert "psam_p06.csv" in message
    assert "psam_p36.csv" in message
    assert "psam_p02.csv" not in message
    assert "census.gov" in message
    assert "download=True" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": ["XX"]}, "states must be postal codes such as 'CA', got 'XX'"),
        ({"states": []}, "got none"),
        ({"year": 2013}, "year must be a whole number >= 2014, got 2013"),
        ({"horizon": "3-Year"}, "horizon must be one of 1-Year, 5-Year; got '3-Year'"),
        ({"states": ["AK"], "n_samples": 0}, "n_samples must be a whole number >= 1, got 0"),
    ],
)
def test_bad_arguments(tmp_path, people, arguments, message):
    write(people, tmp_path, "psam_p02.csv")
    with pytest.raises(InvalidInputError, match=message):
        load_acs_income(tmp_path, **arguments)


def test_a_file_without_the_columns_is_refused(tmp_path, people):
    write(people.drop(columns=["OCCP", "RELP"]), tmp_path, "psam_p02.csv")
    with pytest.raises(InvalidInputError, match=r"no column OCCP, RELP \(or RELSHIPP\)"):
        load_acs_income(tmp_path, states=["AK"])


def test_nobody_left_is_an_error(tmp_path, people):
    write(people.assign(AGEP=70), tmp_path, "psam_p02.csv")
    with pytest.raises(InvalidInputError, match="no people of 17 to 56"):
        load_acs_income(tmp_path, states=["AK"])
