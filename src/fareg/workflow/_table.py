"""A table in a file or a folder: opened once, read whole, by a sample or in batches."""

from __future__ import annotations

import csv
import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
from pyarrow import types

from fareg._columns import check_columns
from fareg._files import AnyPath, check_output, check_readable, replacing
from fareg._validation import IntArray, InvalidInputError, check_count, warn
from fareg._words import CSV, PARQUET, TABLE, first_line
from fareg.workflow._csv import CsvFile, check_unique, opened_text, safe_cells
from fareg.workflow._values import as_kinds, values_of

BATCH = 1 << 16  # rows that are decoded at a time
MAX_ROWS = 1_000_000
NO_MEMORY = ("out of memory", "Failed to launch worker thread")  # as pandas and Arrow say it
NOWHERE = "__HIVE_DEFAULT_PARTITION__"  # what a folder of missing values is called
Progress = Callable[[str], None]  # called with each stage of the work when it begins
Stamp = dict[Path, tuple[int, int, int]]  # inode, size and time of change of each file


def quiet(stage: str) -> None:
    """Show no progress."""


class Table:
    """A CSV or Parquet file, or a folder of Parquet files, whose folders may name columns.

    It is opened once, in a ``with`` block, and must stay as it is until the block ends. Texts of a
    CSV file and in names of folders become values in :func:`values_of`, and nowhere else. Rows are
    numbered from 0, in a folder through its parts in their order.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "people.csv")
    >>> _ = path.write_text("age,code,y\\n40,007,a\\n50,,b\\n")
    >>> with Table(path) as table:
    ...     print(table.names, table.read(columns=["age", "code"]).to_dict("list"))
    ['age', 'code', 'y'] {'age': [40, 50], 'code': ['007', nan]}
    """

    def __init__(self, path: AnyPath, *, root: Path | None = None) -> None:
        self.source = Path(path)
        self.is_csv = not is_parquet(self.source)
        if self.source.is_dir():
            root = self.source
            self.parts = [root / part for part in folder_parts(root)]
        else:
            self.parts = [check_readable(self.source)]
        self.given = {part: _folder_values(part, root) for part in self.parts}
        self._stack = ExitStack()

    def __enter__(self) -> Table:
        self._stamp = stamp(self.source)
        with reading(self.source), ExitStack() as stack:
            self._file = self._opened(self.parts[0], stack)
            further = (name for given in self.given.values() for name in given)
            self.names = list(dict.fromkeys([*self._file.names, *further]))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    @contextmanager
    def _steady(self) -> Iterator[None]:
        """Refuse a file or folder that changes, also if it cannot be read because of that."""
        try:
            yield
        except InvalidInputError:
            self.check_unchanged()
            raise
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Refuse a file or folder that was changed or replaced since it was opened."""
        if stamp(self.source) != self._stamp:
            raise InvalidInputError(
                f"{self.source} changed while it was read, so nothing is written; run the command "
                "again when no other program writes to it"
            )

    def check_columns(self, wanted: Sequence[str]) -> None:
        """Refuse columns that the table does not have."""
        check_columns(list(wanted), self.names, str(self.source))

    def read(
        self,
        columns: Sequence[str] | None = None,
        *,
        labels: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        max_rows: int | None = None,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Return the rows, or an exact sample of them; texts are categories.

        ``kinds`` fixes what columns hold; the texts of ``labels`` stay texts. If there are more
        than ``max_rows``, as many are drawn without replacement, and every set of so many rows is
        equally probable. The index numbers the rows.
        """
        wanted = self.names if columns is None else list(dict.fromkeys(columns))
        self.check_columns(wanted)
        with self._steady():
            rows = None if max_rows is None else self._sample(max_rows, seed)
            frame = self._frame(self._table(wanted, rows, labels), labels, kinds or {})
        return frame if rows is None else frame.set_index(pd.Index(rows))

    def _sample(self, max_rows: int, seed: int) -> Any:
        """Return the numbers of rows drawn at random, None for all."""
        if self.is_csv:
            with reading(self.source):
                n = self._file.count()
        else:
            n = sum(map(n_rows, self.parts))
        if n <= check_count("max_rows", max_rows):
            return None
        warn(f"{self.source} has {n} rows, of which {max_rows} were drawn at random")
        return draw_rows(n, max_rows, check_count("seed", seed, minimum=0))

    def batches(
        self,
        kinds: Mapping[str, str],
        size: int,
        *,
        keep: Sequence[str] = (),
        labels: Sequence[str] = (),
    ) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """Yield so many rows at a time: the columns ``kinds``, and those to ``keep`` as they are.

        With its kind, a value has one form, whichever rows come with it.
        """
        wanted = list(dict.fromkeys([*kinds, *keep]))
        self.check_columns(wanted)
        with self._steady():
            for batch in filter(len, self._batches(wanted, size)):
                frame = self._frame(batch.select(list(kinds)), labels, kinds)
                kept = {
                    name: batch[name].to_pandas()
                    if self.is_csv
                    else pd.array(batch[name], dtype=pd.ArrowDtype(batch[name].type))
                    for name in keep
                    if name not in self._folders()  # the folder says it
                }
                copied = pd.DataFrame(kept, index=range(len(batch)))
                yield as_kinds(frame, kinds, str(self.source)), copied

    def copy(
        self,
        rows: Any,
        out: AnyPath,
        *,
        labels: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        safe_csv: bool = False,
    ) -> None:
        """Write rows, by their numbers in order, to a file whose ending says the format.

        In the format of the source they stay as they stand. From CSV to Parquet, columns have the
        types in which :meth:`read` reads them; CSV keeps no types.
        """
        with self._steady():
            table = self._table(self.names, np.sort(np.asarray(rows)))
        if self.is_csv and not is_parquet(out):
            frame = table.to_pandas()
        elif self.is_csv:
            frame = self._frame(table, labels, kinds or {})
        else:  # whole numbers with missing ones stay whole
            frame = table.to_pandas(types_mapper=pd.ArrowDtype)
            for name in self._folders():
                frame[name] = values_of(table[name], name, (kinds or {}).get(name))
        with table_writer(out, safe_csv=safe_csv) as append:
            append(frame)

    def _opened(self, part: Path, stack: ExitStack) -> Any:
        file = CsvFile(part) if self.is_csv else ParquetFile(part)
        stack.callback(file.close)
        if twice := [name for name in self.given[part] if name in file.names]:
            raise InvalidInputError(
                f"column {twice[0]} stands both in {part} and in the name of its folder; rename "
                "the folder, or leave the column out of the files"
            )
        return file

    def _batches(self, columns: list[str], size: int, rows: Any = None) -> Iterator[Any]:
        """Yield Arrow tables of all rows, or of those with the sorted numbers ``rows``."""
        first = 0
        for part in self.parts:
            given, own = self.given[part], rows
            with reading(part), ExitStack() as stack:
                file = self._file if part == self.parts[0] else self._opened(part, stack)
                stored = [name for name in columns if name not in given]
                check_columns(stored, file.names, str(part))
                if rows is not None and file.n_rows is not None:
                    own = rows[slice(*np.searchsorted(rows, [first, first + file.n_rows]))] - first
                    first += file.n_rows
                for start, batch in file.batches(stored, size, own):
                    if own is not None:
                        low, high = np.searchsorted(own, [start, start + len(batch)])
                        batch = batch.take(own[low:high] - start)
                    arrays = {
                        name: pyarrow.array([given[name]] * len(batch), pyarrow.large_string())
                        if name in given
                        else batch[name]
                        for name in columns
                    }
                    yield pyarrow.table(arrays)

    def _table(self, columns: list[str], rows: Any, labels: Sequence[str] | None = None) -> Any:
        """Return rows as one Arrow table; stored texts are coded, apart from those of labels."""
        batches = self._batches(columns, BATCH, rows)
        if labels is not None and not self.is_csv:
            batches = (_coded(batch, {*labels, *self._folders()}) for batch in batches)
        tables = [batch for batch in batches if len(batch)]
        if not tables:
            raise InvalidInputError(f"{self.source} has no rows; check that it is the right file")
        try:
            return pyarrow.concat_tables(tables, promote_options="permissive")
        except pyarrow.ArrowException as error:
            raise InvalidInputError(
                f"the parts of {self.source} hold columns of different types "
                f"({first_line(error)}); write them alike"
            ) from error

    def _folders(self) -> set[str]:
        """Return the columns that the names of folders give."""
        return {name for given in self.given.values() for name in given}

    def _frame(self, table: Any, labels: Sequence[str], kinds: Mapping[str, str]) -> pd.DataFrame:
        """Return an Arrow table as a frame, its written texts as what they spell."""
        names = table.column_names
        written = set(names if self.is_csv else self._folders().intersection(names))
        values = {
            name: values_of(table[name], name, kinds.get(name), label=name in labels)
            for name in names
            if name in written
        }
        # Each column is freed as soon as it is converted.
        options = {"date_as_object": False, "split_blocks": True, "self_destruct": True}
        stored = table.select([name for name in names if name not in written])
        del table
        frame = stored.to_pandas(**options) if stored.column_names else pd.DataFrame()
        del stored
        return frame.assign(**values)[names] if written else frame


