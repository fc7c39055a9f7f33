"""Groups in words: shorter, with the right levels and round numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fareg.groups import Condition, candidate_rules, distil_rule
from fareg.groups import _refining as refining
from fareg.groups import _wording as wording
from fareg.groups._refining import _grids, narrowed, relisted, rounded
from fareg.groups._wording import _hull, shortened
from fareg.groups._worth import MAX_SHARE, MIN_SHARE, CoveredRows
from people import is_level, people, rule_of

EDU_P = rule_of((is_level("edu", "p"),))
WOMEN_A = rule_of((is_level("sex", "F"), is_level("race", "a")))


def test_unrelated_parts_become_candidates_of_their_own():
    columns = people(2000)
    inside = EDU_P.inside(columns) | WOMEN_A.inside(columns)
    rng = np.random.default_rng(0)
    covered = 0.9 - 0.3 * inside + 0.1 * rng.normal(size=len(inside))
    rules = candidate_rules(columns, inside.astype(float), covered, tuple(columns))
    assert {rule.text for rule in rules} == {"edu=p", "sex=F and race=a"}


def test_candidates_are_minorities_of_the_learning_rows():
    columns = people(2000)
    disadvantage = columns["age"].to_numpy() / 100
    covered = 1 - disadvantage
    rules = candidate_rules(columns, disadvantage, covered, tuple(columns))
    assert rules
    for rule in rules:
        assert MIN_SHARE <= rule.inside(columns).mean() <= MAX_SHARE


def test_no_disadvantage_gives_no_candidates():
    columns = people(500)
    assert candidate_rules(columns, np.zeros(500), np.ones(500), tuple(columns)) == []


def test_shortening_leaves_out_what_coverage_does_not_depend_on():
    columns = people(2000)
    truth = (columns["age"] > 50).to_numpy()
    noise = 0.2 * np.random.default_rng(1).normal(size=len(truth))
    patchy = truth & ~((columns["race"] == "c") & (columns["age"] > 57)).to_numpy()
    rule = distil_rule(columns, patchy)
    assert "race" in rule.features
    assert shortened(rule, CoveredRows(columns, 0.9 - 0.3 * truth + noise)).text == "age > 50.5"


def test_shortening_joins_intervals_that_touch():
    columns = people(2000)
    young = rule_of(
        (Condition("age", low=20.5, high=25.5),), (Condition("age", low=25.5, high=35.5),)
    )
    inside = young.inside(columns)
    noise = 0.2 * np.random.default_rng(1).normal(size=len(inside))
    words = shortened(young, CoveredRows(columns, 0.9 - 0.3 * inside + noise)).text
    assert words == "20.5 < age <= 35.5"


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ((("p", "q"), False), (("r",), False), "edu in {p, q, r}"),
        ((("p", "q"), True), (("q",), False), "edu is not p"),
        ((("p", "q"), True), (("q", "r"), True), "edu is not q"),
    ],
)
def test_lists_of_levels_are_joined_without_changing_the_rows(first, second, text):
    columns = people(2000)
    rule = rule_of(*((Condition("edu", b, a, b),) for a, b in (first, second)))
    joined = rule.part((_hull(*rule.alternatives),))
    assert joined.text == text
    np.testing.assert_array_equal(joined.inside(columns), rule.inside(columns))


def test_shortening_joins_lists_of_levels():
    columns = people(2000)
    rule = rule_of((is_level("edu", "p"),), (is_level("edu", "q"),))
    noise = 0.1 * np.random.default_rng(0).normal(size=2000)
    covered = 0.9 - 0.3 * rule.inside(columns) + noise
    assert shortened(rule, CoveredRows(columns, covered)).text == "edu in {p, q}"


def test_joined_lists_name_the_levels_outside_if_they_are_fewer():
    columns = people(2000)
    columns.loc[::2, "edu"] = "s"
    rule = rule_of(*((Condition("edu", levels=levels),) for levels in (("p", "q"), ("r", "t"))))
    told = shortened(rule, CoveredRows(columns, coverage_of(rule.inside(columns))))
    assert told.text == "edu is not s"
    np.testing.assert_array_equal(told.inside(columns), rule.inside(columns))


@pytest.mark.parametrize("seed", range(4))
def test_a_conjunction_speaks_of_a_feature_once_and_in_the_shorter_way(seed):
    rng = np.random.default_rng(seed)
    columns = pd.DataFrame(
        {name: rng.choice(list("abcdefghij"), 1500) for name in ("city", "job")}, dtype=object
    )
    lists = {name: rng.choice(list("abcdefghij"), rng.integers(2, 9)) for name in columns}
    inside = np.logical_and.reduce([columns[name].isin(lists[name]) for name in columns])
    noisy = inside ^ (rng.random(1500) < 0.03)
    for rule in (
        distil_rule(columns, noisy),
        wording._described(CoveredRows(columns, coverage_of(inside)), tuple(columns), noisy),
    ):
        for conditions in rule.alternatives:
            assert len({c.feature for c in conditions}) == len(conditions)
            assert all(len(c.levels) <= 5 for c in conditions)


@pytest.mark.parametrize("seed", range(4))
def test_other_rows_of_the_same_people_give_the_same_round_words(seed):
    columns = people(1000, seed)
    truth = ((columns["age"] > 50) & (columns["sex"] == "F")).to_numpy()
    noise = 0.2 * np.random.default_rng(seed).normal(size=len(truth))
    near = columns["age"] > 49 + seed  # a tree would cut anywhere near
    rule = distil_rule(columns, (near & (columns["sex"] == "F")).to_numpy())
    assert (
        rounded(rule, CoveredRows(columns, 0.9 - 0.3 * truth + noise)).text == "sex=F and age > 50"
    )


def test_rounding_never_costs_more_than_noise():
    columns = people(2000)
    exact = rule_of((Condition("age", low=33.5, high=46.5),))
    inside = exact.inside(columns)
    assert (
        rounded(exact, CoveredRows(columns, 0.9 - 0.3 * inside)).inside(columns).tolist()
        == inside.tolist()
    )
    single = rule_of((Condition("age", low=np.nextafter(40.0, 0), high=40.0),))
    assert rounded(single, CoveredRows(columns, 0.9 - 0.3 * single.inside(columns))) == single


def test_grids_hold_round_numbers_inside_the_column():
    for scale in (1e-3, 1.0, 1e6):
        column = pd.Series(np.linspace(0.31, 0.87, 50) * scale)
        grids = list(_grids(column))
        assert len(grids) >= 3
        for grid in grids:
            assert all(column.min() <= mark < column.max() for mark in grid)
            assert all(
                len(f"{mark:.12g}".strip("0.").replace(".", "")) <= 2 for mark in grid / scale
            )
    assert list(_grids(pd.Series([3.0, 3.0, np.nan, np.inf]))) == []


def test_shortening_keeps_a_rule_that_needs_all_its_words():
    columns = people(2000)
    inside = ((columns["sex"] == "F") == columns["race"].isin(["a", "b"])).to_numpy()
    rule = distil_rule(columns, inside)
    noise = 0.2 * np.random.default_rng(1).normal(size=len(inside))
    assert shortened(rule, CoveredRows(columns, 0.9 - 0.3 * inside + noise)) == rule


def coverage_of(inside: np.ndarray, gap: float = 0.3, seed: int = 0) -> np.ndarray:
    return 0.9 - gap * inside + 0.2 * np.random.default_rng(seed).normal(size=len(inside))


@pytest.mark.parametrize(
    "start",
    [
        (("edu", ("p", "q", "r"), False), ("race", ("d",), True)),
        (("edu", ("s",), True), ("race", ("a",), False)),
        (("edu", ("p",), False), ("race", ("a", "b", "c"), False)),
    ],
)
def test_lists_lose_people_who_are_covered_and_gain_those_who_are_not(start):
    columns = people(4000)
    truth = (columns["edu"].isin(["p", "q"]) & columns["race"].isin(["a", "b"])).to_numpy()
    rule = rule_of(tuple(Condition(f, e, levels, e) for f, levels, e in start))
    found = relisted(rule, CoveredRows(columns, coverage_of(truth)))
    np.testing.assert_array_equal(found.inside(columns), truth)
    assert found.text in (
        "edu in {p, q} and race in {a, b}",
        "edu in {p, q} and race not in {c, d}",
    )


def test_a_level_that_hardly_anyone_has_is_not_listed():
    columns = people(2000)
    columns.loc[:1, "edu"] = "rare"
    rule = rule_of((Condition("edu", levels=("p", "rare")),))
    covered = coverage_of(EDU_P.inside(columns))
    assert relisted(rule, CoveredRows(columns, covered)).text == "edu=p"


def test_missing_values_stay_where_they_are_and_are_named_only_if_there_are_some():
    columns = people(2000)
    covered = coverage_of(EDU_P.inside(columns))
    all_but_qrs = rule_of((Condition("edu", True, ("q", "r", "s"), is_excluding=True),))
    assert relisted(all_but_qrs, CoveredRows(columns, covered)).text == "edu=p"
    columns.loc[::10, "edu"] = None
    covered = coverage_of((EDU_P.inside(columns)) | columns["edu"].isna().to_numpy())
    assert relisted(all_but_qrs, CoveredRows(columns, covered)).text == "edu in {missing, p}"


@pytest.mark.parametrize("seed", range(20))
def test_the_best_move_is_that_of_trying_every_level(seed):
    rng = np.random.default_rng(seed)
    columns = people(300, seed)
    covered = rng.normal(size=300)
    lists = [tuple(rng.choice(list("pqrst"), rng.integers(1, 4), replace=False)) for _ in "ab"]
    alternatives = (
        (Condition("edu", False, lists[0], bool(seed % 2)), is_level("sex", "F")),
        (Condition("edu", False, lists[1]), is_level("race", "a")),
    )
    rule = rule_of(*alternatives)

    def value(i: int, levels: frozenset[str]) -> float:
        condition = alternatives[i][0].of_levels(levels, columns["edu"])
        moved = list(alternatives)
        moved[i] = (condition, alternatives[i][1])
        gain = CoveredRows(columns, covered).gain(rule_of(*moved).inside(columns))
        return gain - refining.NOISE * min(len(levels), 5 - len(levels))

    for i in (0, 1):
        condition = alternatives[i][0]
        now = frozenset(x for x in "pqrst" if (x in lists[i]) != condition.is_excluding)
        tried = [value(i, now ^ {level}) for level in "pqrst" if 0 < len(now ^ {level}) < 5]
        worth, moved = refining._best_move(alternatives, i, 0, CoveredRows(columns, covered))
        assert worth == pytest.approx(max(tried) - value(i, now))
        assert CoveredRows(columns, covered).gain(rule_of(*moved).inside(columns)) > -np.inf
    assert relisted(rule, CoveredRows(columns, np.ones(300))) == rule  # nothing to gain


def test_a_majority_keeps_its_lists():
    columns = people(1000)
    rule = rule_of((Condition("edu", True, ("p",), is_excluding=True),))
    assert relisted(rule, CoveredRows(columns, coverage_of(EDU_P.inside(columns)))) == rule


def test_a_described_group_says_how_far_its_words_agree():
    columns = people(2000)
    inside = EDU_P.inside(columns)
    noisy = inside ^ (np.random.default_rng(0).random(2000) < 0.05)
    rule = wording._described(CoveredRows(columns, coverage_of(inside)), tuple(columns), noisy)
    assert rule.text == "edu=p"
    assert rule.fidelity == (inside == noisy).mean()


def test_people_who_are_covered_are_left_out_by_a_further_condition():
    columns = people(4000)
    truth = WOMEN_A.inside(columns)
    parent = rule_of((is_level("race", "a"),))
    found = narrowed(parent, CoveredRows(columns, coverage_of(truth)))
    assert found.text == "race=a and sex=F"
    np.testing.assert_array_equal(found.inside(columns), truth)
    old = parent.inside(columns) & (columns["age"] > 40).to_numpy()
    found = rounded(
        narrowed(parent, CoveredRows(columns, coverage_of(old))),
        CoveredRows(columns, coverage_of(old)),
    )
    assert found.text == "race=a and age > 40"
    assert set(found.features) == {"race", "age"}


def test_people_who_are_covered_a_little_better_are_not_left_out():
    columns = people(4000)
    parent = rule_of((is_level("race", "a"),))
    half = 0.5 * parent.inside(columns) + 0.5 * WOMEN_A.inside(columns)
    assert narrowed(parent, CoveredRows(columns, coverage_of(half))) == parent
    few = parent.inside(columns) & (columns["edu"] != "p").to_numpy()  # a fifth is covered
    assert narrowed(parent, CoveredRows(columns, coverage_of(few))) == parent


@pytest.mark.parametrize("seed", range(5))
def test_noise_adds_no_condition(seed):
    columns = people(1000, seed)
    rule = rule_of((is_level("race", "a"),), (is_level("edu", "q"), is_level("sex", "F")))
    assert (
        narrowed(rule, CoveredRows(columns, coverage_of(rule.inside(columns), seed=seed))) == rule
    )


@pytest.mark.parametrize("seed", range(10))
def test_a_further_condition_is_worth_what_the_rule_gains(seed):
    columns = people(400, seed)
    covered = np.random.default_rng(seed).normal(size=400)
    rule = rule_of((is_level("race", "a"),), (is_level("edu", "q"), is_level("sex", "F")))
    before = CoveredRows(columns, covered).gain(rule.inside(columns))
    for name in ("edu", "age", "sex"):
        worth, longer = refining._with_condition(
            rule.alternatives, 0, columns[name], CoveredRows(columns, covered)
        )
        if np.isinf(worth):
            continue
        condition = longer[0][-1]
        n_levels = columns[name].nunique()
        words = len(condition.levels) if condition.levels else 1
        assert words <= n_levels / 2
        gain = CoveredRows(columns, covered).gain(rule_of(*longer).inside(columns)) - before
        assert worth == pytest.approx(gain - np.log(400) * (1 + words))


def test_single_numbers_are_one_piece():
    columns = people(2000)
    columns["kids"] = np.arange(2000) % 5 + 0.0
    single = Condition("kids", low=np.nextafter(2.0, 0), high=2.0)
    rule = rule_of((single, is_level("sex", "F")))
    covered = coverage_of(rule.inside(columns))
    assert shortened(rule, CoveredRows(columns, covered)).text == "kids=2 and sex=F"
    columns["kids"] = np.arange(2000) % 2 + 0.0  # even where one bound would do
    flag = rule_of((Condition("kids", low=np.nextafter(1.0, 0), high=1.0, kind="flag"),))
    assert (
        shortened(flag, CoveredRows(columns, coverage_of(flag.inside(columns)))).text == "kids=True"
    )


def test_codes_are_listed_and_amounts_stay_intervals():
    columns = people(4000)
    columns["code"] = np.random.default_rng(1).integers(1, 10, 4000).astype(float)
    start = rule_of((Condition("code", low=1.5, high=5.5),))
    for values, text in [((2, 6, 8), "code in {2, 6, 8}"), ((3, 4, 5), "2.5 < code <= 5.5")]:
        truth = columns["code"].isin(values).to_numpy()
        found = relisted(start, CoveredRows(columns, coverage_of(truth)))
        np.testing.assert_array_equal(found.inside(columns), truth)
        assert found.text == text
    ends = columns["code"].isin([2, 9]).to_numpy()
    columns["code"] += 1.0
    found = relisted(start, CoveredRows(columns, coverage_of(ends)))
    assert found.text == "code in {3, 10}"  # in the order of numbers, not of letters


def test_a_list_never_becomes_empty_or_full():
    columns = people(1000)
    rule = rule_of((is_level("sex", "F"), is_level("race", "a")))
    covered = np.random.default_rng(0).normal(size=1000)
    columns["race"] = "a"  # neither level nor flag can move
    columns["sex"] = np.where(np.arange(1000) % 3 == 0, "F", "M")
    assert (
        relisted(rule, CoveredRows(columns.astype({"sex": object, "race": object}), covered))
        == rule
    )
