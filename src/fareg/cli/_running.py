"""What every command needs around its work: warnings, JSON, progress, gates."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from fareg import _words as words
from fareg.cli._stopping import JSON, WRITTEN, in_shell, printing, say, stop

# What next steps call a setting in the shell.
SETTINGS = {
    "label_conditional=True": "--label-conditional",
    "fit again with allow_empty=False": "fit again in Python, where "
    "fareg.workflow.fit_file(..., allow_empty=False) puts the top label into such a set",
    "sensitive_features": "--sensitive",
    "n_calibration": "--calibration-rows",
}
GATES = ("found", "low", "unequal")
SHUT = 3  # the exit code of a gate that was asked for


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
    if not JSON.get(False):
        for note in notes:
            say(f"Warning: {note}", err=True)
        return
    told["warnings"] = notes
    said = json.dumps(told, ensure_ascii=False, default=os.fspath)
    try:
        said.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        said = json.dumps(told, default=os.fspath)
    with printing():
        typer.echo(words.printable_json(said))


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

    return Plain(stderr=err, highlight=False, quiet=JSON.get(False))


def bar() -> Any:
    """Return a console for the progress of long runs, None if JSON is all that is printed."""
    return None if JSON.get(False) else console(err=True)


@contextmanager
def busy(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is going on; yield a function that announces the next stage."""
    if JSON.get(False) or not sys.stderr.isatty():
        yield lambda stage: None
        return
    start = time.monotonic()
    with console(err=True).status(what) as status:
        yield lambda stage: status.update(f"{stage} ({time.monotonic() - start:.0f} s so far)")


def print_verdict(terminal: Any, verdict: dict[str, Any]) -> None:
    """Print what was decided, and what to do next."""
    from rich.markup import escape

    terminal.print(f"[bold]{escape(verdict['label'])}.[/bold] {escape(verdict['sentence'])}")
    for step in verdict["next_steps"]:
        terminal.print(f"Next: {escape(step)}")


def check_gate(asked: str | None, gates: Sequence[str] = GATES) -> None:
    """Refuse a gate that there is not, before anything is done."""
    if asked is not None:
        from fareg._validation import check_choice

        check_choice("--fail-on", asked, gates)


def gate(asked: str | None, is_shut: bool) -> None:
    """End with exit code 3 if what was asked for was found."""
    if is_shut:
        stop(f"Failed: --fail-on {asked}", SHUT)
