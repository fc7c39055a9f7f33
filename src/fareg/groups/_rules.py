"""Groups in words: a rule is a conjunction of conditions, and says who it means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fareg._columns import (
    as_numbers,
    canonical_column,
    check_columns,
    check_table,
    column_names,
    in_words,
    series_of,
    spelled_numbers,
)
from fareg._validation import BoolArray, FloatArray, InvalidInputError, require

MISSING = "missing"
EVERYONE = "everyone"
RESERVED = {"and", "or", "in", "is", "not", MISSING}  # a name that holds one of them is quoted
TOKEN = re.compile(r'\s*(?:("(?:[^"]|"")*")|([<>=!]=|[<>={},()])|((?:[^\s"=<>!{},()]|!(?!=))+))')
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?", re.ASCII)
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Condition:
    """One condition of a rule: some values of one feature, as plain data.

    It lists levels, or bounds a number or a date. A level holds for a text that equals it, and for
    a number, flag or date that it spells. An infinite number counts as missing.

    Attributes
    ----------
    feature : str
        The column.
    levels : tuple of str or None
        The levels that are meant, or that are left out if ``is_excluding``. None for an interval.
        No levels at all stand for "is missing", or "is not missing" if ``is_excluding``.
    low, high : float
        Bounds of a number, infinite if there is none; a date is in seconds since 1970.
    has_low, has_high : bool
        Whether the bounds themselves are meant, as in ``low < value <= high``.
    is_date : bool
        Whether the bounds are written as dates.
    missing : bool
        Whether a missing value is meant, too.
    """

    feature: str
    levels: tuple[str, ...] | None = None
    is_excluding: bool = False
    low: float = -np.inf
    high: float = np.inf
    has_low: bool = False
    has_high: bool = True
    is_date: bool = False
    missing: bool = False

    def holds(self, column: pd.Series) -> BoolArray:
        """Tell which values of a canonical column are meant."""
        numbers = np.asarray(as_numbers(column), dtype=np.float64)
        if self.levels is None:
            absent = ~np.isfinite(numbers)
            above = numbers >= self.low if self.has_low else numbers > self.low
            below = numbers <= self.high if self.has_high else numbers < self.high
            meant = above & below
        elif column.dtype == object:
            absent = np.asarray(column.isna())
            meant = np.asarray(column.isin(self.levels)) != self.is_excluding
        else:
            absent = ~np.isfinite(numbers)
            meant = np.isin(numbers, _numbers_of(self.levels)) != self.is_excluding
        return np.where(absent, self.missing, meant).astype(bool)

    @property
    def text(self) -> str:
        """The condition in words."""
        name = _name_in_words(self.feature)
        if self.levels is None:
            words = self._interval(name)
        elif not self.levels:
            return f"{name} is {'not ' if self.is_excluding else ''}{MISSING}"
        elif len(self.levels) == 1 and (self.is_excluding or not self.missing):
            words = f"{name} {'!=' if self.is_excluding else '='} {_in_words(self.levels[0])}"
        else:
            listed = [_in_words(level) for level in self.levels]
            if self.missing and not self.is_excluding:
                return f"{name} in {{{', '.join([*listed, MISSING])}}}"
            words = f"{name} {'not in' if self.is_excluding else 'in'} {{{', '.join(listed)}}}"
        return f"({words} or {MISSING})" if self.missing else words

    def _interval(self, name: str) -> str:
        kind = "date" if self.is_date else None
        low, high = in_words(self.low, kind) if np.isfinite(self.low) else "", ""
        if np.isfinite(self.high):
            high = f" {'<=' if self.has_high else '<'} {in_words(self.high, kind)}"
        if low and high:
            return f"{low} {'<=' if self.has_low else '<'} {name}{high}"
        return f"{name} {'>=' if self.has_low else '>'} {low}" if low else f"{name}{high}"


@dataclass(frozen=True)
class Rule:
    """A group in words: all rows that fulfil every condition.

    Words and rows follow from the same numbers. A missing value fulfils only a condition that says
    "missing", and a level that was never seen fulfils no ``=``.

    Attributes
    ----------
    conditions : tuple of Condition
        Without any, the rule means everyone.

    Examples
    --------
    >>> rule = Rule.parse("sex = Female and age > 60")
    >>> rule.features
    ('sex', 'age')
    >>> rule.inside(pd.DataFrame({"age": [70, 70, None], "sex": ["Female", "Male", "Female"]}))
    array([ True, False, False])
    >>> Rule.parse('35 < age <= 45 and job not in {"Craft, repair", Sales}').text
    '35 < age <= 45 and job not in {"Craft, repair", Sales}'
    """

    conditions: tuple[Condition, ...]

    def check(self) -> None:
        """Refuse conditions of other types, as those of an edited file may be."""
        require(isinstance(self.conditions, tuple), "conditions")
        for one in self.conditions:
            require(isinstance(one, Condition) and isinstance(one.feature, str), "conditions")
            levels = () if one.levels is None else one.levels
            require(isinstance(levels, tuple), "levels")
            require(all(isinstance(level, str) for level in levels), "levels")
            bounds = (one.low, one.high)
            require(all(isinstance(bound, float) for bound in bounds), "low and high")
            require(not np.isnan(bounds).any(), "low and high")
            flags = (one.is_excluding, one.has_low, one.has_high, one.is_date, one.missing)
            require(all(type(flag) is bool for flag in flags), "conditions")

    @property
    def text(self) -> str:
        """The words; :meth:`parse` reads them again."""
        return " and ".join(condition.text for condition in self.conditions) or EVERYONE

    def __str__(self) -> str:
        return self.text

    @property
    def features(self) -> tuple[str, ...]:
        """The features that the words name, each once."""
        return tuple(dict.fromkeys(condition.feature for condition in self.conditions))

    def inside(self, X: Any) -> BoolArray:
        """Return which rows of a table the words mean, shape (n_samples,).

        ``X`` may be a frame of any library, whose columns are found by name.
        """
        X = check_table(X)
        names = column_names(X)
        check_columns(self.features, names, "X")
        everyone = np.ones(len(X), dtype=bool)
        columns = dict(zip(names, series_of(X), strict=True)) if self.conditions else {}
        return reduce(and_, (_holds(c, columns) for c in self.conditions), everyone)

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule from its words, such as ``sex = Female and age > 60``.

        A condition is one of ``job = Sales``, ``job != Sales``, ``job in {Sales, Tech}``, ``job not
        in {Sales, Tech}``, ``age > 60`` (``<``, ``<=``, ``>=``), ``35 < age <= 45``, ``born <
        2017-01-13``, ``age is missing``, ``age is not missing``, ``(age > 60 or missing)``. Names
        and levels that hold signs or one of these words stand in quotation marks, and a quotation
        mark inside of them is written twice.
        """
        if not isinstance(text, str):
            raise InvalidInputError(f"a rule must be text, got {text!r}; write 'age > 60'")
        if text.strip().casefold() == EVERYONE:
            return cls(())
        parts: list[list[_Token]] = [[]]
        for token in _tokens(text):
            if token == _Token("and"):
                parts.append([])
            else:
                parts[-1].append(token)
        return cls(tuple(_condition(part, text) for part in parts))


