from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from covmetrics import WSC
from covmetrics.slab_metrics import wsc_all_numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg import _validation
from fareg.metrics import _slab_search, worst_slab_coverage
from fareg.metrics._directions import Directions
from fareg.metrics._segments import smallest_slab


def brute_force(z, covered, min_points, *, merge):
    """Smallest coverage over all slabs of one projection, as an exact fraction."""
    order = np.argsort(z, kind="stable")
    z, covered = z[order], covered[order]
    n = len(z)
    edges = [j for j in range(n + 1) if not merge or j in (0, n) or z[j - 1] < z[j]]
    return min(
        Fraction(int(covered[i:j].sum()), j - i)
        for i in edges
        for j in edges
        if j - i >= min_points
    )


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
@given(problems(), st.sampled_from(["value", "index"]), st.sampled_from(["linear", "quadratic"]))
def test_equals_brute_force(problem, slab, kind):
    X, covered, delta = problem
    found = worst_slab_coverage(
        X, covered, delta=delta, n_directions=3, kind=kind, slab=slab, random_state=0
    )
    directions = Directions.draw(3, X.shape[1], kind, np.random.default_rng(0))
    min_points = smallest_slab(delta, len(X))
    for z, value in zip(directions.project(X), found.values, strict=True):
        assert value == float(brute_force(z, covered, min_points, merge=slab == "value"))
    assert found.value == found.values.min()
    if slab == "value":
        inside = found.contains(X)
        assert covered[inside].mean() == pytest.approx(found.value, abs=1e-15)
        assert found.mass == inside.mean() >= min_points / len(X)


@settings(max_examples=50, deadline=None)
@given(problems())
def test_grows_with_delta(problem):
    X, covered, _ = problem
    values = [
        worst_slab_coverage(X, covered, delta=delta, n_directions=5, random_state=1).value
        for delta in (0.1, 0.3, 0.5, 1.0)
    ]
    assert values == sorted(values)
    assert values[-1] == covered.mean()


@settings(max_examples=50, deadline=None)
@given(problems())
def test_order_of_rows_does_not_matter(problem):
    X, covered, delta = problem
    shuffled = np.random.default_rng(0).permutation(len(X))
    options = {"delta": delta, "n_directions": 5, "kind": "quadratic", "random_state": 1}
    found = worst_slab_coverage(X, covered, **options)
    again = worst_slab_coverage(X[shuffled], covered[shuffled], **options)
    np.testing.assert_array_equal(found.values, again.values)
    assert (found.lower, found.upper, found.mass) == (again.lower, again.upper, again.mass)


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
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


@pytest.mark.parametrize("delta", [0.1, 0.25, 0.5])
def test_equals_covmetrics_on_the_same_directions(delta):
    rng = np.random.default_rng(7)
    X, covered = rng.normal(size=(300, 5)), rng.random(300) < 0.85
    found = worst_slab_coverage(X, covered, delta=delta, n_directions=40, random_state=2)
    directions = Directions.draw(40, 5, "linear", np.random.default_rng(2))
    theirs, _, _ = wsc_all_numpy(X, covered.astype(float), delta, directions.v)
    np.testing.assert_allclose(found.values, theirs, rtol=1e-12)


def test_is_as_low_as_covmetrics_own_search():
    rng = np.random.default_rng(8)
    X, covered = rng.normal(size=(200, 3)), rng.random(200) < 0.85
    ours = worst_slab_coverage(X, covered, delta=0.2, random_state=0).value
    theirs = WSC().evaluate(X, covered.astype(float), delta=0.2, M=1000)
    assert ours == pytest.approx(theirs, abs=0.02)


def test_held_out_value_is_near_nominal_if_coverage_is_fair():
    rng = np.random.default_rng(0)
    held_out, in_sample = [], []
    for seed in range(30):
        X, covered = rng.random((1000, 5)), rng.random(1000) < 0.9
        found = worst_slab_coverage(
            X, covered, delta=0.2, n_directions=100, test_size=0.5, random_state=seed
        )
        held_out.append(found.test_value)
        in_sample.append(found.value)
        assert 0.1 < found.test_mass < 0.35
    assert np.mean(in_sample) < 0.85
    # about 100 points per slab: standard error of the mean of 30 is 0.0055
    assert np.mean(held_out) == pytest.approx(0.9, abs=0.022)


def test_null_band_contains_the_value_at_the_stated_rate():
    rng = np.random.default_rng(1)
    n_runs, inside, p_values = 60, 0, []
    for seed in range(n_runs):
        X, covered = rng.random((150, 3)), rng.random(150) < 0.9
        found = worst_slab_coverage(
            X, covered, delta=0.2, n_directions=30, n_permutations=99, random_state=seed
        )
        inside += found.null.low <= found.value <= found.null.high
        p_values.append(found.null.p_value)
    # at least 90% in expectation (values are discrete); 46 is far in the binomial tail
    assert inside >= 46
    assert np.mean(np.array(p_values) <= 0.2) <= 0.4


