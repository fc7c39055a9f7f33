"""People with equal rows are not lucky or unlucky together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fareg import FaReGClassifier, ProbabilityFunction, SplitConformalClassifier

N_CLASSES, N_A, N_B = 4, 10, 6
TRUE = np.random.default_rng(0).dirichlet(np.ones(N_CLASSES), (N_A, N_B))
N_CALIBRATION, N_TEST = 6_000, 60_000

pytestmark = pytest.mark.filterwarnings("ignore::fareg.FaregWarning")


def true_proba(X):
    return TRUE[tuple(np.asarray(X).astype(int).T)]


def draw(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.integers(0, N_A, n), "b": rng.integers(0, N_B, n)})
    y = (rng.random((n, 1)) > true_proba(X).cumsum(axis=1)).sum(axis=1)
    return X, np.minimum(y, N_CLASSES - 1)


def model():
    return ProbabilityFunction(true_proba, classes=list(range(N_CLASSES)))


def coverage_of_cells(X, y, sets):
    covered = pd.Series(sets[np.arange(len(y)), y])
    return covered.groupby([X["a"], X["b"]]).mean().to_numpy()


MAKERS = {
    "split": lambda: SplitConformalClassifier(model(), random_state=0),
    "FaReG": lambda: FaReGClassifier(model(), random_state=0),
}


@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_the_worst_cell_of_a_discrete_table_is_within_noise_of_a_number_per_row(name, with_ids):
    (X, y), (X_new, y_new) = draw(N_CALIBRATION, 1), draw(N_TEST, 2)
    ids = {"ids": np.arange(N_CALIBRATION)} if with_ids else {}
    new = {"ids": N_CALIBRATION + np.arange(N_TEST)} if with_ids else {}
    sets = MAKERS[name]().conformalize(X, y, **ids).predict_set(X_new, **new)
    cells = coverage_of_cells(X_new, y_new, sets)
    # One number per row: everyone has 90% given the cell, up to the error of the threshold (0.004
    # or, with half of the rows, 0.006) and of 1,000 test rows in a cell (0.0095).
    assert len(cells) == N_A * N_B
    assert (cells > 0.86).all()
    # Numbers that cells shared would spread them far wider than such errors do.
    assert cells.std() < 0.015


@pytest.mark.parametrize("calibrated", [None, "one", "many"])
@pytest.mark.parametrize("asked", [None, "one", "many"])
def test_the_promise_is_kept_where_all_rows_are_equal(calibrated, asked, reader):
    """Ids or none, one id for all or one for each: in calibration, in prediction, in both."""
    ids = {None: lambda n: None, "one": np.zeros, "many": np.arange}
    P = pd.DataFrame(np.tile([0.5, 0.3, 0.2], (100, 1)), columns=list("abc"))
    rng = np.random.default_rng(0)
    n_draws, n_new = 150, 20
    missed = np.empty((n_draws, n_new))
    for seed in range(n_draws):
        y, y_new = (rng.choice(3, n, p=[0.5, 0.3, 0.2]) for n in (100, n_new))
        clf = SplitConformalClassifier(reader(), confidence_level=0.8, random_state=seed)
        clf.conformalize(P, y, ids=ids[calibrated](100))
        sets = clf.predict_set(P[:n_new], ids=ids[asked](n_new))
        missed[seed] = ~sets[np.arange(n_new), y_new]
    rates = missed.mean(axis=1)
    # 19.8% without ties; draws are independent of each other
    assert abs(rates.mean() - 20 / 101) < 4 * rates.std() / np.sqrt(n_draws)
    # people with one number are lucky or unlucky together, others are not
    assert (rates.std() > 0.112) == (asked == "one")
