"""scikit-learn's own checks on every classifier of the package."""

import pytest
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import fareg
from fareg.groups import GroupLearner

CLASSIFIERS = [
    fareg.SplitConformalClassifier(),
    fareg.PartialConformalClassifier(),
    fareg.ExhaustiveConformalClassifier(),
    fareg.SplitConformalClassifier(DecisionTreeClassifier(random_state=0), label_conditional=True),
    fareg.PartialConformalClassifier(
        DecisionTreeClassifier(random_state=0), label_conditional=True
    ),
    fareg.ExhaustiveConformalClassifier(
        DecisionTreeClassifier(random_state=0), label_conditional=True
    ),
    fareg.AFCPClassifier(DecisionTreeClassifier(random_state=0)),
    fareg.AFCPClassifier(
        DecisionTreeClassifier(random_state=0), label_conditional=True, n_select=2
    ),
    fareg.CondCPClassifier(DecisionTreeClassifier(random_state=0)),
    fareg.CondCPClassifier(
        DecisionTreeClassifier(random_state=0), label_conditional=True, randomized=True
    ),
    fareg.PLCPClassifier(DecisionTreeClassifier(random_state=0), n_restarts=2, max_iter=5),
    fareg.PLCPClassifier(
        DecisionTreeClassifier(random_state=0), calibration="reuse", n_restarts=2, max_iter=5
    ),
    fareg.FaReGClassifier(
        DecisionTreeClassifier(random_state=0),
        learner=GroupLearner(max_iter=10, significance=None),
    ),
    fareg.FaReGClassifier.paper(DecisionTreeClassifier(random_state=0), max_iter=10, n_draws=3),
]


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")  # the checks use a handful of rows
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@parametrize_with_checks(CLASSIFIERS)
def test_sklearn_checks(estimator, check):
    check(estimator)
