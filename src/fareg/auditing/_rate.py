"""How many rows are covered, and whether a promise that is kept could explain so few.

Rows of one cluster (the visits of a patient, the copies of a row) may depend on each other in any
way. If one row is drawn from each cluster, the drawn rows are independent, and of those that lie in
a group the number of covered ones is binomial. The p-value is averaged over draws, and twice an
average of p-values is a p-value again, however they depend on each other (Vovk & Wang 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import beta, betabinom, binom

from fareg._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    InvalidInputError,
    check_confidence_level,
)
from fareg._words import coverage_of, evidence, json_types
from fareg.metrics import clopper_pearson
from fareg.pvalues import conformal_rank

FEWEST_DEVIATIONS = 10.0  # a law is cut off where it is this many standard deviations from its mean
INTERVAL_TAIL = 0.025  # probability outside each end of a 95% interval
N_DRAWS = 20  # of the clusters that are drawn with a row in a group, if they have others outside


@dataclass(frozen=True)
class Rate:
    """A share of rows that are covered, with its 95% interval and a p-value of the promise.

    Attributes
    ----------
    n : int
        Rows.
    share : float
        Of the rows that are covered. With clusters it is the probability that a random row of a
        random cluster is, given that it is one of these: a row of a cluster with m rows counts 1/m.
    low, high : float
        95% interval of the share: Clopper-Pearson, or averaged over draws of one row per cluster.
    p_value : float or None
        That coverage is as promised; small if it is lower. None if it was not tested.
    n_clusters : int or None
        Clusters with a row among them; None if rows are independent.

    Examples
    --------
    >>> rate = Rate.of(np.array([True] * 80 + [False] * 20), promise=Promise(0.9))
    >>> print(rate)
    80.0% of 100 rows (95% interval 70.8% to 87.3%, p = 0.0020)
    """

    n: int
    share: float
    low: float
    high: float
    p_value: float | None = None
    n_clusters: int | None = None

    @classmethod
    def of(
        cls,
        covered: BoolArray,
        clusters: IntArray | None = None,
        sizes: IntArray | None = None,
        promise: Promise | None = None,
    ) -> Rate:
        """Count rows, or clusters as :meth:`Count.of` does, and test a promise if there is one."""
        count = Count.of(covered, clusters, sizes)
        p = None if promise is None else count.p_value(promise)
        n_clusters = None if clusters is None else count.n
        return cls(len(covered), count.coverage, *count.interval(), p, n_clusters)

    @classmethod
    def of_row(cls, row: Any, moment: str = "coverage") -> Rate:
        """Read a rate from a row of a table; ``moment`` is "coverage", "before" or "after"."""
        names = ("low", "high") if moment == "coverage" else (f"{moment}_low", f"{moment}_high")
        low, high = (row[name] for name in names)
        return cls(row["n"], row[moment], low, high, row.get("p_value"), row.get("n_clusters"))

    @property
    def independent(self) -> int:
        """How many clusters there are, or rows if these are independent."""
        return self.n if self.n_clusters is None else self.n_clusters

    @property
    def unit(self) -> str:
        """What is independent: rows or clusters."""
        return "rows" if self.n_clusters is None else "clusters"

    def told(self) -> dict[str, Any]:
        """Return the columns of tables and of JSON; NaN becomes None."""
        names = {"n": self.n, "coverage": self.share, "low": self.low, "high": self.high}
        more = {} if self.n_clusters is None else {"n_clusters": self.n_clusters}
        tested = {} if self.p_value is None else {"p_value": self.p_value}
        return json_types({**names, **tested, **more})

    def __str__(self) -> str:
        return f"{coverage_of(self.told())} ({evidence(self.told())})"


@dataclass(frozen=True)
class Promise:
    """What the sets promise: coverage of at least a level, or that of a valid split predictor.

    Over the draw of ``n_calibration`` rows, the true coverage of a split conformal predictor is
    Beta(k, n + 1 - k) with ``k = ceil((n + 1)(1 - alpha))``: valid on average, and a little above
    or below the level each time (Vovk 2012). Coverage is then beta-binomial instead of binomial.
    """

    confidence_level: float
    n_calibration: int | None = None

    def __post_init__(self) -> None:
        if self.n_calibration is not None and self._beta[1] == 0:
            needed = int(np.ceil(1 / (1 - self.confidence_level) - 1e-9)) - 1
            raise InvalidInputError(
                f"n_calibration must be at least {needed} at confidence level "
                f"{self.confidence_level:g}, got {self.n_calibration}: with fewer rows valid sets "
                "hold every label"
            )

    @classmethod
    def of_fitted(cls, confidence_level: float, n_calibration: int | None) -> Promise:
        """Allow for the calibration rows where they are enough to leave any label out."""
        alpha = check_confidence_level(confidence_level)
        few = n_calibration is None or conformal_rank(n_calibration, alpha) > n_calibration
        return cls(confidence_level, None if few else n_calibration)

    def of_share(self, share: float) -> Promise:
        """Return the promise to a group that is calibrated on its share of the rows."""
        if self.n_calibration is None:
            return self
        return Promise.of_fitted(self.confidence_level, round(share * self.n_calibration))

    @property
    def _beta(self) -> tuple[int, int]:
        assert self.n_calibration is not None
        k = conformal_rank(self.n_calibration, check_confidence_level(self.confidence_level))
        return k, self.n_calibration + 1 - k

    @property
    def least_coverage(self) -> float:
        """The level, or what the true coverage of a valid predictor exceeds 97.5% of the time."""
        if self.n_calibration is None:
            return float(self.confidence_level)
        return float(beta.ppf(INTERVAL_TAIL, *self._beta))

    def at_most(self, k: Any, n: Any) -> FloatArray:
        """Return the probability that at most ``k`` of ``n`` independent rows are covered.

        ``n`` may be an array like ``k`` if the promise is that of a level.
        """
        if self.n_calibration is None:
            return np.asarray(binomial_cdf(k, n, self.confidence_level), dtype=np.float64)
        up_to = int(np.max(k, initial=0))
        summed = np.cumsum(betabinom.pmf(np.arange(up_to + 1), n, *self._beta))
        return np.minimum(1.0, summed)[np.asarray(k)]


def binomial_cdf(k: Any, n: Any, p: Any) -> Any:
    """Return ``P(Binomial(n, p) <= k)``, also between whole numbers, where it is continued.

    >>> bool(np.isclose(binomial_cdf(3, 10, 0.5), binom.cdf(3, 10, 0.5)))
    True
    """
    k, n = np.broadcast_arrays(np.asarray(k, dtype=np.float64), n)
    return np.where(k >= n, 1.0, beta.sf(p, k + 1, np.where(k >= n, 1.0, n - k)))


@dataclass(frozen=True, eq=False)
class Count:
    """The number of covered rows among independent ones, one from each cluster.

    It has a law if rows of one cluster disagree, and several where clusters lie in a group in part.
    """

    n: int  # independent rows, or clusters with a row in the group
    coverage: float  # a row of a cluster with m rows counts 1/m
    laws: tuple[tuple[int, IntArray, FloatArray], ...]  # n, counts, and their probabilities
    is_average: bool  # over draws from clusters of several rows

    @classmethod
    def of(
        cls, covered: BoolArray, clusters: IntArray | None = None, sizes: IntArray | None = None
    ) -> Count:
        """Count rows of a group that are independent, or those of numbered clusters.

        ``sizes`` are the numbers of rows, in the group or outside, that the cluster of each row
        has; None if all of them are in the group.
        """
        n, k = len(covered), int(covered.sum())
        if clusters is None or n == 0:
            law = (n, np.array([k]), np.ones(1))
            return cls(n, k / n if n else float("nan"), (law,), False)
        _, first, which, inside = np.unique(
            clusters, return_index=True, return_inverse=True, return_counts=True
        )
        own = inside if sizes is None else sizes[first]
        hits = np.bincount(which, weights=covered).astype(np.int64)
        coverage = float((hits / own).sum() / (inside / own).sum())
        # clusters that are alike, and how many there are
        alike, many = np.unique(np.stack([own, inside, hits]), axis=1, return_counts=True)
        is_partial = bool((inside < own).any())
        rng = np.random.default_rng(0)
        drawn = rng.binomial(many, alike[1] / alike[0], (N_DRAWS if is_partial else 1, len(many)))
        laws = tuple(_law(n_drawn, alike[2] / alike[1]) for n_drawn in drawn)
        return cls(len(own), coverage, laws, bool((own > 1).any()))

    def p_value(self, promise: Promise) -> float:
        """Return a p-value of the promise, small if fewer rows are covered than it allows."""
        return self._averaged(promise.at_most)

    def interval(self) -> tuple[float, float]:
        """Return a 95% interval of coverage: Clopper-Pearson, or the same averaged over draws."""
        if not self.is_average:
            exact = clopper_pearson(self.laws[0][1][0], self.n)
            return float(exact[0]), float(exact[1])

        def too_few(level: float) -> float:
            return self._averaged(lambda k, n: binom.cdf(k, n, level)) - INTERVAL_TAIL

        def too_many(level: float) -> float:
            return self._averaged(lambda k, n: binom.sf(k - 1, n, level)) - INTERVAL_TAIL

        return (
            0.0 if too_many(0.0) >= 0 else float(brentq(too_many, 0.0, 1.0)),
            1.0 if too_few(1.0) >= 0 else float(brentq(too_few, 0.0, 1.0)),
        )

    def _averaged(self, p_value: Callable[[IntArray, int], FloatArray]) -> float:
        mean = float(np.mean([p_value(k, n) @ law for n, k, law in self.laws]))
        return min(1.0, 2 * mean if self.is_average else mean)


def _law(many: IntArray, shares: FloatArray) -> tuple[int, IntArray, FloatArray]:
    """Add up ``many`` rows for each of the shares with which they are covered."""
    lowest, law = 0, np.ones(1)
    for n, p in zip(many.tolist(), shares.tolist(), strict=True):
        spread = FEWEST_DEVIATIONS * (np.sqrt(n * p * (1 - p)) + (0 < p < 1))
        low = max(0, int(np.floor(n * p - spread + 1e-9)))
        high = min(n, int(np.ceil(n * p + spread - 1e-9)))
        part = binom.pmf(np.arange(low, high + 1), n, p)
        lowest, law = lowest + low, np.convolve(law, part / part.sum())
    return int(many.sum()), lowest + np.arange(len(law)), law


@dataclass(frozen=True, eq=False)
class Audited:
    """The rows that are audited."""

    columns: pd.DataFrame  # the sensitive features in canonical form
    covered: BoolArray  # whether each set holds the true label
    size: IntArray  # the number of labels in each set
    clusters: IntArray | None = None  # the number of each row's cluster; None: all are independent
    is_top_right: BoolArray | None = None  # whether the top label is the true one, if it is known

    def __len__(self) -> int:
        return len(self.covered)

    def __getitem__(self, rows: Any) -> Audited:
        clusters, top = (
            None if own is None else own[rows] for own in (self.clusters, self.is_top_right)
        )
        columns = self.columns.iloc[rows].reset_index(drop=True)
        return Audited(columns, self.covered[rows], self.size[rows], clusters, top)

    def sample(self, most: int, rng: np.random.Generator) -> Audited:
        """Return all rows, or ``most`` of them at random if there are more."""
        return self if len(self) <= most else self[rng.choice(len(self), most, replace=False)]

    def one_of_each(self, rng: np.random.Generator) -> Audited:
        """Draw one row from each cluster; without clusters, take all rows."""
        if self.clusters is None:
            return self
        order, chosen = rng.permutation(len(self)), np.zeros(len(self), dtype=bool)
        chosen[order[np.unique(self.clusters[order], return_index=True)[1]]] = True
        return self[chosen]

    def _inside(self, rows: Any) -> tuple[BoolArray, IntArray | None, IntArray | None]:
        if self.clusters is None:
            return self.covered[rows], None, None
        sizes = np.bincount(self.clusters)[self.clusters]
        return self.covered[rows], self.clusters[rows], sizes[rows]

    def count(self, rows: Any = slice(None)) -> Count:
        """Count the covered rows among some of them, one drawn of each cluster."""
        return Count.of(*self._inside(rows))

    def rate(self, rows: Any = slice(None), promise: Promise | None = None) -> Rate:
        """Return how many of some rows are covered, tested if there is a promise."""
        return Rate.of(*self._inside(rows), promise)

    def size_of(self, rows: BoolArray) -> tuple[int, int]:
        """Return how many rows a mask holds, and how many independent ones."""
        n = int(rows.sum())
        return n, n if self.clusters is None else len(np.unique(self.clusters[rows]))

    def averaged_rate(self, times: FloatArray, n: int, n_independent: int) -> Rate:
        """Return the rate of rows that were counted so many times, about ``n`` of them at once."""
        weights = self.weights * times
        share = float(weights @ self.covered / weights.sum())
        low, high = (float(e) for e in clopper_pearson(share * n_independent, n_independent))
        clusters = None if self.clusters is None else n_independent
        return Rate(n, share, low, high, None, clusters)

    def mean_size(self, rows: Any = slice(None)) -> float:
        """Return the mean number of labels in the sets of some rows, each with its weight."""
        if not len(self.size[rows]):
            return float("nan")
        return float(np.average(self.size[rows], weights=self.weights[rows]))

    def overall(self) -> dict[str, float]:
        """Return coverage and mean size of all rows."""
        return {"coverage": self.count().coverage, "mean_size": self.mean_size()}

    @cached_property
    def weights(self) -> FloatArray:
        """What each row counts: 1 over the number of rows of its cluster."""
        if self.clusters is None:
            return np.ones(len(self))
        return 1 / np.bincount(self.clusters)[self.clusters]
