"""Learned groups as views and levels: what a fitted learner says about the rows of a call."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fareg._hashing import row_draws
from fareg._validation import FloatArray, IntArray, InvalidInputError
from fareg.calibration import ABSENT, RisingThresholds, Rows, UnionCalibration, require
from fareg.groups import cells_of

DIGITS = 9  # decimals that disadvantage is rounded to
N_RANKS = 1001  # quantiles of the learning rows that ranks are read from
NOWHERE = np.empty(0)  # no cut at all: everyone is in one cell
MIN_LEVEL_ROWS = 30  # with fewer calibration rows, a level's threshold is noise


def membership(learner: Any, rows: Rows) -> FloatArray:
    """Return the membership of each row, asked for once per call."""
    return rows.once("membership", lambda: learner.membership(rows.columns))


def disadvantage(learner: Any, rows: Rows) -> FloatArray:
    """Return the disadvantage of each row, asked for once per call.

    It is rounded, because matrix products of other shapes differ in the last digits, and a row's
    level must not depend on the rows beside it.
    """
    return rows.once("disadvantage", lambda: np.round(learner.disadvantage(rows.columns), DIGITS))


@dataclass(frozen=True, eq=False)
class GroupCells:
    """One view: the membership cut into the rest and the discovered group."""

    learner: Any
    cuts: FloatArray

    @property
    def n_cells(self) -> tuple[int, ...]:
        return (len(self.cuts) + 1,)

    def cells(self, rows: Rows) -> IntArray:
        """Return the cell of each row, 0 for the lowest membership."""
        return cells_of(membership(self.learner, rows), self.cuts)[None]

    def describe(self, view: int, cell: int) -> str:
        if not len(self.cuts):
            return "all rows"
        return "the discovered group" if cell == len(self.cuts) else "the rest"

    def check(self, rows: Rows) -> None:
        require(self.cuts.ndim == 1 and ((self.cuts >= 0) & (self.cuts <= 1)).all(), "cuts")
        require(self.learner.found_ or len(self.cuts) == 0, "cuts")
        _check_shares(membership(self.learner, rows), rows)


@dataclass(frozen=True, eq=False)
class GroupDraws:
    """The paper's views: all rows, and random groups that rows join with their membership."""

    learner: Any
    n_draws: int
    cuts: FloatArray  # the membership above which a row is said to belong to the group

    @property
    def n_cells(self) -> tuple[int, ...]:
        return (1,) * (self.n_draws + 1)

    def cells(self, rows: Rows) -> IntArray:
        """Return 0 for members of a draw; others are absent from its view."""
        q = membership(self.learner, rows)
        draws = row_draws(rows.more_uniforms(1), self.n_draws)
        members = [np.where(u < q, 0, ABSENT) for u in draws]
        return np.stack([np.zeros(len(q), dtype=np.int64), *members])

    def describe(self, view: int, cell: int) -> str:
        return "all rows" if view == 0 else f"draw {view} of the group"

    def check(self, rows: Rows) -> None:
        require(type(self.n_draws) is int and self.n_draws >= 1, "n_draws")
        _check_shares(membership(self.learner, rows), rows)


@dataclass(frozen=True, eq=False)
class DisadvantageLevels:
    """Ordered levels: the learned disadvantage cut at edges that are fixed before calibration."""

    learner: Any
    edges: FloatArray  # rising; level j holds edges[j - 1] < disadvantage <= edges[j]
    grid: FloatArray  # quantiles of the learning rows' disadvantage, for ranks

    @classmethod
    def cut(
        cls, learner: Any, learned: FloatArray, n_levels: int, n_calibration: int, *, finer: bool
    ) -> DisadvantageLevels:
        """Cut the disadvantage of the learning rows into levels, as :func:`level_edges` does."""
        edges = level_edges(learned, n_levels, n_calibration, finer=finer)
        steps = np.linspace(0, 1, N_RANKS)
        grid = np.quantile(learned, steps, method="inverted_cdf") if len(learned) else np.zeros(1)
        return cls(learner, edges, grid)

    @property
    def n_levels(self) -> int:
        return len(self.edges) + 1

    def levels(self, rows: Rows) -> IntArray:
        """Return the level of each row, 0 for the least disadvantaged."""
        if not len(self.edges):
            return np.zeros(len(rows), dtype=np.int64)
        return cells_of(disadvantage(self.learner, rows), self.edges)

    def ranks(self, rows: Rows) -> FloatArray:
        """Return the share of the learning rows that are at most as disadvantaged as each row."""
        b = disadvantage(self.learner, rows)
        return np.searchsorted(self.grid, b, side="right") / len(self.grid)

    def check(self, rows: Rows) -> None:
        require(self.edges.ndim == 1 and (np.diff(self.edges) > 0).all(), "edges")
        require(self.grid.ndim == 1 and len(self.grid) > 0, "grid")
        require((np.diff(self.grid) >= 0).all(), "grid")
        _check_shares(disadvantage(self.learner, rows), rows)


def _check_shares(answer: FloatArray, rows: Rows) -> None:
    require(answer.shape == (len(rows),) and ((answer >= 0) & (answer <= 1)).all(), "learner")


def level_edges(
    disadvantage: FloatArray, n_levels: int, n_calibration: int, *, finer: bool = False
) -> FloatArray:
    """Return edges between levels of about equal share, each with enough calibration rows to come.

    ``disadvantage`` is that of the learning rows, by the models that will also judge other rows. An
    edge lies where disadvantage has its widest gap, so that a group that stands out from the rest
    shares no level with it. The gap is looked for around the quantile of the learning rows that
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
    kept: list[float] = []
    for edge in sorted(edges, reverse=True):
        upper = kept[-1] if kept else np.inf
        inside = np.mean((disadvantage > edge) & (disadvantage <= upper)) * n_calibration
        below = np.mean(disadvantage <= edge) * n_calibration
        if inside >= MIN_LEVEL_ROWS and below >= MIN_LEVEL_ROWS:
            kept.append(edge)
    kept = kept[::-1]
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


CONSTRUCTIONS = {"levels": DisadvantageLevels, "partition": GroupCells, "union": GroupDraws}


def own_part(calibration: Any) -> Any:
    """Return the calibration of the discovered groups, without that of a base."""
    return calibration.parts[0] if isinstance(calibration, UnionCalibration) else calibration


def division(calibration: Any) -> Any:
    """Return what divides the rows of :func:`own_part`: levels, a group, or draws of it."""
    own = own_part(calibration)
    return own.leveler if isinstance(own, RisingThresholds) else own.views


def with_fewer_draws(calibration: Any, n_draws: int) -> Any:
    """Return the calibration of a union with the first of its draws only."""
    own, views = own_part(calibration), division(calibration)
    if not isinstance(views, GroupDraws) or not 1 <= n_draws <= views.n_draws:
        raise InvalidInputError(
            f"with_draws takes 1 to {getattr(views, 'n_draws', 0)} draws of a union, "
            f"got {n_draws!r}"
        )
    fewer = replace(own, views=replace(views, n_draws=n_draws), cells=own.cells[: n_draws + 1])
    joined = own is not calibration
    return UnionCalibration((fewer, *calibration.parts[1:])) if joined else fewer
