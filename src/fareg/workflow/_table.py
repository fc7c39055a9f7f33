"""A table in a file or a folder: opened once, and read whole, as a sample or in batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet

from fareg._columns import check_columns
from fareg._files import AnyPath, check_output, check_readable, replacing
from fareg._validation import IntArray, InvalidInputError, check_count, warn
from fareg._words import PARQUET, first_line
from fareg.workflow._readers import (
    CsvFile,
    ParquetFiles,
    is_parquet,
    joined,
    opened_text,
    reading,
    sized,
)
from fareg.workflow._values import as_kinds, values_of

BATCH = 1 << 16  # rows that are decoded at a time
MAX_ROWS = 1_000_000
RUN_BY_SPREADSHEETS = tuple("=+-@\t\r\n")  # a cell that starts with these may run as a formula
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
Progress = Callable[[str], None]  # called with the name of each stage when it begins


def quiet(stage: str) -> None:
    """Show no progress."""


class Table:
    """A CSV or Parquet file, or a folder of Parquet files, whose folders may name columns.

    It is opened once, in a ``with`` block, and must not change until the block ends. Texts of CSV
    files and of folder names become values in :func:`values_of` only. Rows are numbered from 0, in
    a folder across its parts in order.

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
        self.is_csv, self._root = not is_parquet(self.source), root
        self.parts = [check_readable(self.source)] if not self.source.is_dir() else []
        if not self.parts:
            self._root, self.parts = self.source, folder_parts(self.source)

    def __enter__(self) -> Table:
        self._stamp = _stamp(self.source)
        with reading(self.source):
            self._file: CsvFile | ParquetFiles = (
                CsvFile(self.source) if self.is_csv else ParquetFiles(self.parts, self._root)
            )
        self.names = self._file.names
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    @contextmanager
    def _steady(self) -> Iterator[None]:
        """Refuse a file or folder that changes in the block, even if that made reading fail."""
        try:
            yield
        except InvalidInputError:
            self.check_unchanged()
            raise
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Refuse a file or folder that was changed or replaced since it was opened."""
        if _stamp(self.source) != self._stamp:
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
        """Return the rows, or an exact random sample of them; texts are categories.

        ``kinds`` fixes the kinds of columns; texts of ``labels`` stay texts. If the table has more
        than ``max_rows`` rows, this many are drawn without replacement, all sets of rows with the
        same probability. The index holds the numbers of the rows.
        """
        wanted = self.names if columns is None else list(dict.fromkeys(columns))
        self.check_columns(wanted)
        with self._steady():
            rows = None if max_rows is None else self._sample(max_rows, seed)
            frame = self._frame(self._table(wanted, rows), labels, kinds or {}, coded=True)
        return frame if rows is None else frame.set_index(pd.Index(rows))

    def count(self) -> int:
        """Count the rows."""
        return self._file.count()

    def _sample(self, max_rows: int, seed: int) -> Any:
        """Return the numbers of rows drawn at random, None for all."""
        n = self.count()
        if n <= check_count("max_rows", max_rows):
            return None
        warn(f"{self.source} has {n} rows: {max_rows} were drawn at random and are used")
        return draw_rows(n, max_rows, check_count("seed", seed, minimum=0))

    def batches(
        self,
        kinds: Mapping[str, str],
        size: int,
        *,
        keep: Sequence[str] = (),
        labels: Sequence[str] = (),
    ) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """Yield ``size`` rows at a time: the columns ``kinds``, and those to ``keep`` unchanged.

        The kind gives a value the same form, whichever rows come with it.
        """
        wanted = list(dict.fromkeys([*kinds, *keep]))
        self.check_columns(wanted)
        with self._steady():
            for batch in sized(self._file.tables(wanted, size), size):
                frame = self._frame(batch.select(list(kinds)), labels, kinds)
                kept = {
                    name: batch[name].to_pandas()
                    if self.is_csv
                    else pd.array(batch[name], dtype=pd.ArrowDtype(batch[name].type))
                    for name in keep
                    if self.is_csv or name not in self._file.texts  # a folder name holds it
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

        In the format of the source, values are copied unchanged. From CSV to Parquet, columns get
        the types that :meth:`read` gives them; CSV keeps no types.
        """
        with self._steady():
            table = self._table(self.names, np.sort(np.asarray(rows)))
        if self.is_csv:
            typed = is_parquet(out)
            frame = self._frame(table, labels, kinds or {}) if typed else table.to_pandas()
        else:  # whole numbers with missing ones stay whole
            frame = table.to_pandas(types_mapper=pd.ArrowDtype)
            for name in self._file.texts:
                frame[name] = values_of(table[name], name, (kinds or {}).get(name))
        with table_writer(out, safe_csv=safe_csv) as append:
            append(frame)

    def _table(self, columns: list[str], rows: Any) -> Any:
        """Return rows as one Arrow table."""
        tables = [table for table in self._file.tables(columns, BATCH, rows) if len(table)]
        if not tables:
            raise InvalidInputError(f"{self.source} has no rows; check that it is the right file")
        try:
            return joined(tables)
        except pyarrow.ArrowException as error:
            raise InvalidInputError(
                f"the parts of {self.source} hold columns of different types "
                f"({first_line(error)}); write them alike"
            ) from error

    def _frame(
        self, table: Any, labels: Sequence[str], kinds: Mapping[str, str], *, coded: bool = False
    ) -> pd.DataFrame:
        """Return an Arrow table as a frame; columns stored as text get their real types."""
        names = table.column_names
        parsed = {
            name: values_of(table[name], name, kinds.get(name), label=name in labels)
            for name in names
            if name in self._file.texts
        }
        if len(parsed) == len(names):
            return pd.DataFrame(parsed)
        # These options free each column as soon as it is converted.
        options = {"date_as_object": False, "split_blocks": True, "self_destruct": True}
        stored = table.select([name for name in names if name not in parsed])
        frame = stored.to_pandas(strings_to_categorical=coded, **options)
        categories = [name for name in labels if name in frame and frame[name].dtype == "category"]
        if not parsed and not categories:
            return frame
        texts = {name: frame[name].astype(object) for name in categories}
        return frame.assign(**parsed, **texts)[names]


