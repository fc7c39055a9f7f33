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

    The limit holds in the thread that enters the block, and ends with the block, whatever the
    caller had set. Tables of more than ``MANY_VALUES`` values keep all threads.
    """
    shape = getattr(table, "shape", None) or np.shape(table)
    if np.prod(shape[:2], dtype=np.float64) > MANY_VALUES:
        yield
        return
    with _openmp(len(sys.modules)).limit(limits=1):
        yield


@functools.lru_cache(maxsize=1)
def _openmp(n_modules: int) -> Any:
    """Find the OpenMP libraries of this process, anew if modules were imported since."""
    return ThreadpoolController().select(user_api="openmp")


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra to one thread: processes share the cores, and sums keep their order."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, "1"))  # for libraries that are not loaded yet
    try:
        with threadpool_limits(1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