@pytest.mark.parametrize("n_groups", [5, 256])
@pytest.mark.parametrize("levels", [3, 12, 10**6])
def test_null_permutations_are_searched_exactly(n_groups, levels, monkeypatch):
    """Whether hopeless searches are ruled out on blocks or on groups, with ties and without."""
    monkeypatch.setattr(_slab_search, "N_GROUPS", n_groups)
    rng = np.random.default_rng(4)
    X, covered = rng.integers(0, levels, (60, 2)).astype(float), rng.random(60) < 0.8
    found = worst_slab_coverage(
        X, covered, delta=0.2, n_directions=10, n_permutations=20, random_state=6
    )
    replay = np.random.default_rng(6)
    directions = Directions.draw(10, 2, "linear", replay)
    null = []
    for _ in range(20):
        permuted = replay.permutation(covered)
        null.append(
            min(float(brute_force(z, permuted, 12, merge=True)) for z in directions.project(X))
        )
    expected = np.quantile(null, [0.05, 0.5, 0.95])
    np.testing.assert_array_equal([found.null.low, found.null.median, found.null.high], expected)
    assert found.null.p_value == (1 + np.sum(np.array(null) <= found.value)) / 21


def test_quadratic_finds_a_group_that_linear_does_not():
    X = np.random.default_rng(0).random((2000, 2))
    covered = (X[:, 0] >= 0.1) == (X[:, 1] >= 0.1)  # two arms of an L, 18% of the points
    linear = worst_slab_coverage(X, covered, delta=0.2, random_state=0)
    quadratic = worst_slab_coverage(X, covered, delta=0.2, kind="quadratic", random_state=0)
    assert quadratic.value < 0.3 < 0.35 < linear.value


def test_finds_a_slab_and_its_edges():
    x = np.linspace(0, 1, 101)[:, None]
    covered = ~((x[:, 0] >= 0.3) & (x[:, 0] <= 0.5))
    found = worst_slab_coverage(x, covered, delta=0.2, n_directions=1, random_state=0)
    assert found.value == 0
    assert found.mass == 21 / 101
    np.testing.assert_array_equal(found.contains(x), ~covered)
    np.testing.assert_array_equal(found.project(x), x[:, 0] * found.v[0])
    assert found.W is None


def test_published_size_rule_asks_for_one_more_point():
    x, covered = np.arange(10.0)[:, None], np.arange(10) >= 2
    options = {"delta": 0.2, "n_directions": 1, "random_state": 0}
    assert worst_slab_coverage(x, covered, **options).value == 0
    assert worst_slab_coverage(x, covered, size_rule="round", **options).value == 1 / 3


def test_fewer_directions_are_a_prefix_of_more():
    rng = np.random.default_rng(0)
    X, covered = rng.random((100, 3)), rng.random(100) < 0.9
    few = worst_slab_coverage(X, covered, n_directions=5, kind="quadratic", random_state=0)
    many = worst_slab_coverage(X, covered, n_directions=50, kind="quadratic", random_state=0)
    np.testing.assert_array_equal(many.values[:5], few.values)


def test_quadratic_projection_is_the_formula():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    directions = Directions.draw(4, 3, "quadratic", rng)
    np.testing.assert_allclose(np.linalg.norm(directions.W, axis=1), 1)
    expected = np.einsum("ni,mij,nj->mn", X, directions.W, X) + directions.v @ X.T
    np.testing.assert_allclose(directions.project(X), expected, atol=1e-12)


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


def test_one_point_and_an_empty_held_out_slab_have_answers():
    assert worst_slab_coverage([[1.0]], [1], n_directions=2).value == 1
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
        ({"slab": "x"}, "slab must be one of value, index"),
        ({"size_rule": "floor"}, "size_rule must be one of ceil, round"),
        ({"n_permutations": -1}, "n_permutations must be a whole number >= 0"),
        ({"test_size": 1.0}, "test_size must be a number in"),
        ({"X": [1.0, 2.0]}, "X must be a table"),
        ({"X": np.empty((2, 0))}, "at least one column"),
        ({"X": [[1.0], [np.inf]]}, "finite numbers"),
        ({"X": [[1.0]]}, "same number of rows"),
        ({"X": [[1.0]], "covered": [1], "test_size": 0.5}, "at least 2 points"),
    ],
)
def test_errors_say_what_to_fix(change, message):
    arguments = {"X": [[1.0], [2.0]], "covered": [0, 1], **change}
    with pytest.raises(_validation.InvalidInputError, match=message):
        worst_slab_coverage(**arguments)


def test_projecting_another_table_is_refused():
    found = worst_slab_coverage([[1.0], [2.0]], [0, 1], n_directions=1)
    with pytest.raises(_validation.InvalidInputError, match="1 columns of the search"):
        found.project([[1.0, 2.0]])
    with pytest.raises(_validation.InvalidInputError, match="must hold numbers"):
        found.project([["a"]])
