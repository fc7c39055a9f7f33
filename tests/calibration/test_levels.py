"""Levels against their definitions: the augmented refit, brute-force quantiles, double loops."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg import SplitConformalClassifier
from fareg._validation import InvalidInputError, check_confidence_level
from fareg.calibration import LevelCalibration, level_pvalues, level_thresholds
from fareg.calibration._levels import _pvalues, interval_quantiles, sorted_levels
from fareg.pvalues import conformal_pvalues, conformal_quantile

# Where 1 - alpha or a product with it slips in floating point, and a few ordinary ones.
ALPHAS = [Fraction(text) for text in ("9/20", "1/3", "1/10", "3/10", "1/7", "1/2", "9/10", "1/50")]
VALUES = np.array([-np.inf, 0.0, 0.1, 0.2, 0.3, 0.5, 0.7, np.inf])  # few values: many ties
laws = settings(max_examples=100, deadline=None)
seeds = st.integers(0, 10**6)


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
        found = interval_quantiles(sorted_levels(scores, levels, n_levels), float(alpha))
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


def large_case(seed, n=400, n_levels=6):
    """Return scores that rise with the level, with ties."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, n_levels, size=n)
    return np.round(rng.exponential(1 + levels), 1), levels, n_levels


@laws
@given(seed=seeds, alpha=st.floats(0.01, 0.99))
def test_one_level_equals_split(seed, alpha):
    scores, levels, _ = large_case(seed, n=seed % 60)
    eta = conformal_quantile(scores, confidence_level=1 - alpha)
    alpha = check_confidence_level(1 - alpha)  # 1 - 0.8 is 0.2, without its rounding error
    assert level_thresholds(scores, np.zeros_like(levels), 1, alpha=alpha) == [eta]
    tested = np.array([[0.0, 0.5, 2.0, np.inf]])
    p = level_pvalues(scores, np.zeros_like(levels), tested, [0], 1)
    np.testing.assert_array_equal(p, conformal_pvalues(scores, tested))


@laws
@given(seed=seeds, used=st.integers(0, 5))
def test_rows_of_one_level_among_empty_ones_calibrate_all_levels_from_there_down(seed, used):
    """All rows in one level: it and lower levels equal split, upper ones have no rows at all."""
    scores, levels, n_levels = large_case(seed)
    theta = level_thresholds(scores, np.full_like(levels, used), n_levels, alpha=0.1)
    eta = conformal_quantile(scores, confidence_level=0.9)
    assert theta.tolist() == [eta] * (used + 1) + [np.inf] * (n_levels - used - 1)


@laws
@given(seed=seeds, alpha=st.floats(0.02, 0.9))
def test_thresholds_never_fall_with_the_level(seed, alpha):
    scores, levels, n_levels = large_case(seed, n=seed % 200)
    levels = np.random.default_rng(seed).permutation(levels)
    theta = level_thresholds(scores, levels, n_levels, alpha=alpha)
    assert all(low <= high for low, high in pairwise(theta))


@laws
@given(seed=seeds)
def test_order_of_rows_does_not_matter_and_transforms_pass_through(seed):
    scores, levels, n_levels = large_case(seed)
    theta = level_thresholds(scores, levels, n_levels, alpha=0.1)
    order = np.random.default_rng(seed).permutation(len(scores))
    permuted = level_thresholds(scores[order], levels[order], n_levels, alpha=0.1)
    np.testing.assert_array_equal(permuted, theta)
    doubled = level_thresholds(2 * scores - 1, levels, n_levels, alpha=0.1)
    np.testing.assert_array_equal(doubled, 2 * theta - 1)


@laws
@given(seed=seeds, alpha=st.floats(0.05, 0.5))
def test_two_levels_in_closed_form(seed, alpha):
    """The upper threshold is never below split's, the lower one never above it."""
    scores, levels, _ = large_case(seed, n=seed % 90)
    levels = levels % 2
    confidence = {"confidence_level": 1 - alpha}
    alpha = check_confidence_level(1 - alpha)  # the alpha that this level stands for
    theta = level_thresholds(scores, levels, 2, alpha=alpha)
    alone = [conformal_quantile(scores[levels == j], **confidence) for j in (0, 1)]
    together = conformal_quantile(scores, **confidence)
    assert theta.tolist() == [min(alone[0], together), max(alone[1], together)]


def test_levels_in_the_right_order_keep_their_own_quantiles():
    """Levels whose scores do not overlap: lower rows would only lower the quantile of a level."""
    scores, levels = np.arange(600.0), np.repeat(np.arange(6), 100)
    theta = level_thresholds(scores, levels, 6, alpha=0.1)
    own = conformal_quantile(scores, confidence_level=0.9, categories=levels)
    np.testing.assert_array_equal(theta, own)


