"""Thresholds that are learned: quantile regression on groups, on regions, and on the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd

from fareg._validation import Count, Flag, FloatArray, Function, IntArray, InvalidInputError, one_of
from fareg.calibration import (
    Batch,
    ConditionalQuantiles,
    GroupBasis,
    Labelled,
    MappedBasis,
    Mondrian,
    Rectified,
    RegionSearch,
    learn_quantile,
    learn_region_cells,
)
from fareg.classifiers._classifier import ConformalClassifier, Folds
from fareg.classifiers._models import Training, divide_rows, learn_categories
from fareg.classifiers._rows import Rows


@dataclass(eq=False, repr=False, kw_only=True)
class CondCPClassifier(ConformalClassifier):
    """Coverage on every group of a basis at once, overlapping groups included.

    ``P(Y in C(X) | X in G) >= 1 - alpha`` for every group G in the basis, by default every category
    of every sensitive feature; exactly ``1 - alpha`` with ``randomized`` and scores without ties
    (Gibbs, Cherian & Candès 2025).

    The threshold is a quantile regression of the scores on the basis, fitted to the calibration
    rows and the test row itself. It depends on the test row only through its groups, so rows of the
    same groups share one fit.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, sensitive_features, calibration_size, \
allow_empty, random_state
        As in :class:`PartialConformalClassifier`.
    label_conditional : bool, default=False
        Fit one regression per label: ``P(Y in C(X) | X in G, Y = y) >= 1 - alpha``.
    pairs : bool, default=False
        Add the joint categories of every pair of sensitive features to the basis.
    feature_map : callable, default=None
        A basis of your own: a function of X that returns numbers of shape (n_samples, n_basis). The
        promise is then ``E[f(X) (1{Y in C(X)} - (1 - alpha))] >= 0`` for every non-negative
        combination f of its columns. A constant column gives marginal coverage.
    randomized : bool, default=False
        Cut at a random dual value, a function of the row's values and ``random_state``. Coverage is
        then exact instead of at least ``1 - alpha``, and sets are smaller, sometimes empty.

    Attributes
    ----------
    levels_ : list of Levels
        The categories of each sensitive feature; missing with ``feature_map``.

    Notes
    -----
    A row outside the span of the calibration rows, for example in a category never seen, gets the
    full set, and so does a row in groups with too few rows for the confidence level, with one
    warning. If a group holds many labels that the estimator never saw, the promise to groups that
    overlap it can break; Partial and Exhaustive calibration do not have this weakness.

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
        """The categories of each sensitive feature; missing with ``feature_map``."""
        return list(self.calibration_.basis.coding.levels)

    def _promised_to(self) -> str | None:
        return "every group of the basis"

    def _calibrate(self, rows: Labelled, training: Training | None) -> ConditionalQuantiles:
        if self.feature_map is None:
            basis: Any = GroupBasis.learn(learn_categories(rows, training), rows.people, self.pairs)
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


