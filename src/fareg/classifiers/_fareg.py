"""FaReG: find who the marginal sets under-cover, and calibrate them on their own."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact
from sklearn.base import clone

from fareg._validation import (
    Count,
    FloatArray,
    IntArray,
    InvalidInputError,
    check_choice,
    one_of,
)
from fareg.calibration import (
    CellCalibration,
    LevelCalibration,
    ReselectedCalibration,
    Rows,
    UnionCalibration,
    require,
)
from fareg.classifiers._base import ConformalClassifier, Folds
from fareg.classifiers._learning import coverage_target, divide_rows, score_target
from fareg.classifiers._views import (
    DisadvantageLevels,
    GroupCells,
    GroupDraws,
    level_edges,
    membership,
)
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

MIN_CELL_SHARE = 0.05
REFERENCE_ROWS = 2_000  # rows kept for explain()
GROUP_COLUMNS = {
    "group": "O",
    "rule": "O",
    "fidelity": "f",
    "share": "f",
    "n_calibration": "i",
    "coverage": "f",
    "low": "f",
    "high": "f",
    "p_value": "f",
    "threshold": "f",
}  # columns of groups_, with the kind of their values

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


def check_learner(name: str, learner: Any) -> None:
    """Refuse a learner that is none, or one with parameters that make no sense."""
    if not isinstance(learner, GroupLearner):
        raise InvalidInputError(
            f"{name} must be a fareg.groups.GroupLearner or None, got {learner!r}"
        )
    learner.check_parameters()


def check_base(name: str, base: Any) -> None:
    """Refuse a base that is no conformal classifier, or one with parameters that make no sense."""
    if not isinstance(base, ConformalClassifier):
        raise InvalidInputError(
            f"{name} must be a conformal classifier of fareg, got {type(base).__name__}"
        )
    base._check_parameters()


@dataclass(eq=False, repr=False)
class FaReGClassifier(ConformalClassifier):
    """Prediction sets that are valid on a group discovered in the data.

    A part of the calibration rows teaches a variational network where the marginal sets fail; the
    rest calibrates the discovered group and its complement, each on its own points. With the
    default ``calibration="split"``, ``P(Y in C(X) | X in cell) >= 1 - alpha`` for each discovered
    cell, hence marginally, in finite samples and for any distribution. If no group is credibly
    under-covered, the result is the plain split conformal set.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, label_conditional, calibration_size, \
allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        The features that may define a group; None for all columns.
    construction : {"partition", "union"}, default="partition"
        "partition" cuts the learned membership into a group and its complement. "union" is the
        paper's Eq. (Construct): ``n_draws`` random groups drawn from the membership, each
        calibrated on its members; the set is the union over the row's groups and the marginal set.
        ``P(Y in C(X) | s_t = 1) >= 1 - alpha`` for every draw t, if ``calibration="split"``.
    n_levels : int, default=20
        Most levels of disadvantage, for ``construction="levels"``; fewer if calibration rows or
        the evidence for a signal are few.
    calibration : {"auto", "train", "split", "reuse"}, default="split"
        "split" learns the group on rows that do not calibrate. "reuse" learns and calibrates on
        the same rows, as published; no finite-sample guarantee is proven for it.
    cv : int, default=5
        Folds of out-of-fold learning with ``calibration="train"``; each costs one more training of
        the estimator.
    target : {"score", "coverage"}, default="score"
        What the group is bad at: "coverage" is the paper's 0/1 indicator at the one level
        ``1 - alpha``; "score" is coverage averaged over the levels from ``1 - 5 alpha`` to 1, the
        same aim with far less noise.
    n_draws : int, default=20
        The paper's T, for ``construction="union"``.
    base : conformal classifier, default=None
        Another method of this package whose sets define coverage and join the union.
    learner : GroupLearner, default=None
        Learns who is disadvantaged; its ``random_state`` is set from that of the classifier.

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

    construction: Annotated[str, one_of("levels", "partition", "union")] = "partition"
    n_levels: Count = 20
    calibration: Annotated[str, one_of("auto", "train", "split", "reuse")] = "split"
    cv: Folds = 5
    target: Annotated[str, one_of("score", "coverage")] = "score"
    n_draws: Count = 20
    base: Annotated[ConformalClassifier, check_base] | None = None
    learner: Annotated[GroupLearner, check_learner] | None = None

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
            Any parameter of the class or of its learner, to change single settings.

        Examples
        --------
        >>> from fareg import FaReGClassifier
        >>> FaReGClassifier.paper(delta=0.4).learner.delta
        0.4
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
            "cross_fit": False,
            "published_scale": True,
        }
        settings = {**common, **published, **parameters}
        own = set(cls().get_params(deep=False))
        learner = {name: settings.pop(name) for name in list(settings) if name not in own}
        return cls(estimator, **{"learner": GroupLearner(**learner), **settings})

    def conformalize(self, X: Any, y: Any, *, X_learn: Any = None, y_learn: Any = None) -> Self:
        """Calibrate a fitted estimator on rows that it was not trained on.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_learn, y_learn : as X and y, default=None
            Rows that teach who is disadvantaged, so that all rows of X calibrate; the estimator
            was not trained on them either. None: a part of X teaches.

        Returns
        -------
        self
        """
        if (X_learn is None) != (y_learn is None):
            raise InvalidInputError("pass X_learn and y_learn together, got only one")
        self._check_parameters()
        X, y = self._check_X_y(X, y)
        estimator = self._fitted_estimator()
        learning = None
        if X_learn is not None:
            X_learn, y_learn = self._check_X_y(self._validated(X_learn, reset=False), y_learn)
            learning = self._learning_rows(X_learn, y_learn, estimator, estimator.predict_proba)
        return self._conformalize(estimator, X, y, learning)

    def with_draws(self, n_draws: int) -> Self:
        """Return this fitted classifier with only the first of its random draws.

        Draws are independent of each other, so the first T of them are those of ``n_draws=T``.
        """
        views = self._own_calibration.views
        if not isinstance(views, GroupDraws) or not 1 <= n_draws <= views.n_draws:
            raise InvalidInputError(
                f"with_draws takes 1 to {getattr(views, 'n_draws', 0)} draws of a union, "
                f"got {n_draws!r}"
            )
        own = self._own_calibration
        fewer = replace(own, views=replace(views, n_draws=n_draws), cells=own.cells[: n_draws + 1])
        other = copy(self).set_params(n_draws=n_draws)
        joined = isinstance(self.calibration_, UnionCalibration)
        other.calibration_ = (
            UnionCalibration((fewer, *self.calibration_.parts[1:])) if joined else fewer
        )
        other.freeze_parameters()
        return other

    def predict_group(self, X: Any) -> FloatArray:
        """Return the membership of each row in the disadvantaged group, (n_samples,) in [0, 1]."""
        return membership(self.learner_, self._rows(X, caller="predict_group"))

    def predict_level(self, X: Any) -> IntArray:
        """Return the disadvantage level of each row, from 0, the least disadvantaged.

        With ``construction="partition"``, 1 is the discovered group and 0 the rest.
        """
        return self._levels(self._rows(X, caller="predict_level"))

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

    @property
    def learner_(self) -> GroupLearner:
        """The fitted learner."""
        own = self._own_calibration
        learner: GroupLearner = (own.leveler if self._has_levels else own.views).learner
        return learner

    @property
    def cuts_(self) -> FloatArray:
        """Where membership is cut into cells; empty if no group was found, or with levels."""
        cuts: FloatArray = getattr(getattr(self._own_calibration, "views", None), "cuts", _NONE)
        return cuts

    @property
    def thresholds_(self) -> Any:
        """Thresholds per view and category, or per level and label."""
        own = self._own_calibration
        return own.level_thresholds if self._has_levels else own.quantiles

    @property
    def _own_calibration(self) -> Any:
        """The calibration of the discovered groups, without that of a base."""
        joined = isinstance(self.calibration_, UnionCalibration)
        return self.calibration_.parts[0] if joined else self.calibration_

    @property
    def _has_levels(self) -> bool:
        return isinstance(self._own_calibration, LevelCalibration)

    def _levels(self, rows: Rows) -> IntArray:
        own = self._own_calibration
        levels: IntArray = (
            own.leveler.levels(rows) if self._has_levels else own.views.cells(rows)[0]
        )
        return levels

    def _gives_pvalues(self) -> bool:
        return not isinstance(self.base, ConformalClassifier) or self.base._gives_pvalues()

    def _training_rows(
        self, estimator: Any, fitted: Any, X: Any, y: Any, clusters: Any, seed: int
    ) -> Rows:
        if self.calibration not in ("auto", "train"):
            return super()._training_rows(estimator, fitted, X, y, clusters, seed)
        return self._out_of_fold_rows(
            estimator, fitted, X, y, cv=self.cv, clusters=clusters, seed=seed
        )

    def _calibrate(self, rows: Rows, training: Rows | None) -> Any:
        learning, rest = divide_rows(
            rows, training, self.calibration, self.key_, "look for a group"
        )
        covered = self._covered(learning, training)
        learner = self._new_learner().fit(learning.columns, covered)
        steps = [entry["step"] for entry in learner.history_ if entry["stage"] == "group"]
        self.n_iter_ = max(steps, default=1)
        q = membership(learner, learning)
        cuts = cut_membership(q, covered, min_share=MIN_CELL_SHARE) if learner.found_ else _NONE
        common: dict[str, Any] = {"alpha": self.alpha_, "label_conditional": self.label_conditional}
        own: Any
        if self.construction == "levels":
            edges = level_edges(learner.out_of_fold_, self.n_levels, len(rest))
            own = LevelCalibration.of(DisadvantageLevels(learner, edges), rest, **common)
        elif self.construction == "partition":
            own = CellCalibration.of(GroupCells(learner, cuts), rest, **common)
        else:
            own = CellCalibration.of(GroupDraws(learner, self.n_draws, cuts), rest, **common)
        self.reference_ = learning.columns.iloc[:REFERENCE_ROWS]
        inside = q > cuts[-1] if len(cuts) else np.zeros(len(q), dtype=bool)
        self.rule_ = distil_rule(learning.columns[list(learner.features_)], inside)
        calibration = own
        if self.base is not None:
            calibration = UnionCalibration((own, self._base_calibration(rest, training)))
        self.calibration_ = calibration
        self.groups_ = self._describe_groups(rest, cuts)
        return calibration

    def _new_learner(self) -> GroupLearner:
        learner = clone(GroupLearner() if self.learner is None else self.learner)
        return learner.set_params(random_state=self.key_ % 2**32)

    def _covered(self, learning: Rows, training: Rows | None) -> FloatArray:
        """Return how well each learning row is covered, in [0, 1]."""
        if not len(learning):
            return np.empty(0)
        scores, codes = learning.own_scores, learning.labels
        categories = codes if self.label_conditional else None
        if self.base is None:
            target = score_target if self.target == "score" else coverage_target
            return target(scores, categories, self.alpha_)
        thresholds = self._base_calibration(learning, training).thresholds(learning)
        own = np.broadcast_to(thresholds, learning.scores.shape)[np.arange(len(codes)), codes]
        margin = np.where(np.isinf(own), -np.inf, scores - own)
        if self.target == "coverage":
            return (margin <= 0).astype(np.float64)
        return score_target(margin, categories, self.alpha_)

    def _base_calibration(self, rows: Rows, training: Rows | None) -> Any:
        """Calibrate the base on the same scores and at the same level."""
        base = clone(self.base)
        base.alpha_, base.key_ = self.alpha_, self.key_
        base.label_conditional = self.label_conditional
        if base.sensitive_features is None:
            return base._calibrate(rows, training)
        selection = base.sensitive_features
        other = None if training is None else training.selecting(selection)
        return ReselectedCalibration(base._calibrate(rows.selecting(selection), other), selection)

    def _describe_groups(self, rows: Rows, cuts: FloatArray) -> pd.DataFrame:
        """Describe the cells on the rows that calibrate."""
        scores = rows.own_scores
        covered = scores <= CalibrationScores.sort(scores).quantiles(self.alpha_)[0]
        levels = (
            self._levels(rows)
            if self.construction != "union"
            else (membership(self.learner_, rows) > (cuts[-1] if len(cuts) else np.inf)).astype(int)
        )
        described = []
        for level in range(len(cuts), -1, -1):
            inside = levels == level
            hit, n = int(covered[inside].sum()), int(inside.sum())
            low, high = clopper_pearson(hit, n)
            rest = covered.sum() - hit
            table = np.array([[hit, n - hit], [rest, len(covered) - n - rest]])
            in_group = len(cuts) > 0 and level == len(cuts)
            described.append(
                {
                    "group": "group" if in_group else "rest" if len(cuts) else "everyone",
                    "rule": self.rule_.text
                    if in_group
                    else "all others"
                    if len(cuts)
                    else "everyone",
                    "fidelity": self.rule_.fidelity if len(cuts) else 1.0,
                    "share": inside.mean(),
                    "n_calibration": n,
                    "coverage": hit / n if n else np.nan,
                    "low": float(low),
                    "high": float(high),
                    # rows that chose the group cannot test it
                    "p_value": np.nan
                    if self.calibration == "reuse"
                    else fisher_exact(table, alternative="less").pvalue,
                    "threshold": self._group_threshold(level, in_group),
                }
            )
        return pd.DataFrame(described)

    def _group_threshold(self, cell: int, in_group: bool) -> float:
        """Return the threshold of a cell: of its strictest label, of its average draw."""
        if self.construction == "union":
            draws = [thresholds[:-1].max() for thresholds in self.thresholds_]
            return float(np.mean(draws[1:]) if in_group else draws[0])
        per_label = len(self.classes_) if self.label_conditional else 1
        return float(self.thresholds_[0][:-1].reshape(-1, per_label)[cell].max())

    def _describe_rows(self, rows: Rows) -> dict[str, Any]:
        names = np.array(["rest", "group"] if len(self.cuts_) else ["everyone"], dtype=object)
        inside = cells_of(membership(self.learner_, rows), self.cuts_)
        return {"level": inside, "group": names[inside]}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.base is None:
            return
        for name in ("confidence_level", "conformity_score"):
            own, other = getattr(self, name), getattr(self.base, name)
            if other != getattr(type(self.base)(), name) and other != own:
                raise InvalidInputError(
                    f"base shares {name} with the classifier around it, got {other!r} and "
                    f"{own!r}; leave it out of the base"
                )

    def _check_possible(self, X: Any) -> None:
        super()._check_possible(X)
        if self.base is not None:
            self.base._check_possible(X)
        if self.learner is not None:
            self.learner.check_device()

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as that of an edited file."""
        super().check()
        learner = self._new_learner()
        require(self.learner_.get_params() == learner.get_params(), "learner_")
        require(type(self.learner_.found_) is bool, "learner_")
        own = self._own_calibration
        divided = own.leveler if self._has_levels else own.views
        require(type(divided) is CONSTRUCTIONS[self.construction], "construction")
        require(getattr(divided, "n_draws", self.n_draws) == self.n_draws, "n_draws")
        require((self.calibration_ is own) == (self.base is None), "base")
        check_groups(self.groups_)
        require(len(self.groups_) == len(self.cuts_) + 1, "groups_")
        require(isinstance(self.rule_.text, str), "rule_")
        require(set(self.learner_.features_) <= set(self.reference_), "reference_")


_NONE = np.empty(0)
CONSTRUCTIONS = {"levels": DisadvantageLevels, "partition": GroupCells, "union": GroupDraws}


def check_groups(groups: Any) -> None:
    """Refuse a table of groups that is none."""
    require(isinstance(groups, pd.DataFrame) and list(groups) == list(GROUP_COLUMNS), "groups_")
    for name, kind in GROUP_COLUMNS.items():
        is_kind = groups[name].dtype.kind == kind
        is_text = all(isinstance(value, str) for value in groups[name])
        require(is_text if kind == "O" else is_kind, f"groups_.{name}")
