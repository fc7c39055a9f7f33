"""Files of skops: read by our shapes, or by skops if the user trusts every type in them.

skops makes objects of any class, gives them any attributes and calls what it finds, so one of its
files can run code, whatever it claims to hold. Such a file has arrays and a tree of JSON nodes,
each with the name of its reader and of a class. :class:`SkopsFile` reads nodes of data, and makes
estimators by the shapes of ``_shapes``. skops itself reads a file with any other node, and only if
the user trusts its types by name. These names are read from the JSON, without importing or making
anything.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from fareg._files import AnyPath, check_readable
from fareg._validation import FaregError, InvalidInputError, require
from fareg._words import first_line, printable
from fareg.persistence._checks import rounds_arrays, tree_arrays
from fareg.persistence._codec import MAX_DEPTH
from fareg.persistence._shapes import FUNCTIONS, NAMED, NOT_STORED, SHAPES, TYPES

FREE_BYTES = 1 << 22  # any file may unpack to so many bytes; parsed JSON takes 40 times as many
MAX_RATIO = 200  # additional unpacked bytes per byte of the file
NUMBERS = [
    f"numpy.{np.dtype(code).type.__name__}" for code in np.typecodes["All"] if code not in "VO"
]
PLAIN = [f"builtins.{name}" for name in ("NoneType", "bool", "float", "int", "str")]
# Nodes that are data, by their readers; the types that they may name need no trust.
DATA: dict[str, Collection[str]] = {
    "CachedNode": PLAIN,
    "DictNode": ["builtins.dict"],
    "DTypeNode": ["numpy.dtype"],
    "JsonNode": PLAIN,
    "ListNode": ["builtins.list"],
    "NdArrayNode": ["numpy.ndarray", *NUMBERS],
    "SliceNode": ["builtins.slice"],
    "TupleNode": ["builtins.tuple"],
    "TypeNode": [*PLAIN, *NUMBERS],
}
KEYS = {"builtins.str": str, "builtins.int": int}  # types of the keys of a dict
# In these files, functions are named by the modules that define them.
DEFINED = {
    "numpy." + f.__name__ if isinstance(f, np.ufunc) else f"{f.__module__}.{f.__name__}": f
    for f in FUNCTIONS.values()
    if hasattr(f, "__name__")
}
DEFINED |= {  # as numpy 1 calls them
    f"numpy.core._multiarray_umath.{f.__name__}": f
    for f in FUNCTIONS.values()
    if isinstance(f, np.ufunc)
}


class UntrustedTypesError(InvalidInputError):
    """A stored estimator holds types that the user has not trusted, listed in ``names``."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [printable(name) for name in names]
        super().__init__(
            f"the estimator holds types that are not trusted: {', '.join(self.names)}; trusting "
            "them runs their code: if you know them and who wrote the file, load(path, "
            f"trusted={self.names}), or pass load(path, estimator=your_model)"
        )


def dump(estimators: list[Any]) -> bytes:
    """Return estimators in the format of skops, after a check that they can be read again."""
    import skops.io

    packed: bytes = skops.io.dumps(estimators, compression=zipfile.ZIP_DEFLATED, compresslevel=6)
    if _is_too_large(packed):
        packed = skops.io.dumps(estimators)
    load(packed, named_types(packed))
    return packed


def load(packed: bytes, trusted: Collection[str] = ()) -> Any:
    """Rebuild what skops stored, if every type in it is trusted. This runs code in the file."""
    if unknown := [name for name in named_types(packed) if name not in trusted]:
        raise UntrustedTypesError(unknown)
    import skops.io

    try:
        return skops.io.loads(packed, trusted=skops.io.get_untrusted_types(data=packed))
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"a trusted type is not installed here, or in another version: {first_line(error)}"
        ) from error


def named_types(packed: bytes) -> list[str]:
    """Return the names of the classes and functions in a skops file that need trust.

    >>> import skops.io
    >>> from sklearn.dummy import DummyClassifier
    >>> named_types(skops.io.dumps([DummyClassifier(), 1.0, "a"]))
    ['sklearn.dummy.DummyClassifier']
    """
    _check_size(packed)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        root = json.loads(archive.read("schema.json"))
    names = set()
    for node in nodes(root):
        loader = node.get("__loader__")  # the outermost dict also holds versions, without a loader
        if loader is not None and (name := _name(node)) not in DATA.get(loader, ()):
            names.add(f"{name}.{node['content']['func']}" if loader == "MethodNode" else name)
    return sorted(names)


