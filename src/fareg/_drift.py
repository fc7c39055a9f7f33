"""Columns that teach a model nothing, and columns whose values have changed since fit.

A value is strange if it is a text that fit never saw, a number or date outside the range in fit, or
missing. By this definition some rows of fit are strange to the other rows, so the same share of new
rows may be strange. Only a larger share is reported or refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import hypergeom

from fareg._columns import KINDS, as_numbers, as_text, in_words, kind_of, spelled_numbers
from fareg._validation import IntArray, InvalidInputError, warn
from fareg._words import percent, printable, rows, shown

MIN_ROWS = 20  # smaller tables are not judged: in a table of one row, one strange row is 100%
REPORTED, REFUSED = 0.05, 0.5  # share of strange rows, minus the share in fit
CHANCE = 1e-3  # drift is reported only if chance explains it with a smaller probability
MAX_KNOWN = 10_000  # distinct texts of a column; a column with more identifies single rows
MAX_NAMED = 3  # columns that one sentence describes

N_SAMPLED = 500  # texts that show whether a column holds numbers
NEARLY_ALL = 0.95  # share of the texts of a column that must look like numbers
# Numbers may have thousands separators, a decimal comma, a currency or a percent sign.
WRITTEN_NUMBER = re.compile(r"[-+]?[$€£¥]?[-+]?(\d{1,3}([,.'\s]\d{3})+|\d+)([.,]\d+)?\s?[%$€£¥]?")

Summary = dict[str, dict[str, Any]]  # the values of each column in fit, in plain types
_action: ContextVar[str] = ContextVar("drift", default="refuse")  # or "warn", or "ignore"


class DriftError(InvalidInputError):
    """At least half of the values of a column differ from those of fit."""


@dataclass(frozen=True)
class Strange:
    """How many rows of a column are strange; counts of several tables can be added."""

    rows: int = 0
    unseen: int = 0  # texts that fit never saw, numbers outside the range in fit
    empty: int = 0
    example: Any = ""  # an unseen value

    def __add__(self, other: Strange) -> Strange:
        n_rows, n_unseen = self.rows + other.rows, self.unseen + other.unseen
        return Strange(n_rows, n_unseen, self.empty + other.empty, self.example or other.example)

    def shares(self) -> dict[str, float]:
        """Return the share of each kind of strange rows."""
        return {"unseen": self.unseen / self.rows, "empty": self.empty / self.rows}


Drift = dict[str, Strange]  # by column


@contextmanager
def _on_drift(action: str) -> Iterator[None]:
    token = _action.set(action)
    try:
        yield
    finally:
        _action.reset(token)


def accept_drift() -> AbstractContextManager[None]:
    """Accept tables whose columns differ from those of fit, with a warning instead of an error.

    A classifier refuses a table of 20 rows or more if half of a column, beyond the share in fit,
    is missing, a text that fit never had or a number outside the range in fit: a promise for rows
    like those of fit says nothing about such rows. From 5% on, it warns.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np, pandas as pd
    >>> import fareg
    >>> sex = pd.DataFrame({"sex": ["Female", "Male"] * 100})
    >>> clf = fareg.SplitConformalClassifier(random_state=0).fit(sex, np.arange(200) // 100)
    >>> recoded = pd.DataFrame({"sex": ["F", "M"] * 10})
    >>> try:
    ...     clf.predict_set(recoded)
    ... except fareg.FaregError as error:
    ...     print(str(error).split(", ")[0])
    column sex: 100.0% of 20 rows hold a value that fit never had
    >>> with fareg.accept_drift(), warnings.catch_warnings(action="ignore"):
    ...     clf.predict_set(recoded).shape
    (20, 2)
    """
    return _on_drift("warn")


def ignore_drift() -> AbstractContextManager[None]:
    """Let classifiers answer for parts of a table without checks; the whole table is judged."""
    return _on_drift("ignore")


def summarise(*tables: pd.DataFrame, clusters: IntArray | None = None) -> Summary:
    """Summarise each canonical column of the rows of fit, which may be split into several tables.

    ``rare`` counts rows that are strange to all others: texts that occur once, and the smallest and
    the largest number if they occur once. Rows of one person are alike, so if ``clusters`` are
    known, people are counted instead of rows.
    """
    summary: Summary = {}
    n_people = None if clusters is None else len(np.unique(clusters))
    for name, column in chain.from_iterable(table.items() for table in tables):
        known, ends, rare, kind = None, None, 0, kind_of(column)
        present = column.dropna()
        if kind == "text":
            counts = Counter(present.tolist())
            n_single = sum(n == 1 for n in counts.values())
            # if most rows have a text of their own, new rows will have new texts
            if len(counts) <= MAX_KNOWN and 2 * n_single < len(column):
                known, rare = sorted(counts), n_single
        elif len(present):
            numbers = as_numbers(present).to_numpy()
            ends = [float(numbers.min()), float(numbers.max())]
            # the number of people who have the smallest or largest number is unknown: perhaps one
            rare = sum(n_people is not None or int((numbers == end).sum()) == 1 for end in ends)
        summary[str(name)] = {
            "kind": kind,
            "people": n_people or len(column),
            "rare": rare,
            "empty": 1 - len(present) / len(column),
            "known": known,
            "range": ends,
        }
    return summary


def count_strange(summary: Summary, columns: pd.DataFrame) -> Drift:
    """Count the strange rows in each canonical column known from fit."""
    drift: Drift = {}
    for name in [name for name in summary if name in columns]:
        seen = summary[name]
        column = (as_text if seen["kind"] == "text" else as_numbers)(columns[name])
        if seen["kind"] == "text":
            codes, values = pd.factorize(column)
            known = set(values if seen["known"] is None else seen["known"])
            is_new = np.array([value not in known for value in values] + [False])[codes]
            is_empty = codes < 0
        else:
            low, high = seen["range"] or (-np.inf, np.inf)
            is_new, is_empty = np.asarray((column < low) | (column > high)), np.isnan(column)
        example = column.iloc[int(is_new.argmax())] if is_new.any() else ""
        n_empty = int(is_empty.sum())
        drift[name] = Strange(len(column), int(is_new.sum()), n_empty, example)
    return drift


def check_drift(summary: Summary, columns: pd.DataFrame, others: pd.DataFrame | None) -> None:
    """Judge canonical columns, and those of another table, unless drift is ignored."""
    action = _action.get()
    if action != "ignore" and len(columns) >= MIN_ROWS:
        drift = {} if others is None else count_strange(summary, others)
        drift |= count_strange(summary, columns)
        if any(found.unseen + found.empty >= REPORTED * found.rows for found in drift.values()):
            judge_drift(summary, drift, accept=action == "warn")


def add_drift(drift: Drift, other: Drift) -> Drift:
    """Add the strange rows of two parts of a table."""
    names = dict.fromkeys([*drift, *other])
    return {name: drift.get(name, Strange()) + other.get(name, Strange()) for name in names}


def judge_drift(summary: Summary, drift: Drift, *, accept: bool) -> None:
    """Refuse a column if half of it is strange, beyond the share in fit; warn from 5% on."""
    excess = {name: _excess(summary[name], strange) for name, strange in drift.items()}
    found = sorted((name for name in excess if excess[name] >= REPORTED), key=lambda n: -excess[n])
    if not found:
        return
    sentences = [_sentence(name, summary[name], drift[name]) for name in found[:MAX_NAMED]]
    if len(found) > MAX_NAMED:
        sentences.append(f"the same goes for {shown(map(printable, found[MAX_NAMED:]))}")
    message = "; ".join(sentences)
    if excess[found[0]] >= REFUSED and not accept:
        raise DriftError(
            f"{message}; restore the column as it was in fit, or ask within fareg.accept_drift()"
        )
    warn(f"{message}; the promise for rows like those of fit may not hold for them")


def _excess(seen: Mapping[str, Any], strange: Strange) -> float:
    """Return the share of strange rows minus that in fit, 0 if chance explains the difference."""
    n, n_fit, empty = strange.rows, seen["people"], round(seen["empty"] * seen["people"])
    worst = 0.0
    # unseen values are also judged alone: a column that was mostly empty may now be full of them
    for n_empty, n_empty_fit in ((0, 0), (strange.empty, empty)):
        k, k_fit = strange.unseen + n_empty, seen["rare"] + n_empty_fit
        k_fit = min(n_fit, k_fit)
        excess = k / n - k_fit / n_fit if n >= MIN_ROWS else 0.0
        # without drift, each of the strange rows is equally likely to be a new row
        if excess >= REPORTED and hypergeom.sf(k - 1, n + n_fit, k + k_fit, n) < CHANCE:
            worst = max(worst, excess)
    return float(worst)


def _sentence(name: str, seen: Mapping[str, Any], strange: Strange) -> str:
    n, parts = strange.rows, []
    if strange.unseen:
        share = f"{percent(strange.unseen / n)} of {rows(n)}"
        if seen["kind"] == "text":
            known = shown(map(printable, seen["known"])) or "none"
            parts.append(
                f"{share} hold a value that fit never had, such as "
                f"{printable(strange.example)[:30]!r} (fit had {known})"
            )
        else:
            low, high = (in_words(end, seen["kind"]) for end in seen["range"])
            parts.append(
                f"{share} lie outside {low} to {high}, such as "
                f"{in_words(strange.example, seen['kind'])}"
            )
    if strange.empty / n > seen["empty"]:
        share = f"{percent(strange.empty / n)} of {rows(n)}"
        parts.append(f"{share} are empty ({percent(seen['empty'])} in fit)")
    return f"column {printable(name)}: {' and '.join(parts)}"


def is_summary(stored: Any) -> bool:
    """Return whether a stored value has the form of a summary: someone may edit the file."""

    def holds(values: Any, kind: type) -> bool:
        return values is None or (type(values) is list and all(type(v) is kind for v in values))

    checks: dict[str, Callable[[Any], Any]] = {
        "kind": lambda kind: kind in KINDS,
        "people": lambda people: type(people) is int and people > 0,
        "rare": lambda rare: type(rare) is int and rare >= 0,
        "empty": lambda empty: type(empty) is float and 0 <= empty <= 1,
        "known": lambda known: holds(known, str),
        "range": lambda ends: holds(ends, float) and len(ends or "ab") == 2,
    }
    return isinstance(stored, dict) and all(
        type(name) is str
        and isinstance(seen, dict)
        and seen.keys() == checks.keys()
        and all(check(seen[key]) for key, check in checks.items())
        for name, seen in stored.items()
    )


def doubtful_columns(columns: pd.DataFrame) -> list[str]:
    """Return a sentence each about text columns that hold numbers and about empty columns.

    A text column holds numbers if nearly all its texts look like numbers, and more than one in ten
    is not a plain number, which spares codes such as ``0815``. An empty column has no value in
    ``MIN_ROWS`` rows or more.
    """
    written: dict[str, str] = {}
    empty = [str(name) for name, column in columns.items() if column.isna().all()]
    for name, column in columns.select_dtypes(object).items():
        texts = [text.strip() for text in column.dropna().unique()[:N_SAMPLED]]
        numbers = [text for text in texts if WRITTEN_NUMBER.fullmatch(text)]
        marked = [text for text in numbers if np.isnan(spelled_numbers([text])[0])]
        if len(numbers) >= NEARLY_ALL * len(texts) and len(marked) > len(texts) / 10:
            written[str(name)] = marked[0]
    sentences = []
    if written:
        sentences.append(
            f"{shown(written)}: numbers written as text, such as {next(iter(written.values()))}, "
            "are read as categories; turn them into plain numbers first, unless they are codes"
        )
    if empty and len(columns) >= MIN_ROWS:
        it = "it" if len(empty) == 1 else "them"
        sentences.append(
            f"{shown(empty)}: no value in {len(columns):,} rows, so {it} can teach nothing; "
            f"fill {it} in or leave {it} out"
        )
    return sentences
