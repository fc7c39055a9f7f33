"""Audit of the prediction sets in a file, whichever tool wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import selected_positions
from fareg._drift import accept_drift, ignore_drift
from fareg._files import AnyPath, check_output, check_outputs
from fareg._labels import column_classes, plain_text
from fareg._rows import hash_key
from fareg._validation import InvalidInputError, check_confidence_level, warn
from fareg._words import HTML, MARKDOWN, quoted, shown
from fareg.auditing import AuditResult, Promise, audit
from fareg.classifiers import hidden_columns
from fareg.persistence import ModelFile, SeenRows
from fareg.workflow._labels import as_known, label_texts, read_set_texts
from fareg.workflow._predict import ANSWERS
from fareg.workflow._roles import has_id_name, id_columns, id_note, is_id, labelled_rows
from fareg.workflow._stored import call_model, id_column, label_kinds, model_columns, read_columns
from fareg.workflow._table import MAX_ROWS, Progress, Table, quiet
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
    """Audit the prediction sets in a table, or those of a model for its rows.

    Parameters
    ----------
    data : path of a CSV or Parquet file, or of a folder of Parquet files
    target : str
        Column of true labels.
    sets : list of str, default=None
        Columns of True and False named after the labels, perhaps all with the same prefix or
        suffix; or one column of lists, of JSON lists as ``fareg predict`` writes them, or of text
        such as ``a|b``.
    model : path of a model file, default=None
        Instead of ``sets``. Rows that trained or calibrated it are left out with a warning: a file
        of ``fareg fit`` remembers them by label and by the values of the columns that this table
        has. Nothing is left out if rows equal such ones no more often than by chance.
    sensitive : list of str, default=None
        Columns in which to look for groups. None for the sensitive features of the model, which a
        note then names, or for all other columns without any; then, next to ``sets``, a column of
        text or whole numbers that differs in every row is taken as an id and left out.
    confidence_level : float, default=None
        What the sets promise; None for the promise of the model, or 0.9 without one.
    seed : int, default=None
        None for the seed of the model, so that an audit of the test rows of a fit repeats the one
        in that fit; 0 without a model.
    ids, trusted, sha256
        For a model, as in :func:`fareg.workflow.predict_file`.
    clusters : str, default=None
        Column of ids: rows with the same id may depend on each other. It defines no groups. None
        for the clusters of the model's fit; a note says so if the table lacks their column.
    n_calibration : int, default=None
        Number of rows that calibrated the sets, to allow for chance. A model file knows it, unless
        you audit another confidence than its own.
    max_rows : int, default=1000000
        From a larger table, this many rows are drawn, independently of those that a fit with the
        same seed draws.
    report, tables, card : paths, default=None and None and None
        Also write the result: a report to this HTML file, every table to this folder as a CSV file,
        and a section of a model card to this .md file.
    progress : function, optional
        Called with the name of each stage when it begins.
    settings : mapping, default=None
        What next steps call a setting, if not by its name in Python.
    """
    for path, endings in ((report, HTML), (card, MARKDOWN)):
        if path is not None:
            check_output(path, endings=endings)
    check_outputs([report, card], inputs=[data, model])
    if bool(sets) == (model is not None):
        got = "both" if sets else "none"
        raise InvalidInputError(f"pass either the columns of the sets or a model, got {got}")
    if sha256 is not None and model is None:
        raise InvalidInputError("sha256 is for a model file, got no model; leave it out")
    if ids is not None and model is None:
        raise InvalidInputError(
            f"ids are for the random numbers of a model, got the column {ids} and finished sets; "
            "leave the ids out"
        )
    if confidence_level is not None:
        check_confidence_level(confidence_level)
    # A sample with the seed of the fit would draw the rows of the fit, which are left out.
    sample = {"max_rows": max_rows, "seed": hash_key(seed or 0)}
    named = [target, *(sets or ()), *(sensitive or ()), *filter(None, [clusters])]
    with Table(data) as table:
        try:
            table.check_columns(named)
        except InvalidInputError as error:
            if set(ANSWERS) <= {*table.names}:
                missing = ",".join(quoted(name) for name in named if name not in table.names)
                raise InvalidInputError(f"{error}; predict with keep={missing} keeps it") from error
            raise
        if target in (sets or ()):
            raise InvalidInputError(
                f"the target {target} cannot be a column of the sets too; name the columns of "
                "predictions"
            )
        if clusters is not None and named.count(clusters) > 1:
            raise InvalidInputError(
                f"the clusters {clusters} must be a column of their own, got one that is also the "
                "target, part of the sets or sensitive; name another column"
            )
        if both := [name for name in sensitive or () if name in (target, *(sets or ()))]:
            what = "the target" if both[0] == target else "a column of the sets,"
            raise InvalidInputError(
                f"sensitive names {what} {both[0]}, which cannot define a group; leave it out"
            )
        columns = None if sensitive is None else list(sensitive)
        request = _Request(table, target, list(sets or ()), columns, clusters, named, sample)
        if model is None:
            audited = _sets_in_columns(request)
        else:
            file = ModelFile.open(model, trusted=trusted, sha256=sha256)
            clf = file.classifier
            audited = _sets_of_model(request, file, ids, progress)
            if n_calibration is None and confidence_level in (None, clf.confidence_level):
                n_people = clf.calibration_.sample.n_people  # each cluster counts once
                n_calibration = Promise.of_fitted(clf.confidence_level, n_people).n_calibration
            confidence_level = confidence_level or clf.confidence_level
            if seed is None and isinstance(clf.random_state, int):
                seed = clf.random_state
    if audited.X.shape[1] == 0:
        raise InvalidInputError(
            f"{data} has no column in which to look for a group; add columns that describe the "
            "people"
        )
    column_kinds(audited.X)  # refuses columns of lists
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
    facts = {"file": Path(data).name, "target": target, **audited.facts, **result.about}
    notes = (*audited.notes, *result.notes)
    result = replace(result, about=facts, notes=notes, settings=settings or {})
    for path, write in (
        (report, result.to_html),
        (tables, result.to_tables),
        (card, result.to_card),
    ):
        if path is not None:
            write(path)
    return result


@dataclass(frozen=True)
class _Request:
    """The table to audit, and the roles of its columns."""

    table: Table
    target: str
    set_columns: list[str]
    sensitive: list[str] | None
    clusters: str | None
    named: list[str]  # all columns with a role
    sample: dict[str, Any]  # number of rows, and seed

    def read(self, columns: Sequence[str] | None, kinds: dict[str, str]) -> pd.DataFrame:
        """Return the rows of the table that have a label, with the given columns or all."""
        labels = [self.target, *self.set_columns]
        if columns is not None:  # ids matter to the counts, whatever else is read
            columns = [*columns, *filter(has_id_name, self.table.names)]
        frame = self.table.read(columns, labels=labels, kinds=kinds, **self.sample)
        return labelled_rows(frame, self.target)

    def id_notes(self, frame: pd.DataFrame) -> list[str]:
        """Return a note if a column without a role looks like an id with several rows each."""
        names = [str(name) for name in frame if name not in self.named and not is_id(frame[name])]
        note = id_note(frame, names) if self.clusters is None else None
        return [note] if note else []


@dataclass(frozen=True, eq=False)
class _Audited:
    """The rows to audit: columns in which to look for groups, true labels, prediction sets."""

    X: pd.DataFrame
    y: Any
    sets: Any
    clusters: Any  # the cluster of each row, or None
    sensitive: list[str] | None
    classes: list[str] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    predicted: Any = None
    protected: Sequence[Any] = ()  # groups that the model protects, if the table has their columns


def _sets_in_columns(request: _Request) -> _Audited:
    """Read the sets from columns of the table."""
    is_one = len(request.set_columns) == 1
    texts = [request.target, *(request.set_columns if is_one else ())]
    columns = None if request.sensitive is None else request.named
    frame = request.read(columns, dict.fromkeys(texts, "text"))
    y = label_texts(frame[request.target])
    sets: Any = None
    if is_one:
        sets, y = read_set_texts(frame[request.set_columns[0]], y)
        sizes = np.array([len(labels) for labels in sets])
    else:
        sets = _flags(frame[request.set_columns])
        sizes = sets.sum(axis=1).to_numpy()
        _check_all_named(request, y)
    X = frame.drop(columns=[request.target, *request.set_columns])
    clusters = None if request.clusters is None else X.pop(request.clusters).to_numpy()
    if request.sensitive is None:  # a group such as "the set is empty" is never covered
        numbers = X.select_dtypes("number")
        answers = [str(name) for name, column in numbers.items() if (column == sizes).all()]
        if "size" in answers:
            answers += [n for n in (*ANSWERS, "action") if n in X and n not in answers]
        if answers:
            warn(
                f"{', '.join(answers)} belong to the predictions and define no groups; name them "
                "as sensitive if they should"
            )
        X = X.drop(columns=answers)
        X = X.drop(columns=id_columns(X, "define no groups"))
    notes = request.id_notes(X)
    if request.sensitive is not None:
        X = X[[name for name in X if name in request.sensitive]]
    return _Audited(X, y, sets, clusters, request.sensitive, notes=notes)


def _sets_of_model(
    request: _Request, model: ModelFile, ids: str | None, progress: Progress
) -> _Audited:
    """Predict the sets of the rows that a model has not seen."""
    clf, seen, names, fitted = model.classifier, model.seen, request.table.names, model.fit_notes
    notes: list[str] = []
    if request.clusters is None:
        left_out = fitted.get("left_out", {})
        for name in (name for name, role in left_out.items() if role == "clusters"):
            if name in names and name not in request.named:
                request = replace(request, clusters=name)
                continue
            why = "has another role" if name in names else "is not a column of this table"
            notes.append(
                f"the model was fitted with the clusters {name}, which {why}: rows were counted as "
                "independent; name a column of clusters if some belong together"
            )
    kinds, ids = model_columns(model), id_column(ids, model, request.table)
    further = [name for name in (seen.names if seen else ()) if name in names]
    needed = [*request.named, *kinds, *further, *filter(None, [ids, request.clusters])]
    frame = request.read(needed, kinds | label_kinds(clf, request.target))
    progress("predicting with the model")
    X = as_kinds(frame, kinds, str(request.table.source)).set_axis(frame.index)
    read, classes = X[read_columns(model)], list(label_texts(clf.classes_))
    y = np.array(as_known(label_texts(frame[request.target]), classes), dtype=object)
    used = np.zeros(len(y), dtype=bool) if seen is None else seen.contains(read, y, frame)
    if used.all():
        raise InvalidInputError(
            f"all {len(y)} rows of {request.table.source} equal rows that were used to train or "
            "calibrate this model and say nothing about new ones; audit it on rows that it has not "
            "seen"
        )
    if used.any():
        notes.append(SeenRows.left_out(int(used.sum()), len(y)))
        warn(notes[-1])
    # Predict all rows, so that errors number rows as the file does.
    with accept_drift():  # the audit says what drift does to coverage
        id_values = None if ids is None else frame[ids].to_numpy()
        sets = call_model(model, "predict_set", X, ids=id_values)[~used]
    with ignore_drift():
        predicted = label_texts(clf.predict(read)[~used])
    frame, X, y = frame[~used], X[~used], y[~used]
    not_features = set(fitted.get("not_features", ()))
    not_read = {*not_features, *(request.sensitive or ())} - (set(read) - not_features)
    facts = {
        "accuracy": float((predicted == y).mean()),
        "model": Path(model.path).name,
        "promise": clf.promise_,
        "not_read": sorted(not_read),
        "base_model": str(fitted.get("estimator", type(clf.estimator_).__name__)),
    }
    X = X.drop(columns=list(hidden_columns(clf.estimator_, X)))
    X = X.join(frame[[name for name in request.sensitive or () if name not in kinds]])
    clusters, sensitive = None, request.sensitive
    if request.clusters is not None:
        clusters = frame[request.clusters].to_numpy()
        X = X.drop(columns=request.clusters, errors="ignore")
    if sensitive is None and (found := _sensitive_features(clf, X)):
        sensitive = found
        if len(found) < X.shape[1]:
            notes.append(
                "only the model's sensitive features were searched for groups: "
                f"{shown(found)}; name other columns as sensitive to search those"
            )
    notes += _not_remembered(model, frame)
    roles = [*filter(None, [ids]), *fitted.get("left_out", ())]
    notes += request.id_notes(frame.drop(columns=roles, errors="ignore"))
    columns = set(X if sensitive is None else sensitive)
    groups = [rule for rule in getattr(clf, "protected_", ()) if columns >= set(rule.features)]
    return _Audited(X, y, sets, clusters, sensitive, classes, facts, notes, predicted, groups)


def _sensitive_features(clf: Any, X: pd.DataFrame) -> list[str]:
    """Return the sensitive features of a model that are columns of X."""
    names, selection = getattr(clf, "sensitive_kinds_", None) or (), clf.sensitive_features
    if not names and selection is not None and not callable(selection):
        table = pd.DataFrame(columns=list(clf.column_kinds_ or X))
        names = table.columns[selected_positions(list(map(str, table.columns)), selection)]
    return [name for name in names if name in X]


def _not_remembered(model: ModelFile, frame: pd.DataFrame) -> Iterator[str]:
    """Yield notes about rows of the fit that cannot be recognised in a table."""
    seen, calibrated = model.seen, model.calibrated_note
    if calibrated and not calibrated.get("remembered"):
        yield (
            f"the model was calibrated again on {calibrated['data']} ({calibrated['rows']} rows), "
            "which its file does not remember: if these are among the audited rows, they are not "
            "left out"
        )
    if seen is None and model.fit_notes:
        why = "many rows that the model was fitted on equal each other, so its file remembers none"
    elif seen is not None and not seen.knows(frame):
        lacking = [name for name in seen.names if name not in frame]
        why = f"rows that the model was fitted on are known by {shown(lacking)}, not columns here"
    else:
        return
    yield f"{why}: if some are among the audited rows, they are not left out"


def _check_all_named(request: _Request, y: Any) -> None:
    """Refuse to leave out a column that is named after a true label like those of the sets."""
    set_columns = request.set_columns
    columns = column_classes(y, len(set_columns), names=set_columns)
    labels = set(map(plain_text, y))
    for name in request.table.names:
        inner = name.removeprefix(columns.prefix).removesuffix(columns.suffix)
        is_alike = name == f"{columns.prefix}{inner}{columns.suffix}"
        if is_alike and name not in set_columns and plain_text(inner) in labels:
            raise InvalidInputError(
                f"column {name} is named after a label like {set_columns[0]}; name all columns of "
                "the sets"
            )


def _flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns of True and False (or 1 and 0) as a frame of bool."""
    for name, column in frame.items():
        must = f"column {name} of the sets must hold True and False (or 1 and 0), got"
        if column.isna().any():
            raise InvalidInputError(f"{must} missing values; fill them or drop these rows")
        values = set(column.unique().tolist())
        if not values <= {True, False}:
            raise InvalidInputError(
                f"{must} {shown(sorted(map(str, values))[:3])}; turn probabilities into sets with "
                "a conformal classifier first"
            )
    return frame.astype(bool)
