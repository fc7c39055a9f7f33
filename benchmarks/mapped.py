"""Softmax outputs in a file: memory must not grow with the rows of a mapped array.

``python benchmarks/mapped.py 1000000`` measures one size, here 10^6 rows of 1,000 labels (4 GB).
"""

from __future__ import annotations

import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measure import Row, in_child, seconds

from fareg import SplitConformalClassifier

N_ROWS = (5_000, 20_000)
N_LABELS = 1_000
WRITTEN = 2_000  # rows that are made at a time


def write(path: str, n_rows: int) -> np.ndarray:
    """Write probabilities in float32, and return labels that follow them."""
    rng = np.random.default_rng(0)
    proba = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, N_LABELS))
    labels = []
    for start in range(0, n_rows, WRITTEN):
        logits = 3 * rng.normal(size=(min(WRITTEN, n_rows - start), N_LABELS))
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        proba[start : start + len(p)] = p
        labels.append((p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1))
    return np.concatenate(labels).clip(max=N_LABELS - 1)


def calibrate(n_rows: int) -> dict[str, Any]:
    """Calibrate on an array in a file and predict the same rows; count what is allocated."""
    rng = np.random.default_rng(1)
    who = pd.DataFrame({"sex": rng.choice(["f", "m"], n_rows), "age": rng.integers(18, 90, n_rows)})
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "proba.npy"))
        y = write(path, n_rows)
        clf = SplitConformalClassifier(random_state=0)
        found = {}
        for name in ("conformalize", "predict_set"):
            proba = np.load(path, mmap_mode="r")
            call = {
                "conformalize": lambda p: clf.conformalize(
                    who, y, proba=p, classes=range(N_LABELS)
                ),
                "predict_set": lambda p: clf.predict_set(who, proba=p),
            }[name]
            tracemalloc.start()
            elapsed, _ = seconds(lambda call=call, proba=proba: call(proba))
            found[name] = {"seconds": elapsed, "peak": tracemalloc.get_traced_memory()[1] / 2**20}
            tracemalloc.stop()
    return found


def lines(n_rows: int) -> list[Row]:
    found = in_child("mapped", "calibrate", n_rows=n_rows)
    in_file = n_rows * N_LABELS * 4 / 2**20
    notes = {
        "conformalize": f"{in_file:,.0f} MiB in the file",
        "predict_set": f"{in_file / 4:,.0f} MiB of them are the sets",
    }
    return [
        Row(
            f"split conformal, {name}, {n_rows:,} rows of {N_LABELS:,} labels",
            found[name]["seconds"],
            ours_peak_mib=found[name]["peak"],
            note=note,
        )
        for name, note in notes.items()
    ]


def measure() -> dict:
    return {"rows": [row for n_rows in N_ROWS for row in lines(n_rows)]}


if __name__ == "__main__":
    print(*lines(int(sys.argv[1])), sep="\n")
