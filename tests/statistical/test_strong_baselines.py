"""Coverage of AFCP, CondCP and PLCP over many draws of data: at least what they promise.

A draw is a calibration set and some test rows. Coverage on a group is estimated over all draws; its
standard error comes from the draws, which are independent. A bound at four standard errors fails by
chance less than once in ten thousand runs per group, and the seeds are fixed.
"""

import numpy as np
import pytest

from fareg.classifiers._afcp import AFCPClassifier
from fareg.classifiers._condcp import CondCPClassifier
from fareg.classifiers._plcp import PLCPClassifier

pytestmark = pytest.mark.filterwarnings("ignore::fareg._validation.FaregWarning")

LEVEL = 0.9
N_LABELS = 3


def draw(rng, n):
    """Rows whose model is wrong more often where the first two of three bits agree."""
    bits = rng.integers(2, size=(n, 3))
    p = rng.dirichlet(np.full(N_LABELS, 0.7), size=n)
    hard = (bits[:, 0] == bits[:, 1]) | (bits[:, 2] & (rng.random(n) < 0.3)).astype(bool)
    flat = np.where(hard[:, None], 1 / N_LABELS, p)
    y = (rng.random((n, 1)) > np.cumsum(flat, axis=1)[:, :-1]).sum(axis=1)
    return np.hstack([p, bits]), y


def coverage(covered, groups):
    """Coverage on each group and its standard error; both arrays of shape (n_draws, n_rows).

    A group that occurs in few draws has no standard error to speak of and is left out.
    """
    found = {}
    for group in np.unique(groups):
        hits = ((groups == group) & covered).sum(axis=1)
        sizes = (groups == group).sum(axis=1)
        if np.count_nonzero(sizes) < 20:
            continue
        ratio = hits.sum() / sizes.sum()
        error = np.sqrt(np.sum((hits - ratio * sizes) ** 2)) / sizes.sum()
        found[group] = (ratio, error)
    return found


def over_draws(make, groups_of, n_draws, n=120, m=60, seed=0):
    """Return coverage and group numbers of shape (n_draws, n_views, m)."""
    rng = np.random.default_rng(seed)
    covered, groups = [], []
    for index in range(n_draws):
        X, y = draw(rng, n + m)
        clf = make(index).conformalize(X[:n], y[:n])
        covered.append(clf.predict_set(X[n:])[np.arange(m), y[n:]])
        groups.append(groups_of(clf, X[n:], y[n:]))
    return np.array(covered), np.array(groups)


def shared(index):
    return {"sensitive_features": [-3, -2, -1], "random_state": index}


@pytest.mark.parametrize("n_select", [None, 1, 2])
def test_afcp_covers_given_the_selection_and_the_level(reader, n_select):
    """The group is what was selected with the true label, and the row's levels of it."""

    def groups_of(clf, X, y):
        rows = clf._rows(X, caller="test")
        codes = clf.calibration_.coding.codes(rows.columns)
        selected = clf.calibration_.selected(rows)[np.arange(len(y)), y]
        levels = np.take_along_axis(codes, np.maximum(selected, 0), axis=1)
        digits = (selected + 1) * 2 + np.where(selected >= 0, levels, 0)
        return [digits @ 10 ** np.arange(digits.shape[1]), np.full(len(y), -1)]

    covered, groups = over_draws(
        lambda index: AFCPClassifier(reader(), n_select=n_select, **shared(index)),
        groups_of,
        n_draws=80,
    )
    for view in range(2):
        for ratio, error in coverage(covered, groups[:, view]).values():
            assert ratio >= LEVEL - 4 * error


@pytest.mark.parametrize("randomized", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_condcp_covers_every_group_of_the_basis(reader, pairs, randomized):
    def groups_of(clf, X, y):
        bits = X[:, -3:]
        views = [*bits.T, np.zeros(len(y))]
        if pairs:
            views += [2 * bits[:, j] + bits[:, k] for j, k in ((0, 1), (0, 2), (1, 2))]
        return views

    covered, groups = over_draws(
        lambda index: CondCPClassifier(
            reader(), pairs=pairs, randomized=randomized, **shared(index)
        ),
        groups_of,
        n_draws=80,
    )
    for view in range(groups.shape[1]):
        for ratio, error in coverage(covered, groups[:, view]).values():
            assert ratio >= LEVEL - 4 * error
            if randomized:
                assert ratio <= LEVEL + 4 * error


def test_plcp_split_covers_every_region(reader):
    covered, groups = over_draws(
        lambda index: PLCPClassifier(
            reader(), n_regions=3, regions="linear", n_restarts=1, max_iter=3, **shared(index)
        ),
        lambda clf, X, y: [clf.predict_region(X), np.zeros(len(y))],
        n_draws=50,
        n=200,
    )
    for view in range(2):
        for ratio, error in coverage(covered, groups[:, view]).values():
            assert LEVEL - 4 * error <= ratio <= LEVEL + 0.05
