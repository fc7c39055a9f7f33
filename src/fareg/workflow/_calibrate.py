"""Calibration of a given model on all rows of a folder, counted where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fareg._engines import run_tasks
from fareg._files import AnyPath, check_output
from fareg._labels import check_known, label_codes, label_texts
from fareg._validation import InvalidInputError, warn
from fareg.calibration import CountingRound, IntervalSearch, ScoreCounts
from fareg.classifiers import FaReGClassifier
from fareg.persistence import SeenRows, describe, save, seen_rows
from fareg.workflow._formats import quiet
from fareg.workflow._parquet import count_rows, folder_parts
from fareg.workflow._predict import ask
from fareg.workflow._predict_folder import PartTask
from fareg.workflow._tables import read_batches

N_EXAMPLES = 6  # labels that the estimator never saw, for the warning
OUTDATED = ("verdict", "rows", "after", "groups")  # what a model file tells of its old thresholds


def calibrate_folder(
    model: AnyPath,
    data: AnyPath,
    *,
    target: str,
    out: AnyPath,
    batch_size: int = 50_000,
    engine: str = "local",
    jobs: int | None = None,
    scheduler: str | None = None,
    trusted: Sequence[str] | None = None,
    progress: Callable[[str], None] = quiet,
) -> dict[str, Any]:
    """Give a model the thresholds that all rows of a folder ask for; write it to ``out``.

    Each part is read and scored where it runs; only counts of scores come back, in a few rounds.
    The thresholds are those of all rows in one memory, to the bit, whatever the engine, the number
    of processes and the workers that died. Rows that the model has seen, which a file of
    ``fareg fit`` remembers, are left out with a warning.

    Parameters
    ----------
    model : path of a model file of ``fareg fit``
    data : path of a folder of Parquet files, or of one CSV or Parquet file
        ``name=value`` in the name of a folder is a column. Workers on other machines must see the
        paths as this one does.
    target : str
        Column of true labels.
    out : path of the model file to write
    batch_size, engine, jobs, scheduler, trusted
        As in :func:`fareg.workflow.predict_folder`.
    progress : function, optional
        Called with the name of each round when it begins.

    Returns
    -------
    dict
        ``rows`` that calibrated, those ``left_out``, ``rounds``, and ``thresholds``: those of each
        level, one per label or one for all.
    """
    check_output(out, apart_from=[model, data])
    source = Path(data).resolve()
    root = source if source.is_dir() else source.parent
    parts = folder_parts(source) if source.is_dir() else [source.name]
    counter = PartCounter.of(
        model,
        root,
        batch_size=batch_size,
        trusted=trusted,
        is_folder=source.is_dir(),
        target=target,
    )
    clf, _ = counter.model_and_columns()
    search = _search(clf, count_rows(source) or 0)
    first: PartCounts | None = None
    rounds = 0
    while search.is_open:
        rounds += 1
        progress(f"counting scores, round {rounds}")
        count = replace(counter, asked=search.next_round())
        found = PartCounts.joined(
            run_tasks(count, parts, engine=engine, jobs=jobs, scheduler=scheduler)
        )
        if first is None:
            first = found
            _check(first, clf, str(data))
        search.narrow(found.counts)
    assert first is not None
    calibrated = clf.recalibrated(search, first.n_unknown)
    notes = {k: v for k, v in describe(model)["metadata"].items() if k not in OUTDATED}
    notes["calibrated"] = {"data": source.name, "rows": first.n, "left_out": first.n_seen}
    save(calibrated, out, metadata=notes, seen=seen_rows(model))
    return {
        "rows": first.n,
        "left_out": first.n_seen,
        "rounds": rounds,
        "thresholds": calibrated.thresholds_.tolist(),
    }


def _search(clf: Any, n_rows: int) -> IntervalSearch:
    """Return the search for the thresholds of a classifier, if these follow from counts."""
    has_levels = isinstance(clf, FaReGClassifier) and clf.construction == "levels"
    if not has_levels or clf.base is not None:
        raise InvalidInputError(
            "rows can be counted for a FaReGClassifier with levels and without a base, as fareg "
            f"fit makes, got {type(clf).__name__}"
        )
    return IntervalSearch(
        n_levels=clf.calibration_.leveler.n_levels,
        n_problems=len(clf.classes_) if clf.label_conditional else 1,
        alpha=clf.alpha_,
        n_rows=n_rows,
    )


@dataclass(frozen=True, eq=False)
class PartCounts:
    """What one part, or several, answer in a round."""

    counts: ScoreCounts
    n: int  # rows that calibrate
    n_seen: int  # rows that the model has seen
    n_unknown: int  # rows that calibrate, with a label that the estimator does not know
    examples: tuple[Any, ...]  # such labels

    @classmethod
    def joined(cls, parts: Iterator[PartCounts]) -> PartCounts:
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
            )
        return total


@dataclass(frozen=True, kw_only=True)
class PartCounter(PartTask):
    """Counts the scores of the rows of a part."""

    is_folder: bool
    target: str
    asked: CountingRound | None = None

    def __call__(self, part: str) -> PartCounts:
        clf, kinds = self.model_and_columns()
        path, root = Path(self.root, part), Path(self.root) if self.is_folder else None
        kind = "number" if np.asarray(clf.classes_).dtype.kind in "biuf" else "text"
        wanted = {**kinds, self.target: kind}
        batches = read_batches(path, wanted, self.batch_size, root=root)
        return PartCounts.joined(self._count(clf, list(kinds), batch) for batch, _ in batches)

    def _count(self, clf: Any, columns: list[str], batch: Any) -> PartCounts:
        assert self.asked is not None
        if batch[self.target].isna().any():
            raise InvalidInputError(
                f"the target {self.target} has missing values; fill them or drop these rows"
            )
        read = list(clf.column_kinds_ or columns)  # without sensitive features beside the table
        seen = _seen(self.model, self.digest)
        y = batch[self.target].to_numpy()
        is_new = np.ones(len(y), dtype=bool)
        if seen is not None:
            is_new = ~seen.contains(batch[read], label_texts(y))
        X, y = batch.loc[is_new, columns].reset_index(drop=True), y[is_new]
        if not len(y):
            return replace(PartCounts.joined(iter(())), n_seen=len(batch))
        codes = label_codes(y, clf.classes_)
        scores = clf.conformity_scores(X[read])
        own = np.where(codes >= 0, scores[np.arange(len(codes)), codes], np.inf)
        problems = codes if clf.label_conditional else np.zeros_like(codes)
        return PartCounts(
            self.asked.count(own, ask(clf.predict_level, clf, X), problems),
            len(y),
            len(batch) - len(y),
            int((codes < 0).sum()),
            tuple(dict.fromkeys(y[codes < 0].tolist()))[:N_EXAMPLES],
        )


@lru_cache(maxsize=1)
def _seen(model: str, digest: str) -> SeenRows | None:
    return seen_rows(model)


def _check(found: PartCounts, clf: Any, data: str) -> None:
    """Refuse a folder without new rows or known labels; warn of what is left out."""
    if found.n == 0:
        reason = "were all used to train or calibrate this model" if found.n_seen else "are none"
        raise InvalidInputError(f"the rows of {data} {reason}; give rows that it has not seen")
    if found.n_seen:
        warn(SeenRows.left_out(found.n_seen, found.n + found.n_seen))
    check_known(
        found.n_unknown,
        found.n,
        np.array(found.examples, dtype=object),
        clf.classes_,
        alpha=clf.alpha_,
        label_conditional=clf.label_conditional,
    )
