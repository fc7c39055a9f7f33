"""One verdict for a fit and one for an audit: what is bad leads, few rows never do."""

import re
import shlex

import pytest

from fareg.auditing._verdict import (
    LABELS,
    MIN_HEADLINE_ROWS,
    Facts,
    audit_verdict,
    fit_verdict,
    protect_command,
    worst_label,
)
from fareg.groups import Rule
from fareg.report import MIN_SHOWN_ROWS

FEW, ENOUGH = MIN_HEADLINE_ROWS - 1, MIN_HEADLINE_ROWS


def overall(coverage=0.9, low=0.88, high=0.92, n=2000):
    return {"n": n, "coverage": coverage, "low": low, "high": high}


def group(rule="north", n=400, **more):
    counted = {"rule": rule, "n": n, "coverage": 0.7, "low": 0.65, "high": 0.75}
    return counted | {"adjusted_p_value": 2e-9, "n_found": 18, "n_splits": 20} | more


def label(name="rare", n=400, coverage=0.3):
    ends = {"low": coverage, "high": coverage + 0.05}
    return {"label": name, "n": n, "share": n / 10_000, "coverage": coverage, **ends}


COMMON = label("common", 4000, 0.97)


def facts(groups=(), by_label=(), detectable=0.8, unequal=(), **everyone):
    power = [{"conditions": 1, "share": 0.3, "coverage": detectable}] if detectable else []
    return Facts(0.9, overall(**everyone), list(groups), list(unequal), list(by_label), power)


def audited(*args, **more):
    return audit_verdict(facts(*args, **more), "FIX")


def repair(**row):
    row = {"group": "RULE", "fidelity": 0.97, "n": 411, "before": 0.847, "after": 0.929} | row
    ends = {"before_low": 0.81, "before_high": 0.88, "after_low": 0.90, "after_high": 0.95}
    return ends | {"p_value": 0.0004, "least_coverage": 0.9} | row


def fitted(repairs=(), left=None, **more):
    left = left or audited()
    return fit_verdict(list(repairs), left, confidence_level=0.9, **more)


SLIGHT = {
    "coverage": 0.876,
    "low": 0.872,
    "high": 0.88,
    "adjusted_p_value": 1e-29,
}


# --- audits ----------------------------------------------------------------------------------


def test_a_rule_never_stands_without_its_evidence():
    told = audited([group()])
    assert told["status"] == "finding"
    for words in ("north", "70.0%", "65.0% to 75.0%", "adjusted p < 0.0001", "400 rows"):
        assert words in told["sentence"]


@pytest.mark.parametrize("n", [6, 13, 26, FEW])
def test_a_finding_on_few_rows_drives_no_headline(n):
    told = audited([group(n=n)])
    assert told["status"] == "unclear"
    assert "north" not in told["label"]
    assert "too few for a verdict" in told["sentence"]
    assert facts([group(n=n)]).main is None
    assert audited([group(n=ENOUGH)])["status"] == "finding"


@pytest.mark.parametrize("by_label", [[], [label(), COMMON]])
@pytest.mark.parametrize("detectable", [None, 0.8])
@pytest.mark.parametrize("repairs", [None, [], [repair()], [repair(n=FEW)]])
def test_a_group_that_was_verified_is_never_denied(by_label, detectable, repairs):
    for found in ([group(n=29)], [group(n=29), group("south", n=30)], [group(n=400, n_clusters=9)]):
        left = audited(found, by_label, detectable)
        told = fit_verdict(repairs, left, confidence_level=0.9, by_label=by_label)
        for one in (left, told):
            assert one["status"] == ("label" if by_label else "unclear")
            assert "a group below target is too small" in one["label"].lower()
            assert "small group was verified to be covered less often: north" in one["sentence"]
            text = f"{one['label']} {one['sentence']}"
            assert not re.search("(?i)no (under-covered )?group|cannot show", text)


def test_an_unclear_verdict_names_what_there_is_too_little_of():
    small = audited([group(n=29)])
    assert "29 rows" in small["sentence"]
    assert "fewer than 100 rows are too few" in small["sentence"]
    clustered = audited([group(n=400, n_clusters=29)])
    assert "fewer than 100 clusters are too few" in clustered["sentence"]
    few = audited(detectable=None, n=40)
    for left, cause in ((small, "rows like those of north"), (few, "Collect more rows")):
        assert cause in left["next_steps"][0]
        assert fitted(left=left)["next_steps"] == left["next_steps"]
    assert fitted(left=few)["label"].startswith("Too few rows to tell")
    for left, unit in ((few, "rows"), ({**few, "counted": "clusters"}, "clusters")):
        of = {"n_clusters": FEW} if unit == "clusters" else {}
        untested = fitted([repair(n=400 if of else FEW, **of)], left)
        assert untested["label"] == f"One group was repaired, on too few test {unit} to tell"
        assert f"a group needs at least 100 test {unit}" in untested["next_steps"][0]
        assert ("clusters counted once" in untested["sentence"]) == (unit == "clusters")


