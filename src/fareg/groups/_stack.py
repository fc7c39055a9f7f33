"""Several predictions of disadvantage as one: weights chosen on rows that no model had seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.stats import norm

from fareg._validation import FloatArray
from fareg.groups._folds import N_FOLDS, Folds

LEVEL_ROWS = 30  # calibration rows that a level should have
MAX_LEVELS = 20
STRONG = 0.05  # largest p-value that deserves all levels, at USUAL_ROWS calibration rows
WEAK = 0.2  # largest p-value that deserves any, at as many
USUAL_ROWS = 1000
EVEN_ODDS = 0.5  # p-value from which on the opposite order is as likely
FEW_LEVELS = 5  # levels of a weak signal
HEAVY = 1e4  # penalty that enforces the sum of weights


@dataclass(frozen=True)
class Signal:
    """How well disadvantage is predicted on rows that no model and no weight had seen.

    The p-value is one-sided, that predictions and target do not rise together within the folds, by
    the normal approximation, with clusters as units. A weak signal may rank people well although
    its predictions are no better than a constant: levels ask for the order only.
    """

    gain: float  # explained share of the target's variance; negative if worse than a constant
    p_value: float

    @property
    def credible(self) -> bool:
        """Whether an order is more likely than its opposite; so it is in half of all noise."""
        return self.p_value < EVEN_ODDS

    def n_levels(self, n_calibration: int, n_max: int = MAX_LEVELS) -> int:
        """Return how many levels of disadvantage the evidence supports: 1 if there is none.

        The more rows, the smaller the p-value of a disadvantage that matters, and the less of noise
        need be taken for one: the p-values that are asked for fall with the root of the rows.
        """
        strictness = np.sqrt(max(1, n_calibration) / USUAL_ROWS)
        if self.p_value >= min(EVEN_ODDS, WEAK / strictness):
            return 1
        most = n_max if self.p_value <= STRONG / strictness else min(n_max, FEW_LEVELS)
        return int(np.clip(n_calibration // LEVEL_ROWS, 1, most))


def stack_weights(predictions: FloatArray, target: FloatArray) -> FloatArray:
    """Return weights >= 0 of sum <= 1 that predict the target best around its mean.

    ``predictions`` of shape (n, n_members) are out of fold. What is missing to a sum of one is the
    weight of the constant.

    >>> x, other = np.array([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    >>> stack_weights(np.column_stack([x, other]), 0.5 * x).round(2)
    array([0.5, 0. ])
    """
    centred = predictions - predictions.mean(axis=0)
    A = np.column_stack([centred, np.zeros(len(target))])  # the constant predicts no difference
    heavy = HEAVY * max(1.0, float(np.linalg.norm(A)))
    A = np.vstack([A, np.full(A.shape[1], heavy)])
    weights: FloatArray = nnls(A, np.append(target - target.mean(), heavy))[0][:-1]
    return weights


def cross_fitted(predictions: FloatArray, target: FloatArray, folds: Folds) -> FloatArray:
    """Return the stack's prediction of each row with weights that other folds chose, shape (n,)."""
    out = np.empty(len(target))
    for k in range(N_FOLDS):
        own = folds.fold == k
        rest = ~own
        weights = stack_weights(predictions[rest], target[rest])
        centred = predictions[own] - predictions[rest].mean(axis=0)
        out[own] = target[rest].mean() + centred @ weights
    return out


def measure_signal(prediction: FloatArray, target: FloatArray, folds: Folds) -> Signal:
    """Compare honest predictions with the target.

    Both are centred in each fold: the mean of a fold is predicted from the others, which are above
    the overall mean exactly if it is below.
    """

    def centred(values: FloatArray) -> FloatArray:
        sizes = np.maximum(1, np.bincount(folds.fold, minlength=N_FOLDS))
        means: FloatArray = np.bincount(folds.fold, values, N_FOLDS) / sizes
        return values - means[folds.fold]

    together = np.bincount(folds.cluster, centred(prediction) * centred(target))
    error = float(np.sqrt((together**2).sum()))
    gain = 1 - float(np.mean((target - prediction) ** 2) / target.var())
    return Signal(gain, float(norm.sf(together.sum() / error)) if error > 0 else 1.0)
