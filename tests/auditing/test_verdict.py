"""One verdict for a fit and one for an audit: what is bad leads, few rows never do."""

import re
import shlex
from dataclasses import replace

import numpy as np
import pytest

from fareg.auditing import MIN_HEADLINE_ROWS, Finding, Rate
from fareg.auditing._verdict import (
    LABELS,
    Change,
    Facts,
    audit_verdict,
    fit_verdict,
    protect_command,
)
from fareg.groups import Rule
from fareg.report import MIN_SHOWN_ROWS

FEW, ENOUGH = MIN_HEADLINE_ROWS - 1, MIN_HEADLINE_ROWS
NONE = np.zeros(0)


def marked(n):
    return np.ones(n, dtype=bool)


def group(name="north", n=400, share=0.7, low=0.65, high=0.75, n_clusters=None, **more):
    given = {"share": 0.3, "mean_size": 2.0, "others_size": 1.2, "adjusted_p_value": 2e-9}
    given |= {"is_finding": True, "n_found": 18, "n_splits": 20, "n_new": n, **more}
    rate = Rate(n, share, low, high, None, n_clusters)
    return Finding(Rule.parse(f"area = {name}"), rate, mask=marked(2 * n), counted=NONE, **given)


def label(name="rare", n=400, share=0.3, n_clusters=None):
    return name, Rate(n, share, share, share + 0.05, None, n_clusters)


COMMON = label("common", 4000, 0.97)
SLIGHT = {"n": 40_000, "share": 0.876, "low": 0.872, "high": 0.88}


def facts(groups=(), labels=(), best=0.8, unequal=(), n=2000, share=0.9, high=0.92, clusters=None):
    power = [{"conditions": 1, "share": 0.3, "coverage": best}] if best else []
    overall = Rate(n, share, high - 0.04, high, None, clusters)
    return Facts(0.9, overall, 0.9, list(groups), list(unequal), list(labels), power)


def audited(*args, settings=None, **more):
    return audit_verdict(facts(*args, **more), settings or {})


def repair(name="RULE", n=411, before=0.847, after=0.929, least=0.9, n_clusters=None, **ends):
    ends = {"low": 0.9, "high": 0.95, **ends}
    earlier = Rate(n, before, 0.81, 0.88, 0.0004, n_clusters)
    return Change(name, earlier, Rate(n, after, n_clusters=n_clusters, **ends), least)


def fitted(repairs=(), left=None, **more):
    return fit_verdict(left or facts(), repairs, settings={}, **more)


# --- audits ----------------------------------------------------------------------------------


def test_a_rule_never_stands_without_its_evidence():
    told = audited([group()])
    assert told.status == "finding"
    for words in ("area = north", "70.0%", "65.0% to 75.0%", "adjusted p < 0.0001"):
        assert words in told.sentence
    assert "(800 rows, tested on 400 rows on average, 95% interval" in told.sentence
    assert "18 of 20 random halves proposed this group or a similar one" in told.sentence


def test_the_title_and_low_coverage_count_the_groups_that_were_found():
    assert audited([group()]).label == "Under-covered group found"
    both = [group(), group("south")]
    assert audited(both).label == "2 under-covered groups found"
    assert fitted(left=facts(both)).label == "2 under-covered groups found, not repaired"
    low = {"share": 0.8, "high": 0.82}
    assert "adjusted p < 0.0001), one of 2 groups found." in audited(both, **low).sentence
    assert "groups found" not in audited(both[:1], **low).sentence


