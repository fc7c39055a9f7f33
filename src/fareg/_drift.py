"""Columns that nothing can be learned from, and columns whose values are no longer those of fit.

A text is strange if fit never had it, a number or date if it lies outside of those in fit; so is a
missing value. Some rows of fit are strange to the others in this sense, and as many are expected
among new ones. Only what goes beyond that is reported or refused.
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

MIN_ROWS = 20  # fewer rows are not judged: one strange row is all of one
REPORTED, REFUSED = 0.05, 0.5  # share of strange rows, beyond that of fit
CHANCE = 1e-3  # probability of so many strange rows by chance, at which nothing is said
MAX_KNOWN = 10_000  # distinct texts of a column; one with more names single rows
MAX_NAMED = 3  # columns that one sentence describes

N_LOOKED_AT = 500  # texts that show whether a column holds numbers
NEARLY_ALL = 0.95  # share of the texts of a column that must look like numbers
# Numbers may have signs between thousands, a decimal comma, a currency or a percent sign.
WRITTEN_NUMBER = re.compile(r"[-+]?[$€£¥]?[-+]?(\d{1,3}([,.'\s]\d{3})+|\d+)([.,]\d+)?\s?[%$€£¥]?")

Summary = dict[str, dict[str, Any]]  # what each column held in fit, in plain types
_action: ContextVar[str] = ContextVar("drift", default="refuse")  # or "warn", or "ignore"


class DriftError(InvalidInputError):
    """Half of the values of a column, or more, are not like those of fit."""


@dataclass(frozen=True)
class Strange:
    """How many rows of a column are strange; those of several tables add up."""

    rows: int = 0
    unseen: int = 0  # texts that fit never had, numbers below or above all of fit
    empty: int = 0
    example: Any = ""  # one that is unseen

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
    """Answer to tables whose columns are not like those of fit, with a warning instead of an error.

    A classifier refuses a table of 20 rows or more if in half of them, beyond the share in fit, a
    column is empty, or holds a text that fit never had or a number outside of those in fit: a
    promise for rows like those of fit says nothing about such rows. It warns from 5% on.

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
    """Let classifiers answer to parts of a table without a verdict, which is for the whole."""
    return _on_drift("ignore")


def summarise(*tables: pd.DataFrame, clusters: IntArray | None = None) -> Summary:
    """Return what each canonical column of the rows of fit holds, in tables side by side.

    ``rare`` counts rows that are strange to all others: a text of which there is one, the smallest
    and the largest number if there is one of each. Rows of one person are alike, so people count
    where ``clusters`` are known, and not rows.
    """
    summary: Summary = {}
    n_people = None if clusters is None else len(np.unique(clusters))
    for name, column in chain.from_iterable(table.items() for table in tables):
        known, ends, rare, kind = None, None, 0, kind_of(column)
        present = column.dropna()
        if kind == "text":
            counts = Counter(present.tolist())
            n_alone = sum(n == 1 for n in counts.values())
            # where most texts stand in one row only, new rows are expected to have new ones
            if len(counts) <= MAX_KNOWN and 2 * n_alone < len(column):
                known, rare = sorted(counts), n_alone
        elif len(present):
            numbers = as_numbers(present).to_numpy()
            ends = [float(numbers.min()), float(numbers.max())]
            # rows do not say how many people have the smallest and the largest number: one, maybe
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
    """Count the strange rows in each canonical column that fit had."""
    drift: Drift = {}
    for name in [name for name in summary if name in columns]:
        seen = summary[name]
        column = (as_text if seen["kind"] == "text" else as_numbers)(columns[name])
        if seen["kind"] == "text":
            codes, values = pd.factorize(column)
            known = set(values if seen["known"] is None else seen["known"])
            is_new = np.array([value not in known for value in values] + [False])[codes]
        else:
            low, high = seen["range"] or (-np.inf, np.inf)
            is_new = np.asarray((column < low) | (column > high))
        example = column.iloc[int(is_new.argmax())] if is_new.any() else ""
        n_empty = int(column.isna().sum())
        drift[name] = Strange(len(column), int(is_new.sum()), n_empty, example)
    return drift


