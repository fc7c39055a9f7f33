"""The learner finds groups, forgets its batch, and carries its gradients back correctly."""

import numpy as np
import pandas as pd
import pytest

from fareg import FaregError
from fareg.paper import NetworkLearner, _training
from fareg.paper._network import layer_sizes
from fareg.paper._training import Part, group_loss, reconstruction_loss
from paper_rows import xnor

PUBLISHED = {
    "published_scale": True,
    "beta": 2.0,
    "delta": 0.3,
    "n_restarts": 1,
    "batch_size": 500,
    "hidden_sizes": (64, 32),
    "numbers": "codes",
}


@pytest.fixture(scope="module")
def learned():
    people, shortfall, hard = xnor(800)
    return NetworkLearner(epochs=200).fit(people, shortfall), people, shortfall, hard


def test_finds_an_interaction(learned):
    learner, people, _, hard = learned
    q = learner.predict(people)
    assert ((q >= 0) & (q <= 1)).all()
    assert q[hard].mean() > q[~hard].mean() + 0.2


def test_an_array_of_numbers_is_a_table_too():
    people, shortfall, hard = xnor(2000)
    numbers = np.column_stack([people["Color"] == "Red", people["Gender"] == "Male"]).astype(float)
    learner = NetworkLearner(delta=0.5).fit(numbers, shortfall)
    q = learner.predict(numbers)
    assert q[hard].min() > q[~hard].max()
    frame = pd.DataFrame(numbers, columns=["0", "1"])
    np.testing.assert_array_equal(learner.predict(frame), q)


def test_mean_membership_is_at_least_delta():
    people, shortfall, _ = xnor(400)
    for delta in (0.1, 0.5, 1.0):
        learner = NetworkLearner(epochs=20, delta=delta, n_restarts=2).fit(people, shortfall)
        assert learner.predict(people).mean() >= delta - 1e-9


def test_restarts_are_perceptrons_beside_each_other(learned):
    learner, people, _, _ = learned
    x = learner.encoder_.transform(people)
    latent, weights = learner.latent(people), learner.weights_

    def perceptron(rows, layers, restart):
        for k, (w, b) in enumerate(layers):
            rows = np.einsum("ni,io->no", rows, w[restart]) + b[restart, 0]
            if k < len(layers) - 1:
                rows = np.where(rows > 0, rows, 0.2 * rows)
        return rows

    for r in range(learner.n_restarts):
        z = perceptron(x, [*weights["encoder"], *weights["mean"]], r)
        q = 1 / (1 + np.exp(-perceptron(z, weights["membership"], r)[:, 0]))
        x_hat = perceptron(z, weights["reconstruction"], r)
        np.testing.assert_allclose(latent[r], z, atol=1e-12)
        np.testing.assert_allclose(learner.reconstruct(latent)[r], x_hat, atol=1e-12)
        expected = np.minimum(1, q + learner.shift_[r])
        np.testing.assert_allclose(learner.membership_of_latent(latent)[r], expected, atol=1e-12)
    mean = learner.membership_of_latent(latent).mean(axis=0)
    np.testing.assert_allclose(mean, learner.predict(people))
    assert len(np.unique(learner.membership_of_latent(latent)[:, 0])) == learner.n_restarts


def part(names, rng):
    """Return layers in double precision, in which differences are close to derivatives."""
    return Part({name: layer_sizes(3, (5, 4))[name] for name in names}, 2, rng, np.float64)


def assert_gradient(part, loss):
    """Compare the gradient that a loss leaves behind with differences along random lines."""
    rng = np.random.default_rng(1)
    loss()
    gradient, values = part.gradient.copy(), part.values.copy()
    for line in rng.normal(size=(30, *values.shape)):
        ends = []
        for step in (1e-6, -1e-6):
            part.values[:] = values + step * line
            ends.append(loss())
        slope = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose((gradient * line).sum(axis=1), slope, rtol=1e-4, atol=1e-6)
    part.values[:] = values


@pytest.mark.parametrize("published_scale", [False, True])
@pytest.mark.parametrize("delta", [0.2, 0.6, 0.95])
def test_the_group_loss_has_the_right_gradient(delta, published_scale):
    rng = np.random.default_rng(0)
    x, covered = rng.normal(size=(2, 40, 3)), rng.random((2, 40))
    group = part(("encoder", "mean", "log_variance", "membership"), rng)
    group.values[:] *= 4
    learner = NetworkLearner(delta=delta, beta=0.3, published_scale=published_scale)
    assert_gradient(group, lambda: group_loss(group, x, covered, learner, np.random.default_rng(2)))


