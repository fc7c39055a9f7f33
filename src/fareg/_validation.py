"""Input checks and the errors they raise: what is wrong, what was given, how to fix it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError

T = TypeVar("T")
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


class FaregError(Exception):
    """Base of every error that fareg raises on purpose.

    ::

        FaregError
        ├── InvalidInputError   also a ValueError: an argument, table or file is not usable
        └── NotConformalizedError   also a NotFittedError: methods were called in the wrong order

    Examples
    --------
    >>> import fareg
    >>> try:
    ...     fareg.SplitConformalClassifier(confidence_level=90).fit([[0.0]], [0])
    ... except fareg.FaregError as error:
    ...     print(error)
    confidence_level must be in (0, 1), got 90; did you mean 0.9?
    """


class InvalidInputError(FaregError, ValueError):
    """An argument, a table or a file cannot be used as it is."""


class NotConformalizedError(FaregError, NotFittedError):
    """A method was called before ``fit`` or ``conformalize``."""


class FaregWarning(UserWarning):
    """A documented fallback was taken, for example a full set for a group that is too small."""


def warn(message: str) -> None:
    """Issue a :class:`FaregWarning` that points at the line outside fareg which led to it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "fareg":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, FaregWarning, stacklevel=level)


def check_confidence_level(confidence_level: Any) -> float:
    """Return ``alpha = 1 - confidence_level``, exact in decimals (0.9 gives 0.1)."""
    if isinstance(confidence_level, bool) or not isinstance(
        confidence_level, int | float | np.number
    ):
        raise InvalidInputError(
            f"confidence_level must be a number in (0, 1), got {confidence_level!r}; try 0.9"
        )
    if not 0 < confidence_level < 1:
        hint = (
            f"; did you mean {confidence_level / 100:g}?"
            if 1 < confidence_level < 100
            else "; try 0.9"
        )
        raise InvalidInputError(f"confidence_level must be in (0, 1), got {confidence_level}{hint}")
    return float(1 - Fraction(str(float(confidence_level))))


def check_fraction(name: str, value: float, *, include_one: bool = False) -> float:
    """Return ``value`` if it lies in (0, 1), or in (0, 1] with ``include_one``."""
    interval = "(0, 1]" if include_one else "(0, 1)"
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not (0 < value < 1 or (include_one and value == 1)):
        raise InvalidInputError(f"{name} must be a number in {interval}, got {value!r}")
    return float(value)


def check_count(name: str, value: int, *, minimum: int = 1) -> int:
    """Return ``value`` if it is a whole number of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InvalidInputError(f"{name} must be a whole number >= {minimum}, got {value!r}")
    return int(value)


def check_choice(name: str, value: str, choices: Sequence[str] | Mapping[str, Any]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return value


def check_same_length(**arrays: Any) -> int:
    """Return the common length of ``arrays``."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidInputError(f"{' and '.join(lengths)} must have the same number of rows; {got}")
    return next(iter(lengths.values()))


def check_proba(proba: Any) -> FloatArray:
    """Return class probabilities as a float array of shape (n_samples, n_classes)."""
    p: FloatArray = np.asarray(proba, dtype=np.float64)
    if p.ndim != 2:
        raise InvalidInputError(
            f"proba must have shape (n_samples, n_classes), got {p.ndim} dimension(s)"
        )
    sums = p @ np.ones(p.shape[1])
    near_one = np.abs(sums - 1) <= 1e-3  # float16 and float32 models round; logits are far away
    if near_one.all() and p.min(initial=0.0) >= 0:
        return p
    if np.isnan(p).any():
        row = int(np.flatnonzero(np.isnan(p).any(axis=1))[0])
        raise InvalidInputError(
            f"proba must not contain NaN, got NaN in row {row}; check the estimator's predict_proba"
        )
    if (p < 0).any():
        raise InvalidInputError(
            f"proba must not be negative, got {p.min():g}; pass probabilities, not logits"
        )
    row = int(np.flatnonzero(~near_one)[0])
    raise InvalidInputError(
        f"rows of proba must sum to 1, got {sums[row]:g} in row {row}; "
        "pass normalised probabilities"
    )


def check_uniforms(u: Any, n_samples: int) -> FloatArray:
    """Return one number in [0, 1] per row as a column; None means 1, the non-randomised score."""
    if u is None:
        return np.ones((n_samples, 1))
    column: FloatArray = np.asarray(u, dtype=np.float64).reshape(-1, 1)
    check_same_length(u=column, proba=range(n_samples))
    if not ((column >= 0) & (column <= 1)).all():
        raise InvalidInputError("u must lie in [0, 1], one uniform number per row")
    return column


def check_covered(covered: Any) -> BoolArray:
    """Return the coverage indicator as a non-empty one-dimensional bool array."""
    values: npt.NDArray[Any] = np.asarray(covered)
    if values.ndim != 1 or len(values) == 0:
        raise InvalidInputError(
            f"covered must be one-dimensional and not empty, got shape {values.shape}"
        )
    if not np.isin(values, (0, 1)).all():
        raise InvalidInputError(
            "covered must hold only 0 and 1 (False and True): is each label in its set?"
        )
    return values.astype(bool)
