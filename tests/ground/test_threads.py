"""Small work runs on one thread, beside a busy neighbour too, and the caller's settings stay."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from threadpoolctl import threadpool_info, threadpool_limits

from fareg import SplitConformalClassifier
from fareg._threads import MANY_VALUES, few_threads, one_thread
from fareg.metrics import excess_risk

SMALL = np.zeros((100, 5))
# fits while every core is kept busy by another process; imports are done before
FIT = """
import os, subprocess, sys, time
import numpy as np
from fareg import SplitConformalClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 5))
y = (X[:, 0] * X[:, 1] + rng.normal(size=2000) > 0).astype(int)
SplitConformalClassifier(random_state=0).fit(X[:50], y[:50]).predict_set(X)
busy = [sys.executable, "-c", "while True: pass"]
neighbours = [subprocess.Popen(busy) for _ in range(os.cpu_count() or 1)]
try:
    for _ in range(3):
        start = time.perf_counter()
        SplitConformalClassifier(random_state=0).fit(X, y).predict_set(X)
        print(time.perf_counter() - start)
finally:
    for neighbour in neighbours:
        neighbour.kill()
        neighbour.wait()
"""


def openmp_threads():
    """Return the largest number of threads that any OpenMP library would use now."""
    counts = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "openmp"]
    return max(counts)


class Watcher(ClassifierMixin, BaseEstimator):
    """A classifier that notes how many threads it is given."""

    seen: list = []  # noqa: RUF012  # clones share it

    def fit(self, X, y):
        self.seen.append(openmp_threads())
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        self.seen.append(openmp_threads())
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


@pytest.fixture
def seen():
    """Return a fresh list of what watchers see, with three threads as the caller's setting."""
    Watcher.seen = []
    with threadpool_limits(3, user_api="openmp"):
        yield Watcher.seen
        assert openmp_threads() == 3


@pytest.mark.parametrize("mine", [1, 2, 3])
def test_small_work_has_one_thread_and_the_callers_setting_comes_back(mine):
    with threadpool_limits(mine, user_api="openmp"):
        with few_threads(SMALL):
            assert openmp_threads() == 1
            with few_threads(SMALL):
                assert openmp_threads() == 1
            assert openmp_threads() == 1
        assert openmp_threads() == mine
        with pytest.raises(KeyError), few_threads(SMALL):
            raise KeyError
        assert openmp_threads() == mine


@pytest.mark.parametrize(("more", "threads"), [(0, 1), (1, 3)])
def test_the_size_of_the_work_alone_decides(more, threads):
    table = np.broadcast_to(0.0, (MANY_VALUES // 5 + more, 5))
    with threadpool_limits(3, user_api="openmp"), few_threads(table):
        assert openmp_threads() == threads


def test_blocks_that_overlap_in_two_threads_leave_nothing_changed():
    """The second begins while the first is inside, and ends after it."""
    inside = [threading.Event(), threading.Event()]
    ends = [threading.Event(), threading.Event()]
    during = []

    def work(number):
        with one_thread():
            inside[number].set()
            assert ends[number].wait(30)
            during.append({library["num_threads"] for library in threadpool_info()})

    before = dict(os.environ)
    mine = threadpool_limits(2)
    with threadpool_limits(None):  # at its end other threads may set numbers too
        pools = threadpool_info()
    threads = [threading.Thread(target=work, args=[number]) for number in range(2)]
    for thread, began in zip(threads, inside, strict=True):
        thread.start()
        assert began.wait(30)
    for thread, end in zip(threads, ends, strict=True):
        end.set()
        thread.join()
    try:
        assert threadpool_info() == pools
        assert dict(os.environ) == before
        assert during == [{1}, {1}]  # the end of the first is not the end of the second
    finally:
        mine.restore_original_limits()


def test_estimators_are_trained_and_asked_on_one_thread(seen):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), np.arange(400) % 2
    SplitConformalClassifier(Watcher(), random_state=0).fit(X, y).predict_set(X)
    excess_risk(X, y, estimator=Watcher(), n_splits=2)
    assert len(seen) >= 7
    assert set(seen) == {1}


def seconds_of_fit(**variables):
    """Return the seconds of a small fit beside busy cores, the variable unset but for these.

    The best of three: what counts is the fit, not what else the machine does meanwhile.
    """
    inherited = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", FIT]
    done = subprocess.run(
        command, env=inherited | variables, stdout=subprocess.PIPE, text=True, check=True
    )
    return min(map(float, done.stdout.split()))


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has no threads that wait")
def test_a_busy_neighbour_slows_a_fit_no_more_than_its_share_of_the_cores():
    users, single = seconds_of_fit(), seconds_of_fit(OMP_NUM_THREADS="1")
    assert users < 3 * single + 0.5  # threads that wait for each other take twenty times as long
