"""A fit says one thing, in every place: terminal, JSON, report and model file."""

import json

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from typer.testing import CliRunner

from fareg._columns import canonical
from fareg._encoding import gradient_boosting
from fareg.auditing import Promise
from fareg.auditing._changes import groups_before_and_after
from fareg.auditing._rate import Audited
from fareg.auditing._story import RowLevels, level_story
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


def test_the_page_shows_the_group_before_the_audit_of_what_is_left(trial):
    summary = trial.comparison.to_dict()
    assert [repair["group"] for repair in summary["repairs"]] == [
        group.rule.text for group in trial.clf.named_groups_
    ]
    assert f"{summary['repairs'][0]['before']:.1%}" in summary["verdict"]["sentence"]
    for repair in summary["repairs"]:
        inside = [cell for cell in repair["before_picture"]["cells"] if cell["inside"] > 0.5]
        assert sum(cell["n"] for cell in inside) == pytest.approx(repair["n"], rel=0.1)
    page = render_report(summary)
    assert 0 < page.index('id="repair-heading"') < page.index('id="residual-heading"')
    assert ('id="tested-heading"' in page) == bool(summary["groups"])
    assert 'id="labels-heading"' in page


def test_the_page_says_everything_once(trial):
    summary = trial.comparison.to_dict()
    page, _ = render_report(summary).split('<script type="application/json"')
    for verdict in (summary["verdict"], summary["residual"]):
        assert page.count(str(escape(verdict["sentence"]))) == 1


def test_an_excess_risk_that_rounds_to_zero_has_no_sign(trial):
    tiny = {"excess_risk": -1e-5, "excess_risk_under": -2e-4}
    page = render_report({**trial.comparison.to_dict(), **tiny})
    assert page.count(">0.000</b>") == 2


def test_the_verdict_does_not_depend_on_what_else_is_measured(trial):
    quick = tried(measures=False)
    assert quick.comparison.verdict == trial.comparison.verdict
    assert quick.to_dict()["left"] == trial.to_dict()["left"]
    render_report(quick.comparison.to_dict())


def test_coverage_by_true_label_before_and_after(trial):
    for row in trial.comparison.by_label:
        here = trial.comparison.y.astype(str) == row["label"]
        assert row["n"] == here.sum()
        assert row["before"] == pytest.approx(trial.comparison.covered["before"][here].mean())
        assert row["coverage"] == pytest.approx(trial.comparison.covered["after"][here].mean())


def test_the_numbers_are_plain_and_say_where_they_come_from(trial):
    told = trial.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert set(told["about"]) >= {"file", "target", "date", "seed", "base_model", "accuracy"}
    assert told["fareg_version"]
    for group in told["groups"]:
        assert {"p_value", "before_low", "after_high"} <= set(group)


def test_the_story_tells_of_the_levels_before_and_after(trial):
    story = trial.comparison.to_dict()["story"]
    levels = trial.clf.predict_level(trial.X)
    assert [row["level"] for row in story["rows"]] == list(range(story["n_levels"]))
    for row in story["rows"]:
        here = levels == row["level"]
        assert row["n"] == here.sum()
        for moment, hit in trial.comparison.covered.items():
            assert row[moment] == pytest.approx(hit[here].mean())
            assert row[f"size_{moment}"] == pytest.approx(
                trial.comparison.sizes[moment][here].mean()
            )
    top, others = story["top"], story["others"]
    assert top["n"] + others["n"] == trial.n_test
    assert top["size_after"] > top["size_before"]
    assert others["size_after"] < others["size_before"]
    assert top["before"] < 0.9 < top["after_high"]
    assert story["named"] == [rule.text for rule in trial.comparison.named]
    after = top["share"] * top["size_after"] + others["share"] * others["size_after"]
    assert after == pytest.approx(trial.comparison.after["mean_size"])


def test_the_page_draws_the_story_and_says_if_nobody_is_named(trial):
    summary = trial.comparison.to_dict()
    page = render_report(summary)
    assert page.index('id="story-heading"') < page.index('id="repair-heading"')
    assert page.count('class="point after"') == 2 * len(summary["story"]["rows"]) + 1  # legend
    assert "Learning named nobody" not in page
    told = {**summary, "story": nobody(levels=[0, 1, 2, 2]), "groups": []}
    assert "Learning named nobody" in render_report(told)
    assert "all the same: " not in render_report(told)


def test_a_page_that_names_nobody_does_not_deny_what_the_audit_found(trial):
    summary = trial.comparison.to_dict()
    found = dict.fromkeys(("mean_size", "others_size"), 0.5)
    found |= {"n_found": 18, "n_splits": 20, "n_new": 400}
    found |= {"low": 0.6, "high": 0.8, "n": 400, "share": 0.3, "adjusted_p_value": 0.01}
    found |= {"rule": "north", "source": "level", "features": ["Color"], "is_finding": True}
    found["coverage"] = 0.7
    page = render_report({**summary, "story": nobody(levels=[0, 1, 2, 2]), "groups": [found]})
    assert "The audit of the test rows found north below 90% all the same: 70.0% covered" in page


