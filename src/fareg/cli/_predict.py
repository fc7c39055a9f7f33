"""``fareg predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fareg.cli._options import BatchSize, Data, Engine, Jobs, Json, ModelFile, Scheduler, Trust
from fareg.cli._running import check_folder_options, names, plain_errors, progress, stop


def predict(
    model: ModelFile,
    data: Data,
    out: Annotated[Path, typer.Option(help="File to write (.csv, .parquet), or a new folder.")],
    keep: Annotated[
        str | None, typer.Option(help="Columns to copy beside the sets: id,y (default: none).")
    ] = None,
    batch_size: BatchSize = 50_000,
    engine: Engine = "local",
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Write the prediction set of every row: set, size, top label, group.

    The files of a folder are answered in parallel. A run that was stopped continues there.
    """
    with plain_errors(json) as told:
        options = {"--engine": engine, "--jobs": jobs, "--scheduler": scheduler}
        check_folder_options(data, options)
        with progress(data, json) as advance:
            common: dict[str, Any] = {
                "keep": names(keep) or (),
                "batch_size": batch_size,
                "trusted": names(trust),
                "progress": advance,
            }
            if not data.is_dir():
                from fareg.workflow import predict_file

                told.update(predict_file(model, data, out, **common))
            else:
                from fareg.workflow import predict_folder

                where: dict[str, Any] = {"engine": engine, "jobs": jobs, "scheduler": scheduler}
                try:
                    told.update(predict_folder(model, data, out, **common, **where))
                except KeyboardInterrupt:
                    stop("Interrupted: finished parts are kept, the same command goes on.", 130)
        told["out"] = str(out)
    if not json:
        from fareg.report import words

        rows, size = told["rows"], told["mean_size"]
        typer.echo(f"{rows} sets of {words.size(size)} labels on average, in {out}")
