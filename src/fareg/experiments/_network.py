"""The base network of the paper, trained to the epoch of its lowest validation loss."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from fareg._encoding import code_encoder, one_hot_encoder
from fareg._validation import IntArray
from fareg.experiments._settings import BaseModel

ENCODERS = {"codes": code_encoder, "standard": one_hot_encoder}


def train_network(
    config: BaseModel,
    X: pd.DataFrame,
    y: IntArray,
    seed: int,
    *,
    stop: tuple[pd.DataFrame, IntArray] | None = None,
) -> Pipeline:
    """Return the network after the epoch whose log loss on the stopping rows is lowest.

    ``stop`` holds the rows and labels that choose the epoch; if it is None, a share of the training
    rows does. Rows whose class is not among the rows that train do not count there.
    """
    if stop is None:
        rows = np.random.default_rng(seed).permutation(len(y))
        n_stop = max(1, round(config.validation * len(y)))
        stop = X.iloc[rows[:n_stop]], y[rows[:n_stop]]
        X, y = X.iloc[rows[n_stop:]], y[rows[n_stop:]]
    X_stop, y_stop = stop
    encoder = ENCODERS[config.numbers]().fit(X)
    known = np.isin(y_stop, y)
    x, x_stop = (encoder.transform(rows).astype(np.float32) for rows in (X, X_stop[known]))
    classes, size = np.unique(y), min(config.batch_size, len(y))
    network = MLPClassifier(
        config.hidden,
        learning_rate_init=config.learning_rate,
        batch_size=size,
        # With a number instead of a generator, every epoch would shuffle alike.
        random_state=np.random.RandomState(seed),
    )
    # One step makes the layers, which are then drawn anew.
    network.partial_fit(x[:size], y[:size], classes=classes)
    _draw_layers(network, np.random.default_rng(seed))
    lowest, best, waited = np.inf, network, 0
    for _ in range(config.max_epochs):
        network.partial_fit(x, y)
        loss = log_loss(y_stop[known], network.predict_proba(x_stop), labels=classes)
        waited += 1
        if loss < lowest:
            lowest, best, waited = loss, deepcopy(network), 0
        if waited == config.patience:
            break
    return make_pipeline(encoder, best)


def _draw_layers(network: MLPClassifier, rng: np.random.Generator) -> None:
    """Draw weights as torch's Linear does, uniform on +-1/sqrt(n_in).

    The authors' network starts there. From scikit-learn's own start, with larger inner weights and
    smaller first ones, the same training overfits sooner and its sets are larger.
    """
    for weights, intercepts in zip(network.coefs_, network.intercepts_, strict=True):
        bound = len(weights) ** -0.5
        weights[:] = rng.uniform(-bound, bound, weights.shape)
        intercepts[:] = rng.uniform(-bound, bound, intercepts.shape)
