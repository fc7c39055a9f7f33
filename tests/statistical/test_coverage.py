"""Coverage follows its laws: exact where theory is exact, at least 1 - alpha where it promises so.

All tests are seeded. Each allows one false alarm in ten thousand over all its cases (Bonferroni).
"""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom, binomtest, chisquare, kstest

from fareg import (
    ExhaustiveConformalClassifier,
    PartialConformalClassifier,
    SplitConformalClassifier,
)
from fareg.pvalues import conformal_pvalues, conformal_quantile
from fareg.scores import SCORES

FALSE_ALARM = 1e-4
CASES = [(19, 0.1), (30, 0.2), (60, 0.1), (39, 0.05), (40, 0.45)]


def rank(n, alpha):
    """Return ceil((n + 1)(1 - alpha)), exactly."""
    return math.ceil((n + 1) * (1 - Fraction(str(alpha))))


def beta_binomial_pvalue(covered, n, m, k):
    """Test counts of m covered test points against BetaBinomial(m, k, n + 1 - k), by chi-square.

    With continuous scores the threshold is the k-th of n order statistics, so the share of the
    score distribution below it is Beta(k, n + 1 - k), and the m test points fall there at random.
    """
    law = betabinom(m, k, n + 1 - k)
    edges = np.unique(law.ppf(np.arange(1, 8) / 8))
    observed = np.bincount(np.searchsorted(edges, covered), minlength=len(edges) + 1)
    expected = np.diff(np.concatenate([[0], law.cdf(edges), [1]])) * len(covered)
    keep = expected > 0
    assert observed[~keep].sum() == 0
    return chisquare(observed[keep], expected[keep]).pvalue


def draw(rng, n, hard=None):
    """Draw class probabilities, and labels that follow them, or any label on hard rows."""
    proba = rng.dirichlet(np.ones(3), n)
    y = (rng.random((n, 1)) > proba.cumsum(axis=1)).sum(axis=1).clip(max=2)
    if hard is not None:
        y = np.where(hard, rng.integers(0, 3, n), y)
    return proba, y


def is_covered(clf, X, y):
    return clf.predict_set(X)[np.arange(len(y)), y]


def split_counts(estimator, n, m, confidence_level, score, repeats):
    """Count covered test points in fresh calibration and test samples."""
    rng, counts = np.random.default_rng(0), []
    options = {"confidence_level": confidence_level, "conformity_score": score}
    for repeat in range(repeats):
        X, y = draw(rng, n + m)
        clf = SplitConformalClassifier(estimator, random_state=repeat, **options)
        clf.conformalize(X[:n], y[:n])
        counts.append(is_covered(clf, X[n:], y[n:]).sum())
    return np.array(counts)


# --- split: the exact law ---


@pytest.mark.parametrize(("n", "alpha"), CASES)
@pytest.mark.parametrize("score", ["aps", "lac"])
def test_split_coverage_is_beta_binomial(reader, n, alpha, score):
    counts = split_counts(reader(), n, 100, 1 - alpha, score, repeats=150)
    p = beta_binomial_pvalue(counts, n, 100, rank(n, alpha))
    assert p > FALSE_ALARM / (2 * len(CASES))


@pytest.mark.parametrize("off_by", [-1, 1])
@pytest.mark.parametrize(("n", "alpha"), [(19, 0.1), (30, 0.2)])
def test_the_law_rejects_a_rank_that_is_off_by_one(reader, n, alpha, off_by):
    k = rank(n, alpha)
    level_of_neighbour = (k + off_by - 0.5) / (n + 1)
    assert rank(n, 1 - level_of_neighbour) == k + off_by
    counts = split_counts(reader(), n, 100, level_of_neighbour, "aps", repeats=250)
    assert beta_binomial_pvalue(counts, n, 100, k + off_by) > FALSE_ALARM
    assert beta_binomial_pvalue(counts, n, 100, k) < FALSE_ALARM / (2 * len(CASES))


