"""Directions that are fitted to an outcome: the optimised search for the worst slab.

Random directions are blind beyond a few features: of the 65 coefficients of a quadratic in ten
features nearly all would have to be near zero. Descent from them in all coefficients fits noise.
So the search starts where few features explain who is missed, and descends in those only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, combinations_with_replacement

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

from fareg._validation import FloatArray
from fareg.metrics._directions import Directions
from fareg.metrics._slab_search import CHUNK_ELEMENTS, Counts, Points, sums, worst_segments

Term = tuple[int, ...]  # a feature, or the product of two

MAX_FEATURES = 4  # a direction uses at most so many features
N_TRIED = 5  # sets of features whose joint fit is tried in each step
SIGNIFICANCE = 0.05  # of further features, over all features
N_STEPS = 4
WIDTHS = (0.3, 0.05)  # softness of the slab's edges in standard deviations, first and last step
LENGTHS = (0.5, 0.1)  # length of the step on the unit sphere, first and last
N_BINS = 128  # the descent looks at projections in bins
REACH = 4.0  # from minus to plus so many standard deviations
CACHE_ELEMENTS = 2**21  # rows of the bases that are kept in memory


def fitted_directions(
    points: Points, missed: Counts, kind: str, fewest: Sequence[int]
) -> list[Directions]:
    """Fit a direction to every outcome, for each smallest number of points in a slab.

    Least squares of the missed points on few features (with their squares and products for a
    quadratic direction) is the start. Features enter one by one, as long as their gain is more than
    chance would give. Then the coverage of the slab with soft edges descends by gradient steps in
    the coefficients of these features. Nothing is drawn at random.

    ``missed`` of shape (n_outcomes, n_distinct) holds the missed points of each distinct row. The
    answer has one direction per outcome for each entry of ``fewest``.
    """
    table, total = _Table(points, kind), len(points.row)
    rate = missed.sum(axis=1, keepdims=True) / total
    # By chance alone, the product of y with each column of a basis is standard normal.
    noise = np.sqrt(total * np.maximum(rate * (1 - rate), 1 / total))
    y = (missed - rate * points.size) / noise
    screened = zip(y, *table.screen(y), strict=True)
    fits = [table.basis(table.choose(*own)) for own in screened]
    starts = [_unit(fit.columns.T @ own) for fit, own in zip(fits, y, strict=True)]
    step = max(1, 4 * CHUNK_ELEMENTS // len(points.size))
    parts = [slice(first, first + step) for first in range(0, len(y), step)]
    answer = []
    for least in fewest:
        found = [w for p in parts for w in _descend(fits[p], starts[p], points, missed[p], least)]
        own = [table.direction(fit, w) for fit, w in zip(fits, found, strict=True)]
        answer.append(Directions.join(*own))
    return answer


@dataclass(frozen=True)
class _Basis:
    """The terms of some features, times ``mix``: columns of mean 0, variance 1, uncorrelated."""

    columns: FloatArray  # (n_distinct, n_columns)
    mix: FloatArray  # (n_terms, n_columns)
    terms: tuple[Term, ...]


class _Table:
    """The standardised features: sets of them explain who is missed."""

    def __init__(self, points: Points, kind: str) -> None:
        self.kind, self.weight = kind, points.size / len(points.row)
        self.center = self.weight @ points.numbers
        spread = np.sqrt(self.weight @ (points.numbers - self.center) ** 2)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.z = (points.numbers - self.center) / self.scale
        self.known: dict[Term, _Basis] = {}

    def basis(self, features: Term) -> _Basis:
        """Return the basis of some features, which is made once."""
        features = tuple(sorted(features))
        if features not in self.known:
            if len(self.known) * len(self.z) > CACHE_ELEMENTS:
                self.known.clear()
            terms: tuple[Term, ...] = tuple((k,) for k in features)
            if self.kind == "quadratic":
                terms += tuple(combinations_with_replacement(features, 2))
            columns = np.column_stack([self.z[:, list(term)].prod(axis=1) for term in terms])
            columns -= self.weight @ columns
            variance, vectors = np.linalg.eigh((columns.T * self.weight) @ columns)
            real = variance > 1e-9 * max(variance[-1], 1e-300)
            mix = vectors[:, real] / np.sqrt(variance[real])
            self.known[features] = _Basis(columns @ mix, mix, terms)
        return self.known[features]

    def direction(self, basis: _Basis, w: FloatArray) -> Directions:
        """Return coefficients in a basis as a direction in the table's own units."""
        v, W = np.zeros(len(self.center)), np.zeros((len(self.center), len(self.center)))
        for term, a in zip(basis.terms, basis.mix @ w, strict=True):
            a = a / self.scale[list(term)].prod()
            if len(term) == 1:
                v[term[0]] += a
            else:  # a (x_i - m_i) (x_j - m_j), without its constant
                W[term] += a
                np.subtract.at(v, list(term), a * self.center[list(term)][::-1])
        if not (v.any() or W.any()):
            v[0] = 1.0  # with nothing to fit, any direction will do
        return Directions(v[None], None if self.kind == "linear" else W[None])

    def screen(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gain of each feature alone and of each product of two, for every outcome."""
        d = self.z.shape[1]
        alone = [((y @ self.basis((k,)).columns) ** 2).sum(axis=1) for k in range(d)]
        together = np.zeros((len(y), d, d))
        for i in range(d - 1 if self.kind == "quadratic" else 0):
            product = self.z[:, [i]] * self.z[:, i + 1 :]
            product -= self.weight @ product
            variance = self.weight @ product**2
            gain = (y @ product) ** 2 / np.where(variance > 0, variance, np.inf)
            together[:, i, i + 1 :] = together[:, i + 1 :, i] = gain
        return np.column_stack(alone), together

    def choose(self, y: FloatArray, alone: FloatArray, together: FloatArray) -> Term:
        """Choose the features that tell who is missed in one outcome.

        The best feature, or pair for a quadratic direction, is the beginning; the best further one
        joins while it gains more than chance would give.
        """

        def gain(features: Term) -> float:
            return float(((y @ self.basis(features).columns) ** 2).sum())

        d = len(alone)
        begin = list(combinations(range(d), 1 if self.kind == "linear" or d == 1 else 2))
        pairs = [alone[list(f)].sum() + (together[f] if len(f) == 2 else 0.0) for f in begin]
        chosen = max((begin[k] for k in _largest(pairs)), key=gain)
        while len(chosen) < min(MAX_FEATURES, d):
            promise = alone + together[list(chosen)].sum(axis=0)
            promise[list(chosen)] = -np.inf
            best = max(((*chosen, k) for k in _largest(promise) if k not in chosen), key=gain)
            freedom = self.basis(best).columns.shape[1] - self.basis(chosen).columns.shape[1]
            if freedom < 1 or gain(best) - gain(chosen) < _chance(freedom, d):
                break
            chosen = best
        return chosen


def _largest(values: Sequence[float] | FloatArray) -> list[int]:
    """Return where the largest values are."""
    return [int(k) for k in np.argsort(-np.asarray(values), kind="stable")[:N_TRIED]]


@cache
def _chance(freedom: int, n_features: int) -> float:
    """Return the gain of further terms that chance alone exceeds at the stated significance."""
    return float(chi2.isf(SIGNIFICANCE / n_features, freedom))


def _descend(
    fits: Sequence[_Basis],
    starts: Sequence[FloatArray],
    points: Points,
    missed: Counts,
    fewest: int,
) -> list[FloatArray]:
    """Improve the direction of each outcome by gradient steps; the best one met is kept.

    With soft membership ``s(z)`` of the slab, the missed share ``M = sum(s m) / sum(s)`` changes
    with the projection of a point by ``s'(z) (m - M) / sum(s)``. In each step the slab is the worst
    one along the current direction, with edges between bins.
    """
    w, best = list(starts), list(starts)
    most = np.full(len(w), -np.inf)
    edges = np.linspace(-REACH, REACH, N_BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    row = N_BINS * np.arange(len(w))[:, None]
    sizes = np.broadcast_to(points.size, missed.shape).ravel()
    steps = zip(np.geomspace(*WIDTHS, N_STEPS), np.geomspace(*LENGTHS, N_STEPS), strict=True)
    for width, length in [*map(tuple, steps), (0.0, 0.0)]:
        z = np.stack([fit.columns @ one for fit, one in zip(fits, w, strict=True)])
        cell = np.clip((z + REACH) * (N_BINS / (2 * REACH)), 0, N_BINS - 1).astype(np.int64) + row
        n, m = (
            np.bincount(cell.ravel(), what, len(w) * N_BINS).reshape(-1, N_BINS)
            for what in (sizes, missed.ravel())
        )
        worst = worst_segments(sums(m.astype(np.int64)), sums(n.astype(np.int64)), fewest)
        share = worst.missed / worst.points
        for r in np.flatnonzero(share > most):
            most[r], best[r] = share[r], w[r]
        if not width:  # the last direction is only looked at
            break
        lower = np.where(worst.start == 0, -np.inf, edges[worst.start])[:, None]
        upper = np.where(worst.stop == N_BINS, np.inf, edges[worst.stop])[:, None]
        above, below = expit((middle - lower) / width), expit((upper - middle) / width)
        s = above * below
        slope = s * (below - above) / width  # s' = s (1 - above) - s (1 - below), over the width
        M = (s * m).sum(axis=1) / np.maximum((s * n).sum(axis=1), 1e-300)
        change = slope.ravel()[cell] * (missed - M[:, None] * points.size)
        for i, fit in enumerate(fits):
            gradient = change[i] @ fit.columns
            w[i] = _unit(w[i] + length * _unit(gradient - w[i] * (w[i] @ gradient)))
    return best


def _unit(w: FloatArray) -> FloatArray:
    """Scale a vector to length one; a zero vector stays."""
    length = float(np.linalg.norm(w))
    return w / length if length > 0 else w