def test_the_reconstruction_loss_has_the_right_gradient():
    rng = np.random.default_rng(0)
    z, x = rng.normal(size=(2, 40, 4)), rng.normal(size=(2, 40, 3))
    decoder = part(("reconstruction",), rng)
    assert_gradient(decoder, lambda: reconstruction_loss(decoder, z, x))


@pytest.mark.parametrize("first", [0, 6])
def test_the_published_network_reconstructs_its_inputs_whatever_their_scale(first):
    people, shortfall, _ = xnor(1000)
    ages = pd.Series(np.random.default_rng(0).integers(4, size=1000) + first).astype(float)
    people = people.assign(Age=ages)
    learner = NetworkLearner(**PUBLISHED, epochs=1000, learning_rate=1e-3).fit(people, shortfall)
    x, z = learner.inputs(people), learner.latent(people)
    assert z.std() < 0.1
    errors = ((x - learner.reconstruct(z)[0]) ** 2).sum(axis=0)
    assert (1 - errors / ((x - x.mean(axis=0)) ** 2).sum(axis=0) > 0.9).all()


def recorded(monkeypatch):
    """Return the rows that train and those that stop, as training gets them."""
    seen, minimise = [], _training._minimise

    def look(*args):
        seen.append(args[5:7])
        return minimise(*args)

    monkeypatch.setattr(_training, "_minimise", look)
    return seen


def test_a_half_trains_and_the_other_half_stops(monkeypatch):
    seen = recorded(monkeypatch)
    people, shortfall, _ = xnor(401)
    NetworkLearner(epochs=2).fit(people, shortfall)
    for trains, stops in seen:
        assert trains.shape == (4, 200)
        for some in (*trains, *stops):
            assert len(np.unique(some)) == len(some)
        np.testing.assert_array_equal(np.union1d(trains[0], stops[0]), np.arange(401))


def test_rows_of_one_person_are_in_one_half(monkeypatch):
    seen = recorded(monkeypatch)
    people, shortfall, _ = xnor(400)
    clusters = np.arange(400) % 50
    NetworkLearner(epochs=2).fit(people, shortfall, clusters)
    trains, stops = seen[0]
    assert not set(clusters[trains[0]]) & set(clusters[stops[0]])
    assert not NetworkLearner().fit(people, shortfall, np.zeros(400)).found_


@pytest.mark.parametrize("n_levels", [99, 100, 101])
def test_missing_counts_as_a_category(n_levels):
    rng = np.random.default_rng(0)
    levels = [f"l{i}" for i in range(n_levels)] * 3
    people = pd.DataFrame({"a": pd.Series([*levels, *[None] * 3], dtype=object)})
    learner = NetworkLearner(epochs=2).fit(people, rng.random(len(people)))
    assert len(learner.input_features()) == min(n_levels + 1, 100)


def test_codes_are_one_raw_number_per_column():
    people = pd.DataFrame({"a": ["u", "v", "w", None] * 20, "b": [7.0, 8.0, np.nan, 1.0] * 20})
    learner = NetworkLearner(epochs=2, numbers="codes")
    learner.fit(people.astype({"a": object}), np.arange(80) / 80)
    expected = [[0, 7], [1, 8], [2, 7], [3, 1]]  # a missing number is the median
    np.testing.assert_array_equal(learner.inputs(people.iloc[:4]), expected)
    assert learner.input_features() == ["a", "b"]


@pytest.mark.parametrize("shortfall", [np.ones(200), np.zeros(200)])
def test_equal_coverage_has_no_group(shortfall):
    people, _, _ = xnor(200)
    learner = NetworkLearner().fit(people, shortfall)
    assert not learner.found_
    np.testing.assert_array_equal(learner.predict(people), 0)


def test_hostile_columns_give_numbers():
    rng = np.random.default_rng(0)
    n = 300
    people = pd.DataFrame(
        {
            "constant": np.zeros(n),
            "missing": np.full(n, np.nan),
            "infinite": np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
            "many": pd.Series([f"c{j}" for j in rng.integers(0, 500, n)], dtype=object),
            "huge": rng.normal(size=n) * 1e300,
        }
    )
    for numbers in ("standard", "codes"):
        learner = NetworkLearner(epochs=10, numbers=numbers).fit(people, rng.random(n))
        assert np.isfinite(learner.predict(people)).all()
        assert np.isfinite(learner.predict(people.assign(many="never seen"))).all()


def test_a_shortfall_that_is_no_number_is_refused_and_leaves_the_learner_as_it_was():
    people, shortfall, _ = xnor(100)
    learner = NetworkLearner(epochs=2).fit(people, shortfall)
    before = learner.predict(people)
    for wrong, said in ((np.full(100, np.nan), "finite"), (shortfall[:50], "same number of rows")):
        with pytest.raises(FaregError, match=said):
            learner.fit(people[["Age"]], wrong)
    np.testing.assert_array_equal(learner.predict(people), before)
