"""FaReG: find the group that marginal sets under-cover, and calibrate it on its own."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact, rankdata
from sklearn.base import clone

from fareg._frames import row_draws, select_columns, take_rows
from fareg._validation import (
    FloatArray,
    IntArray,
    InvalidInputError,
    check_choice,
    check_count,
    warn,
)
from fareg.classifiers._base import MAX_LEARNING_ROWS, ConformalClassifier
from fareg.classifiers._mondrian import ABSENT, MondrianClassifier
from fareg.groups import (
    Explanation,
    GroupLearner,
    cells_of,
    cut_membership,
    distil_rule,
    explain_groups,
    plot_membership,
)
from fareg.metrics import clopper_pearson
from fareg.pvalues import CalibrationScores

MIN_ROWS = 60  # fewer calibration rows are not worth dividing
MIN_CELL_SHARE = 0.05
REFERENCE_ROWS = 2_000  # rows kept for explain()

PUBLISHED: dict[str, dict[str, Any]] = {
    "synthetic": {
        "max_iter": 2000,
        "learning_rate": 1e-3,
        "beta": 2.0,
        "delta": 0.3,
        "n_draws": 20,
    },
    "nursery": {"max_iter": 800, "learning_rate": 1e-2, "beta": 0.1, "delta": 0.1, "n_draws": 100},
}


class FaReGClassifier(MondrianClassifier):
    """Prediction sets that are valid on a group discovered in the data.

    A part of the calibration rows teaches a variational network where the marginal sets fail; the
    rest calibrates the discovered group and its complement, each on its own points. With the
    default ``calibration="split"``, ``P(Y in C(X) | X in cell) >= 1 - alpha`` for each discovered
    cell, hence marginally, in finite samples and for any distribution. If no group is credibly
    under-covered, the result is the plain split conformal set.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, label_conditional, calibration_size, random_state
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        The features that may define a group; None for all columns.
    construction : {"partition", "union"}, default="partition"
        "partition" cuts the learned membership into a group and its complement. "union" is the
        paper's Eq. (Construct): ``n_draws`` random groups drawn from the membership, each
        calibrated on its members; the set is the union over the row's groups and the marginal set.
        ``P(Y in C(X) | s_t = 1) >= 1 - alpha`` for every draw t, if ``calibration="split"``.
    calibration : {"split", "reuse"}, default="split"
        "split" learns the group on rows that do not calibrate. "reuse" learns and calibrates on
        the same rows, as published; no finite-sample guarantee is proven for it.
    target : {"score", "coverage"}, default="score"
        What the group is bad at: "coverage" is the paper's 0/1 indicator at the one level
        ``1 - alpha``; "score" is coverage averaged over the levels from ``1 - 5 alpha`` to 1, the
        same aim with far less noise.
    delta : float in (0, 1], default=0.2
        Smallest mean membership while learning.
    beta : float, default=0.01
        Weight of the KL term.
    n_draws : int, default=20
        The paper's T, for ``construction="union"``.
    base : conformal classifier, default=None
        Another method of this package whose sets define coverage and join the union.
    n_restarts, max_iter, learning_rate, batch_size, hidden_sizes, select_features, significance, \
