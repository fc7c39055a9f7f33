"""How often a group is named: rarely on fair data, nearly always if it is clearly under-covered.

Scores are drawn from known distributions, half of the rows teach and half verify, as in ``fit``
but without an estimator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm
from sklearn.tree import DecisionTreeRegressor

from fareg.classifiers._learning import score_target
from fareg.classifiers._naming import NamedGroup, found_again, random_halves, verified_groups
from fareg.groups import GroupLearner, Rule, candidate_rules, distil_rule
from fareg.pvalues import CalibrationScores

Tell = Callable[[pd.DataFrame], np.ndarray]
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


def as_learner(columns: pd.DataFrame, covered: np.ndarray, seed: int) -> Tell:
    learner = GroupLearner(members=("cells", "boosting"), significance=None, random_state=seed)
    return learner.fit(columns, covered).disadvantage


def credulous(columns: pd.DataFrame, covered: np.ndarray, seed: int) -> Tell:
    """Learn noise by heart, so that there always are candidates to refuse."""

    def numbers(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.apply(lambda column: column.map(ord) if column.dtype == object else column)

    tree = DecisionTreeRegressor(max_leaf_nodes=12, min_samples_leaf=20, random_state=seed)
    tree.fit(numbers(columns), covered)
    return lambda rows: -tree.predict(numbers(rows))


def named_and_tried(
    columns: pd.DataFrame, scores: np.ndarray, seed: int, learn: Callable[..., Tell]
) -> tuple[list[NamedGroup], list[Rule]]:
    """Return the groups that are named and the candidates."""
    teach, verify = columns[: N // 2], columns[N // 2 :].reset_index(drop=True)
    covered = score_target(scores[: N // 2], None, ALPHA)
    b = learn(teach, covered, seed)(teach)
    rules = candidate_rules(teach, b, covered, tuple(columns))
    own = scores[N // 2 :]
    by_split = own <= CalibrationScores.sort(own).quantiles(ALPHA)[0]

    def stability(rule: Rule) -> float:
        halves = random_halves(len(teach), None, np.random.default_rng(seed))
        answers = [learn(teach[half], covered[half], seed)(teach) for half in halves]
        return found_again(rule.inside(teach), np.array(answers))

    return verified_groups(rules, verify, by_split, 1 - ALPHA, stability), rules


def test_on_fair_data_a_group_is_named_in_at_most_5_percent_of_runs():
    """At most the number that binomial chance allows at 5%, with one false alarm in 1,000."""
    runs, n_named, n_tried = 60, 0, 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 6])
        columns, scores = table(rng, 6 * (seed % 2)), rng.normal(size=N)
        named, rules = named_and_tried(columns, scores, seed, credulous)
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
    (group,), _ = named_and_tried(columns, shifted(rng, inside, 0.68), seed, as_learner)
    assert group.rule.text == "sex=F and race=a"


@pytest.mark.parametrize("seed", range(2))
def test_a_strong_region_of_a_number_is_named(seed):
    rng = np.random.default_rng([seed, 8])
    columns = table(rng, 1)
    inside = (columns["age"] > 50).to_numpy()
    (group,), _ = named_and_tried(columns, shifted(rng, inside, 0.71), seed, as_learner)
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
        rule = distil_rule(columns, (place == worst).to_numpy())
        for rows, kind in ((half, "same rows"), (~half, "other rows")):
            part = columns[rows].reset_index(drop=True)
            found = verified_groups([rule], part, covered[rows], 1 - ALPHA, lambda rule: 1.0)
            named[kind] += len(found)
    assert named["other rows"] <= binom.ppf(0.999, n_runs, 0.05)
    assert named["same rows"] > 4 * max(1, named["other rows"])
