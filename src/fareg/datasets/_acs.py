"""American Community Survey income data, read from files on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import InvalidInputError, check_count
from fareg.datasets._dataset import Dataset, inject_label_noise

PAPER_STATES = ("CA", "NY", "TX", "AK", "AL")
FEATURES = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
TEXTS = ("COW", "MAR", "OCCP", "POBP", "RELP", "SEX", "RAC1P")  # SCHL is ordered: a number
NUMBERS = ("AGEP", "WKHP", "PINCP", "PWGTP")
SENSITIVE = ("AGE", "MAR", "SEX", "RAC1P")
N_BRACKETS = 4

AGE_EDGES = (17, 27, 37, 47, 57)
AGE_NAMES = ("17-26", "27-36", "37-46", "47-56")
WORDS = {  # for the codes 1, 2, and so on
    "SEX": ("Male", "Female"),
    "MAR": ("Married", "Widowed", "Divorced", "Separated", "Never married"),
    "RAC1P": (
        "White",
        "Black or African American",
        "American Indian",
        "Alaska Native",
        "American Indian or Alaska Native, other",
        "Asian",
        "Native Hawaiian or Pacific Islander",
        "Some other race",
        "Two or more races",
    ),
}
# The position of a state in this list, from 1, is its number in file names.
STATES = (
    "AL AK - AZ AR CA - CO CT DE DC FL GA - HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV "
    "NH NJ NM NY NC ND OH OK OR PA - RI SC SD TN TX UT VT - VA WA WV WI WY"
)


def load_acs_income(
    root_dir: str | Path,
    *,
    states: Sequence[str] = PAPER_STATES,
    n_samples: int | None = 20_000,
    label_noise: bool = True,
    random_state: int | np.random.Generator | None = None,
) -> Dataset:
    """Read the paper's ACSIncome data from Census PUMS person files of 2018 on disk.

    Rows are those of ACSIncome (Ding et al. 2021): ``AGEP > 16``, ``PINCP > 100``, ``WKHP > 0``,
    ``PWGTP >= 1``. The paper's age feature has four bins, 17-26, 27-36, 37-46 and 47-56, so older
    people are left out. The label is the bracket 0, ..., 3 of personal income among the returned
    rows; brackets have equal size up to ties, since equal incomes share a bracket.

    Parameters
    ----------
    root_dir : path
        Folder with ``2018/1-Year/psam_p{FIPS}.csv``, the layout of folktables. Nothing is
        downloaded.
    states : sequence of str, default ("CA", "NY", "TX", "AK", "AL")
        Postal codes.
    n_samples : int or None, default 20000
        People to draw at random without replacement; all if None or if there are fewer.
    label_noise : bool, default True
        Whether `inject_label_noise`, with its defaults, corrupts the labels of the group.
    random_state : int, Generator or None, default None
        Seed of the draw and the noise.

    Returns
    -------
    Dataset
        ``X`` with text columns AGE (the bin), COW, MAR, OCCP, POBP, RELP, SEX, RAC1P and numbers
        SCHL and WKHP; MAR, SEX and RAC1P hold words, the others Census codes.
        ``sensitive`` is AGE, MAR, SEX, RAC1P; ``group`` is men of 17-26 and women of 47-56.

    Examples
    --------
    >>> from fareg.datasets import load_acs_income
    >>> load_acs_income("census", states=["AK"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fareg._validation.InvalidInputError: PUMS person files are missing: ...psam_p02.csv...
    """
    # Each state is filtered as it is read, so the full table of five states need not fit in memory.
    parts = [_read_people(path) for path in acs_income_files(root_dir, states)]
    people = pd.concat(parts, ignore_index=True)
    if len(people) == 0:
        raise InvalidInputError(
            "the data have no people of 17 to 56 with work and an income above 100; check the "
            "files and states"
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
    return Dataset(X=X, y=y, sensitive=SENSITIVE, group=group, name="ACSIncome 2018")


def acs_income_files(root_dir: str | Path, states: Sequence[str] = PAPER_STATES) -> list[Path]:
    """Return the files that `load_acs_income` reads, one per state.

    Examples
    --------
    >>> from fareg.datasets import acs_income_files
    >>> acs_income_files("census", ["AK"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fareg._validation.InvalidInputError: PUMS person files are missing: ...psam_p02.csv...
    """
    known = STATES.split()
    wanted = [states] if isinstance(states, str) else list(dict.fromkeys(states))
    unknown = [repr(state) for state in wanted if state == "-" or state not in known]
    if unknown or not wanted:
        raise InvalidInputError(
            f"states must be postal codes such as 'CA', got {', '.join(unknown) or 'none'}"
        )
    folder = Path(root_dir) / "2018" / "1-Year"
    paths = [folder / f"psam_p{known.index(state) + 1:02}.csv" for state in wanted]
    if missing := [str(path) for path in paths if not path.is_file()]:
        raise InvalidInputError(
            f"PUMS person files are missing: {', '.join(missing)}; get them from "
            "https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/ (csv_p*.zip, "
            "unpacked), or let folktables fetch them: ACSDataSource('2018', '1-Year', 'person', "
            "root_dir=...).get_data(states=[...], download=True)"
        )
    return paths


def _read_people(path: Path) -> pd.DataFrame:
    """Read the needed columns of one file and keep the working people of 17 to 56."""
    wanted = {*FEATURES, "PINCP", "PWGTP"}
    # PUMS pads fields with blanks, and a field of blanks is a missing value.
    people = pd.read_csv(
        path, usecols=lambda name: name in wanted, skipinitialspace=True, low_memory=False
    )
    if missing := sorted(wanted - set(people.columns)):
        raise InvalidInputError(
            f"{path} must hold ACS person records, but has no column {', '.join(missing)}"
        )
    for name in NUMBERS:
        people[name] = pd.to_numeric(people[name], errors="coerce")
    kept = people["AGEP"].between(AGE_EDGES[0], AGE_EDGES[-1], inclusive="left")
    kept &= (people["PINCP"] > 100) & (people["WKHP"] > 0) & (people["PWGTP"] >= 1)
    return people[kept]


def _features(people: pd.DataFrame) -> pd.DataFrame:
    bins = np.searchsorted(AGE_EDGES, people["AGEP"].to_numpy(), side="right") - 1
    columns: dict[str, Any] = {"AGE": np.array(AGE_NAMES)[bins].tolist()}
    columns |= {name: people[name] for name in FEATURES if name != "AGEP"}
    columns |= {name: _text(people[name]) for name in TEXTS}
    columns["WKHP"] = people["WKHP"].astype(np.float64)
    return pd.DataFrame(columns)


def _text(column: pd.Series) -> pd.Series:
    """Return a column as text: codes become the words in `WORDS`, or whole numbers."""
    if pd.api.types.is_numeric_dtype(column):
        column = column.astype("Int64").astype("string").astype(object)
        column = column.where(column.notna(), None)
    words = enumerate(WORDS.get(str(column.name), ()), 1)
    return column.replace({str(code): word for code, word in words})
