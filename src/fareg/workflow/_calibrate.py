"""Calibration of a given model on all rows of a table or folder, scored where they lie."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical
from fareg._drift import Drift, accept_drift, added, count_strange, judge, unjudged
from fareg._engines import run_tasks
from fareg._files import AnyPath, check_output, check_outputs, digest_of, write_text
from fareg._labels import check_known
from fareg._rows import equal_before
from fareg._validation import FloatArray, IntArray, InvalidInputError, check_count, warn
from fareg._words import JSON
from fareg.calibration import Sample
from fareg.classifiers import FaReGClassifier
from fareg.persistence import ModelFile, SeenRows, save
from fareg.scores import get_score, is_randomised
from fareg.shift import CovariateShift
from fareg.workflow import _predict
from fareg.workflow._acceptance import SCHEMA, before_and_after
from fareg.workflow._labels import as_known, label_texts
from fareg.workflow._predict import (
    ask,
    check_any,
    check_engine_of,
    id_column,
    ids_in,
    label_kinds,
    model_columns,
)
from fareg.workflow._table import MAX_ROWS, Progress, Table, quiet
from fareg.workflow._target import check_missing
from fareg.workflow._values import as_kinds

Task = tuple[str, IntArray | None]  # a part, and how many equal rows came before each of its
MAX_REMEMBERED = 10**6  # rows of a file that the model file remembers
N_EXAMPLES = 6  # labels that the estimator never saw, as many as a warning may show
OUTDATED = ("verdict", "rows", "after", "groups")  # what fareg fit noted of the old thresholds


def calibrate_file(
    model: AnyPath,
    data: AnyPath,
    *,
    target: str,
    out: AnyPath,
    towards: AnyPath | None = None,
    record: AnyPath | None = None,
    ids: str | None = None,
    batch_size: int | None = None,
    engine: str = "local",
    jobs: int | None = None,
    trusted: Sequence[str] | None = None,
    sha256: str | None = None,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Give a model the thresholds that all rows of a folder ask for; write it to ``out``.

    Each part is read and scored where it runs; the score of the true label of each row comes back,
    and its level and groups. The thresholds are those of all rows in one memory, to the bit,
    whatever the engine, the number of processes and the workers that died. Rows that the model has
    seen, which a file of ``fareg fit`` remembers by value, are left out with a warning, unless so
    few of the rows equal seen ones that chance explains it. The new file remembers the rows of one
    file of at most 10^6 rows too, and not those of a folder.

    Parameters
    ----------
    model : path of a model file of ``fareg fit``
    data : path of a folder of Parquet files, or of one CSV or Parquet file
        ``name=value`` in the name of a folder is a column. Workers on other machines must see the
        paths as this one does.
    target : str
        Column of true labels.
    out : path of the model file to write
    towards : path of a table or folder, default=None
        Rows of the population for which sets will be made, without labels: the rows of ``data`` get
        the weights of a :class:`fareg.shift.CovariateShift`. All rows are then in memory.
    record : path of a JSON file, default=None
        The acceptance record: what was asked, on which rows, what was found, and which file
        replaces which. The notes of the new model hold what was found too.
    ids : str, default=None
        Column that says whose row it is, for the random number of the row; None for the one that
        the model was fitted with, if it is here. Rows that are equal, id included, are numbered in
        the order of the parts: parts with rows that equal earlier ones are scored a second time.
    batch_size, engine, jobs, trusted, sha256
        As in :func:`fareg.workflow.predict_file`.
    progress : function, optional
        Called with the name of each step when it begins.

    Returns
    -------
    dict
        ``rows`` that calibrated, those ``left_out``, and ``thresholds``: those of the levels, in
        one list per label or one for all; ``coverage`` before and after by stream; and the
        ``effective_rows`` of weighted ones.
    """
    check_output(out)
    if record is not None:
        check_output(record, endings=JSON)
    check_outputs([out, record], inputs=[model, data, towards])
    source = Path(data).resolve()
    if not source.is_dir():
        check_engine_of(data, engine, jobs)
    size = check_count("batch_size", _predict.BATCH_ROWS if batch_size is None else batch_size)
    file = ModelFile.open(model, trusted=trusted, sha256=sha256)
    clf, kinds, is_folder = file.classifier, model_columns(file), source.is_dir()
    _check_levels(clf)
    with Table(source) as table:
        table.check_columns([target])
        seen = file.seen
        known_by = () if seen is None or not seen.knows([*table.names, *kinds]) else seen.names
        rows = LabelledRows(file, target, size, id_column(ids, file, table), known_by)
        parts = [part.relative_to(source).as_posix() if is_folder else "" for part in table.parts]

        def run(tasks: list[Task]) -> dict[str, Scored]:
            if not is_folder:
                return {part: rows.scored(table, before) for part, before in tasks}
            score = partial(_scored_part, rows=rows, root=source)
            return dict(run_tasks(score, tasks, engine=engine, jobs=jobs))

        progress("scoring rows")
        found = run([(part, None) for part in parts])
        again = _numbered({part: found[part] for part in parts})
        if again:
            progress("scoring rows again that equal earlier ones")
            found |= run(again)
        table.check_unchanged()
        scored = Scored.joined([found[part] for part in parts])  # in order, whichever came first
        check_any(scored.n_rows, data)
        check_missing(scored.n_missing, scored.n_rows, target)
        _check(scored, clf, str(data))
        more = None
        if not is_folder and scored.n_rows <= MAX_REMEMBERED:
            told = {**kinds, **label_kinds(clf, target)}
            frame = table.read([*told, *known_by], labels=[target], kinds=told)
            frame = frame[frame[target].notna()].reset_index(drop=True)
            X, y = as_kinds(frame, kinds, str(source))[rows.read], label_texts(frame[target])
            more = SeenRows.of(X, y) if seen is None else seen.with_rows(X, y, frame)
        if towards is None:
            labels = scored.labels.astype(np.int64) if clf.label_conditional else None
            n_labels = len(clf.classes_) if clf.label_conditional else 1
            sample = Sample(scored.score, labels, n_labels, None)
            calibrated = clf.with_sample(sample, scored.places.astype(np.int64))
        else:
            progress("learning how the populations differ")
            calibrated = _weighted(rows, table, towards)
    counted = {"rows": scored.n, "left_out": scored.n_seen}
    found_by: dict[str, Any] = {"coverage": before_and_after(clf, calibrated)}
    if calibrated.shift_ is not None:
        found_by["effective_rows"] = calibrated.shift_.effective_rows
    outdated = OUTDATED if file.fit_notes else ()
    notes = {k: v for k, v in file.notes.items() if k not in outdated}
    counted_at = {"data": source.name, **counted, "remembered": more is not None}
    notes["calibrated"] = {**counted_at, **found_by}
    save(calibrated, out, metadata=notes, seen=seen if more is None else more)
    theta = calibrated.calibration_.parts[0].theta
    answer: dict[str, Any] = {**counted, "thresholds": [own.tolist() for own in theta], **found_by}
    if record is not None:
        asked = {"confidence_level": clf.confidence_level, "target": target}
        asked |= {} if towards is None else {"towards": str(towards)}
        of_rows = {"data": str(data), **counted}
        if not is_folder:
            of_rows["sha256"] = digest_of(source)
        files = {"replaced": (model, file.sha256), "by": (out, digest_of(out))}
        whole = {
            "schema": SCHEMA,
            "asked": asked,
            "rows": of_rows,
            "found": {**found_by, "thresholds": answer["thresholds"]},
            **{name: {"file": str(path), "sha256": own} for name, (path, own) in files.items()},
        }
        write_text(record, json.dumps(whole, indent=1) + "\n")
    return answer


