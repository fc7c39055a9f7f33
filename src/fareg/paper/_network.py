"""The variational network of groups in use, and the projection of its memberships.

Weights are a dict of perceptrons. A perceptron is a list of layers ``(W, b)`` of shapes
(n_restarts, n_in, n_out) and (n_restarts, 1, n_out): all restarts are computed together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fareg._validation import BoolArray, FloatArray, InvalidInputError, check_fraction

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


def project_to_mass(proba: npt.ArrayLike, delta: float) -> FloatArray:
    """Return the nearest vector in [0, 1]^n whose mean is at least ``delta``.

    Solves ``min ||v - u||^2`` subject to ``mean(v) >= delta`` and ``0 <= v <= 1`` exactly, in O(n
    log n): ``v_i = min(1, u_i + w)`` with the shift w of :func:`mass_shift` (Eq. project). The
    probabilities u have shape (n,) or (n_batches, n).

    >>> project_to_mass([0.9, 0.1, 0.0, 0.0], 0.5).round(3)
    array([1. , 0.4, 0.3, 0.3])
    >>> project_to_mass([0.9, 0.8, 0.7, 0.6], 0.5)
    array([0.9, 0.8, 0.7, 0.6])
    """
    u = np.asarray(proba, dtype=np.float64)
    if np.isnan(u).any() or (u < 0).any() or (u > 1).any():
        raise InvalidInputError("proba must lie in [0, 1] without NaN to be projected")
    check_fraction("delta", delta, include_one=True)
    return np.asarray(project_with_gradient(u, delta)[0])


def project_with_gradient(proba: FloatArray, delta: float) -> tuple[Any, Callable[[Any], Any]]:
    """Project probabilities; also return a function for the gradient with respect to ``proba``.

    With ``w`` the shift and ``F`` the free entries, ``dw / du_j = -[j in F] / |F|`` where
    ``w > 0``; clipped entries do not move.
    """
    w, free = mass_shift(proba, delta)
    w = w[..., None]
    shifted = proba + w
    share = free * (w > 0) / free.sum(-1, keepdims=True, dtype=proba.dtype)

    def back(d: Any) -> Any:
        d = d * (shifted <= 1)
        return d - share * d.sum(-1, keepdims=True)

    return np.minimum(1, shifted), back


def mass_shift(proba: FloatArray, delta: float) -> tuple[Any, BoolArray]:
    """Return the shift ``w >= 0``, one per row of the last axis, and the entries that stay free.

    A free entry is at most one after the shift. The k largest entries are clipped, where ``k`` is
    the smallest count for which the next entry stays free:
    ``u_(k+1) + w_k <= 1`` with ``w_k = (delta n - k - sum_{i>k} u_(i)) / (n - k)``.
    """
    n = proba.shape[-1]
    free = np.ones(proba.shape, dtype=bool)
    if not (proba.mean(-1) >= delta).all():  # otherwise nothing is shifted
        order = np.argsort(-proba, axis=-1, kind="stable")
        u = np.take_along_axis(proba, order, axis=-1)
        k = np.arange(n)
        tail = np.cumsum(u[..., ::-1], axis=-1)[..., ::-1]  # sum_{i>k} u_(i)
        w = (delta * n - k - tail) / (n - k)
        clipped = np.argmax(u + w <= 1 + 1e-12, axis=-1)
        np.put_along_axis(free, order, k >= clipped[..., None], axis=-1)
    n_free = free.sum(-1)
    w = (delta * n - (n - n_free) - (proba * free).sum(-1)) / n_free
    return w * (w > 0), free
