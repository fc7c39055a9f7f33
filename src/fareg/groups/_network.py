"""The variational network of groups: many restarts as one batched network.

Weights are a dict of layer lists; a layer is a pair ``(W, b)`` of shapes (n_restarts, n_in, n_out)
and (n_restarts, 1, n_out). The same functions run on torch tensors while training and on numpy
arrays afterwards, so prediction needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

Layers = list[tuple[Any, Any]]
Weights = dict[str, Layers]
LATENT_DIM = 4
SLOPE = 0.2  # of LeakyReLU below zero


@dataclass(frozen=True)
class Arithmetic:
    """How a library computes a layer."""

    affine: Callable[[Any, Any, Any], Any]  # (x, w, b) -> x @ w + b
    leaky_relu: Callable[[Any, float], Any]  # (x, slope) -> x where positive, else slope * x


NUMPY = Arithmetic(lambda x, w, b: x @ w + b, lambda x, slope: np.maximum(x, slope * x))


def load_training() -> None:
    """Load torch now instead of in the first fit, so that whoever times a fit does not count it."""
    import_module("fareg.groups._training")


def feed(x: Any, layers: Layers, do: Arithmetic = NUMPY) -> Any:
    """Run a multilayer perceptron with LeakyReLU between its layers."""
    for layer in layers[:-1]:
        x = do.leaky_relu(do.affine(x, *layer), SLOPE)
    return do.affine(x, *layers[-1])


def encode(x: Any, weights: Weights, do: Arithmetic = NUMPY) -> Any:
    """Return mean and log-variance of ``p(z | x)``, each of shape (n_restarts, n, LATENT_DIM)."""
    h = _hidden(x, weights, do)
    return feed(h, weights["mean"], do), feed(h, weights["log_variance"], do)


def latent_mean(x: Any, weights: Weights, do: Arithmetic = NUMPY) -> Any:
    """Return the mean of ``p(z | x)`` alone."""
    return feed(_hidden(x, weights, do), weights["mean"], do)


def _hidden(x: Any, weights: Weights, do: Arithmetic) -> Any:
    return do.leaky_relu(feed(x, weights["encoder"], do), SLOPE)


def membership_logits(z: Any, weights: Weights, do: Arithmetic = NUMPY) -> Any:
    """Return the logits of ``q(s = 1 | z)``, shape (n_restarts, n)."""
    return feed(z, weights["membership"], do)[..., 0]


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
