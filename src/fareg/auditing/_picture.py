"""A group as a picture: coverage over the levels of the two features that its rule names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fareg._validation import BoolArray, IntArray
from fareg.auditing._cells import CodedTable
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
    table = CodedTable.of(columns[shown])
    # the feature with more levels goes down
    order = sorted(range(len(shown)), key=lambda j: -len(table.coding.levels[j].values))
    axes = [_frequent(table.codes[:, j], most) for j, most in zip(order, MAX_SHOWN, strict=False)]
    hidden = sum(
        len(table.coding.levels[j].values) - len(axis) for j, axis in zip(order, axes, strict=True)
    )
    labels = [
        [table.coding.levels[j].label(int(code)) for code in axis]
        for j, axis in zip(order, axes, strict=True)
    ]
    cells = []
    for r, row_code in enumerate(axes[0]):
        for c, code in enumerate(axes[1] if len(axes) == 2 else [-1]):
            here = table.codes[:, order[0]] == row_code
            if len(axes) == 2:
                here &= table.codes[:, order[1]] == code
            if here.any():
                cells.append(_cell(r, c, here, covered, mask))
    return {
        "features": shown,
        "row_labels": labels[0],
        "column_labels": labels[1] if len(labels) == 2 else [""],
        "hidden_levels": int(hidden),
        "cells": cells,
    }


def _frequent(codes: IntArray, most: int) -> IntArray:
    counts = np.bincount(codes[codes >= 0])
    top = np.argsort(-counts, kind="stable")[:most]
    return np.sort(top[counts[top] > 0])


def _cell(
    row: int, column: int, here: BoolArray, covered: BoolArray, mask: BoolArray
) -> dict[str, Any]:
    n, k = int(here.sum()), int((here & covered).sum())
    low, high = clopper_pearson(k, n)
    return {
        "row": row,
        "column": column,
        "n": n,
        "coverage": k / n,
        "low": float(low),
        "high": float(high),
        "inside": float(mask[here].mean()),
    }
