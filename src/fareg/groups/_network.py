"""The variational network of groups: many restarts as one batched network.

Weights are a dict of layer lists; a layer is a pair ``(W, b)`` of shapes (n_restarts, n_in, n_out)
and (n_restarts, 1, n_out). The same functions run on torch tensors while training and on numpy
arrays afterwards, so prediction needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Layers = list[tuple[Any, Any]]
Weights = dict[str, Layers]
Activation = Callable[[Any, float], Any]
LATENT_DIM = 4
SLOPE = 0.2  # of LeakyReLU below zero


def leaky_relu(x: Any, slope: float) -> Any:
    """Return ``x`` where it is positive, ``slope * x`` elsewhere."""
    return np.maximum(x, slope * x)


def feed(x: Any, layers: Layers, activate: Activation = leaky_relu) -> Any:
    """Run a multilayer perceptron with LeakyReLU between its layers."""
    for w, b in layers[:-1]:
        x = activate(x @ w + b, SLOPE)
    w, b = layers[-1]
    return x @ w + b


def encode(x: Any, weights: Weights, activate: Activation = leaky_relu) -> Any:
    """Return mean and log-variance of ``p(z | x)``, each of shape (n_restarts, n, LATENT_DIM)."""
    h = activate(feed(x, weights["encoder"], activate), SLOPE)
    return feed(h, weights["mean"], activate), feed(h, weights["log_variance"], activate)


def membership_logits(z: Any, weights: Weights, activate: Activation = leaky_relu) -> Any:
    """Return the logits of ``q(s = 1 | z)``, shape (n_restarts, n)."""
    return feed(z, weights["membership"], activate)[..., 0]


def layer_sizes(n_inputs: int, hidden_sizes: tuple[int, ...]) -> dict[str, list[tuple[int, int]]]:
    """Return (n_in, n_out) of every layer; decoders have the hidden layers of the encoder."""
    inner = list(zip((n_inputs, *hidden_sizes[:-1]), hidden_sizes, strict=True))
    heads = [(hidden_sizes[-1], LATENT_DIM)]
    decoder = list(zip((LATENT_DIM, *hidden_sizes[:-1]), hidden_sizes, strict=True))
    return {
        "encoder": inner,
        "mean": heads,
        "log_variance": heads,
        "membership": [*decoder, (hidden_sizes[-1], 1)],
        "reconstruction": [*decoder, (hidden_sizes[-1], n_inputs)],
    }
