"""Figures in the paper's layout: four panels in a row with one legend, no pyplot."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd

from fareg.experiments._bench import CONFIDENCE

# Colours of Okabe and Ito; lines and markers distinguish methods too.
STYLES: dict[str, dict[str, Any]] = {
    "Marginal": {"color": "#7f7f7f", "marker": "o", "linestyle": "-"},
    "Partial": {"color": "#56b4e9", "marker": "s", "linestyle": "-"},
    "AFCP": {"color": "#cc79a7", "marker": "v", "linestyle": ":"},
    "AFCP1": {"color": "#cc79a7", "marker": "^", "linestyle": "--"},
    "AFCP2": {"color": "#cc79a7", "marker": "D", "linestyle": "-"},
    "CondCP": {"color": "#e69f00", "marker": "P", "linestyle": "-"},
    "PLCP": {"color": "#009e73", "marker": "X", "linestyle": "-"},
    "RCP": {"color": "#009e73", "marker": "d", "linestyle": "--"},
    "FaReG (paper)": {"color": "#d55e00", "marker": "o", "linestyle": "-", "linewidth": 2.4},
    "CondCP + FaReG (paper)": {"color": "#e69f00", "marker": "o", "linestyle": "--"},
    "FaReG (levels)": {"color": "#0072b2", "marker": "o", "linestyle": "-", "linewidth": 2.4},
    "FaReG (levels, out of fold)": {"color": "#0072b2", "marker": "D", "linestyle": "-"},
    "Marginal at the size of FaReG (paper)": {"color": "#d55e00", "linestyle": ":"},
    "Marginal at the size of FaReG (levels)": {"color": "#0072b2", "linestyle": ":"},
    "Oracle union": {"color": "black", "linestyle": ":"},
    "Oracle partition": {"color": "black", "linestyle": "--"},
}
PLAIN = {"color": "#0072b2", "marker": "o", "linestyle": "-"}
DPI = 120


def draw_panels(
    summary: pd.DataFrame, panels: dict[str, str], x: str, *, x_label: str, log_x: bool
) -> Any:
    """Draw one panel per metric against ``x``, a line per method, bars of one standard error.

    ``summary`` is what ``summarise`` returns, ``panels`` maps metrics to their titles, and ``x`` is
    the column on the horizontal axis. Seconds have a logarithmic axis.
    """
    figure, axes = _row_of_axes(len(panels), 3.5 * len(panels), 3.9)
    for letter, ax, (metric, title) in zip("abcdefgh", axes, panels.items(), strict=False):
        for method, rows in summary.groupby("method", sort=False):
            rows = rows[rows[metric].notna()]
            if len(rows):
                style = {"linewidth": 1.3, "markersize": 4.5, **STYLES.get(str(method), PLAIN)}
                errors = rows[f"{metric}_se"].fillna(0.0)
                ax.errorbar(rows[x], rows[metric], errors, label=method, elinewidth=0.8, **style)
        if "coverage" in metric or metric.startswith("wsc"):
            ax.axhline(CONFIDENCE, color="black", linewidth=0.8, zorder=0)
        ax.set_title(f"({letter}) {title}", fontsize=11)
        ax.set_xlabel(x_label)
        if log_x:
            values = sorted(summary[x].unique())
            ax.set_xscale("log")
            ax.set_xticks(values, [f"{value:g}" for value in values])
            ax.minorticks_off()
        if metric == "seconds":
            ax.set_yscale("log")
        ax.grid(alpha=0.25)
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if len(handles) > 1:
        options = {"loc": "outside lower center", "ncols": 5, "fontsize": 9, "frameon": False}
        figure.legend(list(handles.values()), list(handles), **options)
    return figure


def _row_of_axes(n: int, width: float, height: float, *, sharey: bool = False) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, n, sharey=sharey, squeeze=False)[0]


def draw_cdf(values: dict[str, dict[str, Any]]) -> Any:
    """Draw the distribution of worst-slab coverage over directions: a panel per set of features.

    ``values[panel][curve]`` holds the worst coverage of each direction.
    """
    figure, axes = _row_of_axes(len(values), 3.7 * len(values), 3.6, sharey=True)
    styles = {"WSC": ("#0072b2", "--"), "WSC+": ("#d55e00", "-")}
    for ax, (title, curves) in zip(axes, values.items(), strict=True):
        for name, coverages in curves.items():
            colour, line = styles[name]
            ordered = np.sort(np.asarray(coverages))
            shares = np.arange(1, len(ordered) + 1) / len(ordered)
            ax.step(ordered, shares, where="post", color=colour, linestyle=line, label=name)
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("worst coverage of a direction")
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("share of directions")
    axes[0].legend(frameon=False, loc="upper left")
    return figure


def draw_moves(rows: pd.DataFrame) -> Any:
    """Draw reconstructed Color and Gender: a row of panels per seed, a panel per latent step."""
    from matplotlib.figure import Figure

    seeds, steps = rows["seed"].unique(), rows["step"].unique()
    figure = Figure(figsize=(2.2 * len(steps), 2.1 * len(seeds)), layout="constrained")
    axes = figure.subplots(len(seeds), len(steps), sharex=True, sharey=True, squeeze=False)
    for ax, (_, row) in zip(axes.flat, rows.iterrows(), strict=True):
        ax.scatter(row["color"], row["gender"], s=3, alpha=0.4, color="#0072b2", rasterized=True)
        title = f"+{row['step']:g}: |G|/N {row['membership']:.2f}, in group {row['inside']:.2f}"
        ax.set_title(title, fontsize=7)
        ax.axhline(0.5, color="#999999", lw=0.6)
        ax.axvline(0.5, color="#999999", lw=0.6)
    for ax, seed in zip(axes[:, 0], seeds, strict=True):
        ax.set_ylabel(f"seed {seed}: Gender")
    for ax in axes[-1]:
        ax.set_xlabel("Color")
    return figure


def draw_image(figure: Any, kind: str) -> bytes:
    """Return a figure as the bytes of an SVG or PNG file; the same figure gives the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "fareg", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
