"""The estimator may be anything with class probabilities and their labels."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import fareg
from fareg import FaregError, ProbabilityFunction, SplitConformalClassifier


class Duck:
    """A model of another library: neither parameters nor tags."""

    def __init__(self, model):
        self.model = model
        self.classes_ = model.classes_

    def predict_proba(self, X):
        return self.model.predict_proba(X)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = np.where(X[:, 0] + RNG.normal(size=300) > 0, "yes", "no")
MODEL = LogisticRegression().fit(X[:100], Y[:100])


@pytest.mark.parametrize(
    "model",
    [Duck(MODEL), ProbabilityFunction(MODEL.predict_proba, classes=["no", "yes"])],
    ids=["duck", "function"],
)
@pytest.mark.parametrize("verb", ["fit", "conformalize"])
def test_anything_with_probabilities_and_labels_will_do(model, verb, tmp_path):
    usual = SplitConformalClassifier(MODEL, random_state=0).conformalize(X[100:], Y[100:])
    clf = clone(SplitConformalClassifier(model, random_state=0))
    getattr(clf, verb)(X[100:], Y[100:])
    np.testing.assert_array_equal(clf.predict_set(X), usual.predict_set(X))
    np.testing.assert_array_equal(clf.predict(X), usual.predict(X))
    with pytest.warns(fareg.FaregWarning, match="load it with|loading this model runs code"):
        fareg.save(clf, tmp_path / "m.fareg")
    back = fareg.load(tmp_path / "m.fareg", estimator=model)
    np.testing.assert_array_equal(back.predict_set(X), usual.predict_set(X))


def test_a_model_without_labels_is_refused_with_the_fix():
    unnamed = Duck(MODEL)
    del unnamed.classes_
    with pytest.raises(FaregError, match=r"must have classes_.*ProbabilityFunction\(model.pred"):
        SplitConformalClassifier(unnamed).conformalize(X, Y)


def test_a_function_must_return_a_column_for_each_class():
    short = ProbabilityFunction(MODEL.predict_proba, classes=["no", "yes", "maybe"])
    with pytest.raises(FaregError, match=r"shape \(300, 3\), got \(300, 2\); classes must name"):
        SplitConformalClassifier(short).conformalize(X, Y)
    with pytest.raises(FaregError, match="classes must be a list of distinct labels"):
        SplitConformalClassifier(ProbabilityFunction(MODEL.predict_proba)).conformalize(X, Y)
