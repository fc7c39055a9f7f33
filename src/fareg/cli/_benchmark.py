"""``fareg benchmark``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fareg.cli import _options as opt
from fareg.cli._running import answering, names
from fareg.cli._running import console as terminal
from fareg.cli._stopping import say


def benchmark(
    tables: Annotated[Path, typer.Argument(help="Folder of TOML files, one per table.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the tables (default: that of the TOML files).")
    ] = None,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("benchmark"),
    only: Annotated[str | None, typer.Option(help="Names of TOML files: a,b.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method, or my_module:MyClassifier; may be repeated (default: all)."),
    ] = None,
    models: Annotated[str, typer.Option(help="hgb, logistic, network.")] = "hgb,logistic",
    scores: Annotated[str, typer.Option(help="Conformity scores.")] = "aps,lac",
    labels: Annotated[str, typer.Option(help="natural, noise.")] = "natural,noise",
    sizes: Annotated[str, typer.Option(help="Rows that train and calibrate: 1000,4000.")] = "4000",
    repeats: Annotated[int, typer.Option(help="Seeds.")] = 3,
    test_rows: Annotated[int, typer.Option(help="The most rows that test.")] = 5000,
    page: Annotated[
        Path | None, typer.Option(help="Page to write (default: page.md in the results folder).")
    ] = None,
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Write the page of earlier results; run nothing.")
    ] = False,
    jobs: opt.Jobs = None,
    engine: opt.Engine = "local",
    scheduler: opt.Scheduler = None,
    json: opt.Json = False,
) -> None:
    """Compare methods on published tables; a stopped run continues where it stopped."""
    with answering(json) as told:
        from fareg.experiments import benchmark as run
        from fareg.experiments import page_of, parse_sizes

        done = (
            page_of(tables, out, page)
            if page_only
            else run(
                tables,
                data=data,
                out=out,
                only=names(only) or (),
                methods=method or (),
                models=names(models) or (),
                scores=names(scores) or (),
                labels=names(labels) or (),
                sizes=parse_sizes(sizes) or (),
                repeats=repeats,
                test_rows=test_rows,
                page=page,
                jobs=jobs,
                engine=engine,
                scheduler=scheduler,
                console=None if json else terminal(err=True),
            )
        )
        told.update(done.to_dict())
    if not json:
        say(f"{told['rows']} rows, {told['failures']} of them failures")
        for path in told["files"]:
            say(path)
