"""Conformal p-values and quantiles, of all calibration points together or per category.

For a test score ``s`` and ``n`` calibration scores of its category,

    p   = (1 + #{s_i >= s}) / (n + 1),
    eta = the k-th smallest s_i,  k = ceil((n + 1)(1 - alpha)),

and ``p > alpha`` if and only if ``s <= eta`` (``eta`` is infinite when ``k > n``). If calibration
and test scores of a category are exchangeable, ``P(p <= alpha) <= alpha``.

If people have several calibration points, each person counts once: each point of a person with
``m`` points weighs ``1 / m``, and sums of weights replace numbers of points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fareg._validation import (
    FloatArray,
    IntArray,
    InvalidInputError,
    check_confidence_level,
    check_same_length,
)

__all__ = [
    "CalibrationScores",
    "conformal_pvalues",
    "conformal_quantile",
    "conformal_rank",
    "holm",
]

LARGEST_SUM = 2**52  # up to here, ratios of sums of weights are exact enough to be compared


def conformal_rank(n: Any, alpha: float, new: int = 1) -> Any:
    """Return ``k = ceil((n + 1)(1 - alpha))`` without floating-point errors.

    ``k = n + 1 - m``, where ``m`` is the largest whole number with ``m / (n + 1) <= alpha``.
    p-values are compared with ``alpha`` in the same way, so ranks and p-values always agree.

    Parameters
    ----------
    n : int or ndarray of int
        Number of calibration points, or the sum of their weights.
    alpha : float
        ``1 - confidence_level``, in (0, 1).
    new : int, default=1
        Weight of the test point.

    Returns
    -------
    k : int or ndarray of int
        Above ``n`` if there are too few points for the confidence.

    Examples
    --------
    >>> conformal_rank(99, 0.45)
    55
    >>> conformal_rank(8, 0.1)
    9
    """
    if not 0 < alpha < 1:
        raise InvalidInputError(f"alpha must be in (0, 1), got {alpha}")
    total = np.asarray(n, dtype=np.int64) + new
    m = np.rint(alpha * total).astype(np.int64)
    k = total - np.where(m / total <= alpha, m, m - 1)
    return k if k.ndim else int(k)


@dataclass(frozen=True)
class CalibrationScores:
    """Calibration scores sorted for lookups: by category, then by score.

    Create it with :meth:`sort`. In a lookup, category ``-1`` means "never seen": it has no
    calibration points, so the threshold is infinite and p-values are one.

    Examples
    --------
    >>> calibration = CalibrationScores.sort([0.3, 0.1, 0.2, 0.4], [0, 0, 1, 1], n_categories=2)
    >>> calibration.quantiles(alpha=0.4)
    array([0.3, 0.4, inf])
    """

    pooled: FloatArray  # (n,) all scores, sorted
    keys: IntArray  # (n,) category * (n + 1) + rank among the pooled scores, sorted
    starts: IntArray  # (n_categories + 1,) where each category begins in keys
    before: IntArray  # (n + 1,) total weight of the keys before each position
    new: int  # weight of a test point

    @classmethod
    def sort(
        cls,
        scores: npt.ArrayLike,
        categories: Any = None,
        n_categories: int = 1,
        sizes: IntArray | None = None,
        weights: IntArray | None = None,
        new: int = 1,
    ) -> CalibrationScores:
        """Sort scores of shape (n,) with category numbers of shape (n,), None for one category.

        ``sizes`` of shape (n,) are the numbers of points of each point's person, in all categories
        together; None if each person has one point. Instead of them, pass ``weights`` of the
        points, and ``new``, the weight of a test point.
        """
        scores = np.asarray(scores, dtype=np.float64)
        if scores.ndim != 1 or np.isnan(scores).any():
            raise InvalidInputError(
                f"scores must be one-dimensional without NaN, got shape {scores.shape}"
                f" and {int(np.isnan(scores).sum())} NaN"
            )
        categories = np.asarray(np.zeros(len(scores)) if categories is None else categories, int)
        check_same_length(scores=scores, categories=categories)
        order = np.argsort(scores)
        pooled = scores[order]
        keys = np.searchsorted(pooled, pooled)  # sorted values are found 10 times faster
        keys += categories[order] * (len(scores) + 1)
        if sizes is not None:
            weights, new = _weights(sizes)
        if weights is None:
            keys.sort()
            before = np.arange(len(keys) + 1)
        else:
            rising = np.argsort(keys)
            keys, before = keys[rising], np.append(0, np.cumsum(weights[order][rising]))
        starts = np.searchsorted(keys, np.arange(n_categories + 1) * (len(scores) + 1))
        return cls(pooled, keys, starts, before, new)

    @property
    def totals(self) -> IntArray:
        """Total weight of each category."""
        return np.diff(self.before[self.starts])

    def quantiles(self, alpha: float) -> FloatArray:
        """Return the threshold of each category, with a last entry for category -1."""
        thresholds = np.full(len(self.starts), np.inf)
        k = conformal_rank(self.totals, alpha, self.new)
        enough = np.flatnonzero(k <= self.totals)
        target = self.before[self.starts[enough]] + k[enough]
        keys = self.keys[np.searchsorted(self.before, target) - 1]
        thresholds[enough] = self.pooled[keys % (len(self.pooled) + 1)]
        return thresholds

    def pvalues(self, scores: FloatArray, categories: Any = 0, u: Any = None) -> FloatArray:
        """Return the p-value of each score in its category, the smoothed one if ``u`` is given."""
        categories = np.broadcast_to(np.asarray(categories, dtype=np.int64), scores.shape)
        seen = categories >= 0
        categories = np.where(seen, categories, 0)
        n, new = self.totals[categories], self.new
        end = self.before[self.starts[1:]][categories]
        at_least = end - self._below(scores, categories, "left")
        if u is None:
            return np.where(seen, (new + at_least) / (n + new), 1.0)
        above = end - self._below(scores, categories, "right")
        smoothed = (above + np.asarray(u) * (new + at_least - above)) / (n + new)
        return np.where(seen, smoothed, np.broadcast_to(u, scores.shape))

    def _below(self, scores: FloatArray, categories: IntArray, side: Any) -> IntArray:
        """Return the total weight of the keys before each score, also of earlier categories."""
        ranks = np.searchsorted(self.pooled, scores, side=side)
        return self.before[np.searchsorted(self.keys, categories * (len(self.pooled) + 1) + ranks)]


def _weights(sizes: IntArray) -> tuple[IntArray, int]:
    """Return the weight of each point and of a person as whole numbers, whose sums are exact.

    A person weighs the least common multiple of all sizes. If that is too large, a person weighs a
    large number instead, and the weights of points are rounded up.

    >>> _weights(np.array([2, 2, 3, 3, 3, 1]))
    (array([3, 3, 2, 2, 2, 6]), 6)
    """
    person = math.lcm(*np.unique(sizes).tolist())
    if person * (len(sizes) + 1) > LARGEST_SUM:
        person = LARGEST_SUM // (2 * len(sizes))
    return -(-person // sizes), person


def conformal_quantile(
    scores: npt.ArrayLike, *, confidence_level: float, categories: npt.ArrayLike | None = None
) -> Any:
    """Return the conformal threshold: the k-th smallest score, infinite when k is above n.

    ``P(S_{n+1} <= eta) >= 1 - alpha`` for exchangeable scores, within each category.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Calibration scores.
    confidence_level : float
        ``1 - alpha`` in (0, 1), such as 0.9.
    categories : array-like of int of shape (n,), default=None
        Category numbers from 0; None for one category.

    Returns
    -------
    threshold : float, or ndarray of shape (n_categories,) with ``categories``

    Examples
    --------
    >>> conformal_quantile([0.3, 0.1, 0.2, 0.4], confidence_level=0.75)
    0.4
    >>> conformal_quantile([0.3, 0.1, 0.2, 0.4], confidence_level=0.9)
    inf
    >>> conformal_quantile([0.3, 0.1, 0.2, 0.4], confidence_level=0.6, categories=[0, 0, 1, 1])
    array([0.3, 0.4])
    """
    alpha = check_confidence_level(confidence_level)
    if categories is None:
        return float(CalibrationScores.sort(scores).quantiles(alpha)[0])
    categories = np.asarray(categories, dtype=np.int64)
    n_categories = int(categories.max(initial=-1)) + 1
    return CalibrationScores.sort(scores, categories, n_categories).quantiles(alpha)[:-1]


def conformal_pvalues(
    calibration_scores: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    calibration_categories: npt.ArrayLike | None = None,
    categories: npt.ArrayLike | None = None,
    u: npt.ArrayLike | None = None,
) -> FloatArray:
    """Return the conformal p-value of each score, ``P(p <= t) <= t`` under exchangeability.

    Parameters
    ----------
    calibration_scores : array-like of shape (n,)
    scores : array-like of any shape
        Test scores, for example of shape (n_samples, n_classes).
    calibration_categories : array-like of int of shape (n,), default=None
        Category numbers from 0, for p-values within categories.
    categories : array-like of int, default=None
        Categories of the test scores, broadcast to the shape of ``scores``; the p-value is 1 for
        -1 and for a category without calibration points, where no score is strange.
    u : array-like, default=None
        Uniform numbers, broadcast to the shape of ``scores``: the smoothed p-value
        ``(#{s_i > s} + u (1 + #{s_i = s})) / (n + 1)``, which is exactly uniform.

    Returns
    -------
    p : ndarray of the shape of ``scores``

    Examples
    --------
    >>> conformal_pvalues([0.1, 0.2, 0.3, 0.4], [[0.05, 0.3, 0.9]])
    array([[1. , 0.6, 0.2]])
    """
    scores = np.asarray(scores, dtype=np.float64)
    if np.isnan(scores).any():
        raise InvalidInputError(f"scores must not contain NaN, got {int(np.isnan(scores).sum())}")
    if (calibration_categories is None) != (categories is None):
        raise InvalidInputError("pass calibration_categories and categories together, got only one")
    known: Any = [] if calibration_categories is None else calibration_categories
    tested = np.asarray(0 if categories is None else categories, dtype=np.int64)
    n_categories = int(max(np.max(known, initial=0), tested.max(initial=0))) + 1
    table = CalibrationScores.sort(calibration_scores, calibration_categories, n_categories)
    return table.pvalues(scores, tested, u)


def holm(p: FloatArray) -> FloatArray:
    """Return p-values adjusted for their number (Holm 1979).

    The probability that any true hypothesis gets an adjusted p-value <= a is at most a.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, stepped)
    return adjusted
