"""Mixed tables for models that need numbers: scikit-learn transformers on canonical columns."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from fareg._frames import as_numbers, as_text, canonical
from fareg._validation import FloatArray

LARGEST = 1e30  # larger numbers are cut to this: their squares and their float32 stay finite

_TEXT = make_column_selector(dtype_include=object)
_NUMBERS = make_column_selector(dtype_exclude=object)


def _all_text(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: as_text(column) for name, column in frame.items()})


def _all_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    numbers = pd.DataFrame({name: as_numbers(column) for name, column in frame.items()})
    return numbers.clip(-LARGEST, LARGEST)


def _finite_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    infinite = [np.inf, -np.inf]
    numbers = pd.DataFrame({name: as_numbers(column) for name, column in frame.items()})
    return numbers.replace(infinite, np.nan).clip(-LARGEST, LARGEST)


# A column keeps the form it had in fit: a lone row with a missing text looks like a number.
_TO_TEXT = FunctionTransformer(_all_text, feature_names_out="one-to-one")
_TO_NUMBERS = FunctionTransformer(_all_numbers, feature_names_out="one-to-one")
_TO_FINITE_NUMBERS = FunctionTransformer(_finite_numbers, feature_names_out="one-to-one")


def ordinal_encoder() -> Pipeline:
    """Text to level numbers, missing and unseen values to NaN, numbers as they are: for trees.

    Numbers beyond 1e30, infinite ones too, are cut there: their order is all that trees need.
    """
    levels = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan
    )
    columns = ColumnTransformer(
        [("text", make_pipeline(_TO_TEXT, levels), _TEXT), ("numbers", _TO_NUMBERS, _NUMBERS)]
    )
    return make_pipeline(FunctionTransformer(canonical), columns)


def one_hot_encoder(max_categories: int | None = None) -> Pipeline:
    """Text to indicators (missing is a level, unseen is none), numbers standardised: for networks.

    With ``max_categories``, the rarest levels of a column share one indicator. An infinite number
    counts as missing.
    """
    levels = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=max_categories, sparse_output=False
    )
    # an all-missing column stays, as zeros; the indicator tells missing from the median
    numbers = make_pipeline(
        _TO_FINITE_NUMBERS,
        SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True),
        StandardScaler(),
    )
    columns = ColumnTransformer(
        [("text", make_pipeline(_TO_TEXT, levels), _TEXT), ("numbers", numbers, _NUMBERS)]
    )
    return make_pipeline(FunctionTransformer(canonical), columns)


def encoded_columns(encoder: Pipeline) -> list[tuple[str, str]]:
    """Return for each output of a fitted :func:`one_hot_encoder` its column and its own name.

    Which column an output comes from is counted, because names do not tell: ``a_b`` may be level
    ``b`` of column ``a``, or a column.
    """
    sources: list[str] = []
    for name, transformer, columns in encoder[-1].transformers_:
        if len(columns) == 0:
            continue
        if name == "text":
            levels = transformer[-1]
            rare = levels.infrequent_categories_ if levels.max_categories else [None] * len(columns)
            for column, known, shared in zip(columns, levels.categories_, rare, strict=True):
                n_outputs = len(known) if shared is None else len(known) - len(shared) + 1
                sources += [column] * n_outputs
        elif name == "numbers":
            missing = transformer[1].indicator_.features_
            sources += [*columns, *(columns[position] for position in missing)]
    full = [str(name) for name in encoder[-1].get_feature_names_out()]
    short = [name.split("__", 1)[1] for name in full]
    names = short if len(set(short)) == len(short) else full
    return list(zip(map(str, sources), names, strict=True))


class FillEmpty(TransformerMixin, BaseEstimator):
    """Put zeros into columns that had no value in fit: boosting cannot cut a column of nothing."""

    def fit(self, X: FloatArray, y: Any = None) -> Self:
        """Note which columns are empty."""
        self.empty_ = np.isnan(X).all(axis=0)
        return self

    def transform(self, X: FloatArray) -> FloatArray:
        """Return X with those columns at zero."""
        return np.where(self.empty_, 0.0, X)


def lone_rows_twice(X: FloatArray, y: Any) -> tuple[FloatArray, Any]:
    """Return the rows, and once more each row that is the only one of its class.

    Early stopping sets aside rows of each class, and a class of one row cannot be in both parts.
    """
    labels = np.asarray(y)
    _, first, counts = np.unique(labels, return_index=True, return_counts=True)
    rows = np.concatenate([np.arange(len(labels)), first[counts == 1]])
    return np.asarray(X)[rows], labels[rows]


class AnySizeBoosting(HistGradientBoostingClassifier):
    """Gradient boosting for classes of any size, down to one row."""

    def fit(self, X: FloatArray, y: Any) -> Self:
        """Train on numbers of shape (n_samples, n_features)."""
        super().fit(*lone_rows_twice(X, y))
        return self


def gradient_boosting(random_state: int | None = None) -> Pipeline:
    """Gradient boosting on any table: the default where no estimator is given."""
    boosting = AnySizeBoosting(random_state=random_state)
    steps = make_pipeline(ordinal_encoder(), FillEmpty()).steps
    return Pipeline([*steps, ("histgradientboostingclassifier", boosting)])
