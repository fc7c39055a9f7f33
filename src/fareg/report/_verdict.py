"""The verdict of an audit and of a fit: status, label, sentence, and what to do next.

Terminal, JSON, report and model file all show what these functions return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fareg._words import (
    clusters,
    confidence,
    counted_once,
    evidence,
    interval,
    is_far_below,
    p_value,
    percent,
    rows,
    shown,
)
from fareg.report._steps import (
    MADE_WORSE,
    MIN_HEADLINE_ROWS,
    NEED_NOT_SHOWN,
    OF_AUDIT,
    OF_FIT,
    RECALIBRATE,
    Row,
    ask_for_calibration_rows,
    collect,
    empty_step,
    fit_on_more,
    labels_step,
    weak_test_step,
)

MIN_SHOWN_ROWS = 20  # smaller groups and labels are not picked out, in any table or figure
TOO_SMALL = "a group below target is too small for a verdict"  # it was verified, on few rows
LABEL_GAP = 0.05  # a label is spoken of if its whole 95% interval is this far below the target
SUSPICIOUS = 0.05  # p-value at which a group is described, as suspected and not verified
MAX_LABELS_NAMED = 3
WEAK_TEST = 2.0  # a test that only finds this many times the promised errors says little
MAX_EMPTY_SHARE = 0.01  # a fit speaks of empty sets if more than this share of all are empty

LABELS = {
    "low": "Coverage below target",  # that of all rows together
    "finding": "Under-covered group found",
    "label": "Labels below target",  # the rows of a true label are covered far too rarely
    "pass": "No under-covered group found",
    "slight": "Only a slight gap found",  # a pass: it was verified, and is too small for a name
    "unclear": "Too few rows to tell whether a group is left out",  # or clusters
}


def audit_verdict(
    *,
    confidence_level: float,
    overall: Row,
    groups: Sequence[Row],
    by_label: Sequence[Row],
    detectable_coverage: float | None,
) -> dict[str, Any]:
    """Decide what an audit says: the status, a key of ``LABELS``, its label, sentence, next_steps.

    ``overall`` holds ``n``, ``coverage`` and the end ``high`` of its 95% interval, of all rows. If
    each cluster counts once there, in groups and in labels, these have ``n_clusters`` too. It also
    holds ``rows_that_excuse``, the largest number of calibration rows by whose draw
    a valid predictor covers so little, if the audit was not told theirs. ``groups`` were put to the
    test, most significant first; see ``VerifiedGroup``. ``by_label`` has ``label``, ``n``,
    ``coverage``, ``low`` and ``high`` of each true label. ``detectable_coverage`` is that at which
    a group would be found, None if none would be found at any. Labels with fewer than
    ``MIN_HEADLINE_ROWS`` rows may be mentioned in the sentence but never decide the status. Groups
    with fewer rows are no "finding", and never denied: if one was verified to be below,
    ``small_finding`` says so, and there is no "pass". What is ``counted`` is rows or clusters.
    """
    target = confidence(confidence_level)
    short, smaller = _labels_below(by_label, confidence_level)
    findings = [group for group in groups if group["is_finding"]]
    small = [group for group in findings if _independent(group) < MIN_HEADLINE_ROWS]
    far = [group for group in findings if group not in small and _is_far(group, confidence_level)]
    slight = [group for group in findings if group not in small and group not in far]
    weak = _weak_test(overall, detectable_coverage, confidence_level)
    main = headline_group(groups, overall, confidence_level)
    covered, once = percent(overall["coverage"]), counted_once(overall)
    if _is_low(overall, confidence_level):
        status = "low"
        worst = (
            f"worst: {_group_evidence(main)}"
            if main
            else _none_worse(len(findings), _unit(overall))
        )
        told = [
            f"Sets cover {covered} of everyone{once and f' ({once})'} instead of {target}; {worst}."
        ]
    elif main and far:
        status = "finding"
        told = [
            f"Rows with {main['rule']} are covered {percent(main['coverage'])} of the time instead "
            f"of {target} ({evidence(main)}), verified on {rows(main['n'])} that played no part in "
            "finding them."
        ]
    elif small or slight or short or detectable_coverage is not None:
        unclear = small or (weak and not slight)
        status = "label" if short else "unclear" if unclear else "pass"
        nobody = "" if small or slight else ", and no group was verified to be covered less often"
        told = [
            f"{covered} of {rows(overall['n'])} are covered ({once and once + '; '}target {target})"
            f"{nobody}."
        ]
        if detectable_coverage is not None:
            told.append(
                "A group with 30% of the rows would probably have been noticed if its coverage "
                f"were {percent(detectable_coverage)} or less."
            )
    else:
        status = "unclear"
        together, why = "", ""
        if once:
            together = f" in {clusters(overall['n_clusters'])}"
            why = ", as every cluster counts once"
        told = [
            f"{rows(overall['n'])}{together} cannot show which groups are covered less often than "
            f"{target}{why}."
        ]
    if short:
        missed = "; ".join(map(_label_evidence, short[:MAX_LABELS_NAMED]))
        told.append(f"By true label, sets cover only {missed}, instead of {target}.")
        if others := short[MAX_LABELS_NAMED:]:
            also = (f"{row['label']} ({percent(row['coverage'])})" for row in others)
            told.append(f"Other labels that are covered far less than {target}: {shown(also)}.")
    if slight and status not in ("low", "finding"):
        more = f", and {len(slight) - 1} more like it" if len(slight) > 1 else ""
        told.insert(1, f"A slight gap was verified: {_group_evidence(slight[0])}{more}.")
    if small and status != "low":
        what = "group was verified to be covered less often"
        told.insert(1, _small(what, _group_evidence(small[0]), len(small), _unit(small[0])))
    if smaller:
        told.append(
            _small("label stands out", _label_evidence(smaller[0]), len(smaller), _unit(smaller[0]))
        )
    unclear = weak_test_step(weak) if weak and not small else collect(small, _unit(overall))
    table = {**OF_AUDIT, "unclear": unclear}
    steps = _next_steps(table, status, short, label_conditional=False)
    if status == "low" and (most := overall.get("rows_that_excuse")):
        steps.insert(0, ask_for_calibration_rows(most))
    about = "small" if small else "slight" if slight else "pass"
    if about == "pass" and (weak or detectable_coverage is None):
        about = "unclear"
    return {
        "status": status,
        "label": _audit_title(status, about, short, _unit(overall), confidence_level),
        "sentence": " ".join(told),
        "next_steps": steps,
        "small_finding": bool(small),
        "weak_test": weak,
        "counted": _unit(overall),
    }


def _weak_test(overall: Row, detectable: float | None, confidence_level: float) -> Any:
    """Return what a test could find at best, if that is far from the promise; None if it is not."""
    if detectable is None or 1 - detectable <= WEAK_TEST * (1 - confidence_level):
        return None
    return {"n": overall["n"], "detectable": detectable}


def _audit_title(
    status: str, about: str, short: list[Row], unit: str, confidence_level: float
) -> str:
    """Return a title; ``about`` is what to say of groups where they do not decide the status."""
    if status in ("low", "finding"):
        return LABELS[status]
    first = _capital(TOO_SMALL) if about == "small" else LABELS[about].replace("rows", unit)
    joined = "and" if about in ("small", "unclear") else "but"
    return f"{first}, {joined} {_short_title(short, confidence_level)}" if short else first


def headline_group(groups: Sequence[Row], overall: Row, confidence_level: float) -> Any | None:
    """Return the group that a report describes, if any has enough rows for it.

    It is the most significant finding that is far enough below the level for a name, or else a
    group whose own p-value is small, though not after correction for the number of groups.
    If all rows together are below the level, every group may be: then it is the worst finding that
    lies below the overall coverage.
    """
    large = [group for group in groups if _independent(group) >= MIN_HEADLINE_ROWS]
    findings = [group for group in large if group["is_finding"]]
    if _is_low(overall, confidence_level):
        apart = [group for group in findings if group["high"] < overall["coverage"]]
        return min(apart, key=lambda group: group["high"], default=None)
    far = [group for group in findings if _is_far(group, confidence_level)]
    suspects = [g for g in large if not g["is_finding"] and g["p_value"] <= SUSPICIOUS]
    return next(iter([*far, *suspects]), None)


def _is_far(group: Row, confidence_level: float) -> bool:
    """Tell whether the gap of a group is large enough for a name."""
    return is_far_below(group["coverage"], group["high"], confidence_level)


def _is_low(overall: Row, confidence_level: float) -> bool:
    """Tell whether all rows together are below what was promised."""
    return bool(overall["high"] < overall.get("least_coverage", confidence_level))


def _independent(group: Row) -> int:
    """Count what is independent in a group: its clusters, or its rows where there are none."""
    clusters = group.get("n_clusters")
    return int(group["n"] if clusters is None else clusters)


def _unit(counted: Row) -> str:
    """Return what is independent, and so what there may be too few of."""
    return "rows" if counted.get("n_clusters") is None else "clusters"


def _none_worse(n: int, unit: str) -> str:
    """Tell of ``n`` groups that were verified where everyone is below, and none stands apart."""
    if n == 0:
        return "no single group stands out"
    verified = "one group was" if n == 1 else f"{n} groups were"
    return (
        f"{verified} verified to be below too, but none with at least {MIN_HEADLINE_ROWS} {unit} "
        "is clearly worse off than everyone"
    )


def _labels_below(by_label: Sequence[Row], confidence_level: float) -> tuple[list[Row], list[Row]]:
    """Return the labels that are covered far too rarely, worst first.

    The whole 95% interval of such a label lies more than ``LABEL_GAP`` below the level, and below
    the coverage of all rows together. The first list has those with at least ``MIN_HEADLINE_ROWS``
    rows, the second those with fewer that are worse than all of the first.
    """
    total = sum(row["share"] for row in by_label) or 1.0
    everyone = sum(row["share"] * row["coverage"] for row in by_label) / total
    bound = min(confidence_level, everyone) - LABEL_GAP
    far = [r for r in by_label if r["high"] < bound and _independent(r) >= MIN_SHOWN_ROWS]
    far.sort(key=lambda row: float(row["coverage"]))
    large = [row for row in far if _independent(row) >= MIN_HEADLINE_ROWS]
    worst = large[0]["coverage"] if large else 1.0
    small = [row for row in far if row not in large and row["coverage"] < worst]
    return large, small


def worst_label(by_label: Sequence[Row]) -> Row | None:
    """Return the label that is covered least, among those with enough rows to be picked out.

    If there are none, it is the worst of all.
    """
    large = [row for row in by_label if _independent(row) >= MIN_SHOWN_ROWS]
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
    excuses. There may be none. For a method that names no groups, ``repairs`` is None and the audit
    of its sets speaks alone. ``left`` is :func:`audit_verdict` of the repaired sets on the same
    rows. ``empty`` holds the ``share`` of test rows whose set is empty, ``right``, the share of
    these for which the top label is the true one, and ``accuracy``, that share of all test rows.
    ``made_worse`` are groups, with the same facts as ``repairs``, whose coverage fell, and lies
    below the level, both beyond chance.

    The answer is as that of :func:`audit_verdict`, with ``made_worse``, the words of these groups.
    What is left leads if it is bad, and who was made worse before that; a repair never hides it.
    """
    short, _ = _labels_below(by_label, confidence_level)
    status, title, sentence = left["status"], left["label"], left["sentence"]
    if repairs:
        status, title, sentence = _with_repairs(repairs, left, short, confidence_level)
    elif repairs is not None and status == "finding":
        title = f"{title}, not repaired"
    need = NEED_NOT_SHOWN
    if any(_independent(row) < MIN_HEADLINE_ROWS for row in repairs or ()):
        need = fit_on_more(left["counted"])
    elif left["status"] == "unclear":
        need = left["next_steps"][0]  # the audit knows what there is too little of
    weak = left["weak_test"]
    table = {**OF_FIT, "unclear": need, "pass": weak_test_step(weak) if weak else OF_FIT["pass"]}
    worse = [row for row in made_worse if _independent(row) >= MIN_HEADLINE_ROWS]
    if worse:
        status = "low" if status == "low" else "finding"
        title = f"{_made_worse_title(worse)}; {title[0].lower()}{title[1:]}"
        changed = (_change(row, confidence_level, left["counted"]) for row in worse)
        sentence = f"Made worse: {'; '.join(changed)}. {sentence}"
        table = {"finding": MADE_WORSE, "low": f"{MADE_WORSE} {RECALIBRATE}"}
    steps = _next_steps(table, status, short, label_conditional=label_conditional)
    if empty is not None and empty["share"] > MAX_EMPTY_SHARE:
        steps.append(empty_step(empty, confidence_level))
    return {
        "status": status,
        "label": title,
        "sentence": sentence,
        "next_steps": steps,
        "made_worse": [row["group"] for row in worse],
    }


