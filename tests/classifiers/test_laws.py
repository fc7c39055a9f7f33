"""What holds for every classifier: laws of sets, p-values, rows, tables and few people."""

import inspect
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

import fareg
from registry import LEARNERS, short_classifiers

NAMES = sorted(short_classifiers())
TEACHING = {cls.__name__: aim for cls, aim in LEARNERS.items()}
KEEPING = [name for name in NAMES if name not in TEACHING and name != "paper"]  # all calibrate
QUICK = ["ExhaustiveConformalClassifier", "PartialConformalClassifier", "SplitConformalClassifier"]
laws = settings(max_examples=20, deadline=None)
seeds, levels = st.integers(0, 10**6), st.floats(0.01, 0.99)
pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")


def table(seed, n=200):
    """Return class probabilities, two features of people, and labels that follow from both."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(3), n)
    X = pd.DataFrame(proba, columns=["p0", "p1", "p2"])
    X["age"] = np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 90, n))
    X["color"] = rng.choice(np.array(["Red", "Blue", None], dtype=object), n)
    X.loc[0, "color"] = "Red"
    honest = (rng.random((n, 1)) > proba.cumsum(axis=1)).sum(axis=1).clip(max=2)
    return X, np.where((X["color"] == "Red") & (rng.random(n) < 0.3), rng.integers(0, 3, n), honest)


def made(name, reader, **parameters):
    clf = short_classifiers()[name]
    return clf.set_params(
        estimator=reader(), sensitive_features=["age", "color"], random_state=0, **parameters
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_but_the_estimator_goes_by_its_name(name):
    estimator, *others = inspect.signature(type(short_classifiers()[name])).parameters.values()
    assert estimator.name == "estimator"
    assert {parameter.kind for parameter in others} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("name", QUICK)
@laws
@given(seed=seeds, n=st.integers(1, 120), level=levels, by_label=st.booleans())
def test_small_and_odd_samples_keep_the_law_of_pvalues(reader, name, seed, n, level, by_label):
    clf = made(name, reader, label_conditional=by_label, confidence_level=level)
    assert_pvalues_give_the_sets(clf.conformalize(*table(seed, n)), seed)


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_set_holds_the_labels_whose_pvalue_is_above_alpha(reader, name, by_label):
    clf = made(name, reader, label_conditional=by_label).conformalize(*table(0, 400))
    assert_pvalues_give_the_sets(clf, 0)


def assert_pvalues_give_the_sets(clf, seed):
    new = table(seed + 1, 40)[0]
    new.loc[:5, "color"] = "Green"  # calibration never saw it
    sets = clf.predict_set(new)
    if not hasattr(clf, "predict_p"):
        with pytest.raises(fareg.FaregError, match="has no p-values"):
            clf.predict_set(new, confidence_level=0.5)
        return
    p, smaller = clf.predict_p(new), clf.predict_set(new, confidence_level=0.35)
    np.testing.assert_array_equal(sets, p > clf.alpha_)
    np.testing.assert_array_equal(smaller, p > 0.65)
    assert (p >= 0).all()
    assert (p <= 1).all()


@pytest.mark.parametrize("name", QUICK)
@laws
@given(seed=seeds, pair=st.tuples(levels, levels), by_label=st.booleans())
def test_sets_grow_with_the_confidence_level_of_fit(reader, name, seed, pair, by_label):
    X, y = table(seed, 80)
    small, large = (
        made(name, reader, confidence_level=level, label_conditional=by_label)
        .conformalize(X, y)
        .predict_set(X)
        for level in sorted(pair)
    )
    assert (small <= large).all()


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("name", KEEPING)
def test_the_order_of_calibration_rows_does_not_matter(reader, name, by_label):
    for seed in range(2 if name == "CondCPClassifier" else 10):
        X, y = table(seed, 100)
        order = np.random.default_rng(seed).permutation(len(y))
        clf = made(name, reader, label_conditional=by_label)
        expected = clf.conformalize(X, y).predict_set(X)
        shuffled = clf.conformalize(X.iloc[order], y[order]).predict_set(X)
        np.testing.assert_array_equal(shuffled, expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_has_its_answer_whichever_rows_and_library_it_comes_with(reader, name):
    clf = made(name, reader).conformalize(*table(0, 400))
    new = table(1, 30)[0]
    new.loc[3, "color"] = "Green"
    sets = clf.predict_set(new)
    alone = np.concatenate([clf.predict_set(new[i : i + 1]) for i in range(len(new))])
    np.testing.assert_array_equal(alone, sets)
    order = np.random.default_rng(0).permutation(len(new))
    np.testing.assert_array_equal(clf.predict_set(new.iloc[order]), sets[order])
    np.testing.assert_array_equal(clf.predict_set(pl.from_pandas(new)), sets)
    np.testing.assert_array_equal(clf.predict_set(new.to_numpy(dtype=object)), sets)


@pytest.mark.parametrize("n_clusters", [None, 2, 8])
@pytest.mark.parametrize("name", TEACHING)
def test_too_few_to_learn_from_have_the_sets_of_split_with_one_warning(name, n_clusters):
    X, y = table(0, 100 if n_clusters is None else 400)
    X["color"] = pd.factorize(X["color"])[0]
    X["age"] = X["age"].fillna(0)
    clusters = None if n_clusters is None else np.arange(len(y)) % n_clusters
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    clf = short_classifiers()[name].set_params(estimator=model, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, y, clusters=clusters)
    told = [str(w.message) for w in caught if f"too few to {TEACHING[name]}" in str(w.message)]
    assert len(told) == 1
    assert (" clusters of " in told[0]) == (n_clusters is not None)
    split = fareg.SplitConformalClassifier(model, random_state=0).fit(X, y, clusters=clusters)
    np.testing.assert_array_equal(clf.predict_set(X), split.predict_set(X))
