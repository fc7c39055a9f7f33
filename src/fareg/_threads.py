"""How many threads a piece of work gets: one if it is small, as many as there are otherwise.

Libraries such as scikit-learn's boosting share even tiny loops among all cores, and threads wait
for each other at the end of every loop. That gains little on a small table, and if other programs
keep the cores busy, each wait lasts until the neighbour is paused: a fit of a second takes minutes.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

# Rows times columns. A hundred rounds of boosting on so many take about three seconds on one
# core, so more threads could save two at best.
MANY_VALUES = 1_000_000
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def few_threads(table: Any) -> Iterator[None]:
    """Keep OpenMP on one thread while the block works on a small table.

    A table of more than ``MANY_VALUES`` values gets a thread for every core that is idle now, and
    never more than the caller allows. The limit holds in the thread that enters the block, and ends
    with the block, whatever the caller had set.
    """
    shape = getattr(table, "shape", None) or np.shape(table)
    is_large = np.prod(shape[:2], dtype=np.float64) > MANY_VALUES
    openmp = _openmp(len(sys.modules))
    limit = idle_cores(_running()) if is_large else 1
    if is_large and limit >= max((lib["num_threads"] for lib in openmp.info()), default=1):
        yield
        return
    with openmp.limit(limits=limit):
        yield


def idle_cores(n_running: int) -> int:
    """Return how many cores this program may use if ``n_running`` threads run, itself included."""
    return max(1, (os.cpu_count() or 1) + 1 - n_running)


def _running() -> int:
    """Count the threads of all programs that run or wait for a core; 1 where nobody counts them."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        return 1


@functools.lru_cache(maxsize=1)
def _openmp(n_modules: int) -> Any:
    """Find the OpenMP libraries of this process, anew if modules were imported since."""
    return ThreadpoolController().select(user_api="openmp")


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra to one thread: processes share the cores, and sums keep their order."""
    before = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(VARIABLES, "1"))  # for libraries that are not loaded yet
    try:
        with threadpool_limits(1):
            yield
    finally:
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)
