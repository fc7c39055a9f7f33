"""Hundreds of rounds, many threads and processes, full disks and sudden death."""

import ctypes
import gc
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

import fareg
from fareg.workflow import calibrate_file, read_table
from forked import started

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc"),
]
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.integers(0, 2, 160).astype(float), "c": RNG.normal(size=160)})
Y = np.where(X["c"] + RNG.normal(size=160) > 0, "yes", "no")
QUICK = {
    "split": fareg.SplitConformalClassifier(),
    "partial": fareg.PartialConformalClassifier(sensitive_features=[0]),
    "exhaustive": fareg.ExhaustiveConformalClassifier(sensitive_features=[0]),
    "afcp": fareg.AFCPClassifier(sensitive_features=[0]),
    "condcp": fareg.CondCPClassifier(sensitive_features=[0]),
}
TRAINED = {
    "plcp": fareg.PLCPClassifier(max_iter=2, n_restarts=1, sensitive_features=[0]),
    "fareg": fareg.FaReGClassifier(),
    "paper": fareg.FaReGClassifier.paper(epochs=3, n_draws=2),
}
CLASSIFIERS = {**QUICK, **TRAINED}


def fit(name, seed=0, X=X):
    estimator = DecisionTreeClassifier(max_depth=2, random_state=0)
    return clone(CLASSIFIERS[name]).set_params(estimator=estimator, random_state=seed).fit(X, Y)


# --- hundreds of rounds ------------------------------------------------------------------------

LIBC = ctypes.CDLL(None)
ROUNDS, WARM_UP = 300, 80
# bytes: the allocator's own ups and downs, 7 MB once; a leak of 115 kB per round is seen
SLACK = 8 << 20


class Leaks:
    """What a process holds now, to compare with what it holds after many more rounds."""

    def __init__(self, n_rounds, reused=200):
        self.n_rounds, self.reused = n_rounds, reused
        self.held = self.now()

    def now(self):
        """Return objects in memory, resident bytes and open files, after garbage is gone."""
        gc.collect()
        if hasattr(LIBC, "malloc_trim"):  # freed memory goes back, or it would count as held
            LIBC.malloc_trim(0)
        resident = int(Path("/proc/self/statm").read_text().split()[1])
        n_open = len(os.listdir("/proc/self/fd"))
        return sys.getallocatedblocks(), resident * os.sysconf("SC_PAGE_SIZE"), n_open

    def grown(self):
        return np.subtract(self.now(), self.held)

    def check(self, earlier=np.inf):
        """Refuse growth; what did not grow in all ``earlier`` rounds too is a cache."""
        objects, resident, n_open = np.minimum(self.grown(), earlier)
        assert objects < self.n_rounds + self.reused  # caches fill up; a leak grows every round
        assert resident < SLACK
        assert n_open <= 0


@pytest.mark.filterwarnings("ignore")  # pytest would keep every warning in memory
def test_hundreds_of_rounds_leave_no_memory_and_no_open_files_behind(tmp_path):
    path, array = tmp_path / "m.fareg", X.to_numpy()
    names = itertools.cycle([*list(QUICK) * 5, *TRAINED])  # training takes longest
    stretch = (ROUNDS - WARM_UP) // 3
    earlier, leaks = np.inf, None
    for round_, name in zip(range(ROUNDS), names, strict=False):
        if round_ in range(WARM_UP, WARM_UP + 3 * stretch, stretch):
            if leaks is not None:
                earlier = np.minimum(leaks.grown(), earlier)
            leaks = Leaks(stretch, reused=100)
        clf = fit(name, round_, array)
        fareg.save(clf, path)
        back = fareg.load(path)
        sets = clf.predict_set(array)
        np.testing.assert_array_equal(back.predict_set(array), sets)
        np.testing.assert_array_equal(back.predict_table(array)["size"], sets.sum(axis=1))
    leaks.check(earlier)
    assert os.listdir(tmp_path) == ["m.fareg"]


# --- threads and processes ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_threads_that_share_a_model_get_the_answers_of_one(name):
    clf = fit(name)
    parts = [X[i : i + 20] for i in range(0, len(X), 20)] * 3
    expected = [clf.predict_set(part) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(clf.predict_set, parts))
    np.testing.assert_array_equal(got, expected)


def test_fits_in_threads_equal_fits_one_after_the_other():
    tasks = [(name, seed) for seed in range(2) for name in CLASSIFIERS]
    expected = [fit(*task).predict_set(X) for task in tasks]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda task: fit(*task).predict_set(X), tasks))
    np.testing.assert_array_equal(got, expected)


