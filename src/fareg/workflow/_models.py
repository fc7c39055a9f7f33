"""The models that ``fareg fit`` knows by name, each ready for a table of any columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import gradient_boosting, lone_rows_twice, one_hot_encoder, ordinal_encoder
from fareg._validation import FloatArray

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

    def fit(self, X: FloatArray, y: Any) -> Self:
        """Train on numbers of shape (n_samples, n_features)."""
        super().fit(*lone_rows_twice(X, y))
        return self


def _mlp(seed: int) -> Any:
    # A fifth of the rows decides when to stop, and at least two, which the smallest tables need.
    network = AnySizeNetwork(
        (64, 32), early_stopping=True, validation_fraction=0.2, random_state=seed
    )
    steps = make_pipeline(one_hot_encoder(MAX_CATEGORIES)).steps
    return Pipeline([*steps, ("mlpclassifier", network)])


MODELS: dict[str, Callable[[int], Any]] = {
    "hgb": gradient_boosting,
    "forest": _forest,
    "logistic": _logistic,
    "mlp": _mlp,
}
