"""AFCP against the definition, point by point, and its edge cases."""

import warnings

import numpy as np
import pytest
from scipy import stats

from fareg._validation import FaregWarning
from fareg.classifiers import AFCPClassifier
from fareg.datasets import make_synthetic
from registry import batch_of


def random_case(seed, n_labels=3, n_features=3):
    """Few rows, few levels, coarse probabilities: ties everywhere; one level only in the test."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(3, 60)), 3
    n_levels = rng.integers(1, 4, size=n_features)
    levels = np.column_stack([rng.integers(k, size=n + m) for k in n_levels]).astype(float)
    levels[n:][rng.random((m, n_features)) < 0.05] = 9.0
    proba = rng.integers(1, 5, size=(n + m, n_labels)).astype(float)
    if seed % 2:  # and half of the cases without ties
        proba = rng.random((n + m, n_labels))
    y = rng.integers(n_labels, size=n + m)
    y[:n_labels] = np.arange(n_labels)
    proba[np.arange(n + m), y] += 5 * (levels[:, 0] > 0)  # hard for level 0 of the first feature
    X = np.hstack([proba / proba.sum(axis=1, keepdims=True), levels])
    return X[:n], y[:n], X[n:]


def fitted(model, X, y, **params):
    params = {"conformity_score": "lac", "sensitive_features": [-3, -2, -1], **params}
    clf = AFCPClassifier(model, random_state=0, **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FaregWarning)
        return clf.conformalize(X, y)


def rates(levels, miscovered):
    """The worst level's (rate, size) and its indicators, of one feature."""
    groups = [miscovered[levels == v] for v in np.unique(levels)]
    return max(groups, key=lambda e: (e.mean(), len(e)))


def thresholds(clf, X):
    return clf.calibration_.thresholds(batch_of(clf, X))


