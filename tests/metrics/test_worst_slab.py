"""The worst slab: brute force, laws, and what chance alone gives."""

from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg import _validation
from fareg.datasets import make_metric_benchmark
from fareg.metrics import _slab_search, clopper_pearson, worst_slab_coverage, worst_slab_curve
from fareg.metrics._slab_fit import Fit
from fareg.metrics._slab_search import (
    Points,
    draw_directions,
    project,
    smallest_slab,
    worst_segments,
)

KINDS = ("linear", "quadratic")


# --- along one direction ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "n", "expected"),
    [(0.1, 30, 3), (0.07, 100, 7), (0.1, 31, 4), (1.0, 5, 5), (0.001, 5, 1), (0.3, 10, 3)],
)
def test_smallest_slab_is_the_decimal_ceiling(delta, n, expected):
    assert smallest_slab(delta, n) == expected
    assert smallest_slab(0.1, 500, rule="round") == 51


def most_missed(missed, size, fewest):
    """Largest missed share over all segments with enough points, as an exact fraction."""
    return max(
        Fraction(int(sum(missed[i:j])), int(sum(size[i:j])))
        for i in range(len(size))
        for j in range(i + 1, len(size) + 1)
        if sum(size[i:j]) >= fewest
    )


def before(counts):
    return np.concatenate([np.zeros((len(counts), 1), int), np.cumsum(counts, axis=1)], axis=1)


@st.composite
def sequences(draw):
    n_blocks, largest = draw(st.integers(1, 15)), draw(st.sampled_from([1, 4]))
    size = draw(st.lists(st.integers(1, largest), min_size=n_blocks, max_size=n_blocks))
    rows = [[draw(st.integers(0, s)) for s in size] for _ in range(draw(st.integers(1, 3)))]
    return np.array(rows), np.array(size), draw(st.integers(1, sum(size)))


@settings(max_examples=300, deadline=None)
@given(sequences())
def test_worst_segments_equal_brute_force(case):
    missed, size, fewest = case
    points = before(size[None])[0]
    worst = worst_segments(before(missed), points, fewest)
    known = np.array([[1], [3]]).repeat(len(missed), axis=1)
    beaten = worst_segments(before(missed), points, fewest, known)
    for row, start, stop, n_missed, n_points, *more in zip(missed, *worst, *beaten, strict=True):
        assert n_missed == row[start:stop].sum()
        assert n_points == size[start:stop].sum() >= fewest
        expected = most_missed(row, size, fewest)
        assert Fraction(int(n_missed), int(n_points)) == expected
        found = Fraction(int(more[2]), int(more[3]))
        assert found == max(expected, Fraction(1, 3))


@pytest.mark.parametrize("length", [5, 12, 13, 30, 90])
def test_no_row_with_a_worse_segment_is_ruled_out(monkeypatch, length):
    """Two points are missed, wherever they lie between the cuts that are looked at."""
    monkeypatch.setattr(_slab_search, "N_COARSE", 12)
    place = np.arange(120)
    starts = np.arange(121 - length)[:, None]
    missed = before((place == starts) | (place == starts + length - 1))
    points, share = np.arange(121), np.full(len(missed), 1.4 / length)
    hopeful = _slab_search._may_be_worse(missed, points, length, share)
    assert len(hopeful) == len(missed)
    assert len(_slab_search._may_be_worse(missed, points, 120, np.ones(len(missed)))) == 0


# --- along many directions ----------------------------------------------------------------------


def brute_force(z, covered, fewest):
    """Smallest coverage over all slabs of one projection, as an exact fraction."""
    _, place = np.unique(z, return_inverse=True)
    missed, size = (np.bincount(place, weights) for weights in (~covered, np.ones(len(z))))
    return 1 - most_missed(missed, size, fewest)


@st.composite
def problems(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([1, 2, 3, 10**6]))  # few levels: many ties
    X = rng.integers(0, levels, (n, draw(st.integers(1, 3)))).astype(float)
    covered = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 0.7, 0.9, 1.0]))
    delta = draw(st.sampled_from([0.05, 0.1, 0.2, 0.3, 0.5, 0.77, 1.0]))
    return X, covered, delta


