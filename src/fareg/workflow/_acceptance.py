"""What new thresholds do for whom: coverage before and after, and a record of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from fareg._validation import BoolArray, FloatArray, IntArray
from fareg._words import percent
from fareg.calibration import LevelThresholds, Sample, Union

SCHEMA = "fareg-acceptance-1"


def before_and_after(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the coverage of the rows that calibrated ``new``, by stream, under both thresholds.

    Streams are everyone, every run of pooled levels and above, and every protected group. Rows are
    new to ``old``. For "after", each half is judged by the thresholds of the other half, because
    rows that calibrate are covered as promised by construction. Weighted rows count by weight.
    """
    sample, parts = new.calibration_.sample, new.calibration_.parts
    places = np.column_stack(
        [p.row_levels if isinstance(p, LevelThresholds) else p.cells for p in parts]
    )
    weights = np.ones(len(sample)) if sample.weights is None else sample.weights
    covered = {"before": _covered(old.calibration_, sample, places)}
    covered["after"] = np.zeros(len(sample), dtype=bool)
    halves = np.array_split(np.random.default_rng(0).permutation(len(sample)), 2)
    for judged, others in (halves, halves[::-1]):
        other = new.calibration_.again(_take(sample, others), places[others])
        covered["after"][judged] = _covered(other, _take(sample, judged), places[judged])
    found = []
    for name, inside in _streams(new, places):
        total = float(weights[inside].sum())
        shares = {when: float(weights[inside & own].sum()) / total for when, own in covered.items()}
        found.append({"stream": name, "rows": int(inside.sum()), **shares})
    return found


def _streams(clf: Any, places: IntArray) -> Iterator[tuple[str, BoolArray]]:
    calibration, everyone = clf.calibration_, np.ones(len(places), dtype=bool)
    yield "everyone", everyone
    for number, part in enumerate(calibration.parts):
        if not isinstance(part, LevelThresholds):
            inside = places[:, number] == 0
            if inside.any():
                yield part.groups.describe(0), inside
        elif calibration.sample.labels is None:
            for first, _ in part.pooled_levels()[1:]:
                inside = places[:, number] >= first
                yield f"level {first} and above (worst-off {percent(inside.mean())})", inside
        else:
            for label, name in enumerate(clf.classes_):
                if (inside := calibration.sample.labels == label).any():
                    yield f"label {name}", inside


def _covered(calibration: Union, sample: Sample, places: IntArray) -> BoolArray:
    """Say which rows the thresholds at these places cover."""
    pairs = zip(calibration.parts, places.T, strict=True)
    thresholds: FloatArray = reduce(
        np.maximum, (part.at(own, sample.problems) for part, own in pairs)
    )
    return np.isfinite(sample.score) & (sample.score <= thresholds)


def _take(sample: Sample, rows: IntArray) -> Sample:
    labels, weights = (
        None if own is None else own[rows] for own in (sample.labels, sample.weights)
    )
    return replace(sample, score=sample.score[rows], labels=labels, weights=weights)
