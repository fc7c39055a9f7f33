"""Objects as JSON and arrays, and back: a closed list of classes, each rebuilt by its constructor.

A value is written as JSON where JSON has it; everything else is a dict with a tag:
``{"$": "array", "at": "3"}``. Numeric arrays go to a table of their own, objects of scikit-learn
to a list of their own; the classifier's fitted estimator is only referred to.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from fareg import calibration, classifiers, groups, scores
from fareg._columns import HELD, note_held
from fareg._levels import LevelCoding, Levels
from fareg._validation import InvalidInputError
from fareg.calibration import require

CLASSIFIERS: dict[str, Any] = {cls.__name__: cls for cls in classifiers.CLASSIFIERS}
OWN: dict[str, Any] = {cls.__name__: cls for cls in classifiers.OWN_ESTIMATORS}
ESTIMATORS: dict[str, Any] = {**CLASSIFIERS, **OWN, "GroupLearner": groups.GroupLearner}
RECORDS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (Levels, LevelCoding, *calibration.RECORDS, *groups.RECORDS, *classifiers.RECORDS)
}
DERIVED = ("parameters_",)  # fitted attributes that follow from others
FUNCTIONS: dict[str, Any] = {f"fareg.scores.{name}": f for name, f in scores.SCORES.items()}
GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
NUMERIC = "biuf"  # kinds of arrays that go to the table
COLUMN_DTYPES = ("object", "str", "string")
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has none of them


@dataclass
class Writer:
    """Turn objects into JSON, collecting arrays and foreign estimators on the way."""

    fitted: Any
    given: Any
    arrays: dict[str, Any] = field(default_factory=dict)
    parts: list[Any] = field(default_factory=list)

    def write(self, value: Any, where: str) -> Any:
        """Return ``value`` as JSON; ``where`` names it in errors."""
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int or (type(value) is float and math.isfinite(value)):
            return value
        if value is self.fitted and not is_own(value):
            return {"$": "fitted estimator"}
        if value is self.given and not is_own(value):
            return {"$": "given estimator"}
        for kinds, method in self._TABLE:
            if isinstance(value, kinds):
                return method(self, value, where)
        return self._function(value, where)

    def _list(self, value: list[Any], where: str) -> Any:
        return [self.write(item, where) for item in value]

    def _dict(self, value: dict[Any, Any], where: str) -> Any:
        if all(type(key) is str for key in value) and "$" not in value:
            return {key: self.write(item, f"{where}.{key}") for key, item in value.items()}
        pairs = [[self.write(k, where), self.write(v, where)] for k, v in value.items()]
        return {"$": "dict", "items": pairs}

    def _array(self, value: Any, where: str) -> Any:
        if value.dtype.kind in NUMERIC and value.dtype.itemsize <= 8:
            # Matrix products round by memory layout, so it is kept: answers stay equal to the bit.
            by_columns = bool(np.isfortran(value))
            name = str(len(self.arrays))
            self.arrays[name] = np.asarray(value.T if by_columns else value, order="C")
            return {"$": "array", "at": name, "shape": list(value.shape), "transposed": by_columns}
        dtype = str(value.dtype)
        if value.dtype.kind in "mM":
            return {"$": "view", "dtype": dtype, "of": self._array(value.view("i8"), where)}
        if value.dtype.kind in "OU":
            items = self._list(value.ravel().tolist(), where)
            return {"$": "values", "dtype": dtype, "shape": list(value.shape), "items": items}
        raise InvalidInputError(f"cannot save {where}: arrays of dtype {dtype} have no form")

    def _frame(self, value: pd.DataFrame, where: str) -> Any:
        rows = value.index
        return {
            "$": "frame",
            "names": [self.write(name, where) for name in value.columns],
            "columns": [self._column(column, where) for _, column in value.items()],
            "index": [rows.start, rows.stop, rows.step]
            if isinstance(rows, pd.RangeIndex)
            else self._column(pd.Series(rows), where),
            "held": dict(value.attrs.get("held", {})),
        }

    def _column(self, column: pd.Series, where: str) -> Any:
        dtype = str(column.dtype)
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in NUMERIC:
            return self._array(column.to_numpy(), where)
        if dtype not in COLUMN_DTYPES:
            raise InvalidInputError(f"cannot save {where}: columns of dtype {dtype} have no form")
        return {"dtype": dtype, "items": self._list(column.tolist(), where)}

    def _record(self, value: Any, where: str) -> Any:
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        written = {name: self.write(v, f"{where}.{name}") for name, v in fields.items()}
        return {"$": "record", "class": type(value).__name__, "fields": written}

    def _estimator(self, value: Any, where: str) -> Any:
        name = type(value).__name__
        if type(value) is not ESTIMATORS.get(name):
            self.parts.append(value)
            return {"$": "part", "at": len(self.parts) - 1}
        parameters = value.get_params(deep=False)
        known = {*parameters, *DERIVED}
        fitted = {key: v for key, v in vars(value).items() if key not in known}
        odd = [key for key in fitted if not is_fitted_name(key)]
        if odd:
            raise InvalidInputError(f"cannot save {where}: {name} has no attribute {odd[0]}")
        return {
            "$": "object",
            "class": name,
            "parameters": {k: self.write(v, k) for k, v in parameters.items()},
            "fitted": {k: self.write(v, k) for k, v in fitted.items()},
        }

    def _generator(self, value: Any, where: str) -> Any:
        bits = value.bit_generator
        if type(bits).__name__ not in GENERATORS:
            raise InvalidInputError(f"cannot save {where}: {type(bits).__name__} has no form")
        return {"$": "generator", "state": self.write(bits.state, where)}

    def _random_state(self, value: Any, where: str) -> Any:
        state = value.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":
            raise InvalidInputError(f"cannot save {where}: {state['bit_generator']} has no form")
        return {"$": "random_state", "state": self.write(state, where)}

    def _partial(self, value: Any, where: str) -> Any:
        function = self._function(value.func, where)
        arguments = [self.write(list(value.args), where), self.write(dict(value.keywords), where)]
        return {"$": "partial", "function": function, "arguments": arguments}

    def _function(self, value: Any, where: str) -> Any:
        for name, function in FUNCTIONS.items():
            if value is function:
                return {"$": "function", "name": name}
        if callable(value):
            named = getattr(value, "__qualname__", type(value).__name__)
            raise InvalidInputError(
                f"cannot save {where}={named}: a model file holds no code; use a name or a list of "
                "columns instead of a function of your own"
            )
        raise InvalidInputError(
            f"cannot save {where}: objects of type {type(value).__module__}."
            f"{type(value).__name__} have no form in a model file"
        )

    _TABLE: ClassVar[tuple[tuple[Any, Callable[..., Any]], ...]] = (
        (
            np.generic,
            lambda self, v, where: {"$": "scalar", "of": self._array(np.asarray(v), where)},
        ),
        (float, lambda self, v, where: {"$": "float", "value": str(float(v))}),
        (list, _list),
        (tuple, lambda self, v, where: {"$": "tuple", "items": self._list(list(v), where)}),
        (dict, _dict),
        (np.ndarray, _array),
        (pd.Index, lambda self, v, where: self._list(v.tolist(), where)),
        (pd.DataFrame, _frame),
        (tuple(RECORDS.values()), _record),
        (BaseEstimator, _estimator),
        (np.random.Generator, _generator),
        (np.random.RandomState, _random_state),
        (functools.partial, _partial),
    )


@dataclass
class Reader:
    """Rebuild what :class:`Writer` wrote."""

    arrays: dict[str, Any]
    parts: list[Any]
    fitted: Any
    given: Any

    def read(self, node: Any) -> Any:
        """Return the object that a JSON node stands for."""
        if isinstance(node, list):
            return [self.read(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$" not in node:
            return {key: self.read(item) for key, item in node.items()}
        return self._TABLE[node["$"]](self, node)

    def _array(self, node: dict[str, Any]) -> Any:
        array = self.arrays[node["at"]]
        array = array.T if node["transposed"] else array
        require(list(array.shape) == node["shape"], f"the shape of array {node['at']}")
        return array

    def _view(self, node: dict[str, Any]) -> Any:
        dtype = np.dtype(node["dtype"])
        require(dtype.kind in "mM", f"a view of dtype {dtype}")
        return self.read(node["of"]).view(dtype)

    def _values(self, node: dict[str, Any]) -> Any:
        dtype = np.dtype(node["dtype"])
        require(dtype.kind in "OU" and dtype.itemsize <= 1 << 20, f"an array of dtype {dtype}")
        flat = np.empty(len(node["items"]), dtype=dtype)
        for position, item in enumerate(self.read(node["items"])):
            flat[position] = item
        return flat.reshape(node["shape"])

    def _frame(self, node: dict[str, Any]) -> pd.DataFrame:
        columns = [self._column(column) for column in node["columns"]]
        frame = pd.DataFrame(dict(enumerate(columns)))
        frame.columns = pd.Index(self.read(node["names"]))
        index = node["index"]
        rows = pd.RangeIndex(*index) if isinstance(index, list) else pd.Index(self._column(index))
        frame = frame.set_axis(rows) if columns else pd.DataFrame(index=rows)
        kinds = node["held"]
        known = all(kind in HELD.values() for kind in kinds.values())
        require(known and set(kinds) <= set(frame.select_dtypes("number")), f"columns held {kinds}")
        return note_held(frame, kinds)

    def _column(self, node: dict[str, Any]) -> pd.Series:
        if "$" in node:
            return pd.Series(self._array(node))
        require(node["dtype"] in COLUMN_DTYPES, f"a column of dtype {node['dtype']}")
        return pd.Series(self.read(node["items"]), dtype=node["dtype"])

    def _record(self, node: dict[str, Any]) -> Any:
        cls = RECORDS[node["class"]]
        return cls(**{name: self.read(value) for name, value in node["fields"].items()})

    def _object(self, node: dict[str, Any]) -> Any:
        cls = ESTIMATORS[node["class"]]
        instance = cls(**{name: self.read(value) for name, value in node["parameters"].items()})
        for name, value in node["fitted"].items():
            require(is_fitted_name(name), f"the attribute {name}")
            setattr(instance, name, self.read(value))
        if node["class"] in CLASSIFIERS:
            instance.freeze_parameters()
        return instance

    def _generator(self, node: dict[str, Any]) -> Any:
        state = self.read(node["state"])
        require(state["bit_generator"] in GENERATORS, "a random generator")
        _check_positions(state)
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)

    def _random_state(self, node: dict[str, Any]) -> Any:
        generator = np.random.RandomState()
        state = self.read(node["state"])
        _check_positions(state)
        generator.set_state(state)
        return generator

    def _partial(self, node: dict[str, Any]) -> Any:
        args, keywords = self.read(node["arguments"])
        return functools.partial(FUNCTIONS[node["function"]["name"]], *args, **keywords)

    _TABLE: ClassVar[dict[str, Callable[..., Any]]] = {
        "float": lambda self, node: FLOATS[node["value"]],
        "scalar": lambda self, node: self.read(node["of"])[()],
        "tuple": lambda self, node: tuple(self.read(node["items"])),
        "dict": lambda self, node: {self.read(k): self.read(v) for k, v in node["items"]},
        "array": _array,
        "view": _view,
        "values": _values,
        "frame": _frame,
        "record": _record,
        "object": _object,
        "generator": _generator,
        "random_state": _random_state,
        "partial": _partial,
        "function": lambda self, node: FUNCTIONS[node["name"]],
        "part": lambda self, node: self.parts[node["at"]],
        "fitted estimator": lambda self, node: self.fitted,
        "given estimator": lambda self, node: self.given,
    }


def _check_positions(state: dict[str, Any]) -> None:
    """Refuse a generator that would read outside its memory, because numpy does not check it."""
    position, in_buffer = state["state"].get("pos", 0), state.get("buffer_pos", 0)
    within = 0 <= position <= 624 and 0 <= in_buffer <= 4  # the bounds of MT19937 and of Philox
    require(within, "the position of a random generator")


def is_own(estimator: Any) -> bool:
    """Tell whether an estimator is written as plain values, without a file of skops."""
    return type(estimator) is OWN.get(type(estimator).__name__)


def is_fitted_name(name: str) -> bool:
    """Tell scikit-learn's names of fitted attributes: ``classes_``, but nothing private."""
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")
