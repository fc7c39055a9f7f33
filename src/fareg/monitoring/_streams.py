"""Streams: the groups that are watched, and what the state remembers of each."""

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

LEARNING = 200  # first rows of a stream that are its reference, if the model knows no other
FEWEST, MOST = 50, 40  # calibration rows of a cell that is watched, and number of such cells
BACK = 1000.0  # how much likelier rows must be if coverage is back than if it is still low: if the
FELL = (1.4, 2.25)  # odds of a miss are those of the alarm, or so many times what they should be
MOST_POINTS = 128  # of the picture


@dataclass(frozen=True, eq=False)
class Rows:
    """The labelled rows of one update, in the order of time."""

    labelled: Labelled
    covered: BoolArray  # (n,) whether the set of the row holds its label
    calibration: Any
    tables: list[Any]  # X and what lies next to it, for groups in words
    ties: FloatArray  # (n,) uniform numbers that put equal scores in order
    when: Any  # (n,) numbers or texts; None without times
    n_before: int  # rows of the watch before these

    @cached_property
    def places(self) -> list[IntArray]:
        """Where the rows belong in each part of the calibration."""
        parts = getattr(self.calibration, "parts", (self.calibration,))
        return [part.places(self.labelled) for part in parts]

    def place(self, row: int) -> tuple[int, Any]:
        """Return the number and the time of a row, as JSON knows them."""
        when = None if self.when is None else self.when[row : row + 1].tolist()[0]
        return self.n_before + 1 + int(row), when

    def inside(self, rule: Rule) -> BoolArray:
        """Return which rows a rule means, by the columns of the first table that has them."""
        fitting = [t for t in self.tables if set(rule.features) <= set(column_names(t))]
        if not fitting:
            check_columns(rule.features, column_names(self.tables[-1]), "X")
        return rule.inside(fitting[0])


@dataclass(frozen=True, eq=False)
class Group:
    """A group that is watched."""

    name: str
    inside: Callable[[Rows], BoolArray]
    scores: FloatArray | None = None  # of its calibration rows; None if the model does not know


def watched(clf: Any, rules: Iterable[Rule]) -> tuple[list[Group], int]:
    """Return the groups that are watched, and the number of groups that share the error.

    Which levels have one threshold is seen in calibration scores, so all levels share the error.
    """
    sample = clf.calibration_.sample
    parts = enumerate(getattr(clf.calibration_, "parts", (clf.calibration_,)))
    # rows of one person depend on each other, weighted rows are of another population, and other
    # methods keep other scores
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
        own = sample.score[sample.row_labels == label] if known else None
        groups.append(Group(f"label {name}", partial(_has_label, label=label), own))
    named = [group.rule for group in getattr(clf, "named_groups_", ())]
    for rule in [*getattr(clf, "protected_", ()), *named, *rules]:
        if rule.text not in {group.name for group in groups}:
            groups.append(Group(rule.text, partial(Rows.inside, rule=rule)))
    return groups, len(groups) + n_levels


def _has_label(rows: Rows, label: int) -> BoolArray:
    return rows.labelled.y == label


def _upper_levels(part: LevelThresholds, number: int, classes: Any) -> Iterator[Group]:
    """Yield "this run of levels and above", for every run with a threshold but the lowest."""
    by_label = part.sample.labels is not None

    def inside(rows: Rows, first: int, label: int) -> BoolArray:
        return (rows.places[number] >= first) & (_has_label(rows, label) | (not by_label))

    for label in range(len(part.theta)):
        whose = part.sample.row_labels == label
        for first, _ in part.pooled_levels(label)[1:]:
            own = (part.row_levels >= first) & whose
            name = f"level {first} and above (worst-off {percent(own.sum() / whose.sum())})"
            name += f", label {classes[label]}" if by_label else ""
            yield Group(name, partial(inside, first=first, label=label), part.sample.score[own])


def _cells(part: Mondrian, number: int) -> Iterator[Group]:
    """Yield the cells with the most calibration rows, unless there is only everyone."""

    def inside(rows: Rows, cell: int) -> BoolArray:
        return rows.places[number] == cell

    sizes = np.bincount(part.cells[part.cells >= 0], minlength=part.groups.n_cells)
    for cell in np.argsort(-sizes, kind="stable")[:MOST].tolist():
        if FEWEST <= sizes[cell] < len(part.cells):
            own = part.sample.score[part.cells == cell]
            yield Group(part.groups.describe(cell), partial(inside, cell=cell), own)


