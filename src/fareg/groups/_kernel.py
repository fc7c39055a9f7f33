"""Disadvantage by kernel ridge regression on a few features: smooth where they are numbers.

Numbers are read as ranks in fine bins and texts as levels. The kernel of two rows is a product over
features, each factor of which has a constant part, so effects of single features are learned along
with their interactions. A random sample of rows spans the regression (Nystroem's method), which
keeps its cost linear in the number of rows. Everything is in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fareg._columns import as_numbers
from fareg._encoding import cut_huge
from fareg._levels import Levels, distinct_rows
from fareg._threads import one_thread
from fareg._validation import FloatArray, IntArray
from fareg.groups._folds import N_FOLDS, Folds, some_rows

N_BINS = 200  # bins of a number
N_CENTRES = 150  # rows that span the regression
CONSTANT = 0.3  # part of each factor that does not depend on the feature
OTHER_LEVEL = 0.3  # likeness of two different levels of a text
LENGTHS = (0.1, 0.3)  # shares of the rows over which numbers are alike
PENALTIES = 10.0 ** np.arange(0, 3.1, 0.5)
SMALLEST = 1e-6  # directions of the centres that are flatter than this are left out
MAX_ROWS = 20_000  # rows that teach the regression
CHUNK = 16_384  # rows that are compared with the centres at once


@dataclass(frozen=True)
class Reading:
    """How one column becomes small whole numbers: levels of a text, fine bins of a number."""

    name: str
    levels: Levels | None
    edges: FloatArray  # of the bins of a number

    @classmethod
    def learn(cls, column: pd.Series) -> Reading:
        """Find the levels or the bins of a canonical column."""
        if column.dtype == object:
            return cls(str(column.name), Levels.learn(column), np.empty(0))
        numbers = np.asarray(cut_huge(column.dropna()), dtype=np.float64)
        shares = np.arange(1, N_BINS) / N_BINS
        edges = np.quantile(numbers, shares, method="inverted_cdf") if len(numbers) else shares
        return cls(str(column.name), None, edges)

    def codes(self, columns: pd.DataFrame) -> IntArray:
        """Return the level or the bin of each row; -1 for a new level or a missing number.

        Bins that ties have emptied are skipped: a value lies in the middle of the bins it fills.
        """
        column = columns[self.name]
        if self.levels is not None:
            return self.levels.codes(column)
        numbers = np.asarray(cut_huge(as_numbers(column)), dtype=np.float64)
        first, last = (np.searchsorted(self.edges, numbers, side) for side in ("left", "right"))
        return np.where(np.isnan(numbers), -1, (first + last) // 2).astype(np.int64)

    def likeness(self, codes: IntArray, centres: IntArray, length: float) -> FloatArray:
        """Return how alike rows and centres are in this feature, shape (n, n_centres)."""
        if self.levels is not None:
            same = codes[:, None] == centres
            return np.where(same, 1.0, CONSTANT + (1 - CONSTANT) * OTHER_LEVEL)
        steps = np.arange(N_BINS) / N_BINS
        table = np.exp(-(((steps[:, None] - steps) / length) ** 2) / 2)
        table = np.pad(table, (0, 1))  # the last row and column, which -1 points to: missing
        table[-1, -1] = 1.0
        return np.asarray((CONSTANT + (1 - CONSTANT) * table)[:, centres][codes])


@dataclass(frozen=True)
class KernelPart:
    """A weighted sum of likenesses to some rows, the centres."""

    features: tuple[int, ...]
    length: float
    centres: IntArray  # (n_centres, n_features of this part)
    weights: FloatArray  # (n_centres,)


@dataclass(frozen=True)
class KernelRegression:
    """The mean over folds of what each fold's regression says."""

    readings: tuple[Reading, ...]
    mean: float
    parts: tuple[KernelPart, ...]

    def predict(self, columns: pd.DataFrame) -> FloatArray:
        """Return the disadvantage of each row, shape (n,)."""
        codes = [reading.codes(columns) for reading in self.readings]
        total = np.full(len(columns), self.mean)
        for part in self.parts:
            own = [codes[j] for j in part.features]
            # rows of the same bins and levels have the same answer
            first, which = distinct_rows(pd.DataFrame(dict(enumerate(own))))
            distinct = np.column_stack(own)[first]
            readings = [self.readings[j] for j in part.features]
            starts = range(0, len(distinct), CHUNK)
            answers = [
                kernel(readings, distinct[i : i + CHUNK], part.centres, part.length) @ part.weights
                for i in starts
            ]
            total += np.concatenate(answers)[which] if answers else 0.0
        return total


