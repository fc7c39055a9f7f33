"""What methods are compared with: sets of one threshold for all, and sets that know the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fareg._validation import BoolArray, FloatArray
from fareg.experiments._config import CONFIDENCE
from fareg.pvalues import conformal_quantile


def size_matched_threshold(scores: FloatArray, mean_size: float) -> float:
    """Return the one threshold at which sets of shape (n, n_classes) have a given mean size.

    >>> scores = np.array([[0.1, 0.5], [0.3, 0.9]])
    >>> (scores <= size_matched_threshold(scores, 1.5)).tolist()
    [[True, True], [True, False]]
    """
    n_labels = round(mean_size * len(scores))
    return float(np.sort(scores, axis=None)[max(n_labels - 1, 0)])


@dataclass(frozen=True, eq=False)
class SplitScores:
    """The scores behind split conformal sets, from which the sets of a comparison follow."""

    own: FloatArray  # (n_calibration,) of the true labels of the calibration rows
    scores: FloatArray  # (n_test, n_classes)

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, X_test: Any) -> SplitScores:
        """Ask a fitted classifier about calibration rows, with labels from 0, and test rows."""
        own = model.labelled_rows(X, y).score
        return cls(own, model.conformity_scores(X_test))

    def oracle_sets(
        self,
        inside: BoolArray,
        test_inside: BoolArray,
        *,
        confidence_level: float = CONFIDENCE,
        construction: str = "partition",
    ) -> BoolArray:
        """Return the sets of someone who knows the true group, shape (n_test, n_classes).

        ``inside`` and ``test_inside`` tell which calibration and test rows are in the group. A
        "partition" calibrates the group on its own members and the others on themselves. A "union"
        calibrates the others on all rows, and gives the group the larger of both thresholds.
        """
        of_group = conformal_quantile(self.own[inside], confidence_level=confidence_level)
        others = self.own if construction == "union" else self.own[~inside]
        of_others = conformal_quantile(others, confidence_level=confidence_level)
        if construction == "union":
            of_group = max(of_group, of_others)
        return self.scores <= np.where(test_inside, of_group, of_others)[:, None]
