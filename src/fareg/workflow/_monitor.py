"""A watch that goes on in a state file, fed with tables of labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._files import AnyPath, check_output, check_outputs
from fareg._validation import InvalidInputError
from fareg._words import HTML, JSON
from fareg.monitoring import CoverageMonitor
from fareg.persistence import ModelFile
from fareg.workflow._labels import as_known, label_texts
from fareg.workflow._predict import id_column, label_kinds, model_columns
from fareg.workflow._table import Progress, Table, quiet
from fareg.workflow._target import labelled_rows


def monitor_file(
    model: AnyPath,
    data: AnyPath,
    *,
    target: str,
    state: AnyPath,
    when: str | None = None,
    ids: str | None = None,
    groups: Sequence[str] = (),
    report: AnyPath | None = None,
    trusted: Sequence[str] | None = None,
    sha256: str | None = None,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Feed the labelled rows of a table to a watch; see :class:`fareg.CoverageMonitor`.

    The state is written last, so a run that is stopped before its end changes nothing, and the same
    rows are fed again. Rows without a label are left out with a warning: feed them, and only them,
    when their labels are there.

    Parameters
    ----------
    model : path of a model file
    data : path of a CSV or Parquet file, or of a folder of Parquet files
    target : str
        Column of true labels.
    state : path of a JSON file
        The watch goes on from there; it begins if there is no such file.
    when : str, default=None
        Column of times; None for the order of the rows.
    ids : str, default=None
        Column that says whose row it is; None for the one that the model was fitted with.
    groups : list of str, default=()
        More groups to watch, in words. They are fixed when the watch begins.
    report : path of an HTML file, default=None
    trusted, sha256
        As in :func:`fareg.workflow.predict_file`.
    progress : function, optional
        Called with the name of each step when it begins.

    Returns
    -------
    dict
        What ``CoverageMonitor.to_dict()`` returns, and how many ``fed`` rows are new.
    """
    check_output(state, endings=JSON)
    if report is not None:
        check_output(report, endings=HTML)
    check_outputs([state, report], inputs=[model, data])
    file = ModelFile.open(model, trusted=trusted, sha256=sha256)
    clf, kinds = file.classifier, model_columns(file)
    if Path(state).exists():
        monitor = CoverageMonitor.load(state, clf)
        new = [text for text in groups if text not in [rule.text for rule in monitor.rules]]
        if new:
            raise InvalidInputError(
                f"the watch of {state} began without the group {new[0]}; leave it out, or begin a "
                "new state file"
            )
    else:
        monitor = CoverageMonitor(clf, groups=groups)
    progress("reading the rows")
    with Table(data) as table:
        ids = id_column(ids, file, table)
        told = {**kinds, **label_kinds(clf, target)}
        noted = file.fit_notes.get("left_out", {}).items()
        clusters = next((name for name, role in noted if role == "clusters"), None)
        if clusters is not None:
            table.check_columns([clusters])
        beside = dict.fromkeys((when, ids, clusters))
        further = [name for name in beside if name is not None and name not in told]
        frame = table.read([*told, *further], labels=[target], kinds=told)
    frame = labelled_rows(frame, target).reset_index(drop=True)
    y: Any = frame[target]
    if told[target] == "text":
        known = dict(zip(label_texts(clf.classes_), clf.classes_.tolist(), strict=True))
        texts = as_known(label_texts(y), known)
        y = pd.Series([known.get(text, text) for text in texts], dtype=object)
    progress("watching")
    own = list(clf.column_kinds_ or kinds)
    people = frame[list(file.beside)] if file.beside else None
    monitor.update(
        frame[own],
        y.to_numpy(),
        None if when is None else _times(frame[when]),
        sensitive_features=people,
        ids=None if ids is None else frame[ids].astype(object).to_numpy(),
        clusters=None if clusters is None else frame[clusters].to_numpy(),
    )
    if report is not None:
        monitor.report(report)
    monitor.save(state)
    return {"fed": len(frame), **monitor.to_dict()}


def _times(column: pd.Series) -> Any:
    """Return times as numbers, dates or texts."""
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    return np.asarray(column.astype(object) if is_category else column)
