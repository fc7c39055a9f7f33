"""Scores against their definitions, label by label."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fareg import FaregError
from fareg.scores import SCORES, aps, get_score, is_randomised

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
def tables(draw, min_classes=1, max_classes=16):
    """Probabilities on a coarse grid, so that ties and zeros are common, and uniforms."""
    shape = (draw(st.integers(1, 5)), draw(st.integers(min_classes, max_classes)))
    counts = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 4)))
    counts[counts.sum(axis=1) == 0, 0] = 1
    u = draw(hnp.arrays(np.float64, shape[0], elements=st.floats(0, 1)))
    return counts / counts.sum(axis=1, keepdims=True), u


def untied(seed, n=6, k=5):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(k), n), rng.random(n)


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
@given(table=tables())
def test_a_row_is_scored_alone(name, table):
    proba, u = table
    together = SCORES[name](proba, u)
    alone = [SCORES[name](proba[i : i + 1], u[i : i + 1])[0] for i in range(len(proba))]
    np.testing.assert_array_equal(together, alone)


def test_scores_that_ignore_u_are_known():
    proba = np.array([[0.5, 0.3, 0.2]])
    for score in SCORES.values():
        assert is_randomised(score) == bool((score(proba, [0.2]) != score(proba, [0.7])).any())


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
def test_bad_probabilities_are_refused(proba, sentence):
    for score in SCORES.values():
        with pytest.raises(FaregError, match=sentence):
            score(proba)


def test_bad_uniform_numbers_are_refused():
    for score in SCORES.values():
        for u in ([-0.1, 0.5], [0.5, 1.1], [0.5, np.nan]):
            with pytest.raises(FaregError, match=r"u must lie in \[0, 1\]"):
                score([[0.5, 0.5], [0.5, 0.5]], u)
        with pytest.raises(FaregError, match="u and proba must have the same number of rows; u ha"):
            score([[0.5, 0.5], [0.5, 0.5]], [0.1, 0.2, 0.3])


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
    with pytest.raises(FaregError, match=r"a name or a function \(proba, u\), got 3"):
        get_score(3)
