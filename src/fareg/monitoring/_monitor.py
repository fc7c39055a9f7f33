"""Watch a classifier after deployment: does its promise still hold, and for which groups?"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import beta

from fareg._columns import take_rows
from fareg._drift import accept_drift, ignore_drift
from fareg._files import AnyPath, check_output, check_readable, digest_of, write_text, writing
from fareg._labels import label_codes
from fareg._validation import (
    BoolArray,
    IntArray,
    InvalidInputError,
    NotConformalizedError,
    check_fraction,
    check_same_length,
    require,
)
from fareg._words import HTML, JSON, count, group_name, rows, shown
from fareg.calibration import Batch, Labelled
from fareg.groups import Rule
from fareg.monitoring._bets import interval_at_all_times
from fareg.monitoring._page import bands, curve, render
from fareg.monitoring._streams import LEARNING, Alarm, Rows, Stream, watched

SCHEMA = "fareg-watch-1"
MOST_KNOWN = 4096  # latest batches that are recognised if they come again
NEXT = {
    "alarm": "Look at the {rows} since the change: are their values and labels right? If so, "
    "recalibrate on labelled rows since then ({how}), and refit the model if the sets become too "
    "large.",
    "watch": "Collect more labels there before you act.",
    "holding": "Nothing needs to be done.",
}


@dataclass
class State:
    """What a watch remembers; its size does not grow with the number of rows."""

    n_rows: int = 0
    n_late: int = 0
    first: Any = None  # the first and the latest time
    latest: Any = None
    known: list[str] = field(default_factory=list)  # digests of the latest batches
    streams: list[Stream] = field(default_factory=list)

    def __post_init__(self) -> None:
        require(min(self.n_rows, self.n_late) >= 0, "rows")
        require(type(self.known) is list and set(map(type, self.known)) <= {str}, "known")


class CoverageMonitor:
    """Watch whether prediction sets still keep their promise, for everyone and group by group.

    Feed it labelled rows as their labels arrive, and look as often as you like: **if the rows are
    like the calibration rows, the probability that any stream ever raises an alarm is at most**
    ``error``. Streams are everyone, every run of pooled levels and all above, every protected,
    named and calibrated group, and groups of your own. They may overlap.

    Parameters
    ----------
    clf : fitted conformal classifier
    groups : list of Rule or str, default=()
        More groups to watch, such as ``"sex = Female and age > 60"``. A model does not store which
        calibration rows were in them, so each is compared with its first 200 rows.
    error : float, default=0.05
        Probability of a false alarm, over all streams and all time.

    Attributes
    ----------
    alarms : list of Alarm
        Every alarm so far, oldest first; ``alarm.back`` is the row at which it was over.
    n_rows, n_late : int
        Number of rows so far, and of those that were older than rows that came before.

    Notes
    -----
    Each row's score is ranked among the calibration scores and all earlier scores of the stream,
    and bets on large scores are settled row by row. The guarantees have the proof, and say what
    happens if a change is slow or improves coverage.

    Examples
    --------
    >>> from fareg import CoverageMonitor, FaReGClassifier
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(6000, random_state=0)
    >>> clf = FaReGClassifier(sensitive_features=list(data.sensitive), random_state=0)
    >>> clf = clf.fit(data.X[:3000], data.y[:3000])
    >>> monitor = CoverageMonitor(clf, groups=["Gender = Male"])
    >>> for start in range(3000, 6000, 500):
    ...     monitor = monitor.update(data.X[start : start + 500], data.y[start : start + 500])
    >>> monitor.alarms
    []
    >>> monitor.summary().loc["everyone", "verdict"]
    'holding'
    """

    def __init__(self, clf: Any, *, groups: Iterable[Rule | str] = (), error: float = 0.05) -> None:
        if not hasattr(clf, "calibration_"):
            raise NotConformalizedError(
                f"CoverageMonitor needs a fitted conformal classifier, got {type(clf).__name__} "
                "without calibration; call fit or conformalize first"
            )
        self.clf = clf
        self.rules = [g if isinstance(g, Rule) else Rule.parse(g) for g in groups]
        self.error = check_fraction("error", error)
        self._read: str | None = None  # digest of the file as it was last read or written
        self._groups, n_tests = watched(clf, self.rules)
        streams = [Stream(group.name, clf.alpha_, n_tests / self.error) for group in self._groups]
        self._state = State(streams=streams)
        rng = np.random.default_rng(0)  # puts equal calibration scores in order
        for group, stream in zip(self._groups, streams, strict=True):
            if group.scores is not None:
                stream.begin(group.scores, rng.random(len(group.scores)))

    @property
    def alarms(self) -> list[Alarm]:
        """Every alarm so far, oldest first."""
        alarms = [alarm for stream in self._state.streams for alarm in stream.alarms]
        return sorted(alarms, key=lambda alarm: alarm.row)

    @property
    def n_rows(self) -> int:
        """Number of rows so far."""
        return self._state.n_rows

    @property
    def n_late(self) -> int:
        """Number of rows that were older than rows that came before."""
        return self._state.n_late

    def update(
        self,
        X: Any,
        y: Any,
        when: Any = None,
        *,
        proba: Any = None,
        sensitive_features: Any = None,
        ids: Any = None,
        clusters: Any = None,
    ) -> Self:
        """Add labelled rows; a call that fails changes nothing.

        Rows count in the order of ``when``, or else as they are given. Rows that are older than
        those of an earlier call count now, and ``n_late`` reports them. The answer does not depend
        on how rows are divided among calls, as long as all rows of a cluster are in one call.

        Parameters
        ----------
        X, y
            Rows that were not used to fit the classifier, and their labels.
        when : array-like of shape (n_samples,), default=None
            The time of each row: numbers, dates, or texts such as ``2026-03-01``.
        proba, sensitive_features, ids
            As in ``predict_set``. Ids distinguish people with equal values; a batch whose rows,
            labels, ids and times all equal those of an earlier one is refused.
        clusters : array-like of shape (n_samples,), default=None
            Ids of people or places with several rows, required if the classifier was calibrated
            with clusters: one row of each counts, drawn at random. Feed all rows of a cluster in
            one call, because a cluster that comes again counts again.
        """
        if clusters is None and self.clf.n_calibration_clusters_ is not None:
            raise InvalidInputError(
                "this classifier was calibrated with clusters, which count once each, got rows "
                "without clusters; pass clusters, an id per row"
            )
        check_same_length(X=X, y=y, proba=X if proba is None else proba)
        with ignore_drift():  # the watch must see changes, so unusual columns only warn
            hashes = self.clf.labelled_hashes(X, y, sensitive_features=sensitive_features, ids=ids)
        times, state = _times(when, len(hashes)), copy.deepcopy(self._state)
        kept = np.arange(len(hashes)) if clusters is None else _one_row_of_each(clusters, hashes)
        if times is not None:
            kept = kept[np.argsort(times[kept], kind="stable")]
            times = times[kept]
        batch = self._new_batch(hashes[kept], times, len(hashes))
        state.known = [*state.known, batch][-MOST_KNOWN:]
        X, y, proba, sensitive_features, ids = (
            None if part is None else take_rows(part, kept)
            for part in (X, y, proba, sensitive_features, ids)
        )
        n, tables = len(kept), [part for part in (X, sensitive_features) if part is not None]
        with accept_drift():
            labelled, covered = self._judged(
                y, self.clf._batches(X, proba, sensitive_features, ids)
            )
        ties = np.random.Generator(np.random.PCG64(1).advance(state.n_rows)).random(n)
        rows = Rows(labelled, covered, self.clf.calibration_, tables, ties, times, state.n_rows)
        for group, stream in zip(self._groups, state.streams, strict=True):
            stream.advance(rows, np.flatnonzero(group.inside(rows)))
        if times is not None and n:
            first, latest = times[[0, -1]].tolist()
            if state.latest is not None:
                state.n_late += int((times < state.latest).sum())
                first, latest = state.first, max(latest, state.latest)
            state.first, state.latest = first, latest
        state.n_rows += n
        self._state = state
        return self

    def _judged(self, y: Any, batches: Iterable[Batch]) -> tuple[Labelled, BoolArray]:
        """Return the labelled rows with their scores, and which of them are covered."""
        codes = label_codes(y, self.clf.classes_)
        parts, covered, start = [], [], 0
        for batch in batches:
            labels = codes[start : start + len(batch)]
            parts.append(batch.labelled(labels))
            covered.append(self.clf._sets(batch)[np.arange(len(labels)), labels] & (labels >= 0))
            start += len(batch)
        return Labelled.joined(parts), np.concatenate(covered)

    def _new_batch(self, hashes: Any, times: Any, n_fed: int) -> str:
        """Return a digest of a batch, whatever the order of its rows; refuse a known batch."""
        keys = hashes if times is None else hashes + 3 * pd.util.hash_array(times)
        # the sum of scrambled hashes changes with every row that is added or removed
        digest = f"{int(np.sum(keys * (keys | np.uint64(1)), dtype=np.uint64)):016x}{len(keys):x}"
        known = self._state.known
        if digest in known:
            n_ago = len(known) - known.index(digest)
            which = "in the latest batch" if n_ago == 1 else f"{n_ago} batches ago"
            raise InvalidInputError(
                f"these {rows(n_fed)} were fed already, {which}; if they are other people with "
                "equal values, pass ids= or when="
            )
        return digest

    def to_dict(self) -> dict[str, Any]:
        """Return all facts of the watch in plain JSON types."""
        streams = [self._facts(stream) for stream in self._state.streams]
        status = [row["status"] for row in streams]
        verdict = next((s for s in ("alarm", "watch") if s in status), "holding")
        ends = [end for row in streams for _, end in row["curve"]]
        rows = "rows" if status[0] == "alarm" else "group's rows"  # the first is everyone
        how = "fareg calibrate, or recalibrated in Python"
        if self.clf.n_calibration_clusters_ is not None:
            how = "clf.recalibrated(X, y, clusters=...) in Python"
        return {
            "schema": SCHEMA,
            "verdict": verdict,
            "sentence": _sentence(streams, verdict),
            "next_step": NEXT[verdict].format(rows=rows, how=how),
            "confidence_level": round(1 - self.clf.alpha_, 12),
            "error": self.error,
            "rows": self.n_rows,
            "late": self.n_late,
            "first": self._state.first,
            "last": self._state.latest,
            "lowest": min([0.8, *(np.floor(10 * end) / 10 for end in ends)]),
            "streams": streams,
            "alarms": [asdict(alarm) for alarm in self.alarms],
        }

    def _facts(self, stream: Stream) -> dict[str, Any]:
        n, missed = np.subtract([stream.n_rows, stream.n_missed], stream.begins[-1]).tolist()
        low, high = interval_at_all_times(np.array(n), np.array(missed), self.error).tolist()
        status = words = "holding"
        if stream.is_alarmed:
            status, alarm = "alarm", stream.alarms[-1]
            since: Any = f"row {count(alarm.since)}"
            if self.clf.n_calibration_clusters_ is not None:
                since = f"drawn {since}; one row per cluster counts"
            if alarm.since_when is not None:
                is_text = isinstance(alarm.since_when, str)
                since = alarm.since_when if is_text else f"time {alarm.since_when:g}"
            words = f"alarm since {since}"
        elif stream.wager is None:
            status, words = "learning", f"learning from its first {LEARNING} rows"
        # an alarm if this were the only group, or coverage too low for bad luck in calibration
        elif stream.wealth >= 1 / self.error or high < self._unlucky(stream):
            status = words = "watch"
        return {
            "stream": stream.name,
            "rows": n,
            "coverage": 1 - missed / n if n else None,
            "low": low,
            "high": high,
            "status": status,
            "verdict": words,
            "curve": curve(stream.points),
            "bands": bands(stream.points, stream.begins, self.error),
        }

    def _unlucky(self, stream: Stream) -> float:
        """Return the coverage that only one calibration in ``1 / error`` falls below."""
        promise = 1 - self.clf.alpha_
        if stream.learned or stream.reference is None:
            return promise
        gaps = stream.reference.gaps[-1]  # coverage given n calibration rows is a Beta variable
        return float(beta.ppf(self.error, promise * gaps, self.clf.alpha_ * gaps))

    def summary(self) -> pd.DataFrame:
        """Return rows, coverage, its interval and the verdict of each stream.

        Coverage is that of all rows since the watch began, since the last alarm, or since it was
        over. The interval ``low`` to ``high`` contains the mean coverage of these rows at every
        moment with probability ``1 - error``, however coverage changes.
        """
        columns = ["stream", "rows", "coverage", "low", "high", "verdict"]
        return pd.DataFrame(self.to_dict()["streams"])[columns].set_index("stream")

    def report(self, path: AnyPath) -> None:
        """Write one HTML page: the table, and a picture of coverage over time for each stream."""
        write_text(check_output(path, endings=HTML), render(self.to_dict()))

    def save(self, path: AnyPath) -> None:
        """Write the state as one small file, whole or not at all.

        It only replaces the file that this monitor was loaded from or last saved to. It refuses to
        overwrite any other file, such as that of somebody who fed rows at the same time.
        """
        target = check_output(path, endings=JSON)
        head = {"schema": SCHEMA, "model": _fingerprint(self.clf), "error": self.error}
        state = head | {"groups": [rule.text for rule in self.rules]} | asdict(self._state)
        text = json.dumps(state, default=lambda array: array.tolist()) + "\n"
        with only_writer(target):
            now = digest_of(target) if target.exists() else None
            if now != self._read:
                why = "it exists, and this monitor was not loaded from it; load it, or remove it"
                if self._read is not None:
                    why = (
                        "it changed after it was read: somebody else fed rows; run the update again"
                    )
                raise InvalidInputError(f"cannot write {target}: {why}")
            write_text(target, text)
        self._read = hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def load(cls, path: AnyPath, clf: Any) -> Self:
        """Continue from a state file, with the classifier that it was written for."""
        raw = check_readable(path).read_bytes()
        try:
            state = json.loads(raw)
            require(state["schema"] == SCHEMA, "schema")
            if state["model"] == _fingerprint(clf):
                monitor = cls(clf, groups=state["groups"], error=state["error"])
                streams = [Stream.restored(stream) for stream in state["streams"]]
                for stream, new in zip(streams, monitor._state.streams, strict=True):
                    require(stream.is_like(new), "streams")
                names = ("n_rows", "n_late", "first", "latest", "known")
                monitor._state = State(streams=streams, **{name: state[name] for name in names})
                monitor._read = hashlib.sha256(raw).hexdigest()
                monitor.to_dict()  # fails if the parts do not fit together
                return monitor
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise InvalidInputError(
                f"cannot read {path}: it is not the state of a monitor, or was changed by hand; "
                "begin a new one, or take a copy from before"
            ) from error
        raise InvalidInputError(
            f"{path} belongs to another model; begin a new state file for this one"
        )


def _sentence(streams: Sequence[Mapping[str, Any]], verdict: str) -> str:
    """Summarise the table in a sentence."""
    found = [row for row in streams if row["status"] == verdict]
    if verdict == "holding":
        return f"Coverage holds for {len(found)} of {len(streams)} watched groups."
    found.sort(key=lambda row: (row["stream"] != "everyone", row["low"]))
    names = shown(group_name(row["stream"]) for row in found)
    text = "No alarm, but look at" if verdict == "watch" else "Coverage is lost for"
    return f"{text} {names}."


def _fingerprint(clf: Any) -> str:
    """Return a digest that differs between calibrated classifiers."""
    digest = hashlib.sha256(repr((clf.alpha_, clf.key_, clf.classes_.tolist())).encode())
    sample = clf.calibration_.sample
    for array in (sample.score, sample.weights):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _one_row_of_each(clusters: Any, hashes: Any) -> IntArray:
    """Return the positions of one row per cluster, in the order of the rows."""
    codes = pd.factorize(np.asarray(clusters))[0]
    check_same_length(X=hashes, clusters=codes)
    if (codes < 0).any():
        raise InvalidInputError(
            f"clusters must not be missing, got {int((codes < 0).sum())} missing ids; give every "
            "row that stands alone an id of its own"
        )
    order = np.lexsort((hashes, codes))  # hashes are as good as random numbers
    return np.sort(order[np.unique(codes[order], return_index=True)[1]])


def _times(when: Any, n: int) -> Any:
    """Return times as numbers, or as texts that sort like their dates; None if there are none."""
    if when is None:
        return None
    times = pd.Series(np.asarray(when))
    check_same_length(X=np.empty(n), when=times)
    if not pd.api.types.is_numeric_dtype(times):
        try:
            iso = None if times.dtype.kind == "M" else "ISO8601"
            dates = pd.to_datetime(times, utc=True, format=iso)
        except (ValueError, TypeError) as error:
            raise InvalidInputError(
                "when must hold numbers or dates such as 2026-03-01 or 2026-03-01 08:30, got "
                f"{str(times.iloc[0])[:30]!r} among others"
            ) from error
        times = dates.dt.strftime("%Y-%m-%d %H:%M:%S").where(dates.notna())
    if times.isna().any():
        raise InvalidInputError(f"when must not be missing, got {int(times.isna().sum())} missing")
    return times.to_numpy()


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Let only one process at a time check and write a folder, where the system supports it."""
    try:
        import fcntl  # not on Windows
    except ImportError:
        yield
        return
    with writing(path):
        folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # the system releases it if the process is killed
        yield
    finally:
        os.close(folder)
