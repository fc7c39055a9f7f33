"""Where tasks run: processes on this machine, or a dask cluster. The results are the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from joblib import Parallel, delayed, parallel_config

from fareg._validation import FaregError, check_choice, check_count

CONNECT_SECONDS = 10
DIED = (
    "a worker process died, perhaps for lack of memory; results so far are kept, so run the same "
    "again with fewer jobs"
)


def run_tasks(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    engine: str = "local",
    jobs: int | None = None,
    scheduler: str | None = None,
) -> Iterator[Any]:
    """Yield ``function(task)`` for every task, in the order in which they finish.

    The function must be one of a module, so that other processes find it. ``engine`` is "local" or
    "dask"; dask runs a task again on another worker if its own dies. ``jobs`` are processes on this
    machine, None for one per core. ``scheduler`` is the address of a running dask scheduler; None
    starts a cluster on this machine.

    >>> sorted(run_tasks(abs, [-2, 1], jobs=1))
    [1, 2]
    """
    jobs = check_engine(engine, jobs, scheduler)
    if not tasks:
        return iter(())
    return ENGINES[engine](function, tasks, min(jobs, len(tasks)), scheduler)


def check_engine(engine: str, jobs: int | None, scheduler: str | None) -> int:
    """Return the number of processes, after checks of what :func:`run_tasks` is told."""
    check_choice("engine", engine, ENGINES)
    if scheduler is not None and engine != "dask":
        raise FaregError(
            "a scheduler is for the engine dask, got engine local; choose dask, or leave out the "
            "scheduler"
        )
    return (os.cpu_count() or 1) if jobs is None else check_count("jobs", jobs)


def _run_local(
    function: Callable[[Any], Any], tasks: Sequence[Any], jobs: int, scheduler: str | None
) -> Iterator[Any]:
    """Run tasks in ``jobs`` processes, or in this one if ``jobs`` is 1."""
    if jobs == 1:
        yield from map(function, tasks)
        return
    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        try:
            yield from parallel(delayed(function)(task) for task in tasks)
        except BrokenProcessPool as error:
            raise FaregError(DIED) from error


def _run_dask(
    function: Callable[[Any], Any], tasks: Sequence[Any], jobs: int, scheduler: str | None
) -> Iterator[Any]:
    """Run tasks on a dask cluster: that of ``scheduler``, or a local one of ``jobs`` processes."""
    try:
        from distributed import Client, KilledWorker, LocalCluster, as_completed
    except ImportError as error:
        raise FaregError(
            "the engine dask needs dask and distributed; install them with "
            "pip install 'fareg[dask]', or use the engine local"
        ) from error
    cluster: Any = scheduler
    if scheduler is None:
        cluster = LocalCluster(
            n_workers=jobs, threads_per_worker=1, processes=True, dashboard_address=None
        )
    try:
        with _connect(Client, cluster, scheduler) as client:
            futures = client.map(function, tasks, pure=False)
            for _, result in as_completed(futures, loop=client.loop, with_results=True):
                yield result
    except KilledWorker as error:
        raise FaregError(DIED) from error
    finally:
        if scheduler is None:
            cluster.close()


def _connect(client: Any, cluster: Any, scheduler: str | None) -> Any:
    try:
        return client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise FaregError(
            f"cannot reach the dask scheduler at {scheduler} ({type(error).__name__}); check the "
            "address, or leave it out to start a local cluster"
        ) from error


ENGINES = {"local": _run_local, "dask": _run_dask}
