"""Cells, the smallest pieces of work that are stored, and the runner that computes them.

A cell is a pure function of its configuration: it gives the same numbers anywhere and at any time,
except those named ``*_seconds``. The cells of one problem make a unit, which one process computes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import Progress

from fareg._columns import canonical
from fareg._engines import run_tasks
from fareg._threads import one_thread
from fareg._validation import FaregError, FaregWarning
from fareg.experiments._bench import MEASURE, Bench, Store, content_hash
from fareg.experiments._measures import MetricSettings, covered_rows
from fareg.experiments._methods import MARGINAL, PROBE, Method, fitted, sets_of
from fareg.metrics import worst_slab_coverage
from fareg.paper import influential_steps

SEARCHES = ("random", "optimised")


@dataclass(frozen=True)
class Cell:
    """A piece of work on one problem."""

    problem: Any

    @property
    def key(self) -> str:
        """The name of the result: a hash of everything that it depends on."""
        return content_hash(self)

    def compute(self, bench: Bench) -> pd.DataFrame:
        raise NotImplementedError


Named = tuple[Cell, dict[str, Any]]  # a cell, and columns that name its rows in a table


@dataclass(frozen=True)
class MethodCell(Cell):
    """One method with one score on one problem: one row of measures and facts."""

    method: Method
    score: str = "aps"
    metrics: MetricSettings | None = None

    def compute(self, bench: Bench) -> pd.DataFrame:
        row: dict[str, Any] = {"error": ""} if self.problem.failures_count else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sets, facts = sets_of(self.method, bench, self.score)
                row |= {**self.problem.measure(sets, bench, self), **facts}
        except Exception as error:
            # out of memory is a failure of this machine today, not of the method
            if not self.problem.failures_count or isinstance(error, MemoryError):
                raise
            row = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        return pd.DataFrame([row])


@dataclass(frozen=True)
class SlabCell(Cell):
    """WSC and WSC+ of marginal sets on the first ``n_features`` features, for several deltas.

    Each is searched among random directions, as published, and by descent; once in sample, and
    once on one half of the test rows with evaluation on the other half.
    """

    n_features: int
    deltas: tuple[float, ...]
    n_directions: int

    def compute(self, bench: Bench) -> pd.DataFrame:
        X = bench.X.iloc[bench.test, : self.n_features]
        covered = covered_rows(sets_of(MARGINAL, bench, "aps")[0], bench)
        options: dict[str, Any] = {"n_directions": self.n_directions}
        options["random_state"] = bench.seed(MEASURE)
        search = partial(worst_slab_coverage, X, covered, **options)
        rows = []
        for kind, way, delta in product(("linear", "quadratic"), SEARCHES, self.deltas):
            setting: dict[str, Any] = {"kind": kind, "search": way, "delta": delta}
            slab, held_out = search(**setting), search(**setting, test_size=0.5).test_value
            values = {"value": slab.value, "held_out": held_out, "values": slab.values.tolist()}
            rows.append({**setting, **values})
        return pd.DataFrame(rows)


@dataclass(frozen=True)
class PictureCell(Cell):
    """Two features as the published network reconstructs them while its latent is perturbed.

    The latent moves by each step along the dimension that changes membership most, upwards. There
    is a row per step: the share of reconstructions inside the true group, the mean membership, and
    the reconstructed features.
    """

    method: Method
    steps: tuple[float, ...]

    def compute(self, bench: Bench) -> pd.DataFrame:
        learner = fitted(self.method, bench, "aps")[0].learner_
        z = learner.latent(canonical(bench.X.iloc[bench.test][bench.sensitive]))
        step, _ = influential_steps(learner, z, PROBE)
        rise = learner.membership_of_latent(z + step) - learner.membership_of_latent(z - step)
        unit = step / PROBE * (1 if rise.mean() >= 0 else -1)
        places = [learner.input_features().index(name) for name in ("Color", "Gender")]
        rows = []
        for size in self.steps:
            moved = z + size * unit
            color, gender = learner.reconstruct(moved)[0][:, places].T
            inside = (color > 0.5) == (gender > 0.5)  # red and female, or blue and male
            membership = learner.membership_of_latent(moved)[0].mean()
            row = {"step": size, "inside": inside.mean(), "membership": membership}
            rows.append({**row, "color": color.tolist(), "gender": gender.tolist()})
        return pd.DataFrame(rows)


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    *,
    jobs: int | None = None,
    engine: str = "local",
    console: Console | None = None,
) -> None:
    """Compute the cells that the store does not have yet.

    Cells may occur several times; those of one problem run together and share its base model. Every
    finished cell is stored at once, so a killed run continues where it stopped. For ``jobs`` and
    ``engine`` see :func:`run_tasks`. ``console`` shows a progress bar if it is a terminal.
    """
    units = units_of(cell for cell in cells if store.get(cell.key) is None)
    compute = partial(run_unit, folder=str(store.folder.resolve()))
    finished = run_tasks(compute, units, jobs=jobs, engine=engine)
    is_quiet = console is None or not console.is_terminal
    with Progress(console=console, disable=is_quiet) as progress:
        task = progress.add_task(f"{len(units)} problems", total=sum(map(_cost, units)))
        for unit, rows in finished:
            for key, frame in rows.items():
                # Another machine may have stored the cell on its local disk.
                if not store.path(key).exists():
                    store.put(key, frame)
            progress.update(task, advance=_cost(unit))


def units_of(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Gather cells by problem, without duplicates, the longest units first."""
    by_problem: dict[Any, dict[str, Cell]] = {}
    for cell in cells:
        by_problem.setdefault(cell.problem, {})[cell.key] = cell
    return sorted((list(unit.values()) for unit in by_problem.values()), key=_cost, reverse=True)


def _cost(unit: Sequence[Cell]) -> int:
    return int(unit[0].problem.n) * (5 + len(unit))  # grows with the time of a unit


def run_unit(unit: list[Cell], folder: str) -> tuple[list[Cell], dict[str, pd.DataFrame]]:
    """Compute the cells of a unit, store each at once, and return the rows by key."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FaregWarning)  # full sets of small groups are expected
        bench = unit[0].problem.prepare(Store(folder))
        compute = bench.store.once
        return unit, {cell.key: compute(cell.key, partial(cell.compute, bench)) for cell in unit}


def collect(named: Iterable[Named], store: Store) -> pd.DataFrame:
    rows = []
    for cell, names in named:
        found = store.get(cell.key)
        if found is None:
            raise FaregError(f"{store.path(cell.key)} is gone; run the same command again")
        rows.append(found.assign(**names))
    return pd.concat(rows, ignore_index=True)
