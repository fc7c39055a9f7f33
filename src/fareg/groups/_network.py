"""The variational network of groups: many restarts as one batched network.

Weights are a dict of layer lists; a layer is a pair ``(W, b)`` of shapes (n_restarts, n_in, n_out)
and (n_restarts, 1, n_out).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Layers = list[tuple[Any, Any]]
Weights = dict[str, Layers]
# Carries the gradient of an output back to the input; the layers' own gradients are left in place.
Back = Callable[[Any], Any]
LATENT_DIM = 4
SLOPE = 0.2  # of LeakyReLU below zero


def feed(x: Any, layers: Layers) -> Any:
    """Run a multilayer perceptron with LeakyReLU between its layers."""
    for w, b in layers[:-1]:
        x = leaky_relu(x @ w + b)
    w, b = layers[-1]
    return x @ w + b


def feed_and_back(x: Any, layers: Layers, gradients: Layers) -> tuple[Any, Back]:
    """Run the same perceptron; also return how a gradient of its output gets back to ``x``.

    On its way back the gradient of every layer is written into ``gradients``, arrays of the shapes
    of ``layers``.
    """
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(leaky_relu(feed(inputs[-1], [layer])))

    def back(d: Any) -> Any:
        for (w, _), (dw, db), at in zip(layers[::-1], gradients[::-1], inputs[::-1], strict=True):
            np.matmul(at.swapaxes(-1, -2), d, out=dw)
            np.matmul(np.ones((1, at.shape[-2]), dtype=at.dtype), d, out=db)
            d = d @ w.swapaxes(-1, -2)
            if at is not x:
                d = leaky_back(d, at)
        return d

    return feed(inputs[-1], layers[-1:]), back


def leaky_relu(x: Any) -> Any:
    """Return x where it is positive, and ``SLOPE`` times x elsewhere."""
    return np.maximum(x, SLOPE * x)


def leaky_back(d: Any, y: Any) -> Any:
    """Carry a gradient back through ``y = leaky_relu(x)``, which has the sign of x."""
    slope = (y > 0).astype(y.dtype)  # choosing by a mask would take ten times as long
    slope *= 1 - SLOPE
    slope += SLOPE
    return slope * d


def latent_mean(x: Any, weights: Weights) -> Any:
    """Return the mean of ``p(z | x)``, shape (n_restarts, n, LATENT_DIM)."""
    return feed(leaky_relu(feed(x, weights["encoder"])), weights["mean"])


def membership_logits(z: Any, weights: Weights) -> Any:
    """Return the logits of ``q(s = 1 | z)``, shape (n_restarts, n)."""
    return feed(z, weights["membership"])[..., 0]


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
