"""Every table of a benchmark goes through the shell: fit, predict, audit, with reports.

    python benchmarks/shell_tables.py benchmarks/tables/benchmark.toml
    python benchmarks/shell_tables.py benchmarks/tables/benchmark.toml --only letter,oulad
    python benchmarks/shell_tables.py benchmarks/tables/benchmark.toml --speed adult-income

A table in one file is used as published: the commands get its target, its sensitive columns, the
columns to ignore and its clusters. Some steps come before: a table in several files becomes one,
and a target of numbers is cut into classes. Every command is a separate process; ``shell.csv`` and
``shell.md`` in the folder of the settings get its wall and processor seconds, peak memory and exit
code. ``--speed`` measures fit and audit against one training of the base model, in processor time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from fareg._encoding import gradient_boosting
from fareg.experiments._problems import Table, find_table, read_settings
from fareg.experiments._reports import markdown_table
from fareg.workflow import read_table

COMMANDS = ("fit", "predict", "audit")
FIT_ROWS, AUDIT_ROWS = 20_000, 6_000
TRAINING_SHARE = 0.4  # of the rows given to fit
# A small process starts the command, because a child's peak memory starts at that of its parent.
OBSERVER = """
import json, os, sys, time
start = time.perf_counter()
child = os.fork()
if child == 0:
    os.dup2(1, 2)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(child, 0)
print()
print(json.dumps({
    "exit": os.waitstatus_to_exitcode(status),
    "seconds": time.perf_counter() - start,
    "processor_seconds": used.ru_utime + used.ru_stime,
    "peak_mib": used.ru_maxrss / 1024,
}))
"""


def as_published(table: Table, folder: Path) -> Path:
    """Return a file of the table: the published one, if the commands can read it."""
    path = Path(table.path)
    if path.is_file() and not table.edges:
        return path
    frame = pd.concat([read_table(file) for file in sorted(path.parent.glob(path.name))])
    if table.edges:
        kept = frame[table.target].notna()
        for column, least in table.at_least:
            kept &= frame[column] >= least
        frame = frame[kept]
        classes = np.searchsorted(table.edges, frame[table.target], side="left")
        frame[table.target] = [f"bracket {code}" for code in classes]
    merged = folder / f"{table.name}.parquet"
    frame.to_parquet(merged, index=False)
    return merged


def command_lines(table: Table, source: Path, folder: Path) -> dict[str, list[str]]:
    """Return the arguments of each command."""
    model, rows = str(folder / "model.fareg"), str(folder / f"test{source.suffix}")
    columns = ["--target", table.target, "--sensitive", ",".join(table.sensitive)]
    clusters = ["--clusters", table.clusters] if table.clusters else []
    dropped = ["--drop", ",".join(table.drop)] if table.drop else []
    return {
        "fit": [
            *("fit", str(source), *columns, *clusters, *dropped),
            *("--out", model, "--report", str(folder / "fit.html"), "--test-out", rows),
        ],
        "predict": ["predict", model, rows, "--out", str(folder / "sets.csv")],
        "audit": [
            *("audit", rows, "--model", model, *columns, *clusters),
            *("--report", str(folder / "audit.html")),
        ],
    }


def run(line: list[str]) -> dict[str, Any]:
    """Run one command in a process and return its time, memory and exit code."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", OBSERVER, sys.executable, "-m", "fareg", *line],
        capture_output=True,
        text=True,
        check=True,
    )
    *lines, usage = [text for text in done.stdout.splitlines() if text.strip()]
    found: dict[str, Any] = json.loads(usage)
    return {**found, "load": os.getloadavg()[0], "said": lines[-1][:200] if found["exit"] else ""}


