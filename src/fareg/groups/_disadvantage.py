"""Disadvantage: a stack of cross-fitted models that predict it, and levels cut from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.stats import norm
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from fareg._threads import one_thread
from fareg._validation import FloatArray, IntArray, require
from fareg.groups._members import (
    N_FOLDS,
    TREES,
    ColumnReading,
    KernelSum,
    by_distinct_rows,
    choose_features,
    learn_given,
    learn_smooth,
)

DIGITS = 9  # decimals of a prediction: matrix products of other shapes differ in later ones
MAX_LEARNING_ROWS = 50_000  # a random sample of a larger table is used
MIN_LEARNING_ROWS = 50  # fewer rows cannot show who is worse off
USUAL_ROWS = 1000  # number of calibration rows for which STRONG and WEAK hold
STRONG = 0.05  # largest p-value for all levels
WEAK = 0.2  # largest p-value for more than one level
EVEN_ODDS = 0.5  # from this p-value on, the opposite order is at least as likely
FEW_LEVELS = 5  # levels of a weak signal
PAIRS_COUNTED = 2  # each pair of rows from different folds counts twice
HEAVY = 1e4  # penalty that enforces the sum of weights
N_RANKS = 1001  # quantiles of the learning rows, from which ranks are computed
MIN_LEVEL_ROWS = 30  # with fewer calibration rows, a level's threshold is noise


@dataclass(frozen=True)
class Signal:
    """How well the models predict disadvantage on rows that trained neither models nor weights.

    The p-value is the probability that predictions and target are so strongly correlated within
    the folds by chance. It is a normal approximation with clusters as units, and allows for models
    that learned from each other's rows. A weak signal may rank people well although its predictions
    are no better than a constant, and levels only need the order.
    """

    gain: float  # explained share of the target's variance; negative if worse than a constant
    p_value: float

    def n_levels(self, n_calibration: int, n_max: int) -> int:
        """Return the number of levels that the evidence supports, 1 without evidence."""
        # The more rows, the smaller the p-value of a disadvantage that matters.
        strictness = np.sqrt(max(1, n_calibration) / USUAL_ROWS)
        if self.p_value >= min(EVEN_ODDS, WEAK / strictness):
            return 1
        return n_max if self.p_value <= STRONG / strictness else min(n_max, FEW_LEVELS)


@dataclass(frozen=True, eq=False)
class Disadvantage:
    """The expected shortfall of people: a constant plus a weighted sum of models.

    Created by :func:`learn_disadvantage`. If there was nothing to learn, it has no models.
    """

    columns: tuple[str, ...]  # all features that it reads
    features: tuple[str, ...]  # those that matter, most important first
    signal: Signal
    constant: float
    readings: tuple[ColumnReading, ...] = ()
    models: tuple[Any, ...] = ()
    weights: tuple[float, ...] = ()

    def predict(self, people: pd.DataFrame) -> FloatArray:
        """Return the disadvantage of each row of a canonical frame, shape (n,) in [0, 1]."""
        total = np.full(len(people), self.constant)
        if self.models and len(people):
            matrix = read_columns(self.readings, people)
            with one_thread():
                for weight, model in zip(self.weights, self.models, strict=True):
                    if _reads_frames(model):
                        total += weight * model.predict(people[list(self.columns)])
                    else:
                        total += weight * by_distinct_rows(matrix, model.predict)
        return np.asarray(np.round(np.clip(total, 0.0, 1.0), DIGITS))

    def check(self, people: pd.DataFrame) -> None:
        """Refuse an edited file whose parts contradict each other; predict some rows."""
        require(set(self.features) <= set(self.columns) <= set(people.columns), "features")
        names = tuple(reading.name for reading in self.readings)
        require(names == (self.columns if self.models else ()), "readings")
        for reading in self.readings:
            require(set(map(type, (reading.codes or {}).values())) <= {int}, "readings")
        require(np.isfinite(self.signal.gain) and 0 <= self.signal.p_value <= 1, "signal")
        predicted = self.predict(people)
        require(predicted.shape == (len(people),) and np.isfinite(predicted).all(), "models")


@one_thread()  # the tasks are so small that several threads would mostly wait for each other
def learn_disadvantage(
    people: pd.DataFrame,
    target: FloatArray,
    clusters: IntArray | None = None,
    *,
    learner: Any = None,
    seed: int,
) -> Disadvantage:
    """Learn from shortfalls in [0, 1] how much worse off people are.

    Rows of one cluster are held out together; nothing is learned with fewer clusters than folds. A
    pipeline as ``learner`` reads the canonical frame, any other regressor a matrix of ranks and
    codes. None means two models: boosted trees, and kernel ridge regression on a few features.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(target))[:MAX_LEARNING_ROWS])
    people, target = people.iloc[rows], np.asarray(target, dtype=np.float64)[rows]
    cluster, fold = draw_folds(len(rows), None if clusters is None else clusters[rows], rng)
    names = tuple(map(str, people.columns))
    mean = float(target.mean()) if len(target) else 0.0
    nobody = Disadvantage(names, names, Signal(0.0, 1.0), mean)
    if len(rows) < MIN_LEARNING_ROWS or len(np.unique(fold)) < N_FOLDS or np.ptp(target) == 0:
        return nobody
    readings = tuple(ColumnReading.learn(column) for _, column in people.items())
    matrix = read_columns(readings, people)
    is_category = np.array([reading.codes is not None for reading in readings])
    chosen = choose_features(matrix, is_category, target, fold)
    if not all(chosen):
        return nobody
    if learner is None:
        columns = [np.sort(features) for features in chosen]
        out_of_fold, trees = learn_given(TREES, matrix, target, fold, seed)
        smoothed, sums = learn_smooth(matrix, is_category, target, fold, columns, seed)
        predictions, models = np.column_stack([out_of_fold, smoothed]), [[trees], sums]
    else:
        table = people if _reads_frames(learner) else matrix
        out_of_fold, fitted = learn_given(learner, table, target, fold, seed)
        predictions, models = out_of_fold[:, None], [[fitted]]
    weights = stack_weights(predictions, target)
    kept = [(weights[j], model) for j in np.flatnonzero(weights) for model in models[j]]
    return Disadvantage(
        columns=names,
        features=tuple(names[j] for j in chosen[-1]),
        signal=measure_signal(cross_fitted(predictions, target, fold), target, fold, cluster),
        constant=mean - float(predictions.mean(axis=0) @ weights),
        readings=readings if kept else (),
        models=tuple(model for _, model in kept),
        weights=tuple(float(weight) for weight, _ in kept),
    )


