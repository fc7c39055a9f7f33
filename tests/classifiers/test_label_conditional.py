"""Every label calibrated by itself, with an order of its own: people may change places."""

import numpy as np
import pandas as pd
import pytest

from fareg import FaReGClassifier, SplitConformalClassifier

pytestmark = pytest.mark.slow
LABELS = np.array(["no", "yes"])


def reversed_order(n, seed):
    """Draw a table in which one group is worse off in the label ``no`` and better off in ``yes``.

    The probabilities are those of a model that knows nothing of the group.
    """
    rng = np.random.default_rng(seed)
    rare = rng.random(n) < 0.3
    yes = rng.random(n) < np.where(rare, 0.6, 0.5)
    wrong = np.where(yes, np.where(rare, 0.03, 0.2), np.where(rare, 0.5, 0.05))
    shown = np.where(rng.random(n) < wrong, ~yes, yes)
    p_yes = np.where(shown, rng.uniform(0.55, 0.95, n), rng.uniform(0.05, 0.45, n))
    X = pd.DataFrame({"group": np.where(rare, "rare", "common"), "noise": rng.normal(size=n)})
    return X, LABELS[yes.astype(int)], np.column_stack([1 - p_yes, p_yes])


@pytest.fixture(scope="module")
def fitted():
    X, y, proba = reversed_order(8000, seed=1)
    common = {"conformity_score": "lac", "label_conditional": True, "random_state": 0}
    rows = {"proba": proba[4000:], "classes": LABELS.tolist()}
    split = SplitConformalClassifier(**common).conformalize(X[4000:], y[4000:], **rows)
    clf = FaReGClassifier(sensitive_features=["group"], protect="nothing", **common).conformalize(
        X[4000:], y[4000:], **rows, X_learn=X[:4000], y_learn=y[:4000], proba_learn=proba[:4000]
    )
    return split, clf


def known_rows():
    """Return the rows that calibrate, the score of the true label and its column."""
    X, y, proba = (part[4000:] for part in reversed_order(8000, seed=1))
    codes = np.searchsorted(LABELS, y)
    return X, 1 - proba[np.arange(len(y)), codes], codes


def test_labels_order_people_in_opposite_ways(fitted):
    _, clf = fitted
    X, _, _ = reversed_order(500, seed=2)
    rare = (X["group"] == "rare").to_numpy()
    rank, level = clf.predict_group(X), clf.predict_level(X)
    assert rank.shape == level.shape == (500, 2)
    for degree in (rank, level):
        assert degree[rare, 0].min() > degree[~rare, 0].max()
        assert degree[rare, 1].max() < degree[~rare, 1].min()
    assert len(clf.disadvantage_) == 2
    assert clf.explain(X).to_dict() == {"group": 1.0}


def test_every_group_is_covered_in_every_label(fitted):
    split, clf = fitted
    X, y, proba = reversed_order(20_000, seed=3)
    rare, codes = (X["group"] == "rare").to_numpy(), np.searchsorted(LABELS, y)
    covered = {
        name: one.predict_set(X, proba=proba)[np.arange(len(y)), codes]
        for name, one in (("split", split), ("fareg", clf))
    }
    worse_off = [(0, rare), (1, ~rare)]
    for label, who in worse_off:
        inside = (codes == label) & who
        assert covered["split"][inside].mean() < 0.87
        # about 500 calibration rows or more, and as many test rows at least
        assert covered["fareg"][inside].mean() > 0.9 - 3 * np.sqrt(0.09 / 400 + 0.09 / 2000)
    for label in (0, 1):
        assert covered["fareg"][codes == label].mean() > 0.88


def test_groups_list_runs_of_levels_label_by_label(fitted):
    _, clf = fitted
    table = clf.groups_[clf.groups_["rule"] == ""]
    for label, name in enumerate(LABELS):
        own = table[table["group"].str.endswith(f", label {name}")]
        theta = clf.thresholds_[label]
        assert own["threshold"].tolist() == sorted(set(theta.tolist()), reverse=True)
        assert own["n_calibration"].sum() == (known_rows()[2] == label).sum()
    assert table["group"].str.contains("label").all()


def test_a_table_tells_the_level_of_the_most_probable_label(fitted):
    _, clf = fitted
    X, _, proba = reversed_order(200, seed=4)
    level = clf.predict_table(X, proba=proba)["level"]
    expected = clf.predict_level(X)[np.arange(200), proba.argmax(axis=1)]
    np.testing.assert_array_equal(level, expected)


def test_a_label_that_nobody_has_leaves_the_others_as_they_are():
    """Rows of each label teach and calibrate that label only."""
    X, y, proba = reversed_order(4000, seed=5)
    rest = 1e-3
    wide = np.column_stack([proba * (1 - rest), np.full(len(y), rest)])
    common = {"conformity_score": "lac", "label_conditional": True, "random_state": 0}
    clf = FaReGClassifier(sensitive_features=["group"], **common)
    with pytest.warns(Warning, match="with label zero|level 0 with label"):
        clf.conformalize(X, y, proba=wide, classes=["no", "yes", "zero"])
    assert [len(theta) > 1 for theta in clf.thresholds_] == [True, True, False]
    assert np.isinf(clf.thresholds_[2]).all()
    assert clf.predict_set(X, proba=wide)[:, 2].all()
    assert not clf.predict_set(X, proba=wide)[:, :2].all()
