"""The few features that matter are found by the means of their joint cells, honestly."""

from itertools import combinations

import numpy as np
import pytest

from fareg.groups._members import (
    N_FOLDS,
    PRIOR_ROWS,
    READS,
    best_subset,
    choose_features,
    nested_gains,
)


def table(rng, n, n_noise=4):
    """Return codes: three levels of noise, and then two columns of two."""
    noise, bits = rng.integers(0, 3, (n, n_noise)), rng.integers(0, 2, (n, 2))
    return np.hstack([noise, bits]).astype(float)


def chosen_of(codes, target, fold):
    return choose_features(codes, np.ones(codes.shape[1], dtype=bool), target, fold)


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
    codes = table(rng, 800, n_noise)
    target = (codes[:, -1] == codes[:, -2]) + rng.normal(size=800)
    for features in chosen_of(codes, target, folds(rng, 800)):
        assert {n_noise, n_noise + 1} <= set(features)


def test_two_groups_of_different_features_are_both_found():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (2000, 8)).astype(float)
    hard = codes[:, :2].all(axis=1) | codes[:, 2:4].all(axis=1)
    target = np.clip(rng.random(2000) + 0.6 * hard - 0.3, 0, 1)
    assert {0, 1, 2, 3} <= set(chosen_of(codes, target, folds(rng, 2000))[-1])


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


def test_a_search_without_a_fold_never_sees_its_rows():
    rng = np.random.default_rng(3)
    codes, fold, target = table(rng, 300), folds(rng, 300), rng.random(300)
    n_changed = 0
    for k in range(N_FOLDS):
        other = np.where(fold == k, 10 * rng.random(300), target)
        first, second = (chosen_of(codes, t, fold) for t in (target, other))
        assert first[k] == second[k]
        n_changed += first[-1] != second[-1]
    assert n_changed


def test_features_of_too_many_categories_are_not_chosen(monkeypatch):
    monkeypatch.setattr("fareg.groups._members.MAX_CELLS", 100)
    rng = np.random.default_rng(0)
    ids, target, fold = np.arange(400.0)[:, None], rng.random(400), folds(rng, 400)
    assert set(chosen_of(ids, target, fold)) == {()}
    beside = np.column_stack([ids, target])
    assert set(choose_features(beside, np.array([True, False]), target, fold)) == {(1,)}


def test_quarters_of_a_number_and_its_missing_values_are_different():
    rng = np.random.default_rng(4)
    ranks, fold = rng.random((400, 2)), folds(rng, 400)
    ranks[::4, 0] = -1.0
    for hard in (ranks[:, 0] > 0.5, ranks[:, 0] < 0):
        target = hard + 0.1 * rng.random(400)
        assert choose_features(ranks, np.zeros(2, dtype=bool), target, fold)[-1][0] == 0
