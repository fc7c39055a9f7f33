"""Two kinds of sets on the same rows: who was made worse, and which groups are listed."""

import numpy as np
import pandas as pd
import pytest

from fareg._columns import canonical
from fareg.auditing import Promise, compare_sets
from fareg.auditing._rate import Audited
from fareg.auditing._tables import group_changes
from fareg.report import render_report


def compared(X, before, after, **options):
    """Compare sets of two labels; ``before`` and ``after`` tell which rows are covered."""
    y = np.repeat("a", len(X))
    sets = {m: np.column_stack([own, ~own]) for m, own in (("before", before), ("after", after))}
    return compare_sets(
        X,
        y,
        sets,
        classes=["a", "b"],
        predicted=y,
        confidence_level=0.9,
        names=("Split conformal", "FaReG"),
        measures=False,
        random_state=0,
        **options,
    )


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "area": rng.choice(list("abcdefgh"), n)})
    return X, rng


def test_a_group_whose_coverage_falls_below_the_target_was_made_worse():
    X, rng = draw(4000)
    u, women = rng.random(4000), (X["sex"] == "f").to_numpy()
    told = compared(X, u < 0.91, u < np.where(women, 0.82, 0.99), named=[])
    assert told.verdict["made_worse"] == ["sex = f"]
    assert told.verdict["status"] == "finding"
    assert "made worse" in told.verdict["label"]
    assert told.verdict["sentence"].startswith("Made worse: sex = f: 9")
    assert "split conformal sets cover them better" in told.verdict["next_steps"][0]
    summary = told.to_dict()
    assert [row["group"] for row in summary["after"] if row["made_worse"]] == ["sex = f"]
    page = render_report(summary)
    assert "One group was made worse" in page
    assert "Made worse: sex = f" in page
    assert "made worse" in told.summary()


def test_who_loses_cover_that_nobody_promised_was_not_made_worse():
    X, rng = draw(4000)
    u, women = rng.random(4000), (X["sex"] == "f").to_numpy()
    told = compared(X, u < np.where(women, 0.84, 0.98), u < 0.91, named=[])
    assert told.verdict["made_worse"] == []
    assert "worse" not in f"{told.verdict['label']} {told.verdict['sentence']}"


def test_chance_makes_nobody_worse():
    said = 0
    for seed in range(60):
        X, rng = draw(400, seed)
        u, other = rng.random(400), rng.random(400)
        same = rng.random(400) < 0.7
        covered = {"before": u < 0.9, "after": np.where(same, u, other) < 0.9}
        people = {m: Audited(canonical(X), own, own.astype(int)) for m, own in covered.items()}
        said += group_changes(people, [], [], Promise(0.9))["made_worse"].any()
    assert said <= 8  # 5% of 60 tables are 3


def test_what_the_audit_verified_is_in_the_table_on_the_rows_that_verified_it():
    X, rng = draw(4000)
    hard = ((X["sex"] == "f") & X["area"].isin(["a", "b"])).to_numpy()
    covered = rng.random(4000) < np.where(hard, 0.6, 0.95)
    told = compared(X, covered, covered, named=[])
    found = told.left.findings[0]
    row = told.groups[told.groups["verified"]].iloc[0]
    assert (row["group"], row["n"]) == (str(found.rule), found.rate.n)
    assert row["after"] == pytest.approx(found.rate.share, abs=0.01)


def test_levels_of_few_rows_give_way_and_say_so():
    X, rng = draw(2000)
    X["area"] = np.where(np.arange(2000) < 30, "tiny", X["area"])
    covered = rng.random(2000) < np.where(X["area"] == "tiny", 0.5, 0.9)
    told = compared(X, covered, covered)
    listed = told.groups[told.groups["kind"] == "level"]
    assert not listed["few"].any()  # there are enough levels of more rows
    groups = compared(X[:300], covered[:300], covered[:300], named=[]).groups
    assert groups["few"].any()
    assert groups["few"].tolist() == (groups["n"] < 100).tolist()


def test_the_same_people_are_listed_once():
    X, rng = draw(1000)
    X["code"] = X["sex"].map({"f": 1.0, "m": 2.0})
    covered = rng.random(1000) < 0.9
    groups = compared(X, covered, covered, listed=["sex", "code"]).groups["group"].tolist()
    assert [name for name in sorted(groups) if "area" not in name] == ["everyone", "sex=f", "sex=m"]


def test_the_levels_of_columns_that_were_asked_for_are_listed():
    X, rng = draw(3000)
    covered = rng.random(3000) < np.where(X["area"] == "a", 0.85, 0.9)
    worst = compared(X, covered, covered).groups
    assert worst["kind"].tolist() == ["everyone", *["level"] * 5]
    groups = compared(X, covered, covered, listed=["sex"]).groups
    assert groups["group"].tolist() == ["everyone", "sex=f", "sex=m"]
