"""The models that predict disadvantage: trees on all features, and a smooth one on a few.

Both read one matrix of plain numbers: the rank of a number, and the code of a category. Both are
trained once without each fold, which gives honest predictions of its rows, and once with all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from fareg._columns import as_numbers, as_text
from fareg._levels import distinct_rows
from fareg._validation import BoolArray, FloatArray, IntArray, require
from fareg.groups._features import N_FOLDS, READS, some_rows

N_RANKS = 1000  # quantiles that ranks are read from
MISSING = -1.0  # the rank of a missing number, and the code of a category that was never seen
TREES: dict[str, Any] = {
    "max_iter": 25,
    "max_leaf_nodes": 6,
    "min_samples_leaf": 15,
    "learning_rate": 0.12,
    "l2_regularization": 10.0,
    "early_stopping": False,
    "random_state": 0,
}
PRIOR_ROWS = 8.0  # means are shrunk as if so many more rows had the overall mean
N_CENTRES = 150  # rows that span the smooth model
CONSTANT = 0.3  # part of each factor of the kernel that does not depend on the feature
OTHER_CATEGORY = 0.3  # likeness of two different categories
LENGTHS = (0.1, 0.3)  # shares of the people over which ranks are alike
PENALTIES = 10.0 ** np.arange(0, 3.1, 0.5)
SMALLEST = 1e-6  # directions of the centres that are flatter than this are left out
MAX_SMOOTH_ROWS = 20_000  # rows that teach the smooth model
CHUNK = 16_384  # rows that are compared with the centres at once
FEW_ROWS = 100  # so many rows are compared as they are


@dataclass(frozen=True, eq=False)
class ColumnReading:
    """How one column becomes numbers: codes of categories from 0, or ranks from 0 to 1."""

    name: str
    codes: dict[str | None, int] | None  # of each category, missing ones included
    edges: FloatArray  # quantiles of a number

    @classmethod
    def learn(cls, column: pd.Series) -> Self:
        """Note the categories or the quantiles of a canonical column."""
        if column.dtype == object:
            distinct = sorted(column.dropna().unique())
            known = [*distinct, None] if column.isna().any() else distinct
            return cls(str(column.name), {value: j for j, value in enumerate(known)}, np.empty(0))
        numbers = as_numbers(column).dropna().to_numpy()
        shares = np.arange(1, N_RANKS) / N_RANKS
        edges = np.quantile(numbers, shares, method="inverted_cdf") if len(numbers) else shares
        return cls(str(column.name), None, edges)

    def read(self, column: pd.Series) -> FloatArray:
        """Return the code or the rank of each row; -1 for a new category or a missing number.

        Quantiles that are equal are skipped: a value has the mean of the ranks that it fills.
        """
        if self.codes is not None:
            text = as_text(column).tolist()
            code = self.codes.get
            return np.array([code(value, MISSING) for value in text], dtype=np.float64)
        numbers = as_numbers(column).to_numpy()
        first, last = (np.searchsorted(self.edges, numbers, side) for side in ("left", "right"))
        return np.where(np.isnan(numbers), MISSING, (first + last) / (2 * len(self.edges)))

    def check(self) -> None:
        """Refuse codes that leave numbers out, and quantiles that fall, as those of a file may."""
        require(self.edges.dtype == np.float64 and self.edges.ndim == 1, "readings")
        if self.codes is None:
            require(len(self.edges) > 0 and (np.diff(self.edges) >= 0).all(), "readings")
            require(not np.isnan(self.edges[0]), "readings")
        else:
            require(all(value is None or isinstance(value, str) for value in self.codes), "codes")
            require(all(type(code) is int for code in self.codes.values()), "codes")
            require(sorted(self.codes.values()) == list(range(len(self.codes))), "codes")


@dataclass(frozen=True, eq=False)
class Trees:
    """Boosted trees; a category enters them as the shrunk mean of the target of its rows."""

    worth: dict[int, FloatArray]  # by column: the mean of each code, and of a category never seen
    boosting: HistGradientBoostingRegressor

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Return a prediction per row of the matrix, shape (n,)."""
        x = matrix.copy()
        for j, means in self.worth.items():
            x[:, j] = means[matrix[:, j].astype(np.int64)]  # -1 points to the last one
        return np.asarray(self.boosting.predict(x))

    def check(self, readings: tuple[ColumnReading, ...]) -> None:
        """Refuse means that are not those of the categories that are read."""
        require(isinstance(self.boosting, HistGradientBoostingRegressor), "boosting")
        sizes = {j: len(one.codes) + 1 for j, one in enumerate(readings) if one.codes is not None}
        require(
            {j: means.shape for j, means in self.worth.items()}
            == {j: (size,) for j, size in sizes.items()},
            "worth",
        )
        require(all(np.isfinite(means).all() for means in self.worth.values()), "worth")


