"""Limits on threads: small work gets one thread, large work as many as its library chooses.

Libraries such as scikit-learn's boosting share even tiny loops among all cores, and threads wait
for each other at the end of every loop. That gains little on a small table. If other programs keep
the cores busy, each wait lasts until such a program is paused: a fit of a second takes minutes.

The limit depends on the work alone, not on the load of the machine. When all blocks have ended,
even overlapping ones, every library has as many threads as before.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Rows times columns. At this size, a hundred rounds of boosting take about ten seconds on one core.
# Two threads would save at most five seconds, and lose minutes if other programs are busy.
MANY_VALUES = 10_000_000


@contextmanager
def few_threads(table: Any) -> Iterator[None]:
    """Keep OpenMP on one thread while the block works on a table of at most ``MANY_VALUES`` values.

    A larger table gets as many threads as OpenMP or the caller allows. The limit holds only in the
    thread that enters the block.
    """
    shape = getattr(table, "shape", None) or np.shape(table)
    is_large = np.prod(shape[:2], dtype=np.float64) > MANY_VALUES
    with nullcontext() if is_large else _libraries("openmp").limit(limits=1):
        yield


_LOCK = threading.RLock()
_BLOCKS = [0]  # how many open blocks limit linear algebra to one thread
_LIMITS: dict[str, Any] = {}  # by path of the library


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit OpenMP and linear algebra to one thread: cores are shared, and sums keep their order.

    Linear algebra has one number of threads for the whole process. If blocks overlap in different
    threads, the first one lowers it and the last one restores it. Newer versions of threadpoolctl
    accept changes only from the thread that set the first limit, until it has left all its blocks;
    the blocks that limit no library work around this.
    """
    with _libraries("openmp").limit(limits=1):
        with _LOCK, _libraries("none").limit(limits=1):
            _BLOCKS[0] += 1
            libraries = _libraries("blas")
            # An inner block may find libraries that were loaded after the outer one began.
            for path in {library["filepath"] for library in libraries.info()} - set(_LIMITS):
                _LIMITS[path] = libraries.select(filepath=path).limit(limits=1)
        try:
            yield
        finally:
            with _LOCK, _libraries("none").limit(limits=1):
                _BLOCKS[0] -= 1
                while not _BLOCKS[0] and _LIMITS:
                    _LIMITS.popitem()[1].restore_original_limits()


def _libraries(kind: str) -> Any:
    """Return the controller of one kind of libraries: "openmp", "blas" or "none"."""
    return _loaded(len(sys.modules)).select(user_api=kind)


@functools.lru_cache(maxsize=1)
def _loaded(n_modules: int) -> Any:
    """Find the libraries of this process, again if modules have been imported since."""
    return ThreadpoolController()