def _weighted(rows: LabelledRows, table: Table, towards: AnyPath) -> Any:
    """Return the classifier with the thresholds of rows that are weighted towards others."""
    file, kinds = rows.model, model_columns(rows.model)
    frame = pd.concat([own for own, _ in rows.batches(table)], ignore_index=True)
    with Table(towards) as others:
        new = others.read(list(kinds), kinds=kinds, max_rows=MAX_ROWS)
    own = list(file.classifier.column_kinds_ or kinds)
    new = as_kinds(new, kinds, str(towards))[own].reset_index(drop=True)
    shift = CovariateShift().fit(frame[own], new)
    ids = None if rows.ids is None else frame[rows.ids].to_numpy()
    y, X = frame[rows.target].to_numpy(), frame[list(kinds)]
    with accept_drift():
        return ask(file, "recalibrated", X, y=y, ids=ids, shift=shift)


def _check_levels(clf: Any) -> None:
    """Refuse a classifier whose thresholds do not follow from scores and levels alone."""
    if not isinstance(clf, FaReGClassifier):
        raise InvalidInputError(
            "rows of a folder can calibrate a FaReGClassifier, as fareg fit makes, got "
            f"{type(clf).__name__}"
        )
    if clf.n_calibration_clusters_ is not None:
        raise InvalidInputError(
            "this model was fitted with clusters, each of which counts once, and files do not say "
            "how many rows of a cluster are in others; use clf.recalibrated(X, y, clusters=...) in "
            "Python"
        )