def test_fits_and_predictions_in_processes_equal_those_here():
    def answers(clf, fitted, X, Y):  # inside: it travels to the processes by value
        return clf.fit(X, Y).predict_set(X), fitted.predict_set(X)

    fitted = {name: fit(name) for name in CLASSIFIERS}
    got = Parallel(n_jobs=2)(delayed(answers)(clone(c), c, X, Y) for c in fitted.values())
    for clf, (refitted, predicted) in zip(fitted.values(), got, strict=True):
        np.testing.assert_array_equal(refitted, clf.predict_set(X))
        np.testing.assert_array_equal(predicted, clf.predict_set(X))


def test_threads_that_save_to_one_path_and_load_from_it_see_whole_files(tmp_path):
    path = tmp_path / "m.fareg"
    models = [fit("split", seed) for seed in range(4)]
    known = {clf.predict_set(X).tobytes() for clf in models}
    fareg.save(models[0], path)
    with ThreadPoolExecutor(4) as pool:
        saves = [pool.submit(fareg.save, clf, path) for clf in models * 10]
        loads = [pool.submit(fareg.load, path) for _ in range(40)]
        for job in [*saves, *loads]:
            job.result()
    assert {load.result().predict_set(X).tobytes() for load in loads} <= known
    assert os.listdir(tmp_path) == ["m.fareg"]


def test_one_thread_may_save_while_another_trains_for_the_first_time(tmp_path):
    """The first save imports skops, which does not disturb training."""
    code = f"""
import threading, warnings
import numpy as np, fareg
from sklearn.linear_model import LogisticRegression
warnings.simplefilter("ignore")
X = np.random.default_rng(0).normal(size=(300, 2))
y = X[:, 0] > 0
split = fareg.SplitConformalClassifier(LogisticRegression(), random_state=0).fit(X, y)
network = fareg.FaReGClassifier.paper(LogisticRegression(), epochs=2)
start, done = threading.Barrier(2), []

def train():
    start.wait()
    done.append(network.fit(X, y))

thread = threading.Thread(target=train)
thread.start()
start.wait()
fareg.save(split, {str(tmp_path / "m.fareg")!r})
thread.join()
assert len(done) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# --- full disks and sudden death ---------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a table to learn from, new rows, and a model."""
    folder = tmp_path_factory.mktemp("place")
    X.assign(y=Y)[:120].to_csv(folder / "t.csv", index=False)
    X.to_csv(folder / "new.csv", index=False)
    (folder / "parts").mkdir()
    for part in range(4):
        X.assign(y=Y)[part::4].to_parquet(folder / "parts" / f"{part}.parquet", row_group_size=10)
    tree = DecisionTreeClassifier(random_state=0)  # its file is larger than the small disk
    clf = fareg.FaReGClassifier(tree, random_state=0)
    fareg.save(clf.fit(X, Y), folder / "m.fareg")
    return folder


FILES = {
    "fit": ["m.fareg", "r.html"],
    "predict csv": ["s.csv"],
    "predict parquet": ["s.parquet"],
    "audit": ["r.html"],
    "fit folder": ["m.fareg"],
    "audit folder": ["r.html"],
    "calibrate folder": ["m.fareg"],
}
IS_WHOLE = {
    ".fareg": lambda path: fareg.load(path).predict_set(X).any(),
    ".csv": lambda path: len(pd.read_csv(path)) == len(X),
    ".parquet": lambda path: len(pd.read_parquet(path)) == len(X),
    ".html": lambda path: path.read_text(encoding="utf-8").rstrip().endswith("</html>"),
}


def command(name, place, out):
    """Return the arguments of a command that writes ``FILES[name]`` to the folder ``out``."""
    table, model = place / "t.csv", place / "m.fareg"
    if name.endswith("folder"):
        table = place / "parts"
    verb = name.split()[0]
    arguments = {
        "fit": [table, "--target", "y", "--estimator", "logistic"],
        "predict": [model, place / "new.csv"],
        "audit": [table, "--target", "y", "--model", model],
        "calibrate": [model, table, "--target", "y", "--engine", "local:1"],
    }[verb]
    options = {".html": "--report"}
    files = [(options.get(Path(file).suffix, "--out"), out / file) for file in FILES[name]]
    return [verb, *map(str, [*arguments, *itertools.chain.from_iterable(files)])]


