"""The few features that matter are found by the means of their joint cells, honestly."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from fareg._levels import Levels
from fareg.groups._features import (
    MAX_TRIPLED,
    N_FOLDS,
    PRIOR_ROWS,
    READS,
    best_subset,
    choose_features,
    nested_gains,
)


def table(rng, n, n_noise=4):
    columns = {f"noise {j}": rng.choice(list("abc"), n) for j in range(n_noise)}
    columns |= {"a": rng.choice(["x", "y"], n), "b": rng.choice(["u", "v"], n)}
    return pd.DataFrame(columns, dtype=object)


def folds(rng, n):
    return rng.permutation(n) % N_FOLDS


def test_gains_are_their_definition():
    rng = np.random.default_rng(0)
    key, targets = rng.integers(0, 6, 120), rng.normal(size=(len(READS), 120))
    fold = folds(rng, 120)
    expected = np.zeros(len(READS))
    for s, reads in enumerate(READS[:, fold] > 0):
        for i in np.flatnonzero(reads):
            near = (key == key[i]) & reads & (fold != fold[i])
            mean = targets[s, near].sum() / (near.sum() + PRIOR_ROWS)
            expected[s] += targets[s, i] ** 2 - (targets[s, i] - mean) ** 2
    np.testing.assert_allclose(nested_gains(key, targets, fold), expected)
    np.testing.assert_allclose(nested_gains(key * 10**9, targets, fold), expected)


@pytest.mark.parametrize("n_noise", [4, 30])
def test_an_interaction_without_main_effects_is_found(n_noise):
    rng = np.random.default_rng(1)
    people = table(rng, 800, n_noise)
    target = ((people["a"] == "x") == (people["b"] == "u")) + rng.normal(size=800)
    for names in choose_features(people, target.to_numpy(float), folds(rng, 800)):
        assert {"a", "b"} <= set(names)


def test_two_groups_of_different_features_are_both_found():
    rng = np.random.default_rng(0)
    people = pd.DataFrame({name: rng.choice(["0", "1"], 2000) for name in "abcdefgh"}).astype(
        object
    )
    first = (people["a"] == "1") & (people["b"] == "1")
    second = (people["c"] == "1") & (people["d"] == "1")
    target = np.clip(rng.random(2000) + 0.6 * (first | second) - 0.3, 0, 1).to_numpy()
    assert set("abcd") <= set(choose_features(people, target, folds(rng, 2000))[-1])


def test_the_best_of_all_subsets_is_chosen_if_there_are_few_features():
    rng = np.random.default_rng(2)
    n_features = 6
    subsets = [s for k in (1, 2, 3) for s in combinations(range(n_features), k)]
    gains = {subset: rng.normal(size=2) for subset in subsets}
    for search in (0, 1):
        best = best_subset(n_features, lambda s: gains[tuple(sorted(s))], search)
        assert gains[tuple(sorted(best))][search] == max(gain[search] for gain in gains.values())
        alone = [gains[(j,)][search] for j in best]
        assert alone == sorted(alone, reverse=True)  # the most important feature comes first


def test_many_features_are_searched_without_trying_every_triple():
    tried = []

    def gains(subset):
        tried.append(subset)
        return np.array([-float(sum(subset))])

    best_subset(4 * MAX_TRIPLED, gains, 0)
    assert len({subset for subset in tried if len(subset) == 3}) < 10 * 4 * MAX_TRIPLED


def test_a_search_without_a_fold_never_sees_its_rows():
    rng = np.random.default_rng(3)
    people, fold, target = table(rng, 300), folds(rng, 300), rng.random(300)
    n_changed = 0
    for k in range(N_FOLDS):
        other = np.where(fold == k, 10 * rng.random(300), target)
        first, second = (choose_features(people, t, fold) for t in (target, other))
        assert first[k] == second[k]
        n_changed += first[-1] != second[-1]
    assert n_changed


def test_features_of_too_many_categories_are_not_chosen(monkeypatch):
    monkeypatch.setattr("fareg.groups._features.MAX_CELLS", 100)
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"id": [f"p{i}" for i in range(400)]}).astype(object)
    target, fold = rng.random(400), folds(rng, 400)
    assert set(choose_features(people, target, fold)) == {()}
    beside = people.assign(number=target)
    assert set(choose_features(beside, target, fold)) == {("number",)}


def test_one_chosen_feature_is_the_one_of_the_largest_gain():
    rng = np.random.default_rng(4)
    n = 400
    people = pd.DataFrame({"age": rng.random(n), "size": rng.random(n)})
    target = (people["age"] > 0.5) + 0.1 * rng.random(n)
    fold = folds(rng, n)
    key = Levels.learn(people["age"]).codes(people["age"])
    left = np.tile(target - target.mean(), (len(READS), 1))
    assert nested_gains(key, left, fold)[-1] > 0.8 * n * target.var()
    assert choose_features(people, target.to_numpy(), fold)[-1][0] == "age"
