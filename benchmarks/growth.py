"""How time grows with the calibration rows N and with the predicted rows M."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import Ready, Row, in_turn

from fareg import (
    AFCPClassifier,
    CondCPClassifier,
    ExhaustiveConformalClassifier,
    FaReGClassifier,
    FaregWarning,
    PartialConformalClassifier,
    PLCPClassifier,
    SplitConformalClassifier,
    audit,
)
from fareg.datasets import make_synthetic
from fareg.metrics import worst_slab_coverage
from fareg.pvalues import conformal_pvalues

SIZES = (1_000, 10_000, 100_000, 1_000_000)
N_FIXED, M_FIXED = 10_000, 1_000
LIMIT = 60.0  # seconds; sizes that would take longer, by the last slope, are left out
METHODS: dict[str, Callable[..., Any]] = {
    "Split": SplitConformalClassifier,
    "Partial": PartialConformalClassifier,
    "Exhaustive": ExhaustiveConformalClassifier,
    "AFCP": AFCPClassifier,
    "CondCP": CondCPClassifier,
    "PLCP": PLCPClassifier,
    "FaReG": FaReGClassifier,
    "FaReG.paper()": FaReGClassifier.paper,
}


@functools.cache
def draw() -> Any:
    return make_synthetic(max(SIZES) + N_FIXED, random_state=1)


def conformalized(method: str, n: int) -> Any:
    data = draw()
    clf = METHODS[method](Ready(), sensitive_features=list(data.sensitive), random_state=0)
    return clf.conformalize(data.X[:n], data.y[:n])


def in_calibration(method: str, n: int) -> Callable[[], Any]:
    """Conformalize on n rows and predict a thousand, so that no work is postponed."""
    X = draw().X[-M_FIXED:]
    return lambda: conformalized(method, n).predict_set(X)


def in_prediction(method: str) -> Callable[[int], Callable[[], Any]]:
    """Predict n rows."""
    clf, X = conformalized(method, N_FIXED), draw().X
    return lambda n: lambda: clf.predict_set(X[:n])


def pvalues(n: int, m: int) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    calibration, scores = rng.random(n), rng.random((m, 6))
    return lambda: conformal_pvalues(calibration, scores)


def slab(kind: str, n: int) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    X, covered = rng.random((n, 10)), rng.random(n) < 0.9
    return lambda: worst_slab_coverage(X, covered, kind=kind, n_directions=100, random_state=0)


def audited(n: int) -> Callable[[], Any]:
    data = draw()
    X, y = data.X[:n], data.y[:n]
    sets = Ready().predict_proba(X) > 0.1
    return lambda: audit(X, y, sets, sensitive_features=list(data.sensitive), random_state=0)


def curve(name: str, axis: str, make: Callable[[int], Callable[[], Any]]) -> dict[str, Any]:
    """Time growing sizes; fit the exponent to all but the first, at least to two."""
    sizes: list[int] = []
    times: list[float] = []
    for n in SIZES:
        if len(times) > 1 and times[-1] * (n / sizes[-1]) ** slope_of(sizes, times) > LIMIT:
            break
        times.append(in_turn(make(n), repeats=3)[0][0])
        sizes.append(n)
    last = max(2, len(sizes) - 1)
    exponent = np.polyfit(np.log(sizes[-last:]), np.log(times[-last:]), 1)[0]
    return {
        "name": name,
        "axis": axis,
        "sizes": sizes,
        "seconds": times,
        "exponent": float(exponent),
        "last": slope_of(sizes, times),
    }


def slope_of(sizes: list[int], times: list[float]) -> float:
    """Return the exponent of the last step."""
    return float(np.log(times[-1] / times[-2]) / np.log(sizes[-1] / sizes[-2]))


def measure() -> dict:
    """Time every method on 10^3 to 10^6 rows, up to calls of a minute."""
    warnings.simplefilter("ignore", FaregWarning)  # small cells are part of it
    conformalized("FaReG", 1_000)  # loads libraries
    curves = [curve(name, "N", functools.partial(in_calibration, name)) for name in METHODS]
    curves += [
        curve("p-values", "N", lambda n: pvalues(n, M_FIXED)),
        curve("WSC", "N", functools.partial(slab, "linear")),
        curve("WSC+", "N", functools.partial(slab, "quadratic")),
        curve("audit", "N", audited),
    ]
    curves += [curve(name, "M", in_prediction(name)) for name in METHODS]
    curves.append(curve("p-values", "M", lambda m: pvalues(N_FIXED, m)))
    words = {"N": "calibration rows", "M": "predicted rows"}
    searches = ("WSC", "WSC+", "audit")
    rows = [
        Row(
            f"{c['name']}, {c['sizes'][-1]:,} "
            f"{'rows' if c['name'] in searches else words[c['axis']]}",
            c["seconds"][-1],
            note=f"time grows as {c['axis']}^{c['exponent']:.2f}",
        )
        for c in curves
    ]
    return {"rows": rows, "curves": curves}
