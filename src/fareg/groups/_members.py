"""The models that predict disadvantage: trees on all features, and a smooth one on a few.

Both read a matrix of ranks of numbers and codes of categories. Both are trained once without each
fold, which gives out-of-fold predictions, and once with all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from fareg._columns import as_numbers, as_text
from fareg._rows import joint_codes, repeated_rows
from fareg._validation import BoolArray, FloatArray, IntArray, InvalidInputError

N_RANKS = 1000  # quantiles from which ranks are computed
MISSING = -1.0  # the rank of a missing number, and the code of an unseen category
# Trees read the codes of categories as numbers: means of categories were no better, because the
# smooth model handles categories.
TREES = HistGradientBoostingRegressor(
    max_iter=25,
    max_leaf_nodes=6,
    min_samples_leaf=15,
    learning_rate=0.12,
    l2_regularization=10.0,
    early_stopping=False,
    random_state=0,
)
N_CENTRES = 150  # rows that span the smooth model
PEOPLE_PER_STEP = 10  # people who share a rank of a centre
MAX_STEPS = 100  # different ranks of centres
CONSTANT = 0.3  # part of each factor of the kernel that does not depend on the feature
OTHER_CATEGORY = 0.3  # similarity of two different categories
LENGTHS = (0.1, 0.3)  # shares of the people within which ranks are similar
PENALTIES = 10.0 ** np.arange(0, 3.1, 0.5)
SMALLEST = 1e-6  # smaller eigenvalues of the centres' kernel, relative to the largest, are dropped
MAX_SMOOTH_ROWS = 20_000  # rows that train the smooth model
CHUNK = 16_384  # rows that are compared with the centres at once

# --- columns as numbers ---


@dataclass(frozen=True, eq=False)
class ColumnReading:
    """How one column becomes numbers: codes of categories from 0, or ranks from 0 to 1."""

    name: str
    codes: dict[str | None, int] | None  # of each category, missing ones included
    edges: FloatArray  # the quantiles of a number

    @classmethod
    def learn(cls, column: pd.Series) -> Self:
        """Find the categories or the quantiles of a canonical column."""
        if column.dtype == object:
            distinct = sorted(column.dropna().unique())
            known = [*distinct, None] if column.isna().any() else distinct
            return cls(str(column.name), {value: j for j, value in enumerate(known)}, np.empty(0))
        numbers = as_numbers(column).dropna().to_numpy()
        shares = np.arange(1, N_RANKS) / N_RANKS
        edges = np.quantile(numbers, shares, method="inverted_cdf") if len(numbers) else shares
        return cls(str(column.name), None, edges)

    def read(self, column: pd.Series) -> FloatArray:
        """Return the code or the mean rank of each row, -1 for an unseen or missing value."""
        if self.codes is not None:
            which, texts = pd.factorize(as_text(column))
            found = [self.codes.get(text, MISSING) for text in (*texts, None)]  # -1 is missing
            return np.array(found, dtype=np.float64)[which]
        numbers = as_numbers(column).to_numpy()
        first, last = (np.searchsorted(self.edges, numbers, side) for side in ("left", "right"))
        return np.where(np.isnan(numbers), MISSING, (first + last) / (2 * len(self.edges)))


# --- the few features that matter ---

N_FOLDS = 5
MAX_DISCRETE = 20  # a number with more values is cut into quarters
QUARTERS = np.array([0.0, 0.25, 0.5, 0.75])  # ranks where quarters begin; missing values are below
PRIOR_ROWS = 8.0  # means are shrunk as if so many additional rows had the overall mean
MAX_PAIRED = 40  # number of the best single features that are combined into pairs
MAX_TRIPLED = 10  # if there are more features, only the best pairs are extended to triples
N_EXTENDED = 5  # pairs that are extended
MAX_CELLS = 5_000  # a subset with more cells is not tried: their means would be noise
MAX_ROWS = 20_000  # rows that the search reads
LEAST_GAIN = 20.0  # gain that a second subset needs, in variances of the target, to rule out noise

Subset = tuple[int, ...]
# Row s marks the folds that search s reads: all but fold s, and in the last search all of them.
READS = np.vstack([1.0 - np.eye(N_FOLDS), np.ones(N_FOLDS)])


def choose_features(
    matrix: FloatArray, is_category: BoolArray, target: FloatArray, fold: IntArray
) -> list[Subset]:
    """Return the features that matter, by position, most important first, for six searches.

    The score of a subset of up to three features says how well the shrunk means of its joint cells
    predict the target of other rows. So the search finds pure interactions, such as an exclusive
    or, as easily as single effects. It is run once without each fold, so that predictions for that
    fold stay out of fold, and once with all rows. It finds nothing if every feature has too many
    categories.
    """
    rows = some_rows(len(target), MAX_ROWS)
    target, fold = target[rows], fold[rows]
    codes = []  # a category, one of few numbers, or a quarter of many
    for column, by_category in zip(matrix[rows].T, is_category, strict=True):
        distinct, code = np.unique(column, return_inverse=True)
        is_cut = not by_category and len(distinct) > MAX_DISCRETE
        codes.append(np.searchsorted(QUARTERS, column) if is_cut else code)
    sizes = [int(code.max()) + 1 for code in codes]

    def joint_cell(subset: Subset) -> IntArray:
        return joint_codes([codes[j] for j in subset], [sizes[j] for j in subset])

    def subset_gains(residual: FloatArray, subset: Subset) -> FloatArray:
        return nested_gains(joint_cell(tuple(sorted(subset))), residual, fold)

    reads = READS[:, fold]
    n_rows = np.maximum(1, reads.sum(axis=1))
    residual: FloatArray = target - (reads @ target / n_rows)[:, None]
    variances = (reads * residual**2).sum(axis=1) / n_rows
    chosen: list[dict[int, None]] = [{} for _ in READS]
    for least in (np.full(len(READS), -np.inf), LEAST_GAIN * variances):
        gains = cache(partial(subset_gains, residual))
        best = [best_subset(len(codes), gains, s) for s in range(len(READS))]
        # The list is complete before the residuals change, on which the gains depend.
        for s in [s for s, subset in enumerate(best) if gains(subset)[s] > least[s]]:
            chosen[s].update(dict.fromkeys(best[s]))
            residual[s] -= _shrunk_means(joint_cell(best[s]), residual[s], reads[s])
    return list(map(tuple, chosen))


def some_rows(n: int, most: int) -> IntArray:
    """Return the positions of n rows, or of ``most`` rows drawn at random, always the same ones."""
    return np.sort(np.random.default_rng(0).choice(n, min(n, most), replace=False))


def best_subset(n_features: int, gains: Callable[[Subset], FloatArray], search: int) -> Subset:
    """Return the subset with the largest gain in one search, its best feature first."""

    def loss(subset: Subset) -> float:
        return -float(gains(subset)[search])

    singles = sorted(((j,) for j in range(n_features)), key=loss)
    paired = sorted(j for (j,) in singles[:MAX_PAIRED])
    pairs = sorted(combinations(paired, 2), key=loss)
    triples: list[Subset] = list(combinations(paired, 3))
    if n_features > MAX_TRIPLED:
        extended = {tuple(sorted({*p, j})) for p in pairs[:N_EXTENDED] for j in paired}
        triples = sorted(triple for triple in extended if len(triple) == 3)
    best = min([*singles, *pairs, *triples], key=loss)
    return tuple(sorted(best, key=lambda j: loss((j,))))


def nested_gains(cell: IntArray, targets: FloatArray, fold: IntArray) -> FloatArray:
    """Return how much cell means lower the squared error in each search, shape (n_searches,).

    ``targets`` of shape (n_searches, n) are centred. A row of fold j is predicted by the mean of
    its cell over the rows that the search reads, without fold j.
    """
    if cell.max() >= MAX_CELLS:  # many joint cells, but few may have rows
        distinct, cell = np.unique(cell, return_inverse=True)
        if len(distinct) > MAX_CELLS:
            return np.full(len(READS), -np.inf)
    position, n_cells = cell * N_FOLDS + fold, int(cell.max()) + 1
    reads = READS[:, None, :]  # (search, 1, fold)
    n = reads * np.bincount(position, minlength=n_cells * N_FOLDS).reshape(n_cells, N_FOLDS)
    sums = [np.bincount(position, target, n_cells * N_FOLDS) for target in targets]
    s = reads * np.reshape(sums, (len(targets), n_cells, N_FOLDS))
    mean = (s.sum(2, keepdims=True) - s) / (n.sum(2, keepdims=True) - n + PRIOR_ROWS)
    return np.asarray((2 * mean * s - mean**2 * n).sum(axis=(1, 2)))


def _shrunk_means(cell: IntArray, target: FloatArray, reads: FloatArray) -> FloatArray:
    """Return the mean of each row's cell over the rows in ``reads``, shrunk towards zero."""
    cell = np.unique(cell, return_inverse=True)[1]
    means = np.bincount(cell, reads * target) / (np.bincount(cell, reads) + PRIOR_ROWS)
    return np.asarray(means[cell])


