"""The projection onto groups of a given mass against a QP solver, and its derivative."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from fareg import FaregError
from fareg.paper import project_to_mass
from fareg.paper._network import project_with_gradient


def solve_qp(u, delta):
    """Minimise ||v - u||^2 subject to mean(v) >= delta, 0 <= v <= 1 with a general solver."""
    n = len(u)
    result = minimize(
        lambda v: ((v - u) ** 2).sum(),
        np.full(n, max(delta, 0.5)),
        jac=lambda v: 2 * (v - u),
        bounds=[(0, 1)] * n,
        constraints=LinearConstraint(np.ones((1, n)), delta * n, np.inf),
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return result.x


def random_cases(n_cases):
    rng = np.random.default_rng(0)
    for _ in range(n_cases):
        u = rng.beta(*rng.uniform(0.2, 3, 2), rng.integers(1, 15))
        yield (rng.choice([u, u.round(1), np.zeros_like(u), np.ones_like(u)]), rng.uniform(0.01, 1))


def test_equals_a_qp_solver_on_hundreds_of_cases():
    for u, delta in random_cases(300):
        np.testing.assert_allclose(project_to_mass(u, delta), solve_qp(u, delta), atol=2e-6)


unit = st.floats(0, 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(unit, min_size=1, max_size=30), st.floats(0.01, 1))
def test_is_a_projection(u, delta):
    v = project_to_mass(u, delta)
    assert v.mean() >= delta - 1e-9
    assert ((np.asarray(u) <= v + 1e-12) & (v <= 1)).all()
    np.testing.assert_allclose(project_to_mass(v, delta), v, atol=1e-9)


@pytest.mark.parametrize("delta", [0, -0.1, 1.1, np.nan, "half", True])
def test_impossible_mass_is_refused(delta):
    with pytest.raises(FaregError, match="delta must be a number"):
        project_to_mass([0.5], delta)


@pytest.mark.parametrize("u", [[1.2], [-0.1], [np.nan]])
def test_only_probabilities_are_projected(u):
    with pytest.raises(FaregError, match=r"\[0, 1\]"):
        project_to_mass(u, 0.5)


@pytest.mark.parametrize("delta", [0.2, 0.7, 0.9])
def test_gradients_get_back_through_the_projection(delta):
    rng = np.random.default_rng(1)
    for _ in range(20):
        u, direction, line = rng.random((2, 12)) ** 2, *rng.normal(size=(2, 2, 12))
        projected, back = project_with_gradient(u, delta)
        np.testing.assert_allclose(projected, project_to_mass(u, delta), atol=1e-12)
        ends = [project_with_gradient(u + step * line, delta)[0] for step in (1e-8, -1e-8)]
        slope = (direction * (ends[0] - ends[1])).sum() / 2e-8
        np.testing.assert_allclose((back(direction) * line).sum(), slope, rtol=1e-5, atol=1e-6)