@pytest.mark.parametrize("few", [{"n": 6}, {"n": FEW}, {"n": 4 * ENOUGH, "n_clusters": FEW}])
@pytest.mark.parametrize("labels", [[], [label(), COMMON]])
@pytest.mark.parametrize("best", [None, 0.8])
@pytest.mark.parametrize("repairs", [None, [], [repair()], [repair(n=FEW)]])
def test_a_group_of_few_rows_is_no_headline_and_never_denied(few, labels, best, repairs):
    left = facts([group(**few), group("south", n=30)], labels, best)
    assert left.main is None
    for told in (audit_verdict(left, {}), fitted(repairs, left)):
        assert told.status == ("label" if labels else "unclear")
        assert "a group below target is too small" in told.label.lower()
        assert "north" not in told.label
        assert "small group was shown to be covered less often: area = north" in told.sentence
        assert "too few for a verdict" in told.sentence
        text = f"{told.label} {told.sentence}"
        assert not re.search("(?i)no (under-covered )?group|cannot show", text)
    enough = dict.fromkeys(few, ENOUGH)
    assert audited([group(**{**few, **enough})], labels, best).status == "finding"


def test_an_unclear_verdict_names_what_there_is_too_little_of():
    assert "fewer than 100 rows are too few" in audited([group(n=29)]).sentence
    few = facts([group(n=400, n_clusters=29)], clusters=300)
    assert "fewer than 100 clusters are too few" in audit_verdict(few, {}).sentence
    for left, cause in (
        (facts([group(n=29)]), "rows like those of area = north"),
        (facts(best=None, n=40), "Collect more rows"),
        (facts(best=None, n=40, clusters=9), "Collect rows of more clusters"),
    ):
        told = audit_verdict(left, {})
        assert cause in told.next_steps[0]
        assert fitted(left=left).next_steps == told.next_steps
    assert fitted(left=facts(best=None, n=40)).label.startswith("Too few rows to tell")
    for unit, of in (("rows", {"n": FEW}), ("clusters", {"n_clusters": FEW})):
        clusters = FEW if unit == "clusters" else None
        untested = fitted([repair(**of)], facts(best=None, n=40, clusters=clusters))
        assert untested.label == f"One group was repaired, on too few test {unit} to tell"
        assert f"a group needs at least 100 test {unit}" in untested.next_steps[0]
        assert ("a random row of a random cluster" in untested.sentence) == (unit == "clusters")


def test_low_coverage_names_the_worst_or_counts_those_it_has():
    low = {"share": 0.5, "high": 0.6}
    assert "no single group stands out" in audited(**low).sentence
    for n in (29, 400):
        told = audited([group(n=n, high=0.7)], **low).sentence
        assert "one group was shown to be below too" in told
        assert "stands out" not in told
    told = audited([group("tiny", n=13, high=0.2), group("big")], share=0.8, high=0.82)
    assert told.status == "low"
    assert "the worst group of 100 rows or more is area = big" in told.sentence
    assert "A small group was shown to be covered less often: area = tiny" in told.sentence


def test_a_group_that_explains_low_coverage_is_mended_first():
    low = {"share": 0.844, "high": 0.853, "n": 5449}
    outside = Rate(4739, 0.89, 0.881, 0.899)
    told = audit_verdict(replace(facts([group()], **low), outside=outside), {})
    assert "Outside the groups found, coverage is 89.0%." in told.sentence
    assert [step[:15] for step in told.next_steps] == ["Don't rely on t", "Calibrate again"]
    outside = Rate(4739, 0.895, 0.887, 0.903)
    told = audit_verdict(replace(facts([group()], **low), outside=outside), {})
    assert [step[:15] for step in told.next_steps] == ["Don't rely on t"]


@pytest.mark.parametrize(("high", "n"), [(0.8985, "5,000"), (0.885, "1,000"), (0.85, None)])
def test_low_coverage_may_be_luck_if_nobody_says_how_many_rows_calibrated(high, n):
    told = " ".join(audited(share=high - 0.01, high=high).next_steps)
    assert (f"with n_calibration: up to about {n} rows" in told) == (n is not None)
    assert ("n_calibration" in told) == (n is not None)
    known = replace(facts(share=high - 0.01, high=high), least_coverage=0.899)
    assert "n_calibration" not in " ".join(audit_verdict(known, {}).next_steps)


def test_the_headline_skips_small_findings():
    told = audited([group("tiny", n=13), group("large")])
    assert told.sentence.startswith("Rows with area = large are covered")


