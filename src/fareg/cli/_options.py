"""Flags, help and parsing of the options of all commands.

A command is a function with plain parameters, named like the arguments of the ``workflow`` function
that does its work. :func:`described` finds the help of a parameter in ``HELP``: under the command
and the name first, then under the name alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fareg import _words as words
from fareg._words import HTML, PARQUET, TABLE, either

Text = str | None  # types of options without a default
Number = float | None
Place = Path | None
POSITIONAL = ("data", "model", "settings")  # unless a command makes them optional
FLAGS = {  # where the flag has another name than the argument
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
HELP = {
    "data": f"A table ({TABLE}), or a folder of {either(PARQUET)} files.",
    "model": "Model file that fareg fit wrote.",
    "info model": "Model file.",
    "audit model": "Model file, to audit the sets that it predicts.",
    "target": "Column of true labels.",
    "out": "Model file to write, usually *.fareg.",
    "predict out": f"File to write ({TABLE}), or a new folder.",
    "demo out": "Folder for the figures.",
    "reproduce out": "Results folder.",
    "benchmark out": "Results folder.",
    "sensitive": "Columns that may define a group: a,b (default: all).",
    "audit sensitive": "Columns that may define a group: a,b (default: as in the model, or all).",
    "not_features": "Columns that may define a group, but that the model does not read.",
    "drop": "Columns to ignore.",
    "keep": "Columns to copy next to the sets: id,y (default: none).",
    "ids": "Column that says whose row it is; each id has its own random number.",
    "clusters": "Column of ids: rows with one id stay together, and each of m rows counts 1/m.",
    "when": "Column of times (default: the order of the rows).",
    "estimator": "Model to train: hgb, forest, logistic or mlp; if installed, xgboost, lightgbm "
    "or catboost. Or a .skops file with a model that was fitted on other rows.",
    "probabilities": "Columns of class probabilities, instead of a model: p_low,p_high or "
    "low=p_low,high=p_high or 'p_*'. Their model must have been fitted on other rows.",
    "trusted": "Types in the .skops file whose code may run: my_module.MyModel.",
    "trust": "SHA-256 the file must have; names of types whose code may run, such as "
    "my_module.MyModel (both may be given).",
    "confidence_level": "Coverage to promise.",
    "predict confidence_level": "Coverage to promise, chosen before looking (default: as in fit).",
    "audit confidence_level": "Coverage that was promised (default: as in the model, or 0.9).",
    "conformity_score": "Conformity score: aps, raps, lac, ...",
    "label_conditional": "Promise the coverage for each true label.",
    "protect": "Give this group its own threshold: 'sex = Female and age > 60'; may be repeated.",
    "groups": "Watch this group too: 'sex = Female and age > 60'; may be repeated.",
    "sets": "Columns of the sets: one with JSON lists, as fareg predict writes them, or with text "
    "such as a|b; or True/False columns named after the labels: a,b,c.",
    "n_calibration": "Number of rows that calibrated the sets (a model file knows it).",
    "towards": "Rows of the people who will get the sets: weight calibration rows towards them.",
    "state": ".json file that keeps the watch between runs; the first run creates it.",
    "seed": "The same seed gives the same numbers.",
    "engine": "Where to run: local, dask or the address of a dask scheduler; local:4 and dask:4 "
    "use 4 processes.",
    "accept_drift": "Only warn if half of a column is empty or holds values unlike those in fit.",
    "action": "Also write what to do with each row: decide (one label) or refer (several or none).",
    "safe_csv": "Write CSV texts like =1+1 so that no spreadsheet runs them.",
    "report": f"Also write a report to this {either(HTML)} file.",
    "tables": "Also write every table to this folder, as CSV files.",
    "card": "Also write a section of a model card to this .md file.",
    "record": "Also write a record to this .json file: settings, coverage, old and new model.",
    "test_out": f"Also write the test rows to this file: {TABLE}.",
    "fail_on": "Exit with code 3 for: found (an under-covered group is named, or everyone is "
    "under-covered; slight shortfalls and small groups do not count), low (everyone is), unequal "
    "(sets are much larger for some). Gaps between true labels never count.",
    "monitor fail_on": "Exit with code 3 if the verdict is this or worse: watch, alarm.",
    "quick": "Run a small and rough version, in minutes.",
    "acs_root": "Folder of ACS PUMS files.",
    "settings": "TOML file: tables, methods, sizes, repeats.",
    "debug": "Show where an error comes from; accepted after a command too.",
    "json": "Print one JSON object; accepted after a command too.",
}


def described(command: Callable[..., None]) -> Callable[..., None]:
    """Give every parameter of a command its flag, its help and the function that parses it."""
    signature, verb = inspect.signature(command, eval_str=True), command.__name__
    parameters = []
    for name, parameter in signature.parameters.items():
        help_ = HELP.get(f"{verb} {name}", HELP.get(name))
        panel = next((panel for panel in PANELS if verb == "fit" and name in PANELS[panel]), None)
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        flag = "--out" if (verb, name) == ("monitor", "report") else flag
        info: Any = typer.Option(flag, help=help_, rich_help_panel=panel, callback=READ.get(name))
        if name in POSITIONAL and parameter.default is parameter.empty:
            info = typer.Argument(help=help_, show_default=False)
        if help_ is not None:
            parameter = parameter.replace(annotation=Annotated[parameter.annotation, info])
        parameters.append(parameter)
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def arguments(ctx: typer.Context) -> dict[str, Any]:
    """Return the options of a call as arguments of the function that does the work."""
    found: dict[str, Any] = {}
    for name, value in ctx.params.items():
        if name != "fail_on" and value is not None:
            found |= value if isinstance(value, dict) else {name: value}
    return found


def items(text: str | None) -> list[str] | None:
    """Return the items between commas, still in quotation marks."""
    return None if text is None else words.list_items(text)


def names(text: str | None) -> list[str] | None:
    """Return the names in ``a,b``; one with a comma or outer blanks is written as ``"a, b"``."""
    return None if text is None else [words.unquoted(item) for item in words.list_items(text)]


def engine(text: str) -> dict[str, Any]:
    """Return the engine and its number of processes: ``dask:4`` is dask with four processes."""
    name, _, jobs = text.partition(":")
    return {"engine": name, "jobs": int(jobs)} if jobs.isdecimal() else {"engine": text}


def trust(text: str | None) -> dict[str, Any]:
    """Return the types that a model file may hold, and the SHA-256 that it must have.

    The name of a type has a dot; an item without one is a digest, even if part of it was lost.
    """
    entries = names(text) or []
    digests = [entry for entry in entries if "." not in entry]
    if len(digests) > 1:
        from fareg._validation import InvalidInputError

        raise InvalidInputError(
            f"--trust must name one SHA-256 and types such as my_module.MyModel, got {text}; leave "
            "out the others"
        )
    trusted = [entry for entry in entries if "." in entry]
    return {"trusted": trusted, "sha256": digests[0] if digests else None}


LISTS = ("keep", "sensitive", "not_features", "drop", "sets", "trusted")
READ: dict[str, Callable[[Any], Any]] = dict.fromkeys(LISTS, names)
READ |= {"probabilities": items, "engine": engine, "trust": trust}
