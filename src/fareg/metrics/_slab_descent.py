"""Directions that are fitted to an outcome: the optimised search for the worst slab.

Random directions are blind beyond a few features: of the 65 coefficients of a quadratic in ten
features nearly all would have to be near zero. Descent from them in all coefficients fits noise.
So the search starts where few features explain who is missed, and descends in those only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

from fareg._validation import FloatArray, IntArray
from fareg.metrics._directions import Directions
from fareg.metrics._segments import Segments, worst_segment
from fareg.metrics._slab_search import CHUNK_ELEMENTS, Counts, Points

Term = tuple[int, ...]  # a feature, or the product of two

MAX_FEATURES = 4  # a direction uses at most so many features
N_TRIED = 5  # features or pairs whose joint fit is tried in each step
SIGNIFICANCE = 0.05  # of a further feature, over all features
N_STEPS = 4
WIDTHS = (0.3, 0.05)  # softness of the slab's edges in standard deviations, first and last step
LENGTHS = (0.5, 0.1)  # length of the step on the unit sphere, first and last
N_BINS = 128  # the descent looks at projections in bins
REACH = 4.0  # from minus to plus so many standard deviations
CACHE_ELEMENTS = 2**24  # numbers that the bases of feature sets may hold in memory


def fitted_directions(
    points: Points, counts: Counts, kind: str, min_points: Sequence[int]
) -> list[Directions]:
    """Fit a direction to every outcome, for each smallest number of points in a slab.

    Least squares of the missed points on few features (with their squares and products for a
    quadratic direction) is the start. Features enter one by one, as long as their gain is more than
    chance would give. Then the coverage of the slab with soft edges descends by gradient steps in
    the coefficients of these features. Cost per outcome: one pass over all pairs of features and
    ``N_STEPS`` passes over the points. Nothing is drawn at random.

    ``counts`` of shape (n_outcomes, n_distinct) holds the covered points of each distinct row. The
    answer has one direction per outcome for each entry of ``min_points``.
    """
    bases = _Bases(points, kind)
    fits = [bases.of(features) for features in _choose_features(bases, counts)]
    starts = [
        _unit(fit.basis.T @ (points.size - count)) for fit, count in zip(fits, counts, strict=True)
    ]
    step = max(1, 4 * CHUNK_ELEMENTS // len(points.size))
    answer = []
    for fewest in min_points:
        found = []
        for first in range(0, len(counts), step):
            part = slice(first, first + step)
            found += _descend(fits[part], starts[part], points.size, counts[part], fewest)
        directions = [fit.direction(w) for fit, w in zip(fits, found, strict=True)]
        answer.append(Directions.join(*directions))
    return answer


@dataclass(frozen=True)
class _Fit:
    """An orthonormal basis of the terms of some features, over all points.

    ``basis`` has mean 0 and unit variance; its columns are the terms times ``mix``.
    """

    basis: FloatArray  # (n_distinct, n_columns)
    mix: FloatArray  # (n_terms, n_columns)
    terms: tuple[Term, ...]
    bases: _Bases

    def direction(self, w: FloatArray) -> Directions:
        """Return coefficients in the basis as a direction in the table's own units."""
        center, scale = self.bases.center, self.bases.scale
        v, W = np.zeros(len(center)), np.zeros((len(center), len(center)))
        for term, a in zip(self.terms, self.mix @ w, strict=True):
            if len(term) == 1:
                v[term[0]] += a / scale[term[0]]
            else:  # a (x_i - m_i) (x_j - m_j) / (s_i s_j), without its constant
                i, j = term
                a = a / (scale[i] * scale[j])
                W[i, j] += a
                v[i] -= a * center[j]
                v[j] -= a * center[i]
        if not (v.any() or W.any()):
            v[0] = 1.0  # with nothing to fit, any direction will do
        return Directions(v[None], None if self.bases.kind == "linear" else W[None])


class _Bases:
    """The bases of sets of features, each made once."""

    def __init__(self, points: Points, kind: str) -> None:
        self.kind = kind
        self.size, self.n_points = points.size, len(points.row)
        self.weight = self.size / self.n_points
        self.n_features = points.numbers.shape[1]
        self.center = self.weight @ points.numbers
        spread = np.sqrt(self.weight @ (points.numbers - self.center) ** 2)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.z = (points.numbers - self.center) / self.scale
        self.known: dict[Term, _Fit] = {}

    def of(self, features: Term) -> _Fit:
        """Return the basis of some features."""
        features = tuple(sorted(features))
        if features not in self.known:
            if len(self.known) * len(self.z) * 8 > CACHE_ELEMENTS:
                self.known.clear()
            self.known[features] = self._make(features)
        return self.known[features]

    def _make(self, features: Term) -> _Fit:
        terms: tuple[Term, ...] = tuple((k,) for k in features)
        if self.kind == "quadratic":
            terms += tuple(combinations_with_replacement(features, 2))
        columns = np.column_stack([self.z[:, list(term)].prod(axis=1) for term in terms])
        columns -= self.weight @ columns
        variance, vectors = np.linalg.eigh((columns.T * self.weight) @ columns)
        real = variance > 1e-9 * max(variance[-1], 1e-300)
        mix = vectors[:, real] / np.sqrt(variance[real])
        return _Fit(columns @ mix, mix, terms, self)


def _choose_features(bases: _Bases, counts: Counts) -> list[Term]:
    """Choose for every outcome the features that tell who is missed."""
    size, n_points = bases.size, bases.n_points
    missed = size - counts.astype(np.float64)
    rate = missed.sum(axis=1, keepdims=True) / n_points
    noise = np.maximum(rate * (1 - rate), 1 / n_points)
    # By chance alone, the product of y with each column of a basis is standard normal.
    y = (missed - rate * size) / np.sqrt(n_points * noise)
    alone, together = _gains(bases, y)
    return [
        _choose(bases, one, own, pairs) for one, own, pairs in zip(y, alone, together, strict=True)
    ]


