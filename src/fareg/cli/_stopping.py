"""How a command prints, and how it ends if it fails: with one sentence and an exit code.

====  ===========================================================================================
3     the gate of --fail-on is shut
2     the request cannot be met: change an argument, a table or a file
1     the machine, a cluster or a library failed, so the same command may work another time
130   Ctrl-C
143   SIGTERM
====  ===========================================================================================

The sentence goes to stderr and says which files were written. ``--debug`` prints the traceback too.
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

# What the shell adds to errors and warnings, by the names of their classes: to import the classes
# themselves would be slow.
MORE = {
    "ForeignModelError": " with --proba",
    "LooksLikeIdWarning": " (--clusters or --id, --drop)",
}
# Arguments in Python's words, and in those of the shell.
PYTHON = {
    " ids=": " --id",
    " when=": " --when",
    " keep=": " --keep ",
    "conformity_score must be": "--score must be",
    "n_calibration must be": "--calibration-rows must be",
    "probabilities must be": "--proba must be",
    "sensitive_features has no column": "the sensitive columns lack",
    "the columns of the sets or a model": "--sets or --model",
    "make one with fareg.save": "make one with fareg fit",
    "protect: ": "--protect: ",
    "sensitive names ": "--sensitive names ",
    "not a column of X": "not a column of the table",
    "X has no column": "the table has no column",
    " (trusted= in fareg.load): ": ": add --trust ",
    "ask within fareg.accept_drift()": "add --accept-drift",
}
FLAGS = {"confidence_level": "--confidence", "estimator": "--estimator", "seed": "--seed"}
NOTHING = "nothing was written"
NO_MEMORY = "out of memory; close other programs, or work on fewer rows or with fewer processes"
JSON: ContextVar[bool] = ContextVar("json")  # whether to print one JSON object and nothing else
WRITTEN: ContextVar[list[Path]] = ContextVar("written")  # files that the command has written


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM; it cleans up as after Ctrl-C."""


class CannotPrintError(Exception):
    """Stdout or stderr is gone, or goes to a full disk."""


@contextmanager
def one_sentence(*, debug: bool) -> Iterator[None]:
    """Turn whatever stops the block early into a sentence and an exit code."""
    WRITTEN.set([])
    try:
        with _terminable():
            yield
            with printing():  # a full disk can still be reported here
                sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if hasattr(error, "exit_code"):  # errors of usage, and those already printed
            raise
        if debug:
            with suppress(OSError):
                traceback.print_exception(error)
        stop(*_last_line(error))


def stop(line: str, code: int) -> NoReturn:
    """End the command with a line on stderr."""
    try:
        say(line, err=True)
    except CannotPrintError:
        _drop(sys.stderr)
    raise typer.Exit(code)


def say(text: Any, *, err: bool = False) -> None:
    """Print text; names in it, which come from tables and files, cannot steer the terminal."""
    if err or not JSON.get(False):
        with printing():
            typer.echo("\n".join(map(words.printable, str(text).split("\n"))), err=err)


@contextmanager
def printing() -> Iterator[None]:
    """Turn errors of stdout and stderr into ones that differ from those of other files."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the output has seen enough
    except OSError as error:
        raise CannotPrintError(error.strerror or str(error)) from error


def _last_line(error: BaseException) -> tuple[str, int]:
    """Return the last line of a command and its exit code."""
    notes = getattr(error, "__notes__", ())
    files = [str(path) for path in dict.fromkeys(WRITTEN.get()) if path.exists()]
    written = f"{words.shown(files)} {'was' if len(files) == 1 else 'were'} written"
    left = words.first_line(Exception(notes[0])) if notes else written if files else NOTHING
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
    """Return an error or a warning as one line, with its fix as you type it in a shell."""
    if type(error).__name__ == "UntrustedTypesError":
        names = ",".join(error.names)
        return (
            f"the estimator holds types that are not trusted: {names}; trusting them runs their "
            f"code: if you know them and who wrote the file, add --trust {names}"
        )
    line = " ".join(line.strip() for line in str(error).split("\n"))
    for python, shell in PYTHON.items():
        line = line.replace(python, shell)
    first_word, blank, remaining = line.partition(" ")
    line = FLAGS.get(first_word, first_word) + blank + remaining
    return line + MORE.get(type(error).__name__, "")


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the block with an exception, so that temporary files are removed."""

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one would disturb the cleanup
        raise Terminated

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, end) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def escape_unprintable() -> None:
    """Let characters that the terminal does not know, such as é in ASCII, be printed as codes."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict":
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _drop(stream: Any) -> None:
    """Drop what a stream could not write; Python would try, and fail, again when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
