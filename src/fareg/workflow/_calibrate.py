"""Calibration of a fitted model on all rows of a table or folder, scored in parallel."""

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
from fareg._drift import Drift, accept_drift, add_drift, count_strange, ignore_drift, judge_drift
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
from fareg.workflow._labels import label_texts
from fareg.workflow._roles import check_missing
from fareg.workflow._stored import (
    as_labels,
    call_model,
    check_any,
    check_engine_of,
    id_column,
    ids_in,
    label_kinds,
    model_columns,
    read_columns,
)
from fareg.workflow._table import MAX_ROWS, Progress, Table, quiet
from fareg.workflow._values import as_kinds

MAX_REMEMBERED = 10**6  # the model file remembers the rows of a file with at most this many
N_EXAMPLES = 6  # labels unknown to the estimator that a warning may show
SCHEMA = "fareg-acceptance-1"  # of the record
OUTDATED = ("verdict", "rows", "after", "groups")  # notes of fareg fit about the old thresholds


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
    """Give a model new thresholds, from all rows of a table or folder; write it to ``out``.

    Each part is read and scored by one process, which returns nine bytes a row: the score of the
    true label, and a level of at most 127; one more for every protected group, and for the label
    with ``label_conditional``. If the score is randomised, it first returns a hash of eight bytes a
    row, so that equal rows of all parts are numbered: each gets its own random number. The
    thresholds are the same to the bit as those of all rows in one memory, whatever the engine, the
    number of processes and the workers that died. Rows that the model has seen, which a file of
    ``fareg fit`` remembers by value, are left out with a warning, unless so few rows equal seen
    ones that chance explains it. The new file remembers the rows of one file of at most 10^6 rows
    too, but not those of a folder.

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
        Rows, without labels, of the population that will get the sets: the rows of ``data`` get the
        weights of a :class:`fareg.shift.CovariateShift`. All rows are then in memory.
    record : path of a JSON file, default=None
        The acceptance record: settings, rows, coverage, and the old and the new model file. The
        notes of the new model hold the coverage too.
    ids : str, default=None
        Column that says whose row it is, for the random number of the row; None for the one that
        the model was fitted with, if the table has it. Rows that are equal, id included, are
        numbered in the order of the parts.
    batch_size, engine, jobs, trusted, sha256
        As in :func:`fareg.workflow.predict_file`.
    progress : function, optional
        Called with the name of each step when it begins.

    Returns
    -------
    dict
        ``rows`` that calibrated, rows ``left_out``, and ``thresholds`` of the levels, in one list
        per label or one for all labels; ``coverage`` before and after by stream; and the
        ``effective_rows`` if rows are weighted.
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
        seen_by = seen.names if seen and seen.knows([*table.names, *model_columns(file)]) else ()
        rows = LabelledRows(file, target, size, id_column(ids, file, table), seen_by)
        arrays, tally = rows.score_parts(table, engine, jobs, progress)
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
        # drift only warns: the new thresholds are for such rows
        judge_drift(clf.seen_values_, tally.drift, accept=True)
        examples = np.array(tally.examples, dtype=object)
        check_known(counts["unknown"], n, examples, clf.classes_, alpha=clf.alpha_)
        is_small = not source.is_dir() and counts["read"] <= MAX_REMEMBERED
        remembered = rows.remembered(table) if is_small else None
        if towards is None:
            labels = arrays["labels"].astype(np.int64) if clf.label_conditional else None
            n_labels = len(clf.classes_) if clf.label_conditional else 1
            sample = Sample(arrays["score"], labels, n_labels, None)
            calibrated = clf.with_sample(sample, arrays["places"].astype(np.int64))
        else:
            progress("learning how the populations differ")
            calibrated = _weighted(rows, table, towards)
    n_rows: dict[str, Any] = {"rows": n, "left_out": counts["seen"]}
    result: dict[str, Any] = {"coverage": before_and_after(clf, calibrated)}
    if calibrated.shift_ is not None:
        result["effective_rows"] = calibrated.shift_.effective_rows
    notes = {k: v for k, v in file.notes.items() if k not in (OUTDATED if file.fit_notes else ())}
    is_remembered = remembered is not None
    notes["calibrated"] = {"data": source.name, **n_rows, "remembered": is_remembered, **result}
    save(calibrated, out, metadata=notes, seen=remembered if is_remembered else seen)
    thresholds = [theta.tolist() for theta in calibrated.calibration_.parts[0].theta]
    if record is not None:
        weighting = {} if towards is None else {"towards": str(towards)}
        digest = {} if source.is_dir() else {"sha256": digest_of(source)}
        content = {
            "schema": SCHEMA,
            "asked": {"confidence_level": clf.confidence_level, "target": target, **weighting},
            "rows": {"data": str(data), **n_rows, **digest},
            "found": {**result, "thresholds": thresholds},
            "replaced": {"file": str(model), "sha256": file.sha256},
            "by": {"file": str(out), "sha256": digest_of(out)},
        }
        write_text(record, json.dumps(content, indent=1) + "\n")
    return {**n_rows, "thresholds": thresholds, **result}


def _weighted(rows: LabelledRows, table: Table, towards: AnyPath) -> Any:
    """Return the classifier calibrated on rows that are weighted towards another population."""
    file, kinds, columns = rows.model, model_columns(rows.model), read_columns(rows.model)
    frame = pd.concat([batch for batch, _ in rows.batches(table)], ignore_index=True)
    with Table(towards) as others:
        new = others.read(list(kinds), kinds=kinds, max_rows=MAX_ROWS)
    shift = CovariateShift().fit(frame[columns], as_kinds(new, kinds, str(towards))[columns])
    ids = None if rows.ids is None else frame[rows.ids].to_numpy()
    y, X = frame[rows.target].to_numpy(), frame[list(kinds)]
    with accept_drift():
        return call_model(file, "recalibrated", X, y=y, ids=ids, shift=shift)


def _check_levels(clf: Any) -> None:
    """Refuse a classifier whose thresholds do not follow from scores and levels alone."""
    if not isinstance(clf, FaReGClassifier):
        raise InvalidInputError(
            "rows of a folder can calibrate a FaReGClassifier, as fareg fit makes, got "
            f"{type(clf).__name__}"
        )
    if clf.n_calibration_clusters_ is not None:
        raise InvalidInputError(
            "a cluster may be spread over several files, so the shell cannot recalibrate this "
            "model; use clf.recalibrated(X, y, clusters=...) in Python"
        )


@dataclass(frozen=True)
class Tally:
    """Counts of the rows that were scored."""

    counts: Counter[str] = field(default_factory=Counter)  # of "read", "missing", "seen", "unknown"
    examples: tuple[Any, ...] = ()  # labels unknown to the estimator
    drift: Drift = field(default_factory=dict)  # rows unlike those in fit, by column

    def __add__(self, other: Tally) -> Tally:
        examples = sorted({*self.examples, *other.examples}, key=str)[:N_EXAMPLES]
        drift = add_drift(self.drift, other.drift)
        return Tally(self.counts + other.counts, tuple(examples), drift)


@dataclass(frozen=True)
class LabelledRows:
    """The calibration rows: those with a label that the model has not seen."""

    model: ModelFile
    target: str
    size: int  # rows per batch
    ids: str | None
    seen_by: tuple[str, ...]  # further columns by which seen rows are recognised

    @property
    def kinds(self) -> dict[str, str]:
        """The columns to read, and their kinds."""
        return {**model_columns(self.model), **label_kinds(self.model.classifier, self.target)}

    def batches(self, table: Table) -> Iterator[tuple[pd.DataFrame, Counter[str]]]:
        """Yield batches of calibration rows, with counts of read, unlabelled and seen rows."""
        kinds, target, seen = self.kinds, self.target, self.model.seen
        keep = [name for name in {*self.seen_by, *filter(None, [self.ids])} if name not in kinds]
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

    def score_parts(
        self, table: Table, engine: str, jobs: int | None, progress: Progress
    ) -> tuple[dict[str, Any], Tally]:
        """Return score, places and labels of the rows of all parts, scored in parallel."""
        root = table.source
        parts = [part.relative_to(root).as_posix() for part in table.parts]

        def run(method: str, inputs: Sequence[Any]) -> list[Any]:
            if not root.is_dir():
                return [getattr(self, method)(table, inputs[0])]
            on_part = partial(_run_on_part, rows=self, root=root, method=method)
            tasks = list(zip(parts, inputs, strict=True))
            by_part = dict(run_tasks(on_part, tasks, engine=engine, jobs=jobs))
            return [by_part[part] for part in parts]  # in order, whichever was done first

        n_before: list[Any] = [None] * len(parts)
        if is_randomised(get_score(self.model.classifier.conformity_score)):
            progress("numbering equal rows")
            hashes = run("hashes", n_before)
            ends = np.cumsum([len(values) for values in hashes])[:-1]
            n_before = [*map(_narrow, np.split(equal_before(np.concatenate(hashes)), ends))]
        progress("scoring rows")
        arrays, tallies = zip(*run("score", n_before), strict=True)
        joined = {name: np.concatenate([some[name] for some in arrays]) for name in arrays[0]}
        return joined, sum(tallies, Tally())

    def hashes(self, table: Table, _: None) -> Any:
        """Return a 64-bit hash of each row, label and id included; equal rows share it."""
        found = [np.empty(0, np.uint64)]
        for rows, _counts in self.batches(table):
            if len(rows):
                found.append(self._call("labelled_hashes", rows))
        return np.concatenate(found)

    def score(self, table: Table, n_before: Any) -> tuple[dict[str, Any], Tally]:
        """Return score, places and labels of rows; ``n_before`` counts equal rows before each."""
        clf, start, tally = self.model.classifier, 0, Tally()
        nothing, n_parts = np.empty(0, np.int8), len(clf.calibration_.parts)
        score, places, labels = [np.empty(0)], [nothing.reshape(0, n_parts)], [nothing]
        for rows, counts in self.batches(table):
            tally += Tally(counts)
            if not len(rows):
                continue
            before = None if n_before is None else n_before[start : start + len(rows)]
            start += len(rows)
            labelled = self._call("labelled_rows", rows, before=before)
            unknown = rows[self.target][labelled.y < 0]
            drift = count_strange(
                clf.seen_values_, canonical(rows[list(model_columns(self.model))])
            )
            tally += Tally(Counter(unknown=len(unknown)), tuple(unknown.unique()), drift)
            score.append(labelled.score)
            places.append(_narrow(clf.calibration_.places(labelled)))
            labels.append(_narrow(labelled.y) if clf.label_conditional else nothing)
        arrays: dict[str, list[Any]] = {"score": score, "places": places, "labels": labels}
        return {name: np.concatenate(batches) for name, batches in arrays.items()}, tally

    def _call(self, method: str, rows: pd.DataFrame, **arguments: Any) -> Any:
        ids = None if self.ids is None else rows[self.ids].to_numpy()
        X, y = rows[list(model_columns(self.model))], rows[self.target].to_numpy()
        with ignore_drift():
            return call_model(self.model, method, X, y=y, ids=ids, **arguments)

    def remembered(self, table: Table) -> SeenRows | None:
        """Return the rows that the model has seen, these included, as a model file holds them."""
        kinds, seen = self.kinds, self.model.seen
        frame = table.read([*kinds, *self.seen_by], labels=[self.target], kinds=kinds)
        frame = frame[frame[self.target].notna()].reset_index(drop=True)
        X = as_kinds(frame, model_columns(self.model), str(table.source))[read_columns(self.model)]
        y = label_texts(frame[self.target])
        return SeenRows.of(X, y) if seen is None else seen.with_rows(X, y, frame)


def _run_on_part(task: tuple[str, Any], rows: LabelledRows, root: Path, method: str) -> Any:
    """Return the name of a part of a folder, and what a method returns for its rows."""
    part, argument = task
    with Table(root / part, root=root) as table:
        return part, getattr(rows, method)(table, argument)


def _narrow(numbers: IntArray) -> Any:
    """Return whole numbers in the smallest integer type that holds them."""
    return numbers.astype(np.min_scalar_type(-1 - int(numbers.max(initial=1))))


def before_and_after(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the coverage of the rows that calibrated ``new``, by stream, under both thresholds.

    Streams are everyone, every run of pooled levels and above, and every protected group. The rows
    are new to ``old``. For "after", each half is judged by the thresholds of the other half,
    because calibration rows are covered as promised by construction. Weighted rows count by weight.
    """
    sample, parts = new.calibration_.sample, new.calibration_.parts
    places = np.column_stack(
        [part.row_levels if isinstance(part, LevelThresholds) else part.cells for part in parts]
    )

    def take(rows: IntArray) -> Sample:
        labels, weights = (x if x is None else x[rows] for x in (sample.labels, sample.weights))
        return replace(sample, score=sample.score[rows], labels=labels, weights=weights)

    weights = np.ones(len(sample)) if sample.weights is None else sample.weights
    before = _covered(old.calibration_, sample, places)
    after = np.zeros(len(sample), dtype=bool)
    halves = np.array_split(np.random.default_rng(0).permutation(len(sample)), 2)
    for judged, others in (halves, halves[::-1]):
        thresholds = new.calibration_.with_sample(take(others), places[others])
        after[judged] = _covered(thresholds, take(judged), places[judged])
    found = []
    for name, inside in _streams(new, places):
        total = float(weights[inside].sum())
        moments = {"before": before, "after": after}
        shares = {k: float(weights[inside & hit].sum()) / total for k, hit in moments.items()}
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
    """Return which rows the thresholds at these places cover."""
    pairs = zip(calibration.parts, places.T, strict=True)
    thresholds: FloatArray = reduce(
        np.maximum, (part.thresholds_at(column, sample.row_labels) for part, column in pairs)
    )
    return np.isfinite(sample.score) & (sample.score <= thresholds)
