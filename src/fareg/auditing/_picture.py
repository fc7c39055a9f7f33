"""A group as a picture: coverage over the levels of the two features that its rule names."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fareg._levels import LevelCoding, frequent
from fareg._validation import BoolArray
from fareg.auditing._result import records
from fareg.metrics import clopper_pearson

MAX_SHOWN = (12, 5)  # most levels shown down and across; few across, because a phone is narrow


def group_picture(
    columns: pd.DataFrame, covered: BoolArray, mask: BoolArray, features: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return a grid of cells with rows, coverage and the share that lies in the group.

    It has features (one or two), row_labels, column_labels, hidden_levels (how many are left out)
    and cells: a list of row, column, n, coverage, low, high, inside. None if the rule names no
    feature.
    """
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
    spots = pd.DataFrame({"row": 0, "column": 0, "k": covered, "inside": mask})
    for name, j, axis in zip(("row", "column"), order, axes, strict=False):
        spots[name] = pd.Index(axis).get_indexer(pd.Index(codes[:, j]))
    counted = spots[(spots["row"] >= 0) & (spots["column"] >= 0)].groupby(["row", "column"])
    cells = counted.agg(n=("k", "size"), k=("k", "sum"), inside=("inside", "mean")).reset_index()
    cells["coverage"] = cells["k"] / cells["n"]
    cells["low"], cells["high"] = clopper_pearson(cells["k"], cells["n"])
    return {
        "features": shown,
        "row_labels": labels[0],
        "column_labels": labels[1] if len(labels) == 2 else [""],
        "hidden_levels": sum(coding.n_levels) - sum(map(len, axes)),
        "cells": records(cells.drop(columns="k")),
    }
