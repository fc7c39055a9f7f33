"""Screening selects the features that matter, and tells a finding from chance."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from fareg.groups._screening import (
    FEW_TARGETS,
    N_FOLDS,
    PRIOR_ROWS,
    _Cells,
    _search,
    cross_fitted_gain,
    mean_gains,
    screen_features,
)


def table(rng, n, n_noise=4):
    columns = {f"noise {j}": rng.choice(list("abc"), n) for j in range(n_noise)}
    columns |= {"a": rng.choice(["x", "y"], n), "b": rng.choice(["u", "v"], n)}
    return pd.DataFrame(columns, dtype=object)


def test_gain_equals_its_definition():
    rng = np.random.default_rng(0)
    cells, folds = rng.integers(0, 4, 60), rng.permutation(60) % N_FOLDS
    target = rng.normal(size=60)
    gain = cross_fitted_gain(cells, target, folds)
    for i in range(60):
        others = (cells == cells[i]) & (folds != folds[i])
        mean = target[others].sum() / (others.sum() + PRIOR_ROWS)
        np.testing.assert_allclose(gain[i], target[i] ** 2 - (target[i] - mean) ** 2)


@pytest.mark.parametrize("n_targets", [1, FEW_TARGETS + 1])
def test_mean_gains_are_the_means_of_the_gains(n_targets):
    rng = np.random.default_rng(0)
    cells, folds = rng.integers(0, 4, 60), np.stack([rng.permutation(60) % N_FOLDS] * 2)
    targets = rng.normal(size=(60, n_targets))
    rows = [[cross_fitted_gain(cells, t, fold) for t in targets.T] for fold in folds]
    np.testing.assert_allclose(mean_gains(cells, 7, targets, folds), np.mean(rows, axis=(0, 2)))


def test_an_interaction_without_main_effects_is_found():
    rng = np.random.default_rng(1)
    columns = table(rng, 500)
    target = ((columns["a"] == "x") == (columns["b"] == "u")) * 0.5 + rng.normal(size=500)
    screening = screen_features(columns, target.to_numpy(), n_permutations=99, random_state=0)
    assert screening.selected == ("a", "b")
    assert screening.p_value == 0.01
    assert max(screening.gains, key=screening.gains.get) >= ("a", "b")


def test_many_features_are_searched_without_trying_every_triple():
    rng = np.random.default_rng(2)
    columns = table(rng, 800, n_noise=30)
    target = ((columns["a"] == "x") == (columns["b"] == "u")) + rng.normal(size=800)
    screening = screen_features(columns, target.to_numpy(), n_permutations=0, random_state=0)
    assert {"a", "b"} <= set(screening.selected)
    assert len(screening.gains) < 1500


def test_p_value_is_uniform_when_there_is_nothing_to_find():
    rng = np.random.default_rng(3)
    p = []
    for seed in range(200):
        columns = table(rng, 80, n_noise=1)
        p.append(
            screen_features(columns, rng.random(80), n_permutations=19, random_state=seed).p_value
        )
    for level in (0.05, 0.1, 0.25, 0.5):
        share = np.mean(np.array(p) <= level)
        assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / 200)


@pytest.mark.parametrize(("n_features", "repeats"), [(3, 200), (20, 80), (60, 20)])
def test_p_value_is_valid_however_many_features_are_searched(n_features, repeats):
    """With triples chosen by the true target alone, 60 features gave p <= 0.1 in half the runs."""
    rng = np.random.default_rng(n_features)
    small = 0
    for seed in range(repeats):
        levels = {f"f{j}": rng.choice(list("abc"), 80) for j in range(n_features)}
        columns = pd.DataFrame(levels, dtype=object)
        screening = screen_features(columns, rng.random(80), n_permutations=9, random_state=seed)
        small += screening.p_value <= 0.1
    assert binomtest(small, repeats, 0.1).pvalue > 1e-3


@pytest.mark.parametrize("n_features", [4, 14, 45])
def test_every_target_gets_the_search_that_it_would_get_alone(n_features):
    rng = np.random.default_rng(5)
    cells = _Cells([rng.integers(0, 3, 60) for _ in range(n_features)])
    targets = rng.normal(size=(60, 3))
    folds = rng.permutation(60)[None] % N_FOLDS
    together = _search(cells, targets, folds)[1]
    alone = [_search(cells, targets[:, [j]], folds)[1][0] for j in range(3)]
    np.testing.assert_allclose(together, alone)


def test_no_p_value_is_smaller_than_the_shuffles_allow():
    rng = np.random.default_rng(6)
    columns = table(rng, 200)
    target = (columns["a"] == "x").to_numpy(float)
    screening = screen_features(columns, target, n_permutations=19, random_state=0)
    assert screening.p_value == 0.05


@pytest.mark.parametrize("n_rows", [2, 7])
def test_a_handful_of_rows_gives_an_answer(n_rows):
    rng = np.random.default_rng(0)
    screening = screen_features(
        table(rng, n_rows), rng.random(n_rows), n_permutations=9, random_state=0
    )
    assert len(screening.selected) >= 1
