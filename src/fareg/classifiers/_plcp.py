"""Partition learning conformal prediction: regions of the sensitive features, a quantile each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import softmax
from scipy.stats import rankdata
from sklearn.model_selection import train_test_split
from sklearn.utils.metaestimators import available_if

from fareg._encoding import one_hot_encoder
from fareg._frames import distinct_rows, row_uniforms, select_columns
from fareg._validation import BoolArray, FloatArray, IntArray, check_choice, check_count
from fareg.classifiers._base import MAX_LEARNING_ROWS
from fareg.classifiers._mondrian import MondrianClassifier

MODELS = {"linear": 0, "network": 16}  # hidden units
PENALTY = 1e-4  # on squared weights; scores are scaled to unit spread
STEPS = 100  # of L-BFGS between two updates of the quantiles


@dataclass(frozen=True)
class Regions:
    """Soft regions: softmax of a linear map, or of a network with one hidden layer of tanh."""

    hidden: FloatArray  # (n_inputs + 1, n_hidden), last row the bias; no columns: linear
    output: FloatArray  # (n_inputs or n_hidden + 1, n_regions), last row the bias

    @classmethod
    def unpack(cls, theta: FloatArray, n_inputs: int, n_hidden: int, n_regions: int) -> Regions:
        """Read both matrices from one vector."""
        cut = (n_inputs + 1) * n_hidden
        return cls(theta[:cut].reshape(n_inputs + 1, n_hidden), theta[cut:].reshape(-1, n_regions))

    def activations(self, Z: FloatArray) -> FloatArray:
        """Return what the output layer reads, of shape (n_samples, n_inputs or n_hidden)."""
        if self.hidden.shape[1] == 0:
            return Z
        return np.tanh(Z @ self.hidden[:-1] + self.hidden[-1])

    def proba(self, Z: FloatArray) -> FloatArray:
        """Return the memberships h of encoded rows, of shape (n_samples, n_regions)."""
        h: FloatArray = softmax(self.activations(Z) @ self.output[:-1] + self.output[-1], axis=1)
        return h


def pinball(scores: FloatArray, quantiles: FloatArray, alpha: float) -> FloatArray:
    """Return the loss of every score under every (1 - alpha)-quantile, shape (n, n_regions)."""
    excess = scores[:, None] - quantiles
    return np.maximum((1 - alpha) * excess, -alpha * excess)


def region_quantiles(scores: FloatArray, h: FloatArray, alpha: float) -> FloatArray:
    """Return the (1 - alpha)-quantile of the scores under the weights of each region."""
    order = np.argsort(scores, kind="stable")
    mass = np.cumsum(h[order], axis=0)
    # the smallest score with enough mass; the slack keeps 0.9 of ten equal weights the ninth
    reached = mass >= (1 - alpha) * mass[-1] * (1 - 1e-12)
    quantiles: FloatArray = scores[order][reached.argmax(axis=0)]
    return quantiles


def _loss(
    theta: FloatArray, Z: FloatArray, losses: FloatArray, n_hidden: int
) -> tuple[float, FloatArray]:
    """Return ``sum_j sum_i h_i(x_j) losses[j, i]`` with a penalty, and its gradient."""
    regions = Regions.unpack(theta, Z.shape[1], n_hidden, losses.shape[1])
    A, h = regions.activations(Z), regions.proba(Z)
    value = (h * losses).sum(axis=1, keepdims=True)
    d_logits = h * (losses - value)
    d_output = np.vstack([A.T @ d_logits, d_logits.sum(axis=0)])
    d_hidden = np.zeros_like(regions.hidden)
    if n_hidden:
        d_inner = (d_logits @ regions.output[:-1].T) * (1 - A**2)
        d_hidden = np.vstack([Z.T @ d_inner, d_inner.sum(axis=0)])
    gradient = np.concatenate([d_hidden.ravel(), d_output.ravel()]) + 2 * PENALTY * theta
    return float(value.sum() + PENALTY * theta @ theta), gradient


@dataclass(frozen=True)
class LearnedRegions:
    """Regions, their quantiles of shape (n_regions,), the pinball loss and the rounds it took."""

    regions: Regions
    quantiles: FloatArray
    loss: float
    n_iter: int


def learn_regions(
    Z: FloatArray,
    which: IntArray,
    scores: FloatArray,
    alpha: float,
    *,
    n_regions: int,
    n_hidden: int,
    max_iter: int,
    n_restarts: int,
    rng: np.random.Generator,
) -> LearnedRegions:
    """Minimise the pinball loss over regions and quantiles in turns; keep the best restart.

    Parameters
    ----------
    Z : ndarray of shape (n_distinct, n_inputs)
        Encoded sensitive features, each distinct row once: the loss depends on the others through
        sums over their equals only.
    which : int ndarray of shape (n,)
        The distinct row of each score.
    scores : ndarray of shape (n,)
    """
    spread = float(scores.std()) or 1.0
    order = np.argsort(scores, kind="stable")  # once: in order, later sorts are a single pass
    which, v = which[order], scores[order] / spread
    n_output = (n_hidden or Z.shape[1]) + 1
    size = (Z.shape[1] + 1) * n_hidden + n_output * n_regions
    found = []
    for _ in range(n_restarts):
        # quantiles apart from each other, around the level: regions have something to choose from
        strata = (np.arange(n_regions) + rng.random(n_regions)) / n_regions
        q = np.quantile(v, np.maximum(1 - 3 * alpha * (1 - strata), 0))
        start = rng.normal(size=size)
        found.append(_alternate(Z, which, v, alpha, start, q, n_hidden, max_iter))
    best = min(found, key=lambda result: result.loss)
    return replace(best, quantiles=best.quantiles * spread, loss=best.loss * spread)


def _alternate(
    Z: FloatArray,
    which: IntArray,
    v: FloatArray,
    alpha: float,
    theta: FloatArray,
    q: FloatArray,
    n_hidden: int,
    max_iter: int,
) -> LearnedRegions:
    """Update regions, then quantiles, until the loss stands still."""
    losses: list[float] = []
    for _ in range(max_iter):
        theta = minimize(
            _loss,
            theta,
            args=(Z, _sums(pinball(v, q, alpha), which, len(Z)) / len(v), n_hidden),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": STEPS},
        ).x
        regions = Regions.unpack(theta, Z.shape[1], n_hidden, len(q))
        h = regions.proba(Z)[which]
        q = region_quantiles(v, h, alpha)
        losses.append(float((h * pinball(v, q, alpha)).sum(axis=1).mean()))
        if len(losses) > 1 and losses[-1] > losses[-2] - 1e-5:
            break
    return LearnedRegions(regions, q, losses[-1], len(losses))


def _sums(values: FloatArray, which: IntArray, n_groups: int) -> FloatArray:
    """Add up the rows of each group, shape (n_groups, n_columns)."""
    return np.column_stack([np.bincount(which, column, n_groups) for column in values.T])


def _has_pvalues(clf: Any) -> bool:
    return bool(clf.calibration == "split")


class PLCPClassifier(MondrianClassifier):
    """Learned regions of the sensitive features, with one threshold each.

    ``P(Y in C(X) | X in region) >= 1 - alpha`` for every region with ``calibration="split"``, where
    regions are learned on one half of the calibration rows (50,000 at most) and calibrated on the
    others. As published, with ``calibration="reuse"`` and ``target="score"``, there is no guarantee
    in finite samples.

    Soft regions ``h_i(x)`` and quantiles ``q_i`` minimise the pinball loss
    ``mean_j sum_i h_i(x_j) pinball(q_i, V_j)`` at level ``1 - alpha`` in turns (Kiyani, Pappas &
    Hassani 2024): rows whose scores have alike upper quantiles end up together.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, calibration_size
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        What the regions may depend on; None for all columns. Text is one-hot encoded, numbers are
        standardised; a level never seen counts as none of the known ones.
    label_conditional : bool, default=False
        Calibrate every label on its own within each region.
    random_state : int, Generator or None, default=None
        Also seeds who learns and the restarts.
    n_regions : int, default=4
        An upper bound: regions that hold too few learning rows to be calibrated are left out.
    regions : {"network", "linear"}, default="network"
        Softmax of a network with one hidden layer of 16 units, or of a linear map.
    calibration : {"split", "reuse"}, default="split"
        "split": a row belongs to its most probable region, which is calibrated on rows that the
        regions were not learned on. "reuse", the published form: all rows learn regions and
        quantiles; a row's region is drawn from h(x), by its values and ``random_state``.
    target : {"rank", "score"}, default="rank"
        What the pinball loss is taken of. A score may be replaced by any rising function of it
        without changing a set, and its rank among the learning rows, spread evenly over [0, 1],
        tells regions apart far better where scores crowd near their maximum. "score" is as
        published.
    max_iter : int, default=30
        Rounds of updating regions and quantiles.
    n_restarts : int, default=8
        Random starts; the one with the lowest loss is kept.

    Attributes
    ----------
    regions_ : Regions
        The learned model of h.
    quantiles_ : ndarray of shape (n_regions,)
        Quantiles of the learning rows, weighted by membership; with "reuse" the thresholds, and
        then of shape (n_regions, n_classes) if ``label_conditional``.
    kept_ : ndarray of int
        The regions in use.
    loss_ : float
        The pinball loss of the target that was reached.
    n_iter_ : int
        Rounds that the kept restart took.

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
        n_regions: int = 4,
        regions: str = "network",
        calibration: str = "split",
        target: str = "rank",
        max_iter: int = 30,
        n_restarts: int = 8,
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
        self.n_regions = n_regions
        self.regions = regions
        self.calibration = calibration
        self.target = target
        self.max_iter = max_iter
        self.n_restarts = n_restarts

    def predict_region(self, X: Any) -> IntArray:
        """Return the region whose threshold each row gets, shape (n_samples,)."""
        X = self._check_X(X, caller="predict_region")
        return self.kept_[self._cells(X)[0]]

    @available_if(_has_pvalues)
    def predict_p(self, X: Any) -> FloatArray:
        """Return conformal p-values; ``predict_set(X)`` equals ``predict_p(X) > alpha_``.

        Only with ``calibration="split"``.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            ``P(p <= alpha | region) <= alpha``.
        """
        return super().predict_p(X)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("n_regions", self.n_regions)
        check_count("max_iter", self.max_iter)
        check_count("n_restarts", self.n_restarts)
        check_choice("regions", self.regions, MODELS)
        check_choice("calibration", self.calibration, ("split", "reuse"))
        check_choice("target", self.target, ("rank", "score"))

    def _calibrate(self, X: Any, scores: FloatArray, codes: IntArray, X_train: Any) -> None:
        # a key of its own: neither the scores nor the split in fit draw from it
        rng = np.random.default_rng([self.key_, 2])
        if self.calibration == "reuse":
            self._learn(X, scores, rng)
            if self.label_conditional:
                self._learn_label_quantiles(X, scores, codes)
            return
        if len(scores) < 2:  # nothing to learn from: one region
            self._learn(X, scores[:0], rng)
        else:
            n_learn = min(len(scores) // 2, MAX_LEARNING_ROWS)
            seed = int(rng.integers(2**32))
            X_learn, X, learned, scores, _, codes = train_test_split(
                X, scores, codes, train_size=n_learn, random_state=seed
            )
            self._learn(X_learn, learned, rng)
        super()._calibrate(X, scores, codes, X_train)

    def _learn(self, X: Any, scores: FloatArray, rng: np.random.Generator) -> None:
        """Learn regions and choose those in use; without scores, one region for all."""
        features = select_columns(X, self.sensitive_features)
        self.encoder_ = one_hot_encoder().fit(features)
        Z, which = self._encode(features)
        finite = scores[np.isfinite(scores)]
        if len(finite) == 0:
            nothing = np.zeros((Z.shape[1] + 1, 1))
            self.regions_, self.quantiles_ = Regions(nothing[:, :0], nothing), np.full(1, np.inf)
            self.kept_, self.loss_, self.n_iter_ = np.zeros(1, dtype=np.int64), np.nan, 1
            return
        if self.target == "rank":
            values = rankdata(scores) / len(scores)
        else:  # an infinite score has no gradient: a little above all others will do
            above = finite.max() + (np.ptp(finite) or 1.0) / 10
            values = np.clip(scores, finite.min(), above)
        learned = learn_regions(
            Z,
            which,
            values,
            self.alpha_,
            n_regions=self.n_regions,
            n_hidden=MODELS[self.regions],
            max_iter=self.max_iter,
            n_restarts=self.n_restarts,
            rng=rng,
        )
        self.regions_, self.loss_, self.n_iter_ = learned.regions, learned.loss, learned.n_iter
        h = learned.regions.proba(Z)[which]
        self.quantiles_ = region_quantiles(scores, h, self.alpha_)
        self.kept_ = np.arange(self.n_regions)
        if self.calibration == "split":
            counts = np.bincount(h.argmax(axis=1), minlength=self.n_regions)
            enough = counts >= min(math.ceil(1 / self.alpha_) - 1, counts.max())
            self.kept_ = np.flatnonzero(enough)

    def _learn_label_quantiles(self, X: Any, scores: FloatArray, codes: IntArray) -> None:
        h = self._memberships(X)
        labels = range(len(self.classes_))
        self.quantiles_ = np.column_stack(
            [self._quantiles_of(codes == label, scores, h) for label in labels]
        )

    def _quantiles_of(self, own: BoolArray, scores: FloatArray, h: FloatArray) -> FloatArray:
        if not own.any():  # a label without rows is kept everywhere
            return np.full(h.shape[1], np.inf)
        return region_quantiles(scores[own], h[own], self.alpha_)

    def _thresholds(self, X: Any) -> FloatArray:
        if self.calibration == "split":
            return super()._thresholds(X)
        return self.quantiles_.reshape(len(self.kept_), -1)[self._cells(X)[0]]

    def _memberships(self, X: Any) -> FloatArray:
        """Return h of each row, shape (n_samples, n_regions), computed once per distinct row."""
        Z, which = self._encode(select_columns(X, self.sensitive_features))
        return self.regions_.proba(Z)[which]

    def _encode(self, features: pd.DataFrame) -> tuple[FloatArray, IntArray]:
        """Return each distinct row as numbers, and which of them each row is."""
        first, which = distinct_rows(features)
        return np.asarray(self.encoder_.transform(features.iloc[first]), np.float64), which

    def _learn_views(self, X: Any, X_train: Any) -> list[int]:
        return [len(self.kept_)]

    def _cells(self, X: Any) -> list[IntArray]:
        h = self._memberships(X)[:, self.kept_]
        if self.calibration == "split":
            return [h.argmax(axis=1)]
        # draw from h: the first region whose cumulated membership exceeds the row's uniform
        u = row_uniforms(X, self.key_ + 1)[:, None]
        return [np.minimum((np.cumsum(h, axis=1) <= u).sum(axis=1), h.shape[1] - 1)]

    def _describe(self, view: int, cell: int) -> str:
        return f"region {self.kept_[cell]}"
