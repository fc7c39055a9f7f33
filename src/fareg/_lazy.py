"""Public names that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names live in its modules.

    ``modules`` maps each module to its public names; a module's own name gives the module itself.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name]}")
        value = module if name == homes[name] else getattr(module, name)
        vars(sys.modules[package])[name] = value  # the next lookup skips this function
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
