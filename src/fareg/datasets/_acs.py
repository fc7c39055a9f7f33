"""American Community Survey income data, read from files that are already on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fareg._validation import InvalidInputError, check_choice, check_count
from fareg.datasets._dataset import Dataset
from fareg.datasets._noise import inject_label_noise

PAPER_STATES = ("CA", "NY", "TX", "AK", "AL")
FEATURES = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "WKHP", "SEX", "RAC1P")
RELATIONSHIP = ("RELP", "RELSHIPP")  # the second name came in 2019, with other codes
NUMBERS = ("AGEP", "WKHP", "PINCP", "PWGTP")
SENSITIVE = ("AGE", "MAR", "SEX", "RAC1P")
N_BRACKETS = 4

AGE_EDGES = (17, 27, 37, 47, 57)
AGE_NAMES = ("17-26", "27-36", "37-46", "47-56")
CODES: dict[str, dict[str, str]] = {
    "SEX": {"1": "Male", "2": "Female"},
    "MAR": {
        "1": "Married",
        "2": "Widowed",
        "3": "Divorced",
        "4": "Separated",
        "5": "Never married",
    },
    "RAC1P": {
        "1": "White",
        "2": "Black or African American",
        "3": "American Indian",
        "4": "Alaska Native",
        "5": "American Indian or Alaska Native, other",
        "6": "Asian",
        "7": "Native Hawaiian or Pacific Islander",
        "8": "Some other race",
        "9": "Two or more races",
    },
}
# fmt: off
FIPS = {
    "AL": "01", "AK": "02", "AZ": "04", "AR": "05", "CA": "06", "CO": "08", "CT": "09", "DE": "10",
    "DC": "11", "FL": "12", "GA": "13", "HI": "15", "ID": "16", "IL": "17", "IN": "18", "IA": "19",
    "KS": "20", "KY": "21", "LA": "22", "ME": "23", "MD": "24", "MA": "25", "MI": "26", "MN": "27",
    "MS": "28", "MO": "29", "MT": "30", "NE": "31", "NV": "32", "NH": "33", "NJ": "34", "NM": "35",
    "NY": "36", "NC": "37", "ND": "38", "OH": "39", "OK": "40", "OR": "41", "PA": "42", "RI": "44",
    "SC": "45", "SD": "46", "TN": "47", "TX": "48", "UT": "49", "VT": "50", "VA": "51", "WA": "53",
    "WV": "54", "WI": "55", "WY": "56", "PR": "72",
}
# fmt: on


def load_acs_income(
    root_dir: str | Path,
    *,
    year: int = 2018,
    states: Sequence[str] = PAPER_STATES,
    n_samples: int | None = 20_000,
    horizon: str = "1-Year",
    label_noise: bool = True,
    random_state: int | np.random.Generator | None = None,
) -> Dataset:
    """Read the paper's ACSIncome data from Census PUMS person files on disk.

    Rows are those of ACSIncome (Ding et al. 2021): ``AGEP > 16``, ``PINCP > 100``, ``WKHP > 0``,
    ``PWGTP >= 1``. The paper's age feature has four bins, 17-26, 27-36, 37-46 and 47-56, and no
    place for older people, so they are left out. The label is the bracket 0, ..., 3 of personal
    income among the returned rows; brackets have equal size up to ties, since equal incomes share
    a bracket.

    Parameters
    ----------
    root_dir : path
        Folder that holds ``{year}/{horizon}/psam_p{FIPS}.csv`` (2017 and later) or
        ``{year}/{horizon}/ss{yy}p{state}.csv`` (2014 to 2016), the layout folktables uses.
        Nothing is ever downloaded.
    year : int, default 2018
        Survey year, 2014 or later.
    states : sequence of str, default ("CA", "NY", "TX", "AK", "AL")
        Postal codes.
    n_samples : int or None, default 20000
        People to draw at random without replacement. All of them, if None or if there are fewer.
    horizon : {"1-Year", "5-Year"}, default "1-Year"
        The survey's release.
    label_noise : bool, default True
        Whether `inject_label_noise`, with its defaults, corrupts the labels of the group.
    random_state : int, Generator or None, default None
        Seed of the draw and the noise.

    Returns
    -------
    Dataset
        ``X`` with text columns AGE (the bin), COW, MAR, OCCP, POBP, RELP (from 2019 on RELSHIPP),
        SEX, RAC1P and numbers SCHL and WKHP; MAR, SEX and RAC1P hold words, the others Census
        codes. ``sensitive`` is AGE, MAR, SEX, RAC1P; ``group`` is men of 17-26 and women of 47-56.

    Examples
    --------
    >>> from fareg.datasets import load_acs_income
    >>> load_acs_income("census", states=["AK"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fareg._validation.InvalidInputError: PUMS person files are missing: ...psam_p02.csv...
    """
    paths = acs_income_files(root_dir, year=year, states=states, horizon=horizon)
    # Each state is filtered as it is read, so the full table of five states need not fit in memory.
    people = pd.concat([_read_people(path) for path in paths], ignore_index=True)
    if len(people) == 0:
        raise InvalidInputError(
            "no people of 17 to 56 with work and an income above 100 are in the data; "
            "check the files and states"
        )
    rng = np.random.default_rng(random_state)
    if n_samples is not None and check_count("n_samples", n_samples) < len(people):
        people = people.iloc[rng.choice(len(people), size=n_samples, replace=False)]
    people = people.reset_index(drop=True)

    X = _features(people)
    income = people["PINCP"].to_numpy(dtype=np.float64)
    inner = np.arange(1, N_BRACKETS) / N_BRACKETS
    edges = np.quantile(income, inner, method="inverted_cdf")
    y = np.searchsorted(edges, income, side="left").astype(np.int64)

    young_man = (X["AGE"] == "17-26") & (X["SEX"] == "Male")
    older_woman = (X["AGE"] == "47-56") & (X["SEX"] == "Female")
    group = (young_man | older_woman).to_numpy(dtype=np.bool_)
    if label_noise:
        y = inject_label_noise(y, group, n_classes=N_BRACKETS, random_state=rng)
    return Dataset(X=X, y=y, sensitive=SENSITIVE, group=group, name=f"ACSIncome {int(year)}")


def acs_income_files(
    root_dir: str | Path,
    *,
    year: int = 2018,
    states: Sequence[str] = PAPER_STATES,
    horizon: str = "1-Year",
) -> list[Path]:
    """Return the files that `load_acs_income` reads with these arguments, one per state.

    A file that is missing is an error.

    Examples
    --------
    >>> from fareg.datasets import acs_income_files
    >>> acs_income_files("census", states=["AK"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fareg._validation.InvalidInputError: PUMS person files are missing: ...psam_p02.csv...
    """
    year = check_count("year", year, minimum=2014)
    check_choice("horizon", horizon, ("1-Year", "5-Year"))
    folder = Path(root_dir) / str(year) / horizon
    paths = [folder / _file_name(year, state) for state in _check_states(states)]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise InvalidInputError(
            f"PUMS person files are missing: {', '.join(map(str, missing))}; get them from "
            f"https://www2.census.gov/programs-surveys/acs/data/pums/{year}/{horizon}/ "
            "(csv_p*.zip, unpacked), or let folktables fetch them: "
            f"ACSDataSource('{year}', '{horizon}', 'person', root_dir=...)"
            ".get_data(states=[...], download=True)"
        )
    return paths


def _file_name(year: int, state: str) -> str:
    if year >= 2017:
        return f"psam_p{FIPS[state]}.csv"
    return f"ss{year % 100}p{state.lower()}.csv"


def _check_states(states: Sequence[str]) -> list[str]:
    wanted = [states] if isinstance(states, str) else list(states)
    unknown = [repr(state) for state in wanted if state not in FIPS]
    if unknown or not wanted:
        raise InvalidInputError(
            f"states must be postal codes such as 'CA', got {', '.join(unknown) or 'none'}"
        )
    return list(dict.fromkeys(wanted))


def _read_people(path: Path) -> pd.DataFrame:
    """Read the needed columns of one file and keep the working people of 17 to 56."""
    required = {*FEATURES, "PINCP", "PWGTP"}
    wanted = required | set(RELATIONSHIP)
    # PUMS pads fields with blanks, and a field of blanks is a missing value.
    people = pd.read_csv(
        path, usecols=lambda name: name in wanted, skipinitialspace=True, low_memory=False
    )
    lacking = sorted(required - set(people.columns))
    if not any(name in people.columns for name in RELATIONSHIP):
        lacking.append("RELP (or RELSHIPP)")
    if lacking:
        raise InvalidInputError(
            f"{path} must hold ACS person records, but has no column {', '.join(lacking)}"
        )
    for name in NUMBERS:
        people[name] = pd.to_numeric(people[name], errors="coerce")
    kept = people["AGEP"].between(AGE_EDGES[0], AGE_EDGES[-1], inclusive="left")
    kept &= (people["PINCP"] > 100) & (people["WKHP"] > 0) & (people["PWGTP"] >= 1)
    return people[kept]


def _features(people: pd.DataFrame) -> pd.DataFrame:
    relationship = next(name for name in RELATIONSHIP if name in people.columns)
    bins = np.searchsorted(AGE_EDGES, people["AGEP"].to_numpy(), side="right") - 1
    return pd.DataFrame(
        {
            "AGE": np.array(AGE_NAMES)[bins].tolist(),
            "COW": _text(people["COW"]),
            # The codes are ordered, so they stay numbers.
            "SCHL": people["SCHL"],
            "MAR": _text(people["MAR"]),
            "OCCP": _text(people["OCCP"]),
            "POBP": _text(people["POBP"]),
            relationship: _text(people[relationship]),
            "WKHP": people["WKHP"].astype(np.float64),
            "SEX": _text(people["SEX"]),
            "RAC1P": _text(people["RAC1P"]),
        }
    )


def _text(column: pd.Series) -> pd.Series:
    """Return words as they are and whole-number codes as text: in words, if `CODES` has them."""
    if pd.api.types.is_numeric_dtype(column):
        column = column.astype("Int64").astype("string").astype(object)
        column = column.where(column.notna(), None)
    return column.replace(CODES.get(str(column.name), {}))
