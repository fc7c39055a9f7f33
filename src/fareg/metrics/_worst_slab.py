"""Worst-slab coverage: WSC (Cauchois et al. 2021) and its quadratic extension WSC+."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fareg._columns import as_numbers, canonical, check_table
from fareg._encoding import LARGEST
from fareg._levels import Levels
from fareg._rows import check_numpy_seed
from fareg._validation import (
    MAX_COUNT,
    BoolArray,
    FloatArray,
    IntArray,
    InvalidInputError,
    check_choice,
    check_count,
    check_fraction,
    check_same_length,
)
from fareg.metrics._by_group import check_covered, clopper_pearson
from fareg.metrics._slab_fit import fitted_directions
from fareg.metrics._slab_search import (
    Points,
    Search,
    draw_directions,
    project,
    search_separately,
    search_shared,
    smallest_slab,
)

BAND = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class NumericCode:
    """The code of each column as numbers.

    Numbers stay, and the median replaces missing ones. Text becomes the position of the value among
    the sorted values of its column; a missing value comes after them, and an unseen one gets -1.
    """

    columns: tuple[float | Levels, ...]

    @classmethod
    def learn(cls, X: Any) -> NumericCode:
        """Learn medians and categories from a table."""
        columns: list[float | Levels] = []
        for _, column in canonical(check_table(X)).items():
            if column.dtype == object:
                columns.append(Levels.learn(column))
            else:
                numbers = as_numbers(column)
                columns.append(float(numbers.median()) if numbers.notna().any() else 0.0)
        return cls(tuple(columns))

    def transform(self, X: Any) -> FloatArray:
        """Return the table as a float array of shape (n_samples, n_features).

        >>> X = [["b", 1.0], ["a", None], [None, 3.0]]
        >>> NumericCode.learn(X).transform(X).tolist()
        [[1.0, 1.0], [0.0, 2.0], [2.0, 3.0]]
        """
        table = canonical(check_table(X))
        if table.shape[1] != len(self.columns):
            raise InvalidInputError(
                f"X must have the {len(self.columns)} columns of the search, got {table.shape[1]}"
            )
        numbers = np.empty(table.shape, dtype=np.float64)
        for j, ((name, column), code) in enumerate(zip(table.items(), self.columns, strict=True)):
            if isinstance(code, Levels):
                numbers[:, j] = code.codes(column)
            elif column.dtype == object:
                raise InvalidInputError(
                    f"column {name!r} must hold numbers as in the search, got text"
                )
            else:
                numbers[:, j] = as_numbers(column).fillna(code)
        if not (np.abs(numbers) <= LARGEST).all():  # cut_huge leaves LARGEST itself
            raise InvalidInputError(
                f"X must hold finite numbers below {LARGEST:g}; remove or clip infinite values"
            )
        return numbers + 0.0  # -0.0 and 0.0 are one value


def on_one_scale(X: Any) -> FloatArray:
    """Return a table as numbers of unit spread, so that units do not influence a direction.

    Text becomes the position of its value among the sorted values of its column, and the median
    replaces missing numbers.

    Examples
    --------
    >>> on_one_scale([["b", 1.0], ["a", None], ["b", 7.0], ["a", 1.0]]).round(2).tolist()
    [[1.0, -0.58], [-1.0, -0.58], [1.0, 1.73], [-1.0, -0.58]]
    """
    numbers = NumericCode.learn(X).transform(X)
    spread = numbers.std(axis=0)
    scaled: FloatArray = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled


@dataclass(frozen=True)
class NullBand:
    """Worst-slab coverage if coverage did not depend on X: the band of a permutation test.

    Attributes
    ----------
    low, median, high : float
        5%, 50% and 95% quantiles over the permutations of ``covered``.
    p_value : float
        ``(1 + #{permutations at most the observed value}) / (n_permutations + 1)``, which is valid
        if coverage is exchangeable over the rows.
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
    """The slab ``lower <= pi(x) <= upper`` with the worst coverage found.

    Attributes
    ----------
    value : float
        Coverage in the slab, on the searched points.
    v : ndarray of shape (n_features,)
        Linear coefficients of ``pi``.
    W : ndarray of shape (n_features, n_features) or None
        Quadratic coefficients of ``pi``, above and on the diagonal; None for a linear one.
    lower, upper : float
        The slab's edges; both belong to it.
    mass : float
        Share of the searched points in the slab.
    values : ndarray of shape (n_directions,)
        Worst coverage of each direction; ``value`` is their minimum. In an optimised search
        the first is that of the fitted direction, and the last are those of the features.
    test_value, test_mass : float or None
        Coverage and share of the held-out points in the slab, if ``test_size`` was given; the
        coverage is NaN if the slab holds none of them.
    test_low, test_high : float or None
        95% Clopper-Pearson interval of ``test_value``, as these points did not choose the slab.
    null : NullBand or None
        Permutation band of ``value``, if ``n_permutations`` is positive.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(10.0)[:, None]
    >>> slab = worst_slab_coverage(X, X[:, 0] < 5, delta=0.3, n_directions=2, random_state=0)
    >>> slab.value, slab.contains([[6.0], [2.0]]).tolist()
    (0.0, [True, False])
    """

    value: float
    direction: FloatArray = field(repr=False)
    lower: float
    upper: float
    mass: float
    values: FloatArray = field(repr=False)
    code: NumericCode = field(repr=False)
    null: NullBand | None
    test_value: float | None = None
    test_mass: float | None = None
    test_low: float | None = None
    test_high: float | None = None

    @property
    def v(self) -> FloatArray:
        """Linear coefficients."""
        return self.direction[: len(self.code.columns)]

    @property
    def W(self) -> FloatArray | None:
        """Quadratic coefficients."""
        d = len(self.code.columns)
        if len(self.direction) == d:
            return None
        W = np.zeros((d, d))
        W[np.triu_indices(d)] = self.direction[d:]
        return W

    def project(self, X: Any) -> FloatArray:
        """Return ``pi(x)`` of each row, shape (n_samples,)."""
        return self._project(self.code.transform(X))

    def contains(self, X: Any) -> BoolArray:
        """Return which rows lie in the slab, shape (n_samples,)."""
        return self._holds(self.code.transform(X))

    def _project(self, numbers: FloatArray) -> FloatArray:
        kind = "linear" if self.W is None else "quadratic"
        projection: FloatArray = project(numbers, self.direction[None], kind)[0]
        return projection

    def _holds(self, numbers: FloatArray) -> BoolArray:
        projection = self._project(numbers)
        return (self.lower <= projection) & (projection <= self.upper)


def worst_slab_coverage(
    X: Any,
    covered: Any,
    *,
    delta: Any = 0.1,
    n_directions: int = 1000,
    kind: str = "linear",
    test_size: float | None = None,
    n_permutations: int = 0,
    search: str = "random",
    size_rule: str = "ceil",
    random_state: Any = None,
) -> Any:
    """Find the slab of mass at least ``delta`` with the worst coverage.

    For random projections ``pi``, look at every slab ``{x : lower <= pi(x) <= upper}`` that holds
    at least a share ``delta`` of the points; the worst coverage over all of them is WSC for linear
    ``pi(x) = v'x`` and WSC+ for quadratic ``pi(x) = x'Wx + v'x``. The search is exact for each
    direction. As a minimum over many slabs, the value is biased low even for perfect conditional
    coverage. Two remedies: ``test_size`` evaluates the slab on points that did not choose it, and
    ``n_permutations`` shows which values to expect if coverage did not depend on X.

    Parameters
    ----------
    X : frame or array of shape (n_samples, n_features)
        Numbers are used as they are (the median replaces missing ones), so scale features in very
        different units first. Other columns are coded by the order of their sorted values, with
        one more code for missing values.
    covered : array of shape (n_samples,)
        Whether each label is in its set.
    delta : float, default=0.1
        Smallest share of the points in a slab; see `worst_slab_curve` for several.
    n_directions : int, default=1000
        Number of random directions.
    kind : {"linear", "quadratic"}, default="linear"
        The projections: ``v``, and each column of ``W``, are uniform on the unit sphere. Random
        quadratics thin out quickly with the number of features: pass few, such as the sensitive
        ones, or search with "optimised".
    test_size : float, optional
        Share of the points held out from the search; all results except those named ``test_...``
        refer to the other points.
    n_permutations : int, default=0
        Number of permutations of ``covered`` for the null band; each repeats the whole search.
    search : {"random", "optimised"}, default="random"
        With "optimised" each feature is a direction too, and one more is fitted: least squares of
        the missed points on the few features (with squares and products if quadratic) that predict
        them, then descent of the slab's coverage in their coefficients. The value is never above
        that of "random" with the same seed.
    size_rule : {"ceil", "round"}, default="ceil"
        A slab has at least ``ceil(delta * n)`` points, or ``round(delta * n) + 1`` as in the code
        published with WSC+.
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
    is_list = isinstance(delta, list)
    deltas = delta if is_list else [delta]
    deltas = [check_fraction("delta", share, include_one=True) for share in deltas]
    check_count("n_directions", n_directions, maximum=MAX_COUNT)
    check_count("n_permutations", n_permutations, minimum=0, maximum=MAX_COUNT)
    check_numpy_seed("random_state", random_state)
    check_choice("kind", kind, ("linear", "quadratic"))
    check_choice("search", search, ("random", "optimised"))
    check_choice("size_rule", size_rule, ("ceil", "round"))
    rng = np.random.default_rng(random_state)
    code = NumericCode.learn(X)
    numbers = code.transform(X)
    directions = draw_directions(n_directions, numbers.shape[1], kind, rng)
    test = _held_out(len(covered), test_size, rng)
    points = Points.of(numbers[~test], kind)
    missed = points.missed(covered[~test], n_permutations, rng)
    n = len(points.row)
    sizes = [smallest_slab(delta, n, rule=size_rule) for delta in deltas]
    searches = [Search(size, missed, n) for size in sizes]
    if search == "optimised":
        directions = np.vstack([directions, np.eye(numbers.shape[1], directions.shape[1])])
        # Fitted directions come first, because a bad slab found early shortens the search.
        for found, fitted in zip(searches, fitted_directions(points, missed, sizes), strict=True):
            search_separately(found, points, missed, fitted)
    search_shared(searches, points, missed, directions)
    slabs = []
    for found in searches:
        value, direction, lower, upper, n_inside = found.worst
        null = _null_band(value, found.null) if n_permutations else None
        values, mass = np.array(found.values), n_inside / n
        slabs.append(WorstSlab(value, direction, lower, upper, mass, values, code, null))
    if test_size is not None:
        slabs = [_tested(slab, numbers[test], covered[test]) for slab in slabs]
    return slabs if is_list else slabs[0]


def worst_slab_curve(
    X: Any, covered: Any, *, deltas: Sequence[float], **options: Any
) -> list[WorstSlab]:
    """Find the worst slab for each of several masses, as `worst_slab_coverage` does for one.

    All masses share directions, held-out points and permutations, so points are projected and
    sorted only once.

    Parameters
    ----------
    deltas : sequence of float
        Smallest shares of the points in a slab.
    X, covered, options
        As in `worst_slab_coverage`.

    Returns
    -------
    list of WorstSlab
        Each equals the answer of `worst_slab_coverage` for its mass and the same seed.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(10.0)[:, None]
    >>> curve = worst_slab_curve(X, X[:, 0] < 5, deltas=(0.5, 1.0), n_directions=2, random_state=0)
    >>> [slab.value for slab in curve]
    [0.0, 0.5]
    """
    if not isinstance(deltas, list | tuple) and getattr(deltas, "ndim", 0) != 1:
        raise InvalidInputError(f"deltas must be a list of shares in (0, 1], got {deltas!r}")
    slabs: list[WorstSlab] = worst_slab_coverage(X, covered, delta=list(deltas), **options)
    return slabs


def _held_out(n_samples: int, test_size: float | None, rng: np.random.Generator) -> BoolArray:
    """Mark the points to hold out from the search: at least one, but not all."""
    test = np.zeros(n_samples, dtype=bool)
    if test_size is None:
        return test
    check_fraction("test_size", test_size)
    if n_samples < 2:
        raise InvalidInputError("test_size needs at least 2 points to split, got 1; leave it None")
    n_test = min(smallest_slab(test_size, n_samples), n_samples - 1)
    test[rng.permutation(n_samples)[:n_test]] = True
    return test


def _tested(slab: WorstSlab, numbers: FloatArray, covered: BoolArray) -> WorstSlab:
    """Add the results on points that did not choose the slab."""
    inside = slab._holds(numbers)
    n, k = int(inside.sum()), int(covered[inside].sum())
    low, high = clopper_pearson(k, n)
    return replace(
        slab,
        test_value=k / n if n else float("nan"),
        test_mass=float(inside.mean()),
        test_low=float(low),
        test_high=float(high),
    )


def _null_band(value: float, slabs: IntArray) -> NullBand:
    missed, points = slabs
    null = (points - missed) / points
    low, median, high = np.quantile(null, BAND).tolist()
    n_at_most = int((null <= value).sum())
    return NullBand(low, median, high, (1 + n_at_most) / (len(null) + 1), len(null))
