"""Excess risk of the target coverage: how much better than a constant can coverage be predicted?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline

from fareg._columns import canonical, check_table, is_frame
from fareg._encoding import AnySizeBoosting, FillEmpty, ordinal_encoder
from fareg._rows import check_numpy_seed
from fareg._threads import few_threads
from fareg._validation import (
    BoolArray,
    FloatArray,
    InvalidInputError,
    check_choice,
    check_confidence_level,
    check_count,
    check_same_length,
)
from fareg.metrics._by_group import check_covered

CLIP = 1e-6  # keeps the log loss finite
# Few rounds of small trees: more of them fit noise in a 0/1 outcome and find less of the distance.
N_ROUNDS = 40
N_LEAVES = 8


@dataclass(frozen=True)
class ExcessRisk:
    """Excess risk of the target coverage and its two parts, which add up to it.

    Attributes
    ----------
    total : float
        How far coverage can be told from X, in both directions.
    under : float
        The part of rows that are predicted to be covered too rarely: who is short-changed.
    over : float
        The part of rows that are predicted to be covered more often than promised.

    Examples
    --------
    >>> ExcessRisk(total=0.05, under=0.04, over=0.01).under
    0.04
    """

    total: float
    under: float
    over: float


def excess_risk_parts(
    X: Any,
    covered: Any,
    *,
    confidence_level: float = 0.9,
    loss: str = "l1",
    estimator: Any = None,
    n_splits: int = 5,
    random_state: Any = 42,
) -> ExcessRisk:
    """Estimate the excess risk of the target coverage (ERT) with its under and over parts.

    A classifier that predicts from X whether a label is covered is cross-fitted; the total is the
    risk of the constant prediction ``confidence_level`` minus the classifier's risk, averaged over
    the folds. It is at most about 0 if coverage is ``confidence_level`` for every x, and positive
    if X tells who is covered too rarely or too often. In expectation it is a lower bound of a
    distance of the conditional coverage p(x) to the target: ``E|p(x) - level|`` for "l1",
    ``E(p(x) - level)^2`` for "brier", a Kullback-Leibler divergence for "log".

    The under part cuts every prediction from above at ``confidence_level`` before its risk is
    measured, the over part from below. A row contributes to one of them only, so they add up to
    the total. ``under`` is the one that matters for fairness: a lower bound of
    ``E max(level - p(x), 0)`` for "l1", which people who are covered more often than promised do
    not change.

    Parameters
    ----------
    X : frame or array of shape (n_samples, n_features)
        Features on which coverage may depend.
    covered : array of shape (n_samples,)
        Whether each label is in its set.
    confidence_level : float, default=0.9
        Target coverage.
    loss : {"l1", "brier", "log"}, default="l1"
        The proper loss that compares the two predictions.
    estimator : scikit-learn classifier, optional
        Predicts ``covered`` with ``predict_proba``. It gets numeric arrays as they are, any other
        table as a pandas frame of float and text columns. None: 40 rounds of gradient
        boosting with 8 leaves, text columns coded by number.
    n_splits : int, default=5
        Number of folds.
    random_state : int, RandomState, Generator or None, default=42
        Seed of the folds and of the default estimator.

    References
    ----------
    Braun, S. et al. (2025). Conditional coverage diagnostics for conformal prediction.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(4000, 1))
    >>> covered = rng.uniform(size=4000) < np.where(X[:, 0] < 0.5, 0.7, 1.0)
    >>> risk = excess_risk_parts(X, covered, estimator=DecisionTreeClassifier(max_depth=1))
    >>> print(f"{risk.under:.1f} {risk.over:.2f}")  # half of the rows lack 0.2, half have 0.1 more
    0.1 0.05
    """
    covered = check_covered(covered)
    n_samples = check_same_length(X=X, covered=covered)
    check_confidence_level(confidence_level)
    level = float(confidence_level)
    risk = LOSSES[check_choice("loss", loss, LOSSES)]
    if check_count("n_splits", n_splits, minimum=2) > n_samples:
        raise InvalidInputError(f"n_splits must be at most the {n_samples} rows, got {n_splits}")
    check_numpy_seed("random_state", random_state)
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**32))
    table, model = check_table(X), estimator
    if is_frame(table) or table.dtype.kind not in "biuf" or model is None:
        table = canonical(table)
    if model is None:  # level numbers do not depend on coverage, so they are found once
        table = ordinal_encoder().fit_transform(table)
        size = {"max_iter": N_ROUNDS, "max_leaf_nodes": N_LEAVES}
        model = make_pipeline(FillEmpty(), AnySizeBoosting(**size, random_state=random_state))
    if not hasattr(model, "predict_proba"):
        raise InvalidInputError(f"estimator must have predict_proba, got {model!r}")
    folds = KFold(n_splits=n_splits, shuffle=True, random_state=random_state)
    excess = []
    for train, test in folds.split(covered):
        p = _predict(model, table, covered, train, test)
        constant = risk(np.array([level]), covered[test], level).mean()
        cuts = (p, np.minimum(p, level), np.maximum(p, level))
        excess.append([constant - risk(cut, covered[test], level).mean() for cut in cuts])
    return ExcessRisk(*np.mean(excess, axis=0).tolist())


def excess_risk(X: Any, covered: Any, *, part: str = "total", **options: Any) -> float:
    """Estimate the excess risk of the target coverage (ERT), or one of its parts.

    Parameters
    ----------
    part : {"total", "under", "over"}, default="total"
        Which deviations count: all, only those below ``confidence_level``, or only those above.
    X, covered, options
        As in `excess_risk_parts`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 1))
    >>> covered = rng.uniform(size=2000) < np.where(X[:, 0] < 0.5, 0.8, 1.0)
    >>> risk = excess_risk(X, covered, estimator=DecisionTreeClassifier(max_depth=1))
    >>> bool(0.08 < risk < 0.12)  # E|p(x) - 0.9| is 0.1
    True
    """
    check_choice("part", part, ("total", "under", "over"))
    return float(getattr(excess_risk_parts(X, covered, **options), part))


def _log(p: FloatArray, covered: BoolArray, level: float) -> FloatArray:
    p = np.clip(p, CLIP, 1 - CLIP)
    return -np.log(np.where(covered, p, 1 - p))


LOSSES: dict[str, Callable[[FloatArray, BoolArray, float], FloatArray]] = {
    # asks only on which side of the level the coverage lies
    "l1": lambda p, covered, level: np.asarray(np.sign(level - p) * (covered - level)),
    "brier": lambda p, covered, level: (p - covered) ** 2,
    "log": _log,
}


def _predict(model: Any, table: Any, covered: BoolArray, train: Any, test: Any) -> FloatArray:
    """Return the predicted probability of coverage of the rows in ``test``."""
    known = covered[train]
    if known.all() or not known.any():
        # with a single outcome there is nothing to learn
        return np.full(len(test), float(known[0]))
    rows = table.iloc if isinstance(table, pd.DataFrame) else table
    with few_threads(table):
        fitted = clone(model).fit(rows[train], known)
        return np.asarray(fitted.predict_proba(rows[test])[:, 1], dtype=np.float64)
