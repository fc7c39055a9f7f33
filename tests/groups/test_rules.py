"""Rules in words say what the group is."""

import re

import numpy as np
import pandas as pd
import pytest

from fareg import FaregError
from fareg._columns import as_numbers, canonical, note_held
from fareg.groups import distil_rule
from fareg.groups._rules import _best_tree, _design

RNG = np.random.default_rng(0)
N = 1000
COLUMNS = pd.DataFrame(
    {
        "Color": pd.Series(RNG.choice(["Red", "Blue"], N), dtype=object),
        "Region": pd.Series(RNG.choice(["Asia", "Europe", "Africa", "America"], N), dtype=object),
        "Age": RNG.uniform(0, 100, N),
        "Income": np.where(RNG.random(N) < 0.3, np.nan, RNG.normal(size=N)),
    }
)
AGE, COLOR, REGION = COLUMNS["Age"], COLUMNS["Color"], COLUMNS["Region"]


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (COLOR == "Red", "Color=Red"),
        (REGION.isin(["Asia", "Africa"]), "Region in {Africa, Asia}"),
        (REGION != "Asia", "Region is not Asia"),
        (COLUMNS["Income"].isna(), "Income missing"),
        (COLUMNS["Income"].notna(), "Income not missing"),
        ((COLOR == "Red") & REGION.isin(["Asia"]), "Color=Red and Region=Asia"),
        (
            (COLOR == "Red") == (REGION == "Asia"),
            "(Color=Blue and Region is not Asia) or (Color=Red and Region=Asia)",
        ),
    ],
)
def test_says_what_the_group_is(inside, text):
    rule = distil_rule(COLUMNS, inside.to_numpy())
    assert rule.text == text
    assert rule.fidelity == 1.0


def test_numbers_become_intervals_close_to_the_truth():
    rule = distil_rule(COLUMNS, ((AGE > 30) & (AGE <= 60)).to_numpy())
    low, high = rule.text.split(" < Age <= ")
    assert abs(float(low) - 30) < 1
    assert abs(float(high) - 60) < 1
    assert rule.features == ("Age",)


@pytest.mark.parametrize("seed", range(5))
def test_a_group_that_only_three_features_together_tell_is_described(seed):
    rng = np.random.default_rng(seed)
    columns = pd.DataFrame(rng.choice(["a", "b"], (1000, 6)), columns=list("uvwxyz"), dtype=object)
    columns["age"] = rng.uniform(0, 100, 1000)
    odd = (columns[["u", "w", "z"]] == "a").sum(axis=1).to_numpy() % 2 == 1
    rule = distil_rule(columns, odd ^ (rng.random(1000) < 0.03))
    assert rule.features == ("u", "w", "z")
    np.testing.assert_array_equal(rule.inside(columns), odd)


def test_fidelity_is_the_share_of_rows_that_agree():
    noisy = (COLOR == "Red").to_numpy() ^ (RNG.random(N) < 0.1)
    rule = distil_rule(COLUMNS, noisy)
    assert rule.text == "Color=Red"
    assert rule.fidelity == pytest.approx((noisy == (COLOR == "Red")).mean())


@pytest.mark.parametrize(("inside", "text"), [(True, "everyone"), (False, "no one")])
def test_trivial_groups(inside, text):
    assert distil_rule(COLUMNS, np.full(N, inside)).text == text


def test_five_hundred_categories_and_odd_names_give_a_rule():
    columns = pd.DataFrame({"a <b>": [f"level {i % 500}" for i in range(N)]}, dtype=object)
    rule = distil_rule(columns, RNG.random(N) < 0.5)
    assert "a <b>" in rule.text or rule.text == "no short rule"
    assert 0 <= rule.fidelity <= 1