@settings(max_examples=300, deadline=None)
@given(problems(), st.sampled_from(KINDS))
def test_equals_brute_force(problem, kind):
    X, covered, delta = problem
    options = {"delta": delta, "n_directions": 3, "kind": kind, "random_state": 0}
    found = worst_slab_coverage(X, covered, **options)
    directions = draw_directions(3, X.shape[1], kind, np.random.default_rng(0))
    fewest = smallest_slab(delta, len(X))
    for z, value in zip(project(X, directions, kind), found.values, strict=True):
        assert value == float(brute_force(z, covered, fewest))
    fitted = worst_slab_coverage(X, covered, search="optimised", **options)
    np.testing.assert_array_equal(fitted.values[1:4], found.values)
    for slab_found in (found, fitted):
        assert slab_found.value == slab_found.values.min()
        inside = slab_found.contains(X)
        assert covered[inside].mean() == pytest.approx(slab_found.value, abs=1e-15)
        assert slab_found.mass == inside.mean() >= fewest / len(X)


@settings(max_examples=50, deadline=None)
@given(problems(), st.sampled_from(["random", "optimised"]))
def test_order_of_rows_does_not_matter_and_mass_helps(problem, search):
    X, covered, delta = problem
    shuffled = np.random.default_rng(0).permutation(len(X))
    options = {"n_directions": 5, "kind": "quadratic", "search": search, "random_state": 1}
    found = worst_slab_coverage(X, covered, delta=delta, **options)
    again = worst_slab_coverage(X[shuffled], covered[shuffled], delta=delta, **options)
    np.testing.assert_array_equal(found.values, again.values)
    assert (found.lower, found.upper, found.mass) == (again.lower, again.upper, again.mass)
    options["search"] = "random"
    curve = worst_slab_curve(X, covered, deltas=(0.1, 0.3, 0.5, 1.0), **options)
    values = [slab.value for slab in curve]
    assert values == sorted(values)
    assert values[-1] == covered.mean()


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_do_not_matter(monkeypatch, kind):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 4))
    X[100:] = X[:100]
    covered = rng.random(200) < 0.8
    options = {"kind": kind, "n_directions": 20, "n_permutations": 7, "random_state": 5}
    found = worst_slab_coverage(X, covered, **options)
    monkeypatch.setattr(_slab_search, "CHUNK_ELEMENTS", 300)
    again = worst_slab_coverage(X, covered, **options)
    np.testing.assert_array_equal(found.values, again.values)
    assert (found.lower, found.upper, found.null) == (again.lower, again.upper, again.null)


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from(KINDS), st.sampled_from([2, 7, 256]))
def test_null_permutations_are_searched_exactly(problem, kind, n_coarse):
    """Whether hopeless searches are ruled out on few cuts or not, with ties and without."""
    X, covered, delta = problem
    options = {"delta": delta, "n_directions": 6, "kind": kind, "n_permutations": 5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_slab_search, "N_COARSE", n_coarse)
        found = worst_slab_coverage(X, covered, random_state=6, **options)
    replay = np.random.default_rng(6)
    z = project(X, draw_directions(6, X.shape[1], kind, replay), kind)
    fewest, null = smallest_slab(delta, len(X)), []
    for _ in range(5):
        permuted = replay.permutation(covered)
        null.append(min(float(brute_force(own, permuted, fewest)) for own in z))
    band = [found.null.low, found.null.median, found.null.high]
    np.testing.assert_allclose(band, np.quantile(null, [0.05, 0.5, 0.95]), rtol=1e-15)
    assert found.null.p_value == (1 + np.sum(np.array(null) <= found.value)) / 6


