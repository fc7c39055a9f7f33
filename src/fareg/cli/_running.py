"""What all commands share: warnings, JSON, progress, verdicts and gates."""

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

# Python's names of settings, and what to write instead in the next steps that the shell prints.
SETTINGS = {
    "label_conditional=True": "--label-conditional",
    "fit again with allow_empty=False": "use allow_empty=False (Python only)",
    "sensitive_features": "--sensitive",
    "n_calibration": "--calibration-rows",
}
GATES = ("found", "low", "unequal")
SHUT = 3  # exit code of --fail-on


@contextmanager
def answering() -> Iterator[dict[str, Any]]:
    """Yield the answer, a dict to fill; with ``--json`` it is printed, warnings included."""
    answer: dict[str, Any] = {}
    with _no_garbage_collection():
        from fareg._files import noting_files
        from fareg._validation import FaregWarning

    with noting_files(WRITTEN.get([])), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FaregWarning)
        yield answer
    sentences = list(dict.fromkeys(in_shell(warning.message) for warning in caught))
    if not JSON.get(False):
        for sentence in sentences:
            say(f"Warning: {sentence}", err=True)
        return
    answer["warnings"] = sentences
    text = json.dumps(answer, ensure_ascii=False, default=os.fspath)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(answer, default=os.fspath)
    with printing():
        typer.echo(words.printable_json(text))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Stop the garbage collector while libraries are first imported.

    Their objects live until the process ends. The collector would check all of them several times
    during the imports, and now and then ever after.
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
    """Return a console for tables and markup; names in them cannot steer the terminal."""
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
    """Return a console for the progress of long runs, None with ``--json``."""
    return None if JSON.get(False) else console(err=True)


@contextmanager
def busy(first_stage: str) -> Iterator[Callable[[str], None]]:
    """Show the current stage on a terminal; yield a function that announces the next one."""
    if JSON.get(False) or not sys.stderr.isatty():
        yield lambda stage: None
        return
    start = time.monotonic()
    with console(err=True).status(first_stage) as status:
        yield lambda stage: status.update(f"{stage} ({time.monotonic() - start:.0f} s so far)")


def print_verdict(terminal: Any, verdict: dict[str, Any]) -> None:
    """Print a verdict and its next steps."""
    from rich.markup import escape

    terminal.print(f"[bold]{escape(verdict['label'])}.[/bold] {escape(verdict['sentence'])}")
    for step in verdict["next_steps"]:
        terminal.print(f"Next: {escape(step)}")


def check_gate(name: str | None, gates: Sequence[str] = GATES) -> None:
    """Refuse an unknown gate before any work is done."""
    if name not in (None, *gates):
        from fareg._validation import InvalidInputError

        raise InvalidInputError(f"--fail-on takes one of {', '.join(gates)}, got {name}; give one")


def gate(name: str | None, is_shut: bool, verdict: str) -> None:
    """Exit with code 3 and the verdict if the gate is shut."""
    if is_shut:
        stop(f"Failed --fail-on {name}: {verdict}", SHUT)
