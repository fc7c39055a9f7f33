"""Split conformal sets against their definition, the order of calls, labels of all types."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from fareg import (
    ExhaustiveConformalClassifier,
    FaregError,
    FaregWarning,
    PartialConformalClassifier,
    SplitConformalClassifier,
)
from fareg._columns import canonical
from fareg._rows import numbered_hashes, row_hashes, uniforms_of
from fareg.pvalues import conformal_pvalues
from fareg.scores import SCORES, aps

ALL = [SplitConformalClassifier, PartialConformalClassifier, ExhaustiveConformalClassifier]


def table(seed, n, labels=(0, 1, 2)):
    """Return random class probabilities and labels drawn from them."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(len(labels)), n)
    drawn = (rng.random((n, 1)) > proba.cumsum(axis=1)).sum(axis=1).clip(max=len(labels) - 1)
    return pd.DataFrame(proba).add_prefix("p"), np.asarray(labels)[drawn]


def row_uniforms(X, key, role, codes=None):
    """Return the random number that each row has in a role."""
    return uniforms_of(numbered_hashes(row_hashes(canonical(X), key, labels=codes), role))


def numbers(seed=0, n=300):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.digitize(X[:, 0] + rng.normal(size=n), [-0.5, 0.5])


# --- what the sets are ---


@pytest.mark.parametrize("score", SCORES)
def test_sets_are_the_labels_scored_no_stranger_than_the_threshold(reader, score):
    X, y = table(0, 120)
    X_new, _ = table(1, 40)
    clf = SplitConformalClassifier(reader(), conformity_score=score, random_state=0)
    clf.conformalize(X, y)
    u = row_uniforms(X, clf.key_, "calibration", y)
    own = SCORES[score](X.to_numpy(), u)[np.arange(120), y]
    k = 109  # ceil(121 * 0.9)
    scores = SCORES[score](X_new.to_numpy(), row_uniforms(X_new, clf.key_, "prediction"))
    np.testing.assert_array_equal(clf.predict_set(X_new), scores <= np.sort(own)[k - 1])
    np.testing.assert_array_equal(clf.predict_p(X_new), conformal_pvalues(own, scores))


def test_score_may_be_a_function(reader):
    X, y = table(0, 100)

    def plain_aps(proba, u):
        return aps(proba)

    clf = SplitConformalClassifier(reader(), conformity_score=plain_aps).conformalize(X, y)
    own = aps(X.to_numpy())[np.arange(100), y]
    np.testing.assert_array_equal(clf.predict_p(X), conformal_pvalues(own, aps(X.to_numpy())))


def test_fit_calibrates_on_the_share_asked_for():
    X, y = numbers(n=200)
    clf = SplitConformalClassifier(LogisticRegression(), calibration_size=0.3, random_state=0)
    assert clf.fit(X, y).n_calibration_ == 60


# --- what is refused, and labels of all kinds ---


WRONG_SCORES = [lambda proba, u: proba[:, 0], lambda proba, u: np.full_like(proba, np.nan)]


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"confidence_level": 90}, "did you mean 0.9"),
        ({"conformity_score": "asp"}, "conformity_score must be one of aps"),
        (
            {"conformity_score": WRONG_SCORES[0]},
            r"must return an array of shape \(\d+, 3\)",
        ),
        ({"conformity_score": WRONG_SCORES[1]}, "must return an array of .* without NaN"),
        ({"label_conditional": "yes"}, "label_conditional must be True or False, got 'yes'"),
        ({"calibration_size": 1.5}, r"calibration_size must be a number in \(0, 1\), got 1.5"),
        ({"random_state": "seed"}, "random_state must be None, a whole number or"),
        ({"estimator": RidgeClassifier()}, "must have predict_proba, got .*; wrap it in sklearn's"),
        ({"estimator": 3}, "must be a classifier with predict_proba"),
        ({"estimator": LogisticRegression().decision_function}, "or ProbabilityFunction"),
    ],
)
@pytest.mark.parametrize("cls", ALL)
def test_bad_parameters_are_refused_in_fit(cls, parameters, sentence):
    clf = cls(**{"estimator": LogisticRegression(), **parameters})
    with pytest.raises(FaregError, match=sentence):
        clf.fit(*numbers())


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (None, "the target y is None"),
        ([0, 1], "X and y must have the same number of rows; X has 4, y has 2"),
        ([0, 1, None, 1], "must not have missing labels .*, got 1 of 4; drop those rows"),
        ([0, 1, np.nan, np.nan], "must not have missing labels .*, got 2 of 4"),
        ([0.5, 1.7, 2.2, 3.1], "Unknown label type"),
        (np.array([0, "a", 1, "b"], dtype=object), "labels of one type, got int, str; convert"),
        (np.array(["a", 0, "b", 1.5], dtype=object), "labels of one type, got float, int, str;"),
        ([0, 0, 0, 0], "y must hold at least two classes, got one class"),
        (np.array([b"a", b"b", b"a", b"b"]), "labels represented as bytes"),
    ],
)
def test_bad_labels_are_refused(y, sentence):
    with pytest.raises(FaregError, match=sentence):
        SplitConformalClassifier().fit(np.eye(4), y)