# --- models ---


def learn_given(
    learner: Any, table: Any, target: FloatArray, fold: IntArray, seed: int
) -> tuple[FloatArray, Any]:
    """Return out-of-fold predictions of a seeded regressor, and the one fitted to all rows."""
    seeds = [name for name in learner.get_params() if f"__{name}".endswith("__random_state")]
    out_of_fold = np.empty(len(target))
    for k in range(N_FOLDS + 1):
        trains = READS[k, fold] > 0
        model = clone(learner).set_params(**dict.fromkeys(seeds, seed))
        model.fit(table[trains], target[trains])
        if k < N_FOLDS:
            predicted = np.asarray(model.predict(table[~trains]), dtype=np.float64)
            if predicted.shape != (int((~trains).sum()),) or not np.isfinite(predicted).all():
                raise InvalidInputError(
                    f"learner must predict one finite number per row, got an array of shape "
                    f"{predicted.shape} from {type(learner).__name__}; pass a regressor"
                )
            out_of_fold[~trains] = predicted
    return out_of_fold, model


@dataclass(frozen=True, eq=False)
class KernelSum:
    """A weighted sum of similarities to some rows, the centres."""

    columns: IntArray
    is_category: BoolArray  # (n_columns,)
    length: float
    centres: FloatArray  # (n_centres, n_columns)
    weights: FloatArray  # (n_centres,)

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Return the sum for each row of the matrix, shape (n,)."""
        return by_distinct_rows(matrix[:, self.columns], lambda x: self.kernel(x) @ self.weights)

    def kernel(self, x: FloatArray) -> FloatArray:
        """Return the similarity of rows and centres, a product over features, (n, n_centres)."""
        # The constant part of each factor lets the sum learn effects of single features.
        product = np.ones((len(x), len(self.centres)))
        for j, by_category in enumerate(self.is_category):
            difference = x[:, [j]] - self.centres[:, j]
            similarity = np.where(difference == 0, 1.0, OTHER_CATEGORY)
            if not by_category:
                similarity = np.exp(-((difference / self.length) ** 2) / 2)
            product *= CONSTANT + (1 - CONSTANT) * similarity
        return product

    def basis(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``P = V / sqrt(w)`` and ``Z = K P``; ``Z Z'`` approximates K (Nystroem)."""
        w, V = np.linalg.eigh(self.kernel(self.centres))
        kept = w > SMALLEST * w.max()
        P = V[:, kept] / np.sqrt(w[kept])
        return P, by_distinct_rows(matrix[:, self.columns], lambda x: self.kernel(x) @ P)


