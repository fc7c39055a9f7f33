"""The command line: it parses, calls and prints."""

from __future__ import annotations

import json as json_format
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="fareg",
    help="Fair conformal classification for groups nobody named.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same numbers.")]
Target = Annotated[str, typer.Option(help="Column of true labels.")]
Sensitive = Annotated[
    str | None, typer.Option(help="Columns that may define a group: a,b (default: all).")
]
Data = Annotated[Path, typer.Argument(help="Table in a .csv or .parquet file.", show_default=False)]
Engine = Annotated[str, typer.Option(help="local or dask.")]
Jobs = Annotated[int | None, typer.Option(help="Processes (default: one per core).")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a dask scheduler.")]
Trust = Annotated[
    str | None,
    typer.Option(
        help="Types in the model file that you know: my_module.MyModel (their code runs)."
    ),
]
Report = Annotated[Path | None, typer.Option(help="Also write a report to this .html file.")]


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"fareg {version('fareg')}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Show the version and stop."
        ),
    ] = False,
) -> None:
    """Find who is under-covered, and fix it."""


@app.command()
def fit(
    data: Data,
    target: Target,
    out: Annotated[Path, typer.Option(help="Model file to write, usually *.fareg.")],
    sensitive: Sensitive = None,
    estimator: Annotated[str, typer.Option(help="hgb, forest, logistic or mlp.")] = "hgb",
    confidence: Annotated[float, typer.Option(help="Coverage to promise.")] = 0.9,
    label_conditional: Annotated[
        bool, typer.Option("--label-conditional", help="Promise coverage for every true label.")
    ] = False,
    allow_empty: Annotated[
        bool,
        typer.Option(help="Let sets be empty; if not, the most probable label joins such a set."),
    ] = True,
    clusters: Annotated[
        str | None, typer.Option(help="Column of ids: rows of one id stay together.")
    ] = None,
    seed: Seed = 0,
    report: Report = None,
    test_out: Annotated[
        Path | None, typer.Option(help="Also write the test rows to this file, for an audit.")
    ] = None,
    json: Json = False,
) -> None:
    """Train a model on a table, find who is under-covered, calibrate, and test."""
    with _plain_errors(json) as told:
        from fareg._files import check_output
        from fareg.workflow import fit_file

        if report is not None:
            check_output(report, apart_from=[data, out, test_out])
        with _busy("reading the table", json) as progress:
            trial = fit_file(
                data,
                target=target,
                out=out,
                sensitive=_names(sensitive),
                estimator=estimator,
                confidence_level=confidence,
                label_conditional=label_conditional,
                allow_empty=allow_empty,
                clusters=clusters,
                measures=report is not None,
                progress=progress,
                seed=seed,
                test_out=test_out,
            )
            if report is not None:
                _write_report(trial.report(), report)
        files = {"model": str(out), "report": _text(report), "test_rows": _text(test_out)}
        told.update(trial.to_dict(), **files)
    if not json:
        _print_trial(told)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Model file of fareg fit.", show_default=False)],
    data: Annotated[
        Path,
        typer.Argument(help="A .csv or .parquet file, or a folder of .parquet files."),
    ],
    out: Annotated[Path, typer.Option(help="File to write (.csv, .parquet), or a new folder.")],
    keep: Annotated[
        str | None, typer.Option(help="Columns to copy beside the sets: id,y (default: none).")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Rows in memory at a time.")] = 50_000,
    engine: Engine = "local",
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Write the prediction set of every row: set, size, top label, group.

    The files of a folder are answered in parallel. A run that was stopped continues there.
    """
    with _plain_errors(json) as told:
        from fareg._validation import InvalidInputError

        if not data.is_dir() and (engine, jobs, scheduler) != ("local", None, None):
            raise InvalidInputError(
                f"--engine, --jobs and --scheduler are for a folder of Parquet files, {data} is "
                "none; leave them out, or split the file"
            )
        with _progress(data, json) as advance:
            common: dict[str, Any] = {
                "keep": _names(keep) or (),
                "batch_size": batch_size,
                "trusted": _names(trust),
                "progress": advance,
            }
            if not data.is_dir():
                from fareg.workflow import predict_file

                told.update(predict_file(model, data, out, **common))
            else:
                from fareg.workflow import predict_folder

                where: dict[str, Any] = {"engine": engine, "jobs": jobs, "scheduler": scheduler}
                try:
                    told.update(predict_folder(model, data, out, **common, **where))
                except KeyboardInterrupt:
                    _stop("Interrupted: finished parts are kept, the same command goes on.", 130)
        told["out"] = str(out)
    if not json:
        from fareg.report import words

        rows, size = told["rows"], told["mean_size"]
        typer.echo(f"{rows} sets of {words.size(size)} labels on average, in {out}")


@app.command()
def info(
    model: Annotated[Path, typer.Argument(help="Model file.", show_default=False)],
    json: Json = False,
) -> None:
    """Show what is in a model file, without running it."""
    with _plain_errors(json) as told:
        from fareg.persistence import describe

        told.update(describe(model))
    if not json:
        _print_info(told, model)


@app.command()
def audit(
    data: Data,
    target: Target,
    sets: Annotated[
        str | None,
        typer.Option(
            help="Columns of the sets: one of lists or of text such as a|b, or True/False columns "
            "named after the labels: a,b,c."
        ),
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Audit the sets of this model.")] = None,
    sensitive: Sensitive = None,
    confidence: Annotated[
        float | None, typer.Option(help="Coverage promised (default: the model's own, or 0.9).")
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(help="Column of ids: rows that share one may depend on each other."),
    ] = None,
    calibration_rows: Annotated[
        int | None,
        typer.Option(help="Allow for a predictor that was calibrated on this many rows."),
    ] = None,
    seed: Seed = 0,
    report: Report = None,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Find who is covered less often than promised, by the sets of any tool."""
    with _plain_errors(json) as told:
        from fareg._files import check_output
        from fareg.workflow import audit_file

        if report is not None:
            check_output(report, apart_from=[data, model])
        with _busy("looking for groups and testing them", json):
            result = audit_file(
                data,
                target=target,
                sets=_names(sets),
                model=model,
                sensitive=_names(sensitive),
                confidence_level=confidence,
                seed=seed,
                trusted=_names(trust),
                clusters=clusters,
                n_calibration=calibration_rows,
            )
            if report is not None:
                result.to_html(report)
        told.update(result.to_dict(), report=_text(report))
    if not json:
        typer.echo(result.summary())
        if report is not None:
            typer.echo(f"report in {report}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("out"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Show the story on the paper's data: who is left out, who they are, what repairs it."""
    with _plain_errors(json) as told:
        from fareg.experiments.demo import run_demo, save_figures

        with _busy("training one model and four conformal predictors", json):
            result = run_demo(seed)
            figures = save_figures(result, out)
        told.update(rows=result.table.to_dict("records"), rule=result.rule)
    if not json:
        _print_demo(result, figures)


@app.command()
def reproduce(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures, see --list (default: all).")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name the targets and stop.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small and rough version, in minutes.")
    ] = False,
    repeats: Annotated[int | None, typer.Option(help="Repetitions (default: 10).")] = None,
    sizes: Annotated[str | None, typer.Option(help="Values of N: 200,500,1000.")] = None,
    jobs: Jobs = None,
    engine: Engine = "local",
    scheduler: Scheduler = None,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("reproduction"),
    acs_root: Annotated[Path | None, typer.Option(help="Folder of ACS PUMS files.")] = None,
    acs_extract: Annotated[Path | None, typer.Option(help="CSV extract of the ACS.")] = None,
    json: Json = False,
) -> None:
    """Run the paper's experiments; a stopped run continues where it stopped."""
    with _plain_errors(json) as told:
        from rich.console import Console

        from fareg.experiments import list_targets, parse_sizes
        from fareg.experiments import reproduce as run

        told.update(targets=list_targets())
        if not list_:
            try:
                done = run(
                    targets or (),
                    out=out,
                    quick=quick,
                    repeats=repeats,
                    sizes=parse_sizes(sizes),
                    jobs=jobs,
                    engine=engine,
                    scheduler=scheduler,
                    acs_root=acs_root,
                    acs_extract=acs_extract,
                    console=None if json else Console(stderr=True),
                )
            except KeyboardInterrupt:
                _stop("Interrupted: results so far are kept, the same command goes on.", 130)
            told.update(done.to_dict())
    if not json:
        _print_reproduction(told)


