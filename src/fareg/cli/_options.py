"""What the options of all commands are called, mean and hold.

A command is a function with plain parameters, named as the arguments of the function of files that
does its work. :func:`described` gives each its help: that of the command and the name, or else of
the name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fareg import _words as words
from fareg._words import HTML, PARQUET, TABLE, either

Text = str | None  # what need not be given
Number = float | None
Place = Path | None
ARGUMENTS = ("data", "model", "settings")  # where they must be given; all else are options
FLAGS = {  # that are not called as the argument is
    "ids": "--id",
    "probabilities": "--proba",
    "trusted": "--trust",
    "confidence_level": "--confidence",
    "conformity_score": "--score",
    "n_calibration": "--calibration-rows",
    "groups": "--group",
}
PANELS = {  # headings in the help of fit
    "Columns": ("not_features", "drop"),
    "Model": ("estimator", "probabilities", "trusted"),
    "Sets": ("confidence_level", "conformity_score", "label_conditional", "protect"),
}
LATER = "chosen before looking (default: as in fit)"
HELP = {
    "data": f"A table ({TABLE}), or a folder of {either(PARQUET)} files.",
    "model": "Model file of fareg fit.",
    "info model": "Model file.",
    "audit model": "Audit the sets of this model.",
    "target": "Column of true labels.",
    "out": "Model file to write, usually *.fareg.",
    "predict out": f"File to write ({TABLE}), or a new folder.",
    "demo out": "Folder for the figure.",
    "reproduce out": "Results folder.",
    "benchmark out": "Results folder.",
    "sensitive": "Columns that may define a group: a,b (default: those of the model, or else all).",
    "not_features": "Columns that may define a group, but are not read.",
    "drop": "Columns to ignore.",
    "keep": "Columns to copy beside the sets: id,y (default: none).",
    "ids": "Column of ids: every person has a random number of their own.",
    "clusters": "Column of ids: rows of one id stay together, and each of m rows counts 1/m.",
    "when": "Column of times (default: the order of the rows).",
    "estimator": "Model to train: hgb, forest, logistic or mlp; where installed xgboost, lightgbm "
    "or catboost. Or a fitted one in a .skops file, which must not know the rows.",
    "probabilities": "Columns of class probabilities instead: p_low,p_high or "
    "low=p_low,high=p_high or 'p_*'; their model must not know the rows.",
    "trusted": "Types in the .skops file that you know: m.Model (their code runs).",
    "trust": "What you know of the model file: the SHA-256 that it must have, and types in it "
    "whose code may run: my_module.MyModel.",
    "confidence_level": "Coverage to promise.",
    "predict confidence_level": f"Coverage to promise, {LATER}.",
    "audit confidence_level": "Coverage promised (default: the model's own, or 0.9).",
    "conformity_score": "Conformity score: aps, raps, lac, ...",
    "label_conditional": "Promise coverage for every true label.",
    "protect": "A group with a threshold of its own: 'sex = Female and age > 60'.",
    "groups": "Watch this group too: 'sex = Female and age > 60'; may be repeated.",
    "sets": "Columns of the sets: one of JSON lists, as fareg predict writes, or of text such as "
    "a|b; or True/False columns named after the labels: a,b,c.",
    "n_calibration": "Allow for sets that this many rows calibrated (a model tells it).",
    "towards": "Rows of the people for whom sets will be made: weigh rows like them.",
    "state": "The watch goes on in this .json file, or begins.",
    "seed": "The same seed gives the same numbers.",
    "engine": "local, dask, or the address of a dask scheduler; local:4 and dask:4 are 4 "
    "processes.",
    "accept_drift": "Only warn if half of a column is empty or holds other values than in fit.",
    "action": "Also say of each row: decide (one label) or refer (several or none).",
    "safe_csv": "Write CSV texts like =1+1 so that no spreadsheet runs them.",
    "report": f"Also write a report to this {either(HTML)} file.",
    "tables": "Also write every table to this folder, as CSV files.",
    "card": "Also write a section of a model card to this .md file.",
    "record": "Also write what was asked and found, and which file replaces which.",
    "test_out": f"Also write the test rows to this file: {TABLE}.",
    "fail_on": "End with exit code 3 if it is so: found (the verdict names an under-covered group, "
    "or everyone is below; slight gaps and small groups do not count), low (everyone), unequal "
    "(sets are much larger for some).",
    "monitor fail_on": "End with exit code 3 if a group is worth a look: watch or alarm.",
    "quick": "Run a small and rough version, in minutes.",
    "acs_root": "Folder of ACS PUMS files.",
    "settings": "TOML file: tables, methods, sizes, repeats.",
    "debug": "Show where an error comes from; also after a command.",
    "json": "Print one JSON object; also after a command.",
}


def described(command: Callable[..., None]) -> Callable[..., None]:
    """Give every parameter of a command its flag and help, and what reads its text."""
    signature, verb = inspect.signature(command, eval_str=True), command.__name__
    parameters = []
    for name, parameter in signature.parameters.items():
        help_ = HELP.get(f"{verb} {name}", HELP.get(name))
        panel = next((panel for panel in PANELS if verb == "fit" and name in PANELS[panel]), None)
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        flag = "--out" if (verb, name) == ("monitor", "report") else flag
        told: Any = typer.Option(flag, help=help_, rich_help_panel=panel, callback=READ.get(name))
        if name in ARGUMENTS and parameter.default is parameter.empty:
            told = typer.Argument(help=help_, show_default=False)
        if help_ is not None:
            parameter = parameter.replace(annotation=Annotated[parameter.annotation, told])
        parameters.append(parameter)
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def asked(ctx: typer.Context) -> dict[str, Any]:
    """Return what a command was asked for, as arguments of the function that does its work."""
    given: dict[str, Any] = {}
    for name, value in ctx.params.items():
        if name != "fail_on" and value is not None:
            given |= value if isinstance(value, dict) else {name: value}
    return given


def items(text: str | None) -> list[str] | None:
    """Return what stands between commas, still in quotation marks."""
    return None if text is None else words.list_items(text)


def names(text: str | None) -> list[str] | None:
    """Return the names in ``a,b``; one with a comma or outer blanks is written as ``"a, b"``."""
    return None if text is None else [words.unquoted(item) for item in words.list_items(text)]


def engine(text: str) -> dict[str, Any]:
    """Return where work is done: ``dask:4`` is the engine dask with four processes."""
    engine, _, jobs = text.partition(":")
    return {"engine": engine, "jobs": int(jobs)} if jobs.isdecimal() else {"engine": text}


def trust(text: str | None) -> dict[str, Any]:
    """Return the types that a model file may hold, and the SHA-256 that it must have.

    The name of a type holds a dot; what holds none is a digest, even if it was cut on the way.
    """
    given = names(text) or []
    digests = [name for name in given if "." not in name]
    if len(digests) > 1:
        from fareg._validation import InvalidInputError

        raise InvalidInputError(
            f"--trust must name one SHA-256 and types such as my_module.MyModel, got {text}"
        )
    trusted = [name for name in given if "." in name]
    return {"trusted": trusted, "sha256": digests[0] if digests else None}


LISTS = ("keep", "sensitive", "not_features", "drop", "sets", "trusted")
READ: dict[str, Callable[[Any], Any]] = dict.fromkeys(LISTS, names)
READ |= {"probabilities": items, "engine": engine, "trust": trust}
