"""Calibration of a given model on all rows of a folder, scored where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from fareg._columns import canonical
from fareg._drift import Drift, added, count_strange, judge, unjudged
from fareg._engines import run_tasks
from fareg._files import AnyPath, check_output, check_outputs
from fareg._labels import check_known
from fareg._rows import equal_before
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError, check_count, warn
from fareg.calibration import Sample
from fareg.classifiers import FaReGClassifier
from fareg.persistence import ModelFile, SeenRows, save
from fareg.scores import get_score, is_randomised
from fareg.workflow._formats import Progress, quiet
from fareg.workflow._label_texts import as_known, label_texts
from fareg.workflow._parquet import folder_parts
from fareg.workflow._predict import ask, check_any, id_column, ids_in, label_kinds, model_columns
from fareg.workflow._stamps import Stamp
from fareg.workflow._tables import as_kinds, read_batches, read_table, table_columns
from fareg.workflow._target import check_missing

Repeated = tuple[IntArray, IntArray]  # places of rows that equal earlier ones, and how many do
ID = "the id of the row"  # the column of a batch that holds ids, whatever they are called
Task = tuple[str, Repeated | None]  # a part, and what is known of its rows
MAX_REMEMBERED = 10**6  # rows of a file that the model file remembers
N_EXAMPLES = 6  # labels that the estimator never saw, as many as a warning may show
OUTDATED = ("verdict", "rows", "after", "groups")  # what fareg fit noted of the old thresholds


def calibrate_folder(
    model: AnyPath,
    data: AnyPath,
    *,
    target: str,
    out: AnyPath,
    drop_missing_target: bool = False,
    ids: str | None = None,
    batch_size: int = 50_000,
    engine: str = "local",
    jobs: int | None = None,
    scheduler: str | None = None,
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
    drop_missing_target : bool, default=False
        Whether rows without a label are left out, with a warning; if not, they are refused.
    ids : str, default=None
        Column that tells whose row it is, for the random number of the row; None for the one that
        the model was fitted with, if it is here. Rows that are equal, id included, are numbered in
        the order of the parts, which takes one more pass and 8 bytes of memory for each row.
    batch_size, engine, jobs, scheduler, trusted, sha256
        As in :func:`fareg.workflow.predict_folder`.
    progress : function, optional
        Called with the name of each step when it begins.

    Returns
    -------
    dict
        ``rows`` that calibrated, those ``left_out``, and ``thresholds``: those of the levels, in
        one list per label or one for all.
    """
    check_output(out)
    check_outputs([out], inputs=[model, data])
    source = Path(data).resolve()
    root, stamp = source if source.is_dir() else None, Stamp.of(source)
    parts = folder_parts(source) if root else [str(source)]
    batch_size = check_count("batch_size", batch_size)
    file = ModelFile.open(model, trusted=trusted, sha256=sha256)
    ids = id_column(ids, file, source)
    known_by = () if file.seen is None else file.seen.names
    known_by = known_by if set(known_by) <= set(table_columns(source)) else ()
    rows = LabelledParts(file, root, target, batch_size, ids, known_by)
    run = partial(run_tasks, engine=engine, jobs=jobs, scheduler=scheduler)
    clf = file.classifier
    model_columns(file)
    progress("looking for missing labels")
    missing = list(run(partial(_missing_in_part, rows=rows), parts))
    n_missing, n_rows = (sum(counts) for counts in zip(*missing, strict=True))
    check_any(n_rows, data)
    check_missing(n_missing, n_rows, target, drop_missing=drop_missing_target)
    _check_levels(clf)
    tasks: list[Task] = [(part, None) for part in parts]
    if is_randomised(get_score(clf.conformity_score)):
        progress("numbering equal rows")
        tasks = _numbered(tasks, run(partial(_hashes_of_part, rows=rows), tasks))
    progress("scoring rows")
    scored = dict(run(partial(_score_part, rows=rows), tasks))
    found = PartScores.joined(scored[part] for part in parts)  # in order, whichever came first
    stamp.check()
    _check(found, clf, str(data))
    labels = found.labels if clf.label_conditional else None
    sample = Sample(found.score, labels, len(clf.classes_) if clf.label_conditional else 1, None)
    calibrated = clf.with_sample(sample, found.places)
    counted = {"rows": found.n, "left_out": found.n_seen}
    is_small = root is None and found.n + found.n_seen <= MAX_REMEMBERED
    outdated = OUTDATED if file.fit_notes else ()
    notes = {k: v for k, v in file.notes.items() if k not in outdated}
    more = _with_rows(file.seen, rows, source) if is_small else None
    notes["calibrated"] = {"data": source.name, **counted, "remembered": more is not None}
    stamp.check()
    save(calibrated, out, metadata=notes, seen=file.seen if more is None else more)
    theta = calibrated.calibration_.parts[0].theta
    return {**counted, "thresholds": [own.tolist() for own in theta]}