class ParquetFile:
    """An open Parquet file, apart from an index that pandas stored in it."""

    def __init__(self, source: Path) -> None:
        # With pre_buffer, pyarrow would keep everything that it has read in memory.
        self.file = pyarrow.parquet.ParquetFile(source, pre_buffer=False)
        schema, self.close = self.file.schema_arrow, self.file.close
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        self.names = [str(name) for name in schema.names if name not in index]
        self.n_rows = int(self.file.metadata.num_rows)
        check_unique(self.names, source)

    def batches(self, columns: list[str], size: int, rows: Any) -> Iterator[tuple[int, Any]]:
        """Yield batches and where they start; row groups without any of ``rows`` are not read."""
        if rows is None:
            groups = [list(range(self.file.num_row_groups))]
        else:
            groups = [[group] for group in range(self.file.num_row_groups)]
        first = 0
        for some in groups:
            n = sum(self.file.metadata.row_group(group).num_rows for group in some)
            if rows is None or np.diff(np.searchsorted(rows, [first, first + n]))[0]:
                start = first
                for batch in self.file.iter_batches(size, row_groups=some, columns=columns):
                    yield start, batch
                    start += len(batch)
            first += n


def _coded(table: Any, apart: set[str]) -> Any:
    """Return an Arrow table whose texts are codes of their distinct values."""

    def code(column: Any) -> Any:
        if types.is_dictionary(column.type):  # its dictionary may hold values of other rows
            column = column.cast(column.type.value_type)
        is_text = (types.is_string, types.is_large_string, types.is_string_view)
        if not any(is_kind(column.type) for is_kind in is_text):
            return column
        return column.cast(pyarrow.large_string())

    columns = {name: code(table[name]) for name in table.column_names}
    return pyarrow.table(
        {
            name: column.dictionary_encode()
            if types.is_large_string(column.type) and name not in apart
            else column
            for name, column in columns.items()
        }
    )


