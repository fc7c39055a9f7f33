"""``fareg fit``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fareg._words import TABLE
from fareg.cli import _options as opt
from fareg.cli._running import (
    SETTINGS,
    answering,
    as_json,
    busy,
    check_gate,
    gate,
    names,
    print_verdict,
)
from fareg.cli._running import console as terminal

MAX_LABELS = 12  # in the table, worst first
COLUMNS, MODEL, SETS = "Columns", "Model", "Sets"  # headings of the help


def _option(help_: str, panel: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help_, rich_help_panel=panel)


def fit(
    data: opt.Data,
    target: opt.Target,
    out: opt.ModelOut,
    sensitive: opt.Sensitive = None,
    not_features: Annotated[
        str | None, _option("Columns that may define a group, but are not read.", COLUMNS)
    ] = None,
    drop: Annotated[str | None, _option("Columns to ignore.", COLUMNS)] = None,
    clusters: opt.Clusters = None,
    ids: opt.Ids = None,
    estimator: Annotated[
        str,
        _option(
            "Model to train: hgb, forest, logistic or mlp; where installed xgboost, lightgbm or "
            "catboost. Or a fitted one in a .skops file, which must not know the rows.",
            MODEL,
        ),
    ] = "hgb",
    proba: Annotated[
        str | None,
        _option(
            "Columns of class probabilities instead: p_low,p_high or low=p_low,high=p_high or "
            "'p_*'; their model must not know the rows.",
            MODEL,
        ),
    ] = None,
    trust: Annotated[
        str | None,
        _option("Types in the .skops file that you know: m.Model (their code runs).", MODEL),
    ] = None,
    confidence: Annotated[float, _option("Coverage to promise.", SETS)] = 0.9,
    score: Annotated[str, _option("Conformity score: aps, raps, lac, ...", SETS)] = "aps",
    label_conditional: Annotated[
        bool, _option("Promise coverage for every true label.", SETS, "--label-conditional")
    ] = False,
    protect: Annotated[
        list[str] | None,
        _option("A group with a threshold of its own: 'sex = Female and age > 60'.", SETS),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 0,
    report: opt.Report = None,
    fail_on: opt.FailOn = None,
    test_out: Annotated[
        Path | None, typer.Option(help=f"Also write the test rows to this file: {TABLE}.")
    ] = None,
) -> None:
    """Train a model on a table, find who is under-covered, calibrate, and test.

    With a .skops file or --proba nothing is trained: a fitted model, or its probabilities in the
    table, is calibrated and tested. Its rows must be others than those that trained it.
    """
    check_gate(fail_on)
    with answering() as told:
        from fareg._files import digest_of
        from fareg.workflow import fit_file

        with busy("reading the table") as progress:
            trial = fit_file(
                data,
                target=target,
                out=out,
                sensitive=names(sensitive),
                not_features=names(not_features) or (),
                drop=names(drop) or (),
                clusters=clusters,
                ids=ids,
                estimator=estimator,
                probabilities=_probabilities(proba, data),
                trusted=names(trust),
                confidence_level=confidence,
                conformity_score=score,
                label_conditional=label_conditional,
                progress=progress,
                seed=seed,
                protect=protect or (),
                report=report,
                test_out=test_out,
                settings={**SETTINGS, "protect": _again()},
            )
        told.update(trial.to_dict(), model=out, report=report, test_rows=test_out)
        told["sha256"] = digest_of(out)
    if not as_json():
        _print_trial(told)
    gate(fail_on, trial.comparison)


def _again() -> str:
    """Return this command again, up to the words of a group to protect."""
    return shlex.join(["fareg", *sys.argv[1:], "--protect"])


def _probabilities(given: str | None, data: Path) -> dict[str, str] | list[str] | str | None:
    """Return the columns in ``a,b`` or ``label=a,other=b``; of ``p_*``, the beginning."""
    columns = names(given)
    if columns is None or not any("=" in column or "*" in column for column in columns):
        return columns
    if len(columns) == 1 and columns[0].find("*") == len(columns[0]) - 1:
        return columns[0][:-1]
    from fareg.workflow import table_columns

    known = table_columns(data)  # names may hold these signs too, as the label <=50K does
    if set(columns) <= set(known):
        return columns
    from fareg import _words as words

    pairs = [_pair(item, known) for item in words.list_items(given or "")]
    labels = [label for label, _ in pairs]
    if not all(column for _, column in pairs) or len(set(labels)) < len(labels):
        from fareg._validation import InvalidInputError

        raise InvalidInputError(
            f"--proba must be a list of columns, pairs label=column of distinct labels or one "
            f"beginning such as p_*, got {given}; put a name with a comma or outer blanks in "
            'quotation marks, such as low="p, low"'
        )
    return dict(pairs)


def _pair(item: str, known: list[str]) -> tuple[str, str]:
    """Return label and column of ``label=column``, cut where a known column follows."""
    from fareg import _words as words

    cuts = [place for place, sign in enumerate(item) if sign == "="]
    pairs = [(words.unquoted(item[:cut]), words.unquoted(item[cut + 1 :])) for cut in cuts]
    return next((pair for pair in pairs if pair[1] in known), (pairs or [("", "")])[0])


def _add(table: Any, name: str, row: dict[str, Any], few: bool, sized: tuple[str, ...]) -> None:
    """Add a group to the table: coverage before and after, and sizes where they are known."""
    from rich.markup import escape

    from fareg.report import words

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
    from fareg.report import words

    console = terminal()
    rows, level = told["rows"], words.confidence(told["confidence_level"])
    first = f"{rows['train']} rows trained" if "train" in rows else ""
    first = first or f"{rows['learn']} rows to learn from"
    console.print(
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
    console.print(table)
    print_verdict(console, told["verdict"])
    console.print(escape(" ".join(told["opening"])))
    for what in ("model", "report", "test_rows"):
        if told[what]:
            console.print(f"{what.replace('_', ' ')} in {escape(str(told[what]))}")
    console.print(f"SHA-256 of the model: {told['sha256']}")