def test_a_gap_that_is_never_named_makes_no_headline_and_is_not_denied():
    """The documents say that one to three points are not named, however many the rows."""
    left = facts([group(**SLIGHT)])
    assert left.main is None
    for told in (audit_verdict(left, {}), fitted(left=left), fitted(None, left)):
        assert (told.status, told.label) == ("pass", "Only a slight gap found")
        verified = "A slight gap was verified: area = north, 87.6% covered (80,000 rows, tested on"
        assert verified in told.sentence
        assert not re.search("(?i)no group|under-covered group", told.sentence)
    worse = audited([group("south", **SLIGHT), group()])
    assert worse.status == "finding"
    assert worse.sentence.startswith("Rows with area = north are covered 70.0%")


def test_few_rows_say_what_they_could_not_show_and_many_what_they_would_have():
    weak = facts(best=0.766, n=442)
    told = audit_verdict(weak, {})
    assert (told.status, told.label) == ("unclear", LABELS["unclear"])
    for one in (told, fitted(left=weak)):
        assert (
            "442 rows reveal a group only if it is covered 77% of the time or less"
            in (one.next_steps[0])
        )
        assert "Use the model" not in one.next_steps[0]
    repaired = fitted([repair()], weak)
    assert repaired.status == "pass"
    assert "smaller gaps may exist" in repaired.next_steps[0]
    for one in (audited(), fitted()):
        assert (one.status, one.label) == ("pass", "No under-covered group found")
        assert "a group with 30% of the rows if its coverage were 80% or less." in one.sentence
    power = [{"conditions": c, "share": s, "coverage": 0.8 - s} for c, s in ((1, 0.3), (2, 0.1))]
    assert audit_verdict(replace(facts(), power=power), {}).sentence.endswith(
        "would have found a group with 30% of the rows if its coverage were 50% or less. For one "
        "with 10% that takes two conditions to name, the limit is 70%."
    )


# --- true labels -----------------------------------------------------------------------------


def test_a_label_far_below_is_said_and_has_a_remedy_whatever_was_repaired():
    left = facts(labels=[label(), COMMON])
    for told in (audit_verdict(left, {}), fitted([repair()], left)):
        assert told.status == "label"
        assert told.label.endswith("but true label rare is covered only 30.0%")
        assert "30.0% of 400 rows labelled rare (95% interval 30.0% to 35.0%)." in told.sentence
        assert "common" not in told.sentence
        assert "label_conditional=True" in told.next_steps[-1]
    done = fitted([], left, label_conditional=True)
    assert "calibration rows of rare" in done.next_steps[-1]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_every_label_far_below_is_named_and_counted_in_grammar(n):
    names = [f"rare{i}" for i in range(n)]
    left = facts(labels=[*(label(name, share=0.1 + i / 100) for i, name in enumerate(names))])
    for told in (audit_verdict(left, {}), fitted([], left)):
        assert all(name in told.sentence for name in names)
        step = told.next_steps[-1]
        assert ("is missed" if n == 1 else "are missed") in step
        assert ("covered only 10.0%" if n == 1 else "covered far less than 90%") in told.label
        for text in (told.label, step):
            assert (f"and {n - 3} more" in text) == (n > 3)
            assert (f" and {names[-1]}" in text) == (1 < n <= 3)


@pytest.mark.parametrize("row", [label(n=MIN_SHOWN_ROWS - 1), label(share=0.86)])
def test_few_rows_or_a_small_gap_of_a_label_change_nothing(row):
    assert audited(labels=[row, COMMON]) == audited()


@pytest.mark.parametrize("n", [MIN_SHOWN_ROWS, FEW])
def test_a_small_label_is_named_if_it_is_worse_than_all_others_and_decides_nothing(n):
    small, large = label("tiny", n, 0.2), label("rare", 400, 0.3)
    without, told = audited(labels=[large, COMMON]), audited(labels=[small, large, COMMON])
    assert told.sentences[: len(without.sentences)] == without.sentences
    assert f"20.0% of {n} rows labelled tiny" in told.sentence
    assert replace(told, sentences=()) == replace(without, sentences=())
    alone = audited(labels=[small, COMMON])
    assert alone.status == "pass"
    assert "labelled tiny (95% interval 20.0% to 25.0%); fewer than 100 rows" in alone.sentence
    assert audited(labels=[label("tiny", n, 0.4), large, COMMON]) == without


