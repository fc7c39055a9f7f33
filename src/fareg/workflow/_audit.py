"""Audit of the prediction sets in a file, whichever tool wrote them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import selected_positions
from fareg._drift import accept_drift, unjudged
from fareg._files import AnyPath, check_output, check_outputs
from fareg._labels import column_classes, plain_text
from fareg._rows import hash_key
from fareg._validation import BoolArray, InvalidInputError, check_confidence_level, warn
from fareg._words import HTML, MARKDOWN, shown
from fareg.auditing import AuditResult, Promise, audit
from fareg.classifiers import hidden_columns
from fareg.persistence import ModelFile, SeenRows
from fareg.workflow._labels import as_known, label_texts, read_set_texts
from fareg.workflow._predict import ANSWERS, ask, id_column, label_kinds, model_columns
from fareg.workflow._roles import id_note
from fareg.workflow._table import MAX_ROWS, Progress, Table, quiet
from fareg.workflow._target import labelled_rows
from fareg.workflow._values import as_kinds, column_kinds


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
    sha256: str | None = None,
    clusters: str | None = None,
    ids: str | None = None,
    n_calibration: int | None = None,
    max_rows: int = MAX_ROWS,
    report: AnyPath | None = None,
    tables: AnyPath | None = None,
    card: AnyPath | None = None,
    progress: Progress = quiet,
    settings: Mapping[str, str] | None = None,
) -> AuditResult:
    """Audit prediction sets that are columns of a table, or those of a model on its rows.

    Parameters
    ----------
    data : path of a CSV or Parquet file, or of a folder of Parquet files
    target : str
        Column of true labels.
    sets : list of str, default=None
        Columns of True and False, named after the labels, all perhaps with one prefix or suffix; or
        one column of lists, of JSON lists as ``fareg predict`` writes them, or of text such as
        ``a|b``.
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
        Types that the stored estimator may hold besides those that ``fareg.load`` knows.
    sha256 : str, default=None
        The SHA-256 that the model file must have.
    clusters : str, default=None
        Column of ids: rows that share one may depend on each other. It defines no groups. None for
        the clusters that a model was fitted with; if the table lacks their column, a note says so.
    ids : str, default=None
        Column that says whose row it is, for the random numbers of a model's sets; None for the
        one that it was fitted with, if it is here.
    n_calibration : int, default=None
        How many rows calibrated the predictor: the audit allows for their number. A model tells it
        by itself, unless another level than its own is asked for.
    max_rows : int, default=1000000
        If a table has more rows, so many are drawn, independently of those that a fit with the same
        seed draws.
    report : path of an HTML file, default=None
        Also write the result there.
    tables : path of a folder, default=None
        Also write every table there, as CSV files.
    card : path of a .md file, default=None
        Also write a section of a model card there.
    progress : function, optional
        Called with the name of each stage when it begins.
    settings : mapping, default=None
        What next steps call a setting, where not by its name in Python.
    """
    if report is not None:
        check_output(report, endings=HTML)
    if card is not None:
        check_output(card, endings=MARKDOWN)
    check_outputs([report, card], inputs=[data, model])
    if bool(sets) == (model is not None):
        got = "both" if sets else "none"
        raise InvalidInputError(f"pass either the columns of the sets or a model, got {got}")
    if sha256 is not None and model is None:
        raise InvalidInputError("sha256 is of a model file, and none is given; leave it out")
    if ids is not None and model is None:
        raise InvalidInputError(
            f"ids are for the random numbers of a model, got the column {ids} and sets that are "
            "already there; leave the ids out"
        )
    if confidence_level is not None:
        check_confidence_level(confidence_level)
    groups = None if sensitive is None else list(sensitive)
    # A sample with the seed of the fit would hold the rows of the fit, which are left out.
    sample = {"max_rows": max_rows, "seed": hash_key(seed or 0)}
    with Table(data) as table:
        asked = _Asked(table, target, list(sets or ()), groups, clusters, ids, sample)
        asked.check()
        if model is None:
            audited = _audited_columns(asked)
        else:
            file = ModelFile.open(model, trusted=trusted, sha256=sha256)
            clf = file.classifier
            audited = _audited_model(asked, file, progress)
            if n_calibration is None and confidence_level in (None, clf.confidence_level):
                people = clf.calibration_.sample.n_people  # of clusters, each counts once
                promise = Promise.of_fitted(clf.confidence_level, people)
                n_calibration = promise.n_calibration
            confidence_level = confidence_level or clf.confidence_level
            if seed is None and isinstance(clf.random_state, int):
                seed = clf.random_state
    if audited.X.shape[1] == 0:
        raise InvalidInputError(
            f"{data} has no column in which a group could be found; add columns that say who the "
            "people are"
        )
    column_kinds(audited.X)  # it refuses columns of lists
    searched = audited.sensitive is None and audited.clusters is None
    note = id_note(audited.X, list(map(str, audited.X))) if searched else None
    notes = audited.notes if note is None else (*audited.notes, note)
    result = audit(
        audited.X.reset_index(drop=True),
        audited.y,
        audited.sets,
        classes=audited.classes,
        sensitive_features=audited.sensitive,
        confidence_level=0.9 if confidence_level is None else confidence_level,
        clusters=audited.clusters,
        n_calibration=n_calibration,
        random_state=0 if seed is None else seed,
        predicted=audited.predicted,
        groups=audited.protected,
        progress=progress,
    )
    about = {"file": Path(data).name, "target": target, **audited.about, **result.about}
    notes = (*notes, *result.notes)
    result = replace(result, about=about, notes=notes, settings=settings or {})
    if report is not None:
        result.to_html(report)
    if tables is not None:
        result.to_tables(tables)
    if card is not None:
        result.to_card(card)
    return result


@dataclass(frozen=True)
class _Asked:
    """The table to audit, and what its columns are said to be."""

    table: Table
    target: str
    marks: list[str]  # the columns of the sets
    sensitive: list[str] | None
    clusters: str | None
    ids: str | None
    sample: dict[str, Any]  # how many rows, and the seed

    @property
    def named(self) -> list[str]:
        """All columns that are named for something."""
        ids = [] if self.clusters is None else [self.clusters]
        return [self.target, *self.marks, *(self.sensitive or ()), *ids]

    def check(self) -> None:
        """Refuse columns that the table does not have, and those that are named for two things."""
        self.table.check_columns(self.named)
        if self.target in self.marks:
            raise InvalidInputError(
                f"the target {self.target} cannot be a column of the sets too; name those that "
                "hold what was predicted"
            )
        if self.clusters is not None and self.named.count(self.clusters) > 1:
            raise InvalidInputError(
                f"the clusters {self.clusters} must be a column of their own, got one that is also "
                "the target, part of the sets or sensitive"
            )

    def read(
        self, columns: Sequence[str] | None, kinds: dict[str, str] | None = None
    ) -> pd.DataFrame:
        """Return the rows of the table that have a label, with these columns or with all."""
        labels = [self.target, *self.marks]
        frame = self.table.read(columns, labels=labels, kinds=kinds, **self.sample)
        return labelled_rows(frame, self.target)


@dataclass(frozen=True, eq=False)
class _Audited:
    """The rows to audit: columns in which groups are looked for, true labels, prediction sets."""

    X: pd.DataFrame
    y: Any
    sets: Any
    clusters: Any  # the cluster of each row, or None
    sensitive: list[str] | None
    classes: list[str] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    predicted: Any = None
    protected: Sequence[Any] = ()  # the groups that the model protects, as far as it can be told


def _audited_columns(asked: _Asked) -> _Audited:
    """Read the sets from columns.

    If no column is named as sensitive, groups are looked for in all that hold no answers.
    """
    texts = [asked.target, *(asked.marks if len(asked.marks) == 1 else ())]
    columns = None if asked.sensitive is None else asked.named
    frame = asked.read(columns, dict.fromkeys(texts, "text"))
    y = label_texts(frame[asked.target])
    sets: Any
    if len(asked.marks) == 1:
        sets, y = read_set_texts(frame[asked.marks[0]], y)
        sizes = np.array([len(labels) for labels in sets])
    else:
        sets = _flags(frame[asked.marks])
        sizes = sets.sum(axis=1).to_numpy()
    X, clusters = frame.drop(columns=[asked.target, *asked.marks]), None
    if asked.clusters is not None:
        clusters = X.pop(asked.clusters).to_numpy()
    if asked.sensitive is None:
        X = _without_answers(X, sizes)
    _check_all_named(asked, y)
    return _Audited(X, y, sets, clusters, asked.sensitive)


def _audited_model(asked: _Asked, model: ModelFile, progress: Progress) -> _Audited:
    """Ask a model for the sets of the rows that it has not seen."""
    clf, seen, names = model.classifier, model.seen, asked.table.names
    fitted = model.fit_notes
    notes: list[str] = []
    if asked.clusters is None:
        own = [name for name, role in fitted.get("left_out", {}).items() if role == "clusters"]
        free = [name for name in own if name in names and name not in asked.named]
        notes += _not_free(own, free, names)
        asked = replace(asked, clusters=free[0] if free else None)
    kinds, ids = model_columns(model), id_column(asked.ids, model, asked.table)
    further = [] if seen is None else [name for name in seen.names if name in names]
    needed = [*asked.named, *kinds, *further, *([] if ids is None else [ids])]
    frame = asked.read(needed, kinds | label_kinds(clf, asked.target))
    progress("asking the model")
    X = as_kinds(frame, kinds, str(asked.table.source)).set_axis(frame.index)
    classes = list(label_texts(clf.classes_))
    y = np.array(as_known(label_texts(frame[asked.target]), classes), dtype=object)
    new = _unseen(X[list(clf.column_kinds_ or X)], y, frame, seen, str(asked.table.source))
    # All rows are asked, so that errors count rows as the file does.
    persons = None if ids is None else frame[ids].to_numpy()
    with accept_drift():  # what such rows do to coverage is for the audit to say
        sets = ask(model, "predict_set", X, ids=persons)[new]
    with unjudged():
        top = clf.predict(X[list(clf.column_kinds_ or X)])[new]
    read = set(clf.column_kinds_ or ()) - set(fitted.get("not_features", ()))
    about = {
        "accuracy": float((label_texts(top) == y[new]).mean()),
        "model": Path(model.path).name,
        "promise": clf.promise_,
        "not_read": sorted({*fitted.get("not_features", ()), *(asked.sensitive or ())} - read),
        "base_model": str(fitted.get("estimator", type(clf.estimator_).__name__)),
    }
    X = X.drop(columns=list(hidden_columns(clf.estimator_, X)))
    X = X.join(frame[[name for name in asked.sensitive or () if name not in kinds]])[new]
    clusters = None
    if asked.clusters is not None:
        clusters = frame[asked.clusters].to_numpy()[new]
        X = X.drop(columns=asked.clusters, errors="ignore")
    notes += [] if new.all() else [SeenRows.left_out(int((~new).sum()), len(new))]
    sensitive = asked.sensitive
    if sensitive is None:
        sensitive, note = _own_sensitive(clf, X)
        notes += note
    notes += _not_remembered(model.calibrated_note)
    notes += _not_compared(model, frame)
    predicted = label_texts(top)
    columns = set(X if sensitive is None else sensitive)
    groups = [rule for rule in getattr(clf, "protected_", ()) if columns >= set(rule.features)]
    return _Audited(X, y[new], sets, clusters, sensitive, classes, about, notes, predicted, groups)


def _not_free(own: Sequence[str], free: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return a note if the clusters ``own`` of a model are no free column of a table."""
    if not own or free:
        return ()
    why = "is named for something else" if own[0] in names else "is not a column of this table"
    return (
        f"the model was fitted with the clusters {own[0]}, which {why}: rows were counted as "
        "independent; name a column of clusters if some belong together",
    )


