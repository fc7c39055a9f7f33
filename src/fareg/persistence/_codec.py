"""Objects as JSON and arrays, and back: a closed list of classes, each rebuilt by its constructor.

What JSON knows is written as JSON, and everything else as a dict with a tag:
``{"$": "array", "at": "3"}``. Numeric arrays go to a separate table. Estimators are written by
their shapes; those without a shape go to a list of foreign estimators, which skops stores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from fareg import calibration, classifiers, groups, paper, shift
from fareg._levels import LevelCoding, Levels
from fareg._validation import InvalidInputError, require
from fareg.persistence._shapes import FUNCTIONS, NAMED, SHAPES, shaped_state, stored_name

CLASSIFIERS: dict[str, Any] = {
    cls.__name__: cls for cls in (*classifiers.CLASSIFIERS, paper.PublishedFaReGClassifier)
}
READERS: dict[str, Any] = {cls.__name__: cls for cls in classifiers.OWN_ESTIMATORS}
ESTIMATORS: dict[str, Any] = {**CLASSIFIERS, **READERS, "NetworkLearner": paper.NetworkLearner}
ROOMS: tuple[Any, ...] = (calibration, groups, classifiers, paper, shift)
RECORDS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (Levels, LevelCoding, *(record for room in ROOMS for record in room.RECORDS))
}
NUMERIC = "biuf"  # kinds of arrays that go to the table
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # unknown to JSON
LEFT_OUT = {"$": "left out"}  # an estimator that is not in the file
MAX_DEPTH = 100  # of nested nodes
FREE_BYTES = 1 << 24  # of fixed-width texts, in addition to a multiple of the file's size
MAX_EMPTY = 1 << 20  # rows of an array without values


@dataclass
class Writer:
    """Turns objects into JSON, and collects arrays and foreign estimators."""

    left_out: tuple[Any, ...] = ()
    arrays: dict[str, Any] = field(default_factory=dict)
    foreign: list[Any] = field(default_factory=list)
    written: dict[int, int] = field(default_factory=dict)  # numbers of estimators, by id
    names: dict[int, str] = field(default_factory=dict)  # of arrays in the table, by id
    kept: list[Any] = field(default_factory=list)  # kept alive, so that no id is used again

    def write(self, value: Any, where: str) -> Any:
        """Return ``value`` as JSON; ``where`` names it in errors."""
        if value is None or type(value) in (bool, str, int):
            return value
        if type(value) is float and math.isfinite(value):
            return value
        if any(value is model for model in self.left_out) and not reads_probabilities(value):
            return LEFT_OUT
        for kinds, method in self._TABLE:
            if isinstance(value, kinds):
                return method(self, value, where)
        return self._other(value, where)

    def _list(self, value: Any, where: str) -> Any:
        return [self.write(item, where) for item in value]

    def _items(self, value: dict[str, Any], where: str) -> Any:
        return {key: self.write(item, f"{where}.{key}") for key, item in value.items()}

    def _dict(self, value: dict[Any, Any], where: str) -> Any:
        if all(type(key) is str for key in value) and "$" not in value:
            return self._items(value, where)
        return {"$": "dict", "items": [self._list(pair, where) for pair in value.items()]}

    def _array(self, value: Any, where: str) -> Any:
        if value.dtype.kind in NUMERIC and value.dtype.itemsize <= 8:
            # Keep the memory layout: matrix products round by it, and answers are equal to the bit.
            by_columns = bool(np.isfortran(value))
            # parts of a calibration share their scores, which are written once
            name = self.names.setdefault(id(value), str(len(self.arrays)))
            self.arrays.setdefault(name, np.asarray(value.T if by_columns else value, order="C"))
            self.kept.append(value)
            return {"$": "array", "at": name, "shape": list(value.shape), "transposed": by_columns}
        dtype = str(value.dtype)
        if value.dtype.kind in "mM":
            return {"$": "view", "dtype": dtype, "of": self._array(value.view("i8"), where)}
        if value.dtype.kind in "OU" and value.dtype.itemsize:
            items = self._list(value.ravel().tolist(), where)
            return {"$": "values", "dtype": dtype, "shape": list(value.shape), "items": items}
        raise _no_form(where, f"an array of dtype {dtype}")

    def _record(self, value: Any, where: str) -> Any:
        parts = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return {"$": "record", "class": type(value).__name__, "fields": self._items(parts, where)}

    def _estimator(self, value: Any, where: str) -> Any:
        name = type(value).__name__
        if type(value) is not ESTIMATORS.get(name):
            return self._shaped(value, where)
        parameters = value.get_params(deep=False)
        not_fitted = {*parameters, "parameters_"}
        fitted = {key: v for key, v in vars(value).items() if key not in not_fitted}
        if unknown := [key for key in fitted if not is_fitted_name(key)]:
            raise InvalidInputError(f"cannot save {where}: delete its attribute {unknown[0]}")
        return {
            "$": "object",
            "class": name,
            "parameters": {k: self.write(v, k) for k, v in parameters.items()},
            "fitted": {k: self.write(v, k) for k, v in fitted.items()},
        }

    def _shaped(self, value: Any, where: str) -> Any:
        """Write an estimator by its shape; one that occurs again is only referred to."""
        if id(value) in self.written:
            return {"$": "again", "at": self.written[id(value)]}
        state = shaped_state(value)
        if state is None:
            node = {"$": "foreign", "at": len(self.foreign)}
            self.foreign.append(value)
        else:
            parts = self._items(state, where)
            node = {"$": "estimator", "class": type(value).__name__, "state": parts}
        self.kept.append(value)
        return {**node, "id": self.written.setdefault(id(value), len(self.written))}

    def _other(self, value: Any, where: str) -> Any:
        if (name := stored_name(value)) is not None:
            return {"$": "named", "name": name}
        if isinstance(value, functools.partial) and stored_name(value.func) in FUNCTIONS:
            parts = [value.func, list(value.args), dict(value.keywords)]
            return {"$": "partial", "of": self._list(parts, where)}
        # parts of estimators, and models that are no scikit-learn estimators
        if type(value).__name__ in SHAPES or hasattr(value, "predict_proba"):
            return self._shaped(value, where)
        if callable(value):
            named = getattr(value, "__qualname__", type(value).__name__)
            raise InvalidInputError(
                f"cannot save {where}={named}: a model file holds no code; use a name or a list of "
                "columns instead of your own function"
            )
        raise _no_form(where, f"an object of type {type(value).__module__}.{type(value).__name__}")

    _TABLE: ClassVar[tuple[tuple[Any, Callable[..., Any]], ...]] = (
        (np.generic, lambda self, v, at: {"$": "scalar", "of": self._array(np.asarray(v), at)}),
        (float, lambda self, v, at: {"$": "float", "value": str(float(v))}),
        (list, _list),
        (tuple, lambda self, v, at: {"$": "tuple", "items": self._list(v, at)}),
        (dict, _dict),
        (np.ndarray, _array),
        (pd.Index, lambda self, v, at: self._list(v.tolist(), at)),
        (
            pd.DataFrame,
            lambda self, v, at: {
                "$": "frame",
                "of": {name: self._array(column.to_numpy(), at) for name, column in v.items()},
            },
        ),
        (tuple(RECORDS.values()), _record),
        (BaseEstimator, _estimator),
        # prediction draws no random numbers, so generators are left out
        ((np.random.Generator, np.random.RandomState), lambda self, v, at: None),
        (slice, lambda self, v, at: {"$": "slice", "ends": [v.start, v.stop, v.step]}),
    )


def _no_form(where: str, what: str) -> InvalidInputError:
    return InvalidInputError(f"cannot save {where}: {what} has no form in a model file")


@dataclass
class Reader:
    """Rebuilds what :class:`Writer` wrote."""

    arrays: dict[str, Any]
    n_bytes: int  # size of the file
    foreign: Callable[[], list[Any]] = list
    estimator: Any = None  # stands for one that was left out
    made: dict[int, Any] = field(default_factory=dict)
    depth: int = 0
    text_bytes: int = 0

    def read(self, node: Any) -> Any:
        """Return the object that a JSON node stands for."""
        if not isinstance(node, list | dict):
            return node
        self.depth += 1
        require(self.depth <= MAX_DEPTH, "the depth of its parts")
        try:
            if isinstance(node, list):
                return [self.read(item) for item in node]
            return self._TABLE[node["$"]](self, node) if "$" in node else self._items(node)
        finally:
            self.depth -= 1

    def _items(self, node: dict[str, Any]) -> dict[str, Any]:
        return {name: self.read(value) for name, value in node.items()}

    def _array(self, node: dict[str, Any]) -> Any:
        array = self.arrays[node["at"]]
        array = array.T if node["transposed"] else array
        require(list(array.shape) == node["shape"], f"the shape of array {node['at']}")
        require(array.size or max(array.shape) <= MAX_EMPTY, f"the shape of array {node['at']}")
        return array

    def _view(self, node: dict[str, Any]) -> Any:
        dtype = np.dtype(node["dtype"])
        require(dtype.kind in "mM", f"a view of dtype {dtype}")
        return self.read(node["of"]).view(dtype)

    def _values(self, node: dict[str, Any]) -> Any:
        dtype = np.dtype(node["dtype"])
        require(dtype.kind in "OU" and dtype.itemsize > 0, f"an array of dtype {dtype}")
        require(max(node["shape"], default=0) <= max(MAX_EMPTY, len(node["items"])), "an array")
        if dtype.kind == "U":  # every text takes the full width of the type
            self.text_bytes += dtype.itemsize * len(node["items"])
            require(self.text_bytes <= FREE_BYTES + 16 * self.n_bytes, "the size of its texts")
        flat = np.empty(len(node["items"]), dtype=dtype)
        for position, item in enumerate(self.read(node["items"])):
            flat[position] = item
        return flat.reshape(node["shape"])

    def _object(self, node: dict[str, Any]) -> Any:
        instance = ESTIMATORS[node["class"]](**self._items(node["parameters"]))
        for name, value in node["fitted"].items():
            require(is_fitted_name(name), f"the attribute {name}")
            setattr(instance, name, self.read(value))
        if node["class"] in CLASSIFIERS:
            instance.freeze_parameters()
        return instance

    def _remember(self, node: dict[str, Any], thing: Any) -> Any:
        require(node["id"] not in self.made, "an estimator that is there twice")
        self.made[node["id"]] = thing
        return thing

    def _partial(self, node: dict[str, Any]) -> Any:
        function, args, keywords = self.read(node["of"])
        require(stored_name(function) in FUNCTIONS, "a score")
        require(all(isinstance(a, float | int) for a in [*args, *keywords.values()]), "a score")
        return functools.partial(function, *args, **keywords)

    _TABLE: ClassVar[dict[str, Callable[..., Any]]] = {
        "float": lambda self, node: FLOATS[node["value"]],
        "scalar": lambda self, node: self.read(node["of"])[()],
        "tuple": lambda self, node: tuple(self.read(node["items"])),
        "dict": lambda self, node: {self.read(k): self.read(v) for k, v in node["items"]},
        "array": _array,
        "view": _view,
        "values": _values,
        "frame": lambda self, node: pd.DataFrame(self._items(node["of"])),
        "record": lambda self, node: RECORDS[node["class"]](**self._items(node["fields"])),
        "object": _object,
        "partial": _partial,
        "named": lambda self, node: NAMED[node["name"]],
        "slice": lambda self, node: slice(*node["ends"]),
        "estimator": lambda self, node: self._remember(
            node, SHAPES[node["class"]].make(self._items(node["state"]))
        ),
        "foreign": lambda self, node: self._remember(node, self.foreign()[node["at"]]),
        "again": lambda self, node: self.made[node["at"]],
        "left out": lambda self, node: self.estimator,
    }


def reads_probabilities(estimator: Any) -> bool:
    """Return whether an estimator is one of fareg's that read probabilities."""
    return type(estimator) is READERS.get(type(estimator).__name__)


def is_fitted_name(name: str) -> bool:
    """Return whether scikit-learn would give a fitted attribute this name, such as ``classes_``."""
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")
