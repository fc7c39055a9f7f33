"""Processes that start with all imports done, for tests that end many of them."""

import contextlib
import multiprocessing

# What commands and runs import when they need it. Children of one server share it, and imports
# take longer than most of what a test lets them do.
PRELOADED = [
    *(f"fareg.workflow._{name}" for name in ("audit", "calibrate", "fit_file", "predict_folder")),
    *("fareg.cli", "fareg.classifiers._report", "fareg.experiments._runner"),
    *("fareg.groups._training", "pyarrow.dataset", "skops.io", "distributed"),
]
CONTEXT = multiprocessing.get_context("forkserver")


def started(code, **names):
    """Return a process that runs ``code``, with these names, in a session of its own."""
    CONTEXT.set_forkserver_preload(PRELOADED)
    code = f"import os\nos.setsid()\n{code}"
    process = CONTEXT.Process(target=exec, args=(code, {"__name__": "forked", **names}))
    process.start()
    return process


@contextlib.contextmanager
def dask_cluster(n_workers=2):
    """Yield a dask cluster of processes on this machine."""
    import dask
    import distributed

    started("").join()  # before dask starts a server that has imported less
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
    ):
        yield cluster
