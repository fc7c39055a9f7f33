"""Groups in words: a rule is a conjunction of conditions and selects rows of any table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

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
from fareg._words import group_name

MISSING = "missing"
EVERYONE = "everyone"
DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?", re.ASCII)
BOUND = re.compile(rf"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|{DATE.pattern}", re.ASCII)
EQUALS = re.compile(r"(?<![<>!=\s])\s*==?\s*")
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

# The grammar of rules. Names and categories that hold signs or reserved words are quoted.
_CHAR = r'(?:[^\s"=<>!{},()]|!(?!=))'
_END = rf"(?!{_CHAR})"  # of a reserved word
_WORD = rf"(?!(?:and|or|in|is|not|missing){_END}){_CHAR}++"
_VALUE = rf'\s*("(?:[^"]|"")*+"|{_WORD}(?:\s+{_WORD})*+)\s*'
_MISSING = rf"missing{_END}"
_ITEM = rf"(?:{_VALUE}|\s*{_MISSING}\s*)"
PLAIN = re.compile(rf"{_WORD}(?: {_WORD})*", re.IGNORECASE)  # what needs no quotation marks
ITEM = re.compile(_ITEM, re.IGNORECASE)
FORMS = {
    name: re.compile(
        rf"\s*(?P<open>\()?{form}(?(open)\s*(?P<or>or{_END}\s*{_MISSING})?\s*\))\s*"
        rf"(?:(?P<and>and{_END})|\Z)",
        re.IGNORECASE,
    )
    for name, form in {
        "missing": rf"{_VALUE}(?:(!=|is{_END}\s*not{_END}|not{_END})|(?:==?|is{_END})?)"
        rf"\s*{_MISSING}",
        "equal": rf"{_VALUE}(?:(!=|is{_END}\s*not{_END})|==?|is{_END}){_VALUE}",
        "list": rf"{_VALUE}(not{_END})?\s*in{_END}\s*\{{({_ITEM}(?:,{_ITEM})*)\}}",
        "bound": rf"{_VALUE}([<>]=?){_VALUE}",
        "range": rf"{_VALUE}([<>]=?){_VALUE}([<>]=?){_VALUE}",
    }.items()
}


@dataclass(frozen=True)
class Condition:
    """One condition of a rule, on the values of one feature.

    It lists categories, or bounds a number or a date. A category matches a text that equals it, and
    a number, flag or date that it spells. An infinite number counts as missing.

    Attributes
    ----------
    feature : str
        The column.
    levels : tuple of str or None
        The categories that match, or that do not match if ``is_excluding``; None for an interval.
        An empty tuple means "is missing", or "is not missing" if ``is_excluding``.
    low, high : float
        Bounds of a number, infinite if there is none; a date is in seconds since 1970.
    has_low, has_high : bool
        Whether the bounds themselves match, as ``high`` does in ``low < value <= high``.
    is_date : bool
        Whether the bounds are written as dates.
    missing : bool
        Whether a missing value matches too.
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
        """Return which values of a canonical column match."""
        if self.levels is not None and column.dtype == object:
            missing, matches = np.asarray(column.isna()), np.asarray(column.isin(self.levels))
        else:
            numbers = np.asarray(as_numbers(column), dtype=np.float64)
            missing = ~np.isfinite(numbers)
            if self.levels is None:
                above = numbers >= self.low if self.has_low else numbers > self.low
                matches = above & (numbers <= self.high if self.has_high else numbers < self.high)
            else:
                matches = np.isin(numbers, _spelled_values(self.levels))
        return np.where(missing, bool(self.missing), matches != self.is_excluding).astype(bool)

    @property
    def text(self) -> str:
        """The condition in words."""
        name = f'"{self.feature}"' if BOUND.fullmatch(self.feature) else _written(self.feature)
        if self.levels is None:
            words = self._interval(name)
        elif not self.levels:
            return f"{name} is {'not ' if self.is_excluding else ''}{MISSING}"
        elif len(self.levels) == 1 and (self.is_excluding or not self.missing):
            words = f"{name} {'!=' if self.is_excluding else '='} {_written(self.levels[0])}"
        else:
            listed = [_written(category) for category in self.levels]
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


