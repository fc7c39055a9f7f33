"""``fareg predict`` and ``fareg calibrate``: a model and new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fareg._words import TABLE
from fareg.cli import _options as opt
from fareg.cli._running import answering, as_json, busy, engine_of, names, trust_of
from fareg.cli._stopping import say


def predict(
    model: opt.ModelFile,
    data: opt.Data,
    out: Annotated[Path, typer.Option(help=f"File to write ({TABLE}), or a new folder.")],
    keep: Annotated[
        str | None, typer.Option(help="Columns to copy beside the sets: id,y (default: none).")
    ] = None,
    ids: opt.Ids = None,
    engine: opt.Engine = "local",
    accept_drift: Annotated[
        bool,
        typer.Option(
            "--accept-drift",
            help="Only warn if half of a column is empty or holds other values than in fit.",
        ),
    ] = False,
    confidence: Annotated[
        float | None,
        typer.Option(help="Coverage to promise, chosen before looking (default: as in fit)."),
    ] = None,
    action: Annotated[
        bool,
        typer.Option(
            "--action", help="Also say of each row: decide (one label) or refer (several or none)."
        ),
    ] = False,
    trust: opt.Trust = None,
    safe_csv: Annotated[
        bool,
        typer.Option(
            "--safe-csv",
            help="Write CSV texts like =1+1 so that no spreadsheet runs them.",
        ),
    ] = False,
) -> None:
    """Write the prediction set of every row: set, size, top label, group.

    The files of a folder are answered in parallel. A run that was stopped continues there.
    """
    with answering() as told:
        from fareg.workflow import predict_file

        with busy("loading the model") as progress:
            found = predict_file(
                model,
                data,
                out,
                keep=names(keep) or (),
                ids=ids,
                confidence_level=confidence,
                accept_drift=accept_drift,
                action=action,
                safe_csv=safe_csv,
                progress=progress,
                **engine_of(engine),
                **trust_of(trust),
            )
        told.update(found, out=out)
    if not as_json():
        from fareg import _words as words

        size = words.size(told["mean_size"])
        say(f"{told['rows']} sets of {size} labels on average, in {out}")


def calibrate(
    model: opt.ModelFile,
    data: opt.Data,
    target: opt.Target,
    out: opt.ModelOut,
    towards: Annotated[
        Path | None,
        typer.Option(help="Rows of the people for whom sets will be made: weigh rows like them."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Also write what was asked and found, and which file replaces which."),
    ] = None,
    engine: opt.Engine = "local",
    trust: opt.Trust = None,
) -> None:
    """Give a model the thresholds that all rows of a folder ask for, exactly.

    Rows are scored where they lie; rows that the model was fitted on are left out.
    """
    with answering() as told:
        from fareg._files import digest_of
        from fareg.workflow import calibrate_file

        with busy("loading the model") as progress:
            found = calibrate_file(
                model,
                data,
                target=target,
                out=out,
                towards=towards,
                record=record,
                progress=progress,
                **engine_of(engine),
                **trust_of(trust),
            )
        told.update(found, out=out, sha256=digest_of(out))
    if not as_json():
        from fareg import _words as words

        for row in told["coverage"]:
            before, after = words.percent(row["before"]), words.percent(row["after"])
            who = f"{row['stream']} ({words.rows(row['rows'])})"
            say(f"  {who}: {before} of the labels are in the old sets, {after} in the new")
        if "effective_rows" in told:
            say(f"weighted rows are as good as {words.rows(round(told['effective_rows']))}")
        say(f"calibrated on {words.rows(told['rows'])}: model in {out}")
        say(f"SHA-256 of the model: {told['sha256']}")
