"""A call of fit or conformalize that fails leaves the classifier as it was."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import fareg
from fareg.groups import Rule
from registry import short_classifiers


class Stopped(BaseException):
    """Stands for Ctrl+C."""


def stop(*args):
    raise Stopped


def refuse(*args):
    raise RuntimeError("this score never works")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 3)).round(2), columns=list("abc"))
    y = np.array(["no", "perhaps", "yes"])[np.digitize(X["a"] + rng.normal(size=400), [-0.5, 0.5])]
    return X, y, FrozenEstimator(LogisticRegression().fit(X[:100], y[:100]))


# Arguments of a call, made of a good table, and parameters that are set before it.
REFUSED = {
    "columns and rows": lambda X, y: ((X.to_numpy()[:, :2], y[:-1]), {}, {}),
    "no label": lambda X, y: ((X, [None, *y[1:]]), {}, {}),
    "labels that nobody knows": lambda X, y: ((X, np.full(len(y), "other")), {}, {}),
    "no rows": lambda X, y: ((X[:0], y[:0]), {}, {}),
    "a column less": lambda X, y: ((X[["a", "b"]], y), {}, {"sensitive_features": ["c"]}),
    "other columns": lambda X, y: ((X.rename(columns={"a": "d"}), y), {}, {}),
    "missing clusters": lambda X, y: ((X, y), {"clusters": [None] * len(y)}, {}),
    "few clusters": lambda X, y: ((X, y), {"clusters": [1, 2]}, {}),
    "a list beside": lambda X, y: ((X, y), {"sensitive_features": ["a"]}, {}),
    "weights": lambda X, y: ((X, y), {"sample_weight": np.full(len(y), -1.0)}, {}),
    "a level in percent": lambda X, y: ((X, y), {}, {"confidence_level": 90}),
    "a score that fails": lambda X, y: ((X, y), {}, {"conformity_score": refuse}),
    "no labels at all": lambda X, y: ((X, None), {}, {}),
    "a stop": lambda X, y: ((X, y), {}, {"conformity_score": stop}),
}
OF_CONFORMALIZE = {
    "probabilities of other rows": lambda X, y: ((X, y), {"proba": np.full((3, 3), 1 / 3)}, {}),
    "classes without columns": lambda X, y: ((X, y), {"classes": ["no", "yes"]}, {}),
}
CALLS = [
    *(("fit", name, call) for name, call in REFUSED.items()),
    *(("conformalize", name, call) for name, call in (REFUSED | OF_CONFORMALIZE).items()),
]


def answers(clf, X):
    methods = ["predict", "predict_proba", "predict_set", "conformity_scores"]
    methods += ["predict_p"] if hasattr(clf, "predict_p") else []
    return [np.asarray(getattr(clf, method)(X)).tobytes() for method in methods]


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("name", short_classifiers())
def test_a_refused_call_changes_nothing(name, table):
    X, y, model = table
    clf = short_classifiers()[name]
    clf.set_params(estimator=model, random_state=0, sensitive_features=["a", "b"])
    clf.conformalize(X[100:300], y[100:300])
    before, state = answers(clf, X[300:]), dict(vars(clf))
    for method, what, call in CALLS:
        args, beside, parameters = call(X[100:300], y[100:300])
        usual = {key: getattr(clf, key) for key in parameters}
        with pytest.raises((fareg.FaregError, RuntimeError, Stopped)):
            getattr(clf.set_params(**parameters), method)(*args, **beside)
        clf.set_params(**usual)
        assert list(vars(clf)) == list(state), (method, what)
        assert all(vars(clf)[key] is state[key] for key in state if key not in usual)
        assert answers(clf, X[300:]) == before, (method, what)


class Lost(DecisionTreeRegressor):
    """Learns and then has nothing to say."""

    def predict(self, X):
        return np.full(len(X), np.nan)


# what only FaReG can be asked: parameters, and rows that teach beside those that calibrate
REFUSED_BY_FAREG = {
    "a rule about another table": lambda X, y: ({"protect": [Rule.parse("no_such > 1")]}, {}),
    "rules that are texts": lambda X, y: ({"protect": ["a > 1"]}, {}),
    "a learner that is lost": lambda X, y: ({"learner": Lost()}, {}),
    "a learner that is none": lambda X, y: ({"learner": "network"}, {}),
    "no rows to learn from": lambda X, y: ({"learn_from": "train"}, {}),
    "labels without rows that teach": lambda X, y: ({}, {"y_learn": y}),
    "few labels that teach": lambda X, y: ({}, {"X_learn": X, "y_learn": y[1:]}),
    "other columns that teach": lambda X, y: ({}, {"X_learn": X[["a"]], "y_learn": y}),
    "probabilities of none that teach": lambda X, y: ({}, {"proba_learn": np.eye(3)}),
}


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
@pytest.mark.parametrize("what", REFUSED_BY_FAREG)
def test_what_only_fareg_is_asked_changes_nothing_either(what, table):
    X, y, model = table
    known = {"random_state": 0, "sensitive_features": ["a", "b"]}
    clf = fareg.FaReGClassifier(model, **known).conformalize(X[100:300], y[100:300])
    before, state, groups = answers(clf, X[300:]), dict(vars(clf)), repr(clf.groups_)
    parameters, beside = REFUSED_BY_FAREG[what](X[:100], y[:100])
    usual = {key: getattr(clf, key) for key in parameters}
    with pytest.raises(fareg.FaregError) as caught:
        clf.set_params(**parameters).conformalize(X[100:300], y[100:300], **beside)
    assert "\n" not in str(caught.value)
    clf.set_params(**usual)
    assert list(vars(clf)) == list(state)
    assert all(vars(clf)[key] is state[key] for key in state if key not in usual)
    assert answers(clf, X[300:]) == before
    assert repr(clf.groups_) == groups


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")
def test_a_refused_recalibration_changes_nothing(table):
    X, y, model = table
    clf = fareg.FaReGClassifier(model, random_state=0).conformalize(X[100:300], y[100:300])
    before, state = answers(clf, X[300:]), dict(vars(clf))
    for args in ((X, y[:-1]), (X[["a"]], y), (X[:0], y[:0]), (X, np.full(len(y), "other"))):
        with pytest.raises(fareg.FaregError):
            clf.recalibrated(*args)
    assert vars(clf) == state
    assert answers(clf, X[300:]) == before


@pytest.mark.parametrize("name", short_classifiers())
def test_what_was_never_fitted_stays_unfitted(name, table):
    X, y, model = table
    clf = short_classifiers()[name].set_params(random_state=0)
    parameters = dict(vars(clf))
    for method in ("fit", "conformalize"):
        with pytest.raises(fareg.FaregError):
            getattr(clf, method)(X, y[:-1])
        with pytest.raises(RuntimeError):
            clf.set_params(conformity_score=refuse, estimator=model).conformalize(X, y)
        clf.set_params(conformity_score="aps", estimator=None)
        assert vars(clf) == parameters
        with pytest.raises(NotFittedError):
            clf.predict_set(X)
