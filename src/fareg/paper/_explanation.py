"""Which features make the group, and how: latent perturbation, permutation, traversal, picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fareg._encoding import encoded_columns
from fareg._levels import Levels, frequent
from fareg._validation import FloatArray, IntArray, InvalidInputError
from fareg._words import shortened
from fareg.groups import permutation_shares
from fareg.paper._learner import NetworkLearner

STEPS = (-2.0, -1.0, 0.0, 1.0, 2.0)
MAX_SHOWN = 20  # most levels of a feature in a picture


@dataclass(frozen=True)
class Explanation:
    """What the learned group is made of.

    Attributes
    ----------
    ranking : DataFrame of shape (n_features, 2)
        Share of each sensitive feature in what was learned, by latent perturbation (``latent``) and
        by shuffling its values (``permutation``). Each column sums to one, or is zero if nothing
        was found.
    traversal : DataFrame
        One row per step along the most influential latent dimension, in units of its spread: the
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
    return Explanation(ranking, _traversal(learner, people))


def influential_steps(
    learner: NetworkLearner, z: FloatArray, size: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return per restart the step along the latent dimension that moves membership most.

    A step is one standard deviation of that dimension over the rows, so that probes fit the
    latent's own scale, or of a given ``size``, as published. Steps have shape (n_restarts, 1,
    latent_dim); also returns how far membership moves, shape (n_restarts,).
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
    """Return each feature's share of the change in reconstruction along that dimension.

    A change counts as a share of the input's range (``unit="range"``), so that an indicator, a
    number and the code of a level can be compared, or of the reconstructed value itself
    (``"value"``), the paper's change ratio, which is large where codes are near zero. The change of
    a feature is the mean over its inputs: a sum would favour features of many levels.
    """
    z = learner.latent(people)
    steps, moves = influential_steps(learner, z, size)
    low, at, high = (learner.reconstruct(z + k * steps) for k in (-1, 0, 1))
    reach = np.ptp(learner.inputs(people), axis=0) if unit == "range" else np.abs(at)
    change = (np.abs(high - low) / np.where(reach > 0, reach, np.inf)).mean(axis=1)
    weighted = (change * moves[:, None]).sum(axis=0)
    by_feature = pd.Series(weighted).groupby(learner.input_features()).mean()
    return by_feature / (by_feature.sum() or 1.0)


def _traversal(learner: NetworkLearner, people: pd.DataFrame) -> pd.DataFrame:
    """Walk along the influential dimension of the restart whose membership it moves most."""
    z = learner.latent(people)
    steps, moves = influential_steps(learner, z)
    r = int(moves.argmax())
    inputs = [name for _, name in encoded_columns(learner.encoder_)]
    rows = []
    for size in STEPS:
        moved = z + size * steps
        x = learner.reconstruct(moved)[r].mean(axis=0)
        membership = float(learner.membership_of_latent(moved)[r].mean())
        rows.append({"step": size, "membership": membership, **dict(zip(inputs, x, strict=True))})
    return pd.DataFrame(rows)


def plot_membership(
    learner: NetworkLearner,
    people: pd.DataFrame,
    *,
    features: tuple[str, str] | None = None,
    steps: tuple[float, ...] = (0, 1, 2),
) -> Any:
    """Draw one heat map of mean membership over the levels of two features per latent step.

    Without ``features``, the two with the largest latent shares are shown. A step is one standard
    deviation along the influential latent dimension, in the direction that raises membership.
    """
    from matplotlib.figure import Figure

    names = [str(name) for name in people]
    if not learner.found_ or len(names) < 2 or not len(people):
        raise InvalidInputError(
            f"plot_groups needs a learned group, two features and rows, got {len(people)} rows of "
            f"{len(names)} features and {'a' if learner.found_ else 'no'} group; see predict_group"
        )
    if features is None:
        chosen = latent_importance(learner, people).nlargest(2).index.tolist()
    else:
        chosen = list(features)
    if len(chosen) != 2 or not set(chosen) <= set(names):
        raise InvalidInputError(
            f"features must be two of {', '.join(names)}; got {', '.join(map(str, chosen))}"
        )
    down, across = (_Axis.of(people[name]) for name in chosen)
    z = learner.latent(people)
    step, _ = influential_steps(learner, z)
    rise = learner.membership_of_latent(z + step) - learner.membership_of_latent(z - step)
    up = np.sign(rise.mean(axis=1))[:, None, None] * step
    upright = sum(map(len, across.texts)) > 24  # more characters do not fit next to each other
    # in inches: a cell holds its number, and the longest texts come on top
    width = len(steps) * max(2.8, 0.5 * len(across.texts)) + 0.08 * max(map(len, down.texts)) + 2
    tallest = max(map(len, across.texts)) if upright else 0
    height = max(2.6, 0.3 * len(down.texts)) + 0.08 * tallest + 0.8
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, len(steps), sharey=True, squeeze=False)[0]
    for ax, size in zip(axes, steps, strict=True):
        q = learner.membership_of_latent(z + size * up).mean(axis=0)
        grid = pd.Series(q).groupby([down.codes, across.codes]).mean().unstack()
        grid = grid.reindex(index=down.shown, columns=across.shown)
        image = ax.imshow(grid, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        _write_values(ax, grid)
        ax.set_title(f"{size:+g} sd:  |G|/N = {q.mean():.2f}", fontsize=10)
        ax.set_xticks(range(len(across.texts)), across.texts, rotation=90 if upright else 0)
        ax.set_xlabel(across.title)
    axes[0].set_yticks(range(len(down.texts)), down.texts)
    axes[0].set_ylabel(down.title)
    figure.colorbar(image, ax=axes, label="membership in the group")
    return figure


@dataclass(frozen=True)
class _Axis:
    """One feature of the picture: the level of each row, the levels shown, and their words."""

    codes: IntArray
    shown: IntArray
    texts: list[str]
    title: str

    @classmethod
    def of(cls, column: pd.Series) -> _Axis:
        levels = Levels.learn(column)
        codes = levels.codes(column)
        shown = frequent(codes, MAX_SHOWN)
        # the axis bears the name of the feature, so the words of its levels need not
        words = [levels.label(int(code)).removeprefix(levels.name).lstrip(" =") for code in shown]
        hidden = len(levels.values) - len(shown)
        title = shortened(levels.name, 32) + (f"\n({hidden} rare levels hidden)" if hidden else "")
        return cls(codes, shown, [shortened(text, 32) for text in words], title)


def _write_values(ax: Any, grid: pd.DataFrame) -> None:
    for (i, j), value in np.ndenumerate(grid.to_numpy()):
        if np.isfinite(value):
            colour = "white" if value < 0.55 else "black"
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=9)