@dataclass(frozen=True, eq=False)
class Scored:
    """The rows of one batch, one part or several, that calibrate."""

    score: FloatArray  # (n,) of the true labels
    labels: Any  # (n,) columns of the true labels, -1 for one that the estimator never saw
    places: Any  # (n, n_parts) where each row belongs in every part of the calibration
    hashes: Any  # (n,) what equal rows have in common, if random numbers are drawn
    before: Any  # (n,) how many equal rows came earlier, as the scores know it
    n_rows: int = 0  # all that were read
    n_missing: int = 0  # without a label
    n_seen: int = 0  # that the model has seen
    examples: tuple[Any, ...] = ()  # labels that the estimator never saw
    drift: Drift = field(default_factory=dict)  # rows that are not like those of fit, by column

    @property
    def n(self) -> int:
        """Number of rows that calibrate."""
        return len(self.score)

    @classmethod
    def joined(cls, found: Sequence[Scored]) -> Scored:
        """Put rows together, in the order in which they came."""

        def all_of(name: str) -> Any:
            return np.concatenate([getattr(part, name) for part in found])

        examples = sorted({text for part in found for text in part.examples}, key=str)
        return cls(
            score=all_of("score"),
            labels=all_of("labels"),
            places=all_of("places"),
            hashes=all_of("hashes"),
            before=all_of("before"),
            n_rows=sum(part.n_rows for part in found),
            n_missing=sum(part.n_missing for part in found),
            n_seen=sum(part.n_seen for part in found),
            examples=tuple(examples[:N_EXAMPLES]),
            drift=reduce(added, (part.drift for part in found)),
        )


def _numbered(found: dict[str, Scored]) -> list[Task]:
    """Return the parts whose rows equal earlier ones in other batches, with the numbers of rows."""
    hashes = [scored.hashes for scored in found.values()]
    numbers = np.split(equal_before(np.concatenate(hashes)), np.cumsum(list(map(len, hashes)))[:-1])
    pairs = zip(found.items(), numbers, strict=True)
    return [(part, own) for (part, scored), own in pairs if (own != scored.before).any()]


