"""Labels and sets of labels as texts, the way files hold them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from fareg._labels import plain_text
from fareg._validation import InvalidInputError
from fareg._words import shown

LARGEST_INT = 2.0**63  # whole floats from here on have no 64-bit integer
BETWEEN_BARS = re.compile(r"(?:\\[|\\]|[^|])++")
ESCAPED = re.compile(r"\\([|\\])")
MARKS = {"true", "false"}


def label_texts(labels: Any) -> Any:
    """Return labels as text; a whole number is the same text as int and as float.

    >>> label_texts([1.0, 2.0, 1e20])
    array(['1', '2', '1e+20'], dtype=object)
    """
    values = pd.Series(labels)
    if pd.api.types.is_float_dtype(values.dtype) and (values.dropna() % 1 == 0).all():
        return values.map(_whole_text).to_numpy(dtype=object)
    return values.map(str).to_numpy(dtype=object)


def _whole_text(number: float) -> str:
    is_small = abs(number) < LARGEST_INT  # False for a missing label
    return str(int(number)) if is_small else "<NA>" if pd.isna(number) else str(float(number))


def as_known(texts: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return each text as the known label that equals it or, if unique, has the same value.

    A text with the value of no known label, or of several, is returned unchanged.

    >>> as_known(["1.0", "01", " b", "c"], ["1", "01", "b"])
    ['1.0', '01', 'b', 'c']
    """
    texts, labels = list(texts), set(known)
    by_value: dict[Any, list[str]] = {}
    for label in labels:
        by_value.setdefault(plain_text(label), []).append(label)

    def matched(text: str) -> str:
        candidates = [] if text in labels else by_value.get(plain_text(text), [])
        return candidates[0] if len(candidates) == 1 else text

    found = {text: matched(text) for text in dict.fromkeys(texts)}
    return [found[text] for text in texts]


def read_set_texts(column: pd.Series, y: Any) -> tuple[list[list[str]], Any]:
    """Return one list of labels per row, and the true labels as the sets write them, all as text.

    If all texts are JSON lists, as fareg writes them, they are read exactly. Otherwise texts are
    cut at bars; a bar or backslash inside a label has a backslash before it. A missing value is the
    empty set. A true label that no set contains literally becomes the label of the sets with the
    same value, as 1.0 is 1, if there is exactly one.
    """
    values = [_listed_or_text(value) for value in column]
    texts = dict.fromkeys(value for value in values if isinstance(value, str))
    from_json = {text: read_set_text(text) for text in texts}
    is_json = None not in from_json.values()
    read = {text: from_json[text] if is_json else _cut(text) for text in texts}
    sets = [read[value] or [] if isinstance(value, str) else value for value in values]
    found = list(dict.fromkeys(label for labels in sets for label in labels))
    if not is_json:
        matched = dict(zip(found, as_known(found, set(y)), strict=True))
        sets = [[matched[label] for label in labels] for labels in sets]
        found = list(matched.values())
    y = np.array(as_known(y, found), dtype=object)
    _check_sets(column.name, values, sets, set(y), is_json=is_json)
    return sets, y


def read_set_text(text: str) -> list[str] | None:
    """Return the labels of a JSON list as text, None if the text is not a list of labels.

    >>> read_set_text('["a|b", 1.50, true]'), read_set_text("a|b"), read_set_text("[[1]]")
    (['a|b', '1.50', 'true'], None, None)
    """
    try:  # numbers stay as they are written
        labels = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except ValueError:
        return None
    if not isinstance(labels, list) or not all(isinstance(label, str | bool) for label in labels):
        return None
    return [str(label).lower() if isinstance(label, bool) else label for label in labels]


def _listed_or_text(value: Any) -> list[str] | str:
    if isinstance(value, list | tuple | set | np.ndarray):
        return list(label_texts(list(value)))
    if isinstance(value, str):
        return value
    return [] if pd.isna(value) else str(label_texts([value])[0])


def _cut(text: str) -> list[str]:
    """Return the labels of a text such as ``a|b``; a blank between two bars is not a label."""
    parts = (part for part in BETWEEN_BARS.findall(text) if part.strip())
    return [ESCAPED.sub(r"\1", part) for part in parts]


def _check_sets(
    name: Any, values: list[Any], sets: list[list[str]], known: set[str], *, is_json: bool
) -> None:
    """Refuse a column that does not hold sets of the known labels, and show one of its rows."""
    strange: list[int] = []
    if not any(known.intersection(labels) for labels in sets):
        strange = [row for row, labels in enumerate(sets) if labels]
    elif all(isinstance(value, str) and value.strip().lower() in MARKS for value in values):
        strange = [0]  # True or False for a single label, though these may be labels too
    elif not is_json:
        # Labels joined by another sign than a bar would count as not covered.
        words = "|".join(re.escape(label) for label in sorted(known, key=len)[::-1] if label)
        one = re.compile(rf"(?<!\w)(?:{words})(?!\w)")
        unknown = {label for labels in sets for label in labels} - known
        several = {label for label in unknown if len(set(one.findall(label))) > 1}
        strange = [row for row, labels in enumerate(sets) if several.intersection(labels)]
    if strange:
        raise InvalidInputError(
            f"column {name} holds {values[strange[0]]!r} in row {strange[0] + 1}, which is not a "
            f"set of labels of the target ({shown(sorted(known))}); write sets as JSON lists such "
            'as ["a", "b"] (in Python, json.dumps(list) of each), as a|b with a backslash before '
            "each bar and backslash of a label, or name a column of True and False for each label"
        )
