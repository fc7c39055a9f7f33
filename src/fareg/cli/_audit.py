"""``fareg audit``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fareg.cli import _options as opt
from fareg.cli._running import SETTINGS, answering, busy, check_gate, gate, names, sampling_of
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
    sensitive: Annotated[
        str | None,
        typer.Option(
            help="Columns that may define a group: a,b (default: the sensitive features of the "
            "model, or else all)."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Coverage promised (default: the model's own, or 0.9).")
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            help="Column of ids: rows that share one may depend on each other (default: the "
            "model's own)."
        ),
    ] = None,
    ids: opt.Ids = None,
    drop_missing_target: opt.DropMissingTarget = False,
    calibration_rows: Annotated[
        int | None,
        typer.Option(help="Allow for sets that this many rows calibrated (a model tells it)."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed gives the same numbers (default: the model's own, or 0)."),
    ] = None,
    report: opt.Report = None,
    tables: opt.Tables = None,
    card: opt.Card = None,
    fail_on: opt.FailOn = None,
    trust: opt.Trust = None,
    sha256: opt.Sha256 = None,
    max_rows: opt.MaxRows = None,
    engine: opt.Engine = "local",
    scheduler: opt.Scheduler = None,
    json: opt.Json = False,
) -> None:
    """Find who is covered less often than promised, by the sets of any tool."""
    check_gate(fail_on)
    with answering(json) as told:
        from fareg.workflow import audit_file

        with busy("reading the table", json) as progress:
            result = audit_file(
                data,
                target=target,
                sets=names(sets),
                model=model,
                sensitive=names(sensitive),
                confidence_level=confidence,
                seed=seed,
                trusted=names(trust),
                sha256=sha256,
                clusters=clusters,
                ids=ids,
                drop_missing_target=drop_missing_target,
                n_calibration=calibration_rows,
                sampling=sampling_of(data, max_rows, seed or 0, engine, scheduler),
                report=report,
                tables=tables,
                card=card,
                progress=progress,
                settings={**SETTINGS, "protect": _protect(data, target, names(sets))},
            )
        told.update(result.to_dict(), report=report)
    if not json:
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
