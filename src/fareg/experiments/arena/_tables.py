"""Tables of a benchmark: a small TOML file each says where the table is and what it means."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._selection import check_columns
from fareg._validation import IntArray, InvalidInputError
from fareg.experiments._config import fingerprint
from fareg.workflow import read_table


@dataclass(frozen=True)
class Table:
    """What one TOML file says about a published table."""

    name: str = field(metadata={"unhashed": True})  # the name of the TOML file
    title: str = field(metadata={"unhashed": True})
    published: str = field(metadata={"unhashed": True})  # where the table comes from
    # A CSV or Parquet file, or a pattern such as ``pums/*.csv`` for several with equal columns.
    path: str = field(metadata={"unhashed": True})
    target: str  # column of labels; rows without a label are left out
    sensitive: tuple[str, ...]
    drop: tuple[str, ...] = ()  # columns that nobody may use: ids, weights, copies of the target
    clusters: str = ""  # column of ids of people with several rows; empty for none
    missing: tuple[str | float, ...] = ()  # words or numbers that stand for a missing value
    at_least: tuple[tuple[str, float], ...] = ()  # rows are kept if columns reach these values
    edges: tuple[float, ...] = ()  # cut a numeric target into classes edges[j-1] < y <= edges[j]
    fingerprint: str = ""  # hash of the content of the file, once it was found


@dataclass(frozen=True, eq=False)
class People:
    """The rows of a table that have a label; labels and clusters are numbers from 0."""

    X: pd.DataFrame
    y: IntArray
    classes: tuple[str, ...]
    clusters: IntArray | None


NEEDED = ("title", "published", "path", "target", "sensitive")
KNOWN = {
    item.name: str(item.type) for item in fields(Table) if item.name not in ("name", "fingerprint")
}
# For each type of a field: what TOML holds for it, of what, and how that is told.
FORMS: dict[str, tuple[type, Any, str]] = {
    "str": (str, str, 'a text, "a"'),
    "tuple[str, ...]": (list, str, 'a list of texts, ["a", "b"]'),
    "tuple[str | float, ...]": (list, str | float | int, 'a list of texts or numbers, ["a", 1]'),
    "tuple[float, ...]": (list, float | int, "a list of numbers, [1, 2]"),
    "tuple[tuple[str, float], ...]": (dict, float | int, "a number for each column, {a = 1}"),
}


def define_tables(folder: str | Path, only: Sequence[str] = ()) -> list[Table]:
    """Read the TOML files of a folder, in the order of their names."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InvalidInputError(f"{folder} must be a folder of TOML files, it is none")
    known = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    if not known:
        raise InvalidInputError(f"{folder} holds no TOML file; write one per table")
    unknown = [name for name in only if name not in known]
    if unknown:
        raise InvalidInputError(f"unknown table {unknown[0]}; {folder} has {', '.join(known)}")
    return [_defined(path) for name, path in known.items() if not only or name in only]


def _defined(path: Path) -> Table:
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is no TOML file: {error}") from error
    lacking = [name for name in NEEDED if not said.get(name)]
    strange = [name for name in said if name not in KNOWN]
    if lacking or strange:
        word = f"lacks {lacking[0]}" if lacking else f"has the unknown key {strange[0]}"
        raise InvalidInputError(f"{path} {word}; keys are {', '.join(sorted(KNOWN))}")
    for name, value in said.items():
        outer, inner, form = FORMS[KNOWN[name]]
        items = value.values() if isinstance(value, dict) else value
        if not isinstance(value, outer) or not all(isinstance(item, inner) for item in items):
            raise InvalidInputError(f"{name} in {path} must be {form}, got {value!r}")
    return Table(name=path.stem, **{name: _frozen(value) for name, value in said.items()})


def find_table(table: Table, root: Path) -> Table:
    """Return a table with its place below ``root`` and the fingerprint of its content."""
    path = (root / table.path).resolve()
    files = files_of(path)
    if not files:
        raise InvalidInputError(
            f"the table {table.name} needs {root / table.path}, which is not there; get it from "
            f"{table.published}, or leave the table out"
        )
    return replace(table, path=str(path), fingerprint=fingerprint(files))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, list) else value


def files_of(path: Path) -> list[Path]:
    """Return the files that the path of a table, perhaps a pattern, stands for."""
    return [path] if path.is_file() else sorted(path.parent.glob(path.name))


@lru_cache(maxsize=2)
def read_people(table: Table) -> People:
    """Read the rows of a table that have a label."""
    files = files_of(Path(table.path))
    frame = pd.concat(
        [read_table(file, labels=[table.target]) for file in files], ignore_index=True
    )
    ids = [table.clusters] if table.clusters else []
    named = [table.target, *table.sensitive, *table.drop, *ids, *dict(table.at_least)]
    check_columns(named, [str(name) for name in frame.columns], table.path)
    if table.missing:
        frame = frame.mask(frame.isin(list(table.missing)))
    for column, least in table.at_least:
        frame = frame[_as_numbers(frame[column], "at_least", table) >= least]
    frame = frame[frame[table.target].notna()].reset_index(drop=True)
    labels = frame[table.target]
    if table.edges:
        numbers = _as_numbers(labels, "edges", table).to_numpy(np.float64)
        labels = pd.Series(np.searchsorted(sorted(table.edges), numbers, side="left"))
    codes, classes = pd.factorize(labels, sort=True)
    if len(classes) < 2:
        raise InvalidInputError(f"the target {table.target} of {table.name} must have two classes")
    return People(
        X=frame.drop(columns=[table.target, *table.drop, *ids]),
        y=codes.astype(np.int64),
        classes=tuple(map(str, classes)),
        clusters=pd.factorize(frame[table.clusters])[0] if ids else None,
    )


def _as_numbers(column: pd.Series, key: str, table: Table) -> pd.Series:
    """Return a column as the numbers that a key of the TOML file needs."""
    numbers = pd.to_numeric(column.astype(object), errors="coerce")
    strange = column[numbers.isna() & column.notna()]
    if len(strange):
        raise InvalidInputError(
            f"{key} of {table.name} needs numbers, column {column.name} holds "
            f"{str(strange.iloc[0])[:30]!r}; name a column of numbers, or add what means missing "
            "to missing"
        )
    return numbers
