"""``docs/performance.md`` and its figure, written from ``results.json``: they cannot disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
from jinja2 import Environment
from matplotlib.figure import Figure
from rich.table import Table

from fareg._files import replacing

DOCS = Path(__file__).parent.parent / "docs"
# Okabe & Ito's colours, told apart also by line and marker
STYLES: dict[str, tuple[str, str, str]] = {
    "Split": ("#7f7f7f", "o", "-"),
    "Partial": ("#56b4e9", "s", "-"),
    "Exhaustive": ("#56b4e9", "D", "--"),
    "AFCP": ("#cc79a7", "v", "-"),
    "CondCP": ("#e69f00", "P", "-"),
    "PLCP": ("#009e73", "X", "-"),
    "FaReG": ("#0072b2", "o", "-"),
    "FaReG.paper()": ("#d55e00", "o", "-"),
    "p-values": ("#7f7f7f", "^", ":"),
    "WSC": ("black", "s", "-"),
    "WSC+": ("black", "D", "--"),
    "audit": ("#d55e00", "*", ":"),
}
QUIET = 1.0  # load average of others that the second core can carry
PANELS = {
    "N": "calibrate on N rows and predict 1,000\n(audit, WSC, WSC+: search N rows)",
    "M": "predict M rows, calibrated on 10,000",
}
TEMPLATE = Path(__file__).with_name("performance.md.jinja")


def time_text(seconds: float | None) -> str:
    """Write seconds with three digits."""
    if seconds is None:
        return ""
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def mib_text(mib: float | None) -> str:
    return "" if mib is None else f"{mib:,.0f}"


def table(results: dict[str, Any]) -> Table:
    """Return everything as one table."""
    view = Table("what", "fareg", "peer", "seconds", "ratio", "MiB", "note")
    for name, section in results["sections"].items():
        view.add_section()
        view.add_row(f"[bold]{name}")
        for row in section["rows"]:
            peaks = [mib_text(row[key]) for key in ("ours_peak_mib", "peer_peak_mib")]
            view.add_row(
                row["what"],
                time_text(row["ours_seconds"]),
                row["peer"],
                time_text(row["peer_seconds"]),
                ratio_text(row["ratio"]),
                " | ".join(filter(None, peaks)),
                row["note"],
            )
    return view


def write(results: dict[str, Any]) -> None:
    """Write the page and its figure."""
    sections = results["sections"]
    if "growth" in sections:
        figure = draw(sections["growth"]["curves"])
        with replacing(DOCS / "performance.svg") as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})
    with replacing(DOCS / "performance.md") as temporary:
        temporary.write_text(render(results))


def render(results: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    sections = results["sections"]
    compared = [row for s in sections.values() for row in s["rows"] if row["ratio"] is not None]
    curves = {(c["name"], c["axis"]): c for c in sections.get("growth", {}).get("curves", ())}
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters.update(time=time_text, ratio=ratio_text, mib=mib_text)
    return environment.from_string(TEMPLATE.read_text()).render(
        **results,
        busy={
            name: section["load_of_others"]
            for name, section in sections.items()
            if section["load_of_others"] > QUIET
        },
        compared=compared,
        behind=[row for row in compared if row["ratio"] < 1],
        exponents=[
            (name, curves[name, "N"], curves.get((name, "M")))
            for name in STYLES
            if (name, "N") in curves
        ],
    )


def draw(curves: list[dict[str, Any]]) -> Figure:
    """Draw seconds against rows, a panel per axis, and a grey line of slope one."""
    matplotlib.rcParams["svg.hashsalt"] = "fareg"  # the same figures, the same file
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for ax, (axis, title) in zip(panels, PANELS.items(), strict=True):
        for curve in (c for c in curves if c["axis"] == axis):
            color, marker, line = STYLES[curve["name"]]
            ax.plot(
                curve["sizes"],
                curve["seconds"],
                label=curve["name"],
                color=color,
                marker=marker,
                linestyle=line,
                markersize=5,
            )
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


if __name__ == "__main__":
    write(json.loads(Path(__file__).with_name("results.json").read_text()))