def read_table(path: AnyPath, **options: Any) -> pd.DataFrame:
    """Read a table; the options are those of :meth:`Table.read`."""
    with Table(path) as table:
        return table.read(**options)


def table_columns(path: AnyPath) -> list[str]:
    """Return the names of a table's columns without reading its rows."""
    with Table(path) as table:
        return list(table.names)


def n_rows(part: Path) -> int:
    """Return the number of rows of a Parquet file."""
    with reading(check_readable(part)):
        return int(pyarrow.parquet.read_metadata(part).num_rows)


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
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    parts = [path.relative_to(folder) for path in paths]
    parts = [part for part in parts if not any(name[0] in "._" for name in part.parts)]
    strange = [part for part in parts if not part.name.lower().endswith(PARQUET)]
    if strange:
        raise InvalidInputError(f"{folder} must hold Parquet files only, got {strange[0]}; move it")
    if not parts:
        raise InvalidInputError(f"{folder} holds no Parquet file; check that it is the right one")
    return [part.as_posix() for part in parts]


def _folder_values(part: Path, root: Path | None) -> dict[str, str | None]:
    """Return what folders named ``name=value`` between root and file give its rows, as text."""
    steps = [] if root is None else part.relative_to(root).parent.parts
    pairs = [step.partition("=") for step in steps if "=" in step]
    return {unquote(n): None if text == NOWHERE else unquote(text) for n, _, text in pairs}


