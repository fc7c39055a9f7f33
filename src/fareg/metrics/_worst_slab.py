"""Worst-slab coverage: WSC (Cauchois et al. 2021) and its quadratic extension WSC+."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fareg._frames import distinct_rows
from fareg._validation import (
    BoolArray,
    FloatArray,
    IntArray,
    InvalidInputError,
    check_choice,
    check_count,
    check_covered,
    check_fraction,
    check_same_length,
)
from fareg.metrics._encoding import NumericCode
from fareg.metrics._segments import Segments, smallest_slab, worst_segment

KINDS = ("linear", "quadratic")
CHUNK_ELEMENTS = 2**16  # numbers per working array, so that memory does not grow with directions
BAND = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Directions:
    """A batch of projections ``pi(x) = x' W x + v' x``; a linear one has no ``W``.

    Attributes
    ----------
    v : ndarray of shape (n_directions, n_features)
        Linear coefficients.
    W : ndarray of shape (n_directions, n_features, n_features) or None
        Quadratic coefficients.
    """

    v: FloatArray
    W: FloatArray | None = None

    @classmethod
    def draw(
        cls, n_directions: int, n_features: int, kind: str, rng: np.random.Generator
    ) -> Directions:
        """Draw directions: ``v`` and each column of ``W`` uniform on the unit sphere."""
        n_vectors = 1 if kind == "linear" else 1 + n_features
        vectors = rng.standard_normal((n_directions, n_vectors, n_features))
        vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
        v = vectors[:, 0]
        return cls(v) if kind == "linear" else cls(v, vectors[:, 1:].transpose(0, 2, 1))

    def __getitem__(self, rows: slice) -> Directions:
        return Directions(self.v[rows], None if self.W is None else self.W[rows])

    def project(self, numbers: FloatArray) -> FloatArray:
        """Return the projections, shape (n_directions, n_samples), of an array of numbers.

        Sums run feature by feature, elementwise: unlike a matrix product, whose rounding depends
        on how it is blocked, equal rows get equal projections whatever rows and directions come
        with them, so ties are ties.
        """
        features = np.ascontiguousarray(numbers.T)
        projection = np.zeros((len(self.v), len(numbers)))
        factor, term = np.empty_like(projection), np.empty_like(projection)
        for i, x in enumerate(features):
            factor[:] = self.v[:, i, None]
            if self.W is not None:
                # x' W x = sum_i x_i (W_ii x_i + sum_{j > i} (W_ij + W_ji) x_j)
                both = np.where(np.arange(len(features)) > i, self.W[:, i] + self.W[:, :, i], 0.0)
                both[:, i] = self.W[:, i, i]
                for j in range(i, len(features)):
                    factor += np.multiply(both[:, j, None], features[j], out=term)
            projection += np.multiply(factor, x, out=term)
        return projection


@dataclass(frozen=True)
class NullBand:
    """Worst-slab coverage if coverage had nothing to do with X: the band of a permutation test.

    Attributes
    ----------
    low, median, high : float
        5%, 50% and 95% quantiles over the permutations of ``covered``.
    p_value : float
        ``(1 + #{permutations at most the observed value}) / (n_permutations + 1)``: valid for the
        hypothesis that coverage is exchangeable over the rows.
    n_permutations : int
        Number of permutations.

    Examples
    --------
    >>> NullBand(low=0.8, median=0.84, high=0.88, p_value=0.01, n_permutations=99).high
    0.88
    """

    low: float
    median: float
    high: float
    p_value: float
    n_permutations: int


@dataclass(frozen=True, eq=False)
class WorstSlab:
    """The slab ``lower <= pi(x) <= upper`` with the worst coverage that was found.

    Attributes
    ----------
    value : float
        Coverage in the slab, on the points that were searched.
    v : ndarray of shape (n_features,)
        Linear coefficients of ``pi``.
    W : ndarray of shape (n_features, n_features) or None
        Quadratic coefficients of ``pi``; None for a linear one.
    lower, upper : float
        The slab's edges; both belong to it.
    mass : float
        Share of the searched points in the slab.
    values : ndarray of shape (n_directions,)
        Worst coverage of each direction; ``value`` is their minimum.
    test_value, test_mass : float or None
        Coverage and share of the held-out points in the slab, if ``test_size`` was given;
        the coverage is NaN if none of them falls into it.
    null : NullBand or None
        Permutation band of ``value``, if permutations were asked for.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(10.0)[:, None]
    >>> slab = worst_slab_coverage(X, X[:, 0] < 5, delta=0.3, n_directions=2, random_state=0)
    >>> slab.value, slab.contains([[6.0], [2.0]]).tolist()
    (0.0, [True, False])
    """

    value: float
    v: FloatArray
    W: FloatArray | None
    lower: float
    upper: float
    mass: float
    values: FloatArray = field(repr=False)
    test_value: float | None
    test_mass: float | None
    null: NullBand | None
    code: NumericCode = field(repr=False)

    def project(self, X: Any) -> FloatArray:
        """Return ``pi(x)`` of each row, shape (n_samples,)."""
        projection: FloatArray = self.directions.project(self.code.transform(X))[0]
        return projection

    def contains(self, X: Any) -> BoolArray:
        """Tell which rows lie in the slab, shape (n_samples,)."""
        projection = self.project(X)
        return (self.lower <= projection) & (projection <= self.upper)

    @property
    def directions(self) -> Directions:
        """The slab's ``pi`` as a batch of one."""
        return Directions(self.v[None], None if self.W is None else self.W[None])


def worst_slab_coverage(
    X: Any,
    covered: Any,
    *,
    delta: float = 0.1,
    n_directions: int = 1000,
    kind: str = "linear",
    test_size: float | None = None,
    n_permutations: int = 0,
    slab: str = "value",
    size_rule: str = "ceil",
    random_state: Any = None,
) -> WorstSlab:
    """Find the slab of mass at least ``delta`` whose points are covered least.

    For random projections ``pi``, look at every slab ``{x : lower <= pi(x) <= upper}`` that holds
    at least a share ``delta`` of the points; the worst coverage over all of them is WSC for linear
    ``pi(x) = v'x`` and WSC+ for quadratic ``pi(x) = x'Wx + v'x``. The search is exact for each
    direction and takes one sort and a few linear passes.

    Being a minimum over many slabs, the value is biased low even for perfect conditional
    coverage. Two remedies: ``test_size`` evaluates the slab on points that did not choose it, and
    ``n_permutations`` says what values to expect if coverage did not depend on X.

    Parameters
    ----------
    X : frame or array of shape (n_samples, n_features)
        Numbers are used as they are (missing: the median), so features in very different units
        should be scaled first. Other columns are coded by the order of their sorted values, with
        a code of its own for missing ones.
    covered : array of shape (n_samples,)
        Whether each label is in its set.
    delta : float, default=0.1
        Smallest share of the points in a slab.
    n_directions : int, default=1000
        Number of random directions.
    kind : {"linear", "quadratic"}, default="linear"
        The projections: ``v``, and each column of ``W``, are uniform on the unit sphere. Random
        quadratics thin out quickly with the number of features: pass few, such as the sensitive
        ones.
    test_size : float, optional
        Share of the points held out from the search; everything but ``test_value`` and
        ``test_mass`` then refers to the other points.
    n_permutations : int, default=0
        Number of permutations of ``covered`` for the null band.
    slab : {"value", "index"}, default="value"
        With "value" points with the same projection are in or out together. With "index" a slab
        may split them, in their order of appearance, as published implementations do.
    size_rule : {"ceil", "round"}, default="ceil"
        A slab has at least ``ceil(delta * n)`` points, or ``round(delta * n) + 1`` to compare with
        figures of the code published with WSC+.
    random_state : int, Generator or None
        Seed of the directions, the held-out points and the permutations.

    Returns
    -------
    WorstSlab

    References
    ----------
    Cauchois, M., Gupta, S. & Duchi, J. (2021). Knowing what you know: valid and validated
    confidence sets in multiclass and multilabel prediction. JMLR 22(81).

    "Fair conformal classification via learning representation-based groups" (ICLR 2026), for WSC+.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 2))
    >>> hard = (X[:, 0] < 0.5) == (X[:, 1] < 0.5)
    >>> covered = rng.uniform(size=2000) < np.where(hard, 0.8, 1.0)
    >>> line = worst_slab_coverage(X, covered, delta=0.3, random_state=0)
    >>> curve = worst_slab_coverage(X, covered, delta=0.3, kind="quadratic", random_state=0)
    >>> print(f"{line.value:.3f} {curve.value:.3f}")
    0.815 0.800
    """
    covered = check_covered(covered)
    check_same_length(X=X, covered=covered)
    delta = check_fraction("delta", delta, include_one=True)
    check_count("n_directions", n_directions)
    check_count("n_permutations", n_permutations, minimum=0)
    check_choice("kind", kind, KINDS)
    check_choice("slab", slab, ("value", "index"))
    check_choice("size_rule", size_rule, ("ceil", "round"))
    rng = np.random.default_rng(random_state)
    code = NumericCode.learn(X)
    numbers = code.transform(X)
    directions = Directions.draw(n_directions, numbers.shape[1], kind, rng)
    test = _held_out(len(covered), test_size, rng)
    min_points = smallest_slab(delta, int((~test).sum()), rule=size_rule)
    points = _Points.of(numbers[~test], merge=slab == "value")
    counts = points.count(covered[~test], n_permutations, rng)
    best, values, null_values = _search(points, counts, directions, min_points)
    found = WorstSlab(
        value=float(values[best.direction]),
        v=directions.v[best.direction],
        W=None if directions.W is None else directions.W[best.direction],
        lower=best.lower,
        upper=best.upper,
        mass=best.points / len(points.row),
        values=values,
        test_value=None,
        test_mass=None,
        null=_null_band(float(values[best.direction]), null_values) if n_permutations else None,
        code=code,
    )
    return found if test_size is None else _evaluate(found, numbers[test], covered[test])


def _held_out(n_samples: int, test_size: float | None, rng: np.random.Generator) -> BoolArray:
    """Mark the points that the search does not see: at least one, but not all."""
    test = np.zeros(n_samples, dtype=bool)
    if test_size is None:
        return test
    check_fraction("test_size", test_size)
    if n_samples < 2:
        raise InvalidInputError("test_size needs at least 2 points to split, got 1; leave it None")
    n_test = min(smallest_slab(test_size, n_samples), n_samples - 1)
    test[rng.permutation(n_samples)[:n_test]] = True
    return test


def _evaluate(found: WorstSlab, numbers: FloatArray, covered: BoolArray) -> WorstSlab:
    projection = found.directions.project(numbers)[0]
    inside = (found.lower <= projection) & (projection <= found.upper)
    value = float(covered[inside].mean()) if inside.any() else float("nan")
    return replace(found, test_value=value, test_mass=float(inside.mean()))


def _null_band(value: float, null_values: FloatArray) -> NullBand:
    n_permutations = len(null_values)
    low, median, high = np.quantile(null_values, BAND).tolist()
    n_at_most = int((null_values <= value).sum())
    return NullBand(low, median, high, (1 + n_at_most) / (n_permutations + 1), n_permutations)


@dataclass(frozen=True)
class _Points:
    """The distinct rows of a table: a table of categories has few of them, however long it is."""

    numbers: FloatArray  # (n_distinct, n_features)
    row: IntArray  # (n_samples,): the distinct row of each point
    size: IntArray  # (n_distinct,): how many points share it
    merge: bool  # whether points with equal projections stay together

    @classmethod
    def of(cls, numbers: FloatArray, *, merge: bool) -> _Points:
        n_samples = len(numbers)
        if not merge:
            return cls(
                np.asfortranarray(numbers),
                np.arange(n_samples, dtype=np.int64),
                np.ones(n_samples, np.int64),
                merge,
            )
        first, row = distinct_rows(pd.DataFrame(numbers))
        return cls(np.asfortranarray(numbers[first]), row, np.bincount(row), merge)

    def count(
        self, covered: BoolArray, n_permutations: int, rng: np.random.Generator
    ) -> npt.NDArray[Any]:
        """Count covered points per distinct row: as observed, then for each permutation."""
        counts = np.empty((1 + n_permutations, len(self.size)), np.min_scalar_type(self.size.max()))
        counts[0] = np.bincount(self.row[covered], minlength=len(self.size))
        for permuted in counts[1:]:
            permuted[:] = np.bincount(self.row[rng.permutation(covered)], minlength=len(self.size))
        return counts

    def in_order(self, directions: Directions) -> Iterator[_Blocks]:
        """Sort the points along each direction; a chunk of directions is projected at a time."""
        step = max(1, CHUNK_ELEMENTS // len(self.size))
        for first in range(0, len(directions.v), step):
            projection = directions[first : first + step].project(self.numbers)
            order = np.argsort(projection, axis=1)
            # row by row: take_along_axis is three times slower, and half as slow as the sort
            ordered = np.stack([z[one] for z, one in zip(projection, order, strict=True)])
            is_start = np.diff(ordered, axis=1, prepend=-np.inf) > 0
            no_ties = bool(is_start.all())
            if not self.merge and not no_ties:  # split points keep their order of appearance
                order = np.argsort(projection, axis=1, kind="stable")
            if not self.merge or (no_ties and len(self.size) == len(self.row)):
                yield _Blocks(ordered, order, None, self.size)
            elif no_ties:
                yield _Blocks(ordered, order, None, self.size[order])
            else:
                for z, one, start in zip(ordered, order, is_start, strict=True):
                    starts = np.flatnonzero(start)
                    size = np.add.reduceat(self.size[one], starts)
                    yield _Blocks(z[None, starts], one[None], starts, size)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of points with equal projections, in increasing order, along some directions.

    Directions with as many blocks as distinct rows come together, others alone.
    """

    projection: FloatArray  # (n_directions, n_blocks)
    order: IntArray  # (n_directions, n_distinct)
    starts: IntArray | None  # first position of each block in order; None: one row each
    size: IntArray  # (n_blocks,) or (n_directions, n_blocks): points of each block

    def sum(self, counts: npt.NDArray[Any], order: IntArray) -> npt.NDArray[Any]:
        """Add up counts of shape (..., n_distinct) over each block, along some of the orders."""
        counts = np.take(counts, order, axis=-1)
        if self.starts is None:
            return counts
        return np.add.reduceat(counts, self.starts, axis=-1, dtype=np.int64)


@dataclass(frozen=True)
class _Best:
    direction: int
    lower: float
    upper: float
    points: int


def _search(
    points: _Points, counts: npt.NDArray[Any], directions: Directions, min_points: int
) -> tuple[_Best, FloatArray, FloatArray]:
    """Return the worst slab, the worst coverage of each direction, and that of each permutation."""
    values = np.empty(len(directions.v))
    null = [counts[1:].sum(axis=1, dtype=np.int64), np.full(len(counts) - 1, len(points.row))]
    best = _Best(0, -np.inf, np.inf, len(points.row))
    done = 0
    for blocks in points.in_order(directions):
        segments = Segments.at_least(min_points, blocks.size)
        worst = worst_segment(blocks.sum(counts[0], blocks.order), segments)
        chunk = worst.covered / worst.points
        values[done : done + len(chunk)] = chunk
        r = int(np.argmin(chunk))
        if done == 0 or chunk[r] < values[best.direction]:
            lower, upper = blocks.projection[r, [worst.start[r], worst.stop[r] - 1]].tolist()
            best = _Best(done + r, lower, upper, int(worst.points[r]))
        done += len(chunk)
        _search_null(null, counts[1:], blocks, segments)
    return best, values, null[0] / null[1]


def _search_null(
    null: list[IntArray], counts: npt.NDArray[Any], blocks: _Blocks, segments: Segments
) -> None:
    """Lower the worst ratio of each permutation, covered and points, along more directions.

    A permutation carries its worst ratio from direction to direction: most cannot beat it, and one
    linear pass proves it.
    """
    n_permutations, n_distinct = counts.shape
    step = max(1, CHUNK_ELEMENTS // n_distinct)
    for together in _parts(len(blocks.order), step // max(1, n_permutations)):
        for part in _parts(n_permutations, step):
            covered = blocks.sum(counts[part], blocks.order[together])
            n_part, n_together = covered.shape[:2]
            worst = worst_segment(
                covered.reshape(n_part * n_together, -1),
                segments.of(np.tile(together, n_part)),
                below=(null[0][part].repeat(n_together), null[1][part].repeat(n_together)),
            )
            ratio = (worst.covered / worst.points).reshape(n_part, n_together)
            least = ratio.argmin(axis=1) + n_together * np.arange(n_part)
            null[0][part], null[1][part] = worst.covered[least], worst.points[least]


def _parts(n: int, step: int) -> list[IntArray]:
    """Return the numbers 0, ..., n - 1 in parts of at most ``step``, at least one each."""
    return [np.arange(n)[i : i + max(1, step)] for i in range(0, n, max(1, step))]
