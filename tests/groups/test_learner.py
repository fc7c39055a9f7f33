"""The learner finds groups and forgets its batch."""

import numpy as np
import pandas as pd
import pytest

from fareg import FaregError
from fareg._encoding import encoded_columns, one_hot_encoder
from fareg.groups import GroupLearner, cells_of, cut_membership
from fareg.groups._explanation import latent_importance
from fareg.groups._network import layer_sizes
from fareg.groups._training import TrainingPlan, _group_loss, _minimise, _Part, _reconstruction_loss


def xnor(n, seed=0, gap=0.4):
    rng = np.random.default_rng(seed)
    columns = pd.DataFrame(
        {
            "Color": rng.choice(["Red", "Blue"], n),
            "Gender": rng.choice(["Female", "Male"], n),
            "Age": rng.uniform(18, 90, n),
            "Region": rng.choice(list("abcde"), n),
        }
    ).astype({"Color": object, "Gender": object, "Region": object})
    hard = ((columns["Color"] == "Red") == (columns["Gender"] == "Female")).to_numpy()
    covered = np.clip(rng.random(n) - gap * hard + gap / 2, 0, 1)
    return columns, covered, hard


@pytest.fixture(scope="module")
def learned():
    columns, covered, hard = xnor(600)
    return GroupLearner(max_iter=60).fit(columns, covered), columns, covered, hard


def test_finds_an_interaction(learned):
    learner, columns, covered, hard = learned
    assert learner.features_ == ("Color", "Gender")
    cuts = cut_membership(learner.membership(columns), covered)
    np.testing.assert_array_equal(cells_of(learner.membership(columns), cuts) == 1, hard)


def test_a_row_never_depends_on_the_rows_beside_it(learned):
    learner, columns, _, _ = learned
    together = learner.membership(columns)
    alone = np.concatenate([learner.membership(columns.iloc[[i]]) for i in range(30)])
    np.testing.assert_allclose(alone, together[:30], rtol=1e-12)
    reverse = learner.membership(columns.iloc[::-1])[::-1]
    np.testing.assert_allclose(reverse, together, rtol=1e-12)


def test_mean_membership_is_at_least_delta():
    columns, covered, _ = xnor(400)
    for delta in (0.1, 0.5, 1.0):
        learner = GroupLearner(max_iter=20, delta=delta, n_restarts=2).fit(columns, covered)
        assert learner.membership(columns).mean() >= delta - 1e-9


def test_restarts_are_perceptrons_side_by_side(learned):
    learner, columns, _, _ = learned
    x = learner.encoder_.transform(columns[list(learner.features_)])
    latent, weights = learner.latent(columns), learner.weights_

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


def part(names, rng):
    """Return layers in double precision, in which differences are close to derivatives."""
    sizes = {name: layer_sizes(3, (5, 4))[name] for name in names}
    single = _Part.draw(sizes, 2, rng)
    return _Part.of(single.values.astype(np.float64), sizes)


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
    plan = TrainingPlan(delta, 0.3, 1, 40, 0.01, (5, 4), published_scale, 0)
    loss = lambda: _group_loss(group, x, covered, plan, np.random.default_rng(2))  # noqa: E731
    assert_gradient(group, loss)


def test_the_reconstruction_loss_has_the_right_gradient():
    rng = np.random.default_rng(0)
    z, x = rng.normal(size=(2, 40, 4)), rng.normal(size=(2, 40, 3))
    decoder = part(("reconstruction",), rng)
    assert_gradient(decoder, lambda: _reconstruction_loss(decoder, z, x))


def test_same_seed_same_answer_other_seed_another():
    columns, covered, _ = xnor(300)
    fits = [GroupLearner(max_iter=20, random_state=s).fit(columns, covered) for s in (1, 1, 2)]
    first, again, other = (fit.membership(columns) for fit in fits)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_restarts_train_as_if_alone_would():
    columns, covered, _ = xnor(300)
    learner = GroupLearner(max_iter=20, n_restarts=4).fit(columns, covered)
    q = learner.membership_of_latent(learner.latent(columns))
    assert len(np.unique(q[:, 0])) == 4
    np.testing.assert_allclose(q.mean(axis=0), learner.membership(columns))


def test_nothing_to_find_is_not_found():
    rng = np.random.default_rng(0)
    found = 0
    for seed in range(40):
        columns, _, _ = xnor(200, seed)
        found += GroupLearner(max_iter=1, random_state=seed).fit(columns, rng.random(200)).found_
    assert found <= 10  # binomial(40, 0.1) exceeds 10 with probability 0.1%


def test_history_and_progress_tell_the_same_story():
    columns, covered, _ = xnor(300)
    seen = []
    learner = GroupLearner(max_iter=40, progress=lambda *news: seen.append(news))
    learner.fit(columns, covered)
    assert [news[:2] for news in seen] == [(h["stage"], h["step"]) for h in learner.history_]
    assert [h["step"] for h in learner.history_] == [10, 20, 30, 40, 10, 20]
    reconstruction = [h["train_loss"] for h in learner.history_ if h["stage"] == "reconstruction"]
    assert reconstruction[-1] < reconstruction[0]


def test_published_scale_has_nearly_noiseless_latents():
    columns, covered, hard = xnor(400)
    learner = GroupLearner(
        published_scale=True,
        beta=2.0,
        delta=0.3,
        select_features=False,
        significance=None,
        cross_fit=False,
        n_restarts=1,
        max_iter=400,
        learning_rate=1e-3,
        hidden_sizes=(64, 32),
    ).fit(columns, covered)
    assert learner.latent(columns).std() < 0.1
    q = learner.membership(columns)
    assert q[hard].mean() > q[~hard].mean() + 0.2


