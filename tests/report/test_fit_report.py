"""The report of a fit leads with the group that was repaired; the audit of what is left follows."""

import pytest

from fareg._encoding import gradient_boosting
from fareg.datasets import make_synthetic
from fareg.report import render_report
from fareg.workflow._fit import fit_and_test, fit_verdict

FINE = {"status": "pass", "label": "No under-covered group found", "sentence": "Fine."}


def told(**row):
    row = {"group": "RULE", "n": 411, "before": 0.847, "after": 0.929} | row
    row = {"after_low": 0.90, "after_high": 0.95} | row
    return {
        "rows": {"test": 800},
        "confidence_level": 0.9,
        "after": {"coverage": 0.91},
        "group": "RULE",
        "groups": [row],
    }


def test_a_repair_is_the_headline():
    verdict = fit_verdict(told(), FINE)
    assert verdict["status"] == "pass"
    assert verdict["label"] == "One group was under-covered and is repaired"
    assert verdict["sentence"].startswith("RULE: 84.7% → 92.9% on 411 test rows (95% interval")


@pytest.mark.parametrize(
    ("row", "status", "words"),
    [
        ({"after": 0.88, "after_low": 0.84}, "pass", "within chance"),
        ({"after": 0.86, "after_high": 0.89}, "finding", "only partly repaired"),
        ({"after": 0.84, "after_high": 0.87}, "finding", "not repaired"),
        ({"before": 0.91}, "unclear", "do not show"),
        ({"n": 19}, "unclear", "too few test rows"),
        ({"group": "other"}, "unclear", "untested"),
    ],
)
def test_no_more_is_claimed_than_the_test_rows_show(row, status, words):
    verdict = fit_verdict(told(**row), FINE)
    assert verdict["status"] == status
    assert words in verdict["label"]


def test_without_a_group_the_sets_are_split_conformal_ones():
    verdict = fit_verdict({**told(), "group": None}, FINE)
    assert verdict["label"] == "No group is credibly under-covered"
    assert verdict["sentence"].startswith("Sets are plain split conformal ones")


def test_what_is_left_is_not_hidden_by_the_repair():
    low = {"status": "low", "label": "Coverage below target", "sentence": "Sets cover 80%."}
    verdict = fit_verdict(told(), low)
    assert verdict["label"] == "Coverage below target"
    assert verdict["sentence"].startswith("Sets cover 80%. One group was under-covered")
    verdict = fit_verdict(told(), {"status": "finding", "label": "Found", "sentence": "Rows."})
    assert verdict["status"] == "finding"
    assert verdict["sentence"].endswith("What is left: Rows.")


def test_the_page_shows_the_group_before_the_audit_of_what_is_left():
    data = make_synthetic(3000, random_state=0)
    estimator = gradient_boosting(0).set_params(histgradientboostingclassifier__max_iter=20)
    trial = fit_and_test(
        data.X,
        data.y,
        sensitive=data.sensitive,
        estimator=estimator,
        confidence_level=0.9,
        seed=0,
    )
    summary = trial.report()
    repair = summary["repair"]
    assert repair["group"] == trial.rule
    assert f"{repair['before']:.1%} → {repair['after']:.1%}" in summary["verdict"]["sentence"]
    inside = [cell for cell in repair["before_picture"]["cells"] if cell["inside"] > 0.5]
    assert sum(cell["n"] for cell in inside) == pytest.approx(repair["n"], rel=0.1)
    page = render_report(summary)
    assert 0 < page.index('id="repair-heading"') < page.index('id="residual-heading"')
    assert page.index('id="residual-heading"') < page.index('id="tested-heading"')
