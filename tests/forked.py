"""Processes that start with all imports done, for tests that kill many of them."""

import contextlib
import multiprocessing

# What commands and runs import on demand. The children of one server share these imports, which
# would take longer than most of their work.
PRELOADED = [
    *(f"fareg.workflow._{name}" for name in ("audit", "calibrate", "fit", "predict")),
    *("fareg.cli", "fareg.classifiers._report", "fareg.experiments._runs"),
    *("fareg.paper", "pyarrow.dataset", "skops.io", "distributed"),
]
CONTEXT = multiprocessing.get_context("forkserver")


def started(code, /, **names):
    """Return a process that runs ``code``, with these names, in a new session."""
    CONTEXT.set_forkserver_preload(PRELOADED)
    code = f"import os\nos.setsid()\n{code}"
    process = CONTEXT.Process(target=exec, args=(code, {"__name__": "forked", **names}))
    process.start()
    return process


def forked_workers():
    """Return a context in which workers of dask start with all imports done."""
    import dask

    started("").join()  # before dask starts a server with fewer imports
    return dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})


@contextlib.contextmanager
def dask_cluster():
    """Yield a dask cluster of two processes on this machine."""
    import distributed

    with (
        forked_workers(),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
    ):
        yield cluster
