"""Equalized coverage over given groups: each sensitive feature, or their joint cells."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fareg._levels import LevelCoding
from fareg._validation import IntArray
from fareg.calibration import CellCalibration, EveryFeature, JointLevels, Rows, Views
from fareg.classifiers._base import ConformalClassifier
from fareg.classifiers._learning import learn_levels


@dataclass(eq=False, repr=False)
class _EqualizedClassifier(ConformalClassifier):
    """Base of the methods whose cells are levels of the sensitive features."""

    @property
    def levels_(self) -> list[Any]:
        """The levels of each sensitive feature."""
        return list(self.calibration_.views.coding.levels)

    def _calibrate(self, rows: Rows, training: Rows | None) -> CellCalibration:
        views = self._views(learn_levels(rows, training), rows)
        return CellCalibration.of(
            views, rows, self.alpha_, label_conditional=self.label_conditional
        )

    @abstractmethod
    def _views(self, coding: LevelCoding, rows: Rows) -> Views:
        """Return how these rows fall into cells."""


@dataclass(eq=False, repr=False)
class PartialConformalClassifier(_EqualizedClassifier):
    """Equalized coverage for every level of every single sensitive feature.

    The set is the union over the features k of the sets calibrated on the rows that share the
    level of feature k, so ``P(Y in C(X) | X_k = v) >= 1 - alpha`` for every k and v
    (Romano, Barber, Sabatti & Candès 2020).

    Parameters
    ----------
    estimator, confidence_level, conformity_score, calibration_size, allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        The features whose levels are protected; None for all columns. A missing value is a level of
        its own. A numeric feature with more than 20 distinct values is cut into quartiles, which
        are those of the training rows in ``fit`` and of the calibration rows in ``conformalize``.
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

    def _views(self, coding: LevelCoding, rows: Rows) -> EveryFeature:
        return EveryFeature(coding)

    def _promised_to(self) -> str | None:
        return "every level of every sensitive feature"


@dataclass(eq=False, repr=False)
class ExhaustiveConformalClassifier(_EqualizedClassifier):
    """Equalized coverage for every joint cell of the sensitive features.

    Each combination of levels is calibrated on its own rows, so
    ``P(Y in C(X) | X_1 = v_1, ..., X_m = v_m) >= 1 - alpha`` for every combination. The number of
    cells grows fast; those with too few rows get the full set.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, sensitive_features, label_conditional, \
calibration_size, allow_empty, random_state
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

    @property
    def cells_(self) -> IntArray:
        """Level numbers of the combinations seen in calibration."""
        return self.calibration_.views.combinations

    def _views(self, coding: LevelCoding, rows: Rows) -> JointLevels:
        return JointLevels(coding, np.unique(coding.codes(rows.columns), axis=0))

    def _promised_to(self) -> str | None:
        return "every combination of levels of the sensitive features"
