"""The runner computes the cells that are missing and keeps those that are there.

A unit is the cells of one problem: the work that one process does in one go.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fareg._engines import run_tasks
from fareg._threads import one_thread
from fareg._validation import FaregWarning
from fareg.experiments._cells import Cell
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
    columns = (
        TextColumn("{task.fields[done]} of {task.fields[n]} problems"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    is_quiet = console is None or not console.is_terminal
    with Progress(*columns, console=console, disable=is_quiet) as progress:
        task = progress.add_task("", total=sum(map(_cost, units)), done=0, n=len(units))
        for done, (unit, rows) in enumerate(finished, start=1):
            for key, frame in rows.items():
                # Another machine may have stored the cell on a disk of its own.
                if not store.path(key).exists():
                    store.put(key, frame)
            progress.update(task, advance=_cost(unit), done=done)


def units_of(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Gather cells by problem, without repetitions, the longest units first."""
    gathered: dict[Any, dict[str, Cell]] = {}
    for cell in cells:
        gathered.setdefault(cell.problem, {})[cell.key] = cell
    units = [list(own.values()) for own in gathered.values()]
    return sorted(units, key=_cost, reverse=True)


def _cost(unit: list[Cell]) -> float:
    """Return roughly how many seconds a unit takes."""
    return float(unit[0].problem.training_cost + sum(cell.cost for cell in unit))


def run_unit(unit: list[Cell], folder: str) -> tuple[list[Cell], dict[str, pd.DataFrame]]:
    """Compute the cells of a unit, store each at once, and return the rows by key."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FaregWarning)  # full sets of small groups are expected here
        bench = unit[0].prepare(Store(folder))
        return unit, {cell.key: cell.result(bench) for cell in unit}