def _reads_frames(model: Any) -> bool:
    """Return whether a model encodes text itself; other models read ranks and codes."""
    if isinstance(model, KernelSum):
        return False
    return isinstance(model, Pipeline) or bool(get_tags(model).input_tags.string)


def draw_folds(
    n: int, clusters: IntArray | None, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Return the cluster and the fold of each row: whole clusters, evenly divided."""
    cluster = np.arange(n) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    order = rng.permutation(int(cluster.max(initial=-1)) + 1)
    return cluster, (order % N_FOLDS)[cluster]


def read_columns(readings: tuple[ColumnReading, ...], people: pd.DataFrame) -> FloatArray:
    """Return the ranks and codes of a canonical frame, shape (n, n_features)."""
    return np.column_stack([reading.read(people[reading.name]) for reading in readings])


def stack_weights(predictions: FloatArray, target: FloatArray) -> FloatArray:
    """Return weights >= 0 of sum <= 1 that best predict how far the target is from its mean.

    ``predictions`` of shape (n, n_models) are out of fold. The constant gets the remaining weight.
    """
    centred = predictions - predictions.mean(axis=0)
    A = np.column_stack([centred, np.zeros(len(target))])  # the constant predicts no difference
    heavy = HEAVY * max(1.0, float(np.linalg.norm(A)))
    A = np.vstack([A, np.full(A.shape[1], heavy)])
    return np.asarray(nnls(A, np.append(target - target.mean(), heavy))[0][:-1])


def cross_fitted(predictions: FloatArray, target: FloatArray, fold: IntArray) -> FloatArray:
    """Return the stack's prediction of each row, with weights from other folds, shape (n,)."""
    out = np.empty(len(target))
    for k in range(N_FOLDS):
        held, others = fold == k, fold != k
        weights = stack_weights(predictions[others], target[others])
        centred = predictions[held] - predictions[others].mean(axis=0)
        out[held] = target[others].mean() + centred @ weights
    return out


def measure_signal(
    prediction: FloatArray, target: FloatArray, fold: IntArray, cluster: IntArray
) -> Signal:
    """Compare cross-fitted predictions with the target.

    Both are centred in each fold, because the mean of a fold is predicted from the other folds,
    whose mean is above the overall mean exactly if that of the fold is below.

    The sum of the products ``p t`` counts every pair of rows twice: each row teaches the model that
    predicts the other. For a linear model with symmetric weights ``K`` the sum is
    ``2 sum_{i < j} K_ij t_i t_j``, whose variance on noise is twice the sum of squared products.
    For trees and stacks on noise, the variance was close to that and never above it.
    """
    sizes = np.bincount(fold)
    p, t = (v - (np.bincount(fold, v, N_FOLDS) / sizes)[fold] for v in (prediction, target))
    products = np.bincount(cluster, p * t)
    error = float(np.sqrt(PAIRS_COUNTED * (products**2).sum()))
    gain = 1 - float(np.mean((target - prediction) ** 2) / target.var())
    return Signal(gain, float(norm.sf(products.sum() / error)) if error > 0 else 1.0)


@dataclass(frozen=True, eq=False)
class DisadvantageLevels:
    """Ordered levels of disadvantage, 0 for the least."""

    disadvantage: Disadvantage
    edges: FloatArray  # rising; level j holds edges[j - 1] < disadvantage <= edges[j]
    grid: FloatArray  # quantiles of the learning rows' disadvantage, for ranks

    @classmethod
    def cut(
        cls, disadvantage: Disadvantage, people: pd.DataFrame, *, n_levels: int, n_calibration: int
    ) -> Self:
        """Cut the disadvantage of ``people`` into as many levels as evidence and rows support.

        ``n_calibration`` is the number of calibration rows, or of their clusters if there are any.
        """
        predicted = disadvantage.predict(people)
        most = disadvantage.signal.n_levels(n_calibration, n_levels)
        # a weak signal gets no finer levels
        edges = level_edges(predicted, most, n_calibration, finer=most == n_levels)
        shares, grid = np.linspace(0, 1, N_RANKS), np.zeros(1)
        if len(predicted):
            grid = np.quantile(predicted, shares, method="inverted_cdf")
        return cls(disadvantage, edges, grid)

    @property
    def n_levels(self) -> int:
        """Number of levels; one without evidence that somebody is worse off."""
        return len(self.edges) + 1

    def levels(self, people: pd.DataFrame) -> IntArray:
        """Return the level of each row of a canonical frame, shape (n,)."""
        if not len(self.edges):  # one level needs no prediction
            return np.zeros(len(people), dtype=np.int64)
        return np.searchsorted(self.edges, self.disadvantage.predict(people)).astype(np.int64)

    def ranks(self, people: pd.DataFrame) -> FloatArray:
        """Return the share of the learning rows that are at most as disadvantaged, shape (n,)."""
        b = self.disadvantage.predict(people)
        return np.searchsorted(self.grid, b, side="right") / len(self.grid)

    def check(self, people: pd.DataFrame) -> None:
        """Refuse an edited file whose parts contradict each other."""
        require(self.edges.dtype == self.grid.dtype == np.float64, "edges")
        require(self.edges.ndim == 1 and (np.diff(self.edges) > 0).all(), "edges")
        require(self.grid.ndim == 1 and len(self.grid) and (np.diff(self.grid) >= 0).all(), "grid")
        require(not np.isnan([*self.edges[:1], *self.grid[:1]]).any(), "edges")
        self.disadvantage.check(people)


@dataclass(frozen=True, eq=False)
class LabelLevels:
    """Levels per label: people who are worse off with one label may be better off with another."""

    orders: tuple[DisadvantageLevels, ...]

    @property
    def n_levels(self) -> tuple[int, ...]:
        return tuple(order.n_levels for order in self.orders)

    @property
    def disadvantage(self) -> tuple[Any, ...]:
        return tuple(order.disadvantage for order in self.orders)

    def levels(self, people: pd.DataFrame) -> IntArray:
        return np.column_stack([order.levels(people) for order in self.orders])

    def ranks(self, people: pd.DataFrame) -> FloatArray:
        return np.column_stack([order.ranks(people) for order in self.orders])

    def check(self, people: pd.DataFrame) -> None:
        require(isinstance(self.orders, tuple) and len(self.orders) > 0, "orders")
        for order in self.orders:
            require(isinstance(order, DisadvantageLevels), "orders")
            order.check(people)


def level_edges(
    disadvantage: FloatArray, n_levels: int, n_calibration: int, *, finer: bool = False
) -> FloatArray:
    """Return edges between levels of about equal share, each with enough calibration rows.

    An edge lies in the widest gap near the quantile of the learning rows that makes shares equal,
    so a group that stands out shares no level with others. If ties leave a level with fewer than
    ``MIN_LEVEL_ROWS``, it joins the one below. If ``finer``, the highest level is halved
    repeatedly, because the worst off may be one in a hundred.
    """
    most = max(1, min(n_levels, n_calibration // MIN_LEVEL_ROWS))
    n = len(disadvantage)
    if not n or most == 1:
        return np.empty(0)
    rising = np.sort(disadvantage)
    gaps = np.round(np.diff(rising, append=rising[-1]), DIGITS)  # above each row

    def widest_gap(middle: int, reach: int) -> float:
        near = np.arange(max(0, middle - reach), min(n, middle + reach + 1))
        # of equal gaps, choose the one nearest to the middle
        near = near[np.argsort(np.abs(near - middle), kind="stable")]
        return float(rising[near[gaps[near].argmax()]])

    reach = int(n * (1 / most - MIN_LEVEL_ROWS / n_calibration) / 2)
    edges = {widest_gap(-(-j * n // most) - 1, reach) for j in range(1, most)}
    kept = _with_enough_rows(edges, disadvantage, n_calibration)
    least = max(MIN_LEVEL_ROWS, math.ceil(MIN_LEVEL_ROWS * n / n_calibration))  # learning rows
    while finer and kept:
        n_above = n - int(np.searchsorted(rising, kept[-1], side="right"))
        if n_above < 2 * least:
            break
        edge = widest_gap(n - n_above // 2 - 1, n_above // 2 - least)
        if edge <= kept[-1] or (disadvantage > edge).sum() < least:  # ties leave nothing to cut
            break
        kept.append(edge)
    return np.array(kept)


def _with_enough_rows(
    edges: set[float], disadvantage: FloatArray, n_calibration: int
) -> list[float]:
    """Return the sorted edges without those that leave a level too few rows."""
    kept: list[float] = []
    for edge in sorted(edges, reverse=True):
        upper = kept[-1] if kept else np.inf
        inside = np.mean((disadvantage > edge) & (disadvantage <= upper)) * n_calibration
        below = np.mean(disadvantage <= edge) * n_calibration
        if inside >= MIN_LEVEL_ROWS and below >= MIN_LEVEL_ROWS:
            kept.append(edge)
    return kept[::-1]


def permutation_shares(predict: Any, people: pd.DataFrame, seed: int) -> pd.Series:
    """Return how much predictions change if each feature is shuffled, as shares of the sum."""
    rng = np.random.default_rng(seed)
    unchanged, changes = predict(people), {}
    for name in people:
        shuffled = people.copy()
        shuffled[name] = people[name].to_numpy()[rng.permutation(len(people))]
        changes[name] = float(np.abs(predict(shuffled) - unchanged).mean())
    return pd.Series(changes, dtype=np.float64) / (sum(changes.values()) or 1.0)