def _names(text: str | None) -> list[str] | None:
    """Return the column names in ``a,b``."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _write_report(summary: dict[str, Any], path: Path) -> None:
    from fareg._files import replacing
    from fareg.report import render_report

    with replacing(path) as temporary:
        temporary.write_text(render_report(summary), encoding="utf-8")


@contextmanager
def _plain_errors(json: bool) -> Iterator[dict[str, Any]]:
    """Yield a dict to be filled, printed as JSON if asked; an error is one line and exit code 2."""
    told: dict[str, Any] = {}
    try:
        from fareg._validation import FaregError, FaregWarning

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", FaregWarning)
            try:
                yield told
            except (FaregError, ValueError) as error:
                _stop(f"Error: {_in_shell(error)}", 2)
    except KeyboardInterrupt:
        _stop("Interrupted: nothing was written.", 130)
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    if json:
        typer.echo(json_format.dumps({**told, "warnings": notes}, ensure_ascii=False))
    else:
        for note in notes:
            typer.echo(f"Warning: {note}", err=True)


def _in_shell(error: Exception) -> str:
    """Return an error in one line, with the fix as it is typed in a shell."""
    if type(error).__name__ == "UntrustedTypesError":  # by name: its module is heavy to import
        names = ",".join(error.names)  # type: ignore[attr-defined]
        return (
            f"the estimator holds types that are not trusted: {names}; if you know them and who "
            f"wrote the file, add --trust {names}"
        )
    return " ".join(str(error).split())


def _stop(line: str, code: int) -> None:
    typer.echo(line, err=True)
    raise typer.Exit(code)


@contextmanager
def _busy(what: str, json: bool) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is going on; yield a function that tells the next stage."""
    if json or not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console

    start = time.monotonic()
    with Console(stderr=True).status(what) as status:
        yield lambda stage: status.update(f"{stage} ({time.monotonic() - start:.0f} s so far)")


