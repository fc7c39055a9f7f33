"""Coverage of the levels of each feature and of each two features together, and of true labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fareg._labels import label_codes, sorted_labels
from fareg._rows import joint_codes
from fareg._validation import IntArray
from fareg.auditing._rate import Audited, Promise
from fareg.metrics import clopper_pearson, tally

MAX_PAIRED = 40  # if there are more features, those with the worst levels are paired


def cell_coverage(codes: IntArray, people: Audited, confidence_level: float) -> pd.DataFrame:
    """Count every cell of one or two features that occurs.

    ``codes`` of shape (n_samples, n_features) holds the level numbers of the rows. The columns of
    the answer are features and codes (tuples), those of :func:`fareg.metrics.tally`, low and high
    (95% Clopper-Pearson), mean_size and p_value, which is that of coverage below the confidence
    level and counts this cell alone. Every cluster counts once.
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
    labels = sorted_labels(y)
    table = _told(_sized(label_codes(y, labels), len(labels), people), confidence_level)
    table.insert(0, "label", [str(label) for label in labels])
    return table.sort_values("coverage", kind="stable", ignore_index=True)


def _counted(
    subsets: Iterable[tuple[int, ...]], codes: IntArray, people: Audited, confidence_level: float
) -> pd.DataFrame:
    tables = [_cells(subset, codes, people) for subset in subsets]
    cells = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    return _told(cells, confidence_level) if len(cells) else cells


def _cells(subset: tuple[int, ...], codes: IntArray, people: Audited) -> pd.DataFrame:
    """Count each cell of some features that occurs."""
    sizes = [int(codes[:, j].max(initial=0)) + 1 for j in subset]
    joint = joint_codes([codes[:, j] for j in subset], sizes)
    _, first, cell = np.unique(joint, return_index=True, return_inverse=True)
    table = _sized(cell, len(first), people)
    table.insert(0, "codes", [tuple(int(code) for code in codes[row, subset]) for row in first])
    table.insert(0, "features", [subset] * len(first))
    return table


def _sized(groups: IntArray, n_groups: int, people: Audited) -> pd.DataFrame:
    """Return the tally of groups of rows, with the mean size of their sets."""
    table = tally(groups, n_groups, people.covered, people.clusters)
    sizes, weights = (
        np.bincount(groups, own, n_groups) for own in (people.size * people.weights, people.weights)
    )
    table["mean_size"] = sizes / weights
    return table


def _told(table: pd.DataFrame, confidence_level: float) -> pd.DataFrame:
    """Add intervals and p-values to tallied groups."""
    table["low"], table["high"] = clopper_pearson(table["hits"], table["effective"])
    table["p_value"] = Promise(confidence_level).at_most(table["hits"], table["effective"])
    return table