def _holds(condition: Condition, columns: Mapping[str, Any]) -> BoolArray:
    """Ask the values of a column as it came."""
    values = canonical_column(columns[condition.feature])
    return condition.holds(pd.Series(values, dtype=values.dtype))


def _numbers_of(levels: Sequence[str]) -> FloatArray:
    """Return the numbers, flags and dates that levels spell."""
    flags = {"True": 1.0, "False": 0.0}
    dates = [_date(level) for level in levels if DATE.fullmatch(level)]
    return np.array([*spelled_numbers(flags.get(level, level) for level in levels), *dates])


def _date(text: str) -> float:
    try:
        return float(np.datetime64(text.replace(" ", "T"), "us").astype(np.int64) / 1e6)
    except ValueError:  # such as the 31st of February
        return np.nan


def _in_words(value: str) -> str:
    """Return a name or a level, in quotation marks if it could be read as something else."""
    tokens = [] if '"' in value else list(_pieces(value))
    is_plain = all(token.kind == "text" for token in tokens) and value == " ".join(
        token.value for token in tokens
    )
    return value if value and is_plain else '"' + value.replace('"', '""') + '"'


def _name_in_words(name: str) -> str:
    is_bound = NUMBER.fullmatch(name) or DATE.fullmatch(name)
    return f'"{name}"' if is_bound else _in_words(name)


class _Token(NamedTuple):
    """A sign or reserved word, a text, or a text in quotation marks."""

    value: str
    kind: str = "sign"


