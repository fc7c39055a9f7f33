"""A fit says one thing, in every place: terminal, JSON, report and model file."""

import json

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from typer.testing import CliRunner

from fareg._columns import canonical
from fareg._encoding import gradient_boosting
from fareg.auditing import Promise, RowLevels
from fareg.auditing._comparison import level_story
from fareg.auditing._rate import Audited
from fareg.auditing._tables import group_changes
from fareg.classifiers import FaReGClassifier
from fareg.cli import app
from fareg.datasets import make_synthetic
from fareg.groups import Rule
from fareg.report import render_report
from fareg.workflow._fit import fit_and_test

DATA = make_synthetic(3000, random_state=0)


def tried(**options):
    estimator = gradient_boosting(0).set_params(histgradientboostingclassifier__max_iter=20)
    clf = FaReGClassifier(estimator, sensitive_features=DATA.sensitive, random_state=0)
    return fit_and_test(clf, DATA.X, DATA.y, **options)


@pytest.fixture(scope="module")
def trial():
    return tried(about={"file": "t.csv", "target": "y", "base_model": "hgb"})


def test_the_page_tells_everything_once_and_in_order(trial):
    summary = trial.comparison.to_dict()
    named = [group.rule.text for group in trial.clf.named_groups_]
    assert [repair["group"] for repair in summary["repairs"]] == named == summary["story"]["named"]
    assert f"{summary['repairs'][0]['before']:.1%}" in summary["verdict"]["sentence"]
    page, _ = render_report(summary).split('<script type="application/json"')
    places = [trial.clf.promise_, 'id="verdict"', 'id="story-heading"', 'id="changes-heading"']
    places += ['id="residual-heading"', 'id="labels-heading"']
    assert sorted(map(page.index, places)) == [page.index(place) for place in places]
    assert "if new rows are like the calibration rows" in trial.clf.promise_
    assert ('id="tested-heading"' in page) == bool(summary["groups"])
    for verdict in (summary["verdict"], summary["residual"]):
        for sentence in verdict["sentence"].split(". "):
            assert page.count(str(escape(sentence))) == 1


def test_an_excess_risk_that_rounds_to_zero_has_no_sign(trial):
    tiny = {"excess_risk": -1e-5, "excess_risk_under": -2e-4}
    page = render_report({**trial.comparison.to_dict(), **tiny})
    assert page.count(">0.000</b>") == 2


def test_the_verdict_does_not_depend_on_what_else_is_measured(trial):
    quick = tried(measures=False)
    assert quick.comparison.verdict == trial.comparison.verdict
    assert quick.to_dict()["left"] == trial.to_dict()["left"]
    render_report(quick.comparison.to_dict())


def test_the_numbers_are_plain_those_of_the_rows_and_say_where_they_come_from(trial):
    told, people = trial.to_dict(), trial.comparison.people
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert set(told["about"]) >= {"file", "target", "date", "seed", "base_model", "accuracy"}
    assert told["fareg_version"]
    assert all({"p_value", "before_low", "after_high"} <= set(group) for group in told["groups"])
    for row in trial.comparison.by_label:
        here = trial.comparison.y.astype(str) == row["label"]
        assert row["n"] == here.sum()
        assert row["before"] == pytest.approx(people["before"].covered[here].mean())
        assert row["coverage"] == pytest.approx(people["after"].covered[here].mean())


def test_the_story_tells_of_the_levels_before_and_after(trial):
    story = trial.comparison.to_dict()["story"]
    levels = trial.clf.predict_level(trial.X)
    assert [row["level"] for row in story["rows"]] == list(range(story["n_levels"]))
    for row in story["rows"]:
        here = levels == row["level"]
        assert row["n"] == here.sum()
        for moment, own in trial.comparison.people.items():
            assert row[moment] == pytest.approx(own.covered[here].mean())
            assert row[f"{moment}_size"] == pytest.approx(own.size[here].mean())
            assert row[f"{moment}_singletons"] == pytest.approx((own.size[here] == 1).mean())
    top, others = story["top"], story["others"]
    assert top["n"] + others["n"] == trial.n_test
    assert top["after_size"] > top["before_size"]
    assert others["after_size"] < others["before_size"]
    assert top["before"] < 0.9 < top["after_high"]
    after = top["share"] * top["after_size"] + others["share"] * others["after_size"]
    assert after == pytest.approx(trial.comparison.after["mean_size"])


def story_of(levels, n_levels, first_raised=0):
    levels = np.array(levels)
    rows = Audited(None, levels >= 0, levels + 1)
    return level_story(RowLevels(levels, n_levels, first_raised), {"before": rows, "after": rows})


