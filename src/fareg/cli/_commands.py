"""The commands: each parses, calls one function and prints."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fareg import _words as words
from fareg.cli._options import Number, Place, Text, asked
from fareg.cli._running import (
    SETTINGS,
    answering,
    bar,
    busy,
    check_gate,
    console,
    gate,
    print_verdict,
)
from fareg.cli._stopping import say

MAX_LABELS = 12  # in the table, worst first
WIDE = 100  # characters of a terminal that has room for every column
WATCHED = ("watch", "alarm")  # an alarm is also worth a look


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
    cells = [escape(name), words.count(row["n"]), *covered, last, sizes, singles]
    table.add_row(*cells[: len(table.columns)])


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
    where = words.in_clusters(told["left"]["overall"])
    where = where and f", for {words.RANDOM_ROW} ({where})"
    title = f"coverage, {level} asked for{where}"
    # names are not broken within a word: what says least goes where there is little room
    headings = ["n", "split", "FaReG", "95% interval", "labels", "one label"]
    headings = headings[:-1] if terminal.width < WIDE else headings
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("test rows", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
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


def predict(
    ctx: typer.Context,
    model: Path,
    data: Path,
    out: Path,
    keep: Text = None,
    ids: Text = None,
    engine: str = "local",
    accept_drift: bool = False,
    confidence_level: Number = None,
    action: bool = False,
    trust: Text = None,
    safe_csv: bool = False,
) -> None:
    """Write the prediction set of every row: set, size, top label, group.

    The files of a folder are answered in parallel. A run that was stopped continues there.
    """
    with answering() as told, busy("loading the model") as progress:
        from fareg.workflow import predict_file

        told.update(predict_file(**asked(ctx), progress=progress), out=out)
    size = words.size(told["mean_size"])
    say(f"{told['rows']} sets of {size} labels on average, in {out}")


def calibrate(
    ctx: typer.Context,
    model: Path,
    data: Path,
    target: str,
    out: Path,
    towards: Place = None,
    record: Place = None,
    engine: str = "local",
    trust: Text = None,
) -> None:
    """Give a model the thresholds that all rows of a folder ask for, exactly.

    Rows are scored where they lie; rows that the model was fitted on are left out.
    A model fitted with --clusters is refused: in Python, use clf.recalibrated(X, y, clusters=ids).
    """
    with answering() as told, busy("loading the model") as progress:
        from fareg._files import digest_of
        from fareg.workflow import calibrate_file

        told.update(calibrate_file(**asked(ctx), progress=progress), out=out)
        told["sha256"] = digest_of(out)
    for row in told["coverage"]:
        before, after = words.percent(row["before"]), words.percent(row["after"])
        who = f"{row['stream']} ({words.rows(row['rows'])})"
        say(f"  {who}: {before} of the labels are in the old sets, {after} in the new")
    if "effective_rows" in told:
        say(f"weighted rows are as good as {words.rows(round(told['effective_rows']))}")
    say(f"calibrated on {words.rows(told['rows'])}: model in {out}")
    say(f"SHA-256 of the model: {told['sha256']}")


def audit(
    ctx: typer.Context,
    data: Path,
    target: str,
    sets: Text = None,
    model: Place = None,
    sensitive: Text = None,
    confidence_level: Number = None,
    clusters: Text = None,
    n_calibration: int | None = None,
    report: Place = None,
    tables: Place = None,
    card: Place = None,
    fail_on: Text = None,
    trust: Text = None,
) -> None:
    """Find who is covered less often than promised, by the sets of any tool."""
    check_gate(fail_on)
    with answering() as told, busy("reading the table") as progress:
        from fareg.workflow import audit_file

        given = asked(ctx)
        drop = ["--drop", ",".join(map(words.quoted, given["sets"]))] if "sets" in given else []
        again = ["fareg", "fit", str(data), "--target", target, *drop, "--out", "protected.fareg"]
        settings = {**SETTINGS, "protect": shlex.join([*again, "--protect"])}
        result = audit_file(**given, settings=settings, progress=progress)
        told.update(result.to_dict(), report=report)
    say(result.summary())
    for what, path in (("report", report), ("tables", tables), ("card", card)):
        if path is not None:
            say(f"{what} in {path}")
    gate(fail_on, fail_on is not None and result.fails(fail_on))


def monitor(
    ctx: typer.Context,
    model: Path,
    data: Path,
    target: str,
    state: Path,
    when: Text = None,
    groups: list[str] | None = None,
    ids: Text = None,
    report: Place = None,
    fail_on: Text = None,
    trust: Text = None,
) -> None:
    """Watch whether coverage still holds, for everyone and group by group, as labels arrive.

    False alarms are at most 5% over all groups and all time, however often you look.
    If the model was fitted with --clusters, feed all rows of a cluster in one batch: one counts.
    """
    check_gate(fail_on, WATCHED)
    with answering() as told, busy("loading the model") as progress:
        from fareg.workflow import monitor_file

        told.update(monitor_file(**asked(ctx), progress=progress), state=state, report=report)
    fed, n = words.count(told["fed"]), words.count(told["rows"])
    drawn = told["clusters"]  # one row of each counts
    each = "" if drawn is None else f", one drawn from each of {words.clusters(drawn)}"
    say(f"{fed} new rows{each}, {n} in all. {told['sentence']}")
    for row in told["streams"]:
        low, high = words.percent(row["low"]), words.percent(row["high"])
        covered = f"{words.percent(row['coverage'])} of {words.count(row['rows'])} rows"
        covered = covered if row["rows"] else "no rows"
        say(f"  {row['stream']}: {covered} ({low} to {high}), {row['verdict']}")
    say(f"Next: {told['next_step']}")
    if report is not None:
        say(f"report in {report}")
    gate(fail_on, fail_on is not None and told["verdict"] in (fail_on, "alarm"))


def info(model: Path) -> None:
    """Show what is in a model file, without running it."""
    with answering() as told:
        from fareg.persistence import ModelFile

        file = ModelFile.open(model)
        told.update(file.describe())
    _print_info(told, file)


def _print_info(told: dict[str, Any], file: Any) -> None:
    from rich.markup import escape
    from rich.table import Column, Table

    columns, fitted = told["columns"] or [], file.fit_notes
    people = told["n_calibration_clusters"]
    of_clusters = "" if people is None else f" of {words.clusters(people)}"
    shown_apart = ("columns", "verdict") if fitted else ()
    stored = "yes" if told["has_estimator"] else "none: probabilities are read, not computed"
    stored = "no: pass it to fareg.load" if told["needs_estimator"] else stored
    facts = {
        "file": f"{file.path} ({words.count(told['bytes'])} bytes)",
        "SHA-256": told["sha256"],
        "class": told["class"],
        "classes": ", ".join(told["classes"][:20]) + " ..." * (len(told["classes"]) > 20),
        "columns": ", ".join(columns[:20]) + " ..." * (len(columns) > 20),
        "calibrated on": words.rows(told["n_calibration"]) + of_clusters,
        "stored estimator": stored,
        "needs --trust": ",".join(told["untrusted"]) or "no",
        "versions": ", ".join(f"{name} {v}" for name, v in told["versions"].items()),
    }
    facts |= {
        name: _plain(value) for name, value in told["parameters"].items() if value is not None
    }
    who = "fit" if fitted else "note"  # a user may note what they like
    notes = {name: note for name, note in told["metadata"].items() if name not in shown_apart}
    facts |= {f"{who}: {name}": _plain(note) for name, note in notes.items()}
    named = [group for group in told.get("groups", ()) if group.get("named")]
    earlier = "earlier " if file.calibrated_note else ""  # fareg calibrate counts levels only
    for number, group in enumerate(named, start=1):
        facts[f"named group {number}"] = (
            f"{group['rule']} ({words.percent(group['share'], 0)} of the {earlier}calibration "
            f"rows; split conformal sets cover {words.percent(group['coverage'])} of them; "
            f"{words.evidence(group)})"
        )
    table = Table("", Column(overflow="fold"), show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(escape(name), escape(value))
    terminal = console()
    terminal.print(table)
    if "verdict" in fitted:
        print_verdict(terminal, fitted["verdict"])


def _plain(value: Any) -> str:
    """Write lists and dicts without brackets, and fractions with four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def demo(out: Path = Path("out")) -> None:
    """Show the story on the paper's data: who is left out, who they are, what repairs it."""
    with answering() as told:
        from fareg.experiments.demo import make_room, run_demo, save_figures

        make_room(out)  # a folder that cannot take the figures is refused before the work
        with busy("training one model and four conformal predictors"):
            result = run_demo(0)
            figures = save_figures(result, out)
        told.update(rows=result.table.to_dict("records"), rules=list(result.rules))
    _print_demo(result, figures)


