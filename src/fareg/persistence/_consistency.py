"""A loaded classifier must agree with itself: parts that follow from each other are compared.

A checksum tells accidents; whoever edits a file can also recompute it. What is refused here is a
file that contradicts itself, before it is asked for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from fareg._frames import KINDS
from fareg._validation import FaregError, check_confidence_level
from fareg.classifiers import (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    PartialConformalClassifier,
    PLCPClassifier,
)
from fareg.classifiers._equalized import LevelCoding
from fareg.classifiers._mondrian import MondrianClassifier
from fareg.groups import Rule

PROBES = (None, 0.0, "a")  # one row each: missing, a number, a text
GROUP_COLUMNS = {
    "group": "O",
    "rule": "O",
    "fidelity": "f",
    "share": "f",
    "n_calibration": "i",
    "coverage": "f",
    "low": "f",
    "high": "f",
    "p_value": "f",
    "threshold": "f",
}


def check_consistency(clf: Any, rows: Any = None) -> None:
    """Refuse a fitted classifier whose parts contradict each other.

    ``rows`` are shown to those parts that read rows; None: rows of which nothing is known.
    """
    try:
        clf._check_parameters()
    except FaregError as error:
        raise ValueError(str(error)) from error
    _require(clf.alpha_ == check_confidence_level(clf.confidence_level), "alpha_")
    _require(type(clf.key_) is int and 0 <= clf.key_ < 2**64, "key_")
    _require(type(clf.n_calibration_) is int and clf.n_calibration_ > 0, "n_calibration_")
    _require(type(clf.n_features_in_) is int and clf.n_features_in_ > 0, "n_features_in_")
    _require(isinstance(clf.classes_, np.ndarray) and clf.classes_.ndim == 1, "classes_")
    _check_column_kinds(clf)
    if rows is None:
        rows = _probe_rows(clf)
    for kind, check in CHECKS:
        if isinstance(clf, kind):
            check(clf, rows)
    if isinstance(clf, MondrianClassifier) and not _draws_regions(clf):
        _check_calibrations(clf)


def _check_column_kinds(clf: Any) -> None:
    kinds = getattr(clf, "column_kinds_", None)
    if kinds is None:
        return
    _require(isinstance(kinds, dict), "column_kinds_")
    _require(all(kind in KINDS for kind in kinds.values()), "column_kinds_")
    names = getattr(clf, "feature_names_in_", list(kinds))
    _require(list(kinds) == list(names) and len(kinds) == clf.n_features_in_, "column_kinds_")


def check_groups(groups: Any) -> None:
    """Refuse a table of groups that is none."""
    _require(isinstance(groups, pd.DataFrame) and list(groups) == list(GROUP_COLUMNS), "groups_")
    for name, kind in GROUP_COLUMNS.items():
        is_kind = groups[name].dtype.kind == kind
        is_text = all(isinstance(value, str) for value in groups[name])
        _require(is_text if kind == "O" else is_kind, f"groups_.{name}")


def _check_calibrations(clf: Any) -> None:
    """Compare calibration scores, cells and thresholds; thresholds follow from the other two."""
    n_labels = len(clf.classes_) if clf.label_conditional else 1
    n_cells = list(_cells_per_view(clf))
    _require(len(clf.calibrations_) == len(clf.thresholds_) == len(n_cells), "calibrations_")
    for calibration, thresholds, count in zip(
        clf.calibrations_, clf.thresholds_, n_cells, strict=True
    ):
        pooled, keys, starts = calibration.pooled, calibration.keys, calibration.starts
        n = len(pooled)
        _require(n <= clf.n_calibration_ and len(keys) == n, "n_calibration_")
        _require(pooled.dtype == np.float64 and keys.dtype == starts.dtype == np.int64, "dtypes")
        # also false where a score is NaN
        _require((pooled[1:] >= pooled[:-1]).all() and not np.isnan(pooled[:1]).any(), "pooled")
        _require((keys[1:] >= keys[:-1]).all(), "keys")
        _require((keys % (n + 1) < n).all(), "keys")
        edges = np.searchsorted(keys, np.arange(count * n_labels + 1) * (n + 1))
        _require(np.array_equal(starts, edges), "starts")
        _require(np.array_equal(thresholds, calibration.quantiles(clf.alpha_)), "thresholds_")


def _cells_per_view(clf: Any) -> Iterator[int]:
    if isinstance(clf, PartialConformalClassifier):
        yield from (len(levels.values) for levels in clf.levels_)
    elif isinstance(clf, ExhaustiveConformalClassifier):
        yield len(clf.cells_)
    elif isinstance(clf, PLCPClassifier):
        yield len(clf.kept_)
    elif isinstance(clf, FaReGClassifier) and clf.construction == "union":
        yield from [1] * (clf.n_draws + 1)
    else:
        yield len(clf.cuts_) + 1 if isinstance(clf, FaReGClassifier) else 1


def _check_levels(clf: Any, rows: Any) -> None:
    codes = _asked(clf._level_codes, rows)
    n_levels = np.array([len(levels.values) for levels in clf.levels_])
    _require(codes is None or (codes < n_levels).all(), "levels_")
    for levels in clf.levels_:
        _require(isinstance(levels.name, str), "levels_")
        if levels.edges is not None:
            n_bins = len(levels.values) - (None in levels.values)
            _require((np.diff(levels.edges) > 0).all() and n_bins == len(levels.edges) + 1, "edges")


def _check_exhaustive(clf: Any, rows: Any) -> None:
    _require(clf.cells_.shape[1:] == (len(clf.levels_),), "cells_")
    _require(np.array_equal(clf.cells_, np.unique(clf.cells_, axis=0)), "cells_")


def _check_afcp(clf: Any, rows: Any) -> None:
    n_problems = len(clf.classes_) if clf.label_conditional else 1
    _require(clf.n_problems_ == n_problems, "n_problems_")
    for name, value in vars(clf._count_worst_levels()).items():
        _require(np.array_equal(value, getattr(clf.worst_levels_, name)), name)


def _check_condcp(clf: Any, rows: Any) -> None:
    basis = _asked(clf._basis, rows)
    _require(len(clf.programs_) == (len(clf.classes_) if clf.label_conditional else 1), "programs_")
    for program in clf.programs_:
        _require(program.alpha == clf.alpha_, "alpha")
        _require(basis is None or program.scale.shape == basis.shape[1:], "scale")
        _check_program(program)


def _check_program(program: Any) -> None:
    (n, rank), n_columns = program.rows.shape, len(program.scale)
    columns = np.concatenate([program.columns, program.dependent])
    _require(np.array_equal(np.sort(columns), np.arange(n_columns)), "columns")
    _require(len(program.columns) == rank and program.scores.shape == (n,), "rows")
    _require(program.combination.shape == (rank, n_columns - rank), "combination")
    for name in ("rows", "scores", "combination", "ceiling", "scale"):
        _require(np.isfinite(getattr(program, name)).all(), name)
    if program.start is not None:
        basis, upper = program.start.basis, program.start.upper
        _require(basis.shape == (rank,) and ((basis >= 0) & (basis < n)).all(), "start")
        _require(upper.shape == (n,) and upper.dtype == bool, "start")
        np.linalg.inv(program.rows[basis])


def _check_plcp(clf: Any, rows: Any) -> None:
    h = _asked(clf._memberships, rows)
    n_regions = clf.regions_.output.shape[1]
    _require(h is None or h.shape == (len(PROBES), n_regions), "regions_")
    _require(h is None or np.isfinite(h).all(), "regions_")
    _require(clf.kept_.dtype == np.int64 and set(clf.kept_) <= set(range(n_regions)), "kept_")
    _require(len(clf.kept_) > 0 and (clf.kept_[1:] > clf.kept_[:-1]).all(), "kept_")
    per_label = _draws_regions(clf) and clf.label_conditional
    shape = (n_regions, len(clf.classes_)) if per_label else (n_regions,)
    _require(clf.quantiles_.shape == shape, "quantiles_")
    _require(not _draws_regions(clf) or len(clf.kept_) == n_regions, "kept_")


def _draws_regions(clf: Any) -> bool:
    """Tell PLCP as published: it has quantiles of regions instead of calibrated cells."""
    return isinstance(clf, PLCPClassifier) and bool(clf.calibration == "reuse")


def _check_fareg(clf: Any, rows: Any) -> None:
    learner, asked = clf.learner_, clf._new_learner(clf.key_ % 2**32)
    _require(learner.get_params() == asked.get_params(), "learner_")
    q = _asked(clf._membership, rows)
    _require(q is None or (q.shape == (len(PROBES),) and ((q >= 0) & (q <= 1)).all()), "learner_")
    _require(clf.cuts_.ndim == 1 and ((clf.cuts_ >= 0) & (clf.cuts_ <= 1)).all(), "cuts_")
    _require(type(learner.found_) is bool and (learner.found_ or len(clf.cuts_) == 0), "cuts_")
    _require(isinstance(clf.rule_, Rule) and isinstance(clf.rule_.text, str), "rule_")
    _require(set(learner.features_) <= set(clf.reference_), "reference_")
    check_groups(clf.groups_)
    _require(len(clf.groups_) == len(clf.cuts_) + 1, "groups_")
    _require(type(clf.base_) is type(clf.base), "base_")
    if clf.base_ is not None:
        check_consistency(clf.base_, rows)


CHECKS: tuple[tuple[Any, Any], ...] = (
    (LevelCoding, _check_levels),
    (ExhaustiveConformalClassifier, _check_exhaustive),
    (AFCPClassifier, _check_afcp),
    (CondCPClassifier, _check_condcp),
    (PLCPClassifier, _check_plcp),
    (FaReGClassifier, _check_fareg),
)


def _probe_rows(clf: Any) -> Any:
    """Return rows of which nothing is known, in the form that the classifier was fitted on."""
    rows = np.empty((len(PROBES), clf.n_features_in_), dtype=object)
    rows[:] = np.array(PROBES, dtype=object)[:, None]
    names = getattr(clf, "feature_names_in_", None)
    if names is None:
        return rows
    _require(isinstance(names, np.ndarray), "feature_names_in_")
    _require(names.shape == (clf.n_features_in_,), "feature_names_in_")
    return pd.DataFrame(rows, columns=list(names))


def _asked(question: Callable[[Any], Any], rows: Any) -> Any:
    """Return the answer to a question about rows, None if it refuses these in words."""
    try:
        return question(rows)
    except FaregError:
        return None


def _require(condition: Any, part: str) -> None:
    if not condition:
        raise ValueError(f"its parts contradict each other, see {part}")
