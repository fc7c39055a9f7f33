"""An audit seldom cries wolf, and rarely overlooks the wolf.

All tests are seeded. Coverage is drawn directly, so that the truth is known exactly.
"""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.frozen import FrozenEstimator

from fareg import SplitConformalClassifier
from fareg._columns import select_columns
from fareg._encoding import gradient_boosting
from fareg.auditing import Promise
from fareg.auditing._rate import Audited
from fareg.auditing._search import SearchPlan, search
from fareg.datasets import make_synthetic
from fareg.metrics import is_covered

FALSE_ALARM = 1e-4
LEVEL = 0.9
SIGNIFICANCE = 0.05


def verified(columns, covered, seed):
    groups, _ = search(
        Audited(columns, covered, np.ones(len(covered), dtype=np.int64)),
        SearchPlan(Promise(LEVEL), SIGNIFICANCE, 20),
        np.random.default_rng(seed),
    )
    return groups


@pytest.mark.parametrize(("n", "repeats"), [(200, 70), (1000, 40)])
def test_fair_sets_are_rarely_accused(n, repeats):
    data = make_synthetic(n, random_state=0)
    columns = select_columns(data.X, data.sensitive)
    accused = 0
    for seed in range(repeats):
        covered = np.random.default_rng(seed).random(n) < LEVEL  # the hardest fair case
        accused += any(group.is_finding for group in verified(columns, covered, seed))
    assert binomtest(accused, repeats, SIGNIFICANCE, "greater").pvalue > FALSE_ALARM


def test_an_unfair_classifier_is_found_out():
    """Split conformal sets on the XNOR data: 2,000 rows name the group in nearly every draw."""
    repeats, found = 10, 0
    for seed in range(repeats):
        data = make_synthetic(4000, random_state=seed)
        model = gradient_boosting(seed).set_params(histgradientboostingclassifier__max_iter=20)
        model.fit(data.X[:1000], data.y[:1000])
        clf = SplitConformalClassifier(FrozenEstimator(model), random_state=seed)
        clf.conformalize(data.X[1000:2000], data.y[1000:2000])
        audited = data.X[2000:].reset_index(drop=True)
        covered = is_covered(data.y[2000:], clf.predict_set(audited))
        groups = verified(select_columns(audited, data.sensitive), covered, seed)
        # the group is two cells, each of which is named by itself
        accused = np.any([g.mask for g in groups if g.is_finding] or [np.zeros(2000)], axis=0)
        found += (accused == data.group[2000:]).mean() > 0.9
    assert found >= 9
