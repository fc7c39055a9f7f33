"""Compare methods on published tables: from settings to one tidy file and a page."""

from __future__ import annotations

from collections.abc import Sequence
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
from fareg.experiments._measures import MIN_CELL
from fareg.experiments._methods import CLASSIFIERS, class_of, find_methods
from fareg.experiments._page import SETTING, write_page
from fareg.experiments._runs import MethodCell, collect, run_cells
from fareg.experiments._settings import Method, content_hash
from fareg.experiments._store import Store, make_folder, write_file
from fareg.experiments._tables import (
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
        """Return the same in plain types."""
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
    page_only: bool = False,
    jobs: int | None = None,
    engine: str = "local",
    console: Console | None = None,
) -> Benchmark:
    """Compare methods on tables and write one tidy file, a page and its figures.

    Finished work is stored at once: a run that was stopped continues where it stopped. Rows of
    earlier runs in the same folder, with other methods or sizes, stay in the tidy file.

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
        becomes part of the page; it may
        take numbers from the results, such as ``{{ natural.Split.coverage }}``.
    out : path, default="benchmark"
        Folder for results.
    page_only : bool, default=False
        Write the page of earlier results; run nothing.
    jobs, engine, console
        As in :func:`reproduce`.
    """
    path, said = Path(settings), read_settings(settings)
    page = path.parent / said.page if said.page else Path(out) / "page.md"
    if page_only:
        earlier = Path(out) / RESULTS
        if not earlier.is_file():
            raise InvalidInputError(f"{earlier} is not there; run the benchmark first")
        _check_files(path, (), out, page)
        results = _read(earlier)
        return Benchmark(Path(out), results, _write(results, said, path.parent, Path(out), page))
    methods = _check(said, path.parent)
    tables = [find_table(table, path.parent / said.data) for table in said.tables]
    check_engine(engine, jobs)  # before anything is written
    _check_files(path, tables, out, page)
    if said.page:  # one that cannot be written is refused now, not after hours
        make_folder(page.parent)
        check_output(page)
    store = Store.open(out)
    cells = _cells(said, tables, methods, store)
    with kept_if_stopped():
        run_cells(cells, store, jobs=jobs, engine=engine, console=console)
        labelled = [(cell, _labels(cell)) for cell in cells]
        new = collect(labelled, store).assign(version=version("fareg"))
        results = _with_earlier(new, store.folder / RESULTS)
        return Benchmark(
            store.folder, results, _write(results, said, path.parent, store.folder, page)
        )


def _check(said: Settings, folder: Path) -> list[Method]:
    """Check what is compared, and return the methods; files of some are in ``folder``."""
    for name in said.models:
        check_choice("models", name, MODELS)
    for name in said.labels:
        check_choice("labels", name, LABELS)
    for name in said.scores:
        get_score(name)
    for n in said.sizes:
        check_count("sizes", n, minimum=100)
    check_count("repeats", said.repeats)
    check_count("test_rows", said.test_rows, minimum=MIN_CELL)
    return find_methods(said.methods, folder)


def _check_files(path: Path, tables: Sequence[Table], out: str | Path, page: Path) -> None:
    """Refuse results that could replace the settings, a table, or what is said about them."""
    said = [path, *path.parent.glob("*.md")]
    data = [file for table in tables for file in files_of(Path(table.path))]
    check_outputs({Path(out), page, page.with_suffix("")}, inputs=[*said, *data])


def _cells(
    said: Settings, tables: Sequence[Table], methods: Sequence[Method], store: Store
) -> list[MethodCell]:
    """Return every method with every score on every problem, as far as that makes sense."""
    n_rows = {table: _rows_with_label(table, store) for table in tables}
    seeds = range(said.repeats)
    problems = [
        TableProblem.of(table, n_rows[table], labels, model, n, seed, said.test_rows)
        for table, seed, n, model, labels in product(
            tables, seeds, said.sizes, said.models, said.labels
        )
    ]
    possible = (
        MethodCell(problem, method, score)
        for problem, score, method in product(problems, said.scores, methods)
        if _makes_sense(method, problem, score)
    )
    cells = list(dict.fromkeys(possible))  # two sizes may both be more than a table has
    if not cells:
        raise InvalidInputError(
            "nothing can be compared; name at least one model, score, kind of labels and size, and "
            "a method that goes with them"
        )
    return cells


def _makes_sense(method: Method, problem: TableProblem, score: str) -> bool:
    """Tell whether a method can enter: an oracle needs a known group, some know few scores."""
    if method.kind == "oracle":
        return problem.labels == "noise"
    is_ours = method.kind in CLASSIFIERS or method.kind == "matched"
    return is_ours or score in getattr(class_of(method), "scores", (score,))


def _rows_with_label(table: Table, store: Store) -> int:
    """Return how many rows a table has; a finished benchmark need not read it to know."""
    key = content_hash("rows with a label", table)
    known = store.once(key, lambda: pd.DataFrame({"rows": [len(read_people(table).y)]}))
    return int(known["rows"].iloc[0])


def _labels(cell: MethodCell) -> dict[str, Any]:
    own = cell.problem
    setting = (own.table.name, own.labels, own.model, cell.score, own.n, own.seed)
    return dict(zip(KEYS, (*setting, cell.method.name), strict=True))


def _with_earlier(results: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Add the rows of earlier runs; where both have a row, the new one counts."""
    if path.is_file():
        results = pd.concat([_read(path), results], ignore_index=True)
        results = results.drop_duplicates(KEYS, keep="last")
    results = results.sort_values(KEYS, kind="stable", ignore_index=True)
    return results[[*KEYS, *results.columns.drop(KEYS)]]


def _read(path: Path) -> pd.DataFrame:
    # A table may be called 2018, and a method NA.
    texts = dict.fromkeys(["error", "version", *KEYS], "str") | {"n": "int", "seed": "int"}
    results = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=texts)
    return results.assign(error=results["error"].fillna(""))


def _write(
    results: pd.DataFrame, said: Settings, notes: Path, folder: Path, page: Path
) -> list[Path]:
    """Write the tidy file, and the page with its own copy of it."""
    text = results.to_csv(index=False, float_format="%.5g")
    tidy = [write_file(place / RESULTS, text) for place in (folder, page.with_suffix(""))]
    return [*tidy, *write_page(results, said.tables, notes, page)]