def stamp(source: Path) -> Stamp:
    """Note what a file, or each file of a folder, is now."""
    files = [source / part for part in folder_parts(source)] if source.is_dir() else [source]
    stats = [(file, file.stat()) for file in files if file.exists()]
    return {file: (own.st_ino, own.st_size, own.st_mtime_ns) for file, own in stats}


@contextmanager
def table_writer(
    path: AnyPath, notes: Mapping[str, str] | None = None, *, safe_csv: bool = False
) -> Iterator[Any]:
    """Yield a function that appends frames to a file which appears when all is written.

    A Parquet file holds the ``notes`` too, for :func:`notes_of`. With ``safe_csv``, no cell of a
    CSV file is a formula.
    """
    check_safe_csv(path, safe_csv)
    as_parquet = is_parquet(check_output(path))
    with replacing(path) as temporary, ExitStack() as stack:
        if as_parquet:
            yield _parquet_appender(temporary, stack, notes)
        else:
            file = stack.enter_context(opened_text(temporary, "xt", like=path))
            made = safe_cells if safe_csv else lambda frame: frame
            yield lambda frame: made(frame).to_csv(file, index=False, header=file.tell() == 0)


def check_safe_csv(path: AnyPath | None, safe_csv: bool) -> None:
    """Refuse safe cells of a file in which no spreadsheet looks for formulas."""
    if safe_csv and (path is None or Path(path).name.lower().endswith(PARQUET)):
        got = "none" if path is None else path
        raise InvalidInputError(
            f"safe cells are for a CSV file to write, got {got}; leave that option out, or write a "
            "CSV file"
        )


def _parquet_appender(path: Path, stack: ExitStack, notes: Mapping[str, str] | None) -> Any:
    """Return a function that appends frames to a Parquet file; the stack closes it."""
    writer: Any = None

    def append(frame: pd.DataFrame) -> None:
        nonlocal writer
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        table = table.replace_schema_metadata(notes)  # pandas cannot read all that it notes itself
        if writer is None:  # the first frame tells the types of all
            writer = stack.enter_context(pyarrow.parquet.ParquetWriter(path, table.schema))
        writer.write_table(table.cast(writer.schema))

    return append


def notes_of(path: Path) -> dict[str, str]:
    """Return the notes in a Parquet file."""
    notes = pyarrow.parquet.read_schema(path).metadata or {}
    return {name.decode(): text.decode() for name, text in notes.items()}


def is_parquet(path: AnyPath) -> bool:
    """Tell Parquet from CSV by the name of the file; a folder is one of Parquet files."""
    name = Path(path).name.lower()
    if name.endswith(PARQUET) or Path(path).is_dir():
        return True
    if name.endswith(CSV):
        return False
    raise InvalidInputError(f"{path} must end in {TABLE}, so that its format is known")


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """Turn what readers say about damaged files into one sentence."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{source} is not UTF-8 (byte 0x{error.object[error.start]:02x}); save it as UTF-8, "
            f"for example: iconv -f latin1 -t utf-8 {source.name} > converted.csv"
        ) from error
    except (InvalidInputError, MemoryError):
        raise
    except (ValueError, csv.Error, pyarrow.ArrowException, OSError, EOFError) as error:
        is_memory = any(words in str(error) for words in NO_MEMORY)
        if is_memory or getattr(error, "errno", None) == errno.ENOMEM:
            raise MemoryError from error
        reason = first_line(error).rstrip(".")
        raise InvalidInputError(
            f"{source} cannot be read as Parquet, it is damaged or in another format ({reason}); "
            "write it again, or name it after its format"
            if is_parquet(source)
            else f"{source} cannot be read as CSV ({reason}); save it again as CSV in UTF-8"
        ) from error
