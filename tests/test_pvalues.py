"""Ranks against exact fractions, p-values against the double loop."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fareg import FaregError
from fareg._validation import check_confidence_level
from fareg.pvalues import CalibrationScores, conformal_pvalues, conformal_quantile, conformal_rank

laws = settings(max_examples=80, deadline=None)

ALPHAS = sorted(
    {Fraction(k, 100) for k in range(1, 100)}
    | {Fraction(k, 1000) for k in range(1, 1000)}
    | {Fraction(1, d) for d in range(2, 60)}
    | {Fraction(d - 1, d) for d in range(2, 60)}
)

coarse_scores = st.sampled_from([-math.inf, 0.0, 0.25, 0.5, 0.75, 1.0, math.inf])
levels = st.one_of(
    st.integers(1, 99).map(lambda k: k / 100),
    st.integers(2, 30).map(lambda d: 1 / d),
    st.floats(0.001, 0.999),
)


def exact_rank(n, alpha):
    return math.ceil((n + 1) * (1 - alpha))


def slow_pvalue(calibration, score):
    return (1 + sum(s >= score for s in calibration)) / (len(calibration) + 1)


def slow_quantile(calibration, alpha):
    k = exact_rank(len(calibration), Fraction(str(alpha)))
    return sorted(calibration)[k - 1] if k <= len(calibration) else math.inf


def test_rank_is_exact_for_every_n_up_to_2000():
    n = np.arange(2001)
    for alpha in ALPHAS:
        kept, total = (1 - alpha).as_integer_ratio()
        exact = -(-(n + 1) * kept // total)  # ceiling division of whole numbers
        np.testing.assert_array_equal(conformal_rank(n, float(alpha)), exact, str(alpha))


def test_confidence_levels_give_exact_alphas():
    for k in range(1, 1000):
        assert check_confidence_level(float(1 - Fraction(k, 1000))) == k / 1000


@laws
@given(calibration=st.lists(coarse_scores, max_size=60), k=st.integers(1, 999))
def test_quantile_is_the_order_statistic(calibration, k):
    level = (1000 - k) / 1000
    assert conformal_quantile(calibration, confidence_level=level) == slow_quantile(
        calibration, k / 1000
    )


@laws
@given(
    calibration=st.lists(coarse_scores, max_size=60),
    scores=st.lists(coarse_scores, min_size=1, max_size=8),
    alpha=levels,
    u=st.floats(0, 1),
)
def test_pvalues_equal_the_double_loop_and_agree_with_quantiles(calibration, scores, alpha, u):
    n = len(calibration) + 1
    plain = conformal_pvalues(calibration, scores)
    strict = np.array([sum(c > s for c in calibration) / n for s in scores])
    np.testing.assert_array_equal(plain, [slow_pvalue(calibration, s) for s in scores])
    threshold = CalibrationScores.sort(calibration).quantiles(alpha)[0]
    np.testing.assert_array_equal(plain > alpha, np.asarray(scores) <= threshold)
    smoothed = conformal_pvalues(calibration, scores, u=u)
    np.testing.assert_array_equal(conformal_pvalues(calibration, scores, u=0), strict)
    np.testing.assert_allclose(smoothed, strict + u * (plain - strict), atol=1e-14)


@laws
@given(
    rows=st.lists(st.tuples(coarse_scores, st.integers(-1, 3)), max_size=60),
    tests=st.lists(st.tuples(coarse_scores, st.integers(-1, 5)), min_size=1, max_size=10),
    alpha=levels,
)
def test_categories_are_calibrated_separately(rows, tests, alpha):
    scores, categories = [s for s, _ in rows], [c for _, c in rows]
    p = conformal_pvalues(
        scores,
        [s for s, _ in tests],
        calibration_categories=categories,
        categories=[c for _, c in tests],
    )
    thresholds = CalibrationScores.sort(
        scores, categories, max(categories, default=-1) + 1
    ).quantiles(alpha)[:-1]
    for (score, category), value in zip(tests, p, strict=True):
        in_category = [s for s, c in rows if c == category and c >= 0]
        assert value == slow_pvalue(in_category, score)
        if 0 <= category < len(thresholds):
            assert thresholds[category] == CalibrationScores.sort(in_category).quantiles(alpha)[0]
            assert (value > alpha) == (score <= thresholds[category])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: conformal_quantile([0.1, np.nan], confidence_level=0.9),
            r"shape \(2,\) and 1 NaN",
        ),
        (lambda: conformal_pvalues([0.1], [np.nan, np.nan, 0.0]), "not contain NaN, got 2"),
        (lambda: conformal_quantile([[0.1, 0.2]], confidence_level=0.9), "one-dimensional"),
        (
            lambda: conformal_quantile([0.1, 0.2], confidence_level=0.9, categories=[0]),
            "same number of rows; scores has 2, categories has 1",
        ),
        (lambda: conformal_pvalues([0.1], [0.1], categories=[0]), "together, got only one"),
        *(
            (lambda alpha=alpha: conformal_rank(10, alpha), r"alpha must be in \(0, 1\), got")
            for alpha in (0, 1, -0.1, 1.5, float("nan"))
        ),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(FaregError, match=sentence):
        call()


# --- people with several points ---


def by_hand(scores, sizes, alpha):
    """Return the threshold and the p-value of any score, in fractions."""
    total = sum(Fraction(1, int(m)) for m in sizes)

    def threshold():
        for s in sorted(scores):
            inside = sum(Fraction(1, int(m)) for v, m in zip(scores, sizes, strict=True) if v <= s)
            if inside >= (1 - alpha) * (total + 1):
                return s
        return np.inf

    def pvalue(s):
        above = sum(Fraction(1, int(m)) for v, m in zip(scores, sizes, strict=True) if v >= s)
        return (1 + above) / (1 + total)

    return threshold(), pvalue


@pytest.mark.parametrize("seed", range(30))
def test_each_person_counts_once_exactly(seed):
    rng = np.random.default_rng(seed)
    people = rng.integers(1, rng.choice([3, 8, 30]), size=rng.integers(1, 40))
    sizes = np.repeat(people, people)
    scores = rng.integers(12, size=len(sizes)) / 12  # many ties
    table = CalibrationScores.sort(scores, sizes=sizes)
    tested = np.append(np.unique(scores), [-1.0, 2.0])
    for alpha in (Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)):
        threshold, pvalue = by_hand(scores, sizes, alpha)
        assert table.quantiles(float(alpha))[0] == threshold
        p = table.pvalues(tested)
        np.testing.assert_allclose(p, [float(pvalue(s)) for s in tested], rtol=1e-12)
        np.testing.assert_array_equal(p > float(alpha), tested <= threshold)


def test_nine_people_are_enough_for_nine_in_ten_whatever_their_numbers_of_points():
    people = np.array([101, 103, 107, 109, 113, 127, 131, 137, 139])  # no common multiple is small
    sizes = np.repeat(people, people)
    scores = np.arange(len(sizes), dtype=float)
    assert CalibrationScores.sort(scores, sizes=sizes).quantiles(0.1)[0] == scores[-1]
    few = sizes > 101
    assert CalibrationScores.sort(scores[few], sizes=sizes[few]).quantiles(0.1)[0] == np.inf
