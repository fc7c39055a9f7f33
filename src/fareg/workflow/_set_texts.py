"""Prediction sets that are written in one column: lists, or texts in which labels are joined."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fareg._labels import label_texts, plain_text
from fareg._validation import InvalidInputError
from fareg._words import shown

Reading = Callable[[str], list[str]]  # from the text of a set to its labels

BARS = re.compile(r"(?<!\\)[|;]")
COMMAS = re.compile(",")
SPACES = re.compile(r"\s+")
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
# What Python and numpy write around a list, and around a value in it.
NAMED_LIST = re.compile(r"(?:frozenset|set|array)\((.*?)(?:,\s*dtype=[^()]*)?\)", re.DOTALL)
BRACKETS = re.compile(r"\[(.*)\]|\((.*)\)|\{(.*)\}", re.DOTALL)
NUMPY_VALUE = re.compile(r"np\.(?:(True|False)_|\w+\(([^()]*)\))")


def read_set_texts(column: pd.Series, known: set[str]) -> tuple[list[list[str]], tuple[str, ...]]:
    """Return one list of label texts per row, and what a reader should know about them.

    ``known`` are the texts of the true labels; a missing value is the empty set. A column is
    written in one way throughout: as it makes most rows hold nothing but known labels, then most
    rows at least one. In a draw the first of ``READINGS`` is right.
    """
    likes = {_like(label): label for label in known}
    values = [_listed_or_text(value, column.name) for value in column]
    texts = pd.Series([value for value in values if isinstance(value, str)], dtype=object)
    counts = texts.value_counts()

    def meant(labels: list[str]) -> list[str]:
        return [v if v in known else likes.get(_like(v), v.strip()) for v in labels]

    def read(reading: Reading) -> dict[str, list[str]]:
        return {text: meant(reading(text)) for text in counts.index}

    def fits(table: dict[str, list[str]]) -> tuple[int, int]:
        own = [known.intersection(labels) for labels in table.values()]
        whole = [len(a) == len(set(b)) for a, b in zip(own, table.values(), strict=True)]
        return int(counts[whole].sum()), int(counts[list(map(bool, own))].sum())

    table = max(map(read, READINGS), key=fits)
    sets = [table[value] if isinstance(value, str) else meant(value) for value in values]
    found = {label for labels in sets for label in labels}
    _refuse_marks(column.name, found, known)
    return sets, _several_in_one(found - known, known)


def _like(label: str) -> str:
    """Return a label in the form in which "1.0" is "1", " a" is "a" and "TRUE" is "True"."""
    text = plain_text(label.strip())
    return text.capitalize() if text.lower() in ("true", "false") else text


def _listed_or_text(value: Any, name: Any) -> list[str] | str:
    if isinstance(value, list | tuple | set | np.ndarray):
        return list(label_texts(list(value)))
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return []
    if isinstance(value, bool | np.bool_):
        raise InvalidInputError(
            f"column {name} holds True and False; name all columns of the sets, one per label"
        )
    return list(label_texts([value]))


def _split(separators: re.Pattern[str], text: str) -> list[str]:
    parts = (part.replace("\\|", "|") for part in separators.split(text) if part.strip())
    return [part.strip()[1:-1] if QUOTED.fullmatch(part.strip()) else part for part in parts]


def _inside(text: str) -> str:
    """Return what stands in the brackets of a list, and a text without brackets as it is."""
    text = text.strip()
    if named := NAMED_LIST.fullmatch(text):
        text = named[1].strip()
    if listed := BRACKETS.fullmatch(text):
        text = next(part for part in listed.groups() if part is not None)
    return text


def _quoted(text: str) -> list[str]:
    """Read the list of quoted labels that Python, JSON or numpy writes; nothing if it is none."""
    inside = _inside(text)
    if NUMPY_VALUE.sub("", QUOTED.sub("", inside)).strip(", \n\t"):
        return _split(BARS, text)
    return [ESCAPED.sub(_meant, label[1:-1]) for label in QUOTED.findall(inside)]


def _meant(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 16)) if escaped[1] else escaped[2]


def _unquoted(separators: re.Pattern[str]) -> Reading:
    """Read a list of labels without quotation marks, such as numbers."""
    return lambda text: _split(
        separators, NUMPY_VALUE.sub(lambda value: value[1] or value[2], _inside(text))
    )


READINGS: tuple[Reading, ...] = (
    lambda text: _split(BARS, text),
    lambda text: _split(COMMAS, text),
    _quoted,
    _unquoted(BARS),
    _unquoted(COMMAS),
    lambda text: _unquoted(SPACES)(text) if BRACKETS.fullmatch(text.strip()) else [text],
)


def _refuse_marks(name: Any, found: set[str], known: set[str]) -> None:
    """Refuse numbers that are no labels: marks of one label, or its probabilities."""
    if found & known or not found:
        return
    if found <= {"0", "1"}:
        raise InvalidInputError(
            f"column {name} holds 1 and 0; name all columns of the sets, one per label"
        )
    numbers = pd.to_numeric(pd.Series(sorted(found)), errors="coerce")
    if numbers.between(0, 1).all():
        raise InvalidInputError(
            f"column {name} holds numbers from 0 to 1 and no label; turn probabilities into "
            "sets by a conformal classifier first"
        )


def _several_in_one(strange: set[str], known: set[str]) -> tuple[str, ...]:
    """Return a note if what was read as one label, which no row has, holds several that rows have.

    The labels may be joined by a sign that is not known here, and would count as not covered.
    """
    words = "|".join(re.escape(label) for label in sorted(known, key=len, reverse=True) if label)
    one = re.compile(rf"(?<!\w)(?:{words})(?!\w)")
    joined = sorted(label for label in strange if len(one.findall(label)) > 1)
    if not joined:
        return ()
    return (
        f"{shown(joined)}: read as one label, though it holds several of the target; separate "
        "labels by | if it is a set",
    )
