"""The base of all conformal classifiers: ``fit`` and ``conformalize``."""

from __future__ import annotations

import copy
import functools
from abc import abstractmethod
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

from fareg._columns import KINDS, canonical, check_selection, is_frame, kind_of, selected_positions
from fareg._drift import doubtful_columns, is_summary, summarise
from fareg._encoding import gradient_boosting
from fareg._labels import calibration_codes, label_codes
from fareg._rows import check_seed, equal_before, hash_key
from fareg._validation import (
    Confidence,
    FaregError,
    Flag,
    InvalidInputError,
    NotConformalizedError,
    OpenFraction,
    all_or_nothing,
    check_confidence_level,
    check_count,
    check_flag,
    check_parameters,
    require,
    warn,
)
from fareg.calibration import Batch, Labelled, warn_of_full_sets
from fareg.classifiers._answers import FittedAnswers
from fareg.classifiers._models import (
    Training,
    check_estimator,
    check_model,
    is_fitted,
    is_given,
    out_of_fold_proba,
    refuse_weights,
    routed_weights,
    split_rows,
    trained,
    unfrozen,
    without_columns,
)
from fareg.classifiers._probabilities import ProbabilityArrays, ProbabilityColumns
from fareg.classifiers._rows import (
    Rows,
    labelled,
    proba_classes,
    read_proba,
    read_rows,
    warn_of_repeated,
)
from fareg.scores import get_score, is_randomised
from fareg.shift import Weighing

Model = Annotated[Any, check_model]
Score = Annotated[Any, lambda name, value: get_score(value)]
Selection = Annotated[Any, check_selection]
Seed = Annotated[Any, check_seed]
Folds = Annotated[int, functools.partial(check_count, minimum=2)]

NESTED = ("base", "learner")  # parameters that are estimators, whose settings matter as well
UNKNOWN = np.array([None, 0.0, "a"], dtype=object)  # a missing value, a number, a text


