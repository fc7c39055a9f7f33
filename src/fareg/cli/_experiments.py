"""``fareg reproduce`` and ``fareg benchmark``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fareg.cli import _options as opt
from fareg.cli._running import answering, as_json, console, engine_of
from fareg.cli._stopping import say


def _bar() -> Any:
    return None if as_json() else console(err=True)


def reproduce(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures of the paper (default: all).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small and rough version, in minutes.")
    ] = False,
    engine: opt.Engine = "local",
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("reproduction"),
    acs_root: Annotated[Path | None, typer.Option(help="Folder of ACS PUMS files.")] = None,
) -> None:
    """Run the paper's experiments; a stopped run continues where it stopped.

    The targets are wsc-cdf, wsc-table, synthetic, selection, nursery, nursery-cut, delta,
    delta-draws, draws, beta, visualization, time, eight, codes, condcp, published and acs.
    """
    with answering() as told:
        from fareg.experiments import reproduce as run

        where = engine_of(engine)
        done = run(targets or (), out=out, quick=quick, acs_root=acs_root, console=_bar(), **where)
        told.update(done.to_dict())
    if as_json():
        return
    for name, reason in told["skipped"].items():
        say(f"{name} skipped, {reason}", err=True)
    say(f"{', '.join(told['files'])}: {told['page']}")


def benchmark(
    settings: Annotated[Path, typer.Argument(help="TOML file: tables, methods, sizes, seeds.")],
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("benchmark"),
    engine: opt.Engine = "local",
) -> None:
    """Compare methods on published tables; a stopped run continues where it stopped."""
    with answering() as told:
        from fareg.experiments import benchmark as run

        told.update(run(settings, out=out, console=_bar(), **engine_of(engine)).to_dict())
    if not as_json():
        say(f"{told['rows']} rows, {told['failures']} of them failures")
        for path in told["files"]:
            say(path)
