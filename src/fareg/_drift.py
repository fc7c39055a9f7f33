"""Columns whose values are no longer those of fit: what fit had, what new rows have, a verdict.

A text is strange if fit never had it, a number if it lies outside of those in fit; so is a missing
value. Some rows of fit are strange to the others in this sense, and as many are expected among new
ones. Only what goes beyond that is reported or refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import hypergeom

from fareg._columns import CodedColumn, code_table, in_words
from fareg._validation import InvalidInputError, warn
from fareg._words import percent, printable, rows, shown

MIN_ROWS = 20  # fewer rows are not judged: one strange row is all of one
REPORTED, REFUSED = 0.05, 0.5  # share of strange rows, beyond that of fit
CHANCE = 1e-3  # probability of so many strange rows by chance, at which nothing is said
MAX_KNOWN = 10_000  # distinct texts of a column; one with more names single rows
MAX_NAMED = 3  # columns that one sentence describes

Summary = dict[str, dict[str, Any]]  # what each column held in fit, in plain types
JUDGED, TOLERATED, LEFT_ALONE = "judged", "tolerated", "left alone"
_handling: ContextVar[str] = ContextVar("drift", default=JUDGED)


class DriftError(InvalidInputError):
    """Half of the values of a column, or more, are not like those of fit."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message}; give the column as fit had it, or ask within fareg.accept_drift()"
        )
        self.message = message


@dataclass(frozen=True)
class Strange:
    """How many rows of a column are strange; those of several tables add up."""

    rows: int
    unseen: int = 0  # texts that fit never had
    empty: int = 0
    outside: int = 0  # numbers below or above all of fit
    example: str = ""  # one that is not empty

    def __add__(self, other: Strange) -> Strange:
        return Strange(
            self.rows + other.rows,
            self.unseen + other.unseen,
            self.empty + other.empty,
            self.outside + other.outside,
            self.example or other.example,
        )

    def shares(self) -> dict[str, float]:
        """Return the share of each kind of strange rows."""
        kinds = {"unseen": self.unseen, "empty": self.empty, "outside": self.outside}
        return {kind: n / self.rows for kind, n in kinds.items()}


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
    return _handled(TOLERATED)


def unjudged() -> AbstractContextManager[None]:
    """Let classifiers answer to parts of a table without a verdict, which is for the whole."""
    return _handled(LEFT_ALONE)


@contextmanager
def _handled(how: str) -> Iterator[None]:
    token = _handling.set(how)
    try:
        yield
    finally:
        _handling.reset(token)


def summarise(*tables: Any, n_people: int | None = None) -> Summary:
    """Return what each column of the rows of fit holds, which may come in several tables.

    ``rare`` counts rows that are strange to all others: a text of which there is one, the smallest
    and the largest number if there is one of each. Texts are listed unless there are too many of
    them, or most stand in one row only: new rows are expected to have new ones then.

    Rows of one person are alike, so ``n_people`` says how many count, None if all rows do.
    """
    parts = [code_table(table).columns for table in tables]
    return {name: _summary([part[name] for part in parts], n_people) for name in parts[0]}


def _summary(columns: list[CodedColumn], n_people: int | None) -> dict[str, Any]:
    n_rows = sum(map(len, columns))
    summary = {"rows": n_rows, "people": n_people or n_rows}
    if any(column.is_text for column in columns):
        counts: Counter[str] = Counter()
        for column in columns:
            for text, n in zip(*column.texts(), strict=True):
                counts[text] += int(n)
        n_once = sum(n == 1 for n in counts.values())
        is_listed = len(counts) <= MAX_KNOWN and 2 * n_once < n_rows
        return {
            **summary,
            "empty": n_rows - counts.total(),
            "rare": n_once if is_listed else 0,
            "known": sorted(counts) if is_listed else None,
        }
    numbers = np.concatenate([column.numbers() for column in columns])
    present = numbers[~np.isnan(numbers)]
    ends = [float(present.min()), float(present.max())] if len(present) else None
    # how many people have the smallest and the largest number, the rows do not tell: one, perhaps
    is_rare = [n_people is not None or (present == end).sum() == 1 for end in ends or ()]
    return {
        **summary,
        "empty": n_rows - len(present),
        "rare": sum(map(int, is_rare)),
        "range": ends,
        "kind": columns[0].held,
    }


def count_strange(summary: Summary, *tables: Any) -> Drift:
    """Count the strange rows in each column that fit had, in tables side by side.

    >>> import pandas as pd
    >>> summary = summarise(pd.DataFrame({"sex": ["F", "F", "M", "M"], "age": [18, 40, 40, 90]}))
    >>> found = count_strange(summary, pd.DataFrame({"sex": ["F", "f", None], "age": [1, 2, 50]}))
    >>> for name, strange in found.items():
    ...     print(name, strange)
    sex Strange(rows=3, unseen=1, empty=1, outside=0, example='f')
    age Strange(rows=3, unseen=0, empty=0, outside=2, example='1')
    """
    columns: dict[str, CodedColumn] = {}
    for table in reversed(tables):
        if table is not None:
            columns |= code_table(table).columns
    return {
        name: _strange(columns[name], seen) for name, seen in summary.items() if name in columns
    }


