"""Files of skops that hold nothing unusual, read without skops.

Importing skops takes longer than reading a model, because it lists all estimators of scikit-learn.
Its files are trees of nodes in JSON, each with its kind and the name of a type, and arrays beside
them. This reader knows the kinds of nodes that the default models are made of. It looks at all
nodes before it makes anything: where one is of another kind, or names what is not trusted, it
reads nothing and leaves the file to skops.
"""

from __future__ import annotations

import inspect
import io
import json
import zipfile
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from fareg.calibration import require
from fareg.persistence._recipes import reachable
from fareg.persistence._trust import NUMPY_SCALARS, found, is_shipped, is_trusted

PROTOCOL = 2  # the version of skops' format that is read here
BUILTINS = ("bool", "float", "int", "list", "object", "str", "tuple")
LOSSES = ("sklearn._loss._loss.CyHalfBinomialLoss", "sklearn._loss._loss.CyHalfMultinomialLoss")
KEYS = (str, int)  # types of the keys of a dict
POOL_SIZE = 4  # words in a seed sequence of numpy, unless someone asks for more


class UnfamiliarError(Exception):
    """Something in a file is unusual or not trusted, and nothing was made of it."""


def read_familiar(packed: bytes) -> Any:
    """Return what a file of skops holds, if all of it is familiar and trusted."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        root = json.loads(archive.read("schema.json"))
        if root.get("protocol") != PROTOCOL:
            raise UnfamiliarError
        for node in reachable(root):
            if isinstance(node, dict) and "__loader__" in node:
                kind = FAMILIAR.get(node["__loader__"])
                if kind is None or not kind(f"{node['__module__']}.{node['__class__']}"):
                    raise UnfamiliarError
        return _Maker(archive).make(root)


@cache
def _is_class(name: str) -> bool:
    own = name.startswith("fareg.") and is_trusted(name)
    return (own or is_shipped(name)) and inspect.isclass(found(name))


@cache
def _is_function(name: str) -> bool:
    return is_trusted(name) and inspect.isfunction(found(name))


# Which names may stand in a node of each kind.
FAMILIAR: dict[str, Callable[[str], bool]] = {
    "DTypeNode": "numpy.dtype".__eq__,
    "DictNode": "builtins.dict".__eq__,
    "FunctionNode": _is_function,
    "JsonNode": lambda name: True,
    "ListNode": "builtins.list".__eq__,
    "LossNode": LOSSES.__contains__,
    "NdArrayNode": (NUMPY_SCALARS | {"numpy.ndarray"}).__contains__,
    "ObjectNode": _is_class,
    "PartialNode": "functools.partial".__eq__,
    "RandomGeneratorNode": "numpy.random._generator.Generator".__eq__,
    "SliceNode": "builtins.slice".__eq__,
    "TupleNode": "builtins.tuple".__eq__,
    "TypeNode": NUMPY_SCALARS.union(f"builtins.{name}" for name in BUILTINS).__contains__,
}


class _Maker:
    """Make objects from nodes; nodes with one id stand for one object."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.made: dict[Any, Any] = {}

    def make(self, node: dict[str, Any]) -> Any:
        """Return what a node stands for."""
        key = node.get("__id__")
        if key not in self.made:
            self.made[key] = getattr(self, f"_{node['__loader__']}")(node)
        return self.made[key]

    def _DTypeNode(self, node: dict[str, Any]) -> Any:
        return self.make(node["content"]).dtype

    def _DictNode(self, node: dict[str, Any]) -> Any:
        kinds = self.make(node["key_types"])
        require(all(kind in KEYS for kind in kinds), "the keys of a dict")
        items = zip(kinds, node["content"].items(), strict=True)
        return {kind(key): self.make(value) for kind, (key, value) in items}

    def _FunctionNode(self, node: dict[str, Any]) -> Any:
        return found(f"{node['__module__']}.{node['__class__']}")

    def _JsonNode(self, node: dict[str, Any]) -> Any:
        return json.loads(node["content"])

    def _ListNode(self, node: dict[str, Any]) -> Any:
        return [self.make(item) for item in node["content"]]

    def _LossNode(self, node: dict[str, Any]) -> Any:
        parts = self.make(node["__reduce__"]["args"]), self.make(node["content"])
        require(not any(parts), "a loss")
        return self._FunctionNode(node)()

    def _NdArrayNode(self, node: dict[str, Any]) -> Any:
        if node["type"] == "json":
            items = [self.make(item) for item in node["content"]]
            if len(self.make(node["shape"])) != 1:
                return np.array(items, dtype=object)
            array = np.empty(len(items), dtype=object)
            array[:] = items
            return array
        content = io.BytesIO(self.archive.read(node["file"]))
        array = np.lib.format.read_array(content, allow_pickle=False)
        return array if node["__class__"] == "ndarray" else getattr(np, node["__class__"])(array)

    def _ObjectNode(self, node: dict[str, Any]) -> Any:
        cls = self._FunctionNode(node)
        thing = cls.__new__(cls)
        state = self.make(node["content"]) if node.get("content") is not None else None
        if state is not None and hasattr(thing, "__setstate__"):
            thing.__setstate__(state)
        elif state is not None:
            vars(thing).update(state)
        return thing

    def _PartialNode(self, node: dict[str, Any]) -> Any:
        parts = (self.make(node["content"][name]) for name in ("func", "args", "kwds", "namespace"))
        function, args, options, namespace = parts
        require(inspect.isfunction(function) and not namespace, "a partial function")
        return partial(function, *args, **options)

    def _RandomGeneratorNode(self, node: dict[str, Any]) -> Any:
        state, seed = (self.make(node["content"][name]) for name in ("bit_generator", "seed_seq"))
        known = state["bit_generator"] == "PCG64" and seed["pool_size"] == POOL_SIZE
        require(known, "a random generator")
        bits = np.random.PCG64(np.random.SeedSequence(**seed))
        bits.state = state
        return np.random.Generator(bits)

    def _SliceNode(self, node: dict[str, Any]) -> Any:
        return slice(*(node["content"][name] for name in ("start", "stop", "step")))

    def _TupleNode(self, node: dict[str, Any]) -> Any:
        return tuple(self._ListNode(node))

    _TypeNode = _FunctionNode
