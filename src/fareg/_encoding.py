"""Mixed tables for models that need numbers: scikit-learn transformers on canonical columns."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

from fareg._columns import as_numbers, as_text, canonical
from fareg._validation import FloatArray

DAMPING = 10.0  # l2 regularisation that keeps the steps of a repeated training short
CHECKED_ROWS = 1000  # enough to see whether training diverged
LARGEST = 1e30  # larger numbers may overflow when they are squared or stored as float32

_TEXT = make_column_selector(dtype_include=object)
_NUMBERS = make_column_selector(dtype_exclude=object)


def cut_huge(numbers: Any) -> Any:
    """Cut the numbers of a frame, series or array to between ``-LARGEST`` and ``LARGEST``."""
    return numbers.clip(-LARGEST, LARGEST)


def _all_text(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: as_text(column) for name, column in frame.items()})


def _all_numbers(frame: pd.DataFrame) -> Any:
    return cut_huge(pd.DataFrame({name: as_numbers(column) for name, column in frame.items()}))


def _finite_numbers(frame: pd.DataFrame) -> Any:
    numbers = pd.DataFrame({name: as_numbers(column) for name, column in frame.items()})
    return cut_huge(numbers.replace([np.inf, -np.inf], np.nan))


# functions inside encoders; model files refer to them by name
ENCODER_FUNCTIONS = (canonical, _all_text, _all_numbers, _finite_numbers)

# A column keeps the type it had in fit: a single row with a missing text would look like a number.
_TO_TEXT = FunctionTransformer(_all_text, feature_names_out="one-to-one")
_TO_NUMBERS = FunctionTransformer(_all_numbers, feature_names_out="one-to-one")
_TO_FINITE_NUMBERS = FunctionTransformer(_finite_numbers, feature_names_out="one-to-one")
_UNKNOWN: dict[str, Any] = {  # missing and unseen values are NaN
    "handle_unknown": "use_encoded_value",
    "unknown_value": np.nan,
    "encoded_missing_value": np.nan,
}


def ordinal_encoder() -> Pipeline:
    """Encode text as category codes and missing or unseen values as NaN, for trees."""
    return _encoder(make_pipeline(_TO_TEXT, OrdinalEncoder(**_UNKNOWN)), _TO_NUMBERS)


def _encoder(text: Any, numbers: Any) -> Pipeline:
    """Apply a transformer to each kind of column; ``encoder[1:]`` takes canonical columns."""
    columns = ColumnTransformer([("text", text, _TEXT), ("numbers", numbers, _NUMBERS)])
    return make_pipeline(FunctionTransformer(canonical), columns)


def one_hot_encoder(max_categories: int | None = None) -> Pipeline:
    """Encode text as indicators and standardise numbers, for networks.

    A missing text is a category, an unseen one has no indicator. With ``max_categories``, the
    rarest categories of a column share one. An infinite number counts as missing.
    """
    # A column without values becomes zeros. An indicator separates missing values from the median.
    numbers = make_pipeline(
        _TO_FINITE_NUMBERS,
        SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True),
        StandardScaler(),
    )
    categories = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=max_categories, sparse_output=False
    )
    return _encoder(make_pipeline(_TO_TEXT, categories), numbers)


def code_encoder(max_categories: int | None = None) -> Pipeline:
    """Encode every column as one raw number and text as category codes, for networks.

    With ``max_categories``, the rarest categories of a column share one code. Missing, unseen and
    infinite values become the median.
    """
    median = SimpleImputer(strategy="median", keep_empty_features=True)
    text = make_pipeline(
        _TO_TEXT, OrdinalEncoder(**_UNKNOWN, max_categories=max_categories), median
    )
    return _encoder(text, make_pipeline(_TO_FINITE_NUMBERS, median))


def encoded_columns(encoder: Pipeline) -> list[tuple[str, str]]:
    """Return the source column and the name of each output of a fitted encoder for networks.

    Names are not parsed: ``a_b`` may be category ``b`` of column ``a``, or a column.
    """
    sources: list[str] = []
    for name, transformer, columns in encoder[-1].transformers_:
        step = transformer[1] if len(columns) else None
        outputs = list(range(len(columns)))
        if isinstance(step, OneHotEncoder):
            shared = step.infrequent_categories_ if step.max_categories else [None] * len(columns)
            outputs = [
                position
                for position, (known, rare) in enumerate(zip(step.categories_, shared, strict=True))
                for _ in range(len(known) if rare is None else len(known) - len(rare) + 1)
            ]
        elif name == "numbers" and step is not None and step.add_indicator:
            outputs += step.indicator_.features_.tolist()
        sources += [columns[position] for position in outputs]
    full = [str(name) for name in encoder[-1].get_feature_names_out()]
    short = [name.split("__", 1)[1] for name in full]
    names = short if len(set(short)) == len(short) else full
    return list(zip(map(str, sources), names, strict=True))


class FillEmpty(TransformerMixin, BaseEstimator):
    """Fill columns that had no value in fit with zeros: boosting could not split them."""

    def fit(self, X: FloatArray, y: Any = None) -> Self:
        self.empty_ = np.isnan(X).all(axis=0)
        return self

    def transform(self, X: FloatArray) -> FloatArray:
        return np.where(self.empty_, 0.0, X) if self.empty_.any() else X


def lone_rows_twice(X: FloatArray, y: Any, weights: Any = None) -> tuple[FloatArray, Any, Any]:
    """Return the rows, and a second copy of each that is alone in its class: one is held out."""
    labels = np.asarray(y)
    _, first, counts = np.unique(labels, return_index=True, return_counts=True)
    rows = np.concatenate([np.arange(len(labels)), first[counts == 1]])
    return np.asarray(X)[rows], labels[rows], None if weights is None else weights[rows]


class AnySizeBoosting(HistGradientBoostingClassifier):
    """Gradient boosting for classes of any size, down to one row."""

    def fit(self, X: FloatArray, y: Any, sample_weight: Any = None) -> Self:
        """Train on numbers of shape (n_samples, n_features).

        Early stopping is off if it would hold out fewer rows than there are classes. If training
        diverges, as it may with rare classes, it is repeated with stronger regularisation.
        """
        # Boosting fails on columns without a value; it never splits on zeros.
        if (empty := np.isnan(np.asarray(X, dtype=np.float64)).all(axis=0)).any():
            X = np.where(empty, 0.0, X)
        y, weights, given = np.asarray(y), sample_weight, self.get_params()
        if np.unique(y, return_counts=True)[1].min() == 1:
            X, y, weights = lone_rows_twice(X, y, weights)
        n_held_out = (given["validation_fraction"] or 0) * len(y)
        if given["early_stopping"] == "auto" and len(np.unique(y)) > n_held_out:
            self.set_params(early_stopping=False)
        try:
            super().fit(X, y, sample_weight=weights)
            if len(self.classes_) > 2 and self._has_diverged(X, y, weights):
                self.set_params(l2_regularization=max(DAMPING, given["l2_regularization"]))
                super().fit(X, y, sample_weight=weights)
        finally:
            self.set_params(**given)
        return self

    def _has_diverged(self, X: FloatArray, y: Any, weights: Any) -> bool:
        """Return whether the class shares alone would predict the training labels better."""
        rows = np.linspace(0, len(y) - 1, min(len(y), CHECKED_ROWS)).astype(np.int64)
        codes = np.searchsorted(self.classes_, np.asarray(y)[rows])
        weights = np.ones(len(y)) if weights is None else np.asarray(weights)
        shares = np.bincount(codes, weights[rows], len(self.classes_)) / weights[rows].sum()
        predicted = self.predict_proba(X[rows])[np.arange(len(rows)), codes]
        tiny = np.finfo(float).tiny
        gain = np.log(np.maximum(predicted, tiny)) - np.log(np.maximum(shares[codes], tiny))
        return bool(np.average(gain, weights=weights[rows]) < 0)


def gradient_boosting(random_state: int | None = None) -> Pipeline:
    """Return gradient boosting for any table, the default estimator."""
    boosting = AnySizeBoosting(random_state=random_state)
    if get_config()["enable_metadata_routing"]:
        boosting.set_fit_request(sample_weight=True)
    return Pipeline([*ordinal_encoder().steps, ("histgradientboostingclassifier", boosting)])
