"""How many rows are covered, and whether a promise that is kept could explain so few.

Rows of one cluster (the visits of a patient, the copies of a row) may depend on each other in any
way. If one row is drawn from each cluster, the drawn rows are independent, and their number of
covered ones is binomial. The draw is not made: the p-value is averaged over all draws, and twice
an average of p-values is a p-value again, however they depend on each other (Vovk & Wang 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from fareg.metrics import clopper_pearson
from fareg.pvalues import conformal_rank

FEWEST_DEVIATIONS = 10.0  # a law is cut off where it is this many standard deviations from its mean
INTERVAL_TAIL = 0.025  # probability outside each end of a 95% interval
FEWEST_TOLD, MAX_TOLD = 100, 10**7  # numbers of calibration rows that an audit may speak of


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

    def rows_that_excuse(self, coverage: float) -> int | None:
        """Return about how many rows at most calibrated a valid predictor that covers so little.

        That is the largest number by whose draw this happens 2.5% of the time or more, as if this
        share only fell with the number, though ranks make it jump a little. None if the promise
        allows for calibration rows already, or if it would have to be fewer than 100.
        """
        if self.n_calibration is not None or coverage >= self.confidence_level:
            return None
        # With fewer rows than the second number, valid sets hold every label.
        fewest, most = max(FEWEST_TOLD, int(np.ceil(1 / (1 - self.confidence_level)))), MAX_TOLD
        if Promise.of_fitted(self.confidence_level, fewest).least_coverage > coverage:
            return None
        while most - fewest > 1:
            middle = (fewest + most) // 2
            excused = Promise.of_fitted(self.confidence_level, middle).least_coverage <= coverage
            fewest, most = (middle, most) if excused else (fewest, middle)
        return int(float(f"{fewest:.1e}"))

    def at_most(self, k: Any, n: Any) -> FloatArray:
        """Return the probability that at most ``k`` of ``n`` independent rows are covered.

        ``n`` may be an array like ``k`` if the promise is that of a level.
        """
        if self.n_calibration is None:
            return np.asarray(binom.cdf(k, n, self.confidence_level), dtype=np.float64)
        up_to = int(np.max(k, initial=0))
        summed = np.cumsum(betabinom.pmf(np.arange(up_to + 1), n, *self._beta))
        return np.minimum(1.0, summed)[np.asarray(k)]


@dataclass(frozen=True, eq=False)
class Count:
    """The number of covered rows among independent ones, one from each cluster.

    It has a law if rows of one cluster disagree: ``probability[i]`` that it is ``lowest + i``.
    """

    n: int  # independent rows
    lowest: int
    probability: FloatArray
    is_average: bool  # over draws from clusters of several rows

    @classmethod
    def of(cls, covered: BoolArray, clusters: IntArray | None = None) -> Count:
        """Count rows that are independent, or those of clusters numbered by ``clusters``."""
        n, k = len(covered), int(covered.sum())
        if clusters is None or n == 0:
            return cls(n, k, np.ones(1), False)
        _, inverse, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
        hits = np.bincount(inverse, weights=covered)
        lowest, law = 0, np.ones(1)
        for share, many in zip(*np.unique(hits / sizes, return_counts=True), strict=True):
            start, part = _binomial_law(int(many), float(share))
            lowest, law = lowest + start, np.convolve(law, part)
        return cls(len(sizes), lowest, law, bool((sizes > 1).any()))

    @property
    def coverage(self) -> float:
        """The share of covered rows; every cluster counts once."""
        counts = self.lowest + np.arange(len(self.probability))
        return float(counts @ self.probability / self.n) if self.n else float("nan")

    def p_value(self, promise: Promise) -> float:
        """Return a p-value of the promise, small if fewer rows are covered than it allows."""
        return self._averaged(lambda k: promise.at_most(k, self.n))

    def interval(self) -> tuple[float, float]:
        """Return a 95% interval of coverage: Clopper-Pearson, or the same averaged over draws."""
        if not self.is_average:
            exact = clopper_pearson(self.lowest, self.n)
            return float(exact[0]), float(exact[1])

        def too_few(level: float) -> float:
            return self._averaged(lambda k: binom.cdf(k, self.n, level)) - INTERVAL_TAIL

        def too_many(level: float) -> float:
            return self._averaged(lambda k: binom.sf(k - 1, self.n, level)) - INTERVAL_TAIL

        low = 0.0 if too_many(0.0) >= 0 else brentq(too_many, 0.0, 1.0)
        high = 1.0 if too_few(1.0) >= 0 else brentq(too_few, 0.0, 1.0)
        return float(low), float(high)

    def _averaged(self, p_value: Callable[[IntArray], FloatArray]) -> float:
        counts = self.lowest + np.arange(len(self.probability))
        mean = float(p_value(counts) @ self.probability)
        return min(1.0, 2 * mean if self.is_average else mean)


@dataclass(frozen=True, eq=False)
class Audited:
    """The rows that are audited."""

    columns: pd.DataFrame  # the sensitive features in canonical form
    covered: BoolArray  # whether each set holds the true label
    size: IntArray  # the number of labels in each set
    clusters: IntArray | None = None  # the number of each row's cluster; None: all are independent

    def __len__(self) -> int:
        return len(self.covered)

    def __getitem__(self, rows: Any) -> Audited:
        clusters = None if self.clusters is None else self.clusters[rows]
        columns = self.columns.iloc[rows].reset_index(drop=True)
        return Audited(columns, self.covered[rows], self.size[rows], clusters)

    def sample(self, most: int, rng: np.random.Generator) -> Audited:
        """Return all rows, or ``most`` of them at random if there are more."""
        return self if len(self) <= most else self[rng.choice(len(self), most, replace=False)]

    def count(self, rows: Any = slice(None)) -> Count:
        """Count the covered rows among some of them; every cluster counts once."""
        clusters = None if self.clusters is None else self.clusters[rows]
        return Count.of(self.covered[rows], clusters)


def _binomial_law(n: int, p: float) -> tuple[int, FloatArray]:
    """Return the first count that matters and the probabilities from there on."""
    spread = FEWEST_DEVIATIONS * np.sqrt(n * p * (1 - p)) + (FEWEST_DEVIATIONS if 0 < p < 1 else 0)
    low = max(0, int(np.floor(n * p - spread + 1e-9)))
    high = min(n, int(np.ceil(n * p + spread - 1e-9)))
    law = binom.pmf(np.arange(low, high + 1), n, p)
    return low, law / law.sum()
