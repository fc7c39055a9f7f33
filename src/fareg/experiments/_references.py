"""What methods are compared with: sets of one threshold for all, and sets that know the group."""

from __future__ import annotations

from typing import Any

import numpy as np

from fareg._validation import BoolArray, FloatArray
from fareg.pvalues import conformal_quantile


def own_scores(model: Any, X: Any, y: Any) -> FloatArray:
    """Return the scores of true labels, which are numbered from 0, shape (n,)."""
    scores: FloatArray = model.conformity_scores(X)
    return scores[np.arange(len(scores)), y]


def size_matched_threshold(scores: FloatArray, mean_size: float) -> float:
    """Return the one threshold at which sets of shape (n, n_classes) have a given mean size.

    >>> scores = np.array([[0.1, 0.5], [0.3, 0.9]])
    >>> (scores <= size_matched_threshold(scores, 1.5)).tolist()
    [[True, True], [True, False]]
    """
    n_labels = round(mean_size * len(scores))
    return float(np.sort(scores, axis=None)[max(n_labels - 1, 0)])


def oracle_sets(
    own: FloatArray,
    inside: BoolArray,
    scores: FloatArray,
    test_inside: BoolArray,
    *,
    confidence_level: float,
    construction: str,
) -> BoolArray:
    """Return the sets of someone who knows the true group, shape (n, n_classes).

    ``own`` are the scores of the calibration rows' true labels; ``inside`` and ``test_inside`` tell
    which rows are in the group. A "partition" calibrates the group on its own members and the
    others on themselves. A "union" calibrates the others on all rows, and gives the group the
    larger of both thresholds.
    """
    of_group = conformal_quantile(own[inside], confidence_level=confidence_level)
    others = own if construction == "union" else own[~inside]
    of_others = conformal_quantile(others, confidence_level=confidence_level)
    if construction == "union":
        of_group = max(of_group, of_others)
    thresholds = np.where(test_inside, of_group, of_others)
    return scores <= thresholds[:, None]
