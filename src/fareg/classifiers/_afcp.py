"""Adaptively fair conformal prediction: protect the feature that looks worst for a test row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fareg._validation import BoolArray, Count, require
from fareg.calibration import Labelled, SelectedLevels
from fareg.classifiers._classifier import ConformalClassifier
from fareg.classifiers._teachers import Training, learn_levels


@dataclass(eq=False, repr=False)
class AFCPClassifier(ConformalClassifier):
    """Equalized coverage for the sensitive feature that is selected for each test row.

    ``P(Y in C(X) | selected feature, its level) >= 1 - alpha``, where the selection is the one made
    with the true label, and ``P(Y in C(X)) >= 1 - alpha`` (Zhou & Sesia 2024).

    For every test row and every placeholder label, the row joins the calibration points with that
    label. Leave-one-out p-values tell which points of this augmented set are miscovered; a feature
    is as bad as its worst level's miscoverage rate, and the worst feature is selected. The set is
    the union over the placeholder labels of the sets calibrated on the rows that share the test
    row's level of the feature selected with that label, and of the marginal set.

    Parameters
    ----------
    label_conditional : bool, default=False
        Select and calibrate within each label: the guarantee then also holds given ``Y = y``.
    estimator, confidence_level, conformity_score, sensitive_features, calibration_size, \
allow_empty, random_state
        As in :class:`PartialConformalClassifier`.
    n_select : int or None, default=None
        How many features are selected for each row. None is the published rule: the worst feature
        is selected if a one-sided t-test at the 10% level finds the miscoverage rate of its worst
        level above alpha, and none otherwise. With a number, always so many of the worst features
        are selected and calibrated on their joint cell (1 and 2 are known as AFCP1 and AFCP2).

    Attributes
    ----------
    levels_ : list of Levels
        How each sensitive feature falls into levels.

    Notes
    -----
    Of equally bad levels the larger counts, of equally bad features the first. If the selected cell
    has no calibration rows, or too few for the confidence level, the row gets the full set, with
    one warning.

    The theorem conditions on the selection that the true label leads to. It says nothing about
    groups that were not selected, about combinations of features (unless ``n_select`` asks for
    them), or about rows picked by what `selected_features` reports: that is what all labels agree
    on, and conditioning on this agreement can bias the coverage.

    Adding one point leaves only three possible patterns of miscoverage, so the selections of all
    rows and labels are table look-ups: O(N log N) once, then O(n_features) per row and label.

    References
    ----------
    Zhou & Sesia (2024), "Conformal classification with equalized coverage for adaptively selected
    groups".

    Examples
    --------
    >>> from fareg import AFCPClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = AFCPClassifier(sensitive_features=list(data.sensitive), n_select=2, random_state=0)
    >>> sets = clf.fit(data.X[:2500], data.y[:2500]).predict_set(data.X[2500:])
    >>> sets.shape
    (500, 6)
    >>> clf.selected_features(data.X[2500:]).shape
    (500, 4)
    """

    n_select: Count | None = None

    def selected_features(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None
    ) -> BoolArray:
        """Tell which sensitive features were selected for each row with every placeholder label.

        Parameters
        ----------
        X, proba, sensitive_features
            As in :meth:`predict_set`.

        Returns
        -------
        selected : bool ndarray of shape (n_samples, n_sensitive_features)
            Columns in the order of ``levels_``.
        """
        batches = self._batches(X, proba, sensitive_features)
        parts = [self.calibration_.selected(batch) for batch in batches]
        selected, features = np.concatenate(parts), np.arange(len(self.levels_))
        return (selected[..., None] == features).any(axis=2).all(axis=1)

    @property
    def levels_(self) -> list[Any]:
        """The levels of each sensitive feature."""
        return list(self.calibration_.coding.levels)

    def _promised_to(self) -> str | None:
        return "everyone together, and given the level of the feature that is selected for a row"

    def _calibrate(self, rows: Labelled, training: Training | None) -> SelectedLevels:
        return SelectedLevels.fit(
            learn_levels(rows, training),
            rows,
            self.alpha_,
            n_select=self.n_select,
            label_conditional=self.label_conditional,
        )

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as that of an edited file."""
        super().check()
        require(self.calibration_.n_select == self.n_select, "n_select")
