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
from fareg.calibration import Batch, Labelled, LevelThresholds, Members, Mondrian, Sample, Union
from fareg.classifiers._classifier import ConformalClassifier, Folds
from fareg.classifiers._models import Training, divide_rows
from fareg.classifiers._naming import (
    as_rules,
    check_groups,
    check_rules,
    describe_groups,
    member_groups,
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
    """Refuse anything that is not a regressor."""
    if isinstance(learner, type) or not (hasattr(learner, "fit") and hasattr(learner, "predict")):
        raise InvalidInputError(
            f"{name} must be a scikit-learn regressor or None, got {learner!r}; pass one such as "
            "RandomForestRegressor()"
        )


NumberOfLevels = Annotated[int, partial(check_count, maximum=100)]
Protected = Annotated[Any, partial(check_rules, choices=("found", "nothing"))]


@dataclass(eq=False, repr=False, kw_only=True)
class FaReGClassifier(ConformalClassifier):
    """Prediction sets with a promise for every degree of disadvantage.

    Rows that do not calibrate teach a *disadvantage*: how much worse plain split conformal sets
    cover people like this than others. It is cut into levels, and thresholds rise with the level
    only as much as the calibration rows require. The same learning rows name groups in words, and
    each of these gets a threshold of its own, too. For every m and every protected group G,
    ``P(Y in C(X) | level(X) >= m) >= 1 - alpha`` and ``P(Y in C(X) | X in G) >= 1 - alpha``: for
    everyone, for the worst off, for every group "disadvantaged at least this much" in between, and
    for every protected group, in finite samples and for any distribution. If the learning rows show
    no such order and no group, the sets are plain split conformal ones.

    Parameters
    ----------
    estimator, confidence_level, conformity_score, calibration_size, allow_empty, random_state
        As in :class:`SplitConformalClassifier`.
    label_conditional : bool, default=False
        Whether every label is calibrated separately, with its own order: people who are worse off
        under one label may be better off under another. The promises then also hold given
        ``Y = y``.
    sensitive_features : list of names or positions, or function of X, default=None
        The features that disadvantage and rules may depend on; None for all columns.
    n_levels : int, default=20
        The largest number of levels of about equal share, 100 at most. There are fewer if a level
        would hold less than about 30 calibration rows, or if there is little evidence for a signal.
        If all of them are used, the highest is halved again and again down to that number of rows,
        so that the worst off get a threshold of their own even if they are one in a hundred.
    learn_from : {"auto", "train", "split"}, default="auto"
        Which rows teach. "train" uses the training rows of ``fit``, with out-of-fold probabilities,
        or ``X_learn``, so that every calibration row calibrates. "split" uses half of the
        calibration rows. "auto" means "train" if such rows are known, otherwise "split".
    cv : int, default=5
        Number of folds for out-of-fold probabilities; ``fit`` trains the estimator once more for
        each.
    learner : regressor, default=None
        Learns disadvantage: any scikit-learn regressor or pipeline. None means boosted trees and
        kernel ridge regression on a few features, weighted by how well each predicts unseen rows.
    protect : {"found", "nothing"}, Rule or list of Rule, default="found"
        The groups that get a threshold of their own in addition to that of their level. "found"
        are those that the learning rows show; a list names your own, for example from an audit.
        Rules may only name sensitive features, and must hold for some rows.

    Attributes
    ----------
    named_groups_ : tuple of NamedGroup
        The groups that are credibly under-covered by split conformal sets, in words: clearly below
        the promised coverage on calibration rows, which did not choose them. Often there are none.
    protected_ : tuple of Rule
        The groups with a threshold of their own, verified or not.
    groups_ : DataFrame
        The named groups, then groups that are protected but not named, then runs of levels that
        share a threshold, the worst off first. Columns: share, number of calibration rows, coverage
        of *split conformal* sets with its 95% interval, p-value of named groups (NaN for all
        others: protected groups are not tested, and levels were pooled by these same rows),
        threshold. ``rule`` is "" for levels. One row of each cluster counts.
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

    _takes_weights, _draws = True, False

    n_levels: NumberOfLevels = 20
    learn_from: Annotated[str, one_of("auto", "train", "split")] = "auto"
    cv: Folds = 5
    learner: Annotated[Any, check_learner] | None = None
    protect: Protected = "found"

    @classmethod
    def paper(cls, estimator: Any = None, *, data: str = "synthetic", **parameters: Any) -> Any:
        """Return the published classifier with its hyperparameters for one of the data sets.

        The set is a union over random draws of a group. A network learns the group from half of the
        calibration rows and is stopped early on the other half; then both halves calibrate. Average
        coverage is guaranteed; nothing is proven for groups.

        Parameters
        ----------
        estimator : classifier
        data : {"synthetic", "nursery"}, default="synthetic"
            The data set whose hyperparameters are used.
        **parameters
            Any parameter of :class:`fareg.paper.PublishedFaReGClassifier`, to change single ones.

        Examples
        --------
        >>> from fareg import FaReGClassifier
        >>> FaReGClassifier.paper(delta=0.4).delta
        0.4
        """
        # fareg.paper builds on this package, so it can only be imported here.
        paper = importlib.import_module("fareg.paper")
        return paper.PublishedFaReGClassifier.published(estimator, data=data, **parameters)

    def _calibrate(self, rows: Labelled, training: Training | None) -> Union:
        alpha, options = self.alpha_, {"label_conditional": self.label_conditional}
        protected = () if isinstance(self.protect, str) else as_rules(self.protect)
        member_groups("protect", protected, rows, training)  # refuse before anything is learned
        aim = "look for a group"
        learning, calibrating = divide_rows(rows, training, self.learn_from, self.key_, aim)
        adaptive = is_adaptive(get_score(self.conformity_score))
        missed = shortfall(learning, alpha, adaptive=adaptive, **options)
        levels = self._learn_levels(learning, missed, calibrating)  # fixes the edges
        found = find_groups(learning.people, missed, learning.clusters)  # fixes the words
        people, independent = calibrating.people, calibrating.independent_rows()
        if self.protect == "found":  # the features of calibration rows may decide, not their labels
            sizes = [int(rule.inside(people)[independent].sum()) for rule in found]
            enough = [conformal_rank(n, alpha) <= n for n in sizes]
            protected = tuple(rule for rule, large in zip(found, enough, strict=True) if large)
        self.protected_ = protected
        parts = [Mondrian.fit(Members(r), calibrating, alpha, **options) for r in protected]
        calibration = Union((LevelThresholds.fit(levels, calibrating, alpha, **options), *parts))
        tested = calibrating.take(independent)
        split = Sample.from_rows(tested, label_conditional=False).split_thresholds(alpha)
        covered = (tested.y >= 0) & (tested.score <= split)
        self.named_groups_ = verify_groups(found, tested.people, covered, 1 - alpha)
        rules = [*self.protected_, *(group.rule for group in self.named_groups_)]
        members = {rule: rule.inside(people) for rule in rules}
        self.groups_ = describe_groups(
            self.named_groups_, self.protected_, members, calibration, independent, self.classes_
        )
        return calibration

    def _learn_levels(self, learning: Labelled, missed: FloatArray, calibrating: Labelled) -> Any:
        """Learn disadvantage and cut it into levels: once for each label, or for all together."""
        orders, seed = [], self.key_ % 2**32
        for label in range(calibrating.n_classes) if self.label_conditional else (None,):
            chosen, others = (
                np.arange(len(rows)) if label is None else np.flatnonzero(rows.y == label)
                for rows in (learning, calibrating)
            )
            rows, n = learning.take(chosen), len(calibrating.take(others).independent_rows())
            learned = learn_disadvantage(
                rows.people, missed[chosen], rows.clusters, learner=self.learner, seed=seed
            )
            sizes = {"n_levels": self.n_levels, "n_calibration": n}
            orders.append(DisadvantageLevels.cut(learned, rows.people, **sizes))
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
        """Return this classifier with the same levels and groups, but thresholds from new rows.

        If the classifier has never seen these rows, every promise of ``fit`` holds again.

        Parameters
        ----------
        X, y, proba, clusters, sensitive_features, ids, shift
            As in :meth:`conformalize`; without ``shift``, all rows have the same weight. If the
            calibration had clusters, new rows need them too.
        """
        new_rows = labelled(self._checked_rows(X, proba, sensitive_features, ids), y, clusters)
        if clusters is None and self.n_calibration_clusters_ is not None:
            raise InvalidInputError(
                "clusters= is needed, because the calibration counted each cluster once; pass the "
                "id of each row, or np.arange(len(X)) if every row is its own cluster"
            )
        other = copy(self)
        rows = other._calibration_rows(new_rows, shift)
        sample = Sample.from_rows(rows, label_conditional=self.label_conditional)
        return other.with_sample(sample, self.calibration_.places(rows), rows.independent_rows())

    def with_sample(self, sample: Sample, places: IntArray, apart: IntArray | None = None) -> Self:
        """Return this classifier with thresholds from other calibration rows.

        Parameters
        ----------
        sample : Sample
            Their scores.
        places : int array of shape (n, n_parts)
            Their cells, as returned by ``calibration_.places``.
        apart : int array, default=None
            The numbers of independent rows among them; None for all.
        """
        other = copy(self)
        other.shift_ = None if sample.weights is None else self.shift_
        other._use_calibration(self.calibration_.with_sample(sample, places))
        parts = zip(self.protected_, other.calibration_.parts[1:], strict=True)
        members = {rule: part.cells == 0 for rule, part in parts}
        rows = np.arange(len(sample)) if apart is None else apart
        other.groups_ = describe_groups(
            self.named_groups_, self.protected_, members, other.calibration_, rows, self.classes_
        )
        return other

    def predict_group(self, X: Any, *, sensitive_features: Any = None) -> FloatArray:
        """Return how disadvantaged each row is, shape (n_samples,) in [0, 1].

        It is the share of the learning rows that are at most as disadvantaged: a row with 0.95 is
        worse off than 95% of them. With ``label_conditional``, each label has its own number, shape
        (n_samples, n_classes).
        """
        people = self._read_people(X, sensitive_features)
        return self._levels.ranks(people)

    def predict_level(self, X: Any, *, sensitive_features: Any = None) -> IntArray:
        """Return the disadvantage level of each row, from 0, the least disadvantaged.

        With ``label_conditional``, each label has its own level, shape (n_samples, n_classes).
        """
        people = self._read_people(X, sensitive_features)
        return self._levels.levels(people)

    def explain(self, X: Any, *, sensitive_features: Any = None) -> pd.Series:
        """Return how much the disadvantage of these rows depends on each feature.

        Returns
        -------
        Series
            A share for every sensitive feature, the largest first: how much the disadvantage
            changes when its values are shuffled among the rows.
        """
        people = self._read_people(X, sensitive_features)
        learned, seed = self.disadvantage_, self.key_ % 2**32
        orders = learned if isinstance(learned, tuple) else (learned,)
        shares = [permutation_shares(order.predict, people, seed) for order in orders]
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

        The picture also shows split conformal sets from the same calibration rows.

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

        return plot_levels(self, self._checked_rows(X, proba, sensitive_features, ids), y)

    def levels_of(self, people: pd.DataFrame, codes: IntArray) -> IntArray:
        """Return the level of each row, shape (n,), in the order of the label in ``codes``."""
        levels = self._levels.levels(people)
        return levels if levels.ndim == 1 else levels[np.arange(len(levels)), codes]

    @property
    def disadvantage_(self) -> Any:
        """What was learned; with ``label_conditional``, a tuple with an entry for every label."""
        return self._levels.disadvantage

    @property
    def thresholds_(self) -> Any:
        """The threshold of every level, shape (n_levels,), or a tuple with an array per label."""
        theta = self.calibration_.parts[0].theta
        return theta[0] if self.calibration_.sample.labels is None else theta

    @property
    def _levels(self) -> Any:
        return self.calibration_.parts[0].levels

    def _promised_to(self) -> str | None:
        degrees = "for every degree of disadvantage in between"
        if self.protected_:
            return f"everyone, for the worst off, {degrees}, and for every protected group"
        return f"everyone, for the worst off, and {degrees}"

    def _describe_rows(self, batch: Batch) -> dict[str, Any]:
        group = np.full(len(batch), "", dtype=object)
        for named in self.named_groups_[::-1]:  # write the most significant group last
            group[batch.by_people(named.rule.inside)] = named.rule.text
        levels = batch.by_people(self._levels.levels)
        if levels.ndim > 1:  # an order for each label
            levels = levels[np.arange(len(batch)), batch.proba.argmax(axis=1)]
        return {"level": levels, "group": group}

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as in an edited file."""
        super().check()
        fitted = self.calibration_
        is_right = isinstance(fitted, Union) and isinstance(fitted.parts[0], LevelThresholds)
        require(is_right, "levels")
        rules = tuple(part.groups.rule for part in fitted.parts[1:])
        require(rules == self.protected_, "protected_")
        learned = self.disadvantage_
        first = learned[0] if isinstance(learned, tuple) else learned
        check_groups(self.groups_, self.named_groups_, rules, set(first.columns))


def shortfall(rows: Labelled, alpha: float, *, adaptive: bool, label_conditional: bool) -> Any:
    """Return how badly each row is covered, shape (n,) in [0, 1]; larger is worse.

    It is the share of confidence levels in ``[1 - 5 alpha, 1]`` at which split conformal sets of
    these rows miss the label. It estimates the same as the 0/1 indicator of a miss at ``1 - alpha``
    with far less noise. If ``label_conditional``, rows are compared with those of the same label.

    An adaptive score covers as promised where the probabilities are true. It covers too little
    where the true label gets less probability than they expect: ``sum_k p_k^2 - p_y > 0`` on
    average. So this surprise replaces the score there. It has no random part and is small in rows
    that say little, so fewer rows teach the same.
    """
    if adaptive and not label_conditional:
        return np.where(rows.y >= 0, (rows.surprise + 0.25) / 1.25, 1.0)  # it is at least -1/4
    compared = pd.Series(rows.score).groupby(rows.y if label_conditional else np.zeros(len(rows)))
    rank = (compared.rank() / (compared.transform("size") + 1)).to_numpy()
    missed = 1 - np.clip((1 - rank) / min(1.0, 5 * alpha), 0.0, 1.0)
    return np.where(rows.y >= 0, missed, 1.0)
