"""The commands: each parses, calls one function and prints."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fareg import _words as words
from fareg.cli._options import Number, Place, Text, arguments
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

MAX_LABELS = 12  # rows of labels in the table, worst first
WIDE = 100  # characters of a terminal that shows every column
MONITOR_GATES = ("watch", "alarm")


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
    """Train a model on a table, find under-covered groups, calibrate and test.

    With a .skops file or --proba, nothing is trained: the fitted model, or its probabilities in the
    table, is calibrated and tested, on rows that did not train it.
    """
    check_gate(fail_on)
    with answering() as answer, busy("reading the table") as progress:
        from fareg._files import digest_of
        from fareg.workflow import fit_file

        repeated = shlex.join(["fareg", *sys.argv[1:], "--protect"])  # the words of a group follow
        settings = {**SETTINGS, "protect": repeated}
        trial = fit_file(**arguments(ctx), settings=settings, progress=progress)
        answer.update(trial.to_dict(), model=out, report=report, test_rows=test_out)
        answer["sha256"] = digest_of(out)
    _print_trial(answer)
    is_shut = fail_on is not None and trial.comparison.fails(fail_on)
    gate(fail_on, is_shut, answer["verdict"]["sentence"])


def _add(table: Any, name: str, row: dict[str, Any], few: bool, moments: tuple[str, ...]) -> None:
    """Add a group to the table: coverage before and after, and sizes at the given moments."""
    from rich.markup import escape

    sizes = " → ".join(words.size(row[f"{moment}_size"]) for moment in moments)
    singles = " → ".join(words.percent(row[f"{moment}_singletons"], 0) for moment in moments)
    coverage = [words.percent(row[moment]) for moment in ("before", "after")]
    interval = words.TOO_FEW if few else words.interval(row["after_low"], row["after_high"])
    texts = [escape(name), words.count(row["n"]), *coverage, interval, sizes, singles]
    table.add_row(*texts[: len(table.columns)])


def _print_trial(answer: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from fareg.auditing import MIN_HEADLINE_ROWS

    terminal = console()
    rows = answer["rows"]
    first = f"{rows['train']} training" if "train" in rows else f"{rows['learn']} learning"
    terminal.print(
        f"{first} rows, {rows['calibrate']} calibration rows, {rows['test']} test rows; "
        f"accuracy {words.percent(answer['accuracy'])}"
    )
    clusters = words.in_clusters(answer["left"]["overall"])
    title = f"coverage, {words.confidence(answer['confidence_level'])} promised"
    title += clusters and f", for {words.RANDOM_ROW} ({clusters})"
    # a narrow terminal drops the last column, so that no name is broken within a word
    headings = ["n", "split", "FaReG", "95% interval", "labels", "one label"]
    headings = headings[:-1] if terminal.width < WIDE else headings
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("test rows", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for group in answer["groups"]:
        remarks = words.remarks({**group, "few": False})
        name = words.group_name(group["group"]) + (f" ({', '.join(remarks)})" if remarks else "")
        _add(table, name, group, group["few"], ("before", "after"))
    for label in answer["by_label"][:MAX_LABELS]:
        few = label.get("n_clusters", label["n"]) < MIN_HEADLINE_ROWS
        row = {**label, "after": label["coverage"], "after_low": label["low"]}
        row |= {"after_high": label["high"], "after_size": label["mean_size"]}
        row |= {"after_singletons": label["singletons"]}
        _add(table, f"true label {label['label']}", row, few, ("after",))
    terminal.print(table)
    print_verdict(terminal, answer["verdict"])
    terminal.print(escape(" ".join(answer["opening"])))
    for name in ("model", "report", "test_rows"):
        if answer[name]:
            terminal.print(f"{name.replace('_', ' ')} in {escape(str(answer[name]))}")
    terminal.print(f"SHA-256 of the model: {answer['sha256']}")


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

    The files of a folder are handled in parallel; a stopped run continues where it stopped.
    """
    with answering() as answer, busy("loading the model") as progress:
        from fareg.workflow import predict_file

        answer.update(predict_file(**arguments(ctx), progress=progress), out=out)
    size = words.size(answer["mean_size"])
    say(f"{answer['rows']} sets of {size} labels on average, in {out}")


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
    """Calibrate a fitted model again, exactly, on all rows of a table or folder.

    The files of a folder are scored in parallel; rows that the model was fitted on are left out.
    A model fitted with --clusters is refused: in Python, use clf.recalibrated(X, y, clusters=ids).
    """
    with answering() as answer, busy("loading the model") as progress:
        from fareg._files import digest_of
        from fareg.workflow import calibrate_file

        answer.update(calibrate_file(**arguments(ctx), progress=progress), out=out)
        answer["sha256"] = digest_of(out)
    for row in answer["coverage"]:
        before, after = words.percent(row["before"]), words.percent(row["after"])
        group = f"{words.group_name(row['stream'])} ({words.rows(row['rows'])})"
        say(f"  {group}: {before} of the labels are in the old sets, {after} in the new")
    if "effective_rows" in answer:
        equivalent = words.rows(round(answer["effective_rows"]))
        say(f"the weighted rows are worth {equivalent} without weights")
    say(f"calibrated on {words.rows(answer['rows'])}: model in {out}")
    say(f"SHA-256 of the model: {answer['sha256']}")


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
    """Find groups that the sets of any tool cover less often than promised."""
    check_gate(fail_on)
    with answering() as answer, busy("reading the table") as progress:
        from fareg.workflow import audit_file

        options = arguments(ctx)
        drop = ["--drop", ",".join(map(words.quoted, options["sets"]))] if "sets" in options else []
        fix = ["fareg", "fit", str(data), "--target", target, *drop, "--out", "protected.fareg"]
        settings = {**SETTINGS, "protect": shlex.join([*fix, "--protect"])}
        result = audit_file(**options, settings=settings, progress=progress)
        answer.update(result.to_dict(), report=report)
    say(result.summary())
    for name, path in (("report", report), ("tables", tables), ("card", card)):
        if path is not None:
            say(f"{name} in {path}")
    gate(fail_on, fail_on is not None and result.fails(fail_on), result.verdict)


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

    The probability of any false alarm, in any group at any time, is at most 5%.
    If the model was fitted with --clusters, feed all rows of a cluster in one batch: one counts.
    """
    check_gate(fail_on, MONITOR_GATES)
    with answering() as answer, busy("loading the model") as progress:
        from fareg.workflow import monitor_file

        answer.update(monitor_file(**arguments(ctx), progress=progress), state=state, report=report)
    fed, n = words.count(answer["fed"]), words.count(answer["rows"])
    drawn = answer["clusters"]  # one row of each counts
    sampling = "" if drawn is None else f", one drawn from each of {words.clusters(drawn)}"
    say(f"{fed} new rows{sampling}, {n} in all. {answer['sentence']}")
    last = {alarm["stream"]: alarm for alarm in answer["alarms"]}
    n_before = answer["rows"] - (answer["fed"] if drawn is None else drawn)
    for row in answer["streams"]:
        low, high = words.percent(row["low"]), words.percent(row["high"])
        coverage = f"{words.percent(row['coverage'])} of {words.rows(row['rows'])}"
        coverage, verdict = coverage if row["rows"] else "no rows", row["verdict"]
        if alarm := last.get(row["stream"]):
            coverage = coverage.replace(" of ", " of the ") + " since the alarm"
            coverage += " was over" if alarm["back"] else ""
            verdict += f", raised in {data}" * (not alarm["back"] and alarm["row"] > n_before)
        say(f"  {words.group_name(row['stream'])}: {coverage} ({low} to {high}), {verdict}")
    say(f"Next: {answer['next_step']}")
    if report is not None:
        say(f"report in {report}")
    is_shut = fail_on is not None and answer["verdict"] in (fail_on, "alarm")
    gate(fail_on, is_shut, answer["sentence"])


def info(model: Path) -> None:
    """Show what is in a model file, without running its code."""
    with answering() as answer:
        from fareg.persistence import ModelFile

        file = ModelFile.open(model)
        answer.update(file.describe())
    _print_info(answer, file)


def _print_info(answer: dict[str, Any], file: Any) -> None:
    from rich.markup import escape
    from rich.table import Column, Table

    columns, fitted = answer["columns"] or [], file.fit_notes
    n_clusters = answer["n_calibration_clusters"]
    of_clusters = "" if n_clusters is None else f" of {words.clusters(n_clusters)}"
    shown = ("columns", "verdict") if fitted else ()
    stored = "yes" if answer["has_estimator"] else "none: probabilities are read, not computed"
    stored = "no: pass it to fareg.load" if answer["needs_estimator"] else stored
    facts = {
        "file": f"{file.path} ({words.count(answer['bytes'])} bytes)",
        "SHA-256": answer["sha256"],
        "class": answer["class"],
        "classes": ", ".join(answer["classes"][:20]) + " ..." * (len(answer["classes"]) > 20),
        "columns": ", ".join(columns[:20]) + " ..." * (len(columns) > 20),
        "calibrated on": words.rows(answer["n_calibration"]) + of_clusters,
        "stored estimator": stored,
        "versions": ", ".join(f"{name} {v}" for name, v in answer["versions"].items()),
    }
    facts |= {
        name: _plain(value) for name, value in answer["parameters"].items() if value is not None
    }
    author = "fit" if fitted else "note"  # users may store notes of their own
    notes = {name: note for name, note in answer["metadata"].items() if name not in shown}
    facts |= {f"{author}: {name}": _plain(note) for name, note in notes.items()}
    named = [group for group in answer.get("groups", ()) if group.get("named")]
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
    say(f"needs --trust {','.join(answer['untrusted']) or 'no'}")  # unwrapped, to be copied
    if "verdict" in fitted:
        print_verdict(terminal, fitted["verdict"])


def _plain(value: Any) -> str:
    """Write lists and dicts without brackets, listed dicts in lines, fractions with four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        lines = [f"\n  {_plain(item)}" for item in value if isinstance(item, dict)]
        return "".join(lines) or ", ".join(map(str, value))
    return str(value)


