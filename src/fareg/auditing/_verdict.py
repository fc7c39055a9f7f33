"""What an audit and a fit say first. Rules in order: the first that holds speaks.

Terminal, JSON, report, notebook and model file all show what these functions return.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fareg._words import (
    clusters,
    confidence,
    counted_once,
    evidence,
    interval,
    p_value,
    percent,
    rows,
    shown,
    size,
)
from fareg.groups import is_far_below
from fareg.report import MIN_SHOWN_ROWS

Row = Mapping[str, Any]
MIN_HEADLINE_ROWS = 100  # a group or label with fewer independent rows never makes a headline
LABEL_GAP = 0.05  # a label is spoken of if its whole 95% interval is this far below the target
MAX_LABELS_NAMED = 3
WEAK_TEST = 2.0  # a test that only finds this many times the promised errors says little
MAX_EMPTY_SHARE = 0.01  # a fit speaks of empty sets if more than this share of all are empty
TOO_SMALL = "a group below target is too small for a verdict"  # it was verified, on few rows

LABELS = {
    "low": "Coverage below target",  # that of all rows together
    "finding": "Under-covered group found",
    "label": "Labels below target",  # the rows of a true label are covered far too rarely
    "unequal": "No under-covered group found, but much larger sets for some",
    "pass": "No under-covered group found",
    "slight": "Only a slight gap found",  # a pass: it was verified, and is too small for a name
    "small": f"{TOO_SMALL[0].upper()}{TOO_SMALL[1:]}",
    "unclear": "Too few rows to tell whether a group is left out",  # or clusters
}
RECALIBRATE = (
    "Calibrate again on recent rows like these: the promise is broken for all rows together, as it "
    "is when the population has changed or when training rows were used to calibrate."
)
MEND_GROUP = (
    "Do not rely on these sets for this group yet: give it a threshold of its own in a model that "
    "other rows calibrate than those that found it, and audit on new rows. This command starts "
    "from the same rows: "
)
AUDIT_AGAIN = "Audit again when new rows with labels arrive."
USE = "Use the model, and audit its sets when new rows with labels arrive."
NEED_NOT_SHOWN = f"{USE[:-1]}: on these test rows the group was covered as promised before."
MADE_WORSE = (
    "Do not use these sets for whoever was made worse: plain split conformal sets cover them "
    "better. Fit again with the columns of these groups alone in sensitive_features, and compare."
)
MEND_SIZES = (
    "Larger sets help less: have people decide the cases of those who get them with more time or "
    "information, and improve the model there. Larger sets are not an error of calibration."
)


@dataclass(frozen=True)
class Facts:
    """What an audit found: rows of plain types, as in ``AuditResult.to_dict()``.

    ``overall``, ``findings``, ``unequal`` and ``by_label`` are counted rows, ``power`` what would
    have been found.
    """

    confidence_level: float
    overall: Row
    findings: Sequence[Row]
    unequal: Sequence[Row]
    by_label: Sequence[Row]
    power: Sequence[Row]

    @cached_property
    def is_low(self) -> bool:
        """Whether all rows together are below what was promised."""
        least = self.overall.get("least_coverage", self.confidence_level)
        return bool(self.overall["high"] < least)

    @cached_property
    def main(self) -> Row | None:
        """The finding that is described: the first that is far enough below, on enough rows.

        If all rows together are below, it is the worst that lies below the overall coverage.
        """
        if self.is_low:
            large = [own for own in self.findings if independent(own) >= MIN_HEADLINE_ROWS]
            apart = [own for own in large if own["high"] < self.overall["coverage"]]
            return min(apart, key=lambda own: float(own["high"]), default=None)
        return next(iter(self.far), None)

    @cached_property
    def small(self) -> list[Row]:
        return [own for own in self.findings if independent(own) < MIN_HEADLINE_ROWS]

    @cached_property
    def far(self) -> list[Row]:
        return [own for own in self._large if self._is_far(own)]

    @cached_property
    def slight(self) -> list[Row]:
        return [own for own in self._large if not self._is_far(own)]

    @property
    def _large(self) -> list[Row]:
        return [own for own in self.findings if independent(own) >= MIN_HEADLINE_ROWS]

    def _is_far(self, own: Row) -> bool:
        return is_far_below(own["coverage"], own["high"], self.confidence_level)

    @cached_property
    def labels(self) -> tuple[list[Row], list[Row]]:
        """True labels that are covered far too rarely, worst first; and smaller ones still worse.

        The whole 95% interval of such a label lies more than ``LABEL_GAP`` below the level, and
        below the coverage of all rows together.
        """
        total = sum(row["share"] for row in self.by_label) or 1.0
        everyone = sum(row["share"] * row["coverage"] for row in self.by_label) / total
        bound = min(self.confidence_level, everyone) - LABEL_GAP
        far = [r for r in self.by_label if r["high"] < bound and independent(r) >= MIN_SHOWN_ROWS]
        far.sort(key=lambda row: float(row["coverage"]))
        large = [row for row in far if independent(row) >= MIN_HEADLINE_ROWS]
        worst = large[0]["coverage"] if large else 1.0
        return large, [row for row in far if row not in large and row["coverage"] < worst]

    @cached_property
    def weak(self) -> dict[str, Any] | None:
        """What the rows could show at best, if that is far from the promise."""
        best = max((own["coverage"] for own in self.power), default=None)
        if best is None or 1 - best <= WEAK_TEST * (1 - self.confidence_level):
            return None
        return {"n": self.overall["n"], "detectable": best}

    @cached_property
    def unit(self) -> str:
        """What is independent, and so what there may be too few of."""
        return "rows" if self.overall.get("n_clusters") is None else "clusters"


RULES = (
    ("low", lambda f: f.is_low),
    ("finding", lambda f: bool(f.far)),
    ("label", lambda f: bool(f.labels[0])),
    ("unclear", lambda f: bool(f.small or (f.weak and not f.slight))),
    ("unclear", lambda f: not f.power and not f.slight),
    ("unequal", lambda f: bool(f.unequal)),
    ("pass", lambda f: True),
)


def audit_verdict(facts: Facts, fix: str = "") -> dict[str, Any]:
    """Decide what an audit says: status (a key of ``LABELS``), label, sentence, next_steps.

    ``fix`` is the command that protects the main group. Labels and groups with fewer than
    ``MIN_HEADLINE_ROWS`` rows may be mentioned but never decide the status; ``small_finding`` says
    that one was verified. ``weak_test`` is what the rows could show at best, if that says little,
    and ``counted`` what is counted, rows or clusters.
    """
    status = next(name for name, holds in RULES if holds(facts))
    short, smaller = facts.labels
    told = [_first(status, facts)]
    if status not in ("low", "finding"):
        if facts.slight:
            what = f"A slight gap was verified: {_group(facts.slight[0])}"
            told.append(f"{what}{_more(facts.slight)}.")
        if facts.power:
            told.append(power_sentence(facts.power))
    if facts.small and status != "low":
        what = "group was verified to be covered less often"
        told.append(_small(what, _group(facts.small[0]), facts.small))
    if short:
        missed = "; ".join(map(_label, short[:MAX_LABELS_NAMED]))
        told.append(
            f"By true label, sets cover only {missed}, instead of "
            f"{confidence(facts.confidence_level)}."
        )
        if others := short[MAX_LABELS_NAMED:]:
            also = (f"{row['label']} ({percent(row['coverage'])})" for row in others)
            told.append(f"Other labels that are covered far less: {shown(also)}.")
    if smaller:
        told.append(_small("label stands out", _label(smaller[0]), smaller))
    if facts.unequal:
        told.append(unequal_sentence(facts.unequal))
    return {
        "status": status,
        "label": _title(status, facts),
        "sentence": " ".join(told),
        "next_steps": _audit_steps(status, facts, fix),
        "small_finding": bool(facts.small),
        "weak_test": facts.weak,
        "counted": facts.unit,
    }


def _first(status: str, facts: Facts) -> str:
    """Return the sentence about coverage that comes first."""
    overall, target = facts.overall, confidence(facts.confidence_level)
    covered, once, main = percent(overall["coverage"]), counted_once(overall), facts.main
    if status == "low":
        worst = f"worst: {_group(main)}" if main else _none_worse(len(facts.findings), facts.unit)
        return (
            f"Sets cover {covered} of everyone{once and f' ({once})'} instead of {target}; {worst}."
        )
    if status == "finding" and main:
        return (
            f"Rows with {main['rule']} are covered {percent(main['coverage'])} of the time instead "
            f"of {target} ({evidence(main)}), verified on about {rows(main['n'])} that played no "
            f"part in finding them{_found_in(main)}.{_also(facts.far[1:])}"
        )
    if not (facts.findings or facts.power or facts.labels[0]):
        together, why = "", ""
        if once:
            together = f" in {clusters(overall['n_clusters'])}"
            why = ", as every cluster counts once"
        return (
            f"{rows(overall['n'])}{together} cannot show which groups are covered less often than "
            f"{target}{why}."
        )
    nobody = "" if facts.findings else ", and no group was verified to be covered less often"
    return (
        f"{covered} of {rows(overall['n'])} are covered ({once and once + '; '}target {target})"
        f"{nobody}."
    )


def _found_in(group: Row) -> str:
    if group.get("n_splits") is None:
        return ""
    return f", and found in {group['n_found']} of {group['n_splits']} random halves"


def _also(groups: Sequence[Row]) -> str:
    """Name the other groups that were found."""
    if not groups:
        return ""
    told = shown(f"{own['rule']} ({percent(own['coverage'])})" for own in groups)
    return f" Also found: {told}."


def power_sentence(power: Sequence[Row]) -> str:
    """Say which groups would have been found, by simulation on the same rows."""
    first, *more = [
        f"a group of {percent(own['share'], 0)} of the rows"
        f"{' that takes two conditions to name' if own['conditions'] == 2 else ''} if its coverage "
        f"were {percent(own['coverage'], 0)} or less"
        for own in power
    ]
    return f"In four of five cases this audit would have found {'; '.join([first, *more])}."


def unequal_sentence(unequal: Sequence[Row]) -> str:
    """Say whose sets are much larger than those of others."""
    first = unequal[0]
    return (
        f"Sets are unequal: those of {first['rule']} hold {size(first['mean_size'])} labels on "
        f"average, those of everyone else {size(first['others_size'])} "
        f"({p_value(first['adjusted_p_value'], 'adjusted p')}){_more(unequal)}."
    )


def _title(status: str, facts: Facts) -> str:
    """Return a title, of labels next to what is to be said of groups."""
    if status in ("low", "finding"):
        return LABELS[status]
    about = "small" if facts.small else "slight" if facts.slight else status
    if about == "label":
        about = "unclear" if facts.weak or not facts.power else "pass"
    first = LABELS[about].replace("rows", facts.unit)
    if not facts.labels[0]:
        return first
    joined = "and" if about in ("small", "unclear") else "but"
    return f"{first}, {joined} {_short_title(facts.labels[0], facts.confidence_level)}"


def _audit_steps(status: str, facts: Facts, fix: str) -> list[str]:
    weak = facts.weak
    unclear = weak_test_step(weak) if weak and not facts.small else collect(facts)
    table = {
        "low": RECALIBRATE,
        "finding": f"{MEND_GROUP}{fix}" if fix else f"{MEND_GROUP[:-2]}.",
        "unclear": unclear,
        "unequal": MEND_SIZES,
        "pass": AUDIT_AGAIN,
    }
    steps = [table[status]] if status in table else []
    if short := facts.labels[0]:
        steps.append(labels_step(_listed(short), len(short), label_conditional=False))
    if facts.unequal and status != "unequal":
        steps.append(MEND_SIZES)
    return steps


def protect_command(rule: str, shell: str = "") -> str:
    """Return the line that protects a group: in Python, or the command of a shell."""
    if shell:
        return f"{shell} {shlex.quote(rule)}"
    return f"FaReGClassifier(protect=Rule.parse({rule!r}))"


def independent(group: Row) -> int:
    """Count what is independent in a group: its clusters, or its rows where there are none."""
    own = group.get("n_clusters")
    return int(group["n"] if own is None else own)


def _none_worse(n: int, unit: str) -> str:
    """Tell of ``n`` groups that were verified where everyone is below, and none stands apart."""
    if n == 0:
        return "no single group stands out"
    verified = "one group was" if n == 1 else f"{n} groups were"
    return (
        f"{verified} verified to be below too, but none with at least {MIN_HEADLINE_ROWS} {unit} "
        "is clearly worse off than everyone"
    )


def worst_label(by_label: Sequence[Row]) -> Row | None:
    """Return the label that is covered least, among those with enough rows to be picked out."""
    large = [row for row in by_label if independent(row) >= MIN_SHOWN_ROWS]
    return min(large or by_label, key=lambda row: float(row["coverage"]), default=None)


def fit_verdict(
    repairs: Sequence[Row] | None,
    left: Row,
    *,
    confidence_level: float,
    by_label: Sequence[Row] = (),
    label_conditional: bool = False,
    empty: Row | None = None,
    made_worse: Sequence[Row] = (),
) -> dict[str, Any]:
    """Decide what a fit says, from what was repaired and from the audit of what is left.

    ``repairs`` are the groups that the classifier named, on test rows: ``group`` (the rule), ``n``,
    coverage ``before`` and ``after``, each also with ``_low`` and ``_high``, ``p_value``, that it
    is below the level before, and ``least_coverage``, which the draw of the calibration rows
    excuses; None for a method that names none. ``left`` is :func:`audit_verdict` of the sets after.
    ``empty`` holds the ``share`` of test rows whose set is empty, ``right``, how often the top
    label is right for them, and ``accuracy``. ``made_worse`` are groups whose coverage fell, and
    lies below the level, both beyond chance.

    What is left leads if it is bad, and who was made worse before that; a repair never hides it.
    """
    facts = Facts(confidence_level, {"n": 0, "high": 1.0}, (), (), by_label, ())
    short, unit = facts.labels[0], left["counted"]
    status, title, sentence = left["status"], left["label"], left["sentence"]
    if repairs:
        status, title, sentence = _with_repairs(repairs, left, short, confidence_level)
    elif repairs is not None and status == "finding":
        title = f"{title}, not repaired"
    need = NEED_NOT_SHOWN
    if any(independent(row) < MIN_HEADLINE_ROWS for row in repairs or ()):
        need = fit_on_more(unit)
    elif left["status"] == "unclear":
        need = left["next_steps"][0]  # the audit knows what there is too little of
    weak = left["weak_test"]
    own = left["next_steps"][0] if left["status"] == "finding" else f"{MEND_GROUP[:-2]}."
    table = {
        "low": RECALIBRATE,
        "finding": own,
        "unclear": need,
        "unequal": MEND_SIZES,
        "pass": weak_test_step(weak) if weak else USE,
    }
    worse = [row for row in made_worse if independent(row) >= MIN_HEADLINE_ROWS]
    if worse:
        status = "low" if status == "low" else "finding"
        many = "One group was" if len(worse) == 1 else f"{len(worse)} groups were"
        title = f"{many} made worse; {title[0].lower()}{title[1:]}"
        changed = (_change(row, confidence_level, unit) for row in worse)
        sentence = f"Made worse: {'; '.join(changed)}. {sentence}"
        table = {"finding": MADE_WORSE, "low": f"{MADE_WORSE} {RECALIBRATE}"}
    steps = [table[status]] if status in table else []
    if short:
        steps.append(labels_step(_listed(short), len(short), label_conditional=label_conditional))
    if empty is not None and empty["share"] > MAX_EMPTY_SHARE:
        steps.append(empty_step(empty, confidence_level))
    return {
        "status": status,
        "label": title,
        "sentence": sentence,
        "next_steps": steps,
        "made_worse": [row["group"] for row in worse],
    }


def _with_repairs(
    repairs: Sequence[Row], left: Row, short: list[Row], confidence_level: float
) -> tuple[str, str, str]:
    """Return status, title and sentences of what was repaired and of what is left."""
    unit = left["counted"]
    status, title = _repair_title(repairs, confidence_level, unit)
    told = [*(_repaired(row, confidence_level, unit) for row in repairs), left["sentence"]]
    if left["status"] in ("low", "finding"):
        joined = "and" if status == "finding" else "but"
        status, told = left["status"], [told[-1], *told[:-1]]
        more = f"{title}, {joined} an under-covered group is left"
        title = left["label"] if status == "low" else more
    elif status != "finding":
        if left["small_finding"]:
            title = f"{title}, but {TOO_SMALL}"
        if short:
            named = _short_title(short, confidence_level)
            status, title = "label", f"{title}, {'and' if left['small_finding'] else 'but'} {named}"
        elif left["status"] == "unclear" and (left["small_finding"] or not left["weak_test"]):
            status = "unclear"
        elif left["status"] == "unequal" and status == "pass":
            status = "unequal"
    return status, title, " ".join(told)


def _repair_outcome(row: Row, confidence_level: float, unit: str = "rows") -> tuple[str, str]:
    """Return the status of a repair, and words that claim no more than the test rows show."""
    if row["n"] == 0:
        return "unclear", "was named, but no test row lies in it"
    if independent(row) < MIN_HEADLINE_ROWS:
        return "unclear", f"was repaired, on too few test {unit} to tell"
    if row["after_high"] < row["least_coverage"]:
        if row["before"] >= confidence_level:
            return "finding", "is under-covered, and was not before"
        much = "only partly" if row["after"] > row["before"] else "not"
        return "finding", f"was under-covered and is {much} repaired"
    if row["before"] >= confidence_level:
        return "unclear", "got larger sets, though covered as promised before"
    if row["after"] >= confidence_level:
        return "pass", "was under-covered and is repaired"
    return "pass", "was under-covered and is repaired as far as the test rows can tell"


def _repair_title(repairs: Sequence[Row], confidence_level: float, unit: str) -> tuple[str, str]:
    """Return the status of the worst repair, and a title that counts groups by their outcome."""
    outcomes = [_repair_outcome(row, confidence_level, unit) for row in repairs]
    status = min((one for one, _ in outcomes), key=("finding", "unclear", "pass").index)
    texts = [text for _, text in outcomes]
    several = {"was": "were", "is": "are", "reaches": "reach", "it": "them"}
    parts = []
    for text in dict.fromkeys(texts):
        n = texts.count(text)
        plural = " ".join(several.get(word, word) for word in text.split(" "))
        parts.append(f"one group {text}" if n == 1 else f"{n} groups {plural}")
    title = ", ".join(parts)
    return status, title[0].upper() + title[1:]


def _repaired(row: Row, confidence_level: float, unit: str) -> str:
    if row["n"] == 0:
        return f"{row['group']}: no test row in it."
    short = row["least_coverage"] <= row["after_high"] and row["after"] < confidence_level
    chance = "; after, the gap is no larger than chance makes it on so many rows" if short else ""
    return f"{_change(row, confidence_level, unit)}; {p_value(row['p_value'])} before{chance}."


def _change(row: Row, confidence_level: float, unit: str) -> str:
    """Return the coverage of a group before and after, on how many test rows."""
    test_rows = rows(row["n"]).replace("row", "test row")
    if once := counted_once(row):
        test_rows += f", {once}"
    before, after = (
        f"{percent(row[moment])} ({interval(row[f'{moment}_low'], row[f'{moment}_high'])})"
        for moment in ("before", "after")
    )
    return (
        f"{row['group']}: {before} → {after} on {test_rows}, target {confidence(confidence_level)}"
    )


# --- pieces of sentences ---


def _group(group: Row) -> str:
    return (
        f"{group['rule']}, {percent(group['coverage'])} of {rows(group['n'])} ({evidence(group)})"
    )


def _label(row: Row) -> str:
    return (
        f"{percent(row['coverage'])} of {rows(row['n'])} whose true label is {row['label']} "
        f"({evidence({name: row.get(name) for name in ('low', 'high', 'n_clusters')})})"
    )


def _more(groups: Sequence[Row]) -> str:
    return f", and {len(groups) - 1} more like it" if len(groups) > 1 else ""


def _small(what: str, told: str, groups: Sequence[Row]) -> str:
    unit = "rows" if groups[0].get("n_clusters") is None else "clusters"
    few = f"fewer than {MIN_HEADLINE_ROWS} {unit} are too few for a verdict"
    return f"A small {what}: {told}{_more(groups)}; {few}."


def _short_title(short: list[Row], confidence_level: float) -> str:
    if len(short) == 1:
        return f"true label {short[0]['label']} is covered only {percent(short[0]['coverage'])}"
    return f"true labels {_listed(short)} are covered far less than {confidence(confidence_level)}"


def _listed(short: list[Row]) -> str:
    names = [str(row["label"]) for row in short[:MAX_LABELS_NAMED]]
    if len(short) > len(names):
        names.append(f"{len(short) - len(names)} more")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def labels_step(names: str, n: int, *, label_conditional: bool) -> str:
    """Say what helps labels that are covered far too rarely."""
    if label_conditional:
        return (
            f"Give more calibration rows of {names}: each label was calibrated by itself already."
        )
    return (
        f"If it matters that {names} {'is' if n == 1 else 'are'} missed, fit again with "
        "label_conditional=True: sets are then promised to hold every true label as often as asked "
        "for. They grow, and groups may gain or lose, so compare both fits before you choose."
    )


def weak_test_step(weak: Row) -> str:
    """Say what few rows could show, and what not, where they show nothing."""
    return (
        f"Test on more rows before you conclude that nobody is left out: {rows(weak['n'])} "
        f"show a group only if it is covered {percent(weak['detectable'], 0)} of the time or less, "
        "and smaller gaps may be there. The promise on average holds all the same."
    )


def empty_step(empty: Row, confidence_level: float) -> str:
    """Say how many sets are empty, why, and how to avoid them."""
    reason = "."
    if empty["accuracy"] > confidence_level:
        reason = (
            f": the accuracy of {percent(empty['accuracy'])} exceeds the "
            f"{confidence(confidence_level)} asked for, so sets of easy rows are left "
            "empty at random."
        )
    return (
        f"{percent(empty['share'])} of the sets are empty, and the top label is right for "
        f"{percent(empty['right'])} of these rows{reason} If every row needs a label, fit again "
        "with allow_empty=False; coverage can only rise."
    )


def collect(facts: Facts) -> str:
    """Say what is missing where an audit cannot tell: rows of a group, or rows, or clusters."""
    enough = f"a group needs at least {MIN_HEADLINE_ROWS} {facts.unit} in each half of the rows"
    if facts.small:
        return f"Collect more rows like those of {facts.small[0]['rule']}: {enough}."
    return f"Collect {_more_of(facts.unit)}: {enough}."


def fit_on_more(unit: str) -> str:
    """Say how many test rows a group needs."""
    return (
        f"Fit on {_more_of(unit)}: a group needs at least {MIN_HEADLINE_ROWS} test {unit} before "
        "its coverage can be judged."
    )


def _more_of(unit: str) -> str:
    return "more rows" if unit == "rows" else "rows of more clusters"