@dataclass(frozen=True, repr=False)
class Rule:
    """A group in words: all rows that meet every condition.

    A missing value meets only conditions that say "missing"; an unseen category meets no ``=``.

    Attributes
    ----------
    conditions : tuple of Condition
        An empty tuple means everyone.

    Examples
    --------
    >>> rule = Rule.parse("sex = Female and age > 60")
    >>> rule
    Rule.parse('sex = Female and age > 60')
    >>> rule.features
    ('sex', 'age')
    >>> rule.inside(pd.DataFrame({"age": [70, 70, None], "sex": ["Female", "Male", "Female"]}))
    array([ True, False, False])
    >>> Rule.parse('35 < age <= 45 and job not in {"Craft, repair", Sales}').text
    '35 < age <= 45 and job not in {"Craft, repair", Sales}'
    """

    conditions: tuple[Condition, ...]

    def check(self) -> None:
        """Refuse wrong types, which an edited file may hold."""
        require(isinstance(self.conditions, tuple), "conditions")
        for c in self.conditions:
            require(isinstance(c, Condition) and isinstance(c.feature, str), "conditions")
            categories = () if c.levels is None else c.levels
            require(isinstance(categories, tuple), "levels")
            require(all(isinstance(category, str) for category in categories), "levels")
            bounds = (c.low, c.high)
            require(all(isinstance(bound, float) for bound in bounds), "low and high")
            require(not np.isnan(bounds).any(), "low and high")
            flags = (c.is_excluding, c.has_low, c.has_high, c.is_date, c.missing)
            require(all(type(flag) is bool for flag in flags), "conditions")

    @property
    def text(self) -> str:
        """The rule in words, which :meth:`parse` reads."""
        return " and ".join(condition.text for condition in self.conditions) or EVERYONE

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Rule.parse({self.text!r})"

    @property
    def features(self) -> tuple[str, ...]:
        """The features of the conditions, each once."""
        return tuple(dict.fromkeys(condition.feature for condition in self.conditions))

    def inside(self, X: Any) -> BoolArray:
        """Return which rows of a table belong to the group, shape (n_samples,).

        ``X`` may be a frame of any library; columns are found by name.
        """
        X = check_table(X)
        names = column_names(X)
        check_columns(self.features, names, "X")
        inside, columns = np.ones(len(X), dtype=bool), series_of(X)
        for condition in self.conditions:
            values = canonical_column(columns[names.index(condition.feature)])
            inside &= condition.holds(pd.Series(values, dtype=values.dtype))
        return inside

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule from its words, such as ``sex = Female and age > 60``.

        A condition is one of ``job = Sales``, ``job != Sales``, ``job in {Sales, Tech}``, ``job not
        in {Sales, Tech}``, ``age > 60`` (``<``, ``<=``, ``>=``), ``35 < age <= 45``, ``born <
        2017-01-13``, ``age is missing``, ``age is not missing``, ``(age > 60 or missing)``. Put
        names and categories with signs or one of these words in quotation marks, and double a
        quotation mark inside them.
        """
        if not isinstance(text, str):
            raise InvalidInputError(f"a rule must be text, got {text!r}; write 'age > 60'")
        if text.strip().casefold() == EVERYONE:
            return cls(())
        conditions, position, more = list[Condition](), 0, True
        while more:
            matches = ((name, form.match(text, position)) for name, form in FORMS.items())
            form, match = next(((name, match) for name, match in matches if match), ("", None))
            condition = match and _condition(form, match.groups()[1:-2])
            if not match or not condition:
                fixed, hint = group_name(EQUALS.sub("=", text.strip())), ""
                with suppress(InvalidInputError):
                    hint = f": {cls.parse(fixed)}" if '"' in fixed and '"' not in text else ""
                raise InvalidInputError(
                    f"cannot read the rule {text!r}: {text[position:].strip()!r} does not begin "
                    "with a condition such as 'sex = Female', 'age > 60' or 'job in {Sales, Tech}';"
                    ' put names and values with signs or words such as "and" in quotation marks'
                    f"{hint}"
                )
            conditions.append(replace(condition, missing=condition.missing or bool(match["or"])))
            position, more = match.end(), bool(match["and"])
        return cls(tuple(conditions))


def _spelled_values(categories: Sequence[str]) -> FloatArray:
    """Return the numbers, flags and dates that categories spell."""
    dates = [_number(category) for category in categories if DATE.fullmatch(category)]
    return np.array([*spelled_numbers(categories), *dates])


def _number(bound: str) -> float:
    """Return the number or date of a bound; NaN if it is quoted, a word, or no valid date."""
    if not BOUND.fullmatch(bound):
        return np.nan
    if not DATE.fullmatch(bound):
        return float(bound)
    try:
        return float(np.datetime64(bound.replace(" ", "T"), "us").astype(np.int64) / 1e6)
    except ValueError:
        return np.nan


def _written(value: str) -> str:
    """Return a name or a category, in quotation marks if it could be read as something else."""
    return value if PLAIN.fullmatch(value) else '"' + value.replace('"', '""') + '"'


def _read(text: str) -> str:
    """Return a name or a category without its quotation marks."""
    return text[1:-1].replace('""', '"') if text[0] == '"' else " ".join(text.split())


def _condition(form: str, parts: Sequence[Any]) -> Condition | None:
    """Return the condition of a matched form; None if bounds are not numbers or dates."""
    if form == "missing":
        return Condition(_read(parts[0]), (), bool(parts[1]), missing=not parts[1])
    if form == "equal":
        return Condition(_read(parts[0]), (_read(parts[2]),), bool(parts[1]))
    if form == "list":
        listed, is_excluding = [item[1] for item in ITEM.finditer(parts[2])], bool(parts[1])
        categories = tuple(_read(item) for item in listed if item)
        missing = None in listed and not is_excluding
        return Condition(_read(parts[0]), categories, is_excluding, missing=missing)
    name, bounds = parts[0], [parts[1:3]]
    if form == "range":
        first, sign, name, second, last = parts
        bounds = [(FLIPPED[sign], first), (second, last)] if sign[0] == second[0] else []
    elif np.isnan(_number(parts[2])):
        name, bounds = parts[2], [(FLIPPED[parts[1]], parts[0])]
    fields: dict[str, Any] = {"is_date": all(DATE.fullmatch(bound) for _, bound in bounds)}
    for sign, bound in bounds:
        side = "low" if sign[0] == ">" else "high"
        fields |= {side: _number(bound), f"has_{side}": sign.endswith("=")}
    is_valid = bounds and not np.isnan([fields.get("low", 0.0), fields.get("high", 0.0)]).any()
    return Condition(_read(name), **fields) if is_valid else None
