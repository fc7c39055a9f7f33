"""Input checks, and errors that say what is wrong, what was given and how to fix it."""

from __future__ import annotations

import dataclasses
import functools
import sys
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import UnionType
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError

Method = TypeVar("Method", bound=Callable[..., Any])
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
NUMBER = int | float | np.integer | np.floating


class FaregError(Exception):
    """Base of every error that fareg raises on purpose.

    ::

        FaregError
        ├── InvalidInputError   also a ValueError: an argument, table or file cannot be used
        ├── NotConformalizedError   also a NotFittedError: methods were called in the wrong order
        └── LostWorkersError   processes or a cluster died during a run

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


class LostWorkersError(FaregError):
    """Worker processes or their cluster died during a run."""


class FaregWarning(UserWarning):
    """A documented fallback was taken, for example a full set for a group that is too small."""


def require(condition: Any, part: str) -> None:
    """Refuse a stored model whose parts contradict each other."""
    if not condition:
        raise ValueError(f"its parts contradict each other, see {part}")


def warn(message: str, kind: type[FaregWarning] = FaregWarning) -> None:
    """Issue a :class:`FaregWarning` that points at the line outside fareg that caused it."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "fareg":
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=depth)


def all_or_nothing(method: Method) -> Method:
    """Decorate a method so that a failed call leaves the object unchanged."""

    @functools.wraps(method)
    def restoring(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *args, **kwargs)
        except BaseException:  # also if someone presses Ctrl+C during training
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Method, restoring)


def check_confidence_level(confidence_level: Any) -> float:
    """Return ``alpha = 1 - confidence_level``, exact in decimals (0.9 gives 0.1)."""
    confidence = confidence_level
    if not is_number(confidence):
        raise InvalidInputError(
            f"confidence_level must be a number in (0, 1), got {confidence!r}; try 0.9"
        )
    alpha = float(1 - Fraction(str(float(confidence)))) if 0 < confidence < 1 else 1.0
    if alpha == 1:
        hint = f"did you mean {confidence / 100:g}?" if 1 < confidence < 100 else "try 0.9"
        raise InvalidInputError(f"confidence_level must be in (0, 1), got {confidence}; {hint}")
    return alpha


def is_number(value: Any) -> bool:
    """Return whether a value is a number of Python or numpy; True and False are not."""
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def check_fraction(
    name: str, value: Any, *, include_zero: bool = False, include_one: bool = False
) -> float:
    """Return ``value`` if it lies between 0 and 1, or equals an included end."""
    ends = (include_zero and value == 0) or (include_one and value == 1)
    if not is_number(value) or not (0 < value < 1 or ends):
        interval = f"{'[' if include_zero else '('}0, 1{']' if include_one else ')'}"
        raise InvalidInputError(f"{name} must be a number in {interval}, got {value!r}")
    return float(value)


def check_number(name: str, value: Any, *, include_zero: bool = False) -> float:
    """Return ``value`` if it is a finite number above zero, or zero if that is included."""
    # numpy would convert the largest float to float32 to compare them
    plain = value.item() if isinstance(value, np.generic) else value
    is_inside = is_number(value) and 0 <= plain <= sys.float_info.max
    if not is_inside or (plain == 0 and not include_zero):
        bound = ">= 0" if include_zero else "> 0"
        raise InvalidInputError(f"{name} must be a number {bound}, got {value!r}")
    return float(value)


