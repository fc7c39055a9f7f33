"""The pictures of pages, drawn from the same facts as their tables."""

from __future__ import annotations

from typing import Any

import _studies
import numpy as np
from matplotlib.figure import Figure

PROMISED = 0.9
GREY, BLUE, ORANGE = "#8c8c8c", "#0072b2", "#d55e00"  # Okabe & Ito
# line and marker differ, too
CURVES: dict[str, tuple[str, str, str]] = {
    "Split": ("#7f7f7f", "o", "-"),
    "Partial": ("#56b4e9", "s", "-"),
    "Exhaustive": ("#56b4e9", "D", "--"),
    "AFCP": ("#cc79a7", "v", "-"),
    "CondCP": ("#e69f00", "P", "-"),
    "PLCP": ("#009e73", "X", "-"),
    "FaReG": (BLUE, "o", "-"),
    "FaReG.paper()": (ORANGE, "o", "-"),
    "p-values": ("#7f7f7f", "^", ":"),
    "WSC": ("black", "s", "-"),
    "WSC+": ("black", "D", "--"),
    "audit": (ORANGE, "*", ":"),
}
PANELS = {
    "N": "calibrate on N rows and predict 1,000\n(audit, WSC, WSC+: search N rows)",
    "M": "predict M rows, calibrated on 10,000",
}


def groups() -> Figure:
    """Draw coverage by group before and after, with the number of labels next to each bar."""
    found = _studies.first_picture()
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    ax: Any = figure.subplots()
    places = np.arange(len(found))[::-1]
    for shift, (method, color) in zip(
        (0.19, -0.19), (("split", GREY), ("FaReG", BLUE)), strict=True
    ):
        coverage, size = found["coverage", method], found["size", method]
        title = "split conformal" if method == "split" else method
        bars = ax.barh(places + shift, coverage - 0.7, 0.36, left=0.7, color=color, label=title)
        texts = [f"{100 * c:.0f}%, {s:.1f} labels" for c, s in zip(coverage, size, strict=True)]
        white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        ax.bar_label(bars, texts, padding=4, fontsize=9, bbox=white)
    ax.axvline(PROMISED, color="black", linewidth=1, linestyle="--", zorder=0)
    ax.set_yticks(places, found.index)
    ax.set_xlim(0.7, 1.09)
    ax.set_xticks([0.7, 0.8, 0.9, 1.0], ["70%", "80%", "90% promised", "100%"])
    ax.set_xlabel("how often the set holds the true label")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def shapes() -> Figure:
    """Draw coverage of the worst off, a row per shape, of 2,000 rows and the default model."""
    found = _studies.shapes().query("base == 'boosting' and N == 2000")
    found = found.sort_values("split")
    figure = Figure(figsize=(7.2, 6.2), layout="constrained")
    ax: Any = figure.subplots()
    places = np.arange(len(found))
    ax.hlines(places, found["split"], found["FaReG"], color="#cccccc", linewidth=2, zorder=1)
    for method, color, marker, title in (
        ("split", GREY, "o", "split conformal"),
        ("oracle", "black", "|", "oracle, which knows the group"),
        ("FaReG", BLUE, "D", "FaReG"),
    ):
        ax.scatter(found[method], places, 34, color, marker, label=title, zorder=2)
    ax.axvline(PROMISED, color="black", linewidth=1, linestyle="--", zorder=0)
    ax.set_yticks(places, found["shape"])
    ax.set_xlabel("coverage of the worst off; 90% is promised")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    ax.margins(y=0.02)
    return figure


def growth() -> Figure:
    """Draw seconds against rows, a panel per axis, and a grey line of slope one."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    panels: Any = figure.subplots(1, 2, sharey=True)
    for ax, (axis, title) in zip(panels, PANELS.items(), strict=True):
        for curve in _studies.timing()["sections"]["growth"]["curves"]:
            if curve["axis"] == axis:
                color, marker, line = CURVES[curve["name"]]
                style = {"color": color, "marker": marker, "linestyle": line, "markersize": 5}
                ax.plot(curve["sizes"], curve["seconds"], label=curve["name"], **style)
        ax.loglog([1e3, 1e6], [1e-3, 1], color="#bbbbbb", linewidth=1, zorder=0)
        ax.annotate("slope 1", (3e5, 0.3), color="#777777", rotation=30, va="top")
        ax.set_xlabel(f"{axis} (rows)")
        ax.set_title(title, fontsize=11)
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure
