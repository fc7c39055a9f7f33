"""Calibration of a given model on all rows of a folder, counted where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fareg._drift import Drift, added, count_strange, judge, unjudged
from fareg._engines import run_tasks
from fareg._files import AnyPath, check_output, check_outputs
from fareg._hashing import equal_before, holds_used
from fareg._labels import as_known, check_known, label_texts
from fareg._validation import BoolArray, IntArray, InvalidInputError, check_count, warn
from fareg.calibration import CountingRound, IntervalSearch, Rows, ScoreCounts
from fareg.classifiers import FaReGClassifier
from fareg.persistence import SeenRows, describe, first_of_each, save, seen_rows
from fareg.scores import get_score, is_randomised
from fareg.workflow._formats import Progress, quiet
from fareg.workflow._notes import fit_notes
from fareg.workflow._parquet import count_rows, folder_parts
from fareg.workflow._predict import ask, check_any, id_column, ids_in, label_kinds
from fareg.workflow._predict_folder import ModelFile, loaded
from fareg.workflow._stamps import Stamp
from fareg.workflow._tables import as_kinds, read_batches, read_table, table_columns
from fareg.workflow._target import check_missing

Repeated = tuple[IntArray, IntArray]  # places of rows that equal earlier ones, and how many do
ID = "the id of the row"  # the column of a batch that holds ids, whatever they are called
Quota = tuple[IntArray, IntArray]  # places of used values, and how many rows to leave out of each
Task = tuple[str, Quota | None, Repeated | None]  # a part, and what is known of its rows
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

    Each part is read and scored where it runs; only counts of scores come back, in a few rounds.
    The thresholds are those of all rows in one memory, to the bit, whatever the engine, the number
    of processes and the workers that died. Rows that the model has seen, which a file of
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
    drop_missing_target : bool, default=False
        Whether rows without a label are left out, with a warning; if not, they are refused.
    ids : str, default=None
        Column that tells whose row it is, for the random number of the row; None for the one that
        the model was fitted with, if it is here. Rows that are equal, id included, are numbered in
        the order of the parts, which takes one more pass and 8 bytes of memory for each row.
    batch_size, engine, jobs, scheduler, trusted, sha256
        As in :func:`fareg.workflow.predict_folder`.
    progress : function, optional
        Called with the name of each round when it begins.

    Returns
    -------
    dict
        ``rows`` that calibrated, those ``left_out``, ``rounds``, and ``thresholds``: those of each
        level, one per label or one for all.
    """
    check_output(out)
    check_outputs([out], inputs=[model, data])
    source = Path(data).resolve()
    root, stamp = source if source.is_dir() else None, Stamp.of(source)
    parts = folder_parts(source) if root else [str(source)]
    batch_size = check_count("batch_size", batch_size)
    file = ModelFile.of(model, trusted, sha256)
    ids = id_column(ids, model, source)
    rows = LabelledParts(file, root, target, batch_size, ids)
    run = partial(run_tasks, engine=engine, jobs=jobs, scheduler=scheduler)
    clf, _ = loaded(rows.model)
    progress("looking for missing labels")
    missing = list(run(partial(_missing_in_part, rows=rows), parts))
    n_missing, n_rows = (sum(counts) for counts in zip(*missing, strict=True))
    check_any(n_rows, data)
    check_missing(n_missing, n_rows, target, drop_missing=drop_missing_target)
    search = _search(clf, count_rows(source) or 0)
    seen, quotas = seen_rows(model), {}
    if seen is not None:
        progress("comparing rows with those that were used")
        quotas = _quotas(seen.values[1], parts, run(partial(_match_part, rows=rows), parts))
    tasks: list[Task] = [(part, quotas.get(part), None) for part in parts]
    if is_randomised(get_score(clf.conformity_score)):
        progress("numbering equal rows")
        tasks = _numbered(tasks, run(partial(_hashes_of_part, rows=rows), tasks))
    rounds = 0
    while search.is_open:
        rounds += 1
        progress(f"counting scores, round {rounds}")
        count = partial(_count_part, rows=rows, asked=search.next_round())
        found = PartCounts.joined(run(count, tasks))
        stamp.check()  # every round must count the same rows
        if rounds == 1:  # later rounds go over the same rows
            _check(found, clf, str(data))
        search.narrow(found.counts)
    n_repeated = sum(len(repeated[0]) for _, _, repeated in tasks if repeated is not None)
    calibrated = clf.recalibrated(search, found.n_unknown, n_repeated)
    counted = {"rows": found.n, "left_out": found.n_seen}
    is_small = root is None and found.n + found.n_seen <= MAX_REMEMBERED
    told = describe(model)
    outdated = OUTDATED if fit_notes(told) else ()
    notes = {k: v for k, v in told["metadata"].items() if k not in outdated}
    notes["calibrated"] = {"data": source.name, **counted, "remembered": is_small}
    seen = _with_rows(seen, rows, source) if is_small else seen
    stamp.check()
    save(calibrated, out, metadata=notes, seen=seen)
    return {**counted, "rounds": rounds, "thresholds": calibrated.thresholds_.tolist()}


def _with_rows(seen: SeenRows | None, rows: LabelledParts, source: Path) -> SeenRows:
    """Return what the new model has seen: the rows of a file too, read as an audit does."""
    target, (clf, kinds) = rows.target, loaded(rows.model)
    further = [] if seen is None else [name for name in seen.names if name in table_columns(source)]
    columns = list(dict.fromkeys([target, *kinds, *further]))
    frame = read_table(
        source, labels=[target], columns=columns, kinds=kinds | label_kinds(clf, target)
    )
    frame = frame[frame[target].notna()].reset_index(drop=True)
    X, y = as_kinds(frame, kinds, str(source))[rows.read], label_texts(frame[target])
    return SeenRows.of(X, y) if seen is None else seen.with_rows(X, y, frame)


def _search(clf: Any, n_rows: int) -> IntervalSearch:
    """Return the search for the thresholds of a classifier, if these follow from counts."""
    has_levels = isinstance(clf, FaReGClassifier) and clf.construction == "levels"
    if not has_levels or clf.base is not None:
        raise InvalidInputError(
            "rows can be counted for a FaReGClassifier with levels and without a base, as fareg "
            f"fit makes, got {type(clf).__name__}"
        )
    if clf.n_calibration_clusters_ is not None:
        raise InvalidInputError(
            "this model was fitted with clusters, each of which counts once, and files do not tell "
            "how many rows of a cluster are in others; conformalize a table in memory with clusters"
        )
    return IntervalSearch(
        n_levels=clf.calibration_.leveler.n_levels,
        n_problems=len(clf.classes_) if clf.label_conditional else 1,
        alpha=clf.alpha_,
        n_rows=n_rows,
    )


def _quotas(used: IntArray, parts: list[str], found: Iterable[PartMatches]) -> dict[str, Quota]:
    """Return which rows each part leaves out, so that each used row is left out once in all parts.

    If the table holds no used rows, nothing is left out.
    """
    by_part = {matches.part: matches for matches in found}
    given, left = np.zeros_like(used), used.copy()
    for matches in by_part.values():
        given[matches.places] += matches.counts
    if not holds_used(used, given, sum(matches.n for matches in by_part.values())):
        return {}
    quotas = {}
    for part in parts:  # the order of the parts decides, whichever was found first
        places, counts = by_part[part].places, by_part[part].counts
        taken = np.minimum(counts, left[places])
        left[places] -= taken
        quotas[part] = places, taken
    return quotas


def _numbered(tasks: list[Task], found: Iterable[tuple[str, Any]]) -> list[Task]:
    """Tell each task which of its rows equal earlier ones, of all parts in their order."""
    hashes = dict(found)
    before = equal_before(np.concatenate([hashes[part] for part, _, _ in tasks]))
    starts = np.cumsum([0, *(len(hashes[part]) for part, _, _ in tasks)])
    numbered: list[Task] = []
    for (part, quota, _), own in zip(tasks, np.split(before, starts[1:-1]), strict=True):
        places = np.flatnonzero(own)
        numbered.append((part, quota, (places, own[places])))
    return numbered


@dataclass(frozen=True, eq=False)
class PartMatches:
    """How many rows of a part have a value of used rows."""

    part: str
    n: int  # rows of the part
    places: IntArray  # where the values that occur stand among those of used rows
    counts: IntArray  # how many rows of the part have each of these values


@dataclass(frozen=True, eq=False)
class PartCounts:
    """What one part, or several, answer in a round."""

    counts: ScoreCounts
    n: int  # rows that calibrate
    n_seen: int  # rows that the model has seen
    n_unknown: int  # rows that calibrate, with a label that the estimator does not know
    examples: tuple[Any, ...]  # such labels
    drift: Drift = field(default_factory=dict)  # rows that are not like those of fit, by column

    @classmethod
    def joined(cls, parts: Iterable[PartCounts]) -> PartCounts:
        """Add up the answers of parts as they come in."""
        nothing = ScoreCounts(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64))
        total = cls(nothing, 0, 0, 0, ())
        for part in parts:
            examples = sorted({*total.examples, *part.examples}, key=str)[:N_EXAMPLES]
            total = cls(
                ScoreCounts.joined([total.counts, part.counts]),
                total.n + part.n,
                total.n_seen + part.n_seen,
                total.n_unknown + part.n_unknown,
                tuple(examples),
                added(total.drift, part.drift),
            )
        return total


