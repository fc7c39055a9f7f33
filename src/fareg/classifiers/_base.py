"""What all conformal classifiers share: parameters, splitting, rows, sets."""

from __future__ import annotations

import functools
import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if

from fareg._columns import (
    check_selection,
    column_kinds,
    is_frame,
    selected_positions,
    take_rows,
    without_columns,
)
from fareg._encoding import gradient_boosting
from fareg._hashing import check_seed, hash_key
from fareg._labels import calibration_codes, label_codes
from fareg._threads import few_threads
from fareg._validation import (
    BoolArray,
    FaregError,
    Flag,
    FloatArray,
    IntArray,
    InvalidInputError,
    Level,
    NotConformalizedError,
    OpenFraction,
    check_confidence_level,
    check_count,
    check_flag,
    check_parameters,
    check_same_length,
    warn,
)
from fareg._words import confidence, fraction
from fareg.calibration import FullSet, Rows, require
from fareg.classifiers._answers import frame_like, labels_of_sets, table_of_answers
from fareg.classifiers._beside import (
    beside_kinds,
    given_proba,
    no_sensitive,
    proba_classes,
    sensitive_beside,
    warn_of_swapped,
)
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
    check_column_kinds,
    check_two_classes,
    checked_labels,
    probe_rows,
    probes,
    validated_table,
)
from fareg.classifiers._learning import out_of_fold_proba, split_rows
from fareg.classifiers._probabilities import (
    ProbabilityArrays,
    hidden_columns,
    probability_columns,
)
from fareg.scores import get_score

if TYPE_CHECKING:
    from fareg.auditing import Comparison

Model = Annotated[Any, check_model]
Score = Annotated[Any, lambda name, value: get_score(value)]
Selection = Annotated[Any, check_selection]
Seed = Annotated[Any, check_seed]
Folds = Annotated[int, functools.partial(check_count, minimum=2)]


def _gives_pvalues(clf: ConformalClassifier) -> bool:
    calibration = getattr(clf, "calibration_", None)
    return bool(clf._gives_pvalues() if calibration is None else calibration.has_pvalues)


