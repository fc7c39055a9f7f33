"""``fareg reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fareg.cli import _options as opt
from fareg.cli._running import answering, names
from fareg.cli._running import console as terminal
from fareg.cli._stopping import say


def reproduce(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures, see --list (default: all).")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name the targets and stop.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small and rough version, in minutes.")
    ] = False,
    repeats: Annotated[int | None, typer.Option(help="Repetitions (default: 10).")] = None,
    sizes: Annotated[str | None, typer.Option(help="Values of N: 200,500,1000.")] = None,
    jobs: opt.Jobs = None,
    engine: opt.Engine = "local",
    scheduler: opt.Scheduler = None,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("reproduction"),
    acs_root: Annotated[Path | None, typer.Option(help="Folder of ACS PUMS files.")] = None,
    acs_states: Annotated[
        str | None, typer.Option(help="Its states: NM,HI (default: the paper's).")
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="exact, or published: calibration rows stop the base network.")
    ] = "exact",
    json: opt.Json = False,
) -> None:
    """Run the paper's experiments; a stopped run continues where it stopped."""
    with answering(json) as told:
        from fareg.experiments import list_targets, parse_sizes
        from fareg.experiments import reproduce as run

        told.update(targets=list_targets())
        if not list_:
            done = run(
                targets or (),
                out=out,
                quick=quick,
                repeats=repeats,
                sizes=parse_sizes(sizes),
                jobs=jobs,
                engine=engine,
                scheduler=scheduler,
                acs_root=acs_root,
                acs_states=names(acs_states),
                protocol=protocol,
                console=None if json else terminal(err=True),
            )
            told.update(done.to_dict())
    if not json:
        _print_reproduction(told)


def _print_reproduction(told: dict[str, Any]) -> None:
    if "files" not in told:
        for name, title in told["targets"].items():
            say(f"{name:14} {title}")
        return
    for name, reason in told["skipped"].items():
        say(f"{name} skipped, {reason}", err=True)
    for name, files in told["files"].items():
        say(f"{name}: {', '.join(files)}")
    say(f"in {told['folder']}")