def test_mini_batches_and_many_rows():
    columns, covered, hard = xnor(5000)
    learner = GroupLearner(max_iter=60, batch_size=128).fit(columns, covered)
    q = learner.membership(columns)
    assert q[hard].min() > q[~hard].max()


def test_a_sorted_table_is_stopped_on_rows_from_all_of_it(monkeypatch):
    seen = []

    def minimise(*args, stop_rows, **options):
        seen.append(stop_rows)
        return _minimise(*args, stop_rows=stop_rows, **options)

    monkeypatch.setattr("fareg.groups._training._minimise", minimise)
    monkeypatch.setattr("fareg.groups._training.MAX_STOP_ROWS", 50)
    columns, covered, _ = xnor(2000)
    GroupLearner(max_iter=2).fit(columns, covered)
    assert seen[0].shape == (4, 50)
    assert ((seen[0] < 1000).mean(axis=1) > 0.2).all()
    assert ((seen[0] >= 1000).mean(axis=1) > 0.2).all()


@pytest.mark.parametrize("n_levels", [99, 100, 101])
def test_missing_counts_as_a_category(n_levels):
    rng = np.random.default_rng(0)
    levels = [f"l{i}" for i in range(n_levels)] * 3
    columns = pd.DataFrame({"a": pd.Series([*levels, *[None] * 3], dtype=object)})
    covered = rng.random(len(columns))
    learner = GroupLearner(max_iter=2, significance=None).fit(columns, covered)
    assert len(learner.input_features()) == min(n_levels + 1, 100)


@pytest.mark.parametrize("max_categories", [None, 2])
def test_outputs_are_credited_to_the_column_they_come_from(max_categories):
    columns = pd.DataFrame(
        {
            "a": pd.Series(["b", "c", "d", None], dtype=object),
            "a_b": [1.0, np.nan, 2.0, 3.0],
            "missingindicator_a": [1.0, 2.0, 3.0, 4.0],
        }
    )
    encoder = one_hot_encoder(max_categories).fit(columns)
    outputs = encoded_columns(encoder)
    n_levels = max_categories or 4
    sources = ["a"] * n_levels + ["a_b", "missingindicator_a", "a_b"]
    assert [source for source, _ in outputs] == sources
    assert len({name for _, name in outputs}) == len(outputs)
    # moving a column moves the outputs that are credited to it, and no others
    moved = encoder.transform(columns.assign(a_b=[9.0, 9.0, 9.0, np.nan]))
    changed = (moved != encoder.transform(columns)).any(axis=0)
    np.testing.assert_array_equal(changed, np.array(sources) == "a_b")


@pytest.mark.parametrize("covered", [np.ones(200), np.zeros(200)])
def test_constant_coverage_has_no_group(covered):
    columns, _, _ = xnor(200)
    learner = GroupLearner().fit(columns, covered)
    assert not learner.found_
    np.testing.assert_array_equal(learner.membership(columns), 0)


def test_hostile_columns_give_numbers():
    rng = np.random.default_rng(0)
    n = 300
    columns = pd.DataFrame(
        {
            "constant": np.zeros(n),
            "missing": np.full(n, np.nan),
            "infinite": np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
            "many": pd.Series([f"c{j}" for j in rng.integers(0, 500, n)], dtype=object),
            "huge": rng.normal(size=n) * 1e300,
        }
    )
    learner = GroupLearner(max_iter=10, significance=None, select_features=False)
    q = learner.fit(columns, rng.random(n)).membership(columns)
    assert np.isfinite(q).all()
    unseen = columns.assign(many="never seen")
    assert np.isfinite(learner.membership(unseen)).all()


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("delta", 0),
        ("delta", 1.5),
        ("beta", -1),
        ("beta", "a"),
        ("n_restarts", 0),
        ("max_iter", 1.5),
        ("batch_size", -3),
        ("significance", 2),
    ],
)
def test_bad_parameters_are_named(parameter, value):
    columns, covered, _ = xnor(100)
    with pytest.raises(FaregError, match=parameter):
        GroupLearner(**{parameter: value}).fit(columns, covered)


def test_cuts_keep_cells_large_enough_and_order():
    rng = np.random.default_rng(0)
    q = rng.random(200)
    covered = (q < 0.97).astype(float)
    cuts = cut_membership(q, covered, min_share=0.1)
    assert (cells_of(q, cuts) == 1).mean() >= 0.1
    assert len(cut_membership(np.full(50, 0.3), covered[:50])) == 0
    assert len(cut_membership(q, covered, n_cells=4)) <= 3


@pytest.mark.parametrize("unit", [1.0, 10.0])
def test_a_features_latent_share_is_a_mean_over_its_inputs_in_any_unit(unit):
    """Five indicators that move as much as one number have no larger share."""

    class Decoder:
        features_ = ("Color", "Region", "Age")

        def input_features(self):
            return ["Color", *["Region"] * 5, "Age"]

        def latent(self, columns):
            return np.random.default_rng(0).normal(size=(1, len(columns), 1))

        def inputs(self, columns):
            return np.linspace(0, [1.0, 1, 1, 1, 1, 1, unit], len(columns))

        def membership_of_latent(self, z):
            return 1 / (1 + np.exp(-z[..., 0]))

        def reconstruct(self, z):
            return z * np.array([1.0, 1, 1, 1, 1, 1, 2 * unit])

    shares = latent_importance(Decoder(), pd.DataFrame(index=range(50)))
    assert shares == pytest.approx({"Color": 0.25, "Region": 0.25, "Age": 0.5})
