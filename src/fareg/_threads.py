"""How many threads a piece of work gets: one if it is small, the library's choice otherwise.

Libraries such as scikit-learn's boosting share even tiny loops among all cores, and threads wait
for each other at the end of every loop. That gains little on a small table, and if other programs
keep the cores busy, each wait lasts until the neighbour is paused: a fit of a second takes minutes.

The rule looks at the work alone, not at what else the machine does. Nothing stays changed: when the
blocks have ended, whichever overlapped, every library has as many threads as before.
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

# Rows times columns. A hundred rounds of boosting on so many take about ten seconds on one core.
# Two threads would save five of them at best, and next to busy neighbours lose minutes.
MANY_VALUES = 10_000_000


@contextmanager
def few_threads(table: Any) -> Iterator[None]:
    """Keep OpenMP on one thread while the block works on a table of at most ``MANY_VALUES`` values.

    Work on a larger table gets as many threads as OpenMP gives by itself, or the caller allows. The
    limit holds in the thread that enters the block, and ends with the block.
    """
    shape = getattr(table, "shape", None) or np.shape(table)
    is_large = np.prod(shape[:2], dtype=np.float64) > MANY_VALUES
    with nullcontext() if is_large else _libraries("openmp").limit(limits=1):
        yield


_LOCK = threading.RLock()
_BLOCKS = [0]  # how many blocks keep linear algebra to one thread
_LIMITS: dict[str, Any] = {}  # by path of the library


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep OpenMP and linear algebra to one thread: cores are shared, and sums keep their order.

    Linear algebra has one number of threads for the whole process: the first of several blocks that
    overlap in different threads lowers it, and the last one restores it. Newer versions of
    threadpoolctl ignore all threads but the first that sets it, until that one has left its last
    block of limits; hence the blocks that limit no library.
    """
    with _libraries("openmp").limit(limits=1):
        with _LOCK, _libraries("none").limit(limits=1):
            _BLOCKS[0] += 1
            libraries = _libraries("blas")
            # A library that only an inner block finds was loaded after the outer one began.
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
    """Return what controls the libraries of this process of a kind: "openmp", "blas", "none"."""
    return _loaded(len(sys.modules)).select(user_api=kind)


@functools.lru_cache(maxsize=1)
def _loaded(n_modules: int) -> Any:
    """Find the libraries of this process, anew if modules were imported since."""
    return ThreadpoolController()
