"""Split conformal classification, the paper's Marginal."""

from __future__ import annotations

from dataclasses import dataclass

from fareg.calibration import CellCalibration, Everyone, Rows
from fareg.classifiers._base import ConformalClassifier


@dataclass(eq=False, repr=False)
class SplitConformalClassifier(ConformalClassifier):
    """Prediction sets with one threshold for everyone.

    ``1 - alpha <= P(Y in C(X)) <= 1 - alpha + 1 / (n + 1)`` for exchangeable data, the upper bound
    without ties; with ``label_conditional``, ``P(Y in C(X) | Y = y) >= 1 - alpha`` for every label.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``, default=None
        A classifier to train in ``fit``, or a fitted one in a ``FrozenEstimator`` for
        ``conformalize``; or anything with ``predict_proba`` and ``classes_``, such as
        :class:`ProbabilityColumns`. None stands for gradient boosting, which takes any table.
    confidence_level : float, default=0.9
        ``1 - alpha``, the coverage asked for.
    conformity_score : str or function, default="aps"
        A name in ``fareg.scores.SCORES`` or a function ``(proba, u) -> (n_samples, n_classes)``.
    sensitive_features : list of names or positions, or function, default=None
        Not used by this method; here because all methods share their parameters.
    label_conditional : bool, default=False
        Calibrate every label on its own.
    calibration_size : float, default=0.5
        Share of the rows that ``fit`` keeps for calibration.
    allow_empty : bool, default=True
        Whether a set may be empty. A randomised score leaves sets of easy rows empty now and then,
        when the estimator is right more often than ``confidence_level`` asks; with False, the most
        probable label joins such a set, and coverage can only rise.
    random_state : int, Generator or None, default=None
        Seeds the split in ``fit`` and the randomisation of scores. A row's set is a function of
        this seed, its values and its id, or its number among equal rows of the call, never of other
        rows.

    Attributes
    ----------
    alpha_ : float
        ``1 - confidence_level``, exact in decimals: 0.1 for 0.9.
    classes_ : ndarray of shape (n_classes,)
    column_kinds_ : dict or None
        "number", "text" or "date" for each column of a frame; None for an array.
    estimator_ : the fitted estimator
    excluded_ : list of int
        Positions of the columns of X that ``exclude_sensitive`` kept from the estimator.
    sensitive_kinds_ : dict or None
        As ``column_kinds_``, of the frame of sensitive features beside X; None without one.
    n_calibration_ : int
        How many rows calibrated, without those that taught.
    n_calibration_clusters_ : int or None
        How many clusters calibrated, each of which counts once; None if there were no clusters.
    n_repeated_ : int
        How many of the given rows equal an earlier one with its label and id; 0 without a random
        score.
    calibration_ : a calibration of ``fareg.calibration``
    parameters_ : dict
        The parameters of the last fit. Once a parameter is set to something else, answers are
        refused until the next ``fit`` or ``conformalize``, or until it is set back.
    thresholds_ : list of ndarray
        Thresholds per view and category; the last entry is for categories never seen.

    Examples
    --------
    >>> from fareg import SplitConformalClassifier
    >>> from fareg.datasets import make_synthetic
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = make_synthetic(2000, random_state=0)
    >>> X = data.X.filter(like="Feature")
    >>> clf = SplitConformalClassifier(LogisticRegression(), random_state=0)
    >>> clf.fit(X[:1500], data.y[:1500]).predict_set(X[1500:]).shape
    (500, 6)
    """

    def _calibrate(self, rows: Rows, training: Rows | None) -> CellCalibration:
        return CellCalibration.of(
            Everyone(), rows, self.alpha_, label_conditional=self.label_conditional
        )
