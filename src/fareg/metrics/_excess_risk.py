"""Excess risk of the target coverage: how much better than by a constant is coverage predicted?"""

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
# Few rounds of small trees, because more of them fit noise in a 0/1 outcome and find less.
N_ROUNDS = 40
N_LEAVES = 8


@dataclass(frozen=True)
class ExcessRisk:
    """Excess risk of the target coverage and its two parts, which add up to it.

    Attributes
    ----------
    total : float
        How well coverage can be predicted from X, in both directions.
    under : float
        The part of rows that are predicted to be covered less often than promised.
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

    A cross-fitted classifier predicts from X whether a label is covered. The total is the risk of
    the constant prediction ``confidence_level`` minus the classifier's risk, averaged over the
    folds. It is at most about 0 if coverage is ``confidence_level`` for every x, and positive if X
    predicts where it is lower or higher. In expectation it is a lower bound of a distance between
    the conditional coverage p(x) and the target 1 - alpha: ``E|p(x) - (1 - alpha)|`` for "l1",
    ``E(p(x) - (1 - alpha))^2`` for "brier", a Kullback-Leibler divergence for "log".

    The under part cuts every prediction from above at ``confidence_level`` before its risk is
    measured, the over part from below. A row contributes to only one of them, so they add up to
    the total. ``under`` matters for fairness: for "l1" it is a lower bound of
    ``E max(1 - alpha - p(x), 0)``, which does not change for people who are covered more often
    than promised.

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
        Predicts ``covered`` with ``predict_proba``. It gets numeric arrays as they are, and any
        other table as a pandas frame of float and text columns. None takes 40 rounds of gradient
        boosting with 8 leaves, with text columns coded by number.
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
    target = float(confidence_level)
    risk = LOSSES[check_choice("loss", loss, LOSSES)]
    if check_count("n_splits", n_splits, minimum=2) > n_samples:
        raise InvalidInputError(f"n_splits must be at most the {n_samples} rows, got {n_splits}")
    check_numpy_seed("random_state", random_state)
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**32))
    table, model = check_table(X), estimator
    if is_frame(table) or table.dtype.kind not in "biuf" or model is None:
        table = canonical(table)
    if model is None:  # codes of categories do not depend on coverage, so they are found once
        table = ordinal_encoder().fit_transform(table)
        size = {"max_iter": N_ROUNDS, "max_leaf_nodes": N_LEAVES}
        model = make_pipeline(FillEmpty(), AnySizeBoosting(**size, random_state=random_state))
    if not hasattr(model, "predict_proba"):
        raise InvalidInputError(f"estimator must have predict_proba, got {model!r}")
    folds = KFold(n_splits=n_splits, shuffle=True, random_state=random_state)
    excess = []
    for train, test in folds.split(covered):
        p = _predict(model, table, covered, train, test)
        constant = risk(np.array([target]), covered[test], target).mean()
        cuts = (p, np.minimum(p, target), np.maximum(p, target))
        excess.append([constant - risk(cut, covered[test], target).mean() for cut in cuts])
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


def _log(p: FloatArray, covered: BoolArray, target: float) -> FloatArray:
    p = np.clip(p, CLIP, 1 - CLIP)
    return -np.log(np.where(covered, p, 1 - p))


LOSSES: dict[str, Callable[[FloatArray, BoolArray, float], FloatArray]] = {
    # depends only on which side of the target the prediction lies
    "l1": lambda p, covered, target: np.asarray(np.sign(target - p) * (covered - target)),
    "brier": lambda p, covered, target: (p - covered) ** 2,
    "log": _log,
}


def _predict(model: Any, table: Any, covered: BoolArray, train: Any, test: Any) -> FloatArray:
    """Return the predicted probability of coverage of the rows in ``test``."""
    outcome = covered[train]
    if outcome.all() or not outcome.any():  # a single outcome leaves nothing to learn
        return np.full(len(test), float(outcome[0]))
    rows = table.iloc if isinstance(table, pd.DataFrame) else table
    with few_threads(table):
        fitted = clone(model).fit(rows[train], outcome)
        return np.asarray(fitted.predict_proba(rows[test])[:, 1], dtype=np.float64)
