"""What every command needs around its work: warnings, JSON, progress."""

from __future__ import annotations

import gc
import json as json_format
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import typer

from fareg import _words as words
from fareg.cli._stopping import WRITTEN, in_shell, printing, say, stop

JSON: ContextVar[bool] = ContextVar("json")  # set by the program
# What next steps call a setting in the shell.
SETTINGS = {
    "label_conditional=True": "--label-conditional",
    "allow_empty=False": "fareg.workflow.fit_file(..., allow_empty=False) in Python",
    "sensitive_features": "--sensitive",
    "n_calibration": "--calibration-rows",
}


def as_json() -> bool:
    """Tell whether the answer is wanted as JSON, wherever ``--json`` stands."""
    return JSON.get(False)


@contextmanager
def answering() -> Iterator[dict[str, Any]]:
    """Yield a dict to be filled, printed as JSON if asked; warnings are part of it, or lines."""
    told: dict[str, Any] = {}
    with _no_garbage_yet():
        from fareg._files import noting_files
        from fareg._validation import FaregWarning

    with noting_files(WRITTEN.get([])), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FaregWarning)
        yield told
    notes = list(dict.fromkeys(in_shell(warning.message) for warning in caught))
    if as_json():
        told["warnings"] = notes
        with printing():
            typer.echo(_json(told))
    else:
        for note in notes:
            say(f"Warning: {note}", err=True)


def _json(told: dict[str, Any]) -> str:
    """Return a dict as JSON, in characters that stdout knows."""
    said = json_format.dumps(told, ensure_ascii=False, default=os.fspath)
    try:
        said.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        said = json_format.dumps(told, default=os.fspath)
    return words.printable_json(said)


@contextmanager
def _no_garbage_yet() -> Iterator[None]:
    """Keep the garbage collector away while libraries are first imported.

    What they make stays until the process ends. The collector would look at all of it several
    times meanwhile, and once in a while for ever after.
    """
    is_first = "sklearn" not in sys.modules and gc.isenabled()
    if is_first:
        gc.disable()
    try:
        yield
    finally:
        if is_first:
            gc.freeze()
            gc.enable()


def console(*, err: bool = False) -> Any:
    """Return a console for tables and markup; names in them steer no terminal either."""
    from rich.console import Console

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Any:
            lines = "\n".join(map(words.printable, text.split("\n")))
            return super().render_str(lines, **options)

        def print(self, *objects: Any, **options: Any) -> None:
            with printing():
                super().print(*objects, **options)

    return Plain(stderr=err, highlight=False)


@contextmanager
def busy(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is going on; yield a function that announces the next stage."""
    if as_json() or not sys.stderr.isatty():
        yield lambda stage: None
        return
    start = time.monotonic()
    with console(err=True).status(what) as status:
        yield lambda stage: status.update(f"{stage} ({time.monotonic() - start:.0f} s so far)")


def engine_of(text: str) -> dict[str, Any]:
    """Return where work is done: ``dask:4`` is the engine dask with four processes."""
    engine, _, jobs = text.partition(":")
    return {"engine": engine, "jobs": int(jobs)} if jobs.isdecimal() else {"engine": text}


def trust_of(text: str | None) -> dict[str, Any]:
    """Return the types that a model file may hold, and the SHA-256 that it must have.

    The name of a type holds a dot; what holds none is a digest, even if it was cut on the way.
    """
    given = names(text) or []
    digests = [name for name in given if "." not in name]
    if len(digests) > 1:
        from fareg._validation import InvalidInputError

        raise InvalidInputError(
            f"--trust must name one SHA-256 and types such as my_module.MyModel, got {text}"
        )
    return {
        "trusted": [name for name in given if "." in name],
        "sha256": digests[0] if digests else None,
    }


def names(text: str | None) -> list[str] | None:
    """Return the names in ``a,b``; one with a comma or outer blanks is written as ``"a, b"``."""
    return None if text is None else [words.unquoted(item) for item in words.list_items(text)]


def print_verdict(console: Any, verdict: dict[str, Any]) -> None:
    from rich.markup import escape

    console.print(f"[bold]{escape(verdict['label'])}.[/bold] {escape(verdict['sentence'])}")
    for step in verdict["next_steps"]:
        console.print(f"Next: {escape(step)}")


GATES = ("found", "low", "unequal")
SHUT = 3  # the exit code of a gate that was asked for


def check_gate(asked: str | None) -> None:
    """Refuse a gate that there is not, before anything is done."""
    if asked is not None:
        from fareg._validation import check_choice

        check_choice("--fail-on", asked, GATES)


def gate(asked: str | None, result: Any) -> None:
    """End with exit code 3 if an audit found what was asked for."""
    if asked is not None and result.fails(asked):
        stop(f"Failed: --fail-on {asked}", SHUT)
