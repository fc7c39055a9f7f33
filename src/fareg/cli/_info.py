"""``fareg info``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fareg.cli._running import answering, as_json, print_verdict
from fareg.cli._running import console as terminal


def info(
    model: Annotated[Path, typer.Argument(help="Model file.", show_default=False)],
) -> None:
    """Show what is in a model file, without running it."""
    with answering() as told:
        from fareg.persistence import ModelFile

        file = ModelFile.open(model)
        told.update(file.describe())
    if not as_json():
        _print_info(told, file)


def _print_info(told: dict[str, Any], file: Any) -> None:
    from rich.markup import escape
    from rich.table import Column, Table

    from fareg import _words as words

    columns, fitted = told["columns"] or [], file.fit_notes
    people = told["n_calibration_clusters"]
    of_clusters = "" if people is None else f" of {words.clusters(people)}"
    shown_apart = ("columns", "verdict") if fitted else ()
    stored = "yes" if told["has_estimator"] else "none: probabilities are read, not computed"
    stored = "no: pass it to fareg.load" if told["needs_estimator"] else stored
    facts = {
        "file": f"{file.path} ({words.count(told['bytes'])} bytes)",
        "SHA-256": told["sha256"],
        "class": told["class"],
        "classes": ", ".join(told["classes"][:20]) + (" ..." if len(told["classes"]) > 20 else ""),
        "columns": ", ".join(columns[:20]) + (" ..." if len(columns) > 20 else ""),
        "calibrated on": words.rows(told["n_calibration"]) + of_clusters,
        "stored estimator": stored,
        "needs --trust": ",".join(told["untrusted"]) or "no",
        "versions": ", ".join(f"{name} {v}" for name, v in told["versions"].items()),
    }
    facts |= {
        name: _plain(value) for name, value in told["parameters"].items() if value is not None
    }
    who = "fit" if fitted else "note"  # a user may note what they like
    notes = {name: note for name, note in told["metadata"].items() if name not in shown_apart}
    facts |= {f"{who}: {name}": _plain(note) for name, note in notes.items()}
    named = [group for group in told.get("groups", ()) if group.get("named")]
    earlier = "earlier " if file.calibrated_note else ""  # fareg calibrate counts levels only
    for number, group in enumerate(named, start=1):
        facts[f"named group {number}"] = (
            f"{group['rule']} ({words.percent(group['share'], 0)} of the {earlier}calibration "
            f"rows; split conformal sets cover {words.percent(group['coverage'])} of them; "
            f"{words.evidence(group)})"
        )
    table = Table("", Column(overflow="fold"), show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(escape(name), escape(value))
    console = terminal()
    console.print(table)
    if "verdict" in fitted:
        print_verdict(console, fitted["verdict"])


def _plain(value: Any) -> str:
    """Write lists and dicts without brackets, and fractions with four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
