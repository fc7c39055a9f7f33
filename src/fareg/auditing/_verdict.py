"""What an audit and a fit say first. Rules in order: the first that holds speaks.

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

LABEL_GAP = 0.05  # a label is spoken of if its whole 95% interval is this far below the target
MAX_LABELS_NAMED = 3
WEAK_TEST = 2.0  # a test that only finds this many times the promised errors says little
MAX_EMPTY_SHARE = 0.01  # a fit speaks of empty sets if more than this share of all are empty
TOO_SMALL = "a group below target is too small for a verdict"  # it was verified, on few rows

LABELS = {
    "low": "Coverage below target",  # that of all rows together
    "finding": "Under-covered group found",
    "unequal": "No under-covered group found, but much larger sets for some",
    "pass": "No under-covered group found",
    "slight": "Only a slight gap found",  # a pass: it was verified, and is too small for a name
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


@dataclass(frozen=True)
class Verdict:
    """Status (low, finding, label, unclear, unequal, pass), title, sentences, next steps."""

    status: str
    label: str
    sentences: tuple[str, ...]
    next_steps: tuple[str, ...]
    more: Mapping[str, Any]  # further keys of JSON

    @classmethod
    def of(
        cls,
        status: str,
        label: str,
        said: Any,
        steps: Any,
        settings: Mapping[str, str],
        **more: Any,
    ) -> Verdict:
        """Make a verdict whose steps name settings as ``settings`` has them."""
        for python, other in settings.items():
            if python != "protect":
                steps = [step.replace(python, other) for step in steps]
        return cls(status, label, tuple(filter(None, said)), tuple(steps), more)

    @property
    def sentence(self) -> str:
        """All that is said below the title."""
        return " ".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        told = {"status": self.status, "label": self.label, "sentence": self.sentence}
        return {**told, "next_steps": list(self.next_steps), **self.more}


@dataclass(frozen=True)
class Facts:
    """What an audit found, as far as the verdict needs it."""

    confidence_level: float
    overall: Rate
    least_coverage: float  # of everyone, below which the promise is broken
    findings: Sequence[Finding]
    unequal: Sequence[Finding]
    by_label: Sequence[Label]
    power: Sequence[Mapping[str, Any]]  # what would have been found
    rest: Rate | None = None  # of everyone in no finding

    @property
    def unit(self) -> str:
        """What is independent, and so what there may be too few of."""
        return self.overall.unit

    @property
    def is_low(self) -> bool:
        """Whether all rows together are below what was promised."""
        return self.overall.high < self.least_coverage

    @property
    def is_low_elsewhere(self) -> bool:
        """Whether the rows in no finding are below what was promised, too."""
        return self.rest is None or self.rest.high < self.least_coverage

    @cached_property
    def excusing(self) -> int | None:
        """The largest number of calibration rows whose luck explains the coverage of everyone."""
        level, known = self.confidence_level, self.least_coverage != self.confidence_level
        numbers = () if known else (200, 500, 1000, 2000, 5000)
        may = [n for n in numbers if Promise.of_fitted(level, n).least_coverage < self.overall.high]
        return max((n for n in may if n * (1 - level) >= 1), default=None)

    @cached_property
    def kinds(self) -> dict[str, list[Finding]]:
        """Findings on few rows (small), far enough below to be named, and the rest (slight)."""
        found: dict[str, list[Finding]] = {"small": [], "far": [], "slight": []}
        for own in self.findings:
            is_far = is_far_below(own.rate.share, own.rate.high, self.confidence_level)
            is_small = own.rate.independent < MIN_HEADLINE_ROWS
            found["small" if is_small else "far" if is_far else "slight"].append(own)
        return found

    @cached_property
    def main(self) -> Finding | None:
        """The finding that is described: the first that is far enough below, on enough rows.

        If all rows together are below, it is the worst that lies below the overall coverage.
        """
        if not self.is_low:
            return next(iter(self.kinds["far"]), None)
        large = [own for own in self.findings if own not in self.kinds["small"]]
        worse = [own for own in large if own.rate.high < self.overall.share]
        return min(worse, key=lambda own: own.rate.high, default=None)

    @cached_property
    def labels(self) -> tuple[list[Label], list[Label]]:
        """True labels that are covered far too rarely, worst first; smaller ones still worse.

        The whole 95% interval of such a label lies more than ``LABEL_GAP`` below the level, and
        below the coverage of all rows together.
        """
        bound = min(self.confidence_level, self.overall.share) - LABEL_GAP
        enough = [own for own in self.by_label if own[1].independent >= MIN_SHOWN_ROWS]
        far = sorted((o for o in enough if o[1].high < bound), key=lambda own: own[1].share)
        large = [own for own in far if own[1].independent >= MIN_HEADLINE_ROWS]
        worst = large[0][1].share if large else 1.0
        return large, [own for own in far if own not in large and own[1].share < worst]

    @cached_property
    def weak(self) -> float | None:
        """The coverage that the rows could show at best, if that is far from the promise."""
        best = max((own["coverage"] for own in self.power), default=1.0)
        return best if 1 - best > WEAK_TEST * (1 - self.confidence_level) else None

    @property
    def cannot_tell(self) -> bool:
        """Whether a group could be below and go unnoticed, or was verified on few rows."""
        blind = bool(self.weak or not self.power) and not self.kinds["slight"]
        return bool(self.kinds["small"]) or blind


RULES: tuple[tuple[str, Callable[[Facts], bool]], ...] = (
    ("low", lambda f: f.is_low),
    ("finding", lambda f: bool(f.kinds["far"])),
    ("label", lambda f: bool(f.labels[0])),
    ("unclear", lambda f: f.cannot_tell),
    ("unequal", lambda f: bool(f.unequal)),
    ("pass", lambda f: True),
)


def audit_verdict(facts: Facts, settings: Mapping[str, str]) -> Verdict:
    """Decide what an audit says.

    Labels and groups with fewer than ``MIN_HEADLINE_ROWS`` rows may be mentioned but never decide.
    In JSON, ``small_finding`` says that one was verified, ``weak_test`` what the rows could show at
    best, if that says little, and ``counted`` what is counted, rows or clusters.
    """
    status = next(name for name, holds in RULES if holds(facts))
    few = f"fewer than {MIN_HEADLINE_ROWS} {facts.unit} are too few for a verdict"
    small, slight, (labels, small_labels) = (
        facts.kinds["small"],
        facts.kinds["slight"],
        facts.labels,
    )
    told = [_first(status, facts)]
    if status not in ("low", "finding"):
        told += [f"A slight gap was verified: {_group(slight)}."] if slight else []
        told.append(_power(facts.power))
    if small:
        what = "A small group was verified to be covered less often"
        told.append(f"{what}: {_group(small)}; {few}.")
    if labels:
        missed = "; ".join(map(_label, labels[:MAX_LABELS_NAMED]))
        target = confidence(facts.confidence_level)
        told.append(f"By true label, sets cover only {missed}, instead of {target}.")
        if also := shown(f"{n} ({percent(r.share)})" for n, r in labels[MAX_LABELS_NAMED:]):
            told.append(f"Other labels that are covered far less: {also}.")
    if small_labels:
        more = _more(small_labels)
        told.append(f"A small label stands out: {_label(small_labels[0])}{more}; {few}.")
    for own in facts.unequal[:1]:
        told.append(
            f"Set sizes differ: {own.rule} gets {size(own.mean_size)} labels per set, everyone "
            f"else {size(own.others_size)} ({p_value(own.adjusted_p_value, 'adjusted p')})"
            f"{_more(facts.unequal)}."
        )
    return Verdict.of(
        status,
        _title(status, facts),
        told,
        _audit_steps(status, facts, settings),
        settings,
        small_finding=bool(small),
        weak_test={"n": facts.overall.n, "detectable": facts.weak} if facts.weak else None,
        counted=facts.unit,
    )


def _first(status: str, facts: Facts) -> str:
    """Return the sentence about coverage that comes first."""
    overall, target, main = facts.overall, confidence(facts.confidence_level), facts.main
    covered, where = percent(overall.share), in_clusters(overall.told())
    if status == "low":
        worst = "no single group stands out"
        if main:
            small = facts.kinds["small"]
            of = f" of {MIN_HEADLINE_ROWS} {facts.unit} or more" if small else ""
            worst = f"the worst group{of} is {_group([main])}"
        if n := 0 if main else len(facts.findings):
            worst = (
                f"{'one group was' if n == 1 else f'{n} groups were'} verified to be below too, "
                f"but none with at least {MIN_HEADLINE_ROWS} {facts.unit} is clearly worse off "
                "than everyone"
            )
        rest = (
            f" Everyone in none of the groups found is covered {percent(facts.rest.share)}."
            if (facts.rest is not None and facts.findings)
            else ""
        )
        everyone = f"Sets cover {covered} of everyone instead of {target}"
        if where:
            everyone = (
                f"Sets cover {RANDOM_ROW} {covered} of the time ({where}) instead of {target}"
            )
        return f"{everyone}; {worst}.{rest}"
    if status == "finding" and main:
        others = facts.kinds["far"][1:]
        also = shown(f"{own.rule} ({percent(own.rate.share)})" for own in others)
        which = "Random rows of random clusters" if where else "Rows"
        return (
            f"{which} with {main.rule} are covered {percent(main.rate.share)} of the time instead "
            f"of {target} ({_evidence(main)}), verified on about {rows(main.rate.n)} that played "
            f"no part in finding them, and found in {main.n_found} of {main.n_splits} random "
            "halves."
        ) + (also and f" Also found: {also}.")
    if not (facts.findings or facts.power or facts.labels[0]):
        why = ", as the rows of a cluster count as one" if where else ""
        cannot = f"cannot show which groups are covered less often than {target}{why}."
        return f"{where or rows(overall.n)} {cannot}"
    nobody = "" if facts.findings else ", and no group was verified to be covered less often"
    if where:
        return f"Coverage is {coverage_of(overall.told())} ({where}, target {target}){nobody}."
    return f"{coverage_of(overall.told())} are covered (target {target}){nobody}."


def _power(power: Sequence[Mapping[str, Any]]) -> str:
    """Say which groups would have been found, by simulation on the same rows."""
    told: list[str] = []
    for own in power:
        what = "one with {}" if told else "a group with {} of the rows"
        two = " that takes two conditions to name" if own["conditions"] == 2 else ""
        few = f"if at most {percent(own['coverage'], 0)}{'' if told else ' of it were covered'}"
        told.append(f"{what.format(percent(own['share'], 0))}{two} {few}")
    return f"Four times in five, this audit would have found {_and(told)}." if told else ""


def _title(status: str, facts: Facts) -> str:
    """Return a title, of labels next to what is to be said of groups."""
    if status in ("low", "finding"):
        return LABELS[status]
    about = next((kind for kind in ("small", "slight") if facts.kinds[kind]), status)
    if about == "label":
        about = "unclear" if facts.cannot_tell else "pass"
    first = LABELS[about].replace("rows", facts.unit)
    if not facts.labels[0]:
        return first
    return f"{first}, {'and' if about in ('small', 'unclear') else 'but'} {_label_title(facts)}"


def _audit_steps(status: str, facts: Facts, settings: Mapping[str, str]) -> list[str]:
    small = facts.kinds["small"]
    like = f"more rows like those of {small[0].rule}" if small else _more_of(facts.unit)
    enough = f"at least {MIN_HEADLINE_ROWS} {facts.unit} in each half of the table"
    line = protect_command(facts.main.rule.text, settings.get("protect", "")) if facts.main else ""
    steps = {
        "low": RECALIBRATE,
        "finding": f"{MEND_GROUP} This line trains a model on these rows, as a start: {line}",
        "unclear": f"Collect {like}: a group needs {enough}.",
        "unequal": MEND_SIZES,
        "pass": "Audit again when new rows with labels arrive.",
    }
    if facts.weak and not small:
        steps["unclear"] = _on_more_rows(facts)
    chosen = [steps[status]] if status in steps else []
    if status == "low":
        chosen = _low_steps(facts, steps["finding"] if facts.main else MEND_GROUP)
    chosen += _labels_steps(facts, label_conditional=False)
    return chosen + [MEND_SIZES] * (bool(facts.unequal) and status != "unequal")


def _low_steps(facts: Facts, mend: str) -> list[str]:
    """Say what helps where everyone is below: the groups first, if they explain it."""
    steps = [mend] if facts.findings else []
    if not facts.findings or facts.is_low_elsewhere:
        steps.append(RECALIBRATE)
    if facts.excusing:
        steps.append(
            "If you know how many rows calibrated these sets, audit again with n_calibration: up "
            f"to about {facts.excusing:,} rows, {percent(facts.overall.share)} may be bad luck in "
            "drawing them."
        )
    return steps


def protect_command(rule: str, shell: str = "") -> str:
    """Return the line that protects a group: in Python, or the command of a shell."""
    return (
        f"{shell} {shlex.quote(rule)}"
        if shell
        else f"FaReGClassifier(protect=Rule.parse({rule!r}))"
    )


# --- fits ---


@dataclass(frozen=True)
class Change:
    """The coverage of a group on test rows, before and after."""

    group: str
    before: Rate  # its p-value is that coverage is as promised
    after: Rate
    least_coverage: float  # what the draw of the calibration rows excuses

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Change:
        """Read a row of :attr:`Comparison.groups`."""
        before, after = (Rate.of_row(row, moment) for moment in ("before", "after"))
        return cls(row["group"], before, after, row["least_coverage"])

    @property
    def is_small(self) -> bool:
        """Whether there are too few rows to judge."""
        return self.after.independent < MIN_HEADLINE_ROWS

    def in_words(self, level: float) -> str:
        """Return the coverage of a group before and after, on how many test rows."""
        before, after = (
            f"{percent(own.share)} ({interval(own.low, own.high)})"
            for own in (self.before, self.after)
        )
        where = in_clusters(self.after.told())
        on = f"for {RANDOM_ROW} ({where})" if where else f"on {rows(self.after.n, 'test row')}"
        return f"{self.group}: {before} → {after} {on}, target {confidence(level)}"

    def repair(self, level: float) -> str:
        """Return the sentence about a repair."""
        if self.after.n == 0:
            return f"{self.group}: no test row in it."
        is_short = self.least_coverage <= self.after.high and self.after.share < level
        chance = "; the gap that is left may be chance on so few rows" if is_short else ""
        return f"{self.in_words(level)}; {p_value(self.before.p_value)} before{chance}."

    def outcome(self, level: float) -> tuple[str, str]:
        """Return the status of a repair, and words that claim no more than the test rows show."""
        before, after = self.before.share, self.after.share
        if self.after.n == 0:
            return "unclear", "was named, but no test row lies in it"
        if self.is_small:
            return "unclear", f"was repaired, on too few test {self.after.unit} to tell"
        if self.after.high < self.least_coverage:
            if before >= level:
                return "finding", "is under-covered, and was not before"
            much = "only partly" if after > before else "not"
            return "finding", f"was under-covered and is {much} repaired"
        if before >= level:
            return "unclear", "got larger sets, though covered as promised before"
        far = "" if after >= level else " as far as the test rows can tell"
        return "pass", f"was under-covered and is repaired{far}"


def fit_verdict(
    left: Facts,
    repairs: Sequence[Change] | None,
    *,
    label_conditional: bool = False,
    empty: Mapping[str, Any] | None = None,
    made_worse: Sequence[Change] = (),
    settings: Mapping[str, str],
) -> Verdict:
    """Decide what a fit says, from what was repaired and from the audit of what is left.

    ``repairs`` are the groups that the classifier named, None for a method that names none.
    ``empty`` holds the ``share`` of test rows whose set is empty, ``right``, how often the top
    label is right for them, and ``accuracy``. ``made_worse`` are groups whose coverage fell, and
    lies below the level, both beyond chance.

    What is left leads if it is bad, and who was made worse before that; a repair never hides it.
    """
    audit, level = audit_verdict(left, settings), left.confidence_level
    status, title, told = audit.status, audit.label, list(audit.sentences)
    if repairs:
        status, title, told = _with_repairs(repairs, left, audit)
    elif repairs is not None and status == "finding":
        title = f"{title}, not repaired"
    steps = {
        "low": RECALIBRATE,
        "finding": audit.next_steps[0] if audit.status == "finding" else MEND_GROUP,
        "unclear": f"{USE[:-1]}: on these test rows the group was covered as promised before.",
        "unequal": MEND_SIZES,
        "pass": _on_more_rows(left) if left.weak else USE,
    }
    if any(own.is_small for own in repairs or ()):
        steps["unclear"] = (
            f"Fit on {_more_of(left.unit)}: a group needs at least {MIN_HEADLINE_ROWS} test "
            f"{left.unit} before its coverage can be judged."
        )
    elif audit.status == "unclear":
        steps["unclear"] = audit.next_steps[0]  # the audit knows what there is too little of
    if worse := [own for own in made_worse if not own.is_small]:
        status = "low" if status == "low" else "finding"
        many = "One group was" if len(worse) == 1 else f"{len(worse)} groups were"
        title = f"{many} made worse; {title[0].lower()}{title[1:]}"
        told.insert(0, f"Made worse: {'; '.join(own.in_words(level) for own in worse)}.")
        steps = {"finding": MADE_WORSE, "low": f"{MADE_WORSE} {RECALIBRATE}"}
    chosen = [steps[status]] if status in steps else []
    chosen += _labels_steps(left, label_conditional=label_conditional)
    if empty is not None and empty["share"] > MAX_EMPTY_SHARE:
        chosen.append(_empty_step(empty, level))
    names = [own.group for own in worse]
    return Verdict.of(status, title, told, chosen, settings, made_worse=names)


def _with_repairs(
    repairs: Sequence[Change], left: Facts, audit: Verdict
) -> tuple[str, str, list[str]]:
    """Return status, title and sentences of what was repaired and of what is left."""
    level, small, said = left.confidence_level, left.kinds["small"], list(audit.sentences)
    outcomes = [own.outcome(level) for own in repairs]
    status = min((one for one, _ in outcomes), key=("finding", "unclear", "pass").index)
    title = _counted([text for _, text in outcomes])
    told = [own.repair(level) for own in repairs]
    if audit.status == "low":
        return "low", audit.label, [*said, *told]
    if audit.status == "finding":
        joined = "and" if status == "finding" else "but"
        return "finding", f"{title}, {joined} an under-covered group is left", [*said, *told]
    if status != "finding":
        title = f"{title}, but {TOO_SMALL}" if small else title
        if left.labels[0]:
            status = "label"
            title = f"{title}, {'and' if small else 'but'} {_label_title(left)}"
        elif audit.status == "unclear" and (small or not left.weak):
            status = "unclear"
        elif audit.status == "unequal" and status == "pass":
            status = "unequal"
    return status, title, [*told, *said]


def _counted(texts: list[str]) -> str:
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


def _evidence(own: Finding) -> str:
    return evidence(own.to_dict())


def _group(groups: Sequence[Finding]) -> str:
    own = groups[0]
    return f"{own.rule}, {coverage_of(own.rate.told())} ({_evidence(own)}){_more(groups)}"


def _label(label: Label) -> str:
    name, rate = label
    told = evidence({**rate.told(), "p_value": None})
    return f"{coverage_of(rate.told(), f' whose true label is {name}')} ({told})"


def _more(groups: Sequence[Any]) -> str:
    return f", and {len(groups) - 1} more like it" if len(groups) > 1 else ""


def _more_of(unit: str) -> str:
    return "more rows" if unit == "rows" else "rows of more clusters"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _listed(labels: Sequence[Label]) -> str:
    names = [name for name, _ in labels[:MAX_LABELS_NAMED]]
    more = len(labels) - len(names)
    return _and([*names, f"{more} more"] if more else names)


def _label_title(facts: Facts) -> str:
    (name, rate), *others = facts.labels[0]
    if not others:
        return f"true label {name} is covered only {percent(rate.share)}"
    far = f"covered far less than {confidence(facts.confidence_level)}"
    return f"true labels {_listed(facts.labels[0])} are {far}"


def _labels_steps(facts: Facts, *, label_conditional: bool) -> list[str]:
    """Say what helps labels that are covered far too rarely."""
    labels = facts.labels[0]
    if not labels:
        return []
    if label_conditional:
        own = "each label already has its own calibration"
        return [f"Add calibration rows of {_listed(labels)}: {own}."]
    return [
        f"If it matters that {_listed(labels)} {'is' if len(labels) == 1 else 'are'} missed, fit "
        "again with label_conditional=True, which makes the promise for every true label. Sets get "
        "larger and some groups may lose coverage, so compare both fits before you choose."
    ]


def _on_more_rows(facts: Facts) -> str:
    """Say what few rows could show, and what not, where they show nothing."""
    return (
        "Test on more rows before you conclude that nobody is left out: "
        f"{rows(facts.overall.n)} reveal a group only if it is covered {percent(facts.weak, 0)} of "
        "the time or less, so smaller gaps may exist. The promise on average holds all the same."
    )


def _empty_step(empty: Mapping[str, Any], level: float) -> str:
    """Say how many sets are empty, why, and how to avoid them."""
    why = (
        f": the model is right for {percent(empty['accuracy'])}, more than the {confidence(level)} "
        "asked for, so sets of easy rows are left empty at random"
    )
    return (
        f"{percent(empty['share'])} of the sets are empty, and the top label is right for "
        f"{percent(empty['right'])} of these rows{why if empty['accuracy'] > level else ''}. If "
        "every row needs a label, fit again with allow_empty=False; coverage can only rise."
    )
