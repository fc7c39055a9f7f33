"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fareg._words import HTML, PARQUET, TABLE, either

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same numbers.")]
Target = Annotated[str, typer.Option(help="Column of true labels.")]
DropMissingTarget = Annotated[
    bool, typer.Option("--drop-missing-target", help="Leave out rows without a label.")
]
Sensitive = Annotated[
    str | None, typer.Option(help="Columns that may define a group: a,b (default: all).")
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
    typer.Option(
        "--id",
        help="Column of ids: every person has a random number of their own (default: the one that "
        "the model was fitted with).",
    ),
]
BatchSize = Annotated[int, typer.Option(help="Rows in memory at a time.")]
MaxRows = Annotated[
    int | None,
    typer.Option(help="Rows to draw at random from a folder that has more (default: 1000000)."),
]
Engine = Annotated[str, typer.Option(help="local or dask.")]
Jobs = Annotated[int | None, typer.Option(help="Processes (default: one per core).")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a dask scheduler.")]
Trust = Annotated[
    str | None,
    typer.Option(
        help="Types in the model file that you know: my_module.MyModel (their code runs)."
    ),
]
Sha256 = Annotated[
    str | None,
    typer.Option("--sha256", help="SHA-256 that the model file must have, as fareg info shows it."),
]
Report = Annotated[
    Path | None, typer.Option(help=f"Also write a report to this {either(HTML)} file.")
]
SafeCsv = Annotated[
    bool,
    typer.Option(
        "--safe-csv",
        help="Write CSV texts like =1+1 with an apostrophe before them, as no formulas.",
    ),
]
Tables = Annotated[
    Path | None, typer.Option(help="Also write every table to this folder, as CSV files.")
]
Card = Annotated[
    Path | None, typer.Option(help="Also write a section of a model card to this .md file.")
]
FailOn = Annotated[
    str | None,
    typer.Option(
        help="End with exit code 3 if it is so: found (a group or everyone is below), low "
        "(everyone), unequal (sets are much larger for some)."
    ),
]
