"""A small fit as users run it, without OMP_NUM_THREADS, alone and next to busy processes.

``python benchmarks/threads.py`` prints seconds, the shortest of a few runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fareg.datasets import make_synthetic

N_ROWS = 3766
REPEATS = 2


def seconds(arguments: list[str], **variables: str) -> float:
    """Return how long a command of fareg takes, with OMP_NUM_THREADS only if it is given."""
    inherited = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    start = time.perf_counter()
    command = [sys.executable, "-m", "fareg", *arguments]
    subprocess.run(command, env=inherited | variables, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def measure() -> dict[str, float]:
    """Time ``fareg fit`` with and without the variable, before and while all cores are busy."""
    times: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        table, model = str(Path(folder, "table.csv")), str(Path(folder, "m.fareg"))
        data = make_synthetic(N_ROWS, random_state=0)
        data.X.iloc[:, :5].assign(y=data.y).to_csv(table, index=False)
        fit = ["fit", table, "--target", "y", "--out", model]
        for where in ("alone", "busy"):
            command = [sys.executable, "-c", "while True: pass"]
            count = (os.cpu_count() or 1) if where == "busy" else 0
            neighbours = [subprocess.Popen(command) for _ in range(count)]
            try:
                for _ in range(REPEATS):
                    for what, variables in (("as users", {}), ("one", {"OMP_NUM_THREADS": "1"})):
                        took = seconds(fit, **variables)
                        times[f"{where}, {what}"] = min(took, times.get(f"{where}, {what}", took))
            finally:
                for neighbour in neighbours:
                    neighbour.kill()
    return times


if __name__ == "__main__":
    for what, took in measure().items():
        print(f"{what:18}{took:7.1f} s")
