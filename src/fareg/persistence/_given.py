"""Files of ``skops.io.dump`` read by our own shapes, without skops.

Such a file is a tree of nodes in JSON, each with the name of its reader and of a class, and arrays
beside them. Nodes of data are read here, estimators are made by the shapes of ``_shapes``. Of an
estimator only the attributes that its shape stores are looked at. A file with any other node raises
an error, and is left to skops and to those who trust it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from fareg._validation import require
from fareg.persistence._codec import random_state
from fareg.persistence._kinds import DTYPES, FUNCTIONS, TYPES
from fareg.persistence._shapes import APART, LEFT_OUT, SHAPES
from fareg.persistence._trees import record_fields, rounds_arrays

KEYS = {"builtins.str": str, "builtins.int": int}  # types of the keys of a dict
MAX_DEPTH = 100  # nodes inside each other


class SkopsFile:
    """An opened file of skops; nodes with one id stand for one object."""

    def __init__(self, packed: bytes) -> None:
        self.archive = zipfile.ZipFile(io.BytesIO(packed))
        self.made: dict[Any, Any] = {}
        self.depth = 0

    def read(self) -> Any:
        """Return the estimator in the file."""
        return self.make(json.loads(self.archive.read("schema.json")))

    def make(self, node: dict[str, Any]) -> Any:
        """Return what a node stands for."""
        key = node.get("__id__")
        if key is None or key not in self.made:
            self.depth += 1
            require(self.depth <= MAX_DEPTH, "the depth of its parts")
            self.made[key] = self._TABLE[node["__loader__"]](self, node)
            self.depth -= 1
        return self.made[key]

    def _value(self, node: dict[str, Any]) -> Any:
        value = json.loads(node["content"])
        require(value is None or isinstance(value, str | int | float), "a value")
        return value

    def _list(self, node: dict[str, Any]) -> Any:
        require(_name(node) == "builtins.list", "a list")
        return [self.make(item) for item in node["content"]]

    def _tuple(self, node: dict[str, Any]) -> Any:
        require(_name(node) == "builtins.tuple", "a tuple")
        return tuple(self.make(item) for item in node["content"])

    def _dict(self, node: dict[str, Any]) -> Any:
        kinds = [KEYS[_name(kind)] for kind in node["key_types"]["content"]]
        items = zip(kinds, node["content"].items(), strict=True)
        return {kind(key): self.make(value) for kind, (key, value) in items}

    def _slice(self, node: dict[str, Any]) -> Any:
        return slice(*(node["content"][name] for name in ("start", "stop", "step")))

    def _type(self, node: dict[str, Any]) -> Any:
        return TYPES[_name(node).removeprefix("builtins.")]

    def _dtype(self, node: dict[str, Any]) -> Any:
        return DTYPES[self.make(node["content"]).dtype.name]

    def _function(self, node: dict[str, Any]) -> Any:
        named = {f"{f.__module__}.{f.__name__}": f for f in FUNCTIONS.values() if _is_plain(f)}
        ufuncs = {f"numpy.{f.__name__}": f for f in FUNCTIONS.values() if isinstance(f, np.ufunc)}
        return {**named, **ufuncs}[_name(node)]

    def _random_state(self, node: dict[str, Any]) -> Any:
        return random_state(self.make(node["content"]))

    def _array(self, node: dict[str, Any]) -> Any:
        if node["type"] == "json":
            shape = self.make(node["shape"])
            items = [self.make(item) for item in node["content"]]
            rows = items if len(shape) == 1 else [item for row in items for item in row]
            array = np.empty(len(rows), dtype=object)
            array[:] = rows
            return array.reshape(shape)
        array = _numbers(self.archive.read(node["file"]))
        return array if node["__class__"] == "ndarray" else array[()]

    def _object(self, node: dict[str, Any]) -> Any:
        shape = SHAPES[node["__class__"]]
        require(node["__module__"] == shape.cls.__module__, f"a {node['__class__']}")
        content = dict(node["content"]["content"])
        own = {name: self.make(content.pop(name)) for name in shape.defaults}
        made_anew = vars(shape.cls(**own)).keys() | LEFT_OUT | {"_sklearn_version"}
        state = {}
        for name, value in content.items():
            if name not in made_anew:
                kind = shape.kind(name)
                state[name] = self._apart(kind, value) if kind in APART else self.make(value)
        return shape.make({**own, **state})

    def _apart(self, kind: str, node: dict[str, Any]) -> Any:
        """Return the arrays of a tree, or of the rounds of histogram gradient boosting."""
        if kind == "tree":
            n_features, _, n_outputs = self.make(node["__reduce__"]["args"])
            state = self.make(node["content"])
            require(n_outputs == 1, "the outputs of a tree")
            nodes, values = record_fields(state["nodes"]), state["values"]
            depth = state["max_depth"]
            return {"n_features": n_features, "depth": depth, "nodes": nodes, "values": values}
        rounds = [
            [self.make(tree["content"]) for tree in one["content"]] for one in node["content"]
        ]
        return rounds_arrays([[SimpleNamespace(**tree) for tree in one] for one in rounds])

    _TABLE: ClassVar[dict[str, Callable[..., Any]]] = {
        "DTypeNode": _dtype,
        "DictNode": _dict,
        "FunctionNode": _function,
        "JsonNode": _value,
        "ListNode": _list,
        "NdArrayNode": _array,
        "ObjectNode": _object,
        "RandomStateNode": _random_state,
        "SliceNode": _slice,
        "TupleNode": _tuple,
        "TypeNode": _type,
    }


def _name(node: dict[str, Any]) -> str:
    return f"{node['__module__']}.{node['__class__']}"


def _is_plain(function: Any) -> bool:
    return hasattr(function, "__module__") and hasattr(function, "__name__")


def _numbers(content: bytes) -> Any:
    """Return the array in a file of numpy, which has exactly as many bytes as its header tells."""
    file = io.BytesIO(content)
    major, _ = np.lib.format.read_magic(file)
    readers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    shape, by_columns, dtype = readers[major](file)
    require(not dtype.hasobject, "an array")
    flat = np.frombuffer(content, dtype=dtype, offset=file.tell()) if dtype.itemsize else ()
    return np.array(flat).reshape(shape, order="F" if by_columns else "C")