def test_a_pass_has_no_finding_and_low_coverage_counts_those_it_has():
    assert "no single group stands out" in audited(coverage=0.5, high=0.6)["sentence"]
    for n in (29, 400):
        told = audited([group(n=n, high=0.7)], coverage=0.5, high=0.6)["sentence"]
        assert "one group was verified to be below too" in told
        assert "stands out" not in told


def test_many_rows_of_few_people_drive_no_headline():
    assert audited([group(n=4 * ENOUGH, n_clusters=FEW)])["status"] == "unclear"
    assert audited([group(n=4 * ENOUGH, n_clusters=ENOUGH)])["status"] == "finding"


def test_the_headline_skips_small_findings():
    told = audited([group("tiny", n=13, p_value=1e-30), group("large")])
    assert told["sentence"].startswith("Rows with large are covered")
    low = audited([group("tiny", n=13, high=0.2)], coverage=0.8, high=0.82)
    assert low["status"] == "low"
    assert "tiny" not in low["sentence"]


def test_a_gap_that_is_never_named_makes_no_headline_and_is_not_denied():
    """The documents say that one to three points are not named, however many the rows."""
    assert facts([group(n=40_000, **SLIGHT)]).main is None
    left = audited([group(n=40_000, **SLIGHT)])
    for told in (left, fitted(left=left), fit_verdict(None, left, confidence_level=0.9)):
        assert (told["status"], told["label"]) == ("pass", "Only a slight gap found")
        assert "A slight gap was verified: north, 87.6% of 40,000 rows" in told["sentence"]
        assert not re.search("(?i)no group|under-covered group", told["sentence"])
    worse = audited([group("south", n=40_000, **SLIGHT), group()])
    assert worse["status"] == "finding"
    assert worse["sentence"].startswith("Rows with north are covered 70.0%")


def test_few_rows_say_what_they_could_not_show():
    weak = audited(detectable=0.766, n=442)
    assert (weak["status"], weak["label"]) == ("unclear", LABELS["unclear"])
    for told in (weak, fitted(left=weak)):
        step = told["next_steps"][0]
        assert "442 rows show a group only if it is covered 77% of the time or less" in step
        assert "Use the model" not in step
    repaired = fitted([repair()], weak)
    assert repaired["status"] == "pass"
    assert "smaller gaps may be there" in repaired["next_steps"][0]
    assert audited(detectable=0.84)["status"] == "pass"


def test_a_coverage_below_the_target_is_not_passed_over():
    told = fitted([repair(after=0.87, after_low=0.83)])["sentence"]
    assert "the gap is no larger than chance makes it" in told
    assert "chance" not in fitted([repair()])["sentence"]