@pytest.mark.parametrize("score", SCORES)
def test_split_coverage_lies_in_its_band(reader, score):
    n, alpha, m = 39, 0.1, 50
    counts = split_counts(reader(), n, m, 1 - alpha, score, repeats=100)
    law = betabinom(m, rank(n, alpha), n + 1 - rank(n, alpha))
    standard_error = law.std() / np.sqrt(len(counts))
    low, high = m * (1 - alpha), m * (1 - alpha + 1 / (n + 1))
    assert low - 4.5 * standard_error < counts.mean() < high + 4.5 * standard_error


@pytest.mark.parametrize(("n", "alpha"), CASES)
def test_one_more_point_is_covered_with_probability_k_over_n_plus_one(n, alpha):
    rng = np.random.default_rng(0)
    repeats, k = 20_000, rank(n, alpha)
    scores = rng.normal(size=(repeats, n))
    thresholds = conformal_quantile(
        scores.ravel(),
        confidence_level=float(1 - Fraction(str(alpha))),
        categories=np.repeat(np.arange(repeats), n),
    )
    hits = int((rng.normal(size=repeats) <= thresholds).sum())
    share = k / (n + 1)
    assert 1 - alpha - 1e-12 <= share <= 1 - alpha + 1 / (n + 1)
    assert binomtest(hits, repeats, share).pvalue > FALSE_ALARM / len(CASES)
    for wrong in (k - 1, k + 1):
        if 0 < wrong <= n:
            assert binomtest(hits, repeats, wrong / (n + 1)).pvalue < FALSE_ALARM / len(CASES)


# --- p-values ---


@pytest.mark.parametrize("decimals", [0, 1, 10], ids=["many ties", "some ties", "no ties"])
@pytest.mark.parametrize("n", [1, 7, 50])
def test_smoothed_pvalues_are_uniform(n, decimals):
    rng = np.random.default_rng(0)
    repeats = 4000
    scores = rng.normal(size=(repeats, n + 1)).round(decimals)
    repeat = np.arange(repeats)
    known = {"calibration_categories": np.repeat(repeat, n), "categories": repeat}
    calibration = scores[:, 1:].ravel()
    p = conformal_pvalues(calibration, scores[:, 0], **known, u=rng.random(repeats))
    assert kstest(p, "uniform").pvalue > FALSE_ALARM / 9
    plain = conformal_pvalues(calibration, scores[:, 0], **known)
    for alpha in (0.1, 0.5):
        rejected = int((plain <= alpha).sum())
        assert binomtest(rejected, repeats, alpha, alternative="greater").pvalue > FALSE_ALARM / 18


def test_classifier_pvalues_of_true_labels_take_every_rank_equally_often(reader):
    rng = np.random.default_rng(1)
    n, repeats = 19, 500
    ranks = []
    for repeat in range(repeats):
        X, y = draw(rng, n + 1)
        clf = SplitConformalClassifier(reader(), random_state=repeat).conformalize(X[1:], y[1:])
        ranks.append(round(clf.predict_p(X[:1])[0, y[0]] * (n + 1)))
    assert chisquare(np.bincount(ranks, minlength=n + 2)[1:]).pvalue > FALSE_ALARM


# --- groups: thousands of independent repetitions, each a group of its own ---


def repeated_groups(is_hard, seed, n_calibration=15, repeats=1500):
    """Return a table of many small studies with two binary features and a hard part.

    Every study and every cell of the two features holds ``n_calibration`` calibration rows and one
    test row, so the test rows of a cell are independent trials.
    """
    rng = np.random.default_rng(seed)
    study, first, second, row = (
        axis.ravel()
        for axis in np.meshgrid(range(repeats), [0, 1], [0, 1], range(n_calibration + 1))
    )
    proba, y = draw(rng, len(study), hard=is_hard(first, second))
    X = pd.DataFrame(proba).add_prefix("p")
    X["study"] = np.char.add("s", study.astype(str)).tolist()
    X["first"], X["second"] = first, second
    X["study and first"] = X["study"] + np.char.add("-", first.astype(str))
    X["study and second"] = X["study"] + np.char.add("-", second.astype(str))
    return X, y, row == 0


