"""Labels as text, which is how files write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from fareg._labels import plain_text

LARGEST_INT = 2.0**63  # whole floats from here on have no 64-bit integer


def label_texts(labels: Any) -> Any:
    """Return labels as text, a whole number alike whether it is stored as int or float.

    >>> label_texts([1.0, 2.0, 1e20])
    array(['1', '2', '1e+20'], dtype=object)
    """
    values = pd.Series(labels)
    if pd.api.types.is_float_dtype(values.dtype) and (values.dropna() % 1 == 0).all():
        return values.map(_whole_text).to_numpy(dtype=object)
    return values.map(str).to_numpy(dtype=object)


def _whole_text(number: float) -> str:
    is_small = abs(number) < LARGEST_INT  # a missing label is not
    return str(int(number)) if is_small else "<NA>" if pd.isna(number) else str(float(number))


def as_known(texts: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return texts as the known labels that they equal or else, if there is just one, mean.

    A text that means no known label, or several of them, stays as it is.

    >>> as_known(["1.0", "01", " b", "c"], ["1", "01", "b"])
    ['1.0', '01', 'b', 'c']
    """
    given, labels = list(texts), set(known)
    meanings: dict[Any, list[str]] = {}
    for label in labels:
        meanings.setdefault(plain_text(label), []).append(label)

    def meant(text: str) -> str:
        alike = [] if text in labels else meanings.get(plain_text(text), [])
        return alike[0] if len(alike) == 1 else text

    found = {text: meant(text) for text in dict.fromkeys(given)}
    return [found[text] for text in given]