def _with_rows(seen: SeenRows | None, rows: LabelledParts, source: Path) -> SeenRows | None:
    """Return what the new model has seen: the rows of a file too, read as an audit does."""
    target, (clf, kinds) = rows.target, rows.known
    further = [] if seen is None else [name for name in seen.names if name in table_columns(source)]
    columns = list(dict.fromkeys([target, *kinds, *further]))
    frame = read_table(
        source, labels=[target], columns=columns, kinds=kinds | label_kinds(clf, target)
    )
    frame = frame[frame[target].notna()].reset_index(drop=True)
    X, y = as_kinds(frame, kinds, str(source))[rows.read], label_texts(frame[target])
    return SeenRows.of(X, y) if seen is None else seen.with_rows(X, y, frame)


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
            "how many rows of a cluster are in others; recalibrate with a table in memory"
        )


def _numbered(tasks: list[Task], found: Iterable[tuple[str, Any]]) -> list[Task]:
    """Tell each task which of its rows equal earlier ones, of all parts in their order."""
    hashes = dict(found)
    before = equal_before(np.concatenate([hashes[part] for part, _ in tasks]))
    starts = np.cumsum([0, *(len(hashes[part]) for part, _ in tasks)])
    numbered: list[Task] = []
    for (part, _), own in zip(tasks, np.split(before, starts[1:-1]), strict=True):
        places = np.flatnonzero(own)
        numbered.append((part, (places, own[places])))
    return numbered


@dataclass(frozen=True, eq=False)
class PartScores:
    """The rows of one part, or several, that calibrate."""

    score: FloatArray  # (n,) of the true labels
    labels: IntArray  # (n,) columns of the true labels, -1 for one that the estimator never saw
    places: IntArray  # (n, n_parts) where each row belongs in every part of the calibration
    n_seen: int = 0  # rows that the model has seen
    examples: tuple[Any, ...] = ()  # labels that the estimator never saw
    drift: Drift = field(default_factory=dict)  # rows that are not like those of fit, by column

    @property
    def n(self) -> int:
        """Number of rows that calibrate."""
        return len(self.score)

    @classmethod
    def joined(cls, parts: Iterable[PartScores]) -> PartScores:
        """Put the rows of parts together, in the order in which they came."""
        found = list(parts)
        if len(found) == 1:
            return found[0]
        examples = sorted({text for part in found for text in part.examples}, key=str)
        return cls(
            np.concatenate([part.score for part in found]),
            np.concatenate([part.labels for part in found]),
            np.concatenate([part.places for part in found]),
            sum(part.n_seen for part in found),
            tuple(examples[:N_EXAMPLES]),
            reduce(added, (part.drift for part in found)),
        )


