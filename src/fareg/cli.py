"""The command line: ``fareg fit | predict | audit | info``. It parses, calls and prints."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="fareg",
    help="Fair conformal classification for groups nobody named.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _about() -> None:
    """Find who is under-covered, and fix it."""