def test_the_page_begins_with_the_promise_and_its_condition(trial):
    page = render_report(trial.comparison.to_dict())
    assert trial.clf.promise_ in page
    assert page.index(trial.clf.promise_) < page.index('id="verdict"')
    assert "if rows to come are like those that calibrated" in trial.clf.promise_


def test_a_named_group_lies_in_the_fewest_levels_that_hold_most_of_its_rows():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 8, 400)
    hits, sizes = (dict.fromkeys(("before", "after"), own) for own in (levels > 1, levels + 1))
    told = RowLevels(levels, 8, 4)
    few, none = levels == 3, levels > 8
    masks = {"few": few, "none": none, "some": rng.random(400) < 0.05 + (levels > 4) * 0.5}
    story = level_story(told, hits, sizes, masks)
    lie = {own.pop("group"): own for own in story["lie"]}
    assert list(lie) == story["named"]
    assert lie["few"] == {"n": int(few.sum()), "first": 3, "last": 3, "share": 1.0, "makes_up": 1.0}
    assert lie["none"] == {"n": 0, "first": None, "last": None, "share": None, "makes_up": None}
    own, here = lie["some"], levels[masks["some"]]
    shares = {
        (a, b): ((here >= a) & (here <= b)).mean() for a in range(8) for b in range(a, 8)
    }  # of every range of levels
    assert own["share"] == shares[own["first"], own["last"]] >= 0.8
    inside = (levels >= own["first"]) & (levels <= own["last"])
    assert own["makes_up"] == masks["some"][inside].mean()
    width = own["last"] - own["first"]
    assert all(share < 0.8 for (a, b), share in shares.items() if b - a < width)
    assert own["share"] == max(share for (a, b), share in shares.items() if b - a == width)


def test_named_groups_are_not_told_as_the_top_level(trial):
    summary = trial.comparison.to_dict()
    page, _ = render_report(summary).split('<script type="application/json"')
    for own, repair in zip(summary["story"]["lie"], summary["repairs"], strict=True):
        assert own["n"] == repair["n"]
        ends = f"levels {own['first']} to {own['last']}"
        assert (ends if own["first"] < own["last"] else f"level {own['first']}") in page
    assert "at the top" not in page


def nobody(levels):
    """Return the story of levels of which calibration made one, with an empty one among them."""
    levels = np.array(levels)
    hits = dict.fromkeys(("before", "after"), levels >= 0)
    sizes = dict.fromkeys(("before", "after"), levels + 1)
    return level_story(RowLevels(levels, int(levels.max()) + 2, 0), hits, sizes, {})


def test_the_story_of_a_single_level_is_that_of_split_sets(trial):
    one = {moment: np.ones(5, int) for moment in ("before", "after")}
    hits = {moment: sizes > 0 for moment, sizes in one.items()}
    story = level_story(RowLevels(np.zeros(5, int), 1, 0), hits, one, {})
    page = render_report({**trial.comparison.to_dict(), "story": story})
    assert "thresholds are the same for everyone" in page
    assert 'id="level-coverage-title"' not in page


def test_names_and_thresholds_are_told_beside_split_sets_whatever_else_is_compared(trial):
    summary = trial.comparison.to_dict()
    page = render_report({**summary, "comparison_labels": ["Exhaustive", "FaReG"]})
    assert "Credibly covered too rarely by split conformal sets" in page
    assert "a higher threshold than with split conformal sets" in page
    assert "Exhaustive covers" in page


def test_an_empty_level_has_no_numbers_and_the_page_still_stands(trial):
    story = nobody([0, 1, 2, 2])
    assert story["rows"][-1]["before"] is story["rows"][-1]["size_after"] is None
    assert "joined all levels" in render_report({**trial.comparison.to_dict(), "story": story})


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
    for text in (verdict["label"], verdict["sentence"], *verdict["next_steps"]):
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


def people_of(columns, covered):
    ones = np.ones(len(columns), dtype=np.int64)
    return {moment: Audited(columns, hit, ones) for moment, hit in covered.items()}


def test_the_numbers_of_a_group_are_those_of_the_rows_that_its_words_mean():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 80, 600), "region": rng.choice(["n", "s"], 600)})
    covered = {moment: rng.random(600) < 0.9 for moment in ("before", "after")}
    inside = ((X["age"] > 50) & (X["region"] == "n")).to_numpy()
    rule, columns = Rule.parse("age > 50 and region = n"), canonical(X)
    table = groups_before_and_after([rule], [], people_of(columns, covered), promise=Promise(0.9))
    row = table[table["named"]].iloc[0]
    assert row["n"] == inside.sum()
    assert row["before"] == covered["before"][inside].mean()
    assert row["group"] == rule.text


def test_a_named_group_that_is_a_level_is_listed_once():
    X = pd.DataFrame({"region": ["n", "s"] * 100})
    covered = {"before": np.ones(200, bool), "after": np.ones(200, bool)}
    columns = canonical(X)
    rule = Rule.parse("region = n")
    table = groups_before_and_after([rule], [], people_of(columns, covered), promise=Promise(0.9))
    assert table["group"].tolist() == ["everyone", "region = n", "region=s"]
    assert table["kind"].tolist() == ["everyone", "named", "level"]
