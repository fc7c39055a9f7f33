"""Disadvantage of any table: several models, each honest about the rows it did not see, stacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._encoding import encoded_columns, piecewise_encoder
from fareg._levels import distinct_rows
from fareg._validation import FloatArray
from fareg.groups._boosting import learn_boosting
from fareg.groups._cells import learn_cells
from fareg.groups._folds import Folds
from fareg.groups._network import Layers, feed
from fareg.groups._stack import Signal, cross_fitted, measure_signal, stack_weights

MEMBERS = ("cells", "network", "regression", "boosting")
MAX_CATEGORIES = 100  # rarer categories of a column share one input of a network
LEAST_SHARE = 0.03  # of all spread: a member that adds less is left out, for it costs time


@dataclass(frozen=True)
class RegressionNetworks:
    """One plain network per fold on a few features, as numpy applies it."""

    features: tuple[str, ...]
    encoder: Any
    layers: Layers
    mean: float
    scale: float

    def predict(self, columns: pd.DataFrame) -> FloatArray:
        """Return the average over folds, shape (n,)."""
        by_fold = self.by_fold(self.encoder.transform(columns[list(self.features)]))
        return np.asarray(by_fold.mean(axis=0))

    def by_fold(self, x: FloatArray) -> FloatArray:
        """Return the prediction of each fold's network from encoded rows, shape (n_folds, n)."""
        out: FloatArray = self.mean + self.scale * feed(x, self.layers)[..., 0]
        return out


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
    if "regression" in members:
        predictions["regression"], models["regression"] = learn_regression(
            columns, target, folds, reads, rng
        )
    if "boosting" in members:
        predictions["boosting"], models["boosting"] = learn_boosting(columns, target, folds, rng)
    return reads, predictions, models


def learn_regression(
    columns: pd.DataFrame,
    target: FloatArray,
    folds: Folds,
    reads: tuple[tuple[str, ...], ...],
    rng: np.random.Generator,
) -> tuple[FloatArray, RegressionNetworks]:
    """Fit a network per fold on the features that the fold chose; numbers piecewise-linearly."""
    from fareg.groups._training import train_regression

    features = tuple(dict.fromkeys(name for names in reads for name in names))
    columns = columns[list(features)]
    first, which = distinct_rows(columns)
    crowded = columns.iloc[first].select_dtypes(object).nunique(dropna=False).max() > MAX_CATEGORIES
    encoder = piecewise_encoder(MAX_CATEGORIES if crowded else None).fit(columns)
    x = encoder.transform(columns.iloc[first])
    inputs = [column for column, _ in encoded_columns(encoder)]
    mean, scale = float(target.mean()), float(target.std())
    layers = train_regression(
        x,
        which,
        (target - mean) / scale,
        folds.trains(),
        np.array([np.isin(inputs, names) for names in reads]),
        int(rng.integers(2**31)),
    )
    networks = RegressionNetworks(features, encoder, layers, mean, scale)
    return folds.own(networks.by_fold(x)[:, which]), networks


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
        return np.full(len(target), mean), nobody, Signal(0.0, 0.0, 1.0)
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
