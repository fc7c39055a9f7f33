"""From the tidy file to what a page shows: paired differences, averages over tables, ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fareg._validation import FloatArray
from fareg.experiments.arena._peers import PEERS
from fareg.experiments.arena._rows import METHODS

SETTING = ("table", "labels", "model", "score", "n", "seed")
SPLIT_NAME, MATCHED_NAME, ORACLE_NAME = (
    METHODS[name].name for name in ("split", "matched", "oracle")
)
N_RESAMPLES = 2000
ENOUGH = 0.5  # share of the settings in which a method must have been run
PAIRED = ("coverage", "mean_size", "worst_cells")
MEASURES = ("coverage", "worst_cells", "ert_under", "wsc_plus_held_out", "group_coverage")


def compared(results: pd.DataFrame, labels: str) -> pd.DataFrame:
    """Return the rows of one kind of labels that can be compared, with what is paired.

    Methods that were run in less than half of the settings are left out. Of the others, only
    settings in which every method was run count, so that averages are over the same tables, models
    and seeds. A method that failed in a setting is left out there. Other packages lack some scores
    and are left out altogether.

    ``gain`` is the coverage of the worst cells less that of split sets of the same mean size,
    ``size_ratio`` the mean size relative to split sets at the confidence level.
    """
    peers = [peer.title for peer in PEERS.values()]
    own = results[(results["labels"] == labels) & ~results["method"].isin(peers)].copy()
    if own.empty:
        return own
    keys = list(SETTING)
    runs = own.groupby("method").size()
    own = own[own["method"].map(runs) >= ENOUGH * runs.max()]
    present = own.groupby(keys)["method"].transform("nunique")
    own = own[(present == own["method"].nunique()) & (own["error"] == "")]
    split = own[own["method"] == SPLIT_NAME]
    if split.empty:  # no measure is paired, and failures have none
        return split
    own = own.merge(split[[*keys, "mean_size"]], on=keys, suffixes=("", "_of_split"))
    own["size_ratio"] = own["mean_size"] / own["mean_size_of_split"]
    own["gain"] = own["worst_cells"] - own["matched_worst_cells"]
    own["seconds"] = own["fit_seconds"] + own["predict_seconds"]
    return own.drop(columns="mean_size_of_split")


def by_table(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the mean of a measure per table (rows) and method (columns)."""
    means = rows.groupby(["table", "method"])[value].mean()
    return means.unstack("method").reindex(columns=_methods(rows))


def error_by_table(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the standard errors of the means over seeds; runs of one seed are averaged first."""
    seeds = rows.groupby(["table", "method", "seed"])[value].mean()
    return (
        seeds.groupby(["table", "method"]).sem().unstack("method").reindex(columns=_methods(rows))
    )


def ranks(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the rank of each method per table, 1 for the largest value, ties shared.

    The oracle takes no part, nor do split sets of another method's size.
    """
    table = by_table(rows, value)
    table = table.drop(columns=[ORACLE_NAME, MATCHED_NAME], errors="ignore")
    return table.rank(axis=1, ascending=False, method="average")


def with_interval(values: pd.Series) -> tuple[float, float, float]:
    """Return the mean over tables and its 95% bootstrap interval, tables drawn with replacement.

    >>> mean, low, high = with_interval(pd.Series([0.0, 1.0, 2.0, 3.0]))
    >>> mean, bool(0 < low < 1 < high < 3)
    (1.5, True)
    """
    present: FloatArray = values.dropna().to_numpy(np.float64)
    if len(present) < 2:
        return (float(present.mean()) if len(present) else np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    means = rng.choice(present, (N_RESAMPLES, len(present))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(present.mean()), float(low), float(high)


def overview(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per method: averages over tables, gains and ranks with intervals."""
    summary = pd.DataFrame(index=pd.Index(_methods(rows), name="method"))
    for name in (*MEASURES, "seconds", "training_seconds"):
        summary[name] = by_table(rows, name).mean() if rows[name].notna().any() else np.nan
    with np.errstate(divide="ignore"):  # sets of a method may all be empty
        summary["size_ratio"] = np.exp(np.log(by_table(rows, "size_ratio")).mean())
    for name, table in {"gain": by_table(rows, "gain"), "rank": ranks(rows, "gain")}.items():
        for method in table:
            columns = [name, f"{name}_low", f"{name}_high"]
            summary.loc[method, columns] = with_interval(table[method])
    return summary


def beside_split(results: pd.DataFrame) -> pd.DataFrame:
    """Return how the predictors of other packages differ from split sets, in equal settings."""
    keys = list(SETTING)
    done = results[results["error"] == ""]
    split = done[done["method"] == SPLIT_NAME].set_index(keys)
    found = []
    for name in (peer.title for peer in PEERS.values()):
        own = done[done["method"] == name].set_index(keys)
        shared = own.index.intersection(split.index)
        if len(shared):
            differences = own.loc[shared, list(PAIRED)] - split.loc[shared, list(PAIRED)]
            means = {measure: differences[measure].mean() for measure in PAIRED}
            found.append({"method": name, "settings": len(shared), **means})
    return pd.DataFrame(found)


def _methods(rows: pd.DataFrame) -> list[str]:
    """Return the methods in the order of the benchmark, those from elsewhere last."""
    known = [method.name for method in METHODS.values()]
    found = list(rows["method"].unique())
    return [name for name in known if name in found] + sorted(set(found) - set(known))