def check_strange(summary: Summary, columns: pd.DataFrame, beside: pd.DataFrame | None) -> None:
    """Judge the canonical columns that a classifier answers to, unless someone else does."""
    action = _action.get()
    if action != "ignore" and len(columns) >= MIN_ROWS:
        drift = {} if beside is None else count_strange(summary, beside)
        drift |= count_strange(summary, columns)
        if any(one.unseen + one.empty >= REPORTED * one.rows for one in drift.values()):
            judge(summary, drift, accept=action == "warn")


def added(drift: Drift, other: Drift) -> Drift:
    """Return the strange rows of two parts of a table."""
    names = dict.fromkeys([*drift, *other])
    return {name: drift.get(name, Strange()) + other.get(name, Strange()) for name in names}


def judge(summary: Summary, drift: Drift, *, accept: bool) -> None:
    """Refuse columns of which half is strange, beyond fit, or warn of them; warn from 5% on."""
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
            f"{message}; give the column as fit had it, or ask within fareg.accept_drift()"
        )
    warn(f"{message}; what is promised for rows like those of fit may not hold for them")


def _excess(seen: Mapping[str, Any], strange: Strange) -> float:
    """Return the share of strange rows beyond that in fit, 0 if chance explains it."""
    n, n_fit, empty = strange.rows, seen["people"], round(seen["empty"] * seen["people"])
    worst = 0.0
    # values never seen count by themselves too: a column that was mostly empty may be full of them
    for n_empty, n_empty_fit in ((0, 0), (strange.empty, empty)):
        k, k_fit = strange.unseen + n_empty, seen["rare"] + n_empty_fit
        k_fit = min(n_fit, k_fit)
        excess = k / n - k_fit / n_fit if n >= MIN_ROWS else 0.0
        # given how many of all rows are strange, each is as likely to be a new one
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
                f"{share} lie outside of {low} to {high}, such as "
                f"{in_words(strange.example, seen['kind'])}"
            )
    if strange.empty / n > seen["empty"]:
        share = f"{percent(strange.empty / n)} of {rows(n)}"
        parts.append(f"{share} are empty ({percent(seen['empty'])} in fit)")
    return f"column {printable(name)}: {' and '.join(parts)}"


def is_summary(stored: Any) -> bool:
    """Tell whether a stored value is what :func:`summarise` returns; a file may be edited."""

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
    """Return sentences about canonical columns from which nothing is learned as they are.

    One is about columns of text that are written numbers. Nearly all texts must look like numbers,
    and more than one in ten must not be a plain number, so that codes such as ``0815`` are left in
    peace. The other is about columns without any value in ``MIN_ROWS`` rows or more.
    """
    written: dict[str, str] = {}
    empty = [str(name) for name, column in columns.items() if column.isna().all()]
    for name, column in columns.select_dtypes(object).items():
        texts = [text.strip() for text in column.dropna().unique()[:N_LOOKED_AT]]
        numbers = [text for text in texts if WRITTEN_NUMBER.fullmatch(text)]
        marked = [text for text in numbers if np.isnan(spelled_numbers([text])[0])]
        if len(numbers) >= NEARLY_ALL * len(texts) and len(marked) > len(texts) / 10:
            written[str(name)] = marked[0]
    sentences = []
    if written:
        sentences.append(
            f"{shown(written)}: numbers written as text, such as {next(iter(written.values()))}, "
            "each of which is taken as a category; turn them into plain numbers first, unless they "
            "are codes"
        )
    if empty and len(columns) >= MIN_ROWS:
        it = "it" if len(empty) == 1 else "them"
        sentences.append(
            f"{shown(empty)}: no value in {len(columns):,} rows, so nothing can be learned "
            f"from {it}; fill {it} in or leave {it} out"
        )
    return sentences