def _not_remembered(calibrated: dict[str, Any]) -> tuple[str, ...]:
    """Return a note if a model was calibrated on rows that its file does not remember."""
    if not calibrated or calibrated.get("remembered"):
        return ()
    return (
        f"the model was calibrated again on {calibrated['data']} ({calibrated['rows']} "
        "rows), which its file does not remember: if these are among the audited rows, they are "
        "not left out",
    )


def _not_compared(model: ModelFile, frame: pd.DataFrame) -> tuple[str, ...]:
    """Return a note if nobody can tell which rows of a table the model was fitted on."""
    if model.seen is None and model.fit_notes:
        why = "many rows that the model was fitted on equal each other, so its file remembers none"
    elif model.seen is not None and not model.seen.knows(frame):
        lacking = [name for name in model.seen.names if name not in frame]
        why = f"rows that the model was fitted on are known by {shown(lacking)}, not columns here"
    else:
        return ()
    return (f"{why}: if some are among the audited rows, they are not left out",)


def _own_sensitive(clf: Any, X: pd.DataFrame) -> tuple[list[str] | None, tuple[str, ...]]:
    """Return the sensitive features that a model was given, and a note if they are not all columns.

    They are columns of its table, or lay next to it; None if it was given none.
    """
    own, selection = getattr(clf, "sensitive_kinds_", None) or (), clf.sensitive_features
    if not own and selection is not None and not callable(selection):
        table = pd.DataFrame(columns=list(clf.column_kinds_ or X))
        own = table.columns[selected_positions(list(map(str, table.columns)), selection)]
    own = [name for name in own if name in X]
    if len(own) in (0, X.shape[1]):
        return own or None, ()
    note = (
        f"groups were looked for in the sensitive features of the model, {shown(own)}; name others "
        "as sensitive to look there"
    )
    return own, (note,)