def test_levels_in_the_wrong_order_are_pooled_to_split():
    scores, levels = np.arange(600.0), np.repeat(np.arange(6)[::-1], 100)
    theta = level_thresholds(scores, levels, 6, alpha=0.1)
    assert theta.tolist() == [conformal_quantile(scores, confidence_level=0.9)] * 6


def test_neighbours_in_the_wrong_order_share_a_threshold():
    """Levels 1 and 2 of four are swapped: they are pooled, the others stay apart."""
    scores, levels = np.arange(400.0), np.repeat([0, 2, 1, 3], 100)
    theta = level_thresholds(scores, levels, 4, alpha=0.1)
    pooled = conformal_quantile(scores[100:300], confidence_level=0.9)
    assert theta[1] == theta[2] == pooled
    assert theta[0] < pooled < theta[3]


@pytest.mark.parametrize(
    ("scores", "levels", "n_levels"),
    [
        ([0.1, np.nan], [0, 0], 1),
        ([0.1, 0.2], [0], 1),
        ([0.1, 0.2], [0, 2], 2),
        ([0.1, 0.2], [-1, 0], 2),
        ([0.1, 0.2], [0.5, 1.0], 2),
        ([0.1, 0.2], [0, np.nan], 2),
        ([[0.1, 0.2]], [0], 1),
        ([], [], 0),
    ],
)
def test_bad_calibration_rows_are_refused(scores, levels, n_levels):
    with pytest.raises(InvalidInputError):
        level_thresholds(scores, levels, n_levels, alpha=0.1)
    with pytest.raises(InvalidInputError):
        level_pvalues(scores, levels, [[0.1]], [0], n_levels)


@pytest.mark.parametrize(
    ("tested", "levels"),
    [
        ([[0.1]], [-1]),
        ([[0.1]], [2]),
        ([[0.1]], [0.5]),
        ([[np.nan]], [0]),
        ([0.1], [0]),
        ([[0.1]], [0, 1]),
    ],
)
def test_bad_test_rows_are_refused(tested, levels):
    with pytest.raises(InvalidInputError):
        level_pvalues([0.1, 0.2], [0, 1], tested, levels, 2)


def test_no_test_rows_have_no_pvalues():
    assert level_pvalues([0.1, 0.2], [0, 1], np.empty((0, 3)), [], 2).shape == (0, 3)


@pytest.mark.parametrize("label_conditional", [False, True])
@pytest.mark.parametrize("alpha", [0.1, 0.45, 1 / 3])
def test_the_calibration_of_rows_equals_the_functions(make_rows, leveler, label_conditional, alpha):
    """Label-conditional levels are separate problems, without labels that nobody knows.

    Each is united with the split conformal sets of its label.
    """
    rows, new = make_rows(0, 150, 4), make_rows(1, 60, 4)
    found = LevelCalibration.of(leveler(4), rows, alpha, label_conditional=label_conditional)
    found.check(new, 3 if label_conditional else None, alpha)
    levels, asked = rows.X[:, -1].astype(int), new.X[:, -1].astype(int)
    problems = [rows.codes == k for k in range(3)] if label_conditional else [rows.codes < 3]
    thresholds, p = found.thresholds(new), found.pvalues(new)
    assert thresholds.shape == (60, len(problems))
    for k, own in enumerate(problems):
        theta = level_thresholds(rows.own_scores[own], levels[own], 4, alpha=alpha)
        columns = [k] if label_conditional else [0, 1, 2]
        expected = level_pvalues(
            rows.own_scores[own], levels[own], new.scores[:, columns], asked, 4
        )
        if label_conditional:
            theta = np.maximum(theta, conformal(rows.own_scores[own], alpha))
            everyone = conformal_pvalues(rows.own_scores[own], new.scores[:, columns])
            expected = np.maximum(expected, everyone)
        np.testing.assert_array_equal(thresholds[:, k], theta[asked])
        np.testing.assert_array_equal(p[:, columns], expected)
    np.testing.assert_array_equal(p > alpha, new.scores <= thresholds)


@pytest.mark.parametrize("label_conditional", [False, True])
def test_merging_all_levels_gives_the_sets_of_split(make_rows, leveler, reader, label_conditional):
    rows, new = make_rows(2, 150, 1, unknown=0.0), make_rows(3, 60, 1)
    merged = LevelCalibration.of(leveler(1), rows, 0.2, label_conditional=label_conditional)
    split = SplitConformalClassifier(
        reader(),
        confidence_level=0.8,
        conformity_score="lac",
        label_conditional=label_conditional,
    ).conformalize(rows.X, rows.codes)
    np.testing.assert_array_equal(new.scores <= merged.thresholds(new), split.predict_set(new.X))
    np.testing.assert_array_equal(merged.pvalues(new), split.predict_p(new.X))


