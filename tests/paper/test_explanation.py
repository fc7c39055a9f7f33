"""Explanations of a network: what moves membership, whose reconstruction moves, and a picture."""

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fareg import FaregError
from fareg._columns import canonical
from fareg.paper import NetworkLearner, explain_network, plot_membership
from fareg.paper._explanation import influential_steps, latent_importance
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
    with pytest.raises(FaregError, match="plot_groups needs a learned group"):
        plot_membership(learner, people)


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


def test_one_panel_per_step_with_the_mean_membership_of_each_cell(learned):
    learner, people = learned
    figure = plot_membership(learner, people, features=("Color", "Gender"), steps=(0, 1))
    first = figure.axes[0]
    q = pd.Series(learner.predict(people))
    cells = q.groupby([people["Color"], people["Gender"]]).mean().unstack()
    np.testing.assert_allclose(first.images[0].get_array(), cells)
    assert [text.get_text() for text in first.get_yticklabels()] == ["Blue", "Red"]
    assert first.get_title().startswith("+0 sd")
    assert len(plot_membership(learner, people, steps=(0, 1, 2)).axes) == 4  # and a colour bar
    with pytest.raises(FaregError, match="features must be two of Color, Gender, Region"):
        plot_membership(learner, people, features=("Color", "no such"))


def test_a_picture_of_many_long_levels_stays_readable():
    rng = np.random.default_rng(0)
    n, name = 4000, "what the person did for a living before the interview, by major group"
    jobs = np.array([f"occupation number {i} with a long description" for i in range(30)])
    schools = np.array(
        [f"{i} years of school or an equivalent of any other kind" for i in range(12)]
    )
    people = pd.DataFrame({name: rng.choice(jobs, n), "school": rng.choice(schools, n)})
    learner = SimpleNamespace(
        found_=True,
        latent=lambda people: rng.normal(size=(1, len(people), 1)),
        membership_of_latent=lambda z: 1 / (1 + np.exp(-z[:, :, 0])),
    )
    figure = plot_membership(learner, canonical(people), features=(name, "school"), steps=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that does not fit is a warning
        figure.draw_without_rendering()
    for ax in figure.axes[:2]:
        boxes = [text.get_window_extent() for text in ax.texts]
        assert len(boxes) == 20 * 12
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert ax.get_window_extent().width > 0.25 * figure.bbox.width
    whole = figure.get_tightbbox().padded(-0.02)
    assert figure.bbox_inches.containsx(whole.x0)
    assert figure.bbox_inches.containsy(whole.y0)
    assert figure.axes[0].get_ylabel().endswith("\n(10 rare levels hidden)")
    shown = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert len(set(shown)) == 20