@dataclass(frozen=True)
class LabelledParts:
    """The rows of a folder or a file with their labels, and the model that reads them."""

    model: ModelFile
    root: Path | None  # the folder; None for a file
    target: str
    batch_size: int
    ids: str | None = None
    known_by: tuple[str, ...] = ()  # further columns that tell whether a row was used

    @property
    def known(self) -> tuple[Any, dict[str, str]]:
        """The classifier, and the columns that it needs."""
        return self.model.classifier, model_columns(self.model)

    @property
    def read(self) -> list[str]:
        """The columns of the table, without sensitive features beside it."""
        clf, kinds = self.known
        return list(clf.column_kinds_ or kinds)

    def batches(self, part: str) -> Iterator[Any]:
        """Yield some rows of a part that have a label at a time, texts as the model knows them."""
        clf, kinds = self.known
        is_text = label_kinds(clf, self.target)[self.target] == "text"
        for batch in self._read(part, kinds):
            batch = batch[batch[self.target].notna()].reset_index(drop=True)
            if is_text:
                batch[self.target] = as_known(batch[self.target], clf.classes_)
            if len(batch):
                yield batch

    def labels(self, part: str) -> Iterator[Any]:
        """Yield some labels of a part at a time, missing ones too."""
        return (batch[self.target] for batch in self._read(part, {}))

    def _read(self, part: str, kinds: dict[str, str]) -> Iterator[Any]:
        told = label_kinds(self.model.classifier, self.target)
        path, wanted = Path(self.root or "", part), {**kinds, **told}
        common: dict[str, Any] = {"labels": [self.target], "root": self.root}
        beside = {name: name for name in self.known_by}
        beside |= {} if self.ids is None else {ID: self.ids}
        keep = list(dict.fromkeys(beside.values()))
        for batch, kept in read_batches(path, wanted, self.batch_size, keep=keep, **common):
            yield batch.assign(**{own: ids_in(kept, name) for own, name in beside.items()})

    def asked(self, method: str, batch: Any, chosen: BoolArray, **named: Any) -> Any:
        """Call a method of the model with some labelled rows of a batch."""
        X = batch.loc[chosen, list(self.known[1])].reset_index(drop=True)
        ids = None if self.ids is None else batch[ID].to_numpy()[chosen]
        labels = batch[self.target].to_numpy()[chosen]
        with unjudged():
            return ask(self.model, method, X, y=labels, ids=ids, **named)

    def new_rows(self, part: str) -> Iterator[tuple[Any, BoolArray]]:
        """Yield some rows of a part at a time, and which of them are new."""
        for batch in self.batches(part):
            used = np.zeros(len(batch), dtype=bool)
            if self.model.seen is not None:
                y = label_texts(batch[self.target].to_numpy())
                used = self.model.seen.contains(batch[self.read], y, batch)
            yield batch, ~used


def _missing_in_part(part: str, rows: LabelledParts) -> tuple[int, int]:
    """Return how many rows of a part have no label, and how many it has."""
    counts = [(int(labels.isna().sum()), len(labels)) for labels in rows.labels(part)]
    return sum(n for n, _ in counts), sum(n for _, n in counts)


def _hashes_of_part(task: Task, rows: LabelledParts) -> tuple[str, Any]:
    """Return what the equal ones of the new rows of a part have in common, and its name."""
    part, _ = task
    found = [np.empty(0, dtype=np.uint64)]
    for batch, is_new in rows.new_rows(part):
        if is_new.any():
            found.append(rows.asked("labelled_hashes", batch, is_new))
    return part, np.concatenate(found)


def _score_part(task: Task, rows: LabelledParts) -> tuple[str, PartScores]:
    """Score the rows of a part, without the used ones in it; return its name with them."""
    part, repeated = task
    places, counts = repeated or (np.empty(0, np.int64), np.empty(0, np.int64))
    clf = rows.model.classifier
    nowhere = np.empty((0, len(clf.calibration_.parts)), np.int64)
    found, start = [PartScores(np.empty(0), np.empty(0, np.int64), nowhere)], 0
    for batch, is_new in rows.new_rows(part):
        before = np.zeros(int(is_new.sum()), dtype=np.int64)
        own = slice(*np.searchsorted(places, [start, start + len(before)]))
        before[places[own] - start] = counts[own]
        start += len(before)
        found.append(_score(batch, is_new, before, rows))
    return part, PartScores.joined(found)


def _score(batch: Any, is_new: BoolArray, before: IntArray, rows: LabelledParts) -> PartScores:
    """Score new rows; ``before`` says how many equal ones were read earlier."""
    clf, kinds = rows.known
    y = batch[rows.target].to_numpy()[is_new]
    n_seen = len(batch) - len(y)
    if not len(y):
        nowhere = np.empty((0, len(clf.calibration_.parts)), np.int64)
        return PartScores(np.empty(0), np.empty(0, np.int64), nowhere, n_seen)
    labelled = rows.asked("labelled_rows", batch, is_new, before=before)
    unknown = tuple(dict.fromkeys(y[labelled.y < 0].tolist()))[:N_EXAMPLES]
    X = batch.loc[is_new, list(kinds)].reset_index(drop=True)
    drift = count_strange(clf.seen_values_, canonical(X))
    places = clf.calibration_.places(labelled)
    return PartScores(labelled.score, labelled.y, places, n_seen, unknown, drift)


def _check(found: PartScores, clf: Any, data: str) -> None:
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
