"""Nonconformity scores: pure functions ``(proba, u) -> (n_samples, n_classes)``.

A label enters the prediction set if its score is at most a threshold; larger is stranger. ``u``
holds one uniform number per row and makes a score continuous; ``None`` stands for 1, the score
without randomisation. All scores take the arguments of :func:`aps`. Labels of equal probability are
ranked by column, so a rerun gives the same set. Any fixed function of (x, y) is a valid score: the
choice affects the size of the sets, never their coverage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fareg._validation import (
    FloatArray,
    IntArray,
    InvalidInputError,
    check_choice,
    check_proba,
    check_same_length,
)

Score = Callable[[Any, Any], FloatArray]

__all__ = [
    "SCORES",
    "aps",
    "get_score",
    "is_adaptive",
    "is_randomised",
    "lac",
    "margin",
    "raps",
    "saps",
    "topk",
]


def _checked(proba: Any, u: Any) -> tuple[FloatArray, FloatArray]:
    """Return probabilities, and one number in [0, 1] per row as a column: 1 if ``u`` is None."""
    p = check_proba(proba)
    v: FloatArray = np.asarray(np.ones(len(p)) if u is None else u, dtype=np.float64)
    v = v.reshape(-1, 1)
    check_same_length(u=v, proba=p)
    if not ((v >= 0) & (v <= 1)).all():
        raise InvalidInputError("u must lie in [0, 1], one uniform number per row")
    return p, v


def _ranks(proba: FloatArray) -> IntArray:
    """Return the rank of each label in its row, 1 for the most probable."""
    order = np.argsort(-proba, axis=1, kind="stable")
    ranks: IntArray = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, proba.shape[1] + 1)[None, :], axis=1)
    return ranks


def aps(proba: npt.ArrayLike, u: npt.ArrayLike | None = None) -> FloatArray:
    """Adaptive prediction sets: the probability of higher ranked labels, plus ``u`` times its own.

    Romano, Sesia & Candès (2020), "Classification with valid and adaptive coverage".

    Parameters
    ----------
    proba : array-like of shape (n_samples, n_classes)
        Class probabilities; rows sum to one.
    u : array-like of shape (n_samples,), default=None
        Uniform numbers in [0, 1]; None for the non-randomised score.

    Returns
    -------
    scores : ndarray of shape (n_samples, n_classes)
        In [0, 1].

    Examples
    --------
    >>> aps([[0.5, 0.3, 0.2]]).round(3)
    array([[0.5, 0.8, 1. ]])
    >>> aps([[0.5, 0.3, 0.2]], [0.5]).round(3)
    array([[0.25, 0.65, 0.9 ]])
    """
    p, v = _checked(proba, u)
    order = np.argsort(-p, axis=1, kind="stable")
    mass = np.empty_like(p)  # of each label and all labels ranked higher
    up_to = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
    np.put_along_axis(mass, order, up_to, axis=1)
    # rounding of the sums must not give labels of probability zero different scores
    return np.where(p > 0, np.minimum(mass, 1.0), 1.0) - (1 - v) * p


def raps(
    proba: npt.ArrayLike,
    u: npt.ArrayLike | None = None,
    *,
    penalty: float = 0.01,
    free_ranks: int = 5,
) -> FloatArray:
    """Regularised APS: ``aps`` plus ``penalty`` for every rank beyond ``free_ranks``.

    Angelopoulos, Bates, Malik & Jordan (2021), "Uncertainty sets for image classifiers using
    conformal prediction".

    Parameters
    ----------
    proba, u : array-like
        As for :func:`aps`.
    penalty : float, default=0.01
        The paper's lambda.
    free_ranks : int, default=5
        The paper's k_reg.

    Examples
    --------
    >>> raps([[0.5, 0.3, 0.2]], penalty=0.1, free_ranks=1).round(3)
    array([[0.5, 0.9, 1.2]])
    """
    p = check_proba(proba)
    return aps(p, u) + penalty * np.maximum(0, _ranks(p) - free_ranks)


def lac(proba: npt.ArrayLike, u: npt.ArrayLike | None = None) -> FloatArray:
    """Least ambiguous classifier: one minus the label's probability; ``u`` is not used.

    Scores lie in [0, 1]. Sadinle, Lei & Wasserman (2019), "Least ambiguous set-valued classifiers
    with bounded error levels".

    Examples
    --------
    >>> lac([[0.5, 0.3, 0.2]]).round(3)
    array([[0.5, 0.7, 0.8]])
    """
    p, _ = _checked(proba, u)
    return 1 - p


def saps(
    proba: npt.ArrayLike, u: npt.ArrayLike | None = None, *, weight: float = 0.2
) -> FloatArray:
    """Sorted APS: keep only the largest probability and count ranks after it.

    ``u * p_max`` for the first label, ``p_max + (rank - 2 + u) * weight`` for the others. Huang,
    Xi, Zhang, Yao, Qiu & Wei (2024), "Conformal prediction for deep classifier via label ranking".

    Parameters
    ----------
    proba, u : array-like
        As for :func:`aps`.
    weight : float, default=0.2
        The paper's lambda, the weight of one rank.

    Examples
    --------
    >>> saps([[0.5, 0.3, 0.2]], [0.5]).round(3)
    array([[0.25, 0.6 , 0.8 ]])
    """
    p, v = _checked(proba, u)
    top, ranks = p.max(axis=1, keepdims=True), _ranks(p)
    scores: FloatArray = np.where(ranks == 1, v * top, top + (ranks - 2 + v) * weight)
    return scores


def topk(proba: npt.ArrayLike, u: npt.ArrayLike | None = None) -> FloatArray:
    """Rank of the label; ``u`` spreads each rank over an interval of length one.

    Scores lie in [0, n_classes]. Angelopoulos, Bates, Malik & Jordan (2021), appendix.

    Examples
    --------
    >>> topk([[0.5, 0.2, 0.3]])
    array([[1., 3., 2.]])
    """
    p, v = _checked(proba, u)
    return _ranks(p) - 1 + v


def margin(proba: npt.ArrayLike, u: npt.ArrayLike | None = None) -> FloatArray:
    """Largest probability of the other labels minus the label's own; ``u`` is not used.

    Scores lie in [-1, 1]. Johansson, Linusson, Löfström & Boström (2017), "Model-agnostic
    nonconformity functions for conformal classification".

    Examples
    --------
    >>> margin([[0.5, 0.3, 0.2]]).round(3)
    array([[-0.2,  0.2,  0.3]])
    """
    p, _ = _checked(proba, u)
    if p.shape[1] == 1:
        return -p
    second, first = np.partition(p, -2, axis=1)[:, -2:].T
    best_other: FloatArray = np.where(_ranks(p) == 1, second[:, None], first[:, None])
    return best_other - p


SCORES: dict[str, Score] = {score.__name__: score for score in (aps, lac, margin, raps, saps, topk)}


def is_randomised(score: Score) -> bool:
    """Return whether a score may depend on ``u``.

    Examples
    --------
    >>> is_randomised(aps), is_randomised(lac)
    (True, False)
    """
    return score not in (lac, margin)


def is_adaptive(score: Score) -> bool:
    """Return whether a score covers all rows equally, up to a small penalty, if proba is true.

    Examples
    --------
    >>> is_adaptive(aps), is_adaptive(lac)
    (True, False)
    """
    return score in (aps, raps)


def get_score(conformity_score: str | Score) -> Score:
    """Return the score function with this name, or the function itself.

    Examples
    --------
    >>> get_score("lac") is lac
    True
    """
    if callable(conformity_score):
        return conformity_score
    if not isinstance(conformity_score, str):
        raise InvalidInputError(
            f"conformity_score must be a name or a function (proba, u), got {conformity_score!r}"
        )
    return SCORES[check_choice("conformity_score", conformity_score, SCORES)]
