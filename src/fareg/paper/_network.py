"""The variational network of groups, applied: several restarts side by side, in numpy.

Weights are a dict of perceptrons; a perceptron is a list of layers ``(W, b)`` of shapes
(n_restarts, n_in, n_out) and (n_restarts, 1, n_out).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

Layers = list[tuple[Any, Any]]
Weights = dict[str, Layers]
Sizes = dict[str, list[tuple[int, int]]]
LATENT_DIM = 4
SLOPE = 0.2  # of LeakyReLU below zero


def layer_sizes(n_inputs: int, hidden_sizes: tuple[int, ...]) -> Sizes:
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


def leaky_relu(x: Any) -> Any:
    """Return x where it is positive, and ``SLOPE`` times x elsewhere."""
    return np.maximum(x, SLOPE * x)


def feed(x: Any, layers: Layers) -> Any:
    """Run a multilayer perceptron with LeakyReLU between its layers."""
    for w, b in layers[:-1]:
        x = leaky_relu(x @ w + b)
    w, b = layers[-1]
    return x @ w + b


def latent_mean(x: Any, weights: Weights) -> Any:
    """Return the mean of ``p(z | x)``, shape (n_restarts, n, LATENT_DIM)."""
    return feed(leaky_relu(feed(x, weights["encoder"])), weights["mean"])


def soft_group(z: Any, weights: Weights) -> Any:
    """Return ``q(s = 1 | z)`` before the projection, shape (n_restarts, n)."""
    return expit(feed(z, weights["membership"])[..., 0])
