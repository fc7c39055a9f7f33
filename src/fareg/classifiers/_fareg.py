"""FaReG: find who the marginal sets under-cover, and calibrate them on their own."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import clone

from fareg._validation import (
    Count,
    FloatArray,
    IntArray,
    InvalidInputError,
    check_choice,
    check_proba,
    check_same_length,
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
from fareg.classifiers._inputs import checked_labels
from fareg.classifiers._learning import coverage_target, divide_rows, score_target
from fareg.classifiers._naming import (
    NamedGroup,
    candidate_rules,
    found_again,
    relearned,
    verified_groups,
)
from fareg.classifiers._plot_levels import plot_thresholds_and_coverage
from fareg.classifiers._strata import Stratum, check_groups, covered_by_split, describe_groups
from fareg.classifiers._views import (
    NOWHERE,
    DisadvantageLevels,
    GroupCells,
    GroupDraws,
    disadvantage,
    membership,
)
from fareg.groups import (
    MEMBERS,
    Explanation,
    GroupLearner,
    Rule,
    cells_of,
    cut_membership,
    distil_rule,
    explain_groups,
    plot_membership,
)
from fareg.metrics import is_covered

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
    """Prediction sets with a promise for every degree of disadvantage.

    Rows that do not calibrate teach a *disadvantage*: how much worse than others people like this
    are covered by plain split conformal sets. It is cut into levels, and thresholds rise with the
    level as far as the calibration rows ask for it. By default,
    ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` for every m: for everyone, for the worst off, and
    for every group "disadvantaged at least this much" between, in finite samples and for any
    distribution. Without a signal there is one level and the sets are plain split conformal ones.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, label_conditional, calibration_size, \
allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    sensitive_features : list of names or positions, or function of X, default=None
        The features that disadvantage may depend on; None for all columns.
    construction : {"levels", "partition", "union"}, default="levels"
        "levels" pools neighbouring levels that the calibration rows cannot tell apart. "partition"
        cuts the learned membership into a group and its complement, each calibrated on its own:
        ``P(Y in C(X) | X in cell) >= 1 - alpha``. "union" is the paper's Eq. (Construct):
        ``n_draws`` random groups drawn from the membership, each calibrated on its members; the
        set is the union over the row's groups and the marginal set, and
        ``P(Y in C(X) | s_t = 1) >= 1 - alpha`` for every draw t.
    n_levels : int, default=20
        Most levels of disadvantage; fewer if calibration rows (about 30 each) or the evidence for
        a signal are few.
    calibration : {"auto", "train", "split", "reuse"}, default="auto"
        Which rows teach. "train": the training rows of ``fit`` with out-of-fold probabilities, or
        ``X_learn``, so that every calibration row calibrates. "split": half of the calibration
        rows. "auto": "train" where such rows are known, else "split". "reuse" learns and
        calibrates on the same rows, as published; no promise is proven for it.
    cv : int, default=5
        Folds of out-of-fold learning; each costs one more training of the estimator in ``fit``.
    target : {"score", "coverage"}, default="score"
        What disadvantage is about: "coverage" is the paper's 0/1 indicator at the one level
        ``1 - alpha``; "score" is coverage averaged over the levels from ``1 - 5 alpha`` to 1, the
        same aim with far less noise.
    n_draws : int, default=20
        The paper's T, for ``construction="union"``.
    base : conformal classifier, default=None
        Another method of this package whose sets define coverage and join the union.
    learner : GroupLearner, default=None
        Learns who is disadvantaged; its ``random_state`` is set from that of the classifier. None:
        several models, stacked, for levels; the variational network alone otherwise.

    Attributes
    ----------
    named_groups_ : tuple of NamedGroup
        The groups that are credibly under-covered by split conformal sets, in words: verified on
        calibration rows, which did not choose them, clearly below the level, a minority, and found
        again on most random halves of the learning rows. Often there are none.
    groups_ : DataFrame
        The named groups, then those who share a threshold, the worst off first: share, number of
        calibration rows, coverage under split conformal sets with a 95% interval and a p-value
        that allows for the search (Fisher's exact test; NaN with ``calibration="reuse"``, where
        the rows that chose a group cannot test it), threshold.
    rule_ : Rule
        The first named group; with ``calibration="reuse"``, where nothing can be verified, the
        learned group as it is.
    learner_ : GroupLearner
        With ``history_``, ``signal_``, ``membership`` and ``disadvantage``.
    n_iter_ : int
        Gradient steps taken to learn, 1 if none were.
    classes_, estimator_, n_calibration_, parameters_, thresholds_
        As in :class:`SplitConformalClassifier`.

    Examples
    --------
    >>> from fareg import FaReGClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(4000, random_state=0)
    >>> clf = FaReGClassifier(sensitive_features=list(data.sensitive), random_state=0)
    >>> sets = clf.fit(data.X[:3500], data.y[:3500]).predict_set(data.X[3500:])
    >>> clf.named_groups_[0].rule.text
    '(Color=Blue and Gender=Male) or (Color=Red and Gender=Female)'
    """

    construction: Annotated[str, one_of("levels", "partition", "union")] = "levels"
    n_levels: Count = 20
    calibration: Annotated[str, one_of("auto", "train", "split", "reuse")] = "auto"
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

    def conformalize(
        self,
        X: Any,
        y: Any,
        *,
        X_learn: Any = None,
        y_learn: Any = None,
        proba_learn: Any = None,
        clusters_learn: Any = None,
    ) -> Self:
        """Calibrate a fitted estimator on rows that it was not trained on.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        X_learn, y_learn : as X and y, default=None
            Rows that teach who is disadvantaged, so that all rows of X calibrate. None: a part of
            X teaches.
        proba_learn : array of shape (n_learn, n_classes), default=None
            Class probabilities of the rows that teach, by models that were not trained on them.
            None: the estimator is asked, which must not have been trained on them then.
        clusters_learn : array of shape (n_learn,), default=None
            Ids of people or places with several rows among them; they are held out together.

        Returns
        -------
        self
        """
        if (X_learn is None) != (y_learn is None):
            raise InvalidInputError("pass X_learn and y_learn together, got only one")
        self._check_parameters()
        X, y = self._check_X_y(X, y)
        estimator = self._fitted_estimator(X, y)
        learning = None
        if X_learn is not None:
            X_learn, y_learn = checked_labels(self._validated(X_learn, reset=False), y_learn)
            given = None if proba_learn is None else check_proba(proba_learn)
            if given is not None:
                check_same_length(X_learn=X_learn, proba_learn=given)
            ask = estimator.predict_proba if given is None else lambda table: given
            clusters = None if clusters_learn is None else np.asarray(clusters_learn)
            learning = self._learning_rows(X_learn, y_learn, estimator, ask, clusters)
        return self._conformalize(estimator, X, y, learning)

    def with_draws(self, n_draws: int) -> Self:
        """Return this fitted classifier with only the first of its random draws.

        Draws are independent of each other, so the first T of them are those of ``n_draws=T``.
        """
        views = getattr(self._own_calibration, "views", None)
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
        """Return how disadvantaged each row is, shape (n_samples,) in [0, 1].

        With levels, the share of the rows that taught the disadvantage which are at most as
        disadvantaged: 0.95 is worse off than 95% of them. Otherwise the membership in the
        disadvantaged group.
        """
        rows = self._rows(X, caller="predict_group")
        if self._has_levels:
            ranks: FloatArray = self._own_calibration.leveler.ranks(rows)
            return ranks
        return membership(self.learner_, rows)

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

    def plot_levels(self, X: Any, y: Any) -> Any:
        """Draw thresholds and coverage against the level of disadvantage.

        Beside the sets stand split conformal ones with the same calibration rows.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
            Rows that took no part in training and calibration.
        y : array of shape (n_samples,)

        Returns
        -------
        matplotlib.figure.Figure
            Thresholds on the left, coverage with 95% intervals on the right.
        """
        rows = self._rows(X, caller="plot_levels")
        own = self._own_calibration
        if not self._has_levels:
            raise InvalidInputError(
                f'plot_levels needs construction="levels", got "{self.construction}"; '
                "see plot_groups for a group and its complement"
            )
        everyone = replace(own.leveler, edges=NOWHERE)
        split = replace(own, leveler=everyone, levels=np.zeros_like(own.levels))
        sets = {"before": self._sets(rows, split), "after": self._sets(rows)}
        covered = {
            moment: is_covered(y, some, classes=self.classes_) for moment, some in sets.items()
        }
        return plot_thresholds_and_coverage(
            own.level_thresholds,
            own.pooled_levels(),
            own.leveler.levels(rows),
            covered,
            split_thresholds=own.split_thresholds,
            labels=("every label",) if own.labels is None else self.classes_,
            confidence_level=1 - self.alpha_,
        )

    @property
    def learner_(self) -> GroupLearner:
        """The fitted learner."""
        own = self._own_calibration
        learner: GroupLearner = (own.leveler if self._has_levels else own.views).learner
        return learner

    @property
    def cuts_(self) -> FloatArray:
        """Where membership is cut into cells; empty if no group was found, or with levels."""
        cuts: FloatArray = getattr(getattr(self._own_calibration, "views", None), "cuts", NOWHERE)
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
        learner = self._new_learner().fit(learning.columns, covered, learning.clusters)
        steps = [entry["step"] for entry in learner.history_ if entry["stage"] == "group"]
        self.n_iter_ = max(steps, default=1)
        self.reference_ = learning.columns.iloc[:REFERENCE_ROWS]
        own, b = self._own(learner, learning, covered, rest)
        calibration = own
        if self.base is not None:
            calibration = UnionCalibration((own, self._base_calibration(rest, training)))
        self.calibration_ = calibration
        self.named_groups_ = self._named_groups(learner, learning, b, covered, rest)
        self.rule_ = self._rule(learner, learning, b)
        self.groups_ = describe_groups(
            self.named_groups_, self._strata(rest), rest, self.alpha_, honest=self._is_honest
        )
        return calibration

    def _own(
        self, learner: GroupLearner, learning: Rows, covered: FloatArray, rest: Rows
    ) -> tuple[Any, FloatArray]:
        """Return the calibration of the construction, and the learning rows' disadvantage."""
        common: dict[str, Any] = {"alpha": self.alpha_, "label_conditional": self.label_conditional}
        if self.construction == "levels":
            b = disadvantage(learner, learning)
            signal = getattr(learner, "signal_", None)  # a learner without members has none
            n_levels = self.n_levels if learner.found_ else 1
            if signal is not None:
                n_levels = signal.n_levels(len(rest), self.n_levels)
            levels = DisadvantageLevels.cut(learner, b, n_levels, len(rest))
            return LevelCalibration.of(levels, rest, **common), b
        q = membership(learner, learning)
        cuts = cut_membership(q, covered, min_share=MIN_CELL_SHARE) if learner.found_ else NOWHERE
        views: Any = (
            GroupCells(learner, cuts)
            if self.construction == "partition"
            else GroupDraws(learner, self.n_draws, cuts)
        )
        return CellCalibration.of(views, rest, **common), q

    @property
    def _is_honest(self) -> bool:
        """Whether the rows that calibrate did not choose the groups."""
        return bool(self.parameters_["calibration"] != "reuse")

    def _rule(self, learner: GroupLearner, learning: Rows, b: FloatArray) -> Rule:
        """Return the words for the explanation: the first named group, if there is one.

        Where no row is left that could verify a group, as published, the learned group is described
        as it is.
        """
        if self.named_groups_:
            return self.named_groups_[0].rule
        if self._is_honest or not len(self.cuts_):
            return Rule("nobody is named", (), 1.0)
        return distil_rule(learning.columns[list(learner.features_)], b > self.cuts_[-1])

    def _named_groups(
        self,
        learner: GroupLearner,
        learning: Rows,
        b: FloatArray,
        covered: FloatArray,
        rest: Rows,
    ) -> tuple[NamedGroup, ...]:
        """Return the groups that are credibly under-covered, with rows that did not choose them."""
        if not learner.found_ or not self._is_honest:
            return ()
        rules = candidate_rules(learning.columns, b, covered, learner.features_)

        def relearn(columns: pd.DataFrame, target: FloatArray, seed: int) -> Any:
            half = GroupLearner(members=("cells", "boosting"), random_state=seed)
            return half.fit(columns, target).disadvantage

        @cache  # the answers of the halves serve every group
        def answers() -> list[FloatArray]:
            rng = np.random.default_rng([self.key_, 3])
            return relearned(learning.columns, covered, relearn, rng)

        def stability(rule: Rule) -> float:
            return found_again(rule.inside(learning.columns), answers())

        return tuple(
            verified_groups(
                rules, rest.columns, covered_by_split(rest, self.alpha_), 1 - self.alpha_, stability
            )
        )

    def _strata(self, rows: Rows) -> list[Stratum]:
        """Return who shares a threshold, the worst off first."""
        own = self._own_calibration
        if self._has_levels:
            levels = own.leveler.levels(rows)
            return [
                Stratum(
                    _level_words(first, last, own.leveler.n_levels),
                    (levels >= first) & (levels <= last),
                    float(own.level_thresholds[first].max()),
                    # any run of neighbouring levels could have been pooled
                    own.leveler.n_levels * (own.leveler.n_levels + 1) // 2,
                )
                for first, last in own.pooled_levels()[::-1]
            ]
        cells = cells_of(membership(self.learner_, rows), self.cuts_)
        names = ["rest", "group"] if len(self.cuts_) else ["everyone"]
        return [
            Stratum(names[cell], cells == cell, self._cell_threshold(cell), 1)
            for cell in range(len(self.cuts_), -1, -1)
        ]

    def _cell_threshold(self, cell: int) -> float:
        """Return the threshold of a cell: of its strictest label, of its average draw."""
        if self.construction == "union":
            draws = [thresholds[:-1].max() for thresholds in self.thresholds_]
            in_group = len(self.cuts_) > 0 and cell == len(self.cuts_)
            return float(np.mean(draws[1:]) if in_group else draws[0])
        per_label = len(self.classes_) if self.label_conditional else 1
        return float(self.thresholds_[0][:-1].reshape(-1, per_label)[cell].max())

    def _new_learner(self) -> GroupLearner:
        learner = self.learner
        if learner is None and self.construction == "levels":
            learner = GroupLearner(members=MEMBERS, numbers="piecewise")
        learner = clone(GroupLearner() if learner is None else learner)
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

    def _describe_rows(self, rows: Rows) -> dict[str, Any]:
        group = np.full(len(rows), "", dtype=object)
        for named in self.named_groups_[::-1]:  # the first, most significant group is written last
            group[named.rule.inside(rows.columns)] = named.rule.text
        return {"level": self._levels(rows), "group": group}

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
        require(isinstance(self.named_groups_, tuple), "named_groups_")
        n_named = len(self.named_groups_)
        require(n_named <= len(self.groups_) <= n_named + self._n_strata, "groups_")
        for group in self.named_groups_:
            require(isinstance(group, NamedGroup) and isinstance(group.rule, Rule), "named_groups_")
            require(set(group.rule.features) <= set(self.reference_), "named_groups_")
        require(isinstance(self.rule_, Rule) and isinstance(self.rule_.text, str), "rule_")
        require(set(self.learner_.features_) <= set(self.reference_), "reference_")

    @property
    def _n_strata(self) -> int:
        own = self._own_calibration
        return len(own.pooled_levels()) if self._has_levels else len(self.cuts_) + 1


def _level_words(first: int, last: int, n_levels: int) -> str:
    if (first, last) == (0, n_levels - 1):
        return "everyone"
    return f"level {first}" if first == last else f"levels {first} to {last}"


CONSTRUCTIONS = {"levels": DisadvantageLevels, "partition": GroupCells, "union": GroupDraws}