def _strange(column: CodedColumn, seen: Mapping[str, Any]) -> Strange:
    if "known" in seen:
        texts, n = column.texts()
        known = set(texts if seen["known"] is None else seen["known"])
        is_new = np.array([text not in known for text in texts], dtype=bool)
        example = texts[int(is_new.argmax())] if is_new.any() else ""
        return Strange(len(column), int(n[is_new].sum()), len(column) - int(n.sum()), 0, example)
    numbers = column.numbers()
    low, high = seen["range"] or (-np.inf, np.inf)
    is_outside = (numbers < low) | (numbers > high)
    n_outside = int(is_outside.sum())
    example = _in_words(float(numbers[is_outside.argmax()]), seen) if n_outside else ""
    return Strange(len(column), 0, int(np.isnan(numbers).sum()), n_outside, example)


def _in_words(number: float, seen: Mapping[str, Any]) -> str:
    return in_words(number, "date" if seen["kind"] == "date" and np.isfinite(number) else None)


def check_strange(summary: Summary, *tables: Any) -> None:
    """Judge tables side by side that a classifier answers to, unless someone else does."""
    how = _handling.get()
    n_rows = max(len(table) for table in tables if table is not None)
    if how != LEFT_ALONE and n_rows >= MIN_ROWS:
        judge(summary, count_strange(summary, *tables), accept=how == TOLERATED)


def added(drift: Drift, other: Drift) -> Drift:
    """Return the strange rows of two parts of a table."""
    nothing = Strange(0)
    names = dict.fromkeys([*drift, *other])
    return {name: drift.get(name, nothing) + other.get(name, nothing) for name in names}


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
        raise DriftError(message)
    warn(f"{message}; what is promised for rows like those of fit may not hold for them")


def _excess(seen: Mapping[str, Any], strange: Strange) -> float:
    """Return the share of strange rows beyond that in fit, 0 if chance explains it."""
    n, k = strange.rows, strange.unseen + strange.empty + strange.outside
    n_fit = seen["people"]
    k_fit = min(n_fit, seen["rare"] + round(seen["empty"] * n_fit / seen["rows"]))
    excess = k / n - k_fit / n_fit if n >= MIN_ROWS else 0.0
    # given how many of all rows are strange, each is as likely to be a new one
    by_chance = excess < REPORTED or hypergeom.sf(k - 1, n + n_fit, k + k_fit, n) >= CHANCE
    return 0.0 if by_chance else float(excess)


def _sentence(name: str, seen: Mapping[str, Any], strange: Strange) -> str:
    n, parts = strange.rows, []
    if strange.unseen:
        known = shown(map(printable, seen["known"])) or "none"
        parts.append(
            f"{percent(strange.unseen / n)} of {rows(n)} hold a value that fit never had, such as "
            f"{printable(strange.example)[:30]!r} (fit had {known})"
        )
    if strange.outside:
        low, high = (_in_words(end, seen) for end in seen["range"])
        parts.append(
            f"{percent(strange.outside / n)} of {rows(n)} lie outside of {low} to {high}, such as "
            f"{strange.example}"
        )
    if strange.empty / n > seen["empty"] / seen["rows"]:
        in_fit = percent(seen["empty"] / seen["rows"])
        parts.append(f"{percent(strange.empty / n)} of {rows(n)} are empty ({in_fit} in fit)")
    return f"column {printable(name)}: {' and '.join(parts)}"


def is_summary(stored: Any) -> bool:
    """Tell whether a stored value is what :func:`summarise` returns; a file may be edited."""
    return isinstance(stored, dict) and all(map(_is_column, stored, stored.values()))


def _is_column(name: Any, seen: Any) -> bool:
    if type(name) is not str or not isinstance(seen, dict):
        return False
    counts: list[Any] = [seen.get(key) for key in ("rows", "people", "empty", "rare")]
    if not all(type(n) is int for n in counts):
        return False
    n_rows, n_people, *others = counts
    if not (0 < n_people <= n_rows and all(0 <= n <= n_rows for n in others)):
        return False
    if seen.keys() == {"rows", "people", "empty", "rare", "known"}:
        known = [] if seen["known"] is None else seen["known"]
        return isinstance(known, list) and all(type(text) is str for text in known)
    ends = [0.0, 0.0] if seen.get("range") is None else seen["range"]
    return (
        seen.keys() == {"rows", "people", "empty", "rare", "range", "kind"}
        and isinstance(ends, list)
        and [type(end) for end in ends] == [float, float]
        and seen["kind"] in (None, "flag", "date")
    )
