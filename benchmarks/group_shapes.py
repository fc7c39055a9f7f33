"""Groups of many shapes, to measure which methods find them: the paper's labels, other gates.

Every shape has the label rule of ``make_synthetic`` (easy rows: Feature 1 determines the label;
hard rows: only its half) and says which rows are hard. ``TUNING`` shapes were used to choose
defaults, ``HELD_OUT`` shapes were not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fareg.datasets import Dataset, make_synthetic

JOBS = [f"job {j:02d}" for j in range(40)]


def _corner(X: pd.DataFrame) -> np.ndarray:
    return (X["Age"] > 55) & (X["Income"] < 30_000)


def _band_by_gender(X: pd.DataFrame) -> np.ndarray:
    return (X["Gender"] == "Female") & X["Age"].between(35, 65)


def _minority(X: pd.DataFrame) -> np.ndarray:
    return (X["Region"].isin(["Africa"])) & (X["Gender"] == "Female")


def _disc(X: pd.DataFrame) -> np.ndarray:
    return (X["Age"] - 50) ** 2 / 20**2 + (np.log(X["Income"]) - 10.4) ** 2 / 0.5**2 < 1


def _parity(X: pd.DataFrame) -> np.ndarray:
    young = X["Age Group"].isin(["Child", "Youth"])
    return (X["Color"] == "Red") ^ (X["Gender"] == "Female") ^ young


def _jobs(X: pd.DataFrame) -> np.ndarray:
    return X["Job"].isin(JOBS[::4])


def _missing(X: pd.DataFrame) -> np.ndarray:
    return X["Income"].isna() & (X["Color"] == "Red")


TABLE = ("Color", "Gender", "Age Group", "Region", "Age", "Income")
Shape = tuple[Callable[[pd.DataFrame], np.ndarray], tuple[str, ...]]
TUNING: dict[str, Shape] = {
    "corner": (_corner, TABLE),
    "minority": (_minority, TABLE),
    "band by gender": (_band_by_gender, TABLE),
}
HELD_OUT: dict[str, Shape] = {
    "disc": (_disc, TABLE),
    "parity": (_parity, ("Color", "Gender", "Age Group", "Region")),
    "jobs": (_jobs, ("Color", "Gender", "Region", "Job")),
    "missing": (_missing, TABLE),
}


def draw_people(n_samples: int, rng: np.random.Generator, *, missing: bool) -> pd.DataFrame:
    """Draw a table with ages, incomes and jobs; a third of the incomes may be missing."""
    X = make_synthetic(n_samples, random_state=rng).X
    X["Age"] = rng.integers(18, 90, n_samples).astype(float)
    X["Income"] = np.exp(rng.normal(10.4, 0.6, n_samples)).round(-2)
    X["Job"] = rng.choice(JOBS, n_samples)
    if missing:
        X.loc[rng.random(n_samples) < 1 / 3, "Income"] = np.nan
    return X


def draw_labels(X: pd.DataFrame, hardness: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw labels; a row is hard with the given probability."""
    hard, signal = X["Feature 2"].to_numpy() < hardness, X["Feature 1"].to_numpy()
    return np.where(
        hard, 3 * (signal >= 0.5) + rng.integers(0, 3, len(X)), (6 * signal).astype(int)
    )


def make_shape(name: str, n_samples: int, random_state: int) -> Dataset:
    """Draw rows of one shape; a third of the incomes is missing in ``missing``."""
    rng = np.random.default_rng(random_state)
    X = draw_people(n_samples, rng, missing=name == "missing")
    rule, sensitive = {**TUNING, **HELD_OUT}[name]
    group = np.asarray(rule(X), dtype=bool)
    y = draw_labels(X, np.where(group, 0.9, 0.1), rng)
    return Dataset(X=X, y=y, sensitive=sensitive, group=group, name=name)