published_scale, device
        See :class:`fareg.groups.GroupLearner`.

    Attributes
    ----------
    groups_ : DataFrame
        The discovered group and the rest: rule in words with its fidelity, share and number of
        calibration rows, coverage under the marginal sets with a 95% interval and a one-sided
        p-value (Fisher's exact test that coverage is lower than outside), threshold.
    learner_ : GroupLearner
        With ``history_``, ``screening_`` and ``membership``.
    n_iter_ : int
        Gradient steps taken to learn the group, 1 if none were.
    classes_, estimator_, n_calibration_, thresholds_
        As in :class:`SplitConformalClassifier`.

    Examples
    --------
    >>> from fareg import FaReGClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(4000, random_state=0)
    >>> clf = FaReGClassifier(sensitive_features=list(data.sensitive), random_state=0)
    >>> sets = clf.fit(data.X[:3500], data.y[:3500]).predict_set(data.X[3500:])
    >>> clf.groups_["rule"].iloc[0]
    '(Color=Blue and Gender=Male) or (Color=Red and Gender=Female)'
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
        construction: str = "partition",
        calibration: str = "split",
        target: str = "score",
        delta: float = 0.2,
        beta: float = 0.01,
        n_draws: int = 20,
        base: ConformalClassifier | None = None,
        n_restarts: int = 4,
        max_iter: int = 100,
        learning_rate: float = 0.01,
        batch_size: int = 1024,
        hidden_sizes: tuple[int, ...] = (16, 8),
        select_features: bool = True,
        significance: float | None = 0.1,
        published_scale: bool = False,
        device: str = "cpu",
        random_state: Any = None,
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
        self.construction = construction
        self.calibration = calibration
        self.target = target
        self.delta = delta
        self.beta = beta
        self.n_draws = n_draws
        self.base = base
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.hidden_sizes = hidden_sizes
        self.select_features = select_features
        self.significance = significance
        self.published_scale = published_scale
        self.device = device

    @classmethod
    def paper(cls, estimator: Any = None, *, data: str = "synthetic", **parameters: Any) -> Self:
        """Return the published configuration, with its hyperparameters for one of its data sets.

        Union over random draws, groups learned on half of the calibration rows, stopped early on
        the other half (4,096 rows of it at most), and calibrated on both; one network on all
        sensitive features, at the scale of the authors' code. Proven guarantees: none in finite
        samples.

        Parameters
        ----------
        estimator : classifier
        data : {"synthetic", "nursery"}, default="synthetic"
            Whose hyperparameters.
        **parameters
            Any parameter of the class, to change single settings.

        Examples
        --------
        >>> from fareg import FaReGClassifier
        >>> FaReGClassifier.paper(delta=0.4).n_draws
        20
        """
        published = PUBLISHED[check_choice("data", data, PUBLISHED)]
        common: dict[str, Any] = {
            "construction": "union",
            "calibration": "reuse",
            "target": "coverage",
            "n_restarts": 1,
            "batch_size": 500,
            "hidden_sizes": (64, 32),
            "select_features": False,
            "significance": None,
            "published_scale": True,
        }
        return cls(estimator, **{**common, **published, **parameters})

    def predict_group(self, X: Any) -> FloatArray:
        """Return the membership of each row in the disadvantaged group, (n_samples,) in [0, 1]."""
        return self._membership(self._check_X(X, caller="predict_group"))

    def explain(self) -> Explanation:
        """Say which features make the group and how: rule, rankings, latent traversal.

        Returns
        -------
        Explanation
            ``rule``, ``features``, ``ranking`` (latent perturbation beside permutation) and
            ``traversal``.
        """
        self._check_fitted("explain")
        return explain_groups(self.learner_, self.reference_, self.rule_, self.key_ % 2**32)

    def plot_groups(
        self, *, features: tuple[str, str] | None = None, steps: tuple[float, ...] = (0, 1, 2)
    ) -> Any:
        """Draw membership over two features while the latent is perturbed.

        Parameters
        ----------
        features : pair of names, default=None
            None for the two that matter most.
        steps : tuple of float, default=(0, 1, 2)
            Perturbations of the influential latent dimension, in units of its spread.

        Returns
        -------
        matplotlib.figure.Figure
        """
        self._check_fitted("plot_groups")
        names = [str(name) for name in self.reference_.columns]
        if not self.learner_.found_ or len(names) < 2:
            raise InvalidInputError(
                "plot_groups needs a discovered group and two features; got none"
            )
        if features is None:
            ranking = self.explain().ranking
            features = (str(ranking.index[0]), str(ranking.index[1]))
        unknown = [name for name in features if name not in names]
        if unknown or len(features) != 2:
            raise InvalidInputError(
                f"features must be two of {', '.join(names)}; got {', '.join(map(str, features))}"
            )
        return plot_membership(self.learner_, self.reference_, features, steps)

    def predict_p(self, X: Any) -> FloatArray:
        p = super().predict_p(X)
        if self.base_ is not None:
            if not hasattr(self.base_, "predict_p"):
                raise InvalidInputError(
                    f"{type(self.base_).__name__} has no p-values; use predict_set"
                )
            np.maximum(p, self.base_.predict_p(X), out=p)
        return p

    def _calibrate(self, X: Any, scores: FloatArray, codes: IntArray, X_train: Any) -> None:
        learn, rest = self._divide(len(scores))
        X_learn, X_rest = take_rows(X, learn), take_rows(X, rest)
        columns = select_columns(X_learn, self.sensitive_features)
        covered = self._covered(X_learn, scores[learn], codes[learn], X_train)
        self.learner_ = self._new_learner(self.key_ % 2**32).fit(columns, covered)
        steps = [entry["step"] for entry in self.learner_.history_ if entry["stage"] == "group"]
        self.n_iter_ = max(steps, default=1)
        q = self.learner_.membership(columns)
        self.cuts_ = (
            cut_membership(q, covered, min_share=MIN_CELL_SHARE)
            if self.learner_.found_
            else np.empty(0)
        )
        self.base_ = None
        if self.base is not None:
            self.base_ = clone(self.base)._calibrate_within(
                self, X_rest, scores[rest], codes[rest], X_train
            )
        n_views = {"partition": [len(self.cuts_) + 1], "union": [1] * (self.n_draws + 1)}
        self._calibrate_views(X_rest, scores[rest], codes[rest], n_views[self.construction])
        self.reference_ = columns.iloc[:REFERENCE_ROWS]
        inside = cells_of(q, self.cuts_) == len(self.cuts_)
        self.rule_ = distil_rule(columns[list(self.learner_.features_)], inside)
        self.groups_ = self._describe_groups(X_rest, scores[rest])

    def _divide(self, n: int) -> tuple[IntArray, IntArray]:
        """Return the rows that teach the group and the rows that calibrate."""
        order = np.random.default_rng(self.key_).permutation(n)
        if self.calibration == "reuse":
            return order, order
        if n < MIN_ROWS:
            warn(
                f"{n} calibration rows are too few to look for a group (fewer than {MIN_ROWS}): "
                "sets are those of SplitConformalClassifier; give more rows"
            )
            return order[:0], order
        n_learn = min(n // 2, MAX_LEARNING_ROWS)
        return order[:n_learn], order[n_learn:]

    def _covered(self, X: Any, scores: FloatArray, codes: IntArray, X_train: Any) -> FloatArray:
        """Return how well each learning row is covered, in [0, 1]."""
        margin = scores
        if self.base is not None and len(scores):
            base = clone(self.base)._calibrate_within(self, X, scores, codes, X_train)
            thresholds = np.broadcast_to(base._thresholds(X), (len(codes), len(self.classes_)))
            own = thresholds[np.arange(len(codes)), codes]
            margin = np.where(np.isinf(own), -np.inf, scores - own)
        elif self.target == "coverage":
            categories = codes if self.label_conditional else np.zeros_like(codes)
            calibration = CalibrationScores.sort(scores, categories, len(self.classes_))
            margin = np.where(scores <= calibration.quantiles(self.alpha_)[categories], -1.0, 1.0)
        if self.target == "coverage":
            return (margin <= 0).astype(np.float64)
        rank = np.empty(len(margin))
        for category in np.unique(codes) if self.label_conditional else [None]:
            rows = np.full(len(codes), True) if category is None else codes == category
            rank[rows] = rankdata(margin[rows]) / (rows.sum() + 1)
        # the share of levels t in [1 - 5 alpha, 1] whose marginal set covers the row: rank <= t
        return np.clip((1 - rank) / min(1.0, 5 * self.alpha_), 0.0, 1.0)

    def _new_learner(self, random_state: int) -> GroupLearner:
        shared = set(GroupLearner().get_params()) & set(self.get_params(deep=False))
        parameters = {name: getattr(self, name) for name in shared}
        parameters.update(cross_fit=self.calibration == "split", random_state=random_state)
        return GroupLearner(**parameters)

    def _membership(self, X: Any) -> FloatArray:
        return self.learner_.membership(select_columns(X, self.sensitive_features))

    def _cells(self, X: Any) -> list[IntArray]:
        q = self._membership(X)
        if self.construction == "partition":
            return [cells_of(q, self.cuts_)]
        draws = row_draws(X, self.key_ + 1, self.n_draws)
        members = [np.where(u < q, 0, ABSENT) for u in draws]
        return [np.zeros(len(q), dtype=np.int64), *members]

    def _learn_views(self, X: Any, X_train: Any) -> list[int]:
        raise AssertionError("views are learned in _calibrate")

    def _thresholds(self, X: Any) -> FloatArray:
        thresholds = super()._thresholds(X)
        if self.base_ is not None:
            thresholds = np.maximum(thresholds, self.base_._thresholds(X))
        return thresholds

    def _describe(self, view: int, cell: int) -> str:
        if self.construction == "union":
            return "all rows" if view == 0 else f"draw {view} of the group"
        if not len(self.cuts_):
            return "all rows"
        return "the discovered group" if cell == len(self.cuts_) else "the rest"

    def _describe_groups(self, X: Any, scores: FloatArray) -> pd.DataFrame:
        """Describe the cells on the rows that calibrate."""
        marginal = CalibrationScores.sort(scores).quantiles(self.alpha_)[0]
        covered = scores <= marginal
        cells = cells_of(self._membership(X), self.cuts_)
        rows = []
        for cell in range(len(self.cuts_), -1, -1):
            inside = cells == cell
            hit, n = int(covered[inside].sum()), int(inside.sum())
            low, high = clopper_pearson(hit, n)
            rest = covered.sum() - hit
            table = np.array([[hit, n - hit], [rest, len(covered) - n - rest]])
            rows.append(
                {
                    "group": self._name(cell),
                    "rule": self._rule_of(cell),
                    "fidelity": self.rule_.fidelity if len(self.cuts_) else 1.0,
                    "share": inside.mean(),
                    "n_calibration": n,
                    "coverage": hit / n if n else np.nan,
                    "low": float(low),
                    "high": float(high),
                    "p_value": fisher_exact(table, alternative="less").pvalue,
                    "threshold": self._group_threshold(cell),
                }
            )
        return pd.DataFrame(rows)

    def _name(self, cell: int) -> str:
        if not len(self.cuts_):
            return "everyone"
        return "group" if cell == len(self.cuts_) else "rest"

    def _rule_of(self, cell: int) -> str:
        if not len(self.cuts_):
            return "everyone"
        return self.rule_.text if cell == len(self.cuts_) else "all others"

    def _group_threshold(self, cell: int) -> float:
        """Return the threshold of a cell: of its strictest label, of its average draw."""
        if self.construction == "union":
            draws = [thresholds[:-1].max() for thresholds in self.thresholds_]
            in_group = len(self.cuts_) > 0 and cell == len(self.cuts_)
            return float(np.mean(draws[1:]) if in_group else draws[0])
        per_label = len(self.classes_) if self.label_conditional else 1
        return float(self.thresholds_[0][:-1].reshape(-1, per_label)[cell].max())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("construction", self.construction, ("partition", "union"))
        check_choice("calibration", self.calibration, ("split", "reuse"))
        check_choice("target", self.target, ("score", "coverage"))
        check_count("n_draws", self.n_draws)
        self._new_learner(random_state=0).check_parameters()
        if self.base is not None and not isinstance(self.base, ConformalClassifier):
            raise InvalidInputError(
                f"base must be a conformal classifier of fareg, got {type(self.base).__name__}"
            )
