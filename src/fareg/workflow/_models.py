"""The models that ``fareg fit`` knows by name, each ready for a table of any columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import gradient_boosting, lone_rows_twice, one_hot_encoder, ordinal_encoder
from fareg._validation import FloatArray, InvalidInputError, check_choice

MAX_CATEGORIES = 100  # rarer categories of a column share one input of a linear model or network


class AnySizeNetwork(MLPClassifier):
    """A network for classes of any size, down to one row."""

    def fit(self, X: FloatArray, y: Any, sample_weight: Any = None) -> Self:
        """Train on numbers of shape (n_samples, n_features)."""
        return super().fit(*lone_rows_twice(X, y, sample_weight))


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


# The classifiers of other libraries, each of which has the name of its model, and their options.
LIBRARIES: dict[str, tuple[str, dict[str, Any]]] = {
    "xgboost": ("XGBClassifier", {}),
    # With n_jobs=0, OpenMP decides how many threads there are, few for small tables.
    "lightgbm": ("LGBMClassifier", {"verbosity": -1, "n_jobs": 0}),
    "catboost": ("CatBoostClassifier", {"verbose": False, "allow_writing_files": False}),
}


def _forest(seed: int) -> Any:
    forest = RandomForestClassifier(200, min_samples_leaf=3, n_jobs=-1, random_state=seed)
    return make_pipeline(ordinal_encoder(), forest)


def _logistic(seed: int) -> Any:
    return make_pipeline(one_hot_encoder(MAX_CATEGORIES), LogisticRegression(max_iter=1000))


def _mlp(seed: int) -> Any:
    # A fifth of the rows decides when to stop, and at least two, which the smallest tables need.
    network = AnySizeNetwork(
        (64, 32), early_stopping=True, validation_fraction=0.2, random_state=seed
    )
    return make_pipeline(one_hot_encoder(MAX_CATEGORIES), CodedLabels(network))


def _boosting(library: str, seed: int) -> Any:
    name, options = LIBRARIES[library]
    boosting = getattr(import_module(library), name)(random_state=seed, **options)
    return make_pipeline(ordinal_encoder(), CodedLabels(boosting))


MODELS: dict[str, Callable[[int], Any]] = {
    "hgb": gradient_boosting,
    "forest": _forest,
    "logistic": _logistic,
    "mlp": _mlp,
    **{library: partial(_boosting, library) for library in LIBRARIES},
}


def reading(model: Any, features: Sequence[str]) -> Pipeline:
    """Return a model that reads only some columns of a table, in this order."""
    columns = ColumnTransformer(
        [("features", "passthrough", list(features))], verbose_feature_names_out=False
    )
    return make_pipeline(columns.set_output(transform="pandas"), model)


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
