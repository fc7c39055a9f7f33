"""Where units run: processes on this machine, or a dask cluster. The rows are the same."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pandas as pd
from joblib import Parallel, delayed, parallel_config

from fareg._validation import FaregError
from fareg.experiments._cells import Unit, run_unit

Finished = Iterator[tuple[Unit, dict[str, pd.DataFrame]]]
CONNECT_SECONDS = 10
RETRIES = 3  # of a unit that fails with its worker
DIED = (
    "a worker process died, perhaps for lack of memory; results so far are kept, "
    "run the same command again with fewer --jobs"
)


def run_local(units: list[Unit], folder: str, jobs: int, scheduler: str | None) -> Finished:
    """Run units in ``jobs`` processes, or in this one if ``jobs`` is 1."""
    if jobs == 1 or len(units) == 1:
        for unit in units:
            yield _run(unit, folder)
        return
    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        try:
            yield from parallel(delayed(_run)(unit, folder) for unit in units)
        except BrokenProcessPool as error:
            raise FaregError(DIED) from error


def run_dask(units: list[Unit], folder: str, jobs: int, scheduler: str | None) -> Finished:
    """Run units on a dask cluster: that of ``scheduler``, or a local one of ``jobs`` processes.

    Workers store cells in ``folder`` if they share the disk; rows also come back with the result.
    """
    try:
        from distributed import Client, KilledWorker, LocalCluster, as_completed
    except ImportError as error:
        raise FaregError(
            "--engine dask needs dask and distributed; install them with "
            "pip install 'fareg[dask]', or use --engine local"
        ) from error
    cluster: Any = scheduler
    if scheduler is None:
        cluster = LocalCluster(
            n_workers=jobs, threads_per_worker=1, processes=True, dashboard_address=None
        )
    try:
        with _connect(Client, cluster, scheduler) as client:
            futures = client.map(_run, units, folder=folder, pure=False, retries=RETRIES)
            for _, result in as_completed(futures, loop=client.loop, with_results=True):
                yield result
    except KilledWorker as error:
        raise FaregError(DIED) from error
    finally:
        if scheduler is None:
            cluster.close()


def _run(unit: Unit, folder: str) -> tuple[Unit, dict[str, pd.DataFrame]]:
    return unit, run_unit(unit, folder)


def _connect(client: Any, cluster: Any, scheduler: str | None) -> Any:
    try:
        return client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise FaregError(
            f"cannot reach the dask scheduler at {scheduler} ({type(error).__name__}); check the "
            "address, or leave out --scheduler to start a local cluster"
        ) from error


ENGINES = {"local": run_local, "dask": run_dask}
