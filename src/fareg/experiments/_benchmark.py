"""Compare methods on published tables: from settings to one tidy file and a page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from fareg._engines import check_engine
from fareg._files import check_output, check_outputs, kept_if_stopped
from fareg._validation import InvalidInputError, check_choice, check_count
from fareg.experiments._bench import Store, make_folder, write_file
from fareg.experiments._measures import MIN_CELL
from fareg.experiments._methods import Method, class_of, find_methods
from fareg.experiments._page import SETTING, write_page
from fareg.experiments._problems import (
    FIT_SHARE,
    LABELS,
    MODELS,
    Settings,
    Table,
    TableProblem,
    files_of,
    find_table,
    read_people,
    read_settings,
)
from fareg.experiments._runs import MethodCell, collect, run_cells
from fareg.scores import get_score

RESULTS = "results.csv"
KEYS = [*SETTING, "method"]


@dataclass(frozen=True)
class Benchmark:
    """What a run left behind."""

    folder: Path
    results: pd.DataFrame  # a row per table, labels, model, score, size, seed and method
    files: list[Path]  # the tidy file, the page and its figures

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "rows": len(self.results),
            "failures": int((self.results["error"] != "").sum()),
            "files": [str(path) for path in self.files],
        }


def benchmark(
    settings: str | Path,
    *,
    out: str | Path = "benchmark",
    jobs: int | None = None,
    engine: str = "local",
    console: Console | None = None,
) -> Benchmark:
    """Compare methods on tables and write one tidy file, a page and its figures.

    Finished work is stored at once: a run that was stopped continues where it stopped, and one with
    more methods or sizes computes only these.

    Parameters
    ----------
    settings : path
        TOML file with what is compared, all optional: ``methods`` (names; or ``module:Class``, or
        ``file.py:Class`` with a path from the TOML file, for a class with the constructor
        ``Class(estimator, *, confidence_level, conformity_score, sensitive_features,
        random_state)``, the methods ``fit(X, y)`` and ``predict_set(X)``, and, if wanted, its name
        as ``title`` and the scores that it knows as ``scores``),
        ``models`` (hgb, logistic, network), ``scores``, ``labels`` (natural; noise in a random
        group, which the oracle knows), ``sizes``, ``repeats``, ``test_rows``, and the places
        ``data`` and ``page``; and a section ``[tables.NAME]`` for each table: ``title``,
        ``published``, ``path``, ``target`` and ``sensitive``; ``drop``, ``clusters``, ``missing``,
        ``at_least`` and ``edges`` if needed. What people conclude, in ``conclusions.md`` beside it,
        becomes part of the page; it may take numbers from the results, such as
        ``{{ natural.Split.coverage }}``.
    out : path, default="benchmark"
        Folder for results.
    jobs, engine, console
        As in :func:`reproduce`.
    """
    path, said = Path(settings), read_settings(settings)
    page = path.parent / said.page if said.page else Path(out) / "page.md"
    methods = _check(said, path.parent)
    tables = [find_table(table, path.parent / said.data) for table in said.tables]
    check_engine(engine, jobs)  # before anything is written
    data = [file for table in tables for file in files_of(table.path)]
    notes = [path, *path.parent.glob("*.md")]
    check_outputs({Path(out), page, page.with_suffix("")}, inputs=[*notes, *data])
    cells = _cells(said, tables, methods)
    if said.page:  # one that cannot be written is refused now, not after hours
        make_folder(page.parent)
        check_output(page)
    store = Store.open(out)
    with kept_if_stopped():
        run_cells(cells, store, jobs=jobs, engine=engine, console=console)
        results = collect([(cell, _names(cell)) for cell in cells], store)
        results = results.sort_values(KEYS, kind="stable", ignore_index=True)
        results = results[[*KEYS, *results.columns.drop(KEYS)]].assign(version=version("fareg"))
        text = results.to_csv(index=False, float_format="%.5g")
        tidy = [write_file(own / RESULTS, text) for own in (store.folder, page.with_suffix(""))]
        files = [*tidy, *write_page(results, said.tables, path.parent, page)]
        return Benchmark(store.folder, results, files)


def _check(said: Settings, folder: Path) -> list[Method]:
    """Check what is compared, and return the methods; files of some are in ``folder``."""
    for key, names in {"models": MODELS, "labels": LABELS}.items():
        for name in getattr(said, key):
            check_choice(key, name, names)
    for name in said.scores:
        get_score(name)
    for n in said.sizes:
        check_count("sizes", n, minimum=100)
    check_count("repeats", said.repeats)
    check_count("test_rows", said.test_rows, minimum=MIN_CELL)
    return find_methods(said.methods, folder)


def _cells(said: Settings, tables: list[Table], methods: list[Method]) -> list[MethodCell]:
    """Return every method with every score on every problem, as far as that makes sense."""
    cells: dict[MethodCell, None] = {}  # two sizes may both be more than a table has
    for table in tables:
        n_rows = len(read_people(table).y)
        most = int(FIT_SHARE * n_rows)  # enough of a small table is left for testing
        if most < 100:
            raise InvalidInputError(f"{table.name} has {n_rows} rows with a label, 170 are needed")
        for seed, size, model, labels, score, method in product(
            range(said.repeats), said.sizes, said.models, said.labels, said.scores, methods
        ):
            n = min(size, most)
            problem = TableProblem(table, labels, model, n, seed, min(said.test_rows, n_rows - n))
            # some methods know few scores, and an oracle needs a group that is known
            knows = score in getattr(class_of(method), "scores", (score,))
            if knows and (method.kind != "oracle" or labels == "noise"):
                cells[MethodCell(problem, method, score)] = None
    if not cells:
        raise InvalidInputError(
            "nothing can be compared; name at least one model, score, kind of labels and size, and "
            "a method that goes with them"
        )
    return list(cells)


def _names(cell: MethodCell) -> dict[str, Any]:
    own = cell.problem
    setting = (own.table.name, own.labels, own.model, cell.score, own.n, own.seed)
    return dict(zip(KEYS, (*setting, cell.method.name), strict=True))
