"""Whatever a parameter is set to: an answer, or one error of fareg before any work is done."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge

import fareg
from fareg import FaReGClassifier, FaregError, metrics
from fareg.classifiers import CLASSIFIERS
from fareg.paper import NetworkLearner, PublishedFaReGClassifier
from fuzzing import cases

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.dirichlet([1, 1, 1], 80), columns=["a", "b", "c"]).assign(
    d=RNG.integers(3, size=80)
)
Y = np.array([RNG.choice(3, p=p) for p in X[["a", "b", "c"]].to_numpy()])
COLUMNS = X[["c", "d"]].astype(float)
COVERED = np.where(X["d"] == 0, 0.7, 1.0)
EVERY = (*CLASSIFIERS, PublishedFaReGClassifier)
TABLES = ("y", "classes", "clusters")  # data, not settings
QUICK = {"epochs": 1, "n_restarts": 1}

# Numbers are small or huge: those between are valid and take their time.
NUMBERS = st.one_of(
    st.integers(-2, 4),
    st.sampled_from([10**9, 2**63, 10**30, 10**400, -(10**30)]),
    st.floats(),
    st.floats(0, 1),
)
SCALARS = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.sampled_from(["aps", "codes", "standard", "found", "nothing", "train", "cpu"]),
    st.floats(width=32).map(np.float32),
    st.integers(-2, 4).map(np.int64),
    st.sampled_from([np.bool_(True), np.nan, 1j, np.complex128(1), b"x", Decimal("0.5")]),
)
WILD = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.lists(SCALARS, max_size=3).map(tuple),
    st.tuples(st.tuples(SCALARS)),
    st.dictionaries(st.text(max_size=2), SCALARS, max_size=2),
    st.builds(object),
    st.sampled_from([np.zeros(2), np.zeros((2, 2)), np.array(3), np.array([]), pd.NA, X, {1}]),
)


class Watched(ClassifierMixin, BaseEstimator):
    """A classifier that reads probabilities from the table and counts how often it is asked."""

    def fit(self, X, y=None):
        self.n_asked, self.classes_ = 0, np.arange(3)
        return self

    def predict_proba(self, X):
        self.n_asked += 1
        return np.asarray(X)[:, :3].astype(np.float64)


def names(cls):
    return [field.name for field in dataclasses.fields(cls)]


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
@cases(150)
@given(data=st.data())
def test_a_classifier_answers_or_refuses_before_its_estimator_is_asked(cls, data):
    model = Watched().fit(None)
    own = {"n_restarts": 1, "max_iter": 1, "epochs": 1, "learner": Ridge(), "random_state": 0}
    given_ = {name: value for name, value in own.items() if name in names(cls)}
    name = data.draw(st.sampled_from(names(cls)))
    clf = cls(**{"estimator": FrozenEstimator(model), **given_, name: data.draw(WILD)})
    with warnings.catch_warnings(), suppress(FaregError):
        warnings.simplefilter("ignore")
        assert clf.fit(X, Y).predict_set(X[:5]).shape == (5, 3)
        return
    assert model.n_asked == 0


@cases(150)
@given(data=st.data())
def test_a_learner_learns_or_refuses_before_it_looks_at_a_row(data):
    name = data.draw(st.sampled_from(names(NetworkLearner)))
    learner = NetworkLearner(**{**QUICK, name: data.draw(WILD)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(FaregError):
            q = learner.fit(COLUMNS, 1 - COVERED).predict(COLUMNS)
            assert q.shape == (len(X),)
            assert np.isfinite(q).all()
            return
        assert not hasattr(learner, "features_")


SETS = np.ones((len(X), 3), dtype=bool)
FUNCTIONS = {
    fareg.audit: ((X, Y, SETS), {"n_directions": 2, "n_permutations": 2, "measures": False}),
    metrics.coverage_by_group: ((X, COVERED > 0.9), {}),
    metrics.coverage_by_label: ((Y, COVERED > 0.9), {}),
    metrics.coverage_by_level: ((Y, COVERED > 0.9), {}),
    metrics.excess_risk: ((X, COVERED > 0.9), {"estimator": DummyClassifier()}),
    metrics.worst_slab_coverage: ((X, COVERED > 0.9), {"n_directions": 2}),
    metrics.worst_slab_curve: ((X, COVERED > 0.9), {"n_directions": 2, "deltas": [0.5]}),
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@cases(60)
@given(data=st.data())
def test_a_function_answers_or_refuses(function, data):
    arguments, quick = FUNCTIONS[function]
    parameters = inspect.signature(function).parameters.values()
    own = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in TABLES]
    name, value = data.draw(st.sampled_from(own)), data.draw(WILD)
    with warnings.catch_warnings(), suppress(FaregError):
        warnings.simplefilter("ignore")
        function(*arguments, **{**quick, name: value})


@pytest.mark.parametrize(
    ("parameter", "value", "said"),
    [
        ("delta", 1.5, "number in"),
        ("beta", "a", "number >= 0"),
        ("n_restarts", 0, "whole number >= 1"),
        ("batch_size", -3, "whole number >= 1"),
        ("hidden_sizes", (), "width of each layer"),
        ("hidden_sizes", 8, "width of each layer"),
        ("hidden_sizes", (0,), "whole number >= 1"),
        ("learning_rate", -1, "number > 0"),
        ("published_scale", "no", "True or False"),
        ("numbers", "letters", "one of"),
        ("epochs", 10**12, "at most 1000000"),
        ("random_state", -1, "whole number >= 0"),
    ],
)
def test_a_learner_says_what_is_wrong(parameter, value, said):
    with pytest.raises(FaregError, match=f"{parameter}.*{said}"):
        NetworkLearner(**{parameter: value}).fit(COLUMNS, 1 - COVERED)


def test_numbers_of_numpy_are_numbers(tmp_path):
    given_ = {"beta": np.float32(0.1), "delta": np.float64(0.2), "hidden_sizes": [np.int64(4)]}
    clf = FaReGClassifier.paper(FrozenEstimator(Watched().fit(None)), **given_, **QUICK)
    sets = clf.fit(X, Y).predict_set(X)
    fareg.save(clf, tmp_path / "model.fareg", include_estimator=False)
    loaded = fareg.load(tmp_path / "model.fareg", estimator=clf.estimator)
    np.testing.assert_array_equal(loaded.predict_set(X), sets)
