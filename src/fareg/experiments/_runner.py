"""The runner computes the cells that are missing and keeps those that are there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fareg._engines import run_tasks
from fareg.experiments._cells import Cell, run_unit, units_of
from fareg.experiments._store import Store


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    *,
    jobs: int | None = None,
    engine: str = "local",
    scheduler: str | None = None,
    console: Console | None = None,
) -> None:
    """Compute the cells that the store does not have yet.

    Cells may repeat themselves; those of one problem run together and share its base model. Every
    finished cell is in the store at once, so a run that is killed continues where it stopped. For
    ``jobs``, ``engine`` and ``scheduler`` see :func:`run_tasks`. The progress bar is shown on
    ``console`` if it is a terminal.
    """
    missing = [cell for cell in cells if store.get(cell.key) is None]
    units = units_of(missing)
    compute = partial(run_unit, folder=str(store.folder.resolve()))
    finished = run_tasks(compute, units, engine=engine, jobs=jobs, scheduler=scheduler)
    with _progress(console) as progress:
        task = progress.add_task("", total=sum(unit.cost for unit in units), done=0, n=len(units))
        for done, (unit, rows) in enumerate(finished, start=1):
            for key, frame in rows.items():
                # another machine has computed it and stored it on its own disk
                if not store.path(key).exists():
                    store.put(key, frame)
            progress.update(task, advance=unit.cost, done=done)


def _progress(console: Console | None) -> Any:
    return Progress(
        TextColumn("{task.fields[done]} of {task.fields[n]} problems"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=console is None or not console.is_terminal,
    )