def test_labels_that_together_are_everyone_are_no_finding_of_their_own():
    low = {"share": 0.7, "high": 0.72}
    assert audited(labels=[label("a", 500, 0.7), label("b", 500, 0.7)], **low) == audited(**low)


def test_a_coverage_says_whether_it_counts_rows_or_clusters():
    labels = [label(n_clusters=300), label("common", 4000, 0.97, 500)]
    told = audited(labels=labels, clusters=700).sentence
    random = "for a random row of a random cluster"
    assert told.startswith(f"Coverage is 90.0% {random} (2,000 rows in 700 clusters, target 90%)")
    once = "rows labelled rare, counting each cluster once"
    assert f"sets cover only 30.0% of {once} (400 rows in 300 clusters, 95%" in told
    assert "cluster" not in audited(labels=[label(), COMMON]).sentence
    one = audited([group(n_clusters=120)], clusters=700).sentence
    assert one.startswith("Random rows of random clusters with ")
    assert "(800 rows, tested on 400 rows in 120 clusters on average, 95% interval" in one
    low = audited(share=0.7, high=0.72, clusters=700).sentence
    assert low.startswith("Sets cover a random row of a random cluster 70.0% of the time (2,000 ")


# --- sizes, and from a finding to a fix ------------------------------------------------------


def test_unequal_sizes_are_said_after_coverage_and_decide_only_where_nothing_else_does():
    left = facts(unequal=[group()])
    told = audit_verdict(left, {})
    assert told.status == fitted(left=left).status == "unequal"
    assert "area = north gets 2.00 labels per set, everyone else 1.20" in told.sentence
    both = audited([group("south")], unequal=[group()])
    assert both.status == "finding"
    assert "Larger sets" in both.next_steps[1]


def test_the_next_step_holds_the_line_that_protects_the_group():
    shell = "fareg fit a.csv --target y --out m.fareg --protect"
    told = audited([group()], settings={"protect": shell, "own threshold": "--own"})
    assert told.next_steps[0].endswith(f": {shell} 'area = north'")
    assert "give it its --own" in told.next_steps[0]  # settings as the shell calls them
    assert told.extra["command"] == f"{shell} 'area = north'"
    assert "its owner" not in told.next_steps[0]
    foreign = audit_verdict(facts([group()]), {}, is_own=False).next_steps[0]
    assert "If the model is not yours, send this to its owner" in foreign
    assert "(not for release): FaReGClassifier(" in foreign
    assert audited().extra["command"] is None
    words = """job = "Bob's" and age > 60"""
    assert shlex.split(protect_command(words, shell))[-2:] == ["--protect", words]
    python = protect_command(words)
    rule = eval(python, {"Rule": Rule, "FaReGClassifier": lambda protect: protect})
    assert rule == Rule.parse(words)


# --- fits ------------------------------------------------------------------------------------


def test_a_repair_is_the_headline():
    told = fitted([repair()])
    assert (told.status, told.label) == ("pass", "One group was under-covered and is repaired")
    for words in ("RULE: 84.7% (81.0% to 88.0%) → 92.9%", "411 test rows", "p = 0.0004"):
        assert words in told.sentence
    assert "chance" not in told.sentence
    short = fitted([repair(after=0.87, low=0.83)])
    assert "the gap that is left may be due to chance" in short.sentence


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ({"after": 0.88, "low": 0.84}, "pass", "as far as the test rows can tell"),
        ({"after": 0.86, "high": 0.89}, "finding", "only partly repaired"),
        ({"after": 0.87, "high": 0.89, "least": 0.86}, "pass", "as far as"),  # the draw explains it
        ({"after": 0.84, "high": 0.87}, "finding", "not repaired"),
        ({"before": 0.92, "after": 0.83, "high": 0.86}, "finding", "and was not before"),
        ({"before": 0.91}, "unclear", "though covered as promised before"),
        ({"n": FEW}, "unclear", "too few test rows"),
        ({"n": FEW, "before": 0.92}, "unclear", "too few test rows"),
        ({"n": 0, "before": None, "after": None}, "unclear", "no test row"),
    ],
)
def test_no_more_is_claimed_than_the_test_rows_show(given, status, words):
    told = fitted([repair(**given)])
    assert told.status == status
    assert words in told.label
    needs_rows = given.get("n", 411) < ENOUGH
    assert told.next_steps[0].startswith("Fit on more rows") == needs_rows