def kernel(
    readings: list[Reading], codes: IntArray, centres: IntArray, length: float
) -> FloatArray:
    """Return the product of the likenesses in each feature, shape (n, n_centres)."""
    product = np.ones((len(codes), len(centres)))
    for j, reading in enumerate(readings):
        product *= reading.likeness(codes[:, j], centres[:, j], length)
    return product


@one_thread()  # threads wait for each other longer than these small matrices take
def learn_kernel(
    columns: pd.DataFrame,
    target: FloatArray,
    folds: Folds,
    reads: tuple[tuple[str, ...], ...],
    rng: np.random.Generator,
) -> tuple[FloatArray, KernelRegression]:
    """Return out-of-fold predictions of shape (n,) and the regressions.

    ``reads`` holds for each fold the features that were chosen without it. Length and penalty of a
    fold minimise the generalised cross-validation error of its own training rows.
    """
    names = list(dict.fromkeys(name for chosen in reads for name in chosen))
    readings = tuple(Reading.learn(columns[name]) for name in names)
    codes = np.column_stack([reading.codes(columns) for reading in readings])
    mean, few = float(target.mean()), some_rows(len(target), MAX_ROWS)
    out_of_fold = np.full(len(target), mean)
    parts: dict[tuple[tuple[int, ...], float], KernelPart] = {}
    for chosen in dict.fromkeys(reads):
        features = tuple(names.index(name) for name in chosen)
        own = [readings[j] for j in features]
        distinct = np.unique(codes[:, features], axis=0)
        centres = distinct[np.sort(rng.permutation(len(distinct))[:N_CENTRES])]
        bases = [_basis(own, codes[:, features], centres, length) for length in LENGTHS]
        for k in (k for k in range(N_FOLDS) if reads[k] == chosen):
            trains = few[folds.fold[few] != k]
            answers = [_ridge(Z[trains], target[trains] - mean) for _, Z in bases]
            best = min(range(len(answers)), key=lambda i: answers[i][0])
            to_centres, Z = bases[best]
            weights = answers[best][1]
            held = folds.fold == k
            out_of_fold[held] += Z[held] @ weights
            # folds that share their centres are added up, so that rows are compared once
            key = (features, LENGTHS[best])
            before = parts[key].weights if key in parts else 0.0
            parts[key] = KernelPart(*key, centres, to_centres @ weights / N_FOLDS + before)
    return out_of_fold, KernelRegression(readings, mean, tuple(parts.values()))


def _basis(
    readings: list[Reading], codes: IntArray, centres: IntArray, length: float
) -> tuple[FloatArray, FloatArray]:
    """Return P of shape (n_centres, r) and the inputs ``Z = K P``, with ``Z Z'`` near the kernel.

    With ``C = V diag(w) V'`` the kernel of the centres, ``P = V / sqrt(w)``.
    """
    w, V = np.linalg.eigh(kernel(readings, centres, centres, length))
    kept = w > SMALLEST * w.max()
    P = V[:, kept] / np.sqrt(w[kept])
    return P, kernel(readings, codes, centres, length) @ P


def _ridge(Z: FloatArray, y: FloatArray) -> tuple[float, FloatArray]:
    """Return the lowest error of generalised cross-validation, and the weights that have it.

    With ``Z'Z = V diag(w) V'``, the fit of penalty c has ``trace = sum w / (w + c)`` and the error
    ``RSS / (1 - trace / n)^2``.
    """
    w, V = np.linalg.eigh(Z.T @ Z)
    w = np.maximum(w, 0.0)
    a = V.T @ (Z.T @ y)
    scaled = 1 / (w + PENALTIES[:, None])  # (n_penalties, r)
    rss = y @ y - 2 * (a**2 * scaled).sum(axis=1) + (w * (a * scaled) ** 2).sum(axis=1)
    trace = (w * scaled).sum(axis=1)
    error = rss / (1 - trace / (len(y) + 1)) ** 2
    best = int(error.argmin())
    return float(error[best]), V @ (a * scaled[best])
