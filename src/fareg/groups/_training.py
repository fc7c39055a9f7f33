"""Training the group network with torch: the group first, the reconstruction second.

All restarts or folds train together as one batched network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import leaky_relu

from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError
from fareg.groups._network import (
    Arithmetic,
    Layers,
    Weights,
    encode,
    feed,
    latent_mean,
    layer_sizes,
    membership_logits,
)
from fareg.groups._projection import free_entries, shift_of_free

# baddbmm makes training, half of conformalize, 1.15 times as fast as x @ w + b
TORCH = Arithmetic(lambda x, w, b: torch.baddbmm(b, x, w), leaky_relu)
CHECK_EVERY = 10  # steps between two looks at the validation loss
MAX_STOP_ROWS = 4096  # rows that the validation loss is computed on, drawn at random


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
    device: str
    seed: int


Progress = Callable[[str, int, int, float], None]


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch on one thread: these matrices are too small to share, and sums stay in order."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


@one_torch_thread()
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
) -> tuple[dict[str, list[tuple[Any, Any]]], list[dict[str, Any]]]:
    """Train one network per row of ``trains``; return numpy weights and the history.

    ``x`` of shape (n_distinct, n_inputs) holds the encoded sensitive features, each distinct row
    once, and ``which`` the distinct row of each row. The network looks for rows where ``covered``,
    in [0, 1], is low. ``trains`` and ``stops``, of shape (n_restarts, n), mark the rows that train
    each restart and those that tell it when to stop; without ``stops``, these are the rows that do
    not train it. ``reads`` of shape (n_restarts, n_inputs) marks the inputs that each restart
    reads; weights of the others are zero.
    """
    check_device(plan.device)
    generator = torch.Generator(device=plan.device).manual_seed(plan.seed)
    X = torch.as_tensor(x, dtype=torch.float32, device=plan.device)
    source = torch.as_tensor(which, device=plan.device)
    C = torch.as_tensor(covered, dtype=torch.float32, device=plan.device)
    weights = _initial_weights(len(trains), x.shape[1], plan, generator)
    stops = ~trains if stops is None else stops
    if reads is not None:  # an input that is always zero has no gradient: its weight stays zero
        shown = torch.as_tensor(reads, dtype=torch.float32, device=plan.device)[:, :, None]
        w, b = weights["encoder"][0]
        weights["encoder"][0] = (w * shown * _wider(reads), b)
        X = X * shown.transpose(1, 2)  # (n_restarts, n_distinct, n_inputs)
    else:
        X = X.expand(len(trains), -1, -1)
    restart = torch.arange(len(trains), device=plan.device)[:, None]
    history: list[dict[str, Any]] = []

    def coverage(z: Any, rows: Any) -> Any:
        q = project(torch.sigmoid(membership_logits(z, weights, TORCH)), plan.delta)
        return (q * C[rows]).sum(-1) / q.sum(-1)  # Eq. minimize coverage

    def group_loss(rows: Any) -> Any:
        mean, log_variance = encode(X[restart, source[rows]], weights, TORCH)
        l_cc = coverage(_draw(mean, log_variance, plan, generator), rows)
        kl = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum(-1)
        kl = kl.sum(-1) if plan.published_scale else kl.mean(-1)
        return l_cc + plan.beta * kl

    def group_stop_loss(rows: Any) -> Any:
        return coverage(latent_mean(X[restart, source[rows]], weights, TORCH), rows)

    minimise = partial(
        _minimise,
        train_rows=_rows_per_restart(trains, plan.device),
        stop_rows=_batch(_rows_per_restart(stops, plan.device), MAX_STOP_ROWS, generator),
        plan=plan,
        generator=generator,
        history=history,
        progress=progress,
    )
    parts = ("encoder", "mean", "log_variance", "membership")
    layers = [layer for part in parts for layer in weights[part]]
    minimise("group", group_loss, group_stop_loss, layers, n_steps=plan.max_iter)
    with torch.no_grad():
        latent = latent_mean(X, weights, TORCH)

    def reconstruction_loss(rows: Any) -> Any:
        chosen = source[rows]
        x_hat = feed(latent[restart, chosen], weights["reconstruction"], TORCH)
        return ((x_hat - X[restart, chosen]) ** 2).mean(dim=(-1, -2))

    layers, n_steps = weights["reconstruction"], plan.max_iter // 2
    minimise("reconstruction", reconstruction_loss, reconstruction_loss, layers, n_steps=n_steps)
    return {part: _as_numpy(layers) for part, layers in weights.items()}, history


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InvalidInputError(
            f"device {device!r} is not available to torch; use device='cpu'"
        ) from error


def project(q: Any, delta: float) -> Any:
    """Project onto ``mean(q) >= delta``, differentiable in ``q``."""
    free = free_entries(q.detach().cpu().numpy().astype(np.float64), delta)
    w = shift_of_free(q, torch.as_tensor(free, dtype=q.dtype, device=q.device), delta)
    return torch.clamp(q + w[..., None], max=1.0)


def _draw(mean: Any, log_variance: Any, plan: TrainingPlan, generator: Any) -> Any:
    """Draw ``z ~ p(z | x)`` by the reparameterisation ``z = mean + sigma * epsilon``.

    The authors' public code scales the noise by the log-variance itself; with its summed KL that
    makes latents nearly noiseless, and the published figures rest on it.
    """
    epsilon = torch.randn(mean.shape, generator=generator, device=mean.device)
    scale = log_variance if plan.published_scale else torch.exp(0.5 * log_variance)
    return mean + scale * epsilon


def _minimise(
    stage: str,
    loss: Any,
    stop_loss: Any,
    layers: Layers,
    *,
    n_steps: int,
    train_rows: Any,
    stop_rows: Any,
    plan: TrainingPlan,
    generator: Any,
    history: list[dict[str, Any]],
    progress: Progress | None,
) -> None:
    """Run Adam and leave in ``layers`` each restart's weights of lowest validation loss."""
    parameters = [p.requires_grad_() for layer in layers for p in layer]
    optimiser = torch.optim.Adam(parameters, lr=plan.learning_rate, fused=True)
    best = [p.detach().clone() for p in parameters]
    lowest = torch.full((len(train_rows),), np.inf, device=plan.device)
    for step in range(1, n_steps + 1):
        losses = loss(_batch(train_rows, plan.batch_size, generator))
        optimiser.zero_grad()
        losses.sum().backward()
        optimiser.step()
        if step % CHECK_EVERY and step != n_steps:
            continue
        with torch.no_grad():
            stop_losses = stop_loss(stop_rows)
            better = stop_losses < lowest
            lowest = torch.where(better, stop_losses, lowest)
            for kept, p in zip(best, parameters, strict=True):
                kept[better] = p[better]
        train_loss = float(losses.mean().detach())
        history.append(
            {
                "stage": stage,
                "step": step,
                "train_loss": train_loss,
                "validation_loss": float(stop_losses.mean()),
            }
        )
        if progress is not None:
            progress(stage, step, n_steps, train_loss)
    with torch.no_grad():
        for kept, p in zip(best, parameters, strict=True):
            p.copy_(kept).requires_grad_(False)


