"""The audit itself: read the sets, measure, discover, verify."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from fareg._frames import SensitiveFeatures, hash_key, select_columns
from fareg._validation import (
    BoolArray,
    IntArray,
    check_confidence_level,
    check_count,
    check_fraction,
    check_same_length,
)
from fareg.audit._cells import CodedTable, cell_coverage, label_coverage
from fareg.audit._picture import group_picture
from fareg.audit._result import AuditResult
from fareg.audit._sets import read_sets
from fareg.audit._slabs import no_slabs, slab_curve
from fareg.audit._verification import detectable_coverage, discover_and_verify
from fareg.metrics import clopper_pearson, excess_risk
from fareg.metrics._encoding import check_table
from fareg.report import headline_group

MAX_ROWS_ERT = 50_000  # more rows are sampled
LARGEST = 1e30


def audit(
    X: Any,
    y: Any,
    sets: Any,
    *,
    classes: Any = None,
    sensitive_features: SensitiveFeatures = None,
    confidence_level: float = 0.9,
    significance: float = 0.05,
    n_directions: int = 200,
    n_permutations: int = 100,
    measures: bool = True,
    random_state: Any = None,
) -> AuditResult:
    """Find who is covered less often than promised, whoever made the prediction sets.

    Groups are proposed on one random half of the rows: by a network that learns where coverage is
    low, and by the worst levels and pairs of features. The other half puts them to an exact
    binomial test. If the rows are independent and coverage is at least ``confidence_level`` in
    every group, ``P(any finding) <= significance``, whatever was searched.

    Parameters
    ----------
    X : frame or array of shape (n_samples, n_features)
        The audited rows; the sets must come from a model that was neither trained nor calibrated
        on them.
    y : array of shape (n_samples,)
        True labels.
    sets : array, frame, or list of lists
        Prediction sets: a table of True and False (or 1 and 0) of shape (n_samples, n_classes), as
        fareg makes, or (n_samples, n_classes, 1), as MAPIE does; or one list of labels per row, as
        crepes does, also as a column of a frame.
    classes : array of shape (n_classes,), optional
        The label of each column of ``sets``. None: the names of a frame, or the sorted labels of
        ``y`` if there are as many of them as columns; for lists, all labels that occur.
    sensitive_features : names, positions or callable, optional
        Columns of ``X`` in which groups are looked for. None: all.
    confidence_level : float, default=0.9
        Coverage that the sets promise.
    significance : float, default=0.05
        Probability of any false finding that is allowed.
    n_directions, n_permutations : int, default=200 and 100
        Effort of the worst-slab search: random directions, and shuffles behind its null band.
    measures : bool, default=True
        Whether to compute worst slabs and excess risk too. The verdict needs neither, and most of
        the time goes there.
    random_state : int, RandomState, Generator or None
        Seed of the split and of everything else.

    Returns
    -------
    AuditResult

    Examples
    --------
    >>> from fareg import audit
    >>> from fareg.datasets import make_synthetic
    >>> data = make_synthetic(400, random_state=0)
    >>> guess = [[label] if easy else [] for label, easy in zip(data.y, ~data.group)]
    >>> print(audit(data.X, data.y, guess, sensitive_features=["Color", "Gender"],
    ...             random_state=0).findings[0].rule)
    (Color=Blue and Gender=Male) or (Color=Red and Gender=Female)
    """
    check_confidence_level(confidence_level)
    check_fraction("significance", significance)
    check_count("n_directions", n_directions)
    check_count("n_permutations", n_permutations, minimum=0)
    columns, notes = _tamed(select_columns(check_table(X), sensitive_features))
    check_same_length(X=columns, y=y)
    table = read_sets(sets, y, classes)
    covered, size, n = table.covered, table.size, len(table.covered)
    rng = np.random.default_rng(hash_key(random_state))
    groups, discovery = discover_and_verify(
        columns,
        covered,
        size,
        confidence_level=confidence_level,
        significance=significance,
        rng=rng,
    )
    low, high = clopper_pearson(int(covered.sum()), n)
    levels, pairs = _cell_tables(columns, covered, size, confidence_level)
    overall = {"coverage": float(covered.mean()), "high": float(high)}
    main = headline_group([vars(group) for group in groups], overall, confidence_level)
    n_verification = int((~discovery).sum())
    return AuditResult(
        confidence_level=float(confidence_level),
        significance=float(significance),
        n_samples=n,
        n_discovery=n - n_verification,
        n_verification=n_verification,
        classes=table.classes,
        sensitive_features=tuple(map(str, columns.columns)),
        coverage=float(covered.mean()),
        low=float(low),
        high=float(high),
        mean_size=float(size.mean()),
        set_sizes=_set_sizes(size, covered),
        groups=groups,
        levels=levels,
        pairs=pairs,
        by_label=label_coverage(y, covered, size, confidence_level=confidence_level),
        slabs=slab_curve(
            columns, covered, n_directions=n_directions, n_permutations=n_permutations, rng=rng
        )
        if measures
        else no_slabs(),
        excess_risk=_excess_risk(columns, covered, confidence_level, rng)
        if measures
        else float("nan"),
        detectable_coverage=detectable_coverage(
            n_verification, len(groups), confidence_level, significance
        ),
        picture=group_picture(columns, covered, main["mask"], main["features"]) if main else None,
        notes=(*table.notes, *notes),
        about={"date": date.today().isoformat(), "seed": _seed(random_state)},
    )


def _seed(random_state: Any) -> int | None:
    """Return a seed that can be written down."""
    return int(random_state) if isinstance(random_state, int | np.integer) else None


def _tamed(columns: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Take infinite numbers as missing, and huge ones as the largest that every model can hold."""
    numeric = columns.select_dtypes("number").columns
    infinite = columns[numeric].isin([np.inf, -np.inf])
    tame = columns.copy()
    tame[numeric] = columns[numeric].mask(infinite).clip(-LARGEST, LARGEST)
    names = [str(name) for name in numeric if infinite[name].any()]
    return tame, (f"infinite values count as missing in {', '.join(names)}",) if names else ()


