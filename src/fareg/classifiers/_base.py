"""What all conformal classifiers share: parameters, splitting, the rows of a call, calibration."""

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

from fareg._columns import code_table, is_frame
from fareg._drift import is_summary, summarise
from fareg._encoding import gradient_boosting
from fareg._hashing import check_seed, hash_key
from fareg._labels import calibration_codes, label_codes
from fareg._levels import doubtful_columns
from fareg._selection import check_selection, selected_positions
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
from fareg.classifiers._inputs import (
    Given,
    check_column_kinds,
    checked_clusters,
    checked_ids,
    checked_labels,
    given_proba,
    proba_classes,
    probe_rows,
    sensitive_beside,
    validated_table,
    warn_of_repeated,
)
from fareg.classifiers._learning import (
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
)
from fareg.classifiers._probabilities import (
    ProbabilityArrays,
    ProbabilityColumns,
)
from fareg.scores import get_score, is_randomised

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
            A frame beside X that says who the rows are about. It defines the groups, and the
            estimator never sees it. If the method has groups, later calls need such a frame too.
        exclude_sensitive : bool, default=False
            Whether the estimator is trained and asked without the sensitive features among the
            columns of X. These columns still define groups.
        ids : array-like of shape (n_samples,), default=None
            Whose row it is, as in :meth:`predict_set`.
        """
        given = self._check_inputs(X, y, sensitive_features, clusters, ids)
        check_flag("exclude_sensitive", exclude_sensitive)
        self.excluded_ = self._sensitive_positions(given) if exclude_sensitive else []
        if self.estimator is not None and is_given(self.estimator):
            refuse_weights(sample_weight)
            self._begin(self._fitted_estimator(given))
            return self._conformalize(given)
        seed = hash_key(self.random_state) % 2**32
        train, rest = split_rows(len(given), self.calibration_size, given.clusters, seed)
        if len(pd.unique(given.y)) < 2:
            raise InvalidInputError(
                f"y must hold at least two classes, got one class: {given.y[0]}; nothing to predict"
            )
        estimator = gradient_boosting(seed) if self.estimator is None else clone(self.estimator)
        weights = routed_weights(self, sample_weight, len(given))
        weights = None if weights is None else weights[train]
        own = given.take(train)
        self._begin(trained(clone(estimator), self._features(own.X), own.y, weights))
        return self._conformalize(given.take(rest), self._training(estimator, own, seed, weights))

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
        clusters, sensitive_features, ids : default=None
            As in :meth:`fit`.
        sample_weight : None
            Weights are refused: no promise is proven for weighted ranks.
        """
        refuse_weights(sample_weight)
        given = self._check_inputs(X, y, sensitive_features, clusters, ids)
        return self._conformalize(self._begin_with(given, proba, classes))

    @abstractmethod
    def _calibrate(self, rows: Labelled, training: Training | None) -> Any:
        """Return a calibration of labelled rows; ``training`` is None if no such rows are known."""

    def _begin(self, estimator: Any) -> None:
        """Note what the answers will depend on: estimator, level, key and parameters."""
        self.estimator_ = check_estimator(estimator)
        self.classes_ = np.asarray(estimator.classes_)
        self.alpha_ = check_confidence_level(self.confidence_level)
        self.key_ = hash_key(self.random_state)
        self.freeze_parameters()

    def _begin_with(self, given: Given, proba: Any, classes: Any) -> Given:
        """Begin with a fitted estimator; return the rows with the probabilities beside them."""
        if proba is None and classes is not None:
            raise InvalidInputError("classes names the columns of proba, got no proba")
        if proba is not None and (self.estimator is None or not is_fitted(self.estimator)):
            estimator: Any = ProbabilityArrays(proba_classes(proba, given.y, classes).tolist())
        else:
            estimator = self._fitted_estimator(given)
        if estimator is not getattr(self, "estimator_", None):
            self.excluded_ = []  # a new estimator reads all columns
        table = given_proba(proba, given.X, check_estimator(estimator).classes_, classes)
        self._begin(estimator)
        return replace(given, proba=table)

    def _fitted_estimator(self, given: Given) -> Any:
        """Return the given estimator if it is fitted, else the one that ``fit`` trained from it."""
        columns = unfrozen(self.estimator)
        if isinstance(columns, ProbabilityColumns):
            return clone(columns).fit(given.X, given.y)
        if self.estimator is not None and is_fitted(self.estimator):
            return self.estimator
        before = getattr(self, "estimator_", None)
        if before is not None and self.parameters_["estimator"] is self.estimator:
            return before
        raise NotConformalizedError(
            "conformalize needs a fitted estimator: pass FrozenEstimator(model) or proba=, or call "
            "fit(X, y), which trains it"
        )

    def _training(self, estimator: Any, own: Given, seed: int, weights: Any) -> Training | None:
        """Return the training rows; where they teach, by models that were trained without them."""
        if not self._has_groups:
            return None
        if getattr(self, "learn_from", None) not in ("auto", "train"):
            return Training(self._people(own), None)
        proba = out_of_fold_proba(
            estimator,
            self._features(own.X),
            own.y,
            self.classes_,
            cv=getattr(self, "cv", 5),
            clusters=own.clusters,
            seed=seed,
            weights=weights,
        )
        codes = label_codes(own.y, self.classes_)
        rows = self._labelled(replace(own, proba=proba), codes, "learning")
        return Training(rows.people, rows)

    def _conformalize(self, given: Given, training: Training | None = None) -> Self:
        """Calibrate on labelled rows."""
        is_known = training is not None and training.rows is not None
        if getattr(self, "learn_from", None) == "train" and not is_known:  # before rows are scored
            raise InvalidInputError(
                'learn_from="train" needs rows to learn from: call fit(X, y), pass X_learn, or '
                'choose learn_from="split"'
            )
        rows, self.n_repeated_ = self._calibration_rows(given)
        warn_of_repeated(self.n_repeated_, len(rows))
        return self._use(self._calibrate(rows, training), given.clusters is not None)

    def _calibration_rows(self, given: Given) -> tuple[Labelled, int]:
        """Return checked rows that calibrate, and how many of them equal an earlier one."""
        by_label = self.parameters_["label_conditional"]
        codes = calibration_codes(
            given.y, self.classes_, alpha=self.alpha_, label_conditional=by_label
        )
        hashes, score = self.row_hashes(given, codes), self.parameters_["conformity_score"]
        rows = self._labelled(given, codes, "calibration", hashes)
        # where scores are not randomised, it does not matter which rows are equal
        repeats = is_randomised(get_score(score)) and pd.Series(hashes).duplicated().sum()
        return rows, int(repeats)

    def _use(self, calibration: Any, has_clusters: bool) -> Self:
        """Answer by a calibration from now on; warn if its sets are full for somebody."""
        self.calibration_ = calibration
        self.n_calibration_ = len(calibration.sample)
        self.n_calibration_clusters_ = calibration.sample.n_people if has_clusters else None
        warn_of_full_sets(calibration, self.classes_, self.alpha_)
        return self

    def freeze_parameters(self) -> None:
        """Note the parameters of this fit, which answers depend on."""
        self.parameters_: dict[str, Any] = {
            # a copy of what may be changed in place later
            name: copy.copy(value) if isinstance(value, list) or name in PARTS else value
            for name, value in self.get_params(deep=False).items()
        }

    def _check_inputs(
        self, X: Any, y: Any, sensitive_features: Any, clusters: Any, ids: Any
    ) -> Given:
        """Return the rows with their labels and what lies beside them, after checks."""
        self._check_parameters()
        X = validated_table(self, X, reset=True)
        y = checked_labels(X, y)
        table = code_table(X)
        beside = sensitive_beside(sensitive_features, X, None, reset=True)
        self.column_kinds_ = table.kinds() if is_frame(X) else None
        self.sensitive_kinds_ = None if beside is None else beside.kinds()
        self._check_possible(X if beside is None else beside.source)
        for sentence in doubtful_columns(table, beside):
            warn(sentence)
        given = Given(table, y, beside, checked_clusters(X, clusters), checked_ids(X, ids))
        self._note_values(given)
        return given

    def _note_values(self, *rows: Given) -> None:
        """Note the values of all rows that fit had, in X and in what lies beside it."""
        clusters = rows[0].clusters
        n_people = None if clusters is None else len(np.unique(clusters))
        self.seen_values_ = summarise(*(own.table for own in rows), n_people=n_people)
        if rows[0].beside is not None:
            beside = summarise(*(own.beside for own in rows), n_people=n_people)
            self.seen_values_ = {**beside, **self.seen_values_}

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _check_possible(self, X: Any) -> None:
        """Refuse what X, or this machine, does not have, before any work is done."""
        selection = self.sensitive_features
        if selection is not None and not callable(selection):
            selected_positions(X, selection)

    def _sensitive_positions(self, given: Given) -> list[int]:
        """Return where the sensitive features stand in X; the model file remembers it."""
        selection = self.sensitive_features
        if given.beside is not None:
            return []  # X does not hold them
        if selection is None or callable(selection):
            raise InvalidInputError(
                f"exclude_sensitive needs sensitive_features by name or position, got {selection}"
            )
        positions = selected_positions(given.X, selection)
        if len(positions) == self.n_features_in_:
            raise InvalidInputError("exclude_sensitive leaves the estimator no column of X to read")
        return positions

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
        given, n_classes = probe_rows(self), len(self.classes_)
        own = (self.sensitive_features, getattr(self, "feature_map", None))
        refusals = Exception if any(map(callable, own)) else FaregError
        probed = None
        with suppress(refusals):  # columns or a function of the user's own may refuse the probes
            probed = self._people(given)
        if probed is not None:
            nothing = np.zeros((len(given), n_classes))
            n_labels = n_classes if self.label_conditional else None
            batch = Batch(probed, nothing, nothing, np.full(len(given), 0.5))
            self.calibration_.check(batch, n_labels, self.alpha_)
        require(self.n_calibration_ >= len(self.calibration_.sample), "n_calibration_")
        n_people = self.n_calibration_clusters_
        require(n_people in (None, self.calibration_.sample.n_people), "n_calibration_clusters_")

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
