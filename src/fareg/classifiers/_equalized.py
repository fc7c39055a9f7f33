"""One threshold for everyone, each category, each joint cell or each selected feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fareg._validation import BoolArray, Count, IntArray
from fareg.calibration import (
    Everyone,
    FeatureLevels,
    JointLevels,
    Labelled,
    Mondrian,
    SelectedLevels,
    Union,
)
from fareg.classifiers._classifier import ConformalClassifier
from fareg.classifiers._models import Training, learn_categories
from fareg.classifiers._naming import as_rules, check_rules, member_groups


@dataclass(eq=False, repr=False, kw_only=True)
class SplitConformalClassifier(ConformalClassifier):
    """Prediction sets with one threshold for everyone.

    ``1 - alpha <= P(Y in C(X)) <= 1 - alpha + 1 / (n + 1)`` for exchangeable data, the upper bound
    without ties; with ``label_conditional``, ``P(Y in C(X) | Y = y) >= 1 - alpha`` for every label.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``, default=None
        A classifier to train in ``fit``, or a fitted one in a ``FrozenEstimator`` for
        ``conformalize``; or anything with ``predict_proba`` and ``classes_``, such as
        :class:`ProbabilityColumns`. None means gradient boosting, which accepts any table.
    confidence_level : float, default=0.9
        ``1 - alpha``, the coverage to promise.
    conformity_score : str or function, default="aps"
        A name in ``fareg.scores.SCORES`` or a function ``(proba, u) -> (n_samples, n_classes)``.
    sensitive_features : list of names or positions, or function, default=None
        Not used by this method; it exists because all methods share their parameters.
    label_conditional : bool, default=False
        Calibrate every label separately.
    calibration_size : float, default=0.5
        Share of the rows that ``fit`` keeps for calibration.
    allow_empty : bool, default=True
        Whether a set may be empty. Randomised scores sometimes leave the set of an easy row empty;
        with False, such a set gets the most probable label, which can only raise coverage.
    random_state : int, Generator or None, default=None
        Seeds the split in ``fit`` and the random numbers of scores.

    Attributes
    ----------
    alpha_ : float
        ``1 - confidence_level`` without rounding errors: 0.1 for 0.9.
    classes_ : ndarray of shape (n_classes,)
    column_kinds_ : dict or None
        "number", "text" or "date" for each column of a frame; None for an array.
    estimator_ : the fitted estimator
    excluded_ : list of int
        Positions of the columns of X that ``exclude_sensitive`` hides from the estimator.
    sensitive_kinds_ : dict or None
        As ``column_kinds_``, for a separate frame of sensitive features; None without one.
    n_calibration_ : int
        Number of calibration rows, without learning rows.
    n_calibration_clusters_ : int or None
        Number of clusters that calibrated, each of which counts once; None without clusters.
    calibration_ : a calibration from ``fareg.calibration``
    parameters_ : dict
        The parameters of the last fit. If you change one, answers are refused until the next
        ``fit`` or ``conformalize``, or until you change it back.
    thresholds_ : ndarray of shape (n_cells, n_labels)
        The threshold of every cell that is calibrated separately, here one, and of every label, or
        one for all labels.

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

    _has_groups, _takes_weights, _draws = False, True, False

    def _calibrate(self, rows: Labelled, training: Training | None) -> Mondrian:
        return Mondrian.fit(Everyone(), rows, self.alpha_, label_conditional=self.label_conditional)


@dataclass(eq=False, repr=False, kw_only=True)
class PartialConformalClassifier(ConformalClassifier):
    """Equalized coverage for every category of every sensitive feature.

    For each feature k, a set is calibrated on the rows in the same category of feature k. Their
    union has ``P(Y in C(X) | X_k = v) >= 1 - alpha`` for every k and v (Romano, Barber, Sabatti &
    Candès 2020).

    Parameters
    ----------
    estimator, confidence_level, conformity_score, calibration_size, allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        The features whose categories are protected; None for all columns. Missing values are a
        category. A number with more than 20 distinct values is cut at its quartiles, those of the
        training rows in ``fit`` and of the calibration rows in ``conformalize``.
    label_conditional : bool, default=False
        Calibrate every label separately: ``P(Y in C(X) | X_k = v, Y = y) >= 1 - alpha``.
    groups : Rule or list of Rule, default=()
        Further groups with a threshold of their own, such as findings of an audit of other rows:
        ``P(Y in C(X) | X in G) >= 1 - alpha`` for each, if they were not chosen on these rows.

    Attributes
    ----------
    levels_ : list of Levels
        The categories of each sensitive feature.

    Notes
    -----
    A row in a category that calibration never saw, or saw too rarely for the confidence level, gets
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

    _takes_weights, _draws = True, False

    groups: Annotated[Any, check_rules] = ()

    @property
    def levels_(self) -> list[Any]:
        """The categories of each sensitive feature."""
        groups = (part.groups for part in self.calibration_.parts)
        return [group.levels for group in groups if isinstance(group, FeatureLevels)]

    @property
    def thresholds_(self) -> Any:
        """For each feature, the thresholds of its categories, shape (n_levels, n_labels)."""
        return [part.quantiles for part in self.calibration_.parts]

    def _calibrate(self, rows: Labelled, training: Training | None) -> Union:
        features = map(FeatureLevels, learn_categories(rows, training).levels)
        given = member_groups("groups", as_rules(self.groups), rows, training)
        groups: list[Any] = [*features, *given]
        by_label = self.label_conditional
        fits = (Mondrian.fit(g, rows, self.alpha_, label_conditional=by_label) for g in groups)
        return Union(tuple(fits))

    def _promised_to(self) -> str | None:
        promised = ["every category of every sensitive feature"]
        promised += [f"the rows with {rule}" for rule in as_rules(self.groups)]
        return " and for ".join(promised)


@dataclass(eq=False, repr=False, kw_only=True)
class ExhaustiveConformalClassifier(ConformalClassifier):
    """Equalized coverage for every joint cell of the sensitive features.

    Each combination of categories is calibrated on its own rows, so
    ``P(Y in C(X) | X_1 = v_1, ..., X_m = v_m) >= 1 - alpha`` for every combination. The number of
    cells grows fast; rows in cells that are too small get the full set.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, sensitive_features, label_conditional, \
