"""Training the network of groups: the group first, the reconstruction second.

All restarts train together as one batched network. Gradients are written by hand: the network is
small, and a library for automatic gradients takes longer to load than this takes to train.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fareg._threads import one_thread
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.paper._network import (
    SLOPE,
    Layers,
    Sizes,
    Weights,
    feed,
    latent_mean,
    layer_sizes,
    leaky_relu,
    project_with_gradient,
    soft_group,
)

CHECK_EVERY = 10  # steps between two computations of the validation loss
MAX_STOP_ROWS = 4096  # rows for the validation loss, drawn at random
LARGE_BLOCK = 2**24  # bytes
# Adam's decay of the mean of gradients and of their squares; TINY avoids a division by zero
DECAY, DECAY_SQUARES, TINY = 0.9, 0.999, 1e-8

Floats = npt.NDArray[Any]  # single precision while training
Back = Callable[[Any], Any]  # turns the gradient of an output into that of the input


@one_thread()  # these matrices are too small to share, and sums stay in order
def train_network(
    x: FloatArray, inverse: IntArray, covered: FloatArray, trains: BoolArray, learner: Any
) -> tuple[Weights, list[dict[str, Any]]]:
    """Return the trained weights and the history of losses.

    ``x`` of shape (n_distinct, n_inputs) holds the encoded features, each distinct row once, and
    ``inverse`` of shape (n,) the position of each row in ``x``. The network looks for rows where
    ``covered`` of shape (n,) is low. Rows of ``trains`` train it, and the others stop it early.
    ``learner`` is the :class:`NetworkLearner` with the settings.
    """
    # Until one larger block has been freed, Linux reclaims the memory of every step, and getting it
    # back takes more time than the computations.
    np.empty(LARGE_BLOCK, dtype=np.uint8)
    rng = np.random.default_rng(learner.random_state)
    X, C = x.astype(np.float32), covered.astype(np.float32)
    sizes = layer_sizes(x.shape[1], tuple(learner.hidden_sizes))
    last = {"reconstruction": sizes.pop("reconstruction")}
    group, decoder = (Part(some, learner.n_restarts, rng) for some in (sizes, last))
    weights, delta = group.weights, float(learner.delta)

    def stop_loss(rows: IntArray) -> Any:
        q = soft_group(latent_mean(X[inverse[rows]], weights), weights)
        return _coverage(project_with_gradient(q, delta)[0], C[rows])

    def loss(rows: IntArray) -> Floats:
        return group_loss(group, X[inverse[rows]], C[rows], learner, rng)

    stops = np.tile(np.flatnonzero(~trains), (learner.n_restarts, 1))
    rows = np.tile(np.flatnonzero(trains), (learner.n_restarts, 1))
    n_steps = int(learner.epochs) * math.ceil(rows.shape[1] / learner.batch_size)
    common = rows, _batch(stops, MAX_STOP_ROWS, rng), learner, rng
    history = _minimise("group", loss, stop_loss, group, n_steps, *common)
    restart = np.arange(learner.n_restarts)[:, None]
    z, z_mean, z_spread = _standardised(latent_mean(X, weights), inverse)
    target, mean, spread = _standardised(X[None], inverse)

    def error(rows: IntArray) -> Floats:
        return reconstruction_loss(decoder, z[restart, inverse[rows]], target[0, inverse[rows]])

    history += _minimise("reconstruction", error, error, decoder, n_steps, *common)
    trained = {
        name: [(w.astype(np.float64), b.astype(np.float64)) for w, b in layers]
        for name, layers in (weights | decoder.weights).items()
    }
    # Move both scalings into the first and last layer, so that the decoder maps z to x.
    (w, b), *inner, (last_w, last_b) = trained["reconstruction"]
    w = w / z_spread.swapaxes(1, 2)
    ends = (w, b - z_mean @ w), (last_w * spread, last_b * spread + mean)
    trained["reconstruction"] = [ends[0], *inner, ends[1]]
    return trained, history


def _standardised(values: Floats, inverse: IntArray) -> tuple[Floats, FloatArray, FloatArray]:
    """Standardise the last axis over rows; also return mean and spread.

    With the authors' scale, latents vary by only a few thousandths, and a decoder learns nothing
    from them as they are.
    """
    rows = values[:, inverse].astype(np.float64)
    mean, spread = rows.mean(axis=1, keepdims=True), rows.std(axis=1, keepdims=True)
    spread[spread == 0] = 1
    return ((values - mean) / spread).astype(np.float32), mean, spread


class Part:
    """Perceptrons that share one array of weights, so that one step updates all of them.

    Weights are drawn as in torch's Linear: uniform on +-1/sqrt(n_in).
    """

    def __init__(
        self, sizes: Sizes, n_restarts: int, rng: np.random.Generator, dtype: Any = np.float32
    ) -> None:
        n_weights = sum((a + 1) * b for shapes in sizes.values() for a, b in shapes)
        self.values: Floats = 2 * rng.random((n_restarts, n_weights), dtype=dtype) - 1
        self.gradient = np.zeros_like(self.values)
        self.weights, self.gradients = _layers(self.values, sizes), _layers(self.gradient, sizes)
        for w, b in (layer for layers in self.weights.values() for layer in layers):
            w *= dtype(w.shape[1] ** -0.5)
            b *= dtype(w.shape[1] ** -0.5)

    def feed(self, name: str, x: Floats) -> tuple[Any, Back]:
        """Run a perceptron; also return a function for the gradient with respect to ``x``.

        That function also writes the gradient of every layer into ``gradient``.
        """
        layers, gradients, inputs = self.weights[name], self.gradients[name], [x]
        for layer in layers[:-1]:
            inputs.append(leaky_relu(feed(inputs[-1], [layer])))

        def back(d: Any) -> Any:
            for (w, _), (dw, db), at in zip(
                layers[::-1], gradients[::-1], inputs[::-1], strict=True
            ):
                np.matmul(at.swapaxes(-1, -2), d, out=dw)
                np.matmul(np.ones((1, at.shape[-2]), dtype=at.dtype), d, out=db)
                d = d @ w.swapaxes(-1, -2)
                if at is not x:
                    d = _leaky_back(d, at)
            return d

        return feed(inputs[-1], layers[-1:]), back


def _layers(values: Floats, sizes: Sizes) -> Weights:
    """Return layers as consecutive views of the columns of ``values``."""
    ends = np.cumsum([n for shapes in sizes.values() for a, b in shapes for n in (a * b, b)])
    parts = iter(np.split(values, ends[:-1], axis=1))

    def layers(shapes: list[tuple[int, int]]) -> Layers:
        return [(next(parts).reshape(-1, *s), next(parts).reshape(-1, 1, s[1])) for s in shapes]

    return {name: layers(shapes) for name, shapes in sizes.items()}


def _leaky_back(d: Any, y: Any) -> Any:
    """Return the gradient with respect to x of ``y = leaky_relu(x)``, which has the sign of x."""
    slope = (y > 0).astype(y.dtype)  # indexing by a mask would take ten times as long
    slope *= 1 - SLOPE
    slope += SLOPE
    return slope * d


def group_loss(
    group: Part, x: Floats, covered: Floats, learner: Any, rng: np.random.Generator
) -> Floats:
    """Return ``L_CC + beta L_KL`` of each restart, and write its gradient into ``group``."""
    hidden, to_inputs = group.feed("encoder", x)
    hidden = leaky_relu(hidden)
    mean, from_mean = group.feed("mean", hidden)
    log_variance, from_log_variance = group.feed("log_variance", hidden)
    variance = np.exp(log_variance)
    epsilon = rng.standard_normal(mean.shape, dtype=np.float32)
    # The authors' public code scales the noise by the log-variance itself. With its summed KL,
    # latents then have almost no noise, and the published figures depend on that.
    published = learner.published_scale
    sigma = log_variance if published else np.sqrt(variance)
    logits, to_latent = group.feed("membership", mean + sigma * epsilon)
    q = expit(logits[..., 0])
    projected, to_q = project_with_gradient(q, float(learner.delta))
    l_cc = _coverage(projected, covered)
    kl = 0.5 * (mean**2 + variance - log_variance - 1).sum(-1)

    d_q = to_q((covered - l_cc[:, None]) / projected.sum(-1, keepdims=True))
    d_z = to_latent((d_q * q * (1 - q))[..., None])
    d_kl = float(learner.beta) / (1 if published else x.shape[1])
    d_sigma = d_z * epsilon if published else 0.5 * d_z * epsilon * sigma
    d_hidden = from_mean(d_z + d_kl * mean) + from_log_variance(
        d_sigma + 0.5 * d_kl * (variance - 1)
    )
    to_inputs(_leaky_back(d_hidden, hidden))
    return np.asarray(l_cc + d_kl * kl.sum(-1))


def _coverage(q: Floats, covered: Floats) -> Any:
    return (q * covered).sum(-1) / q.sum(-1)  # Eq. minimize coverage


def reconstruction_loss(decoder: Part, z: Floats, x: Floats) -> Floats:
    """Return the mean squared error of each restart, and write its gradient into ``decoder``."""
    x_hat, to_latent = decoder.feed("reconstruction", z)
    error = x_hat - x
    to_latent(2 / np.prod(x.shape[1:]).item() * error)
    return np.asarray((error**2).mean(axis=(-1, -2)))


def _minimise(
    stage: str,
    loss: Callable[[IntArray], Floats],
    stop_loss: Callable[[IntArray], Floats],
    part: Part,
    n_steps: int,
    rows: IntArray,
    stop_rows: IntArray,
    learner: Any,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Run Adam; ``part`` then holds each restart's weights of lowest validation loss."""
    mean, squares = np.zeros_like(part.values), np.zeros_like(part.values)
    best, lowest = part.values.copy(), np.full(len(part.values), np.inf)
    history = []
    for step in range(1, n_steps + 1):
        losses = loss(_batch(rows, learner.batch_size, rng))
        mean += (1 - DECAY) * (part.gradient - mean)
        squares += (1 - DECAY_SQUARES) * (part.gradient**2 - squares)
        root = np.sqrt(squares / (1 - DECAY_SQUARES**step)) + TINY
        part.values[:] -= float(learner.learning_rate) / (1 - DECAY**step) * mean / root
        if step % CHECK_EVERY and step != n_steps:
            continue
        stop_losses = stop_loss(stop_rows)
        better = stop_losses < lowest
        lowest[better], best[better] = stop_losses[better], part.values[better]
        means = {"train_loss": float(losses.mean()), "validation_loss": float(stop_losses.mean())}
        history.append({"stage": stage, "step": step, **means})
    part.values[:] = best
    return history


def _batch(rows: IntArray, batch_size: int, rng: np.random.Generator) -> IntArray:
    """Draw a batch of row numbers per restart, with replacement; all of them if they fit."""
    if rows.shape[1] <= batch_size:
        return rows
    chosen = rng.integers(rows.shape[1], size=(len(rows), batch_size))
    return np.take_along_axis(rows, chosen, axis=1)
