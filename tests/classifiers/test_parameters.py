"""A parameter that is set after fit is not ignored; bad parameters are refused; no empty sets."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import fareg
from fareg import CondCPClassifier, FaReGClassifier, SplitConformalClassifier
from fareg._validation import InvalidInputError, NotConformalizedError
from fareg.classifiers import CLASSIFIERS
from fareg.metrics import coverage_score


@pytest.fixture(scope="module")
def easy():
    """Return rows on which a linear model is right more often than nine times in ten."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2400)
    X = pd.DataFrame(rng.normal(size=(2400, 6)) + 2.9 * np.eye(3, 6)[y], columns=list("abcdef"))
    model = FrozenEstimator(LogisticRegression().fit(X[:800], y[:800]))
    assert model.score(X[800:], y[800:]) > 0.93
    return model, X[800:], y[800:]


WITHOUT_NUMBERS = [
    *CLASSIFIERS,
    partial(FaReGClassifier.paper, epochs=2),
    partial(CondCPClassifier, randomized=True),
]


@pytest.mark.parametrize("make", WITHOUT_NUMBERS, ids=str)
def test_every_method_takes_a_score_without_random_numbers(make, easy):
    model, X, y = easy
    clf = make(model, sensitive_features=["a", "b"], conformity_score="lac", random_state=0)
    clf.conformalize(X[:300], y[:300])
    sets = clf.predict_set(X[300:])
    assert (sets == clf.predict_set(X[300:])).all()


ANSWERS = (
    *("predict", "predict_proba", "predict_set", "predict_p", "predict_labels", "predict_table"),
    *("conformity_scores", "selected_features", "predict_region"),
    *("predict_level", "predict_group", "explain"),
)


@pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)
def test_nothing_is_answered_before_fit(cls, easy):
    model, X, _ = easy
    clf = cls(model, sensitive_features=["a", "b"])
    for method in ANSWERS:
        if hasattr(clf, method):
            with pytest.raises(NotConformalizedError, match="is not conformalized yet"):
                getattr(clf, method)(X)


@pytest.mark.parametrize(
    "change",
    [
        {"conformity_score": "topk"},
        {"label_conditional": True},
        {"confidence_level": 0.5},
        {"sensitive_features": ["c"]},
        {"allow_empty": False},
        {"random_state": 1},
        {"estimator": None},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)
def test_a_parameter_that_is_set_after_fit_is_not_ignored_in_silence(cls, change, easy, tmp_path):
    model, X, y = easy
    clf = cls(model, sensitive_features=["a", "b"], random_state=0).conformalize(X[:300], y[:300])
    methods = ["predict", "predict_proba", "predict_set", "conformity_scores"]
    methods += ["predict_p"] if hasattr(clf, "predict_p") else []
    rows = X[300:350]
    before = [getattr(clf, method)(rows) for method in methods]
    (name,) = change
    usual = {name: getattr(clf, name)}
    clf.set_params(**change)
    for method in methods:
        said = rf"^{name} was changed after fit.* call fit or conformalize again"
        with pytest.raises(NotConformalizedError, match=said):
            getattr(clf, method)(rows)
    assert clf.changed_parameters() == [name]
    with pytest.raises(InvalidInputError, match=f"{name} was changed after fit"):
        fareg.save(clf, tmp_path / "model.fareg")
    clf.set_params(**usual)
    for method, answer in zip(methods, before, strict=True):
        np.testing.assert_array_equal(getattr(clf, method)(rows), answer)


def test_what_is_changed_inside_a_parameter_after_fit_is_noticed_too(easy):
    model, X, y = easy
    learner, names = DecisionTreeRegressor(max_depth=2), ["a"]
    clf = FaReGClassifier(model, learner=learner, sensitive_features=names, random_state=0)
    sets = clf.conformalize(X[:300], y[:300]).predict_set(X[300:])
    names[0] = "no such column"
    with pytest.raises(NotConformalizedError, match="sensitive_features was changed after fit"):
        clf.predict_set(X[300:])
    names[0] = "a"
    clf.set_params(learner__max_depth=3)
    with pytest.raises(NotConformalizedError, match=r"^learner was changed after fit"):
        clf.predict_set(X[300:])
    clf.set_params(learner__max_depth=2)
    np.testing.assert_array_equal(clf.predict_set(X[300:]), sets)


def test_conformalize_never_takes_a_model_that_is_no_longer_the_estimator(easy):
    _, X, y = easy
    clf = SplitConformalClassifier(LogisticRegression(), random_state=0).fit(X, y)
    clf.set_params(estimator=DecisionTreeClassifier(max_depth=2))
    with pytest.raises(NotConformalizedError, match="conformalize needs a fitted estimator"):
        clf.conformalize(X, y)
    clf.set_params(estimator=clf.parameters_["estimator"])
    proba = clf.predict_proba(X)  # the model that fit trained stays
    np.testing.assert_array_equal(clf.conformalize(X[800:], y[800:]).predict_proba(X), proba)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X[:400], y[:400])
    clf.set_params(estimator=tree).conformalize(X[400:], y[400:])
    np.testing.assert_array_equal(clf.predict_proba(X), tree.predict_proba(X))


@pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)
def test_without_empty_sets_coverage_only_rises(cls, easy):
    model, X, y = easy
    calibrate, test = slice(None, 600), slice(600, 900)
    common = {"sensitive_features": ["a", "b"], "random_state": 0}
    some = cls(model, **common).conformalize(X[calibrate], y[calibrate])
    none = cls(model, allow_empty=False, **common).conformalize(X[calibrate], y[calibrate])
    sets, full = some.predict_set(X[test]), none.predict_set(X[test])
    empty = ~sets.any(axis=1)
    assert full.any(axis=1).all()
    np.testing.assert_array_equal(full[~empty], sets[~empty])
    np.testing.assert_array_equal(full[empty].sum(axis=1), 1)
    top = model.predict_proba(X[test]).argmax(axis=1)
    assert full[empty, top[empty]].all()
    assert coverage_score(y[test], full) >= coverage_score(y[test], sets)
    if hasattr(none, "predict_p"):
        p = none.predict_p(X[test])
        np.testing.assert_array_equal(p, some.predict_p(X[test]))
        law = p > none.alpha_
        law[np.arange(len(top)), top] |= ~law.any(axis=1)
        np.testing.assert_array_equal(full, law)


def test_empty_sets_of_an_accurate_model_are_randomisation_on_easy_rows(easy):
    model, X, y = easy
    clf = SplitConformalClassifier(model, random_state=0).conformalize(X[:800], y[:800])
    empty = ~clf.predict_set(X[800:]).any(axis=1)
    right = model.predict(X[800:]) == y[800:]
    assert empty.mean() > 0.02
    assert right[empty].mean() > right.mean()


def test_a_share_that_leaves_no_row_to_train_on_is_refused(easy):
    _, X, y = easy
    with pytest.raises(InvalidInputError, match=r"calibration_size=0.9999 leaves none of 100 rows"):
        SplitConformalClassifier(calibration_size=0.9999).fit(X[:100], y[:100])
