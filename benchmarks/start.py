"""Cold start: seconds until the command line answers, against the import of pandas and sklearn."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import Row, in_turn

from fareg.datasets import make_synthetic
from fareg.workflow import fit_file

N_ROWS = 100
REPEATS = 5
IMPORTS = "import pandas, sklearn.ensemble"


def run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def measure() -> dict:
    """Time each command in turn with the imports that any work on a table needs."""
    with tempfile.TemporaryDirectory() as folder:
        train, new, model, out = (
            str(Path(folder, name)) for name in ("train.csv", "new.csv", "m.fareg", "sets.csv")
        )
        data = make_synthetic(2000, random_state=0)
        data.X.assign(y=data.y).to_csv(train, index=False)
        data.X[:N_ROWS].to_csv(new, index=False)
        fit_file(train, target="y", sensitive=list(data.sensitive), out=model)
        commands = {
            "fareg --version": ["--version"],
            "fareg --help": ["--help"],
            f"fareg predict, cold, {N_ROWS} rows": ["predict", model, new, "--out", out],
        }
        timed = in_turn(
            partial(run, "-c", IMPORTS),
            *(partial(run, "-m", "fareg", *command) for command in commands.values()),
            repeats=REPEATS,
            enough=float("inf"),
        )
    (imports, _), *ours = timed
    return {
        "rows": [
            Row(what, seconds, note=f"{seconds / imports:.2f} times `{IMPORTS}`, {imports:.2f} s")
            for what, (seconds, _) in zip(commands, ours, strict=True)
        ]
    }


if __name__ == "__main__":
    for row in measure()["rows"]:
        print(f"{row.what:34}{row.ours_seconds:6.2f} s  {row.note}")