def _pieces(text: str) -> Iterator[_Token]:
    """Divide text into signs, reserved words, other words and what stands in quotation marks."""
    position, text = 0, text.rstrip()
    while position < len(text):
        found = TOKEN.match(text, position)
        if not found:
            yield _Token(text[position:])  # a quotation mark that is not closed: no known sign
            return
        quoted, sign, word = found.groups()
        if quoted:
            yield _Token(quoted[1:-1].replace('""', '"'), "quoted")
        elif word and word.casefold() not in RESERVED:
            yield _Token(word, "text")
        else:
            yield _Token({"==": "="}.get(sign, sign or word.casefold()))
        position = found.end()


def _tokens(text: str) -> list[_Token]:
    """Return the tokens, with words that follow each other as one text."""
    tokens: list[_Token] = []
    for token in _pieces(text):
        if token.kind == "text" and tokens and tokens[-1].kind == "text":
            tokens[-1] = _Token(f"{tokens[-1].value} {token.value}", "text")
        elif token == _Token("in") and tokens and tokens[-1] == _Token("not"):
            tokens[-1] = _Token("not in")
        elif token == _Token("not") and tokens and tokens[-1] == _Token("is"):
            tokens[-1] = _Token("!=")
        else:
            tokens.append(token)
    return [_Token("=") if token == _Token("is") else token for token in tokens]


def _condition(tokens: list[_Token], text: str) -> Condition:
    """Read one condition of the rule ``text``."""
    if len(tokens) > 2 and (tokens[0].value, tokens[-1].value) == ("(", ")"):
        tokens = tokens[1:-1]
        if tokens[-2:] == [_Token("or"), _Token(MISSING)]:
            return replace(_condition(tokens[:-2], text), missing=True)
    signs = [token.value if token.kind == "sign" else "" for token in tokens]
    values = [token.value for token in tokens]
    name = values[0] if tokens else ""
    match signs:
        case ["", "missing"] | ["", "=", "missing"]:
            return Condition(name, (), missing=True)
        case ["", "not", "missing"] | ["", "!=", "missing"]:
            return Condition(name, (), is_excluding=True)
        case ["", "=" | "!=" as sign, ""]:
            return Condition(name, (values[2],), is_excluding=sign == "!=")
        case ["", "in" | "not in" as sign, "{", *items, "}"] if _is_list(items):
            listed = tuple(v for v, s in zip(values[3:-1:2], items[::2], strict=True) if not s)
            is_excluding = sign == "not in"
            return Condition(
                name, listed, is_excluding, missing=MISSING in items and not is_excluding
            )
        case ["", sign, ""] if sign in FLIPPED:
            if _is_bound(tokens[2]):
                return _bounded(tokens[0], [(sign, tokens[2])])
            if _is_bound(tokens[0]):
                return _bounded(tokens[2], [(FLIPPED[sign], tokens[0])])
        case ["", first, "", second, ""] if first in FLIPPED and first[0] == second[0]:
            if _is_bound(tokens[0]) and _is_bound(tokens[4]):
                return _bounded(tokens[2], [(FLIPPED[first], tokens[0]), (second, tokens[4])])
    part = " ".join(values)
    raise InvalidInputError(
        f"cannot read the rule {text!r}: {part!r} is not a condition such as 'sex = Female', "
        "'age > 60' or 'job in {Sales, Tech}'; put names and levels with signs or words such as "
        '"and" in quotation marks'
    )


def _is_list(signs: list[str]) -> bool:
    """Tell whether items and commas take turns."""
    return len(signs) % 2 == 1 and all(
        sign == "," if i % 2 else sign in ("", MISSING) for i, sign in enumerate(signs)
    )


def _is_bound(token: _Token) -> bool:
    value = token.value
    if token.kind != "text":
        return False
    return bool(NUMBER.fullmatch(value) or (DATE.fullmatch(value) and np.isfinite(_date(value))))


def _bounded(name: _Token, bounds: list[tuple[str, _Token]]) -> Condition:
    """Return the interval of bounds such as ``> 60``; dates are written as dates."""
    parts: dict[str, Any] = {"is_date": all(DATE.fullmatch(token.value) for _, token in bounds)}
    for sign, token in bounds:
        value = _date(token.value) if DATE.fullmatch(token.value) else float(token.value)
        side = "low" if sign[0] == ">" else "high"
        parts |= {side: value, f"has_{side}": sign.endswith("=")}
    return Condition(name.value, **parts)
