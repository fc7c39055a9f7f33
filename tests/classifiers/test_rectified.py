"""RCP: a constant quantile is split, promises hold whatever was learned, sets follow p-values."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from fareg import RectifiedConformalClassifier, SplitConformalClassifier
from fareg._encoding import ordinal_encoder
from fareg._validation import FaregWarning
from fareg.calibration import learn_quantile
from fareg.classifiers import out_of_fold_proba
from fareg.datasets import make_synthetic


class Given(ClassifierMixin, BaseEstimator):
    """Probabilities that stand in the table, of the labels 0, 1 and 2."""

    def __init__(self):
        self.classes_ = np.arange(3)
        self.is_fitted_ = True

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return np.asarray(X[["p0", "p1", "p2"]], dtype=float)

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


MODEL = FrozenEstimator(Given())


def table(n, seed):
    """Return rows whose model is too sure of itself for half of the people, and labels."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n) < 0.5
    said = rng.dirichlet([0.5, 0.5, 0.5], n)
    true = np.where(hard[:, None], 0.5 * said + 1 / 6, said)
    y = (rng.random((n, 1)) > true.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    X = pd.DataFrame(said, columns=["p0", "p1", "p2"])
    return X.assign(who=np.where(hard, "hard", "easy"), age=rng.normal(size=n)), y


def rectified(n=2000, seed=0, **params):
    params = {"sensitive_features": ["who", "age"], "random_state": 0, **params}
    return RectifiedConformalClassifier(MODEL, **params).conformalize(*table(n, seed))


def covered(clf, X, y):
    return clf.predict_set(X)[np.arange(len(y)), y]


@pytest.mark.parametrize("label_conditional", [False, True])
def test_a_constant_quantile_gives_the_sets_of_split(label_conditional):
    X, y = table(600, 1)
    common = {"random_state": 3, "label_conditional": label_conditional}
    constant = RectifiedConformalClassifier(MODEL, sensitive_features=["one"], **common)
    constant.conformalize(X.assign(one="same"), y)
    tau = constant.predict_shift(X.assign(one="same"))
    assert tau[0] > 0.5
    assert len(np.unique(tau)) == 1
    half = np.random.default_rng(constant.key_).permutation(600)[300:]
    wide = X.assign(one="same")
    split = SplitConformalClassifier(MODEL, **common).conformalize(wide.iloc[half], y[half])
    new = table(500, 2)[0].assign(one="same")
    np.testing.assert_array_equal(constant.predict_set(new), split.predict_set(new))
    np.testing.assert_array_equal(constant.predict_p(new), split.predict_p(new))


@pytest.mark.parametrize("learn_from", ["split", "train"])
def test_marginal_coverage_holds_whatever_was_learned(learn_from):
    """Of few rows, with a column of noise: tau is wrong, the promise still exact."""
    n, rounds, n_test = 99, 40, 300
    rates = []
    for seed in range(rounds):
        X, y = table(2 * n + n_test, 100 + seed)
        clf = RectifiedConformalClassifier(
            DecisionTreeClassifier(max_depth=2) if learn_from == "train" else MODEL,
            sensitive_features=["age"],
            learn_from=learn_from,
            confidence_level=0.8,
            random_state=seed,
            cv=2,
        )
        known = X[: 2 * n].drop(columns="who") if learn_from == "train" else X[: 2 * n]
        clf.fit(known, y[: 2 * n])
        rates.append(covered(clf, X[2 * n :][list(known)], y[2 * n :]).mean())
        assert len(clf.calibration_.sample) == n
    # 80 of 100 ranks; each rate spreads as a beta-binomial, and so does their mean
    spread = np.sqrt(0.8 * 0.2 * (1 / 101 + 1 / n_test) / rounds)
    assert abs(np.mean(rates) - 0.8) < 3.5 * spread


def test_coverage_is_more_even_than_that_of_split():
    X, y = table(6000, 7)
    hard = (X["who"] == "hard").to_numpy()
    clf = rectified()
    split = SplitConformalClassifier(MODEL, random_state=0).conformalize(*table(2000, 0))
    ours, theirs = covered(clf, X, y), covered(split, X, y)
    assert theirs[hard].mean() < 0.87 < ours[hard].mean()
    assert abs(ours[hard].mean() - ours[~hard].mean()) < 0.04
    tau = clf.predict_shift(X)
    assert np.median(tau[hard]) > np.median(tau[~hard])


def test_labels_that_the_estimator_never_saw_have_infinite_residuals():
    X, y = table(800, 9)
    y[::40] = 7
    clf = RectifiedConformalClassifier(MODEL, sensitive_features=["who"], random_state=0)
    with pytest.warns(FaregWarning, match="7"):
        clf.conformalize(X, y)
    residuals = clf.calibration_.sample.score
    assert np.isinf(residuals).sum() > 0
    assert np.isfinite(clf.predict_shift(X)).all()
    new, labels = table(3000, 10)
    labels[::40] = 7  # in no set, and the others make up for them
    hit = np.where(labels == 7, False, clf.predict_set(new)[np.arange(3000), labels.clip(0, 2)])
    assert abs(hit.mean() - 0.9) < 0.03
    foreign = clf.labelled_rows(X, np.full(800, 7))
    assert learn_quantile(foreign, 0.1, seed=0).model is None


def test_training_rows_teach_and_all_others_calibrate():
    data = make_synthetic(1600, random_state=0)
    common = {"sensitive_features": list(data.sensitive), "random_state": 0}
    tree = make_pipeline(ordinal_encoder(), DecisionTreeClassifier(max_depth=4, random_state=0))
    X = data.X
    clf = RectifiedConformalClassifier(tree, cv=2, **common).fit(X[:800], data.y[:800])
    assert len(clf.calibration_.sample) == clf.n_calibration_ == 400
    apart = RectifiedConformalClassifier(tree, learn_from="split", **common)
    assert apart.fit(X[:800], data.y[:800]).n_calibration_ == 200


def test_the_only_cluster_leaves_nobody_to_train_on():
    X, y = table(40, 0)
    options = {"cv": 5, "clusters": np.zeros(40), "seed": 0}
    proba = out_of_fold_proba(DecisionTreeClassifier(), X, y, np.arange(3), **options)
    np.testing.assert_array_equal(proba, np.full((40, 3), 1 / 3))
