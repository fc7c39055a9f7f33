"""A group as a picture: coverage over the levels of the two features that its rule names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._levels import LevelCoding, frequent
from fareg._validation import BoolArray
from fareg.auditing._rate import Audited
from fareg.auditing._result import records
from fareg.metrics import tally, with_intervals

MAX_SHOWN = (12, 5)  # most levels shown down and across; few across, because a phone is narrow


def group_picture(
    people: Audited, mask: BoolArray, features: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return a grid of cells with rows, coverage and the share that lies in the group.

    It has features (one or two), row_labels, column_labels, hidden_levels (how many are left out)
    and cells: a list of row, column, n, coverage, low, high, inside. None if the rule names no
    feature.
    """
    columns = people.columns
    shown = [name for name in features if name in columns][:2]
    if not shown:
        return None
    coding = LevelCoding.learn(columns[shown])
    codes = coding.codes(columns[shown])
    # the feature with more levels is written down the page, the other one across
    order = sorted(range(len(shown)), key=lambda j: -coding.n_levels[j])
    axes = [frequent(codes[:, j], most) for j, most in zip(order, MAX_SHOWN, strict=False)]
    labels = [
        [coding.levels[j].label(int(code)) for code in axis]
        for j, axis in zip(order, axes, strict=True)
    ]
    spots = [
        pd.Index(axis).get_indexer(pd.Index(codes[:, j]))
        for j, axis in zip(order, axes, strict=False)
    ]
    row, column = spots if len(spots) == 2 else (spots[0], np.zeros_like(spots[0]))
    n_columns = len(axes[1]) if len(axes) == 2 else 1
    n_cells = len(axes[0]) * n_columns  # the rows of hidden levels make one more
    cell = np.where((row >= 0) & (column >= 0), row * n_columns + column, n_cells)
    cells = tally(cell, n_cells + 1, people.covered, people.clusters)
    cells = pd.concat([cells, with_intervals(cells, None, 0.95)[["low", "high"]]], axis=1)
    cells["row"], cells["column"] = np.divmod(cells.index, n_columns)
    cells["inside"] = tally(cell, n_cells + 1, mask, people.clusters)["coverage"]
    told = ["row", "column", "n", "coverage", "low", "high", "inside"]
    cells = cells[cells["n"] > 0].drop(index=n_cells, errors="ignore")[told]
    return {
        "features": shown,
        "row_labels": labels[0],
        "column_labels": labels[1] if len(labels) == 2 else [""],
        "hidden_levels": sum(coding.n_levels) - sum(map(len, axes)),
        "cells": records(cells),
    }
