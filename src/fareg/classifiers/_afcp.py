"""Adaptively fair conformal prediction: protect the feature that looks worst for a test row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fareg._frames import distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray, check_count, warn
from fareg.classifiers._base import ConformalClassifier
from fareg.classifiers._equalized import LevelCoding
from fareg.pvalues import CalibrationScores, conformal_rank

SIGNIFICANCE = 0.1  # of the one-sided t-test in the published rule

# Where the new score t lies beside the boundary b, the k-th smallest calibration score: below, at,
# above. That alone decides which points of the augmented set are miscovered.
N_POSITIONS = 3


@dataclass(frozen=True)
class WorstLevels:
    """The worst level of every feature, for every way in which one new point can change it.

    A point of the augmented set is miscovered if its p-value among all N + 1 points is at most
    alpha, that is, if its score exceeds the k-th smallest, ``k = ceil((N + 1)(1 - alpha))``. With
    sorted calibration scores c and a new score t, that value is ``c[k]`` if ``t >= c[k]`` and
    ``max(t, c[k-1])`` otherwise. So calibration points are miscovered above ``c[k]`` or above
    ``c[k-1]``, the new point if ``t > c[k]``: three cases, whatever t is.
    """

    boundary: FloatArray  # (n_problems,) c[k] of the problem, infinite when k > N
    first: IntArray  # (n_features,) where the levels of a feature begin, "unseen" is its last
    worst: IntArray  # (n_positions * n_problems, n_levels) rank of the worst level, by own level
    significant: BoolArray  # (n_ranks,) whether the t-test finds such a level's rate above alpha

    @classmethod
    def count(
        cls,
        scores: FloatArray,
        levels: IntArray,
        problems: IntArray,
        *,
        n_levels: list[int],
        n_problems: int,
        alpha: float,
    ) -> WorstLevels:
        """Count miscovered points per level.

        ``levels`` has shape (n, n_features); ``problems`` of shape (n,) holds the label's number
        when every label is a problem of its own, else zeros.
        """
        first = np.concatenate([[0], np.cumsum(np.asarray(n_levels) + 1)])
        before, boundary = _boundaries(scores, problems, n_problems, alpha)
        cells = problems[:, None] * first[-1] + first[:-1] + levels

        def per_level(chosen: BoolArray) -> IntArray:
            counts = np.bincount(cells[chosen].ravel(), minlength=n_problems * first[-1])
            return counts.reshape(n_problems, first[-1])

        n = per_level(np.ones(len(scores), dtype=bool))
        low, high = per_level(scores > before[problems]), per_level(scores > boundary[problems])
        miscovered = np.stack([low, high, high])
        joins = np.array([0, 0, 1])[:, None, None]  # the new point itself is miscovered above b
        # a level's (rate, size) without the new point and with it; rate -1: no such level
        rates = np.stack([np.where(n > 0, miscovered / np.maximum(n, 1), -1.0)] * 2)
        rates[1] = (miscovered + joins) / (n + 1)
        sizes = np.broadcast_to(np.stack([n, n + 1])[:, None], rates.shape)
        # worse is the larger rate; of equal rates, the one with more evidence
        pairs, ranks = np.unique(
            np.column_stack([rates.ravel(), sizes.ravel()]), axis=0, return_inverse=True
        )
        without, own = ranks.reshape(2, N_POSITIONS * n_problems, first[-1])
        blocks = (without[:, start:end] for start, end in itertools.pairwise(first))
        others = np.hstack([_max_of_others(block) for block in blocks])
        significant = _exceeds(pairs[:, 0], pairs[:, 1], alpha)
        return cls(boundary, first[:-1], np.maximum(own, others), significant)

    def select(
        self, scores: FloatArray, levels: IntArray, n_levels: list[int], n_select: int | None
    ) -> IntArray:
        """Return the features selected with each placeholder label.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_classes)
        levels : int ndarray of shape (n_samples, n_features)
            Level numbers, -1 for a level never seen.
        n_levels : list of int
        n_select : int or None
            None: the worst one if its t-test is significant, else none.

        Returns
        -------
        selected : int ndarray of shape (n_samples, n_classes, n_select or 1)
            Feature numbers in rising order, -1 for none.
        """
        columns = self.first + np.where(levels >= 0, levels, n_levels)
        n_problems = len(self.boundary)
        position = (scores >= self.boundary).astype(np.int64) + (scores > self.boundary)
        if n_problems == 1:  # all labels share a problem: three cases per row
            cases = np.arange(N_POSITIONS)[None, :]
        else:
            cases = position * n_problems + np.arange(n_problems)
        ranks = self.worst[cases[:, :, None], columns[:, None, :]]
        if n_select is None:
            best = ranks.argmax(axis=2)[..., None]
            passed = self.significant[np.take_along_axis(ranks, best, axis=2)]
            selected = np.where(passed, best, -1)
        else:  # stable: of equally bad features, the first
            order = np.argsort(-ranks, axis=2, kind="stable")[..., :n_select]
            selected = np.sort(order, axis=2)
        if n_problems == 1:
            selected = np.take_along_axis(selected, position[..., None], axis=1)
        return selected


def _boundaries(
    scores: FloatArray, problems: IntArray, n_problems: int, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the (k-1)-th and the k-th smallest score of each problem, -inf and inf beyond."""
    order = np.lexsort((scores, problems))
    starts = np.searchsorted(problems[order], np.arange(n_problems + 1))
    n = np.diff(starts)
    k = conformal_rank(n, alpha)
    padded = np.append(scores[order], 0.0)
    before = np.where(k >= 2, padded[np.maximum(starts[:-1] + k - 2, 0)], -np.inf)
    boundary = np.where(k <= n, padded[np.minimum(starts[:-1] + k - 1, len(scores))], np.inf)
    return before, boundary


