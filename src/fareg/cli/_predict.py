"""``fareg predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fareg._words import TABLE
from fareg.cli import _options as opt
from fareg.cli._running import answering, engine_of, names, progress
from fareg.cli._stopping import say, stop


def predict(
    model: opt.ModelFile,
    data: opt.Data,
    out: Annotated[Path, typer.Option(help=f"File to write ({TABLE}), or a new folder.")],
    keep: Annotated[
        str | None, typer.Option(help="Columns to copy beside the sets: id,y (default: none).")
    ] = None,
    ids: opt.Ids = None,
    batch_size: opt.BatchSize = 50_000,
    engine: opt.Engine = "local",
    jobs: opt.Jobs = None,
    scheduler: opt.Scheduler = None,
    accept_drift: Annotated[
        bool,
        typer.Option(
            "--accept-drift",
            help="Only warn if half of a column is empty or holds other values than in fit.",
        ),
    ] = False,
    action: Annotated[
        bool,
        typer.Option(
            "--action", help="Also say of each row: decide (one label) or refer (several or none)."
        ),
    ] = False,
    trust: opt.Trust = None,
    sha256: opt.Sha256 = None,
    safe_csv: opt.SafeCsv = False,
    json: opt.Json = False,
) -> None:
    """Write the prediction set of every row: set, size, top label, group.

    The files of a folder are answered in parallel. A run that was stopped continues there.
    """
    with answering(json) as told:
        where = engine_of(data, engine, jobs, scheduler)
        if safe_csv and data.is_dir():
            stop("Error: --safe-csv is for a CSV file to write, a folder gives Parquet files", 2)
        with progress(data, json) as advance:
            common: dict[str, Any] = {
                "keep": names(keep) or (),
                "ids": ids,
                "batch_size": batch_size,
                "trusted": names(trust),
                "sha256": sha256,
                "accept_drift": accept_drift,
                "action": action,
                "progress": advance,
            }
            if not data.is_dir():
                from fareg.workflow import predict_file

                told.update(predict_file(model, data, out, safe_csv=safe_csv, **common))
            else:
                from fareg.workflow import predict_folder

                told.update(predict_folder(model, data, out, **common, **where))
        told["out"] = out
    if not json:
        from fareg import _words as words

        rows, size = told["rows"], told["mean_size"]
        say(f"{rows} sets of {words.size(size)} labels on average, in {out}")
