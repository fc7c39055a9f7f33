"""``fareg fit``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import typer

from fareg import _words as words
from fareg.cli._options import Place, Text, asked
from fareg.cli._running import (
    SETTINGS,
    answering,
    busy,
    check_gate,
    console,
    gate,
    print_verdict,
)

MAX_LABELS = 12  # in the table, worst first


def fit(
    ctx: typer.Context,
    data: Path,
    target: str,
    out: Path,
    sensitive: Text = None,
    not_features: Text = None,
    drop: Text = None,
    clusters: Text = None,
    ids: Text = None,
    estimator: str = "hgb",
    probabilities: Text = None,
    trusted: Text = None,
    confidence_level: float = 0.9,
    conformity_score: str = "aps",
    label_conditional: bool = False,
    protect: list[str] | None = None,
    seed: int = 0,
    report: Place = None,
    fail_on: Text = None,
    test_out: Place = None,
) -> None:
    """Train a model on a table, find who is under-covered, calibrate, and test.

    With a .skops file or --proba nothing is trained: a fitted model, or its probabilities in the
    table, is calibrated and tested. Its rows must be others than those that trained it.
    """
    check_gate(fail_on)
    with answering() as told, busy("reading the table") as progress:
        from fareg._files import digest_of
        from fareg.workflow import fit_file

        again = shlex.join(["fareg", *sys.argv[1:], "--protect"])  # up to the words of a group
        settings = {**SETTINGS, "protect": again}
        trial = fit_file(**asked(ctx), settings=settings, progress=progress)
        told.update(trial.to_dict(), model=out, report=report, test_rows=test_out)
        told["sha256"] = digest_of(out)
    _print_trial(told)
    gate(fail_on, fail_on is not None and trial.comparison.fails(fail_on))


def _add(table: Any, name: str, row: dict[str, Any], few: bool, sized: tuple[str, ...]) -> None:
    """Add a group to the table: coverage before and after, and sizes where they are known."""
    from rich.markup import escape

    sizes = " → ".join(words.size(row[f"{moment}_size"]) for moment in sized)
    singles = " → ".join(words.percent(row[f"{moment}_singletons"], 0) for moment in sized)
    ends = words.interval(row["after_low"], row["after_high"])
    covered = [words.percent(row[moment]) for moment in ("before", "after")]
    last = words.TOO_FEW if few else ends
    table.add_row(escape(name), words.count(row["n"]), *covered, last, sizes, singles)


def _print_trial(told: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from fareg.auditing import MIN_HEADLINE_ROWS

    terminal = console()
    rows, level = told["rows"], words.confidence(told["confidence_level"])
    first = f"{rows['train']} rows trained" if "train" in rows else ""
    first = first or f"{rows['learn']} rows to learn from"
    terminal.print(
        f"{first}, {rows['calibrate']} calibrated, {rows['test']} tested; "
        f"accuracy {words.percent(told['accuracy'])}"
    )
    once = words.counted_once(told["left"]["overall"])
    title = f"coverage, {level} asked for{once and f'; {once}'}"
    table = Table(title=title, title_justify="left")
    table.add_column("test rows", overflow="fold")
    for heading in ("n", "split conformal", "FaReG", "95% interval", "labels per set", "one label"):
        table.add_column(heading, justify="right")
    for group in told["groups"]:
        said = words.said_of({**group, "few": False})
        name = f"{group['group']} ({', '.join(said)})" if said else group["group"]
        _add(table, name, group, group["few"], ("before", "after"))
    for label in told["by_label"][:MAX_LABELS]:
        few = label.get("n_clusters", label["n"]) < MIN_HEADLINE_ROWS
        row = {**label, "after": label["coverage"], "after_low": label["low"]}
        row |= {"after_high": label["high"], "after_size": label["mean_size"]}
        row |= {"after_singletons": label["singletons"]}
        _add(table, f"true label {label['label']}", row, few, ("after",))
    terminal.print(table)
    print_verdict(terminal, told["verdict"])
    terminal.print(escape(" ".join(told["opening"])))
    for what in ("model", "report", "test_rows"):
        if told[what]:
            terminal.print(f"{what.replace('_', ' ')} in {escape(str(told[what]))}")
    terminal.print(f"SHA-256 of the model: {told['sha256']}")
