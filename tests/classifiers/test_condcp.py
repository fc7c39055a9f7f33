"""CondCP against linear programs solved one by one, and against split and Mondrian calibration."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from sklearn.frozen import FrozenEstimator

from fareg._encoding import gradient_boosting
from fareg._validation import FaregError, FaregWarning
from fareg.calibration import further_uniforms
from fareg.calibration._batch import DRAW
from fareg.calibration._condcp import QuantileProgram
from fareg.classifiers import (
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    SplitConformalClassifier,
)
from fareg.datasets import make_synthetic
from fareg.pvalues import conformal_quantile
from registry import batch_of

N_TRAIN, N_CAL = 400, 400


@pytest.fixture(scope="module")
def case():
    data = make_synthetic(1000, random_state=0)
    model = FrozenEstimator(gradient_boosting(0).fit(data.X[:N_TRAIN], data.y[:N_TRAIN]))
    split = N_TRAIN + N_CAL
    cal, test = slice(N_TRAIN, split), slice(split, None)
    return model, data.X[cal], data.y[cal], data.X[test], data.y[test]


def dual_variable(Phi, S, phi, s, alpha):
    """The test point's dual variable: one linear program with the test point in it."""
    rows, scores = np.vstack([Phi, phi]), np.append(S, s)
    solution = linprog(
        -scores, A_eq=rows.T, b_eq=np.zeros(len(phi)), bounds=(-alpha, 1 - alpha), method="highs"
    )
    return solution.x[-1]


def random_basis(rng, n):
    kind = rng.integers(4)
    a, b, c = (rng.integers(k, size=n) for k in (2, 3, 4))
    one_hot = [(v[:, None] == np.arange(v.max() + 1)).astype(float) for v in (a, b, c)]
    if kind == 0:  # one partition
        return one_hot[2]
    if kind == 1:  # overlapping groups: collinear columns
        return np.hstack(one_hot[:2])
    if kind == 2:
        return np.hstack(one_hot)
    return np.column_stack([np.ones(n), rng.normal(size=n), 100 * rng.random(n)])  # numbers


@pytest.mark.parametrize("ties", [False, True])
def test_threshold_is_where_the_dual_variable_passes_the_level(ties):
    rng = np.random.default_rng(int(ties))
    checked = 0
    for _ in range(60):
        n = int(rng.integers(15, 50))
        Phi = random_basis(rng, n + 1)
        Phi, phi = Phi[:-1], Phi[-1]
        S = rng.integers(6, size=n) / 4.0 if ties else rng.normal(size=n)
        alpha = float(rng.choice([0.1, 0.2, 0.25, 0.37]))
        program = QuantileProgram(Phi, S, alpha)
        levels = np.append(rng.uniform(-alpha, 1 - alpha, size=2), 1 - alpha)
        for u, threshold in zip(levels, program.thresholds(phi, levels), strict=True):
            below, above = threshold - 1e-4, threshold + 1e-4
            if np.isposinf(threshold):
                below, above = 1e3, None
            elif np.isneginf(threshold):
                below, above = None, -1e3
            if below is not None:
                assert dual_variable(Phi, S, phi, below, alpha) < u - 1e-6
            if above is not None:
                assert dual_variable(Phi, S, phi, above, alpha) > u - 1e-6
            checked += np.isfinite(threshold)
    assert checked > 80


@pytest.mark.parametrize("n", [3, 8, 9, 10, 99, 250])
def test_a_constant_is_split_and_groups_are_mondrian(n):
    rng = np.random.default_rng(n)
    for scores in (rng.random(n), rng.integers(4, size=n).astype(float)):
        program = QuantileProgram(np.ones((n, 1)), scores, 0.1)
        expected = conformal_quantile(scores, confidence_level=0.9)
        assert program.thresholds(np.ones(1), np.array([0.9]))[0] == expected
        groups = rng.integers(3, size=n)
        expected = conformal_quantile(scores, confidence_level=0.9, categories=groups)
        Phi = (groups[:, None] == np.arange(3)).astype(float)
        for basis in (Phi, np.hstack([np.ones((n, 1)), Phi, Phi])):
            program = QuantileProgram(basis, scores, 0.1)
            for row in np.unique(basis, axis=0):
                group = int(row[-3:].argmax())
                assert program.thresholds(row, np.array([0.9]))[0] == expected[group]


def test_infinite_scores_are_stranger_than_all():
    scores = np.append(np.arange(18.0), [np.inf])
    program = QuantileProgram(np.ones((19, 1)), scores, 0.1)
    assert program.thresholds(np.ones(1), np.array([0.9]))[0] == 17
    program = QuantileProgram(np.ones((19, 1)), np.append(scores[1:], [np.inf]), 0.1)
    assert np.isinf(program.thresholds(np.ones(1), np.array([0.9]))[0])


