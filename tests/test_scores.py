"""Scores against their definitions, label by label."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fareg import FaregError
from fareg.scores import SCORES, aps, get_score, is_randomised

laws = settings(max_examples=30, deadline=None)


def slowly(p, u, label):
    """Return every score of a label by its definition; equal labels are ranked by column."""
    order = sorted(range(len(p)), key=lambda j: (-p[j], j))
    rank = order.index(label) + 1
    aps = sum(p[j] for j in order[: rank - 1]) + u * p[label] if p[label] > 0 else 1.0
    return {
        "aps": aps,
        "lac": 1 - p[label],
        "margin": max([p[j] for j in order if j != label], default=0.0) - p[label],
        "raps": aps + 0.01 * max(0, rank - 5),
        "saps": u * max(p) if rank == 1 else max(p) + (rank - 2 + u) * 0.2,
        "topk": rank - 1 + u,
    }


@st.composite
def tables(draw, min_classes=1, max_classes=16):
    """Probabilities on a coarse grid, so that ties and zeros are common, and uniforms."""
    shape = (draw(st.integers(1, 5)), draw(st.integers(min_classes, max_classes)))
    counts = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 4)))
    counts[counts.sum(axis=1) == 0, 0] = 1
    u = draw(hnp.arrays(np.float64, shape[0], elements=st.floats(0, 1)))
    return counts / counts.sum(axis=1, keepdims=True), u


@pytest.mark.parametrize("name", SCORES)
@laws
@given(table=tables())
def test_score_equals_its_definition_row_by_row(name, table):
    proba, u = table
    expected = [
        [slowly(p.tolist(), v, j)[name] for j in range(len(p))]
        for p, v in zip(proba, u, strict=True)
    ]
    together = SCORES[name](proba, u)
    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-12)
    alone = [SCORES[name](proba[i : i + 1], u[i : i + 1])[0] for i in range(len(proba))]
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(SCORES[name](proba), SCORES[name](proba, np.ones(len(proba))))


@laws
@given(table=tables())
def test_impossible_labels_have_one_score(table):
    """Whatever rounding did before them: a threshold of one takes all of them or none."""
    proba, u = table
    assert (aps(proba, u)[proba == 0] == 1).all()


def test_scores_that_ignore_u_are_known():
    proba = np.array([[0.5, 0.3, 0.2]])
    for score in SCORES.values():
        assert is_randomised(score) == bool((score(proba, [0.2]) != score(proba, [0.7])).any())


HALVES = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("proba", "u", "sentence"),
    [
        ([0.5, 0.5], None, r"shape \(n_samples, n_classes\), got 1 dimension"),
        ([[0.5, 0.5], [np.nan, 1.0]], None, "got nan in row 1; drop the rows"),
        ([[1.5, -0.5]], None, "got -0.5 in row 0; pass normalised probabilities, not logits"),
        ([[0.5, 0.5], [0.5, 0.4]], None, "sum to 1, got 0.9 in row 1; pass normalised"),
        ([[np.inf, 0.0]], None, "sum to 1, got inf"),
        *((HALVES, u, r"u must lie in \[0, 1\]") for u in ([-0.1, 1], [0, 1.1], [0, np.nan])),
        (HALVES, [0.1, 0.2, 0.3], "u and proba must have the same number of rows; u ha"),
    ],
)
def test_refusals(proba, u, sentence):
    for score in SCORES.values():
        with pytest.raises(FaregError, match=sentence):
            score(proba, u)


def test_single_precision_is_accepted():
    rng = np.random.default_rng(2)
    proba, u = rng.dirichlet(np.ones(30), 200), rng.random(200)
    np.testing.assert_allclose(aps(proba.astype(np.float32), u), aps(proba, u), atol=1e-5)


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
