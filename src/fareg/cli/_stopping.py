"""How a command prints, and how one ends that does not finish: one sentence, and an exit code.

====  ===========================================================================================
3     the gate of --fail-on is shut
2     what was asked for cannot be done: an argument, a table or a file must change
1     the machine, a cluster or a library failed, so the same command may work another time
130   Ctrl-C
143   SIGTERM
====  ===========================================================================================

The sentence, on stderr, says what the command left behind. ``--debug`` shows the traceback before.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

import typer

from fareg import _words as words

# What an error or warning says in the shell next to its own words. They are known by the names of
# their classes, because the modules of these are heavy to import.
MORE = {
    "ForeignModelError": " with --proba",
    "LooksLikeIdWarning": " (--clusters or --id, --drop)",
}
# What sentences about arguments of Python say in the shell.
PYTHON = {
    " ids=": " --id",
    " when=": " --when",
    " keep=": " --keep ",
    "probabilities must be": "--proba must be",
    "ask within fareg.accept_drift()": "add --accept-drift",
}
NOTHING = "nothing was written"
NO_MEMORY = "out of memory; close other programs, or work on fewer rows or with fewer processes"
JSON: ContextVar[bool] = ContextVar("json")  # whether one JSON object is all that is printed
WRITTEN: ContextVar[list[Path]] = ContextVar("written")  # files that the command has written


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM; it cleans up as after Ctrl-C."""


class CannotPrintError(Exception):
    """Stdout or stderr is a full disk, or has gone."""


@contextmanager
def one_sentence(*, debug: bool) -> Iterator[None]:
    """Turn whatever ends the block before its time into a sentence and an exit code."""
    WRITTEN.set([])
    try:
        with _terminable():
            yield
            with printing():  # here a full disk can still be told
                sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if hasattr(error, "exit_code"):  # errors of usage, and ends that were told already
            raise
        if debug:
            with suppress(OSError):
                traceback.print_exception(error)
        stop(*_ending(error))


def stop(line: str, code: int) -> NoReturn:
    """End the command with a line on stderr."""
    try:
        say(line, err=True)
    except CannotPrintError:
        _drop(sys.stderr)
    raise typer.Exit(code)


def say(text: Any, *, err: bool = False) -> None:
    """Print lines of text; names in them, which come from tables and files, steer no terminal."""
    if err or not JSON.get(False):
        with printing():
            typer.echo("\n".join(map(words.printable, str(text).split("\n"))), err=err)


@contextmanager
def printing() -> Iterator[None]:
    """Tell what stdout or stderr cannot take from other errors of files."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read the output has seen enough
    except OSError as error:
        raise CannotPrintError(error.strerror or str(error)) from error


def _ending(error: BaseException) -> tuple[str, int]:
    """Return the last line of a command and its exit code."""
    notes = getattr(error, "__notes__", ())
    files = [str(path) for path in dict.fromkeys(WRITTEN.get()) if path.exists()]
    left = f"{words.shown(files)} {'was' if len(files) == 1 else 'were'} written"
    left = words.first_line(Exception(notes[0])) if notes else left if files else NOTHING
    if isinstance(error, KeyboardInterrupt):
        is_term = isinstance(error, Terminated)
        return f"{'Terminated' if is_term else 'Interrupted'}: {left}.", 143 if is_term else 130
    kinds, code = {kind.__name__ for kind in type(error).__mro__}, 1
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        line = NO_MEMORY
    elif isinstance(error, CannotPrintError):
        _drop(sys.stdout)
        line = f"cannot print the answer ({error})"
    elif "FaregError" in kinds:
        line, code = in_shell(error), 1 if "LostWorkersError" in kinds else 2
    else:
        line = f"{type(error).__name__}: {words.first_line(error)}; add --debug to see where"
    return f"Error: {line}" + (f"; {left}" if code == 1 or left != NOTHING else ""), code


def in_shell(error: Any) -> str:
    """Return an error or a warning in one line, with the fix as it is typed in a shell."""
    if type(error).__name__ == "UntrustedTypesError":
        names = ",".join(error.names)
        return (
            f"the estimator holds types that are not trusted: {names}; trusting them runs their "
            f"code: if you know them and who wrote the file, add --trust {names}"
        )
    line = " ".join(line.strip() for line in str(error).split("\n"))
    for python, shell in PYTHON.items():
        line = line.replace(python, shell)
    return line + MORE.get(type(error).__name__, "")


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, so that nothing temporary stays."""

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one would disturb the cleaning
        raise Terminated

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, end) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def print_anything() -> None:
    """Write characters that the terminal does not know, such as é in ASCII, by their numbers."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict":
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _drop(stream: Any) -> None:
    """Forget what a stream could not write; at its end Python would try, and fail, again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
