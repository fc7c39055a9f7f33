"""Explains which features make the group: latent perturbation, permutation, traversal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fareg._encoding import encoded_columns
from fareg._validation import FloatArray
from fareg.groups import permutation_shares
from fareg.paper._learner import NetworkLearner

STEPS = (-2.0, -1.0, 0.0, 1.0, 2.0)


@dataclass(frozen=True)
class Explanation:
    """Which features make the learned group.

    Attributes
    ----------
    ranking : DataFrame of shape (n_features, 2)
        How much each sensitive feature contributes, by latent perturbation (``latent``) and by
        shuffling its values (``permutation``). Each column sums to one, or is zero if nothing was
        found.
    traversal : DataFrame
        One row per step along the most influential latent dimension, in standard deviations: the
        mean membership and the mean reconstruction of every input. Empty if nothing was found.
    """

    ranking: pd.DataFrame
    traversal: pd.DataFrame


def explain_network(learner: NetworkLearner, people: pd.DataFrame, seed: int = 0) -> Explanation:
    """Explain a fitted learner on canonical columns of shape (n, n_features)."""
    features, kinds = pd.Index(learner.features_, name="feature"), ["latent", "permutation"]
    if not learner.found_ or not len(people):
        return Explanation(pd.DataFrame(0.0, features, kinds), pd.DataFrame())
    permuted = permutation_shares(learner.predict, people, seed)
    shares = dict(zip(kinds, (latent_importance(learner, people), permuted), strict=True))
    ranking = pd.DataFrame(shares, index=features).sort_values(kinds, ascending=False)
    z = learner.latent(people)
    steps, moves = influential_steps(learner, z)
    r = int(moves.argmax())  # the restart whose membership moves most
    inputs = [name for _, name in encoded_columns(learner.encoder_)]
    rows = []
    for size in STEPS:
        moved = z + size * steps
        x = learner.reconstruct(moved)[r].mean(axis=0)
        membership = float(learner.membership_of_latent(moved)[r].mean())
        rows.append({"step": size, "membership": membership, **dict(zip(inputs, x, strict=True))})
    return Explanation(ranking, pd.DataFrame(rows))


def influential_steps(
    learner: NetworkLearner, z: FloatArray, size: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return per restart the step along the latent dimension that moves membership most.

    A step has one standard deviation of its dimension over the rows, or a given ``size``, as
    published. Steps have shape (n_restarts, 1, latent_dim). Also return how far membership moves,
    shape (n_restarts,).
    """
    base = learner.membership_of_latent(z)
    spread = z.std(axis=1) if size is None else np.full(z.shape[::2], size)
    steps = spread[:, None] * np.eye(z.shape[2])  # (n_restarts, dimension, latent_dim)
    moved = [learner.membership_of_latent(z + step[:, None]) for step in steps.swapaxes(0, 1)]
    moves = np.abs(np.array(moved) - base).mean(axis=2)  # (dimension, n_restarts)
    chosen, restarts = moves.argmax(axis=0), np.arange(len(z))
    return steps[restarts, chosen][:, None], moves[chosen, restarts]


def latent_importance(
    learner: NetworkLearner, people: pd.DataFrame, *, size: float | None = None, unit: str = "range"
) -> pd.Series:
    """Return each feature's share of the change in reconstruction along the influential steps.

    With ``unit="range"``, a change is divided by the range of the input, so that indicators,
    numbers and codes of categories can be compared. With ``"value"``, it is divided by the
    reconstructed value: the paper's change ratio, which is large where codes are near zero. The
    change of a feature is the mean over its inputs: a sum would favour many categories.
    """
    z = learner.latent(people)
    steps, moves = influential_steps(learner, z, size)
    low, middle, high = (learner.reconstruct(z + k * steps) for k in (-1, 0, 1))
    scale = np.ptp(learner.inputs(people), axis=0) if unit == "range" else np.abs(middle)
    change = (np.abs(high - low) / np.where(scale > 0, scale, np.inf)).mean(axis=1)
    weighted = (change * moves[:, None]).sum(axis=0)
    by_feature = pd.Series(weighted).groupby(learner.input_features()).mean()
    return by_feature / (by_feature.sum() or 1.0)
