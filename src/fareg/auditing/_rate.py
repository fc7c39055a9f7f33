"""How many rows are covered, and whether chance explains so few if the promise is kept.

Rows of one cluster (the visits of a patient, the copies of a row) may depend on each other in any
way. Draw one row from each cluster: the drawn rows are independent, so the number of covered ones
among those in a group is binomial. The p-value is averaged over draws, and twice an average of
p-values is a p-value again, however they depend on each other (Vovk & Wang 2020).
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

FEWEST_DEVIATIONS = 10.0  # a distribution is cut off this many standard deviations from its mean
INTERVAL_TAIL = 0.025  # probability outside each end of a 95% interval
N_DRAWS = 20  # of one row per cluster, if clusters have rows inside and outside a group


@dataclass(frozen=True)
class Rate:
    """A share of rows that are covered, with its 95% interval and a p-value of the promise.

    Attributes
    ----------
    n : int
        Number of rows.
    share : float
        Share of the rows that are covered. With clusters, the probability that a random row of a
        random cluster is covered, given that it is one of these: a row of a cluster with m rows
        counts 1/m.
    low, high : float
        95% interval of the share: Clopper-Pearson, or averaged over draws of one row per cluster.
    p_value : float or None
        Of the test that coverage is as promised; None if it was not tested.
    n_clusters : int or None
        Number of clusters with a row among these; None if rows are independent.

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

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of tables and of JSON; NaN becomes None."""
        always = {"n": self.n, "coverage": self.share, "low": self.low, "high": self.high}
        known = {"p_value": self.p_value, "n_clusters": self.n_clusters}
        known = {name: value for name, value in known.items() if value is not None}
        return json_types({**always, **known})

    def __str__(self) -> str:
        return f"{coverage_of(self.to_dict())} ({evidence(self.to_dict())})"


@dataclass(frozen=True)
class Promise:
    """What the sets promise: a coverage of at least 1 - alpha, or that of a valid split predictor.

    Over the draw of ``n_calibration`` rows, the true coverage of a split conformal predictor is
    Beta(k, n + 1 - k) with ``k = ceil((n + 1)(1 - alpha))``: 1 - alpha on average, and a little
    more or less each time (Vovk 2012). Counts are then beta-binomial instead of binomial.
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
        """Allow for the luck of calibration, if there are enough rows to leave any label out."""
        alpha = check_confidence_level(confidence_level)
        few = n_calibration is None or conformal_rank(n_calibration, alpha) > n_calibration
        return cls(confidence_level, None if few else n_calibration)

    def of_share(self, share: float) -> Promise:
        """Return the promise to a group with this share of the calibration rows."""
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
        """The confidence level, or what a valid predictor exceeds in 97.5% of calibrations."""
        if self.n_calibration is None:
            return float(self.confidence_level)
        return float(beta.ppf(INTERVAL_TAIL, *self._beta))

    def at_most(self, k: Any, n: Any) -> FloatArray:
        """Return the probability that at most ``k`` of ``n`` independent rows are covered.

        Without ``n_calibration``, ``n`` may be an array like ``k``.
        """
        if self.n_calibration is None:
            return np.asarray(binomial_cdf(k, n, self.confidence_level), dtype=np.float64)
        up_to = int(np.max(k, initial=0))
        summed = np.cumsum(betabinom.pmf(np.arange(up_to + 1), n, *self._beta))
        return np.minimum(1.0, summed)[np.asarray(k)]


def binomial_cdf(k: Any, n: Any, p: Any) -> Any:
    """Return ``P(Binomial(n, p) <= k)``, continued between whole numbers.

    >>> bool(np.isclose(binomial_cdf(3, 10, 0.5), binom.cdf(3, 10, 0.5)))
    True
    """
    k, n = np.broadcast_arrays(np.asarray(k, dtype=np.float64), n)
    return np.where(k >= n, 1.0, beta.sf(p, k + 1, np.where(k >= n, 1.0, n - k)))