@pytest.mark.parametrize("label_conditional", [False, True])
def test_levels_above_split_thresholds_are_an_upper_set(make_rows, leveler, label_conditional):
    rows = make_rows(6, 150, 4, unknown=0.0)
    own = LevelCalibration.of(leveler(4), rows, 0.2, label_conditional=label_conditional)
    problems = [rows.codes == k for k in range(3)] if label_conditional else [rows.codes < 3]
    split = [conformal(rows.own_scores[own], 0.2) for own in problems]
    np.testing.assert_array_equal(own.split_thresholds, split)
    raised = (own.level_thresholds > own.split_thresholds).any(axis=1)
    first = own.first_raised()
    assert not raised[:first].any()
    assert raised[first:].all() or not raised.any()


def test_pvalues_of_many_rows_are_those_of_few(make_rows, leveler, monkeypatch):
    rows, new = make_rows(4, 150, 4), make_rows(5, 60, 4)
    found = LevelCalibration.of(leveler(4), rows, 0.1, label_conditional=False)
    whole = found.pvalues(new)
    monkeypatch.setattr("fareg.calibration._levels.CHUNK", 7)
    np.testing.assert_array_equal(found.pvalues(new), whole)


def test_full_sets_tell_few_rows_from_labels_that_nobody_knows(make_rows, leveler):
    few = LevelCalibration.of(leveler(2), make_rows(6, 5, 1), 0.1, label_conditional=False)
    assert [(full.who, full.has_points) for full in few.full_sets()] == [
        ("disadvantage level 0", False),
        ("disadvantage level 1", False),
    ]
    strange = make_rows(7, 300, 2, unknown=0.5)
    many = LevelCalibration.of(leveler(2), strange, 0.1, label_conditional=False)
    assert [full.has_points for full in many.full_sets()] == [True, True]
    enough = LevelCalibration.of(leveler(2), make_rows(8, 300, 2), 0.2, label_conditional=False)
    assert list(enough.full_sets()) == []


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("scores", lambda scores: np.where(np.arange(len(scores)) == 3, np.nan, scores)),
        ("scores", lambda scores: scores[1:]),
        ("scores", lambda scores: scores.astype(np.float32)),
        ("levels", lambda levels: levels + 1),
        ("levels", lambda levels: levels - 1),
        ("levels", lambda levels: levels.astype(np.float64)),
        ("labels", lambda labels: labels + 1),
        ("labels", lambda labels: labels - 1),
        ("labels", lambda labels: None),
        ("n_labels", lambda n_labels: 2),
        ("alpha", lambda alpha: 0.2),
    ],
)
def test_parts_that_contradict_each_other_are_refused(make_rows, leveler, part, damage):
    rows = make_rows(9, 100, 3)
    whole = LevelCalibration.of(leveler(3), rows, 0.1, label_conditional=True)
    whole.check(rows, 3, 0.1)
    with pytest.raises(ValueError, match="contradict"):
        replace(whole, **{part: damage(getattr(whole, part))}).check(rows, 3, 0.1)


def test_rows_with_levels_that_were_never_calibrated_are_refused(make_rows, leveler):
    whole = LevelCalibration.of(leveler(3), make_rows(9, 100, 3), 0.1, label_conditional=False)
    with pytest.raises(ValueError, match="contradict"):
        whole.check(make_rows(10, 100, 5), None, 0.1)


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
        def own(a, b):
            return (1 + of(a, b, lambda v: v >= s)) / (1 + of(a, b, lambda v: True))

        return max(min(own(a, b) for b in range(level, n_levels)) for a in range(level + 1))

    alpha, leveler = ALPHAS[seed % len(ALPHAS)], SimpleNamespace(n_levels=n_levels)
    calibration = LevelCalibration(leveler, scores, levels, None, 1, float(alpha), sizes)
    for level in range(n_levels):
        asked = np.append(VALUES, 0.05)
        exact = [pvalue(level, s) for s in asked]
        own = _pvalues(calibration._sorted[0], asked[:, None], np.full(len(asked), level))[:, 0]
        np.testing.assert_allclose(own, [float(p) for p in exact], rtol=1e-12)
        kept = [p > alpha for p in exact]
        np.testing.assert_array_equal(asked <= calibration.level_thresholds[level, 0], kept)
