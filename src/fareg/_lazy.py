"""Public names that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names live in other modules.

    ``homes`` maps each public name to its module; a name that is a module itself has its own path.

    >>> find, names = lazy_names("fareg", {"pvalues": "fareg.pvalues"})
    >>> find("pvalues").__name__, "pvalues" in names()
    ('fareg.pvalues', True)
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(home)
        value = module if home == f"{package}.{name}" else getattr(module, name)
        vars(sys.modules[package])[name] = value  # the next use finds it without this function
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