def _print_demo(result: Any, figures: list[Path]) -> None:
    from rich.table import Table

    from fareg.experiments.demo import LEVELS, SPLIT

    terminal = console()
    rows = result.table.set_index("method")
    split, levels = rows.loc[SPLIT], rows.loc[LEVELS]
    everyone, inside = words.percent(split["average"]), words.percent(split["group"])
    name = "names nobody: the evidence is too thin."
    if result.rules:
        listed = "\n".join(f"  [bold]{rule}[/bold]" for rule in result.rules)
        name = f"finds and names who is in it:\n{listed}"
    terminal.print(
        f"90% is asked for. Split conformal sets cover {everyone} of all rows: fine on average.\n"
        f"But inside one group, which no single feature shows, they cover [bold]{inside}[/bold].\n"
        f"FaReG, not told about the group, {name}\n"
        f"Its sets cover {words.percent(levels['group'])} of the group, with "
        f"{words.size(levels['size'])} labels on average instead of {words.size(split['size'])}.\n"
        f"It ranks people by learned disadvantage, in levels. The promise: all at or "
        f"above a level, taken together, are covered at least 90% of the time, for every level.\n"
    )
    table = Table("method")
    for heading in ("group", "everyone else", "average", "set size", "seconds"):
        table.add_column(heading, justify="right")
    for name, row in rows.iterrows():
        shares = [words.percent(row[key]) for key in ("group", "outside", "average")]
        seconds = f"{row['seconds']:.2f}" if row["seconds"] else ""
        style = "bold" if name == LEVELS else "dim" if str(name).startswith("Oracle") else None
        table.add_row(str(name), *shares, words.size(row["size"]), seconds, style=style)
    terminal.print(table)
    terminal.print(
        f"The base model took {result.base_seconds:.1f} s to train. Levels learn from its training "
        "rows, at the cost of five more trainings; RCP learns from half of the calibration rows. "
        "Size-matched: split conformal at the level that makes its sets as large as levels do."
    )
    terminal.print(f"figures in {' and '.join(map(str, figures))}")