@contextmanager
def _progress(data: Path, json: bool) -> Iterator[Any]:
    """Yield a function that counts finished rows, shown on a terminal only."""
    if json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from fareg.workflow import count_rows

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rows", total=count_rows(data))
        yield lambda rows: bar.advance(task, rows)


def _print_demo(result: Any, figures: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    from fareg.experiments.demo import LEVELS, SPLIT
    from fareg.report import words

    console = Console(highlight=False)
    rows = result.table.set_index("method")
    split, levels = rows.loc[SPLIT], rows.loc[LEVELS]
    everyone, inside = words.percent(split["average"]), words.percent(split["group"])
    name = "names nobody: the evidence is too thin."
    if result.rule is not None:
        name = (
            f"finds and names it (the words fit what it learned on "
            f"{words.percent(result.fidelity, 0)} of rows):\n  [bold]{result.rule}[/bold]"
        )
    console.print(
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
    console.print(table)
    console.print(
        f"The base model took {result.base_seconds:.1f} s to train. Levels learn from its training "
        "rows, at the cost of five more trainings; RCP learns from half of the calibration rows. "
        "Size-matched: split conformal at the level that makes its sets as large as levels do."
    )
    console.print(f"figures in {' and '.join(map(str, figures))}")


def _print_reproduction(told: dict[str, Any]) -> None:
    if "files" not in told:
        for name, title in told["targets"].items():
            typer.echo(f"{name:14} {title}")
        return
    for name, reason in told["skipped"].items():
        typer.echo(f"{name} skipped, {reason}", err=True)
    for name, files in told["files"].items():
        typer.echo(f"{name}: {', '.join(files)}")
    typer.echo(f"in {told['folder']}")


def _print_trial(told: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fareg.report import words, worst_label

    console = Console(highlight=False)
    rows, level = told["rows"], words.level(told["confidence_level"])
    console.print(
        f"{rows['train']} rows trained, {rows['calibrate']} calibrated, {rows['test']} tested; "
        f"accuracy {words.percent(told['accuracy'])}"
    )
    table = Table("test rows", title=f"coverage, {level} asked for", title_justify="left")
    for heading in ("n", "split conformal", "FaReG", "95% interval"):
        table.add_column(heading, justify="right")
    overall = [words.percent(told[moment]["coverage"]) for moment in ("before", "after")]
    table.add_row("everyone", words.count(rows["test"]), *overall)
    sizes = [words.size(told[moment]["mean_size"]) for moment in ("before", "after")]
    table.add_row("labels per set", words.count(rows["test"]), *sizes)
    for group in told["groups"]:
        cells = [words.percent(group[moment]) for moment in ("before", "after")]
        interval = words.interval(group["after_low"], group["after_high"]) if group["n"] else ""
        table.add_row(escape(group["group"]), words.count(group["n"]), *cells, interval)
    worst = worst_label(told["by_label"]) or {}
    table.add_row(
        f"true label {escape(worst['label'])}",
        words.count(worst["n"]),
        words.percent(worst["before"]),
        words.percent(worst["coverage"]),
        words.interval(worst["low"], worst["high"]),
    )
    console.print(table)
    _print_verdict(console, told["verdict"])
    console.print(f"model in {escape(told['model'])}")
    if told["report"]:
        console.print(f"report in {escape(told['report'])}")
    if told["test_rows"]:
        console.print(f"test rows in {escape(told['test_rows'])}")


def _print_verdict(console: Any, verdict: dict[str, Any]) -> None:
    from rich.markup import escape

    console.print(f"[bold]{escape(verdict['label'])}.[/bold] {escape(verdict['sentence'])}")
    for step in verdict["next_steps"]:
        console.print(f"Next: {escape(step)}")


def _print_info(told: dict[str, Any], path: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fareg.report import words

    columns, metadata = told["columns"] or [], dict(told["metadata"])
    verdict = metadata.pop("verdict", None)
    facts = {
        "file": f"{path} ({words.count(told['bytes'])} bytes)",
        "class": told["class"],
        "classes": ", ".join(told["classes"][:20]) + (" ..." if len(told["classes"]) > 20 else ""),
        "columns": ", ".join(columns[:20]) + (" ..." if len(columns) > 20 else ""),
        "calibrated on": words.rows(told["n_calibration"]),
        "stored estimator": "yes" if told["has_estimator"] else "no: pass it to fareg.load",
        "needs --trust": ",".join(told["untrusted"]) or "no",
        "versions": ", ".join(f"{name} {v}" for name, v in told["versions"].items()),
    }
    facts |= {
        name: _plain(value) for name, value in told["parameters"].items() if value is not None
    }
    facts |= {f"fit: {name}": _plain(v) for name, v in metadata.items() if name != "columns"}
    named = [group for group in told.get("groups", ()) if group.get("named")]
    for number, group in enumerate(named, start=1):
        facts[f"named group {number}"] = (
            f"{group['rule']} ({words.percent(group['share'], 0)} of the calibration rows; split "
            f"conformal sets cover {words.percent(group['coverage'])} of them; "
            f"{words.evidence(group)})"
        )
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(escape(name), escape(value))
    console = Console(highlight=False)
    console.print(table)
    if isinstance(verdict, dict):
        _print_verdict(console, verdict)


def _plain(value: Any) -> str:
    """Write lists and dicts without brackets, and fractions with four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