calibration_size, allow_empty, random_state
        As in :class:`PartialConformalClassifier`.

    Attributes
    ----------
    levels_ : list of Levels
        The categories of each sensitive feature.
    cells_ : int ndarray of shape (n_cells, n_sensitive_features)
        Category numbers of the combinations seen in calibration.

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

    _takes_weights, _draws = True, False

    @property
    def cells_(self) -> IntArray:
        """Category numbers of the combinations seen in calibration."""
        combinations: IntArray = self.calibration_.groups.combinations
        return combinations

    @property
    def levels_(self) -> list[Any]:
        """The categories of each sensitive feature."""
        return list(self.calibration_.groups.coding.levels)

    def _calibrate(self, rows: Labelled, training: Training | None) -> Mondrian:
        groups = JointLevels.learn(learn_categories(rows, training), rows)
        return Mondrian.fit(groups, rows, self.alpha_, label_conditional=self.label_conditional)

    def _promised_to(self) -> str | None:
        return "every combination of categories of the sensitive features"


@dataclass(eq=False, repr=False, kw_only=True)
class AFCPClassifier(ConformalClassifier):
    """Equalized coverage for the sensitive feature that is selected for each test row.

    ``P(Y in C(X) | selected feature, its category) >= 1 - alpha``, where the feature is the one
    selected with the true label, and ``P(Y in C(X)) >= 1 - alpha`` (Zhou & Sesia 2024).

    Each test row joins the calibration rows with every placeholder label in turn. Leave-one-out
    p-values say which of these rows are miscovered. A feature is as bad as the miscoverage rate of
    its worst category, and the worst feature is selected. The set is the union of the marginal set
    and of one set per placeholder label: the one calibrated on the rows in the test row's category
    of the feature that this label selects.

    Parameters
    ----------
    label_conditional : bool, default=False
        Select and calibrate within each label: the promise then also holds given ``Y = y``.
    estimator, confidence_level, conformity_score, sensitive_features, calibration_size, \
allow_empty, random_state
        As in :class:`PartialConformalClassifier`.
    n_select : int or None, default=None
        How many of the worst features to select for each row and calibrate on their joint cell (1
        and 2 are known as AFCP1 and AFCP2). None is the published rule: select the worst one if a
        one-sided t-test with 10% significance finds the miscoverage rate of its worst category
        above alpha.

    Attributes
    ----------
    levels_ : list of Levels
        The categories of each sensitive feature.

    Notes
    -----
    Ties go to the larger category and to the first feature. If the selected cell has too few
    calibration rows for the confidence level, the row gets the full set, with one warning. The
    theorem is about the selection with the true label. It says nothing about groups that were not
    selected, about combinations of features (unless ``n_select`` asks for them), or about rows that
    you pick by `selected_features`, where all labels agree.

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
        """Return the sensitive features that every placeholder label selects for a row.

        Parameters
        ----------
        X, proba, sensitive_features
            As in :meth:`predict_set`.

        Returns
        -------
        selected : bool ndarray of shape (n_samples, n_sensitive_features)
            Columns in the order of ``levels_``.
        """
        self._check_fitted()
        selected = self._answer(self.calibration_.selected, X, proba, sensitive_features)
        features = np.arange(len(self.levels_))
        return (selected[..., None] == features).any(axis=2).all(axis=1)

    @property
    def levels_(self) -> list[Any]:
        """The categories of each sensitive feature."""
        return list(self.calibration_.coding.levels)

    def _promised_to(self) -> str | None:
        return "everyone together, and given the category of the feature that is selected for a row"

    def _calibrate(self, rows: Labelled, training: Training | None) -> SelectedLevels:
        return SelectedLevels.fit(
            learn_categories(rows, training),
            rows,
            self.alpha_,
            n_select=self.n_select,
            label_conditional=self.label_conditional,
        )
