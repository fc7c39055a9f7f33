"""What an attribute of a stored estimator may be, in words that ``_shapes`` is written in.

A kind is a name of ``KINDS``; ``=k``, a number that equals a size; ``k,d``, an array of numbers
with these sizes, and ``k,d?``, such an array or None; ``list of kind``; or ``kind + kind``, a tuple
of these. The sizes k (classes), r (rows of coefficients, trees of a round: one for two classes) and
d (columns) are those of the estimator; other letters must mean one size throughout it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from fareg import scores
from fareg._encoding import ENCODER_FUNCTIONS

MAX_JOBS = 256
OUTPUTS = ("default", "pandas", "polars")
# How histogram gradient boosting reads the numbers next to its categories.
READ_FLOATS = partial(check_array, dtype=[np.float64], ensure_all_finite=False)
# Functions that a file refers to by name.
FUNCTIONS: dict[str, Any] = {
    **{f"fareg.scores.{name}": score for name, score in scores.SCORES.items()},
    **{f"fareg.encoding.{function.__name__}": function for function in ENCODER_FUNCTIONS},
    **{f"numpy.{name}": getattr(np, name) for name in ("exp", "log", "log1p", "sqrt")},
    "float64 numbers": READ_FLOATS,
}
# Types of numbers and of columns, and forms of arrays, that a file refers to by name.
TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, float, int, object, str)},
    **{f"numpy.{np.dtype(code).name}": np.dtype(code).type for code in "?bBhHiIlLefd"},
    **{f"numpy.{name}": getattr(np, name) for name in ("bool_", "number", "integer", "floating")},
}
DTYPES = {f"dtype {np.dtype(code).name}": np.dtype(code) for code in "?bBhHiIlLefdO"}
NAMED = {**FUNCTIONS, **TYPES, **DTYPES}
Sizes = dict[str, Any]


def name_of(value: Any) -> str | None:
    """Return the name by which a file refers to a function, a type or a form of arrays, or None."""
    if isinstance(value, partial) and value.func is check_array:
        same = (value.args, value.keywords) == (READ_FLOATS.args, READ_FLOATS.keywords)
        return "float64 numbers" if same else None
    if isinstance(value, np.dtype):
        return f"dtype {value.name}" if f"dtype {value.name}" in DTYPES else None
    return next((name for name, known in NAMED.items() if known is value), None)


def is_label(value: Any) -> bool:
    """Tell a text, a number or nothing."""
    return value is None or isinstance(value, str | bool | int | float | np.number | np.bool_)


def is_data(value: Any) -> bool:
    """Tell values that only hold values: no object with methods of its own, and no function."""
    if type(value) is np.ndarray:
        return value.dtype.kind in "biufU" or (
            value.dtype.kind == "O" and all(map(is_label, value.flat))
        )
    if type(value) in (list, tuple):
        return all(map(is_data, value))
    if type(value) is dict:
        return all(map(is_label, value)) and all(map(is_data, value.values()))
    if type(value) is slice:
        ends = (value.start, value.stop, value.step)
        return all(end is None or type(end) is int for end in ends)
    return is_label(value) or name_of(value) in (TYPES.keys() | DTYPES.keys())


def _is_model(value: Any) -> bool:
    return isinstance(value, BaseEstimator) and not isinstance(value, type)


def _is_count(value: Any) -> bool:
    is_number = isinstance(value, int | np.integer) and type(value) is not bool
    return is_number and bool(0 <= value < 2**31)


def _are_trees(trees: Any, sizes: Sizes, n_classes: int) -> bool:
    """Tell fitted decision trees that read the columns of their owner and know its classes."""
    return all(
        type(tree).__name__.startswith(("DecisionTree", "ExtraTree"))
        and _is_model(tree)
        and hasattr(tree, "tree_")
        and tree.n_features_in_ == sizes["d"]
        and len(getattr(tree, "classes_", ())) == n_classes
        for tree in trees
    )


def _is_first(value: Any, sizes: Sizes) -> bool:
    """Tell what gradient boosting begins with."""
    is_dummy = type(value).__name__ == "DummyClassifier"
    return value == "zero" if type(value) is str else is_dummy and value.n_classes_ == sizes["k"]


KINDS: dict[str, Callable[[Any, Sizes], bool]] = {
    "data": lambda v, s: is_data(v),
    "count": lambda v, s: _is_count(v),
    "flag": lambda v, s: isinstance(v, bool | np.bool_),
    "text": lambda v, s: type(v) is str,
    "none": lambda v, s: v is None,
    "array?": lambda v, s: v is None or (type(v) is np.ndarray and is_data(v)),
    "labels": lambda v, s: v is None or (fits(v, "array?", s) and v.ndim == 1),
    "names": lambda v, s: (
        type(v) is np.ndarray and v.shape == (s["d"],) and all(type(n) is str for n in v)
    ),
    "shares": lambda v, s: fits(v, "k", s) and (v >= 0).all() and abs(v.sum() - 1) < 1e-6,
    "model": lambda v, s: _is_model(v),
    "calibrated": lambda v, s: type(v).__name__ == "_CalibratedClassifier",
    "part": lambda v, s: _is_model(v) or v is None or type(v) is str,
    "first": _is_first,
    "steps": lambda v, s: bool(v) and fits(v, "list of text + part", s),
    "selection": lambda v, s: is_data(v) or type(v).__name__ == "make_column_selector",
    "function": lambda v, s: v is None or name_of(v) in FUNCTIONS,
    "output": lambda v, s: v in ({}, *({"transform": way} for way in OUTPUTS)),
    "jobs": lambda v, s: v is None or (type(v) is int and abs(v) <= MAX_JOBS),
    "seed": lambda v, s: is_label(v) or isinstance(v, np.random.RandomState | np.random.Generator),
    "tree": lambda v, s: (
        type(v).__name__ == "Tree" and (v.n_features, v.max_n_classes) == (s["d"], s["k"])
    ),
    "forest": lambda v, s: (
        type(v) is list and bool(v) and _are_trees(v, s, s["k"] * s["has classes"])
    ),
    "rounds of trees": lambda v, s: (
        type(v) is np.ndarray and v.ndim == 2 and v.shape[1] == s["r"] and _are_trees(v.flat, s, 0)
    ),
    "rounds": lambda v, s: type(v) is list and all(len(one) == s["r"] for one in v),
}


def sizes_of(thing: Any) -> Sizes:
    """Return the sizes that the kinds of an estimator's attributes refer to."""
    classes: Any = getattr(thing, "classes_", None)
    has_classes = isinstance(classes, np.ndarray)
    n_classes = len(classes) if has_classes else 1
    n_rows = 1 if n_classes == 2 else n_classes
    columns = getattr(thing, "n_features_in_", None)
    return {"1": 1, "k": n_classes, "r": n_rows, "d": columns, "has classes": has_classes}


def fits(value: Any, kind: str, sizes: Sizes) -> bool:
    """Tell whether a value is of a kind, and learn the sizes that the kind names."""
    if kind.startswith("list of "):
        return type(value) is list and all(fits(v, kind[8:], sizes) for v in value)
    if " + " in kind:
        kinds = kind.split(" + ")
        same = type(value) is tuple and len(value) == len(kinds)
        return same and all(fits(v, k, sizes) for v, k in zip(value, kinds, strict=True))
    if kind in KINDS:
        return bool(KINDS[kind](value, sizes))
    if kind.startswith("="):
        return _is_count(value) and bool(sizes.setdefault(kind[1:], value) == value)
    if value is None:
        return kind.endswith("?")
    letters = kind.removesuffix("?").split(",")
    if type(value) is not np.ndarray or value.dtype.kind not in "biuf":
        return False
    known = [sizes.setdefault(letter, n) for letter, n in zip(letters, value.shape, strict=False)]
    return len(letters) == value.ndim and known == list(value.shape)