def read_table(path: AnyPath, **options: Any) -> pd.DataFrame:
    """Read a table; the options are those of :meth:`Table.read`."""
    with Table(path) as table:
        return table.read(**options)


def draw_rows(n_rows: int, n_wanted: int, seed: int) -> IntArray:
    """Return the sorted numbers of rows drawn uniformly without replacement, in O(n_wanted) memory.

    Rows are drawn with replacement until enough of them are distinct. All rows are treated alike,
    so every set of ``n_wanted`` rows is equally probable.

    >>> draw_rows(10, 4, seed=0).tolist()
    [2, 5, 6, 8]
    """
    if n_wanted >= n_rows:
        return np.arange(n_rows, dtype=np.int64)
    if n_wanted > n_rows / 2:  # it is faster to draw the rows that are left out
        return np.setdiff1d(np.arange(n_rows), draw_rows(n_rows, n_rows - n_wanted, seed), True)
    rng = np.random.default_rng(seed)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < n_wanted:
        drawn = np.union1d(drawn, rng.integers(n_rows, size=n_wanted - len(drawn)))
    return drawn


def folder_parts(folder: Path) -> list[Path]:
    """Return the Parquet files in a folder and below it, in order.

    Names that start with a dot or an underscore are skipped: by custom, such files hold no rows.
    """
    parts = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(n[0] in "._" for n in path.relative_to(folder).parts)
    ]
    strange = [part for part in parts if not part.name.lower().endswith(PARQUET)]
    if strange:
        got = strange[0].relative_to(folder)
        raise InvalidInputError(f"{folder} must hold Parquet files only, got {got}; move it")
    if not parts:
        raise InvalidInputError(f"{folder} holds no Parquet file; check that it is the right one")
    return parts


def _stamp(source: Path) -> dict[Path, tuple[int, int, int]]:
    """Return inode, size and time of change of a file, or of each file of a folder."""
    files = folder_parts(source) if source.is_dir() else [source]
    stats = {file: file.stat() for file in files if file.exists()}
    return {file: (s.st_ino, s.st_size, s.st_mtime_ns) for file, s in stats.items()}


@contextmanager
def table_writer(
    path: AnyPath, notes: Mapping[bytes, str] | None = None, *, safe_csv: bool = False
) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that appends frames to a file; the file appears once all is written.

    The ``notes`` become metadata of a Parquet file. With ``safe_csv``, no cell of a CSV file is a
    formula.
    """
    check_safe_csv(path, safe_csv)
    as_parquet, writer = is_parquet(check_output(path)), None
    with replacing(path) as temporary, ExitStack() as stack:
        file = None if as_parquet else stack.enter_context(opened_text(temporary, "xt", like=path))

        def append(frame: pd.DataFrame) -> None:
            nonlocal writer
            if file is not None:
                frame = safe_cells(frame) if safe_csv else frame
                frame.to_csv(file, index=False, header=file.tell() == 0)
                return
            table = pyarrow.Table.from_pandas(frame, preserve_index=False)
            table = table.replace_schema_metadata(notes)  # pandas cannot read all of its metadata
            if writer is None:  # the first frame decides the types
                opened = pyarrow.parquet.ParquetWriter(temporary, table.schema)
                writer = stack.enter_context(opened)
            writer.write_table(table.cast(writer.schema))

        yield append


def check_safe_csv(path: AnyPath | None, safe_csv: bool) -> None:
    """Refuse safe cells without a CSV file to write."""
    if safe_csv and (path is None or Path(path).name.lower().endswith(PARQUET)):
        got = "none" if path is None else path
        raise InvalidInputError(
            f"safe cells are for a CSV file to write, got {got}; leave that option out, or write a "
            "CSV file"
        )


def safe_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table that no spreadsheet runs, with an apostrophe before texts like formulas.

    Names of columns are treated as texts too; numbers stay unchanged.

    >>> safe_cells(pd.DataFrame({"who": ["=1+1", "-3", "a"], "n": [-1, 0, 1]}))["who"].tolist()
    ["'=1+1", '-3', 'a']
    """

    def safe(value: Any) -> Any:
        runs = isinstance(value, str) and value.startswith(RUN_BY_SPREADSHEETS)
        return f"'{value}" if runs and not NUMBER.fullmatch(value) else value

    texts = frame.select_dtypes(exclude=["number", "datetime", "datetimetz"]).astype(object)
    return frame.assign(**{str(name): text.map(safe) for name, text in texts.items()}).rename(
        columns=safe
    )