def _unseen(
    X: pd.DataFrame, y: Any, frame: pd.DataFrame, seen: SeenRows | None, data: str
) -> BoolArray:
    """Tell the rows that neither trained nor calibrated a model, as far as its file remembers."""
    used = np.zeros(len(y), dtype=bool) if seen is None else seen.contains(X, y, frame)
    if used.all():
        raise InvalidInputError(
            f"all {len(y)} rows of {data} equal rows that were used to train or calibrate this "
            "model and say nothing about new ones; audit it on rows that it has not seen"
        )
    if used.any():
        warn(SeenRows.left_out(int(used.sum()), len(y)))
    return ~used


def _without_answers(X: pd.DataFrame, sizes: Any) -> pd.DataFrame:
    """Leave out the predictor's answers: a group such as "the set is empty" is never covered."""
    answers = [
        name
        for name, column in X.items()
        if pd.api.types.is_numeric_dtype(column.dtype) and (column == sizes).all()
    ]
    if "size" in answers:
        answers += [name for name in (*ANSWERS, "action") if name in X and name not in answers]
    if answers:
        warn(
            f"{', '.join(map(str, answers))} belong to the predictions and define no groups; "
            "name them in sensitive if they should"
        )
    return X.drop(columns=answers)


def _check_all_named(asked: _Asked, y: Any) -> None:
    """Refuse to leave out a column that is named like those of the sets and holds such marks."""
    sets = asked.marks
    if len(sets) == 1:
        return  # one column holds the sets as lists
    columns = column_classes(y, len(sets), names=sets)
    named, labels = re.escape(columns.prefix) + "(.*)" + re.escape(columns.suffix), set(y)
    suspects = [
        name
        for name in asked.table.names
        if name not in sets
        and (inner := re.fullmatch(named, name, re.DOTALL))
        and plain_text(inner[1]) in set(map(plain_text, labels))
    ]
    if not suspects:
        return
    frame = asked.table.read(suspects, **asked.sample)
    forgotten = [name for name in suspects if set(frame[name].unique()) <= {True, False}]
    if forgotten:
        raise InvalidInputError(
            f"column {forgotten[0]} is named after a label and holds True and False like "
            f"{sets[0]}; name all columns of the sets"
        )


def _flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns of True and False (or 1 and 0) as a frame of bool."""
    for name, column in frame.items():
        told = f"column {name} of the sets must hold True and False (or 1 and 0), got"
        if column.isna().any():
            raise InvalidInputError(f"{told} missing values")
        values = set(column.unique().tolist())
        if not values <= {True, False}:
            raise InvalidInputError(
                f"{told} {shown(sorted(map(str, values))[:3])}; turn probabilities into sets by a "
                "conformal classifier first"
            )
    return frame.astype(bool)
