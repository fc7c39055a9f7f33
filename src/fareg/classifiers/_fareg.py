"""FaReG: find who the marginal sets under-cover, and calibrate them on their own."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Self

from sklearn.base import clone

from fareg._labels import label_codes
from fareg._validation import (
    Count,
    FloatArray,
    InvalidInputError,
    all_or_nothing,
    check_parameters,
    one_of,
)
from fareg.calibration import (
    CellCalibration,
    CountedLevels,
    IntervalSearch,
    LevelCalibration,
    ReselectedCalibration,
    Rows,
    UnionCalibration,
    one_of_each_cluster,
    require,
)
from fareg.classifiers._base import ConformalClassifier, Folds
from fareg.classifiers._estimators import refuse_weights
from fareg.classifiers._inputs import (
    checked_clusters,
    checked_ids,
    checked_labels,
    given_proba,
    sensitive_beside,
    validated_table,
    warn_of_repeated,
)
from fareg.classifiers._learned_groups import LearnedGroups
from fareg.classifiers._learning import coverage_to_learn, divide_rows
from fareg.classifiers._naming import credible_groups, rule_to_explain
from fareg.classifiers._paper import check_published, published_settings
from fareg.classifiers._strata import (
    check_groups,
    describe_counted,
    describe_groups,
    with_thresholds,
)
from fareg.classifiers._views import (
    CONSTRUCTIONS,
    NOWHERE,
    DisadvantageLevels,
    GroupCells,
    GroupDraws,
    disadvantage,
    division,
    membership,
    own_part,
    with_fewer_draws,
)
from fareg.groups import MEMBERS, GroupLearner, Rule, cut_membership

REFERENCE_ROWS = 2_000  # rows kept for explain()


def check_learner(name: str, learner: Any) -> None:
    """Refuse a learner that is none, or one with parameters that make no sense."""
    if not isinstance(learner, GroupLearner):
        raise InvalidInputError(
            f"{name} must be a fareg.groups.GroupLearner or None, got {learner!r}"
        )
    check_parameters(learner)


def check_base(name: str, base: Any) -> None:
    """Refuse a base that is no conformal classifier, or one with parameters that make no sense."""
    if not isinstance(base, ConformalClassifier):
        raise InvalidInputError(
            f"{name} must be a conformal classifier of fareg, got {type(base).__name__}"
        )
    base._check_parameters()


@dataclass(eq=False, repr=False)
class FaReGClassifier(LearnedGroups):
    """Prediction sets with a promise for every degree of disadvantage.

    Rows that do not calibrate teach a *disadvantage*: how much worse than others people like this
    are covered by plain split conformal sets. It is cut into levels, and thresholds rise with the
    level as far as the calibration rows ask for it. By default,
    ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` for every m: for everyone, for the worst off, and
    for every group "disadvantaged at least this much" between, in finite samples and for any
    distribution. Where the learning rows show no such order, there is one level: plain split sets.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, label_conditional, calibration_size, \
allow_empty, random_state
        As in :class:`SplitConformalClassifier`. With levels and ``label_conditional``, no set is
        smaller than the label-conditional split set: one order of people serves all labels, and
        may be the wrong one for some.
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
        The largest number of levels of about equal share. There are fewer if a level would hold
        less than about 30 calibration rows, or if there is little evidence for a signal. Where all
        of them are used, the highest is halved again and again down to that number of rows, so that
        the worst off have a threshold of their own even if they are one in a hundred.
    calibration : {"auto", "train", "split", "reuse"}, default="auto"
        Which rows teach. With "train" it is the training rows of ``fit``, by out-of-fold
        probabilities, or ``X_learn``, so that every calibration row calibrates. With "split" it is
        half of the calibration rows. "auto" means "train" where such rows are known, else "split".
        "reuse" learns and calibrates on the same rows, as published; no promise is proven for it.
    cv : int, default=5
        Number of folds for out-of-fold probabilities; each costs one more training of the
        estimator in ``fit``.
    target : {"score", "coverage"}, default="score"
        What disadvantage is about: "coverage" is the paper's 0/1 indicator at the one level
        ``1 - alpha``; "score" is coverage averaged over the levels from ``1 - 5 alpha`` to 1, the
        same aim with far less noise. With APS and RAPS, unless a label is calibrated by itself or
        there is a base, "score" depends on neither the scores nor alpha: rows are ordered by how
        much less probability the true label got than the probabilities expect.
    n_draws : int, default=20
        Number of random groups with ``construction="union"``, the paper's T.
    base : conformal classifier, default=None
        Another method of this package whose sets define coverage and join the union.
    learner : GroupLearner, default=None
        Learns who is disadvantaged; its ``random_state`` is set from that of the classifier. None
        stands for several models whose answers are combined, if there are levels, and for the
        variational network alone otherwise.

    Attributes
    ----------
    named_groups_ : tuple of NamedGroup
        The groups that are credibly under-covered by split conformal sets, in words. Such a group
        is a minority, is clearly below the level on calibration rows, which did not choose it, and
        is found again on most random halves of the learning rows. Often there are none.
    groups_ : DataFrame
        The named groups, then those who share a threshold, the worst off first: share, number of
        calibration rows, coverage under split conformal sets with a 95% interval, p-value of the
        named groups and of a fixed group (Fisher's exact test; NaN where the rows themselves chose
        the group: runs of levels, and ``calibration="reuse"``), threshold. One row of each cluster
        counts.
    rule_ : Rule
        The first named group. With ``calibration="reuse"``, where nothing can be verified, it is
        the learned group as it is.
    learner_ : GroupLearner
        The fitted learner, with ``history_``, ``signal_``, ``membership`` and ``disadvantage``.
    n_iter_ : int
        Number of gradient steps that learning took, 1 if it took none.
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

        The set is a union over random draws of a group. One network learns it from half of the
        calibration rows, is stopped early on the other half (4,096 rows of it at most), and both
        halves calibrate. It reads all sensitive features, each as one raw number, at the scale of
        the authors' code. No guarantee is proven in finite samples.

        Parameters
        ----------
        estimator : classifier
        data : {"synthetic", "nursery"}, default="synthetic"
            The data set whose hyperparameters are taken.
        **parameters
            Any parameter of the class or of its learner, to change single settings. A ``learner``
            is refused, because it would replace the published settings of the network.

        Examples
        --------
        >>> from fareg import FaReGClassifier
        >>> FaReGClassifier.paper(delta=0.4).learner.delta
        0.4
        """
        own, of_learner = cls().get_params(deep=False), GroupLearner().get_params()
        check_published(cls.__name__, parameters, {**own, **of_learner})
        settings = {**published_settings(data), **parameters}
        learner = {name: settings.pop(name) for name in list(settings) if name not in own}
        return cls(estimator, **{**settings, "learner": GroupLearner(**learner)})

    @all_or_nothing
    def conformalize(
        self,
        X: Any,
        y: Any,
        *,
        proba: Any = None,
        classes: Any = None,
        clusters: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
        X_learn: Any = None,
        y_learn: Any = None,
        proba_learn: Any = None,
        sensitive_learn: Any = None,
        clusters_learn: Any = None,
        ids_learn: Any = None,
        sample_weight: None = None,
    ) -> Self:
        """Calibrate a fitted estimator on rows that it was not trained on.

        Parameters
        ----------
        X, y, proba, classes, clusters, sensitive_features, ids, sample_weight
            As in :meth:`SplitConformalClassifier.conformalize`.
        X_learn, y_learn : as X and y, default=None
            Rows that teach who is disadvantaged, so that all rows of X calibrate. Without them, a
            part of X teaches.
        proba_learn : array of shape (n_learn, n_classes), default=None
            Class probabilities of the rows that teach, by models that were not trained on them.
            If None, the estimator is asked; then it must not have been trained on these rows.
        sensitive_learn : frame of shape (n_learn, n_sensitive_features), default=None
            Who these rows are about, if ``sensitive_features`` are beside X.
        clusters_learn : array of shape (n_learn,), default=None
            Ids of people or places with several rows among them; they are held out together.
        ids_learn : array-like of shape (n_learn,), default=None
            Whose rows these are, as in :meth:`predict_set`.
        """
        refuse_weights(sample_weight)
        if (X_learn is None) != (y_learn is None):
            raise InvalidInputError("pass X_learn and y_learn together, got only one")
        beside = (proba_learn, sensitive_learn, clusters_learn, ids_learn)
        if X_learn is None and any(told is not None for told in beside):
            raise InvalidInputError(
                "proba_learn, sensitive_learn, clusters_learn and ids_learn tell about X_learn, "
                "got no X_learn"
            )
        table = self._check_inputs(X, y, sensitive_features, clusters, ids)
        given = self._begin_with(table, proba, classes)
        learning = None
        if X_learn is not None:
            if sensitive_learn is None and self.sensitive_kinds_ is not None:
                raise InvalidInputError(
                    "sensitive features are beside X, so those of X_learn are needed too, got "
                    "none; pass sensitive_learn=frame"
                )
            X_learn = validated_table(self, X_learn, reset=False)
            told = given_proba(proba_learn, X_learn, self.classes_, classes)
            about_learn = sensitive_beside(sensitive_learn, X_learn, self.sensitive_kinds_)
            self._note_values(table.clusters, (table.X, table.about), (X_learn, about_learn))
            learning = self._as_rows(
                X_learn,
                label_codes(checked_labels(X_learn, y_learn), self.classes_),
                clusters=checked_clusters(X_learn, clusters_learn),
                given=told,
                about=about_learn,
                ids=checked_ids(X_learn, ids_learn),
                role="learning",
            )
        return self._conformalize(table, learning, given)

    def recalibrated(self, search: IntervalSearch, n_unknown: int = 0, n_repeated: int = 0) -> Self:
        """Return this fitted classifier with the thresholds of other calibration rows.

        It must have levels and no base. The levels stay as they were learned. For rows that are new
        to the classifier, ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` for every m, as after
        ``fit``.

        Parameters
        ----------
        search : IntervalSearch
            A finished search: rows were counted by their scores, level by level.
        n_unknown : int, default=0
            How many of them have a label that the estimator does not know.
        n_repeated : int, default=0
            How many of them equal an earlier one with its label and id.
        """
        self._check_fitted("recalibrated")
        other = copy(self)
        by_label = self.parameters_["label_conditional"]
        other.calibration_ = CountedLevels.of(
            division(self.calibration_), search, label_conditional=by_label
        )
        unknown_apart = n_unknown if by_label else 0  # such rows calibrate no label
        other.n_calibration_ = other.calibration_.n_rows + unknown_apart
        other.n_calibration_clusters_ = None
        other.n_repeated_ = n_repeated
        warn_of_repeated(n_repeated, other.n_calibration_)
        other.groups_ = describe_counted(self.named_groups_, other.calibration_, self.reference_)
        other._warn_of_full_sets(n_unknown / other.n_calibration_)
        return other

    def with_draws(self, n_draws: int) -> Self:
        """Return this fitted classifier with only the first of its random draws.

        Draws are independent of each other, so the first T of them are those of ``n_draws=T``.
        """
        other = copy(self).set_params(n_draws=n_draws)
        other.calibration_ = with_fewer_draws(self.calibration_, n_draws)
        other.groups_ = with_thresholds(
            vars(self)["groups_"], self.named_groups_, own_part(other.calibration_), self.reference_
        )
        other.freeze_parameters()
        return other

    def _gives_pvalues(self) -> bool:
        return not isinstance(self.base, ConformalClassifier) or self.base._gives_pvalues()

    def _calibrate(self, rows: Rows, training: Rows | None) -> Any:
        learning, rest = divide_rows(
            rows, training, self.calibration, self.key_, "look for a group"
        )
        base = self._base_calibration(learning, training) if len(learning) else None
        covered = coverage_to_learn(
            learning, base, self.target, self.alpha_, label_conditional=self.label_conditional
        )
        learner = self._new_learner().fit(learning.columns, covered, learning.clusters)
        steps = [entry["step"] for entry in learner.history_ if entry["stage"] == "group"]
        self.n_iter_ = max(steps, default=1)
        self.reference_ = learning.columns.iloc[:REFERENCE_ROWS]
        own, told = self._calibrate_groups(learner, learning, covered, rest)
        other = self._base_calibration(rest, training)
        self.calibration_ = own if other is None else UnionCalibration((own, other))
        honest = self.calibration != "reuse"  # the rows that calibrate did not choose the groups
        apart = one_of_each_cluster(rest)  # rows of one person are no independent evidence
        self.named_groups_ = (
            credible_groups(learner, learning, told, covered, apart, self.alpha_, seed=self.key_)
            if honest
            else ()
        )
        cuts = NOWHERE if honest else getattr(division(own), "cuts", NOWHERE)
        self.rule_ = rule_to_explain(
            self.named_groups_, learning.columns[list(learner.features_)], told, cuts
        )
        self.groups_ = describe_groups(self.named_groups_, own, apart, honest=honest)
        return self.calibration_

    def _calibrate_groups(
        self, learner: GroupLearner, learning: Rows, covered: FloatArray, rest: Rows
    ) -> tuple[Any, FloatArray]:
        """Divide rows by what was learned, and calibrate on the rows that are left.

        Returns the calibration, and what the learner says about the learning rows: their
        disadvantage, or their membership where groups are made of that.
        """
        common: dict[str, Any] = {"label_conditional": self.label_conditional}
        if self.construction == "levels":
            b = disadvantage(learner, learning)
            signal = getattr(learner, "signal_", None)  # a learner without members has none
            most = self.n_levels if learner.found_ else 1
            if signal is not None:
                most = signal.n_levels(rest.n_people, self.n_levels)
            finer = most == self.n_levels  # a weak signal, which has fewer, deserves no more
            levels = DisadvantageLevels.cut(learner, b, most, rest.n_people, finer=finer)
            return LevelCalibration.of(levels, rest, self.alpha_, **common), b
        q = membership(learner, learning)
        cuts = cut_membership(q, covered) if learner.found_ else NOWHERE
        views: Any = GroupCells(learner, cuts)
        if self.construction == "union":
            views = GroupDraws(learner, self.n_draws, cuts)
        return CellCalibration.of(views, rest, self.alpha_, **common), q

    def _new_learner(self) -> GroupLearner:
        learner = self.learner
        if learner is None and self.construction == "levels":
            learner = GroupLearner(
                members=MEMBERS,
                numbers="piecewise",
                batch_size=256,
                max_iter=50,
                learning_rate=0.02,
            )
        learner = clone(GroupLearner() if learner is None else learner)
        return learner.set_params(random_state=self.key_ % 2**32)

    def _base_calibration(self, rows: Rows, training: Rows | None) -> Any:
        """Calibrate the base, if there is one, on the same scores and at the same level."""
        if self.base is None:
            return None
        base = clone(self.base)
        base.alpha_, base.key_ = self.alpha_, self.key_
        base.label_conditional = self.label_conditional
        if base.sensitive_features is None:
            return base._calibrate(rows, training)
        selection = base.sensitive_features
        other = None if training is None else training.selecting(selection)
        return ReselectedCalibration(base._calibrate(rows.selecting(selection), other), selection)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.learner is not None and self.construction != "levels":
            self.learner.check_membership(f'construction="{self.construction}"')
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

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as that of an edited file."""
        super().check()
        learner = self._new_learner()
        require(self.learner_.get_params() == learner.get_params(), "learner_")
        require(type(self.learner_.found_) is bool, "learner_")
        divided, own = division(self.calibration_), own_part(self.calibration_)
        require(type(divided) is CONSTRUCTIONS[self.construction], "construction")
        require(getattr(divided, "n_draws", self.n_draws) == self.n_draws, "n_draws")
        require((self.calibration_ is own) == (self.base is None), "base")
        check_groups(self.groups_, self.named_groups_, own, set(self.reference_))
        require(isinstance(self.rule_, Rule) and isinstance(self.rule_.text, str), "rule_")
        require(set(self.learner_.features_) <= set(self.reference_), "reference_")
