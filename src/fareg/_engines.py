"""Where tasks run: processes on this machine, or a dask cluster. The results are the same."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from joblib import Parallel, delayed, parallel_config

from fareg._validation import FaregError, LostWorkersError, check_count
from fareg._words import first_line

CONNECT_SECONDS = 10
WATCH_SECONDS = 1.0
ADDRESS = re.compile(r"\w+://.+")


def run_tasks(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    engine: str = "local",
    jobs: int | None = None,
) -> Iterator[Any]:
    """Yield ``function(task)`` for every task, in the order in which they finish.

    Define the function in a module, so that other processes can import it. ``engine`` is "local",
    "dask" for a cluster on this machine, or the address of a running dask scheduler. If a worker
    dies, dask repeats its task on another one. ``jobs`` is the number of processes on this machine,
    None for one per core; they end when this process ends, even if it is killed.
    """
    jobs = check_engine(engine, jobs)
    if not tasks:
        return iter(())
    run = ENGINES.get(engine, _run_dask)
    return run(function, tasks, min(jobs, len(tasks)), engine)


def check_engine(engine: str, jobs: int | None) -> int:
    """Check the arguments of :func:`run_tasks` and return the number of processes."""
    address = "an address such as tcp://head:8786"
    if engine not in ENGINES and not ADDRESS.fullmatch(engine):
        raise FaregError(f"engine must be one of local, dask or {address}, got {engine!r}")
    return (os.cpu_count() or 1) if jobs is None else check_count("jobs", jobs)


def _run_local(
    function: Callable[[Any], Any], tasks: Sequence[Any], jobs: int, engine: str
) -> Iterator[Any]:
    """Run tasks in ``jobs`` processes, or in this one if ``jobs`` is 1."""
    if jobs == 1:
        yield from map(function, tasks)
        return
    run = delayed(functools.partial(_run_in_worker, function, os.getpid()))
    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        try:
            yield from parallel(run(task) for task in tasks)
        except BrokenProcessPool as error:
            raise LostWorkersError(
                "a worker process died, perhaps for lack of memory; run this again with fewer jobs"
            ) from error


def _run_in_worker(function: Callable[[Any], Any], parent: int, task: Any) -> Any:
    _end_with(parent)
    return function(task)


@functools.cache  # once per process
def _end_with(parent: int) -> None:
    """End this process soon after its parent: a parent that is killed cannot end its workers."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_dask(
    function: Callable[[Any], Any], tasks: Sequence[Any], jobs: int, engine: str
) -> Iterator[Any]:
    """Run tasks on the cluster of a running scheduler, or on a local one of ``jobs`` processes."""
    try:
        from distributed import KilledWorker, as_completed
        from distributed.comm import CommClosedError
    except ImportError as error:
        raise FaregError(
            "the engine dask needs dask and distributed; install them with "
            "pip install 'fareg[dask]', or use the engine local"
        ) from error
    lost = LostWorkersError(
        f"the connection to the dask scheduler at {engine} was lost; run this again when it is back"
    )
    try:
        with _silent("distributed"), _connected(engine, jobs) as client:
            futures = client.map(function, tasks, pure=False)
            for future, result in as_completed(futures, loop=client.loop, with_results=True):
                if future.cancelled():  # the client does this if it loses its scheduler
                    raise lost
                yield result
    except (CommClosedError, CancelledError, asyncio.CancelledError) as error:
        raise lost from error
    except KilledWorker as error:
        raise LostWorkersError(
            "dask workers keep dying, perhaps for lack of memory; give them more, or run this "
            "again with fewer jobs"
        ) from error


@contextmanager
def _connected(engine: str, jobs: int) -> Iterator[Any]:
    """Yield a client of a running scheduler, or of a local cluster that ends with the block."""
    from distributed import Client, LocalCluster

    if engine == "dask":
        local: dict[str, Any] = {"n_workers": jobs, "threads_per_worker": 1, "processes": True}
        with (
            LocalCluster(**local, dashboard_address=None, silence_logs=logging.CRITICAL) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            client.run(_leave_interrupts_to_the_parent)
            yield client
        return
    try:
        opened = Client(engine, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # each kind of address raises its own errors
        raise FaregError(
            f"cannot reach the dask scheduler at {engine} ({first_line(error)}); check the "
            "address, or choose dask to start a local cluster"
        ) from error
    with opened as client:
        yield client


def _leave_interrupts_to_the_parent() -> None:
    """Ignore Ctrl-C in workers, which get it from the terminal too: the parent ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _silent(package: str) -> Iterator[None]:
    """Silence the logs of a package: our errors say the same in one sentence."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == package]
    thresholds = {logger: logger.level for logger in map(logging.getLogger, names)}
    try:
        for logger in thresholds:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, threshold in thresholds.items():
            logger.setLevel(threshold)


ENGINES = {"local": _run_local, "dask": _run_dask}
