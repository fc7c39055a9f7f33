"""Levels against their definitions: the augmented refit, brute-force quantiles, double loops."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from fareg.calibration import LevelThresholds, Sample
from fareg.calibration._levels import _pvalues, interval_quantiles
from tied_rows import (
    LevelColumn,
    LevelsByLabel,
    level_calibration,
    level_pvalues,
    level_thresholds,
    make_batch,
    make_rows,
)

# Where 1 - alpha or a product with it slips in floating point, and a few ordinary ones.
ALPHAS = [Fraction(text) for text in ("9/20", "1/3", "1/10", "3/10", "1/7", "1/2", "9/10", "1/50")]
VALUES = np.array([-np.inf, 0.0, 0.1, 0.2, 0.3, 0.5, 0.7, np.inf])  # few values: many ties


def small_case(rng):
    """Return scores with ties and infinities, levels (some of them empty), and their number."""
    n, n_levels = int(rng.integers(0, 14)), int(rng.integers(1, 6))
    values = VALUES if rng.random() < 0.7 else np.append(rng.random(20), np.inf)
    used = rng.choice(n_levels, size=int(rng.integers(1, n_levels + 1)), replace=False)
    return rng.choice(values, size=n), rng.choice(used, size=n), n_levels


def order_statistic(scores, rank):
    """Return the rank-th smallest score, infinite if there are fewer."""
    return sorted(scores)[rank - 1] if rank <= len(scores) else math.inf


def conformal(scores, alpha):
    """Return Q: the ceil((n + 1)(1 - alpha))-th smallest of n scores."""
    return order_statistic(scores, math.ceil((len(scores) + 1) * (1 - alpha)))


def plain(scores, alpha):
    """Return T: the ceil(n (1 - alpha))-th smallest of n scores."""
    return order_statistic(scores, math.ceil(len(scores) * (1 - alpha)))


def between(scores, levels, a, b):
    return [s for s, level in zip(scores, levels, strict=True) if a <= level <= b]


def max_min(scores, levels, n_levels, level, value):
    """Return ``max_{a <= level} min_{b >= level} value(A_ab)`` by two loops."""
    return max(
        min(value(between(scores, levels, a, b)) for b in range(level, n_levels))
        for a in range(level + 1)
    )


def in_augmented_set(scores, levels, n_levels, s, level, alpha):
    """Put the test row into the sample, fit all of it, and ask whether its score is at most f."""
    scores, levels = np.append(scores, s), np.append(levels, level)
    f = max_min(scores, levels, n_levels, level, lambda A: plain(A, alpha))
    return s <= f


@pytest.mark.parametrize("seed", range(4))
def test_the_closed_form_equals_the_augmented_refit(seed):
    rng = np.random.default_rng(seed)
    for _ in range(600):
        scores, levels, n_levels = small_case(rng)
        alpha = ALPHAS[rng.integers(len(ALPHAS))]
        theta = level_thresholds(scores, levels, n_levels, alpha=float(alpha))
        for level in range(n_levels):
            for s in rng.choice(np.concatenate([scores, VALUES]), size=3):
                refit = in_augmented_set(scores, levels, n_levels, s, level, alpha)
                assert (s <= theta[level]) == refit


def test_thresholds_and_interval_quantiles_equal_brute_force():
    rng = np.random.default_rng(5)
    for _ in range(500):
        scores, levels, n_levels = small_case(rng)
        alpha = ALPHAS[rng.integers(len(ALPHAS))]
        found = interval_quantiles(
            level_calibration(scores, levels, n_levels, float(alpha)).tables[0], float(alpha)
        )
        for a in range(n_levels):
            for b in range(n_levels):
                expected = conformal(between(scores, levels, a, b), alpha) if a <= b else math.inf
                assert found[a, b] == expected
        theta = level_thresholds(scores, levels, n_levels, alpha=float(alpha))
        assert theta.tolist() == [
            max_min(scores, levels, n_levels, level, lambda A, alpha=alpha: conformal(A, alpha))
            for level in range(n_levels)
        ]


def test_pvalues_equal_their_definition():
    rng = np.random.default_rng(6)
    for _ in range(300):
        scores, levels, n_levels = small_case(rng)
        tested = rng.choice(VALUES, size=(n_levels, 4))
        p = level_pvalues(scores, levels, tested, np.arange(n_levels), n_levels)
        for level, row in enumerate(tested):
            for label, s in enumerate(row):
                expected = max_min(
                    scores,
                    levels,
                    n_levels,
                    level,
                    lambda A, s=s: (1 + sum(v >= s for v in A)) / (len(A) + 1),
                )
                assert p[level, label] == expected


def test_sets_agree_at_every_level_a_pvalue_can_take():
    rng = np.random.default_rng(7)
    for _ in range(40):
        scores, levels, n_levels = small_case(rng)
        tested = np.tile(np.unique(np.concatenate([scores, VALUES])), (n_levels, 1))
        p = level_pvalues(scores, levels, tested, np.arange(n_levels), n_levels)
        reachable = {m / size for size in range(2, len(scores) + 2) for m in range(1, size)}
        for alpha in sorted(reachable | {float(alpha) for alpha in ALPHAS}):
            theta = level_thresholds(scores, levels, n_levels, alpha=alpha)
            np.testing.assert_array_equal(p > alpha, tested <= theta[:, None])


def label_masks(rows, label_conditional):
    """Return which rows calibrate each label, or all labels together."""
    if label_conditional:
        return [rows.y == label for label in range(3)]
    return [np.ones(len(rows), dtype=bool)]


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("alpha", [0.1, 0.45, 1 / 3])
def test_the_calibration_of_rows_equals_the_functions(label_conditional, alpha):
    """Label-conditional levels are separate calibrations, without labels that nobody knows."""
    rows, batch = make_rows(0, 150, 4), make_batch(1, 60, 4)
    found = LevelThresholds.fit(LevelColumn(4), rows, alpha, label_conditional=label_conditional)
    found.check(batch, 3 if label_conditional else None, alpha)
    levels, wanted = (LevelColumn(4).levels(some.people) for some in (rows, batch))
    parts = label_masks(rows, label_conditional)
    thresholds, p = found.thresholds(batch), found.pvalues(batch)
    assert thresholds.shape == (60, len(parts))
    for k, part in enumerate(parts):
        theta = level_thresholds(rows.score[part], levels[part], 4, alpha=alpha)
        columns = [k] if label_conditional else [0, 1, 2]
        tested = batch.scores[:, columns]
        expected = level_pvalues(rows.score[part], levels[part], tested, wanted, 4)
        np.testing.assert_array_equal(found.theta[k], theta)
        np.testing.assert_array_equal(thresholds[:, k], theta[wanted])
        np.testing.assert_array_equal(p[:, columns], expected)
    np.testing.assert_array_equal(p > alpha, batch.scores <= thresholds)


@pytest.mark.parametrize("n_clusters", [None, 70])
@pytest.mark.parametrize("alpha", [0.1, 1 / 3])
def test_an_order_for_every_label_equals_fitting_each_label_by_itself(alpha, n_clusters):
    rows, batch = make_rows(2, 300, 4, n_clusters=n_clusters), make_batch(3, 60, 4)
    sizes = Sample.from_rows(rows, label_conditional=True).sizes
    orders = LevelsByLabel(4)
    found = LevelThresholds.fit(orders, rows, alpha, label_conditional=True)
    found.check(batch, 3, alpha)
    thresholds, p = found.thresholds(batch), found.pvalues(batch)
    assert orders.n_levels == (4, 4, 2) == tuple(map(len, found.theta))
    for label in range(3):
        mask = rows.y == label
        # people who have rows of other labels too keep the weights that they have among all rows
        sample = Sample(rows.score[mask], None, 1, None if sizes is None else sizes[mask])
        alone = LevelThresholds(
            OneOrder(orders, label), sample, orders.levels(rows.people)[mask, label], alpha
        )
        part = replace(batch, scores=batch.scores[:, [label]])
        np.testing.assert_array_equal(thresholds[:, [label]], alone.thresholds(batch))
        np.testing.assert_array_equal(p[:, [label]], alone.pvalues(part))
        np.testing.assert_array_equal(found.row_thresholds()[mask], alone.row_thresholds())
        assert found.pooled_levels(label) == alone.pooled_levels()
    np.testing.assert_array_equal(p > alpha, batch.scores <= thresholds)


@dataclass(frozen=True)
class OneOrder:
    """The order of one label, for all labels."""

    orders: LevelsByLabel
    label: int

    @property
    def n_levels(self):
        return self.orders.n_levels[self.label]

    def levels(self, people):
        return self.orders.levels(people)[:, self.label]


@pytest.mark.parametrize("label_conditional", [False, True])
def test_levels_above_split_thresholds_are_an_upper_set(label_conditional):
    rows = make_rows(6, 150, 4, unknown=0.0)
    found = LevelThresholds.fit(LevelColumn(4), rows, 0.2, label_conditional=label_conditional)
    masks = label_masks(rows, label_conditional)
    split = [conformal(rows.score[mask], Fraction(1, 5)) for mask in masks]
    np.testing.assert_array_equal(found.sample.split_thresholds(0.2), split)
    raised = np.any([theta > s for theta, s in zip(found.theta, split, strict=True)], axis=0)
    first = found.first_raised()
    assert not raised[:first].any()
    assert raised[first:].all() or not raised.any()


@pytest.mark.parametrize("label_conditional", [False, True])
def test_runs_of_levels_share_their_threshold(label_conditional):
    rows = make_rows(6, 150, 6, unknown=0.0)
    found = LevelThresholds.fit(LevelColumn(6), rows, 0.2, label_conditional=label_conditional)
    for label, theta in enumerate(found.theta):
        runs = found.pooled_levels(label)
        assert [j for first, last in runs for j in range(first, last + 1)] == list(range(6))
        assert all(len(set(theta[first : last + 1])) == 1 for first, last in runs)
        assert all(theta[a] < theta[b] for (_, a), (b, _) in pairwise(runs))


def test_levels_with_too_few_known_labels_have_full_sets():
    def full(rows, alpha=0.1):
        found = LevelThresholds.fit(LevelColumn(2), rows, alpha, label_conditional=False)
        return [who for who, _ in found.full_sets()]

    levels = ["disadvantage level 0", "disadvantage level 1"]
    assert full(make_rows(6, 5, 1)) == levels
    assert full(make_rows(7, 300, 2, unknown=0.5)) == levels
    assert full(make_rows(8, 300, 2), 0.2) == []


def test_parts_that_contradict_each_other_are_refused():
    rows, batch = make_rows(9, 100, 3, n_clusters=40), make_batch(10, 20, 3)
    whole = LevelThresholds.fit(LevelColumn(3), rows, 0.1, label_conditional=True)

    def check(part, change):
        sample = whole.sample
        if hasattr(sample, part):
            replace(whole, sample=replace(sample, **{part: change})).check(batch, 3, 0.1)
        replace(whole, **{part: change}).check(batch, 3, 0.1)

    check("alpha", 0.1)
    nan = np.where(np.arange(100) == 3, np.nan, rows.score)
    changes = [("score", nan), ("score", rows.score[1:]), ("labels", rows.y + 1)]
    changes += [("labels", rows.y - 1), ("labels", None), ("n_labels", 2), ("alpha", 0.2)]
    sizes = Sample.from_rows(rows, label_conditional=True).sizes
    changes += [("sizes", sizes[1:]), ("sizes", sizes - sizes.max())]
    changes += [("row_levels", whole.row_levels + step) for step in (1, -2, 0.5)]
    for part, change in changes:
        with pytest.raises(ValueError, match="contradict"):
            check(part, change)
    with pytest.raises(IndexError):  # levels that nobody calibrated
        whole.check(make_batch(10, 100, 5), 3, 0.1)


# --- people with several rows ---


@pytest.mark.parametrize("seed", range(60))
def test_people_count_once_in_every_run_of_levels(seed):
    """Thresholds and p-values against sums of fractions."""
    rng = np.random.default_rng(seed)
    people = rng.integers(1, 5, size=rng.integers(1, 12))
    sizes, n_levels = np.repeat(people, people), int(rng.integers(1, 4))
    scores, levels = rng.choice(VALUES, len(sizes)), rng.integers(n_levels, size=len(sizes))
    weights = [Fraction(1, int(size)) for size in sizes]

    def of(a, b, inside):
        rows = zip(scores, levels, weights, strict=True)
        return sum(w for s, level, w in rows if a <= level <= b and inside(s))

    def pvalue(level, s):
        def p_ab(a, b):
            return (1 + of(a, b, lambda v: v >= s)) / (1 + of(a, b, lambda v: True))

        return max(min(p_ab(a, b) for b in range(level, n_levels)) for a in range(level + 1))

    alpha, sample = ALPHAS[seed % len(ALPHAS)], Sample(scores, None, 1, sizes)
    calibration = LevelThresholds(LevelColumn(n_levels), sample, levels, float(alpha))
    for level in range(n_levels):
        tested = np.append(VALUES, 0.05)
        exact = [pvalue(level, s) for s in tested]
        p = _pvalues(calibration.tables[0], tested[:, None], np.full(len(tested), level))[:, 0]
        np.testing.assert_allclose(p, [float(p) for p in exact], rtol=1e-12)
        kept = [p > alpha for p in exact]
        np.testing.assert_array_equal(tested <= calibration.theta[0][level], kept)