@pytest.mark.parametrize("score", ["aps", "lac"])
@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_classifier_equals_split_and_mondrian(case, score, label_conditional):
    model, X_cal, y_cal, X, _ = case
    shared = {
        "conformity_score": score,
        "label_conditional": label_conditional,
        "random_state": 0,
    }

    def sets(cls, **params):
        return cls(model, **shared, **params).conformalize(X_cal, y_cal).predict_set(X)

    ones = sets(CondCPClassifier, feature_map=lambda X: np.ones((len(X), 1)))
    np.testing.assert_array_equal(ones, sets(SplitConformalClassifier))
    two = ["Color", "Gender"]
    np.testing.assert_array_equal(
        sets(CondCPClassifier, sensitive_features=two, pairs=True),
        sets(ExhaustiveConformalClassifier, sensitive_features=two),
    )
    one = ["Age Group"]
    np.testing.assert_array_equal(
        sets(CondCPClassifier, sensitive_features=one),
        sets(ExhaustiveConformalClassifier, sensitive_features=one),
    )


def test_sets_are_the_labels_with_a_dual_variable_below_the_level(case):
    model, X_cal, y_cal, X, _ = case
    for randomized in (False, True):
        clf = CondCPClassifier(
            model,
            sensitive_features=["Color", "Age Group"],
            randomized=randomized,
            random_state=3,
        ).conformalize(X_cal, y_cal)
        rows = X.iloc[:6]
        batch, basis = batch_of(clf, rows), clf.calibration_.basis
        Phi, phi = (basis.matrix(people) for people in (batch_of(clf, X_cal).people, batch.people))
        S = clf.labelled_rows(X_cal, y_cal).score
        T, sets = clf.conformity_scores(rows), clf.predict_set(rows)
        u = np.full(6, 0.9)
        if randomized:
            u = further_uniforms(batch.u, DRAW) - 0.1
        for i in range(6):
            eta = [dual_variable(Phi, S, phi[i], t, 0.1) for t in T[i]]
            np.testing.assert_array_equal(sets[i], np.array(eta) < u[i] - 1e-7)


def test_randomized_sets_are_smaller_and_rows_stand_alone(case):
    model, X_cal, y_cal, X, _ = case
    params = {"sensitive_features": ["Color", "Region"], "random_state": 0}
    plain = CondCPClassifier(model, **params).conformalize(X_cal, y_cal)
    random = CondCPClassifier(model, randomized=True, **params).conformalize(X_cal, y_cal)
    sets, smaller = plain.predict_set(X), random.predict_set(X)
    assert (smaller <= sets).all()
    assert smaller.sum() < sets.sum()
    np.testing.assert_array_equal(random.predict_set(X.iloc[::-1])[::-1], smaller)
    np.testing.assert_array_equal(random.predict_set(X.iloc[[5]])[0], smaller[5])


@pytest.mark.parametrize("sensitive", [["Color"], ["Color", "Gender"]])
@pytest.mark.parametrize("randomized", [False, True])
def test_unseen_level_gets_the_full_set(case, sensitive, randomized):
    model, X_cal, y_cal, X, _ = case
    clf = CondCPClassifier(
        model, sensitive_features=sensitive, randomized=randomized, random_state=0
    ).conformalize(X_cal, y_cal)
    strange = X.assign(Color=["Green"] * 9 + list(X["Color"][9:]))
    with pytest.warns(FaregWarning, match="9 of 200 rows") as record:
        sets = clf.predict_set(strange)
    assert len(record) == 1
    assert sets[:9].all()
    assert not sets[9:].all()


def test_degenerate_bases(case):
    model, X_cal, y_cal, X, _ = case
    one_level = X_cal.assign(Color="Red")
    clf = CondCPClassifier(model, sensitive_features=["Color"], random_state=0)
    split = SplitConformalClassifier(model, random_state=0)
    X_red = X.assign(Color="Red")
    np.testing.assert_array_equal(
        clf.conformalize(one_level, y_cal).predict_set(X_red),
        split.conformalize(one_level, y_cal).predict_set(X_red),
    )
    rng = np.random.default_rng(0)
    small = pd.DataFrame({"a": rng.random(30), "b": rng.choice(["x", "y", None], size=30)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FaregWarning)
        sets = CondCPClassifier(pairs=True, random_state=0).fit(small, rng.integers(2, size=30))
        assert sets.predict_set(small).shape == (30, 2)
        clf = CondCPClassifier(model, feature_map=lambda X: np.zeros((len(X), 2)))
        assert clf.conformalize(X_cal, y_cal).predict_set(X).all()
    for bad in (lambda X: np.ones(len(X)), lambda X: np.full((len(X), 1), np.nan)):
        with pytest.raises(FaregError, match="feature_map must return"):
            CondCPClassifier(model, feature_map=bad).conformalize(X_cal, y_cal)
    with pytest.raises(FaregError, match="feature_map must be a function"):
        CondCPClassifier(model, feature_map="groups").conformalize(X_cal, y_cal)
