"""Every label calibrated by itself: nobody gets a smaller set than from split conformal sets."""

import numpy as np
import pandas as pd
import pytest

from fareg import FaReGClassifier, SplitConformalClassifier
from fareg.groups import GroupLearner


def reversed_order(n, seed):
    """Draw a table in which one group is worse off in the label ``no`` and better off in ``yes``.

    The probabilities are those of a model that knows nothing of the group. Label ``yes`` is the
    common one, so the order that is learned is that of the label in which the gap is wider.
    """
    rng = np.random.default_rng(seed)
    rare = rng.random(n) < 0.3
    yes = rng.random(n) < np.where(rare, 0.75, 0.5)
    wrong = np.where(yes, np.where(rare, 0.03, 0.2), np.where(rare, 0.9, 0.1))
    shown = np.where(rng.random(n) < wrong, ~yes, yes)
    p_yes = np.where(shown, rng.uniform(0.55, 0.95, n), rng.uniform(0.05, 0.45, n))
    X = pd.DataFrame({"group": np.where(rare, "rare", "common"), "noise": rng.normal(size=n)})
    y = np.where(yes, "yes", "no")
    return X, y, np.column_stack([1 - p_yes, p_yes])


@pytest.fixture(scope="module")
def fitted():
    X, y, proba = reversed_order(6000, seed=1)
    common = {"conformity_score": "lac", "label_conditional": True, "random_state": 0}
    rows = {"proba": proba[3000:], "classes": ["no", "yes"]}
    split = SplitConformalClassifier(**common).conformalize(X[3000:], y[3000:], **rows)
    clf = FaReGClassifier(
        sensitive_features=["group"], learner=GroupLearner(members=("cells",)), **common
    ).conformalize(
        X[3000:], y[3000:], **rows, X_learn=X[:3000], y_learn=y[:3000], proba_learn=proba[:3000]
    )
    return split, clf


@pytest.mark.slow
def test_nobody_loses_a_label_where_one_label_reverses_the_order(fitted):
    split, clf = fitted
    X, _, proba = reversed_order(3000, seed=2)
    before, after = (own.predict_set(X, proba=proba) for own in (split, clf))
    assert clf.learner_.found_
    assert (after & ~before).any()
    assert not (before & ~after).any()


@pytest.mark.slow
def test_pvalues_are_those_of_the_sets(fitted):
    split, clf = fitted
    X, _, proba = reversed_order(3000, seed=3)
    before, after = (own.predict_p(X, proba=proba) for own in (split, clf))
    assert (after >= before).all()
    np.testing.assert_array_equal(after > 0.1, clf.predict_set(X, proba=proba))
