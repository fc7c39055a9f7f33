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
from pathlib import Path
from typing import Any

import typer

from fareg import _words as words
from fareg.cli._stopping import WRITTEN, in_shell, printing, say, stop

# What next steps call a setting in the shell.
SETTINGS = {
    "label_conditional=True": "--label-conditional",
    "allow_empty=False": "--no-allow-empty",
    "sensitive_features": "--sensitive",
    "n_calibration": "--calibration-rows",
}


@contextmanager
def answering(json: bool) -> Iterator[dict[str, Any]]:
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
    if json:
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
def busy(what: str, json: bool) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is going on; yield a function that tells the next stage."""
    if json or not sys.stderr.isatty():
        yield lambda stage: None
        return
    start = time.monotonic()
    with console(err=True).status(what) as status:
        yield lambda stage: status.update(f"{stage} ({time.monotonic() - start:.0f} s so far)")


@contextmanager
def progress(data: Path, json: bool) -> Iterator[Any]:
    """Yield a function that counts finished rows, shown on a terminal only."""
    if json or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from fareg.workflow import count_rows

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("rows", total=count_rows(data))
        yield lambda rows: bar.advance(task, rows)


def check_folder_options(data: Path, options: dict[str, Any]) -> None:
    """Refuse options, by their names in the shell, that are of no use for a single file."""
    from fareg._validation import InvalidInputError

    given = [name for name, value in options.items() if value not in (None, "local")]
    if given and not data.is_dir():
        *others, last = options
        raise InvalidInputError(
            f"{', '.join(others)} and {last} are for a folder of Parquet files, {data} is none; "
            "leave them out, or split the file"
        )


def engine_of(data: Path, engine: str, jobs: int | None, scheduler: str | None) -> dict[str, Any]:
    """Return where the parts of a folder are worked on; a single file has no choice."""
    options = {"engine": engine, "jobs": jobs, "scheduler": scheduler}
    check_folder_options(data, {f"--{name}": value for name, value in options.items()})
    return options


def sampling_of(
    data: Path, max_rows: int | None, seed: int, engine: str, scheduler: str | None
) -> Any:
    """Return how rows of a folder are sampled; refuse to sample a file."""
    from fareg.workflow import MAX_ROWS, Sampling

    options = {"--max-rows": max_rows, "--engine": engine, "--scheduler": scheduler}
    check_folder_options(data, options)
    return Sampling(MAX_ROWS if max_rows is None else max_rows, seed, engine, scheduler)


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
