"""FaReG: find who is under-covered, and calibrate every degree of disadvantage."""

from __future__ import annotations

import importlib
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd

from fareg._validation import (
    FloatArray,
    IntArray,
    InvalidInputError,
    check_count,
    one_of,
    require,
)
from fareg.calibration import Batch, Labelled, LevelThresholds, Mondrian, Sample, Union
from fareg.classifiers._classifier import ConformalClassifier, Folds
from fareg.classifiers._models import Training, divide_rows
from fareg.classifiers._naming import (
    check_groups,
    check_rules,
    describe_groups,
    protected,
    rules_of,
    verify_groups,
)
from fareg.classifiers._rows import labelled
from fareg.groups import (
    DisadvantageLevels,
    LabelLevels,
    find_groups,
    learn_disadvantage,
    permutation_shares,
)
from fareg.pvalues import conformal_rank
from fareg.scores import get_score, is_adaptive


def check_learner(name: str, learner: Any) -> None:
    """Refuse what is no regressor."""
    if isinstance(learner, type) or not (hasattr(learner, "fit") and hasattr(learner, "predict")):
        raise InvalidInputError(
            f"{name} must be a scikit-learn regressor or None, got {learner!r}; pass one such as "
            "RandomForestRegressor()"
        )


NumberOfLevels = Annotated[int, partial(check_count, maximum=100)]
Protected = Annotated[Any, partial(check_rules, words=("found", "nothing"))]