DAYS = pd.Timestamp("2015-01-01") + pd.to_timedelta(np.arange(N) % 900, "D")
MINUTES = pd.Timestamp("2015-01-01") + pd.to_timedelta(np.arange(N) % 60 * 10, "min")
USERS = pd.DataFrame(
    {
        "urban": np.arange(N) % 7 < 3,
        "maybe": pd.Series(np.resize([True, None, False, False, True], N), dtype=object),
        "joined": DAYS,
        "seen": MINUTES,
        "owner": np.arange(N) % 11 < 4,
        "children": np.arange(N) // 8 % 5,
    }
).astype({"owner": int})


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (USERS["urban"], "urban=True"),
        (~USERS["urban"], "urban=False"),
        (USERS["maybe"] == True, "maybe=True"),  # noqa: E712
        (USERS["maybe"].isna(), "maybe missing"),
        (DAYS < "2017-01-13", "joined before 2017-01-13"),
        (DAYS >= "2017-01-13", "joined from 2017-01-13 on"),
        (
            (DAYS >= "2016-01-01") & (DAYS < "2017-01-13"),
            "joined from 2016-01-01 to before 2017-01-13",
        ),
        (MINUTES < "2015-01-01 05:00", "seen before 2015-01-01 05:00:00"),
        (USERS["owner"] == 1, "owner=1"),
        (USERS["owner"] == 0, "owner=0"),
        (USERS["children"] == 2, "children=2"),
        (USERS["children"] > 2, "children > 2.5"),
    ],
)
def test_rules_speak_of_flags_dates_and_whole_numbers_as_the_table_does(inside, text):
    rule = distil_rule(canonical(USERS), np.asarray(inside, dtype=bool))
    assert (rule.text, rule.fidelity) == (text, 1.0)


def wild_table(seed):
    """Draw columns of every kind: texts, numbers of all sizes, dates, missing and infinite."""
    rng = np.random.default_rng(seed)
    n = 300
    columns = pd.DataFrame(
        {
            "text": pd.Series(rng.choice(["a", "b", "missing", None], n), dtype=object),
            "crowd": pd.Series([f"level {i}" for i in rng.integers(0, 70, n)], dtype=object),
            "number": rng.normal(size=n) * 10.0 ** rng.integers(-3, 9),
            "gaps": np.where(rng.random(n) < 0.3, np.nan, rng.integers(0, 5, n)),
            "wild": rng.choice([np.inf, -np.inf, np.nan, 1e35, 0.1, 7.0], n),
            "seen": 1.6e9 + rng.integers(0, 200, n),
            "id": 20_000_000.0 + rng.integers(0, 12, n),
        }
    )
    columns = note_held(columns, {"seen": "date"})
    chosen = [str(name) for name in rng.choice(columns.columns, rng.integers(1, 4), replace=False)]
    lucky = {name: rng.random(1000) < 0.5 for name in chosen}
    inside = np.zeros(n, dtype=bool)
    for name in chosen:
        levels = pd.factorize(pd.cut(columns[name], 4) if name == "number" else columns[name])[0]
        inside ^= lucky[name][levels]
    return columns[chosen], inside ^ (rng.random(n) < 0.05)


@pytest.mark.parametrize("seed", range(60))
def test_the_words_mean_the_rows_that_the_tree_puts_inside(seed):
    columns, inside = wild_table(seed)
    rule = distil_rule(columns, inside)
    x, inputs = _design(columns)
    predicted = _best_tree(x, inputs, columns, inside).predict(x)
    np.testing.assert_array_equal(rule.inside(columns), predicted)
    assert rule.fidelity == (predicted == inside).mean()


@pytest.mark.parametrize("scale", [1e-3, 0.01, 1.0, 12_345.678, 1e9, 1e15])
@pytest.mark.parametrize("bounds", [(0.2, 0.7), (0.0, 0.4), (0.6, 1.0)])
def test_a_reader_of_the_words_finds_the_same_rows(scale, bounds):
    """Numbers are not rounded in the words, whatever their size."""
    x = np.random.default_rng(1).random(2000)
    columns = pd.DataFrame({"x": x * scale})
    rule = distil_rule(columns, (bounds[0] < x) & (x <= bounds[1]))
    said = re.fullmatch(r"(?:(\S+) < )?x(?: > (\S+))?(?: <= (\S+))?", rule.text)
    low = float(said[1] or said[2] or "-inf")
    high = float(said[3] or "inf")
    expected = (low < columns["x"]) & (columns["x"] <= high)
    np.testing.assert_array_equal(rule.inside(columns), expected)
    assert rule.fidelity > 0.99


