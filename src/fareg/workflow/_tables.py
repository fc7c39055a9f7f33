"""Tables in CSV and Parquet files: read whole or in batches, written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical, check_columns, kind_of, spelled_numbers
from fareg._files import AnyPath, check_output, check_readable, replacing
from fareg._validation import InvalidInputError, warn
from fareg.workflow._csv import CsvFile, opened_csv, opened_text, safe_cells
from fareg.workflow._formats import is_packed, is_parquet, reading
from fareg.workflow._parquet import (
    Sampling,
    arrow_rows,
    folder_values,
    open_parquet,
    parquet_columns,
    read_parquet,
)
from fareg.workflow._stamps import Stamp, unchanged

ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?")
LEADING_ZERO = re.compile(r"\s*0\d")  # pandas reads numbers with blanks before them, too
LABEL_WORDS = ("None", "NA", "N/A", "n/a")  # words for a missing value that may name a class


def read_table(
    path: AnyPath,
    *,
    labels: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    sampling: Sampling | None = None,
    kinds: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Read a table, or a sample of a folder; texts become categories, and ISO dates become dates.

    Whole numbers of a CSV file are texts if any of them has a leading zero, as codes have, unless
    ``kinds`` tells what a column held when a model was fitted.

    A CSV file cannot tell a missing value from the word for it. In the columns ``labels``, whose
    texts stay texts, words such as ``None`` and ``NA`` among other texts are labels, with a
    warning; elsewhere they are missing values. Other columns than ``columns`` are not read. The
    index tells where each row stands in the file or folder.
    """
    source = Path(path)
    if source.is_dir() or is_parquet(check_readable(source)):
        frame = read_parquet(source, columns=columns, labels=labels, sampling=sampling)
    else:
        with reading(source):
            frame = _read_csv(source, labels, columns, kinds or {})
    frame.columns = [str(name) for name in frame.columns]
    if frame.empty:
        raise InvalidInputError(f"{source} has no rows; check that it is the right file")
    return frame


def table_columns(path: AnyPath) -> list[str]:
    """Return the names of a table's columns without reading its rows."""
    source = Path(path)
    if source.is_dir() or is_parquet(check_readable(source)):
        return parquet_columns(source)
    with reading(source), opened_csv(source) as file:
        return file.names


def _read_csv(
    source: Path, labels: Sequence[str], columns: Sequence[str] | None, kinds: Mapping[str, str]
) -> pd.DataFrame:
    texts = {name: "str" for name, kind in kinds.items() if kind == "text"}
    with opened_csv(source) as file:
        check_columns(columns or (), file.names, str(source))
        frame = file.check().frame(columns, dtype=texts)
        frame = _with_label_words(frame, file, labels)
        frame = _with_leading_zeros(frame, file, set(kinds))
    for name in list(frame):
        if name not in texts:
            frame[name] = _with_dates(frame[name])
        if isinstance(frame[name].dtype, pd.StringDtype) and name not in labels:
            frame[name] = frame[name].astype("category")  # each text is stored once
    return frame


