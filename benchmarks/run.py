"""Every timing in one run: ``make bench``, or ``python benchmarks/run.py [SECTION]...``.

As users run it: with the libraries' own threads, alone, and what has a peer once more beside
processes that keep every core busy. Each finished section is stored in ``results.json`` at once, so
a stopped run keeps what it has, and single sections can be measured again. ``make pages`` writes
``docs/scale.md`` from that file.
"""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Annotated

import afcp
import condcp
import folders
import growth
import learning
import mapped
import million
import pvalues
import split
import stages
import start
import typer
import worst_slab
from measure import VERSION, neighbours
from rich.console import Console
from rich.table import Table

from fareg._files import replacing

RESULTS = Path(__file__).with_name("results.json")
LIBRARIES = ("numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "torch")
PEERS = ("MAPIE", "crepes", "covmetrics", "conditionalconformal")
WIDTH = 160  # of the printed table
SECTIONS: dict[str, ModuleType] = {
    "learning": learning,
    "p-values": pvalues,
    "split": split,
    "worst slab": worst_slab,
    "AFCP": afcp,
    "CondCP": condcp,
    "growth": growth,
    "stages": stages,
    "start": start,
    "million": million,
    "mapped": mapped,
    "folders": folders,
}


def machine() -> dict:
    """Return what the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
        "peers": {name: version(name) for name in PEERS},
    }


def table(sections: dict) -> Table:
    """Return everything as one table."""
    view = Table("what", "fareg, s", "peer", "peer, s", "ratio", "busy", "MiB", "note")
    for name, section in sections.items():
        view.add_section()
        view.add_row(f"[bold]{name}")
        for row in section["rows"]:
            numbers = [row[k] for k in ("ours_seconds", "peer_seconds", "ratio")]
            numbers.append(row.get("busy_ratio"))
            shown = ["" if value is None else f"{value:,.3g}" for value in numbers]
            peaks = [row[key] for key in ("ours_peak_mib", "peer_peak_mib")]
            mib = " | ".join(f"{peak:,.0f}" for peak in peaks if peak is not None)
            view.add_row(row["what"], shown[0], row["peer"], *shown[1:], mib, row["note"])
    return view


def measured(section: ModuleType) -> dict:
    """Return what a section finds; rows with a peer are timed beside busy processes too."""
    found = section.measure()
    found["rows"] = [row.to_dict() for row in found["rows"]]
    if any(row["peer"] for row in found["rows"]):
        with neighbours(os.cpu_count() or 1):
            busy = [row.to_dict() for row in section.measure()["rows"]]
        for row, beside in zip(found["rows"], busy, strict=True):
            row |= {f"busy_{k}": beside[k] for k in ("ours_seconds", "peer_seconds", "ratio")}
    return found


def main(
    sections: Annotated[
        list[str] | None, typer.Argument(help=f"Of: {', '.join(SECTIONS)} (default: all).")
    ] = None,
) -> None:
    """Measure, store, print one table."""
    chosen = sections or list(SECTIONS)
    unknown = sorted(set(chosen) - set(SECTIONS))
    if unknown:
        raise typer.BadParameter(f"unknown {', '.join(unknown)}; known: {', '.join(SECTIONS)}")
    known = json.loads(RESULTS.read_text())["sections"] if RESULTS.exists() else {}
    load = os.getloadavg()[0]  # of others: this process has not begun
    console = Console(width=WIDTH)
    for name in chosen:
        with console.status(name):
            found = measured(SECTIONS[name])
        known[name] = {"version": VERSION, "load_before": round(load, 2), **found}
        ordered = {section: known[section] for section in SECTIONS if section in known}
        with replacing(RESULTS) as temporary:
            text = json.dumps({"machine": machine(), "sections": ordered}, indent=1)
            temporary.write_text(text + "\n")
    console.print(table(ordered))


if __name__ == "__main__":
    typer.run(main)
