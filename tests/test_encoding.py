"""Encoders for models take any table, and read a row alike in every batch and library."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fareg._encoding import gradient_boosting, one_hot_encoder, ordinal_encoder
from same_table import pandas_nullable, polars_plain


@pytest.mark.parametrize("encoder", [ordinal_encoder(), one_hot_encoder(), one_hot_encoder(2)])
def test_encoded_rows_do_not_depend_on_the_batch_or_the_library(encoder):
    frame, polars = pandas_nullable(), polars_plain()
    together = encoder.fit_transform(frame)
    alone = np.vstack([encoder.transform(frame[i : i + 1]) for i in range(len(frame))])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together, encoder.transform(polars))
    assert len(encoder[-1].get_feature_names_out()) == together.shape[1]


def test_unseen_text_and_numbers_in_unlike_columns_are_encoded():
    encoder = ordinal_encoder().fit(pd.DataFrame({"t": ["a", "b"], "n": [1.0, 2.0]}))
    other = pd.DataFrame({"t": [5.0, None], "n": ["x", "3"]})
    np.testing.assert_array_equal(encoder.transform(other), [[np.nan, np.nan], [np.nan, 3.0]])
    indicators = one_hot_encoder().fit(pd.DataFrame({"t": ["a", "b"]}))
    np.testing.assert_array_equal(indicators.transform(pd.DataFrame({"t": ["z"]})), [[0, 0]])


def test_default_model_takes_any_table(patients):
    X, y = patients
    model = gradient_boosting(0).fit(X, y)
    polars = pl.from_pandas(X)
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(polars))
    assert model.score(X, y) > 0.6
