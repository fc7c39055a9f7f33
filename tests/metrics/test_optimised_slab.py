"""The optimised search for the worst slab: laws, oracles, and what it can see."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg.datasets import make_metric_benchmark
from fareg.metrics import _slab_search, clopper_pearson, worst_slab_coverage, worst_slab_curve
from fareg.metrics._segments import smallest_slab
from fareg.metrics._slab_descent import _Bases
from fareg.metrics._slab_search import Points

KINDS = st.sampled_from(["linear", "quadratic"])


@st.composite
def problems(draw):
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([1, 2, 3, 10**6]))  # few levels: many ties
    X = rng.integers(0, levels, (n, draw(st.integers(1, 4)))).astype(float)
    covered = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 0.7, 0.9, 1.0]))
    return X, covered, draw(st.sampled_from([0.05, 0.2, 0.5, 1.0]))


@settings(max_examples=100, deadline=None)
@given(problems(), KINDS, st.sampled_from(["value", "index"]))
def test_is_never_above_the_random_search(problem, kind, slab):
    X, covered, delta = problem
    options = {"delta": delta, "n_directions": 3, "kind": kind, "slab": slab, "random_state": 0}
    random = worst_slab_coverage(X, covered, **options)
    found = worst_slab_coverage(X, covered, search="optimised", **options)
    assert found.value <= random.value
    assert found.value == found.values.min()
    np.testing.assert_array_equal(found.values[1:4], random.values)
    if slab == "value":
        inside = found.contains(X)
        assert covered[inside].mean() == pytest.approx(found.value, abs=1e-15)
        assert inside.sum() >= smallest_slab(delta, len(X))


@settings(max_examples=40, deadline=None)
@given(problems(), KINDS)
def test_order_of_rows_does_not_matter(problem, kind):
    X, covered, delta = problem
    shuffled = np.random.default_rng(0).permutation(len(X))
    options = {"delta": delta, "n_directions": 3, "kind": kind, "search": "optimised"}
    found = worst_slab_coverage(X, covered, random_state=1, **options)
    again = worst_slab_coverage(X[shuffled], covered[shuffled], random_state=1, **options)
    np.testing.assert_array_equal(found.values, again.values)
    assert (found.lower, found.upper, found.mass) == (again.lower, again.upper, again.mass)


@pytest.mark.parametrize("search", ["random", "optimised"])
def test_a_curve_holds_the_answers_for_each_mass(search):
    rng = np.random.default_rng(3)
    X, covered = rng.normal(size=(300, 4)), rng.random(300) < 0.85
    options = {"kind": "quadratic", "n_directions": 10, "n_permutations": 5, "search": search}
    curve = worst_slab_curve(
        X, covered, deltas=(0.1, 0.4), test_size=0.4, random_state=2, **options
    )
    for delta, found in zip((0.1, 0.4), curve, strict=True):
        alone = worst_slab_coverage(
            X, covered, delta=delta, test_size=0.4, random_state=2, **options
        )
        assert found.null == alone.null
        np.testing.assert_array_equal(found.values, alone.values)
        assert (found.value, found.test_value) == (alone.value, alone.test_value)


@settings(max_examples=40, deadline=None)
@given(problems(), KINDS, st.integers(2, 9))
def test_hopeless_searches_are_ruled_out_without_changing_the_null(problem, kind, n_groups):
    X, covered, delta = problem
    options = {"delta": delta, "n_directions": 12, "kind": kind, "n_permutations": 8}
    exact = worst_slab_coverage(X, covered, random_state=4, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_slab_search, "N_GROUPS", n_groups)
        pruned = worst_slab_coverage(X, covered, random_state=4, **options)
        patch.setattr(_slab_search, "_may_be_worse", lambda search, *_, **__: search.points > 0)
        everything = worst_slab_coverage(X, covered, random_state=4, **options)
    assert exact.null == pruned.null == everything.null


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
def test_a_fitted_direction_is_its_basis_in_the_units_of_the_table(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4)) * [1, 10, 0.1, 5] + [0, 3, -2, 100]
    fit = _Bases(Points.of(X, merge=True), kind).of((2, 0, 3))
    w = rng.normal(size=fit.basis.shape[1])
    points = Points.of(X, merge=True)
    expected = fit.basis @ w
    found = fit.direction(w).project(points.numbers)[0]
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=1e-8)
    weight = points.size / len(X)
    np.testing.assert_allclose(weight @ fit.basis, 0, atol=1e-10)
    gram = (fit.basis.T * weight) @ fit.basis
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-8)


def held_out(covered_of, search, *, n_runs, n, kind="quadratic"):
    values = []
    for seed in range(n_runs):
        data = make_metric_benchmark(n, random_state=seed)
        covered = covered_of(data.group, np.random.default_rng(100 + seed))
        found = worst_slab_coverage(
            data.X,
            covered,
            delta=0.2,
            kind=kind,
            search=search,
            n_directions=200,
            test_size=0.5,
            random_state=seed,
        )
        values.append(found.test_value)
    return np.mean(values)


def test_sees_a_region_of_two_features_among_ten():
    def covered_of(group, rng):
        return rng.random(len(group)) < np.where(group, 0.7, 0.944)

    random, optimised = (
        held_out(covered_of, search, n_runs=5, n=2000) for search in ("random", "optimised")
    )
    assert optimised < random - 0.05


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
def test_held_out_value_is_nominal_if_coverage_is_fair(kind):
    found = held_out(
        lambda group, rng: rng.random(len(group)) < 0.9, "optimised", n_runs=12, n=1500, kind=kind
    )
    # about 150 points per slab: the standard error of the mean of 12 is 0.007
    assert found == pytest.approx(0.9, abs=0.025)


def test_null_band_repeats_the_whole_search():
    rng = np.random.default_rng(1)
    p_values = []
    for seed in range(40):
        X, covered = rng.random((120, 3)), rng.random(120) < 0.85
        found = worst_slab_coverage(
            X,
            covered,
            delta=0.2,
            kind="quadratic",
            n_directions=5,
            n_permutations=39,
            search="optimised",
            random_state=seed,
        )
        p_values.append(found.null.p_value)
    # uniform by exchangeability: 8 expected at most 0.2, and 17 is beyond three standard errors
    assert np.sum(np.array(p_values) <= 0.2) <= 16
    assert np.mean(p_values) > 0.35


def test_the_interval_of_the_held_out_value_is_exact():
    rng = np.random.default_rng(0)
    X, covered = rng.random((200, 2)), rng.random(200) < 0.8
    found = worst_slab_coverage(X, covered, n_directions=5, test_size=0.5, random_state=0)
    n = round(found.test_mass * 100)
    low, high = clopper_pearson(round(found.test_value * n), n)
    assert (found.test_low, found.test_high) == (low, high)
    assert worst_slab_coverage(X, covered, n_directions=5).test_low is None


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
@pytest.mark.parametrize("outcome", [0, 1])
def test_constant_features_and_single_outcomes_have_answers(kind, outcome):
    X = np.column_stack([np.ones(30), np.arange(30.0), np.zeros(30)])
    for table in (X, X[:, :1]):
        found = worst_slab_coverage(
            table, np.full(30, outcome), kind=kind, n_directions=2, search="optimised"
        )
        assert found.value == outcome
