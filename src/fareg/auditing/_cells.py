"""Coverage of the levels of each feature and of each two features together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from fareg._levels import LevelCoding, joint_codes
from fareg._validation import BoolArray, FloatArray, IntArray
from fareg.metrics import clopper_pearson, coverage_by_label

MAX_PAIRED = 40  # if there are more features, those with the worst levels are paired


@dataclass(frozen=True, eq=False)
class CodedTable:
    """A table as level numbers, one column per feature; -1 is a level that learning never saw."""

    coding: LevelCoding
    codes: IntArray  # (n_samples, n_features)

    @classmethod
    def of(cls, columns: pd.DataFrame, learn_from: BoolArray | None = None) -> CodedTable:
        """Code canonical columns by the levels of the rows ``learn_from``, None for all rows."""
        rows = columns if learn_from is None else columns[learn_from]
        coding = LevelCoding.learn(rows)
        return cls(coding, coding.codes(columns))

    def inside(self, features: tuple[int, ...], codes: tuple[int, ...]) -> BoolArray:
        """Tell which rows have the given levels."""
        return (self.codes[:, features] == codes).all(axis=1)


def undercoverage_pvalue(k: Any, n: Any, confidence_level: float) -> FloatArray:
    """Return ``P(Binomial(n, confidence_level) <= k)``: small if coverage is below that level."""
    return np.asarray(binom.cdf(k, n, confidence_level), dtype=np.float64)


def cell_coverage(
    table: CodedTable,
    covered: BoolArray,
    size: IntArray,
    *,
    confidence_level: float,
    rows: BoolArray | None = None,
) -> pd.DataFrame:
    """Count every cell of one or two features that occurs among ``rows``.

    The columns are features and codes (tuples), n, share, coverage, low, high (95%
    Clopper-Pearson), mean_size and p_value, which is that of coverage below the confidence level
    and counts this cell alone.
    """
    rows = np.ones(len(covered), dtype=bool) if rows is None else rows
    codes, covered, size = table.codes[rows], covered[rows], size[rows]
    singles = _counted([(j,) for j in range(codes.shape[1])], codes, covered, size)
    singles["p_value"] = undercoverage_pvalue(singles["k"], singles["n"], confidence_level)
    paired = list(range(codes.shape[1]))
    if len(paired) > MAX_PAIRED:
        worst = singles.groupby(singles["features"].str[0])["p_value"].min().nsmallest(MAX_PAIRED)
        paired = sorted(worst.index)
    pairs = _counted(list(combinations(paired, 2)), codes, covered, size)
    pairs["p_value"] = undercoverage_pvalue(pairs["k"], pairs["n"], confidence_level)
    cells = pd.concat([singles, pairs], ignore_index=True) if len(pairs) else singles
    cells["share"] = cells["n"] / max(1, len(covered))
    cells["coverage"] = cells["k"] / cells["n"]
    cells["low"], cells["high"] = clopper_pearson(cells["k"], cells["n"])
    return cells.drop(columns="k")


def label_coverage(
    y: Any, covered: BoolArray, size: IntArray, *, confidence_level: float
) -> pd.DataFrame:
    """Count the rows of every true label, worst coverage first.

    The columns are label (as text), and those of :func:`cell_coverage` from n on.
    """
    table = coverage_by_label(y, covered)
    sizes = pd.Series(size).groupby(np.asarray(y, dtype=object).ravel(), sort=False).mean()
    table["mean_size"] = table["label"].map(sizes).astype(np.float64)
    hits = (table["n"] * table["coverage"]).round()
    table["p_value"] = undercoverage_pvalue(hits, table["n"], confidence_level)
    table["label"] = [str(label) for label in table["label"]]
    return table


def _counted(
    subsets: list[tuple[int, ...]], codes: IntArray, covered: BoolArray, size: IntArray
) -> pd.DataFrame:
    rows = [row for subset in subsets for row in _cells(subset, codes, covered, size)]
    cells = pd.DataFrame(rows, columns=["features", "codes", "n", "k", "mean_size"])
    # an empty table needs its types too
    return cells.astype({"n": np.int64, "k": np.int64, "mean_size": np.float64})


def _cells(
    subset: tuple[int, ...], codes: IntArray, covered: BoolArray, size: IntArray
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, int, float]]:
    """Yield features, levels, rows, covered rows and mean set size of each cell that occurs."""
    sizes = [int(codes[:, j].max(initial=0)) + 1 for j in subset]
    joint = joint_codes([codes[:, j] for j in subset], sizes)
    _, first, cell = np.unique(joint, return_index=True, return_inverse=True)
    n = np.bincount(cell)
    k = np.bincount(cell, weights=covered).astype(np.int64)
    mean_size = np.bincount(cell, weights=size) / np.maximum(n, 1)
    for i, row in enumerate(first):
        levels = tuple(int(code) for code in codes[row, subset])
        yield subset, levels, int(n[i]), int(k[i]), float(mean_size[i])
