"""Coverage of the levels of each feature and of each two features together, and of true labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fareg._levels import joint_codes
from fareg._validation import IntArray
from fareg.auditing._counts import Audited, Promise
from fareg.metrics import clopper_pearson, coverage_by_label

MAX_PAIRED = 40  # if there are more features, those with the worst levels are paired


def cell_coverage(codes: IntArray, people: Audited, confidence_level: float) -> pd.DataFrame:
    """Count every cell of one or two features that occurs.

    ``codes`` of shape (n_samples, n_features) holds the level numbers of the rows. The columns of
    the answer are features and codes (tuples), n, share, coverage, low, high (95% Clopper-Pearson),
    mean_size and p_value, which is that of coverage below the confidence level and counts this cell
    alone.
    """
    features: Sequence[int] = range(codes.shape[1])
    singles = _counted([(j,) for j in features], codes, people, confidence_level)
    if len(features) > MAX_PAIRED:
        worst = singles.groupby(singles["features"].str[0])["p_value"].min().nsmallest(MAX_PAIRED)
        features = sorted(worst.index)
    pairs = _counted(combinations(features, 2), codes, people, confidence_level)
    return pd.concat([singles, pairs], ignore_index=True) if len(pairs) else singles


def label_coverage(y: Any, people: Audited, confidence_level: float) -> pd.DataFrame:
    """Count the rows of every true label, worst coverage first.

    The columns are label (as text), and those of :func:`cell_coverage` from n on.
    """
    table = coverage_by_label(y, people.covered)
    sizes = pd.Series(people.size).groupby(np.asarray(y, dtype=object).ravel(), sort=False).mean()
    table["mean_size"] = table["label"].map(sizes).astype(np.float64)
    hits = (table["n"] * table["coverage"]).round()
    table["p_value"] = Promise(confidence_level).at_most(hits, table["n"])
    table["label"] = [str(label) for label in table["label"]]
    return table


def _counted(
    subsets: Iterable[tuple[int, ...]], codes: IntArray, people: Audited, confidence_level: float
) -> pd.DataFrame:
    rows = [row for subset in subsets for row in _cells(subset, codes, people)]
    cells = pd.DataFrame(rows, columns=["features", "codes", "n", "k", "mean_size"])
    # an empty table needs its types too
    cells = cells.astype({"n": np.int64, "k": np.int64, "mean_size": np.float64})
    cells["share"] = cells["n"] / len(people)
    cells["coverage"] = cells["k"] / cells["n"]
    cells["low"], cells["high"] = clopper_pearson(cells["k"], cells["n"])
    cells["p_value"] = Promise(confidence_level).at_most(cells["k"], cells["n"])
    return cells.drop(columns="k")


def _cells(
    subset: tuple[int, ...], codes: IntArray, people: Audited
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, int, float]]:
    """Yield features, levels, rows, covered rows and mean set size of each cell that occurs."""
    sizes = [int(codes[:, j].max(initial=0)) + 1 for j in subset]
    joint = joint_codes([codes[:, j] for j in subset], sizes)
    _, first, cell = np.unique(joint, return_index=True, return_inverse=True)
    n = np.bincount(cell)
    k = np.bincount(cell, weights=people.covered).astype(np.int64)
    mean_size = np.bincount(cell, weights=people.size) / n
    for i, row in enumerate(first):
        levels = tuple(int(code) for code in codes[row, subset])
        yield subset, levels, int(n[i]), int(k[i]), float(mean_size[i])
