"""Compare methods on a folder of tables: from names to one tidy file and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from fareg._engines import check_engine
from fareg._files import check_output, check_outputs, kept_if_stopped
from fareg._validation import InvalidInputError, check_choice, check_count
from fareg.experiments._config import content_hash
from fareg.experiments._runner import run_cells
from fareg.experiments._store import Store, make_folder, write_file
from fareg.experiments.arena._contests import BASE_MODELS, FIT_SHARE, LABELS, Contest
from fareg.experiments.arena._measures import MIN_CELL
from fareg.experiments.arena._page import write_page
from fareg.experiments.arena._rows import ArenaCell, find_methods, makes_sense
from fareg.experiments.arena._summary import SETTING
from fareg.experiments.arena._tables import Table, define_tables, files_of, find_table, read_people
from fareg.scores import get_score

RESULTS = "results.csv"
KEYS = (*SETTING, "method")


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
    tables: str | Path,
    *,
    out: str | Path = "benchmark",
    data: str | Path | None = None,
    only: Sequence[str] = (),
    methods: Sequence[str] = (),
    models: Sequence[str] = ("hgb", "logistic"),
    scores: Sequence[str] = ("aps", "lac"),
    labels: Sequence[str] = LABELS,
    sizes: Sequence[int] = (4000,),
    repeats: int = 3,
    test_rows: int = 5000,
    page: str | Path | None = None,
    jobs: int | None = None,
    engine: str = "local",
    scheduler: str | None = None,
    console: Console | None = None,
) -> Benchmark:
    """Compare methods on tables and write one tidy file, a page and its figures.

    Finished work is stored at once: a run that was stopped continues where it stopped. Rows of
    earlier runs in the same folder, with other methods or sizes, stay in the tidy file.

    Parameters
    ----------
    tables : path
        Folder of TOML files, one per table: ``title``, ``published``, ``path``, ``target`` and
        ``sensitive``; ``drop``, ``clusters``, ``missing``, ``at_least`` and ``edges`` if needed.
    out : path, default="benchmark"
        Folder for results.
    data : path, default=None
        Folder that the paths in the TOML files start from; None for their own.
    only : sequence of str, default=()
        Names of TOML files; none for all.
    methods : sequence of str, default=()
        Names of methods, or ``module:Class`` for a class with the constructor
        ``Class(estimator, *, confidence_level, conformity_score, sensitive_features,
        random_state)`` and the methods ``fit(X, y)`` and ``predict_set(X)``; none for all of
        fareg's.
    models : sequence of {"hgb", "logistic", "network"}, default=("hgb", "logistic")
        Base models; each is trained once per table, size and seed for all methods and scores.
    scores : sequence of str, default=("aps", "lac")
    labels : sequence of {"natural", "noise"}, default=("natural", "noise")
        Labels as they are, or with noise in a random group, which the oracle knows.
    sizes : sequence of int, default=(4000,)
        Rows that train and calibrate, half each; at most 60% of a table.
    repeats : int, default=3
        How many seeds, 0, 1, and so on.
    test_rows : int, default=5000
        The most rows that test.
    page : path, default=None
        Markdown file to write; None for ``page.md`` in ``out``. What people conclude, in
        ``conclusions.md`` beside the TOML files, becomes part of it.
    jobs, engine, scheduler, console
        As in ``reproduce``.
    """
    for name in models:
        check_choice("models", name, BASE_MODELS)
    for name in labels:
        check_choice("labels", name, LABELS)
    for name in scores:
        get_score(name)
    for n in sizes:
        check_count("sizes", n, minimum=100)
    check_count("repeats", repeats)
    check_count("test_rows", test_rows, minimum=MIN_CELL)
    wanted = find_methods(methods)
    root = Path(tables) if data is None else Path(data)
    found = [find_table(table, root) for table in define_tables(tables, only)]
    check_engine(engine, jobs, scheduler)  # before anything is written
    _check_files(tables, found, out, page)
    if page is not None:  # one that cannot be written is refused now, not after hours
        make_folder(Path(page).parent)
        check_output(page)
    store = Store.open(out)
    n_rows = {table: _rows_with_label(table, store) for table in found}
    contests = [
        _contest(table, n_rows[table], label, model, n, seed, test_rows)
        for table, seed, n, model, label in product(found, range(repeats), sizes, models, labels)
    ]
    possible = (
        ArenaCell(contest, score, method)
        for contest, score, method in product(contests, scores, wanted)
        if makes_sense(method, contest, score)
    )
    cells = list(dict.fromkeys(possible))  # two sizes may both be more than a table has
    if not cells:
        raise InvalidInputError(
            "nothing can be compared; name at least one model, score, kind of labels and size, and "
            "a method that goes with them"
        )
    with kept_if_stopped():
        run_cells(cells, store, jobs=jobs, engine=engine, scheduler=scheduler, console=console)
        results = _with_earlier(_collect(cells, store), store.folder / RESULTS)
        return Benchmark(store.folder, results, write_files(results, tables, store.folder, page))


def page_of(tables: str | Path, out: str | Path, page: str | Path | None = None) -> Benchmark:
    """Write the page of a folder of results again, without its tables."""
    path = Path(out) / RESULTS
    if not path.is_file():
        raise InvalidInputError(f"{path} is not there; run the benchmark first")
    _check_files(tables, (), out, page)
    results = _read(path)
    return Benchmark(Path(out), results, write_files(results, tables, Path(out), page))


def _check_files(
    tables: str | Path, found: Sequence[Table], out: str | Path, page: str | Path | None
) -> None:
    """Refuse results that could replace a table, or what is said about it."""
    page = Path(out) / "page.md" if page is None else Path(page)
    said = [path for ending in ("toml", "md") for path in Path(tables).glob(f"*.{ending}")]
    data = [path for table in found for path in files_of(Path(table.path))]
    check_outputs({Path(out), page, page.with_suffix("")}, inputs=[*said, *data])


def write_files(
    results: pd.DataFrame, tables: str | Path, folder: Path, page: str | Path | None
) -> list[Path]:
    """Write the tidy file, and the page with its own copy of it."""
    page = folder / "page.md" if page is None else Path(page)
    text = results.to_csv(index=False, float_format="%.5g")
    tidy = [write_file(place / RESULTS, text) for place in (folder, page.with_suffix(""))]
    return [*tidy, *write_page(results, define_tables(tables), Path(tables), page)]


def _rows_with_label(table: Table, store: Store) -> int:
    """Return how many rows a table has; a finished benchmark need not read it to know."""
    key = content_hash("rows with a label", table)
    known = store.once(key, lambda: pd.DataFrame({"rows": [len(read_people(table).y)]}))
    return int(known["rows"].iloc[0])


def _contest(
    table: Table, n_rows: int, labels: str, model: str, n: int, seed: int, test_rows: int
) -> Contest:
    """Return a contest that leaves enough of a small table for testing."""
    n = min(n, int(FIT_SHARE * n_rows))
    if n < 100:
        raise InvalidInputError(f"{table.name} has {n_rows} rows with a label, 170 are needed")
    return Contest(table, labels, model, n, seed, min(test_rows, n_rows - n))


def _collect(cells: Sequence[ArenaCell], store: Store) -> pd.DataFrame:
    """Return the rows of the cells with what they are about."""
    frames = []
    for cell in cells:
        own = cell.problem
        setting = (own.table.name, own.labels, own.model, cell.score, own.n, own.seed)
        about: dict[str, Any] = dict(zip(KEYS, (*setting, cell.method.name), strict=True))
        frames.append(store.need(cell.key).assign(**about))
    results = pd.concat(frames, ignore_index=True)
    return results[[*KEYS, *results.columns.drop(list(KEYS))]]


def _with_earlier(results: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Add the rows of earlier runs; where both have a row, the new one counts."""
    if path.is_file():
        results = pd.concat([_read(path), results], ignore_index=True)
        results = results.drop_duplicates(list(KEYS), keep="last")
    return results.sort_values(list(KEYS), kind="stable", ignore_index=True)


def _read(path: Path) -> pd.DataFrame:
    # A table may be called 2018, and a method NA.
    texts = dict.fromkeys(["error", *KEYS], "str") | {"n": "int", "seed": "int"}
    results = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=texts)
    return results.assign(error=results["error"].fillna(""))
