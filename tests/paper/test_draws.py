"""The union over drawn groups against loops over draws, rows and labels."""

from fractions import Fraction

import numpy as np
import pytest

from fareg import FaregError
from fareg.calibration import Everyone, Mondrian
from fareg.paper import DrawnGroups
from fareg.paper._draws import drawn_members
from paper_rows import Memberships, asking_rows, calibration_rows

ALPHA = 0.2


def fitted(rows, n_draws=5, label_conditional=False, alpha=ALPHA):
    return DrawnGroups.fit(
        Memberships(), rows, alpha, n_draws=n_draws, label_conditional=label_conditional
    )


def split(rows, label_conditional=False):
    return Mondrian.fit(Everyone(), rows, ALPHA, label_conditional=label_conditional)


def slow_pvalue(scores, weights, score):
    """Return the p-value of one score, by counting people."""
    at_least = sum(w for w, other in zip(weights, scores, strict=True) if other >= score)
    return (1 + at_least) / (1 + sum(weights))


def slow_pvalues(rows, batch, members, joins, label_conditional):
    """Return the largest p-value over everyone and the draws that a row joins."""
    sizes = (
        np.ones(len(rows)) if rows.clusters is None else np.bincount(rows.clusters)[rows.clusters]
    )
    weights = [Fraction(1, int(size)) for size in sizes]
    p = np.zeros(batch.scores.shape)
    for i, of_row in enumerate(batch.scores):
        groups = [
            np.ones(len(rows), bool),
            *(m for m, j in zip(members, joins[:, i], strict=True) if j),
        ]
        for label, score in enumerate(of_row):
            for group in groups:
                alike = group & ((rows.y == label) if label_conditional else True)
                chosen = np.flatnonzero(alike)
                own = slow_pvalue(rows.score[chosen], [weights[j] for j in chosen], score)
                p[i, label] = max(p[i, label], float(own))
    return p


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("clustered", [False, True])
def test_equals_loops_over_draws_rows_and_labels(label_conditional, clustered):
    rng = np.random.default_rng(3)
    clusters = rng.integers(0, 25, 60) if clustered else None
    rows, batch = (
        calibration_rows(60, rng.random(60), clusters=clusters),
        asking_rows(20, rng.random(20)),
    )
    calibration = fitted(rows, label_conditional=label_conditional)
    members, joins = (drawn_members(Memberships(), some, 5) for some in (rows, batch))
    expected = slow_pvalues(rows, batch, members, joins, label_conditional)
    np.testing.assert_allclose(calibration.pvalues(batch), expected, rtol=1e-12)
    sets = batch.scores <= calibration.thresholds(batch)
    np.testing.assert_array_equal(sets, expected > ALPHA)


@pytest.mark.parametrize("label_conditional", [False, True])
def test_groups_of_everyone_and_of_nobody_are_split(label_conditional):
    batch = asking_rows(50, 1.0)
    for q in (0.0, 1.0):
        rows, here = calibration_rows(200, q), asking_rows(50, q)
        calibration, plain = fitted(rows, 1, label_conditional), split(rows, label_conditional)
        np.testing.assert_array_equal(calibration.thresholds(here), plain.thresholds(batch))
        np.testing.assert_array_equal(calibration.pvalues(here), plain.pvalues(batch))


def test_the_first_draws_are_those_of_fewer():
    rng = np.random.default_rng(0)
    rows, batch = calibration_rows(100, rng.random(100)), asking_rows(50, rng.random(50))
    many, few = fitted(rows, 7), fitted(rows, 3)
    np.testing.assert_array_equal(many.first(3).thresholds(batch), few.thresholds(batch))
    np.testing.assert_array_equal(many.first(3).pvalues(batch), few.pvalues(batch))
    assert (many.thresholds(batch) >= few.thresholds(batch)).all()
    for wrong in (0, 8):
        with pytest.raises(FaregError, match="from 1 to the 7 draws that were made"):
            many.first(wrong)


def test_rows_join_as_often_as_their_membership_says_and_independently():
    q = np.repeat([0.1, 0.5, 0.8], 4000)
    batch = asking_rows(len(q), q)
    joins = drawn_members(Memberships(), batch, 4)
    error = 4 * np.sqrt(0.25 / 4000)  # four standard errors
    np.testing.assert_allclose(
        joins.reshape(4, 3, -1).mean(axis=2).T, [[0.1] * 4, [0.5] * 4, [0.8] * 4], atol=error
    )
    together = np.corrcoef([*(joins - q), batch.u])
    np.testing.assert_allclose(together, np.eye(5), atol=4 / np.sqrt(len(q)))


def test_small_draws_give_full_sets_and_say_so():
    rows, batch = calibration_rows(40, 0.05, unknown=0), asking_rows(200, 0.5)
    calibration = fitted(rows, 3)
    few = calibration.members.sum(axis=1) < 1 / ALPHA - 1
    assert few.any()
    who = [who for who, _ in calibration.full_sets()]
    assert who == [f"draw {t} of the group" for t in 1 + np.flatnonzero(few)]
    joins = drawn_members(Memberships(), batch, 3)
    full = np.isinf(calibration.thresholds(batch)).all(axis=1)
    np.testing.assert_array_equal(full, joins[few].any(axis=0))