@dataclass(eq=False, repr=False)
class ConformalClassifier(FittedAnswers, ClassifierMixin, BaseEstimator):
    """Base of the conformal classifiers: a scikit-learn estimator around a calibration.

    A subclass declares its parameters as fields and defines ``_calibrate(rows, training)``, which
    returns a calibration from ``fareg.calibration``. The prediction set is
    ``{y : V(x, y) <= threshold(x)}``.

    Examples
    --------
    >>> from fareg import SplitConformalClassifier
    >>> from fareg.classifiers import ConformalClassifier
    >>> issubclass(SplitConformalClassifier, ConformalClassifier)
    True
    """

    estimator: Model | None = None
    _: KW_ONLY
    confidence_level: Confidence = 0.9
    conformity_score: Score = "aps"
    sensitive_features: Selection = None
    label_conditional: Flag = False
    calibration_size: OpenFraction = 0.5
    allow_empty: Flag = True
    random_state: Seed = None

    learn_from = "split"  # a parameter of methods that can learn from training rows
    cv = 5

    @abstractmethod
    def _calibrate(self, rows: Labelled, training: Training | None) -> Any:
        """Return a calibration of labelled rows; ``training`` is None without training rows."""

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        clusters: Any = None,
        sample_weight: Any = None,
        sensitive_features: Any = None,
        exclude_sensitive: bool = False,
        ids: Any = None,
    ) -> Self:
        """Split (X, y) at random, train the estimator on one part, conformalize on the other.

        A ``FrozenEstimator``, ``ProbabilityColumns`` and models without ``fit`` or ``get_params``
        are not trained. Then all rows calibrate, as in ``conformalize``, and the model must not
        have been trained on them; methods that learn groups learn from a part of these rows.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any type.
        clusters : array-like of shape (n_samples,), default=None
            Ids of people or places with several rows. Rows of one id stay in one part, and each id
            counts once in calibration: the promise is about a random row of a new person or place.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights for training the estimator, also for out-of-fold probabilities. Calibration
            counts every row once, because no promise is proven for weighted ranks.
        sensitive_features : frame of shape (n_samples, n_sensitive_features), default=None
            The columns that define groups, in a frame that the estimator never sees. If the method
            has groups, later calls need such a frame too.
        exclude_sensitive : bool, default=False
            Whether to hide the sensitive features among the columns of X from the estimator. They
            still define groups.
        ids : array-like of shape (n_samples,), default=None
            The id of the person behind each row, as in :meth:`predict_set`.
        """
        rows = self._read_labelled(X, y, sensitive_features, clusters, ids)
        exclude = check_flag("exclude_sensitive", exclude_sensitive)
        excluded = self._sensitive_positions(rows) if exclude else []
        if self.estimator is not None and is_given(self.estimator):
            refuse_weights(sample_weight)
            rows = self._use_fitted(rows, None, None)
            self.excluded_ = excluded
            return self._conformalize(rows)
        if len(pd.unique(rows.y)) < 2 <= len(rows):
            raise InvalidInputError(
                f"y must hold at least two classes, got one class: {rows.y[0]}; nothing to predict"
            )
        seed = hash_key(self.random_state) % 2**32
        train, calibrate = split_rows(len(rows), self.calibration_size, rows.clusters, seed)
        weights = None
        if sample_weight is not None:
            weights = routed_weights(self, sample_weight, len(rows))
            weights = None if weights is None else weights[train]
        model = gradient_boosting(seed) if self.estimator is None else clone(self.estimator)
        training_rows, self.excluded_ = rows.take(train), excluded
        visible, labels = without_columns(training_rows.X, excluded), training_rows.y
        self._use_estimator(trained(clone(model), visible, labels, weights))
        training = None
        if self.learn_from in ("auto", "train"):
            folds: dict[str, Any] = {"classes": self.classes_, "cv": self.cv, "seed": seed}
            folds |= {"clusters": training_rows.clusters, "weights": weights}
            proba = out_of_fold_proba(model, visible, labels, **folds)
            training = self._training(replace(training_rows, proba=proba))
        elif self._has_groups:
            training = Training(self._people(training_rows))
        return self._conformalize(rows.take(calibrate), training)

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
        shift: Any = None,
        sample_weight: None = None,
    ) -> Self:
        """Calibrate a fitted estimator on rows that it was not trained on.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        proba : array or frame of shape (n_samples, n_classes), default=None
            Class probabilities of these rows from any model; the estimator may then be None. Pass
            those of new rows to later calls, too. An array in a file (``numpy.memmap``) is read in
            blocks. If None, the estimator computes them.
        classes : list of labels, default=None
            The label of each column of ``proba``. If None, these are the classes of the estimator,
            the names of a frame, or the sorted labels of y if there are as many as columns.
        clusters, sensitive_features, ids : default=None
            As in :meth:`fit`.
        X_learn, y_learn : as X and y, default=None
            Learning rows, from which FaReG learns who is disadvantaged, or a rectified classifier
            its quantile, so that all rows of X calibrate. Without them, a part of X is used.
        proba_learn : array of shape (n_learn, n_classes), default=None
            Class probabilities of the learning rows from models that were not trained on them. If
            None, the estimator computes them; then it must not have been trained on these rows.
        sensitive_learn, clusters_learn, ids_learn : default=None
            As ``sensitive_features``, ``clusters`` and ``ids``, of the learning rows.
        shift : KnownWeights, CovariateShift or LabelShift, default=None
            How the population differs for which sets will be made; see ``fareg.shift``. The promise
            then holds in the new population. Split, Partial, Exhaustive and FaReG support it.
        sample_weight : None
            Weights are refused; use ``shift=KnownWeights(column)`` for those of a new population.
        """
        refuse_weights(sample_weight)
        of_learning = (y_learn, proba_learn, sensitive_learn, clusters_learn, ids_learn)
        if X_learn is None and any(value is not None for value in of_learning):
            raise InvalidInputError(
                "y_learn, proba_learn, sensitive_learn, clusters_learn and ids_learn describe "
                "X_learn, got no X_learn"
            )
        if X_learn is not None and self.learn_from not in ("auto", "train"):
            raise InvalidInputError(
                f"this {type(self).__name__} learns nothing from X_learn; leave it out"
            )
        rows = self._read_labelled(X, y, sensitive_features, clusters, ids)
        rows = self._use_fitted(rows, proba, classes)
        if X_learn is None:
            return self._conformalize(rows, shift=shift)
        if sensitive_learn is None and rows.sensitive is not None:
            raise InvalidInputError(
                "sensitive_features were passed for X, so they are needed for X_learn too, got "
                "none; pass sensitive_learn=frame"
            )
        learning = read_rows(self, X_learn, proba_learn, sensitive_learn, ids_learn, labels=classes)
        learning = labelled(learning, y_learn, clusters_learn)
        pairs = zip(rows.tables, learning.tables, strict=True)
        self.seen_values_ = summarise(*map(pd.concat, pairs), clusters=rows.clusters)
        return self._conformalize(rows, self._training(learning), shift)

    def _read_labelled(self, X: Any, y: Any, sensitive: Any, clusters: Any, ids: Any) -> Rows:
        """Check parameters and rows, and remember what the columns hold; return the rows."""
        self._check_parameters()
        rows = labelled(read_rows(self, X, None, sensitive, ids, reset=True), y, clusters)
        kinds = [{str(n): kind_of(column) for n, column in t.items()} for t in rows.tables]
        self.column_kinds_ = kinds[-1] if is_frame(X) else None
        self.sensitive_kinds_ = None if rows.sensitive is None else kinds[0]
        selection = self.sensitive_features
        if selection is not None and not callable(selection):  # before any work is done
            selected_positions(rows.tables[0], selection)
        for doubt in (doubt for table in rows.tables for doubt in doubtful_columns(table)):
            warn(doubt)
        self.seen_values_ = summarise(*rows.tables, clusters=rows.clusters)
        return rows

    def _use_estimator(self, estimator: Any) -> None:
        """Store what the answers depend on: estimator, confidence, random key and parameters."""
        self.estimator_ = check_estimator(estimator)
        self.classes_ = np.asarray(estimator.classes_)
        self.alpha_ = check_confidence_level(self.confidence_level)
        self.key_ = hash_key(self.random_state)
        self.shift_ = None
        self.freeze_parameters()

    def _use_fitted(self, rows: Rows, proba: Any, classes: Any) -> Rows:
        """Use a fitted estimator, or ``proba``; return the rows with these probabilities."""
        if proba is None and classes is not None:
            raise InvalidInputError("classes names the columns of proba, got no proba")
        if proba is not None and (self.estimator is None or not is_fitted(self.estimator)):
            labels = np.asarray(proba_classes(proba, rows.y, classes)).tolist()
            estimator: Any = ProbabilityArrays(labels)
        else:
            estimator = self._fitted_estimator(rows)
        if estimator is not getattr(self, "estimator_", None):
            self.excluded_ = list[int]()  # a new estimator reads all columns
        self._use_estimator(estimator)
        if proba is None:
            return rows
        return replace(rows, proba=read_proba(proba, rows.X, self.classes_, classes))

    def _fitted_estimator(self, rows: Rows) -> Any:
        """Return the given estimator if it is fitted, else the one that ``fit`` trained from it."""
        model = unfrozen(self.estimator)
        if isinstance(model, ProbabilityColumns):
            return clone(model).fit(rows.X, rows.y)
        if self.estimator is not None and is_fitted(self.estimator):
            return self.estimator
        if "estimator_" in vars(self) and self.parameters_["estimator"] is self.estimator:
            return self.estimator_
        raise NotConformalizedError(
            "conformalize needs a fitted estimator: pass FrozenEstimator(model) or proba=, or call "
            "fit(X, y), which trains it"
        )

    def _training(self, rows: Rows) -> Training:
        """Return learning rows; their probabilities must not come from models trained on them."""
        codes = label_codes(rows.y, self.classes_)
        learning_rows = self._labelled(replace(rows, codes=codes), "learning")
        return Training(learning_rows.people, learning_rows)

    def _conformalize(
        self, rows: Rows, training: Training | None = None, shift: Any = None
    ) -> Self:
        """Calibrate on labelled rows."""
        if self.learn_from == "train" and (training is None or training.rows is None):
            raise InvalidInputError(
                'learn_from="train" needs rows to learn from: call fit(X, y), pass X_learn, or '
                'choose learn_from="split"'
            )
        calibration = self._calibrate(self._calibration_rows(rows, shift), training)
        return self._use_calibration(calibration)

    def _calibration_rows(self, rows: Rows, shift: Any = None) -> Labelled:
        """Return calibration rows after checks of their labels; warn if many are equal."""
        codes = calibration_codes(rows.y, self.classes_, alpha=self.alpha_)
        rows = replace(rows, codes=codes)
        hashes = before = None
        if is_randomised(get_score(self.conformity_score)):  # otherwise equal rows do no harm
            hashes = self._hashes(rows)
            before = equal_before(hashes)
            warn_of_repeated(before)
        calibration_rows = self._labelled(rows, "calibration", hashes, before)
        self.shift_ = None
        if shift is None:
            return calibration_rows
        if not self._takes_weights or rows.clusters is not None:
            case = "rows with clusters" if self._takes_weights else type(self).__name__
            raise InvalidInputError(
                f"no promise is proven for {case} with weights; leave out shift, or use Split, "
                "Partial, Exhaustive or FaReG classifiers without clusters"
            )
        self.shift_, weights = Weighing.of(shift, rows.tables, codes, self.classes_)
        return replace(calibration_rows, weights=weights)

    def _use_calibration(self, calibration: Any) -> Self:
        """Store a calibration, which answers from now on; warn if a group gets full sets."""
        self.calibration_, sample = calibration, calibration.sample
        self.n_calibration_ = len(sample)
        self.n_calibration_clusters_ = None if sample.sizes is None else sample.n_people
        warn_of_full_sets(calibration, self.classes_, self.alpha_)
        return self

    def _sensitive_positions(self, rows: Rows) -> list[int]:
        """Return the positions of the sensitive features in X, [] if they have their own frame."""
        selection = self.sensitive_features
        if rows.sensitive is not None:
            return []
        if selection is None or callable(selection):
            raise InvalidInputError(
                f"exclude_sensitive needs sensitive_features by name or position, got {selection}"
            )
        positions = selected_positions(rows.table, selection)
        if len(positions) == self.n_features_in_:
            raise InvalidInputError("exclude_sensitive leaves the estimator no column of X to read")
        return positions

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn that ``fit`` passes weights to the estimator's ``fit``."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        estimator = gradient_boosting() if self.estimator is None else self.estimator
        fits = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=estimator, method_mapping=fits)

    def _html_repr(self) -> str:
        """Return what notebooks show: a card if fitted, scikit-learn's diagram otherwise."""
        if not self.__sklearn_is_fitted__():
            return str(super()._html_repr())
        from fareg.classifiers._report import html_card  # only notebooks need it

        return html_card(self)

    def freeze_parameters(self) -> None:
        """Store the parameters of this fit."""
        self.parameters_: dict[str, Any] = {
            # copy what could be changed in place later
            name: copy.copy(value) if isinstance(value, list) or name in NESTED else value
            for name, value in self.get_params(deep=False).items()
        }

    def _check_parameters(self) -> None:
        check_parameters(self)

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as in an edited file."""
        try:
            self._check_parameters()
        except FaregError as error:
            raise ValueError(str(error)) from error
        n, kinds, sample = self.n_features_in_, self.column_kinds_, self.calibration_.sample
        names, key, excluded = getattr(self, "feature_names_in_", None), self.key_, self.excluded_
        n_clusters, shift = (None if sample.sizes is None else sample.n_people), self.shift_
        holds = {
            "alpha_": self.alpha_ == check_confidence_level(self.confidence_level),
            "key_": type(key) is int and 0 <= key < 2**64,
            "classes_": isinstance(self.classes_, np.ndarray) and self.classes_.ndim == 1,
            "n_features_in_": type(n) is int and n > 0,
            "feature_names_in_": names is None
            or (isinstance(names, np.ndarray) and names.shape == (n,)),
            "excluded_": isinstance(excluded, list)
            and all(type(p) is int and 0 <= p < n for p in excluded),
            "seen_values_": is_summary(self.seen_values_),
            "sensitive_kinds_": _are_kinds(self.sensitive_kinds_),
            "column_kinds_": _are_kinds(kinds)
            and len(kinds or range(n)) == n
            and list(kinds or ()) == list(kinds or () if names is None else names),
            "shift_": shift is None or (isinstance(shift, Weighing) and sample.weights is not None),
            "n_calibration_": self.n_calibration_ == len(sample) > 0,
            "n_calibration_clusters_": self.n_calibration_clusters_ == n_clusters,
        }
        for part, is_right in holds.items():
            require(is_right, part)
        X = np.repeat(UNKNOWN[:, None], n, axis=1)
        table: Any = X if names is None else pd.DataFrame(X, columns=names)
        rows = Rows(table, canonical(table))
        if self.sensitive_kinds_:
            sensitive = pd.DataFrame(dict.fromkeys(self.sensitive_kinds_, UNKNOWN))
            rows = replace(rows, sensitive=canonical(sensitive))
        selectors = (self.sensitive_features, getattr(self, "feature_map", None))
        with suppress(Exception if any(map(callable, selectors)) else FaregError):
            # a user's function, or the columns that it selects, may refuse unknown values
            people, zeros = self._people(rows), np.zeros((len(rows), len(self.classes_)))
            batch = Batch(people, zeros, zeros, np.full(len(rows), 0.5))
            n_labels = len(self.classes_) if self.label_conditional else None
            self.calibration_.check(batch, n_labels, self.alpha_)
            if shift is not None:
                shift.of_new(rows.tables, len(self.classes_))


def _are_kinds(kinds: Any) -> bool:
    """Return whether a stored value is a dict of column kinds, or None."""
    return kinds is None or (isinstance(kinds, dict) and set(kinds.values()) <= set(KINDS))
