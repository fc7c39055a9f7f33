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
LATENT_DIM = 4


def feed(x: Any, layers: Layers, maximum: Callable[[Any, Any], Any] = np.maximum) -> Any:
    """Run a multilayer perceptron with LeakyReLU(0.2) between its layers."""
    for w, b in layers[:-1]:
        h = x @ w + b
        x = maximum(h, 0.2 * h)
    w, b = layers[-1]
    return x @ w + b


def encode(x: Any, weights: Weights, maximum: Callable[[Any, Any], Any] = np.maximum) -> Any:
    """Return mean and log-variance of ``p(z | x)``, each of shape (n_restarts, n, LATENT_DIM)."""
    h = feed(x, weights["encoder"], maximum)
    h = maximum(h, 0.2 * h)
    return feed(h, weights["mean"], maximum), feed(h, weights["log_variance"], maximum)


def membership_logits(
    z: Any, weights: Weights, maximum: Callable[[Any, Any], Any] = np.maximum
) -> Any:
    """Return the logits of ``q(s = 1 | z)``, shape (n_restarts, n)."""
    return feed(z, weights["membership"], maximum)[..., 0]


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
