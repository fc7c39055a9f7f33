"""Notes in model files: those of the shell are told from a user's own by their shape.

Both lie in ``metadata``, where users may note what they like, so a name alone says nothing.
"""

from __future__ import annotations

from typing import Any

# What fareg fit always notes; fareg calibrate keeps it.
FIT = {"columns", "target", "data", "estimator", "date", "seed"}
VERDICT = {"label", "sentence", "next_steps"}
CALIBRATED = {"data", "rows", "left_out"}
KINDS = {"number", "text", "date"}


def fit_notes(told: dict[str, Any]) -> dict[str, Any]:
    """Return the notes of ``fareg fit`` in what ``describe`` tells of a file; {} if it has none.

    They tell of every column of the model what it held, which no other note is taken for.
    """
    notes = told["metadata"]
    columns, verdict = notes.get("columns"), notes.get("verdict")
    is_own = (
        notes.keys() >= FIT
        and isinstance(columns, dict)
        and list(columns) == told["columns"]
        and set(map(str, columns.values())) <= KINDS
        and ("verdict" not in notes or _is_verdict(verdict))
    )
    return notes if is_own else {}


def _is_verdict(note: Any) -> bool:
    """Tell whether a note has the texts of a verdict."""
    if not isinstance(note, dict) or not note.keys() >= VERDICT:
        return False
    steps = note["next_steps"]
    texts = [note["label"], note["sentence"], *(steps if isinstance(steps, list) else [None])]
    return all(isinstance(text, str) for text in texts)


def calibrated_note(told: dict[str, Any]) -> dict[str, Any]:
    """Return the note of ``fareg calibrate`` in what ``describe`` tells of a file; {} if none."""
    note = told["metadata"].get("calibrated")
    return note if isinstance(note, dict) and note.keys() >= CALIBRATED else {}
