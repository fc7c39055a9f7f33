"""Encoders for models take any table, and read a row alike in every batch and library."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from fareg._encoding import (
    AnySizeBoosting,
    gradient_boosting,
    one_hot_encoder,
    ordinal_encoder,
)
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


def skewed_classes(n_classes=8):
    """Labels that nothing tells, the last ones rare."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, n_classes + 1) ** 2
    y = rng.choice(n_classes, 400, p=shares / shares.sum())
    return rng.integers(0, 6, (400, 4)).astype(float), y


def test_boosting_with_rare_classes_does_not_go_astray():
    X, y = skewed_classes()
    shares = np.bincount(y) / len(y)
    boosting = AnySizeBoosting(learning_rate=1.0, random_state=0)
    plain = HistGradientBoostingClassifier(learning_rate=1.0, random_state=0).fit(X, y)
    trained, diverged = (
        model.predict_proba(X)[np.arange(400), y] for model in (boosting.fit(X, y), plain)
    )
    assert (
        np.log(np.maximum(diverged, 1e-300)).mean() < np.log(shares[y]).mean()
    )  # steps without bound
    assert np.log(trained).mean() > np.log(shares[y]).mean()
    assert boosting.get_params()["l2_regularization"] == 0.0
