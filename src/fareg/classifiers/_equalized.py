"""Equalized coverage over given groups: each sensitive feature, or their joint cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._frames import Levels, select_columns
from fareg._validation import IntArray, warn
from fareg.classifiers._mondrian import MondrianClassifier


class LevelCoding:
    """Sensitive features as level numbers, for a classifier with ``sensitive_features``."""

    sensitive_features: Any

    def _learn_levels(self, X: Any, X_train: Any) -> None:
        columns = select_columns(X, self.sensitive_features)
        if X_train is None:
            self.levels_ = [Levels.learn(column) for _, column in columns.items()]
            return
        reference = select_columns(X_train, self.sensitive_features)
        self.levels_ = [Levels.learn(columns[name], reference[name]) for name in columns]

    def _level_codes(self, X: Any) -> IntArray:
        """Return level numbers of shape (n_samples, n_features), -1 for a value never seen."""
        columns = select_columns(X, self.sensitive_features)
        pairs = zip(self.levels_, columns.items(), strict=True)
        return np.column_stack([levels.codes(column) for levels, (_, column) in pairs])


class _EqualizedClassifier(LevelCoding, MondrianClassifier):
    """Views made of the levels of the sensitive features."""

    def _warn_of_unseen(self, unseen: Any, what: str) -> None:
        if unseen.any():
            warn(
                f"{int(unseen.sum())} of {len(unseen)} rows have {what} that calibration never "
                "saw: they get the full set, the only valid answer without data"
            )


class PartialConformalClassifier(_EqualizedClassifier):
    """Equalized coverage for every level of every single sensitive feature.

    The set is the union over the features k of the sets calibrated on the rows that share the
    level of feature k, so ``P(Y in C(X) | X_k = v) >= 1 - alpha`` for every k and v
    (Romano, Barber, Sabatti & Candès 2020).

    Parameters
    ----------
    estimator, confidence_level, conformity_score, calibration_size, random_state
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        The features whose levels are protected; None for all columns. A missing value is a level of
        its own. A numeric feature with more than 20 distinct values is cut into quartiles: those of
        the training rows in ``fit``; in ``conformalize``, of the calibration rows.
    label_conditional : bool, default=False
        Calibrate every label on its own: ``P(Y in C(X) | X_k = v, Y = y) >= 1 - alpha``.

    Attributes
    ----------
    levels_ : list of Levels
        One per sensitive feature.

    Notes
    -----
    A row with a level that calibration never saw, or saw too rarely for the confidence level, gets
    the full set, with one warning.

    Examples
    --------
    >>> from fareg import PartialConformalClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = PartialConformalClassifier(sensitive_features=["Color", "Gender"], random_state=0)
    >>> sets = clf.fit(data.X[:2500], data.y[:2500]).predict_set(data.X[2500:])
    >>> sets.shape
    (500, 6)
    """

    def _learn_views(self, X: Any, X_train: Any) -> list[int]:
        self._learn_levels(X, X_train)
        return [len(levels.values) for levels in self.levels_]

    def _cells(self, X: Any) -> list[IntArray]:
        codes = self._level_codes(X)
        self._warn_of_unseen((codes < 0).any(axis=1), "a level of a sensitive feature")
        return list(codes.T)

    def _describe(self, view: int, cell: int) -> str:
        return self.levels_[view].label(cell)


class ExhaustiveConformalClassifier(_EqualizedClassifier):
    """Equalized coverage for every joint cell of the sensitive features.

    Each combination of levels is calibrated on its own rows, so
    ``P(Y in C(X) | X_1 = v_1, ..., X_m = v_m) >= 1 - alpha`` for every combination. The number of
    cells grows fast; those with too few rows get the full set.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, sensitive_features, label_conditional, \
calibration_size, random_state
        As in :class:`PartialConformalClassifier`.

    Attributes
    ----------
    levels_ : list of Levels
        One per sensitive feature.
    cells_ : int ndarray of shape (n_cells, n_sensitive_features)
        Level numbers of the combinations seen in calibration.

    Examples
    --------
    >>> from fareg import ExhaustiveConformalClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = ExhaustiveConformalClassifier(sensitive_features=["Color", "Gender"], random_state=0)
    >>> clf.fit(data.X, data.y).cells_
    array([[0, 0],
           [0, 1],
           [1, 0],
           [1, 1]])
    """

    def _learn_views(self, X: Any, X_train: Any) -> list[int]:
        self._learn_levels(X, X_train)
        self.cells_ = np.unique(self._level_codes(X), axis=0)
        return [len(self.cells_)]

    def _cells(self, X: Any) -> list[IntArray]:
        known = pd.MultiIndex.from_arrays(list(self.cells_.T))
        cells = known.get_indexer(pd.MultiIndex.from_arrays(list(self._level_codes(X).T)))
        self._warn_of_unseen(cells < 0, "a combination of sensitive features")
        return [cells.astype(np.int64)]

    def _describe(self, view: int, cell: int) -> str:
        pairs = zip(self.levels_, self.cells_[cell], strict=True)
        return " and ".join(levels.label(int(code)) for levels, code in pairs)