def learn_trees(
    matrix: FloatArray, sizes: dict[int, int], target: FloatArray, fold: IntArray
) -> tuple[FloatArray, Trees]:
    """Return out-of-fold predictions of shape (n,), and the trees of all rows.

    ``sizes`` holds the number of categories of each column of categories. The trees are told means
    of other rows: in a category of three rows, their mean would tell each of them its own target.
    """
    out_of_fold, x = np.empty(len(target)), matrix.copy()
    for k in range(N_FOLDS + 1):
        worth = {}
        for j, n_codes in sizes.items():
            codes = matrix[:, j].astype(np.int64)
            means = category_means(codes, n_codes, target, fold, READS[k])
            worth[j] = means[-1]
            x[:, j] = np.where(READS[k, fold] > 0, means[fold, codes], means[-1, codes])
        trains = READS[k, fold] > 0
        boosting = HistGradientBoostingRegressor(**TREES).fit(x[trains], target[trains])
        if k < N_FOLDS:
            out_of_fold[~trains] = boosting.predict(x[~trains])
    return out_of_fold, Trees(worth, boosting)


def category_means(
    codes: IntArray, n_codes: int, target: FloatArray, fold: IntArray, reads: FloatArray
) -> FloatArray:
    """Return shrunk means of the target of each category, shape (N_FOLDS + 1, n_codes + 1).

    Only folds that ``reads`` marks count. Row j leaves out fold j too, the last one leaves out none
    of them. The last column is the mean of all rows, for a category that was never seen.
    """
    at, shape = fold * n_codes + codes, (N_FOLDS, n_codes)
    n = np.bincount(at, minlength=N_FOLDS * n_codes).reshape(shape) * reads[:, None]
    sums = np.bincount(at, target, N_FOLDS * n_codes).reshape(shape) * reads[:, None]
    n_others, sums_others = READS @ n, READS @ sums
    mean = sums_others.sum(axis=1, keepdims=True) / n_others.sum(axis=1, keepdims=True)
    means = (sums_others + PRIOR_ROWS * mean) / (n_others + PRIOR_ROWS)
    return np.hstack([means, mean])


@dataclass(frozen=True, eq=False)
class KernelSum:
    """A weighted sum of likenesses to some rows, the centres."""

    columns: IntArray
    is_category: BoolArray
    length: float
    centres: FloatArray  # (n_centres, n_columns)
    weights: FloatArray  # (n_centres,)

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Return the sum for each row of the matrix, shape (n,)."""
        return _by_distinct_rows(
            matrix[:, self.columns],
            lambda x: kernel(x, self.centres, self.is_category, self.length) @ self.weights,
        )

    def check(self, readings: tuple[ColumnReading, ...]) -> None:
        """Refuse columns that are not read, and numbers that do not fit each other."""
        columns, shape = self.columns, (len(self.weights), len(self.columns))
        require(columns.dtype == np.int64 and columns.ndim == 1, "columns")
        require(((columns >= 0) & (columns < len(readings))).all(), "columns")
        by_category = np.array([readings[j].codes is not None for j in columns], dtype=bool)
        require(np.array_equal(self.is_category, by_category), "is_category")
        require(self.length > 0 and self.centres.shape == shape, "centres")
        numbers = (self.length, self.centres, self.weights)
        require(all(np.isfinite(part).all() for part in numbers), "weights")


@dataclass(frozen=True, eq=False)
class Smooth:
    """The average of several kernel ridge regressions."""

    mean: float
    parts: tuple[KernelSum, ...]  # regressions of the same columns and length are one sum

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Return a prediction per row of the matrix, shape (n,)."""
        return np.asarray(self.mean + sum(part.predict(matrix) for part in self.parts))

    def check(self, readings: tuple[ColumnReading, ...]) -> None:
        """Refuse parts that contradict each other."""
        require(isinstance(self.parts, tuple) and np.isfinite(self.mean), "parts")
        for part in self.parts:
            require(isinstance(part, KernelSum), "parts")
            part.check(readings)


def kernel(x: FloatArray, centres: FloatArray, is_category: BoolArray, length: float) -> FloatArray:
    """Return the product over features of how alike rows and centres are, (n, n_centres).

    Each factor has a constant part, so effects of single features are learned along with their
    interactions.
    """
    product = np.ones((len(x), len(centres)))
    for j, by_category in enumerate(is_category):
        apart = x[:, [j]] - centres[:, j]
        near = np.where(apart == 0, 1.0, OTHER_CATEGORY)
        if not by_category:
            near = np.exp(-((apart / length) ** 2) / 2)
        product *= CONSTANT + (1 - CONSTANT) * near
    return product