def _cell_tables(
    columns: pd.DataFrame, covered: BoolArray, size: IntArray, confidence_level: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the levels and the pairs, in words, worst first."""
    table = CodedTable.of(columns)
    cells = cell_coverage(table, covered, size, confidence_level=confidence_level)
    cells = cells.sort_values("p_value", kind="stable")
    names = [table.label(f, c) for f, c in zip(cells["features"], cells["codes"], strict=True)]
    cells.insert(0, "group", names)
    single = cells["features"].str.len() == 1
    order = ["group", "n", "share", "coverage", "low", "high", "mean_size", "p_value"]
    return (
        cells.loc[single, order].reset_index(drop=True),
        cells.loc[~single, order].reset_index(drop=True),
    )


def _set_sizes(size: IntArray, covered: BoolArray) -> pd.DataFrame:
    n = np.bincount(size)
    k = np.bincount(size, weights=covered)
    coverage = np.divide(k, n, out=np.full(len(n), np.nan), where=n > 0)
    return pd.DataFrame(
        {"size": np.arange(len(n)), "n": n, "share": n / len(size), "coverage": coverage}
    )


def _excess_risk(
    columns: pd.DataFrame, covered: BoolArray, confidence_level: float, rng: np.random.Generator
) -> float:
    if len(covered) < 2:
        return float("nan")
    if len(covered) > MAX_ROWS_ERT:
        rows = rng.choice(len(covered), MAX_ROWS_ERT, replace=False)
        columns, covered = columns.iloc[rows], covered[rows]
    empty = columns.columns[columns.isna().all()]  # gradient boosting needs a value to cut at
    return excess_risk(
        columns.assign(**dict.fromkeys(empty, 0.0)),
        covered,
        confidence_level=confidence_level,
        n_splits=min(5, len(covered)),
        random_state=rng,
    )
