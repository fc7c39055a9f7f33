"""Ten million people in a folder: read a sample, calibrate on all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from measure import Row, in_child, memory, seconds
from million import load_only, write
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fareg import FaReGClassifier, save
from fareg._encoding import one_hot_encoder
from fareg.datasets import make_synthetic
from fareg.workflow import MAX_ROWS, calibrate_file, read_table

N_FIT, N_PARTS, PART_ROWS = 20_000, 10, 1_000_000
PEOPLE, MODEL = "people", "m.fareg"


def prepare(folder: str) -> None:
    """Write the parts and a model that is calibrated on few rows."""
    data = make_synthetic(N_FIT, random_state=0)
    model = make_pipeline(one_hot_encoder(), LogisticRegression(max_iter=200))
    half = N_FIT // 2
    frozen = FrozenEstimator(model.fit(data.X[:half], data.y[:half]))
    clf = FaReGClassifier(frozen, sensitive_features=list(data.sensitive), random_state=0)
    save(clf.conformalize(data.X[half:], data.y[half:]), Path(folder, MODEL))
    Path(folder, PEOPLE).mkdir()
    for part in range(N_PARTS):
        path = Path(folder, PEOPLE, f"{part}.parquet")
        write(path, PART_ROWS, target="outcome", seed=1000 + part)


def sample(folder: str) -> dict[str, Any]:
    """Read a million of the rows."""
    source = Path(folder, PEOPLE)
    read_table(next(source.iterdir()), columns=["outcome"])  # loads libraries
    with memory() as used:
        elapsed, frame = seconds(lambda: read_table(source, max_rows=MAX_ROWS))
    table = frame.memory_usage(deep=True).sum() / 2**20
    return {"seconds": elapsed, "peak": used.peak_mib, "table": float(table), "rows": len(frame)}


def calibrate(folder: str) -> dict[str, Any]:
    """Calibrate the model on all rows, in one process."""
    model, source = Path(folder, MODEL), Path(folder, PEOPLE)
    load_only(folder)
    with memory() as used:
        elapsed, summary = seconds(
            lambda: calibrate_file(
                model, source, target="outcome", out=Path(folder, "new.fareg"), jobs=1
            )
        )
    return {**summary, "seconds": elapsed, "peak": used.peak_mib}


def measure() -> dict:
    """Return the rows of the page."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        read, counted = (
            in_child("folders", step, folder=folder) for step in ("sample", "calibrate")
        )
        total = N_PARTS * PART_ROWS
        per_row = counted["seconds"] / counted["rows"] * 1e6
        n_levels = len(counted["thresholds"][0])
        return {
            "rows": [
                Row(
                    f"sample {read['rows']:,} of {total:,} rows of a folder",
                    read["seconds"],
                    ours_peak_mib=read["peak"],
                    note=f"the frame itself has {read['table']:.0f} MiB",
                ),
                Row(
                    f"calibrate_file, {counted['rows']:,} rows",
                    counted["seconds"],
                    ours_peak_mib=counted["peak"],
                    note=f"{n_levels} levels, {per_row:.1f} µs a row",
                ),
            ]
        }
