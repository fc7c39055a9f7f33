"""Cold start: seconds of ``fareg predict`` on a small file, and what it does not import."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import Row, in_turn

from fareg.datasets import make_synthetic
from fareg.workflow import fit_file

N_ROWS = 100
IMPORTS = "import pandas, pyarrow.parquet, sklearn.ensemble, sklearn.pipeline"


def run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def measure() -> dict:
    """Time the command beside the imports of the libraries that any such command needs."""
    with tempfile.TemporaryDirectory() as folder:
        train, new, model, out = (
            str(Path(folder, name)) for name in ("train.csv", "new.csv", "m.fareg", "sets.csv")
        )
        data = make_synthetic(2000, random_state=0)
        data.X.assign(y=data.y).to_csv(train, index=False)
        data.X[:N_ROWS].to_csv(new, index=False)
        fit_file(train, target="y", sensitive=list(data.sensitive), out=model)
        command = ["predict", model, new, "--out", out]
        (cold, _), (imports, _) = in_turn(
            partial(run, "-m", "fareg", *command),
            partial(run, "-c", IMPORTS),
            repeats=3,
            enough=float("inf"),
        )
        script = (
            "import sys; from fareg.cli import app; "
            f"app({command!r}, standalone_mode=False); print('torch' in sys.modules)"
        )
        with_torch = run("-c", script).split()[-1] == "True"
    note = (
        f"of which importing pandas, pyarrow and scikit-learn takes {imports:.2f} s; torch is "
        f"{'' if with_torch else 'not '}imported"
    )
    return {"rows": [Row(f"fareg predict, cold, {N_ROWS} rows", cold, note=note)]}
