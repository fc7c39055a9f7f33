"""Random groups: one to four at once, each of two or three random conditions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
from group_shapes import TABLE, draw_people

Rule = Callable[[pd.DataFrame], np.ndarray]
N_PEOPLE = 4000  # people among whom a group's share is measured
SHARE_OF_ONE = (0.04, 0.16)
SHARE_OF_ALL = (0.05, 0.40)


@cache
def random_union(number: int) -> tuple[Rule, int]:
    """Return which rows of the table with this number are hard, and the number of groups."""
    people = draw_people(N_PEOPLE, np.random.default_rng(0), missing=False)
    rng = np.random.default_rng([number, 1])
    n_groups = int(rng.integers(1, 5))
    while True:
        groups = [_group(people, rng) for _ in range(n_groups)]
        rule = _any_of(groups)
        if _is_between(rule(people).mean(), SHARE_OF_ALL):
            return rule, n_groups


def _group(people: pd.DataFrame, rng: np.random.Generator) -> list[Rule]:
    while True:
        names = rng.choice(TABLE, rng.integers(2, 4), replace=False)
        conditions = [_condition(people[name], rng) for name in names]
        if _is_between(_all_of(conditions)(people).mean(), SHARE_OF_ONE):
            return conditions


def _condition(column: pd.Series, rng: np.random.Generator) -> Rule:
    """Return up to half of the categories of a text, or a one-sided interval of a number."""
    name = column.name
    if pd.api.types.is_numeric_dtype(column):
        low, high = np.quantile(column, np.sort(rng.random(2)))
        ends = [(low, high), (-np.inf, high), (low, np.inf)][rng.integers(3)]
        return lambda X: X[name].between(*ends).to_numpy()
    levels = np.unique(column.astype(str))
    chosen = set(rng.choice(levels, rng.integers(1, max(2, len(levels) // 2 + 1)), replace=False))
    return lambda X: X[name].isin(chosen).to_numpy()


def _all_of(rules: list[Rule]) -> Rule:
    return lambda X: np.all([rule(X) for rule in rules], axis=0)


def _any_of(groups: list[list[Rule]]) -> Rule:
    return lambda X: np.any([_all_of(rules)(X) for rules in groups], axis=0)


def _is_between(share: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= share <= limits[1]
