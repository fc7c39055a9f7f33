"""The models that ``fareg fit`` knows by name, each ready for a table of any columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.pipeline import make_pipeline

from fareg._encoding import gradient_boosting, one_hot_encoder, ordinal_encoder

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


def _mlp(seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    network = MLPClassifier((64, 32), early_stopping=True, random_state=seed)
    return make_pipeline(one_hot_encoder(MAX_CATEGORIES), network)


MODELS: dict[str, Callable[[int], Any]] = {
    "hgb": gradient_boosting,
    "forest": _forest,
    "logistic": _logistic,
    "mlp": _mlp,
}
