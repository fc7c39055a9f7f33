"""Explanations of a network: what moves membership, and whose reconstruction moves."""

import itertools

import numpy as np
import pandas as pd
import pytest

from fareg.paper import NetworkLearner, explain_network, influential_steps, latent_importance
from paper_rows import xnor


@pytest.fixture(scope="module")
def learned():
    people, shortfall, _ = xnor(3000)
    people = people.drop(columns="Age")
    return NetworkLearner(epochs=150).fit(people, shortfall), people


def test_rankings_name_the_features_that_matter(learned):
    learner, people = learned
    told = explain_network(learner, people)
    assert list(told.ranking.columns) == ["latent", "permutation"]
    assert set(told.ranking["permutation"].nlargest(2).index) == {"Color", "Gender"}
    np.testing.assert_allclose(told.ranking.sum(), 1)
    assert (told.ranking >= 0).all(axis=None)


def test_a_traversal_walks_in_units_of_the_spread(learned):
    learner, people = learned
    walk = explain_network(learner, people).traversal
    assert walk["step"].tolist() == [-2, -1, 0, 1, 2]
    assert walk["membership"].between(0, 1).all()
    assert np.ptp(walk["membership"]) > 0.05
    z = learner.latent(people)
    steps, moves = influential_steps(learner, z)
    r = moves.argmax()
    for _, row in walk.iterrows():
        moved = z + row["step"] * steps
        assert row["membership"] == pytest.approx(learner.membership_of_latent(moved)[r].mean())
        np.testing.assert_allclose(
            row[2:].astype(float), learner.reconstruct(moved)[r].mean(axis=0), atol=1e-12
        )


def test_the_influential_dimension_is_that_of_the_largest_move(learned):
    learner, people = learned
    z = learner.latent(people)
    steps, moves = influential_steps(learner, z)
    base = learner.membership_of_latent(z)
    for r, dimension in itertools.product(range(len(z)), range(z.shape[2])):
        step = np.zeros_like(z)
        step[r, :, dimension] = z[r, :, dimension].std()
        move = np.abs(learner.membership_of_latent(z + step)[r] - base[r]).mean()
        assert move <= moves[r] + 1e-12
        if steps[r, 0, dimension]:
            assert move == pytest.approx(moves[r])
            assert steps[r, 0, dimension] == pytest.approx(z[r, :, dimension].std())
    assert (np.count_nonzero(steps, axis=2) == 1).all()


def test_nothing_found_is_nothing_explained():
    people, _, _ = xnor(100)
    learner = NetworkLearner().fit(people, np.zeros(100))
    told = explain_network(learner, people)
    assert (told.ranking == 0).all(axis=None)
    assert list(told.ranking.index) == list(people)
    assert told.traversal.empty


@pytest.mark.parametrize("unit", [1.0, 10.0])
def test_a_features_latent_share_is_a_mean_over_its_inputs_in_any_unit(unit):
    """Five indicators that move as much as one number have no larger share."""

    class Decoder:
        features_ = ("Color", "Region", "Age")

        def input_features(self):
            return ["Color", *["Region"] * 5, "Age"]

        def latent(self, people):
            return np.random.default_rng(0).normal(size=(1, len(people), 1))

        def inputs(self, people):
            return np.linspace(0, [1.0, 1, 1, 1, 1, 1, unit], len(people))

        def membership_of_latent(self, z):
            return 1 / (1 + np.exp(-z[..., 0]))

        def reconstruct(self, z):
            return z * np.array([1.0, 1, 1, 1, 1, 1, 2 * unit])

    rows = pd.DataFrame(index=range(50))
    for size in (None, 1e-3):
        shares = latent_importance(Decoder(), rows, size=size)
        assert shares.to_dict() == pytest.approx({"Color": 0.25, "Region": 0.25, "Age": 0.5})
    # as a share of the value, which is proportional to the change here, all features move alike
    ratios = latent_importance(Decoder(), rows, size=1e-3, unit="value")
    assert ratios.to_dict() == pytest.approx(dict.fromkeys(shares.index, 1 / 3))
