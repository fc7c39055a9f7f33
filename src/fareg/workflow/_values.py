"""The one place where texts of a file become numbers, dates or categories."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
from pyarrow import compute

from fareg._columns import canonical, check_columns
from fareg._validation import InvalidInputError, warn

# Words for a missing value; the last one may be a category too. In a column of labels, only the
# empty text is missing.
WORDS = "#N/A,#N/A N/A,#NA,-1.#IND,-1.#QNAN,-NaN,-nan,1.#IND,1.#QNAN,<NA>,N/A,NA,NULL,NaN,n/a,nan"
MISSING = pyarrow.array(["", *WORDS.split(","), "null", "None"], pyarrow.large_string())
FLAGS = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}
TRUE = ["True", "true", "TRUE"]
KINDS = {"f": "number", "O": "text", "M": "date"}  # of canonical columns
LEADING_ZERO, NO_INTEGER = r"^0\d", r"[^0-9+-]"
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?")


def values_of(texts: Any, name: str, kind: str | None = None, *, label: bool = False) -> pd.Series:
    """Convert an Arrow column of texts to numbers, dates, flags or categories.

    Without a ``kind``, the column holds numbers if all texts are numbers and none is a code with a
    leading zero. The ``kind`` from a model file gives a value the same form whichever rows come
    with it; texts that do not fit the kind stay texts. The texts of a ``label`` stay texts, and
    only an empty one is missing.

    >>> texts = pyarrow.chunked_array([["04109", "NA"]], pyarrow.large_string())
    >>> values_of(texts, "code").tolist(), values_of(texts, "code", "number").tolist()
    (['04109', nan], [4109.0, nan])
    >>> values_of(texts, "code", label=True).tolist()
    ['04109', 'NA']
    """
    original = texts
    texts = _without(original, MISSING[:1] if label else MISSING)
    for read in [] if kind == "text" else [_numbers, _flags, _dates]:
        if (values := read(texts, kind)) is not None:
            return pd.Series(values, name=name)
    if label:
        _warn_of_words(texts, name)
        return pd.Series(texts.to_numpy(), name=name, dtype=object)
    coded, absent = original.combine_chunks().dictionary_encode(), set(MISSING[:-1].to_pylist())
    known, codes = coded.dictionary.to_pylist(), coded.indices
    words = [None if word in absent else FLAGS.get(word, word) for word in known]
    merged, distinct = pd.factorize(np.array(words, dtype=object))  # true and TRUE are one
    rows: Any = np.append(merged, -1)[compute.fill_null(codes, -1).to_numpy()]
    return pd.Series(pd.Categorical.from_codes(rows, pd.Index(distinct)), name=name)


def _without(texts: Any, words: Any) -> Any:
    """Return texts in which the given words are missing values."""
    is_missing = compute.is_in(texts, value_set=words)
    return compute.if_else(is_missing, pyarrow.scalar(None, texts.type), texts)


def _numbers(texts: Any, kind: str | None) -> Any:
    """Return the texts as numbers, None if some are not numbers or are codes."""

    def some(pattern: str) -> bool:
        return bool(compute.any(compute.match_substring_regex(trimmed, pattern)).as_py())

    trimmed = compute.utf8_trim_whitespace(texts)
    try:
        numbers = compute.cast(trimmed, pyarrow.float64()).to_numpy()
    except pyarrow.ArrowInvalid:
        return None
    present = numbers[np.isfinite(numbers)]
    if kind is None and (present % 1 == 0).all() and some(LEADING_ZERO):
        return None
    if not len(present) or texts.null_count or some(NO_INTEGER):
        return numbers
    try:
        return compute.cast(compute.utf8_ltrim(trimmed, "+"), pyarrow.int64()).to_numpy()
    except pyarrow.ArrowInvalid:  # too large
        return numbers


def _flags(texts: Any, kind: str | None) -> Any:
    """Return True, False and missing values; None if there are other texts."""
    words = {FLAGS.get(word, word) for word in texts.unique().to_pylist()} - {None}
    if not words <= {"True", "False"}:
        return None
    is_true = compute.is_in(texts, value_set=pyarrow.array(TRUE, texts.type)).to_numpy()
    missing = compute.is_null(texts).to_numpy()
    return np.where(missing, None, is_true) if missing.any() else is_true


def _dates(texts: Any, kind: str | None) -> Any:
    """Return ISO dates as dates, None if there are other texts."""
    if not ISO_DATE.fullmatch(texts.drop_null()[0].as_py()):
        return None
    try:
        return pd.to_datetime(pd.Series(texts.to_numpy()), format="ISO8601", utc=True)
    except (ValueError, TypeError):
        return None


def _warn_of_words(texts: Any, name: str) -> None:
    """Warn of words for missing values that are taken as labels."""
    found = compute.value_counts(texts.filter(compute.is_in(texts, value_set=MISSING)))
    words = {row["values"]: row["counts"] for row in found.to_pylist()}
    if words:
        warn(
            f"column {name} holds {' or '.join(words)} in {sum(words.values())} of {len(texts)} "
            "rows, taken as a label; drop these rows if it means missing"
        )


def column_kinds(frame: pd.DataFrame) -> dict[str, str]:
    """Return "number", "text" or "date" for each column."""
    return {str(name): kind_in(column) or "number" for name, column in frame.items()}


def kind_in(column: pd.Series) -> str | None:
    """Return the kind of a column, None if all values are missing."""
    if column.isna().all():
        return None
    return KINDS[canonical(column.to_frame()).dtypes.iloc[0].kind]


def as_kinds(frame: pd.DataFrame, kinds: Mapping[str, str], where: str) -> pd.DataFrame:
    """Return the columns ``kinds`` of a frame, by name; refuse those of another kind."""
    check_columns(list(kinds), [str(name) for name in frame.columns], where)
    frame = frame[list(kinds)].reset_index(drop=True)
    for name, kind in kinds.items():
        found = kind_in(frame[name])
        if found is None:
            frame[name] = pd.Series(np.nan, index=frame.index, name=name)
        elif found != kind:
            texts = frame[name].dropna().astype(str)
            numbers = pd.to_numeric(texts, errors="coerce")
            strange = texts[numbers.isna()] if kind == "number" else texts
            raise InvalidInputError(
                f"column {name} of {where} held {kind}s when the model was fitted, here it holds "
                f"{found}s such as {[*strange, *texts][0][:30]!r}; convert it"
            )
    return frame
