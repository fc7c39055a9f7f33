"""Calibration of a given model on all rows of a table or folder, scored where they lie."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fareg._columns import canonical
from fareg._drift import Drift, accept_drift, added, count_strange, ignore_drift, judge
from fareg._engines import run_tasks
from fareg._files import AnyPath, check_output, check_outputs, digest_of, write_text
from fareg._labels import check_known
from fareg._rows import equal_before
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError, check_count, warn
from fareg._words import JSON, percent
from fareg.calibration import LevelThresholds, Sample, Union
from fareg.classifiers import FaReGClassifier
from fareg.persistence import ModelFile, SeenRows, save
from fareg.scores import get_score, is_randomised
from fareg.shift import CovariateShift
from fareg.workflow import _predict
from fareg.workflow._asking import (
    as_labels,
    ask,
    check_any,
    check_engine_of,
    id_column,
    ids_in,
    label_kinds,
    model_columns,
    read_columns,
)
from fareg.workflow._labels import label_texts
from fareg.workflow._roles import check_missing
from fareg.workflow._table import MAX_ROWS, Progress, Table, quiet
from fareg.workflow._values import as_kinds

MAX_REMEMBERED = 10**6  # rows of a file that the model file remembers
N_EXAMPLES = 6  # labels that the estimator never saw, as many as a warning may show
SCHEMA = "fareg-acceptance-1"  # of the record
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

    Each part is read and scored where it runs. Nine bytes a row come back: the score of the true
    label, and a level of at most 127; one more for every protected group, and for the label with
    ``label_conditional``. Where the score is randomised, eight bytes a row come back before: hashes
    by which equal rows of all parts are found and numbered, for each has a random number of its
    own. The thresholds are those of all rows in one memory, to the bit, whatever the engine, the
    number of processes and the workers that died. Rows that the model has seen, which a file of
    ``fareg fit`` remembers by value, are left out with a warning, unless so few of the rows equal
    seen ones that chance explains it. The new file remembers the rows of one file of at most 10^6
    rows too, and not those of a folder.

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
        the order of the parts.
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
    clf, seen = file.classifier, file.seen
    _check_levels(clf)
    with Table(source) as table:
        table.check_columns([target])
        known_by = seen.names if seen and seen.knows([*table.names, *model_columns(file)]) else ()
        rows = LabelledRows(file, target, size, id_column(ids, file, table), known_by)
        arrays, tally = rows.everywhere(table, engine, jobs, progress)
        table.check_unchanged()
        n, counts = len(arrays["score"]), tally.counts
        check_any(counts["read"], data)
        check_missing(counts["missing"], counts["read"], target)
        if n == 0:
            raise InvalidInputError(
                f"the rows of {data} all equal rows that were used to train or calibrate this "
                "model; give rows that it has not seen"
            )
        if counts["seen"]:
            warn(SeenRows.left_out(counts["seen"], n + counts["seen"]))
        judge(clf.seen_values_, tally.drift, accept=True)  # the thresholds are those of such rows
        examples = np.array(tally.examples, dtype=object)
        check_known(counts["unknown"], n, examples, clf.classes_, alpha=clf.alpha_)
        is_remembered = not source.is_dir() and counts["read"] <= MAX_REMEMBERED
        more = rows.remembered(table) if is_remembered else None
        if towards is None:
            labels = arrays["labels"].astype(np.int64) if clf.label_conditional else None
            n_labels = len(clf.classes_) if clf.label_conditional else 1
            sample = Sample(arrays["score"], labels, n_labels, None)
            calibrated = clf.with_sample(sample, arrays["places"].astype(np.int64))
        else:
            progress("learning how the populations differ")
            calibrated = _weighted(rows, table, towards)
    counted: dict[str, Any] = {"rows": n, "left_out": counts["seen"]}
    found: dict[str, Any] = {"coverage": before_and_after(clf, calibrated)}
    if calibrated.shift_ is not None:
        found["effective_rows"] = calibrated.shift_.effective_rows
    notes = {k: v for k, v in file.notes.items() if k not in (OUTDATED if file.fit_notes else ())}
    told = {"data": source.name, **counted, "remembered": more is not None, **found}
    save(
        calibrated, out, metadata={**notes, "calibrated": told}, seen=seen if more is None else more
    )
    thresholds = [own.tolist() for own in calibrated.calibration_.parts[0].theta]
    if record is not None:
        weighed = {} if towards is None else {"towards": str(towards)}
        digest = {} if source.is_dir() else {"sha256": digest_of(source)}
        whole = {
            "schema": SCHEMA,
            "asked": {"confidence_level": clf.confidence_level, "target": target, **weighed},
            "rows": {"data": str(data), **counted, **digest},
            "found": {**found, "thresholds": thresholds},
            "replaced": {"file": str(model), "sha256": file.sha256},
            "by": {"file": str(out), "sha256": digest_of(out)},
        }
        write_text(record, json.dumps(whole, indent=1) + "\n")
    return {**counted, "thresholds": thresholds, **found}


def _weighted(rows: LabelledRows, table: Table, towards: AnyPath) -> Any:
    """Return the classifier with the thresholds of rows that are weighted towards others."""
    file, kinds, own = rows.model, model_columns(rows.model), read_columns(rows.model)
    frame = pd.concat([some for some, *_ in rows.batches(table)], ignore_index=True)
    with Table(towards) as others:
        new = others.read(list(kinds), kinds=kinds, max_rows=MAX_ROWS)
    shift = CovariateShift().fit(frame[own], as_kinds(new, kinds, str(towards))[own])
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


@dataclass(frozen=True)
class Tally:
    """What was seen of rows while they were scored."""

    counts: Counter[str] = field(default_factory=Counter)  # that were read, are missing, seen, ...
    examples: tuple[Any, ...] = ()  # labels that the estimator never saw
    drift: Drift = field(default_factory=dict)  # rows that are not like those of fit, by column

    def __add__(self, other: Tally) -> Tally:
        examples = sorted({*self.examples, *other.examples}, key=str)[:N_EXAMPLES]
        drift = added(self.drift, other.drift)
        return Tally(self.counts + other.counts, tuple(examples), drift)


@dataclass(frozen=True)
class LabelledRows:
    """What calibrates: the rows with a label that the model has not seen."""

    model: ModelFile
    target: str
    size: int  # rows at a time
    ids: str | None
    known_by: tuple[str, ...]  # further columns that tell whether a row was used

    @property
    def kinds(self) -> dict[str, str]:
        """The columns that are read, and what they hold."""
        return {**model_columns(self.model), **label_kinds(self.model.classifier, self.target)}

    def batches(self, table: Table) -> Iterator[tuple[pd.DataFrame, Counter[str]]]:
        """Yield some rows that calibrate, and how many were read, have no label, and were seen."""
        kinds, target, seen = self.kinds, self.target, self.model.seen
        keep = [name for name in {*self.known_by, *filter(None, [self.ids])} if name not in kinds]
        for batch, kept in table.batches(kinds, self.size, keep=keep, labels=[target]):
            batch = batch.assign(**{name: ids_in(kept, name) for name in keep})
            rows = batch[batch[target].notna()].reset_index(drop=True)
            n = len(rows)
            if n and seen is not None:
                used = seen.contains(
                    rows[read_columns(self.model)], label_texts(rows[target]), rows
                )
                rows = rows[~used].reset_index(drop=True)
            rows[target] = as_labels(self.model.classifier, rows[target])
            counts = {"read": len(batch), "missing": len(batch) - n, "seen": n - len(rows)}
            yield rows, Counter(counts)

    def everywhere(
        self, table: Table, engine: str, jobs: int | None, progress: Progress
    ) -> tuple[dict[str, Any], Tally]:
        """Return score, places and labels of the rows of all parts, scored where they lie."""
        root = table.source
        parts = [part.relative_to(root).as_posix() for part in table.parts]

        def run(method: str, given: Sequence[Any]) -> list[Any]:
            if not root.is_dir():
                return [getattr(self, method)(table, given[0])]
            ask_part = partial(_ask_part, rows=self, root=root, method=method)
            pairs = list(zip(parts, given, strict=True))
            found = dict(run_tasks(ask_part, pairs, engine=engine, jobs=jobs))
            return [found[part] for part in parts]  # whichever came first

        numbers: list[Any] = [None] * len(parts)
        if is_randomised(get_score(self.model.classifier.conformity_score)):
            progress("numbering equal rows")
            hashes = run("hashes", numbers)
            ends = np.cumsum([len(own) for own in hashes])[:-1]
            numbers = [*map(_narrow, np.split(equal_before(np.concatenate(hashes)), ends))]
        progress("scoring rows")
        found, tallies = zip(*run("scored", numbers), strict=True)
        joined = {name: np.concatenate([own[name] for own in found]) for name in found[0]}
        return joined, sum(tallies, Tally())

    def hashes(self, table: Table, _: None) -> Any:
        """Return 64 bits of each row that equal rows have in common, label and id included."""
        found = [np.empty(0, np.uint64)]
        for rows, _counts in self.batches(table):
            if len(rows):
                found.append(self._asked("labelled_hashes", rows))
        return np.concatenate(found)

    def scored(self, table: Table, before: Any) -> tuple[dict[str, Any], Tally]:
        """Return score, places and labels of rows; ``before`` says how many equal ones precede."""
        clf, start, tally = self.model.classifier, 0, Tally()
        nothing, n_parts = np.empty(0, np.int8), len(clf.calibration_.parts)
        score, places, labels = [np.empty(0)], [nothing.reshape(0, n_parts)], [nothing]
        for rows, counts in self.batches(table):
            tally += Tally(counts)
            if not len(rows):
                continue
            own = None if before is None else before[start : start + len(rows)]
            start += len(rows)
            labelled = self._asked("labelled_rows", rows, before=own)
            unknown = rows[self.target][labelled.y < 0]
            drift = count_strange(
                clf.seen_values_, canonical(rows[list(model_columns(self.model))])
            )
            tally += Tally(Counter(unknown=len(unknown)), tuple(unknown.unique()), drift)
            score.append(labelled.score)
            places.append(_narrow(clf.calibration_.places(labelled)))
            labels.append(_narrow(labelled.y) if clf.label_conditional else nothing)
        arrays: dict[str, list[Any]] = {"score": score, "places": places, "labels": labels}
        return {name: np.concatenate(own) for name, own in arrays.items()}, tally

    def _asked(self, method: str, rows: pd.DataFrame, **named: Any) -> Any:
        ids = None if self.ids is None else rows[self.ids].to_numpy()
        X, y = rows[list(model_columns(self.model))], rows[self.target].to_numpy()
        with ignore_drift():
            return ask(self.model, method, X, y=y, ids=ids, **named)

    def remembered(self, table: Table) -> SeenRows | None:
        """Return what a model file remembers of the rows that it has seen, and of these."""
        kinds, seen = self.kinds, self.model.seen
        frame = table.read([*kinds, *self.known_by], labels=[self.target], kinds=kinds)
        frame = frame[frame[self.target].notna()].reset_index(drop=True)
        X = as_kinds(frame, model_columns(self.model), str(table.source))[read_columns(self.model)]
        y = label_texts(frame[self.target])
        return SeenRows.of(X, y) if seen is None else seen.with_rows(X, y, frame)


def _ask_part(task: tuple[str, Any], rows: LabelledRows, root: Path, method: str) -> Any:
    """Return what a method says of the rows of a part of a folder, with the name of the part."""
    part, given = task
    with Table(root / part, root=root) as table:
        return part, getattr(rows, method)(table, given)


def _narrow(numbers: IntArray) -> Any:
    """Return small whole numbers, a byte each if that is enough."""
    return numbers.astype(np.min_scalar_type(-1 - int(numbers.max(initial=1))))


def before_and_after(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the coverage of the rows that calibrated ``new``, by stream, under both thresholds.

    Streams are everyone, every run of pooled levels and above, and every protected group. Rows are
    new to ``old``. For "after", each half is judged by the thresholds of the other half, because
    rows that calibrate are covered as promised by construction. Weighted rows count by weight.
    """
    sample, parts = new.calibration_.sample, new.calibration_.parts
    places = np.column_stack(
        [part.row_levels if isinstance(part, LevelThresholds) else part.cells for part in parts]
    )

    def some(rows: IntArray) -> Sample:
        labels, weights = (x if x is None else x[rows] for x in (sample.labels, sample.weights))
        return replace(sample, score=sample.score[rows], labels=labels, weights=weights)

    weights = np.ones(len(sample)) if sample.weights is None else sample.weights
    covered = {"before": _covered(old.calibration_, sample, places)}
    covered["after"] = np.zeros(len(sample), dtype=bool)
    halves = np.array_split(np.random.default_rng(0).permutation(len(sample)), 2)
    for judged, others in (halves, halves[::-1]):
        other = new.calibration_.with_sample(some(others), places[others])
        covered["after"][judged] = _covered(other, some(judged), places[judged])
    found = []
    for name, inside in _streams(new, places):
        total = float(weights[inside].sum())
        shares = {when: float(weights[inside & own].sum()) / total for when, own in covered.items()}
        found.append({"stream": name, "rows": int(inside.sum()), **shares})
    return found


def _streams(clf: Any, places: IntArray) -> Iterator[tuple[str, BoolArray]]:
    calibration, everyone = clf.calibration_, np.ones(len(places), dtype=bool)
    yield "everyone", everyone
    for number, part in enumerate(calibration.parts):
        if not isinstance(part, LevelThresholds):
            inside = places[:, number] == 0
            if inside.any():
                yield part.groups.describe(0), inside
        elif calibration.sample.labels is None:
            for first, _ in part.pooled_levels()[1:]:
                inside = places[:, number] >= first
                yield f"level {first} and above (worst-off {percent(inside.mean())})", inside
        else:
            for label, name in enumerate(clf.classes_):
                if (inside := calibration.sample.labels == label).any():
                    yield f"label {name}", inside


def _covered(calibration: Union, sample: Sample, places: IntArray) -> BoolArray:
    """Say which rows the thresholds at these places cover."""
    pairs = zip(calibration.parts, places.T, strict=True)
    thresholds: FloatArray = reduce(
        np.maximum, (part.thresholds_at(own, sample.row_labels) for part, own in pairs)
    )
    return np.isfinite(sample.score) & (sample.score <= thresholds)