def test_a_single_row_and_labels_that_nobody_knows_are_refused(reader):
    with pytest.raises(FaregError, match="at least 2 rows to split, got 1 sample"):
        SplitConformalClassifier().fit([[0.0]], [0])
    X, _ = table(0, 30)
    with pytest.raises(FaregError, match="no label that the estimator knows, got a; its classes"):
        SplitConformalClassifier(reader()).conformalize(X, np.array(["a", "b"] * 15))


CONTAINERS = {
    "list": list,
    "pandas": pd.Series,
    "polars": pl.Series,
    "categories": pd.Categorical,
    "objects": lambda y: y.astype(object),
    **{
        dtype: lambda y, dtype=dtype: pd.Series(y).astype(dtype)
        for dtype in ("string", "Int64", "int64[pyarrow]", "boolean")
    },
}


@pytest.mark.parametrize(
    ("labels", "containers"),
    [
        (["no", "yes"], "list pandas polars categories objects string"),
        ([False, True], "list objects boolean"),
        ([-5, 12], "objects Int64 int64[pyarrow]"),
        ([2**60, 2**60 + 1], "Int64"),
        ([1.0, 2.0], "list"),
    ],
)
def test_labels_of_any_type_in_any_container_stay_what_they_are(labels, containers):
    X, codes = numbers()
    codes = np.minimum(codes, 1)
    expected = SplitConformalClassifier(LogisticRegression(), random_state=0).fit(X, codes)
    for name in containers.split():
        given = CONTAINERS[name](np.array(labels)[codes])
        clf = SplitConformalClassifier(LogisticRegression(), random_state=0).fit(X, given)
        assert clf.classes_.tolist() == labels
        assert list(map(str, clf.classes_)) == list(map(str, labels))
        np.testing.assert_array_equal(clf.predict_set(X), expected.predict_set(X))
        np.testing.assert_array_equal(clf.predict(X), np.array(labels)[expected.predict(X)])


# --- order of calls ---


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("method", ["predict", "predict_set", "predict_p"])
def test_prediction_before_calibration_is_refused(cls, method):
    with pytest.raises(FaregError, match="not conformalized yet; call fit") as e:
        getattr(cls(LogisticRegression()), method)([[0.0]])
    assert isinstance(e.value, NotFittedError)


@pytest.mark.parametrize(
    "estimator", [None, LogisticRegression(), FrozenEstimator(LogisticRegression())]
)
def test_conformalize_needs_a_fitted_estimator(estimator):
    X, y = numbers()
    with pytest.raises(
        FaregError, match=r"needs a fitted estimator: pass FrozenEstimator\(model\)"
    ):
        SplitConformalClassifier(estimator).conformalize(X, y)


def test_fit_of_a_frozen_estimator_calibrates_on_all_rows():
    X, y = numbers()
    model = FrozenEstimator(LogisticRegression().fit(X, y))
    X_cal, y_cal = numbers(seed=1)
    fitted = SplitConformalClassifier(model, random_state=0).fit(X_cal, y_cal)
    calibrated = SplitConformalClassifier(model, random_state=0).conformalize(X_cal, y_cal)
    assert fitted.n_calibration_ == len(y_cal)
    np.testing.assert_array_equal(fitted.predict_p(X), calibrated.predict_p(X))


def test_class_that_calibration_never_saw_is_scored(reader):
    X, y = table(0, 200)
    seen = y != 2
    clf = SplitConformalClassifier(reader(), random_state=0).conformalize(X[seen], y[seen])
    assert clf.classes_.tolist() == [0, 1, 2]
    assert 0 < clf.predict_set(X)[:, 2].mean() < 1


def test_label_conditional_keeps_a_class_that_calibration_never_saw(reader):
    X, y = table(0, 200)
    seen = y != 2
    clf = SplitConformalClassifier(reader(), label_conditional=True, random_state=0)
    with pytest.warns(FaregWarning, match="fewer than 9 calibration points .* label 2: these"):
        clf.conformalize(X[seen], y[seen])
    assert clf.predict_set(X)[:, 2].all()
    assert (clf.predict_p(X)[:, 2] == 1).all()
    assert not clf.predict_set(X)[:, 0].all()


def test_labels_that_the_estimator_never_saw_count_as_misses(reader):
    X, y = table(0, 99)
    foreign = np.arange(99) < 5
    y[foreign] = 9
    clf = SplitConformalClassifier(reader(), random_state=0)
    with pytest.warns(
        FaregWarning, match=r"5 of 99 calibration rows \(5.1%\) have labels .* \(9\)"
    ) as caught:
        clf.conformalize(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert clf.n_calibration_ == 99
    u = row_uniforms(X, clf.key_, "calibration", np.where(foreign, -1, y))
    own = aps(X.to_numpy(), u)[np.flatnonzero(~foreign), y[~foreign]]
    assert clf.thresholds_[0][0] == np.sort(own)[90 - 1]


@pytest.mark.parametrize(("n", "full"), [(8, True), (9, False)])
def test_full_sets_from_too_few_points_come_with_one_warning(reader, n, full):
    X, y = table(0, n)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = SplitConformalClassifier(reader(), random_state=0).conformalize(X, y)
    sentences = [str(w.message) for w in caught if w.category is FaregWarning]
    assert len(sentences) == int(full)
    assert all(s.startswith("fewer than 9 calibration points for all rows") for s in sentences)
    assert clf.predict_set(table(1, 200)[0]).all() == full
