"""Training the group network: the group first, the reconstruction second.

All restarts or folds train together as one batched network. Gradients are carried back by hand:
the network is small, and a library that derives them takes longer to load than this to train.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fareg._threads import one_thread
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.groups._network import (
    Weights,
    feed_and_back,
    latent_mean,
    layer_sizes,
    leaky_back,
    leaky_relu,
    membership_logits,
)
from fareg.groups._projection import project_and_back

CHECK_EVERY = 10  # steps between two looks at the validation loss
MAX_STOP_ROWS = 4096  # rows that the validation loss is computed on, drawn at random
LARGE_BLOCK = 2**24  # bytes
# Adam's decay of the mean of gradients and of their squares, and what keeps it from dividing by 0
DECAY, DECAY_SQUARES, TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that training needs to know besides the data."""

    delta: float
    beta: float
    max_iter: int
    batch_size: int
    learning_rate: float
    hidden_sizes: tuple[int, ...]
    published_scale: bool
    seed: int


Progress = Callable[[str, int, int, float], None]
Floats = npt.NDArray[Any]  # of single precision while training


@one_thread()  # these matrices are too small to share, and sums stay in order
def train_groups(
    x: FloatArray,
    which: IntArray,
    covered: FloatArray,
    trains: BoolArray,
    plan: TrainingPlan,
    progress: Progress | None = None,
    *,
    stops: BoolArray | None = None,
    reads: BoolArray | None = None,
) -> tuple[Weights, list[dict[str, Any]]]:
    """Train one network per row of ``trains``; return its weights and the history.

    ``x`` of shape (n_distinct, n_inputs) holds the encoded sensitive features, each distinct row
    once, and ``which`` the distinct row of each row. The network looks for rows where ``covered``,
    in [0, 1], is low. ``trains`` and ``stops``, of shape (n_restarts, n), mark the rows that train
    each restart and those that tell it when to stop; without ``stops``, these are the rows that do
    not train it. ``reads`` of shape (n_restarts, n_inputs) marks the inputs that each restart
    reads; weights of the others are zero.
    """
    # Until a larger block was freed once, Linux takes back the memory of every step, and it costs
    # more time to get it again than to compute in it.
    np.empty(LARGE_BLOCK, dtype=np.uint8)
    rng = np.random.default_rng(plan.seed)
    X, C = np.asarray(x, dtype=np.float32), np.asarray(covered, dtype=np.float32)
    sizes = layer_sizes(x.shape[1], plan.hidden_sizes)
    reconstruction = {"reconstruction": sizes.pop("reconstruction")}
    group = _Part.draw(sizes, len(trains), rng)
    decoder = _Part.draw(reconstruction, len(trains), rng)
    weights = group.weights
    stops = ~trains if stops is None else stops
    if reads is not None:  # an input that is always zero has no gradient: its weight stays zero
        # the weights of few inputs are drawn larger than those of all
        wider = np.sqrt(reads.shape[1] / max(1.0, reads.sum(axis=1).mean()))
        weights["encoder"][0][0][:] *= reads[:, :, None] * np.float32(wider)

    def inputs(rows: IntArray) -> Floats:
        own = X[which[rows]]  # (n_restarts, n_rows, n_inputs)
        return own if reads is None else own * reads[:, None]

    def group_loss(rows: IntArray) -> Floats:
        return _group_loss(group, inputs(rows), C[rows], plan, rng)

    def group_stop_loss(rows: IntArray) -> Any:
        q = expit(membership_logits(latent_mean(inputs(rows), weights), weights))
        return _coverage(project_and_back(q, plan.delta)[0], C[rows])

    minimise = partial(
        _minimise,
        train_rows=_rows_per_restart(trains),
        stop_rows=_batch(_rows_per_restart(stops), MAX_STOP_ROWS, rng),
        plan=plan,
        rng=rng,
        progress=progress,
    )
    history = minimise("group", group_loss, group_stop_loss, group, n_steps=plan.max_iter)
    latent = latent_mean(X, weights)
    restart = np.arange(len(trains))[:, None]

    def reconstruction_loss(rows: IntArray) -> Floats:
        return _reconstruction_loss(decoder, latent[restart, which[rows]], inputs(rows))

    losses = reconstruction_loss, reconstruction_loss
    history += minimise("reconstruction", *losses, decoder, n_steps=plan.max_iter // 2)
    trained = weights | decoder.weights
    return {
        name: [(w.astype(np.float64), b.astype(np.float64)) for w, b in layers]
        for name, layers in trained.items()
    }, history


@dataclass(frozen=True)
class _Part:
    """Layers whose weights lie side by side in one array, so that they take steps together."""

    values: Floats  # (n_restarts, n_weights)
    gradient: Floats  # the same shape
    weights: Weights  # views of ``values``
    gradients: Weights  # views of ``gradient``

    @classmethod
    def draw(
        cls, sizes: dict[str, list[tuple[int, int]]], n_restarts: int, rng: np.random.Generator
    ) -> _Part:
        """Draw weights as torch's Linear does: uniform on +-1/sqrt(n_in)."""
        n_weights = sum((a + 1) * b for shapes in sizes.values() for a, b in shapes)
        part = cls.of(2 * rng.random((n_restarts, n_weights), dtype=np.float32) - 1, sizes)
        for w, b in (layer for layers in part.weights.values() for layer in layers):
            w *= np.float32(w.shape[1] ** -0.5)
            b *= np.float32(w.shape[1] ** -0.5)
        return part

    @classmethod
    def of(cls, values: Floats, sizes: dict[str, list[tuple[int, int]]]) -> _Part:
        """Divide the columns of ``values`` into layers, one after the other."""
        gradient = np.zeros_like(values)
        return cls(values, gradient, _as_layers(values, sizes), _as_layers(gradient, sizes))

    def feed(self, name: str, x: Floats) -> Any:
        """Run one of the perceptrons; return its output, and how a gradient gets back."""
        return feed_and_back(x, self.weights[name], self.gradients[name])


def _as_layers(values: Floats, sizes: dict[str, list[tuple[int, int]]]) -> Weights:
    """View the columns of ``values`` as layers, one after the other."""
    start, weights = 0, {name: list[tuple[Any, Any]]() for name in sizes}
    for name, (a, b) in ((name, shape) for name, shapes in sizes.items() for shape in shapes):
        stop = start + a * b
        layer = (
            values[:, start:stop].reshape(-1, a, b),
            values[:, stop : stop + b].reshape(-1, 1, b),
        )
        weights[name].append(layer)
        start = stop + b
    return weights


def _group_loss(
    group: _Part, x: Floats, covered: Floats, plan: TrainingPlan, rng: np.random.Generator
) -> Floats:
    """Return ``L_CC + beta L_KL`` of each restart; its gradient is left in ``group``."""
    hidden, to_inputs = group.feed("encoder", x)
    hidden = leaky_relu(hidden)
    mean, from_mean = group.feed("mean", hidden)
    log_variance, from_log_variance = group.feed("log_variance", hidden)
    variance = np.exp(log_variance)
    epsilon = rng.standard_normal(mean.shape, dtype=np.float32)
    # The authors' public code scales the noise by the log-variance itself; with its summed KL that
    # makes latents nearly noiseless, and the published figures rest on it.
    sigma = log_variance if plan.published_scale else np.sqrt(variance)
    logits, to_latent = group.feed("membership", mean + sigma * epsilon)
    q = expit(logits[..., 0])
    projected, to_q = project_and_back(q, plan.delta)
    l_cc = _coverage(projected, covered)
    kl = 0.5 * (mean**2 + variance - log_variance - 1).sum(-1)

    d_q = to_q((covered - l_cc[:, None]) / projected.sum(-1, keepdims=True))
    d_z = to_latent((d_q * q * (1 - q))[..., None])
    d_kl = plan.beta if plan.published_scale else plan.beta / x.shape[1]
    d_sigma = d_z * epsilon if plan.published_scale else 0.5 * d_z * epsilon * sigma
    d_hidden = from_mean(d_z + d_kl * mean) + from_log_variance(
        d_sigma + 0.5 * d_kl * (variance - 1)
    )
    to_inputs(leaky_back(d_hidden, hidden))
    return np.asarray(l_cc + d_kl * kl.sum(-1))


def _coverage(q: Floats, covered: Floats) -> Any:
    return (q * covered).sum(-1) / q.sum(-1)  # Eq. minimize coverage


def _reconstruction_loss(decoder: _Part, z: Floats, x: Floats) -> Floats:
    """Return the mean squared error of each restart; its gradient is left in ``decoder``."""
    x_hat, to_latent = decoder.feed("reconstruction", z)
    error = x_hat - x
    to_latent(2 / np.prod(x.shape[1:]).item() * error)
    return np.asarray((error**2).mean(axis=(-1, -2)))


def _minimise(
    stage: str,
    loss: Callable[[IntArray], Floats],
    stop_loss: Callable[[IntArray], Floats],
    part: _Part,
    *,
    n_steps: int,
    train_rows: IntArray,
    stop_rows: IntArray,
    plan: TrainingPlan,
    rng: np.random.Generator,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Run Adam and leave in ``part`` each restart's weights of lowest validation loss."""
    mean, squares = np.zeros_like(part.values), np.zeros_like(part.values)
    best, lowest = part.values.copy(), np.full(len(part.values), np.inf)
    history = []
    for step in range(1, n_steps + 1):
        losses = loss(_batch(train_rows, plan.batch_size, rng))
        mean += (1 - DECAY) * (part.gradient - mean)
        squares += (1 - DECAY_SQUARES) * (part.gradient**2 - squares)
        root = np.sqrt(squares / (1 - DECAY_SQUARES**step)) + TINY
        part.values[:] -= plan.learning_rate / (1 - DECAY**step) * mean / root
        if step % CHECK_EVERY and step != n_steps:
            continue
        stop_losses = stop_loss(stop_rows)
        better = stop_losses < lowest
        lowest[better], best[better] = stop_losses[better], part.values[better]
        told = {"train_loss": float(losses.mean()), "validation_loss": float(stop_losses.mean())}
        history.append({"stage": stage, "step": step, **told})
        if progress is not None:
            progress(stage, step, n_steps, told["train_loss"])
    part.values[:] = best
    return history


def _batch(rows: IntArray, batch_size: int, rng: np.random.Generator) -> IntArray:
    """Draw a batch of row numbers per restart, with replacement; all of them if they fit."""
    if rows.shape[1] <= batch_size:
        return rows
    chosen = rng.integers(rows.shape[1], size=(len(rows), batch_size))
    return np.take_along_axis(rows, chosen, axis=1)


def _rows_per_restart(mask: BoolArray) -> IntArray:
    """Return row numbers of shape (n_restarts, smallest count)."""
    rows = [np.flatnonzero(row) for row in mask]
    count = min(map(len, rows))
    return np.stack([r[:count] for r in rows])