@dataclass(frozen=True)
class LabelledParts:
    """The rows of a folder or a file with their labels, and the model that reads them."""

    model: ModelFile
    root: Path | None  # the folder; None for a file
    target: str
    batch_size: int
    ids: str | None = None

    @property
    def read(self) -> list[str]:
        """The columns of the table, without sensitive features beside it."""
        clf, kinds = loaded(self.model)
        return list(clf.column_kinds_ or kinds)

    def batches(self, part: str) -> Iterator[Any]:
        """Yield some rows of a part that have a label at a time, texts as the model knows them."""
        clf, kinds = loaded(self.model)
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
        told = label_kinds(loaded(self.model)[0], self.target)
        path, wanted = Path(self.root or "", part), {**kinds, **told}
        common: dict[str, Any] = {"labels": [self.target], "root": self.root}
        keep = [] if self.ids is None else [self.ids]
        for batch, kept in read_batches(path, wanted, self.batch_size, keep=keep, **common):
            yield batch if self.ids is None else batch.assign(**{ID: ids_in(kept, self.ids)})

    def to_calibrate(self, batch: Any, chosen: BoolArray, before: IntArray | None = None) -> Rows:
        """Return some rows of a batch as the model knows them where they calibrate."""
        X = batch.loc[chosen, self.read].reset_index(drop=True)
        ids = None if self.ids is None else batch[ID].to_numpy()[chosen]
        labels, clf = batch[self.target].to_numpy()[chosen], loaded(self.model)[0]
        with unjudged():
            own: Rows = clf.rows_to_calibrate(X, labels, ids=ids, before=before)
        return own

    def new_rows(self, part: str, quota: Quota | None) -> Iterator[tuple[Any, BoolArray]]:
        """Yield some rows of a part at a time, and which of them are new."""
        if quota is None:
            yield from ((batch, np.ones(len(batch), dtype=bool)) for batch in self.batches(part))
            return
        left = np.zeros_like(_seen(self.model).values[1])
        left[quota[0]] = quota[1]
        for batch in self.batches(part):
            places = self.places(batch)
            used = first_of_each(places, left)
            left -= np.bincount(places[used], minlength=len(left))
            yield batch, ~used

    def places(self, batch: Any) -> IntArray:
        """Return where the values of rows stand among those of used rows, -1 for nowhere."""
        y = label_texts(batch[self.target].to_numpy())
        return _seen(self.model).places(batch[self.read], y)


@lru_cache(maxsize=1)
def _seen(model: ModelFile) -> SeenRows:
    seen = seen_rows(model.path)
    assert seen is not None
    return seen


def _missing_in_part(part: str, rows: LabelledParts) -> tuple[int, int]:
    """Return how many rows of a part have no label, and how many it has."""
    counts = [(int(labels.isna().sum()), len(labels)) for labels in rows.labels(part)]
    return sum(n for n, _ in counts), sum(n for _, n in counts)


def _match_part(part: str, rows: LabelledParts) -> PartMatches:
    """Compare the rows of a part with the used ones."""
    places = np.concatenate([np.empty(0, int), *map(rows.places, rows.batches(part))])
    return PartMatches(part, len(places), *np.unique(places[places >= 0], return_counts=True))


def _hashes_of_part(task: Task, rows: LabelledParts) -> tuple[str, Any]:
    """Return what the equal ones of the new rows of a part have in common, and its name."""
    part, quota, _ = task
    found = [np.empty(0, dtype=np.uint64)]
    for batch, is_new in rows.new_rows(part, quota):
        if is_new.any():
            found.append(rows.to_calibrate(batch, is_new).hashes)
    return part, np.concatenate(found)


def _count_part(task: Task, rows: LabelledParts, asked: CountingRound) -> PartCounts:
    """Count the scores of the rows of a part, without the used ones in it."""
    part, quota, repeated = task
    places, counts = repeated or (np.empty(0, np.int64), np.empty(0, np.int64))
    found, start = PartCounts.joined(()), 0
    for batch, is_new in rows.new_rows(part, quota):
        before = np.zeros(int(is_new.sum()), dtype=np.int64)
        own = slice(*np.searchsorted(places, [start, start + len(before)]))
        before[places[own] - start] = counts[own]
        start += len(before)
        found = PartCounts.joined([found, _count(batch, is_new, before, rows, asked)])
    return found


def _count(
    batch: Any, is_new: BoolArray, before: IntArray, rows: LabelledParts, asked: CountingRound
) -> PartCounts:
    """Count the scores of new rows; ``before`` tells how many equal ones were read earlier."""
    clf, kinds = loaded(rows.model)
    X = batch.loc[is_new, list(kinds)].reset_index(drop=True)
    y = batch[rows.target].to_numpy()[is_new]
    if not len(y):
        return replace(PartCounts.joined(()), n_seen=len(batch))
    own = rows.to_calibrate(batch, is_new, before)
    with unjudged():
        levels = ask(clf.predict_level, clf, X)
    codes = own.labels
    problems = codes if clf.label_conditional else np.zeros_like(codes)
    return PartCounts(
        asked.count(own.own_scores, levels, problems),
        len(y),
        len(batch) - len(y),
        int((codes < 0).sum()),
        tuple(dict.fromkeys(y[codes < 0].tolist()))[:N_EXAMPLES],
        count_strange(clf.seen_values_, X),
    )


def _check(found: PartCounts, clf: Any, data: str) -> None:
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
        found.n_unknown,
        found.n,
        np.array(found.examples, dtype=object),
        clf.classes_,
        alpha=clf.alpha_,
        label_conditional=clf.label_conditional,
    )
