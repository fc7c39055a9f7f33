"""The picture of levels: a threshold for each degree of disadvantage, and what it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fareg._validation import BoolArray, FloatArray, IntArray
from fareg._words import confidence
from fareg.calibration import LevelThresholds
from fareg.metrics import coverage_by_level

BEFORE, AFTER = ("#d55e00", "s", "split conformal"), ("#0072b2", "o", "FaReG")
MAX_NAMED_LABELS = 6


def plot_thresholds_and_coverage(
    calibration: LevelThresholds, levels: IntArray, covered: Mapping[str, BoolArray], classes: Any
) -> Any:
    """Draw thresholds by level on the left, coverage by level before and after on the right.

    ``levels`` are those of the test rows. ``covered`` tells which of them the split conformal sets
    (``before``) and the FaReG sets (``after``) cover. ``classes`` names the thresholds if every
    label has its own.
    """
    from matplotlib.figure import Figure

    thresholds, pools = calibration.theta, calibration.pooled_levels()
    together = calibration.sample.labels is None
    labels = ("every label",) if together else classes
    split = calibration.sample.split_thresholds(calibration.alpha)
    n_levels, confidence_level = max(map(len, thresholds)), 1 - calibration.alpha
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    _draw_thresholds(left, thresholds, split, labels)
    for moment, (colour, marker, name), shift in (
        ("before", BEFORE, -0.12),
        ("after", AFTER, 0.12),
    ):
        table = coverage_by_level(levels, covered[moment], n_levels=n_levels)
        table = table[table["n"] > 0]
        gaps = [table["coverage"] - table["low"], table["high"] - table["coverage"]]
        place, look = table["level"] + shift, {"color": colour, "marker": marker, "label": name}
        right.errorbar(place, table["coverage"], gaps, ms=5, lw=1.2, elinewidth=1, **look)
    promised = f"promised {confidence(confidence_level)}"
    right.axhline(confidence_level, color="black", lw=1, ls="--", label=promised)
    right.set_ylabel("coverage, 95% intervals")
    right.legend(loc="best", frameon=False, fontsize=9)
    for ax in (left, right):
        for first, last in pools[1::2] if together else ():
            ax.axvspan(first - 0.5, last + 0.5, color="#eeeeee", lw=0, zorder=0)
        ax.set_xlim(-0.5, n_levels - 0.5)
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        ax.set_xlabel("level of disadvantage")
        ax.spines[["top", "right"]].set_visible(False)
    note = "Every label has levels of its own"
    if together:
        shared = "Levels under one shade share a threshold"
        note = shared if len(pools) > 1 else "One threshold for all"
    figure.suptitle(note, fontsize=10)
    return figure


def _draw_thresholds(
    ax: Any, thresholds: Sequence[FloatArray], split: FloatArray, labels: Any
) -> None:
    """Draw one step line per label; an infinite threshold stands at the top as a triangle."""
    known = np.concatenate([*thresholds, split])
    known = known[np.isfinite(known)]
    top = 1.05 * known.max() if len(known) else 1.0
    one, full = len(thresholds) == 1, set[int]()
    for column, own in enumerate(thresholds):
        edges = np.arange(len(own) + 1) - 0.5
        full.update(np.flatnonzero(np.isinf(own)).tolist())
        colour = f"C{column % 10}"
        before, after = (colour, ""), (colour, str(labels[column]))
        if one:
            before, after = ((look[0], look[2]) for look in (BEFORE, AFTER))
        elif column >= MAX_NAMED_LABELS:
            after = (colour, "")  # an empty name is left out of the legend
        steps = np.where(np.isinf(own), top, own)
        ax.stairs(steps, edges, baseline=None, color=after[0], lw=2, label=after[1])
        ax.axhline(min(split[column], top), color=before[0], lw=2, ls=":", label=before[1])
    if full:
        heights = np.full(len(full), top)
        ax.plot(sorted(full), heights, "^", color="black", label="too few rows: full set")
    ax.set_ylabel("threshold of the score" if len(labels) == 1 else "thresholds (dotted: split)")
    ax.legend(loc="best", frameon=False, fontsize=9)