def check_count(name: str, value: Any, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Return ``value`` if it is a whole number from ``minimum`` to ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InvalidInputError(f"{name} must be a whole number >= {minimum}, got {value!r}")
    if maximum is not None and value > maximum:
        raise InvalidInputError(f"{name} must be at most {maximum}, got {value!r}; choose fewer")
    return int(value)


def check_choice(name: str, value: str, choices: Sequence[str] | Mapping[str, Any]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInputError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_function(name: str, value: Any) -> Any:
    """Return ``value`` if it can be called."""
    if not callable(value):
        raise InvalidInputError(f"{name} must be a function, got {value!r}")
    return value


def one_of(*choices: str) -> Callable[[str, Any], Any]:
    """Return a check that a parameter is one of some words."""
    return functools.partial(check_choice, choices=choices)


# The largest number of steps, draws or networks. More is a typing error that would run forever.
MAX_COUNT = 1_000_000

UNKNOWN = object()  # the default of a parameter that has none
UNIONS = (typing.Union, UnionType)

# The declared type of a parameter carries its check, which is called with the name and the value.
Confidence = Annotated[float, lambda name, value: check_confidence_level(value)]
OpenFraction = Annotated[float, check_fraction]  # in (0, 1)
Fraction01 = Annotated[float, functools.partial(check_fraction, include_one=True)]  # in (0, 1]
Count = Annotated[int, functools.partial(check_count, maximum=MAX_COUNT)]
Positive = Annotated[float, check_number]
NonNegative = Annotated[float, functools.partial(check_number, include_zero=True)]
Flag = Annotated[bool, check_flag]
Function = Annotated[Callable[..., Any], check_function]


@functools.cache
def _declared(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def check_parameters(estimator: Any) -> None:
    """Check every constructor parameter of an estimator against its declared type.

    A field such as ``n_draws: Count = 20`` declares a parameter, its default and its check.
    """
    cls: Any = type(estimator)
    for name, hint in _declared(cls).items():
        value, is_union = getattr(estimator, name), typing.get_origin(hint) in UNIONS
        options = typing.get_args(hint) if is_union else (hint,)
        is_default = value is getattr(cls, name, UNKNOWN)  # defaults need no check
        if not is_default and not (value is None and type(None) in options):
            for option in options:
                for check in getattr(option, "__metadata__", ()):
                    check(name, value)


def check_same_length(**arrays: Any) -> int:
    """Return the common length of ``arrays``."""
    for name, array in arrays.items():
        if hasattr(array, "toarray"):
            raise InvalidInputError(
                f"{name} must be dense, got a sparse matrix; pass {name}.toarray()"
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidInputError(f"{' and '.join(lengths)} must have the same number of rows; {got}")
    return next(iter(lengths.values()))


SAME_SUM = 1e-6  # models in float32 round their sums by less


def check_proba(proba: Any, name: str = "proba", *, first_row: int = 0) -> FloatArray:
    """Return class probabilities as a float array of shape (n_samples, n_classes).

    A row whose sum differs from 1 by at most the error of rounding to two decimals (0.005 per
    class, at most 0.05) is divided by its sum. Errors count rows from ``first_row``.
    """
    p: FloatArray = np.asarray(proba, dtype=np.float64)
    if p.ndim != 2:
        raise InvalidInputError(
            f"{name} must have shape (n_samples, n_classes), got {p.ndim} dimension(s)"
        )
    sums = p @ np.ones(p.shape[1])
    off = np.abs(sums - 1)
    if p.min(initial=0.0) >= 0 and (off <= SAME_SUM).all():
        return p
    # a sum of NaN is not close to 1, so these rows are wrong too
    wrong = (p < 0).any(axis=1) | ~(off <= min(0.005 * p.shape[1], 0.05) + SAME_SUM)
    if wrong.any():
        row, n_more = int(wrong.argmax()), int(wrong.sum()) - 1
        fix = "pass normalised probabilities, not logits: apply softmax to these"
        if np.isnan(p[row]).any():
            fix = "drop the rows with NaN, or fix the model that returned them"
        elif np.abs(np.median(sums) - 100) < 1:
            fix = "divide percent by 100"
        raise InvalidInputError(
            f"rows of {name} must be non-negative and sum to 1, got "
            f"{p[row].min() if (p[row] < 0).any() else sums[row]:g} in row {row + first_row}"
            f"{f' and {n_more} more' if n_more else ''}; {fix}"
        )
    p = p.copy()
    rounded = off > SAME_SUM
    part = np.ascontiguousarray(p[rounded])
    # Rows are summed one by one: in a matrix product, rounding would depend on the other rows.
    p[rounded] = part / part.sum(axis=1, keepdims=True)
    return p