@dataclass(frozen=True, eq=False)
class Count:
    """How many independent rows of a group are covered, if one is drawn from each cluster.

    The number is random if rows of one cluster differ. It has several distributions, one per draw,
    if clusters also have rows outside the group.
    """

    n: int  # independent rows, or clusters with a row in the group
    coverage: float  # a row of a cluster with m rows counts 1/m
    laws: tuple[tuple[int, IntArray, FloatArray], ...]  # n, counts, and their probabilities
    is_average: bool  # whether p-values are averaged over draws

    @classmethod
    def of(
        cls, covered: BoolArray, clusters: IntArray | None = None, sizes: IntArray | None = None
    ) -> Count:
        """Count the covered rows of a group.

        ``sizes`` holds the size of each row's cluster, including rows outside the group; None if
        there are none outside.
        """
        n, k = len(covered), int(covered.sum())
        if clusters is None or n == 0:
            law = (n, np.array([k]), np.ones(1))
            return cls(n, k / n if n else float("nan"), (law,), False)
        _, first, codes, inside = np.unique(
            clusters, return_index=True, return_inverse=True, return_counts=True
        )
        total = inside if sizes is None else sizes[first]
        hits = np.bincount(codes, weights=covered).astype(np.int64)
        coverage = float((hits / total).sum() / (inside / total).sum())
        # clusters with equal numbers are treated together
        kinds, n_of_kind = np.unique(np.stack([total, inside, hits]), axis=1, return_counts=True)
        n_draws = N_DRAWS if (inside < total).any() else 1
        rng = np.random.default_rng(0)
        drawn = rng.binomial(n_of_kind, kinds[1] / kinds[0], (n_draws, len(n_of_kind)))
        laws = tuple(_law(n_drawn, kinds[2] / kinds[1]) for n_drawn in drawn)
        return cls(len(total), coverage, laws, bool((total > 1).any()))

    def p_value(self, promise: Promise) -> float:
        """Return the p-value of the test that coverage is as promised or higher."""
        return self._averaged(promise.at_most)

    def interval(self) -> tuple[float, float]:
        """Return a 95% interval of coverage: Clopper-Pearson, or the same averaged over draws."""
        if not self.is_average:
            exact = clopper_pearson(self.laws[0][1][0], self.n)
            return float(exact[0]), float(exact[1])

        def too_few(coverage: float) -> float:
            return self._averaged(lambda k, n: binom.cdf(k, n, coverage)) - INTERVAL_TAIL

        def too_many(coverage: float) -> float:
            return self._averaged(lambda k, n: binom.sf(k - 1, n, coverage)) - INTERVAL_TAIL

        return (
            0.0 if too_many(0.0) >= 0 else float(brentq(too_many, 0.0, 1.0)),
            1.0 if too_few(1.0) >= 0 else float(brentq(too_few, 0.0, 1.0)),
        )

    def _averaged(self, p_value: Callable[[IntArray, int], FloatArray]) -> float:
        mean = float(np.mean([p_value(k, n) @ law for n, k, law in self.laws]))
        return min(1.0, 2 * mean if self.is_average else mean)


def _law(numbers: IntArray, shares: FloatArray) -> tuple[int, IntArray, FloatArray]:
    """Return the distribution of the covered rows, with a number of rows for each probability."""
    lowest, law = 0, np.ones(1)
    for n, p in zip(numbers.tolist(), shares.tolist(), strict=True):
        spread = FEWEST_DEVIATIONS * (np.sqrt(n * p * (1 - p)) + (0 < p < 1))
        low = max(0, int(np.floor(n * p - spread + 1e-9)))
        high = min(n, int(np.ceil(n * p + spread - 1e-9)))
        part = binom.pmf(np.arange(low, high + 1), n, p)
        lowest, law = lowest + low, np.convolve(law, part / part.sum())
    return int(numbers.sum()), lowest + np.arange(len(law)), law


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
        optional = (self.clusters, self.is_top_right)
        clusters, is_right = (None if values is None else values[rows] for values in optional)
        columns = self.columns.iloc[rows].reset_index(drop=True)
        return Audited(columns, self.covered[rows], self.size[rows], clusters, is_right)

    def sample(self, most: int, rng: np.random.Generator) -> Audited:
        """Return all rows, or ``most`` of them at random if there are more."""
        return self if len(self) <= most else self[rng.choice(len(self), most, replace=False)]

    def one_of_each_cluster(self, rng: np.random.Generator) -> Audited:
        """Draw one row from each cluster; return all rows if there are no clusters."""
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
        """Count the covered ones among some rows, with one row drawn from each cluster."""
        return Count.of(*self._inside(rows))

    def rate(self, rows: Any = slice(None), promise: Promise | None = None) -> Rate:
        """Return the rate of some rows; a promise, if given, is tested."""
        return Rate.of(*self._inside(rows), promise)

    def size_of(self, rows: BoolArray) -> tuple[int, int]:
        """Return how many rows a mask holds, and how many of these are independent."""
        n = int(rows.sum())
        return n, n if self.clusters is None else len(np.unique(self.clusters[rows]))

    def averaged_rate(self, times: FloatArray, n: int, n_independent: int) -> Rate:
        """Return the rate of rows that were counted ``times`` times, about ``n`` per count."""
        weights = self.weights * times
        share = float(weights @ self.covered / weights.sum())
        low, high = (float(end) for end in clopper_pearson(share * n_independent, n_independent))
        clusters = None if self.clusters is None else n_independent
        return Rate(n, share, low, high, None, clusters)

    def mean_size(self, rows: Any = slice(None)) -> float:
        """Return the weighted mean size of the sets of some rows."""
        if not len(self.size[rows]):
            return float("nan")
        return float(np.average(self.size[rows], weights=self.weights[rows]))

    def overall(self) -> dict[str, float]:
        """Return coverage and mean size of all rows."""
        return {"coverage": self.count().coverage, "mean_size": self.mean_size()}

    @cached_property
    def weights(self) -> FloatArray:
        """Weight of each row: 1 over the size of its cluster."""
        if self.clusters is None:
            return np.ones(len(self))
        return 1 / np.bincount(self.clusters)[self.clusters]
