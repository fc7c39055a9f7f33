"""Mixed tables for models that need numbers: scikit-learn transformers on canonical columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
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

_TEXT = make_column_selector(dtype_include=object)
_NUMBERS = make_column_selector(dtype_exclude=object)


def _all_text(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: as_text(column) for name, column in frame.items()})


def _all_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: as_numbers(column) for name, column in frame.items()})


# A column keeps the form it had in fit: a lone row with a missing text looks like a number.
_TO_TEXT = FunctionTransformer(_all_text, feature_names_out="one-to-one")
_TO_NUMBERS = FunctionTransformer(_all_numbers, feature_names_out="one-to-one")


def ordinal_encoder() -> Pipeline:
    """Text to level numbers, missing and unseen values to NaN, numbers as they are: for trees."""
    levels = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan
    )
    columns = ColumnTransformer(
        [("text", make_pipeline(_TO_TEXT, levels), _TEXT), ("numbers", _TO_NUMBERS, _NUMBERS)]
    )
    return make_pipeline(FunctionTransformer(canonical), columns)


def one_hot_encoder(max_categories: int | None = None) -> Pipeline:
    """Text to indicators (missing is a level, unseen is none), numbers standardised: for networks.

    With ``max_categories``, the rarest levels of a column share one indicator.
    """
    levels = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=max_categories, sparse_output=False
    )
    # an all-missing column stays, as zeros; the indicator tells missing from the median
    numbers = make_pipeline(
        _TO_NUMBERS,
        SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True),
        StandardScaler(),
    )
    columns = ColumnTransformer(
        [("text", make_pipeline(_TO_TEXT, levels), _TEXT), ("numbers", numbers, _NUMBERS)]
    )
    return make_pipeline(FunctionTransformer(canonical), columns)


def gradient_boosting(random_state: int | None = None) -> Pipeline:
    """Gradient boosting on any table: the default where no estimator is given."""
    return make_pipeline(
        ordinal_encoder(), HistGradientBoostingClassifier(random_state=random_state)
    )
