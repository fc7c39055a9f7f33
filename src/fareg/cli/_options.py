"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fareg._words import HTML, PARQUET, TABLE, either

Target = Annotated[str, typer.Option(help="Column of true labels.")]
Sensitive = Annotated[
    str | None,
    typer.Option(
        help="Columns that may define a group: a,b (default: those of the model, or else all)."
    ),
]
Data = Annotated[
    Path,
    typer.Argument(
        help=f"A table ({TABLE}), or a folder of {either(PARQUET)} files.",
        show_default=False,
    ),
]
ModelFile = Annotated[Path, typer.Argument(help="Model file of fareg fit.", show_default=False)]
ModelOut = Annotated[Path, typer.Option(help="Model file to write, usually *.fareg.")]
Ids = Annotated[
    str | None,
    typer.Option("--id", help="Column of ids: every person has a random number of their own."),
]
Clusters = Annotated[
    str | None,
    typer.Option(help="Column of ids: rows of one id stay together, and each id counts once."),
]
Engine = Annotated[
    str,
    typer.Option(
        help="local, dask, or the address of a dask scheduler; local:4 and dask:4 are 4 processes."
    ),
]
Trust = Annotated[
    str | None,
    typer.Option(
        help="What you know of the model file: the SHA-256 that it must have, and types in it "
        "whose code may run: my_module.MyModel."
    ),
]
Report = Annotated[
    Path | None, typer.Option(help=f"Also write a report to this {either(HTML)} file.")
]
FailOn = Annotated[
    str | None,
    typer.Option(
        help="End with exit code 3 if it is so: found (the verdict names an under-covered "
        "group, or everyone is below; slight gaps and small groups do not count), low (everyone), "
        "unequal (sets are much larger for some)."
    ),
]
