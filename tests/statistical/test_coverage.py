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
    rng = np.random.default_rng(0)
    counts = []
    for repeat in range(repeats):
        X, y = draw(rng, n + m)
        clf = SplitConformalClassifier(
            estimator,
            confidence_level=confidence_level,
            conformity_score=score,
            random_state=repeat,
        ).conformalize(X[:n], y[:n])
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
    p = conformal_pvalues(
        scores[:, 1:].ravel(),
        scores[:, 0],
        calibration_categories=np.repeat(repeat, n),
        categories=repeat,
        u=rng.random(repeats),
    )
    assert kstest(p, "uniform").pvalue > FALSE_ALARM / 9
    plain = conformal_pvalues(
        scores[:, 1:].ravel(),
        scores[:, 0],
        calibration_categories=np.repeat(repeat, n),
        categories=repeat,
    )
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


def repeated_groups(hard_where, n_calibration, repeats, seed):
    """Return a table of many small studies with two binary features and a hard part.

    Every study and every cell of the two features holds ``n_calibration`` calibration rows and one
    test row, so the test rows of a cell are independent trials.
    """
    rng = np.random.default_rng(seed)
    per_cell = n_calibration + 1
    study, first, second, row = (
        axis.ravel() for axis in np.meshgrid(range(repeats), [0, 1], [0, 1], range(per_cell))
    )
    proba, y = draw(rng, len(study), hard=hard_where(first, second))
    X = pd.DataFrame(proba).add_prefix("p")
    X["study"] = np.char.add("s", study.astype(str)).tolist()
    X["first"], X["second"] = first, second
    X["study and first"] = X["study"] + np.char.add("-", first.astype(str))
    X["study and second"] = X["study"] + np.char.add("-", second.astype(str))
    return X, y, row == 0


def failures(groups, covered, level):
    """Return the groups whose coverage is below ``level`` beyond chance, at FALSE_ALARM in all."""
    by_group = pd.Series(covered).groupby(list(groups)).agg(["sum", "size"])
    return [
        group
        for group, (hits, total) in by_group.iterrows()
        if binomtest(int(hits), int(total), level, alternative="less").pvalue
        < FALSE_ALARM / len(by_group)
    ]


def calibrated_coverage(cls, estimator, X, y, is_test, sensitive, **parameters):
    clf = cls(estimator, sensitive_features=sensitive, random_state=0, **parameters)
    clf.conformalize(X[~is_test], y[~is_test])
    return is_covered(clf, X[is_test], y[is_test])


def first_is_hard(first, second):
    return first == 1


def equal_is_hard(first, second):
    return first == second


@pytest.mark.filterwarnings("error::fareg.FaregWarning")
def test_exhaustive_covers_every_cell_where_split_and_partial_fail(reader):
    X, y, is_test = repeated_groups(equal_is_hard, n_calibration=15, repeats=1500, seed=0)
    groups = X.loc[is_test, "first"].astype(str) + X.loc[is_test, "second"].astype(str)
    level = 0.8

    def failing(cls, sensitive):
        covered = calibrated_coverage(
            cls, reader(), X, y, is_test, sensitive, confidence_level=level
        )
        return failures(groups, covered, level), covered

    bad, covered = failing(ExhaustiveConformalClassifier, ["study", "first", "second"])
    assert bad == []
    assert binomtest(int(covered.sum()), len(covered), 13 / 16).pvalue > FALSE_ALARM
    hard_cells = ["00", "11"]
    assert failing(SplitConformalClassifier, None)[0] == hard_cells
    assert failing(PartialConformalClassifier, ["study and first"])[0] == hard_cells


@pytest.mark.filterwarnings("error::fareg.FaregWarning")
def test_partial_covers_every_level_where_split_fails(reader):
    X, y, is_test = repeated_groups(first_is_hard, n_calibration=15, repeats=1500, seed=1)
    level = 0.8
    partial = calibrated_coverage(
        PartialConformalClassifier,
        reader(),
        X,
        y,
        is_test,
        ["study and first", "study and second"],
        confidence_level=level,
    )
    split = calibrated_coverage(
        SplitConformalClassifier, reader(), X, y, is_test, None, confidence_level=level
    )
    for feature in ("first", "second"):
        # one of the two test rows that share a level and a study: independent trials
        other = "second" if feature == "first" else "first"
        for value in (0, 1):
            rows = (X.loc[is_test, other] == value).to_numpy()
            assert failures(X.loc[is_test, feature][rows], partial[rows], level) == []
    assert failures(X.loc[is_test, "first"], split, level) == [1]


@pytest.mark.filterwarnings("error::fareg.FaregWarning")
def test_label_conditional_covers_every_label_where_split_fails(reader):
    rng = np.random.default_rng(2)
    repeats, per_label, level = 1500, 16, 0.8
    study, y, row = (
        axis.ravel() for axis in np.meshgrid(range(repeats), [0, 1, 2], range(per_label))
    )
    proba = rng.dirichlet(np.ones(3), len(y))
    favoured = np.where(y == 2, 0, y)  # the model takes label 2 for label 0
    proba[np.arange(len(y)), favoured] += 1.0
    X = pd.DataFrame(proba / proba.sum(axis=1, keepdims=True)).add_prefix("p")
    X["study"] = np.char.add("s", study.astype(str)).tolist()
    is_test = row == 0
    covered = {
        label_conditional: calibrated_coverage(
            ExhaustiveConformalClassifier,
            reader(),
            X,
            y,
            is_test,
            ["study"],
            confidence_level=level,
            label_conditional=label_conditional,
        )
        for label_conditional in (False, True)
    }
    assert failures(y[is_test], covered[True], level) == []
    assert failures(y[is_test], covered[False], level) == [2]
    hits = int(covered[True].sum())
    assert binomtest(hits, len(covered[True]), 13 / 16).pvalue > FALSE_ALARM


def test_a_group_of_repetitions_is_a_split_of_its_own(reader):
    X, y, is_test = repeated_groups(first_is_hard, n_calibration=15, repeats=5, seed=3)
    clf = ExhaustiveConformalClassifier(reader(), sensitive_features=["study"], random_state=0)
    clf.conformalize(X[~is_test], y[~is_test])
    together = clf.predict_set(X[is_test])
    for study in X["study"].unique():
        rows = (X["study"] == study).to_numpy()
        split = SplitConformalClassifier(reader(), random_state=0)
        split.conformalize(X[rows & ~is_test], y[rows & ~is_test])
        own = split.predict_set(X[rows & is_test])
        np.testing.assert_array_equal(own, together[rows[is_test]])