def test_a_level_never_seen_is_where_the_words_put_it():
    new = pd.DataFrame({"Region": ["Mars", "Asia", None]}, dtype=object)
    assert distil_rule(COLUMNS, (REGION != "Asia").to_numpy()).inside(new).tolist() == [1, 0, 1]
    assert distil_rule(COLUMNS, (REGION == "Asia").to_numpy()).inside(new).tolist() == [0, 1, 0]


def test_missing_numbers_are_named_where_they_are_meant():
    income = COLUMNS["Income"]
    with_gaps = distil_rule(COLUMNS, ((income > 0.5) | income.isna()).to_numpy())
    assert re.fullmatch(r"\(Income > \S+ or missing\)", with_gaps.text)
    assert with_gaps.inside(pd.DataFrame({"Income": [np.nan, 9.0, -9.0]})).tolist() == [1, 1, 0]
    without = distil_rule(COLUMNS, (income > 0.5).to_numpy())
    assert without.inside(pd.DataFrame({"Income": [np.nan, np.inf, 9.0]})).tolist() == [0, 0, 1]


def test_a_value_beside_a_whole_number_is_not_that_number():
    rule = distil_rule(canonical(USERS), (USERS["children"] == 2).to_numpy())
    assert rule.inside(pd.DataFrame({"children": [2.0, 2.2, 1.9]})).tolist() == [1, 0, 0]


@pytest.mark.parametrize("as_held", [lambda frame: frame, lambda frame: frame.astype(object)])
def test_a_rule_reads_the_table_of_its_user(as_held):
    table = USERS.assign(
        zoned=DAYS.tz_localize("Europe/Paris"),
        wait=pd.to_timedelta(np.arange(N) % 40, "h"),
        kind=pd.Categorical(np.resize(["a", "b", None, "c"], N)),
        count=pd.array(np.resize([1, 2, None, 3, 5], N), dtype="Int64"),
    )
    columns = canonical(table)
    for name in table:
        ranks = as_numbers(columns[name]) if name != "kind" else pd.Series(table["kind"].cat.codes)
        rule = distil_rule(columns[[name]], (ranks > ranks.median()).to_numpy())
        assert 0 < rule.inside(columns).sum() < N
        np.testing.assert_array_equal(rule.inside(as_held(table)), rule.inside(columns))


def test_everyone_and_no_one_are_rules_too():
    assert distil_rule(COLUMNS, np.ones(N, dtype=bool)).inside(COLUMNS).all()
    assert not distil_rule(COLUMNS, np.zeros(N, dtype=bool)).inside(COLUMNS).any()


def test_a_rule_asks_for_the_columns_that_it_names():
    with pytest.raises(FaregError, match="needs column Color"):
        distil_rule(COLUMNS, (COLOR == "Red").to_numpy()).inside(COLUMNS[["Age"]])


def test_a_frame_as_users_have_it_gets_the_words_of_its_canonical_columns():
    frame = pd.DataFrame(
        {
            "Color": pd.Series(COLOR, dtype="string"),
            "Region": pd.Categorical(REGION),
            "Member": RNG.random(N) < 0.5,
            "Age": AGE.round().astype(int),
        }
    )
    inside = ((frame["Color"] == "Red") & frame["Member"]).to_numpy(dtype=bool)
    rule = distil_rule(frame, inside)
    assert rule == distil_rule(canonical(frame), inside)
    assert (rule.text, rule.fidelity) == ("Color=Red and Member=True", 1.0)