def brute_force_selection(s, A, t, a, alpha, n_select):
    """Select features for a row with score t and levels a, straight from the definition."""
    scores, levels = np.append(s, t), np.vstack([A, a])
    n = len(s)
    miscovered = np.array(
        [(1 + np.sum(np.delete(scores, i) >= scores[i])) / (n + 1) <= alpha for i in range(n + 1)]
    ).astype(float)
    worst = [rates(levels[:, k], miscovered) for k in range(levels.shape[1])]
    key = [(e.mean(), len(e)) for e in worst]
    order = sorted(range(len(key)), key=lambda k: (-key[k][0], -key[k][1], k))
    if n_select is not None:
        return set(order[:n_select])
    best = worst[order[0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = stats.ttest_1samp(best, alpha, alternative="greater").pvalue
    return {order[0]} if p < 0.1 else set()


def brute_force(clf, X_cal, y_cal, X):
    """Sets, p-values and selections per label, by loops over rows, labels and points."""
    S, T = clf.conformity_scores(X_cal), clf.conformity_scores(X)
    s = S[np.arange(len(y_cal)), y_cal]
    A, B = X_cal[:, -3:], X[:, -3:]
    p = np.zeros(T.shape)
    chosen = np.zeros((*T.shape, 3), dtype=bool)
    for i in range(len(X)):
        selections = []
        for y in range(T.shape[1]):
            own = y_cal == y if clf.label_conditional else np.ones(len(y_cal), dtype=bool)
            selections.append(
                brute_force_selection(s[own], A[own], T[i, y], B[i], clf.alpha_, clf.n_select)
            )
        for selection in [set(), *selections]:
            shares = (A[:, list(selection)] == B[i, list(selection)]).all(axis=1)
            for y in range(T.shape[1]):
                own = shares & (y_cal == y) if clf.label_conditional else shares
                p[i, y] = max(p[i, y], (1 + np.sum(s[own] >= T[i, y])) / (own.sum() + 1))
        for y, selection in enumerate(selections):
            chosen[i, y, list(selection)] = True
    return p > clf.alpha_, p, chosen


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("n_select", [None, 1, 2])
@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_equals_brute_force(reader, n_select, label_conditional):
    seen = set()
    for seed in range(50):
        X_cal, y_cal, X = random_case(seed)
        clf = fitted(
            reader(),
            X_cal,
            y_cal,
            n_select=n_select,
            label_conditional=label_conditional,
            confidence_level=[0.5, 0.7, 0.8, 0.9][seed % 4],
        )
        sets, p, chosen = brute_force(clf, X_cal, y_cal, X)
        np.testing.assert_array_equal(clf.predict_set(X), sets)
        np.testing.assert_array_equal(clf.predict_p(X), p)
        np.testing.assert_array_equal(clf.selected_features(X), chosen.all(axis=1))
        selected = clf.calibration_.selected(batch_of(clf, X))
        np.testing.assert_array_equal((selected[..., None] == np.arange(3)).any(axis=2), chosen)
        seen |= set(map(tuple, chosen.reshape(-1, 3)))
    assert len(seen) >= 3  # the cases are not all alike


@pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")
def test_many_of_many_features_are_selected(reader):
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=130)
    # each feature comes ten times, so that the joint cells of twelve hold many rows
    levels = np.tile(rng.integers(3, size=(130, 6)), 10)
    X, y = np.column_stack([proba, levels]), rng.integers(3, size=130)
    clf = fitted(reader(), X[:100], y[:100], n_select=12, sensitive_features=list(range(3, 63)))
    X = X[100:]
    batch = batch_of(clf, X)
    calibration = clf.calibration_
    selected, codes = calibration.selected(batch), calibration.coding.codes(batch.people)
    selections = {tuple(features) for features in selected.reshape(-1, 12)}
    scores = clf.conformity_scores(X)
    assert len(selections) > 1
    thresholds = np.full((len(X), 1), -np.inf)
    for features in [(), *selections]:
        rows = (selected == features).all(axis=2).any(axis=1) if features else slice(None)
        table, cells = calibration._calibrate_cells(features, codes[rows])
        own = table.quantiles(clf.alpha_)[cells]
        thresholds[rows] = np.maximum(thresholds[rows], own)
    np.testing.assert_array_equal(clf.predict_set(X), scores <= thresholds)


def test_finds_the_feature_that_matters(reader):
    rng = np.random.default_rng(0)
    n = 3000
    hard = rng.random(n) < 0.2
    y = rng.integers(3, size=n)
    proba = np.full((n, 3), 0.1) + rng.random((n, 3)) * 0.02
    proba[np.arange(n), np.where(hard & (rng.random(n) < 0.4), (y + 1) % 3, y)] = 0.8
    proba /= proba.sum(axis=1, keepdims=True)
    X = np.column_stack([proba, rng.integers(3, size=n), hard, rng.integers(4, size=n)])
    clf = fitted(reader(), X[:2000], y[:2000])
    names = [levels.name for levels in clf.levels_]
    assert clf.selected_features(X[2000:])[:, names.index("x4")].mean() > 0.99
    covered = clf.predict_set(X[2000:])[np.arange(1000), y[2000:]]
    assert covered[hard[2000:]].mean() > 0.85
    # one level each: nobody is worse than all, and the marginal set is all there is
    X[:, 3:] = 0
    clf = fitted(reader(), X[:2000], y[:2000])
    assert not clf.selected_features(X[2000:]).any()
    assert len(np.unique(thresholds(clf, X[2000:]))) == 1


def test_unseen_level_keeps_every_label_with_one_warning():
    data = make_synthetic(600, random_state=2)
    clf = AFCPClassifier(sensitive_features=["Color"], n_select=1, random_state=0)
    clf.fit(data.X[:400], data.y[:400])
    X = data.X[400:415].assign(Color="Green")
    with pytest.warns(FaregWarning, match="15 of 15 rows") as record:
        assert clf.predict_set(X).all()
    assert len(record) == 1
    # the test asks for evidence, and one row is none: the marginal set remains
    clf.set_params(n_select=None).fit(data.X[:400], data.y[:400])
    assert not clf.predict_set(X).all()
