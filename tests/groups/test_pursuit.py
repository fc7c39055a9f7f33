"""Laws of the pursuit: it scores as it says, finds what is planted, hears nothing in noise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fareg._columns import canonical
from fareg.groups import Rule, find_groups
from fareg.groups import _pursuit as pursuit


def people(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    job = pd.Series(rng.choice([f"job {j}" for j in range(9)], n), dtype=object)
    return canonical(
        pd.DataFrame(
            {
                "age": rng.integers(18, 90, n),
                "income": np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(10, 1, n)),
                "sex": rng.choice(["F", "M"], n),
                "region": rng.choice(["n", "s", "e", "w"], n),
                "children": rng.integers(0, 4, n),
                "job": job.mask(rng.random(n) < 0.15),
                "member": rng.random(n) < 0.3,
                "born": pd.Timestamp("1950-01-01")
                + pd.to_timedelta(rng.integers(0, 20000, n), "D"),
            }
        )
    )


def misses(inside: np.ndarray, seed: int, much: float = 0.5, little: float = 0.08) -> np.ndarray:
    rng = np.random.default_rng(seed + 1000)
    return (rng.random(len(inside)) < np.where(inside, much, little)).astype(float)


@pytest.mark.parametrize("clusters", [None, np.arange(400) // 3])
def test_products_of_matrices_score_as_counting_does(clusters):
    table = people(400, 0)
    table = table[["age", "income", "sex", "job"]]
    shortfall = np.random.default_rng(1).random(400)
    features = [pursuit._Feature.learn(table[name]) for name in table]
    number = np.arange(400) if clusters is None else clusters
    search = pursuit._Search(features, shortfall, number)
    terms = pursuit._Terms(search, [*search.conditions, *search._best_lists()])
    masks = np.array([mask[features[j].codes] for j, mask in terms.terms])
    weight = 1 / np.bincount(number)[number]
    excess = shortfall - np.average(shortfall, weights=weight)

    def score(inside, *chosen):
        prices = sum(terms.price[list(chosen)])
        prices += search.price_of_features[len({terms.terms[i][0] for i in chosen})]
        return (
            float(search.evidence(weight[inside].sum(), (weight * excess)[inside].sum())) - prices
        )

    pairs = terms.pairs()
    n = len(masks)
    for i in range(n):
        for k in range(i + 1, n):
            expected = score(masks[i] & masks[k], i, k)
            assert pairs[i, k] == pytest.approx(expected, abs=1e-3)
        assert pairs[i, i] == pytest.approx(score(masks[i], i), abs=1e-3)
    few = np.array([[0, n - 1], [3, 7]])
    for row, (i, k) in zip(terms.triples(few), few.tolist(), strict=True):
        for m in set(range(n)) - {i, k}:
            assert row[m] == pytest.approx(score(masks[i] & masks[k] & masks[m], i, k, m), abs=1e-3)


PLANTED = [
    "sex = F and age > 60",
    "region = n and sex = M",
    "job in {job 1, job 4, job 7}",
    "income is missing",
    "children = 2 and member = True",
    "born < 1962-01-01 and sex = F",
    "40 < age <= 55",
    "age > 40 and income > 20000 and sex = F",
]


@pytest.mark.parametrize("text", PLANTED)
def test_a_planted_group_is_found_in_its_words(text):
    table = people(4000, 2)
    inside = Rule.parse(text).inside(table)
    rules = find_groups(table, misses(inside, 2))
    assert set(rules[0].features) == set(Rule.parse(text).features)
    found = rules[0].inside(table)
    assert (found & inside).sum() >= 0.85 * (found | inside).sum()
    assert Rule.parse(rules[0].text) == rules[0]


def test_one_in_a_hundred_is_found_among_many_rows():
    table = people(12_000, 11)
    inside = Rule.parse("age > 80 and region = n and sex = F and job is not missing").inside(table)
    assert inside.mean() < 0.015
    (rule,) = find_groups(table, misses(inside, 11))
    found = rule.inside(table)
    assert (found & inside).sum() >= 0.7 * (found | inside).sum()


def test_groups_that_no_condition_shows_alone_are_found_and_none_is_said_twice():
    table = people(3000, 3)
    inside = ((table["sex"] == "F") == (table["member"] == "True")).to_numpy()
    rules = find_groups(table, misses(inside, 3))
    assert {rule.text for rule in rules} == {
        "member = True and sex = F",
        "member = False and sex = M",
    }


def test_the_order_of_rows_and_columns_changes_nothing():
    table = people(2000, 4)
    target = misses(Rule.parse("sex = F and age > 60").inside(table), 4)
    target += misses(Rule.parse("region = n").inside(table), 5, 0.3)
    words = [rule.text for rule in find_groups(table, target)]
    assert words
    rows = np.random.default_rng(0).permutation(2000)
    shuffled = table.iloc[rows].reset_index(drop=True)[table.columns[::-1]]
    shuffled.attrs = table.attrs
    assert [rule.text for rule in find_groups(shuffled, target[rows])] == words
    assert [rule.text for rule in find_groups(table, 5 + 3 * target)] == words


def test_rows_of_a_cluster_are_no_further_evidence():
    table = people(300, 5)
    inside = Rule.parse("sex = F and age > 50").inside(table)
    target = misses(inside, 5, 0.6)
    once = [rule.text for rule in find_groups(table, target)]
    copies = np.repeat(np.arange(300), 6)
    many = table.iloc[copies].reset_index(drop=True)
    many.attrs = table.attrs
    assert [rule.text for rule in find_groups(many, target[copies], copies)] == once
    noise = misses(np.zeros(300, dtype=bool), 6)
    assert find_groups(many, noise[copies], copies) == []


def test_noise_is_silent():
    heard = 0
    for seed in range(60):
        table = people(600, 100 + seed)
        heard += bool(find_groups(table, misses(np.zeros(600, dtype=bool), seed)))
    assert heard <= 3 + 3  # 5% of 60, and two standard errors


def test_a_group_that_varies_more_is_not_found_for_that():
    heard = 0
    for seed in range(40):
        table, rng = people(600, 200 + seed), np.random.default_rng(seed)
        spread = np.where(table["age"] > 70, 1.0, 0.1)
        heard += bool(find_groups(table, rng.uniform(-1, 1, 600) * spread))
    assert heard <= 5


def test_a_group_is_a_minority_of_many_rows():
    table = people(3000, 7)
    for text in ("age > 30", "age > 89"):
        target = misses(Rule.parse(text).inside(table), 7, 0.9)
        for rule in find_groups(table, target):
            share = rule.inside(table).mean()
            assert pursuit.MIN_SHARE <= share <= pursuit.MAX_SHARE


EDGES = {
    "no rows": lambda n: pd.DataFrame({"a": np.empty(0), "b": np.empty(0, dtype=object)}),
    "one row": lambda n: pd.DataFrame({"a": [1.0], "b": pd.Series(["x"], dtype=object)}),
    "all missing": lambda n: pd.DataFrame(
        {"a": np.full(n, np.nan), "b": pd.Series([None] * n, dtype=object)}
    ),
    "constant": lambda n: pd.DataFrame({"a": np.ones(n), "b": pd.Series(["x"] * n, dtype=object)}),
    "ids": lambda n: pd.DataFrame({"a": pd.Series([f"id {i}" for i in range(n)], dtype=object)}),
    "huge": lambda n: pd.DataFrame({"a": np.resize([1e308, -1e308, np.inf, -np.inf, 0, 3], n)}),
    "tiny": lambda n: pd.DataFrame({"a": np.resize([5e-324, 0, 1e-310, 2e-310], n)}),
    "two days": lambda n: canonical(
        pd.DataFrame({"a": pd.to_datetime(np.resize(["2020-01-01", "2020-01-02", None], n))})
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_are_answers(name):
    table = EDGES[name](300)
    n = len(table)
    for target in (np.zeros(n), np.resize([0.0, 1.0, 0.0], n)):
        for rule in find_groups(table, target):
            assert Rule.parse(rule.text) == rule
            assert rule.inside(table).any()


def test_many_columns_and_levels_do_not_explode(monkeypatch):
    rng = np.random.default_rng(9)
    wide = pd.DataFrame({f"x{j}": rng.normal(size=1000) for j in range(200)})
    wide["job"] = pd.Series(rng.choice([f"job {j}" for j in range(1000)], 1000), dtype=object)
    features = [pursuit._Feature.learn(wide[name]) for name in wide]
    inside = (wide["x7"] > 0.8).to_numpy()
    target = misses(inside, 9)
    search = pursuit._Search(features, target, np.arange(1000))
    assert len(search.conditions) <= 2 * pursuit.MAX_CONDITIONS
    assert find_groups(wide, target)[0].features == ("x7",)
