"""scikit-learn's own checks on every classifier of the package."""

from sklearn.utils.estimator_checks import parametrize_with_checks

import fareg

CLASSIFIERS = [
    fareg.SplitConformalClassifier(),
    fareg.PartialConformalClassifier(),
    fareg.ExhaustiveConformalClassifier(),
]


@parametrize_with_checks(CLASSIFIERS)
def test_sklearn_checks(estimator, check):
    check(estimator)
