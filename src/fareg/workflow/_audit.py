"""Audit of the prediction sets in a file, whichever tool wrote them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import selected_positions
from fareg._files import AnyPath
from fareg._labels import column_classes, label_texts, plain_text
from fareg._validation import BoolArray, InvalidInputError, check_confidence_level, warn
from fareg._words import shown
from fareg.auditing import AuditResult, Promise, audit
from fareg.classifiers import hidden_columns
from fareg.persistence import SeenRows, describe, load, seen_rows
from fareg.workflow._formats import check_columns, quiet
from fareg.workflow._parquet import BATCH, Sampling
from fareg.workflow._predict import ANSWERS, ask, model_columns, rows_after
from fareg.workflow._tables import as_kinds, column_kinds, read_table, table_columns
from fareg.workflow._target import labelled_rows

SEPARATORS = re.compile(r"(?<!\\)[|;]")  # between labels of a set in text
COMMAS = re.compile(",")


def audit_file(
    data: AnyPath,
    *,
    target: str,
    sets: Sequence[str] | None = None,
    model: AnyPath | None = None,
    sensitive: Sequence[str] | None = None,
    confidence_level: float | None = None,
    seed: int | None = None,
    trusted: Sequence[str] | None = None,
    clusters: str | None = None,
    drop_missing_target: bool = False,
    n_calibration: int | None = None,
    sampling: Sampling | None = None,
    progress: Callable[[str], None] = quiet,
) -> AuditResult:
    """Audit prediction sets that are columns of a table, or those of a model on its rows.

    Parameters
    ----------
    data : path of a CSV or Parquet file, or of a folder of Parquet files
    target : str
        Column of true labels.
    sets : list of str, default=None
        Columns of True and False, named after the labels, all perhaps with one prefix or suffix; or
        one column of lists, or of text such as ``a|b``.
    model : path of a model file, default=None
        Instead of ``sets``. Rows that trained or calibrated it, which a file of ``fareg fit``
        remembers by the values of all their columns that are here too, label included, are left out
        with a warning. Nothing is left out if rows equal such ones no more often than by chance.
    sensitive : list of str, default=None
        Columns in which groups are looked for; None for the sensitive features of the model, which
        a note then names, or for all others if there are none.
    confidence_level : float, default=None
        What the sets promise; None for the promise of the model, or 0.9 without one.
    seed : int, default=None
        None for the seed of the model, so that an audit of the test rows of a fit repeats the one
        in that fit; 0 without a model.
    trusted : list of str, default=None
        Types that the stored estimator may hold beside those that ``fareg.load`` trusts.
    clusters : str, default=None
        Column of ids: rows that share one may depend on each other. It defines no groups. None for
        the clusters that a model was fitted with, if the table has their column.
    drop_missing_target : bool, default=False
        Whether rows without a label are left out, with a warning; if not, they are refused.
    n_calibration : int, default=None
        How many rows calibrated the predictor: the audit allows for their number. A model tells it
        by itself, unless another level than its own is asked for.
    sampling : Sampling, default=None
        Which rows of a folder are read, and where; None for 10^6 at most.
    progress : function, optional
        Called with the name of each stage when it begins.
    """
    if (sets is None) == (model is None):
        got = "none" if sets is None else "both"
        raise InvalidInputError(f"pass either the columns of the sets or a model, got {got}")
    if confidence_level is not None:
        check_confidence_level(confidence_level)
    marks, groups = list(sets or ()), list(sensitive or ())
    ids = [] if clusters is None else [clusters]
    named = [target, *marks, *groups, *ids]
    names = table_columns(data)
    check_columns(named, names, str(data))
    if clusters in (target, *marks, *groups):
        raise InvalidInputError(
            f"the clusters {clusters} must be a column of their own, got one that is also the "
            "target, part of the sets or sensitive"
        )
    told: tuple[str, ...] = ()
    read = partial(_read, data, target, marks, sampling, drop_missing_target)
    if model is None:
        frame = read(None if sensitive is None else named)
        audited = _columns_as_sets(frame, target, marks, find_answers=sensitive is None)
        _check_all_named(data, marks, audited.y, sampling)
    else:
        clf, seen = load(model, trusted=trusted), seen_rows(model)
        if clusters is None:
            clusters = _own_clusters(model, [name for name in names if name not in named])
            ids = [] if clusters is None else [clusters]
        kinds = model_columns(clf, model)
        known = [] if seen is None else [name for name in seen.names if name in names]
        frame = read([*named, *ids, *kinds, *known], kinds)
        progress("asking the model")
        audited = _sets_of_model(clf, as_kinds(frame, kinds, str(data)), frame, target, seen, data)
        audited.about.update(model=Path(model).name, base_model=_base_model(clf, model))
        confidence_level = clf.confidence_level if confidence_level is None else confidence_level
        if n_calibration is None and confidence_level == clf.confidence_level:
            n_calibration = Promise.of_fitted(confidence_level, clf.n_calibration_).n_calibration
        audited = replace(audited, X=audited.X.join(frame[[n for n in groups if n not in kinds]]))
        if sensitive is None:
            sensitive, told = _own_sensitive(clf, audited.X.drop(columns=ids, errors="ignore"))
        told += _not_remembered(model)
        if seed is None and isinstance(clf.random_state, int):
            seed = clf.random_state
    X = audited.X.drop(columns=ids, errors="ignore")
    if X.shape[1] == 0:
        raise InvalidInputError(f"{data} has no column in which a group could be found")
    column_kinds(X)  # it refuses columns of lists
    own_clusters = None if clusters is None else frame[clusters].loc[X.index].to_numpy()
    n_left_out = len(frame) - len(X)
    del frame
    result = audit(
        X.reset_index(drop=True),
        audited.y,
        audited.sets,
        classes=audited.classes,
        sensitive_features=None if sensitive is None else list(sensitive),
        confidence_level=0.9 if confidence_level is None else confidence_level,
        clusters=own_clusters,
        n_calibration=n_calibration,
        random_state=0 if seed is None else seed,
        progress=progress,
    )
    notes = (SeenRows.left_out(n_left_out, n_left_out + len(X)),) if n_left_out else ()
    about = {"file": Path(data).name, "target": target, **audited.about, **result.about}
    return replace(result, about=about, notes=(*notes, *told, *result.notes))


@dataclass(frozen=True, eq=False)
class _Audited:
    """Rows to audit: in what groups are looked for, true labels, and prediction sets."""

    X: pd.DataFrame  # with the index of the table
    y: Any
    sets: Any
    classes: list[str] | None = None
    about: dict[str, Any] = field(default_factory=dict)


def _read(
    data: AnyPath,
    target: str,
    marks: list[str],
    sampling: Any,
    drop_missing: bool,
    columns: list[str] | None,
    kinds: dict[str, str] | None = None,
) -> pd.DataFrame:
    """Return the rows of a table that have a label, with these columns or with all."""
    needed = None if columns is None else list(dict.fromkeys(columns))
    labels = [target, *marks]
    frame = read_table(data, labels=labels, columns=needed, sampling=sampling, kinds=kinds)
    return labelled_rows(frame, target, drop_missing=drop_missing)


def _columns_as_sets(
    frame: pd.DataFrame, target: str, marks: list[str], *, find_answers: bool
) -> _Audited:
    """Read the sets from columns; where groups may be anywhere, leave out other answers."""
    X, y = frame.drop(columns=[target, *marks]), label_texts(frame[target])
    sets: Any
    if len(marks) == 1:
        sets = _lists(frame[marks[0]], set(y))
        sizes = np.array([len(labels) for labels in sets])
    else:
        sets = _flags(frame[marks])
        sizes = sets.sum(axis=1).to_numpy()
    return _Audited(_without_answers(X, sizes) if find_answers else X, y, sets)


def _sets_of_model(
    clf: Any, X: pd.DataFrame, frame: pd.DataFrame, target: str, seen: Any, data: AnyPath
) -> _Audited:
    """Ask a model for the sets of the rows that it has not seen."""
    y = label_texts(frame[target])
    new = _unseen(X[list(clf.column_kinds_ or X)], y, frame, seen, str(data))
    sets, top = (answer[new] for answer in _answers(clf, X, data))  # errors count all rows
    accuracy = float((label_texts(top) == y[new]).mean())
    X = X.drop(columns=[*hidden_columns(clf.estimator_, X)]).set_axis(frame.index)
    classes = list(label_texts(clf.classes_))
    return _Audited(X[new], y[new], sets, classes, {"accuracy": accuracy})


def _own_clusters(model: AnyPath, names: Sequence[str]) -> str | None:
    """Return the column of these that held the clusters when a model was fitted, if any."""
    roles = describe(model)["metadata"].get("left_out")
    known = roles if isinstance(roles, dict) else {}
    return next((name for name in names if known.get(name) == "clusters"), None)


def _not_remembered(model: AnyPath) -> tuple[str, ...]:
    """Return a note if a model was calibrated on rows that its file does not remember."""
    calibrated = describe(model)["metadata"].get("calibrated")
    if not isinstance(calibrated, dict) or calibrated.get("remembered"):
        return ()
    return (
        f"the model was calibrated again on {calibrated.get('data')} ({calibrated.get('rows')} "
        "rows), which its file does not remember: if these are among the audited rows, they are "
        "not left out",
    )


def _own_sensitive(clf: Any, X: pd.DataFrame) -> tuple[list[str] | None, tuple[str, ...]]:
    """Return the sensitive features that a model was given, and a note if they are not all columns.

    They are columns of its table, or lay beside it; None if it was given none.
    """
    own, selection = getattr(clf, "sensitive_kinds_", None) or (), clf.sensitive_features
    if not own and selection is not None and not callable(selection):
        table = pd.DataFrame(columns=list(clf.column_kinds_ or X))
        own = table.columns[selected_positions(table, selection)]
    own = [name for name in own if name in X]
    if len(own) in (0, X.shape[1]):
        return own or None, ()
    note = (
        f"groups were looked for in the sensitive features of the model, {shown(own)}; name others "
        "as sensitive to look there"
    )
    return own, (note,)


def _answers(clf: Any, X: pd.DataFrame, source: Any) -> tuple[BoolArray, Any]:
    """Return the sets and the labels that a model predicts, asked for some rows at a time."""
    sets, labels = [], []
    for first in range(0, len(X), BATCH):
        part = X.iloc[first : first + BATCH]
        with rows_after(first, source):
            sets.append(ask(clf.predict_set, clf, part))
            labels.append(clf.predict(part[list(clf.column_kinds_ or part)]))
    return np.concatenate(sets), np.concatenate(labels)


def _base_model(clf: Any, model: AnyPath) -> str:
    """Return the name under which a model was fitted, or else the type of what it wraps."""
    return str(describe(model)["metadata"].get("estimator", type(clf.estimator_).__name__))


def _unseen(
    X: pd.DataFrame, y: Any, frame: pd.DataFrame, seen: SeenRows | None, data: str
) -> BoolArray:
    """Tell the rows that neither trained nor calibrated a model, as far as its file remembers."""
    used = np.zeros(len(y), dtype=bool) if seen is None else seen.used_among(X, y, frame)
    if used.all():
        raise InvalidInputError(
            f"all {len(y)} rows of {data} equal rows that were used to train or calibrate this "
            "model and say nothing about new ones; audit it on rows that it has not seen"
        )
    if used.any():
        warn(SeenRows.left_out(int(used.sum()), len(y)))
    return ~used


def _lists(column: pd.Series, known: set[str]) -> list[list[str]]:
    """Return one list of label texts per row; a missing value is the empty set."""

    def labels(value: Any) -> list[str]:
        if isinstance(value, list | tuple | set | np.ndarray):
            return [str(label) for label in label_texts(list(value))] if len(value) else []
        if pd.isna(value):
            return []
        if isinstance(value, bool | np.bool_):
            raise InvalidInputError(
                f"column {column.name} holds True and False; name all columns of the sets, "
                "one per label"
            )
        text = str(value) if isinstance(value, str) else str(label_texts([value])[0])
        parts = _parts(SEPARATORS, text)
        listed = _parts(COMMAS, text)  # as Python and JSON write lists
        return listed if not set(parts) <= known and set(listed) <= known else parts

    numbers = {plain_text(label): label for label in known}  # "1.0" is the label "1"
    return [[numbers.get(plain_text(label), label) for label in labels(value)] for value in column]


def _parts(separators: re.Pattern[str], text: str) -> list[str]:
    parts = (part.strip().replace("\\|", "|") for part in separators.split(text.strip("{}[]() ")))
    return [part.strip("'\"") for part in parts if part]


def _without_answers(X: pd.DataFrame, sizes: Any) -> pd.DataFrame:
    """Leave out the predictor's answers: a group such as "the set is empty" is never covered."""
    answers = [
        name
        for name, column in X.items()
        if pd.api.types.is_numeric_dtype(column.dtype) and (column == sizes).all()
    ]
    if "size" in answers:
        answers += [name for name in ANSWERS if name in X and name not in answers]
    if answers:
        warn(
            f"{', '.join(map(str, answers))} belong to the predictions and define no groups; "
            "name them in sensitive if they should"
        )
    return X.drop(columns=answers)


def _check_all_named(data: AnyPath, sets: list[str], y: Any, sampling: Sampling | None) -> None:
    """Refuse to leave out a column that is named like those of the sets and holds such marks."""
    if len(sets) == 1:
        return  # one column of lists
    columns = column_classes(y, len(sets), names=sets)
    wanted = {columns.prefix + label + columns.suffix for label in set(y)} - set(sets)
    suspects = [name for name in table_columns(data) if name in wanted]
    if not suspects:
        return
    frame = read_table(data, columns=suspects, sampling=sampling)
    forgotten = [name for name in suspects if set(frame[name].unique()) <= {True, False}]
    if forgotten:
        raise InvalidInputError(
            f"column {forgotten[0]} is named after a label and holds True and False like "
            f"{sets[0]}; name all columns of the sets"
        )


def _flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns of True and False (or 1 and 0) as a frame of bool."""
    for name, column in frame.items():
        values = set(column.dropna().unique().tolist())
        if column.isna().any() or not values <= {True, False}:
            strange = "missing values" if column.isna().any() else str(sorted(map(str, values))[:3])
            raise InvalidInputError(
                f"column {name} of the sets must hold True and False (or 1 and 0), got {strange}"
            )
    return frame.astype(bool)
