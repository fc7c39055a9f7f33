"""Calls of the command line for tests, and their table."""

from unittest.mock import patch

import numpy as np
from typer.testing import CliRunner

from fareg.cli import app
from fareg.datasets import make_synthetic

DATA = make_synthetic(3000, random_state=0)
FRAME = DATA.X.assign(outcome=np.array(["low", "mid", "high", "a|b", "e", "f"])[DATA.y])
SMALL = FRAME[["Color", "Gender", "Feature 1", "outcome"]][:120]


def run(*arguments, code=0, batch_rows=50_000):
    with patch("fareg.workflow._predict.BATCH_ROWS", batch_rows):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exit_code != code:
        raise AssertionError(f"exit {done.exit_code}: {done.stderr}") from done.exception
    return done


def refused(*arguments, **options):
    """Run a command that must fail with code 2, and return its one line on stderr."""
    done = run(*arguments, code=2, **options)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr
