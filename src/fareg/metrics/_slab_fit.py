"""Fit directions to an outcome: choose few features that predict the misses, then descend.

Random directions find nothing beyond a few features, and descent in all coefficients fits noise. So
the start is a least-squares fit of the missed points on few features (with their squares and
products for a quadratic direction), added as long as they gain more than chance would. Gradient
steps in the coefficients of these features then lower the coverage of a slab with soft edges.
Nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

from fareg._validation import FloatArray
from fareg.metrics._slab_search import Counts, Points, Term, sums, terms, worst_segments

MAX_FEATURES = 4  # of a fitted direction
N_TRIED = 5  # sets of features whose joint fit is computed in each step
SIGNIFICANCE = 0.05  # of further features, over all features
N_STEPS = 4
WIDTHS = (0.3, 0.05)  # softness of the slab's edges in standard deviations, first and last step
LENGTHS = (0.5, 0.1)  # length of the step on the unit sphere, first and last
N_BINS = 128  # of projections, for the descent
REACH = 4.0  # the bins range from minus to plus this many standard deviations


def fitted_directions(points: Points, missed: Counts, sizes: Sequence[int]) -> Iterator[FloatArray]:
    """Yield, for each size of slab, a direction fitted to every outcome.

    ``missed`` of shape (n_outcomes, n_distinct) holds the missed points of each distinct row.
    """
    fit, total = Fit(points), len(points.row)
    rate = missed.sum(axis=1, keepdims=True) / total
    # By chance alone, the product of y with each column of a basis is standard normal.
    noise = np.sqrt(total * np.maximum(rate * (1 - rate), 1 / total))
    y = (missed - rate * points.size) / noise
    chosen = [fit.choose(*outcome) for outcome in zip(y, *fit.screen(y), strict=True)]
    for fewest in sizes:
        directions = []
        for features, target, counts in zip(chosen, y, missed, strict=True):
            w = _descend(fit.basis(features)[0], target, points, counts, fewest)
            directions.append(fit.direction(features, w))
        yield np.array(directions)


class Fit:
    """The standardised features of a table, of which a few explain the misses."""

    def __init__(self, points: Points) -> None:
        self.kind, self.weight = points.kind, points.size / len(points.row)
        self.center = self.weight @ points.numbers
        spread = np.sqrt(self.weight @ (points.numbers - self.center) ** 2)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.z = (points.numbers - self.center) / self.scale
        self.basis = cache(self._basis)

    def _basis(self, features: Term) -> tuple[FloatArray, FloatArray]:
        """Return the terms of features as uncorrelated columns of mean 0 and variance 1.

        Also return the coefficients of the terms in each column, shape (n_terms, n_columns).
        """
        products = [self.z[:, list(term)].prod(axis=1) for term in terms(features, self.kind)]
        columns = np.column_stack(products)
        columns -= self.weight @ columns
        variance, vectors = np.linalg.eigh((columns.T * self.weight) @ columns)
        real = variance > 1e-9 * max(variance[-1], 1e-300)
        mix = vectors[:, real] / np.sqrt(variance[real])
        return columns @ mix, mix

    def direction(self, features: Term, w: FloatArray) -> FloatArray:
        """Turn coefficients in a basis into a direction in the units of the table."""
        place = {term: k for k, term in enumerate(terms(range(len(self.center)), self.kind))}
        c = np.zeros(len(place))
        mixed = self.basis(features)[1] @ w
        for term, a in zip(terms(features, self.kind), mixed, strict=True):
            a = a / self.scale[list(term)].prod()
            c[place[term]] += a
            if len(term) == 2:  # a (x_i - m_i) (x_j - m_j), without its constant
                for one, other in (term, term[::-1]):
                    c[place[one,]] -= a * self.center[other]
        if not c.any():
            c[0] = 1.0  # with nothing to fit, any direction will do
        return c

    def screen(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gain of each feature alone and of each product of two, for every outcome."""
        d = self.z.shape[1]
        alone = [((y @ self.basis((k,))[0]) ** 2).sum(axis=1) for k in range(d)]
        together = np.zeros((len(y), d, d))
        for i in range(d - 1 if self.kind == "quadratic" else 0):
            product = self.z[:, [i]] * self.z[:, i + 1 :]
            product -= self.weight @ product
            variance = self.weight @ product**2
            gain = (y @ product) ** 2 / np.where(variance > 0, variance, np.inf)
            together[:, i, i + 1 :] = gain
        return np.column_stack(alone), together

    def choose(self, y: FloatArray, alone: FloatArray, together: FloatArray) -> Term:
        """Choose the features that predict the misses of one outcome, in increasing order.

        Start with the best feature, or the best pair for a quadratic direction, and add the best
        further feature as long as it gains more than chance would.
        """

        def gain(features: Term) -> float:
            return float(((y @ self.basis(features)[0]) ** 2).sum()) if features else 0.0

        def screened_gain(features: Term) -> float:
            pairs = combinations(features, 2)
            return float(alone[list(features)].sum() + sum(together[pair] for pair in pairs))

        d = len(alone)
        chosen: Term = ()
        while len(chosen) < min(MAX_FEATURES, d):
            n_new = 2 if not chosen and self.kind == "quadratic" and d > 1 else 1
            unused = [k for k in range(d) if k not in chosen]
            sets = [tuple(sorted(chosen + new)) for new in combinations(unused, n_new)]
            likely = sorted(sets, key=lambda features: -screened_gain(features))[:N_TRIED]
            best = max(likely, key=gain)
            if chosen:
                freedom = self.basis(best)[0].shape[1] - self.basis(chosen)[0].shape[1]
                if freedom < 1 or gain(best) - gain(chosen) < _chance(freedom, d):
                    break
            chosen = best
        return chosen


