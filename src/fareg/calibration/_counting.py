"""Conformal quantiles of every run of levels from counts, without ever holding the scores.

Rows lie in many places. Each place counts its scores by their leading bits, level by level; counts
of places add up. A float with its bits in order is a whole number, and the quantile ``Q(A_ab)`` of
the levels a..b is the number at a known rank. A few rounds of counting narrow the bits of all these
numbers at once, until none is open: the answer is that of sorted scores, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from fareg._validation import FloatArray, IntArray, InvalidInputError
from fareg.calibration._levels import RisingThresholds
from fareg.calibration._rows import Rows, require
from fareg.pvalues import conformal_rank

BITS = 16  # how many bits a round adds to those that are known
FEW_ROWS = 1 << 17  # if no more rows are left, a round counts every distinct score
ALL_BITS = 64
SHORT = 32  # so many bits fit into one number beside the stratum
SIGN = np.uint64(1 << 63)


def ordered_bits(scores: Any) -> Any:
    """Return float scores as whole numbers (uint64) in the same order.

    >>> bits = ordered_bits([-1.0, -0.0, 0.0, 0.5, np.inf])
    >>> np.diff(bits.astype(float)) >= 0
    array([ True,  True,  True,  True])
    >>> scores_of(bits).tolist()
    [-1.0, 0.0, 0.0, 0.5, inf]
    """
    bits = (np.asarray(scores, dtype=np.float64) + 0.0).view(np.uint64)
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def scores_of(bits: Any) -> FloatArray:
    """Return the scores of which these are the :func:`ordered_bits`."""
    return np.where(bits & SIGN, bits & ~SIGN, ~bits).view(np.float64)


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """How many rows of each stratum have scores with the same leading bits."""

    strata: IntArray  # (m,) problem * n_levels + level
    heads: Any  # (m,) uint64: the leading bits, as a number
    counts: IntArray  # (m,)

    @classmethod
    def joined(cls, parts: Sequence[ScoreCounts]) -> ScoreCounts:
        """Add up counts of different rows."""
        strata, heads, counts = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("strata", "heads", "counts")
        )
        order = np.lexsort((heads, strata))
        strata, heads, counts = strata[order], heads[order], counts[order]
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = (np.diff(strata) != 0) | (heads[1:] != heads[:-1])
        starts = np.flatnonzero(is_new)
        sums = np.add.reduceat(counts, starts) if len(starts) else counts
        return cls(strata[starts], heads[starts], sums)


@dataclass(frozen=True, eq=False)
class CountingRound:
    """What every place shall count: scores that begin with open bits, by the bits after these."""

    n_levels: int
    known: int  # how many leading bits are known
    bits: int  # how many further bits shall be told apart
    open_heads: tuple[Any, ...]  # per problem the known bits that matter (uint64), in order

    def count(self, scores: FloatArray, levels: IntArray, problems: IntArray) -> ScoreCounts:
        """Count some rows; a row of problem -1 takes part in none."""
        numbers = ordered_bits(scores)
        matters = np.zeros(len(numbers), dtype=bool)
        # in the first round no bit is known: numpy shifts all 64 bits out, which leaves zero
        known = numbers >> np.uint64(ALL_BITS - self.known)
        for problem, heads in enumerate(self.open_heads):
            matters |= (problems == problem) & np.isin(known, heads)
        strata = problems[matters] * self.n_levels + levels[matters]
        n_bits = self.known + self.bits
        heads = numbers[matters] >> np.uint64(ALL_BITS - n_bits)
        if n_bits <= SHORT:
            # stratum and bits fit into one number, which is sorted ten times faster
            keys, counts = np.unique(strata << n_bits | heads.astype(np.int64), return_counts=True)
            return ScoreCounts(keys >> n_bits, (keys & (2**n_bits - 1)).astype(np.uint64), counts)
        return ScoreCounts.joined([ScoreCounts(strata, heads, np.ones(len(strata), np.int64))])


@dataclass(eq=False)
class _Target:
    """The quantile of the levels a..b of one problem, as far as it is known."""

    problem: int
    a: int
    b: int
    rank: int
    head: int  # its leading bits
    below: IntArray  # (n_levels,) rows with smaller leading bits
    inside: Any  # (n_levels,) rows with the same leading bits; None before the first round


@dataclass(eq=False)
class IntervalSearch:
    """The search for all ``Q(A_ab)`` at once, round by round.

    Ask every place for its counts in ``next_round()``, hand their sum to ``narrow``, and go on
    while ``is_open``.

    Examples
    --------
    >>> search = IntervalSearch(n_levels=2, n_problems=1, alpha=0.4, n_rows=6)
    >>> scores, levels = np.array([0.1, 0.2, 0.3, 0.4, 0.8, 0.9]), np.array([0, 0, 0, 1, 1, 1])
    >>> while search.is_open:
    ...     search.narrow(search.next_round().count(scores, levels, np.zeros(6, np.int64)))
    >>> search.quantiles[0]
    array([[0.3, 0.8],
           [inf, 0.9]])
    """

    n_levels: int
    n_problems: int
    alpha: float
    n_rows: int
    few_rows: int = FEW_ROWS
    known: int = field(default=0, init=False)
    counts: IntArray = field(init=False)  # (n_problems, n_levels)
    targets: list[_Target] = field(init=False, default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether another round is needed."""
        return self.known == 0 or (self.known < ALL_BITS and bool(self.targets))

    def next_round(self) -> CountingRound:
        """Return what to count next."""
        heads = {(target.problem, target.head): target.inside for target in self.targets}
        left = self.n_rows if self.known == 0 else sum(int(i.sum()) for i in heads.values())
        bits = ALL_BITS - self.known if left <= self.few_rows else BITS
        open_heads = [[head for p, head in heads if p == q] for q in range(self.n_problems)]
        if self.known == 0:
            open_heads = [[0]] * self.n_problems
        arrays = tuple(np.array(sorted(some), dtype=np.uint64) for some in open_heads)
        self._bits = bits
        return CountingRound(self.n_levels, self.known, bits, arrays)

    def narrow(self, counted: ScoreCounts) -> None:
        """Take the counts of all rows in this round."""
        if self.known == 0:
            self._begin(counted)
        problems, levels = np.divmod(counted.strata, self.n_levels)
        known = counted.heads >> np.uint64(self._bits)
        for problem, head in {(target.problem, target.head) for target in self.targets}:
            here = (problems == problem) & (known == np.uint64(head))
            heads, at = np.unique(counted.heads[here], return_inverse=True)
            table = np.zeros((self.n_levels, len(heads)), dtype=np.int64)
            table[levels[here], at] = counted.counts[here]
            own = [t for t in self.targets if (t.problem, t.head) == (problem, head)]
            _narrow(own, heads, table)
        self.known += self._bits

    def _begin(self, counted: ScoreCounts) -> None:
        """Learn from the first counts how many rows there are, and so the ranks."""
        n_strata = self.n_problems * self.n_levels
        total = np.bincount(counted.strata, counted.counts, n_strata).astype(np.int64)
        self.counts = total.reshape(self.n_problems, self.n_levels)
        for problem, counts in enumerate(self.counts):
            for a, b in np.transpose(np.triu_indices(self.n_levels)).tolist():
                n = int(counts[a : b + 1].sum())
                rank = conformal_rank(n, self.alpha)
                if rank <= n:
                    nothing = np.zeros(self.n_levels, dtype=np.int64)
                    self.targets.append(_Target(problem, a, b, rank, 0, nothing, None))

    @property
    def quantiles(self) -> FloatArray:
        """All ``Q(A_ab)``, of shape (n_problems, n_levels, n_levels); infinite where b < a."""
        found = np.full((self.n_problems, self.n_levels, self.n_levels), np.inf)
        for target in self.targets:
            found[target.problem, target.a, target.b] = scores_of(np.uint64(target.head))
        return found

    @property
    def covered(self) -> IntArray:
        """Rows within the quantile of all levels, of shape (n_problems, n_levels)."""
        covered = self.counts.copy()  # an infinite threshold covers all
        for target in self.targets:
            if (target.a, target.b) == (0, self.n_levels - 1):
                covered[target.problem] = target.below + target.inside
        return covered


