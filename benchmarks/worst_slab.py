"""Time and memory of the worst-slab search, beside covmetrics on the same directions.

Run ``python benchmarks/worst_slab.py`` for a table, with ``--json`` for one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from covmetrics.slab_metrics import wsc_all_numpy
from rich.console import Console
from rich.table import Table

from fareg.metrics import worst_slab_coverage

DELTA = 0.1
N_FEATURES = 10
SPEED_GOAL = 20
MEMORY_GOAL = 1024  # MiB


def make(n_samples: int) -> tuple[Any, Any]:
    """Return uniform features and a coverage that is lower in one corner."""
    rng = np.random.default_rng(0)
    X = rng.random((n_samples, N_FEATURES))
    hard = (X[:, 0] < 0.3) & (X[:, 1] < 0.5)
    return X, rng.random(n_samples) < np.where(hard, 0.7, 0.93)


def seconds(function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Return the shortest time over some repeats, and the answer."""
    times, answer = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        answer = function()
        times.append(time.perf_counter() - start)
    return min(times), answer


def compare(n_samples: int = 2000, n_directions: int = 100) -> dict[str, Any]:
    """Search the same slabs with both packages, in turn, and compare the value per direction."""
    X, covered = make(n_samples)
    # without repeated projections both conventions search the same slabs; the first draws of
    # the generator are the directions
    vectors = np.random.default_rng(0).standard_normal((n_directions, N_FEATURES))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ours, found = seconds(
        lambda: worst_slab_coverage(
            X, covered, delta=DELTA, n_directions=n_directions, slab="index", random_state=0
        ),
        repeats=5,
    )
    theirs, answer = seconds(lambda: wsc_all_numpy(X, covered.astype(float), DELTA, vectors))
    return {
        "n_samples": n_samples,
        "n_directions": n_directions,
        "fareg_seconds": ours,
        "covmetrics_seconds": theirs,
        "speedup": theirs / ours,
        "largest_difference": float(np.abs(found.values - answer[0]).max()),
    }


def scale(
    n_samples: int = 100_000, n_directions: int = 1000, kind: str = "linear"
) -> dict[str, Any]:
    """Time a large search, then repeat it with memory tracing on."""
    X, covered = make(n_samples)
    options: dict[str, Any] = {"delta": DELTA, "kind": kind, "random_state": 0}
    elapsed, found = seconds(
        lambda: worst_slab_coverage(X, covered, n_directions=n_directions, **options)
    )
    tracemalloc.start()
    worst_slab_coverage(X, covered, n_directions=n_directions, **options)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return {
        "n_samples": n_samples,
        "n_directions": n_directions,
        "kind": kind,
        "seconds": elapsed,
        "peak_mebibytes": peak,
        "value": found.value,
    }


def main() -> dict[str, Any]:
    """Run both parts and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    as_json = parser.parse_args().json
    beside, large = compare(), scale()
    result = {"beside_covmetrics": beside, "large": large}
    if as_json:
        print(json.dumps(result))
        return result
    table = Table("search", "points", "directions", "seconds", "note", title="Worst-slab coverage")
    size = str(beside["n_samples"]), str(beside["n_directions"])
    equal = f"largest difference {beside['largest_difference']:.1e}"
    table.add_row("covmetrics", *size, f"{beside['covmetrics_seconds']:.3f}", equal)
    speed = f"{beside['speedup']:.0f} times faster, goal {SPEED_GOAL}"
    table.add_row("fareg", *size, f"{beside['fareg_seconds']:.3f}", speed)
    memory = f"peak {large['peak_mebibytes']:.0f} MiB, goal below {MEMORY_GOAL}"
    size = str(large["n_samples"]), str(large["n_directions"])
    table.add_row("fareg", *size, f"{large['seconds']:.1f}", memory)
    Console().print(table)
    return result


if __name__ == "__main__":
    main()
