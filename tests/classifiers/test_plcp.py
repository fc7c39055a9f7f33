"""PLCP: its parts against definitions, its regions against a group that is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import check_grad
from sklearn.base import BaseEstimator, ClassifierMixin

from fareg._validation import FaregError, FaregWarning
from fareg.calibration import RegionSearch
from fareg.calibration._learned import Regions, _loss, learn_regions, pinball, region_quantiles
from fareg.classifiers import PLCPClassifier
from fareg.datasets import make_synthetic
from fareg.pvalues import conformal_quantile

pytestmark = pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")


class Sixths(ClassifierMixin, BaseEstimator):
    """What the best model knows without the sensitive features: the sixth and the half."""

    def __init__(self):
        self.classes_ = np.arange(6)
        self.is_fitted_ = True

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        signal = np.asarray(X["Feature 1"])[:, None]
        p = 0.5 * (np.floor(6 * signal) == self.classes_)
        return p + 0.5 / 3 * ((signal >= 0.5) == (self.classes_ >= 3))

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


def conformalized(data, n=1500, **params):
    params = {"sensitive_features": list(data.sensitive), "random_state": 0, **params}
    return PLCPClassifier(Sixths(), **params).conformalize(data.X[:n], data.y[:n])


@pytest.fixture(scope="module")
def data():
    return make_synthetic(4500, random_state=0)


@pytest.mark.parametrize("n_hidden", [0, 3])
def test_gradient_is_the_derivative(n_hidden):
    rng = np.random.default_rng(0)
    Z, losses = rng.normal(size=(30, 4)), rng.random((30, 3)) / 30
    size = 5 * n_hidden + ((n_hidden or 4) + 1) * 3
    theta = rng.normal(size=size)
    error = check_grad(
        lambda t: _loss(t, Z, losses, n_hidden)[0],
        lambda t: _loss(t, Z, losses, n_hidden)[1],
        theta,
    )
    assert error < 1e-6
    h = Regions.unpack(theta, 4, n_hidden, 3).proba(Z)
    np.testing.assert_allclose(h.sum(axis=1), 1)


def test_equal_rows_may_be_learned_from_as_one():
    rng = np.random.default_rng(3)
    Z, which, scores = rng.normal(size=(5, 3)), rng.integers(5, size=300), rng.random(300)
    search = RegionSearch(n_regions=2, model="network", max_iter=3, n_restarts=2)
    apart, together = (
        learn_regions(*rows, scores, 0.1, search, np.random.default_rng(0))
        for rows in ((Z[which], np.arange(300)), (Z, which))
    )
    h_apart, h_together = apart[0].proba(Z)[which], together[0].proba(Z)[which]
    quantiles = [region_quantiles(scores, h, 0.1) for h in (h_apart, h_together)]
    np.testing.assert_allclose(*quantiles, atol=1e-3)
    np.testing.assert_allclose(together[1], apart[1], rtol=1e-4)


def test_region_quantiles_minimise_the_weighted_pinball_loss():
    rng = np.random.default_rng(1)
    for _ in range(20):
        scores, h = rng.integers(8, size=25) / 4.0, rng.random((25, 2))
        q = region_quantiles(scores, h, 0.2)
        candidates = pinball(scores, np.unique(scores), 0.2)  # a minimum lies at a score
        best = (h.T @ candidates).min(axis=1)
        np.testing.assert_allclose((h * pinball(scores, q, 0.2)).sum(axis=0), best)
    assert region_quantiles(np.arange(10.0), np.ones((10, 1)), 0.1)[0] == 8


def test_network_finds_xnor_and_a_line_does_not():
    rng = np.random.default_rng(2)
    bits = rng.integers(2, size=(2000, 2))
    group = bits[:, 0] == bits[:, 1]
    scores = np.where(group, 1.0, 0.2) * rng.random(2000)
    Z = np.hstack([bits, 1 - bits]).astype(float)
    found = {}
    for name in ("linear", "network"):
        search = RegionSearch(n_regions=2, model=name, max_iter=30, n_restarts=8)
        regions, loss, _ = learn_regions(Z, np.arange(2000), scores, 0.1, search, rng)
        h = regions.proba(Z)
        high = h.argmax(axis=1) == region_quantiles(scores, h, 0.1).argmax()
        found[name] = (np.mean(high == group), loss)
    assert found["network"][0] == 1
    assert found["linear"][0] < 0.8
    assert found["network"][1] < found["linear"][1]


def test_split_calibrates_regions_on_the_other_half(data):
    clf = conformalized(data)
    np.testing.assert_array_equal(clf.predict_set(data.X), clf.predict_p(data.X) > clf.alpha_)
    assert len(clf.calibration_.sample) == 750
    assert set(clf.predict_region(data.X)) <= set(clf.kept_)
    one = conformalized(data, n_regions=1)
    own = one.calibration_.sample.score
    assert one.thresholds_.tolist() == [[conformal_quantile(own, confidence_level=0.9)]]


def test_few_rows_learn_and_all_others_calibrate(data, monkeypatch):
    monkeypatch.setattr("fareg.classifiers._models.MAX_LEARNING_ROWS", 100)
    assert len(conformalized(data, n_restarts=1).calibration_.sample) == 1400


def test_small_data_gives_full_sets_and_bad_settings_are_told():
    X = pd.DataFrame({"Feature 1": [0.1, 0.9, 0.5, 0.3], "a": ["x", "y", None, "x"]})
    y = np.array([0, 5, 3, 1])
    for n in (1, 2, 4):
        clf = PLCPClassifier(Sixths(), sensitive_features=["a"], random_state=0)
        with pytest.warns(FaregWarning, match="region"):
            clf.conformalize(X[:n], y[:n])
        assert clf.predict_set(X).all()
    for name, value in {
        "n_regions": 0,
        "regions": "tree",
        "max_iter": 0,
        "n_restarts": 0,
    }.items():
        with pytest.raises(FaregError, match=name):
            PLCPClassifier(Sixths(), **{name: value}).conformalize(X, y)
