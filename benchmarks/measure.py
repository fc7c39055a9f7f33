"""How things are measured: the shortest of runs in turn, and memory in processes of their own."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# of this tree, whatever is installed: stored rows say what they were measured with
VERSION = ".".join(tomllib.loads(PROJECT.read_text())["project"]["version"].split(".")[:2])
N_LABELS = 6
ENOUGH = 2.0  # seconds of repeats after which the shortest run is short enough


@dataclass(frozen=True)
class Row:
    """One line of the table: seconds and peak memory, ours beside a peer's."""

    what: str
    ours_seconds: float
    peer: str | None = None
    peer_seconds: float | None = None
    ours_peak_mib: float | None = None
    peer_peak_mib: float | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, with ``ratio``: how many times longer the peer takes."""
        ratio = None if self.peer_seconds is None else self.peer_seconds / self.ours_seconds
        return {**asdict(self), "ratio": ratio}


class Ready(ClassifierMixin, BaseEstimator):
    """Probabilities that look like a model's, from the first feature: no classifier is timed."""

    def __init__(self):
        self.classes_ = np.arange(N_LABELS)
        self.is_fitted_ = True

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        signal = X["Feature 1"].to_numpy() if hasattr(X, "columns") else np.asarray(X)[:, 0]
        p = np.exp(-np.abs(6 * signal[:, None] - 0.5 - self.classes_))
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long a call takes, and its answer."""
    gc.collect()
    start = time.perf_counter()
    answer = function()
    return time.perf_counter() - start, answer


def in_turn(
    *functions: Callable[[], Any], repeats: int = 5, enough: float = ENOUGH
) -> list[tuple[float, Any]]:
    """Call functions in turn; return the shortest time and the answer of each.

    Turns end early once they took ``enough`` seconds: long runs need no repeats.
    """
    results = [seconds(function) for function in functions]
    spent = sum(result[0] for result in results)
    for _ in range(repeats - 1):
        if spent > enough:
            break
        for k, function in enumerate(functions):
            elapsed, _ = seconds(function)
            results[k] = min(elapsed, results[k][0]), results[k][1]
            spent += elapsed
    return results


@contextlib.contextmanager
def neighbours(number: int) -> Iterator[None]:
    """Keep cores busy meanwhile."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


class Memory:
    """What the block needed at most beyond what was there before it, in MiB."""

    peak_mib: float


@contextlib.contextmanager
def memory() -> Iterator[Memory]:
    """Measure the peak of resident memory, of this process alone.

    The kernel's own mark is set back first; ``ru_maxrss`` cannot be, and starts at the parent's.
    """
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before, measured = resident("VmRSS"), Memory()
    yield measured
    measured.peak_mib = resident("VmHWM") - before


def resident(field: str) -> float:
    """Return a field of ``/proc/self/status`` in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def in_child(module: str, function: str, **arguments: Any) -> Any:
    """Call a function of a benchmark in a fresh process; arguments and answer are plain types."""
    command = [sys.executable, __file__, module, function, json.dumps(arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    called = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
    print(json.dumps(called(**json.loads(sys.argv[3]))))
