"""The program: its commands in the order in which ``--help`` shows them."""

from __future__ import annotations

from typing import Annotated

import typer

from fareg.cli._audit import audit
from fareg.cli._benchmark import benchmark
from fareg.cli._calibrate import calibrate
from fareg.cli._demo import demo
from fareg.cli._fit import fit
from fareg.cli._info import info
from fareg.cli._predict import predict
from fareg.cli._reproduce import reproduce

app = typer.Typer(
    name="fareg",
    help="Fair conformal classification for groups nobody named.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"fareg {version('fareg')}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Show the version and stop."
        ),
    ] = False,
) -> None:
    """Find who is under-covered, and fix it."""


for command in (fit, predict, calibrate, info, audit, demo, reproduce, benchmark):
    app.command()(command)
