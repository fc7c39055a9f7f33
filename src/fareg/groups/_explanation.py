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
from fareg.groups._learner import GroupLearner
from fareg.groups._rules import Rule

STEPS = (-2.0, -1.0, 0.0, 1.0, 2.0)
MAX_SHOWN = 20  # most levels of a feature in a picture


@dataclass(frozen=True)
class Explanation:
    """What a discovered group is made of.

    Attributes
    ----------
    rule : Rule
        The group in words, with its fidelity.
    features : tuple of str
        The features that the rule names.
    ranking : DataFrame of shape (n_features, 1 or 2)
        Share of each sensitive feature in what was learned, by permutation (``permutation``); also
        by latent perturbation (``latent``) if a network made the groups. Each column sums to one,
        or is zero if nothing was found.
    traversal : DataFrame
        One row per step along the most influential latent dimension, in units of its spread: the
        mean membership and the mean reconstruction of every input. Empty if no network made the
        groups.
    """

    rule: Rule
    features: tuple[str, ...]
    ranking: pd.DataFrame
    traversal: pd.DataFrame


def explain_groups(
    learner: GroupLearner, columns: pd.DataFrame, rule: Rule, random_state: int, *, by_network: bool
) -> Explanation:
    """Explain a fitted learner on canonical columns of shape (n, n_features).

    ``by_network`` tells whether its network made the groups: only then does its latent tell
    anything about them.
    """
    shares: dict[str, dict[str, float]] = {"permutation": {}}
    traversal = pd.DataFrame()
    if learner.found_:
        shares["permutation"] = permutation_importance(learner, columns, random_state)
    if by_network:
        shares["latent"] = latent_importance(learner, columns) if learner.found_ else {}
        traversal = latent_traversal(learner, columns) if learner.found_ else traversal
    features = pd.Index(columns.columns, name="feature")
    ranking = pd.DataFrame(shares, index=features, dtype=float).fillna(0.0)
    ranking = ranking.sort_values(list(shares), ascending=False)
    return Explanation(rule, rule.features, ranking, traversal)