@pytest.mark.parametrize("search", ["random", "optimised"])
def test_a_curve_holds_the_answers_for_each_mass(search):
    rng = np.random.default_rng(3)
    X, covered = rng.normal(size=(300, 4)), rng.random(300) < 0.85
    options = {"kind": "quadratic", "n_directions": 10, "n_permutations": 5, "search": search}
    options |= {"test_size": 0.4, "random_state": 2}
    curve = worst_slab_curve(X, covered, deltas=(0.1, 0.4), **options)
    for delta, found in zip((0.1, 0.4), curve, strict=True):
        alone = worst_slab_coverage(X, covered, delta=delta, **options)
        assert found.null == alone.null
        np.testing.assert_array_equal(found.values, alone.values)
        n = round(found.test_mass * 120)  # held out points did not choose the slab
        interval = clopper_pearson(round(found.test_value * n), n)
        assert (found.value, found.test_value) == (alone.value, alone.test_value)
        assert (found.test_low, found.test_high) == interval


# --- what the figures mean ----------------------------------------------------------------------


def held_out(covered_of, *, n_runs, n, **options):
    found = []
    for seed in range(n_runs):
        data = make_metric_benchmark(n, random_state=seed)
        covered = covered_of(data.group, np.random.default_rng(100 + seed))
        own = {"delta": 0.2, "test_size": 0.5, "random_state": seed, **options}
        found.append(worst_slab_coverage(data.X, covered, **own))
    return np.mean([slab.test_value for slab in found]), np.mean([slab.value for slab in found])


@pytest.mark.parametrize(("kind", "search"), [("linear", "random"), ("quadratic", "optimised")])
def test_held_out_value_is_nominal_if_coverage_is_fair(kind, search):
    fair, in_sample = held_out(
        lambda group, rng: rng.random(len(group)) < 0.9,
        n_runs=12,
        n=1500,
        kind=kind,
        search=search,
        n_directions=200,
    )
    # about 150 points per slab: the standard error of the mean of 12 is 0.007
    assert fair == pytest.approx(0.9, abs=0.025)
    assert in_sample < 0.87


def test_the_optimised_search_sees_a_region_of_two_features_among_ten():
    def covered_of(group, rng):
        return rng.random(len(group)) < np.where(group, 0.7, 0.944)

    random, optimised = (
        held_out(covered_of, n_runs=5, n=2000, kind="quadratic", n_directions=200, search=search)[0]
        for search in ("random", "optimised")
    )
    assert optimised < random - 0.05


@pytest.mark.parametrize(("kind", "search"), [("linear", "random"), ("quadratic", "optimised")])
def test_null_band_and_p_value_hold_at_the_stated_rate(kind, search):
    rng = np.random.default_rng(1)
    inside, p_values = 0, []
    options = {"delta": 0.2, "n_directions": 20, "n_permutations": 39, "kind": kind}
    for seed in range(50):
        X, covered = rng.random((140, 3)), rng.random(140) < 0.88
        found = worst_slab_coverage(X, covered, search=search, random_state=seed, **options)
        inside += found.null.low <= found.value <= found.null.high
        p_values.append(found.null.p_value)
    # values are discrete: at least 90% inside and at most 20% of p-values up to 0.2 in expectation;
    # 38 and 20 of 50 are beyond three standard errors
    assert inside >= 38
    assert np.sum(np.array(p_values) <= 0.2) <= 19


def test_finds_a_slab_and_its_edges():
    x = np.linspace(0, 1, 101)[:, None]
    covered = ~((x[:, 0] >= 0.3) & (x[:, 0] <= 0.5))
    found = worst_slab_coverage(x, covered, delta=0.2, n_directions=1, random_state=0)
    assert found.value == 0
    assert found.mass == 21 / 101
    np.testing.assert_array_equal(found.contains(x), ~covered)
    np.testing.assert_array_equal(found.project(x), x[:, 0] * found.v[0])
    assert found.W is None
    x, covered = np.arange(10.0)[:, None], np.arange(10) >= 2
    options = {"delta": 0.2, "n_directions": 1, "random_state": 0}
    assert worst_slab_coverage(x, covered, **options).value == 0
    assert worst_slab_coverage(x, covered, size_rule="round", **options).value == 1 / 3


