"""Files of ``skops.io.dump`` read by our own shapes, without skops.

Such a file is a tree of nodes in JSON, each with the name of its reader and of a class, and arrays
next to them. Nodes of data are read here, estimators are made by the shapes of ``_shapes``. Of an
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
from fareg.persistence._checks import record_fields, rounds_arrays
from fareg.persistence._codec import MAX_DEPTH, generator
from fareg.persistence._kinds import FUNCTIONS, NAMED, TYPES
from fareg.persistence._shapes import LEFT_OUT, SHAPES

KEYS = {"builtins.str": str, "builtins.int": int}  # types of the keys of a dict
# Functions have other names in these files: those of the modules that define them.
PLAIN = {
    "numpy." + f.__name__ if isinstance(f, np.ufunc) else f"{f.__module__}.{f.__name__}": f
    for f in FUNCTIONS.values()
    if hasattr(f, "__name__")
}


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
        require(_name(node) in ("builtins.list", "builtins.tuple"), "a list")
        items = [self.make(item) for item in node["content"]]
        return items if node["__class__"] == "list" else tuple(items)

    def _dict(self, node: dict[str, Any]) -> Any:
        kinds = [KEYS[_name(kind)] for kind in node["key_types"]["content"]]
        items = zip(kinds, node["content"].items(), strict=True)
        return {kind(key): self.make(value) for kind, (key, value) in items}

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
        stored = {name: value for name, value in content.items() if name not in made_anew}
        return shape.make(
            {**own, **{name: self._part(shape, name, stored[name]) for name in stored}}
        )

    def _part(self, shape: Any, name: str, node: dict[str, Any]) -> Any:
        """Return an attribute as a shape stores it: trees and rounds of boosting as arrays."""
        kind = shape.kind(name)
        if kind == "tree":
            n_features, _, n_outputs = self.make(node["__reduce__"]["args"])
            state = self.make(node["content"])
            require(n_outputs == 1, "the outputs of a tree")
            nodes, values = record_fields(state["nodes"]), state["values"]
            depth = state["max_depth"]
            return {"n_features": n_features, "depth": depth, "nodes": nodes, "values": values}
        if kind == "rounds":
            return rounds_arrays(
                [
                    [SimpleNamespace(**self.make(tree["content"])) for tree in one["content"]]
                    for one in node["content"]
                ]
            )
        return self.make(node)

    _TABLE: ClassVar[dict[str, Callable[..., Any]]] = {
        "DTypeNode": lambda self, node: NAMED[f"dtype {self.make(node['content']).dtype.name}"],
        "DictNode": _dict,
        "FunctionNode": lambda self, node: PLAIN[_name(node)],
        "JsonNode": _value,
        "ListNode": _list,
        "NdArrayNode": _array,
        "ObjectNode": _object,
        "RandomStateNode": lambda self, node: generator("RandomState", self.make(node["content"])),
        "SliceNode": lambda self, node: slice(
            *(node["content"][name] for name in ("start", "stop", "step"))
        ),
        "TupleNode": _list,
        "TypeNode": lambda self, node: TYPES[_name(node).removeprefix("builtins.")],
    }


def _name(node: dict[str, Any]) -> str:
    return f"{node['__module__']}.{node['__class__']}"


def _numbers(content: bytes) -> Any:
    """Return the array in a file of numpy, which has exactly as many bytes as its header says."""
    file = io.BytesIO(content)
    major, _ = np.lib.format.read_magic(file)
    readers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    shape, by_columns, dtype = readers[major](file)
    require(not dtype.hasobject, "an array")
    flat = np.frombuffer(content, dtype=dtype, offset=file.tell()) if dtype.itemsize else ()
    return np.array(flat).reshape(shape, order="F" if by_columns else "C")