def influential_dimension(learner: GroupLearner, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return per restart the unit step along the latent dimension that moves membership most.

    A step is one standard deviation of that dimension over the rows, so that probes fit the
    latent's own scale; also returns how far membership moves, shape (n_restarts,).
    """
    spread = z.std(axis=1)
    base = learner.membership_of_latent(z)
    moves = np.zeros(spread.shape)
    for dim in range(z.shape[2]):
        step = np.zeros_like(z[:, :1])
        step[:, 0, dim] = spread[:, dim]
        moves[:, dim] = np.abs(learner.membership_of_latent(z + step) - base).mean(axis=1)
    chosen = moves.argmax(axis=1)
    restarts = np.arange(len(z))
    steps = np.zeros_like(z[:, :1])
    steps[restarts, 0, chosen] = spread[restarts, chosen]
    return steps, moves[restarts, chosen]


def latent_importance(learner: GroupLearner, columns: pd.DataFrame) -> dict[str, float]:
    """Return each feature's share of the change in reconstruction along that dimension.

    A change counts as a share of the input's range, so that an indicator, a number and the code of
    a level can be compared, and the change of a feature is the mean over its inputs: a sum would
    favour features of many levels.
    """
    z = learner.latent(columns)
    steps, moves = influential_dimension(learner, z)
    change = np.abs(learner.reconstruct(z + steps) - learner.reconstruct(z - steps)).mean(axis=1)
    reach = np.ptp(learner.inputs(columns), axis=0)
    weighted = (change * moves[:, None]).sum(axis=0) / np.where(reach > 0, reach, np.inf)
    by_feature = pd.Series(weighted).groupby(learner.input_features()).mean()
    return _as_shares({name: float(by_feature.get(name, 0.0)) for name in learner.features_})


def permutation_importance(
    learner: GroupLearner, columns: pd.DataFrame, random_state: int
) -> dict[str, float]:
    """Return each feature's share of the change in disadvantage when its values are shuffled."""
    rng = np.random.default_rng(random_state)
    base = learner.disadvantage(columns)
    total = {}
    for name in columns if learner.members else learner.features_:
        shuffled = columns.copy()
        shuffled[name] = shuffled[name].to_numpy()[rng.permutation(len(columns))]
        total[str(name)] = float(np.abs(learner.disadvantage(shuffled) - base).mean())
    return _as_shares(total)


def latent_traversal(learner: GroupLearner, columns: pd.DataFrame) -> pd.DataFrame:
    """Walk along the influential dimension of the restart that it moves most."""
    z = learner.latent(columns)
    steps, moves = influential_dimension(learner, z)
    r = int(moves.argmax())
    inputs = [name for _, name in encoded_columns(learner.encoder_)]
    rows = []
    for size in STEPS:
        moved = z + size * steps
        x = learner.reconstruct(moved)[r].mean(axis=0)
        membership = float(learner.membership_of_latent(moved)[r].mean())
        rows.append({"step": size, "membership": membership, **dict(zip(inputs, x, strict=True))})
    return pd.DataFrame(rows)


def _as_shares(amounts: dict[str, float]) -> dict[str, float]:
    total = sum(amounts.values()) or 1.0
    return {name: amount / total for name, amount in amounts.items()}


def plot_membership(
    learner: GroupLearner, columns: pd.DataFrame, features: tuple[str, ...] | None, steps: Any
) -> Any:
    """Draw one heat map of mean membership over the levels of two features per latent step."""
    from matplotlib.figure import Figure

    learner.check_membership("plot_groups")
    names = [str(name) for name in columns]
    if features is None or not learner.found_ or len(names) < 2:
        raise InvalidInputError("plot_groups needs a discovered group and two features; got none")
    if len(features) != 2 or not set(features) <= set(names):
        raise InvalidInputError(
            f"features must be two of {', '.join(names)}; got {', '.join(map(str, features))}"
        )
    down, across = (Levels.learn(columns[name]) for name in features)
    rows = [levels.codes(columns[levels.name]) for levels in (down, across)]
    kept = [frequent(codes, MAX_SHOWN) for codes in rows]
    z = learner.latent(columns)
    step, _ = influential_dimension(learner, z)
    up = np.sign(
        learner.membership_of_latent(z + step).mean(axis=1)
        - learner.membership_of_latent(z - step).mean(axis=1)
    )
    texts = [_level_texts(*pair) for pair in zip((down, across), kept, strict=True)]
    upright = sum(map(len, texts[1])) > 24  # more characters do not fit beside each other
    # in inches: a cell holds its number, and the longest texts come on top
    width = len(steps) * max(2.8, 0.5 * len(texts[1])) + 0.08 * max(map(len, texts[0])) + 2
    height = (
        max(2.6, 0.3 * len(texts[0])) + 0.08 * (max(map(len, texts[1])) if upright else 0) + 0.8
    )
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, len(steps), sharey=True, squeeze=False)[0]
    for ax, size in zip(axes, steps, strict=True):
        q = learner.membership_of_latent(z + size * up[:, None, None] * step).mean(axis=0)
        grid = pd.DataFrame({"down": rows[0], "across": rows[1], "q": q})
        grid = grid.pivot_table(index="down", columns="across", values="q", aggfunc="mean")
        grid = grid.reindex(index=kept[0], columns=kept[1])
        image = ax.imshow(grid, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        _write_values(ax, grid)
        ax.set_title(f"{size:+g} sd:  |G|/N = {q.mean():.2f}", fontsize=10)
        ax.set_xticks(range(len(texts[1])), texts[1], rotation=90 if upright else 0)
        ax.set_xlabel(_feature_text(across, kept[1]))
    axes[0].set_yticks(range(len(texts[0])), texts[0])
    axes[0].set_ylabel(_feature_text(down, kept[0]))
    figure.colorbar(image, ax=axes, label="membership in the group")
    return figure


def _level_texts(levels: Levels, codes: IntArray) -> list[str]:
    """Return the words of some levels without the name of the feature, which its axis has."""
    words = [levels.label(int(code)).removeprefix(levels.name) for code in codes]
    return [shortened(text.lstrip(" ="), 32) for text in words]


def _feature_text(levels: Levels, codes: IntArray) -> str:
    hidden = len(levels.values) - len(codes)
    return shortened(levels.name, 32) + (f"\n({hidden} rare levels hidden)" if hidden else "")


def _write_values(ax: Any, grid: pd.DataFrame) -> None:
    for i, values in enumerate(grid.to_numpy()):
        for j, value in enumerate(values):
            if np.isfinite(value):
                colour = "white" if value < 0.55 else "black"
                ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=9)
