"""A million people: 10^6 rows calibrate, 10^7 rows are predicted from a Parquet file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from measure import Row, in_child, memory, seconds
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fareg import FaReGClassifier, load, save
from fareg._encoding import gradient_boosting, one_hot_encoder
from fareg.datasets import make_synthetic
from fareg.workflow import predict_file

N_TRAIN, N_CALIBRATE = 20_000, 1_000_000
N_PREDICT = (1_000_000, 10_000_000)  # memory must not grow with them
CHUNK = 1_000_000
N_BOOSTED = 100_000
SETS = "sets.parquet"


def write(path: Path, n_rows: int, *, target: str | None = None, seed: int = 2) -> None:
    """Write rows by chunks, so that this process stays small too; with labels as ``target``."""
    writer = None
    for number, start in enumerate(range(0, n_rows, CHUNK), start=seed):
        data = make_synthetic(min(CHUNK, n_rows - start), random_state=number)
        frame = data.X if target is None else data.X.assign(**{target: data.y})
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def conformalize(folder: str, n_rows: int) -> dict[str, Any]:
    """Train on few rows, calibrate on many, save the classifier."""
    train, data = make_synthetic(N_TRAIN, random_state=0), make_synthetic(n_rows, random_state=1)
    model = make_pipeline(one_hot_encoder(), LogisticRegression(max_iter=200))
    clf = FaReGClassifier(
        FrozenEstimator(model.fit(train.X, train.y)),
        sensitive_features=list(data.sensitive),
        random_state=0,
    )
    clf.conformalize(data.X[:1000], data.y[:1000])  # loads libraries
    with memory() as used:
        elapsed, _ = seconds(lambda: clf.conformalize(data.X, data.y))
    save(clf, Path(folder, "m.fareg"))
    rule = str(clf.groups_["rule"].iloc[0])
    return {"seconds": elapsed, "peak": used.peak_mib, "rule": rule}


def load_only(folder: str) -> float:
    with memory() as used:
        load(Path(folder, "m.fareg"))
    return used.peak_mib


def predict(folder: str) -> dict[str, Any]:
    paths = [Path(folder, name) for name in ("m.fareg", "people.parquet", SETS)]
    with memory() as used:
        elapsed, summary = seconds(lambda: predict_file(*paths))
    return {**summary, "seconds": elapsed, "peak": used.peak_mib}


def predicted(folder: str, n_rows: int) -> Row:
    """Write a table, predict it, and measure memory beyond the loaded model."""
    write(Path(folder, "people.parquet"), n_rows)
    loaded = in_child("million", "load_only", folder=folder)
    summary = in_child("million", "predict", folder=folder)
    sizes = [Path(folder, name).stat().st_size / n_rows for name in ("people.parquet", SETS)]
    note = (
        f"{n_rows / summary['seconds']:,.0f} rows a second, {sizes[0]:.0f} bytes a row read, "
        f"{sizes[1]:.0f} written, {summary['mean_size']:.2f} labels on average; "
        "memory beyond the loaded model"
    )
    what = f"predict_file, {summary['rows']:,} rows of Parquet"
    return Row(what, summary["seconds"], ours_peak_mib=summary["peak"] - loaded, note=note)


def boosting_alone() -> Row:
    """Time a base model of the usual weight, for comparison."""
    data = make_synthetic(N_BOOSTED, random_state=0)
    model = gradient_boosting(random_state=0).fit(data.X[:N_TRAIN], data.y[:N_TRAIN])
    elapsed, _ = seconds(lambda: model.predict_proba(data.X))
    note = f"{elapsed / N_BOOSTED * 1e6:.0f} µs a row, six labels"
    return Row(f"gradient boosting alone, {N_BOOSTED:,} rows", elapsed, note=note)


def measure() -> dict:
    with tempfile.TemporaryDirectory() as folder:
        fitted = in_child("million", "conformalize", folder=folder, n_rows=N_CALIBRATE)
        rows = [
            Row(
                f"FaReG, conformalize on {N_CALIBRATE:,} rows",
                fitted["seconds"],
                ours_peak_mib=fitted["peak"],
                note=f"finds: {fitted['rule']}",
            )
        ]
        return {"rows": [*rows, *(predicted(folder, n) for n in N_PREDICT), boosting_alone()]}