def demo(out: Path = Path("out")) -> None:
    """Show on the paper's data which group is left out, and what repairs it."""
    with answering() as answer:
        from fareg.experiments.demo import prepare_folder, run_demo, save_figures

        prepare_folder(out)  # a folder that cannot be written is refused before the work
        with busy("training one model and four conformal predictors"):
            result = run_demo(0)
            figures = save_figures(result, out)
        answer.update(rows=result.table.to_dict("records"), rules=list(result.rules))
    _print_demo(result, figures)


def _print_demo(result: Any, figures: list[Path]) -> None:
    from rich.table import Table

    from fareg.experiments.demo import LEVELS, SPLIT

    terminal = console()
    rows = result.table.set_index("method")
    split, levels = rows.loc[SPLIT], rows.loc[LEVELS]
    everyone, inside = words.percent(split["average"]), words.percent(split["group"])
    finding = "names no group: the evidence is too thin."
    if result.rules:
        listed = "\n".join(f"  [bold]{rule}[/bold]" for rule in result.rules)
        finding = f"finds it and says who is in it:\n{listed}"
    terminal.print(
        f"The sets promise 90%. Split conformal sets cover {everyone} of all rows: fine on "
        "average.\n"
        f"But inside one group, which no single feature shows, they cover [bold]{inside}[/bold].\n"
        f"FaReG, which does not know the group, {finding}\n"
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
        "Size-matched: split conformal with sets as large as those of FaReG."
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
    with answering() as answer:
        from fareg.experiments import reproduce as run

        answer.update(run(**arguments(ctx), console=bar()).to_dict())
    for name, reason in answer["skipped"].items():
        say(f"{name} skipped, {reason}", err=True)
    say(f"{', '.join(answer['files'])}: {answer['page']}")


def benchmark(
    ctx: typer.Context,
    settings: Path,
    out: Path = Path("benchmark"),
    engine: str = "local",
) -> None:
    """Compare methods on published tables; a stopped run continues where it stopped."""
    with answering() as answer:
        from fareg.experiments import benchmark as run

        answer.update(run(**arguments(ctx), console=bar()).to_dict())
    for line in answer["too_small"]:
        say(line, err=True)
    say(f"{answer['rows']} rows, {answer['failures']} of them failures")
    for path in answer["files"]:
        say(path)
