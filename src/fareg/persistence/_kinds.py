"""What an attribute of a stored estimator may be: data, an estimator, or one of a few functions."""

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
# Functions that a file refers to by name. The last is how histogram gradient boosting reads the
# numbers beside its categories.
FUNCTIONS: dict[str, Any] = {
    **{f"fareg.scores.{name}": score for name, score in scores.SCORES.items()},
    **{f"fareg.encoding.{function.__name__}": function for function in ENCODER_FUNCTIONS},
    **{f"numpy.{name}": getattr(np, name) for name in ("exp", "log", "log1p", "sqrt")},
    "float64 numbers": partial(check_array, dtype=[np.float64], ensure_all_finite=False),
}
# Types of numbers and of columns that a file refers to by name.
TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, float, int, object, str)},
    **{f"numpy.{np.dtype(code).name}": np.dtype(code).type for code in "?bBhHiIlLefd"},
    **{f"numpy.{name}": getattr(np, name) for name in ("bool_", "number", "integer", "floating")},
}
DTYPES = {np.dtype(code).name: np.dtype(code) for code in "?bBhHiIlLefdO"}


def function_name(value: Any) -> str | None:
    """Return the name of a function that files may refer to, None for another."""
    if isinstance(value, partial) and value.func is check_array:
        known = FUNCTIONS["float64 numbers"]
        same = (value.args, value.keywords) == (known.args, known.keywords)
        return "float64 numbers" if same else None
    return next((name for name, known in FUNCTIONS.items() if known is value), None)


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
        return all(
            type(part) in (int, type(None)) for part in (value.start, value.stop, value.step)
        )
    if isinstance(value, np.dtype):
        return value.name in DTYPES
    return is_label(value) or _is_type(value)


def _is_type(value: Any) -> bool:
    return isinstance(value, type) and value in TYPES.values()


def _is_model(value: Any) -> bool:
    return isinstance(value, BaseEstimator) and not isinstance(value, type)


def _is_part(value: Any) -> bool:
    return _is_model(value) or value is None or type(value) is str


def _is_selection(value: Any) -> bool:
    return is_data(value) or type(value).__name__ == "make_column_selector"


def _are_steps(value: Any) -> bool:
    return type(value) is list and all(
        type(step) is tuple and len(step) == 2 and type(step[0]) is str and _is_part(step[1])
        for step in value
    )


def _is_transformer(value: Any) -> bool:
    shaped = type(value) is tuple and len(value) == 3 and type(value[0]) is str
    return shaped and _is_part(value[1]) and _is_selection(value[2])


def _are_transformers(value: Any) -> bool:
    return type(value) is list and all(map(_is_transformer, value))


def _are_trees(value: Any) -> bool:
    many = value.flat if type(value) is np.ndarray and value.ndim == 2 else value
    known = ("DecisionTree", "ExtraTree")
    return bool(len(value)) and all(
        _is_model(tree) and type(tree).__name__.startswith(known) and hasattr(tree, "tree_")
        for tree in many
    )


def _one_of(*known: Any) -> Callable[[Any], bool]:
    return lambda value: (type(value), value) in [(type(one), one) for one in known]


# What a kind of attribute must be. Other kinds are shapes of arrays of numbers, such as "k,d": k
# classes, d columns; other letters must mean the same size throughout an estimator. With "?" the
# attribute may be None.
KINDS: dict[str, Callable[[Any], bool]] = {
    "data": is_data,
    "count": lambda v: (
        isinstance(v, int | np.integer) and type(v) is not bool and bool(0 <= v < 2**31)
    ),
    "flag": lambda v: isinstance(v, bool | np.bool_),
    "names": lambda v: type(v) is np.ndarray and v.ndim == 1 and all(type(n) is str for n in v),
    "labels": lambda v: v is None or (type(v) is np.ndarray and v.ndim == 1 and is_data(v)),
    "arrays": lambda v: (
        type(v) is list and all(a is None or (type(a) is np.ndarray and is_data(a)) for a in v)
    ),
    "none": lambda v: v is None,
    "model": _is_model,
    "models": lambda v: type(v) is list and all(map(_is_model, v)),
    "calibrated": lambda v: (
        type(v) is list and all(type(one).__name__ == "_CalibratedClassifier" for one in v)
    ),
    "part": _is_part,
    "steps": _are_steps,
    "transformer": _is_transformer,
    "transformers": _are_transformers,
    "trees": _are_trees,
    "selection": _is_selection,
    "function": lambda v: v is None or function_name(v) is not None,
    "output": lambda v: (
        type(v) is dict
        and set(v) <= {"transform"}
        and set(v.values()) <= {"default", "pandas", "polars"}
    ),
    "jobs": lambda v: v is None or (type(v) is int and abs(v) <= MAX_JOBS),
    "seed": lambda v: is_label(v) or isinstance(v, np.random.RandomState | np.random.Generator),
    "metric": _one_of(
        *("minkowski", "euclidean", "l2", "manhattan", "l1", "cityblock"),
        *("chebyshev", "canberra", "braycurtis", "hamming"),
    ),
    "kernel": _one_of("rbf", "linear", "poly", "polynomial", "laplacian", "sigmoid", "cosine"),
    "tree": lambda v: type(v).__name__ == "Tree",
    "rounds": lambda v: type(v) is list,
}


def has_sizes(value: Any, kind: str, sizes: dict[str, Any]) -> bool:
    """Tell whether an array of numbers has the shape that a kind says, and learn its sizes."""
    if value is None:
        return kind.endswith("?")
    letters = kind.removesuffix("?").split(",")
    if type(value) is not np.ndarray or value.dtype.kind not in "biuf":
        return False
    same = [
        sizes.setdefault(letter, n) == n for letter, n in zip(letters, value.shape, strict=False)
    ]
    return len(letters) == value.ndim and all(same)
