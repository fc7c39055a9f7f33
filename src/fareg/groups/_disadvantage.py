"""Disadvantage of any table: several models, each honest about the rows it did not see, stacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, FloatArray
from fareg.groups._boosting import learn_boosting
from fareg.groups._cells import cells_of_parts, learn_cells
from fareg.groups._folds import Folds
from fareg.groups._kernel import learn_kernel
from fareg.groups._stack import Signal, cross_fitted, measure_signal, stack_weights

MEMBERS = ("cells", "network", "kernel", "boosting")
LEAST_SHARE = 0.03  # of all spread: a member that adds less is left out, for it costs time


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


def learn_members(
    columns: pd.DataFrame,
    target: FloatArray,
    folds: Folds,
    members: tuple[str, ...],
    rng: np.random.Generator,
) -> tuple[tuple[tuple[str, ...], ...], dict[str, FloatArray], dict[str, Any]]:
    """Fit all members but the network.

    Returns the features that each fold chose, the out-of-fold predictions and the models by name.
    """
    predictions: dict[str, FloatArray] = {}
    models: dict[str, Any] = {}
    out_of_fold, cells = learn_cells(columns, target, folds)
    reads = cells.features()
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
