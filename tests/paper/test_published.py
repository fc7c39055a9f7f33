"""The published classifier: its settings, its base, its answers."""

import copy

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

from fareg import CondCPClassifier, FaReGClassifier, FaregError, SplitConformalClassifier
from fareg import PartialConformalClassifier as Partial
from fareg._encoding import gradient_boosting, ordinal_encoder
from fareg.datasets import make_synthetic
from fareg.paper import PublishedFaReGClassifier

FAST = {"epochs": 60, "learning_rate": 0.01, "random_state": 0}


@pytest.fixture(scope="module")
def world():
    """Return a fitted model, calibration rows and test rows."""
    data = make_synthetic(3000, random_state=0)
    tree = DecisionTreeClassifier(max_leaf_nodes=20, random_state=0)
    model = ordinal_encoder()
    model.steps.append(("tree", tree))
    model.fit(data.X[:1000], data.y[:1000])
    cal, test = data.take(np.arange(1000, 2000)), data.take(np.arange(2000, 3000))
    return FrozenEstimator(model), cal, test


@pytest.fixture(scope="module")
def fitted(world):
    model, cal, _ = world
    known = {"sensitive_features": list(cal.sensitive)}
    return FaReGClassifier.paper(model, **known, **FAST).conformalize(cal.X, cal.y)


def test_paper_is_the_published_configuration():
    clf = FaReGClassifier.paper()
    assert isinstance(clf, PublishedFaReGClassifier)
    assert (clf.beta, clf.delta, clf.n_draws, clf.epochs) == (2.0, 0.3, 20, 2000)
    assert (clf.batch_size, clf.learning_rate, clf.hidden_sizes) == (500, 1e-3, (64, 32))
    assert (clf.numbers, clf.published_scale, clf.n_restarts) == ("codes", True, 1)
    nursery = FaReGClassifier.paper(data="nursery")
    assert (nursery.beta, nursery.delta, nursery.n_draws) == (0.1, 0.1, 100)
    assert (nursery.epochs, nursery.learning_rate) == (800, 1e-2)
    assert FaReGClassifier.paper(data="nursery", delta=0.4).delta == 0.4
    with pytest.raises(FaregError, match="data must be one of"):
        FaReGClassifier.paper(data="mnist")


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("detla", r"did you mean delta\?"),
        ("n_draw", r"did you mean n_draws\?"),
        ("confidence", r"did you mean confidence_level\?"),
        ("alpha", "pass confidence_level=0.9 for alpha=0.1"),
        ("T", "the paper's T is n_draws"),
        ("Q", "it has .*, delta, .*"),
    ],
)
def test_a_setting_that_is_not_there_is_refused_with_the_one_that_is_meant(slip, meant):
    said = rf"^FaReGClassifier.paper has no parameter {slip}; {meant}$"
    with pytest.raises(FaregError, match=said):
        FaReGClassifier.paper(**{slip: 1})


def test_the_union_contains_the_marginal_sets(world, fitted):
    model, cal, test = world
    split = SplitConformalClassifier(model, random_state=0).conformalize(cal.X, cal.y)
    union, marginal = fitted.predict_set(test.X), split.predict_set(test.X)
    assert (union >= marginal).all()
    assert union.sum() > marginal.sum()
    np.testing.assert_array_equal(union, fitted.predict_p(test.X) > fitted.alpha_)


def test_fewer_draws_are_those_of_a_fit_with_fewer(world, fitted):
    model, cal, test = world
    known = {"sensitive_features": list(cal.sensitive), "n_draws": 3}
    few = FaReGClassifier.paper(model, **known, **FAST).conformalize(cal.X, cal.y)
    first = fitted.with_draws(3)
    np.testing.assert_array_equal(first.predict_set(test.X), few.predict_set(test.X))
    assert (fitted.n_draws, first.n_draws, first.thresholds_.shape) == (20, 3, (4, 1))
    first.check()
    with pytest.raises(FaregError, match="from 1 to the 20 draws"):
        fitted.with_draws(21)


@pytest.mark.parametrize("base", [CondCPClassifier(), Partial()])
@pytest.mark.parametrize("label_conditional", [False, True])
def test_the_base_joins_the_union(world, base, label_conditional):
    model, cal, test = world
    common = {
        "sensitive_features": list(cal.sensitive),
        "label_conditional": label_conditional,
    }
    clf = FaReGClassifier.paper(model, base=base, n_draws=3, **common, **FAST)
    clf.conformalize(cal.X, cal.y).check()
    alone = type(base)(model, random_state=0, **common).conformalize(cal.X, cal.y)
    assert (clf.predict_set(test.X) >= alone.predict_set(test.X)).all()
    assert (clf.predict_set(test.X) >= clf.with_draws(1).predict_set(test.X)).all()


@pytest.mark.filterwarnings("ignore:fewer than 9")  # nobody joins a draw of this network
def test_the_network_learns_who_the_split_sets_or_those_of_the_base_miss(world, monkeypatch):
    model, cal, _ = world
    seen = []

    def fit(learner, people, y, clusters=None):
        seen.append(y)
        learner.found_ = False
        return learner

    monkeypatch.setattr("fareg.paper._published.NetworkLearner.fit", fit)
    known = {"sensitive_features": list(cal.sensitive)}
    for base in (None, Partial()):
        FaReGClassifier.paper(model, base=base, **known, **FAST).conformalize(cal.X, cal.y)
    split, joined = seen
    assert set(split) == {0.0, 1.0}
    assert split.sum() == 99  # of 1000 scores, 901 are at most the threshold of split sets
    assert (joined <= split).all()
    assert joined.sum() < split.sum()


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (gradient_boosting(), "base must be a conformal classifier"),
        (Partial(confidence_level=0.8), "base must have the confidence_level of"),
        (Partial(sensitive_features=["Color"]), "base must have the sensitive_features of"),
    ],
)
def test_a_base_that_does_not_fit_is_refused(world, base, said):
    model, cal, _ = world
    with pytest.raises(FaregError, match=said):
        FaReGClassifier.paper(model, base=base).conformalize(cal.X, cal.y)


@pytest.mark.parametrize(
    ("part", "value"),
    [("n_draws", 19), ("beta", 1.0), ("base", Partial()), ("epochs", 0)],
)
def test_a_state_that_contradicts_itself_is_refused(fitted, part, value):
    fitted.check()
    edited = copy.copy(fitted)
    vars(edited)[part] = value
    with pytest.raises(ValueError, match=r"contradict each other|epochs"):
        edited.check()


def test_rows_are_handed_in_to_be_explained(world, fitted):
    _, _, test = world
    explanation = fitted.explain(test.X)
    assert set(explanation.ranking.index) == set(test.sensitive)
    np.testing.assert_allclose(explanation.ranking.sum(), 1)
