"""What all conformal classifiers share: parameters, splitting, rows, sets."""

from __future__ import annotations

import copy
import functools
from abc import abstractmethod
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

from fareg._columns import check_selection, column_kinds, is_frame, selected_positions
from fareg._drift import is_summary, summarise
from fareg._encoding import gradient_boosting
from fareg._hashing import check_seed, hash_key
from fareg._labels import calibration_codes, label_codes
from fareg._levels import empty_columns, numbers_as_text
from fareg._validation import (
    Confidence,
    FaregError,
    Flag,
    FloatArray,
    InvalidInputError,
    NotConformalizedError,
    OpenFraction,
    all_or_nothing,
    check_confidence_level,
    check_count,
    check_flag,
    check_parameters,
    warn,
)
from fareg.calibration import GivenProba, Rows, require, warn_of_full_sets
from fareg.classifiers._asking import FittedAnswers
from fareg.classifiers._estimators import (
    check_estimator,
    check_model,
    is_fitted,
    is_given,
    refuse_weights,
    routed_weights,
    trained,
)
from fareg.classifiers._inputs import (
    Labelled,
    beside_kinds,
    check_column_kinds,
    check_two_classes,
    checked_clusters,
    checked_ids,
    checked_labels,
    count_repeated,
    given_proba,
    proba_classes,
    probe_rows,
    probes,
    sensitive_beside,
    validated_table,
    warn_of_repeated,
    warn_of_swapped,
)
from fareg.classifiers._learning import out_of_fold_proba, split_rows
from fareg.classifiers._probabilities import ProbabilityArrays, probability_columns
from fareg.scores import get_score

Model = Annotated[Any, check_model]
Score = Annotated[Any, lambda name, value: get_score(value)]
Selection = Annotated[Any, check_selection]
Seed = Annotated[Any, check_seed]
Folds = Annotated[int, functools.partial(check_count, minimum=2)]


PARTS = ("base", "learner")  # parameters with parameters of their own, which answers depend on too


