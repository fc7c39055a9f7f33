"""Streams: the watched groups, and what the state remembers of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from fareg._columns import check_columns, column_names
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg._words import percent
from fareg.calibration import Labelled, LevelThresholds, Mondrian
from fareg.groups import Rule
from fareg.monitoring._bets import Reference, Wager, misses_since

LEARNING = 200  # first rows of a stream that become its reference, if calibration offers none
FEWEST, MOST = 50, 40  # calibration rows of a watched cell at least, and watched cells at most
# An alarm is over when the rows are BACK times likelier under the promised coverage than under a
# low one: the odds of a miss as at the alarm, but FELL[0] to FELL[1] times the promised odds.
BACK = 1000.0
FELL = (1.4, 2.25)
MOST_POINTS = 128  # of the picture


@dataclass(frozen=True, eq=False)
class Rows:
    """The labelled rows of one update, in the order of time."""

    labelled: Labelled
    covered: BoolArray  # (n,) whether the set of the row holds its label
    calibration: Any
    tables: list[Any]  # X and the sensitive features next to it, for groups in words
    ties: FloatArray  # (n,) uniform numbers that put equal scores in order
    when: Any  # (n,) numbers or texts; None without times
    n_before: int  # rows of the watch before these

    @cached_property
    def places(self) -> list[IntArray]:
        """Level or cell of each row, for each part of the calibration."""
        parts = getattr(self.calibration, "parts", (self.calibration,))
        return [part.places(self.labelled) for part in parts]

    def number_and_time(self, row: int) -> tuple[int, Any]:
        """Return the number and the time of a row, as JSON knows them."""
        when = None if self.when is None else self.when[row : row + 1].tolist()[0]
        return self.n_before + 1 + int(row), when

    def inside(self, rule: Rule) -> BoolArray:
        """Return which rows are in a group, by the first table that has its columns."""
        fitting = [t for t in self.tables if set(rule.features) <= set(column_names(t))]
        if not fitting:
            check_columns(rule.features, column_names(self.tables[-1]), "X")
        return rule.inside(fitting[0])


@dataclass(frozen=True, eq=False)
class Group:
    """A watched group."""

    name: str
    inside: Callable[[Rows], BoolArray]
    scores: FloatArray | None = None  # of its calibration rows; None if unknown


def watched(clf: Any, rules: Iterable[Rule]) -> tuple[list[Group], int]:
    """Return the watched groups, and the number of groups that share the error.

    Calibration scores decide which levels share a threshold, so all levels share the error.
    """
    sample = clf.calibration_.sample
    parts = enumerate(getattr(clf.calibration_, "parts", (clf.calibration_,)))
    # rows of one person depend on each other, weighted rows come from another population, and
    # other methods keep other scores
    is_plain = sample.sizes is None and sample.weights is None
    known = [(i, p) for i, p in parts if is_plain and isinstance(p, LevelThresholds | Mondrian)]
    everyone = sample.score if known else None
    groups = [Group("everyone", lambda rows: np.ones(len(rows.covered), dtype=bool), everyone)]
    n_levels = 0
    for number, part in known:
        if isinstance(part, LevelThresholds):
            groups += _upper_levels(part, number, clf.classes_)
            n_levels += int(np.sum(part.levels.n_levels))
        else:
            groups += _cells(part, number)
    for label, name in enumerate(clf.classes_ if clf.parameters_["label_conditional"] else ()):
        scores = sample.score[sample.row_labels == label] if known else None
        groups.append(Group(f"label {name}", partial(_has_label, label=label), scores))
    named = [group.rule for group in getattr(clf, "named_groups_", ())]
    for rule in [*getattr(clf, "protected_", ()), *named, *rules]:
        if rule.text not in {group.name for group in groups}:
            groups.append(Group(rule.text, partial(Rows.inside, rule=rule)))
    return groups, len(groups) + n_levels


def _has_label(rows: Rows, label: int) -> BoolArray:
    return rows.labelled.y == label


def _upper_levels(part: LevelThresholds, number: int, classes: Any) -> Iterator[Group]:
    """Yield "level m and above" for each run of levels with one threshold, but the lowest."""
    by_label = part.sample.labels is not None

    def inside(rows: Rows, first: int, label: int) -> BoolArray:
        return (rows.places[number] >= first) & (_has_label(rows, label) | (not by_label))

    for label in range(len(part.theta)):
        of_label = part.sample.row_labels == label
        for first, _ in part.pooled_levels(label)[1:]:
            rows = (part.row_levels >= first) & of_label
            name = f"level {first} and above (worst-off {percent(rows.sum() / of_label.sum())})"
            name += f", label {classes[label]}" if by_label else ""
            yield Group(name, partial(inside, first=first, label=label), part.sample.score[rows])


def _cells(part: Mondrian, number: int) -> Iterator[Group]:
    """Yield the cells with the most calibration rows, unless one cell holds everyone."""

    def inside(rows: Rows, cell: int) -> BoolArray:
        return rows.places[number] == cell

    sizes = np.bincount(part.cells[part.cells >= 0], minlength=part.groups.n_cells)
    for cell in np.argsort(-sizes, kind="stable")[:MOST].tolist():
        if FEWEST <= sizes[cell] < len(part.cells):
            scores = part.sample.score[part.cells == cell]
            yield Group(part.groups.describe(cell), partial(inside, cell=cell), scores)


@dataclass(frozen=True)
class Alarm:
    """An alarm: a stream lost coverage.

    Attributes
    ----------
    stream : str
        The group, in words.
    row, when : int, and number or text
        The row at which the alarm was raised, counted from the first row of the watch.
    since, since_when
        The row at which coverage began to fall, estimated.
    n_rows, n_missed : int
        Rows of the group from there to the alarm, and how many of them were missed.
    back, back_when
        The row at which coverage was back to the promise; None if it is not back.
    """

    stream: str
    row: int
    when: Any
    since: int
    since_when: Any
    n_rows: int
    n_missed: int
    back: int | None = None
    back_when: Any = None


@dataclass(eq=False)
class Stream:
    """What is remembered of one group; its size does not grow with the number of rows."""

    name: str
    alpha: float
    threshold: float  # wealth that raises an alarm
    reference: Reference | None = None
    wager: Wager | None = None
    learned: list[list[float]] = field(default_factory=list)  # scores and ties of a reference
    n_rows: int = 0
    n_missed: int = 0
    begins: list[list[int]] = field(
        default_factory=lambda: [[0, 0]]
    )  # rows, misses at new estimates
    change: tuple[float, int, int] = (0.0, 0, 0)  # gain, rows and misses since the lowest gain
    since: tuple[int, Any] = (0, None)  # number and time of the first of these rows
    wealth: float = 1.0
    evidence: float = 0.0  # that an alarm is over: log of the likelihood ratio
    alarms: list[Alarm] = field(default_factory=list)
    points: list[list[Any]] = field(default_factory=list)  # row, n_rows, n_missed
    step: int = 16  # rows between points

    @property
    def is_alarmed(self) -> bool:
        """Whether the last alarm is not over."""
        return bool(self.alarms) and self.alarms[-1].back is None

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Self:
        """Return the stream that was written as JSON with ``dataclasses.asdict``."""
        reference, wager = state.pop("reference"), state.pop("wager")
        state |= {name: tuple(state[name]) for name in ("change", "since")}
        return cls(
            reference=reference and Reference(**reference),
            wager=wager and Wager(**wager),
            alarms=[Alarm(**alarm) for alarm in state.pop("alarms")],
            **state,
        )

    def is_like(self, other: Stream) -> bool:
        """Return whether another stream watches the same group, with fields of the same types."""
        plain = [name for name in vars(self) if name not in ("reference", "wager")]
        return all(
            type(getattr(self, name)) is type(getattr(other, name)) for name in plain
        ) and all(
            getattr(self, name) == getattr(other, name) for name in ("name", "alpha", "threshold")
        )

    def begin(self, scores: FloatArray, ties: FloatArray) -> None:
        """Start to bet, with known scores as the reference."""
        self.reference = Reference.of(scores, ties, self.alpha)
        self.wager = Wager.start(self.reference)

    def advance(self, rows: Rows, positions: IntArray) -> None:
        """Process the rows at these positions in order."""
        missed = ~rows.covered[positions]
        self._count(rows, positions, missed)
        while len(positions):
            if self.is_alarmed:
                n = self._wait(rows, positions, missed)
            elif self.wager is None:
                n = self._learn(rows, positions)
            else:
                n = self._bet(rows, positions, missed)
            positions, missed = positions[n:], missed[n:]

    def _count(self, rows: Rows, positions: IntArray, missed: BoolArray) -> None:
        """Count the rows, and add a point to the picture every ``step`` rows."""
        before, total = self.n_rows, self.n_missed + np.cumsum(missed)
        self.n_rows, self.n_missed = before + len(positions), self.n_missed + int(missed.sum())
        while self.n_rows // self.step > MOST_POINTS:
            self.step *= 2
        self.points = [point for point in self.points if point[1] % self.step == 0]
        for n in range(before - before % self.step + self.step, self.n_rows + 1, self.step):
            row, _ = rows.number_and_time(positions[n - before - 1])
            self.points.append([row, n, int(total[n - before - 1])])

    def _learn(self, rows: Rows, positions: IntArray) -> int:
        """Collect the first rows for the reference; return how many rows were processed."""
        positions = positions[: LEARNING - len(self.learned)]
        scores, ties = rows.labelled.score[positions], rows.ties[positions]
        self.learned += np.column_stack([scores, ties]).tolist()
        if len(self.learned) == LEARNING:
            self.begin(*np.array(self.learned).T)
        return len(positions)

    def _bet(self, rows: Rows, positions: IntArray, missed: BoolArray) -> int:
        """Bet on every row up to an alarm; return how many rows were processed."""
        assert self.reference is not None
        assert self.wager is not None
        bins = self.reference.bins(rows.labelled.score[positions], rows.ties[positions])
        wealth, gains = self.wager.play(self.reference, bins, self.alpha)
        gained, since, n_missed = misses_since(gains, missed, self.change)
        # only lost coverage raises an alarm: scores may also grow below the thresholds
        is_lost = (wealth >= self.threshold) & (n_missed > self.alpha * since)
        n = int(is_lost.argmax()) + 1 if is_lost.any() else len(positions)
        first = n - int(since[n - 1])  # the position of the first row since the change
        if 0 <= first < n:
            self.since = rows.number_and_time(positions[first])
        self.change = (float(gained[n - 1]), int(since[n - 1]), int(n_missed[n - 1]))
        self.wealth = float(wealth[n - 1])
        if is_lost.any():
            row, when = rows.number_and_time(positions[n - 1])
            self.alarms.append(Alarm(self.name, row, when, *self.since, *self.change[1:]))
            self._begin_estimate(missed, n)
        return n

    def _wait(self, rows: Rows, positions: IntArray, missed: BoolArray) -> int:
        """Look for the end of an alarm, to start again; return how many rows were processed."""
        assert self.reference is not None
        alarm, alpha = self.alarms[-1], self.alpha
        odds = alarm.n_missed / max(1, alarm.n_rows - alarm.n_missed)
        odds = float(np.clip(odds * (1 - alpha) / alpha, *FELL)) * alpha / (1 - alpha)
        low = odds / (1 + odds)
        hit, miss = np.log((1 - alpha) / (1 - low)), np.log(alpha / low)
        evidence, *_ = misses_since(np.where(missed, miss, hit), missed, (self.evidence, 0, 0))
        over = np.flatnonzero(evidence >= np.log(BACK))
        if not len(over):
            self.evidence = float(evidence[-1])
            return len(positions)
        n = int(over[0]) + 1
        row, when = rows.number_and_time(positions[n - 1])
        self.alarms[-1] = replace(alarm, back=row, back_when=when)
        self.wager, self.wealth, self.evidence = Wager.start(self.reference), 1.0, 0.0
        self.change = (0.0, 0, 0)
        self._begin_estimate(missed, n)
        return n

    def _begin_estimate(self, missed: BoolArray, n: int) -> None:
        """Start a new estimate of coverage after the first n of these rows."""
        before = [self.n_rows - (len(missed) - n), self.n_missed - int(missed[n:].sum())]
        self.begins.append(before)
