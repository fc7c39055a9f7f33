"""Turn a summary into a page: draw figures, fill the template, embed the numbers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from fareg import _words
from fareg.report import _figures

HEAD = ("Group", "Rows", "Covered", "95% interval", "Labels per set", "One label", "No label")
MAX_NAME = 44  # characters of a group in a text table
FORMATS = (
    "percent", "probability", "confidence", "count", "rows", "size", "risk", "evidence", "remarks",
    "group_name", "tested_on",
)  # fmt: skip


def render_report(summary: Mapping[str, Any]) -> str:
    """Return a summary as one HTML page that needs no other file.

    A summary has plain JSON types; the README next to this module lists its keys, and
    ``AuditResult.to_dict()`` returns one. A section without its key is left out. Texts are escaped,
    and the numbers are embedded as JSON.
    """
    environment = _environment()
    script = _source(environment, "report.js")
    return str(
        environment.get_template("report.html").render(
            s=summary,
            confidence_level=float(summary["data"]["confidence_level"]),
            figures=_figures,
            style=Markup(_source(environment, "report.css")),
            script=Markup(script),
            # The page's security policy allows only the script with this digest.
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            numbers=embedded_json(summary),
        )
    )


def render_card(card: Mapping[str, Any]) -> str:
    """Return a small piece of HTML for notebooks, with its own styles and without scripts.

    A card has a ``title``, ``facts`` and a ``sentence``. It may have the ``label``, ``status`` and
    ``next_steps`` of a verdict, a table of texts (``head``, ``rows``), a ``note``, ``code``, and a
    picture with its ``caption``: coverage by level of disadvantage (``levels``, as in the rows of
    ``story``) or of a group (``picture``), both with the promised ``confidence_level``.
    """
    environment = _environment()
    style = Markup(_source(environment, "card.css"))
    template = environment.get_template("card.html")
    return str(template.render(card=card, figures=_figures, style=style))


def render_markdown(summary: Mapping[str, Any], *, as_card: bool = False) -> str:
    """Return title, promise, verdict, next steps and the first table as Markdown.

    A section of a model card begins with YAML, as Hugging Face reads it: the task and the measured
    coverage, for ``model-index``.
    """
    environment = _environment()
    environment.autoescape = False  # Markdown is escaped by safe_text
    environment.filters["safe_text"] = _safe
    environment.filters["code"] = _in_code
    template = environment.get_template("audit.md")
    rows = [table_cells(row) for row in findings_first(summary["table"])]
    return str(template.render(s=summary, as_card=as_card, head=HEAD, rows=rows)) + "\n"


def text_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the first table as lines of text."""
    cells = [list(HEAD), *(table_cells(row, MAX_NAME) for row in findings_first(rows))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        right = (f"{text:>{width}}" for text, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([f"  {first:<{widths[0]}}", *right]))
    return lines


def findings_first(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Put the findings of the first table directly under everyone."""
    return sorted(rows, key=lambda row: {"everyone": 0, "finding": 1}.get(row["kind"], 2))


def table_cells(row: Mapping[str, Any], most: int | None = None) -> list[str]:
    """Return a row of the first table as texts, with at most ``most`` characters of a group."""
    interval = _words.TOO_FEW if row["few"] else _words.interval(row["low"], row["high"])
    name = row["group"] if row["kind"] == "label" else _words.group_name(row["group"])
    name = name if most is None else _words.shortened(name, most)
    if row["kind"] == "finding":
        name = f"{name} (found, {_words.tested_on(row)})"
    texts = {"label": f"true label {name}", "unequal": f"{name} (larger sets)"}
    name = texts.get(row["kind"], name)
    numbers = [_words.count(row.get("n_rows", row["n"])), _words.percent(row["coverage"]), interval]
    shares = (_words.percent(row[key]) for key in ("singletons", "empty"))
    return [name, *numbers, _words.size(row["mean_size"]), *shares]


def _safe(text: Any) -> str:
    """Return text in which nothing is markup, because names come from tables."""
    text = re.sub(r"([\\`*_\[\]|])", r"\\\1", str(text))
    return _words.printable(str(escape(text)).replace("&#34;", '"').replace("&#39;", "'"))


def _in_code(text: str) -> str:
    """Return text as code in Markdown, between more backticks than it holds in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {_words.printable(text)} {fence}"


def _environment() -> Any:
    # Imported here, because importing the report room must not load the template engine.
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("fareg.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({name: getattr(_words, name) for name in FORMATS})
    environment.filters["findings_first"] = findings_first
    return environment


def _source(environment: Any, name: str) -> str:
    return str(environment.loader.get_source(environment, name)[0])


def embedded_json(summary: Mapping[str, Any]) -> Markup:
    """Return JSON for a script element; no tag can begin or end in it."""
    text = json.dumps(summary, ensure_ascii=False, allow_nan=False, indent=1)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
