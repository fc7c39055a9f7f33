"""The wrapped estimator: what it must be, and how it is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from fareg._threads import few_threads
from fareg._validation import FaregError, InvalidInputError
from fareg._words import first_line


def check_model(name: str, model: Any) -> None:
    """Refuse what cannot be a model: a class instead of an instance, a number, a name."""
    if callable(model) and not isinstance(model, type) and not hasattr(model, "predict_proba"):
        raise InvalidInputError(
            f"{name} must be a classifier, got a function; tell its labels: "
            "ProbabilityFunction(function, classes=[...])"
        )
    if isinstance(model, type) or not (hasattr(model, "fit") or hasattr(model, "predict_proba")):
        got = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
        raise InvalidInputError(
            f"{name} must be a classifier with predict_proba or None, got {got}; "
            "pass one such as LogisticRegression()"
        )


def check_estimator(estimator: Any) -> Any:
    """Return an estimator that has ``predict_proba`` and ``classes_``."""
    if not hasattr(estimator, "predict_proba"):
        raise InvalidInputError(
            f"estimator must have predict_proba, got {type(estimator).__name__}; "
            "wrap it in sklearn's CalibratedClassifierCV"
        )
    if getattr(estimator, "classes_", None) is None:
        raise InvalidInputError(
            f"estimator must have classes_, the label of each column of predict_proba, got "
            f"{type(estimator).__name__} without; use "
            "ProbabilityFunction(model.predict_proba, classes=[...])"
        )
    return estimator


def is_given(estimator: Any) -> bool:
    """Tell whether there is nothing to train: a frozen model, or one of another library.

    What scikit-learn cannot copy without its training, because it has no ``get_params`` or no
    ``fit``, is taken as it is.
    """
    trainable = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    return isinstance(estimator, FrozenEstimator) or not trainable


def weight_arguments(estimator: Any, weights: Any) -> dict[str, Any]:
    """Return the arguments of ``estimator.fit`` that carry training weights; none for None.

    The weights go to the last step of a pipeline, which is the one that learns from labels.

    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> weight_arguments(make_pipeline(DummyClassifier()), [1.0, 2.0])
    {'dummyclassifier__sample_weight': [1.0, 2.0]}
    """
    if weights is None:
        return {}
    if get_config()["enable_metadata_routing"]:  # the requests of the steps say where they go
        return {"sample_weight": weights}
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        return {f"{name}__{key}": w for key, w in weight_arguments(last, weights).items()}
    if not has_fit_parameter(estimator, "sample_weight"):
        raise InvalidInputError(
            f"{type(estimator).__name__} takes no training weights; leave them out, or choose "
            "another estimator"
        )
    return {"sample_weight": weights}


def routed_weights(clf: Any, sample_weight: Any, n: int) -> Any:
    """Return the weights that the estimator of a classifier is trained with, None for none.

    With scikit-learn's metadata routing, an estimator gets weights only if it requests them.
    """
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.full(1, np.nan)
    if weights.shape != (n,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidInputError(
            f"sample_weight must hold {n} finite numbers of at least 0, one per row of X"
        )
    if get_config()["enable_metadata_routing"]:
        return process_routing(clf, "fit", sample_weight=weights).estimator.fit.get("sample_weight")
    return weights


def refuse_weights(sample_weight: Any) -> None:
    """Refuse weights where rows calibrate and nothing is trained."""
    if sample_weight is not None:
        raise InvalidInputError(
            "sample_weight cannot weight calibration rows, because no promise is proven for "
            "weighted ranks; leave it out, or call fit with an estimator to train, which gets it"
        )


@contextmanager
def asked(estimator: Any, X: Any, refusal: str) -> Iterator[None]:
    """Let an estimator work on rows; if it refuses them, say so in one line."""
    try:
        with few_threads(X):
            yield
    except FaregError:
        raise
    except (ValueError, TypeError) as error:
        model = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
        raise InvalidInputError(
            f"the estimator {type(model).__name__} {refusal}: {first_line(error).rstrip('.')}; "
            "mend the rows, or put a step before it that does, with sklearn.pipeline.make_pipeline"
        ) from error


def trained(estimator: Any, X: Any, y: Any, weights: Any = None) -> Any:
    """Train an estimator; if it refuses the rows, say so in one sentence.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> trained(DummyClassifier(), [[0.0], [1.0]], [0, 1]).classes_.tolist()
    [0, 1]
    """
    own = weight_arguments(estimator, weights)
    with asked(estimator, X, f"could not be trained on {len(y)} of the rows"):
        return check_estimator(estimator.fit(X, y, **own))


def is_fitted(estimator: Any) -> bool:
    """Tell whether an estimator was trained."""
    if is_given(estimator) and not isinstance(estimator, FrozenEstimator):
        return True
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True
