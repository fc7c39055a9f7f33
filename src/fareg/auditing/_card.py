"""An audit as Markdown, and as the section of a model card that Hugging Face reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fareg import _words as words

HEAD = ("Group", "Rows", "Covered", "95% interval", "Labels per set", "One label", "No label")
MAX_NAME = 44  # characters of a group in a text table


def markdown(summary: Mapping[str, Any]) -> str:
    """Return title, what was promised, verdict, next steps and the first table."""
    verdict, about = summary["verdict"], summary.get("about") or {}
    where = [f"{name} {about[name]}" for name in ("file", "model", "date") if about.get(name)]
    lines = [f"## {summary['title']}: {verdict['label']}", ""]
    lines += [_safe(sentence) for sentence in [*summary["opening"], verdict["sentence"]]]
    lines += ["", *(f"- Next: {_safe(step)}" for step in verdict["next_steps"]), ""]
    lines += _table(HEAD, [list(map(_safe, _cells(row))) for row in summary["table"]])
    lines += ["", *(f"- {_safe(note)}." for note in summary["notes"])]
    made = "; ".join([f"Made by fareg {summary['fareg_version']}", *map(_safe, where)])
    lines += ["", f"{made}."]
    return "\n".join(lines) + "\n"


def model_card(summary: Mapping[str, Any]) -> str:
    """Return Markdown after YAML metadata: task, and coverage as measured, for ``model-index``."""
    about, overall = summary.get("about") or {}, summary["overall"]
    worst = min((g["coverage"] for g in summary["groups"] if g["is_finding"]), default=None)
    measured = [("coverage", "Coverage of prediction sets", overall["coverage"])]
    measured.append(("mean_set_size", "Labels per prediction set", overall["mean_size"]))
    if worst is not None:
        measured.append(("worst_group_coverage", "Coverage of the worst group found", worst))
    name = about.get("model") or about.get("file") or "model"
    # JSON texts are YAML texts, whatever signs a name holds.
    lines = [
        "---",
        "tags:",
        "- tabular-classification",
        "- conformal-prediction",
        "- fairness",
        "model-index:",
        f"- name: {json.dumps(str(name))}",
        "  results:",
        "  - task:",
        "      type: tabular-classification",
        "    dataset:",
        f"      name: {json.dumps(str(about.get('file') or 'audited rows'))}",
        f"      type: {json.dumps(str(about.get('file') or 'audited rows'))}",
        "    metrics:",
    ]
    for kind, title, value in measured:
        lines += [f"    - type: {kind}", f"      name: {title}", f"      value: {value:.4f}"]
    return "\n".join([*lines, "---", "", markdown(summary)])


def text_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the first table as lines of text."""
    cells = [list(HEAD)]
    cells += [_cells({**row, "group": words.shortened(row["group"], MAX_NAME)}) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        right = (f"{own:>{width}}" for own, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([f"  {first:<{widths[0]}}", *right]))
    return lines


def _cells(row: Mapping[str, Any]) -> list[str]:
    few = words.TOO_FEW if row["few"] else words.interval(row["low"], row["high"])
    said = {"label": "true label {}", "finding": "{} (found)", "unequal": "{} (larger sets)"}
    group = said.get(row["kind"], "{}").format(row["group"])
    return [
        group,
        words.count(row["n"]),
        words.percent(row["coverage"]),
        few,
        words.size(row["mean_size"]),
        words.percent(row["singletons"]),
        words.percent(row["empty"]),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in [head, *rows]]
    return [lines[0], "|---" + "|--:" * (len(head) - 1) + "|", *lines[1:]]


def _safe(text: str) -> str:
    """Return text in which nothing is markup: names come from tables."""
    for sign in "\\`*_[]|":
        text = text.replace(sign, f"\\{sign}")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return words.printable(text)
