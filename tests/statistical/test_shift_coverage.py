"""Coverage of a new population, with known weights; without them, sets fall short.

Numbers x are uniform where sets are calibrated, and have the density 3 x^2 where they are used.
Scores grow with x. Calibration rows are drawn again in every run; bounds are four standard errors
wide.
"""

import numpy as np
import pandas as pd
import pytest

from fareg import ExhaustiveConformalClassifier, SplitConformalClassifier
from fareg.calibration import Batch, LevelThresholds, Sample
from fareg.shift import CovariateShift, KnownWeights, LabelShift

N_RUNS, N, N_NEW = 120, 300, 400
pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")


def rows(rng, n, *, is_new):
    """Return x, groups, probabilities and labels; the score of the true label grows with x."""
    x = rng.random(n) ** (1 / 3 if is_new else 1)
    score = rng.random(n) ** (1 / (1 + 4 * x))
    group = np.where(rng.random(n) < 0.3 + 0.4 * x, "a", "b")
    X = pd.DataFrame({"x": x, "group": group, "weight": 3 * x**2})
    return X, np.full(n, "first"), np.column_stack([1 - score, score])


def coverages(make, shift, seed, by=None):
    """Return the coverage of new rows in every run, by group if asked: (N_RUNS, n_groups)."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(N_RUNS):
        X, y, proba = rows(rng, N, is_new=False)
        clf = make().conformalize(X, y, proba=proba, classes=["first", "second"], shift=shift)
        X, _, proba = rows(rng, N_NEW, is_new=True)
        covered = clf.predict_set(X, proba=proba)[:, 0]
        groups = [""] * N_NEW if by is None else X[by]
        found.append(pd.Series(covered).groupby(np.asarray(groups)).mean())
    return np.array(found)


def errors(found):
    return 4 * found.std(axis=0) / np.sqrt(len(found))


@pytest.mark.parametrize(
    ("method", "by"), [(SplitConformalClassifier, None), (ExhaustiveConformalClassifier, "group")]
)
def test_split_sets_and_cells_cover_the_new_population(method, by):
    def make():
        return method(conformity_score="lac", sensitive_features=["group"])

    weighted = coverages(make, KnownWeights("weight"), 1, by)
    plain = coverages(make, None, 1, by)
    assert (weighted.mean(axis=0) >= 0.9 - errors(weighted)).all()
    assert (weighted.mean(axis=0) <= 0.93).all()  # a fixed set of all labels would pass otherwise
    assert (plain.mean(axis=0) < 0.9 - errors(plain)).all()


class Given:
    """Levels of x in an order that is right, wrong or random."""

    n_levels = 4

    def __init__(self, order):
        self.order = np.array(order)

    def levels(self, people):
        return self.order[np.minimum((4 * people["x"]).astype(int), 3)]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_every_upper_set_of_levels_covers_the_new_population(order):
    rng, levels = np.random.default_rng(2), Given(order)
    found, plain = [], []
    for _ in range(N_RUNS):
        X, _, proba = rows(rng, N, is_new=False)
        weights = np.ceil(1000 * X["weight"].to_numpy()).astype(np.int64)
        own, new = levels.levels(X), rows(rng, N_NEW, is_new=True)
        scores, place = new[2][:, [1]], levels.levels(new[0])
        heavy = np.ceil(1000 * new[0]["weight"].to_numpy()).astype(np.int64)[:, None]
        heavy = np.ceil(heavy / 100).astype(np.int64) * 100  # few weights; a larger one is valid
        batch = Batch(new[0], scores, scores, np.zeros(N_NEW), heavy)
        sample = Sample(proba[:, 1], None, 1, None, weights, 1000)
        p = LevelThresholds(levels, sample, own, 0.1).pvalues(batch)[:, 0]
        found.append([(p > 0.1)[place >= m].mean() for m in range(4)])
        sample = Sample(proba[:, 1], None, 1, None)
        batch = Batch(new[0], scores, scores, np.zeros(N_NEW))
        p = LevelThresholds(levels, sample, own, 0.1).pvalues(batch)[:, 0]
        plain.append((p > 0.1).mean())
    found = np.array(found)
    assert (found.mean(axis=0) >= 0.9 - errors(found)).all()
    if order[0] != 0:  # levels in the right order would absorb the shift by themselves
        assert np.mean(plain) < 0.9 - errors(np.array(plain))


def labelled_rows(rng, n, share):
    """Return rows of two labels; those of the second have larger scores."""
    is_second = rng.random(n) < share
    score = rng.random(n) ** np.where(is_second, 0.2, 1.0)
    other = np.where(is_second, 1 - score, score)  # the probability of the second label
    proba = np.column_stack([1 - other, other])
    return np.zeros((n, 1)), np.where(is_second, "second", "first"), proba


@pytest.mark.parametrize("shift", [LabelShift({"first": 0.3, "second": 0.7}), None])
def test_labels_whose_shares_change(shift):
    rng, found = np.random.default_rng(3), []
    for _ in range(N_RUNS):
        X, y, proba = labelled_rows(rng, N, 0.4)
        clf = SplitConformalClassifier(conformity_score="lac")
        clf.conformalize(X, y, proba=proba, shift=shift)
        X, y, proba = labelled_rows(rng, N_NEW, 0.7)
        found.append(clf.predict_set(X, proba=proba)[np.arange(N_NEW), (y == "second") * 1].mean())
    error = errors(np.array(found))
    assert np.mean(found) >= 0.9 - error if shift else np.mean(found) < 0.9 - error


def test_learned_weights_come_close():
    rng, found = np.random.default_rng(4), []
    for _ in range(3):
        X, y, proba = rows(rng, 2000, is_new=False)
        shift = CovariateShift(columns=["x", "group"]).fit(X, rows(rng, 2000, is_new=True)[0])
        clf = SplitConformalClassifier(conformity_score="lac")
        clf.conformalize(X, y, proba=proba, classes=["first", "second"], shift=shift)
        X, _, proba = rows(rng, 4000, is_new=True)
        found.append(clf.predict_set(X, proba=proba)[:, 0].mean())
    assert 0.89 < np.mean(found) < 0.915