def learn_smooth(
    matrix: FloatArray,
    is_category: BoolArray,
    target: FloatArray,
    fold: IntArray,
    chosen: list[IntArray],
    seed: int,
) -> tuple[FloatArray, list[KernelSum]]:
    """Return out-of-fold predictions of shape (n,), and kernel sums that together predict new rows.

    Both predict the deviation from the mean target. ``chosen`` holds the columns that were chosen
    without each fold, and with all rows; their predictions are averaged. A random sample of rows
    spans a kernel ridge regression, and length and penalty minimise the generalised
    cross-validation error of the training rows.
    """
    out_of_fold, sample = np.empty(len(target)), some_rows(len(target), MAX_SMOOTH_ROWS)
    prepared: dict[tuple[int, ...], Any] = {}
    sums: dict[tuple[Any, ...], KernelSum] = {}
    for k, columns in enumerate(chosen):
        if tuple(columns) not in prepared:
            distinct = np.unique(matrix[:, columns], axis=0)
            order = np.random.default_rng([seed, *columns]).permutation(len(distinct))
            centres = coarse(
                distinct[np.sort(order[:N_CENTRES])], is_category[columns], len(target)
            )
            zeros = np.zeros(len(centres))
            empty = [KernelSum(columns, is_category[columns], s, centres, zeros) for s in LENGTHS]
            bases = [kernel_sum.basis(matrix) for kernel_sum in empty]
            moments = [_moments(Z[sample], target[sample], fold[sample]) for _, Z in bases]
            prepared[tuple(columns)] = empty, bases, moments
        empty, bases, moments = prepared[tuple(columns)]
        fits = [_ridge(*[np.tensordot(READS[k], part, 1) for part in m]) for m in moments]
        best = min(range(len(LENGTHS)), key=lambda i: fits[i][0])
        (_, weights), (P, Z) = fits[best], bases[best]
        if k < N_FOLDS:
            out_of_fold[fold == k] = Z[fold == k] @ weights
        total = sums.get((*columns, LENGTHS[best]), empty[best])
        added = total.weights + P @ weights / len(chosen)
        sums[*columns, LENGTHS[best]] = replace(total, weights=added)
    return out_of_fold, list(sums.values())


def coarse(centres: FloatArray, is_category: BoolArray, n: int) -> FloatArray:
    """Round ranks so that about ten people share each: no centre is one person's row."""
    steps = max(1, min(MAX_STEPS, n // PEOPLE_PER_STEP))
    ranks = np.where(centres == MISSING, MISSING, np.round(centres * steps) / steps)
    return np.unique(np.where(is_category, centres, ranks), axis=0)


def by_distinct_rows(x: FloatArray, answer: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return the answer for each row, computed once for equal rows and in chunks."""
    first, which = repeated_rows(pd.DataFrame(x)) or (slice(None), slice(None))
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
) -> tuple[float, FloatArray]:
    """Return the lowest error of generalised cross-validation, and its weights.

    With ``Z'Z = V diag(w) V'``, the fit with penalty c has ``trace = sum w / (w + c)`` and the
    error ``RSS / (1 - trace / n)^2``.
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
    return float(error[best]), V @ (a * scaled[best])
