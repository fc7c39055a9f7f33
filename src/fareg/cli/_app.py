"""The program: its commands in the order in which ``--help`` shows them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fareg.cli._audit import audit
from fareg.cli._benchmark import benchmark
from fareg.cli._calibrate import calibrate
from fareg.cli._demo import demo
from fareg.cli._fit import fit
from fareg.cli._info import info
from fareg.cli._predict import predict
from fareg.cli._reproduce import reproduce
from fareg.cli._stopping import one_sentence, print_anything

DEBUG = "--debug"


class Program(TyperGroup):
    """Commands that end in one sentence, whatever happens; ``--debug`` may stand after them too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of the program, and name the command."""
        print_anything()
        others = [arg for arg in args if arg != DEBUG]
        return super().parse_args(ctx, [DEBUG, *others] if len(others) < len(args) else args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with one_sentence(debug=ctx.params["debug"]):
            return super().invoke(ctx)


app = typer.Typer(
    name="fareg",
    cls=Program,
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
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show where an error comes from; also after a command.")
    ] = False,
) -> None:
    """Find who is under-covered, and fix it."""


for command in (fit, predict, calibrate, info, audit, demo, reproduce, benchmark):
    app.command()(command)
