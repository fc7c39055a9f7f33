"""Stored models: the columns that they need of a table, and calls with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._files import AnyPath
from fareg._validation import InvalidInputError, warn
from fareg.persistence import ModelFile
from fareg.workflow._labels import as_known, label_texts
from fareg.workflow._table import Table


def call_model(model: ModelFile, method: str, table: pd.DataFrame, **arguments: Any) -> Any:
    """Call a method of a stored classifier with a table of the columns that it needs.

    Sensitive features that were passed next to X when it was calibrated are passed that way again.
    """
    clf = model.classifier
    if model.beside:
        arguments["sensitive_features"] = table[list(model.beside)]
        table = table[list(clf.column_kinds_)]
    return getattr(clf, method)(table, **arguments)


def model_columns(model: ModelFile) -> dict[str, str]:
    """Return the columns that a model needs, and their kinds."""
    if model.columns is None:
        raise InvalidInputError(
            f"{model.path} was fitted on an array without column names; use it in Python instead"
        )
    return model.columns


def read_columns(model: ModelFile) -> list[str]:
    """Return the columns of the model's table, without sensitive features next to it."""
    return list(model.classifier.column_kinds_ or model_columns(model))


def label_kinds(clf: Any, target: str) -> dict[str, str]:
    """Return the kind of the target: numbers if the model's labels are numbers, so that 01 is 1."""
    return {target: "number" if np.asarray(clf.classes_).dtype.kind in "iuf" else "text"}


def as_labels(clf: Any, column: pd.Series) -> pd.Series:
    """Return each label as the class that it means; one that means several or none stays text."""
    if np.asarray(clf.classes_).dtype.kind in "iuf":
        return column
    known = dict(zip(label_texts(clf.classes_), clf.classes_.tolist(), strict=True))
    texts = as_known(label_texts(column), known)
    return pd.Series([known.get(text, text) for text in texts], column.index, dtype=object)


def id_column(requested: str | None, model: ModelFile, table: Table) -> str | None:
    """Return the column of ids: the requested one, or that of the fit if the table has it."""
    fitted: str | None = model.fit_notes.get("ids")
    if requested is not None:
        table.check_columns([requested])
    elif fitted is not None and fitted not in table.names:
        warn(
            f"the model was fitted with ids in the column {fitted}, which {table.source} lacks: "
            "equal rows are numbered in their order instead"
        )
        return None
    return requested or fitted


def ids_in(kept: pd.DataFrame, ids: str) -> Any:
    """Return the ids of rows; an empty text in a CSV file is a missing one."""
    if ids not in kept:
        raise InvalidInputError(f"ids must be in the files, got folders {ids}=; move them there")
    return kept[ids].astype(object).where(kept[ids].notna() & (kept[ids] != ""), None).to_numpy()


def check_engine_of(data: AnyPath, engine: str, jobs: int | None) -> None:
    """Refuse to divide a single file among processes."""
    if engine != "local" or jobs not in (None, 1):
        raise InvalidInputError(
            f"engines and processes are for a folder of Parquet files, got {data}; leave them "
            "out, or split the file"
        )


def check_any(n_rows: int, source: Any) -> None:
    """Refuse a source without rows."""
    if not n_rows:
        raise InvalidInputError(f"{source} has no rows; check that it is the right path")