def _max_of_others(ranks: IntArray) -> IntArray:
    """Return for each column the largest value in the other columns, -1 if there are none."""
    top = ranks.argmax(axis=1)[:, None]
    rest = ranks.copy()
    np.put_along_axis(rest, top, -1, axis=1)
    largest = np.take_along_axis(ranks, top, axis=1)
    return np.where(np.arange(ranks.shape[1]) == top, rest.max(axis=1, keepdims=True), largest)


def _exceeds(rates: FloatArray, sizes: FloatArray, alpha: float) -> BoolArray:
    """Test ``rate > alpha`` by a one-sided t-test on ``sizes`` zeros and ones with that mean."""
    above = (rates > alpha) & (sizes >= 2)  # one point has no variance: no evidence
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (rates - alpha) / np.sqrt(rates * (1 - rates) / (sizes - 1))
    p = stats.t.sf(np.where(above, t, 0.0), np.maximum(sizes - 1, 1))
    return above & (p < SIGNIFICANCE)


class AFCPClassifier(LevelCoding, ConformalClassifier):
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
    estimator, confidence_level, conformity_score, sensitive_features, calibration_size, \
random_state
        As in :class:`PartialConformalClassifier`.
    label_conditional : bool, default=False
        Select and calibrate within each label: the guarantee then also holds given ``Y = y``.
    n_select : int or None, default=None
        None, the published rule: the worst feature, if a one-sided t-test at the 10% level finds
        the miscoverage rate of its worst level above alpha, else none. A number: always so many
        features, the worst ones, calibrated on their joint cell (1 and 2 are known as AFCP1 and
        AFCP2).

    Attributes
    ----------
    levels_ : list of Levels
        One per sensitive feature.

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

    def __init__(
        self,
        estimator: Any = None,
        *,
        confidence_level: float = 0.9,
        conformity_score: Any = "aps",
        sensitive_features: Any = None,
        label_conditional: bool = False,
        calibration_size: float = 0.5,
        random_state: Any = None,
        n_select: int | None = None,
    ) -> None:
        super().__init__(
            estimator,
            confidence_level=confidence_level,
            conformity_score=conformity_score,
            sensitive_features=sensitive_features,
            label_conditional=label_conditional,
            calibration_size=calibration_size,
            random_state=random_state,
        )
        self.n_select = n_select

    def predict_set(self, X: Any) -> BoolArray:
        """Return prediction sets, a bool ndarray of shape (n_samples, n_classes)."""
        X = self._check_X(X, caller="predict_set")
        scores = self._scores(X)
        sets: BoolArray = scores <= self._thresholds_at(X, scores)
        return sets

    def predict_p(self, X: Any) -> FloatArray:
        """Return p-values; ``predict_set(X)`` equals ``predict_p(X) > alpha_``.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            The largest of the marginal p-value and those in the selected cells.
        """
        X = self._check_X(X, caller="predict_p")
        scores = self._scores(X)
        p = np.zeros_like(scores)
        for rows, calibration, categories in self._views(X, scores):
            p[rows] = np.maximum(p[rows], calibration.pvalues(scores[rows], categories))
        return p

    def selected_features(self, X: Any) -> BoolArray:
        """Tell which sensitive features were selected for each row with every placeholder label.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)

        Returns
        -------
        selected : bool ndarray of shape (n_samples, n_sensitive_features)
            Columns in the order of ``levels_``.
        """
        X = self._check_X(X, caller="selected_features")
        selected = self._select(self._scores(X), self._level_codes(X))
        features = np.arange(len(self.levels_))
        chosen: BoolArray = (selected[..., None] == features).any(axis=2).all(axis=1)
        return chosen

    def selection_frequencies(self, X: Any) -> dict[str, float]:
        """Return the share of rows for which each sensitive feature was selected."""
        shares = self.selected_features(X).mean(axis=0)
        names = [levels.name for levels in self.levels_]
        return dict(zip(names, shares.tolist(), strict=True))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_select is not None:
            check_count("n_select", self.n_select)

    def _calibrate(self, X: Any, scores: FloatArray, codes: IntArray, X_train: Any) -> None:
        self._learn_levels(X, X_train)
        levels = self._level_codes(X)
        n_problems = len(self.classes_) if self.label_conditional else 1
        problems = codes if self.label_conditional else np.zeros_like(codes)
        # a label outside classes_ has no column, hence no problem of its own
        known = problems >= 0
        self.calibration_scores_ = scores[known]
        self.calibration_levels_ = levels[known]
        self.calibration_problems_ = problems[known]
        self.n_problems_ = n_problems
        self.worst_levels_ = self._count_worst_levels()

    def _count_worst_levels(self) -> WorstLevels:
        return WorstLevels.count(
            self.calibration_scores_,
            self.calibration_levels_,
            self.calibration_problems_,
            n_levels=[len(level.values) for level in self.levels_],
            n_problems=self.n_problems_,
            alpha=self.alpha_,
        )

    def _thresholds(self, X: Any) -> FloatArray:
        return self._thresholds_at(X, self._scores(X))

    def _thresholds_at(self, X: Any, scores: FloatArray) -> FloatArray:
        thresholds = np.full((len(scores), self.n_problems_), -np.inf)
        for rows, calibration, categories in self._views(X, scores):
            own = calibration.quantiles(self.alpha_)[categories]
            thresholds[rows] = np.maximum(thresholds[rows], own)
        return thresholds

    def _select(self, scores: FloatArray, levels: IntArray) -> IntArray:
        n_levels = [len(level.values) for level in self.levels_]
        return self.worst_levels_.select(scores, levels, n_levels, self.n_select)

    def _views(
        self, X: Any, scores: FloatArray
    ) -> Iterator[tuple[BoolArray, CalibrationScores, IntArray]]:
        """Yield rows, the calibration they need, and their categories: all rows, then selections.

        A row is in the view of a selection if some placeholder label led to that selection.
        """
        levels = self._level_codes(X)
        selected = self._select(scores, levels)
        everyone = np.ones(len(scores), dtype=bool)
        yield everyone, *self._calibration_of((), levels)
        selections = selected.reshape(-1, selected.shape[2])
        first, which = distinct_rows(pd.DataFrame(selections))
        which = which.reshape(selected.shape[:2])
        full = np.zeros(len(scores), dtype=bool)
        for number, selection in enumerate(selections[first]):
            if selection[0] < 0:  # nothing was selected
                continue
            rows = (which == number).any(axis=1)
            features = tuple(int(feature) for feature in selection)
            calibration, categories = self._calibration_of(features, levels[rows])
            full[rows] |= np.isinf(calibration.quantiles(self.alpha_)[categories]).any(axis=1)
            yield rows, calibration, categories
        if full.any():
            unseen = bool(np.isinf(self.calibration_scores_).any())
            cause = " or too many labels that the estimator never saw" if unseen else ""
            warn(
                f"{int(full.sum())} of {len(full)} rows fall into a selected cell with too few "
                f"calibration points{cause}: every such label is kept in the set; give more rows "
                "or coarser groups"
            )

    def _calibration_of(
        self, features: tuple[int, ...], levels: IntArray
    ) -> tuple[CalibrationScores, IntArray]:
        """Calibrate the joint cells of some features; return categories of the rows ``levels``."""
        cells = np.zeros(len(self.calibration_scores_), dtype=np.int64)
        own, n_cells = np.zeros(len(levels), dtype=np.int64), 1
        if features:
            seen = pd.MultiIndex.from_arrays(list(self.calibration_levels_[:, features].T))
            known = seen.unique()
            cells, n_cells = known.get_indexer(seen), len(known)
            own = known.get_indexer(pd.MultiIndex.from_arrays(list(levels[:, features].T)))
        calibration = CalibrationScores.sort(
            self.calibration_scores_,
            cells * self.n_problems_ + self.calibration_problems_,
            n_cells * self.n_problems_,
        )
        categories = own[:, None] * self.n_problems_ + np.arange(self.n_problems_)
        return calibration, np.where(own[:, None] >= 0, categories, -1)
