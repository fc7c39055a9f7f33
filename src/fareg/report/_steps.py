"""What to do next, in sentences: settings by their names in Python, or as someone else has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fareg._words import confidence, count, percent, rows

Row = Mapping[str, Any]

MIN_HEADLINE_ROWS = 100  # a group or label with fewer independent rows never makes a headline
RECALIBRATE = (
    "Calibrate again on recent rows like these: the promise is broken for all rows together, as it "
    "is when the population has changed or when training rows were used to calibrate."
)
MEND_GROUP = (
    "Do not rely on these sets for this group yet: calibrate the group by itself, or fit FaReG on "
    "more rows with the columns of the group alone in sensitive_features."
)
AUDIT_AGAIN = "Audit again when new rows with labels arrive."
USE = "Use the model, and audit its sets when new rows with labels arrive."
MADE_WORSE = (
    "Do not use these sets for whoever was made worse: plain split conformal sets cover them "
    "better. Fit again with the columns of these groups alone in sensitive_features, and compare."
)
NEED_NOT_SHOWN = f"{USE[:-1]}: on these test rows the group was covered as promised before."
OF_AUDIT = {"low": RECALIBRATE, "finding": MEND_GROUP, "pass": AUDIT_AGAIN}
OF_FIT = {"low": RECALIBRATE, "finding": MEND_GROUP, "pass": USE}


def renamed(verdict: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a verdict whose next steps name settings as ``names`` has them.

    >>> verdict = {"next_steps": ["Fit again with allow_empty=False."]}
    >>> renamed(verdict, {"allow_empty=False": "no empty sets"})["next_steps"]
    ['Fit again with no empty sets.']
    """
    steps = list(verdict["next_steps"])
    for python, other in names.items():
        steps = [step.replace(python, other) for step in steps]
    return {**verdict, "next_steps": steps}


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
        f"Test on more rows before you rely on it that nobody is left out: {rows(weak['n'])} "
        f"show a group only if it is as badly off as {percent(weak['detectable'])} covered, and "
        "lesser gaps may be there. The sets are promised on average all the same."
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


def ask_for_calibration_rows(most: int) -> str:
    """Say that few calibration rows may excuse low coverage, of sets that someone else made."""
    return (
        f"Ask how many rows calibrated these sets: with about {count(most)} or fewer, chance alone "
        "may have left sets that keep their promise as low as this. Audit again with their number "
        "as n_calibration, and it is allowed for."
    )


def collect(small: Sequence[Row], unit: str) -> str:
    """Say what is missing where an audit cannot tell: rows of a group, or rows, or clusters."""
    enough = (
        f"a group needs at least {MIN_HEADLINE_ROWS} {unit} in the half of the rows that verifies"
    )
    if small:
        return f"Collect more rows like those of {small[0]['rule']}: {enough}."
    more = "more rows" if unit == "rows" else "rows of more clusters"
    return f"Collect {more}: {enough}."


def fit_on_more(unit: str) -> str:
    """Say how many test rows a group needs."""
    more = "more rows" if unit == "rows" else "rows of more clusters"
    return (
        f"Fit on {more}: a group needs at least {MIN_HEADLINE_ROWS} test {unit} before its "
        "coverage can be judged."
    )
