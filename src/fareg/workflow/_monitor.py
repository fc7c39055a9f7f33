"""A watch that is kept in a state file and fed with tables of labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fareg._files import AnyPath, check_output, check_outputs
from fareg._validation import InvalidInputError
from fareg._words import HTML, JSON
from fareg.monitoring import CoverageMonitor
from fareg.persistence import ModelFile
from fareg.workflow._roles import labelled_rows
from fareg.workflow._stored import as_labels, id_column, label_kinds, model_columns, read_columns
from fareg.workflow._table import Progress, Table, quiet


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

    The state is written last, so a stopped run changes nothing, and you feed the same rows again.
    Rows without a label are left out with a warning: feed them, and only them, once they have
    labels.

    Parameters
    ----------
    model : path of a model file
    data : path of a CSV or Parquet file, or of a folder of Parquet files
    target : str
        Column of true labels.
    state : path of a JSON file
        The watch continues from this file; a new one starts if there is none.
    when : str, default=None
        Column of times; None for the order of the rows.
    ids, trusted, sha256
        As in :func:`fareg.workflow.predict_file`.
    groups : list of str, default=()
        More groups to watch, in words. They are fixed when the watch begins.
    report : path of an HTML file, default=None
    progress : function, optional
        Called with the name of each step when it begins.

    Returns
    -------
    dict
        What ``CoverageMonitor.to_dict()`` returns, the number of rows that were ``fed``, and the
        number of ``clusters`` from each of which one of them was drawn (None without clusters).
    """
    for path, endings in ((state, JSON), (report, HTML)):
        if path is not None:
            check_output(path, endings=endings)
    check_outputs([state, report], inputs=[model, data])
    file = ModelFile.open(model, trusted=trusted, sha256=sha256)
    clf, kinds = file.classifier, model_columns(file)
    if Path(state).exists():
        monitor = CoverageMonitor.load(state, clf)
        new = [text for text in groups if text not in [rule.text for rule in monitor.rules]]
        if new:
            raise InvalidInputError(
                f"the watch in {state} began without the group {new[0]}; leave it out, or start a "
                "new state file"
            )
    else:
        monitor = CoverageMonitor(clf, groups=groups)
    progress("reading the rows")
    with Table(data) as table:
        ids = id_column(ids, file, table)
        fixed = {**kinds, **label_kinds(clf, target)}
        left_out = file.fit_notes.get("left_out", {}).items()
        clusters = next((name for name, role in left_out if role == "clusters"), None)
        others = [name for name in (when, ids, clusters) if name is not None]
        frame = table.read([*fixed, *others], labels=[target], kinds=fixed)
    frame = labelled_rows(frame, target).reset_index(drop=True)
    progress("watching")
    n_before = monitor.n_rows

    def values(name: str | None) -> Any:
        if name is None:
            return None
        is_category = isinstance(frame[name].dtype, pd.CategoricalDtype)
        return (frame[name].astype(object) if is_category else frame[name]).to_numpy()

    monitor.update(
        frame[read_columns(file)],
        as_labels(clf, frame[target]).to_numpy(),
        values(when),
        sensitive_features=frame[list(file.beside)] if file.beside else None,
        ids=values(ids),
        clusters=values(clusters),
    )
    if report is not None:
        monitor.report(report)
    monitor.save(state)
    n_clusters = None if clusters is None else monitor.n_rows - n_before
    return {"fed": len(frame), "clusters": n_clusters, **monitor.to_dict()}
