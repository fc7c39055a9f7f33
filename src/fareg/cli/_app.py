"""The program and its commands, in the order of ``--help``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fareg.cli._commands import (
    audit,
    benchmark,
    calibrate,
    demo,
    fit,
    info,
    monitor,
    predict,
    reproduce,
)
from fareg.cli._options import HELP, described
from fareg.cli._stopping import JSON, escape_unprintable, one_sentence

ANYWHERE = ("--debug", "--json")  # options of the program that may also follow a command
EPILOG = "Every command takes --json (print one JSON object) and --debug (show tracebacks)."


class Program(TyperGroup):
    """Commands that end with one sentence, whatever happens."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the options of the program in front of the command, and parse them."""
        escape_unprintable()
        remaining = [arg for arg in args if arg not in ANYWHERE]
        program_options = [option for option in ANYWHERE if option in args]
        return super().parse_args(ctx, [*program_options, *remaining])

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        token = JSON.set(ctx.params["json"])
        try:
            with one_sentence(debug=ctx.params["debug"]):
                return super().invoke(ctx)
        except Exception as error:
            message = getattr(error, "message", "")
            if ctx.params["json"] and "extra argument" in message:
                file = message.rpartition("(")[2].rstrip(")")
                hint = f"; --json prints to the screen: write --json > {file}"
                error.message = message + hint  # type: ignore[attr-defined]
            raise
        finally:
            JSON.reset(token)


app = typer.Typer(
    name="fareg",
    cls=Program,
    help="Fair conformal classification for groups nobody named.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"fareg {version('fareg')}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and stop."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help=HELP["debug"])] = False,
    json: Annotated[bool, typer.Option("--json", help=HELP["json"])] = False,
) -> None:
    """Read the options of the program."""


for command in (fit, predict, calibrate, info, audit, monitor, demo, reproduce, benchmark):
    app.command(epilog=EPILOG)(described(command))
