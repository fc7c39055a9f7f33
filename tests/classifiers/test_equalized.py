"""Equalized coverage: Mondrian identities, unseen and tiny groups."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from fareg import (
    ExhaustiveConformalClassifier,
    FaregError,
    FaregWarning,
    PartialConformalClassifier,
    SplitConformalClassifier,
)
from fareg.groups import Rule

BOTH = [PartialConformalClassifier, ExhaustiveConformalClassifier]
laws = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 10**6)
conditional = st.booleans()
pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")


def table(seed, n=150):
    """Return class probabilities, two sensitive features, a constant, and labels."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.dirichlet(np.ones(3), n)).add_prefix("p")
    X["color"] = rng.choice(["Red", "Blue"], n)
    X["age"] = rng.choice([1.0, 2.0, np.nan], n)
    X["same"] = "x"
    return X, rng.integers(0, 3, n)


def pvalues(cls, estimator, seed, sensitive=None, **parameters):
    X, y = table(seed)
    clf = cls(estimator, sensitive_features=sensitive, random_state=0, **parameters)
    return clf.conformalize(X, y).predict_p(table(seed + 1)[0])


@laws
@given(seed=seeds, label_conditional=conditional)
def test_a_constant_feature_gives_split(reader, seed, label_conditional):
    split = pvalues(SplitConformalClassifier, reader(), seed, label_conditional=label_conditional)
    for cls in BOTH:
        p = pvalues(cls, reader(), seed, ["same"], label_conditional=label_conditional)
        np.testing.assert_array_equal(p, split)


@pytest.mark.parametrize("feature", ["color", "age"])
@laws
@given(seed=seeds, label_conditional=conditional)
def test_partial_and_exhaustive_agree_on_one_feature(reader, feature, seed, label_conditional):
    partial, exhaustive = (
        pvalues(cls, reader(), seed, [feature], label_conditional=label_conditional) for cls in BOTH
    )
    np.testing.assert_array_equal(partial, exhaustive)


# --- levels that are missing, unseen or rare ---


def recorded(function, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*arguments)
    return result, [w for w in caught if w.category is FaregWarning]


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("method", ["predict_set", "predict_p"])
def test_unseen_levels_get_the_full_set_and_a_warning(reader, cls, method):
    X, y = table(0, n=600)
    clf = cls(reader(), sensitive_features=["color", "age"], random_state=0).conformalize(X, y)
    new = X.copy()
    new.loc[:2, "color"] = "Green"
    new.loc[2:4, "age"] = 77.0
    if cls is ExhaustiveConformalClassifier:  # a combination that is new of values that are not
        known = (X["color"] == "Red") | (X["age"] == 1)
        clf.conformalize(X[known], y[known])
        lone, told = recorded(getattr(clf, method), X[~known & X["age"].notna()])
        assert (lone == 1).all()
        assert "combination of sensitive features" in str(told[0].message)
        clf.conformalize(X, y)
    answers, caught = recorded(getattr(clf, method), new)
    rows = ["3", "3"] if cls is PartialConformalClassifier else ["5"]  # feature by feature
    assert [str(warning.message).split()[0] for warning in caught] == rows
    assert all("is kept in the set" in str(warning.message) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    assert (answers[:5] == 1).all()
    known, silent = recorded(getattr(clf, method), X)
    assert silent == []
    np.testing.assert_array_equal(answers[5:], known[5:])


def test_a_group_of_nobody_is_refused(reader):
    X, y = table(0, n=600)
    clf = PartialConformalClassifier(reader(), groups=[Rule.parse("color = Purple")])
    with pytest.raises(FaregError, match=r"^groups: no .* row has color = Purple; color holds B"):
        clf.conformalize(X, y)


@pytest.mark.parametrize("cls", BOTH)
def test_tiny_groups_get_the_full_set_and_one_warning(reader, cls):
    X, y = table(0, n=600)
    X.loc[:7, "color"] = "Green"
    X.loc[8:10, "color"] = "Violet"
    clf = cls(reader(), sensitive_features=["color"], random_state=0)
    _, caught = recorded(clf.conformalize, X, y)
    (warning,) = caught
    assert str(warning.message) == (
        "fewer than 9 calibration points for color = Green and 1 more: these rows get full "
        "sets; use more rows or a larger group"
    )
    assert warning.filename == __file__
    of_labels = cls(**clf.get_params(deep=False)).set_params(label_conditional=True)
    _, caught = recorded(of_labels.conformalize, X, y)
    assert "these rows get this label in any case; use more rows" in str(caught[0].message)
    sets, caught = recorded(clf.predict_set, X)
    assert caught == []
    assert sets[:11].all()
    assert not sets[11:].all()


# --- bins ---


class RememberingTree(DecisionTreeClassifier):
    """A tree that keeps the rows it was trained on."""

    def fit(self, X, y):
        self.rows_ = X
        return super().fit(X, y)


def test_bins_are_quartiles_of_the_training_rows_in_fit_and_of_calibration_rows_else(patients):
    X, y = patients[0][["age", "dose"]], patients[1]

    def are_quartiles(edges, rows):
        ages = rows["age"].dropna()
        quartiles = np.quantile(ages, [0.25, 0.5, 0.75], method="inverted_cdf")
        return (np.searchsorted(edges, ages) == np.searchsorted(quartiles, ages)).all()

    clf = PartialConformalClassifier(
        RememberingTree(max_depth=3), sensitive_features="age", random_state=0
    )
    assert are_quartiles(clf.fit(X, y).levels_[0].edges, clf.estimator_.rows_)
    assert are_quartiles(clf.conformalize(X[:400], y[:400]).levels_[0].edges, X[:400])


def test_a_level_with_too_many_labels_that_the_estimator_never_saw_is_named(reader):
    X, y = table(0, 1000)
    X["color"] = ["Red"] * 100 + ["Blue"] * 900
    y[:30] = 7  # 3% of all rows, 30% of the red ones
    clf = PartialConformalClassifier(reader(), sensitive_features="color", random_state=0)
    with pytest.warns(FaregWarning) as caught:
        clf.conformalize(X, y)
    said = [str(w.message) for w in caught]
    assert len(said) == 2
    assert "30 of 1000 calibration rows (3.0%)" in said[0]
    assert "(7)" in said[0]
    assert "color = Red" in said[1]
    assert "Blue" not in said[1]
