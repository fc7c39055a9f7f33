"""Scores against their definitions, label by label."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fareg import FaregError
from fareg.scores import SCORES, aps, get_score, is_randomised, lac, margin, raps, saps, topk

laws = settings(max_examples=30, deadline=None)


def order(p):
    """Labels of one row from most to least probable, equal ones by column."""
    return sorted(range(len(p)), key=lambda j: (-p[j], j))


def mass_before(p, label):
    return sum(p[j] for j in order(p)[: order(p).index(label)])


def rank(p, label):
    return order(p).index(label) + 1


def slow_aps(p, u, label):
    return mass_before(p, label) + u * p[label] if p[label] > 0 else 1.0


def slow_raps(p, u, label):
    return slow_aps(p, u, label) + 0.01 * max(0, rank(p, label) - 5)


def slow_lac(p, u, label):
    return 1 - p[label]


def slow_saps(p, u, label):
    r = rank(p, label)
    return u * max(p) if r == 1 else max(p) + (r - 2 + u) * 0.2


def slow_topk(p, u, label):
    return rank(p, label) - 1 + u


def slow_margin(p, u, label):
    return max([p[j] for j in range(len(p)) if j != label], default=0.0) - p[label]


DEFINITIONS = {
    "aps": slow_aps,
    "lac": slow_lac,
    "margin": slow_margin,
    "raps": slow_raps,
    "saps": slow_saps,
    "topk": slow_topk,
}


@st.composite
def tables(draw, min_classes=1, max_classes=9):
    """Probabilities on a coarse grid, so that ties and zeros are common, and uniforms."""
    shape = (draw(st.integers(1, 5)), draw(st.integers(min_classes, max_classes)))
    counts = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 4)))
    counts[counts.sum(axis=1) == 0, 0] = 1
    u = draw(hnp.arrays(np.float64, shape[0], elements=st.floats(0, 1)))
    return counts / counts.sum(axis=1, keepdims=True), u


def untied(seed, n=6, k=5):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(k), n), rng.random(n)


def test_every_score_has_a_definition():
    assert set(DEFINITIONS) == set(SCORES)


@pytest.mark.parametrize("name", SCORES)
@laws
@given(table=tables())
def test_score_equals_its_definition(name, table):
    proba, u = table
    expected = [
        [DEFINITIONS[name](p.tolist(), v, j) for j in range(len(p))]
        for p, v in zip(proba, u, strict=True)
    ]
    np.testing.assert_allclose(SCORES[name](proba, u), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SCORES)
@laws
@given(table=tables())
def test_without_u_is_u_equal_to_one(name, table):
    proba, _ = table
    np.testing.assert_array_equal(SCORES[name](proba), SCORES[name](proba, np.ones(len(proba))))


@pytest.mark.parametrize("name", SCORES)
@laws
@given(seed=st.integers(0, 2**32 - 1))
def test_permuting_columns_permutes_scores(name, seed):
    proba, u = untied(seed)
    columns = np.random.default_rng(seed).permutation(proba.shape[1])
    expected = SCORES[name](proba, u)[:, columns]
    np.testing.assert_array_equal(SCORES[name](proba[:, columns], u), expected)


@pytest.mark.parametrize("name", SCORES)
@laws
@given(table=tables())
def test_a_row_is_scored_alone(name, table):
    proba, u = table
    together = SCORES[name](proba, u)
    alone = [SCORES[name](proba[i : i + 1], u[i : i + 1])[0] for i in range(len(proba))]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("name", SCORES)
@laws
@given(table=tables(), other=st.floats(0, 1))
def test_score_grows_with_u(name, table, other):
    proba, u = table
    low, high = np.minimum(u, other), np.maximum(u, other)
    assert (SCORES[name](proba, low) <= SCORES[name](proba, high) + 1e-15).all()


@pytest.mark.parametrize("name", SCORES)
@laws
@given(table=tables(min_classes=2))
def test_more_probable_labels_are_never_stranger(name, table):
    proba, u = table
    scores = SCORES[name](proba, u)
    more = proba[:, :, None] > proba[:, None, :]
    assert (scores[:, :, None] <= scores[:, None, :] + 1e-12)[more].all()


@pytest.mark.parametrize(
    ("score", "low", "high"), [(aps, 0, 1), (lac, 0, 1), (margin, -1, 1), (topk, 0, None)]
)
@laws
@given(table=tables())
def test_bounds(score, low, high, table):
    proba, u = table
    high = proba.shape[1] if high is None else high
    scores = score(proba, u)
    assert (scores >= low - 1e-12).all()
    assert (scores <= high + 1e-12).all()


def test_ties_are_ranked_by_column():
    np.testing.assert_array_equal(
        topk([[0.25, 0.5, 0.25], [0.2, 0.4, 0.4]]), [[2, 1, 3], [3, 1, 2]]
    )


@pytest.mark.parametrize("n_classes", [2, 6, 12, 13, 40])
def test_many_and_few_labels_follow_one_definition(n_classes):
    counts = np.random.default_rng(n_classes).integers(0, 4, (20, n_classes))  # ties and zeros
    counts[:, 0] += 1
    proba = counts / counts.sum(axis=1, keepdims=True)
    ranks, mass = topk(proba), aps(proba)
    for i, j in np.ndindex(proba.shape):
        assert ranks[i, j] == rank(proba[i], j)
        assert mass[i, j] == pytest.approx(slow_aps(proba[i], 1.0, j))


def test_scores_that_ignore_u_are_known():
    proba = np.array([[0.5, 0.3, 0.2]])
    for score in SCORES.values():
        assert is_randomised(score) == bool((score(proba, [0.2]) != score(proba, [0.7])).any())


def test_labels_of_probability_zero_share_the_last_score():
    proba = [[0.1, 0.0, 0.2, 0.0, 0.7]]
    np.testing.assert_array_equal(aps(proba, [0.3])[0, [1, 3]], [1.0, 1.0])
    assert (aps(proba, [0.3])[0, [0, 2, 4]] < 1).all()


def test_one_class():
    np.testing.assert_array_equal(aps([[1.0]], [0.25]), [[0.25]])
    np.testing.assert_array_equal(saps([[1.0]], [0.25]), [[0.25]])
    np.testing.assert_array_equal(topk([[1.0]], [0.25]), [[0.25]])
    np.testing.assert_array_equal(lac([[1.0]]), [[0.0]])
    np.testing.assert_array_equal(margin([[1.0]]), [[-1.0]])


def test_margin_of_two_classes_is_antisymmetric():
    proba, u = untied(0, k=2)
    scores = margin(proba, u)
    np.testing.assert_allclose(scores[:, 0], -scores[:, 1])


def test_raps_without_penalty_is_aps():
    proba, u = untied(1, k=9)
    np.testing.assert_array_equal(raps(proba, u, penalty=0.0), aps(proba, u))
    penalised = raps(proba, u, penalty=0.5, free_ranks=2) - aps(proba, u)
    np.testing.assert_allclose(penalised, 0.5 * np.maximum(0, topk(proba) - 2), atol=1e-12)


@pytest.mark.parametrize(
    ("proba", "sentence"),
    [
        ([0.5, 0.5], r"shape \(n_samples, n_classes\), got 1 dimension"),
        ([[0.5, 0.5], [np.nan, 1.0]], "got nan in row 1; drop the rows"),
        ([[1.5, -0.5]], "got -0.5 in row 0; pass normalised probabilities, not logits"),
        ([[0.5, 0.5], [0.5, 0.4]], "sum to 1, got 0.9 in row 1; pass normalised"),
        ([[np.inf, 0.0]], "sum to 1, got inf"),
    ],
)
@pytest.mark.parametrize("name", SCORES)
def test_bad_probabilities_are_refused(name, proba, sentence):
    with pytest.raises(FaregError, match=sentence):
        SCORES[name](proba)


@pytest.mark.parametrize("u", [[-0.1, 0.5], [0.5, 1.1], [0.5, np.nan]])
@pytest.mark.parametrize("name", SCORES)
def test_u_outside_the_unit_interval_is_refused(name, u):
    with pytest.raises(FaregError, match=r"u must lie in \[0, 1\]"):
        SCORES[name]([[0.5, 0.5], [0.5, 0.5]], u)


@pytest.mark.parametrize("name", SCORES)
def test_u_of_another_length_is_refused(name):
    with pytest.raises(FaregError, match="u and proba must have the same number of rows; u has 3"):
        SCORES[name]([[0.5, 0.5], [0.5, 0.5]], [0.1, 0.2, 0.3])


def test_single_precision_is_accepted():
    proba, u = untied(2, n=200, k=30)
    single = aps(proba.astype(np.float32), u)
    np.testing.assert_allclose(single, aps(proba, u), atol=1e-5)


def test_get_score_finds_by_name_and_keeps_functions():
    assert all(get_score(name) is score for name, score in SCORES.items())

    def constant(proba, u):
        return np.zeros_like(proba)

    assert get_score(constant) is constant


def test_unknown_name_lists_the_known_ones():
    sentence = f"conformity_score must be one of {', '.join(SCORES)}; got 'asp'"
    with pytest.raises(FaregError, match=sentence):
        get_score("asp")


def test_what_is_no_name_and_no_function_is_refused():
    with pytest.raises(FaregError, match=r"a name or a function \(proba, u\), got 3"):
        get_score(3)
