"""``fareg monitor``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fareg.cli import _options as opt
from fareg.cli._running import answering, as_json, busy, trust_of
from fareg.cli._stopping import say

SHUT = 3  # the exit code of a gate that was asked for


class Verdict(StrEnum):
    """What may end a command with exit code 3; an alarm is also worth a look."""

    watch = "watch"
    alarm = "alarm"


def monitor(
    model: opt.ModelFile,
    data: opt.Data,
    target: opt.Target,
    state: Annotated[Path, typer.Option(help="The watch goes on in this .json file, or begins.")],
    when: Annotated[
        str | None, typer.Option(help="Column of times (default: the order of the rows).")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Watch this group too: 'sex = Female and age > 60'; may be repeated."),
    ] = None,
    ids: opt.Ids = None,
    out: opt.Report = None,
    fail_on: Annotated[
        Verdict | None, typer.Option(help="End with exit code 3 if a group is worth a look.")
    ] = None,
    trust: opt.Trust = None,
) -> None:
    """Watch whether coverage still holds, for everyone and group by group, as labels arrive.

    False alarms are at most 5% over all groups and all time, however often you look.
    """
    with answering() as told:
        from fareg.workflow import monitor_file

        with busy("loading the model") as progress:
            found = monitor_file(
                model,
                data,
                target=target,
                state=state,
                when=when,
                ids=ids,
                groups=group or (),
                report=out,
                progress=progress,
                **trust_of(trust),
            )
        told.update(found, state=state, report=out)
    if not as_json():
        from fareg._words import count, percent

        say(f"{count(told['fed'])} new rows, {count(told['rows'])} in all. {told['sentence']}")
        for row in told["streams"]:
            n, low, high = count(row["rows"]), percent(row["low"]), percent(row["high"])
            covered = f"{percent(row['coverage'])} of {n} rows" if row["rows"] else "no rows"
            say(f"  {row['stream']}: {covered} ({low} to {high}), {row['verdict']}")
        say(f"Next: {told['next_step']}")
        if out is not None:
            say(f"report in {out}")
    if fail_on is not None and told["verdict"] in (fail_on.value, "alarm"):
        raise typer.Exit(SHUT)