def test_a_label_far_below_is_said_and_has_a_remedy():
    told = audited(by_label=[label(), COMMON])
    assert told["status"] == "label"
    assert "rare" in told["label"]
    assert "30.0% of 400 rows whose true label is rare" in told["sentence"]
    assert any("label_conditional=True" in step for step in told["next_steps"])
    assert "common" not in told["sentence"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_every_label_far_below_is_named_and_counted_in_grammar(n):
    names = [f"rare{i}" for i in range(n)]
    rows = [*(label(name, coverage=0.1 + i / 100) for i, name in enumerate(names)), COMMON]
    for told in (audited(by_label=rows), fitted([], audited(by_label=rows), by_label=rows)):
        assert all(name in told["sentence"] for name in names)
        step = told["next_steps"][-1]
        assert ("is missed" if n == 1 else "are missed") in step
        assert ("covered only 10.0%" if n == 1 else "covered far less than 90%") in told["label"]
        for text in (told["label"], step):
            assert (f"and {n - 3} more" in text) == (n > 3)
            assert (f" and {names[-1]}" in text) == (1 < n <= 3)


@pytest.mark.parametrize("row", [label(n=MIN_SHOWN_ROWS - 1), label(coverage=0.86)])
def test_few_rows_or_a_small_gap_of_a_label_change_nothing(row):
    assert audited(by_label=[row, COMMON]) == audited()


@pytest.mark.parametrize("n", [MIN_SHOWN_ROWS, FEW])
def test_a_small_label_is_named_if_it_is_worse_than_all_others_and_decides_nothing(n):
    small, large = label("tiny", n, 0.2), label("rare", 400, 0.3)
    without = audited(by_label=[large, COMMON])
    told = audited(by_label=[small, large, COMMON])
    assert told["sentence"].startswith(without["sentence"])
    assert f"20.0% of {n} rows whose true label is tiny" in told["sentence"]
    assert {**told, "sentence": ""} == {**without, "sentence": ""}
    alone = audited(by_label=[small, COMMON])
    assert alone["status"] == "pass"
    assert "is tiny (95% interval 20.0% to 25.0%); fewer than 100 rows" in alone["sentence"]
    assert audited(by_label=[label("tiny", n, 0.4), large, COMMON]) == without


def test_labels_that_together_are_everyone_are_no_finding_of_their_own():
    rows = [label("a", 500, 0.7), label("b", 500, 0.7)]
    assert audited(by_label=rows, coverage=0.7, high=0.72) == audited(coverage=0.7, high=0.72)


def test_the_worst_label_is_one_with_rows_to_show_if_there_is_one():
    assert worst_label([label("tiny", 3, 0.0), label("small", 58, 0.7), COMMON])["label"] == "small"
    assert worst_label([label("tiny", 3, 0.0), label("few", 4, 0.5)])["label"] == "tiny"
    assert worst_label([]) is None


def test_a_pass_says_what_would_have_been_noticed():
    assert "if its coverage were 80% or less" in audited()["sentence"]
    assert "if its coverage were 80% or less" in fitted()["sentence"]


def test_a_coverage_says_whether_it_counts_rows_or_clusters():
    clustered = overall() | {"n_clusters": 700}
    labels = [label() | {"n_clusters": 300}, COMMON | {"n_clusters": 500}]
    power = [{"conditions": 1, "share": 0.3, "coverage": 0.8}]
    told = audit_verdict(Facts(0.9, clustered, [], [], labels, power))["sentence"]
    assert told.startswith("90.0% of 2,000 rows are covered (each of 700 clusters counted once;")
    assert (
        "sets cover only 30.0% of 400 rows whose true label is rare (each of 300 clusters" in told
    )
    assert "cluster" not in audited(by_label=[label(), COMMON])["sentence"]
    assert "each of 120 clusters counted once" in audited([group(n_clusters=120)])["sentence"]


# --- fits ------------------------------------------------------------------------------------


def test_a_repair_is_the_headline():
    told = fitted([repair()])
    assert told["status"] == "pass"
    assert told["label"] == "One group was under-covered and is repaired"
    for words in ("RULE: 84.7% (81.0% to 88.0%) → 92.9%", "411 test rows", "p = 0.0004"):
        assert words in told["sentence"]


@pytest.mark.parametrize(
    ("row", "status", "words"),
    [
        ({"after": 0.88, "after_low": 0.84}, "pass", "as far as the test rows can tell"),
        ({"after": 0.86, "after_high": 0.89}, "finding", "only partly repaired"),
        ({"after": 0.84, "after_high": 0.87}, "finding", "not repaired"),
        ({"before": 0.91}, "unclear", "though covered as promised before"),
        ({"n": FEW}, "unclear", "too few test rows"),
        ({"n": 0, "before": None, "after": None}, "unclear", "no test row"),
    ],
)
def test_no_more_is_claimed_than_the_test_rows_show(row, status, words):
    told = fitted([repair(**row)])
    assert told["status"] == status
    assert words in told["label"]
    assert told["next_steps"]


def test_several_groups_are_told_as_several():
    both = fitted([repair(), repair(group="OTHER")])
    assert both["label"] == "2 groups were under-covered and are repaired"
    assert "RULE: " in both["sentence"]
    assert "OTHER: " in both["sentence"]
    mixed = fitted([repair(), repair(group="OTHER", after=0.86, after_high=0.89)])
    assert mixed["status"] == "finding"
    assert "one group was under-covered and is only partly repaired" in mixed["label"]


def test_without_a_group_the_verdict_says_so_and_what_would_have_been_noticed():
    told = fitted()
    assert (told["status"], told["label"]) == ("pass", "No under-covered group found")
    assert "would have found a group of 30%" in told["sentence"]


@pytest.mark.parametrize("repairs", [[], [repair()], [repair(), repair(group="OTHER")]])
def test_a_group_that_is_left_is_never_called_fine(repairs):
    told = fitted(repairs, audited([group()]))
    assert told["status"] == "finding"
    assert told["sentence"].startswith("Rows with north are covered 70.0%")
    assert ("RULE: " in told["sentence"]) == bool(repairs)
    assert not re.search("(?i)no group was named", told["sentence"])
    assert not re.search("(?i)no group is credibly|^[^,]*is repaired$", told["label"])
    assert "not rely" in told["next_steps"][0]


def test_a_group_that_is_left_is_no_contrast_to_a_repair_that_failed():
    failed = repair(after=0.85, after_low=0.82, after_high=0.88)
    left = audited([group()])
    assert (
        "is only partly repaired, and an under-covered group is left"
        in fitted([failed], left)["label"]
    )
    assert "is repaired, but an under-covered group is left" in fitted([repair()], left)["label"]


def test_a_group_that_was_covered_before_is_not_called_under_covered_then():
    told = fitted([repair(before=0.92, after=0.83, after_low=0.8, after_high=0.86)])
    assert (told["status"], told["label"]) == (
        "finding",
        "One group is under-covered, and was not before",
    )


@pytest.mark.parametrize(("n", "is_asked"), [(FEW, True), (411, False)])
def test_more_rows_are_asked_for_only_where_they_are_few(n, is_asked):
    told = fitted([repair(n=n, before=0.92)])
    assert told["status"] == "unclear"
    assert told["next_steps"][0].startswith("Fit on more rows") == is_asked


def test_all_rows_below_the_target_lead():
    told = fitted([repair()], audited(coverage=0.8, high=0.82))
    assert (told["status"], told["label"]) == ("low", "Coverage below target")
    assert told["sentence"].startswith("Sets cover 80.0% of everyone instead of 90%")
    assert "RULE: " in told["sentence"]


def test_a_label_far_below_is_not_hidden_by_a_repair():
    rows = [label(), COMMON]
    told = fitted([repair()], audited(by_label=rows), by_label=rows)
    assert told["status"] == "label"
    assert told["label"].endswith("is repaired, but true label rare is covered only 30.0%")
    assert "label_conditional=True" in told["next_steps"][-1]
    done = fitted([], audited(by_label=rows), by_label=rows, label_conditional=True)
    assert "more calibration rows of rare" in done["next_steps"][-1]


def test_too_few_test_rows_are_not_called_a_pass():
    told = fitted([], audited(detectable=None, n=40))
    assert told["status"] == "unclear"
    assert "more rows" in told["next_steps"][0]


def test_empty_sets_are_explained_once_there_are_more_than_one_in_a_hundred():
    few = {"share": 0.01, "right": 1.0, "accuracy": 0.96}
    assert fitted(empty=few) == fitted()
    *steps, step = fitted(empty={"share": 0.076, "right": 0.994, "accuracy": 0.957})["next_steps"]
    assert steps == fitted()["next_steps"]
    assert "7.6% of the sets are empty, and the top label is right for 99.4%" in step
    assert "the accuracy of 95.7% exceeds the 90% asked for" in step
    assert "allow_empty" in step
    assert "Python" not in step
    told = fitted(empty={"share": 0.076, "right": 0.5, "accuracy": 0.8})["next_steps"][-1]
    assert "exceeds" not in told


def test_a_repair_is_not_partial_where_the_draw_of_calibration_rows_explains_it():
    short = repair(after=0.87, after_high=0.89)
    assert fitted([short])["status"] == "finding"
    assert fitted([short | {"least_coverage": 0.86}])["status"] == "pass"


# --- what the issue of sizes adds ----------------------------------------------------------------


def test_unequal_sizes_are_said_after_coverage_and_decide_only_where_nothing_else_does():
    larger = group(mean_size=2.0, others_size=1.2)
    told = audited(unequal=[larger])
    assert told["status"] == "unequal"
    assert (
        "those of north hold 2.00 labels on average, those of everyone else 1.20"
        in (told["sentence"])
    )
    assert audited([group()], unequal=[larger])["status"] == "finding"
    assert fitted(left=told)["status"] == "unequal"


def test_the_next_step_holds_the_line_that_protects_the_group():
    assert audited([group()])["next_steps"][0].endswith(": FIX")
    words = """job = "Bob's" and age > 60"""
    shell = protect_command(words, "fareg fit a.csv --target y --out m.fareg --protect")
    assert shlex.split(shell)[-2:] == ["--protect", words]
    python = protect_command(words)
    rule = eval(python, {"Rule": Rule, "FaReGClassifier": lambda protect: protect})
    assert rule == Rule.parse(words)


def test_a_finding_says_in_how_many_halves_it_was_found():
    assert "found in 18 of 20 random halves" in audited([group()])["sentence"]
