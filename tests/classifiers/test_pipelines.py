"""Among the tools of scikit-learn: weights, routing, pipelines and searches; answers as frames."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from fareg import FaReGClassifier, FaregError, SplitConformalClassifier
from fareg.metrics import coverage_scorer, mean_set_size, mean_set_size_scorer

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(400, 3)), columns=list("abc"))
y = (X["a"] + RNG.normal(size=400) > 0).map({True: "yes", False: "no"}).to_numpy()
WEIGHTS = RNG.random(400)


class Witness(ClassifierMixin, BaseEstimator):
    """A classifier that remembers the rows and weights of every training."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        Witness.seen.append((np.asarray(X)[:, 0], sample_weight))
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def trainings(clf, **options):
    Witness.seen.clear()
    clf.fit(X, y, **options)
    return list(Witness.seen)


@pytest.mark.parametrize(
    "wrap", [lambda model: model, make_pipeline, lambda m: Pipeline([("p", make_pipeline(m))])]
)
def test_weights_reach_every_training_with_their_rows(wrap):
    clf = FaReGClassifier(wrap(Witness()), cv=3, random_state=0)
    told = trainings(clf, sample_weight=WEIGHTS)
    assert len(told) == 4  # the model, and one more for every fold
    weight_of = dict(zip(X["a"], WEIGHTS, strict=True))
    for rows, weights in told:
        assert weights.tolist() == [weight_of[a] for a in rows]
    assert all(weights is None for _, weights in trainings(clf))


def test_weights_change_the_default_estimator_and_not_calibration():
    only_no = np.where(y == "no", 1.0, 1e-6)
    plain, weighted = (
        SplitConformalClassifier(random_state=0).fit(X, y, sample_weight=weights)
        for weights in (None, only_no)
    )
    assert weighted.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean() + 0.2
    assert weighted.n_calibration_ == plain.n_calibration_


def test_weights_follow_the_requests_of_the_estimator():
    without = SplitConformalClassifier(random_state=0).fit(X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = Witness().set_fit_request(sample_weight=True)
        clf = SplitConformalClassifier(asks, random_state=0).set_fit_request(sample_weight=True)
        ((_, weights),) = trainings(clf, sample_weight=WEIGHTS)
        assert len(weights) == 200
        steps = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), clf)
        ((_, weights),) = trainings(steps, sample_weight=WEIGHTS)
        assert len(weights) == 200
        refuses = clone(clf).set_params(estimator=Witness().set_fit_request(sample_weight=False))
        ((_, weights),) = trainings(refuses, sample_weight=WEIGHTS)
        assert weights is None
        default = SplitConformalClassifier(random_state=0).fit(X, y, sample_weight=WEIGHTS)
        assert (default.predict_proba(X) != without.predict_proba(X)).any()
        told = cross_validate(
            clf, X, y, params={"sample_weight": WEIGHTS}, scoring=coverage_scorer, cv=2
        )
        assert len(told["test_score"]) == 2


@pytest.mark.parametrize("cls", [SplitConformalClassifier, FaReGClassifier])
def test_weights_are_refused_where_they_would_calibrate(cls):
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    for call in (cls(frozen).fit, cls(frozen).conformalize):
        with pytest.raises(FaregError, match="no promise is proven"):
            call(X, y, sample_weight=WEIGHTS)
    with pytest.raises(FaregError, match="KNeighborsClassifier takes no training weights"):
        cls(KNeighborsClassifier()).fit(X, y, sample_weight=WEIGHTS)


@pytest.mark.parametrize("weights", [WEIGHTS[1:], -WEIGHTS, "many", np.full(400, np.nan), 1.0])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(FaregError, match="sample_weight must hold 400 finite numbers"):
        SplitConformalClassifier(LogisticRegression()).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_a_search_finds_the_estimator_with_the_smallest_sets(output):
    clf = SplitConformalClassifier(LogisticRegression(), sensitive_features=[1], random_state=0)
    steps = make_pipeline(StandardScaler(), clf).set_output(transform=output)
    both = {"size": mean_set_size_scorer, "coverage": coverage_scorer}
    grid = {"splitconformalclassifier__estimator__C": [1e-6, 1.0]}
    search = GridSearchCV(steps, grid, scoring=both, refit="size", cv=2).fit(X, y)
    assert list(search.best_params_.values()) == [1.0]
    best = search.best_estimator_
    sets = best[-1].predict_set(best[:-1].transform(X))
    assert mean_set_size_scorer(best, X) == -mean_set_size(sets)
    assert abs(search.cv_results_["mean_test_coverage"][1] - 0.9) < 0.06
    assert best.predict_proba(X).shape == (400, 2)


def test_a_scorer_asks_for_a_conformal_classifier():
    with pytest.raises(FaregError, match="wrap it"):
        coverage_scorer(LogisticRegression().fit(X, y), X, y)


def test_answers_come_in_the_library_and_with_the_index_of_the_rows():
    clf = SplitConformalClassifier(LogisticRegression(), random_state=0).fit(X, y)
    plain = clf.predict_table(X)
    index = pd.MultiIndex.from_product([["n", "s"], range(200)])
    named = clf.predict_table(X.set_axis(index, axis=0))
    pd.testing.assert_frame_equal(named.reset_index(drop=True), plain)
    assert named.index.equals(index)
    polars = clf.predict_table(pl.from_pandas(X))
    assert isinstance(polars, pl.DataFrame)
    assert polars["size"].dtype == pl.Int64
    pd.testing.assert_frame_equal(polars.to_pandas(), plain, check_dtype=False)
    arrow = clf.predict_table(pl.from_pandas(X).to_arrow())
    assert arrow.column_names == list(plain)
