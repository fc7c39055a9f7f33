"""The models that ``fareg fit`` knows by name, each ready for a table of any columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import gradient_boosting, lone_rows_twice, one_hot_encoder, ordinal_encoder
from fareg._validation import FloatArray, InvalidInputError, check_choice

MAX_CATEGORIES = 100  # rarer categories of a column share one input of a linear model or network


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return make_pipeline(
        ordinal_encoder(),
        RandomForestClassifier(200, min_samples_leaf=3, n_jobs=-1, random_state=seed),
    )


def _logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return make_pipeline(one_hot_encoder(MAX_CATEGORIES), LogisticRegression(max_iter=1000))


class AnySizeNetwork(MLPClassifier):
    """A network for classes of any size, down to one row."""

    def fit(self, X: FloatArray, y: Any, sample_weight: Any = None) -> Self:
        """Train on numbers of shape (n_samples, n_features)."""
        X, y, weights = lone_rows_twice(X, y, sample_weight)
        super().fit(X, y, **({} if weights is None else {"sample_weight": weights}))
        return self


def _mlp(seed: int) -> Any:
    # A fifth of the rows decides when to stop, and at least two, which the smallest tables need.
    network = AnySizeNetwork(
        (64, 32), early_stopping=True, validation_fraction=0.2, random_state=seed
    )
    return make_pipeline(one_hot_encoder(MAX_CATEGORIES), CodedLabels(network))


class CodedLabels(ClassifierMixin, BaseEstimator):
    """A classifier that wants the labels 0, 1, 2, ..., for labels of any type.

    Boosting libraries want them, and networks that stop early in older versions of scikit-learn.

    >>> from sklearn.dummy import DummyClassifier
    >>> CodedLabels(DummyClassifier()).fit([[0.0], [1.0]], ["b", "a"]).predict([[2.0]]).tolist()
    ['a']
    """

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the positions of the labels among the sorted ones."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.classifier_ = clone(self.classifier).fit(X, codes, **weights)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return probabilities of the labels, shape (n_samples, n_classes)."""
        return np.asarray(self.classifier_.predict_proba(X), dtype=np.float64)

    def predict(self, X: Any) -> Any:
        """Return the most probable labels."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def _xgboost(seed: int) -> Any:
    from xgboost import XGBClassifier

    return make_pipeline(ordinal_encoder(), CodedLabels(XGBClassifier(random_state=seed)))


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMClassifier

    # n_jobs=0 asks OpenMP for its threads, which are few for small tables
    boosting = LGBMClassifier(random_state=seed, verbosity=-1, n_jobs=0)
    return make_pipeline(ordinal_encoder(), CodedLabels(boosting))


def _catboost(seed: int) -> Any:
    from catboost import CatBoostClassifier

    boosting = CatBoostClassifier(random_seed=seed, verbose=False, allow_writing_files=False)
    return make_pipeline(ordinal_encoder(), CodedLabels(boosting))


MODELS: dict[str, Callable[[int], Any]] = {
    "hgb": gradient_boosting,
    "forest": _forest,
    "logistic": _logistic,
    "mlp": _mlp,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
}
LIBRARIES = ("xgboost", "lightgbm", "catboost")  # each the home of the model of the same name


def reading(model: Any, features: Sequence[str]) -> Pipeline:
    """Return a model that reads only some columns of a table, in this order."""
    columns = ColumnTransformer(
        [("features", "passthrough", list(features))], verbose_feature_names_out=False
    )
    return make_pipeline(columns.set_output(transform="pandas"), model)


def fitted_reading(model: Any, features: Sequence[str], table: pd.DataFrame) -> Pipeline:
    """Return a fitted model that reads only some columns of tables such as this one."""
    pipeline = reading(model, features)
    pipeline[0].fit(table)
    return pipeline


def check_named(name: str) -> None:
    """Refuse a name that stands for no model, or for one whose library is not installed."""
    check_choice("estimator", name, MODELS)
    if name not in LIBRARIES:
        return
    try:
        import_module(name)
    except ImportError as error:
        raise InvalidInputError(
            f"estimator {name} needs a library that is not installed ({error}); install it with: "
            f"pip install {name}"
        ) from error