def reproduce(
    ctx: typer.Context,
    targets: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures of the paper (default: all).")
    ] = None,
    quick: bool = False,
    engine: str = "local",
    out: Path = Path("reproduction"),
    acs_root: Place = None,
) -> None:
    """Run the paper's experiments; a stopped run continues where it stopped.

    The targets are wsc-cdf, wsc-table, synthetic, selection, nursery, nursery-cut, delta,
    delta-draws, draws, beta, visualization, time, eight, codes, condcp, published and acs.
    """
    with answering() as told:
        from fareg.experiments import reproduce as run

        told.update(run(**asked(ctx), console=bar()).to_dict())
    for name, reason in told["skipped"].items():
        say(f"{name} skipped, {reason}", err=True)
    say(f"{', '.join(told['files'])}: {told['page']}")


def benchmark(
    ctx: typer.Context,
    settings: Path,
    out: Path = Path("benchmark"),
    engine: str = "local",
) -> None:
    """Compare methods on published tables; a stopped run continues where it stopped."""
    with answering() as told:
        from fareg.experiments import benchmark as run

        told.update(run(**asked(ctx), console=bar()).to_dict())
    for line in told["too_small"]:
        say(line, err=True)
    say(f"{told['rows']} rows, {told['failures']} of them failures")
    for path in told["files"]:
        say(path)
