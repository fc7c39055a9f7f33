"""Models that only pass on probabilities: from columns, arrays or a function."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from fareg._columns import (
    as_text,
    column_names,
    select_columns,
    selected_positions,
    spelled_numbers,
)
from fareg._labels import check_classes, column_classes, shared_length
from fareg._validation import FloatArray, InvalidInputError, NotConformalizedError, check_proba
from fareg._words import shown

TABLE = "ProbabilityColumns"  # the name in error messages


class ProbabilisticClassifier(ClassifierMixin, BaseEstimator):
    """Base of classifiers that have ``classes_`` and ``predict_proba``."""

    def predict(self: Any, X: Any) -> Any:
        """Return the most probable label of each row, shape (n_samples,)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@dataclass(eq=False, repr=False)
class ProbabilityColumns(ProbabilisticClassifier):
    """A fitted classifier that reads class probabilities from the table itself.

    Use it for predictions that are already in the table: a vendor's scores, softmax outputs, the
    answers of a service. Every conformal classifier accepts it as its estimator. There is nothing
    to train, so ``fit`` does the same as ``conformalize``. The model must not have been trained on
    these rows. The columns never define groups.

    If a row's sum differs from 1 by no more than rounding to two decimals explains (0.005 for each
    class, 0.05 at most), the row is divided by its sum. Other rows are refused by their number.

    Parameters
    ----------
    columns : dict from label to column, or list of names, default=None
        The column of each label, by name or position, in the order of ``classes_``. In a list, the
        labels are the names without their common beginning.
    prefix : str, default=None
        Instead of ``columns``: every column whose name begins with it holds the probabilities of
        one label, and the rest of the name is the label.
    rest : label, default=None
        A label without a column; it gets 1 minus the other probabilities. So with two labels one
        column is enough: ``ProbabilityColumns({"yes": "p_yes"}, rest="no")``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    columns_ : dict
        The column of each label, None for the label without one.
    feature_names_in_, n_features_in_
        All columns of the table that ``fit`` saw.

    Examples
    --------
    >>> import pandas as pd
    >>> from fareg import ProbabilityColumns
    >>> X = pd.DataFrame({"age": [40, 50], "p_low": [0.7, 0.4], "p_high": [0.3, 0.6]})
    >>> model = ProbabilityColumns(["p_low", "p_high"])
    >>> model.predict(X).tolist()
    ['low', 'high']
    >>> ProbabilityColumns({"high": "p_high"}, rest="low").predict_proba(X)
    array([[0.3, 0.7],
           [0.6, 0.4]])
    """

    columns: Any = None
    _: KW_ONLY
    prefix: str | None = None
    rest: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the column of each label in X; labels take the type that they have in y.

        Parameters
        ----------
        X : frame or array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            If y holds numbers, "1" becomes the label 1. Names in a list are shortened to the labels
            of y.
        """
        names = column_names(X)
        found = self._columns_by_label(names, y)
        columns = [column for column in found.values() if column is not None]
        selected_positions(names, columns, TABLE)  # refuses columns that X does not have
        validate_data(self, X, skip_check_array=True)  # stores the names of the columns
        self.found_ = found
        return self

    @property
    def columns_(self) -> dict[Any, Any]:
        """The column of each label, None for the label without one."""
        return self.found_ if "found_" in vars(self) else self._columns_by_label(None, None)

    @property
    def classes_(self) -> Any:
        """The label of each column of ``predict_proba``."""
        labels = list(self.columns_)
        if len(labels) < 2:
            raise InvalidInputError(
                f"{TABLE} needs two labels, got one column; name the other label: "
                f'ProbabilityColumns({self.columns_}, rest="other label")'
            )
        return np.asarray(labels)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities that X holds, shape (n_samples, n_classes)."""
        columns = [column for column in self.columns_.values() if column is not None]
        table = select_columns(X, columns, TABLE)
        name = f"columns {shown(table)}"
        for _, column in table.items():
            if column.dtype != np.float64:
                texts = as_text(column).dropna().unique()
                not_numbers = texts[np.isnan(spelled_numbers(texts))]
                raise InvalidInputError(
                    f"{name} must hold numbers, got {[*not_numbers, *texts, None][0]!r}; "
                    "write 0.5, not 50% or 0,5, and convert the columns with astype(float)"
                )
        proba = table.to_numpy(np.float64)
        if len(self.classes_) > proba.shape[1]:
            if (largest := np.nanmax(proba, initial=0.0)) > 1:
                raise InvalidInputError(
                    f"{name} must hold numbers of at most 1, got {largest:g}; "
                    "divide percent by 100, apply softmax to logits"
                )
            proba = np.hstack([proba, np.fmax(1 - proba.sum(axis=1, keepdims=True), 0.0)])
        return check_proba(proba, name)

    def _columns_by_label(self, names: list[str] | None, y: Any) -> dict[Any, Any]:
        """Return the column of each label; ``names`` are the columns of X, if X is known."""
        if (self.columns is None) == (self.prefix is None):
            raise InvalidInputError(f"{TABLE} needs either columns or prefix, got {self.columns!r}")
        if self.prefix is not None:
            if names is None:
                raise NotConformalizedError(
                    f'{TABLE}(prefix="{self.prefix}") looks for columns in a table: '
                    "call fit(X) first"
                )
            columns: list[Any] = [name for name in names if name.startswith(self.prefix)]
            labels: list[Any] = [name.removeprefix(self.prefix) for name in columns]
        elif isinstance(self.columns, dict):
            labels, columns = list(self.columns), list(self.columns.values())
        else:
            columns = [self.columns] if isinstance(self.columns, str) else list(self.columns)
            labels = _labels_from_names(columns, y)
        if not columns:
            raise InvalidInputError(
                f"{TABLE} names no columns, got {self.columns or self.prefix!r}; "
                'name them: ProbabilityColumns({"label": "column"})'
            )
        if self.rest is not None:
            labels, columns = [*labels, self.rest], [*columns, None]
        if len({isinstance(label, str) for label in labels}) > 1 or len(set(labels)) < len(labels):
            raise InvalidInputError(
                f"{TABLE} needs distinct labels of one type, got {shown(map(repr, labels))}"
            )
        if y is not None:
            labels = column_classes(y, len(labels), classes=labels, table=TABLE).classes
        return dict(zip(labels, columns, strict=True))

    def __sklearn_is_fitted__(self) -> bool:
        return self.prefix is None or "found_" in vars(self)


