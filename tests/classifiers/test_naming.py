"""Laws of naming: which groups are verified, and with which numbers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

from fareg import FaregError
from fareg._columns import canonical
from fareg.classifiers import _naming as naming
from fareg.classifiers._naming import member_groups, verify_groups
from fareg.groups import MAX_SHARE, Rule
from people import people


def with_coverage(inside: np.ndarray, share_inside: float, share_outside: float) -> np.ndarray:
    """Cover exactly these shares of the rows inside and outside, spread evenly."""
    covered = np.empty(len(inside), dtype=bool)
    for rows, share in ((inside, share_inside), (~inside, share_outside)):
        n = int(rows.sum())
        covered[rows] = np.floor(np.arange(1, n + 1) * share) > np.floor(np.arange(n) * share)
    return covered


def named(rules: list[Rule], columns: pd.DataFrame, covered: np.ndarray):
    return verify_groups(rules, columns, covered, 0.9)


EDU_P = Rule.parse("edu = p")
WOMEN_A = Rule.parse("sex = F and race = a")


def test_a_clearly_under_covered_minority_is_named_with_its_numbers():
    columns = people(1000)
    inside = EDU_P.inside(columns)
    covered = with_coverage(inside, 0.7, 0.95)
    (group,) = named([EDU_P, EDU_P], columns, covered)  # each rule once
    assert group.rule == EDU_P
    assert group.n_calibration == inside.sum()
    assert group.share == pytest.approx(inside.mean())
    assert group.low < group.coverage < group.high < 0.88
    assert group.coverage == pytest.approx(0.7, abs=0.01)
    table = [[(covered & rows).sum(), (~covered & rows).sum()] for rows in (inside, ~inside)]
    assert group.p_value == pytest.approx(fisher_exact(table, alternative="less").pvalue)


@pytest.mark.parametrize(
    ("rule", "hint"),
    [
        ("race = B", "race holds a, b, c, d; did you mean b?"),
        ("sex = F and race in {e, f}", "race holds a, b, c, d"),
        ("edu is missing", "edu holds p, q, r, s, t"),
        ("age > 70", "age holds 20 to 60"),
        ("age = 70", "age holds 20 to 60"),
        ("born < 2000-01-01", "born holds 2001-01-01 to 2001-01-09"),
    ],
)
def test_a_condition_of_nobody_is_refused_with_what_there_is(rule, hint):
    columns = people(200).assign(old=np.repeat(["yes", "no"], 100), sex=["F"] * 100 + ["M"] * 100)
    columns["age"] = columns["age"].clip(20, 60)
    columns["born"] = np.datetime64("2001-01-01", "us") + np.arange(200) % 9 * np.timedelta64(
        1, "D"
    )
    part = SimpleNamespace(people=canonical(columns))
    with pytest.raises(FaregError) as told:
        member_groups("protect", [WOMEN_A, Rule.parse(rule)], None, part)
    rule = Rule.parse(rule).text
    assert str(told.value) == f"protect: no training or calibration row has {rule}; {hint}"
    met = columns.assign(race="B", edu=None, age=71.0, born=np.datetime64("1999-01-01"), sex="M")
    met = met if "and race" not in rule else met.assign(sex="F", race="e")
    met = met.assign(age=70.0) if "age = " in rule else met
    (group,) = member_groups(
        "protect", [Rule.parse(rule)], part, SimpleNamespace(people=canonical(met))
    )
    assert group.rule.text == rule


SOME = naming.MIN_ROWS * 5 - 50  # of whom fewer than the least number are inside


@pytest.mark.parametrize(
    ("n", "rule", "inside", "outside"),
    [
        (100_000, "edu = p", 0.89, 0.905),  # one to three points, however many the rows
        (100_000, "edu = p", 0.87, 0.905),
        (2000, "edu != p", 0.6, 1.0),  # a majority
        (SOME, "edu = p", 0.1, 1.0),  # few rows
        (0, "edu = p", 1.0, 1.0),  # none
    ],
)
def test_who_is_never_named(n, rule, inside, outside):
    columns, rule = people(max(n, 100)).iloc[:n], Rule.parse(rule)
    members = rule.inside(columns)
    assert named([rule], columns, with_coverage(members, inside, outside)) == ()
    assert named([], columns, np.ones(n, dtype=bool)) == ()
    assert n != SOME or members.sum() < naming.MIN_ROWS
    assert "!=" not in rule.text or members.mean() > MAX_SHARE


def test_a_high_confidence_asks_for_a_margin_that_its_errors_allow():
    """Five times as many errors as promised are named at 99%, although the gap is 0.04."""
    columns = people(4000)
    covered = with_coverage(EDU_P.inside(columns), 0.95, 1.0)
    assert verify_groups([EDU_P], columns, covered, 0.99)


def test_p_values_are_adjusted_for_all_candidates():
    """Among k candidates that mean no further rows, a p-value is k times as large."""
    columns = people(1000)
    covered = with_coverage(EDU_P.inside(columns), 0.7, 0.95)
    others = [Rule.parse(f"edu = p and race = {level}") for level in "abc"]
    (alone,) = named([EDU_P], columns, covered)
    (among,) = named([EDU_P, *others], columns, covered)
    assert among.p_value == pytest.approx(4 * alone.p_value)


def test_a_second_group_must_be_under_covered_on_the_rows_that_the_first_leaves():
    columns = people(3000)
    wider = Rule.parse("edu in {p, q}")
    groups = named([EDU_P, wider], columns, with_coverage(EDU_P.inside(columns), 0.6, 0.97))
    assert [group.rule for group in groups] == [EDU_P]


def test_two_groups_are_named_as_two_the_most_significant_first():
    columns = people(3000)
    first, second = EDU_P.inside(columns), WOMEN_A.inside(columns)
    covered = with_coverage(first, 0.7, 0.97)
    only_second = second & ~first
    covered[only_second] = with_coverage(only_second, 0.7, 1.0)[only_second]
    groups = named([WOMEN_A, EDU_P], columns, covered)
    assert [group.rule for group in groups] == [EDU_P, WOMEN_A]
    assert [group.n_calibration for group in groups] == [first.sum(), second.sum()]
    nobody = ~first & ~second  # all numbers of a group are of the rows that its words mean
    table = [[(covered & rows).sum(), (~covered & rows).sum()] for rows in (second, nobody)]
    expected = fisher_exact(table, alternative="less").pvalue
    assert groups[1].p_value == pytest.approx(expected, rel=1e-6)


def test_two_halves_of_a_wrong_do_not_hide_each_other():
    """Each is compared with the rows in neither, and their gap may be seen in both together."""
    columns = people(1300)
    halves = [Rule.parse("sex = F and race in {a, b}"), Rule.parse("sex = M and race in {c, d}")]
    wronged = halves[0].inside(columns) | halves[1].inside(columns)
    covered = with_coverage(wronged, 0.85, 0.98)
    assert {group.rule for group in named(halves, columns, covered)} == set(halves)