@dataclass(frozen=True)
class LabelledRows:
    """What calibrates: the rows with a label that the model has not seen."""

    model: ModelFile
    target: str
    size: int  # rows at a time
    ids: str | None
    known_by: tuple[str, ...]  # further columns that tell whether a row was used

    @property
    def read(self) -> list[str]:
        """The columns of the table, without sensitive features next to it."""
        return list(self.model.classifier.column_kinds_ or model_columns(self.model))

    def scored(self, table: Table, before: IntArray | None = None) -> Scored:
        """Score all rows; without ``before``, equal ones are numbered within each batch."""
        found, start = [self._nothing()], 0
        for rows, counts in self.batches(table):
            own = None if before is None else before[start : start + len(rows)]
            start += len(rows)
            scored = self._scored(rows, own) if len(rows) else self._nothing()
            found.append(replace(scored, n_rows=counts[0], n_missing=counts[1], n_seen=counts[2]))
        return Scored.joined(found)

    def batches(self, table: Table) -> Iterator[tuple[pd.DataFrame, tuple[int, int, int]]]:
        """Yield some rows that calibrate; how many were read, have no label, and were seen."""
        clf, target = self.model.classifier, self.target
        kinds = {**model_columns(self.model), **label_kinds(clf, target)}
        labels = dict(zip(label_texts(clf.classes_), clf.classes_.tolist(), strict=True))
        keep = [name for name in {*self.known_by, *filter(None, [self.ids])} if name not in kinds]
        for batch, kept in table.batches(kinds, self.size, keep=keep, labels=[target]):
            rows = batch.assign(**{name: ids_in(kept, name) for name in keep})
            rows = rows[rows[target].notna()].reset_index(drop=True)
            n_labelled = len(rows)
            if len(rows) and self.model.seen is not None:
                y = label_texts(rows[target].to_numpy())
                used = self.model.seen.contains(rows[self.read], y, rows)
                rows = rows[~used].reset_index(drop=True)
            if kinds[target] == "text":
                texts = as_known(label_texts(rows[target]), labels)
                rows[target] = pd.Series([labels.get(t, t) for t in texts], dtype=object)
            yield rows, (len(batch), len(batch) - n_labelled, n_labelled - len(rows))

    def _nothing(self) -> Scored:
        none = np.empty(0, np.int32)
        nowhere = np.empty((0, len(self.model.classifier.calibration_.parts)), np.int16)
        return Scored(np.empty(0), none, nowhere, np.empty(0, np.uint64), none)

    def _scored(self, rows: pd.DataFrame, before: IntArray | None) -> Scored:
        clf, X = self.model.classifier, rows[list(model_columns(self.model))]
        y, nothing = rows[self.target].to_numpy(), self._nothing()
        named = {"y": y, "ids": None if self.ids is None else rows[self.ids].to_numpy()}
        hashes = nothing.hashes
        with unjudged():
            if is_randomised(get_score(clf.conformity_score)):
                hashes = ask(self.model, "labelled_hashes", X, **named)
            before = equal_before(hashes) if before is None else before
            numbers = before if len(hashes) else None
            labelled = ask(self.model, "labelled_rows", X, before=numbers, **named)
        unknown = tuple(dict.fromkeys(y[labelled.y < 0].tolist()))[:N_EXAMPLES]
        return Scored(
            labelled.score,
            labelled.y.astype(np.int32),  # few bytes a row, for they travel
            clf.calibration_.places(labelled).astype(np.int16),
            hashes,
            before.astype(np.int32),
            examples=unknown,
            drift=count_strange(clf.seen_values_, canonical(X)),
        )


def _scored_part(task: Task, rows: LabelledRows, root: Path) -> tuple[str, Scored]:
    """Return the scored rows of a part of a folder, with its name."""
    part, before = task
    with Table(root / part, root=root) as table:
        return part, rows.scored(table, before)


def _check(found: Scored, clf: Any, data: str) -> None:
    """Refuse rows of which none is new or has a known label; warn of what is left out."""
    if found.n == 0:
        raise InvalidInputError(
            f"the rows of {data} all equal rows that were used to train or calibrate this model; "
            "give rows that it has not seen"
        )
    if found.n_seen:
        warn(SeenRows.left_out(found.n_seen, found.n + found.n_seen))
    judge(clf.seen_values_, found.drift, accept=True)  # the new thresholds are those of such rows
    check_known(
        int((found.labels < 0).sum()),
        found.n,
        np.array(found.examples, dtype=object),
        clf.classes_,
        alpha=clf.alpha_,
    )
