"""A folder with tables and a model for the tests of the command line."""

import signal

import pytest

from shell import FRAME, SMALL, run

# A shell lets what it starts in the background ignore Ctrl-C, and the commands would inherit it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a table in both formats and a model."""
    folder = tmp_path_factory.mktemp("cli")
    FRAME[:2400].to_csv(folder / "train.csv", index=False)
    FRAME[2400:].to_csv(folder / "new.csv", index=False)
    FRAME[2400:].to_parquet(folder / "new.parquet")
    arguments = (
        "--target",
        "outcome",
        "--sensitive",
        "Color, Gender",
        "--estimator",
        "logistic",
        "--seed",
        1,
    )
    done = run("fit", folder / "train.csv", *arguments, "--out", folder / "m.fareg")
    (folder / "fit.txt").write_text(done.stdout, encoding="utf-8")
    return folder


@pytest.fixture
def small(tmp_path):
    SMALL.to_csv(tmp_path / "small.csv", index=False)
    return tmp_path / "small.csv"
