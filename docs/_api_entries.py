"""Prepares docstrings for the API page; only ``mkdocs.yml`` uses it.

The page takes type and default of a parameter from its entry or else from the signature, but gives
all names of a shared entry (``alpha, beta``) those of the first one, and shows roles such as
``:class:`` unchanged. Here every name gets its own entry, and roles become code.
"""

from __future__ import annotations

import re
from typing import Any

try:
    from griffe import Extension
except ImportError:  # the tests read this file without the tools of the documentation
    Extension = object

ROLE = re.compile(r":(?:class|func|meth|mod|attr):`~?([^`]+)`")
SECTION = re.compile(r"^(\s*)(\w[\w ]*)\n\1-{3,}$", re.MULTILINE)
SHARED = re.compile(r"^(?P<indent> *)(?P<names>\w+(?:, \w+)+)(?: : (?P<type>.*))?$")


def prepared(text: str) -> str:
    """Return a docstring whose parameters have an entry each, and without roles.

    Examples
    --------
    >>> print(prepared('''Parameters
    ... ----------
    ... alpha, beta : float, default=1 and 2
    ...     See :func:`levels`.'''))
    Parameters
    ----------
    alpha : float
        See `levels`.
    beta : float
        See `levels`.
    """
    text = ROLE.sub(r"`\1`", text)
    heads = [*SECTION.finditer(text)]
    end = len(text)
    for head in reversed(heads):
        if head.group(2) == "Parameters":
            entries = _split_entries(text[head.end() : end].split("\n"))
            text = text[: head.end()] + "\n".join(entries) + text[end:]
        end = head.start()
    return text


def _split_entries(lines: list[str]) -> list[str]:
    out: list[str] = []
    position = 0
    while position < len(lines):
        entry = SHARED.match(lines[position])
        position += 1
        if entry is None:
            out.append(lines[position - 1])
            continue
        inner = entry["indent"] + " "
        start = position
        while position < len(lines) and (lines[position].startswith(inner) or not lines[position]):
            position += 1
        kind = (entry["type"] or "").split(", default")[0]  # each name has its own default
        for name in entry["names"].split(", "):
            out += [entry["indent"] + name + (f" : {kind}" if kind else ""), *lines[start:position]]
    return out


class ApiEntries(Extension):
    """Prepares the docstring of every object that is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = prepared(obj.docstring.value)
