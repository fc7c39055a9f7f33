"""How often a group is named: rarely on fair data, nearly always if it is clearly under-covered.

Scores are drawn from known distributions, half of the rows teach and half verify, as in ``fit``
but without an estimator.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm

from fareg.classifiers._learning import score_target
from fareg.classifiers._naming import (
    NamedGroup,
    candidate_rules,
    found_again,
    relearned,
    verified_groups,
)
from fareg.groups import GroupLearner
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


def groups_named(
    columns: pd.DataFrame, scores: np.ndarray, seed: int, *, significance: float | None
) -> list[NamedGroup]:
    teach, verify = columns[: N // 2], columns[N // 2 :].reset_index(drop=True)
    covered = score_target(scores[: N // 2], None, ALPHA)
    settings = {"members": ("cells", "boosting"), "significance": significance}
    learner = GroupLearner(**settings, random_state=seed).fit(teach, covered)
    if not learner.found_:
        return []
    rules = candidate_rules(teach, learner.disadvantage(teach), covered, learner.features_)
    own = scores[N // 2 :]
    by_split = own <= CalibrationScores.sort(own).quantiles(ALPHA)[0]

    @cache
    def answers() -> list[np.ndarray]:
        def relearn(half, target, half_seed):
            return GroupLearner(**settings, random_state=half_seed).fit(half, target).disadvantage

        return relearned(teach, covered, relearn, np.random.default_rng(seed))

    def stability(rule):
        return found_again(rule.inside(teach), answers())

    return verified_groups(rules, verify, by_split, 1 - ALPHA, stability)


@pytest.mark.parametrize("n_noise", [0, 6])
def test_on_fair_data_a_group_is_named_in_at_most_5_percent_of_runs(n_noise):
    """At most the number that binomial chance allows at 5%, with one false alarm in 1,000."""
    runs = 15
    n_named = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, n_noise])
        columns, scores = table(rng, n_noise), rng.normal(size=N)
        n_named += bool(groups_named(columns, scores, seed, significance=0.05))
    assert n_named <= binom.ppf(0.999, runs, 0.05)


def shifted(rng: np.random.Generator, inside: np.ndarray, coverage: float) -> np.ndarray:
    """Draw scores of which a threshold that covers 90% covers this share of the rows inside."""
    share = inside.mean()
    outside = (1 - ALPHA - share * coverage) / (1 - share)
    return rng.normal(size=N) + inside * (norm.ppf(outside) - norm.ppf(coverage))


@pytest.mark.parametrize("seed", range(3))
def test_a_strong_group_of_categories_is_named_in_its_own_words(seed):
    rng = np.random.default_rng([seed, 7])
    columns = table(rng, 1)
    inside = ((columns["sex"] == "F") & (columns["race"] == "a")).to_numpy()
    (group,) = groups_named(columns, shifted(rng, inside, 0.68), seed, significance=0.05)
    assert group.rule.text == "sex=F and race=a"


@pytest.mark.parametrize("seed", range(3))
def test_a_strong_region_of_a_number_is_named(seed):
    rng = np.random.default_rng([seed, 8])
    columns = table(rng, 1)
    inside = (columns["age"] > 50).to_numpy()
    (group,) = groups_named(columns, shifted(rng, inside, 0.71), seed, significance=0.05)
    found = group.rule.inside(columns)
    assert (found & inside).sum() >= 0.8 * (found | inside).sum()