@dataclass(eq=False, repr=False)
class ConformalClassifier(ClassifierMixin, BaseEstimator):
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
    confidence_level: Level = 0.9
    conformity_score: Score = "aps"
    sensitive_features: Selection = None
    label_conditional: Flag = False
    calibration_size: OpenFraction = 0.5
    allow_empty: Flag = True
    random_state: Seed = None

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        clusters: Any = None,
        sample_weight: Any = None,
        sensitive_features: Any = None,
        exclude_sensitive: bool = False,
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
            Ids of people or places with several rows; rows of one id stay in one part.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights for the training of the estimator, out of fold too. Calibration counts every
            row once, because no promise is proven for weighted ranks.
        sensitive_features : frame of shape (n_samples, n_sensitive_features), default=None
            Who the rows are about, beside X: it defines the groups, and the estimator never sees
            it. Later calls need it too, where the method has groups.
        exclude_sensitive : bool, default=False
            Whether the estimator is trained and asked without the sensitive features among the
            columns of X, which define groups as ever.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, y, about = self._check_inputs(X, y, sensitive_features)
        check_flag("exclude_sensitive", exclude_sensitive)
        self.excluded_ = self._sensitive_positions(X, about) if exclude_sensitive else []
        if clusters is not None:
            clusters = np.asarray(clusters)
            check_same_length(X=X, clusters=clusters)
        columns = probability_columns(self.estimator)
        if columns is not None or (self.estimator is not None and is_given(self.estimator)):
            refuse_weights(sample_weight)
            fitted = self._fitted_estimator(X, y)
            return self._conformalize(fitted, X, y, about=about, clusters=clusters)
        seed = hash_key(self.random_state) % 2**32
        train, rest = split_rows(len(y), self.calibration_size, clusters, seed)
        check_two_classes(y)
        estimator = gradient_boosting(seed) if self.estimator is None else clone(self.estimator)
        X_train, y_train = take_rows(X, train), y[train]
        weights = routed_weights(self, sample_weight, len(y))
        weights = None if weights is None else weights[train]
        fitted = trained(clone(estimator), self._features(X_train), y_train, weights)
        beside = {
            "clusters": None if clusters is None else clusters[train],
            "about": None if about is None else take_rows(about, train),
        }
        training = self._training_rows(estimator, fitted, X_train, y_train, seed, weights, **beside)
        about = None if about is None else take_rows(about, rest)
        return self._conformalize(fitted, take_rows(X, rest), y[rest], training, about=about)

    def conformalize(
        self,
        X: Any,
        y: Any,
        *,
        proba: Any = None,
        classes: Any = None,
        sensitive_features: Any = None,
        sample_weight: None = None,
    ) -> Self:
        """Calibrate a fitted estimator on rows that it was not trained on.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        proba : array or frame of shape (n_samples, n_classes), default=None
            Class probabilities of these rows by anyone's model, for example softmax outputs beside
            a table of who they are about; the estimator may then be None. Every method takes those
            of its rows as ``proba`` too. An array in a file (``numpy.memmap``) stays there and is
            read in blocks. None: the estimator is asked.
        classes : list of labels, default=None
            The label of each column of ``proba``. None: those of the estimator, the names of a
            frame, or the sorted labels of y if there are as many of them as columns.
        sensitive_features : frame of shape (n_samples, n_sensitive_features), default=None
            Who the rows are about, beside X: it defines the groups, and the estimator never sees
            it. Later calls need it too, where the method has groups.
        sample_weight : None
            Weights are refused: no promise is proven for weighted ranks.

        Returns
        -------
        self
        """
        refuse_weights(sample_weight)
        self._check_parameters()
        X, y, about = self._check_inputs(X, y, sensitive_features)
        estimator, given = self._estimator_and_proba(X, y, proba, classes)
        return self._conformalize(estimator, X, y, given=given, about=about)

    def predict(self, X: Any, *, proba: Any = None) -> Any:
        """Return the labels that the wrapped estimator predicts, shape (n_samples,).

        With ``proba``, or an estimator that has no ``predict``, the most probable labels.
        """
        rows = self._rows(X, caller="predict", proba=proba)
        if proba is None and hasattr(self.estimator_, "predict"):
            return np.asarray(self._ask("predict", rows.X))
        return self.classes_[rows.top[0]]

    def predict_proba(self, X: Any, *, proba: Any = None) -> FloatArray:
        """Return the wrapped estimator's probabilities, shape (n_samples, n_classes)."""
        return self._rows(X, caller="predict_proba", proba=proba).proba

    def conformity_scores(self, X: Any, *, proba: Any = None) -> FloatArray:
        """Return the conformity score of every label, shape (n_samples, n_classes).

        ``predict_set`` keeps the labels whose score is at most the threshold of the row.
        """
        return self._rows(X, caller="conformity_scores", proba=proba).scores

    def predict_set(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None
    ) -> BoolArray:
        """Return prediction sets.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        proba : array or frame of shape (n_samples, n_classes), default=None
            Class probabilities of these rows, columns as in ``classes_``; None: the estimator is
            asked.
        sensitive_features : frame of shape (n_samples, n_sensitive_features), default=None
            Who the rows are about, if they were beside X in ``conformalize`` or ``fit``.

        Returns
        -------
        sets : bool ndarray of shape (n_samples, n_classes)
            ``sets[i, j]`` tells whether ``classes_[j]`` is in the set of row i.
        """
        return self._sets(self._rows(X, "predict_set", proba, sensitive_features))

    @available_if(_gives_pvalues)
    def predict_p(self, X: Any, *, proba: Any = None, sensitive_features: Any = None) -> FloatArray:
        """Return conformal p-values; ``predict_set(X)`` equals ``predict_p(X) > alpha_``.

        With ``allow_empty=False``, sets that would be empty hold one label more.

        Parameters
        ----------
        X, proba, sensitive_features
            As in :meth:`predict_set`.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            ``P(p <= alpha) <= alpha`` wherever the method promises coverage ``1 - alpha``.
        """
        rows = self._rows(X, "predict_p", proba, sensitive_features)
        p: FloatArray = self.calibration_.pvalues(rows)
        return p

    def predict_labels(
        self, X: Any, *, proba: Any = None, sensitive_features: Any = None
    ) -> list[Any]:
        """Return for each row the labels in its set, the most probable first.

        Returns
        -------
        labels : list of ndarray
            One array of labels per row.
        """
        rows = self._rows(X, "predict_labels", proba, sensitive_features)
        sets = self._sets(rows)
        return [
            labels
            for place, part in rows.blocks()
            for labels in labels_of_sets(sets[place], part.proba, self.classes_)
        ]

    def predict_table(self, X: Any, *, proba: Any = None, sensitive_features: Any = None) -> Any:
        """Return a line per row with its set, its size and its top label, among others.

        Returns
        -------
        DataFrame, of polars or another library if X is one, with the index of X if it has one
            ``set`` (labels joined by ``|``), ``size``, ``top`` (the most probable label) and its
            ``probability``; methods with groups add theirs.
        """
        rows = self._rows(X, "predict_table", proba, sensitive_features)
        table = table_of_answers(self._sets(rows), rows.top, self.classes_)
        return frame_like(X, table.assign(**self._describe_rows(rows)))

    def report(
        self,
        X: Any,
        y: Any,
        path: str | os.PathLike[str] | None = None,
        *,
        before: Any = None,
        proba: Any = None,
        sensitive_features: Any = None,
        clusters: Any = None,
        measures: bool = True,
        about: Mapping[str, Any] | None = None,
    ) -> Comparison:
        """Tell what this classifier does for whom, on rows that it never saw.

        Its sets stand beside split conformal ones with the same calibration rows; an audit tells
        what is left to repair.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
            Rows that took no part in training and calibration.
        y : array-like of shape (n_samples,)
        path : path of an HTML file, default=None
            Where to write the report; None writes no file.
        before : fitted conformal classifier, default=None
            The classifier whose sets are compared; None for split conformal sets.
        proba, sensitive_features : default=None and None
            As in :meth:`predict_set`.
        clusters : array of shape (n_samples,), default=None
            Ids of people or places with several rows; each counts once in the audit.
        measures : bool, default=True
            Whether the audit computes worst slabs and excess risk too, which takes most time.
        about : mapping, default=None
            What the report says about where the numbers come from: ``file``, ``target``,
            ``base_model``.

        Returns
        -------
        Comparison
            With ``verdict``, ``before``, ``after``, ``groups``, ``summary()``, ``to_dict()`` and
            ``to_html(path)``.
        """
        # imported here, because prediction does without audits
        from fareg.classifiers._report import compare

        rows = self._rows(X, "report", proba, sensitive_features)
        told = compare(self, rows, y, before, clusters=clusters, measures=measures, about=about)
        if path is not None:
            told.to_html(path)
        return told

    def check(self) -> None:
        """Refuse a fitted state whose parts contradict each other, as that of an edited file."""
        try:
            self._check_parameters()
        except FaregError as error:
            raise ValueError(str(error)) from error
        require(self.alpha_ == check_confidence_level(self.confidence_level), "alpha_")
        require(type(self.key_) is int and 0 <= self.key_ < 2**64, "key_")
        require(type(self.n_calibration_) is int and self.n_calibration_ > 0, "n_calibration_")
        require(type(self.n_features_in_) is int and self.n_features_in_ > 0, "n_features_in_")
        require(isinstance(self.classes_, np.ndarray) and self.classes_.ndim == 1, "classes_")
        check_column_kinds(self)
        kinds = getattr(self, "sensitive_kinds_", None)
        n_labels = len(self.classes_) if self.label_conditional else None
        rows = self._as_rows(probe_rows(self), about=None if kinds is None else probes(list(kinds)))
        with suppress(FaregError):  # columns or a basis of the user's own may refuse the probes
            self.calibration_.check(rows, n_labels, self.alpha_)
        require(self.n_calibration_ >= self.calibration_.n_rows, "n_calibration_")

    @property
    def promise_(self) -> str:
        """What holds for rows to come, in a sentence; the proofs are in the documentation."""
        who = self._promised_to()
        if who is None:
            return "No promise is proven in finite samples for this configuration."
        labels = ", for every true label" if self.parameters_["label_conditional"] else ""
        return (
            f"Sets hold the true label with probability at least {confidence(1 - self.alpha_)} for "
            f"{who}{labels}, if rows to come are like those that calibrated."
        )

    def _promised_to(self) -> str | None:
        """Say whom the promise is made to, None if nothing is proven."""
        return "everyone together"

    def _repr_html_inner(self) -> str:
        """Return what notebooks show: a card if fitted, scikit-learn's diagram otherwise."""
        if not self.__sklearn_is_fitted__():
            return str(super()._repr_html_inner())
        from fareg.classifiers._card import card_of  # only notebooks need it

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

    def _gives_pvalues(self) -> bool:
        """Tell whether the calibration to come will have p-values."""
        return True

    def _describe_rows(self, rows: Rows) -> dict[str, Any]:
        """Return further columns of ``predict_table``."""
        return {}

    def _training_rows(
        self,
        estimator: Any,
        fitted: Any,
        X: Any,
        y: Any,
        seed: int,
        weights: Any,
        *,
        clusters: Any,
        about: Any,
    ) -> Rows:
        """Return the training rows.

        Where they teach, with ``calibration="train"``, they have labels, and the probabilities of
        each are by a model that was trained without it.
        """
        if getattr(self, "calibration", None) not in ("auto", "train"):
            score = get_score(self.conformity_score)
            return Rows(X, fitted.predict_proba, score, self.sensitive_features, 0, about=about)

        def ask(table: Any) -> FloatArray:
            return out_of_fold_proba(
                estimator,
                self._features(table),
                y,
                fitted.classes_,
                cv=self.cv,
                clusters=clusters,
                seed=seed,
                weights=weights,
            )

        return self._learning_rows(X, y, fitted, ask, clusters=clusters, about=about)

    def _learning_rows(self, X: Any, y: Any, fitted: Any, ask: Any, **beside: Any) -> Rows:
        """Return labelled rows that teach and do not calibrate."""
        return Rows(
            X,
            ask,
            get_score(self.conformity_score),
            self.sensitive_features,
            hash_key(self.random_state),
            label_codes(y, fitted.classes_),
            hidden=hidden_columns(fitted, X),
            **beside,
        )

    def _conformalize(
        self, estimator: Any, X: Any, y: Any, training: Rows | None = None, **beside: Any
    ) -> Self:
        """Calibrate; ``beside`` are the attributes of ``Rows`` that lie beside X."""
        self.estimator_ = check_estimator(estimator)
        self.classes_ = np.asarray(estimator.classes_)
        self.alpha_ = check_confidence_level(self.confidence_level)
        self.key_ = hash_key(self.random_state)
        self.freeze_parameters()
        codes = calibration_codes(
            y, self.classes_, alpha=self.alpha_, label_conditional=self.label_conditional
        )
        rows = self._as_rows(X, codes, **beside)
        if rows.given is not None or rows.hidden:
            warn_of_swapped(rows)
        if rows.given is not None:
            _ = rows.own_scores  # an array is read once, from its first row to its last
        self.calibration_ = self._calibrate(rows, training)
        self.n_calibration_ = len(codes)
        self._warn_of_full_sets(float(np.mean(codes < 0)))
        return self

    def freeze_parameters(self) -> None:
        """Note the parameters of this fit: answers depend on these, whatever is set later."""
        self.parameters_: dict[str, Any] = {
            # a copy, because a list may be changed in place later
            name: value[:] if isinstance(value, list) else value
            for name, value in self.get_params(deep=False).items()
        }

    def changed_parameters(self) -> list[str]:
        """Return the parameters that were set to something else after fit; they have no effect."""
        now = self.get_params(deep=False)
        return [
            name
            for name, value in self.parameters_.items()
            if now[name] is not value and repr(now[name]) != repr(value)
        ]

    def _sets(self, rows: Rows, thresholds: FloatArray | None = None) -> BoolArray:
        """Return the sets of these rows, by their own thresholds unless others are given."""
        own = self.calibration_.thresholds(rows) if thresholds is None else thresholds
        own = np.broadcast_to(own, (len(rows), np.shape(own)[-1]))
        sets = np.empty((len(rows), rows.n_classes), dtype=bool)
        for place, part in rows.blocks():
            sets[place] = part.scores <= own[place]
        if not self.parameters_["allow_empty"]:
            empty = np.flatnonzero(~sets.any(axis=1))
            sets[empty, rows.top[0][empty]] = True
        return sets

    def _rows(self, X: Any, caller: str, proba: Any = None, sensitive_features: Any = None) -> Rows:
        """Return the rows that a method was called with."""
        self._check_fitted(caller)
        X = self._validated(X, reset=False)
        given = None if proba is None else given_proba(proba, X, self.classes_)
        kinds = getattr(self, "sensitive_kinds_", None)
        about = sensitive_beside(sensitive_features, X, kinds)
        rows = self._as_rows(X, given=given, about=about)
        return rows if kinds is None or about is not None else rows.selecting(no_sensitive(kinds))

    def _as_rows(self, X: Any, codes: IntArray | None = None, **beside: Any) -> Rows:
        return Rows(
            X,
            lambda table: self._ask("predict_proba", table),
            get_score(self.parameters_["conformity_score"]),
            self.parameters_["sensitive_features"],
            self.key_,
            codes,
            hidden=hidden_columns(self.estimator_, X),
            **beside,
        )

    def _ask(self, method: str, X: Any) -> Any:
        """Return what the estimator says about rows; if it refuses them, say so in one line."""
        try:
            with few_threads(X):
                return getattr(self.estimator_, method)(self._features(X))
        except FaregError:
            raise
        except (ValueError, TypeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InvalidInputError(f"the estimator refuses these rows: {reason}") from error

    def _features(self, X: Any) -> Any:
        """Return what the estimator may read of X."""
        return without_columns(X, getattr(self, "excluded_", []))

    def _sensitive_positions(self, X: Any, about: Any) -> list[int]:
        """Return where the sensitive features stand in X; the model file remembers it."""
        selection = self.sensitive_features
        if about is not None:
            return []  # X does not hold them
        if selection is None or callable(selection):
            raise InvalidInputError(
                f"exclude_sensitive needs sensitive_features by name or position, got {selection}"
            )
        positions = selected_positions(X, selection)
        if len(positions) == self.n_features_in_:
            raise InvalidInputError("exclude_sensitive leaves the estimator no column of X to read")
        return positions

    def _estimator_and_proba(self, X: Any, y: Any, proba: Any, classes: Any) -> tuple[Any, Any]:
        """Return the fitted estimator, and the probabilities beside X where they are given."""
        if proba is None:
            if classes is not None:
                raise InvalidInputError("classes tells the columns of proba, got no proba")
            estimator = self._fitted_estimator(X, y)
        elif self.estimator is None or not is_fitted(self.estimator):
            estimator = ProbabilityArrays(proba_classes(proba, y, classes).tolist())
        else:
            estimator = self._fitted_estimator(X, y)
        if estimator is not getattr(self, "estimator_", None):
            self.excluded_ = []  # what another estimator did not read says nothing about this one
        if proba is None:
            return estimator, None
        return estimator, given_proba(proba, X, check_estimator(estimator).classes_, classes)

    def _fitted_estimator(self, X: Any, y: Any) -> Any:
        """Return the given estimator if it is fitted, else the one that ``fit`` trained from it."""
        columns = probability_columns(self.estimator)
        if columns is not None:
            return clone(columns).fit(X, y)
        trained = getattr(self, "estimator_", None)
        if self.estimator is not None and is_fitted(self.estimator):
            return self.estimator
        if trained is not None and self.parameters_["estimator"] is self.estimator:
            return trained
        raise NotConformalizedError(
            "conformalize needs a fitted estimator: pass FrozenEstimator(model), "
            "or call fit(X, y), which trains it"
        )

    def _warn_of_full_sets(self, share_unknown: float) -> None:
        """Warn of cells whose sets are full, once for each of the two possible causes."""
        full = list(self.calibration_.full_sets())
        few = [f"{place.who}{self._with_label(place)}" for place in full if not place.has_points]
        if few:
            n_needed = math.ceil(1 / self.alpha_) - 1  # smallest n with conformal_rank(n) <= n
            warn(
                f"fewer than {n_needed} calibration points for {few[0]}{_more(few)}: every such "
                "label is kept in the set; give more rows or coarser groups"
            )
        foreign = [place.who for place in full if place.has_points]
        # if the share exceeds alpha, a warning about all rows has been given already
        if foreign and share_unknown <= self.alpha_:
            warn(
                f"too many calibration labels for {foreign[0]}{_more(foreign)} were never seen by "
                f"the estimator, the promise allows a share of {fraction(self.alpha_)}: sets there "
                "are full and still miss these labels"
            )

    def _with_label(self, place: FullSet) -> str:
        return "" if place.label is None else f" with label {self.classes_[place.label]}"

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _check_inputs(self, X: Any, y: Any, sensitive_features: Any) -> tuple[Any, Any, Any]:
        """Return the table, its labels and the sensitive features beside it, after checks."""
        X, y = checked_labels(self._validated(X, reset=True), y)
        self.sensitive_kinds_ = beside_kinds(sensitive_features)
        about = sensitive_beside(sensitive_features, X, self.sensitive_kinds_)
        self._check_possible(X if about is None else about)
        return X, y, about

    def _validated(self, X: Any, *, reset: bool) -> Any:
        X = validated_table(self, X, reset=reset)
        if reset:
            self.column_kinds_ = column_kinds(X) if is_frame(X) else None
        return X

    def _check_possible(self, X: Any) -> None:
        """Refuse what X, or this machine, does not have, before any work is done."""
        selection = self.sensitive_features
        if selection is not None and not callable(selection):
            selected_positions(X, selection)

    def _check_fitted(self, caller: str) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotConformalizedError(
                f"this {type(self).__name__} is not conformalized yet; call fit(X, y), or "
                f"conformalize(X, y) with a fitted estimator, before {caller}"
            )

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn that ``fit`` hands weights on to the estimator's ``fit``."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        estimator = gradient_boosting() if self.estimator is None else self.estimator
        fits = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=estimator, method_mapping=fits)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_calibration_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
