"""Labels that the estimator never saw: the promise holds while their share is at most alpha.

All tests are seeded. A mean over repeats may be off by 4.5 standard errors.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from fareg import (
    CondCPClassifier,
    FaregWarning,
    PartialConformalClassifier,
    SplitConformalClassifier,
)

ALPHA, UNSEEN = 0.1, 9
pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")


def draw(rng, n, share):
    """Draw class probabilities and labels that follow them; a share of labels is unseen.

    ``share`` is a number, or the shares outside and inside of a group of a tenth of the rows.
    """
    proba = rng.dirichlet(np.ones(3), n)
    y = (rng.random((n, 1)) > proba.cumsum(axis=1)).sum(axis=1).clip(max=2)
    inside = (rng.random(n) < 0.1).astype(int)
    y[rng.random(n) < np.broadcast_to(share, 2)[inside]] = UNSEEN
    X = pd.DataFrame(proba).add_prefix("p")
    X["part"] = np.array(["out", "in"])[inside]
    X["side"] = rng.choice(["left", "right"], n)
    return X, y


def coverages(make, share, *, n, m=200, repeats=100):
    """Return coverage, and the share of unseen labels with a full set, per repeat."""
    rng = np.random.default_rng(0)
    covered, full = [], []
    for repeat in range(repeats):
        X, y = draw(rng, n + m, share)
        sets = make(repeat).conformalize(X[:n], y[:n]).predict_set(X[n:])
        new, seen = y[n:], y[n:] != UNSEEN
        covered.append(np.mean(seen & sets[np.arange(m), np.where(seen, new, 0)]))
        full.append(np.mean(~seen & sets.all(axis=1)))
    return np.array(covered), np.array(full)


def standard_error(values):
    return values.std() / np.sqrt(len(values))


@pytest.mark.parametrize("n", [19, 299])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_split_coverage_is_the_mean_of_its_law(reader, n, share):
    def make(seed):
        return SplitConformalClassifier(reader(), random_state=seed)

    covered, _ = coverages(make, share, n=n)
    k, N = round((n + 1) * (1 - ALPHA)), np.arange(n + 2)
    expected = np.sum(binom(n + 1, share).pmf(N) * np.minimum(k, n + 1 - N)) / (n + 1)
    assert abs(covered.mean() - expected) < 4.5 * standard_error(covered)
    assert 0 <= min(1 - ALPHA, 1 - share) - expected < 0.5 * np.sqrt(share * (1 - share) / n)


@pytest.mark.parametrize("cls", [SplitConformalClassifier, CondCPClassifier])
def test_a_share_of_a_fifth_is_told_and_leaves_four_fifths(reader, cls):
    X, y = draw(np.random.default_rng(0), 500, 0.2)
    options = {} if cls is SplitConformalClassifier else {"sensitive_features": ["part", "side"]}
    with pytest.warns(FaregWarning, match="promised 0.9, at most 0.1 of every group") as told:
        cls(reader(), random_state=0, **options).conformalize(X, y)
    assert not any("fewer than" in str(w.message) for w in told)
    covered, _ = coverages(
        lambda seed: cls(reader(), random_state=seed, **options), 0.2, n=500, repeats=25
    )
    assert abs(covered.mean() - 0.8) < 0.02


def test_where_unseen_labels_crowd_in_one_group_condcp_loses_what_it_counts(reader):
    """One tenth of the rows has half of its labels unseen: 5% of all."""
    options = {"sensitive_features": ["part", "side"]}
    shares = (0.0, 0.5)
    condcp, full = coverages(
        lambda seed: CondCPClassifier(reader(), random_state=seed, **options),
        shares,
        n=400,
        repeats=40,
    )
    both = condcp + full
    assert both.mean() > 0.9 - 4.5 * standard_error(both)
    assert condcp.mean() < 0.88  # as documented
    partial, _ = coverages(
        lambda seed: PartialConformalClassifier(reader(), random_state=seed, **options),
        shares,
        n=400,
        repeats=40,
    )
    assert partial.mean() > 0.9 - 4.5 * standard_error(partial)
