"""The paper's visualisation: membership over two features while the latent is perturbed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._levels import Levels
from fareg._validation import InvalidInputError
from fareg.groups._explanation import influential_dimension
from fareg.groups._learner import GroupLearner


def plot_membership(
    learner: GroupLearner, columns: pd.DataFrame, features: tuple[str, ...] | None, steps: Any
) -> Any:
    """Draw one heat map of mean membership over the levels of two features per latent step."""
    from matplotlib.figure import Figure

    names = [str(name) for name in columns]
    if features is None or not learner.found_ or len(names) < 2:
        raise InvalidInputError("plot_groups needs a discovered group and two features; got none")
    if len(features) != 2 or not set(features) <= set(names):
        raise InvalidInputError(
            f"features must be two of {', '.join(names)}; got {', '.join(map(str, features))}"
        )
    down, across = (Levels.learn(columns[name]) for name in features)
    rows = [levels.codes(columns[levels.name]) for levels in (down, across)]
    z = learner.latent(columns)
    step, _ = influential_dimension(learner, z)
    up = np.sign(
        learner.membership_of_latent(z + step).mean(axis=1)
        - learner.membership_of_latent(z - step).mean(axis=1)
    )
    figure = Figure(figsize=(3.4 * len(steps) + 1, 3.4), layout="constrained")
    axes = figure.subplots(1, len(steps), sharey=True, squeeze=False)[0]
    for ax, size in zip(axes, steps, strict=True):
        q = learner.membership_of_latent(z + size * up[:, None, None] * step).mean(axis=0)
        grid = pd.DataFrame({"down": rows[0], "across": rows[1], "q": q})
        grid = grid.pivot_table(index="down", columns="across", values="q", aggfunc="mean")
        image = ax.imshow(grid, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        _write_values(ax, grid)
        ax.set_title(f"{size:+g} sd:  |G|/N = {q.mean():.2f}", fontsize=10)
        ax.set_xticks(range(grid.shape[1]), [across.label(int(c)) for c in grid.columns])
        ax.set_yticks(range(grid.shape[0]), [down.label(int(c)) for c in grid.index])
        ax.tick_params(axis="x", labelrotation=30 if grid.shape[1] > 2 else 0)
    figure.colorbar(image, ax=axes, label="membership in the group")
    return figure


def _write_values(ax: Any, grid: pd.DataFrame) -> None:
    for i, values in enumerate(grid.to_numpy()):
        for j, value in enumerate(values):
            if np.isfinite(value):
                colour = "white" if value < 0.55 else "black"
                ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=9)
