"""Parquet files and folders of them: parts, folders that are columns, and rows, all or a sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow

from fareg._columns import check_columns, spelled_numbers
from fareg._engines import run_tasks
from fareg._files import AnyPath, check_readable
from fareg._rows import hash_key
from fareg._validation import IntArray, InvalidInputError, check_count, warn
from fareg._words import PARQUET, first_line
from fareg.workflow._formats import check_unique, is_parquet, reading

BATCH = 1 << 16  # rows that are decoded at a time
MAX_ROWS = 1_000_000
FLAGS = ("true", "false")  # as folders of flags are named


@dataclass(frozen=True)
class Sampling:
    """How many rows of a folder are read, which ones, and where."""

    max_rows: int = MAX_ROWS  # if a folder has more, this many are drawn without replacement
    seed: int = 0
    engine: str = "local"  # with "dask", each worker reads its share of the same rows
    scheduler: str | None = None  # address of a running one; None starts a cluster on this machine

    def apart(self) -> Sampling:
        """Return the sampling of other rows with this seed, independent of the rows drawn here."""
        return replace(self, seed=hash_key(self.seed))


def draw_rows(n_rows: int, n_wanted: int, seed: int) -> IntArray:
    """Return the sorted numbers of rows drawn uniformly without replacement, in O(n_wanted) memory.

    Rows are drawn with replacement until enough of them are distinct. No row is treated unlike
    another, so every set of ``n_wanted`` rows is equally probable.

    >>> draw_rows(10, 4, seed=0).tolist()
    [2, 5, 6, 8]
    """
    if n_wanted >= n_rows:
        return np.arange(n_rows, dtype=np.int64)
    if n_wanted > n_rows / 2:  # the few rows that stay out are drawn faster
        return np.setdiff1d(np.arange(n_rows), draw_rows(n_rows, n_rows - n_wanted, seed), True)
    rng = np.random.default_rng(seed)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < n_wanted:
        drawn = np.union1d(drawn, rng.integers(n_rows, size=n_wanted - len(drawn)))
    return drawn


def folder_parts(folder: Path) -> list[str]:
    """Return the Parquet files in a folder and below it, by their path in it, in order.

    Names that begin with a dot or an underscore are skipped: by custom, such files hold no rows.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"{folder} must be a folder of Parquet files, it is none")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    parts = [path.relative_to(folder) for path in paths]
    parts = [part for part in parts if not any(name[0] in "._" for name in part.parts)]
    strange = [part for part in parts if not part.name.lower().endswith(PARQUET)]
    if strange:
        raise InvalidInputError(f"{folder} must hold Parquet files only, got {strange[0]}; move it")
    if not parts:
        raise InvalidInputError(f"{folder} holds no Parquet file; check that it is the right one")
    return [part.as_posix() for part in parts]


