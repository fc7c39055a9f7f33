"""``fareg benchmark``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fareg.cli import _options as opt
from fareg.cli._running import answering
from fareg.cli._running import console as terminal
from fareg.cli._stopping import say


def benchmark(
    settings: Annotated[Path, typer.Argument(help="TOML file: tables, methods, sizes, seeds.")],
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("benchmark"),
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Write the page of earlier results; run nothing.")
    ] = False,
    jobs: opt.Jobs = None,
    engine: opt.Engine = "local",
    json: opt.Json = False,
) -> None:
    """Compare methods on published tables; a stopped run continues where it stopped."""
    with answering(json) as told:
        from fareg.experiments import benchmark as run

        done = run(
            settings,
            out=out,
            page_only=page_only,
            jobs=jobs,
            engine=engine,
            console=None if json else terminal(err=True),
        )
        told.update(done.to_dict())
    if not json:
        say(f"{told['rows']} rows, {told['failures']} of them failures")
        for path in told["files"]:
            say(path)
