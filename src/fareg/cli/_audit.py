"""``fareg audit``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fareg.cli import _options as opt
from fareg.cli._running import (
    SETTINGS,
    answering,
    as_json,
    busy,
    check_gate,
    gate,
    names,
    trust_of,
)
from fareg.cli._stopping import say


def audit(
    data: opt.Data,
    target: opt.Target,
    sets: Annotated[
        str | None,
        typer.Option(
            help="Columns of the sets: one of JSON lists, as fareg predict writes, or of text such "
            "as a|b; or True/False columns named after the labels: a,b,c."
        ),
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Audit the sets of this model.")] = None,
    sensitive: opt.Sensitive = None,
    confidence: Annotated[
        float | None, typer.Option(help="Coverage promised (default: the model's own, or 0.9).")
    ] = None,
    clusters: opt.Clusters = None,
    calibration_rows: Annotated[
        int | None,
        typer.Option(help="Allow for sets that this many rows calibrated (a model tells it)."),
    ] = None,
    report: opt.Report = None,
    tables: Annotated[
        Path | None, typer.Option(help="Also write every table to this folder, as CSV files.")
    ] = None,
    card: Annotated[
        Path | None, typer.Option(help="Also write a section of a model card to this .md file.")
    ] = None,
    fail_on: opt.FailOn = None,
    trust: opt.Trust = None,
) -> None:
    """Find who is covered less often than promised, by the sets of any tool."""
    check_gate(fail_on)
    with answering() as told:
        from fareg.workflow import audit_file

        with busy("reading the table") as progress:
            result = audit_file(
                data,
                target=target,
                sets=names(sets),
                model=model,
                sensitive=names(sensitive),
                confidence_level=confidence,
                clusters=clusters,
                n_calibration=calibration_rows,
                report=report,
                tables=tables,
                card=card,
                progress=progress,
                settings={**SETTINGS, "protect": _protect(data, target, names(sets))},
                **trust_of(trust),
            )
        told.update(result.to_dict(), report=report)
    if not as_json():
        say(result.summary())
        for what, path in (("report", report), ("tables", tables), ("card", card)):
            if path is not None:
                say(f"{what} in {path}")
    gate(fail_on, result)


def _protect(data: Path, target: str, sets: list[str] | None) -> str:
    """Return the command that fits a model to the same table, up to the words of a group."""
    from fareg._words import quoted

    drop = ["--drop", ",".join(map(quoted, sets))] if sets else []
    command = ["fareg", "fit", str(data), "--target", target, *drop, "--out", "protected.fareg"]
    return shlex.join([*command, "--protect"])
