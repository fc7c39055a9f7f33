"""Estimators without a shape of their own, stored by skops and read only if they are trusted.

skops makes objects of any class, fills them with any attributes and calls what it finds, so a file
of its can run code, whatever it claims to hold. It is read only if every class and function in it
was trusted by name. The names are read from its text, without importing or making anything.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fareg._files import AnyPath, check_readable
from fareg._validation import FaregError, InvalidInputError
from fareg._words import first_line, printable
from fareg.persistence._given import SkopsFile

FREE_BYTES = 1 << 22  # bytes that any part may unfold to; parsed JSON takes forty times as many
MAX_RATIO = 200  # further bytes that a file may unfold to, for each of its own
NUMBERS = [
    f"numpy.{np.dtype(code).type.__name__}" for code in np.typecodes["All"] if code not in "VO"
]
PLAIN = [f"builtins.{name}" for name in ("NoneType", "bool", "float", "int", "str")]
# Nodes that are data, by their readers: what they name needs no trust.
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


class UntrustedTypesError(InvalidInputError):
    """A stored estimator holds types that nobody trusted; ``names`` are theirs."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [printable(name) for name in names]
        super().__init__(
            f"the estimator holds types that are not trusted: {', '.join(self.names)}; trusting "
            "them runs their code: if you know them and who wrote the file, load(path, "
            f"trusted={self.names}), or pass load(path, estimator=your_model)"
        )


def _skops_io() -> Any:
    """Import skops without torch.

    skops lists scikit-learn's estimators by importing every module of scikit-learn; three of these
    wrap array libraries that take seconds to load and have no say here. Only the wrappers are kept
    out, so another thread may import torch itself meanwhile.

    skops also looks for scipy's functions in all modules, in the order of their import. So fareg
    imports ``scipy.special`` before pandas and scikit-learn, and skops loads in half the time.
    """
    wrappers = [f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask", "cupy")]
    unneeded = () if "skops.io" in sys.modules else wrappers
    blocked = [name for name in unneeded if name not in sys.modules]
    try:
        # A module that is None cannot be imported.
        sys.modules.update(dict.fromkeys(blocked))  # type: ignore[arg-type]
        import skops.io
    finally:
        for name in blocked:
            sys.modules.pop(name, None)
    return skops.io


def dump(estimators: list[Any]) -> bytes:
    """Return estimators in the format of skops, after proof that they can be read back."""
    skops_io = _skops_io()
    packed: bytes = skops_io.dumps(estimators, compression=zipfile.ZIP_DEFLATED, compresslevel=6)
    if _unfolds_too_far(packed):
        packed = skops_io.dumps(estimators)
    load(packed, types(packed))
    return packed


def load(packed: bytes, trusted: Collection[str] = ()) -> Any:
    """Rebuild what skops stored, if everything in it is trusted. This runs its code."""
    unknown = [name for name in types(packed) if name not in trusted]
    if unknown:
        raise UntrustedTypesError(unknown)
    skops_io = _skops_io()
    try:
        names = skops_io.get_untrusted_types(data=packed)
        return skops_io.loads(packed, trusted=names)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"a trusted type is not installed here, or in another version: {first_line(error)}"
        ) from error


def types(packed: bytes) -> list[str]:
    """Return the names of the classes and functions in a skops file, which are all to be trusted.

    >>> import skops.io
    >>> from sklearn.dummy import DummyClassifier
    >>> types(skops.io.dumps([DummyClassifier(), 1.0, "a"]))
    ['sklearn.dummy.DummyClassifier']
    """
    _check_size(packed)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        root = json.loads(archive.read("schema.json"))
    named = set()
    for node in nodes(root):
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        loader = node.get("__loader__")
        # The first level of the file tells versions next to its own node.
        if loader is not None and name not in DATA.get(loader, ()):
            named.add(f"{name}.{node['content']['func']}" if loader == "MethodNode" else name)
    return sorted(named)


def nodes(root: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict in nested JSON."""
    stack = [root]
    while stack:
        thing = stack.pop()
        if isinstance(thing, dict):
            yield thing
            stack += thing.values()
        elif isinstance(thing, list):
            stack += thing


def read_estimator(path: AnyPath, trusted: Collection[str] = ()) -> Any:
    """Read an estimator from a file of ``skops.io.dump``; only known or trusted types are made.

    Parameters
    ----------
    path : path of the file
    trusted : list of str, default=()
        Types that it may hold besides those that model files hold without trust. Their code runs.

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
        with suppress(Exception):  # what is not known here is left to skops
            return SkopsFile(content).read()
        return load(content, trusted)
    except (FaregError, MemoryError):
        raise
    except Exception as error:  # any byte may be wrong, so anything may fail
        raise InvalidInputError(
            f"{path} cannot be read as a file of skops, or does not fit the installed libraries: "
            f"{first_line(error)}; write it again with skops.io.dump(model, path)"
        ) from error


def _check_size(packed: bytes) -> None:
    if _unfolds_too_far(packed):
        raise ValueError("an estimator unfolds to far more bytes than are plausible")


def _unfolds_too_far(packed: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        unfolded = sum(info.file_size for info in archive.infolist())
    return unfolded > FREE_BYTES + MAX_RATIO * len(packed)