def test_quadratic_projection_is_the_formula():
    X = np.random.default_rng(0).normal(size=(20, 3))
    options = {"kind": "quadratic", "n_directions": 4, "random_state": 0}
    found = worst_slab_coverage(X, np.arange(20) % 3 > 0, **options)
    expected = np.einsum("ni,ij,nj->n", X, found.W, X) + X @ found.v
    np.testing.assert_allclose(found.project(X), expected, atol=1e-12)
    # drawn as v and the columns of W, each on the unit sphere
    vectors = np.random.default_rng(0).standard_normal((4, 4, 3))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    expected = np.einsum("ni,mji,nj->mn", X, vectors[:, 1:], X) + vectors[:, 0] @ X.T
    drawn = draw_directions(4, 3, "quadratic", np.random.default_rng(0))
    np.testing.assert_allclose(project(X, drawn, "quadratic"), expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_direction_is_its_basis_in_the_units_of_the_table(kind):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(50, 4)) * [1, 10, 0.1, 5] + [0, 3, -2, 100]
    points = Points.of(numbers, kind)
    fit = Fit(points)
    columns, _ = fit.basis((0, 2, 3))
    w = rng.normal(size=columns.shape[1])
    expected = columns @ w
    found = project(points.numbers, fit.direction((0, 2, 3), w)[None], kind)[0]
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=1e-8)
    gram = (columns.T * fit.weight) @ columns
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-8)


# --- tables and errors --------------------------------------------------------------------------


def test_frames_are_read_as_documented():
    rng = np.random.default_rng(0)
    number = rng.normal(size=60)
    number[:5] = np.nan
    text = rng.choice(["b", "a", None], 60)
    covered = rng.random(60) < 0.8
    coded = np.column_stack(
        [
            np.where(np.isnan(number), np.nanmedian(number), number),
            [{"a": 0, "b": 1, None: 2}[value] for value in text],
        ]
    )
    expected = worst_slab_coverage(coded, covered, random_state=0)
    for frame in (
        pd.DataFrame({"n": number, "t": text}),
        pl.DataFrame({"n": pl.Series(number, nan_to_null=True), "t": text.tolist()}),
    ):
        found = worst_slab_coverage(frame, covered, random_state=0)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.contains(frame), expected.contains(coded))
    unseen = pd.DataFrame({"n": [0.0], "t": ["c"]})
    assert found.project(unseen) == pytest.approx(-found.v[1])
    with pytest.raises(_validation.InvalidInputError, match="2 columns of the search"):
        found.project([[1.0]])
    with pytest.raises(_validation.InvalidInputError, match="must hold numbers"):
        found.project([["a", "a"]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outcome", [0, 1])
def test_few_points_constant_features_and_single_outcomes_have_answers(kind, outcome):
    X = np.column_stack([np.ones(30), np.arange(30.0), np.zeros(30)])
    for table in (X, X[:, :1], X[:1]):
        found = worst_slab_coverage(
            table, np.full(len(table), outcome), kind=kind, n_directions=2, search="optimised"
        )
        assert found.value == outcome
    found = worst_slab_coverage(
        np.arange(4.0)[:, None], [0, 1, 1, 1], delta=0.1, test_size=0.1, random_state=0
    )
    assert found.test_mass in (0, 1)
    assert np.isnan(found.test_value) == (found.test_mass == 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0}, "delta must be a number in"),
        ({"n_directions": 0}, "n_directions must be a whole number >= 1"),
        ({"kind": "cubic"}, "kind must be one of linear, quadratic"),
        ({"n_permutations": -1}, "n_permutations must be a whole number >= 0"),
        ({"test_size": 1.0}, "test_size must be a number in"),
        ({"X": [1.0, 2.0]}, "X must be a table"),
        ({"X": [[1.0], [np.inf]]}, "finite numbers"),
        ({"X": [[1.0]]}, "same number of rows"),
        ({"X": [[1.0]], "covered": [1], "test_size": 0.5}, "at least 2 points"),
    ],
)
def test_errors_say_what_to_fix(change, message):
    arguments = {"X": [[1.0], [2.0]], "covered": [0, 1], **change}
    with pytest.raises(_validation.InvalidInputError, match=message):
        worst_slab_coverage(**arguments)
