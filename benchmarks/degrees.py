"""Tables whose rows are hard to known degrees, so the worst off are known.

Labels follow the rule of ``make_synthetic``: Feature 1 determines the label of an easy row, and
only its half for a hard one. A shape says how likely each row is to be hard. ``TUNING`` shapes were
used while the learner was built, ``HELD_OUT`` shapes were not, ``LATER`` shapes were written once
it was done, and ``RANDOM`` shapes are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from group_shapes import HELD_OUT as GROUPS_HELD_OUT
from group_shapes import JOBS, TABLE, draw_labels, draw_people
from group_shapes import TUNING as GROUPS_TUNING
from random_groups import random_union

CATEGORIES = ("Color", "Gender", "Age Group", "Region")
Hardness = Callable[[pd.DataFrame], np.ndarray]


@dataclass(frozen=True)
class Graded:
    """A table with the true degree of hardship of each row; the largest is the worst off."""

    X: pd.DataFrame
    y: np.ndarray
    sensitive: tuple[str, ...]
    hardness: Hardness
    edges: np.ndarray  # of hardness; rows between two edges have the same degree

    def degree(self, X: pd.DataFrame) -> np.ndarray:
        """Return the true degrees of rows of this table, 0 for the best off."""
        h = np.asarray(self.hardness(X), dtype=float)
        return np.searchsorted(self.edges, h, side="right")


def _group(rule: Hardness) -> Hardness:
    return lambda X: np.where(np.asarray(rule(X), dtype=bool), 0.9, 0.1)


def _xnor(X: pd.DataFrame) -> np.ndarray:
    return (X["Color"] == "Red") == (X["Gender"] == "Female")


def _degrees(X: pd.DataFrame) -> np.ndarray:
    steps = X["Age Group"].map({"Child": 0.1, "Youth": 0.35, "Middle": 0.6, "Elder": 0.85})
    return steps.to_numpy() + np.where(X["Color"] == "Red", 0.1, 0.0)


def _two_groups(X: pd.DataFrame) -> np.ndarray:
    first = (X["Age"] < 30) & (X["Gender"] == "Female")
    second = (X["Region"] == "Asia") & (X["Color"] == "Red")
    return np.select([first, second], [0.9, 0.9], 0.1)


def _slope(X: pd.DataFrame) -> np.ndarray:
    return (X["Age"].to_numpy() - 18) / 72


def _ring(X: pd.DataFrame) -> np.ndarray:
    radius = np.hypot((X["Age"] - 54) / 36, (np.log(X["Income"]) - 10.4) / 1.2)
    return np.asarray((radius > 0.35) & (radius < 0.75))


def _stripe(X: pd.DataFrame) -> np.ndarray:
    return np.asarray(np.abs((X["Age"] - 54) / 36 - (np.log(X["Income"]) - 10.4) / 1.2) < 0.25)


def _tenth(X: pd.DataFrame) -> np.ndarray:
    return (X["Gender"] == "Male") & (X["Age"] > 65) & (X["Income"] > 25_000)


def _three_degrees(X: pd.DataFrame) -> np.ndarray:
    poor = X["Income"] < 25_000
    return np.select([poor & (X["Color"] == "Blue"), poor], [0.95, 0.5], 0.1)


def _two_regions(X: pd.DataFrame) -> np.ndarray:
    first = (X["Region"] == "Europe") & (X["Age Group"] == "Elder")
    second = (X["Region"] == "Africa") & (X["Gender"] == "Male")
    return np.select([first, second], [0.9, 0.9], 0.1)


def _tilt(X: pd.DataFrame) -> np.ndarray:
    z = (X["Age"] - 54) / 20 - (np.log(X["Income"]) - 10.4) / 0.6
    return 1 / (1 + np.exp(-1.5 * z.to_numpy()))


def _checkerboard(X: pd.DataFrame) -> np.ndarray:
    return np.asarray((X["Age"] > 54) == (np.log(X["Income"]) > 10.4))


def _box(X: pd.DataFrame) -> np.ndarray:
    people = (X["Gender"] == "Male") & (X["Color"] == "Red")
    return people & (X["Age"] > 45) & (X["Income"] < 35_000)


def _three_groups(X: pd.DataFrame) -> np.ndarray:
    rich = (X["Income"] > 60_000) & (X["Age Group"] == "Elder")
    return (X["Age"] < 28) & (X["Gender"] == "Female") | rich | _red_asians(X)


def _red_asians(X: pd.DataFrame) -> np.ndarray:
    return (X["Region"] == "Asia") & (X["Color"] == "Red")


def _jobs_of_women(X: pd.DataFrame) -> np.ndarray:
    return X["Job"].isin(JOBS[:14]) & (X["Gender"] == "Female")


def _either(X: pd.DataFrame) -> np.ndarray:
    return (X["Color"] == "Blue") & (X["Gender"] == "Male") | (X["Age"] > 78)


def _steps_of_age(X: pd.DataFrame) -> np.ndarray:
    return np.array([0.05, 0.3, 0.6, 0.95])[np.searchsorted([36, 54, 72], X["Age"], "right")]


def _tails(X: pd.DataFrame) -> np.ndarray:
    return (X["Age"] < 25) | (X["Age"] > 80)


def _three_cells(X: pd.DataFrame) -> np.ndarray:
    cells = {("Africa", "Youth"), ("Asia", "Elder"), ("Europe", "Child")}
    return np.array([pair in cells for pair in zip(X["Region"], X["Age Group"], strict=True)])


def _wedge(X: pd.DataFrame) -> np.ndarray:
    return np.asarray(np.abs(X["Age"] - 54) / 36 > (np.log(X["Income"]) - 9.2) / 1.6)


def _forties(X: pd.DataFrame) -> np.ndarray:
    return np.asarray(X["Age"].between(40, 49))


def _one_in_sixty(X: pd.DataFrame) -> np.ndarray:
    return (X["Region"] == "Asia") & (X["Gender"] == "Female") & (X["Age"] > 78)


def _rare_jobs(X: pd.DataFrame) -> np.ndarray:
    return X["Job"].isin(JOBS[5:8]) & (X["Color"] == "Blue") & (X["Gender"] == "Male")


def _young_and_rich(X: pd.DataFrame) -> np.ndarray:
    return (X["Age"] < 25) & (X["Income"] > 65_000)


def _red_elders(X: pd.DataFrame) -> np.ndarray:
    african = (X["Region"] == "Africa") & (X["Gender"] == "Male")
    return african & (X["Age Group"] == "Elder") & (X["Color"] == "Red")


def _poor_old_europeans(X: pd.DataFrame) -> np.ndarray:
    return (X["Region"] == "Europe") & (X["Age"] > 80) & (X["Income"] < 30_000)


Shape = tuple[Hardness, tuple[str, ...]]
TUNING: dict[str, Shape] = {
    "xnor": (_group(_xnor), CATEGORIES),
    **{name: (_group(rule), columns) for name, (rule, columns) in GROUPS_TUNING.items()},
    "stripe": (_group(_stripe), TABLE),
    "degrees": (_degrees, CATEGORIES),
    "two groups": (_two_groups, TABLE),
    "slope": (_slope, TABLE),
}
HELD_OUT: dict[str, Shape] = {
    **{name: (_group(rule), columns) for name, (rule, columns) in GROUPS_HELD_OUT.items()},
    "ring": (_group(_ring), TABLE),
    "tenth": (_group(_tenth), TABLE),
    "three degrees": (_three_degrees, TABLE),
    "two regions": (_two_regions, CATEGORIES),
    "tilt": (_tilt, TABLE),
}
AMONG_NOISE = (*TABLE, *(f"Noise {j}" for j in range(20)))
LATER: dict[str, Shape] = {
    "checkerboard": (_group(_checkerboard), TABLE),
    "box": (_group(_box), TABLE),
    "three groups": (_group(_three_groups), TABLE),
    "jobs of women": (_group(_jobs_of_women), ("Color", "Gender", "Region", "Job")),
    "either": (_group(_either), TABLE),
    "steps of age": (_steps_of_age, TABLE),
    "tails": (_group(_tails), TABLE),
    "minority in noise": (_group(GROUPS_TUNING["minority"][0]), AMONG_NOISE),
    "xnor in noise": (_group(_xnor), AMONG_NOISE),
    "three cells": (_group(_three_cells), CATEGORIES),
    "wedge": (_group(_wedge), TABLE),
    "weak xnor": (lambda X: np.where(_xnor(X), 0.6, 0.1), CATEGORIES),
    "forties": (_group(_forties), TABLE),
}
RARE: dict[str, Shape] = {  # one or two of a hundred people
    "one in sixty": (_group(_one_in_sixty), TABLE),
    "rare jobs": (_group(_rare_jobs), ("Color", "Gender", "Region", "Job")),
    "young and rich": (_group(_young_and_rich), TABLE),
    "red elders": (_group(_red_elders), TABLE),
    "poor old Europeans": (_group(_poor_old_europeans), TABLE),
}
NOISE: dict[str, Shape] = {
    f"noise {d}": (lambda X: np.full(len(X), 0.5), tuple(f"Noise {j}" for j in range(d)))
    for d in (3, 10, 20, 60)
}
RANDOM: dict[str, Shape] = {
    f"random {k}": (_group(lambda X, k=k: random_union(k)[0](X)), TABLE) for k in range(100)
}
ALL = {**TUNING, **HELD_OUT, **LATER, **RARE, **NOISE, **RANDOM}


def draw(name: str, n_samples: int, random_state: int) -> Graded:
    """Draw rows of one shape; smooth hardness has five degrees of equal share."""
    rng = np.random.default_rng(random_state)
    X = draw_people(n_samples, rng, missing=name == "missing")
    hardness, sensitive = ALL[name]
    noise = {
        name: rng.choice(list("abc"), n_samples) if j % 2 else rng.normal(size=n_samples)
        for j, name in enumerate(s for s in sensitive if s.startswith("Noise"))
    }
    X = pd.concat([X, pd.DataFrame(noise, index=X.index)], axis=1)
    h = np.asarray(hardness(X), dtype=float)
    y = draw_labels(X, h, rng)
    distinct = np.unique(h)
    edges = distinct[1:] if len(distinct) <= 8 else np.quantile(h, [0.2, 0.4, 0.6, 0.8])
    return Graded(X, y, sensitive, hardness, edges)
