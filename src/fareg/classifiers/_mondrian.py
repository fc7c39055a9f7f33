"""Calibration within cells: the rows of a cell are calibrated on the cell's own points."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from fareg._validation import FloatArray, IntArray, warn
from fareg.classifiers._base import ConformalClassifier
from fareg.pvalues import CalibrationScores, conformal_rank

ABSENT = -2  # cell number of a row that a view says nothing about


class MondrianClassifier(ConformalClassifier):
    """Calibrate each cell of one or more partitions ("views"); the set is the union over views.

    With cells fixed before calibration, ``P(Y in C(X) | X in cell) >= 1 - alpha`` for each cell of
    each view (Vovk et al. 2003). A subclass defines ``_learn_views`` and ``_cells``.
    """

    def predict_p(self, X: Any) -> FloatArray:
        """Return conformal p-values; ``predict_set(X)`` equals ``predict_p(X) > alpha_``.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            The largest over the views. Each view's ``P(p <= alpha | cell) <= alpha``.
        """
        X = self._check_X(X, caller="predict_p")
        scores = self._scores(X)
        p = np.zeros_like(scores)
        for calibration, cells in zip(self.calibrations_, self._cells(X), strict=True):
            of_view = calibration.pvalues(scores, self._categories(cells))
            np.maximum(p, of_view, out=p, where=cells[:, None] != ABSENT)
        return p

    @abstractmethod
    def _learn_views(self, X: Any, X_train: Any) -> list[int]:
        """Fix the partitions and return the number of cells in each."""

    @abstractmethod
    def _cells(self, X: Any) -> list[IntArray]:
        """Return for each view the cell of each row; -1: never seen, ABSENT: not in the view."""

    def _describe(self, view: int, cell: int) -> str:
        """Name a cell in words."""
        return f"cell {cell}"

    def _calibrate(self, X: Any, scores: FloatArray, codes: IntArray, X_train: Any) -> None:
        self._calibrate_views(X, scores, codes, self._learn_views(X, X_train))

    def _calibrate_views(
        self, X: Any, scores: FloatArray, codes: IntArray, n_cells: list[int]
    ) -> None:
        self.calibrations_ = []
        for cells, count in zip(self._cells(X), n_cells, strict=True):
            categories, n_categories = cells, count
            if self.label_conditional:
                n_labels = len(self.classes_)
                # a label outside classes_ has no column, hence no category
                categories = np.where(codes >= 0, cells * n_labels + codes, -1)
                n_categories = count * n_labels
            self.calibrations_.append(CalibrationScores.sort(scores, categories, n_categories))
        self.thresholds_ = [c.quantiles(self.alpha_) for c in self.calibrations_]
        self._warn_of_unseen_labels(codes)
        self._warn_of_full_sets()

    def _thresholds(self, X: Any) -> FloatArray:
        largest = np.full((len(X), 1), -np.inf)
        for thresholds, cells in zip(self.thresholds_, self._cells(X), strict=True):
            of_view = thresholds[self._categories(cells)]
            of_view[cells == ABSENT] = -np.inf
            largest = np.maximum(largest, of_view)
        return largest

    def _categories(self, cells: IntArray) -> IntArray:
        """Return categories of shape (n_samples, 1), or (n_samples, n_classes) per label."""
        column = cells[:, None]
        if not self.label_conditional:
            return column
        n_labels = len(self.classes_)
        return np.where(column >= 0, column * n_labels + np.arange(n_labels), -1)

    def _warn_of_unseen_labels(self, codes: IntArray) -> None:
        """Name a cell in which labels that the estimator never saw are too many for the promise."""
        share = np.mean(codes < 0)
        if not 0 < share <= self.alpha_ or self.label_conditional:
            return  # there are none, or all rows together have been warned of already
        full = [
            self._describe(view, int(cell))
            for view, (calibration, thresholds) in enumerate(
                zip(self.calibrations_, self.thresholds_, strict=True)
            )
            for cell in np.flatnonzero(np.isinf(thresholds[:-1]))
            if conformal_rank(int(calibration.counts[cell]), self.alpha_)
            <= calibration.counts[cell]
        ]
        if full:
            others = f" and {len(full) - 1} more" if len(full) > 1 else ""
            warn(
                f"too many calibration labels for {full[0]}{others} were never seen by the "
                f"estimator, the promise allows a share of {self.alpha_:.3g}: sets there are full "
                "and still miss these labels"
            )

    def _warn_of_full_sets(self) -> None:
        n_needed = math.ceil(1 / self.alpha_) - 1  # smallest n with conformal_rank(n) <= n
        small = [
            (view, category)
            for view, calibration in enumerate(self.calibrations_)
            for category in np.flatnonzero(
                conformal_rank(calibration.counts, self.alpha_) > calibration.counts
            )
        ]
        if not small:
            return
        view, category = small[0]
        cell, label = int(category), ""
        if self.label_conditional:
            cell, column = divmod(cell, len(self.classes_))
            label = f" with label {self.classes_[column]}"
        others = f" and {len(small) - 1} more" if len(small) > 1 else ""
        warn(
            f"fewer than {n_needed} calibration points for {self._describe(view, cell)}{label}"
            f"{others}: every such label is kept in the set; give more rows or coarser groups"
        )