@dataclass(eq=False, repr=False, kw_only=True)
class FaReGClassifier(ConformalClassifier):
    """Prediction sets with a promise for every degree of disadvantage.

    Rows that do not calibrate teach a *disadvantage*: how much worse than others people like this
    are covered by plain split conformal sets. It is cut into levels, and thresholds rise with the
    level only as much as the calibration rows require. The same rows name groups in words, and each
    of these has a threshold of its own, too. For every m and every protected group G,
    ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` and ``P(Y in C(X) | X in G) >= 1 - alpha``: for
    everyone, for the worst off, for every group "disadvantaged at least this much" between, and for
    everyone whom the words mean, in finite samples and for any distribution. Where the learning
    rows show no such order and no group, the sets are plain split conformal ones.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, calibration_size, allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    label_conditional : bool, default=False
        Whether every label is calibrated by itself, with an order of its own: who is worse off in
        one label may be better off in another. The promises then hold given ``Y = y`` too.
    sensitive_features : list of names or positions, or function of X, default=None
        The features that disadvantage and words may depend on; None for all columns.
    n_levels : int, default=20
        The largest number of levels of about equal share, 100 at most. There are fewer if a level
        would hold less than about 30 calibration rows, or if there is little evidence for a signal.
        Where all of them are used, the highest is halved again and again down to that number of
        rows, so that the worst off have a threshold of their own even if they are one in a hundred.
    learn_from : {"auto", "train", "split"}, default="auto"
        Which rows teach. With "train" it is the training rows of ``fit``, by out-of-fold
        probabilities, or ``X_learn``, so that every calibration row calibrates. With "split" it is
        half of the calibration rows. "auto" means "train" where such rows are known, else "split".
    cv : int, default=5
        Number of folds for out-of-fold probabilities; each costs one more training of the
        estimator in ``fit``.
    learner : regressor, default=None
        Learns disadvantage: any scikit-learn regressor or pipeline. None stands for boosted trees
        and kernel ridge regression on a few features, weighted by how well each predicts rows that
        it has not seen.
    protect : {"found", "nothing"}, Rule or list of Rule, default="found"
        The groups that have a threshold of their own next to that of their level. "found" are those
        that the learning rows show; a list names your own, for example from an audit. Rules may
        name sensitive features only.

    Attributes
    ----------
    named_groups_ : tuple of NamedGroup
        The groups that are credibly under-covered by split conformal sets, in words: clearly below
        the promised coverage on calibration rows, which did not choose them. Often there are none.
    protected_ : tuple of Rule
        The groups with a threshold of their own, verified or not.
    groups_ : DataFrame
        The named groups, then those that are protected and not named, then those who share a
        threshold, the worst off first: share, number of calibration rows, coverage under *split
        conformal* sets with a 95% interval, p-value of the named groups (NaN for all others: nobody
        tests protected groups, and these rows themselves pooled the levels), threshold. ``rule``
        holds the words of named and protected groups, "" for levels. One row of each cluster
        counts.
    disadvantage_ : Disadvantage, or tuple of them, one per label
        What was learned, with ``signal`` and ``features``.
    classes_, estimator_, n_calibration_, parameters_, thresholds_
        As in :class:`SplitConformalClassifier`; the thresholds are those of the levels.

    Examples
    --------
    >>> from fareg import FaReGClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(4000, random_state=0)
    >>> clf = FaReGClassifier(sensitive_features=list(data.sensitive), random_state=0)
    >>> sets = clf.fit(data.X[:3500], data.y[:3500]).predict_set(data.X[3500:])
    >>> sorted(group.rule.text for group in clf.named_groups_)
    ['Color = Blue and Gender = Male', 'Color = Red and Gender = Female']
    """

    _takes_weights = _draws = True

    n_levels: NumberOfLevels = 20
    learn_from: Annotated[str, one_of("auto", "train", "split")] = "auto"
    cv: Folds = 5
    learner: Annotated[Any, check_learner] | None = None
    protect: Protected = "found"

    @classmethod
    def paper(cls, estimator: Any = None, *, data: str = "synthetic", **parameters: Any) -> Any:
        """Return the published classifier, with its hyperparameters for one of its data sets.

        The set is a union over random draws of a group. One network learns it from half of the
        calibration rows, is stopped early on the other half, and both halves calibrate. Average
        coverage is guaranteed; nothing is proven for groups.

        Parameters
        ----------
        estimator : classifier
        data : {"synthetic", "nursery"}, default="synthetic"
            The data set whose hyperparameters are taken.
        **parameters
            Any parameter of :class:`fareg.paper.PublishedFaReGClassifier`, to change single
            settings.

        Examples
        --------
        >>> from fareg import FaReGClassifier
        >>> FaReGClassifier.paper(delta=0.4).delta
        0.4
        """
        # The paper's room stands above this one; this is the only door that leads up.
        room = importlib.import_module("fareg.paper")
        return room.PublishedFaReGClassifier.published(estimator, data=data, **parameters)

    def _calibrate(self, rows: Labelled, training: Training | None) -> Union:
        alpha, fit = self.alpha_, {"label_conditional": self.label_conditional}
        own = () if isinstance(self.protect, str) else rules_of(self.protect)
        protected(own, rows.people)  # before anything is learned
        teachers, rest = divide_rows(rows, training, self.learn_from, self.key_, "look for a group")
        adaptive = is_adaptive(get_score(self.conformity_score))
        missed = shortfall(teachers, alpha, adaptive=adaptive, **fit)
        levels = self._levels_learned(teachers, missed, rest)  # edges are fixed here
        found = find_groups(teachers.people, missed, teachers.clusters)  # words are fixed here
        apart = rest.independent_rows()
        if self.protect == "found":  # who the rows are about may decide, their labels may not
            sizes = [int(rule.inside(rest.people)[apart].sum()) for rule in found]
            enough = [conformal_rank(n, alpha) <= n for n in sizes]
            own = tuple(rule for rule, is_large in zip(found, enough, strict=True) if is_large)
        self.protected_ = own
        groups = [Mondrian.fit(g, rest, alpha, **fit) for g in protected(own, rest.people)]
        calibration = Union((LevelThresholds.fit(levels, rest, alpha, **fit), *groups))
        one_each = rest.take(apart)
        split = Sample.from_rows(one_each, label_conditional=False).split_thresholds(alpha)
        covered = (one_each.y >= 0) & (one_each.score <= split)
        self.named_groups_ = verify_groups(found, one_each.people, covered, 1 - alpha)
        rules = [*self.protected_, *(group.rule for group in self.named_groups_)]
        members = {rule: rule.inside(rest.people) for rule in rules}
        self.groups_ = describe_groups(
            self.named_groups_, self.protected_, members, calibration, apart, self.classes_
        )
        return calibration

    def _levels_learned(self, teachers: Labelled, missed: FloatArray, rest: Labelled) -> Any:
        """Learn who is disadvantaged and cut it into levels: for each label, or once for all."""
        orders, seed = [], self.key_ % 2**32
        for label in range(rest.n_classes) if self.label_conditional else (None,):
            own, others = (
                np.arange(len(rows)) if label is None else np.flatnonzero(rows.y == label)
                for rows in (teachers, rest)
            )
            some, n = teachers.take(own), len(rest.take(others).independent_rows())
            learned = learn_disadvantage(
                some.people, missed[own], some.clusters, learner=self.learner, seed=seed
            )
            sizes = {"n_levels": self.n_levels, "n_calibration": n}
            orders.append(DisadvantageLevels.cut(learned, some.people, **sizes))
        return LabelLevels(tuple(orders)) if self.label_conditional else orders[0]

    def recalibrated(
        self,
        X: Any,
        y: Any,
        *,
        proba: Any = None,
        clusters: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
        shift: Any = None,
    ) -> Self:
        """Return this classifier with the same levels and groups, and thresholds of new rows.

        For rows that are new to the classifier, every promise of ``fit`` holds again.

        Parameters
        ----------
        X, y, proba, clusters, sensitive_features, ids, shift
            As in :meth:`conformalize`; without ``shift``, no row weighs more than another.
        """
        given = labelled(self._asked(X, proba, sensitive_features, ids), y, clusters)
        other = copy(self)
        rows = other._calibration_rows(given, shift)
        sample = Sample.from_rows(rows, label_conditional=self.label_conditional)
        return other.with_sample(sample, self.calibration_.places(rows), rows.independent_rows())

    def with_sample(self, sample: Sample, places: IntArray, apart: IntArray | None = None) -> Self:
        """Return this classifier with the thresholds of other calibration rows.

        Parameters
        ----------
        sample : Sample
            Their scores.
        places : int array of shape (n, n_parts)
            Where they belong, as ``calibration_.places`` says.
        apart : int array, default=None
            The numbers of independent rows among them; None for all.
        """
        other = copy(self)
        other.shift_ = None if sample.weights is None else self.shift_
        other._use(self.calibration_.with_sample(sample, places))
        parts = zip(self.protected_, other.calibration_.parts[1:], strict=True)
        members = {rule: part.cells == 0 for rule, part in parts}
        apart = np.arange(len(sample)) if apart is None else apart
        other.groups_ = describe_groups(
            self.named_groups_, self.protected_, members, other.calibration_, apart, self.classes_
        )
        return other

    def predict_group(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Return how disadvantaged each row is, shape (n_samples,) in [0, 1].

        It is the share of the learning rows that are at most as disadvantaged: a row with 0.95 is
        worse off than 95% of them. With ``label_conditional`` there is one number for every label,
        shape (n_samples, n_classes).
        """
        return self._levels.ranks(self._people_of(X, sensitive_features))

    def predict_level(self, X: Any, *, sensitive_features: Any = None) -> IntArray:
        """Return the disadvantage level of each row, from 0, the least disadvantaged.

        With ``label_conditional`` there is one level for every label, shape (n_samples, n_classes).
        """
        return self._levels.levels(self._people_of(X, sensitive_features))

    def explain(self, X: Any, *, sensitive_features: Any = None) -> pd.Series:
        """Say which features the disadvantage of these rows depends on.

        Returns
        -------
        Series
            For every sensitive feature, the most important first, its share of how much the
            disadvantage changes if the values of a feature are shuffled among the rows.
        """
        people = self._people_of(X, sensitive_features)
        learned = self.disadvantage_
        several = learned if isinstance(learned, tuple) else (learned,)
        shares = [permutation_shares(one.predict, people, self.key_ % 2**32) for one in several]
        return sum(shares[1:], shares[0]).div(len(shares)).sort_values(ascending=False)

    def plot_levels(
        self,
        X: Any,
        y: Any,
        *,
        proba: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
    ) -> Any:
        """Draw thresholds and coverage against the level of disadvantage.

        Beside the sets stand split conformal ones with the same calibration rows.

        Parameters
        ----------
        X, y, proba, sensitive_features, ids
            As in :meth:`report`: rows that took no part in training and calibration.

        Returns
        -------
        matplotlib.figure.Figure
            Thresholds on the left, coverage with 95% intervals on the right.
        """
        from fareg.classifiers._report import plot_levels  # prediction draws no pictures

        return plot_levels(self, self._asked(X, proba, sensitive_features, ids), y)

    def levels_of(self, people: pd.DataFrame, codes: IntArray) -> IntArray:
        """Return the level of each row, in the order of the label with this number: (n,)."""
        levels = self._levels.levels(people)
        return levels if levels.ndim == 1 else levels[np.arange(len(levels)), codes]

    @property
    def disadvantage_(self) -> Any:
        """What was learned; with ``label_conditional``, a tuple with one for every label."""
        return self._levels.disadvantage

    @property
    def thresholds_(self) -> Any:
        """The threshold of every level, shape (n_levels,); one such array for every label."""
        theta = self.calibration_.parts[0].theta
        return theta[0] if self.calibration_.sample.labels is None else theta

    @property
    def _levels(self) -> Any:
        return self.calibration_.parts[0].levels

    def _promised_to(self) -> str | None:
        between = "for every degree of disadvantage between"
        if self.protected_:
            return f"everyone, for the worst off, {between}, and for every protected group"
        return f"everyone, for the worst off, and {between}"

    def _describe_rows(self, batch: Batch) -> dict[str, Any]:
        group = np.full(len(batch), "", dtype=object)
        for named in self.named_groups_[::-1]:  # the first, most significant group is written last
            group[batch.by_people(named.rule.inside)] = named.rule.text
        levels = batch.by_people(self._levels.levels)
        if levels.ndim > 1:  # an order for each label
            levels = levels[np.arange(len(batch)), batch.proba.argmax(axis=1)]
        return {"level": levels, "group": group}

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as that of an edited file."""
        super().check()
        own = self.calibration_
        require(isinstance(own, Union) and isinstance(own.parts[0], LevelThresholds), "levels")
        rules = tuple(part.groups.rule for part in own.parts[1:])
        require(rules == self.protected_, "protected_")
        learned = self.disadvantage_
        first = learned[0] if isinstance(learned, tuple) else learned
        check_groups(self.groups_, self.named_groups_, rules, set(first.columns))


def shortfall(rows: Labelled, alpha: float, *, adaptive: bool, label_conditional: bool) -> Any:
    """Return how badly each row is covered, shape (n,) in [0, 1], larger is worse.

    It is the share of confidence levels in ``[1 - 5 alpha, 1]`` at which split conformal sets of
    these rows miss the label: the aim is that of the 0/1 indicator at ``1 - alpha``, with far less
    noise. If ``label_conditional``, rows are compared with those of the same label.

    An adaptive score covers as promised wherever the probabilities are true, and too little where
    the true label gets less probability than they expect, ``sum_k p_k^2 - p_y > 0`` on average. So
    this surprise stands for the score there: it has no random part and is small in rows that say
    little, so fewer rows teach the same.
    """
    if adaptive and not label_conditional:
        return np.where(rows.y >= 0, (rows.surprise + 0.25) / 1.25, 1.0)  # it is at least -1/4
    alike = pd.Series(rows.score).groupby(rows.y if label_conditional else np.zeros(len(rows)))
    rank = (alike.rank() / (alike.transform("size") + 1)).to_numpy()
    missed = 1 - np.clip((1 - rank) / min(1.0, 5 * alpha), 0.0, 1.0)
    return np.where(rows.y >= 0, missed, 1.0)
