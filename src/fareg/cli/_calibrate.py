"""``fareg calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fareg.cli._options import (
    BatchSize,
    Data,
    Engine,
    Jobs,
    Json,
    ModelFile,
    Scheduler,
    Target,
    Trust,
)
from fareg.cli._running import busy, check_folder_options, names, plain_errors


def calibrate(
    model: ModelFile,
    data: Data,
    target: Target,
    out: Annotated[Path, typer.Option(help="Model file to write, usually *.fareg.")],
    batch_size: BatchSize = 50_000,
    engine: Engine = "local",
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Give a model the thresholds that all rows of a folder ask for, exactly.

    Scores are counted where the rows lie; rows that the model has seen are left out.
    """
    with plain_errors(json) as told:
        from fareg.workflow import calibrate_folder

        options = {"--engine": engine, "--jobs": jobs, "--scheduler": scheduler}
        check_folder_options(data, options)
        with busy("loading the model", json) as progress:
            found = calibrate_folder(
                model,
                data,
                target=target,
                out=out,
                batch_size=batch_size,
                engine=engine,
                jobs=jobs,
                scheduler=scheduler,
                trusted=names(trust),
                progress=progress,
            )
        told.update(found, out=str(out))
    if not json:
        typer.echo(f"calibrated on {told['rows']} rows in {told['rounds']} rounds: model in {out}")