def test_several_groups_are_told_as_several():
    both = fitted([repair(), repair("OTHER")])
    assert both.label == "2 groups were under-covered and are repaired"
    assert "RULE: " in both.sentence
    assert "OTHER: " in both.sentence
    mixed = fitted([repair(), repair("OTHER", after=0.86, high=0.89)])
    assert mixed.status == "finding"
    assert "one group was under-covered and is only partly repaired" in mixed.label


@pytest.mark.parametrize("repairs", [[], [repair()], [repair(), repair("OTHER")]])
def test_a_group_that_is_left_is_never_called_fine(repairs):
    told = fitted(repairs, facts([group()]))
    assert told.status == "finding"
    assert told.sentence.startswith("Rows with area = north are covered 70.0%")
    assert ("RULE: " in told.sentence) == bool(repairs)
    assert not re.search("(?i)no group is credibly|^[^,]*is repaired$", told.label)
    assert "rely on these sets" in told.next_steps[0]


def test_a_group_that_is_left_is_no_contrast_to_a_repair_that_failed():
    failed, left = repair(after=0.85, low=0.82, high=0.88), facts([group()])
    assert "partly repaired, and an under-covered group is left" in fitted([failed], left).label
    assert "is repaired, but an under-covered group is left" in fitted([repair()], left).label


def test_all_rows_below_the_target_lead():
    told = fitted([repair()], facts(share=0.8, high=0.82))
    assert (told.status, told.label) == ("low", "Coverage below target")
    assert told.sentence.startswith("Sets cover 80.0% of everyone instead of 90%")
    assert "RULE: " in told.sentence


def test_everyone_is_not_called_low_where_the_draw_of_calibration_rows_explains_it():
    low = facts(share=0.87, high=0.88)
    assert audit_verdict(low, {}).status == "low"
    assert audit_verdict(replace(low, least_coverage=0.86), {}).status == "pass"


def test_who_was_made_worse_leads_if_there_are_rows_to_tell():
    worse = repair("HURT", before=0.91, after=0.8, low=0.77, high=0.83)
    told = fitted([repair()], made_worse=[worse])
    assert told.status == "finding"
    assert told.label == "One group was made worse; one group was under-covered and is repaired"
    assert told.sentence.startswith("Made worse: HURT: 91.0%")
    assert told.extra["made_worse"] == ["HURT"]
    few = replace(worse, after=replace(worse.after, n=FEW))
    assert fitted([repair()], made_worse=[few]) == fitted([repair()])
    low = fitted([], facts(share=0.8, high=0.82), made_worse=[worse])
    assert low.status == "low"
    assert "Calibrate again" in low.next_steps[0]


def test_empty_sets_are_explained_once_there_are_more_than_one_in_a_hundred():
    few = {"share": 0.01, "right": 1.0, "accuracy": 0.96}
    assert fitted(empty=few) == fitted()
    *steps, step = fitted(empty={"share": 0.076, "right": 0.994, "accuracy": 0.957}).next_steps
    assert tuple(steps) == fitted().next_steps
    assert "7.6% of the sets are empty, and the top label is right for 99.4%" in step
    assert "the model is right for 95.7%, more than the 90% promised" in step
    assert "allow_empty" in step
    told = fitted(empty={"share": 0.076, "right": 0.5, "accuracy": 0.8}).next_steps[-1]
    assert "more than" not in told