@dataclass(eq=False, repr=False)
class ProbabilityFunction(ProbabilisticClassifier):
    """A fitted classifier around a function that returns class probabilities.

    Parameters
    ----------
    function : function
        ``function(X)`` returns probabilities of shape (n_samples, n_classes).
    classes : list of labels, default=()
        The label of each column of the result.

    Notes
    -----
    A model file holds no code, so pass the function again: ``fareg.load(path, estimator=...)``.

    Examples
    --------
    >>> import numpy as np
    >>> from fareg import ProbabilityFunction
    >>> model = ProbabilityFunction(lambda X: np.column_stack([1 - X, X]), classes=["no", "yes"])
    >>> model.predict(np.array([0.2, 0.7])).tolist()
    ['no', 'yes']
    """

    function: Any
    _: KW_ONLY
    classes: Any = ()

    @property
    def classes_(self) -> Any:
        """The label of each column of ``predict_proba``."""
        return np.asarray(check_classes(list(self.classes)))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the result of the function, shape (n_samples, n_classes)."""
        proba, n_classes = np.asarray(self.function(X), dtype=np.float64), len(self.classes_)
        if proba.shape != (len(X), n_classes):
            raise InvalidInputError(
                f"the function must return probabilities of shape {(len(X), n_classes)}, "
                f"got {proba.shape}; classes must name each column"
            )
        return proba


@dataclass(eq=False, repr=False)
class ProbabilityArrays(ClassifierMixin, BaseEstimator):
    """Stands for a model whose probabilities are passed as ``proba`` in every call.

    Examples
    --------
    >>> from fareg.classifiers import ProbabilityArrays
    >>> ProbabilityArrays(["no", "yes"]).classes_.tolist()
    ['no', 'yes']
    """

    classes: Any = ()

    @property
    def classes_(self) -> Any:
        """The label of each column of probabilities."""
        return np.asarray(self.classes)

    def predict_proba(self, X: Any) -> FloatArray:
        """Refuse, because there is no model."""
        raise InvalidInputError(
            "this classifier was calibrated with proba= and has no model; pass the probabilities "
            "of these rows too: proba=P"
        )


def _labels_from_names(columns: list[Any], y: Any) -> list[str]:
    """Return the labels in column names: those of y, or without y what follows a common start."""
    if not all(isinstance(name, str) for name in columns):
        raise InvalidInputError(
            f"a list of {TABLE} must hold names, got {columns!r}; "
            "give positions their labels: ProbabilityColumns({label: position})"
        )
    if y is not None and columns:
        labels = column_classes(y, len(columns), names=columns, table=TABLE).classes
        return list(map(str, labels))
    n_shared = shared_length(columns) if len(columns) > 1 else 0
    # cut whole words only: labels such as "mid" and "min" share letters too
    prefix = re.sub(r"[^\W_]*$", "", columns[0][:n_shared]) if columns else ""
    return [name.removeprefix(prefix) for name in columns]