def through_the_shell(table: Table) -> list[dict[str, Any]]:
    """Return a row per command; a failure stops the commands after it."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = as_published(table, folder)
        frame = read_table(source)
        shape = {"table": table.name, "rows": len(frame), "columns": frame.shape[1]}
        shape["classes"] = frame[table.target].nunique()
        shape["missing"] = float(frame.isna().to_numpy().mean())
        del frame
        for command, line in command_lines(table, source, folder).items():
            rows.append({**shape, "command": command, **run(line)})
            typer.echo(f"{table.name} {rows[-1]}")
            if rows[-1]["exit"]:
                break
    return rows


def speed(table: Table) -> list[dict[str, Any]]:
    """Return processor seconds of fit and audit, and of one training on the rows that fit trains.

    ``start`` is a command that computes nothing: the time of imports.
    """
    frame = read_table(table.path).sample(FIT_ROWS + AUDIT_ROWS, random_state=0)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        frame[:FIT_ROWS].to_parquet(place / "fit.parquet", index=False)
        frame[FIT_ROWS:].to_parquet(place / "test.parquet", index=False)
        lines = command_lines(table, place / "fit.parquet", place)
        plain = lines["fit"][: lines["fit"].index("--report")]
        train = frame[: int(TRAINING_SHARE * FIT_ROWS)]
        X, y = train.drop(columns=[table.target, *table.drop]), train[table.target]
        start = time.process_time()
        gradient_boosting(0).fit(X, y)
        rows = [{"what": "training", "processor_seconds": time.process_time() - start}]
        for what, line in {
            "start": ["fit", "--help"],
            "fit": plain,
            "audit": lines["audit"][: lines["audit"].index("--report")],
        }.items():
            rows.append({"what": what, **run(line)})
            typer.echo(rows[-1])
    return [{"table": table.name, **row} for row in rows]


def write_page(folder: Path) -> None:
    """Write ``shell.md`` from the CSV files."""
    parts = ["## Through the shell"]
    if (folder / "shell.csv").is_file():
        found = pd.read_csv(folder / "shell.csv", dtype={"said": "str"}).fillna({"said": ""})
        parts.append(
            "`fareg fit --report`, `predict` of the test rows and `audit --report` on "
            f"{found['table'].nunique()} tables as they are published, {_load(found)} "
            "(`benchmarks/shell_tables.py`; rows in `benchmarks/tables/shell.csv`). "
            f"{int((found['exit'] != 0).sum())} commands failed.\n\n{markdown_table(_shown(found))}"
        )
    if (folder / "speed.csv").is_file():
        parts.append(_speed_sentence(pd.read_csv(folder / "speed.csv").set_index("what")))
    (folder / "shell.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _load(found: pd.DataFrame) -> str:
    """Return how busy the machine was; a load of one comes from the command itself."""
    others = found["load"].max() - 1
    busy = f", with a load of up to {others:.0f} from other processes" if others >= 0.5 else ""
    return f"on {os.cpu_count()} cores{busy}"


def _shown(found: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest, median and largest value of each command over tables."""
    rows = []
    for command in COMMANDS:
        of_command = found[found["command"] == command]
        row = {"Command": f"`{command}`"}
        for title, name in (
            ("seconds", "seconds"),
            ("processor seconds", "processor_seconds"),
            ("peak, MiB", "peak_mib"),
        ):
            low, middle, high = of_command[name].quantile([0, 0.5, 1])
            row[f"{title}: median (range)"] = f"{middle:.0f} ({low:.0f} to {high:.0f})"
        rows.append(row)
    return pd.DataFrame(rows)


def _speed_sentence(found: pd.DataFrame) -> str:
    seconds = found["processor_seconds"]
    training, start = seconds["training"], seconds["start"]
    parts = [
        f"`{what}` of {n:,} rows takes as long as "
        f"{(seconds[what] - start) / training:.1f} trainings of the base model"
        for what, n in (("fit", FIT_ROWS), ("audit", AUDIT_ROWS))
    ]
    return " and ".join(parts) + f" on {int(TRAINING_SHARE * FIT_ROWS):,} rows of the same table."


def main(
    settings: Annotated[Path, typer.Argument(help="TOML file of a benchmark.")],
    only: Annotated[str, typer.Option(help="Names of tables: a,b.")] = "",
    speed_of: Annotated[
        str, typer.Option("--speed", help="Measure fit and audit on this table instead.")
    ] = "",
) -> None:
    """Run the commands on every table."""
    names = [name for name in (speed_of or only).split(",") if name]
    plan, folder = read_settings(settings), settings.parent
    for table in plan.tables:
        if names and table.name not in names:
            continue
        found = find_table(table, folder / plan.data)
        if speed_of:
            pd.DataFrame(speed(found)).to_csv(folder / "speed.csv", index=False)
        else:
            path, rows = folder / "shell.csv", pd.DataFrame(through_the_shell(found))
            if path.is_file():
                earlier = pd.read_csv(path)
                rows = pd.concat([earlier[earlier["table"] != table.name], rows])
            rows.sort_values("table", kind="stable").to_csv(path, index=False, float_format="%.4g")
    write_page(folder)


if __name__ == "__main__":
    typer.run(main)
