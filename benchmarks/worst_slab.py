"""The worst-slab search against covmetrics and MAPIE, on the same slabs where they allow it."""

from __future__ import annotations

from functools import partial

import numpy as np
from measure import Row, in_child, in_turn, memory, seconds

from fareg.metrics import worst_slab_coverage
from fareg.metrics._slab_search import draw_directions

DELTA = 0.1
N_FEATURES = 10
LARGE = {"n_samples": 100_000, "n_directions": 200}


def make(n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return uniform features and a coverage that is lower in one corner."""
    rng = np.random.default_rng(0)
    X = rng.random((n_samples, N_FEATURES))
    hard = (X[:, 0] < 0.3) & (X[:, 1] < 0.5)
    return X, rng.random(n_samples) < np.where(hard, 0.7, 0.93)


def search(X, covered, kind, n_directions):
    # without repeated projections both conventions search the same slabs
    options = {"delta": DELTA, "kind": kind, "n_directions": n_directions, "random_state": 0}
    return worst_slab_coverage(X, covered, **options)


def as_linear(X, kind, n_directions):
    """Return features and vectors whose products are the projections that ``search`` draws.

    ``x' W x + v' x`` is linear in the products of two features, so a package that has only linear
    slabs can search the quadratic ones.
    """
    drawn = draw_directions(n_directions, N_FEATURES, kind, np.random.default_rng(0))
    i, j = np.triu_indices(N_FEATURES if kind == "quadratic" else 0)
    return np.hstack([X, X[:, i] * X[:, j]]), drawn


def against_covmetrics(kind: str, n_samples: int = 2000, n_directions: int = 100) -> list[Row]:
    """Search the same slabs with both packages and compare the value of each direction."""
    import torch
    from covmetrics.slab_metrics import wsc_all_numpy, wsc_all_torch

    X, covered = make(n_samples)
    features, vectors = as_linear(X, kind, n_directions)
    arrays = features, covered.astype(float)
    tensors = [torch.as_tensor(array, dtype=torch.float32) for array in (*arrays, vectors)]
    (fast, found), (slow, numpy_answer), (slow_torch, torch_answer) = in_turn(
        lambda: search(X, covered, kind, n_directions),
        lambda: wsc_all_numpy(*arrays, DELTA, vectors),
        lambda: wsc_all_torch(*tensors[:2], DELTA, tensors[2]),
    )
    what = f"{NAMES[kind]}, {n_samples:,} rows, {n_directions} directions"
    rows = []
    for peer, time, values in (
        ("covmetrics", slow, numpy_answer[0]),
        ("covmetrics on torch (float32)", slow_torch, torch_answer[0].numpy()),
    ):
        note = f"same directions, largest difference {np.abs(found.values - values).max():.0e}"
        rows.append(Row(what, fast, peer, time, note=note))
    return rows


def against_mapie(n_samples: int = 2000, n_directions: int = 100) -> Row:
    """Compare with MAPIE, which draws other directions."""
    from mapie.metrics.conditional import worst_slab_coverage as mapie

    X, covered = make(n_samples)
    y = np.zeros(n_samples, dtype=int)
    sets = np.column_stack([covered, ~covered])
    (fast, found), (slow, value) = in_turn(
        partial(search, X, covered, "linear", n_directions),
        lambda: mapie(X, y, y_sets=sets, delta=DELTA, n_directions=n_directions),
    )
    note = f"wraps covmetrics, other directions: {found.value:.3f} and {value:.3f}"
    what = f"WSC, {n_samples:,} rows, {n_directions} directions"
    return Row(what, fast, "MAPIE", slow, note=note)


def large_peak(kind: str) -> float:
    X, covered = make(LARGE["n_samples"])
    search(X[:100], covered[:100], kind, 2)
    with memory() as used:
        search(X, covered, kind, LARGE["n_directions"])
    return used.peak_mib


def large(kind: str) -> Row:
    """Time a search that is too large for the peers, whose steps are quadratic in the rows."""
    n_samples, n_directions = LARGE.values()
    X, covered = make(n_samples)
    elapsed, _ = seconds(partial(search, X, covered, kind, n_directions))
    return Row(
        f"{NAMES[kind]}, {n_samples:,} rows, {n_directions} directions",
        elapsed,
        ours_peak_mib=in_child("worst_slab", "large_peak", kind=kind),
        note="the peers compare all pairs of rows: out of reach",
    )


NAMES = {"linear": "WSC", "quadratic": "WSC+"}


def measure() -> dict:
    rows = [*against_covmetrics("linear"), against_mapie(), *against_covmetrics("quadratic")]
    return {"rows": [*rows, *map(large, NAMES)]}
