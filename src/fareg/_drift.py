"""Columns whose values are no longer those of fit: what fit had, what new rows have, a verdict.

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
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import hypergeom

from fareg._columns import (
    KINDS,
    Texts,
    code_table,
    in_words,
    kind_of,
    numbers_of,
    spelled_numbers,
    texts_of,
)
from fareg._validation import InvalidInputError, warn
from fareg._words import percent, printable, rows, shown

MIN_ROWS = 20  # fewer rows are not judged: one strange row is all of one
REPORTED, REFUSED = 0.05, 0.5  # share of strange rows, beyond that of fit
CHANCE = 1e-3  # probability of so many strange rows by chance, at which nothing is said
MAX_KNOWN = 10_000  # distinct texts of a column; one with more names single rows
MAX_NAMED = 3  # columns that one sentence describes

MANY_MISSING = 20  # rows without a value that are no chance
N_LOOKED_AT = 500  # texts that show whether a column holds numbers
NEARLY_ALL = 0.95  # share of the texts of a column that must look like numbers
# Numbers may have signs between thousands, a decimal comma, a currency or a percent sign.
WRITTEN_NUMBER = re.compile(r"[-+]?[$€£¥]?[-+]?(\d{1,3}([,.'\s]\d{3})+|\d+)([.,]\d+)?\s?[%$€£¥]?")

Summary = dict[str, dict[str, Any]]  # what each column held in fit, in plain types
_on_drift: ContextVar[str] = ContextVar("drift", default="refuse")  # or "warn", or "ignore"


class DriftError(InvalidInputError):
    """Half of the values of a column, or more, are not like those of fit."""


@dataclass(frozen=True)
class Strange:
    """How many rows of a column are strange; those of several tables add up."""

    rows: int = 0
    unseen: int = 0  # texts that fit never had, numbers below or above all of fit
    empty: int = 0
    example: str = ""  # one that is unseen

    def __add__(self, other: Strange) -> Strange:
        n_rows, n_unseen = self.rows + other.rows, self.unseen + other.unseen
        return Strange(n_rows, n_unseen, self.empty + other.empty, self.example or other.example)

    def shares(self) -> dict[str, float]:
        """Return the share of each kind of strange rows."""
        return {"unseen": self.unseen / self.rows, "empty": self.empty / self.rows}


Drift = dict[str, Strange]  # by column


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
    return _on("warn")


def unjudged() -> AbstractContextManager[None]:
    """Let classifiers answer to parts of a table without a verdict, which is for the whole."""
    return _on("ignore")


@contextmanager
def _on(action: str) -> Iterator[None]:
    token = _on_drift.set(action)
    try:
        yield
    finally:
        _on_drift.reset(token)


def summarise(*tables: Any, n_people: int | None = None) -> Summary:
    """Return what each column of the rows of fit holds, which may come in several tables.

    ``rare`` counts rows that are strange to all others: a text of which there is one, the smallest
    and the largest number if there is one of each. Texts are listed unless there are too many of
    them, or most stand in one row only: new rows are expected to have new ones then.

    Rows of one person are alike, so ``n_people`` says how many count, None if all rows do.
    """
    parts = list(map(code_table, tables))
    return {
        name: _summary([part.columns[name] for part in parts], n_people)
        for name in parts[0].columns
    }


def _summary(columns: list[Any], n_people: int | None) -> dict[str, Any]:
    n_rows = sum(map(len, columns))
    kind = max(map(kind_of, columns), key=["date", "number", "text"].index)
    known, ends = None, None
    if kind == "text":
        counts: Counter[str] = Counter()
        for texts in map(texts_of, columns):
            counts.update(dict(zip(texts.values, texts.counts().tolist(), strict=False)))
        counts = +counts  # without texts of other rows
        n_present, rare = counts.total(), sum(n == 1 for n in counts.values())
        if len(counts) <= MAX_KNOWN and 2 * rare < n_rows:
            known = sorted(counts)
    else:
        numbers = np.concatenate([numbers_of(column) for column in columns])
        present = numbers[~np.isnan(numbers)]
        n_present = len(present)
        ends = [float(present.min()), float(present.max())] if n_present else None
        # how many people have the smallest and the largest number, the rows do not tell: one, maybe
        rare = sum(n_people is not None or int((present == end).sum()) == 1 for end in ends or ())
    return {
        "kind": kind,
        "people": n_people or n_rows,
        "rare": 0 if kind == "text" and known is None else rare,
        "empty": 1 - n_present / n_rows,
        "known": known,
        "range": ends,
    }


def count_strange(summary: Summary, *tables: Any) -> Drift:
    """Count the strange rows in each column that fit had, in tables side by side.

    >>> import pandas as pd
    >>> summary = summarise(pd.DataFrame({"sex": ["F", "F", "M", "M"], "age": [18, 40, 40, 90]}))
    >>> found = count_strange(summary, pd.DataFrame({"sex": ["F", "f", None], "age": [1, 2, 50]}))
    >>> for name, strange in found.items():
    ...     print(name, strange)
    sex Strange(rows=3, unseen=1, empty=1, example='f')
    age Strange(rows=3, unseen=2, empty=0, example='1')
    """
    columns: dict[str, Any] = {}
    for table in reversed(tables):
        if table is not None:
            columns |= code_table(table).columns
    return {
        name: _strange(columns[name], seen) for name, seen in summary.items() if name in columns
    }


def _strange(column: Any, seen: Mapping[str, Any]) -> Strange:
    n = len(column)
    if seen["kind"] == "text":
        texts = texts_of(column)
        counts, values = texts.counts(), texts.values[:-1]
        known = set(values if seen["known"] is None else seen["known"])
        is_new = np.array([text not in known for text in values], dtype=bool) & (counts > 0)
        example = str(values[is_new.argmax()]) if is_new.any() else ""
        return Strange(n, int(counts[is_new].sum()), n - int(counts.sum()), example)
    numbers = numbers_of(column)
    low, high = seen["range"] or (-np.inf, np.inf)
    is_new = (numbers < low) | (numbers > high)
    example = in_words(float(numbers[is_new.argmax()]), seen["kind"]) if is_new.any() else ""
    return Strange(n, int(is_new.sum()), int(np.isnan(numbers).sum()), example)


def check_strange(summary: Summary, *tables: Any) -> None:
    """Judge tables side by side that a classifier answers to, unless someone else does."""
    action = _on_drift.get()
    n_rows = max(len(table) for table in tables if table is not None)
    if action != "ignore" and n_rows >= MIN_ROWS:
        judge(summary, count_strange(summary, *tables), accept=action == "warn")


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
    n, k = strange.rows, strange.unseen + strange.empty
    n_fit = seen["people"]
    k_fit = min(n_fit, seen["rare"] + round(seen["empty"] * n_fit))
    excess = k / n - k_fit / n_fit if n >= MIN_ROWS else 0.0
    # given how many of all rows are strange, each is as likely to be a new one
    by_chance = excess < REPORTED or hypergeom.sf(k - 1, n + n_fit, k + k_fit, n) >= CHANCE
    return 0.0 if by_chance else float(excess)


def _sentence(name: str, seen: Mapping[str, Any], strange: Strange) -> str:
    n, parts = strange.rows, []
    if strange.unseen:
        told = f"{percent(strange.unseen / n)} of {rows(n)}"
        if seen["kind"] == "text":
            known = shown(map(printable, seen["known"])) or "none"
            parts.append(
                f"{told} hold a value that fit never had, such as "
                f"{printable(strange.example)[:30]!r} (fit had {known})"
            )
        else:
            low, high = (in_words(end, seen["kind"]) for end in seen["range"])
            parts.append(f"{told} lie outside of {low} to {high}, such as {strange.example}")
    if strange.empty / n > seen["empty"]:
        told = f"{percent(strange.empty / n)} of {rows(n)}"
        parts.append(f"{told} are empty ({percent(seen['empty'])} in fit)")
    return f"column {printable(name)}: {' and '.join(parts)}"


def is_summary(stored: Any) -> bool:
    """Tell whether a stored value is what :func:`summarise` returns; a file may be edited."""
    return isinstance(stored, dict) and all(
        type(name) is str
        and isinstance(seen, dict)
        and seen.keys() == CHECKS.keys()
        and all(check(seen[key]) for key, check in CHECKS.items())
        for name, seen in stored.items()
    )


def _holds(values: Any, types: list[type]) -> bool:
    return values is None or (type(values) is list and list(map(type, values)) == types)


CHECKS: dict[str, Callable[[Any], bool]] = {
    "kind": lambda kind: kind in KINDS,
    "people": lambda n: type(n) is int and n > 0,
    "rare": lambda n: type(n) is int and n >= 0,
    "empty": lambda share: type(share) is float and 0 <= share <= 1,
    "known": lambda texts: _holds(texts, [str] * len(texts or ())),
    "range": lambda ends: _holds(ends, [float, float]),
}


def doubtful_columns(*tables: Any) -> list[str]:
    """Return sentences about columns from which nothing is learned as they are.

    One is about columns of text that are written numbers: each distinct text is a level of its own.
    Nearly all texts must look like numbers, and more than one in ten must not be a plain number, so
    that codes such as ``0815`` are left in peace. The other is about columns without any value; in
    fewer than ``MANY_MISSING`` rows they may be empty by chance. A table may be None.

    >>> table = pd.DataFrame({"pay": ["77,516", "516", "1,090"], "zip": ["0815", "0816", "0817"]})
    >>> print(*doubtful_columns(table))  # doctest: +ELLIPSIS
    pay: numbers written as text, such as 77,516, each of which is taken as a category; ...
    >>> print(*doubtful_columns(pd.DataFrame({"age": [31.0] * 20, "pay": [None] * 20})))
    pay: no value in 20 rows, so nothing can be learned from it; fill it in or leave it out
    """
    written: dict[str, str] = {}
    empty: dict[str, int] = {}
    for table in (code_table(table) for table in tables if table is not None):
        for name, column in table.columns.items():
            is_text = isinstance(column, Texts)
            if (column.codes < 0 if is_text else pd.isna(column)).all():
                empty |= {name: len(table)} if len(table) >= MANY_MISSING else {}
                continue
            texts = [text.strip() for text in column.values[:-1][:N_LOOKED_AT]] if is_text else []
            numbers = [text for text in texts if WRITTEN_NUMBER.fullmatch(text)]
            marked = [text for text in numbers if np.isnan(spelled_numbers([text])[0])]
            if len(numbers) >= NEARLY_ALL * len(texts) and len(marked) > len(texts) / 10:
                written[name] = marked[0]
    sentences = []
    if written:
        sentences.append(
            f"{shown(written)}: numbers written as text, such as {next(iter(written.values()))}, "
            "each of which is taken as a category; turn them into plain numbers first, unless they "
            "are codes"
        )
    if empty:
        it = "it" if len(empty) == 1 else "them"
        sentences.append(
            f"{shown(empty)}: no value in {max(empty.values()):,} rows, so nothing can be learned "
            f"from {it}; fill {it} in or leave {it} out"
        )
    return sentences