@dataclass(eq=False, repr=False)
class ConformalClassifier(FittedAnswers, ClassifierMixin, BaseEstimator):
    """Base of the conformal classifiers: a scikit-learn shell around a calibration.

    A subclass declares its parameters as fields and defines ``_calibrate(rows, training)``, which
    returns a calibration of ``fareg.calibration``; the prediction set is
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

        A ``FrozenEstimator`` is left as it is; ``ProbabilityColumns``, ``ProbabilityFunction`` and
        what has no ``fit`` or ``get_params`` have nothing to train. All rows then calibrate, as in
        ``conformalize``, and methods that learn groups learn them from a part of these rows. They
        must be rows that the model was not trained on.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any type.
        clusters : array-like of shape (n_samples,), default=None
            Ids of people or places with several rows. Rows of one id stay in one part, and each id
            counts once in calibration: the promise is made to a row drawn at random from a new one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights with which the estimator is trained, also for out-of-fold probabilities.
            Calibration counts every row once, because no promise is proven for weighted ranks.
        sensitive_features : frame of shape (n_samples, n_sensitive_features), default=None
            A frame beside X that tells who the rows are about. It defines the groups, and the
            estimator never sees it. If the method has groups, later calls need such a frame too.
        exclude_sensitive : bool, default=False
            Whether the estimator is trained and asked without the sensitive features among the
            columns of X. These columns still define groups.
        ids : array-like of shape (n_samples,), default=None
            Whose row it is, as in :meth:`predict_set`.
        """
        table = self._check_inputs(X, y, sensitive_features, clusters, ids)
        check_flag("exclude_sensitive", exclude_sensitive)
        self.excluded_ = self._sensitive_positions(table) if exclude_sensitive else []
        columns = probability_columns(self.estimator)
        if columns is not None or (self.estimator is not None and is_given(self.estimator)):
            refuse_weights(sample_weight)
            self._begin(self._fitted_estimator(table))
            return self._conformalize(table)
        seed = hash_key(self.random_state) % 2**32
        train, rest = split_rows(len(table.y), self.calibration_size, table.clusters, seed)
        check_two_classes(table.y)
        estimator = gradient_boosting(seed) if self.estimator is None else clone(self.estimator)
        weights = routed_weights(self, sample_weight, len(table.y))
        weights = None if weights is None else weights[train]
        own = table.take(train)
        self._begin(trained(clone(estimator), self._features(own.X), own.y, weights))
        training = self._training_rows(estimator, own, seed, weights)
        return self._conformalize(table.take(rest), training)

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
        sample_weight: None = None,
    ) -> Self:
        """Calibrate a fitted estimator on rows that it was not trained on.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        proba : array or frame of shape (n_samples, n_classes), default=None
            Class probabilities of these rows by anyone's model, for example softmax outputs beside
            a table of who they are about; the estimator may then be None. Pass the probabilities of
            new rows to later calls, also as ``proba``. An array in a file (``numpy.memmap``) stays
            there and is read in blocks. If None, the estimator is asked.
        classes : list of labels, default=None
            The label of each column of ``proba``. If None, these are the classes of the estimator,
            the names of a frame, or the sorted labels of y if there are as many as columns.
        clusters : array-like of shape (n_samples,), default=None
            Ids of people or places with several rows. Each id counts once: the promise is made to a
            row drawn at random from a new one. Where some of these rows teach and the others
            calibrate, rows of one id stay in one part.
        sensitive_features : frame of shape (n_samples, n_sensitive_features), default=None
            As in :meth:`fit`.
        ids : array-like of shape (n_samples,), default=None
            Whose row it is, as in :meth:`predict_set`.
        sample_weight : None
            Weights are refused: no promise is proven for weighted ranks.
        """
        refuse_weights(sample_weight)
        table = self._check_inputs(X, y, sensitive_features, clusters, ids)
        given = self._begin_with(table, proba, classes)
        return self._conformalize(table, given=given)

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as that of an edited file."""
        try:
            self._check_parameters()
        except FaregError as error:
            raise ValueError(str(error)) from error
        require(self.alpha_ == check_confidence_level(self.confidence_level), "alpha_")
        require(type(self.key_) is int and 0 <= self.key_ < 2**64, "key_")
        require(type(self.n_calibration_) is int and self.n_calibration_ > 0, "n_calibration_")
        require(type(self.n_repeated_) is int and self.n_repeated_ >= 0, "n_repeated_")
        require(type(self.n_features_in_) is int and self.n_features_in_ > 0, "n_features_in_")
        require(isinstance(self.classes_, np.ndarray) and self.classes_.ndim == 1, "classes_")
        check_column_kinds(self)
        require(is_summary(getattr(self, "seen_values_", None)), "seen_values_")
        kinds = getattr(self, "sensitive_kinds_", None)
        n_labels = len(self.classes_) if self.label_conditional else None
        rows = self._as_rows(probe_rows(self), about=None if kinds is None else probes(list(kinds)))
        with suppress(FaregError):  # columns or a basis of the user's own may refuse the probes
            self.calibration_.check(rows, n_labels, self.alpha_)
        require(self.n_calibration_ >= self.calibration_.n_rows, "n_calibration_")
        people = self.n_calibration_clusters_
        require(people in (None, self.calibration_.n_people), "n_calibration_clusters_")

    def _repr_html_inner(self) -> str:
        """Return what notebooks show: a card if fitted, scikit-learn's diagram otherwise."""
        if not self.__sklearn_is_fitted__():
            return str(super()._repr_html_inner())
        from fareg.classifiers._report import card_of  # only notebooks need it

        return card_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    @abstractmethod
    def _calibrate(self, rows: Rows, training: Rows | None) -> Any:
        """Return a calibration of labelled rows.

        ``training`` are the rows that trained the estimator, with out-of-fold probabilities; None
        if they are not known.
        """

    def _begin(self, estimator: Any) -> None:
        """Note what the answers will depend on: estimator, level, key and parameters."""
        self.estimator_ = check_estimator(estimator)
        self.classes_ = np.asarray(estimator.classes_)
        self.alpha_ = check_confidence_level(self.confidence_level)
        self.key_ = hash_key(self.random_state)
        self.freeze_parameters()

    def _training_rows(self, estimator: Any, table: Labelled, seed: int, weights: Any) -> Rows:
        """Return the training rows.

        Where they teach, with ``calibration="train"``, they have labels, and the probabilities of
        each are by a model that was trained without it.
        """
        if getattr(self, "calibration", None) not in ("auto", "train"):
            return self._as_rows(table.X, about=table.about, ids=table.ids, role="learning")

        def ask(X: Any) -> FloatArray:
            return out_of_fold_proba(
                estimator,
                self._features(X),
                table.y,
                self.classes_,
                cv=self.cv,
                clusters=table.clusters,
                seed=seed,
                weights=weights,
            )

        codes = label_codes(table.y, self.classes_)
        return self._as_rows(table.X, codes, ask=ask, role="learning", **table.beside)

    def _conformalize(
        self, table: Labelled, training: Rows | None = None, given: Any = None
    ) -> Self:
        """Calibrate on labelled rows; ``given`` are their probabilities, if they lie beside X."""
        codes = calibration_codes(
            table.y, self.classes_, alpha=self.alpha_, label_conditional=self.label_conditional
        )
        rows = self._as_rows(table.X, codes, given=given, role="calibration", **table.beside)
        if given is not None or rows.hidden:
            warn_of_swapped(rows, self.classes_)
        if given is not None:
            _ = rows.own_scores  # an array is read once, from its first row to its last
        self.n_repeated_ = count_repeated(rows)
        warn_of_repeated(self.n_repeated_, len(rows))
        self.calibration_ = self._calibrate(rows, training)
        self.n_calibration_ = self.calibration_.n_rows
        is_clustered = table.clusters is not None
        self.n_calibration_clusters_ = self.calibration_.n_people if is_clustered else None
        self._warn_of_full_sets(float(np.mean(codes < 0)))
        return self

    def _warn_of_full_sets(self, share_unknown: float) -> None:
        warn_of_full_sets(self.calibration_.full_sets(), self.classes_, self.alpha_, share_unknown)

    def freeze_parameters(self) -> None:
        """Note the parameters of this fit, which answers depend on."""
        self.parameters_: dict[str, Any] = {
            # a copy of what may be changed in place later
            name: copy.copy(value) if isinstance(value, list) or name in PARTS else value
            for name, value in self.get_params(deep=False).items()
        }

    def _sensitive_positions(self, table: Labelled) -> list[int]:
        """Return where the sensitive features stand in X; the model file remembers it."""
        selection = self.sensitive_features
        if table.about is not None:
            return []  # X does not hold them
        if selection is None or callable(selection):
            raise InvalidInputError(
                f"exclude_sensitive needs sensitive_features by name or position, got {selection}"
            )
        positions = selected_positions(table.X, selection)
        if len(positions) == self.n_features_in_:
            raise InvalidInputError("exclude_sensitive leaves the estimator no column of X to read")
        return positions

    def _begin_with(self, table: Labelled, proba: Any, classes: Any) -> GivenProba | None:
        """Begin with a fitted estimator; return probabilities given beside the table."""
        if proba is None and classes is not None:
            raise InvalidInputError("classes tells the columns of proba, got no proba")
        if proba is not None and (self.estimator is None or not is_fitted(self.estimator)):
            estimator: Any = ProbabilityArrays(proba_classes(proba, table.y, classes).tolist())
        else:
            estimator = self._fitted_estimator(table)
        if estimator is not getattr(self, "estimator_", None):
            self.excluded_ = []  # a new estimator reads all columns
        known = check_estimator(estimator).classes_
        given = given_proba(proba, table.X, known, classes)
        self._begin(estimator)
        return given

    def _fitted_estimator(self, table: Labelled) -> Any:
        """Return the given estimator if it is fitted, else the one that ``fit`` trained from it."""
        columns = probability_columns(self.estimator)
        if columns is not None:
            return clone(columns).fit(table.X, table.y)
        if self.estimator is not None and is_fitted(self.estimator):
            return self.estimator
        trained = getattr(self, "estimator_", None)
        if trained is not None and self.parameters_["estimator"] is self.estimator:
            return trained
        raise NotConformalizedError(
            "conformalize needs a fitted estimator: pass FrozenEstimator(model) or proba=, or call "
            "fit(X, y), which trains it"
        )

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _check_inputs(
        self, X: Any, y: Any, sensitive_features: Any, clusters: Any, ids: Any
    ) -> Labelled:
        """Return the table with its labels and what lies beside it, after checks."""
        self._check_parameters()
        X = validated_table(self, X, reset=True)
        y = checked_labels(X, y)
        self.column_kinds_ = column_kinds(X) if is_frame(X) else None
        self.sensitive_kinds_ = beside_kinds(sensitive_features)
        about = sensitive_beside(sensitive_features, X, self.sensitive_kinds_)
        self._check_possible(X if about is None else about)
        for tell in (numbers_as_text, empty_columns):
            if (told := tell(X, about)) is not None:
                warn(told)
        table = Labelled(X, y, about, checked_clusters(X, clusters), checked_ids(X, ids))
        self._note_values(table.clusters, (X, about))
        return table

    def _note_values(self, clusters: Any, *tables: tuple[Any, Any]) -> None:
        """Note the values of all rows that fit had, in X and in what lies beside it."""
        X, about = zip(*tables, strict=True)
        n_people = None if clusters is None else len(np.unique(clusters))
        beside = {} if about[0] is None else summarise(*about, n_people=n_people)
        self.seen_values_ = {**beside, **summarise(*X, n_people=n_people)}

    def _check_possible(self, X: Any) -> None:
        """Refuse what X, or this machine, does not have, before any work is done."""
        selection = self.sensitive_features
        if selection is not None and not callable(selection):
            selected_positions(X, selection)

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn that ``fit`` hands weights on to the estimator's ``fit``."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        estimator = gradient_boosting() if self.estimator is None else self.estimator
        fits = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=estimator, method_mapping=fits)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags
