"""How often a group is named: rarely on fair data, nearly always if it is clearly under-covered.

Scores are drawn from known distributions, half of the rows teach and half verify, as in ``fit``
but without an estimator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm
from sklearn.tree import DecisionTreeRegressor

from fareg import Rule
from fareg.calibration import Labelled
from fareg.classifiers._fareg import shortfall
from fareg.classifiers._naming import NamedGroup, verify_groups
from fareg.groups import find_groups
from fareg.pvalues import CalibrationScores

N = 2000
ALPHA = 0.1


def table(rng: np.random.Generator, n_noise: int) -> pd.DataFrame:
    texts = {"sex": "FM", "race": "abcd", **{f"text_{i}": "abcdefg" for i in range(n_noise)}}
    columns = {
        name: pd.Series(rng.choice(list(levels), N).tolist(), dtype=object)
        for name, levels in texts.items()
    }
    numbers = {f"number_{i}": rng.standard_t(2, size=N) for i in range(n_noise)}
    return pd.DataFrame({**columns, "age": rng.integers(18, 63, N).astype(float), **numbers})


def credulous(people: pd.DataFrame, missed: np.ndarray) -> list[Rule]:
    """Name the worst levels and the upper parts of numbers, so that there is much to refuse."""
    rules = []
    for name, column in people.items():
        if column.dtype == object:
            worst = max(column.unique(), key=lambda level: missed[column == level].mean())
            rules.append(Rule.parse(f"{name} = {worst}"))
        else:
            tree = DecisionTreeRegressor(max_leaf_nodes=2, min_samples_leaf=50)
            tree.fit(column.to_frame(), missed)
            if tree.tree_.node_count > 1:
                low, high = tree.tree_.value[1:, 0, 0]
                sign = ">" if high > low else "<="
                rules.append(Rule.parse(f"{name} {sign} {tree.tree_.threshold[0]:.6f}"))
    return rules


def named_and_tried(
    people: pd.DataFrame, scores: np.ndarray, search: Any = find_groups
) -> tuple[tuple[NamedGroup, ...], list[Rule]]:
    """Return the groups that are named and the candidates."""
    teach, verify = people[: N // 2], people[N // 2 :].reset_index(drop=True)
    nothing = np.zeros(N // 2)
    rows = Labelled(teach, scores[: N // 2], nothing.astype(int), 2, nothing, nothing)
    rules = search(teach, shortfall(rows, ALPHA, adaptive=False, label_conditional=False))
    own = scores[N // 2 :]
    by_split = own <= CalibrationScores.sort(own).quantiles(ALPHA)[0]
    return verify_groups(rules, verify, by_split, 1 - ALPHA), rules


def test_on_fair_data_a_group_is_named_in_at_most_5_percent_of_runs():
    """At most the number that binomial chance allows at 5%, with one false alarm in 1,000."""
    runs, n_named, n_tried = 60, 0, 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 6])
        columns, scores = table(rng, 6 * (seed % 2)), rng.normal(size=N)
        named, rules = named_and_tried(columns, scores, credulous)
        n_named += bool(named)
        n_tried += bool(rules)
    assert n_tried >= runs / 2  # the law is not kept by trying nothing
    assert n_named <= binom.ppf(0.999, runs, 0.05)


def shifted(rng: np.random.Generator, inside: np.ndarray, coverage: float) -> np.ndarray:
    """Draw scores of which a threshold that covers 90% covers this share of the rows inside."""
    share = inside.mean()
    outside = (1 - ALPHA - share * coverage) / (1 - share)
    return rng.normal(size=N) + inside * (norm.ppf(outside) - norm.ppf(coverage))


@pytest.mark.parametrize("seed", range(2))
def test_a_strong_group_of_categories_is_named_in_its_own_words(seed):
    rng = np.random.default_rng([seed, 7])
    columns = table(rng, 1)
    inside = ((columns["sex"] == "F") & (columns["race"] == "a")).to_numpy()
    (group,), _ = named_and_tried(columns, shifted(rng, inside, 0.68))
    assert group.rule.text == "race = a and sex = F"


@pytest.mark.parametrize("seed", range(2))
def test_a_strong_region_of_a_number_is_named(seed):
    rng = np.random.default_rng([seed, 8])
    columns = table(rng, 1)
    inside = (columns["age"] > 50).to_numpy()
    (group,), _ = named_and_tried(columns, shifted(rng, inside, 0.71))
    found = group.rule.inside(columns)
    assert (found & inside).sum() >= 0.8 * (found | inside).sum()


def test_rows_that_chose_a_group_cannot_verify_it():
    """The worst of many fair levels looks credible where it was chosen, and nowhere else."""
    rng = np.random.default_rng(5)
    n_runs, named = 60, {"same rows": 0, "other rows": 0}
    for _ in range(n_runs):
        place = pd.Series([f"p{i}" for i in rng.integers(0, 16, N)], dtype=object)
        columns = pd.DataFrame({"place": place})
        covered = rng.random(N) < 1 - ALPHA
        half = np.arange(N) < N // 2
        worst = min(place.unique(), key=lambda level: covered[half & (place == level)].mean())
        rule = Rule.parse(f"place = {worst}")
        for rows, kind in ((half, "same rows"), (~half, "other rows")):
            part = columns[rows].reset_index(drop=True)
            found = verify_groups([rule], part, covered[rows], 1 - ALPHA)
            named[kind] += len(found)
    assert named["other rows"] <= binom.ppf(0.999, n_runs, 0.05)
    assert named["same rows"] > 4 * max(1, named["other rows"])