@dataclass(frozen=True)
class Alarm:
    """Coverage was lost in a stream.

    Attributes
    ----------
    stream : str
        The group, in words.
    row, when : int, and number or text
        The row at which the alarm was raised, counted from the first row of the watch.
    since, since_when
        The row at which coverage began to fall, by an estimate.
    n_rows, n_missed : int
        Rows of the group between both, and how many of them were missed.
    back, back_when
        The row at which coverage was back as promised; None if it is not.
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
    begins: list[list[int]] = field(default_factory=lambda: [[0, 0]])  # both, where estimates begin
    change: tuple[float, int, int] = (0.0, 0, 0)  # gain, rows and misses since it was lowest
    since: tuple[int, Any] = (0, None)  # number and time of the first of these rows
    wealth: float = 1.0
    evidence: float = 0.0  # of an alarm that is over: log of the likelihood ratio
    alarms: list[Alarm] = field(default_factory=list)
    points: list[list[Any]] = field(default_factory=list)  # row, n_rows, n_missed
    step: int = 16  # rows between points

    @property
    def is_alarmed(self) -> bool:
        """Whether the last alarm is not over."""
        return bool(self.alarms) and self.alarms[-1].back is None

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Self:
        """Return the stream whose ``dataclasses.asdict`` was written as JSON."""
        reference, wager = state.pop("reference"), state.pop("wager")
        state |= {name: tuple(state[name]) for name in ("change", "since")}
        return cls(
            reference=reference and Reference(**reference),
            wager=wager and Wager(**wager),
            alarms=[Alarm(**alarm) for alarm in state.pop("alarms")],
            **state,
        )

    def is_like(self, other: Stream) -> bool:
        """Tell whether another stream watches the same, and remembers things of the same types."""
        plain = [name for name in vars(self) if name not in ("reference", "wager")]
        return all(
            type(getattr(self, name)) is type(getattr(other, name)) for name in plain
        ) and all(
            getattr(self, name) == getattr(other, name) for name in ("name", "alpha", "threshold")
        )

    def begin(self, scores: FloatArray, ties: FloatArray) -> None:
        """Start to bet, with the scores of known rows as the reference."""
        self.reference = Reference.of(scores, ties, self.alpha)
        self.wager = Wager.start(self.reference)

    def advance(self, rows: Rows, own: IntArray) -> None:
        """Take in the rows with these positions, one after the other."""
        missed = ~rows.covered[own]
        self._draw(rows, own, missed)
        while len(own):
            if self.is_alarmed:
                n = self._wait(rows, own, missed)
            elif self.wager is None:
                n = self._learn(rows, own)
            else:
                n = self._bet(rows, own, missed)
            own, missed = own[n:], missed[n:]

    def _draw(self, rows: Rows, own: IntArray, missed: BoolArray) -> None:
        """Count the rows, and note a point of the picture now and then."""
        before, total = self.n_rows, self.n_missed + np.cumsum(missed)
        self.n_rows, self.n_missed = before + len(own), self.n_missed + int(missed.sum())
        while self.n_rows // self.step > MOST_POINTS:
            self.step *= 2
        self.points = [point for point in self.points if point[1] % self.step == 0]
        for n in range(before - before % self.step + self.step, self.n_rows + 1, self.step):
            row, _ = rows.place(own[n - before - 1])
            self.points.append([row, n, int(total[n - before - 1])])

    def _learn(self, rows: Rows, own: IntArray) -> int:
        """Take the first rows as the reference."""
        own = own[: LEARNING - len(self.learned)]
        self.learned += np.column_stack([rows.labelled.score[own], rows.ties[own]]).tolist()
        if len(self.learned) == LEARNING:
            self.begin(*np.array(self.learned).T)
        return len(own)

    def _bet(self, rows: Rows, own: IntArray, missed: BoolArray) -> int:
        """Bet on every row, up to an alarm."""
        assert self.reference is not None
        assert self.wager is not None
        bins = self.reference.bins(rows.labelled.score[own], rows.ties[own])
        wealth, gains = self.wager.play(self.reference, bins, self.alpha)
        gained, since, n_missed = misses_since(gains, missed, self.change)
        # an alarm is about coverage: scores may grow where thresholds are high enough
        lost = (wealth >= self.threshold) & (n_missed > self.alpha * since)
        n = int(lost.argmax()) + 1 if lost.any() else len(own)
        first = n - int(since[n - 1])  # the position of the first row since the change
        if 0 <= first < n:
            self.since = rows.place(own[first])
        self.change = (float(gained[n - 1]), int(since[n - 1]), int(n_missed[n - 1]))
        self.wealth = float(wealth[n - 1])
        if lost.any():
            row, when = rows.place(own[n - 1])
            self.alarms.append(Alarm(self.name, row, when, *self.since, *self.change[1:]))
            self._begin_estimate(missed, n)
        return n

    def _wait(self, rows: Rows, own: IntArray, missed: BoolArray) -> int:
        """Look for the end of an alarm; from there on, everything begins anew."""
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
            return len(own)
        n = int(over[0]) + 1
        row, when = rows.place(own[n - 1])
        self.alarms[-1] = replace(alarm, back=row, back_when=when)
        self.wager, self.wealth, self.evidence = Wager.start(self.reference), 1.0, 0.0
        self.change = (0.0, 0, 0)
        self._begin_estimate(missed, n)
        return n

    def _begin_estimate(self, missed: BoolArray, n: int) -> None:
        """Estimate coverage anew from here, where an alarm began or is over: n rows are done."""
        done = [self.n_rows - (len(missed) - n), self.n_missed - int(missed[n:].sum())]
        self.begins.append(done)
