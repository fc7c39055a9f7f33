"""The models that predict disadvantage: trees on all features, and a smooth one on a few.

Both read one matrix of plain numbers: the rank of a number, and the code of a category. Both are
trained once without each fold, which gives honest predictions of its rows, and once with all rows.
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

N_RANKS = 1000  # quantiles that ranks are read from
MISSING = -1.0  # the rank of a missing number, and the code of a category that was never seen
# A tree reads the code of a category as it stands: telling it the mean of the category instead was
# no better, because the smooth model knows categories.
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
OTHER_CATEGORY = 0.3  # likeness of two different categories
LENGTHS = (0.1, 0.3)  # shares of the people over which ranks are alike
PENALTIES = 10.0 ** np.arange(0, 3.1, 0.5)
SMALLEST = 1e-6  # directions of the centres that are flatter than this are left out
MAX_SMOOTH_ROWS = 20_000  # rows that teach the smooth model
CHUNK = 16_384  # rows that are compared with the centres at once

# --- columns as numbers ---


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
        """Return the code or the mean rank of each row; -1 for a new category or no number."""
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
QUARTERS = np.array([0.0, 0.25, 0.5, 0.75])  # ranks where quarters begin; missing ones are below
PRIOR_ROWS = 8.0  # means are shrunk as if so many more rows had the overall mean
MAX_PAIRED = 40  # only so many of the best single features enter pairs
MAX_TRIPLED = 10  # if there are more features, only the best pairs are extended to triples
N_EXTENDED = 5  # pairs that are extended
MAX_CELLS = 5_000  # a subset with more cells is not tried: their means would be noise
MAX_ROWS = 20_000  # rows that the search looks at
LEAST_GAIN = 20.0  # gain that a second subset needs, in variances of the target, to rule out noise

Subset = tuple[int, ...]
# Row s marks the folds that search s may read: all but fold s, and in the last search all of them.
READS = np.vstack([1.0 - np.eye(N_FOLDS), np.ones(N_FOLDS)])


def choose_features(
    matrix: FloatArray, is_category: BoolArray, target: FloatArray, fold: IntArray
) -> list[Subset]:
    """Return the columns of the features that matter, most important first, for six searches.

    Every subset of up to three features is scored by how well the shrunk means of its joint cells
    predict the target of rows that did not make them. Effects that exist only together, such as
    those of an exclusive or, are found as easily as the others. The search is run once without each
    fold, so that a model of the chosen features can be honest about the rows of that fold, and once
    with all rows. It finds nothing if every feature has too many categories to compare.
    """
    rows = some_rows(len(target), MAX_ROWS)
    target, fold = target[rows], fold[rows]
    codes = []  # a category, one of few numbers, or a quarter of many
    for column, by_category in zip(matrix[rows].T, is_category, strict=True):
        distinct, own = np.unique(column, return_inverse=True)
        is_cut = not by_category and len(distinct) > MAX_DISCRETE
        codes.append(np.searchsorted(QUARTERS, column) if is_cut else own)
    sizes = [int(code.max()) + 1 for code in codes]

    def cells(subset: Subset) -> IntArray:
        return joint_codes([codes[j] for j in subset], [sizes[j] for j in subset])

    def gains_of(left: FloatArray, subset: Subset) -> FloatArray:
        return nested_gains(cells(tuple(sorted(subset))), left, fold)

    reads = READS[:, fold]
    n_rows = np.maximum(1, reads.sum(axis=1))
    left: FloatArray = target - (reads @ target / n_rows)[:, None]
    variances = (reads * left**2).sum(axis=1) / n_rows
    chosen: list[dict[int, None]] = [{} for _ in READS]
    for least in (np.full(len(READS), -np.inf), LEAST_GAIN * variances):
        gains = cache(partial(gains_of, left))
        best = [best_subset(len(codes), gains, s) for s in range(len(READS))]
        # All gains are known before what they explain is taken away.
        for s in [s for s, subset in enumerate(best) if gains(subset)[s] > least[s]]:
            chosen[s].update(dict.fromkeys(best[s]))
            left[s] -= _shrunk_means(cells(best[s]), left[s], reads[s])
    return list(map(tuple, chosen))


def some_rows(n: int, most: int) -> IntArray:
    """Return all of n rows, or ``most`` drawn at random: tables come sorted. Calls draw alike."""
    return np.sort(np.random.default_rng(0).choice(n, min(n, most), replace=False))


def best_subset(n_features: int, gains: Callable[[Subset], FloatArray], search: int) -> Subset:
    """Return the subset of the largest gain in one search, its best feature first."""

    def gain(subset: Subset) -> float:
        return -float(gains(subset)[search])  # negative, because sorting is stable upwards

    singles = sorted(((j,) for j in range(n_features)), key=gain)
    paired = sorted(j for (j,) in singles[:MAX_PAIRED])
    pairs = sorted(combinations(paired, 2), key=gain)
    triples: list[Subset] = list(combinations(paired, 3))
    if n_features > MAX_TRIPLED:
        extended = {tuple(sorted({*p, j})) for p in pairs[:N_EXTENDED] for j in paired}
        triples = sorted(triple for triple in extended if len(triple) == 3)
    best = min([*singles, *pairs, *triples], key=gain)
    return tuple(sorted(best, key=lambda j: gain((j,))))


def nested_gains(key: IntArray, targets: FloatArray, fold: IntArray) -> FloatArray:
    """Return, for each search, how much cell means lower the squared error on the rows it reads.

    ``targets`` of shape (n_searches, n) are centred. A row of fold j is predicted by the mean of
    its cell over the rows that the search reads, without fold j.
    """
    if key.max() >= MAX_CELLS:  # many joint cells, of which few may occur
        distinct, key = np.unique(key, return_inverse=True)
        if len(distinct) > MAX_CELLS:
            return np.full(len(READS), -np.inf)
    at, n_cells = key * N_FOLDS + fold, int(key.max()) + 1
    reads = READS[:, None, :]  # (search, 1, fold)
    n = reads * np.bincount(at, minlength=n_cells * N_FOLDS).reshape(n_cells, N_FOLDS)
    sums = [np.bincount(at, target, n_cells * N_FOLDS) for target in targets]
    s = reads * np.reshape(sums, (len(targets), n_cells, N_FOLDS))
    mean = (s.sum(2, keepdims=True) - s) / (n.sum(2, keepdims=True) - n + PRIOR_ROWS)
    return np.asarray((2 * mean * s - mean**2 * n).sum(axis=(1, 2)))


def _shrunk_means(key: IntArray, target: FloatArray, reads: FloatArray) -> FloatArray:
    """Return for each row the mean of its cell over the rows that count, shrunk towards zero."""
    cell = np.unique(key, return_inverse=True)[1]
    means = np.bincount(cell, reads * target) / (np.bincount(cell, reads) + PRIOR_ROWS)
    return np.asarray(means[cell])


# --- models ---


def learn_given(
    learner: Any, table: Any, target: FloatArray, fold: IntArray, seed: int
) -> tuple[FloatArray, Any]:
    """Return out-of-fold predictions of any regressor, and the one fitted to all rows, seeded."""
    is_seed = [name for name in learner.get_params() if f"__{name}".endswith("__random_state")]
    out_of_fold = np.empty(len(target))
    for k in range(N_FOLDS + 1):
        trains = READS[k, fold] > 0
        model = clone(learner).set_params(**dict.fromkeys(is_seed, seed))
        model.fit(table[trains], target[trains])
        if k < N_FOLDS:
            answer = np.asarray(model.predict(table[~trains]), dtype=np.float64)
            if answer.shape != (int((~trains).sum()),) or not np.isfinite(answer).all():
                raise InvalidInputError(
                    f"learner must predict one finite number per row, got an array of shape "
                    f"{answer.shape} from {type(learner).__name__}; pass a regressor"
                )
            out_of_fold[~trains] = answer
    return out_of_fold, model


@dataclass(frozen=True, eq=False)
class KernelSum:
    """A weighted sum of likenesses to some rows, the centres."""

    columns: IntArray
    is_category: BoolArray  # (n_columns,)
    length: float
    centres: FloatArray  # (n_centres, n_columns)
    weights: FloatArray  # (n_centres,)

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Return the sum for each row of the matrix, shape (n,)."""
        return by_distinct_rows(matrix[:, self.columns], lambda x: self.kernel(x) @ self.weights)

    def kernel(self, x: FloatArray) -> FloatArray:
        """Return the product over features of how alike rows and centres are, (n, n_centres)."""
        # Each factor has a constant part, so effects of single features are learned, too.
        product = np.ones((len(x), len(self.centres)))
        for j, by_category in enumerate(self.is_category):
            apart = x[:, [j]] - self.centres[:, j]
            near = np.where(apart == 0, 1.0, OTHER_CATEGORY)
            if not by_category:
                near = np.exp(-((apart / self.length) ** 2) / 2)
            product *= CONSTANT + (1 - CONSTANT) * near
        return product

    def basis(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``P = V / sqrt(w)`` and ``Z = K P``; ``Z Z'`` is near K (Nystroem)."""
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
    """Return out-of-fold predictions of shape (n,), and sums whose sum predicts other rows.

    Both say how far rows are from the mean of the target. ``chosen`` holds the columns that were
    chosen without each fold, and with all rows; what they say is averaged. A random sample of rows
    spans a kernel ridge regression, and length and penalty minimise the generalised
    cross-validation error of the rows that teach.
    """
    out_of_fold, few = np.empty(len(target)), some_rows(len(target), MAX_SMOOTH_ROWS)
    known: dict[tuple[int, ...], Any] = {}
    sums: dict[tuple[Any, ...], KernelSum] = {}
    for k, columns in enumerate(chosen):
        if tuple(columns) not in known:
            distinct = np.unique(matrix[:, columns], axis=0)
            order = np.random.default_rng([seed, *columns]).permutation(len(distinct))
            centres = coarse(
                distinct[np.sort(order[:N_CENTRES])], is_category[columns], len(target)
            )
            empty = np.zeros(len(centres))
            spans = [KernelSum(columns, is_category[columns], s, centres, empty) for s in LENGTHS]
            bases = [span.basis(matrix) for span in spans]
            moments = [_moments(Z[few], target[few], fold[few]) for _, Z in bases]
            known[tuple(columns)] = spans, bases, moments
        spans, bases, moments = known[tuple(columns)]
        fits = [_ridge(*[np.tensordot(READS[k], part, 1) for part in m]) for m in moments]
        best = min(range(len(LENGTHS)), key=lambda i: fits[i][0])
        (_, weights), (P, Z) = fits[best], bases[best]
        if k < N_FOLDS:
            out_of_fold[fold == k] = Z[fold == k] @ weights
        own = sums.setdefault((*columns, LENGTHS[best]), spans[best])
        share = own.weights + P @ weights / len(chosen)
        sums[*columns, LENGTHS[best]] = replace(own, weights=share)
    return out_of_fold, list(sums.values())


def coarse(centres: FloatArray, is_category: BoolArray, n: int) -> FloatArray:
    """Round ranks so that about ten people share each: no centre is the row of a person."""
    steps = max(1, min(MAX_STEPS, n // PEOPLE_PER_STEP))
    ranks = np.where(centres == MISSING, MISSING, np.round(centres * steps) / steps)
    return np.unique(np.where(is_category, centres, ranks), axis=0)


def by_distinct_rows(x: FloatArray, answer: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return the answer for each row, worked out once for equal rows and for a part at a time."""
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
    """Return the lowest error of generalised cross-validation, and the weights.

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
    return float(error[best]), V @ (a * scaled[best])
