"""``fareg reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fareg.cli import _options as opt
from fareg.cli._running import answering
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
    jobs: opt.Jobs = None,
    engine: opt.Engine = "local",
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("reproduction"),
    acs_root: Annotated[Path | None, typer.Option(help="Folder of ACS PUMS files.")] = None,
    json: opt.Json = False,
) -> None:
    """Run the paper's experiments; a stopped run continues where it stopped."""
    with answering(json) as told:
        from fareg.experiments import list_targets
        from fareg.experiments import reproduce as run

        told.update(targets=list_targets())
        if not list_:
            done = run(
                targets or (),
                out=out,
                quick=quick,
                jobs=jobs,
                engine=engine,
                acs_root=acs_root,
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
    say(f"{', '.join(told['files'])}: {told['page']}")
