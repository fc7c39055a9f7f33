"""The verdict of an audit and of a fit: the first rule that holds decides.

Terminal, JSON, report, notebook and model file all show what these functions return.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fareg._words import (
    RANDOM_ROW,
    confidence,
    coverage_of,
    evidence,
    group_name,
    in_clusters,
    interval,
    p_value,
    percent,
    rows,
    shown,
    size,
)
from fareg.auditing._rate import Promise, Rate
from fareg.auditing._search import Finding
from fareg.auditing._tables import MIN_HEADLINE_ROWS
from fareg.groups import is_far_below
from fareg.report import MIN_SHOWN_ROWS

LABEL_GAP = 0.05  # a label is mentioned if its whole 95% interval is this far below the target
MAX_LABELS_NAMED = 3
WEAK_TEST = 2.0  # a test that only finds this many times the promised errors says little
MAX_EMPTY_SHARE = 0.01  # a fit mentions empty sets if their share is larger
TOO_SMALL = "a group below target is too small for a verdict"  # it was verified, on few rows

LABELS = {
    "low": "Coverage below target",  # of all rows together
    "finding": "Under-covered group found",
    "unequal": "No under-covered group found, but much larger sets for some",
    "pass": "No under-covered group found",
    "slight": "Only a slight gap found",  # a pass: verified, but too small to name a group
    "small": f"{TOO_SMALL[0].upper()}{TOO_SMALL[1:]}",
    "unclear": "Too few rows to tell whether a group is left out",  # or clusters
}
RECALIBRATE = (
    "Calibrate again on recent rows like these: coverage is too low overall, as happens when the "
    "population has changed or when training rows were used to calibrate."
)
MEND_GROUP = (
    "Don't rely on these sets for this group yet: give it its own threshold, calibrated on rows "
    "other than those that found it, and audit again on new rows."
)
OWN_FIX = "This line trains a model on these rows, as a start:"
FOREIGN_FIX = (
    "If the model is not yours, send this to its owner; to try the idea on these rows (not for "
    "release):"
)
USE = "Use the model, and audit its sets when new rows with labels arrive."
MADE_WORSE = (
    "Don't use these sets for the groups that were made worse: plain split conformal sets cover "
    "them better. Fit again with only the columns of these groups in sensitive_features, and "
    "compare."
)
MEND_SIZES = (
    "Larger sets are not a calibration error, but they help less: give the people who decide these "
    "cases more time or information, and improve the model for this group."
)
Label = tuple[str, Rate]
Settings = Mapping[str, str]  # what next steps call a setting, by its name in Python


@dataclass(frozen=True)
class Verdict:
    """Status (low, finding, label, unclear, unequal, pass), title, sentences, next steps."""

    status: str
    label: str
    sentences: tuple[str, ...]
    next_steps: tuple[str, ...]
    extra: Mapping[str, Any]  # further keys of JSON

    @classmethod
    def of(
        cls, status: str, label: str, sentences: Any, steps: Any, settings: Settings, **extra: Any
    ) -> Verdict:
        """Make a verdict whose steps call settings by the names in ``settings``."""
        for in_python, name in settings.items():
            if in_python != "protect":
                steps = [step.replace(in_python, name) for step in steps]
        return cls(status, label, tuple(filter(None, sentences)), tuple(steps), extra)

    @property
    def sentence(self) -> str:
        """The whole text below the title."""
        return " ".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        texts = {"status": self.status, "label": self.label, "sentence": self.sentence}
        return {**texts, "next_steps": list(self.next_steps), **self.extra}


@dataclass(frozen=True)
class Facts:
    """What the verdict needs to know of an audit."""

    confidence_level: float
    overall: Rate
    least_coverage: float  # overall coverage below which the promise is broken
    findings: Sequence[Finding]
    unequal: Sequence[Finding]
    by_label: Sequence[Label]
    power: Sequence[Mapping[str, Any]]  # what would have been found
    outside: Rate | None = None  # of everyone outside all findings

    @property
    def unit(self) -> str:
        """What is independent and counted: rows or clusters."""
        return self.overall.unit

    @property
    def is_low(self) -> bool:
        """Whether all rows together are below what was promised."""
        return self.overall.high < self.least_coverage

    @property
    def is_low_elsewhere(self) -> bool:
        """Whether the rows outside all findings are below what was promised, too."""
        return self.outside is None or self.outside.high < self.least_coverage

    @cached_property
    def most_excusing_rows(self) -> int | None:
        """The largest number of calibration rows whose bad luck would explain overall coverage."""
        target, high = self.confidence_level, self.overall.high
        is_known = self.least_coverage != target
        numbers = () if is_known else (5000, 2000, 1000, 500, 200)
        enough = [n for n in numbers if n * (1 - target) >= 1]
        lows = ((n, Promise.of_fitted(target, n).least_coverage) for n in enough)
        return next((n for n, low in lows if low < high), None)

    @cached_property
    def kinds(self) -> dict[str, list[Finding]]:
        """Findings by kind: on few rows (small), far enough below to be named, and slight ones."""
        kinds: dict[str, list[Finding]] = {"small": [], "far": [], "slight": []}
        for finding in self.findings:
            rate = finding.rate
            is_far = is_far_below(rate.share, rate.high, self.confidence_level)
            is_small = rate.independent < MIN_HEADLINE_ROWS
            kinds["small" if is_small else "far" if is_far else "slight"].append(finding)
        return kinds

    @cached_property
    def main(self) -> Finding | None:
        """The finding to describe: the first that is far enough below, on enough rows.

        If all rows together are below, it is the worst of those below overall coverage.
        """
        if not self.is_low:
            return next(iter(self.kinds["far"]), None)
        large = [finding for finding in self.findings if finding not in self.kinds["small"]]
        worse = [finding for finding in large if finding.rate.high < self.overall.share]
        return min(worse, key=lambda finding: finding.rate.high, default=None)

    @cached_property
    def labels(self) -> tuple[list[Label], list[Label]]:
        """True labels that are covered far too rarely, worst first; then small ones even worse.

        The whole 95% interval of such a label lies more than ``LABEL_GAP`` below the target, and
        below overall coverage.
        """
        bound = min(self.confidence_level, self.overall.share) - LABEL_GAP
        enough = [label for label in self.by_label if label[1].independent >= MIN_SHOWN_ROWS]
        far = [label for label in enough if label[1].high < bound]
        far.sort(key=lambda label: label[1].share)
        large = [label for label in far if label[1].independent >= MIN_HEADLINE_ROWS]
        worst = large[0][1].share if large else 1.0
        return large, [label for label in far if label not in large and label[1].share < worst]

    @cached_property
    def weak(self) -> float | None:
        """The highest coverage at which a group would be found, if that is far from the promise."""
        best = max((case["coverage"] for case in self.power), default=1.0)
        return best if 1 - best > WEAK_TEST * (1 - self.confidence_level) else None

    @property
    def cannot_tell(self) -> bool:
        """Whether a group could be below and go unnoticed, or was verified on few rows."""
        is_blind = bool(self.weak or not self.power) and not self.kinds["slight"]
        return bool(self.kinds["small"]) or is_blind


RULES: tuple[tuple[str, Callable[[Facts], bool]], ...] = (
    ("low", lambda f: f.is_low),
    ("finding", lambda f: bool(f.kinds["far"])),
    ("label", lambda f: bool(f.labels[0])),
    ("unclear", lambda f: f.cannot_tell),
    ("unequal", lambda f: bool(f.unequal)),
    ("pass", lambda f: True),
)


def audit_verdict(facts: Facts, settings: Settings, *, is_own: bool = True) -> Verdict:
    """Decide the verdict of an audit.

    Labels and groups with fewer than ``MIN_HEADLINE_ROWS`` rows may be mentioned but never decide.
    In JSON, ``small_finding`` says whether one was verified, ``weak_test`` what could be detected
    at best, if that is little, ``counted`` whether rows or clusters are counted, and ``command``
    the line in the next steps that protects the group, if any. ``is_own`` says whether the sets
    are surely those of a model that the reader can fit again.
    """
    status = next(name for name, holds in RULES if holds(facts))
    few = f"fewer than {MIN_HEADLINE_ROWS} {facts.unit} are too few for a verdict"
    small, slight = facts.kinds["small"], facts.kinds["slight"]
    labels, small_labels = facts.labels
    sentences = [_coverage_sentence(status, facts)]
    if status not in ("low", "finding"):
        sentences += [f"A slight gap was verified: {_describe_first(slight)}."] if slight else []
        sentences.append(_power_sentence(facts.power))
    if small:
        verified = "A small group was shown to be covered less often"
        sentences.append(f"{verified}: {_describe_first(small)}; {few}.")
    if labels:
        missed = "; ".join(map(_describe_label, labels[:MAX_LABELS_NAMED]))
        sentences.append(f"By true label, sets cover only {missed}.")
        if further := shown(f"{n} ({percent(r.share)})" for n, r in labels[MAX_LABELS_NAMED:]):
            sentences.append(f"Other labels that are covered far less: {further}.")
    if small_labels:
        label = _describe_label(small_labels[0])
        sentences.append(f"A small label stands out: {label}{_further(small_labels)}; {few}.")
    for group in facts.unequal[:1]:
        sentences.append(
            f"Set sizes differ: {group.rule} gets {size(group.mean_size)} labels per set, everyone "
            f"else {size(group.others_size)} ({p_value(group.adjusted_p_value, 'adjusted p')})"
            f"{_further(facts.unequal)}."
        )
    line = protect_command(facts.main.rule.text, settings.get("protect", "")) if facts.main else ""
    return Verdict.of(
        status,
        _title(status, facts),
        sentences,
        _audit_steps(status, facts, f"{OWN_FIX if is_own else FOREIGN_FIX} {line}"),
        settings,
        small_finding=bool(small),
        weak_test={"n": facts.overall.n, "detectable": facts.weak} if facts.weak else None,
        counted=facts.unit,
        command=line or None,
    )


def _coverage_sentence(status: str, facts: Facts) -> str:
    """Return the first sentence, about coverage."""
    overall, target, main = facts.overall, confidence(facts.confidence_level), facts.main
    covered, clustered = percent(overall.share), in_clusters(overall.to_dict())
    if status == "low":
        worst = "no single group stands out"
        if main:
            small = facts.kinds["small"]
            large = f" of {MIN_HEADLINE_ROWS} {facts.unit} or more" if small else ""
            n = len(facts.findings)
            of_several = f", one of {n} groups found" if n > 1 else ""
            worst = f"the worst group{large} is {_describe_first([main])}{of_several}"
        elif n := len(facts.findings):
            groups = "one group was" if n == 1 else f"{n} groups were"
            worst = (
                f"{groups} shown to be below too, but none with at least {MIN_HEADLINE_ROWS} "
                f"{facts.unit} is clearly worse off than everyone"
            )
        share = f"{covered} of everyone"
        if clustered:
            share = f"{RANDOM_ROW} {covered} of the time ({clustered})"
        outside = ""
        if facts.outside is not None and facts.findings:
            outside = f" Outside the groups found, coverage is {percent(facts.outside.share)}."
        return f"Sets cover {share} instead of {target}; {worst}.{outside}"
    if status == "finding" and main:
        others = facts.kinds["far"][1:]
        further = shown(f"{group.rule} ({percent(group.rate.share)})" for group in others)
        which = "Random rows of random clusters" if clustered else "Rows"
        return (
            f"{which} with {main.rule} are covered {percent(main.rate.share)} of the time instead "
            f"of {target} ({evidence(main.to_dict())}). {main.n_found} of {main.n_splits} random "
            "halves proposed this group or a similar one, and the rows outside each half tested it."
        ) + (further and f" Also found: {further}.")
    if not (facts.findings or facts.power or facts.labels[0]):
        why = ", as the rows of a cluster count as one" if clustered else ""
        cannot = f"cannot show which groups are covered less often than {target}{why}."
        return f"{clustered or rows(overall.n)} {cannot}"
    nobody = "" if facts.findings else ", and no group was shown to be covered less often"
    text = coverage_of(overall.to_dict())
    if clustered:
        return f"Coverage is {text} ({clustered}, target {target}){nobody}."
    return f"{text} are covered (target {target}){nobody}."


def _power_sentence(power: Sequence[Mapping[str, Any]]) -> str:
    """Say which groups would have been found, by simulation on the same rows."""
    groups: list[str] = []
    limits = [percent(case["coverage"], 0) for case in power]
    for case in power:
        two = " that takes two conditions to name" if case["conditions"] == 2 else ""
        groups.append(f"{percent(case['share'], 0)}{'' if groups else ' of the rows'}{two}")
    found = "Four times in five, this audit would have found a group with"
    first = [f"{found} {groups[0]} if its coverage were {limits[0]} or less."] if groups else []
    further = zip(groups[1:], limits[1:], strict=True)
    return " ".join(first + [f"For one with {g}, the limit is {limit}." for g, limit in further])


def _title(status: str, facts: Facts) -> str:
    """Return the title: first the groups, then the true labels."""
    if status == "finding" and (n := len(facts.kinds["far"])) > 1:
        return f"{n} under-covered groups found"
    if status in ("low", "finding"):
        return LABELS[status]
    of_groups = next((kind for kind in ("small", "slight") if facts.kinds[kind]), status)
    if of_groups == "label":
        of_groups = "unclear" if facts.cannot_tell else "pass"
    title = LABELS[of_groups].replace("rows", facts.unit)
    if not facts.labels[0]:
        return title
    joined = "and" if of_groups in ("small", "unclear") else "but"
    return f"{title}, {joined} {_label_title(facts)}"


def _audit_steps(status: str, facts: Facts, fix: str) -> list[str]:
    small = facts.kinds["small"]
    wanted = f"more rows like those of {small[0].rule}" if small else _more_data(facts.unit)
    enough = f"at least {MIN_HEADLINE_ROWS} {facts.unit} in each half of the table"
    steps = {
        "low": RECALIBRATE,
        "finding": f"{MEND_GROUP} {fix}",
        "unclear": f"Collect {wanted}: a group needs {enough}.",
        "unequal": MEND_SIZES,
        "pass": "Audit again when new rows with labels arrive.",
    }
    if facts.weak and not small:
        steps["unclear"] = _weak_test_step(facts)
    chosen = [steps[status]] if status in steps else []
    if status == "low":
        chosen = _low_steps(facts, steps["finding"] if facts.main else MEND_GROUP)
    chosen += _labels_steps(facts, label_conditional=False)
    return chosen + [MEND_SIZES] * (bool(facts.unequal) and status != "unequal")


def _low_steps(facts: Facts, mend: str) -> list[str]:
    """Return what to do if overall coverage is low: mend the groups first, if they explain it."""
    steps = [mend] if facts.findings else []
    if not facts.findings or facts.is_low_elsewhere:
        steps.append(RECALIBRATE)
    if facts.most_excusing_rows:
        steps.append(
            "If you know how many rows calibrated these sets, audit again with n_calibration: up "
            f"to about {facts.most_excusing_rows:,} rows, {percent(facts.overall.share)} may be "
            "bad luck in drawing them."
        )
    return steps


def protect_command(rule: str, shell: str = "") -> str:
    """Return the line that protects a group, in Python or as a command of the shell."""
    if shell:
        return f"{shell} {shlex.quote(rule)}"
    return f"FaReGClassifier(protect=Rule.parse({rule!r}))"


# --- fits ---


@dataclass(frozen=True)
class Change:
    """The coverage of a group on test rows, before and after."""

    group: str
    before: Rate  # its p-value is that coverage is as promised
    after: Rate
    least_coverage: float  # below it, the luck of calibration is no excuse

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Change:
        """Read a row of :attr:`Comparison.groups`."""
        before, after = (Rate.of_row(row, moment) for moment in ("before", "after"))
        return cls(row["group"], before, after, row["least_coverage"])

    @property
    def is_small(self) -> bool:
        """Whether there are too few rows to judge."""
        return self.after.independent < MIN_HEADLINE_ROWS

    def in_words(self, target: float) -> str:
        """Return the coverage of a group before and after, on how many test rows."""
        before, after = (
            f"{percent(rate.share)} ({interval(rate.low, rate.high)})"
            for rate in (self.before, self.after)
        )
        clustered = in_clusters(self.after.to_dict())
        basis = f"on {rows(self.after.n, 'test row')}"
        basis = f"for {RANDOM_ROW} ({clustered})" if clustered else basis
        return f"{group_name(self.group)}: {before} → {after} {basis}, target {confidence(target)}"

    def repair(self, target: float) -> str:
        """Return the sentence about a repair."""
        if self.after.n == 0:
            return f"{group_name(self.group)}: no test row is in this group."
        is_short = self.least_coverage <= self.after.high and self.after.share < target
        chance = "; the gap that is left may be due to chance on so few rows" if is_short else ""
        return f"{self.in_words(target)}; {p_value(self.before.p_value)} before{chance}."

    def outcome(self, target: float) -> tuple[str, str]:
        """Return the status of a repair, and words that claim no more than the test rows show."""
        before, after = self.before.share, self.after.share
        if self.after.n == 0:
            return "unclear", "was named, but no test row lies in it"
        if self.is_small:
            return "unclear", f"was repaired, on too few test {self.after.unit} to tell"
        if self.after.high < self.least_coverage:
            if before >= target:
                return "finding", "is under-covered, and was not before"
            degree = "only partly" if after > before else "not"
            return "finding", f"was under-covered and is {degree} repaired"
        if before >= target:
            return "unclear", "got larger sets, though covered as promised before"
        caveat = "" if after >= target else " as far as the test rows can tell"
        return "pass", f"was under-covered and is repaired{caveat}"


def fit_verdict(
    left: Facts,
    repairs: Sequence[Change] | None,
    *,
    label_conditional: bool = False,
    empty: Mapping[str, Any] | None = None,
    made_worse: Sequence[Change] = (),
    settings: Settings,
) -> Verdict:
    """Decide the verdict of a fit, from what was repaired and from the audit of what is left.

    ``repairs`` are the groups that the classifier named, None for a method that names none.
    ``empty`` holds the ``share`` of test rows whose set is empty, how often the top label is
    ``right`` for them, and ``accuracy``. ``made_worse`` are groups whose coverage fell and lies
    below the target, both beyond chance.

    Groups that were made worse come first, then what is left if it is bad: a repair never hides it.
    """
    audit, target = audit_verdict(left, settings), left.confidence_level
    status, title, sentences = audit.status, audit.label, list(audit.sentences)
    if repairs:
        status, title, sentences = _with_repairs(repairs, left, audit)
    elif repairs is not None and status == "finding":
        title = f"{title}, not repaired"
    steps = {
        "low": RECALIBRATE,
        "finding": audit.next_steps[0] if audit.status == "finding" else MEND_GROUP,
        "unclear": f"{USE[:-1]}: on these test rows the group was covered as promised before.",
        "unequal": MEND_SIZES,
        "pass": _weak_test_step(left) if left.weak else USE,
    }
    if any(change.is_small for change in repairs or ()):
        steps["unclear"] = (
            f"Fit on {_more_data(left.unit)}: a group needs at least {MIN_HEADLINE_ROWS} test "
            f"{left.unit} before its coverage can be judged."
        )
    elif audit.status == "unclear":
        steps["unclear"] = audit.next_steps[0]  # the audit knows what is scarce
    if worse := [change for change in made_worse if not change.is_small]:
        status = "low" if status == "low" else "finding"
        groups = "One group was" if len(worse) == 1 else f"{len(worse)} groups were"
        title = f"{groups} made worse; {title[0].lower()}{title[1:]}"
        sentences.insert(0, f"Made worse: {'; '.join(c.in_words(target) for c in worse)}.")
        steps = {"finding": MADE_WORSE, "low": f"{MADE_WORSE} {RECALIBRATE}"}
    chosen = [steps[status]] if status in steps else []
    chosen += _labels_steps(left, label_conditional=label_conditional)
    if empty is not None and empty["share"] > MAX_EMPTY_SHARE:
        chosen.append(_empty_step(empty, target))
    names = [change.group for change in worse]
    command = audit.extra["command"]
    return Verdict.of(status, title, sentences, chosen, settings, made_worse=names, command=command)


def _with_repairs(
    repairs: Sequence[Change], left: Facts, audit: Verdict
) -> tuple[str, str, list[str]]:
    """Return status, title and sentences of what was repaired and of what is left."""
    target, small = left.confidence_level, left.kinds["small"]
    outcomes = [change.outcome(target) for change in repairs]
    status = min((outcome for outcome, _ in outcomes), key=("finding", "unclear", "pass").index)
    title = _title_of_outcomes([text for _, text in outcomes])
    of_repairs = [change.repair(target) for change in repairs]
    if audit.status == "low":
        return "low", audit.label, [*audit.sentences, *of_repairs]
    if audit.status == "finding":
        title = f"{title}, {'and' if status == 'finding' else 'but'} an under-covered group is left"
        return "finding", title, [*audit.sentences, *of_repairs]
    if status != "finding":
        title = f"{title}, but {TOO_SMALL}" if small else title
        if left.labels[0]:
            status = "label"
            title = f"{title}, {'and' if small else 'but'} {_label_title(left)}"
        elif audit.status == "unclear" and (small or not left.weak):
            status = "unclear"
        elif audit.status == "unequal" and status == "pass":
            status = "unequal"
    return status, title, [*of_repairs, *audit.sentences]


def _title_of_outcomes(texts: list[str]) -> str:
    """Return a title that counts groups by their outcome."""
    several = {"was": "were", "is": "are", "it": "them"}
    parts = []
    for text in dict.fromkeys(texts):
        n = texts.count(text)
        plural = " ".join(several.get(word, word) for word in text.split(" "))
        parts.append(f"one group {text}" if n == 1 else f"{n} groups {plural}")
    title = ", ".join(parts)
    return title[0].upper() + title[1:]


# --- pieces of sentences ---


def _describe_first(groups: Sequence[Finding]) -> str:
    first = groups[0]
    basis = evidence(first.to_dict())
    return f"{first.rule}, {percent(first.rate.share)} covered ({basis}){_further(groups)}"


def _describe_label(label: Label) -> str:
    name, rate = label[0], {**label[1].to_dict(), "p_value": None}
    of = f"rows labelled {name}, counting each cluster once"
    if not in_clusters(rate):
        of = f"{rows(rate['n'])} labelled {name}"
    return f"{percent(rate['coverage'])} of {of} ({evidence(rate)})"


def _further(groups: Sequence[Any]) -> str:
    return f", and {len(groups) - 1} more like it" if len(groups) > 1 else ""


def _more_data(unit: str) -> str:
    return "more rows" if unit == "rows" else "rows of more clusters"


def _joined(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _label_names(labels: Sequence[Label]) -> str:
    names = [name for name, _ in labels[:MAX_LABELS_NAMED]]
    more = len(labels) - len(names)
    return _joined([*names, f"{more} more"] if more else names)


def _label_title(facts: Facts) -> str:
    (name, rate), *others = facts.labels[0]
    if not others:
        return f"true label {name} is covered only {percent(rate.share)}"
    far = f"covered far less than {confidence(facts.confidence_level)}"
    return f"true labels {_label_names(facts.labels[0])} are {far}"


def _labels_steps(facts: Facts, *, label_conditional: bool) -> list[str]:
    """Return what to do about labels that are covered far too rarely."""
    labels = facts.labels[0]
    if not labels:
        return []
    names = _label_names(labels)
    if label_conditional:
        return [f"Add calibration rows of {names}: each label already has its own calibration."]
    return [
        f"If it matters that {names} {'is' if len(labels) == 1 else 'are'} missed, fit "
        "again with label_conditional=True, which makes the promise for every true label. Sets get "
        "larger and some groups may lose coverage, so compare both fits before you choose."
    ]


def _weak_test_step(facts: Facts) -> str:
    """Return the step after a test that could show little."""
    return (
        "Test on more rows before you conclude that nobody is left out: "
        f"{rows(facts.overall.n)} reveal a group only if it is covered {percent(facts.weak, 0)} of "
        "the time or less, so smaller gaps may exist. The average promise still holds."
    )


def _empty_step(empty: Mapping[str, Any], target: float) -> str:
    """Say how many sets are empty, why, and how to avoid them."""
    why = (
        f": the model is right for {percent(empty['accuracy'])}, more than the "
        f"{confidence(target)} promised, so some sets of easy rows are left empty at random"
    )
    return (
        f"{percent(empty['share'])} of the sets are empty, and the top label is right for "
        f"{percent(empty['right'])} of these rows{why if empty['accuracy'] > target else ''}. If "
        "every row needs a label, fit again with allow_empty=False; coverage can only rise."
    )
