"""What all conformal classifiers share: validation, splitting, scores, sets."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from fareg._encoding import gradient_boosting
from fareg._frames import column_kinds, column_names, hash_key, is_frame, row_uniforms
from fareg._labels import calibration_codes
from fareg._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    InvalidInputError,
    NotConformalizedError,
    check_confidence_level,
    check_fraction,
    check_proba,
    check_same_length,
)
from fareg.scores import get_score, is_randomised

MAX_LEARNING_ROWS = 50_000  # enough to learn groups or regions; the rest calibrates


class ConformalClassifier(ClassifierMixin, BaseEstimator):
    """Base of the conformal classifiers; subclasses say how thresholds depend on the row.

    A subclass defines ``_calibrate`` (learn thresholds from calibration scores) and
    ``_thresholds`` (one threshold per row, or per row and label); the prediction set is
    ``{y : V(x, y) <= threshold}``. Methods with p-values also define ``predict_p``.
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
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.conformity_score = conformity_score
        self.sensitive_features = sensitive_features
        self.label_conditional = label_conditional
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Split (X, y) at random, train the estimator on one part, conformalize on the other.

        A ``FrozenEstimator`` is left as it is and all rows calibrate; they must be rows that it
        was not trained on.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any type.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, y = self._check_X_y(X, y, reset=True)
        if isinstance(self.estimator, FrozenEstimator):
            return self._conformalize(self.estimator, X, y)
        check_fraction("calibration_size", self.calibration_size)
        if len(y) < 2:
            raise InvalidInputError(
                f"fit needs at least 2 rows to split, got {len(y)} sample; "
                "pass more rows, or conformalize a fitted estimator"
            )
        if len(np.unique(y)) < 2:
            raise InvalidInputError(
                f"y must hold at least two classes, got one class: {y[0]}; nothing to predict"
            )
        seed = hash_key(self.random_state) % 2**32
        X_train, X_cal, y_train, y_cal = train_test_split(
            X, y, test_size=self.calibration_size, random_state=seed
        )
        estimator = gradient_boosting(seed) if self.estimator is None else clone(self.estimator)
        try:
            estimator.fit(X_train, y_train)
        except ValueError as error:
            raise InvalidInputError(
                f"the estimator could not be trained on {len(y_train)} of the rows: {error}"
            ) from error
        return self._conformalize(estimator, X_cal, y_cal, X_train=X_train)

    def conformalize(self, X: Any, y: Any) -> Self:
        """Calibrate a fitted estimator on rows that it was not trained on.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self
        """
        self._check_parameters()
        X, y = self._check_X_y(X, y, reset=True)
        return self._conformalize(self._fitted_estimator(), X, y)

    def predict(self, X: Any) -> Any:
        """Return the labels that the wrapped estimator predicts, shape (n_samples,)."""
        X = self._check_X(X, caller="predict")
        return np.asarray(self._ask("predict", X))

    def predict_set(self, X: Any) -> BoolArray:
        """Return prediction sets.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)

        Returns
        -------
        sets : bool ndarray of shape (n_samples, n_classes)
            ``sets[i, j]`` tells whether ``classes_[j]`` is in the set of row i.
        """
        X = self._check_X(X, caller="predict_set")
        scores = self._scores(X)
        sets: BoolArray = scores <= self._thresholds(X)
        return sets

    def _conformalize(self, estimator: Any, X: Any, y: Any, X_train: Any = None) -> Self:
        if not hasattr(estimator, "predict_proba"):
            raise InvalidInputError(
                f"estimator must have predict_proba, got {type(estimator).__name__}; "
                "wrap it in sklearn's CalibratedClassifierCV"
            )
        self.estimator_ = estimator
        self.classes_ = np.asarray(estimator.classes_)
        self.alpha_ = check_confidence_level(self.confidence_level)
        self.key_ = hash_key(self.random_state)
        codes = calibration_codes(
            y, self.classes_, alpha=self.alpha_, label_conditional=self.label_conditional
        )
        scores = self._scores(X)
        # a label that the estimator does not know is in no set: stranger than any threshold
        own = np.where(codes >= 0, scores[np.arange(len(codes)), codes], np.inf)
        self._calibrate(X, own, codes, X_train)
        self.n_calibration_ = len(own)
        return self

    def _calibrate_within(
        self, host: ConformalClassifier, X: Any, scores: FloatArray, codes: IntArray, X_train: Any
    ) -> Self:
        """Calibrate on the scores of another classifier, whose estimator and level it shares."""
        for name in ("estimator_", "classes_", "alpha_", "key_", "n_features_in_"):
            setattr(self, name, getattr(host, name))
        self.label_conditional = host.label_conditional
        self.sensitive_features = (
            host.sensitive_features if self.sensitive_features is None else self.sensitive_features
        )
        self.conformity_score = host.conformity_score
        self._calibrate(X, scores, codes, X_train)
        self.n_calibration_ = len(scores)
        return self

    @abstractmethod
    def _calibrate(self, X: Any, scores: FloatArray, codes: IntArray, X_train: Any) -> None:
        """Learn thresholds from the scores of the true labels; ``codes`` are their columns."""

    @abstractmethod
    def _thresholds(self, X: Any) -> FloatArray:
        """Return thresholds of shape (n_samples, 1) or (n_samples, n_classes)."""

    def _scores(self, X: Any) -> FloatArray:
        proba = check_proba(self._ask("predict_proba", X))
        score = get_score(self.conformity_score)
        u = row_uniforms(X, self.key_) if is_randomised(score) else None
        scores = np.asarray(score(proba, u), dtype=np.float64)
        if scores.shape != proba.shape or np.isnan(scores).any():
            raise InvalidInputError(
                f"conformity_score must return an array of shape {proba.shape} without NaN, "
                f"got shape {scores.shape}"
            )
        return scores

    def _ask(self, method: str, X: Any) -> Any:
        """Return what the estimator says about rows; if it refuses them, say so in one line."""
        try:
            return getattr(self.estimator_, method)(X)
        except (ValueError, TypeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InvalidInputError(f"the estimator refuses these rows: {reason}") from error

    def _fitted_estimator(self) -> Any:
        for candidate in (self.estimator, getattr(self, "estimator_", None)):
            if candidate is None:
                continue
            try:
                check_is_fitted(candidate)
            except (NotFittedError, TypeError):
                continue
            return candidate
        raise NotConformalizedError(
            "conformalize needs a fitted estimator: pass FrozenEstimator(model), "
            "or call fit(X, y), which trains it"
        )

    def _check_parameters(self) -> None:
        check_confidence_level(self.confidence_level)
        get_score(self.conformity_score)
        if not isinstance(self.label_conditional, bool | np.bool_):
            raise InvalidInputError(
                f"label_conditional must be True or False, got {self.label_conditional!r}"
            )

    def _check_X_y(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None")
        X = self._validated(X, reset=reset)
        try:
            y = column_or_1d(y, warn=True)
            missing = pd.isna(y)
            if not missing.any():
                y = _one_type(y)
                check_classification_targets(y)
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
        check_same_length(X=X, y=y)
        if missing.any():
            raise InvalidInputError(
                f"y must not have missing labels (NaN or None), got {int(missing.sum())} of "
                f"{len(y)}; drop those rows"
            )
        return X, y

    def _check_X(self, X: Any, *, caller: str) -> Any:
        self._check_fitted(caller)
        return self._validated(X, reset=False)

    def _check_fitted(self, caller: str) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotConformalizedError(
                f"this {type(self).__name__} is not conformalized yet; call fit(X, y), or "
                f"conformalize(X, y) with a fitted estimator, before {caller}"
            )

    def _validated(self, X: Any, *, reset: bool) -> Any:
        try:
            if not is_frame(X):
                X = check_array(X, dtype=None, ensure_all_finite=False, estimator=self)
            validate_data(self, X, reset=reset, skip_check_array=True)
        except (ValueError, TypeError) as error:
            raise InvalidInputError(str(error)) from error
        if len(X) == 0:
            raise InvalidInputError("X must have at least one row, got 0 sample(s)")
        if reset:
            self.column_kinds_ = column_kinds(X) if is_frame(X) else None
            return X
        names = list(getattr(self, "column_kinds_", None) or ())
        if names and column_names(X) != names:  # no names to compare: columns count by position
            named = isinstance(X, pd.DataFrame)
            X = X.set_axis(names, axis=1) if named else pd.DataFrame(X, columns=names)
        return X

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_calibration_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags


def _one_type(y: Any) -> Any:
    """Return labels in the dtype of their values: objects that are all int are int labels."""
    if y.dtype != object:
        return y
    if pd.api.types.infer_dtype(y, skipna=False) in ("mixed", "mixed-integer"):
        types = sorted({type(label).__name__ for label in y})
        raise InvalidInputError(
            f"y must hold labels of one type, got {', '.join(types)}; convert them to text"
        )
    return pd.Series(y).infer_objects().to_numpy()
