"""Rectified conformal prediction: scores less a learned quantile, one threshold for everyone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fareg._validation import FloatArray, one_of
from fareg.calibration import Labelled, Rectified, learn_quantile
from fareg.classifiers._classifier import ConformalClassifier, Folds
from fareg.classifiers._teachers import Training, divide_rows


@dataclass(eq=False, repr=False)
class RectifiedConformalClassifier(ConformalClassifier):
    """Thresholds that follow a learned quantile of the scores.

    ``P(Y in C(X)) >= 1 - alpha``, exactly and whatever was learned; with ``label_conditional``,
    ``P(Y in C(X) | Y = y) >= 1 - alpha`` for every label. Nothing is promised at a single x. The
    better the quantile is learned, the more evenly coverage is spread.

    Boosted trees learn ``tau(x)``, the ``1 - alpha`` quantile of the score given the sensitive
    features, on rows that do not calibrate. Then ``V(x, y) - tau(x)`` is calibrated as a score of
    its own (Plassier et al. 2025): the threshold at x is ``tau(x)`` and a number for everyone.

    Parameters
    ----------
    sensitive_features : list of names or positions, or function of X, default=None
        What the quantile may depend on; None for all columns.
    estimator, confidence_level, conformity_score, label_conditional, calibration_size, \
allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    learn_from, cv
        As in :class:`FaReGClassifier`, for the rows that teach the quantile.

    Attributes
    ----------
    classes_, estimator_, n_calibration_
        As in :class:`SplitConformalClassifier`.

    References
    ----------
    Plassier, Fishkov, Dheur, Guizani, Ben Taieb, Panov & Moulines (2025), "Rectifying conformity
    scores for better conditional coverage".

    Examples
    --------
    >>> from fareg import RectifiedConformalClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = RectifiedConformalClassifier(
    ...     sensitive_features=list(data.sensitive), cv=2, random_state=0
    ... )
    >>> sets = clf.fit(data.X[:2500], data.y[:2500]).predict_set(data.X[2500:])
    >>> sets.shape
    (500, 6)
    >>> tau = clf.predict_shift(data.X[2500:])
    >>> group = data.group[2500:]
    >>> bool(tau[group].mean() > tau[~group].mean())
    True
    """

    learn_from: Annotated[str, one_of("auto", "train", "split")] = "auto"
    cv: Folds = 5

    def predict_shift(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Return ``tau(x)``, the learned quantile of the score, for each row: (n_samples,)."""
        people = self._people_of(X, sensitive_features)
        tau: FloatArray = self.calibration_.tau.predict(people)
        return tau

    def _calibrate(self, rows: Labelled, training: Training | None) -> Rectified:
        teachers, rest = divide_rows(
            rows, training, self.learn_from, self.key_, "learn a quantile from"
        )
        tau = learn_quantile(teachers, self.alpha_, seed=self.key_ % 2**32)
        return Rectified.fit(tau, rest, self.alpha_, label_conditional=self.label_conditional)
