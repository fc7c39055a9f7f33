"""Calibration for another population, with a weight for every row.

The weight of a row says how much more frequent such rows are in the new population than among the
calibration rows. With the true weights, sets keep their promise for the new population in finite
samples; docs/guarantees.md has the proof. Pass a shift to ``conformalize(X, y, shift=...)``; new
rows get their weights at prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from fareg._columns import as_numbers, canonical, check_columns, selected_positions
from fareg._encoding import gradient_boosting
from fareg._labels import label_codes
from fareg._rows import numbered_hashes, row_hashes
from fareg._validation import (
    FloatArray,
    IntArray,
    InvalidInputError,
    NotConformalizedError,
    all_or_nothing,
    check_count,
    check_number,
    check_proba,
    check_same_length,
    require,
)
from fareg._words import count, percent, shown
from fareg.calibration import MAX_WEIGHT, NEW_WEIGHT

__all__ = ["CovariateShift", "KnownWeights", "LabelShift", "Weighing"]

FEWEST = 100  # effective rows that must calibrate
FEWEST_ROWS = 50  # calibration rows, and new rows, that a classifier can learn to distinguish
OVERLAP = 0.5  # share of the new population that must resemble calibration rows
N_FOLDS = 5
# weights of new rows are rounded up to these: a larger weight enlarges the set
STEPS = np.unique(np.ceil(1.1 ** np.arange(350)))
STEPS = STEPS[STEPS <= NEW_WEIGHT].astype(np.int64)
BOOSTING = {"max_iter": 60, "max_leaf_nodes": 6, "min_samples_leaf": 30, "early_stopping": False}


@dataclass(eq=False)
class KnownWeights:
    """Weights from a column, such as those of a survey.

    Parameters
    ----------
    column : str or int
        A column of ``sensitive_features`` or X with non-negative numbers; a position refers to X.
        New rows need it too.

    Examples
    --------
    >>> import numpy as np
    >>> from fareg import SplitConformalClassifier
    >>> from fareg.shift import KnownWeights
    >>> rng = np.random.default_rng(0)
    >>> X, proba = rng.uniform(1, 4, size=(500, 1)), rng.dirichlet([1, 1], 500)
    >>> clf = SplitConformalClassifier(random_state=0)
    >>> clf = clf.conformalize(X, rng.choice(["a", "b"], 500), proba=proba, shift=KnownWeights(0))
    >>> 400 < clf.shift_.effective_rows < 500
    True
    """

    column: Any

    def ratios(self, tables: Sequence[pd.DataFrame]) -> FloatArray:
        """Return the weight of each row, shape (n,)."""
        named = [table for table in tables if isinstance(self.column, str) and self.column in table]
        table = [*named, tables[-1]][0]
        (position,) = selected_positions(table, self.column, "column")
        weights = as_numbers(table.iloc[:, position]).to_numpy()
        wrong = ~(np.isfinite(weights) & (weights >= 0))
        if wrong.any():
            raise InvalidInputError(
                f"weights must be non-negative numbers, got {weights[wrong][0]:g} in {self.column} "
                f"and {int(wrong.sum()) - 1} more such rows"
            )
        return weights


@dataclass(eq=False)
class CovariateShift:
    """Weights from new rows without labels: a classifier learns to distinguish them from old rows.

    Boosted trees, which find interactions, are cross-fitted: the weight of a row comes from a model
    that was trained without it. The promise is exact if the weights are true; docs/guarantees.md
    says what errors cost.

    Parameters
    ----------
    columns : list of names or positions, default=None
        The columns of X that may differ between the populations; None for all. Leave out ids and
        dates: they separate old from new rows but do not describe them.
    clip : float, default=20
        Weights are cut to the range from ``1 / clip`` to ``clip``.
    random_state : int, default=0

    Attributes
    ----------
    effective_rows : float
        ``W ** 2 / sum(w ** 2)`` of the calibration rows.
    overlap : float
        The mean weight of the calibration rows, which estimates the share of the new population
        that resembles some of them: about 1 if all of it does.

    Examples
    --------
    >>> import numpy as np
    >>> from fareg.shift import CovariateShift
    >>> rng = np.random.default_rng(0)
    >>> old, new = rng.normal(size=(2000, 2)), rng.normal(0.5, size=(2000, 2))
    >>> shift = CovariateShift().fit(old, new)
    >>> 700 < shift.effective_rows < 1300
    True
    """

    columns: Any = None
    clip: float = 20.0
    random_state: int = 0
    names: Any = None  # of the columns that the models read
    models: tuple[Any, ...] = ()
    odds: tuple[float, ...] = ()  # of being new among the rows of each model
    effective_rows: float = np.nan
    overlap: float = np.nan

    @all_or_nothing
    def fit(self, X_cal: Any, X_new: Any) -> Self:
        """Learn weights from the calibration rows and from rows of the new population.

        Parameters
        ----------
        X_cal, X_new : frames or arrays
            X_new needs the columns of X_cal and may have more.
        """
        self.clip = 1 + check_number("clip", self.clip - 1)
        seed = check_count("random_state", self.random_state, minimum=0, maximum=2**32 - 1)
        old, new = canonical(X_cal), canonical(X_new)
        for name, table in (("X_cal", old), ("X_new", new)):
            if len(table) < FEWEST_ROWS:
                raise InvalidInputError(
                    f"{name} must have at least {FEWEST_ROWS} rows, so that weights can be "
                    f"learned, got {len(table)}"
                )
        chosen = None if self.columns is None else selected_positions(old, self.columns, "columns")
        self.names = [old.columns[k] for k in (range(old.shape[1]) if chosen is None else chosen)]
        (old, old_fold), (new, new_fold) = self._read(old), self._read(new)
        both = pd.concat([old, new], ignore_index=True)
        is_new = np.arange(len(both)) >= len(old)
        fold, self.models, self.odds = np.concatenate([old_fold, new_fold]), (), ()
        for k in range(N_FOLDS):
            model, rows = gradient_boosting(seed), np.flatnonzero(fold != k)
            model[-1].set_params(**BOOSTING)
            self.models += (model.fit(both.iloc[rows], is_new[rows]),)
            self.odds += (float(is_new[rows].sum() / (~is_new[rows]).sum()),)
        weights = self._ratios(old, old_fold)
        self.effective_rows, self.overlap = effective_rows(weights), float(weights.mean())
        if self.overlap < OVERLAP:
            raise InvalidInputError(
                f"only {percent(self.overlap)} of the new rows resemble calibration rows, so no "
                "weights can represent the others; leave out columns that separate old from new "
                "rows, such as dates and ids, with columns=, or calibrate on labelled new rows"
            )
        return self

    def ratios(self, tables: Sequence[pd.DataFrame]) -> FloatArray:
        """Return the weight of each row, shape (n,)."""
        if not self.models:
            raise NotConformalizedError("this CovariateShift has no weights; call fit first")
        return self._ratios(*self._read(tables[-1]))

    def _read(self, table: pd.DataFrame) -> tuple[pd.DataFrame, IntArray]:
        """Return the columns that the models read, and the fold of each row.

        Calibration rows get the same folds as in ``fit``, also rows that are equal.
        """
        check_columns(self.names, list(table.columns), "X")
        columns = table[self.names]
        hashes = numbered_hashes(row_hashes(columns, self.random_state), "learning")
        return columns, (hashes % np.uint64(N_FOLDS)).astype(np.int64)

    def _ratios(self, rows: pd.DataFrame, fold: IntArray) -> FloatArray:
        ratios = np.ones(len(rows))
        for k in np.unique(fold).tolist():
            held_out = np.flatnonzero(fold == k)
            p = self.models[k].predict_proba(rows.iloc[held_out])[:, 1]
            ratios[held_out] = p / np.maximum(1 - p, 1e-12) / self.odds[k]
        return np.clip(ratios, 1 / self.clip, self.clip)


@dataclass(eq=False)
class LabelShift:
    """Weights by label: the shares of labels change, but not the rows of each label.

    Parameters
    ----------
    shares : dict, default=None
        The share of every label in the new population; None if ``fit`` estimates them. The old
        shares are those of the calibration rows. With ``label_conditional`` you need no shift: the
        promise for each label does not depend on shares.

    Examples
    --------
    >>> import numpy as np
    >>> from fareg.shift import LabelShift
    >>> y, proba = np.array(["a", "b"] * 50), np.array([[0.8, 0.2], [0.2, 0.8]] * 50)
    >>> shift = LabelShift().fit(y, proba, np.array([[0.8, 0.2]] * 60))
    >>> {str(label): round(share, 3) for label, share in shift.shares.items()}
    {'a': 1.0, 'b': 0.0}
    """

    shares: Any = None

    def fit(self, y: Any, proba: Any, proba_new: Any, *, classes: Any = None) -> Self:
        """Estimate the shares that mix the mean predictions per label into that of the new rows.

        Parameters
        ----------
        y, proba
            Labels of calibration rows, and the model's class probabilities for them.
        proba_new : array of shape (n_new, n_classes)
            The model's class probabilities for new rows, whose labels are not known.
        classes : list of labels, default=None
            The label of each column; None for the sorted labels of y.
        """
        proba, proba_new = check_proba(proba), check_proba(proba_new, "proba_new")
        check_same_length(y=y, proba=proba)
        classes = np.unique(np.asarray(y)) if classes is None else np.asarray(classes)
        if not len(classes) == proba.shape[1] == proba_new.shape[1]:
            raise InvalidInputError(
                f"proba and proba_new must have a column for each of the {len(classes)} labels, "
                f"got {proba.shape[1]} and {proba_new.shape[1]}; name them with classes="
            )
        codes = label_codes(y, classes)
        if absent := [classes[k] for k in range(len(classes)) if not (codes == k).any()]:
            raise InvalidInputError(f"no calibration row has the label {shown(absent)}")
        # column k is the mean prediction for rows with label k
        means = np.column_stack([proba[codes == k].mean(axis=0) for k in range(len(classes))])
        if np.linalg.cond(means) > 1e3:
            raise InvalidInputError(
                "the model's probabilities do not distinguish the labels, so shares cannot be "
                "estimated from them; pass the shares"
            )
        shares, _ = nnls(means, proba_new.mean(axis=0))
        self.shares = dict(zip(classes.tolist(), (shares / shares.sum()).tolist(), strict=True))
        return self

    def of_labels(self, codes: IntArray, classes: Any) -> FloatArray:
        """Return the weight of each label of ``classes``, and of an unknown label at the end."""
        shares = self.shares
        if shares is None:
            raise NotConformalizedError("this LabelShift has no shares; pass them, or call fit")
        numbers = list(shares.values()) if isinstance(shares, Mapping) else []
        columns = label_codes(np.array(list(shares)), classes) if numbers else np.empty(0)
        is_complete = sorted(columns.tolist()) == list(range(len(classes)))
        if not is_complete or min(numbers) < 0 or abs(sum(numbers) - 1) > 0.01:
            raise InvalidInputError(
                f"shares must give every label a share, and their sum must be 1, got {shares}; "
                f"labels: {shown(classes)}"
            )
        old = np.bincount(codes[codes >= 0], minlength=len(classes)) / len(codes)
        new = np.zeros(len(classes))
        new[columns] = numbers
        # a new label that no calibration row has is in every set
        without_rows = np.where(new > 0, np.inf, 0.0)
        return np.append(np.divide(new, old, out=without_rows, where=old > 0), 1.0)


def effective_rows(weights: FloatArray) -> float:
    """Return how many rows of equal weight would be as good: ``W ** 2 / sum(w ** 2)``.

    >>> effective_rows(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    return float(weights.sum() ** 2 / np.maximum((weights**2).sum(), np.finfo(float).tiny))


@dataclass(frozen=True, eq=False)
class Weighing:
    """A shift in a calibrated classifier, which uses whole numbers as weights.

    Attributes
    ----------
    shift : KnownWeights, CovariateShift or LabelShift
    effective_rows : float
        How many calibration rows of equal weight would be as good.
    """

    shift: Any
    unit: float  # the weight that becomes 1
    by_label: FloatArray | None  # (n_classes + 1,) weights of a LabelShift
    effective_rows: float

    def __post_init__(self) -> None:
        require(isinstance(self.shift, KnownWeights | CovariateShift | LabelShift), "shift")
        require(type(self.unit) is float and np.isfinite(self.unit) and self.unit > 0, "unit")
        require((self.by_label is not None) == isinstance(self.shift, LabelShift), "by_label")
        require(self.by_label is None or (self.by_label >= 0).all(), "by_label")
        if isinstance(self.shift, CovariateShift):
            models, odds = self.shift.models, self.shift.odds
            require(isinstance(models, tuple) and len(models) == len(odds) == N_FOLDS, "models")
            require(all(type(ratio) is float and ratio > 0 for ratio in odds), "odds")
            require(type(self.shift.clip) is float and 1 < self.shift.clip < np.inf, "clip")

    @classmethod
    def of(
        cls, shift: Any, tables: Sequence[pd.DataFrame], codes: IntArray, classes: Any
    ) -> tuple[Self, IntArray]:
        """Return the record and the weight of each calibration row; refuse too few rows."""
        if not isinstance(shift, KnownWeights | CovariateShift | LabelShift):
            raise InvalidInputError(
                "shift must be one of fareg.shift: KnownWeights(column), LabelShift(shares) or "
                f"CovariateShift().fit(X_cal, X_new), got {shift!r}"
            )
        by_label = None
        if isinstance(shift, LabelShift):
            by_label = shift.of_labels(codes, classes)
            weights = by_label[codes]
        else:
            weights = shift.ratios(tables)
        n_effective = effective_rows(weights)
        if n_effective < FEWEST:
            raise InvalidInputError(
                f"the weights leave {n_effective:.0f} effective rows of {count(len(weights))}, and "
                f"at least {FEWEST} must calibrate: the new population is too different; calibrate "
                "on labelled rows of it"
            )
        unit = float(weights.max() / MAX_WEIGHT)
        return cls(shift, unit, by_label, n_effective), np.rint(weights / unit).astype(np.int64)

    def of_new(self, tables: Sequence[pd.DataFrame], n_classes: int) -> IntArray:
        """Return weights of new rows, (n, 1), or for each candidate label, (n, n_classes)."""
        if self.by_label is None:
            weights = self.shift.ratios(tables)[:, None]
        else:
            require(len(self.by_label) == n_classes + 1, "by_label")
            weights = np.broadcast_to(self.by_label[:-1], (len(tables[-1]), n_classes))
        steps = np.searchsorted(STEPS, weights / self.unit)
        return STEPS[np.minimum(steps, len(STEPS) - 1)]


RECORDS = (CovariateShift, KnownWeights, LabelShift, Weighing)  # what a model file may hold