def _batch(rows: Any, batch_size: int, generator: Any) -> Any:
    """Draw a batch of row numbers per restart, with replacement; all of them if they fit."""
    if rows.shape[1] <= batch_size:
        return rows
    chosen = torch.randint(
        rows.shape[1], (len(rows), batch_size), generator=generator, device=rows.device
    )
    return torch.gather(rows, 1, chosen)


def _rows_per_restart(mask: BoolArray, device: str) -> Any:
    """Return row numbers of shape (n_restarts, smallest count)."""
    rows = [np.flatnonzero(row) for row in mask]
    count = min(map(len, rows))
    return torch.as_tensor(np.stack([r[:count] for r in rows]), device=device)


def _wider(reads: BoolArray) -> float:
    """Return how much larger the weights of few inputs are drawn than those of all."""
    return float(np.sqrt(reads.shape[1] / max(1.0, reads.sum(axis=1).mean())))


def _initial_weights(n_restarts: int, n_inputs: int, plan: TrainingPlan, generator: Any) -> Weights:
    return {
        part: _draw_layers(sizes, n_restarts, generator, plan.device)
        for part, sizes in layer_sizes(n_inputs, plan.hidden_sizes).items()
    }


def _draw_layers(
    sizes: list[tuple[int, int]], n_restarts: int, generator: Any, device: str = "cpu"
) -> Layers:
    """Draw weights as torch's Linear does: uniform on +-1/sqrt(n_in)."""

    def uniform(bound: float, *shape: int) -> Any:
        noise = torch.rand(n_restarts, *shape, generator=generator, device=device)
        return (2 * noise - 1) * bound

    return [(uniform(a**-0.5, a, b), uniform(a**-0.5, 1, b)) for a, b in sizes]


def _as_numpy(layers: Layers) -> list[tuple[Any, Any]]:
    """Return the layers as numpy arrays of float64."""
    return [tuple(p.detach().cpu().numpy().astype(np.float64) for p in la) for la in layers]