@dataclass(eq=False, repr=False, kw_only=True)
class PLCPClassifier(ConformalClassifier):
    """Learned regions of the sensitive features, with one threshold each.

    ``P(Y in C(X) | X in region) >= 1 - alpha`` for every region. Regions are learned on one half of
    the calibration rows (50,000 at most) and calibrated on the others; clusters are not divided.

    Soft regions ``h_i(x)`` and quantiles ``q_i`` minimise in turns the pinball loss
    ``mean_j sum_i h_i(x_j) pinball(q_i, R_j)`` of the ``1 - alpha`` quantile (Kiyani, Pappas &
    Hassani 2024), where ``R_j`` is the rank of a score. Rows whose scores have similar upper
    quantiles end up together. A row belongs to its most probable region.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, calibration_size, allow_empty
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        What the regions may depend on; None for all columns. Text is one-hot encoded, numbers are
        standardised; a category never seen sets no indicator.
    label_conditional : bool, default=False
        Calibrate every label separately within each region.
    random_state : int, Generator or None, default=None
        Seeds the same as in :class:`SplitConformalClassifier`, the choice of learning rows, and the
        restarts.
    n_regions : int, default=4
        An upper bound: regions with too few learning rows are left out.
    regions : {"network", "linear"}, default="network"
        Softmax of a network with one hidden layer of 16 units, or of a linear map.
    max_iter : int, default=30
        Largest number of rounds that update regions and quantiles.
    n_restarts : int, default=8
        Number of random starts; the one with the lowest loss is kept.

    Attributes
    ----------
    regions_ : Regions
        The learned model of h.
    kept_ : ndarray of int
        The regions in use.
    n_iter_ : int
        Number of rounds of the best restart.

    References
    ----------
    Kiyani, Pappas & Hassani (2024), "Conformal prediction with learned features".

    Examples
    --------
    >>> from fareg import PLCPClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(3000, random_state=0)
    >>> clf = PLCPClassifier(sensitive_features=list(data.sensitive), random_state=0)
    >>> sets = clf.fit(data.X[:2500], data.y[:2500]).predict_set(data.X[2500:])
    >>> sets.shape
    (500, 6)
    >>> bool(clf.predict_region(data.X[2500:]).max() < 4)
    True
    """

    n_regions: Count = 4
    regions: Annotated[str, one_of("network", "linear")] = "network"
    max_iter: Count = 30
    n_restarts: Count = 8

    def predict_region(self, X: Any, *, sensitive_features: Any = None) -> IntArray:
        """Return the region whose threshold each row gets, shape (n_samples,)."""
        self._check_fitted()
        positions = self._answer(self.calibration_.groups.cells, X, None, sensitive_features)
        return self.kept_[positions]

    @property
    def regions_(self) -> Any:
        """The learned model of h."""
        return self.calibration_.groups.regions

    @property
    def kept_(self) -> IntArray:
        """The regions in use."""
        kept: IntArray = self.calibration_.groups.kept
        return kept

    def _promised_to(self) -> str | None:
        return "every learned region"

    def _calibrate(self, rows: Labelled, training: Training | None) -> Mondrian:
        # These random numbers differ from those of the scores and of the split in fit.
        rng, aim = np.random.default_rng([self.key_, 2]), "learn regions from"
        learning, calibrating = divide_rows(rows, training, "split", self.key_, aim)
        if not len(learning):
            learning = rows.take(np.arange(1))  # a single row gives a single region
        search = RegionSearch(self.n_regions, self.regions, self.max_iter, self.n_restarts)
        regions, self.n_iter_ = learn_region_cells(learning, self.alpha_, search, rng)
        by_label = self.label_conditional
        return Mondrian.fit(regions, calibrating, self.alpha_, label_conditional=by_label)

    def _describe_rows(self, batch: Batch) -> dict[str, Any]:
        positions = self.calibration_.groups.cells(batch)
        return {"group": [f"region {region}" for region in self.kept_[positions]]}


@dataclass(eq=False, repr=False, kw_only=True)
class RectifiedConformalClassifier(ConformalClassifier):
    """Thresholds that follow a learned quantile of the scores.

    ``P(Y in C(X)) >= 1 - alpha``, whatever was learned; with ``label_conditional``,
    ``P(Y in C(X) | Y = y) >= 1 - alpha`` for every label. Nothing is promised for a single x. The
    better the quantile is learned, the more even is the coverage.

    Boosted trees learn ``tau(x)``, the ``1 - alpha`` quantile of the score given the sensitive
    features, on rows that do not calibrate. Then ``V(x, y) - tau(x)`` is calibrated as a score
    (Plassier et al. 2025): the threshold at x is ``tau(x)`` plus one number for everyone.

    Parameters
    ----------
    sensitive_features : list of names or positions, or function of X, default=None
        What the quantile may depend on; None for all columns.
    estimator, confidence_level, conformity_score, label_conditional, calibration_size, \
allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    learn_from, cv
        As in :class:`FaReGClassifier`, for learning the quantile.

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
        """Return ``tau(x)``, the learned quantile of the score, shape (n_samples,)."""
        people = self._read_people(X, sensitive_features)
        tau: FloatArray = self.calibration_.tau.predict(people)
        return tau

    def _calibrate(self, rows: Labelled, training: Training | None) -> Rectified:
        aim, by_label = "learn a quantile from", self.label_conditional
        learning, calibrating = divide_rows(rows, training, self.learn_from, self.key_, aim)
        tau = learn_quantile(learning, self.alpha_, seed=self.key_ % 2**32)
        return Rectified.fit(tau, calibrating, self.alpha_, label_conditional=by_label)