def learn_smooth(
    matrix: FloatArray,
    is_category: BoolArray,
    target: FloatArray,
    fold: IntArray,
    chosen: list[IntArray],
    seed: int,
) -> tuple[FloatArray, Smooth]:
    """Return out-of-fold predictions of shape (n,), and the average of the regressions.

    ``chosen`` holds the columns that were chosen without each fold, and with all rows. Where they
    differ, the average of what they say is better than any of it. A random sample of rows spans a
    regression (Nystroem's method), and length and penalty minimise the generalised cross-validation
    error of the rows that teach. Everything is in closed form, from moments of the rows of a fold.
    """
    out_of_fold, few = np.empty(len(target)), some_rows(len(target), MAX_SMOOTH_ROWS)
    known: dict[tuple[int, ...], Any] = {}
    parts: dict[tuple[Any, ...], KernelSum] = {}
    means = []
    for k, columns in enumerate(chosen):
        by_category = is_category[columns]
        if tuple(columns) not in known:
            distinct = np.unique(matrix[:, columns], axis=0)
            order = np.random.default_rng([seed, *columns]).permutation(len(distinct))
            centres = distinct[np.sort(order[:N_CENTRES])]
            bases = [_basis(matrix[:, columns], centres, by_category, s) for s in LENGTHS]
            moments = [_moments(Z[few], target[few], fold[few]) for _, Z in bases]
            known[tuple(columns)] = centres, bases, moments
        centres, bases, moments = known[tuple(columns)]
        answers = [_ridge(*[np.tensordot(READS[k], part, 1) for part in m]) for m in moments]
        best = min(range(len(LENGTHS)), key=lambda i: answers[i][0])
        (_, mean, weights), (to_centres, Z) = answers[best], bases[best]
        if k < N_FOLDS:
            out_of_fold[fold == k] = mean + Z[fold == k] @ weights
        means.append(mean)
        key = (*columns, LENGTHS[best])
        share = to_centres @ weights / len(chosen) + (parts[key].weights if key in parts else 0.0)
        parts[key] = KernelSum(columns, by_category, LENGTHS[best], centres, share)
    return out_of_fold, Smooth(float(np.mean(means)), tuple(parts.values()))


def _basis(
    x: FloatArray, centres: FloatArray, is_category: BoolArray, length: float
) -> tuple[FloatArray, FloatArray]:
    """Return P of shape (n_centres, r) and the inputs ``Z = K P``, with ``Z Z'`` near the kernel.

    With ``C = V diag(w) V'`` the kernel of the centres, ``P = V / sqrt(w)``.
    """
    w, V = np.linalg.eigh(kernel(centres, centres, is_category, length))
    kept = w > SMALLEST * w.max()
    P = V[:, kept] / np.sqrt(w[kept])
    return P, _by_distinct_rows(x, lambda x: kernel(x, centres, is_category, length) @ P)


def _by_distinct_rows(x: FloatArray, answer: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return the answer for each row, worked out once for equal rows and for a part at a time."""
    if len(x) < FEW_ROWS:
        return answer(x)
    first, which = distinct_rows(pd.DataFrame(x))
    distinct = x[first]
    parts = [answer(distinct[i : i + CHUNK]) for i in range(0, len(distinct), CHUNK)]
    return np.concatenate(parts)[which]


def _moments(Z: FloatArray, y: FloatArray, fold: IntArray) -> tuple[FloatArray, ...]:
    """Return ``Z'Z``, ``Z'y``, ``Z'1``, the sums of y and of its squares, and n of each fold."""
    parts = [(Z[fold == k], y[fold == k]) for k in range(N_FOLDS)]
    moments = [(Z.T @ Z, Z.T @ y, Z.sum(axis=0), y.sum(), y @ y, len(y)) for Z, y in parts]
    return tuple(map(np.array, zip(*moments, strict=True)))


def _ridge(
    ZZ: FloatArray, Zy: FloatArray, Z1: FloatArray, y1: Any, yy: Any, n: Any
) -> tuple[float, float, FloatArray]:
    """Return the lowest error of generalised cross-validation, the mean of y and the weights.

    With ``Z'Z = V diag(w) V'``, the fit of penalty c has ``trace = sum w / (w + c)`` and the error
    ``RSS / (1 - trace / n)^2``.
    """
    mean = y1 / n
    w, V = np.linalg.eigh(ZZ)
    w = np.maximum(w, 0.0)
    a = V.T @ (Zy - mean * Z1)
    scaled = 1 / (w + PENALTIES[:, None])  # (n_penalties, r)
    centred = yy - n * mean**2
    rss = centred - 2 * (a**2 * scaled).sum(axis=1) + (w * (a * scaled) ** 2).sum(axis=1)
    trace = (w * scaled).sum(axis=1)
    error = rss / (1 - trace / (n + 1)) ** 2
    best = int(error.argmin())
    return float(error[best]), float(mean), V @ (a * scaled[best])
