"""Conditional conformal prediction: valid on every group of a basis at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import Flag, Function, InvalidInputError
from fareg.calibration import ConditionalQuantiles, GroupBasis, Labelled, MappedBasis
from fareg.classifiers._classifier import ConformalClassifier
from fareg.classifiers._rows import Rows
from fareg.classifiers._teachers import Training, learn_levels


@dataclass(eq=False, repr=False)
class CondCPClassifier(ConformalClassifier):
    """Coverage on every group of a basis at once, overlapping groups included.

    ``P(Y in C(X) | X in G) >= 1 - alpha`` for every group G in the basis, by default every level of
    every sensitive feature; exactly ``1 - alpha`` with ``randomized`` and scores without ties
    (Gibbs, Cherian & Candès 2025).

    The threshold is a quantile regression of the scores on the basis, fitted to the calibration
    points and the test point itself. It depends on the row through its basis row only, so rows of
    the same groups share one fit.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, sensitive_features, calibration_size, \
allow_empty, random_state
        As in :class:`PartialConformalClassifier`.
    label_conditional : bool, default=False
        Fit a regression for each label: ``P(Y in C(X) | X in G, Y = y) >= 1 - alpha``.
    pairs : bool, default=False
        Add the joint levels of every pair of sensitive features to the basis.
    feature_map : callable, default=None
        A basis of your own: a function of X that returns numbers of shape (n_samples, n_basis). The
        guarantee then is ``E[f(X) (1{Y in C(X)} - (1 - alpha))] >= 0`` for every non-negative
        combination f of its columns. A constant column gives marginal coverage.
    randomized : bool, default=False
        Cut at a random dual level, a function of the row's values and ``random_state``, so that
        coverage is exact instead of at least ``1 - alpha``; sets get smaller, now and then empty.

    Attributes
    ----------
    levels_ : list of Levels
        One per sensitive feature; not there with ``feature_map``.

    Notes
    -----
    Dependent columns of the basis change nothing and are dropped. A row outside the span of the
    calibration rows, for example with a level never seen, gets the full set, and so does a row in
    groups with too few points for the confidence level; one warning tells.

    Labels that the estimator never saw can break the promise of a group, even if they are few in
    it, when they are many in another group that overlaps it: the fit counts them as covered there,
    and no set can contain them. Partial and exhaustive calibration do not have this weakness.

    References
    ----------
    Gibbs, Cherian & Candès (2025), "Conformal prediction with conditional guarantees".

    Examples
    --------
    >>> from fareg import CondCPClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = CondCPClassifier(sensitive_features=["Color", "Gender"], pairs=True, random_state=0)
    >>> sets = clf.fit(data.X[:2500], data.y[:2500]).predict_set(data.X[2500:])
    >>> sets.shape
    (500, 6)
    """

    pairs: Flag = False
    feature_map: Function | None = None
    randomized: Flag = False

    @property
    def levels_(self) -> list[Any]:
        """The levels of each sensitive feature; not there with ``feature_map``."""
        return list(self.calibration_.basis.coding.levels)

    def _promised_to(self) -> str | None:
        return "every group of the basis"

    def _calibrate(self, rows: Labelled, training: Training | None) -> ConditionalQuantiles:
        if self.feature_map is None:
            basis: Any = GroupBasis.learn(learn_levels(rows, training), rows.people, self.pairs)
        else:
            basis = MappedBasis()
        return ConditionalQuantiles.fit(
            basis,
            rows,
            self.alpha_,
            randomized=self.randomized,
            label_conditional=self.label_conditional,
        )

    def _people(self, rows: Rows) -> pd.DataFrame:
        if self.feature_map is None:
            return super()._people(rows)
        basis = np.asarray(self.feature_map(rows.X), dtype=np.float64)
        if basis.ndim != 2 or len(basis) != len(rows) or not np.isfinite(basis).all():
            raise InvalidInputError(
                f"feature_map must return finite numbers of shape ({len(rows)}, n_basis), "
                f"got shape {basis.shape}"
            )
        return pd.DataFrame(basis)