@cache
def _chance(freedom: int, n_features: int) -> float:
    """Return the gain of further terms that chance exceeds with probability ``SIGNIFICANCE``."""
    return float(chi2.isf(SIGNIFICANCE / n_features, freedom))


def _descend(
    columns: FloatArray, y: FloatArray, points: Points, missed: Counts, fewest: int
) -> FloatArray:
    """Improve the direction of an outcome by gradient steps; return the best direction met.

    With soft membership ``s(z)`` of the slab, the derivative of the missed share
    ``M = sum(s m) / sum(s)`` with respect to the projection of a point is
    ``s'(z) (m - M) / sum(s)``. Each step takes the worst slab along the current direction, with
    edges between bins.
    """
    w = best = _unit(columns.T @ y)
    most = -np.inf
    edges = np.linspace(-REACH, REACH, N_BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    steps = zip(np.geomspace(*WIDTHS, N_STEPS), np.geomspace(*LENGTHS, N_STEPS), strict=True)
    for width, length in [*steps, (0.0, 0.0)]:
        cell = (columns @ w + REACH) * (N_BINS / (2 * REACH))
        cell = np.clip(cell, 0, N_BINS - 1).astype(np.int64)
        n, m = (np.bincount(cell, x, N_BINS).astype(np.int64) for x in (points.size, missed))
        segments = worst_segments(sums(m[None]), sums(n[None])[0], fewest)
        start, stop, n_missed, n_points = (array[0] for array in segments)
        share = n_missed / n_points
        if share > most:
            most, best = share, w
        if not width:  # the last direction is only evaluated
            break
        lower = edges[start] if start else -np.inf
        upper = edges[stop] if stop < N_BINS else np.inf
        above, below = expit((middle - lower) / width), expit((upper - middle) / width)
        s = above * below
        slope = s * (below - above) / width  # s' = s (1 - above) - s (1 - below), over the width
        M = (s @ m) / max(s @ n, 1e-300)
        gradient = (slope[cell] * (missed - M * points.size)) @ columns
        w = _unit(w + length * _unit(gradient - w * (w @ gradient)))
    return best


def _unit(w: FloatArray) -> FloatArray:
    """Scale a vector to length one; a zero vector stays."""
    length = float(np.linalg.norm(w))
    return w / length if length > 0 else w