def _gains(bases: _Bases, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the gain of each feature alone and of each product, for every outcome."""
    n_features = bases.n_features
    alone = np.empty((len(y), n_features))
    for k in range(n_features):
        alone[:, k] = ((y @ bases.of((k,)).basis) ** 2).sum(axis=1)
    together = np.zeros((len(y), n_features, n_features))
    if bases.kind == "linear":
        return alone, together
    for i in range(n_features - 1):
        product = bases.z[:, [i]] * bases.z[:, i + 1 :]
        product -= bases.weight @ product
        variance = bases.weight @ product**2
        gain = (y @ product) ** 2 / np.where(variance > 0, variance, np.inf)
        together[:, i, i + 1 :] = together[:, i + 1 :, i] = gain
    return alone, together


def _choose(bases: _Bases, y: FloatArray, alone: FloatArray, together: FloatArray) -> Term:
    """Choose features for one outcome: the best to begin with, others while they gain enough."""

    def gain(features: Term) -> float:
        return float(((y @ bases.of(features).basis) ** 2).sum())

    n_features = bases.n_features
    chosen = max(_first(bases.kind, alone, together), key=gain)
    known = gain(chosen)
    while len(chosen) < min(MAX_FEATURES, n_features):
        promise = alone + together[list(chosen)].sum(axis=0)
        promise[list(chosen)] = -np.inf
        best = np.argsort(-promise, kind="stable")[: min(N_TRIED, n_features - len(chosen))]
        more = max(((*chosen, int(k)) for k in best), key=gain)
        freedom = bases.of(more).basis.shape[1] - bases.of(chosen).basis.shape[1]
        if freedom < 1 or gain(more) - known < _chance(freedom, n_features):
            break
        chosen, known = more, gain(more)
    return chosen


def _first(kind: str, alone: FloatArray, together: FloatArray) -> list[Term]:
    """Return the features, or pairs of them, to begin with."""
    n_features = len(alone)
    if kind == "linear" or n_features == 1:
        return [(int(k),) for k in np.argsort(-alone, kind="stable")[:N_TRIED]]
    i, j = np.triu_indices(n_features, 1)
    best = np.argsort(-(alone[i] + alone[j] + together[i, j]), kind="stable")[:N_TRIED]
    return [(int(i[pair]), int(j[pair])) for pair in best]


@cache
def _chance(freedom: int, n_features: int) -> float:
    """Return the gain of further terms that chance alone exceeds at the stated significance."""
    return float(chi2.isf(SIGNIFICANCE / n_features, freedom))


def _descend(
    fits: Sequence[_Fit],
    starts: Sequence[FloatArray],
    size: IntArray,
    counts: Counts,
    min_points: int,
) -> list[FloatArray]:
    """Improve the direction of each outcome by gradient steps; the best one met is kept.

    With soft membership ``s(z)`` of the slab, the coverage ``C = sum(s c) / sum(s)`` changes with
    the projection of a point by ``s'(z) (c - C) / sum(s)``. In each step the slab is the worst
    one along the current direction, with edges between bins.
    """
    w, best = list(starts), list(starts)
    least = np.full(len(w), np.inf)
    widths, lengths = np.geomspace(*WIDTHS, N_STEPS), np.geomspace(*LENGTHS, N_STEPS)
    row = N_BINS * np.arange(len(w))[:, None]
    sizes = np.broadcast_to(size, counts.shape).ravel()
    for step in range(N_STEPS + 1):
        z = np.stack([fit.basis @ one for fit, one in zip(fits, w, strict=True)])
        cell = np.clip((z + REACH) * (N_BINS / (2 * REACH)), 0, N_BINS - 1).astype(np.int64) + row
        n, k = (
            np.bincount(cell.ravel(), weights=what, minlength=len(w) * N_BINS).reshape(-1, N_BINS)
            for what in (sizes, counts.ravel())
        )
        n, k = n.astype(np.int64), k.astype(np.int64)
        worst = worst_segment(k, Segments.at_least(min_points, n))
        value = worst.covered / worst.points
        for r in np.flatnonzero(value < least):
            least[r], best[r] = value[r], w[r]
        if step == N_STEPS:
            break
        slope, C = _soft_slab(n, k, worst.start, worst.stop, widths[step])
        change = slope.ravel()[cell] * (counts - C[:, None] * size)
        for i, fit in enumerate(fits):
            gradient = change[i] @ fit.basis
            w[i] = _unit(w[i] - lengths[step] * _unit(gradient - w[i] * (w[i] @ gradient)))
    return best


def _soft_slab(
    n: IntArray, k: IntArray, start: IntArray, stop: IntArray, width: float
) -> tuple[FloatArray, FloatArray]:
    """Return the slope ``s'`` of soft membership in each bin, and the coverage of the soft slab."""
    edges = np.linspace(-REACH, REACH, N_BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    lower = np.where(start == 0, -np.inf, edges[start])[:, None]
    upper = np.where(stop == N_BINS, np.inf, edges[stop])[:, None]
    above, below = expit((middle - lower) / width), expit((upper - middle) / width)
    s = above * below
    slope = s * (below - above) / width  # s' = s (1 - above) - s (1 - below), over the width
    return slope, (s * k).sum(axis=1) / np.maximum((s * n).sum(axis=1), 1e-300)


def _unit(w: FloatArray) -> FloatArray:
    """Scale a vector to length one; a zero vector stays."""
    length = float(np.linalg.norm(w))
    return w / length if length > 0 else w
