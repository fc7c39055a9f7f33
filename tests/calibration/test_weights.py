"""Weighted calibration equals its definition: the test row joins, and quantiles are of weights."""

import numpy as np
import pandas as pd
import pytest

from fareg.calibration import Batch, Everyone, LevelThresholds, Mondrian, Sample


class Given:
    """Levels that stand in the table."""

    def __init__(self, n_levels):
        self.n_levels = self.n_cells = n_levels

    def levels(self, people):
        return people["level"].to_numpy().astype(np.int64)

    def cells(self, rows):
        return self.levels(rows.people)


def weighted_quantile(scores, weights, alpha):
    """Return the smallest score up to which there is a share of at least 1 - alpha."""
    order = np.argsort(scores, kind="stable")
    total = np.cumsum(weights[order])
    return scores[order][np.searchsorted(total, (1 - alpha) * total[-1] - 1e-9)]


def refitted(scores, levels, weights, level, alpha):
    """Return the threshold of a level where the test row is among the rows."""

    def quantile(a, b):
        inside = (levels >= a) & (levels <= b)
        return weighted_quantile(scores[inside], weights[inside], alpha)

    top = levels.max()
    return max(min(quantile(a, b) for b in range(level, top + 1)) for a in range(level + 1))


def batch_of(score, level, weights):
    people, scores = pd.DataFrame({"level": [level]}), np.array([[score, score + 1]])
    return Batch(people, np.ones((1, 2)) / 2, scores, np.array([0.5]), weights)


@pytest.mark.parametrize("seed", range(300))
def test_sets_are_those_of_the_refit_with_the_test_row(seed):
    rng = np.random.default_rng(seed)
    n_levels, n, alpha = int(rng.integers(1, 5)), int(rng.integers(1, 25)), rng.choice([0.1, 0.3])
    scores, levels = rng.integers(0, 9, n).astype(float), rng.integers(0, n_levels, n)
    weights, weight = rng.integers(1, 9, n), int(rng.integers(1, 9))
    score, level = float(rng.integers(0, 9)), int(rng.integers(n_levels))
    sample = Sample(scores, None, 1, None, weights, new=3)
    batch = batch_of(score, level, np.array([[weight]]))
    joined = (np.append(scores, score), np.append(levels, level), np.append(weights, weight))
    of_levels = LevelThresholds(Given(n_levels), sample, levels, alpha)
    of_cells = Mondrian(Given(n_levels), sample, levels, alpha)
    of_all = Mondrian(Everyone(), sample, np.zeros(n, dtype=np.int64), alpha)
    rows = joined[1] == level
    expected = {
        of_levels: refitted(*joined, level, alpha),
        of_cells: weighted_quantile(joined[0][rows], joined[2][rows], alpha),
        of_all: weighted_quantile(joined[0], joined[2], alpha),
    }
    for calibration, threshold in expected.items():
        is_inside = calibration.thresholds(batch)[0, 0] >= score
        assert is_inside == (score <= threshold)
        assert is_inside == (calibration.pvalues(batch)[0, 0] > alpha)


def test_labels_weigh_by_themselves():
    rng = np.random.default_rng(1)
    sample = Sample(rng.random(50), None, 1, None, rng.integers(1, 9, 50), 3)
    calibration = Mondrian(Everyone(), sample, np.zeros(50, dtype=np.int64), 0.1)
    both = calibration.pvalues(batch_of(0.8, 0, np.array([[2, 900]])))
    for label, weight in enumerate((2, 900)):
        alone = calibration.pvalues(batch_of(0.8, 0, np.array([[weight]])))
        assert both[0, label] == alone[0, label]
