"""Rules in words say what the group is."""

import numpy as np
import pandas as pd
import pytest

from fareg._frames import canonical
from fareg.groups import distil_rule

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
