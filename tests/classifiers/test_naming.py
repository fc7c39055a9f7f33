"""Laws of naming: which words are tried, which are verified, which are found again."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

from fareg import FaReGClassifier
from fareg.calibration import Rows, one_of_each_cluster
from fareg.classifiers import _naming as naming
from fareg.classifiers._naming import credible_groups, found_again, random_halves, verified_groups
from fareg.groups import MAX_SHARE, Condition, GroupLearner, Rule
from people import is_level, people, rule_of

ALWAYS = 1.0


def with_coverage(inside: np.ndarray, share_inside: float, share_outside: float) -> np.ndarray:
    """Cover exactly these shares of the rows inside and outside, spread evenly."""
    covered = np.empty(len(inside), dtype=bool)
    for rows, share in ((inside, share_inside), (~inside, share_outside)):
        n = int(rows.sum())
        covered[rows] = np.floor(np.arange(1, n + 1) * share) > np.floor(np.arange(n) * share)
    return covered


def named(rules: list[Rule], columns: pd.DataFrame, covered: np.ndarray, stability=ALWAYS):
    return verified_groups(rules, columns, covered, 0.9, lambda rule: stability)


EDU_P = rule_of((is_level("edu", "p"),))
WOMEN_A = rule_of((is_level("sex", "F"), is_level("race", "a")))


def test_a_clearly_under_covered_minority_is_named_with_its_numbers():
    columns = people(1000)
    inside = EDU_P.inside(columns)
    (group,) = named([EDU_P], columns, with_coverage(inside, 0.7, 0.95))
    assert group.rule.text == "edu=p"
    assert group.n_calibration == inside.sum()
    assert group.share == pytest.approx(inside.mean())
    assert group.low < group.coverage < group.high < 0.88
    assert group.coverage == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("points_low", [0.01, 0.02, 0.03])
def test_one_to_three_points_are_not_named_however_many_the_rows(points_low):
    columns = people(100_000)
    covered = with_coverage(EDU_P.inside(columns), 0.9 - points_low, 0.905)
    assert named([EDU_P], columns, covered) == []


def test_a_high_level_asks_for_a_margin_that_its_errors_allow():
    """Five times as many errors as promised are named at 99%, although the gap is 0.04."""
    columns = people(4000)
    covered = with_coverage(EDU_P.inside(columns), 0.95, 1.0)
    assert verified_groups([EDU_P], columns, covered, 0.99, lambda rule: ALWAYS)


def test_a_majority_is_never_named():
    columns = people(2000)
    rule = rule_of((Condition("edu", levels=("p",), is_excluding=True),))
    assert rule.inside(columns).mean() > MAX_SHARE
    assert named([rule], columns, with_coverage(rule.inside(columns), 0.6, 1.0)) == []


def test_few_rows_are_never_named():
    columns = people(naming.MIN_ROWS * 5 - 50)
    inside = EDU_P.inside(columns)
    assert inside.sum() < naming.MIN_ROWS
    assert named([EDU_P], columns, with_coverage(inside, 0.1, 1.0)) == []


def test_a_group_that_is_not_found_again_is_not_named():
    columns = people(1000)
    covered = with_coverage(EDU_P.inside(columns), 0.7, 0.95)
    assert named([EDU_P], columns, covered, stability=naming.MIN_STABILITY - 0.01) == []


def test_stability_is_asked_only_of_groups_that_pass_all_other_tests():
    columns = people(1000)

    def refuse(rule: Rule) -> float:
        raise AssertionError(rule.text)

    covered = with_coverage(EDU_P.inside(columns), 0.9, 0.9)
    assert verified_groups([EDU_P, WOMEN_A], columns, covered, 0.9, refuse) == []


def test_p_values_are_adjusted_for_all_candidates():
    """Alone, a candidate has its own p-value; beside k others, up to k + 1 times as much."""
    columns = people(1000)
    covered = with_coverage(EDU_P.inside(columns), 0.7, 0.95)
    others = [rule_of((is_level("race", level),)) for level in "abc"]
    (alone,) = named([EDU_P], columns, covered)
    (beside,) = named([EDU_P, *others], columns, covered)
    assert beside.p_value == pytest.approx(4 * alone.p_value)


def test_a_significant_majority_does_not_hide_a_minority_inside_it():
    columns = people(2000)
    majority = rule_of((Condition("race", levels=("d",), is_excluding=True),))
    minority = rule_of((is_level("race", "a"),))
    covered = with_coverage(majority.inside(columns), 0.87, 1.0)
    covered[minority.inside(columns)] = with_coverage(
        np.ones(minority.inside(columns).sum(), dtype=bool), 0.72, 1.0
    )
    assert [g.rule.text for g in named([majority, minority], columns, covered)] == ["race=a"]


def test_a_second_group_must_be_under_covered_on_the_rows_that_the_first_leaves():
    columns = people(3000)
    wider = rule_of((is_level("edu", "p"),), (is_level("edu", "q"),))
    inside = EDU_P.inside(columns)
    groups = named([EDU_P, wider], columns, with_coverage(inside, 0.6, 0.97))
    assert [g.rule.text for g in groups] == ["edu=p"]


def test_two_groups_are_named_as_two_the_most_significant_first():
    columns = people(3000)
    first, second = EDU_P.inside(columns), WOMEN_A.inside(columns)
    covered = with_coverage(first, 0.7, 0.97)
    only_second = second & ~first
    covered[only_second] = with_coverage(only_second, 0.7, 1.0)[only_second]
    groups = named([WOMEN_A, EDU_P], columns, covered)
    assert [g.rule.text for g in groups] == ["edu=p", "sex=F and race=a"]
    assert [g.n_calibration for g in groups] == [first.sum(), second.sum()]
    nobody = ~first & ~second  # all numbers of a group are of the rows that its words mean
    table = [[(covered & own).sum(), (~covered & own).sum()] for own in (second, nobody)]
    expected = fisher_exact(table, alternative="less").pvalue
    assert groups[1].p_value == pytest.approx(expected, rel=1e-6)


def test_people_covered_as_promised_are_not_accused_with_others():
    columns = people(4000)
    guilty, innocent = (is_level("sex", "F"), is_level("race", "a")), (is_level("edu", "p"),)
    both = rule_of(guilty, innocent)
    wronged = rule_of(guilty).inside(columns)
    covered = with_coverage(wronged, 0.6, 0.91)
    (group,) = named([both], columns, covered)
    assert group.rule.text == "sex=F and race=a"
    covered = with_coverage(both.inside(columns), 0.75, 0.93)  # both alternatives are wronged
    assert named([both], columns, covered)[0].rule.text == both.text


def test_words_leave_out_people_too_few_to_check():
    """Another alternative may overlap: only the rows that it adds count."""
    columns = people(2000)
    columns["serial"] = np.arange(2000.0)
    edu, women = (is_level("edu", "p"),), (is_level("sex", "F"), is_level("race", "a"))
    few, overlapping = (Condition("serial", high=30.0),), (*edu, Condition("serial", high=1500.0))
    inside = EDU_P.inside(columns) | WOMEN_A.inside(columns)
    covered = with_coverage(inside, 0.7, 0.95)
    (group,) = named([rule_of(edu, few, women, overlapping)], columns, covered)
    assert "serial" not in group.rule.text
    np.testing.assert_array_equal(group.rule.inside(columns), inside)


def test_a_group_counts_as_found_again_although_another_one_is_worse_off():
    inside = np.repeat([False, True, False], [10, 10, 80])
    worse = np.repeat([2.0, 1.0, 0.0], [10, 10, 80])
    assert found_again(inside, worse[None]) == 1.0


def test_chance_the_opposite_and_nobody_are_not_found_again():
    inside = np.repeat([True, False], [20, 80])
    assert found_again(inside, np.array([np.zeros(100), -inside.astype(float)])) == 0.0
    assert found_again(np.zeros(100, dtype=bool), np.arange(100.0)[None]) == 0.0


def test_halves_hold_half_of_the_rows_and_differ():
    halves = random_halves(101, None, np.random.default_rng(0))
    assert halves.shape == (naming.N_RESAMPLES, 101)
    assert set(halves.sum(axis=1)) == {50}
    assert len(np.unique(halves, axis=0)) == naming.N_RESAMPLES


def test_halves_never_divide_a_cluster():
    clusters = np.repeat(np.arange(40), 5)
    halves = random_halves(200, clusters, np.random.default_rng(0))
    for half in halves:
        assert set(np.unique(clusters[half], return_counts=True)[1]) == {5}
        assert half.sum() == 100


def test_copies_of_few_people_name_nobody():
    """Thirty people with twenty rows each: six of them, by chance, make 120 rows look credible."""
    columns = people(30)
    columns["sex"] = pd.Series(["F"] * 6 + ["M"] * 24, dtype=object)
    covered = np.repeat(np.r_[0.2, 0.2, 0.2, 1, 1, 1, np.ones(24)], 20)
    many = columns.loc[np.repeat(columns.index, 20)].reset_index(drop=True)
    ids = np.repeat(np.arange(30), 20)
    scores = 1 - covered + np.random.default_rng(0).normal(0, 1e-3, 600)

    def found(clusters):
        codes = np.zeros(600, dtype=int)
        rows = Rows(many, None, None, list(many), 0, codes=codes, clusters=clusters)
        vars(rows)["own_scores"] = scores
        learner = GroupLearner(members=("cells",)).fit(many, covered, clusters)
        learner.found_ = True
        told = (many["sex"] == "F").to_numpy().astype(float)
        apart = one_of_each_cluster(rows)
        return credible_groups(learner, rows, told, covered, apart, 0.1, seed=0)

    assert found(None)
    assert not found(ids)


@pytest.mark.slow
@pytest.mark.parametrize("power", [31, 160, 307])
@pytest.mark.parametrize("seed", [0, 1])
def test_groups_of_numbers_beyond_all_models_are_named(power, seed):
    rng, n = np.random.default_rng(seed), 1000
    debt, x = rng.normal(size=n) * 10.0**power, rng.normal(size=n)
    X = pd.DataFrame({"debt": debt, "sex": rng.choice(["F", "M"], n)})
    odd = (rng.random(n) < 0.5) & (X["sex"] == "F") & (debt > 0)
    X.loc[rng.random(n) < 0.05, "debt"] = -np.inf
    p = 1 / (1 + np.exp(-2 * x))
    clf = FaReGClassifier(random_state=seed)
    clf.conformalize(X, ((x > 0) ^ odd).astype(int), proba=np.column_stack([1 - p, p]))
    (group,) = clf.named_groups_
    assert {condition.feature for condition in group.rule.alternatives[0]} == {"debt", "sex"}
    inside = group.rule.inside(X)
    assert (inside == ((X["sex"] == "F") & (X["debt"] > 0))).mean() > 0.9