def _narrow(targets: list[_Target], heads: Any, table: IntArray) -> None:
    """Move targets with the same leading bits on; ``table`` counts levels by longer bits."""
    smaller = np.cumsum(table, axis=1)  # (n_levels, n_heads)
    runs = np.concatenate([np.zeros_like(smaller[:1]), np.cumsum(smaller, axis=0)])
    for target in targets:
        if target.inside is not None and not np.array_equal(target.inside, table.sum(axis=1)):
            raise InvalidInputError(
                "rows or their scores changed between two rounds of counting; leave the files "
                "alone, and give every worker the same libraries"
            )
        a, b = target.a, target.b
        rank = target.rank - target.below[a : b + 1].sum()
        at = int(np.searchsorted(runs[b + 1] - runs[a], rank))
        target.head = int(heads[at])
        target.below = target.below + smaller[:, at] - table[:, at]
        target.inside = table[:, at]


@dataclass(frozen=True, eq=False)
class CountedLevels(RisingThresholds):
    """Levels calibrated by counting scores where they lie; the scores themselves are not kept."""

    leveler: Any  # has ``levels(rows)`` and ``n_levels``
    quantiles: FloatArray  # (n_labels, n_levels, n_levels) Q(A_ab) of every run of levels
    counts: IntArray  # (n_labels, n_levels) calibration rows of each level
    covered: IntArray  # (n_labels, n_levels) of these, the rows that split conformal sets cover
    labels: IntArray | None  # (n_labels,) those calibrated on their own; None for all together
    alpha: float

    @classmethod
    def of(cls, leveler: Any, search: IntervalSearch, *, label_conditional: bool) -> Self:
        """Take what a finished search has found."""
        labels = np.arange(search.n_problems) if label_conditional else None
        found = (search.quantiles, search.counts, search.covered)
        return cls(leveler, *found, labels, search.alpha)

    @property
    def n_labels(self) -> int:  # type: ignore[override]
        return len(self.counts)

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    @property
    def people(self) -> IntArray:
        """Every row counts as a person of its own."""
        return self.counts

    def pvalues(self, rows: Rows) -> FloatArray:
        """Refuse, because a p-value compares with all calibration scores."""
        raise InvalidInputError(
            f"p-values need the calibration scores, and this model keeps only counts of "
            f"{self.n_rows} of them; conformalize a table in memory for p-values"
        )

    def check(self, rows: Rows, n_labels: int | None, alpha: float) -> None:
        require(self.alpha == alpha, "alpha")
        self.check_levels(rows)
        shape = (1 if n_labels is None else n_labels, self.leveler.n_levels)
        known: Any = None if n_labels is None else np.arange(n_labels)
        require(np.array_equal(self.labels, known), "labels")  # type: ignore[arg-type]
        for name in ("counts", "covered"):
            some = getattr(self, name)
            require(some.shape == shape and some.dtype == np.int64, name)
        require(((self.covered >= 0) & (self.covered <= self.counts)).all(), "covered")
        require(self.quantiles.shape == (*shape, shape[1]), "quantiles")
        require(self.quantiles.dtype == np.float64, "quantiles")
        require(not np.isnan(self.quantiles).any(), "quantiles")