def test_the_page_draws_the_story_and_says_if_nobody_is_named(trial):
    summary = trial.comparison.to_dict()
    page = render_report(summary)
    assert page.count('class="point after"') == 2 * len(summary["story"]["rows"]) + 1  # legend
    assert "Nobody: on the calibration rows" not in page
    assert "a higher threshold than with split conformal sets" in page
    other = render_report({**summary, "comparison_labels": ["Exhaustive", "FaReG"]})
    assert "Split conformal sets clearly cover these groups too rarely" in other
    assert "Exhaustive covers" in other
    # calibration made one level of three, and a fourth has no rows
    nobody = story_of([0, 1, 2, 2], n_levels=4)
    assert nobody["rows"][-1]["before"] is nobody["rows"][-1]["after_size"] is None
    page = render_report({**summary, "story": nobody, "groups": []})
    assert "joined all levels" in page
    assert "Nobody: on the calibration rows" in page
    assert "all the same: " not in page
    found = {"n_found": 18, "n_splits": 20, "n_new": 400, "coverage": 0.7, "rule": "north"}
    found |= {"low": 0.6, "high": 0.8, "n": 400, "share": 0.3, "adjusted_p_value": 0.01}
    found |= {"mean_size": 0.5, "others_size": 0.5, "features": ["Color"], "is_finding": True}
    page = render_report({**summary, "story": nobody, "groups": [found]})
    assert "The audit of the test rows found north below 90% all the same: 70.0% covered" in page


def test_the_story_of_a_single_level_is_that_of_split_sets(trial):
    told = trial.comparison.to_dict()
    assert any(row["protected"] for row in told["after"])
    nobody = [{**row, "protected": False} for row in told["after"]]
    for after, who in ((nobody, ""), (told["after"], " outside the protected groups")):
        for levels, n_levels in (([0] * 5, 1), ([0, 1], 2)):
            story = story_of(levels, n_levels=n_levels)
            page = render_report({**told, "story": story, "after": after})
            assert f"so everyone{who} has the same threshold" in page
            assert ('id="level-coverage-title"' in page) == (n_levels > 1)


def imbalanced(n=4000):
    """Return a table whose rare label nobody can tell from the common one."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(n) < 0.12, "rare", "common")
    return pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["u", "v"], n), "y": y})


def fit(folder, *options):
    run = ("fit", folder / "t.csv", "--target", "y", "--estimator", "logistic")
    done = CliRunner().invoke(app, [str(part) for part in (*run, *options)])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_terminal_json_report_and_model_file_say_the_same(tmp_path):
    imbalanced().to_csv(tmp_path / "t.csv", index=False)
    model, page = tmp_path / "m.fareg", tmp_path / "r.html"
    shown = " ".join(fit(tmp_path, "--out", model).split())
    told = json.loads(fit(tmp_path, "--out", model, "--report", page, "--json"))
    verdict = told["verdict"]
    stored = json.loads(CliRunner().invoke(app, ["info", str(model), "--json"]).stdout)
    information = " ".join(CliRunner().invoke(app, ["info", str(model)]).stdout.split())
    html = page.read_text(encoding="utf-8")
    assert stored["metadata"]["verdict"] == verdict
    assert verdict["status"] == "label"
    for text in (verdict["label"], *verdict["sentence"].split(". "), *verdict["next_steps"]):
        assert text in shown
        assert text in information
        assert text in html
    assert "true label rare" in shown
    for fact in ("t.csv", "logistic", told["about"]["date"], told["fareg_version"]):
        assert fact in html


def test_label_conditional_calibration_covers_the_rare_label(tmp_path):
    imbalanced().to_csv(tmp_path / "t.csv", index=False)
    out = ("--out", tmp_path / "m.fareg", "--json")
    rare = [
        next(row for row in json.loads(text)["by_label"] if row["label"] == "rare")["coverage"]
        for text in (fit(tmp_path, *out), fit(tmp_path, "--label-conditional", *out))
    ]
    assert rare[0] < 0.5
    assert rare[1] > 0.8


def test_the_numbers_of_a_group_are_those_of_the_rows_that_its_words_mean():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 80, 600), "region": rng.choice(["n", "s"], 600)})
    people = {
        moment: Audited(canonical(X), rng.random(600) < 0.9, np.ones(600, dtype=np.int64))
        for moment in ("before", "after")
    }
    inside = ((X["age"] > 50) & (X["region"] == "n")).to_numpy()
    rules = [Rule.parse("age > 50 and region = n"), Rule.parse("region = n")]
    table = group_changes(people, rules, [], Promise(0.9))
    row = table[table["named"]].iloc[0]
    assert row["n"] == inside.sum()
    assert row["before"] == people["before"].covered[inside].mean()
    # a named group that is a level is listed once
    regions = table[table["column"].isin(["", "region"])]
    assert regions["group"].tolist() == ["everyone", *(rule.text for rule in rules), "region=s"]
    assert regions["kind"].tolist() == ["everyone", "named", "named", "level"]