CHILD = """
import os, resource, signal, sys
os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
if limit is not None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
if dies:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
exec(code)
"""
RUN = """
import fareg.workflow._predict as room
from fareg.cli import app
room.BATCH_ROWS = 10
app(arguments)
"""
SAVE = """
import fareg
clf = fareg.load(arguments[0])
while True:
    fareg.save(clf, arguments[1])
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return a function that starts code in a new process with all imports done."""
    log = tmp_path_factory.mktemp("log") / "stderr.txt"

    def start_child(arguments, code=RUN, *, limit=None, dies=False):
        names = {"arguments": arguments, "code": code, "limit": limit, "dies": dies}
        process = started(CHILD, **names, log=str(log))
        process.log = log
        return process

    started("").join()  # the first one waits for all imports
    return start_child


def fill(folder, name):
    for file in FILES[name]:
        (folder / file).write_bytes(b"old")


def assert_whole_or_old(folder, name):
    """Check every file that a command writes, and that all other new files are temporary."""
    for path in (folder / file for file in FILES[name]):
        assert path.read_bytes() == b"old" or IS_WHOLE[path.suffix](path)
    others = set(os.listdir(folder)) - set(FILES[name])
    assert all(re.fullmatch(r"\..+\.[0-9a-f]{8}\.tmp", other) for other in others)
    return others


def test_many_calibrations_on_a_folder_leave_nothing_behind(place, tmp_path):
    def round_():
        calibrate_file(
            place / "m.fareg", place / "parts", target="y", out=tmp_path / "n.fareg", jobs=1
        )
        assert len(read_table(place / "parts", max_rows=100)) == 100

    for _ in range(30):  # caches fill up
        round_()
    # Libraries keep some eight blocks per round for reuse, and free them all after a hundred; of a
    # model that is loaded and kept, every round would leave thousands.
    leaks = Leaks(20, reused=1000)
    for _ in range(20):
        round_()
    leaks.check()
    assert os.listdir(tmp_path) == ["n.fareg"]


@pytest.mark.parametrize("name", FILES)
def test_a_kill_at_any_moment_leaves_whole_files_or_the_old_ones(name, place, start, tmp_path):
    arguments = command(name, place, tmp_path)
    begin = time.monotonic()
    whole = start(arguments)
    whole.join()
    seconds = time.monotonic() - begin
    assert whole.exitcode == 0, whole.log.read_text()
    assert assert_whole_or_old(tmp_path, name) == set()
    ends = []
    for moment in np.linspace(0.2, 1, 5):
        fill(tmp_path, name)
        process = start(arguments)
        process.join(moment * seconds)
        process.kill()
        process.join()
        ends.append(process.exitcode)
        assert_whole_or_old(tmp_path, name)
    assert -signal.SIGKILL in ends


def test_a_kill_at_any_moment_of_save_leaves_a_model_that_loads(place, start, tmp_path):
    path = tmp_path / "m.fareg"
    path.write_bytes((place / "m.fareg").read_bytes())
    expected = fareg.load(path).predict_set(X)
    for moment in np.linspace(0.1, 0.4, 12):
        process = start([str(path), str(path)], SAVE)
        process.join(moment)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        np.testing.assert_array_equal(fareg.load(path).predict_set(X), expected)


@pytest.mark.parametrize("name", FILES)
def test_death_in_the_middle_of_a_write_leaves_the_old_files(name, place, start, tmp_path):
    fill(tmp_path, name)
    process = start(command(name, place, tmp_path), limit=2000, dies=True)
    process.join()
    assert process.exitcode == -signal.SIGXFSZ
    assert len(assert_whole_or_old(tmp_path, name)) == 1  # the unfinished file, under its own name
    assert all((tmp_path / file).read_bytes() == b"old" for file in FILES[name])


def assert_refused(process, folder, name, words):
    """Check for exit code 2, one line on stderr, the old files and nothing else."""
    process.join()
    line = process.log.read_text()
    assert process.exitcode == 2, line
    assert line.startswith("Error: cannot write")
    assert words in line
    assert line.count("\n") == 1
    assert assert_whole_or_old(folder, name) == set()
    assert (folder / FILES[name][0]).read_bytes() == b"old"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_grows_too_large_is_one_line_and_leaves_the_old_files(
    name, place, start, tmp_path
):
    fill(tmp_path, name)
    process = start(command(name, place, tmp_path), limit=2000)
    assert_refused(process, tmp_path, name, "file too large")


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a disk with room for a few kilobytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_is_one_line_and_leaves_the_old_files(name, place, start, small_disk):
    fill(small_disk, name)
    process = start(command(name, place, small_disk))
    assert_refused(process, small_disk, name, "the disk is full")
