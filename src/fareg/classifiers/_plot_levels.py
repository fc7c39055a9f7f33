"""The picture of levels: a threshold for each degree of disadvantage, and what it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fareg._validation import BoolArray, FloatArray, IntArray
from fareg._words import confidence
from fareg.calibration import RisingThresholds
from fareg.metrics import coverage_by_level

BEFORE, AFTER = ("#d55e00", "s", "split conformal"), ("#0072b2", "o", "FaReG")
MAX_NAMED_LABELS = 6


def plot_thresholds_and_coverage(
    calibration: RisingThresholds, levels: IntArray, covered: Mapping[str, BoolArray], classes: Any
) -> Any:
    """Draw thresholds by level on the left, coverage by level before and after on the right.

    ``levels`` are those of the test rows. ``covered`` tells which of them the split conformal sets
    (``before``) and the FaReG sets (``after``) cover. ``classes`` names the thresholds if every
    label has its own.
    """
    from matplotlib.figure import Figure

    thresholds, pools = calibration.level_thresholds, calibration.pooled_levels()
    labels = ("every label",) if calibration.labels is None else classes
    confidence_level = 1 - calibration.alpha
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    _draw_thresholds(left, thresholds, calibration.split_thresholds, labels)
    for moment, look, shift in (("before", BEFORE, -0.12), ("after", AFTER, 0.12)):
        table = coverage_by_level(levels, covered[moment], n_levels=len(thresholds))
        _draw_coverage(right, table, look, shift)
    right.axhline(confidence_level, color="black", lw=1, ls="--")
    right.text(
        1.01,
        confidence_level,
        confidence(confidence_level),
        transform=right.get_yaxis_transform(),
        va="center",
        fontsize=9,
    )
    right.set_ylabel("coverage, 95% intervals")
    right.legend(loc="best", frameon=False, fontsize=9)
    for ax in (left, right):
        for first, last in pools[1::2]:
            ax.axvspan(first - 0.5, last + 0.5, color="#eeeeee", lw=0, zorder=0)
        ax.set_xlim(-0.5, len(thresholds) - 0.5)
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        ax.set_xlabel("level of disadvantage")
        ax.spines[["top", "right"]].set_visible(False)
    threshold = "threshold" if calibration.labels is None else "threshold of each label"
    note = (
        f"Levels under one shade share a {threshold}"
        if len(pools) > 1
        else f"One {threshold} for all"
    )
    figure.suptitle(note, fontsize=10)
    return figure


def _draw_thresholds(ax: Any, thresholds: FloatArray, split: FloatArray, labels: Any) -> None:
    """Draw one step line per label; an infinite threshold stands at the top as a triangle."""
    known = np.concatenate([thresholds.ravel(), split])
    known = known[np.isfinite(known)]
    top = 1.05 * known.max() if len(known) else 1.0
    edges = np.arange(len(thresholds) + 1) - 0.5
    for column, own in enumerate(thresholds.T):
        one = thresholds.shape[1] == 1
        colour = AFTER[0] if one else f"C{column % 10}"
        name = "FaReG" if one else str(labels[column]) if column < MAX_NAMED_LABELS else None
        ax.stairs(
            np.where(np.isinf(own), top, own), edges, baseline=None, color=colour, lw=2, label=name
        )
        ax.axhline(
            min(split[column], top),
            color=BEFORE[0] if one else colour,
            lw=2,
            ls=":",
            label="split conformal" if one else None,
        )
    full = np.flatnonzero(np.isinf(thresholds).any(axis=1))
    if len(full):
        ax.plot(full, np.full(len(full), top), "^", color="black", label="too few rows: full set")
    ax.set_ylabel("threshold of the score" if len(labels) == 1 else "thresholds (dotted: split)")
    ax.legend(loc="best", frameon=False, fontsize=9)


def _draw_coverage(ax: Any, table: Any, look: tuple[str, str, str], shift: float) -> None:
    colour, marker, name = look
    table = table[table["n"] > 0]
    ax.errorbar(
        table["level"] + shift,
        table["coverage"],
        [table["coverage"] - table["low"], table["high"] - table["coverage"]],
        color=colour,
        marker=marker,
        ms=5,
        lw=1.2,
        elinewidth=1,
        label=name,
    )