def failures(groups, covered, level=0.8):
    """Return the groups whose coverage is below ``level`` beyond chance, at FALSE_ALARM in all."""
    by_group = pd.Series(covered).groupby(list(groups)).agg(["sum", "size"])
    return [
        group
        for group, (hits, total) in by_group.iterrows()
        if binomtest(int(hits), int(total), level, alternative="less").pvalue
        < FALSE_ALARM / len(by_group)
    ]


@pytest.fixture
def coverage_by(reader):
    """Return a function that calibrates a method at 80% and says which test rows are covered."""

    def covered(cls, table, sensitive=None, **parameters):
        X, y, is_test = table
        common = {"sensitive_features": sensitive, "random_state": 0, "confidence_level": 0.8}
        clf = cls(reader(), **common, **parameters).conformalize(X[~is_test], y[~is_test])
        return is_covered(clf, X[is_test], y[is_test])

    return covered


@pytest.mark.filterwarnings("error::fareg.FaregWarning")
def test_exhaustive_covers_every_cell_where_split_and_partial_fail(coverage_by):
    table = X, _, is_test = repeated_groups(lambda first, second: first == second, seed=0)
    groups = X.loc[is_test, "first"].astype(str) + X.loc[is_test, "second"].astype(str)
    covered = coverage_by(ExhaustiveConformalClassifier, table, ["study", "first", "second"])
    assert failures(groups, covered) == []
    assert binomtest(int(covered.sum()), len(covered), 13 / 16).pvalue > FALSE_ALARM
    split = coverage_by(SplitConformalClassifier, table)
    partial = coverage_by(PartialConformalClassifier, table, ["study and first"])
    assert failures(groups, split) == failures(groups, partial) == ["00", "11"]


@pytest.mark.filterwarnings("error::fareg.FaregWarning")
def test_partial_covers_every_level_where_split_fails(coverage_by):
    table = X, _, is_test = repeated_groups(lambda first, _: first == 1, seed=1)
    X = X[is_test]
    partial = coverage_by(
        PartialConformalClassifier, table, ["study and first", "study and second"]
    )
    for feature, other in (("first", "second"), ("second", "first")):
        for value in (0, 1):
            # one of the two test rows that share a level and a study: independent trials
            rows = (X[other] == value).to_numpy()
            assert failures(X[feature][rows], partial[rows]) == []
    assert failures(X["first"], coverage_by(SplitConformalClassifier, table)) == [1]


@pytest.mark.filterwarnings("error::fareg.FaregWarning")
def test_label_conditional_covers_every_label_where_split_fails(coverage_by):
    rng = np.random.default_rng(2)
    study, y, row = (axis.ravel() for axis in np.meshgrid(range(1500), [0, 1, 2], range(16)))
    proba = rng.dirichlet(np.ones(3), len(y))
    favoured = np.where(y == 2, 0, y)  # the model takes label 2 for label 0
    proba[np.arange(len(y)), favoured] += 1.0
    X = pd.DataFrame(proba / proba.sum(axis=1, keepdims=True)).add_prefix("p")
    X["study"] = np.char.add("s", study.astype(str)).tolist()
    plain, by_label = (
        coverage_by(
            ExhaustiveConformalClassifier, (X, y, row == 0), ["study"], label_conditional=asked
        )
        for asked in (False, True)
    )
    assert failures(y[row == 0], by_label) == []
    assert failures(y[row == 0], plain) == [2]
    assert binomtest(int(by_label.sum()), len(by_label), 13 / 16).pvalue > FALSE_ALARM