def nodes(root: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict in nested JSON."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack += node.values()
        elif isinstance(node, list):
            stack += node


def read_estimator(path: AnyPath, trusted: Collection[str] = ()) -> Any:
    """Read an estimator from a file of ``skops.io.dump``; only known or trusted types are made.

    Parameters
    ----------
    path : path of the file
    trusted : list of str, default=()
        Names of further types that it may hold, beyond those that need no trust. Their code runs.

    Examples
    --------
    >>> import skops.io, tempfile
    >>> from sklearn.dummy import DummyClassifier
    >>> path = tempfile.mkdtemp() + "/model.skops"
    >>> skops.io.dump(DummyClassifier().fit([[0.0], [1.0]], [0, 1]), path)
    >>> read_estimator(path).classes_.tolist()
    [0, 1]
    """
    content = check_readable(path).read_bytes()
    try:
        _check_size(content)
        with suppress(Exception):  # skops reads what our shapes do not know
            return SkopsFile(content).read()
        return load(content, trusted)
    except (FaregError, MemoryError):
        raise
    except Exception as error:  # any byte may be wrong, so anything may fail
        raise InvalidInputError(
            f"{path} cannot be read as a skops file, or does not fit the installed libraries: "
            f"{first_line(error)}; write it again with skops.io.dump(model, path)"
        ) from error


def _check_size(packed: bytes) -> None:
    if _is_too_large(packed):
        raise ValueError("an estimator unpacks to far more bytes than are plausible")


def _is_too_large(packed: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        n_bytes = sum(info.file_size for info in archive.infolist())
    return n_bytes > FREE_BYTES + MAX_RATIO * len(packed)


class SkopsFile:
    """An open skops file; nodes with the same id are one object."""

    def __init__(self, packed: bytes) -> None:
        self.archive = zipfile.ZipFile(io.BytesIO(packed))
        self.made: dict[Any, Any] = {}
        self.depth = 0

    def read(self) -> Any:
        """Return the estimator in the file."""
        return self.make(json.loads(self.archive.read("schema.json")))

    def make(self, node: dict[str, Any]) -> Any:
        """Return the object of a node."""
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
        return {"builtins.list": list, "builtins.tuple": tuple}[_name(node)](
            self.make(item) for item in node["content"]
        )

    def _dict(self, node: dict[str, Any]) -> Any:
        kinds = [KEYS[_name(kind)] for kind in node["key_types"]["content"]]
        items = zip(kinds, node["content"].items(), strict=True)
        return {kind(key): self.make(value) for kind, (key, value) in items}

    def _array(self, node: dict[str, Any]) -> Any:
        if node["type"] != "json":
            array = _numbers(self.archive.read(node["file"]))
            return array if node["__class__"] == "ndarray" else array[()]
        shape = self.make(node["shape"])
        items = [self.make(item) for item in node["content"]]
        rows = items if len(shape) == 1 else [item for row in items for item in row]
        array = np.empty(len(rows), dtype=object)
        array[:] = rows
        return array.reshape(shape)

    def _object(self, node: dict[str, Any]) -> Any:
        """Make an estimator, and read only the attributes that its shape stores."""
        shape = SHAPES[node["__class__"]]
        require(node["__module__"] == shape.cls.__module__, f"a {node['__class__']}")
        content = dict(node["content"]["content"])
        state = {name: self.make(content.pop(name)) for name in shape.defaults}
        ignored = vars(shape.cls(**state)).keys() | NOT_STORED | {"_sklearn_version"}
        for name in [name for name in content if name not in ignored]:
            state[name] = self._part(shape.kind(name), content[name])
        return shape.make(state)

    def _part(self, kind: str, node: dict[str, Any]) -> Any:
        """Return an attribute as a shape stores it: trees and rounds of boosting as arrays."""
        if kind == "tree":
            n_features, _, n_outputs = self.make(node["__reduce__"]["args"])
            return tree_arrays(n_features, n_outputs, self.make(node["content"]))
        if kind == "rounds":
            rounds = [[tree["content"] for tree in trees["content"]] for trees in node["content"]]
            return rounds_arrays([[SimpleNamespace(**self.make(t)) for t in r] for r in rounds])
        return self.make(node)

    _TABLE: ClassVar[dict[str, Callable[..., Any]]] = {
        "DTypeNode": lambda self, node: NAMED[f"dtype {self.make(node['content']).dtype.name}"],
        "DictNode": _dict,
        "FunctionNode": lambda self, node: DEFINED[_name(node)],
        "JsonNode": _value,
        "ListNode": _list,
        "NdArrayNode": _array,
        "ObjectNode": _object,
        "RandomStateNode": lambda self, node: None,  # prediction draws no random numbers
        "SliceNode": lambda self, node: slice(
            *(node["content"][name] for name in ("start", "stop", "step"))
        ),
        "TupleNode": _list,
        "TypeNode": lambda self, node: TYPES[_name(node).removeprefix("builtins.")],
    }


def _name(node: dict[str, Any]) -> str:
    return f"{node.get('__module__')}.{node.get('__class__')}"


def _numbers(content: bytes) -> Any:
    """Return the array in a numpy file, which must have as many bytes as its header says."""
    file = io.BytesIO(content)
    major, _ = np.lib.format.read_magic(file)
    readers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    shape, by_columns, dtype = readers[major](file)
    require(not dtype.hasobject, "an array")
    flat = np.frombuffer(content, dtype=dtype, offset=file.tell()) if dtype.itemsize else ()
    return np.array(flat).reshape(shape, order="F" if by_columns else "C")
