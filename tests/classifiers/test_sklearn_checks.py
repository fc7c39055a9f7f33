"""scikit-learn's own checks on every classifier of the registry."""

import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import fareg
from fareg.classifiers import CLASSIFIERS
from registry import short

TREE = DecisionTreeClassifier(random_state=0)
TREE_OF_NUMBERS = DecisionTreeRegressor(max_depth=2)
VARIANTS = [
    fareg.SplitConformalClassifier(),  # with the default estimator
    fareg.SplitConformalClassifier(TREE, label_conditional=True),
    fareg.PartialConformalClassifier(TREE, label_conditional=True),
    fareg.ExhaustiveConformalClassifier(TREE, label_conditional=True),
    fareg.AFCPClassifier(TREE, label_conditional=True, n_select=2),
    fareg.CondCPClassifier(TREE, label_conditional=True, randomized=True),
    fareg.RectifiedConformalClassifier(TREE, label_conditional=True, learn_from="split"),
    fareg.FaReGClassifier(TREE, label_conditional=True, learner=TREE_OF_NUMBERS, protect="nothing"),
    fareg.FaReGClassifier.paper(TREE, epochs=10, n_draws=3),
]

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "rows are split at random before the estimator is trained, and a row that is given twice "
        "calibrates twice: weights are for the training alone"
    )
}


@pytest.mark.filterwarnings("ignore::fareg.FaregWarning")  # the checks use a handful of rows
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@parametrize_with_checks(
    # a seed, as a random half of the few rows of a check may lack a class
    [clf.set_params(random_state=0) for clf in (*(short(c, TREE) for c in CLASSIFIERS), *VARIANTS)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_sklearn_checks(estimator, check):
    check(estimator)
