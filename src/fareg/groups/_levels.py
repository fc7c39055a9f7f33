"""A learned disadvantage cut into ordered levels, at edges that are fixed before calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from fareg._validation import FloatArray, IntArray, require
from fareg.groups._disadvantage import DIGITS, Disadvantage

N_RANKS = 1001  # quantiles of the learning rows that ranks are read from
MIN_LEVEL_ROWS = 30  # with fewer calibration rows, a level's threshold is noise


@dataclass(frozen=True, eq=False)
class DisadvantageLevels:
    """Ordered levels of people, 0 for the least disadvantaged.

    Examples
    --------
    >>> from fareg.groups import DisadvantageLevels, learn_disadvantage
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.integers(18, 90, 1000).astype(float)})
    >>> shortfall = 0.5 * rng.random(1000) + 0.5 * (people["age"] > 60).to_numpy()
    >>> disadvantage = learn_disadvantage(people, shortfall, seed=0)
    >>> levels = DisadvantageLevels.cut(disadvantage, people, n_levels=5, n_calibration=1000)
    >>> levels.n_levels  # five, and the highest was halved
    6
    >>> worse_off = levels.levels(pd.DataFrame({"age": [80.0, 20.0]}))
    >>> bool(worse_off[0] > worse_off[1])
    True
    """

    disadvantage: Disadvantage
    edges: FloatArray  # rising; level j holds edges[j - 1] < disadvantage <= edges[j]
    grid: FloatArray  # quantiles of the learning rows' disadvantage, for ranks

    @classmethod
    def cut(
        cls, disadvantage: Disadvantage, people: pd.DataFrame, *, n_levels: int, n_calibration: int
    ) -> Self:
        """Cut what was learned into as many levels as the evidence and the rows support.

        ``people`` are the rows that taught, and ``n_calibration`` is the number of calibration rows
        to come, clusters if there are any. Only if all ``n_levels`` are used, the highest is
        halved further: a weak signal deserves no more.
        """
        learned = disadvantage.predict(people)
        most = disadvantage.signal.n_levels(n_calibration, n_levels)
        edges = level_edges(learned, most, n_calibration, finer=most == n_levels)
        steps = np.linspace(0, 1, N_RANKS)
        grid = np.quantile(learned, steps, method="inverted_cdf") if len(learned) else np.zeros(1)
        return cls(disadvantage, edges, grid)

    @property
    def n_levels(self) -> int:
        """Number of levels; one if nobody is credibly worse off."""
        return len(self.edges) + 1

    def levels(self, people: pd.DataFrame) -> IntArray:
        """Return the level of each row of a canonical frame, shape (n,).

        If there is one level only, nothing is predicted.
        """
        if not len(self.edges):
            return np.zeros(len(people), dtype=np.int64)
        return np.searchsorted(self.edges, self.disadvantage.predict(people)).astype(np.int64)

    def ranks(self, people: pd.DataFrame) -> FloatArray:
        """Return the share of the learning rows that are at most as disadvantaged, shape (n,)."""
        b = self.disadvantage.predict(people)
        return np.searchsorted(self.grid, b, side="right") / len(self.grid)

    def describe(self, level: int) -> str:
        """Name a level in words.

        >>> from fareg.groups import Disadvantage, Signal
        >>> nobody = Disadvantage(("age",), ("age",), Signal(0.0, 1.0), 0.5)
        >>> levels = DisadvantageLevels(nobody, np.array([0.2, 0.4]), np.zeros(1))
        >>> [levels.describe(j) for j in range(3)]
        ['level 0 of 0 to 2, the best off', 'level 1 of 0 to 2', 'level 2 of 0 to 2, the worst off']
        """
        if not len(self.edges):
            return "all rows"
        ends = {0: ", the best off", len(self.edges): ", the worst off"}
        return f"level {level} of 0 to {len(self.edges)}{ends.get(level, '')}"

    def check(self, people: pd.DataFrame) -> None:
        """Refuse parts that contradict each other, as those of an edited file; ask some rows."""
        require(self.edges.dtype == self.grid.dtype == np.float64, "edges")
        require(self.edges.ndim == 1 and (np.diff(self.edges) > 0).all(), "edges")
        require(self.grid.ndim == 1 and (np.diff(self.grid) >= 0).all(), "grid")
        require(len(self.grid) > 0, "grid")
        require(not np.isnan([*self.edges[:1], *self.grid[:1]]).any(), "edges")
        self.disadvantage.check(people)


@dataclass(frozen=True, eq=False)
class LabelLevels:
    """Levels of people, label by label; each order is learned from rows of its label.

    Who is worse off in one label may be better off in another.
    """

    orders: tuple[DisadvantageLevels, ...]

    @property
    def n_levels(self) -> tuple[int, ...]:
        """Number of levels for every label."""
        return tuple(order.n_levels for order in self.orders)

    @property
    def disadvantage(self) -> tuple[Any, ...]:
        """What was learned for every label."""
        return tuple(order.disadvantage for order in self.orders)

    def levels(self, people: pd.DataFrame) -> IntArray:
        """Return the level of each row for every label, shape (n, n_labels)."""
        return np.column_stack([order.levels(people) for order in self.orders])

    def ranks(self, people: pd.DataFrame) -> FloatArray:
        """Return the rank of each row among the rows that taught, shape (n, n_labels)."""
        return np.column_stack([order.ranks(people) for order in self.orders])

    def check(self, people: pd.DataFrame) -> None:
        """Refuse parts that contradict each other, as those of an edited file."""
        require(isinstance(self.orders, tuple) and len(self.orders) > 0, "orders")
        for order in self.orders:
            require(isinstance(order, DisadvantageLevels), "orders")
            order.check(people)


def level_edges(
    disadvantage: FloatArray, n_levels: int, n_calibration: int, *, finer: bool = False
) -> FloatArray:
    """Return edges between levels of about equal share, each with enough calibration rows to come.

    ``disadvantage`` is that of the learning rows, by the models that will also judge other rows. An
    edge lies where disadvantage has its widest gap, so that a group that stands out from the others
    shares no level with them. The gap is looked for around the quantile of the learning rows that
    would make shares equal, as far as every level keeps ``MIN_LEVEL_ROWS`` expected calibration
    rows. A level that ties leave with fewer joins the level below.

    If ``finer``, the highest level is halved again and again, as long as either half keeps that
    many learning and calibration rows. The worst off may be one in a hundred, and in a level of a
    twentieth they would share the threshold of people who are better off.

    >>> level_edges(np.linspace(0, 1, 101), 4, 1000).tolist()
    [0.25, 0.5, 0.75]
    >>> level_edges(np.linspace(0, 1, 101), 4, 70).tolist()
    [0.5]
    >>> level_edges(np.repeat([0.1, 0.2, 0.8], [50, 32, 18]), 4, 1000).tolist()
    [0.1, 0.2]
    >>> level_edges(np.linspace(0, 1, 1001), 4, 1000, finer=True).round(3).tolist()
    [0.25, 0.5, 0.75, 0.875, 0.938, 0.969]
    """
    most = max(1, min(n_levels, n_calibration // MIN_LEVEL_ROWS))
    n = len(disadvantage)
    if not n or most == 1:
        return np.empty(0)
    rising = np.sort(disadvantage)
    gaps = np.round(np.diff(rising, append=rising[-1]), DIGITS)  # above each row

    def widest_gap(middle: int, reach: int) -> float:
        near = np.arange(max(0, middle - reach), min(n, middle + reach + 1))
        # of equal gaps the nearest to the middle counts
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
    """Return the edges, in rising order, without those that leave a level too few rows."""
    kept: list[float] = []
    for edge in sorted(edges, reverse=True):
        upper = kept[-1] if kept else np.inf
        inside = np.mean((disadvantage > edge) & (disadvantage <= upper)) * n_calibration
        below = np.mean(disadvantage <= edge) * n_calibration
        if inside >= MIN_LEVEL_ROWS and below >= MIN_LEVEL_ROWS:
            kept.append(edge)
    return kept[::-1]


def permutation_shares(predict: Any, people: pd.DataFrame, seed: int) -> pd.Series:
    """Return how much a prediction changes if each feature is shuffled among the rows, as shares.

    >>> people = pd.DataFrame({"a": [0.0, 1.0] * 9, "b": [0.0, 0.0, 1.0] * 6})
    >>> permutation_shares(lambda rows: rows["a"].to_numpy(), people, seed=0).to_dict()
    {'a': 1.0, 'b': 0.0}
    """
    rng = np.random.default_rng(seed)
    usual, changes = predict(people), {}
    for name in people:
        shuffled = people.copy()
        shuffled[name] = people[name].to_numpy()[rng.permutation(len(people))]
        changes[name] = float(np.abs(predict(shuffled) - usual).mean())
    return pd.Series(changes, dtype=np.float64) / (sum(changes.values()) or 1.0)
