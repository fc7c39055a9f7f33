"""Screening selects the features that matter, and tells a finding from chance."""

import numpy as np
import pandas as pd
import pytest

from fareg.groups._screening import N_FOLDS, PRIOR_ROWS, cross_fitted_gain, screen_features


def table(rng, n, n_noise=4):
    columns = {f"noise {j}": rng.choice(list("abc"), n) for j in range(n_noise)}
    columns |= {"a": rng.choice(["x", "y"], n), "b": rng.choice(["u", "v"], n)}
    return pd.DataFrame(columns, dtype=object)


def test_gain_equals_its_definition():
    rng = np.random.default_rng(0)
    cells, folds = rng.integers(0, 4, 60), rng.permutation(60) % N_FOLDS
    targets = rng.normal(size=(60, 3))
    gain = cross_fitted_gain(cells, targets, folds)
    for i in range(60):
        others = (cells == cells[i]) & (folds != folds[i])
        mean = targets[others].sum(axis=0) / (others.sum() + PRIOR_ROWS)
        np.testing.assert_allclose(gain[i], targets[i] ** 2 - (targets[i] - mean) ** 2)


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


@pytest.mark.parametrize("n_rows", [2, 7])
def test_a_handful_of_rows_gives_an_answer(n_rows):
    rng = np.random.default_rng(0)
    screening = screen_features(
        table(rng, n_rows), rng.random(n_rows), n_permutations=9, random_state=0
    )
    assert len(screening.selected) >= 1
