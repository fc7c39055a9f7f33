"""Disadvantage of any table: several models, each honest about the rows it did not see, stacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.stats import norm

from fareg._validation import BoolArray, FloatArray
from fareg.groups._boosting import learn_boosting
from fareg.groups._cells import cells_of_parts, learn_cells
from fareg.groups._folds import N_FOLDS, Folds
from fareg.groups._kernel import learn_kernel

MEMBERS = ("cells", "network", "kernel", "boosting")
LEAST_SHARE = 0.03  # a member that adds less of all spread is left out, because it costs time
USUAL_ROWS = 1000  # calibration rows for which the next two p-values are meant
STRONG = 0.05  # largest p-value that deserves all levels
WEAK = 0.2  # largest p-value that deserves more than one level
EVEN_ODDS = 0.5  # p-value from which on the opposite order is as likely
FEW_LEVELS = 5  # levels of a weak signal
PAIRS_COUNTED = 2  # how often two rows of different folds meet: each is predicted from the other
HEAVY = 1e4  # penalty that enforces the sum of weights


@dataclass(frozen=True)
class Disadvantage:
    """A weighted sum of models around the mean.

    ``models`` lacks the network, whose weights are with the learner.
    """

    columns: tuple[str, ...]
    mean: float
    weights: dict[str, float]
    centres: dict[str, float]  # mean out-of-fold prediction of each member
    models: dict[str, Any]

    def predict(
        self, columns: pd.DataFrame, membership: Callable[[pd.DataFrame], FloatArray]
    ) -> FloatArray:
        """Return the disadvantage of each row, shape (n,) in [0, 1]."""
        total = np.full(len(columns), self.mean)
        for name, weight in self.weights.items():
            predict = membership if name == "network" else self.models[name].predict
            total += weight * (predict(columns) - self.centres[name])
        return np.asarray(np.clip(total, 0.0, 1.0))


@dataclass(frozen=True)
class Signal:
    """How well disadvantage is predicted on rows that no model and no weight had seen.

    The p-value tells how likely it is by chance that predictions and target rise together within
    the folds as much as they do. It is a normal approximation with clusters as units, and allows
    for models of different folds that learned from each other's rows. A weak signal may rank people
    well although its predictions are no better than a constant, and levels need only the order.
    """

    gain: float  # explained share of the target's variance; negative if worse than a constant
    p_value: float

    @property
    def credible(self) -> bool:
        """Whether the order is more likely than its opposite, which holds for half of all noise."""
        return self.p_value < EVEN_ODDS

    def n_levels(self, n_calibration: int, n_max: int) -> int:
        """Return how many levels of disadvantage the evidence supports: 1 if there is none.

        The more rows there are, the smaller is the p-value of a disadvantage that matters, so
        smaller p-values are asked for: they fall with the root of the number of rows.
        """
        strictness = np.sqrt(max(1, n_calibration) / USUAL_ROWS)
        if self.p_value >= min(EVEN_ODDS, WEAK / strictness):
            return 1
        return n_max if self.p_value <= STRONG / strictness else min(n_max, FEW_LEVELS)


def learn_members(
    columns: pd.DataFrame,
    target: FloatArray,
    folds: Folds,
    members: tuple[str, ...],
    rng: np.random.Generator,
) -> tuple[tuple[tuple[str, ...], ...], dict[str, FloatArray], dict[str, Any]]:
    """Fit all members but the network.

    Returns the features that each fold chose, the out-of-fold predictions and the models by name.
    If all features are texts of too many levels to compare, none is chosen and nothing is fitted.
    """
    predictions: dict[str, FloatArray] = {}
    models: dict[str, Any] = {}
    out_of_fold, cells = learn_cells(columns, target, folds)
    reads = cells.features()
    if not any(reads):
        return reads, predictions, models
    if "cells" in members:
        predictions["cells"], models["cells"] = out_of_fold, cells
    if "kernel" in members:
        predictions["kernel"], models["kernel"] = learn_kernel(columns, target, folds, reads, rng)
    if "boosting" in members:
        by_fold, models["boosting"] = learn_boosting(columns, target, folds.trains(), rng)
        predictions["boosting"] = folds.own(by_fold)
    return reads, predictions, models


def learn_quickly(
    columns: pd.DataFrame, target: FloatArray, parts: BoolArray, rng: np.random.Generator
) -> FloatArray:
    """Learn from each of several parts of the rows; return the disadvantage of all rows each time.

    ``parts`` and the answer are of shape (n_parts, n). Cells and trees count equally. Nothing is
    held out, nothing is weighed and the table is read once, so it takes a small share of the time
    of all members.
    """
    trees, _ = learn_boosting(columns, target, parts, rng)
    return (cells_of_parts(columns, target, parts, rng) + trees) / 2


def stack_members(
    columns: tuple[str, ...],
    target: FloatArray,
    folds: Folds,
    predictions: dict[str, FloatArray],
    models: dict[str, Any],
) -> tuple[FloatArray, Disadvantage, Signal]:
    """Weigh the members; return honest predictions, the fitted sum and what they are worth."""
    mean = float(target.mean()) if len(target) else 0.0
    if not predictions:
        nobody = Disadvantage(columns, mean, {}, {}, {})
        return np.full(len(target), mean), nobody, Signal(0.0, 1.0)
    names = list(predictions)
    table = np.column_stack([predictions[name] for name in names])
    honest = cross_fitted(table, target, folds)
    weights = stack_weights(table, target)
    spread = weights * table.std(axis=0)
    used = spread > LEAST_SHARE * spread.sum()
    kept = {name: float(weights[j]) for j, name in enumerate(names) if used[j]}
    fitted = Disadvantage(
        columns=columns,
        mean=mean,
        weights=kept,
        centres={name: float(predictions[name].mean()) for name in kept},
        models={name: models[name] for name in kept if name in models},
    )
    return np.clip(honest, 0.0, 1.0), fitted, measure_signal(honest, target, folds)


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
    return np.asarray(nnls(A, np.append(target - target.mean(), heavy))[0][:-1])


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

    Both are centred in each fold, because the mean of a fold is predicted from the other folds, and
    their mean is above the overall mean exactly if that of the fold is below.

    The sum of products of two rows' deviations counts every pair of folds twice: a row teaches the
    model that predicts the other, and the other way round. For a linear model of symmetric weights
    ``K`` the sum is ``2 sum_{i < j} K_ij t_i t_j``, whose variance on noise is twice the sum of
    squared products. Trees and stacks are close to that, and never were above it on noise.
    """

    def centred(values: FloatArray) -> FloatArray:
        sizes = np.maximum(1, np.bincount(folds.fold, minlength=N_FOLDS))
        means: FloatArray = np.bincount(folds.fold, values, N_FOLDS) / sizes
        return values - means[folds.fold]

    together = np.bincount(folds.cluster, centred(prediction) * centred(target))
    error = float(np.sqrt(PAIRS_COUNTED * (together**2).sum()))
    gain = 1 - float(np.mean((target - prediction) ** 2) / target.var())
    return Signal(gain, float(norm.sf(together.sum() / error)) if error > 0 else 1.0)
