"""``fareg demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fareg.cli._running import answering, as_json, busy
from fareg.cli._running import console as terminal


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("out"),
) -> None:
    """Show the story on the paper's data: who is left out, who they are, what repairs it."""
    with answering() as told:
        from fareg.experiments.demo import make_room, run_demo, save_figures

        make_room(out)  # a folder that cannot take the figures is refused before the work
        with busy("training one model and four conformal predictors"):
            result = run_demo(0)
            figures = save_figures(result, out)
        told.update(rows=result.table.to_dict("records"), rules=list(result.rules))
    if not as_json():
        _print_demo(result, figures)


def _print_demo(result: Any, figures: list[Path]) -> None:
    from rich.table import Table

    from fareg import _words as words
    from fareg.experiments.demo import LEVELS, SPLIT

    console = terminal()
    rows = result.table.set_index("method")
    split, levels = rows.loc[SPLIT], rows.loc[LEVELS]
    everyone, inside = words.percent(split["average"]), words.percent(split["group"])
    name = "names nobody: the evidence is too thin."
    if result.rules:
        listed = "\n".join(f"  [bold]{rule}[/bold]" for rule in result.rules)
        name = f"finds and names who is in it:\n{listed}"
    console.print(
        f"90% is asked for. Split conformal sets cover {everyone} of all rows: fine on average.\n"
        f"But inside one group, which no single feature shows, they cover [bold]{inside}[/bold].\n"
        f"FaReG, not told about the group, {name}\n"
        f"Its sets cover {words.percent(levels['group'])} of the group, with "
        f"{words.size(levels['size'])} labels on average instead of {words.size(split['size'])}.\n"
        f"It ranks people by learned disadvantage, in levels. The promise: all at or "
        f"above a level, taken together, are covered at least 90% of the time, for every level.\n"
    )
    table = Table("method")
    for heading in ("group", "everyone else", "average", "set size", "seconds"):
        table.add_column(heading, justify="right")
    for name, row in rows.iterrows():
        shares = [words.percent(row[key]) for key in ("group", "outside", "average")]
        seconds = f"{row['seconds']:.2f}" if row["seconds"] else ""
        style = "bold" if name == LEVELS else "dim" if str(name).startswith("Oracle") else None
        table.add_row(str(name), *shares, words.size(row["size"]), seconds, style=style)
    console.print(table)
    console.print(
        f"The base model took {result.base_seconds:.1f} s to train. Levels learn from its training "
        "rows, at the cost of five more trainings; RCP learns from half of the calibration rows. "
        "Size-matched: split conformal at the level that makes its sets as large as levels do."
    )
    console.print(f"figures in {' and '.join(map(str, figures))}")