def read_batches(
    path: AnyPath,
    kinds: Mapping[str, str],
    batch_size: int,
    *,
    keep: Sequence[str] = (),
    labels: Sequence[str] = (),
    root: Path | None = None,
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield the columns ``kinds`` of a table in the form they name, and those to keep as they are.

    ``kinds`` maps names to "number", "text" or "date"; columns are found by name. With its kind, a
    value has one form, whichever rows come with it. In columns of texts that are ``labels``, words
    such as ``NA`` are labels, as in :func:`read_table`. ``batch_size`` rows come at a time. Folders
    below ``root`` that are named ``name=value`` are columns too. The file is opened once; if it
    changes before its last row is read, it is refused after the last batch.
    """
    source, wanted = check_readable(path), [*kinds, *keep]
    with unchanged(source), reading(source):
        if is_parquet(source):
            given = folder_values(source, root, {**dict.fromkeys(keep, "text"), **kinds})
            file = open_parquet(source, wanted, given)
            # Given columns are not in the file: their values stand in its path.
            stored, kept = ([n for n in names if n not in given] for names in (kinds, keep))
            batches = _parquet_batches(file, stored, kept, batch_size)
        else:
            given, batches = {}, _csv_batches(source, kinds, keep, labels, batch_size)
        for frame, copied in batches:
            if len(frame):
                yield as_kinds(frame.assign(**given), kinds, str(source)), copied


def _parquet_batches(
    file: Any, columns: list[str], keep: list[str], batch_size: int
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield frames, and the columns to keep in the types of the file."""
    for batch in file.iter_batches(batch_size, columns=list(dict.fromkeys([*columns, *keep]))):
        copies = {
            name: pd.array(batch[name], dtype=pd.ArrowDtype(batch[name].type)) for name in keep
        }
        frame = batch.select(columns).to_pandas(date_as_object=False)
        yield frame, pd.DataFrame(copies, index=range(len(batch)))


def _csv_batches(
    source: Path,
    kinds: Mapping[str, str],
    keep: Sequence[str],
    labels: Sequence[str],
    batch_size: int,
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield frames, and the columns to keep as the text that they are."""
    texts = {name: "str" for name, kind in kinds.items() if kind == "text"}
    words = [name for name in labels if name in texts]
    with opened_csv(source) as file:
        check_columns([*kinds, *keep], file.names, str(source))
        for part in file.batches(batch_size):
            frame = part.frame(list(kinds), dtype=texts)
            copied = part.written([*keep, *words]) if keep or words else frame[[]]
            found = {n: frame[n].fillna(_label_words(frame[n], copied[n])) for n in words}
            yield frame.assign(**found), copied[list(keep)]


def column_kinds(frame: pd.DataFrame) -> dict[str, str]:
    """Return "number", "text" or "date" for each column."""
    return {str(name): _kind(column) or "number" for name, column in frame.items()}


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
    with replacing(path) as temporary, ExitStack() as opened:
        if as_parquet:
            yield _parquet_appender(temporary, opened, notes)
        else:
            file = opened.enter_context(
                opened_text(temporary, "xt", "utf-8", packed=is_packed(path))
            )
            made = safe_cells if safe_csv else lambda frame: frame
            yield lambda frame: made(frame).to_csv(file, index=False, header=file.tell() == 0)


def check_safe_csv(path: AnyPath | None, safe_csv: bool) -> None:
    """Refuse safe cells of a file in which no spreadsheet looks for formulas."""
    if safe_csv and (path is None or is_parquet(path)):
        got = "none" if path is None else path
        raise InvalidInputError(
            f"safe cells are for a CSV file to write, got {got}; leave that option out, or write a "
            "CSV file"
        )


def _parquet_appender(path: Path, opened: ExitStack, notes: Mapping[str, str] | None) -> Any:
    """Return a function that appends frames to a Parquet file; ``opened`` closes it."""
    import pyarrow.parquet

    writer: Any = None

    def append(frame: pd.DataFrame) -> None:
        nonlocal writer
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        table = table.replace_schema_metadata(notes)  # pandas cannot read all that it notes itself
        if writer is None:  # the first frame tells the types of all
            writer = opened.enter_context(pyarrow.parquet.ParquetWriter(path, table.schema))
        writer.write_table(table.cast(writer.schema))

    return append


def notes_of(path: Path) -> dict[str, str]:
    """Return the notes in a Parquet file."""
    import pyarrow.parquet

    notes = pyarrow.parquet.read_schema(path).metadata or {}
    return {name.decode(): text.decode() for name, text in notes.items()}


def copy_rows(
    source: AnyPath,
    rows: Any,
    out: AnyPath,
    *,
    labels: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    stamp: Stamp | None = None,
    safe_csv: bool = False,
) -> None:
    """Write the given rows of a table or folder to a file, in the format that its ending tells.

    Rows are numbered as in :func:`read_table` and written in that order. In the format of the
    source they stay as they stand. From CSV to Parquet, columns have the types in which
    :func:`read_table` reads them with these ``labels`` and ``kinds``; CSV keeps no types. A source
    that is no longer what the ``stamp`` notes, when its rows were numbered, is refused.
    """
    positions, stamp = np.sort(np.asarray(rows)), stamp or Stamp.of(source)
    if is_parquet(source):
        table = arrow_rows(Path(source), positions)
        stamp.check()
        if is_parquet(out):
            import pyarrow.parquet

            with replacing(out) as temporary:
                pyarrow.parquet.write_table(table, temporary)
            return
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)  # whole numbers with gaps stay whole
    elif is_parquet(out):
        frame = read_table(source, labels=labels, kinds=kinds).iloc[positions]
    else:
        with reading(check_readable(source)), opened_csv(Path(source)) as file:
            frame = file.check().written().iloc[positions]
    stamp.check()
    with table_writer(out, safe_csv=safe_csv) as append:
        append(frame)


def _label_words(column: pd.Series, written: pd.Series) -> pd.Series:
    """Return the words that pandas took for missing values and that may be labels."""
    return written.where(column.isna() & written.isin(LABEL_WORDS))


def _with_label_words(frame: pd.DataFrame, file: CsvFile, labels: Sequence[str]) -> pd.DataFrame:
    """Put back words that pandas took for missing values in columns of texts that are labels."""
    texts = [
        name
        for name in labels
        if name in frame
        and pd.api.types.is_string_dtype(present := frame[name].dropna())
        and len(present) < len(frame)
        and (present.empty or np.isnan(spelled_numbers(present.unique())).any())
    ]
    if not texts:
        return frame
    written = file.written(texts)
    for name in texts:
        words = _label_words(frame[name], written[name])
        if words.notna().any():
            warn(
                f"column {name} holds {' or '.join(words.dropna().unique())} in "
                f"{words.notna().sum()} of {len(words)} rows, taken as a label; drop these rows if "
                "it means missing"
            )
            frame[name] = frame[name].fillna(words)
    return frame


def _with_leading_zeros(frame: pd.DataFrame, file: CsvFile, known: set[str]) -> pd.DataFrame:
    """Put back the texts of columns in which pandas took codes such as 04109 for numbers."""
    whole = [
        str(name)
        for name, column in frame.items()
        if name not in known and column.dtype.kind in "if" and (column.dropna() % 1 == 0).all()
    ]
    written: Any = file.written(whole) if whole else {}
    for name in whole:
        if written[name].str.match(LEADING_ZERO).any():
            frame[name] = written[name].where(frame[name].notna())
    return frame


def _with_dates(column: pd.Series) -> pd.Series:
    """Return a column of ISO dates as dates, any other as it is."""
    if not pd.api.types.is_string_dtype(column.dtype):
        return column
    present = column.dropna()
    if present.empty or not ISO_DATE.fullmatch(str(present.iloc[0])):
        return column
    try:
        return pd.to_datetime(column, format="ISO8601", utc=True)
    except (ValueError, TypeError):
        return column


def _kind(column: pd.Series) -> str | None:
    """Return the kind of a column, None if all values are missing."""
    return None if column.isna().all() else kind_of(canonical(column.to_frame("x"))["x"])


def as_kinds(frame: pd.DataFrame, kinds: Mapping[str, str], where: str) -> pd.DataFrame:
    """Return the columns ``kinds`` of a frame, found by name and checked."""
    check_columns(list(kinds), [str(name) for name in frame.columns], where)
    frame = frame[list(kinds)].reset_index(drop=True)
    for name, kind in kinds.items():
        column = _with_dates(frame[name]) if kind == "date" else frame[name]
        found = _kind(column)
        if found is None:
            column = pd.Series(np.nan, index=frame.index, name=name)
        elif found != kind:
            example = column.dropna().iloc[0]
            raise InvalidInputError(
                f"column {name} of {where} held {kind}s when the model was fitted, here it holds "
                f"{found}s such as {str(example)[:30]!r}; convert it"
            )
        frame[name] = column
    return frame