def folder_values(path: Path, root: Path | None, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns that folders named ``name=value`` between root and file give its rows.

    Values are texts, apart from those of numbers that spell one, or ``true`` or ``false``.
    """
    if root is None:
        return {}
    from pyarrow import dataset

    schema = pyarrow.schema((name, pyarrow.string()) for name in kinds)
    below = path.relative_to(root).as_posix()
    texts = dataset.get_partition_keys(dataset.partitioning(schema, flavor="hive").parse(below))
    return {n: _spelled(t, kinds[n]) for n, t in texts.items()}


def _spelled(text: str | None, kind: str = "number") -> float | str | None:
    """Return the number that a text spells, or the text, with flags as columns hold them."""
    if text is None or text.lower() in FLAGS:
        return None if text is None else text.capitalize()
    number = float(spelled_numbers([text])[0]) if kind == "number" else np.nan
    return text if np.isnan(number) else number


def folder_kinds(root: Path, parts: Sequence[str]) -> dict[str, str]:
    """Return the columns that the names of folders give.

    They are "number" if all values are numbers, or else "text".
    """
    steps = [step for part in parts for step in Path(part).parent.parts if "=" in step]
    texts = dict.fromkeys((step.partition("=")[0] for step in steps), "text")
    found = [folder_values(root / part, root, texts) for part in parts] if texts else []
    kinds = {}
    for name in texts:
        types = {type(_spelled(row[name])) for row in found if row.get(name) is not None}
        kinds[name] = "number" if types <= {float} else "text"
    return kinds


def count_rows(path: AnyPath) -> int | None:
    """Return the number of rows if the file or folder says it at once, as Parquet does."""
    if Path(path).is_dir():
        return sum(count_rows(Path(path, part)) or 0 for part in folder_parts(Path(path)))
    if not is_parquet(path):
        return None
    import pyarrow.parquet

    with reading(check_readable(path)):
        return int(pyarrow.parquet.ParquetFile(path).metadata.num_rows)


def parquet_columns(path: Path) -> list[str]:
    """Return the columns of a file, or those of the first part of a folder and of its folders.

    An index that pandas stored in the file is left out.
    """
    import pyarrow.parquet

    if path.is_dir():
        parts = folder_parts(path)
        return list(dict.fromkeys([*parquet_columns(path / parts[0]), *folder_kinds(path, parts)]))
    with reading(check_readable(path)):
        schema = pyarrow.parquet.read_schema(path)
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        names = [str(name) for name in schema.names if name not in index]
    check_unique(names, path)
    return names


def open_parquet(path: Path, columns: Sequence[str] | None, given: Mapping[str, Any]) -> Any:
    """Return an open file, which must not hold the ``given`` columns of its folders.

    Together they must have ``columns``, if any are named.
    """
    import pyarrow.parquet

    # With pre_buffer, pyarrow would keep everything that it has read in memory.
    file = pyarrow.parquet.ParquetFile(path, pre_buffer=False)
    names = [str(name) for name in file.schema_arrow.names]
    check_unique(names, path)
    twice = [name for name in given if name in names]
    if twice:
        raise InvalidInputError(
            f"column {twice[0]} stands both in {path} and in the name of its folder; rename the "
            "folder, or leave the column out of the files"
        )
    check_columns(columns or (), [*names, *given], str(path))
    return file


def read_parquet(
    source: Path,
    *,
    columns: Sequence[str] | None,
    labels: Sequence[str],
    sampling: Sampling | None,
) -> pd.DataFrame:
    """Return the rows of a file or a sample of those of a folder; texts are categories.

    ``name=value`` in the name of a folder is a column. Without ``columns``, those of the first part
    are read; the texts of ``labels`` stay texts. The index tells where a row stands in the file, or
    in the parts of the folder one after the other.
    """
    sampling = sampling or Sampling()
    n_rows = count_rows(source) or 0
    n_wanted = check_count("max_rows", sampling.max_rows) if source.is_dir() else n_rows
    rows = draw_rows(n_rows, n_wanted, check_count("seed", sampling.seed, minimum=0))
    columns = parquet_columns(source) if columns is None else columns
    table = arrow_rows(source, rows, columns, labels, sampling)
    # Each column is freed as soon as it is converted.
    frame = table.to_pandas(date_as_object=False, split_blocks=True, self_destruct=True)
    del table
    pyarrow.default_memory_pool().release_unused()
    if len(rows) < n_rows:
        frame.index = pd.Index(rows)
        warn(f"{source} has {n_rows} rows, of which {len(rows)} were drawn at random")
    return frame


def arrow_rows(
    source: Path,
    rows: IntArray,
    columns: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    sampling: Sampling | None = None,
) -> Any:
    """Return rows of a Parquet file or folder, by their sorted numbers, as an Arrow table.

    Texts are coded, apart from those of ``labels``; without ``labels`` columns stay as they are.
    """
    if not source.is_dir():
        return _file_rows(source, rows, columns, labels, {})
    parts, sampling = folder_parts(source), sampling or Sampling()
    starts = np.cumsum([0, *(count_rows(source / part) or 0 for part in parts)])
    bounds = np.searchsorted(rows, starts)
    tasks = [
        (number, part, rows[bounds[number] : bounds[number + 1]] - starts[number])
        for number, part in enumerate(parts)
        if bounds[number] < bounds[number + 1]
    ]
    read = partial(
        _part_rows,
        root=source.resolve(),
        columns=parquet_columns(source) if columns is None else columns,
        labels=labels,
        kinds=folder_kinds(source, parts),
    )
    found = run_tasks(
        read,
        tasks or [(0, parts[0], rows)],  # the first part tells the columns of a folder without rows
        engine=sampling.engine,
        jobs=1 if sampling.engine == "local" else None,
        scheduler=sampling.scheduler,
    )
    tables = [table for _, table in sorted(found, key=lambda pair: pair[0])]
    try:
        return pyarrow.concat_tables(tables, promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise InvalidInputError(
            f"the parts of {source} hold columns of different types ({first_line(error)}); write "
            "them alike"
        ) from error


def _part_rows(
    task: tuple[int, str, IntArray],
    root: Path,
    columns: Sequence[str],
    labels: Sequence[str] | None,
    kinds: Mapping[str, str],
) -> tuple[int, Any]:
    """Return rows of a part of a folder, and the number of the part."""
    number, part, rows = task
    given = folder_values(root / part, root, kinds)
    return number, _file_rows(root / part, rows, columns, labels, given)


def _file_rows(
    path: Path,
    rows: IntArray,
    columns: Sequence[str] | None,
    labels: Sequence[str] | None,
    given: Mapping[str, Any],
) -> Any:
    """Return rows of a Parquet file; ``given`` are columns with one value for all of them."""
    with reading(check_readable(path)):
        file = open_parquet(path, columns, given)
        wanted = file.schema_arrow.names if columns is None else list(columns)
        stored = [name for name in wanted if name not in given]
        batches = [_coded(batch, labels) for batch in _batches(file, stored, rows)]
        if not batches:
            batches = [_coded(file.schema_arrow.empty_table().select(stored), labels)]
        table = pyarrow.concat_tables(batches)
        for name in (name for name in wanted if name in given):
            value = pyarrow.array([given[name]] * len(table))
            table = table.append_column(name, _coded_column(value, name, labels))
        return table.select(wanted)


def _batches(file: Any, columns: list[str], rows: IntArray) -> Iterator[Any]:
    """Yield the given rows; row groups without any are not read, others a batch at a time."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    starts = np.cumsum([0, *sizes])
    bounds = np.searchsorted(rows, starts)
    for group in np.flatnonzero(np.diff(bounds)):
        own = rows[bounds[group] : bounds[group + 1]] - starts[group]
        first = 0
        for batch in file.iter_batches(BATCH, row_groups=[int(group)], columns=columns):
            low, high = np.searchsorted(own, [first, first + len(batch)])
            if low < high:
                yield batch if high - low == len(batch) else batch.take(own[low:high] - first)
            first += len(batch)


def _coded(batch: Any, labels: Sequence[str] | None) -> Any:
    """Return a table whose texts, apart from labels, are codes of their distinct values."""
    names = batch.schema.names
    columns = zip(names, batch.columns, strict=True)
    return pyarrow.table([_coded_column(column, name, labels) for name, column in columns], names)


def _coded_column(column: Any, name: str, labels: Sequence[str] | None) -> Any:
    from pyarrow import types

    if labels is None:
        return column
    if types.is_dictionary(column.type):  # its dictionary may hold values of other rows
        column = column.cast(column.type.value_type)
    kinds = (types.is_string, types.is_large_string, types.is_string_view)
    if not any(is_kind(column.type) for is_kind in kinds):
        return column
    column = column.cast(pyarrow.large_string())
    return column if name in labels else column.dictionary_encode()