def _made_worse_title(worse: Sequence[Row]) -> str:
    return f"{'One group was' if len(worse) == 1 else f'{len(worse)} groups were'} made worse"


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
        small = left["small_finding"]
        if small:
            title = f"{title}, but {TOO_SMALL}"
        if short:
            named = _short_title(short, confidence_level)
            status, title = "label", f"{title}, {'and' if small else 'but'} {named}"
        elif left["status"] == "unclear" and (small or not left["weak_test"]):
            status = "unclear"
    return status, title, " ".join(told)


def _group_evidence(group: Row) -> str:
    return (
        f"{group['rule']}, {percent(group['coverage'])} of {rows(group['n'])} ({evidence(group)})"
    )


def _small(what: str, told: str, n: int, unit: str = "rows") -> str:
    more = f", and {n - 1} more like it" if n > 1 else ""
    few = f"fewer than {MIN_HEADLINE_ROWS} {unit} are too few for a verdict"
    return f"A small {what}: {told}{more}; {few}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _short_title(short: list[Row], confidence_level: float) -> str:
    if len(short) == 1:
        return f"true label {short[0]['label']} is covered only {percent(short[0]['coverage'])}"
    return f"true labels {_listed(short)} are covered far less than {confidence(confidence_level)}"


def _listed(short: list[Row]) -> str:
    names = [str(row["label"]) for row in short[:MAX_LABELS_NAMED]]
    if len(short) > len(names):
        names.append(f"{len(short) - len(names)} more")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _label_evidence(row: Row) -> str:
    return (
        f"{percent(row['coverage'])} of {rows(row['n'])} whose true label is {row['label']} "
        f"({evidence({name: row.get(name) for name in ('low', 'high', 'n_clusters')})})"
    )


def _next_steps(
    table: Mapping[str, str], status: str, short: list[Row], *, label_conditional: bool
) -> list[str]:
    steps = [table[status]] if status in table else []
    if short:
        steps.append(labels_step(_listed(short), len(short), label_conditional=label_conditional))
    return steps


def _repair_outcome(row: Row, confidence_level: float, unit: str = "rows") -> tuple[str, str]:
    """Return the status of a repair, and words that claim no more than the test rows show."""
    if row["n"] == 0:
        return "unclear", "was named, but no test row lies in it"
    if _independent(row) < MIN_HEADLINE_ROWS:
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
    counted = {text: texts.count(text) for text in texts}
    title = ", ".join(
        f"{'one group' if n == 1 else f'{n} groups'} {text if n == 1 else _plural(text)}"
        for text, n in counted.items()
    )
    return status, _capital(title)


def _plural(outcome: str) -> str:
    several = {"was": "were", "is": "are", "reaches": "reach", "it": "them"}
    return " ".join(several.get(word, word) for word in outcome.split(" "))


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
